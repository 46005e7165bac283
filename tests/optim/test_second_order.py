"""L-BFGS: PyTorch's iterates on Rosenbrock's function, convergence with the search, state, a compiled network."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import nn, optim

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())["lbfgs"]
START = np.array([-1.2, 1.0, 0.5], np.float64)


def problem(**how: Any) -> tuple[Any, Any, Any]:
    p = nn.Parameter(START.copy())

    def value() -> Any:
        return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()

    return p, optim.LBFGS([p], **how), td.jit(td.value_and_grad(value, [p]))


@pytest.mark.parametrize("name", GOLDEN)
def test_iterates_are_pytorchs(name: str) -> None:
    how = {"plain": {"lr": 0.05, "max_iter": 4}, "short history": {"lr": 0.05, "max_iter": 4, "history_size": 2}}[name]
    p, optimizer, closure = problem(**how)
    for i, wanted in enumerate(GOLDEN[name]):
        optimizer.step(closure)
        np.testing.assert_allclose(p.numpy(), wanted, 1e-5, err_msg=f"step {i + 1}")


def test_the_search_finds_the_minimum() -> None:
    p, optimizer, closure = problem(line_search="wolfe", max_iter=80)
    wanted = sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(START))
    assert optimizer.step(closure) == pytest.approx(wanted)
    np.testing.assert_allclose(p.numpy(), 1.0, 1e-5)
    assert optimizer.iterations < 80 and optimizer.evaluations < 200


def test_state_goes_on_where_it_was() -> None:
    p, optimizer, closure = problem(lr=0.05, max_iter=4)
    for _ in range(2):
        optimizer.step(closure)
    q, other, again = problem(lr=0.05, max_iter=4)
    q.assign(p.numpy())
    other.load_state_dict({k: v.numpy() for k, v in optimizer.state_dict().items()})
    for _ in range(2):
        optimizer.step(closure)
        other.step(again)
    np.testing.assert_array_equal(p.numpy(), q.numpy())
    with pytest.raises(td.UserError, match="E0535"):
        other.load_state_dict({})


def test_a_network_fits() -> None:
    td.manual_seed(2)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    x = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    y = np.sin(x[:, :1])
    closure = td.jit(td.value_and_grad(lambda: nn.functional.mse_loss(net(x), y), net.parameters()))
    optimizer = optim.LBFGS(net.parameters(), line_search="wolfe", max_iter=100)
    assert optimizer.step(closure) > 0.1
    assert closure()[0].item() < 1e-3


def test_wrong_arguments() -> None:
    p, optimizer, _ = problem()
    for code, wrong in (
        ("E0530", lambda: optim.LBFGS([])),
        ("E0531", lambda: optim.LBFGS([p], lr=0)),
        ("E0531", lambda: optim.LBFGS([p], line_search="exact")),
        ("E0532", lambda: td.jit(lambda: optimizer.step(lambda: (0.0, [])))()),
        ("E0533", lambda: optimizer.step(lambda: (0.0, []))),
    ):
        with pytest.raises(td.UserError, match=code):
            wrong()
