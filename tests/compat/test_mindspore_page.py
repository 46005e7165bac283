"""docs/mindspore.md is what the package says of itself, and every name that it lists is there."""

import importlib
from pathlib import Path

import pytest

from treadle.compat.mindspore import _document

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mindspore.md"


def test_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == _document.document(), "run python -m treadle.compat.mindspore._document"


@pytest.mark.parametrize("name", _document._MODULES)
def test_names_are_there(name):
    module = importlib.import_module(f"treadle.compat.mindspore{'.' if name else ''}{name}")
    assert len(set(module.__all__)) == len(module.__all__)
    for each in module.__all__:
        assert getattr(module, each) is not None or each == "newaxis"


def test_scripts_of_the_page_are_those_that_are_tested():
    scripts = Path(__file__).with_name("test_mindspore_scripts.py").read_text(encoding="utf-8")
    assert scripts.count("\ndef test_") == len(_document._SCRIPTS)
