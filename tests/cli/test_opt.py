"""`treadle opt`: text in, text out; differences, times, verification and shrinking; errors as text with exit codes."""

import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle.base.errors import internal_error
from treadle.cli.main import COMMANDS, main
from treadle.ir.node import Module
from treadle.ir.parser import parse_module
from treadle.ir.printer import print_module
from treadle.ir.verify import verify
from treadle.ir.walk import all_nodes
from treadle.transforms import pipeline as pipelines
from treadle.transforms.pipeline import Pass

PROGRAM = """treadle-ir 1

fn main(%a0: f32[2]) -> (f32[2]) {
  %0 = neg %a0 : f32[2] @ "net.py":3 in "net"
  %1 = neg %0 : f32[2] @ "net.py":4
  %2 = exp %a0 : f32[2]
  %3 = tanh %1 : f32[2] @ "net.py":5
  return %3
}
"""
OPTIMISED = """treadle-ir 1

fn main(%a0: f32[2]) -> (f32[2]) {
  %0 = tanh %a0 : f32[2]
  return %0
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.ir"
    path.write_text(PROGRAM)
    return str(path)


def test_text_in_text_out(file, capsys):
    assert main(["opt", file, "-p", "algebra,dce", "--verify"]) == 0
    out, err = capsys.readouterr()
    assert out == OPTIMISED and err == ""


def test_standard_input_and_positions(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(PROGRAM))
    assert main(["opt", "-", "--where"]) == 0
    assert capsys.readouterr().out == OPTIMISED.replace("tanh %a0 : f32[2]", 'tanh %a0 : f32[2] @ "net.py":5')


def test_between_and_time(file, capsys):
    assert main(["opt", file, "-p", "algebra,cse,dce", "--between", "--time"]) == 0
    err = capsys.readouterr().err
    assert "--- algebra before" in err and "-  %1 = neg %0 : f32[2]" in err
    assert "pass cse: no change" in err
    assert "double_neg x1" in err and "nodes before" in err


@pytest.mark.parametrize(
    "text, pipeline, code",
    [
        (None, "dce", "E0710"),
        (PROGRAM, "dec", "E0380"),
        (PROGRAM, "fold{limit=x}", "E0381"),
        (PROGRAM.replace("neg %a0", "nag %a0"), "dce", "E0192"),
        (PROGRAM.replace("neg %0", "neg %7"), "dce", "E0192"),
        ("", "dce", "E0192"),
    ],
)
def test_mistakes_are_text_with_exit_code_2(text, pipeline, code, tmp_path, capsys):
    path = tmp_path / "net.ir"
    if text is not None:
        path.write_text(text)
    assert main(["opt", str(path), "-p", pipeline]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error {code} ") and "fix" in err
    assert "Traceback" not in err and "  at  " not in err


def test_illegal_ir_is_a_fault(tmp_path, capsys):
    path = tmp_path / "net.ir"
    path.write_text(PROGRAM.replace("exp %a0 : f32[2]", "exp %a0 : f32[3]"))
    assert main(["opt", str(path), "--verify"]) == 3
    assert "the type rule gives" in capsys.readouterr().err


@dataclass(frozen=True)
class FailsOnExp(Pass):
    """For tests: cannot stand exp after neg."""

    def __call__(self, module: Module) -> Module:
        for node in all_nodes(module):
            if node.op.name == "exp" and node.inputs[0].node is not None and node.inputs[0].node.op.name == "neg":
                internal_error("planted")
        return module


def test_shrink(tmp_path, monkeypatch, capsys):
    path = tmp_path / "net.ir"
    lines = ["%0 = tanh %a0 : f32[2]"]
    lines += [f"%{i} = {'exp' if i == 7 else 'neg'} %{i - 1} : f32[2]" for i in range(1, 12)]
    path.write_text("treadle-ir 1\nfn main(%a0: f32[2]) -> (f32[2]) {\n" + "\n".join(lines) + "\nreturn %11\n}\n")
    load = pipelines._load
    monkeypatch.setattr(pipelines, "_load", lambda name, o: FailsOnExp() if name == "bad" else load(name, o))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["opt", str(path), "-p", "cse,bad", "--shrink"]) == 1
    small = parse_module(capsys.readouterr().out).main
    assert [n.op.name for n in small.nodes] == ["neg", "exp"]
    assert len(small.params) == 1 and not small.outputs
    assert main(["opt", str(path), "-p", "cse", "--shrink"]) == 2
    assert "E0711" in capsys.readouterr().err


def test_help_names_every_command_and_loads_no_backend():
    script = (
        "import sys; from treadle.cli.main import main; code = main(['--help'])\n"
        "print(sorted({'jax', 'jaxlib', 'rich', 'treadle.cli.opt', 'treadle.cli.show'} & set(sys.modules)))\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in COMMANDS)
    assert done.stdout.splitlines()[-1] == "[]"


def test_wrong_usage_is_exit_code_2(capsys):
    assert main(["frobnicate"]) == 2
    assert main([]) == 2
    assert "usage: treadle" in capsys.readouterr().err


def test_the_example_in_the_documents_is_ir():
    page = Path(__file__).resolve().parents[2] / "docs" / "ir.md"
    example = page.read_text().split("```")[1].lstrip("\n")
    assert print_module(verify(parse_module(example)), where=True) == example
