"""Writing at positions against plain Python loops over NumPy arrays, eager and traced."""

import itertools

import numpy as np
import pytest
from tests.frontend.surface import both, close, eager, same, traced

import treadle as td
from treadle.base.errors import UserError

RNG = np.random.default_rng(0)
X = RNG.integers(-4, 5, (3, 4, 5)).astype(np.float64)
JOIN = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def looped(x, axis, indices, src, reduce, include_self=True):
    """What scatter_reduce means, element by element."""
    out, count = x.copy(), np.ones(x.shape, int) if include_self else np.zeros(x.shape, int)
    for place in np.ndindex(indices.shape):
        to = (*place[:axis], indices[place], *place[axis + 1 :])
        value = src[place]
        if reduce != "set" and count[to]:
            value = JOIN["sum" if reduce == "mean" else reduce](out[to], value)
        out[to], count[to] = value, count[to] + 1
    return out / np.maximum(count, 1) if reduce == "mean" else out


def case(axis, shape):
    indices = RNG.integers(-X.shape[axis], X.shape[axis], shape)
    return indices, np.where(indices < 0, indices + X.shape[axis], indices), RNG.integers(-4, 5, shape).astype(float)


@pytest.mark.parametrize(("axis", "shape"), [(0, (6, 4, 5)), (1, (3, 2, 5)), (2, (2, 3, 9)), (-1, (1, 4, 1))])
def test_scatter(axis, shape):
    indices, wanted_at, src = case(axis, shape)
    n, big = axis % 3, np.concatenate([src, src], 1)
    same(both(lambda x, i, v: td.scatter(x, axis, i, v), X, indices, src), looped(X, n, wanted_at, src, "set"))
    same(both(lambda x, i, v: td.scatter(x, axis, i, v), X, indices, big), looped(X, n, wanted_at, src, "set"))
    same(both(lambda x, v: td.scatter(x, dim=axis, index=indices, src=v), X, src), looped(X, n, wanted_at, src, "set"))
    ones = np.full(shape, 1.5)
    same(both(lambda x, i: td.scatter(x, axis, i, 1.5), X, indices), looped(X, n, wanted_at, ones, "set"))
    same(both(lambda x, i, v: td.scatter_add(x, axis, i, v), X, indices, src), looped(X, n, wanted_at, src, "sum"))
    found = both(lambda x, i, v: td.scatter(x, axis, i, v, reduce="multiply"), X, indices, src)
    same(found, looped(X, n, wanted_at, src, "prod"))
    for reduce, self in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False)):
        found = both(
            lambda x, i, v: td.scatter_reduce(x, axis, i, v, reduce, include_self=self),  # noqa: B023
            X, indices, src,
        )  # fmt: skip
        close(found, looped(X, n, wanted_at, src, reduce, self), 1e-12)


def test_integers_and_bools_are_scattered():
    x, i, v = np.array([7, -7, 3]), np.array([0, 0, 1]), np.array([2, 1, 4])
    same(both(lambda x, i, v: td.scatter_reduce(x, 0, i, v, "mean"), x, i, v), np.array([3, -2, 3]))
    same(both(lambda x, i, v: x.scatter_reduce(0, i, v, "amax", include_self=False), x, i, v), np.array([2, 4, 3]))
    flags = np.array([False, False, True])
    same(both(lambda x, i: td.scatter(x, 0, i, True), flags, i), np.array([True, True, True]))
    with pytest.raises(UserError, match="E0106"):
        eager(lambda x, i: td.scatter_reduce(x, 0, i, x, "amax"), flags, i)


def test_scatter_of_nothing():
    same(both(lambda x, i, v: td.scatter(x, 0, i, v), X[0], np.zeros((0, 5), int), np.zeros((0, 5))), X[0])
    empty = np.zeros((0, 3))
    same(both(lambda x: td.scatter_reduce(x, 1, np.zeros((0, 2), int), 1.0, "mean"), empty), empty)


def test_put_along_axis():
    for axis in (0, 1, 2, -1):
        indices = np.argsort(X, axis)
        wanted = X.copy()
        np.put_along_axis(wanted, indices, 7.0, axis)
        same(both(lambda x, i: td.put_along_axis(x, i, 7.0, axis), X, indices), wanted)  # noqa: B023
        wanted, best = X.copy(), np.expand_dims(X.argmax(axis), axis)
        np.put_along_axis(wanted, best, 99.0, axis)
        same(both(lambda x, i: x.put_along_axis(i, 99.0, axis), X, best), wanted)  # noqa: B023
    wanted = X.copy()
    np.put_along_axis(wanted, np.array([3, 59, 3]), np.array([1.0, 2.0, 4.0]), None)
    same(both(lambda x, v: td.put_along_axis(x, [3, -1, 3], v), X, np.array([1.0, 2.0, 4.0])), wanted)


