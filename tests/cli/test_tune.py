"""`treadle tune` and the stages of `treadle show` that tell of kernels."""

import pytest

from treadle.base.flags import override
from treadle.cli.main import main
from treadle.kernels import engine, target, tunings

FILE = """
import treadle as td
from treadle.nn import functional as F

def layer(x, w, b):
    return F.relu(x @ w + b)
"""
ARGS = "f32[160,128],f32[128,192],f32[192]"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tuned_file.py"
    path.write_text(FILE)
    return f"{path}:layer"


def test_the_report_names_kernels_and_reasons(file, capsys):
    assert main(["show", file, "--stage", "fuse", "--args", ARGS]) == 0
    out = capsys.readouterr().out
    assert "matmul broadcast_to add relu" in out and "gemm" in out and "through memory" in out
    assert main(["show", file, "--stage", "fuse", "--args", "i32[4],i32[4],i32[4]"]) in (0, 2)


@pytest.mark.parametrize("stage, word", [("loops", "tasks"), ("llvm", "define"), ("asm", "ret")])
def test_kernels_can_be_read(file, capsys, stage, word):
    assert main(["show", file, "--stage", stage, "--args", ARGS]) == 0
    assert word in capsys.readouterr().out


def test_tuning_keeps_what_it_measured(file, capsys, tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(tunings, "_known", {})
    monkeypatch.setattr(engine, "_chosen", {})
    with override(cache=True, cache_dir=str(tmp_path)):
        assert main(["tune", file, "--args", ARGS]) == 0
        out = capsys.readouterr().out
        assert "xla" in out and "gemm" in out and "*" in out
        assert list(tmp_path.glob("kernels-*.json"))
        assert main(["tune", file, "--args", ARGS]) == 0
        assert "nothing new" in capsys.readouterr().out


def test_without_llvmlite_there_is_nothing_to_tune(file, capsys, monkeypatch):
    monkeypatch.setattr(target, "available", lambda: False)
    assert main(["tune", file, "--args", ARGS]) == 2
    assert "E0418" in capsys.readouterr().err
