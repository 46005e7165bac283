"""`treadle show`: each stage of a function of a user's file, and mistakes as text that names the user's line."""

import pytest

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.cli.main import main
from treadle.cli.show import draw, parse_types
from treadle.ir.parser import parse_module
from treadle.ir.types import TensorType

FILE = """
import numpy as np
import treadle as td

def cost(x, y):
    return x * (x + y)

@td.jit
def fast(x, y):
    return -(-(x * y))

class Box:
    @staticmethod
    def double(x):
        return x + x

def broken(x):
    return x + undefined

example_args = (np.ones(2, np.float32), np.full(2, 3, np.float32))
number = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sample_file.py"
    path.write_text(FILE)
    return str(path)


def show(capsys, *arguments):
    code = main(["show", *arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def test_the_source_that_the_compiler_reads(file, capsys, tmp_path):
    path = tmp_path / "branch.py"
    path.write_text("def clip(x):\n    if x > 1:\n        x = x * 0\n    return x\n\n\nlength = len\n")
    assert "_td_.if_(_td_.bound(x) > 1, _td_then1, _td_else2" in show(capsys, f"{path}:clip", "--stage", "source")
    assert "def fast(x, y):" in show(capsys, f"{file}:fast", "--stage", "source")
    assert main(["show", f"{path}:length", "--stage", "source"]) == 2
    assert "E0712" in capsys.readouterr().err


def test_front(file, capsys):
    out = show(capsys, f"{file}:cost")
    assert [n.op.name for n in parse_module(out).main.nodes] == ["add", "mul"]
    assert "(%a0: f32[2], %a1: f32[2]) -> (f32[2])" in out


def test_positions(file, capsys):
    assert f'mul %a0, %0 : f32[2] @ "{file}":6' in show(capsys, f"{file}:cost", "--where")


def test_types_are_given_on_the_line(file, capsys):
    assert "(%a0: f64[3,4]) -> (f64[3,4])" in show(capsys, f"{file}:Box.double", "--args", "f64[3,4]")


def test_grad(file, capsys):
    main_fn = parse_module(show(capsys, f"{file}:cost", "--stage", "grad")).main
    assert len(main_fn.params) == 3 and len(main_fn.outputs) == 2


def test_opt(file, capsys):
    assert "neg" in show(capsys, f"{file}:fast")
    assert [n.op.name for n in parse_module(show(capsys, f"{file}:fast", "--stage", "opt")).main.nodes] == ["mul"]


def test_hlo(file, capsys):
    assert "stablehlo.multiply" in show(capsys, f"{file}:cost", "--stage", "hlo")


def test_run(file, capsys):
    out = show(capsys, f"{file}:cost", "--stage", "run")
    assert out.startswith("result 0: f32[2] [4, 4]\n")
    assert "transforms" in out and "algebra" in out


@pytest.mark.parametrize(
    "target, arguments, code, says",
    [
        ("cost", [], "E0712", "FILE:FUNCTION"),
        ("no_such_file.py:f", [], "E0710", "no_such_file.py"),
        ("{file}:cots", [], "E0712", "cost, fast"),
        ("{file}:number", [], "E0712", "not a function"),
        ("{file}:cost", ["--args", "f32[2"], "E0714", "f32[2"),
        ("{file}:cost", ["--args", "q7[2]"], "E0101", "q7"),
        ("{file}:broken", ["--args", "f32[2]"], "E0713", "return x + undefined"),
        ("{file}:Box.double", [], "E0714", "Box.double(x) with 2 arguments"),
    ],
)
def test_mistakes(file, capsys, target, arguments, code, says):
    assert main(["show", target.format(file=file), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error {code} ") and says in err and "Traceback" not in err


def test_a_file_without_example_args(tmp_path, capsys):
    path = tmp_path / "plain.py"
    path.write_text("def f(x): return x\n")
    assert main(["show", f"{path}:f"]) == 2
    assert "E0714" in capsys.readouterr().err


@pytest.mark.parametrize("body, says", [("def f(:\n", "SyntaxError"), ("x = 1 / 0\n", "ZeroDivisionError")])
def test_a_file_that_fails(tmp_path, capsys, body, says):
    path = tmp_path / "failing.py"
    path.write_text(body)
    assert main(["show", f"{path}:f"]) == 2
    err = capsys.readouterr().err
    assert "E0713" in err and says in err and f"{path}:1" in err


def test_types_on_the_line():
    found = parse_types("f32[4,8], i32[],bool[0]")
    assert found == [
        TensorType(dtypes.float32, (4, 8)), TensorType(dtypes.int32, ()), TensorType(dtypes.bool_, (0,)),
    ]  # fmt: skip
    assert parse_types("") == []
    assert [(a.dtype.name, a.shape) for a in draw(found)] == [("float32", (4, 8)), ("int32", ()), ("bool", (0,))]
    with pytest.raises(UserError, match="E0714"):
        parse_types("f32(4)")
