"""The pipeline: its text, what it records and prints, and what a failing pass leaves behind."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle.base import events
from treadle.base.errors import InternalError, UserError
from treadle.base.flags import override
from treadle.cli.main import main
from treadle.ir.build import trace
from treadle.ir.node import Fn, Module
from treadle.ir.types import f32
from treadle.ops.elementwise import add, neg
from treadle.transforms.algebra import Algebra
from treadle.transforms.dce import Dce
from treadle.transforms.fold import Fold
from treadle.transforms.pipeline import DEFAULT, Pass, Pipeline, names


def double_negation() -> Module:
    return Module.of(trace(lambda x: neg(neg(x)), [f32[2]], "main"))


@pytest.mark.parametrize("text", [DEFAULT, "dce", "cse,fold{limit=7},dce", "inline{max_nodes=9,only_once=True}", ""])
def test_text_and_pipeline_are_inverse(text):
    assert str(Pipeline.parse(text)) == text
    assert Pipeline.parse(str(Pipeline.parse(text))) == Pipeline.parse(text)


def test_spaces_and_defaults_do_not_matter():
    assert Pipeline.parse(" algebra , fold{ limit = 1024 } ") == Pipeline((Algebra(), Fold()))
    assert str(Pipeline((Algebra(), Fold(limit=1024)))) == "algebra,fold"


@pytest.mark.parametrize(
    "text, code, says",
    [
        ("algebar", "E0380", "algebra"),
        ("pipeline", "E0380", "no pass"),
        ("no_such_thing", "E0380", "algebra"),
        ("fold{limt=3}", "E0381", "limit"),
        ("fold{limit=many}", "E0381", "int"),
        ("inline{only_once=3}", "E0381", "bool"),
        ("fold{limit=3", "E0381", "limit"),
        ("cse dce", "E0381", "commas"),
    ],
)
def test_wrong_text(text, code, says):
    with pytest.raises(UserError, match=code) as error:
        Pipeline.parse(text)
    assert says in str(error.value)


def test_names_are_the_files_with_a_pass():
    assert {"algebra", "cse", "dce", "fold", "inline", "outline"} <= set(names())
    for name in names():
        assert Pipeline.parse(name).passes[0].name == name


def test_each_pass_is_recorded():
    with events.collected("transforms") as found:
        Pipeline.parse("algebra,dce").run(double_negation())
    first, second = found
    assert first.name == "algebra" and second.name == "dce"
    assert first.payload == {"nodes_before": 2, "nodes_after": 1, "changed": True, "rules": {"double_neg": 1}}
    assert second.payload == {"nodes_before": 1, "nodes_after": 0, "changed": True, "rules": {"unused node": 1}}
    assert first.seconds > 0


def test_debug_levels(capsys):
    with override(debug=2):
        Pipeline.parse("algebra,dce").run(double_negation())
    assert capsys.readouterr().err == ""
    with override(debug=3):
        Pipeline.parse("algebra,dce,cse").run(double_negation())
    shown = capsys.readouterr().err
    assert "pass algebra: 2 -> 1 nodes" in shown and "double_neg x1" in shown
    assert "pass cse" not in shown and "neg %" not in shown
    with override(debug=5):
        Pipeline.parse("algebra,dce").run(double_negation())
    assert "-  %1 = neg %0 : f32[2]" in capsys.readouterr().err


def test_between_sees_each_step():
    seen = []
    pipeline = Pipeline.parse("algebra,dce")
    after = pipeline.run(double_negation(), lambda step, old, new: seen.append((step.name, old, new)))
    assert [name for name, *_ in seen] == ["algebra", "dce"]
    assert seen[0][2] is seen[1][1] and seen[1][2] is after


@dataclass(frozen=True)
class Faulty(Pass):
    """Fails, or gives illegal IR."""

    raises: bool = True

    def __call__(self, module: Module) -> Module:
        if self.raises:
            raise KeyError("planted")
        fn = module.main
        return Module({"main": Fn("main", fn.params, fn.nodes[1:], fn.outputs)})


@pytest.mark.parametrize("raises", [True, False])
def test_a_failing_pass_leaves_what_reproduces_it(raises, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    module = Module.of(trace(lambda x: add(neg(x), x), [f32[2]], "main"))
    with override(verify=True), pytest.raises(InternalError) as error:
        Pipeline((Faulty(raises), Dce())).run(module)
    folder = Path(str(error.value).rpartition(" is in ")[2])
    assert folder.parent == tmp_path
    assert (folder / "pipeline.txt").read_text() == str(Faulty(raises))
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "treadle.transforms.test_pipeline", sys.modules[__name__])
    monkeypatch.setattr("treadle.transforms.pipeline._load", lambda name, options: Faulty(raises))
    program, *arguments = shlex.split((folder / "command.txt").read_text())
    assert program == "treadle"
    assert main(arguments) == 3
    assert "fault of Treadle" in capsys.readouterr().err


def test_errors_of_the_user_pass_through():
    @dataclass(frozen=True)
    class Refuses(Pass):
        def __call__(self, module: Module) -> Module:
            raise UserError("E0399", "not that")

    with pytest.raises(UserError, match="E0399"):
        Pipeline((Refuses(),)).run(double_negation())


def test_events_are_collected_where_old_ones_are_pushed_out():
    for _ in range(events._KEEP):
        events.record("other", "filler")
    with events.collected("transforms") as found:
        Pipeline.parse("dce").run(double_negation())
    assert [e.name for e in found] == ["dce"]
    assert not events._readers
