"""`treadle doctor` names what there is, and what is wrong."""

import pytest

from treadle.base import flags as flag_table
from treadle.base.errors import UserError
from treadle.base.flags import override
from treadle.cli.main import main
from treadle.runtime import device


def report(capsys):
    code = main(["doctor"])
    return code, capsys.readouterr().out


def test_all_is_well(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(device, "devices", lambda platform=None: ["cpu:0 (cpu)"])
    (tmp_path / "program").write_bytes(b"x" * 2048)
    with override(cache_dir=str(tmp_path), cache=True):
        code, out = report(capsys)
    assert code == 0 and out.endswith("all is well\n")
    wanted = ("numpy 2", "jaxlib 0", "python 3", "cpu:0 (cpu)", "cores", "1 files, 2.0 KiB of 2.0 GiB")
    for part in (*wanted, f"TREADLE_CACHE_DIR={tmp_path}"):
        assert part in out, part


def test_a_misspelt_switch_is_wrong(capsys, monkeypatch):
    monkeypatch.setattr(device, "devices", lambda platform=None: [])
    monkeypatch.setenv("TREADLE_DEBGU", "1")
    code, out = report(capsys)
    assert code == 1 and "wrong: the environment sets TREADLE_DEBGU" in out and "1 things are wrong" in out


def test_a_bad_value_is_wrong(capsys, monkeypatch):
    monkeypatch.setattr(device, "devices", lambda platform=None: [])
    monkeypatch.setenv("TREADLE_MODE", "sideways")
    monkeypatch.setattr("treadle.cli.doctor.flags", flag_table._Flags())
    code, out = report(capsys)
    assert code == 1 and "TREADLE_MODE='sideways' is not one of eager, graph" in out


def test_no_device_is_wrong(capsys, monkeypatch):
    def none(platform=None):
        raise UserError("E0408", "platform 'tpu' does not start", fix="unset it")

    monkeypatch.setattr(device, "devices", none)
    code, out = report(capsys)
    assert code == 1 and "wrong: no device starts: E0408" in out


@pytest.mark.slow
def test_the_real_devices(capsys):
    assert "cpu:0" in report(capsys)[1]
