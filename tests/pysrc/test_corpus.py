"""Every function of the corpus gives the same eager and compiled, or is refused with the code that the corpus names."""

from importlib import import_module
from pathlib import Path

import pytest
from tests.pysrc import support

FILES = sorted(p.stem for p in Path(__file__).parent.glob("corpus_*.py"))
CASES = {
    f"{file.removeprefix('corpus_')}-{name}": case
    for file in FILES
    for name, case in import_module(f"tests.pysrc.{file}").CORPUS.cases.items()
}
SAME = {name: case for name, case in CASES.items() if not case.refused}
REFUSED = {name: case for name, case in CASES.items() if case.refused}


@pytest.mark.parametrize("name", SAME)
def test_same(name):
    found = support.mismatches(SAME[name])
    if found:
        pytest.fail("\n".join(found), pytrace=False)


GRADIENTS = [name for name, case in SAME.items() if case.grad]


@pytest.mark.parametrize("name", GRADIENTS)
def test_same_gradients(name):
    found = support.gradient_mismatches(SAME[name], support.interpreted)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADIENTS)
def test_same_compiled_gradients(name):
    found = support.gradient_mismatches(SAME[name])
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    assert support.refusal(REFUSED[name]) == REFUSED[name].refused


def test_the_corpus_is_large():
    assert len(SAME) >= 400
