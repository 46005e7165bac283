"""The fault test: the suite notices planted mistakes. All of them: `make faults`, or this file with the slow tests."""

import os

import pytest
from tests.faults.faults import FAULTS
from tests.faults.run import ROOT, plant, run, stale


def test_the_list_is_up_to_date():
    assert stale() == []
    assert len(FAULTS) >= 48
    assert 5 <= sum(f.quick for f in FAULTS) <= 8
    for fault in FAULTS:
        assert fault.before != fault.after
        for test in fault.tests:
            assert (ROOT / test.partition("::")[0]).exists(), f"{fault.name}: {test}"


def test_a_fault_is_planted_in_the_copy_only(tmp_path):
    fault = FAULTS[0]
    original = ROOT / "src" / "treadle" / fault.file
    copy = tmp_path / "treadle" / fault.file
    copy.parent.mkdir(parents=True)
    copy.write_text(original.read_text())
    plant(fault, tmp_path)
    assert fault.after in copy.read_text() and fault.before in original.read_text()


def test_some_faults_are_caught():
    verdicts = run([f for f in FAULTS if f.quick], jobs=min(4, os.cpu_count() or 1), say=False)
    assert set(verdicts.values()) == {"caught"}, verdicts


@pytest.mark.slow
def test_all_faults_are_caught():
    verdicts = run(FAULTS, jobs=min(4, os.cpu_count() or 1))
    assert {name: v for name, v in verdicts.items() if v != "caught"} == {}
