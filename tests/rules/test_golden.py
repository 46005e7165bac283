"""The golden fixture: a missing or different file fails and shows the text, --update-golden writes it."""

import pytest
from tests.conftest import check_golden


def test_missing_file_fails_and_prints_the_text(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="the text of it"):
        check_golden(tmp_path / "a.txt", "the text of it", update=False)
    assert not (tmp_path / "a.txt").exists()


def test_update_writes_then_equal_text_passes_and_another_fails(tmp_path):
    file = tmp_path / "folder" / "a.txt"
    check_golden(file, "one\ntwo", update=True)
    assert file.read_text() == "one\ntwo\n"
    check_golden(file, "one\ntwo", update=False)
    with pytest.raises(AssertionError, match="differs"):
        check_golden(file, "one\nthree", update=False)
