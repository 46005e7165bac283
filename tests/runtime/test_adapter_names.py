"""An upgrade of jax or jaxlib that drops a name we use must say which one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import treadle.runtime
from treadle.base.errors import UserError
from treadle.runtime import pjrt


def test_every_private_name_is_there():
    assert pjrt.missing_names() == []


def test_a_missing_name_is_named(monkeypatch):
    monkeypatch.setitem(pjrt.PRIVATE, "jaxlib._jax", ("no_such_name", "Client.no_such_method"))
    monkeypatch.setitem(pjrt.PRIVATE, "jaxlib.no_such_module", ("x",))
    with pytest.raises(UserError) as caught:
        pjrt._Library()
    assert caught.value.code == "E0410"
    for name in ("jaxlib._jax.no_such_name", "jaxlib._jax.Client.no_such_method", "jaxlib.no_such_module"):
        assert name in str(caught.value)


def test_only_the_adapter_imports_jax():
    for path in Path(treadle.runtime.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        imported = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        imported += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not [name for name in imported if name.split(".")[0] in ("jax", "jaxlib")], path
        assert path.name == "pjrt.py" or "jaxlib." not in path.read_text(), path
