"""A program of equal layers in parts: what it computes, keeps and reports, against the same as one program."""

from functools import cache

import numpy as np
import pytest

import treadle as td
from treadle import driver, nn
from treadle.api.programs import trace_module
from treadle.base.errors import UserError
from treadle.base.flags import override
from treadle.ir import interp
from treadle.ir.types import f32
from treadle.runtime import pjrt
from treadle.runtime.chain import Chain
from treadle.transforms import parts

LAYERS, WIDTH = 5, 16


@pytest.fixture(autouse=True)
def small_programs_too(monkeypatch):
    monkeypatch.setattr(parts, "RUN_S", 1e-15)
    monkeypatch.setattr(parts, "MIN_RUN_S", 0.0)
    monkeypatch.setattr(parts, "MIN_SHARE", 0.4)


class Block(nn.Cell):
    def __init__(self):
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Net(nn.Cell):
    def __init__(self):
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return (self.head(x) ** 2).mean()


@cache
def trained(split, steps=3):
    """Losses of a few steps, the new parameters, and the program that ran."""
    td.manual_seed(7)
    net = Net()
    net.train()
    optimiser = td.optim.AdamW(list(net.parameters()), lr=1e-2)

    def step(x):
        loss, grads = td.value_and_grad(lambda: net(x), list(net.parameters()))()
        optimiser.step(grads)
        return loss

    jitted = td.jit(step)
    x = td.tensor(np.random.default_rng(0).normal(size=(8, WIDTH)).astype(np.float32))
    with override(parts=split):
        losses = [float(jitted(x).numpy()) for _ in range(steps)]
    (program,) = jitted.programs()
    return losses, [p.numpy() for p in net.parameters()], program


def test_training_with_dropout_draws_and_computes_the_same():
    """Every layer has random numbers of its own, the same ones as in one program."""
    losses, params, program = trained(True)
    expected, wanted, single = trained(False)
    assert isinstance(program.executable, Chain) and not isinstance(single.executable, Chain)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for mine, other in zip(params, wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    runs = [r.program for r in program.executable.runs]
    assert max(map(runs.count, runs)) >= LAYERS - 1
    assert len(program.executable.programs) < len(runs) / 2


def layered(layers=6):
    def main(x, *ws):
        for w in ws:
            x = x + (x @ w).tanh() * (x * 0.5).sigmoid() - (x.exp() + 1.0).log().sin()
        return x

    types = [f32[4, 4]] * (layers + 1)
    args = [np.random.default_rng(i).normal(size=(4, 4)).astype(np.float32) for i in range(layers + 1)]
    module = driver.optimise(trace_module(main, *map(td.tensor, args)))
    return module, types, args


def test_reports_and_arguments():
    module, types, args = layered()
    made = driver.compile_module(module, "layered")
    assert isinstance(made, Chain) and list(made.inputs) == types
    (got,) = made(args)
    np.testing.assert_allclose(np.asarray(got), interp.run(module, *args)[0], rtol=1e-5)
    with override(parts=False):
        whole = driver.compile_module(module, "layered")
    assert not isinstance(whole, Chain)
    assert made.memory().arguments == whole.memory().arguments
    assert made.memory().outputs == whole.memory().outputs
    assert made.memory().temporaries >= 4 * 4 * 4, "what layers hand on"
    assert made.cost_analysis()["flops"] == pytest.approx(whole.cost_analysis()["flops"], rel=0.2)
    assert f"// run {len(args) - 1} times" in made.hlo_text()
    with pytest.raises(UserError, match="E0401"):
        made([*args[:-1], args[-1].astype(np.float64)])
    with pytest.raises(UserError, match="E0401"):
        made(args[:-1])


def test_taken_memory_is_gone_and_reported():
    """The parameters of a training step, all donated, are used up by the updates of their layers."""
    _, _, program = trained(True)
    memory = program.executable.memory()
    state = sum(t.type.bytes for t in program.updated if t.ndim)
    assert memory.aliased >= 0.9 * state
    state = [t.numpy() for t in program.updated]
    inputs = program.executable.inputs
    rest = [np.zeros(t.shape, t.dtype.np) for t in inputs[: len(inputs) - len(state)]]
    arrays = [pjrt.put(a) for a in (*rest, *state)]
    program.executable.call(arrays)
    donated = program.executable.donated
    assert sum(arrays[i].is_deleted() for i in donated) >= 0.9 * len(donated)
    assert not any(a.is_deleted() for i, a in enumerate(arrays) if i not in donated)


def test_the_message_says_how_many(capsys):
    module, _, _ = layered()
    with override(debug=1):
        driver.compile_module(module, "layered")
    assert "compiled layered as 1 programs in 6 runs" in capsys.readouterr().err
