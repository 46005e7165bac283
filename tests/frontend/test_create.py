"""Tensors from nothing and random ones: against NumPy, eager and traced; the random stream and its state."""

import numpy as np
import pytest
from tests.frontend.surface import both, close, eager, interpreted, same, traced

from treadle.base.errors import UserError
from treadle.frontend import create as c
from treadle.frontend import trace as tracing
from treadle.frontend.tensor import Tensor, make_tensor
from treadle.ir import interp
from treadle.ir.node import Module


def test_tensor():
    small = np.arange(3, dtype=np.int8)
    for data in (1, 2.5, True, [1, 2], [[1.0, 2.0]], 1j, small, np.float64(2), [np.float32(1), 2]):
        found = both(lambda: c.tensor(data))  # noqa: B023
        close(found, data)
    assert both(lambda: c.tensor([1.5])).dtype == np.float32
    assert both(lambda: c.tensor([1])).dtype == np.int64
    assert both(lambda: c.tensor(np.ones(2))).dtype == np.float64
    assert both(lambda: c.tensor([1], "f16")).dtype == np.float16
    same(both(lambda x: c.tensor(x, "int32"), np.array([1.5])), np.array([1], np.int32))
    same(both(lambda: c.from_numpy(np.ones(2))), np.ones(2))
    with pytest.raises(UserError, match="E0102"):
        c.from_numpy([1])


def test_lists_of_tensors():
    x = np.float32(0.5)
    same(both(lambda x: c.tensor([x, 2, 1.5]), x), np.array([0.5, 2, 1.5], np.float32))
    same(both(lambda x: c.tensor([[x, x + 1], [3, 4]]), x), np.array([[0.5, 1.5], [3, 4]], np.float32))
    same(both(lambda n: c.tensor([n, 2]), np.int32(7)), np.array([7, 2], np.int32))
    for run in (eager, traced):
        same(run(lambda s: c.tensor([s, 2.0]), 0.5), np.array([0.5, 2], np.float32))


def test_filled():
    same(both(lambda: c.zeros(2, 3)), np.zeros((2, 3), np.float32))
    same(both(lambda: c.ones((2, 3), dtype="int32")), np.ones((2, 3), np.int32))
    same(both(lambda: c.empty(0, 2)), np.zeros((0, 2), np.float32))
    same(both(lambda: c.zeros()), np.zeros((), np.float32))
    for value, kind in ((7, "i8"), (1.5, "f4"), (True, "?"), (1j, "c8"), (np.float64(2), "f8")):
        same(both(lambda: c.full((2,), value)), np.full(2, value, kind))  # noqa: B023
    same(both(lambda x: c.full(3, x), np.array(2.5)), np.full(3, 2.5))
    x = np.ones((2, 2), np.float16)
    same(both(c.zeros_like, x), np.zeros_like(x))
    same(both(lambda x: c.ones_like(x, dtype="int64"), x), np.ones_like(x, np.int64))
    same(both(lambda x: c.full_like(x, 3), x), np.full_like(x, 3))
    for run in (eager, traced):
        with pytest.raises(UserError, match="E0109"):
            run(lambda: c.zeros(-1))
        with pytest.raises(UserError, match="E0103"):
            run(lambda: c.zeros(1.5))
        with pytest.raises(UserError, match="E0110"):
            run(lambda: c.full(2, 1j, "f32"))


@pytest.mark.parametrize(
    "args",
    [(5,), (2, 7), (7, 2), (7, 2, -2), (0, 1, 0.1), (1.0, 0.0, -0.3), (0,), (-3, 4, 3), (0.5, 0.5), (np.int64(3),)],
    ids=str,
)
def test_arange(args):
    wanted = np.arange(*args)
    same(both(lambda: c.arange(*args)), wanted.astype(np.float32) if wanted.dtype == np.float64 else wanted)
    same(both(lambda: c.arange(*args, dtype="int32")), both(lambda: c.arange(*args)).astype(np.int32))


def test_lines_and_eyes():
    for args in ((0, 1, 11), (2, -3, 7), (0, 1, 1), (0, 1, 0), (0.1, 0.7, 4)):
        close(both(lambda: c.linspace(*args)), np.linspace(*args))  # noqa: B023
        same(both(lambda: c.linspace(*args, dtype="f64"))[-1:], np.linspace(*args)[-1:])  # noqa: B023
    for args in ((3,), (2, 4), (4, 2, 1), (3, 3, -1), (0,)):
        same(both(lambda: c.eye(*args)), np.eye(*args, dtype=np.float32))  # noqa: B023
    same(both(lambda: c.eye(2, dtype="int8")), np.eye(2, dtype=np.int8))
    for bad in (lambda: c.arange(0, 1, 0), lambda: c.arange("a")):
        with pytest.raises(UserError, match="E0103"):
            bad()
    with pytest.raises(UserError, match="E0109"):
        c.linspace(0, 1, -1)