def test_slices():
    indices, source = np.array([2, 0, -2, 2]), RNG.integers(-3, 4, (3, 4, 5)).astype(float)
    added, copied, filled = X.copy(), X.copy(), X.copy()
    for k, i in enumerate(indices):
        added[:, i] += 2 * source[:, k]
        copied[:, i] = source[:, k]
        filled[:, i] = 0.5
    same(both(lambda x, i, s: td.index_add(x, 1, i, s, alpha=2), X, indices, source), added)
    same(both(lambda x, i, s: x.index_copy(1, i, s), X, indices, source), copied)
    same(both(lambda x, i: x.index_fill(dim=-2, index=i, value=0.5), X, indices), filled)
    wide = np.broadcast_to(np.where(indices < 0, indices + 4, indices)[:, None], (3, 4, 5))
    for reduce, self in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False)):
        found = both(
            lambda x, i, s: td.index_reduce(x, 1, i, s, reduce, include_self=self),  # noqa: B023
            X, indices, source,
        )  # fmt: skip
        close(found, looped(X, 1, wide, source, reduce, self), 1e-12)
    same(both(lambda x: td.index_fill(x, 0, 1, 0), X)[1], np.zeros((4, 5)))


def test_masks():
    mask, column = X > 0, np.array([True, False, True, False])[:, None]
    same(both(lambda x, m: x.masked_fill(m, -1), X, mask), np.where(mask, -1.0, X))
    same(both(lambda x, m: td.masked_fill(x, m, -np.inf), X, column), np.where(column, -np.inf, X))
    wanted, source = X.copy(), np.arange(80.0)
    wanted[mask] = source[: mask.sum()]
    same(both(lambda x, m, s: td.masked_scatter(x, m, s), X, mask, source), wanted)
    wanted[:] = X
    wanted[np.broadcast_to(column, X.shape)] = source[:30]
    same(both(lambda x, m, s: x.masked_scatter(m, s.reshape(8, 10)), X, column, source), wanted)
    same(both(lambda x, m, s: td.masked_scatter(x, m, s), X, mask & False, source[:0]), X)
    with pytest.raises(UserError, match="E0140"):
        eager(lambda x, m, s: td.masked_scatter(x, m, s), X, mask, source[:3])
    with pytest.raises(UserError, match="E0106"):
        eager(lambda x, m: td.masked_fill(x, m, 0), X, mask.astype(int))
    with pytest.raises(UserError, match="E0504"):
        eager(lambda x, m: td.masked_fill(x, m, 0.5), X.astype(int), mask)


INDICES = [
    0, (slice(None), 1), (1, slice(3, 0, -2), 2), Ellipsis, np.array([0, 2, 0]), (np.array([1, 1]), np.array([3, 3])),
    (slice(None), np.array([[0, 1], [1, 1]])), (np.array([0, -1, 0]), slice(None), np.array([4, 1, 4])), X > 1,
    (slice(1, 3), np.array([2, 2]), slice(None, None, 2)), (0, np.array([True, False, True, False])),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=lambda i: str(i).replace("\n", ""))
def test_at(index):
    part = X[index]
    value = RNG.integers(1, 5, part.shape).astype(float)
    ways = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}
    for name, function in ways.items():
        wanted = X.copy()
        function.at(wanted, index, value)
        same(both(lambda x, v: getattr(x.at[index], name)(v), X, value), wanted)  # noqa: B023
    wanted = X.copy()
    np.divide.at(wanted, index, value)
    close(both(lambda x, v: x.at[index].divide(v), X, value), wanted, 1e-15)
    wanted = X.copy()
    wanted[index] = value
    same(both(lambda x, v: x.at[index].set(v), X, value), wanted)
    same(both(lambda x: x.at[index].get(), X), part)
    same(both(lambda x: x.at[index].mul(2), X), both(lambda x: x.at[index].multiply(np.full(part.shape, 2.0)), X))


def test_at_takes_tensors_as_index_and_leaves_the_tensor_alone():
    a, b = np.array([0, 2, 0], np.int32), np.array([1, 1, 1])
    wanted = X.copy()
    np.add.at(wanted, (a, b), 1.0)
    same(both(lambda x, a, b: x.at[a, b].add(1), X, a, b), wanted)
    same(both(lambda x, i: x.at[i].max(9.0), X, np.int32(-1))[2], np.full((4, 5), 9.0))

    def before(x, a):
        x.at[a].set(0)
        return x

    same(both(before, X, a), X)
    mask = X > 0
    same(both(lambda x, m: x.at[m].add(1), X, mask), X + mask)


def test_what_is_written_is_rounded_once():
    def write(x):
        x[1] = 0.1
        x[2:4] = [0.2, 0.3]
        return x.at[0].add(0.1)

    same(both(write, np.zeros(5)), np.array([0.1, 0.1, 0.2, 0.3, 0.0]))


