"""Initial values and dropout: distributions, reproducibility, the same draws in both modes."""

import math

import numpy as np
import pytest

import treadle as td
from treadle import nn
from treadle.nn import functional as F
from treadle.nn import init


def test_initial_values_follow_the_seed() -> None:
    td.manual_seed(3)
    first = nn.Linear(4, 3)
    second = nn.Linear(4, 3)
    td.manual_seed(3)
    again = nn.Linear(4, 3)
    np.testing.assert_array_equal(first.weight.numpy(), again.weight.numpy())
    assert not np.array_equal(first.weight.numpy(), second.weight.numpy())
    td.manual_seed(0)
    golden = [0.01154675, 0.2415492, 0.1114259]  # these may never change: seeds would mean other models
    np.testing.assert_allclose(init.uniform((3,)), golden, 1e-6)


@pytest.mark.parametrize(
    "draw, mean, std, bound",
    [
        (lambda: init.uniform((300, 50), -1, 3), 1, 4 / math.sqrt(12), 3),
        (lambda: init.normal((301, 51), 2, 0.5), 2, 0.5, 6),
        (lambda: init.trunc_normal((300, 50), std=0.5, low=-0.5, high=0.5), 0, 0.5 * 0.53956, 0.5),
        (lambda: init.xavier_uniform((300, 50)), 0, math.sqrt(2 / 350), math.sqrt(6 / 350)),
        (lambda: init.xavier_normal((300, 50), gain=2.0), 0, 2 * math.sqrt(2 / 350), 1),
        (lambda: init.kaiming_uniform((300, 10, 5), a=math.sqrt(5)), 0, math.sqrt(1 / 150), 1 / math.sqrt(50)),
        (lambda: init.kaiming_normal((300, 50), mode="fan_out", nonlinearity="relu"), 0, math.sqrt(2 / 300), 1),
        (lambda: nn.Linear(50, 300).weight.numpy(), 0, math.sqrt(1 / 150), 1 / math.sqrt(50)),
        (lambda: nn.Embedding(300, 50).weight.numpy(), 0, 1, 6),
    ],
)
def test_distributions(draw, mean: float, std: float, bound: float) -> None:
    td.manual_seed(1)
    x = draw()
    assert x.dtype == np.float32 and np.abs(x).max() <= bound * (1 + 1e-6)
    assert abs(x.mean() - mean) < 5 * std / math.sqrt(x.size)
    assert abs(x.std() / std - 1) < 0.03


def test_orthogonal_and_filling() -> None:
    for shape in ((6, 4), (4, 6), (4, 2, 3)):
        q = init.orthogonal(shape, gain=2.0).reshape(shape[0], -1) / 2
        small = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
        np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-5)
    p = nn.Parameter(np.zeros((3, 2), np.float32))
    assert init.ones_(p) is p and p.numpy().sum() == 6
    td.manual_seed(5)
    init.kaiming_uniform_(p, nonlinearity="relu")
    td.manual_seed(5)
    np.testing.assert_array_equal(p.numpy(), init.kaiming_uniform((3, 2), nonlinearity="relu"))
    for wrong in (
        lambda: init.xavier_normal((3,)),
        lambda: init.gain("sine"),
        lambda: init.kaiming_normal((2, 2), mode="fan"),
        lambda: init.trunc_normal((2,), low=9.0, high=10.0),
    ):
        with pytest.raises(td.UserError, match="E0562"):
            wrong()


def test_dropout() -> None:
    x = td.Tensor(np.ones((40, 50), np.float32))
    layer = nn.Dropout(0.25)
    td.manual_seed(7)
    eager = [layer(x).numpy() for _ in range(2)]
    td.manual_seed(7)
    run = td.jit(layer)
    compiled = [run(x).numpy() for _ in range(2)]
    np.testing.assert_array_equal(eager, compiled)
    assert not np.array_equal(eager[0], eager[1])
    assert set(np.unique(eager[0])) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((eager[0] == 0).mean() - 0.25) < 0.05
    np.testing.assert_array_equal(layer.eval()(x).numpy(), x.numpy())
    assert not F.dropout(x, 1.0).numpy().any()
    for wrong in (lambda: nn.Dropout(1.5), lambda: F.dropout(x, -0.1)):
        with pytest.raises(td.UserError, match="E0554"):
            wrong()