DRAWS = [
    lambda g: c.rand(2, 3, generator=g), lambda g: c.randn((4,), dtype="f64", generator=g),
    lambda g: c.uniform(-1, 3, 5, generator=g), lambda g: c.normal(2.0, 0.5, (2, 2), generator=g),
    lambda g: c.randint(0, 10, (6,), generator=g), lambda g: c.bernoulli(0.3, (9,), generator=g),
    lambda g: c.bernoulli(np.full((2, 2), 0.5), generator=g), lambda g: c.permutation(8, generator=g),
    lambda g: c.uniform(Tensor(0.0), 2.0, (3,), generator=g), lambda g: c.rand_like(np.ones((2, 1)), generator=g),
    lambda g: c.randn_like(Tensor(np.ones(2, np.float16)), generator=g), lambda g: c.rand(generator=g),
]  # fmt: skip


@pytest.mark.parametrize("draw", DRAWS, ids=range(len(DRAWS)))
def test_draws_are_the_same_in_both_modes(draw):
    def function():
        g = c.Generator(7)
        return draw(g), draw(g)

    first, second = both(function)
    assert first.dtype == second.dtype
    assert not np.array_equal(first, second)


def traced_state(function, *state):
    """Run a function that changes `state` as a program; the changes are written back, as the runtime does."""
    t = tracing.trace(function, (), {}, make_tensor)
    outputs = interp.run(Module.of(t.fn, t.fns), *[np.asarray(x._value) for x in t.captured])
    assert {id(x) for x in t.changed} <= {id(s) for s in state}
    for tensor, value in zip(t.changed, outputs[t.num_outputs :], strict=True):
        tensor._value = value
    return outputs[0]


def test_the_stream_goes_on_across_modes():
    """Three draws eager, or the second one in a program, are the same three."""
    with interpreted():
        g = c.Generator(3)
        plain = [c.rand(4, generator=g).numpy() for _ in range(3)]
        g.manual_seed(3)
        mixed = [c.rand(4, generator=g).numpy()]
        mixed.append(traced_state(lambda: c.rand(4, generator=g), g.key, g.counter))
        mixed.append(c.rand(4, generator=g).numpy())
        assert int(g.counter) == 3
    for a, b in zip(plain, mixed, strict=True):
        same(a, b)
    assert not np.array_equal(plain[0], plain[1])


def test_seeds():
    with interpreted():
        c.manual_seed(5)
        first = c.randn(3).numpy()
        second = c.randn(3).numpy()
        c.manual_seed(5)
        same(c.randn(3).numpy(), first)
        assert not np.array_equal(first, second)
        assert not np.array_equal(c.Generator(5 + 2**32).key.numpy(), c.Generator(5).key.numpy())
        same(c.Generator(-1).key.numpy(), np.array([2**32 - 1] * 2, np.uint32))
        c.manual_seed(0)
    with pytest.raises(UserError, match="E0103"):
        c.manual_seed(1.5)


def test_distributions():
    """Moments of 20000 draws, within five standard errors."""
    with interpreted():
        g, n = c.Generator(1), 20000
        u = c.uniform(-1, 3, n, generator=g).numpy()
        assert u.min() >= -1 and u.max() < 3
        assert abs(u.mean() - 1) < 5 * 4 / np.sqrt(12 * n)
        z = c.normal(2.0, 0.5, n, generator=g).numpy()
        assert abs(z.mean() - 2) < 5 * 0.5 / np.sqrt(n)
        assert abs(z.std() - 0.5) < 5 * 0.5 / np.sqrt(2 * n)
        k = c.randint(-3, 4, (n,), generator=g).numpy()
        assert set(np.unique(k)) == set(range(-3, 4))
        assert np.all(np.abs(np.bincount(k + 3) / n - 1 / 7) < 5 * np.sqrt(1 / 7 / n))
        b = c.bernoulli(0.3, n, generator=g).numpy()
        assert abs(b.mean() - 0.3) < 5 * np.sqrt(0.21 / n)
        same(np.sort(c.permutation(100, g).numpy()), np.arange(100))
    for bad in ((3, 3), (0, 2**33)):
        with pytest.raises(UserError, match="E0126"):
            c.randint(*bad)