def test_last_write_counts_when_compiled():
    places, values = RNG.integers(0, 50, 400), RNG.standard_normal((400, 3))
    wanted = np.zeros((50, 3))
    for place, value in zip(places, values, strict=True):
        wanted[place] = value
    same(td.jit(lambda i, v: td.zeros(50, 3, dtype=td.float64).at[i].set(v))(places, values).numpy(), wanted)
    columns = np.stack([places, places[::-1], places])
    found = td.jit(lambda i, v: td.scatter(td.zeros(3, 50, dtype=td.float64), 1, i, v))(columns, values.T)
    same(found.numpy(), looped(np.zeros((3, 50)), 1, columns, values.T, "set"))


def test_gradients_at_equal_extremes_and_zeros():
    x, i, v = np.array([1.0, 5.0, 0.0]), np.array([0, 0, 1, 2, 2, 2]), np.array([3.0, 3.0, 2.0, 0.0, 2.0, 4.0])
    dx, dv = td.grad(lambda x, v: x.at[i].max(v).sum(), (0, 1))(td.tensor(x), td.tensor(v))
    same(dx.numpy(), np.array([0.0, 1.0, 0.0]))
    same(dv.numpy(), np.array([0.5, 0.5, 0.0, 0.0, 0.0, 1.0]))
    dx, dv = td.grad(lambda x, v: x.at[i].multiply(v).sum(), (0, 1))(td.tensor(x + 1), td.tensor(v))
    same(dx.numpy(), np.array([9.0, 2.0, 0.0]))
    same(dv.numpy(), np.array([6.0, 6.0, 6.0, 8.0, 0.0, 0.0]))
    dx, dv = td.grad(lambda x, v: (x.at[i].set(v) * np.arange(1.0, 4.0)).sum(), (0, 1))(td.tensor(x), td.tensor(v))
    same(dx.numpy(), np.zeros(3))
    same(dv.numpy(), np.array([0.0, 1.0, 2.0, 0.0, 0.0, 3.0]))


def test_nan_wins_an_extreme():
    x, i, v = np.array([1.0, np.nan, 2.0]), np.array([0, 1, 0, 2]), np.array([np.nan, 0.0, 5.0, 3.0])
    for kind in (np.float64, np.float32, np.float16):
        found = td.jit(lambda x, i, v: (x.at[i].max(v), td.scatter_reduce(x, 0, i, v, "amin")))(
            x.astype(kind), i, v.astype(kind)
        )
        same(found[0].numpy(), np.array([np.nan, np.nan, 3.0], kind))
        same(found[1].numpy(), np.array([np.nan, np.nan, 2.0], kind))


MISTAKES = {
    "E0103": lambda x: td.scatter_reduce(x, 0, [[0]], 1.0, "median"),
    "E0138": lambda x: td.scatter(x, 0, [[0.5]], 1.0),
    "E0140": lambda x: td.scatter(x, 0, [0, 1], 1.0),
    "E0506": lambda x: td.scatter_add(x, 0, [[3, 0, 0, 0]], 1.0),
    "E0107": lambda x: td.index_add(x, 2, [0], x),
}


@pytest.mark.parametrize("code", MISTAKES)
def test_mistakes(code):
    with pytest.raises(UserError, match=code):
        eager(MISTAKES[code], X[0, :3])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: td.scatter(x, 0, np.zeros((1, 9), int), 1.0),
        lambda x: td.scatter(x, 0, np.zeros((3, 2), int), x[:2]),
        lambda x: td.index_copy(x, 0, [0, 1], x),
        lambda x: td.index_fill(x, 0, [0, 1], [1.0, 2.0]),
        lambda x: td.index_add(x, 0, [[0], [1]], x),
        lambda x: td.put_along_axis(x, [0], 1.0, 0),
        lambda x: td.masked_fill(x, x > 0, x),
    ],
)
def test_wrong_shapes(wrong):
    with pytest.raises(UserError, match="E0140"):
        eager(wrong, X[0])


def test_at_refuses_kinds_that_do_not_fit():
    for wrong in (lambda x: x.at[0].add(0.5), lambda x: x.at[0].max(np.array(1.5)), lambda x: x.at[0].mul([1j])):
        with pytest.raises(UserError, match="E0504"):
            eager(wrong, np.arange(3))
    with pytest.raises(UserError, match="E0106"):
        eager(lambda x: x.at[0].divide(2), np.arange(3))
    with pytest.raises(UserError, match="E0506"):
        eager(lambda x: x.at[[0, 3]].add(1), np.arange(3))
    same(traced(lambda x, i: x.at[i].add(1), np.arange(3), np.array([0, 7])), np.array([1, 1, 3]))
