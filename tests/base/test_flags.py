"""base/flags.py: what the environment says, also in the words of another framework."""

import pytest

from treadle.base.errors import UserError
from treadle.base.flags import FLAGS

FUSION = FLAGS["fusion"]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    monkeypatch.delenv("TREADLE_FUSION", raising=False)
    monkeypatch.delenv("MS_GRAPH_KERNEL_FLAGS", raising=False)


def test_the_level_of_fusion_in_both_spellings(monkeypatch):
    assert FUSION.read() == FUSION.default
    monkeypatch.setenv("MS_GRAPH_KERNEL_FLAGS", "--opt_level=1")
    assert FUSION.read() == 1
    monkeypatch.setenv("TREADLE_FUSION", "3")
    assert FUSION.read() == 3


@pytest.mark.parametrize("text", ["", "--opt_level=9", "--opt_level=two", "--dump_as_text", "--opt_level=1 --x=2"])
def test_other_texts_are_refused(monkeypatch, text):
    monkeypatch.setenv("MS_GRAPH_KERNEL_FLAGS", text)
    with pytest.raises(UserError, match="E0701"):
        FUSION.read()
