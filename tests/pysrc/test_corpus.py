"""Every function of the corpus gives the same eager and compiled, or is refused with the code that the corpus names."""

from importlib import import_module

import pytest
from tests.pysrc import support

FILES = ("branches", "loops", "functions", "classes", "effects")
CASES = {f"{file}-{name}": case for file in FILES for name, case in
         import_module(f"tests.pysrc.corpus_{file}").CORPUS.cases.items()}  # fmt: skip
SAME = {name: case for name, case in CASES.items() if not case.refused}
REFUSED = {name: case for name, case in CASES.items() if case.refused}


@pytest.mark.parametrize("name", SAME)
def test_same(name):
    found = support.mismatches(SAME[name])
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("name", [n for n, case in SAME.items() if case.grad])
def test_same_gradients(name):
    found = support.gradient_mismatches(SAME[name])
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    assert support.refusal(REFUSED[name]) == REFUSED[name].refused
