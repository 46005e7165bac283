"""Names without underscore are promises: golden/public_names.txt lists them. A change there needs a change-log line."""

import importlib
import importlib.util
import types

import pytest

MODULES = (
    "treadle",
    "treadle.array",
    "treadle.array.fft",
    "treadle.array.linalg",
    "treadle.nn",
    "treadle.nn.functional",
    "treadle.optim",
    "treadle.data",
    "treadle.train",
    "treadle.models",
)


def public_names(module: types.ModuleType) -> list[str]:
    """The sorted `__all__` of the module. Fails on a name listed twice, private or not there."""
    names = list(module.__all__)
    for name in names:
        assert names.count(name) == 1, f"{module.__name__}.__all__ lists {name} twice"
        assert not name.startswith("_") or name == "__version__", f"{module.__name__}.__all__ lists the private {name}"
        assert hasattr(module, name), f"{module.__name__}.__all__ lists {name}, which is not there"
    return sorted(names)


def test_public_names(golden):
    lines = []
    for name in MODULES:
        if importlib.util.find_spec(name) is not None:
            lines += [name, *(f"  {public}" for public in public_names(importlib.import_module(name)))]
    golden("\n".join(lines), "public_names.txt")


@pytest.mark.parametrize(
    ("names", "message"), [(["a", "a"], "twice"), (["_a"], "private"), (["b"], "not there"), (["a", "c"], "not there")]
)
def test_the_check_can_fail(names, message):
    module = types.ModuleType("module")
    module.__all__, module.a, module._a = names, 1, 2
    with pytest.raises(AssertionError, match=message):
        public_names(module)
