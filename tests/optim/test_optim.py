"""Optimisers and schedules against PyTorch's numbers, eager and compiled; state, groups, freezing, clipping."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.nn import cases

import treadle as td
from treadle import nn, optim

GOLDEN = json.loads((Path(__file__).parents[1] / "nn" / "golden.json").read_text())


def made(name: str) -> tuple[list[Any], Any]:
    params = [nn.Parameter(cases.fill(s, 1.0 + i)) for i, s in enumerate(cases.SHAPES)]
    return params, cases.OPTIMIZERS[name](optim, params)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", cases.OPTIMIZERS)
def test_steps(name: str, compiled: bool) -> None:
    params, optimizer = made(name)
    step = td.jit(optimizer.step) if compiled else optimizer.step
    for i in range(cases.STEPS):
        step([td.Tensor(g) for g in cases.gradients(i)])
    for p, wanted in zip(params, GOLDEN["optimizers"][name], strict=True):
        np.testing.assert_allclose(p.numpy().ravel(), wanted, 1e-5, 1e-6)
    assert optimizer.count.item() == cases.STEPS


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_schedule(name: str) -> None:
    optimizer = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=1.5)
    schedule = cases.SCHEDULES[name][1](optim, optimizer)
    rates = [optimizer.lr]
    for _ in range(cases.RATES):
        schedule.step()
        rates.append(optimizer.lr)
    np.testing.assert_allclose(rates, GOLDEN["schedules"][name], 1e-6)
    other = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=1.5)
    again = cases.SCHEDULES[name][1](optim, other)
    again.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    assert other.lr == optimizer.lr


def test_warm_up_then_cosine() -> None:
    optimizer = optim.Adam([nn.Parameter(np.zeros(1, np.float32))], lr=1.0)
    schedule = optim.LinearWarmup(optimizer, 4, after=optim.CosineAnnealingLR(optimizer, 4))
    rates = [optimizer.lr]
    for _ in range(8):
        schedule.step()
        rates.append(optimizer.lr)
    np.testing.assert_allclose(rates, [0, 0.25, 0.5, 0.75, 1, 0.853553, 0.5, 0.146447, 0], atol=1e-6)


def test_a_new_rate_needs_no_new_program() -> None:
    p = nn.Parameter(np.zeros(2, np.float32))
    optimizer = optim.SGD([p], lr=1.0)
    step = td.jit(optimizer.step)
    for rate in (1.0, 0.5, 0.25):
        optimizer.lr = rate
        step([np.ones(2, np.float32)])
    np.testing.assert_array_equal(p.numpy(), [-1.75, -1.75])
    assert len(step.programs()) == 1
    assert optimizer.lr == 0.25


def test_frozen_and_missing_gradients() -> None:
    p, q = nn.Parameter(np.zeros(2, np.float32)), nn.Parameter(np.zeros(2, np.float32))
    optimizer = optim.Adam([p, q], lr=0.1)
    step = td.jit(optimizer.step)
    grads = [np.ones(2, np.float32)] * 2
    q.requires_grad = False
    step(grads)
    assert p.numpy()[0] != 0 and q.numpy()[0] == 0
    q.requires_grad = True
    step(grads)
    assert q.numpy()[0] != 0
    before = p.numpy()
    optimizer.step([None, td.Tensor(grads[1])])
    np.testing.assert_array_equal(p.numpy(), before)


def test_options_change_compiled_steps() -> None:
    p = nn.Parameter(np.ones(1, np.float32))
    optimizer = optim.SGD([p], lr=1.0)
    step = td.jit(optimizer.step)
    step([np.zeros(1, np.float32)])
    optimizer.set_options(weight_decay=0.5)
    step([np.zeros(1, np.float32)])
    assert p.numpy() == 0.5
    with pytest.raises(td.UserError, match="E0531"):
        optimizer.set_options(weight_decay=-1)
    with pytest.raises(td.UserError, match="E0531"):
        optimizer.set_options(speed=1)


def test_state_goes_on_where_it_was() -> None:
    params, optimizer = made("adamw groups")
    for i in range(2):
        optimizer.step([td.Tensor(g) for g in cases.gradients(i)])
    values, state = [p.numpy() for p in params], optimizer.state_dict()
    others, other = made("adamw groups")
    for p, v in zip(others, values, strict=True):
        p.assign(v)
    other.lr = 5.0
    other.load_state_dict({k: v.numpy() for k, v in state.items()})
    assert [g.lr for g in other.groups] == pytest.approx([0.1, 0.01])
    for i in range(2, cases.STEPS):
        other.step([td.Tensor(g) for g in cases.gradients(i)])
    for p, wanted in zip(others, GOLDEN["optimizers"]["adamw groups"], strict=True):
        np.testing.assert_allclose(p.numpy().ravel(), wanted, 1e-5, 1e-6)
    with pytest.raises(td.UserError, match=r"E0535.*m\.0 is missing"):
        other.load_state_dict({k: v for k, v in state.items() if k != "m.0"})


def test_state_of_16_bit_parameters_is_float32() -> None:
    p = nn.Parameter(np.ones(2, np.float32), dtype=td.bfloat16)
    optimizer = optim.Adam([p], lr=0.01)
    optimizer.step([td.Tensor(np.ones(2), dtype=td.bfloat16)])
    assert p.dtype is td.bfloat16 and optimizer.state["v"][0].dtype is td.float32
    np.testing.assert_allclose(p.numpy().astype(np.float32), 0.99, 4e-3)


def test_clipping() -> None:
    grads = [td.Tensor(np.array([3.0, 0.0], np.float32)), None, td.Tensor(np.array([[4.0]], np.float32))]
    assert optim.global_norm(grads).item() == 5
    clipped = optim.clip_grad_norm(grads, 1.0)
    np.testing.assert_allclose(clipped[0].numpy(), [0.6, 0.0], 1e-5)
    assert clipped[1] is None
    np.testing.assert_allclose(clipped[2].numpy(), [[0.8]], 1e-5)
    np.testing.assert_array_equal(optim.clip_grad_norm(grads, 10.0)[0].numpy(), [3.0, 0.0])
    np.testing.assert_array_equal(optim.clip_grad_value(grads, 0.5)[2].numpy(), [[0.5]])
    with pytest.raises(td.UserError, match="E0536"):
        optim.clip_grad_norm([None], 1.0)
    with pytest.raises(td.UserError, match="E0536"):
        optim.clip_grad_value(grads, -1.0)


def test_wrong_arguments() -> None:
    p = nn.Parameter(np.zeros(2, np.float32))
    for wrong in (
        lambda: optim.SGD([p], lr=-1),
        lambda: optim.SGD([p], momentum=1.0),
        lambda: optim.SGD([p], nesterov=True),
        lambda: optim.Adam([p], betas=(0.9, 1.0)),
        lambda: optim.Adam([p], eps=0.0),
        lambda: optim.Adam([{"params": [p], "speed": 1}]),
        lambda: optim.StepLR(optim.SGD([p]), 0),
    ):
        with pytest.raises(td.UserError, match="E0531"):
            wrong()
    for wrong in (lambda: optim.SGD([]), lambda: optim.SGD([td.Tensor(1.0)]), lambda: optim.SGD([p, p])):
        with pytest.raises(td.UserError, match="E0530"):
            wrong()
    with pytest.raises(td.UserError, match="E0533"):
        optim.SGD([p]).step([])
    with pytest.raises(td.UserError, match="E0532"):
        td.jit(lambda: optim.SGD([p]) and None)()
    with pytest.raises(td.UserError, match="E0534"):
        optim.Optimizer([p], 0.1).step([td.Tensor(np.zeros(2, np.float32))])


def test_copies_of_state_survive_compiled_steps() -> None:
    p = nn.Parameter(np.zeros(2, np.float32))
    optimizer = optim.Adam([p], lr=0.1)
    step, grads = td.jit(optimizer.step), [np.ones(2, np.float32)]
    step(grads)
    kept, state = p.copy(), optimizer.state_dict()
    wanted = kept.numpy(), state["m.0"].numpy()
    for _ in range(2):
        step(grads)
    np.testing.assert_array_equal(kept.numpy(), wanted[0])
    np.testing.assert_array_equal(state["m.0"].numpy(), wanted[1])
    assert state["count"].item() == 1 and optimizer.count.item() == 3
