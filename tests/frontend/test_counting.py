"""Positions, different elements, sorted lines, segments and histograms against NumPy: eager, traced with a size."""

import numpy as np
import pytest
from tests.frontend.surface import both, close, eager, same, traced

import treadle as td
from treadle.base.errors import UserError

RNG = np.random.default_rng(0)
X = RNG.integers(-2, 3, (3, 4, 2)).astype(np.float64)
LINES = [
    np.array([3, 1, 1, 2, 3, 3]), np.array([2.0, np.nan, -0.0, np.inf, np.nan, 0.0, 2.0]), np.array([], np.float32),
    np.array([[True, False], [True, True]]), np.array(4, np.uint8), RNG.integers(0, 30, 200).astype(np.int32),
]  # fmt: skip


def int32(arrays):
    return tuple([np.asarray(a).astype(np.int32) for a in arrays])


# ----------------------------------------------------------------------------------------------------------- positions
def test_true_places():
    for x in (X, X[0, 0], X > 0, X.astype(int), np.zeros((2, 0)), np.zeros(3)):
        wanted, n = int32(np.nonzero(x)), np.count_nonzero(x)
        for size in (None, n) if n else (None,):
            run = both if size is not None else eager
            found = run(lambda x: td.nonzero(x, size=size), x)  # noqa: B023
            assert len(found) == x.ndim
            for a, b in zip(found, wanted, strict=True):
                same(a, b)
            same(run(lambda x: td.argwhere(x, size=size), x), np.argwhere(x).astype(np.int32))  # noqa: B023
            same(run(lambda x: td.flatnonzero(x, size=size), x), np.flatnonzero(x).astype(np.int32))  # noqa: B023
        same(both(lambda x: td.count_nonzero(x), x), np.int64(n))
    same(both(lambda x: x.count_nonzero(1), X), np.count_nonzero(X, 1))


def test_places_that_are_too_few_or_too_many():
    x = np.array([0, 1, 0, 1, 1])
    same(both(lambda x: td.flatnonzero(x, size=5, fill_value=-1), x), np.array([1, 3, 4, -1, -1], np.int32))
    same(both(lambda x: td.flatnonzero(x, size=2), x), np.array([1, 3], np.int32))
    same(both(lambda x: td.flatnonzero(x, size=0), x), np.array([], np.int32))
    same(both(lambda x: td.flatnonzero(x, size=2, fill_value=9), x[:0]), np.array([9, 9], np.int32))
    same(both(lambda x: x.nonzero(size=4, as_tuple=False), x), np.array([[1], [3], [4], [0]], np.int32))


def test_masked_select():
    mask, column = X > 0, np.array([True, False, True, False])[:, None]
    n = int(mask.sum())
    same(eager(lambda x, m: td.masked_select(x, m), X, mask), X[mask])
    same(both(lambda x, m: td.masked_select(x, m, size=n), X, mask), X[mask])
    same(both(lambda x, m: x.masked_select(m, size=n + 2, fill_value=-9), X, mask), np.append(X[mask], [-9.0, -9.0]))
    same(both(lambda x: td.masked_select(x, column), X), X[np.broadcast_to(column, X.shape)])
    same(eager(lambda x, m: td.masked_select(x, m), X[0, 0], column), np.repeat(X[:1, 0], 2, 0).ravel())
    same(both(lambda x, m: td.masked_select(x, m, size=2), X[:0], mask[:0]), np.zeros(2))
    gradient = td.grad(lambda x: (td.masked_select(x, x > 0, size=30) ** 2).sum())(td.tensor(X))
    same(gradient.numpy(), 2 * np.maximum(X, 0))


def test_what_has_no_size_yet_says_so():
    for function in (
        lambda x: td.nonzero(x), lambda x: td.unique(x), lambda x: td.masked_select(x, x > 0),
        lambda x: td.bincount(x.astype(int)), lambda x: td.segment_sum(x, x.astype(int)),
    ):  # fmt: skip
        with pytest.raises(UserError, match="E0507"):
            traced(function, X)
    with pytest.raises(UserError, match="E0109"):
        eager(lambda x: td.nonzero(x, size=-1), X)
    with pytest.raises(UserError, match="E0107"):
        eager(lambda x: td.nonzero(x), np.array(1.0))


# -------------------------------------------------------------------------------------------------- different elements
def everything(x, **how):
    return td.unique(x, return_index=True, return_inverse=True, return_counts=True, **how)


@pytest.mark.parametrize("x", LINES, ids=lambda x: str(x.dtype))
def test_unique(x):
    values, *others = np.unique(x, True, True, True)
    for found in (eager(everything, x), both(lambda x: everything(x, size=len(values)), x)):
        for a, b in zip(found, (values, *int32(others)), strict=True):
            same(a, b)
    same(eager(td.unique, x), values)
    same(eager(lambda x: td.unique(x, equal_nan=False), x), np.unique(x, equal_nan=False))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_unique_slices(axis):
    x = np.concatenate([X, X[:, ::-1]], axis)
    x = x.round() % 2
    values, *others = np.unique(x, True, True, True, axis)
    n = values.shape[axis]
    for found in (eager(lambda x: everything(x, axis=axis), x), both(lambda x: everything(x, dim=axis, size=n), x)):
        for a, b in zip(found, (values, *int32(others)), strict=True):
            same(a, b.reshape(a.shape))


def test_unique_with_another_size():
    x = np.array([5, 3, 3, 9, 5])
    wanted = (np.array([3, 5, 9, 3, 3]), *int32(([1, 0, 3, 1, 1], [1, 0, 0, 2, 1], [2, 2, 1, 0, 0])))
    for a, b in zip(both(lambda x: everything(x, size=5), x), wanted, strict=True):
        same(a, b)
    same(both(lambda x: td.unique(x, size=4, fill_value=-1), x), np.array([3, 5, 9, -1]))
    values, _, inverse, counts = both(lambda x: everything(x, size=2), x)
    same(values, np.array([3, 5]))
    same(inverse, np.array([1, 0, 0, 2, 1], np.int32))
    same(counts, np.array([2, 2], np.int32))
    same(both(lambda x: td.unique(x, size=2, fill_value=7), x[:0]), np.array([7, 7]))
    with pytest.raises(UserError, match="E0106"):
        eager(td.unique, np.array([1j]))


# -------------------------------------------------------------------------------------------------------- sorted lines
def test_searchsorted():
    line = np.sort(RNG.integers(0, 20, 31)).astype(float)
    values = np.concatenate([RNG.integers(-2, 23, 20) / 2, [np.nan, np.inf, -np.inf]])
    for side in ("left", "right"):
        wanted = np.searchsorted(line, values, side).astype(np.int32)
        same(both(lambda a, v: td.searchsorted(a, v, side), line, values), wanted)  # noqa: B023
        same(both(lambda v: td.searchsorted(line, v.reshape(23, 1), side), values), wanted[:, None])  # noqa: B023
        same(both(lambda a: td.searchsorted(a, 3, right=side == "right"), line), wanted.dtype.type(  # noqa: B023
            np.searchsorted(line, 3, side)))  # fmt: skip
    order = RNG.permutation(31)
    shuffled = np.empty(31)
    shuffled[order] = line
    found = both(lambda a, v, s: td.searchsorted(a, v, sorter=s), shuffled, values, order)
    same(found, np.searchsorted(line, values).astype(np.int32))
    rows = np.sort(RNG.random((2, 5)).astype(np.float32), 1)
    wanted = np.stack([np.searchsorted(r, values[:4]) for r in rows]).astype(np.int32)
    same(both(lambda a, v: td.searchsorted(a, v), rows, np.stack([values[:4]] * 2)), wanted)
    mixed = both(lambda a: td.searchsorted(a, np.array([1.5, -0.5]), "right"), np.arange(4))
    same(mixed, np.array([2, 0], np.int32))
    with pytest.raises(UserError, match="E0103"):
        eager(lambda a: td.searchsorted(a, a, "middle"), line)


def test_digitize():
    x, bins = RNG.integers(-1, 7, (4, 5)) / 2, np.array([0.0, 1.0, 1.0, 2.5])
    for edges in (bins, bins[::-1], bins[:1], bins[:0]):
        for right in (False, True):
            wanted = np.digitize(x, edges, right).astype(np.int32)
            same(both(lambda x, b: td.digitize(x, b, right), x, edges), wanted)  # noqa: B023
            same(both(lambda x, b: td.digitize(x, b, right), x, edges.copy()), wanted)  # noqa: B023
    same(both(lambda x: td.bucketize(x, bins), x), np.searchsorted(bins, x).astype(np.int32))
    same(both(lambda x: td.bucketize(x, bins, right=True), x), np.digitize(x, bins).astype(np.int32))
    with pytest.raises(UserError, match="E0103"):
        eager(lambda x: td.digitize(x, [1, 3, 2]), x)


# ------------------------------------------------------------------------------------------------------------ segments
def test_segments():
    ids, data = np.array([2, 0, -1, 0, 5, 2, 7]), RNG.standard_normal((7, 2, 3))
    groups = [data[ids == s] for s in range(6)]
    ways = {
        "sum": lambda g: g.sum(0), "prod": lambda g: g.prod(0), "mean": lambda g: g.mean(0) if len(g) else g.sum(0),
        "max": lambda g: g.max(0, initial=-np.inf), "min": lambda g: g.min(0, initial=np.inf),
    }  # fmt: skip
    for name, function in ways.items():
        wanted = np.stack([function(g) for g in groups])
        run = getattr(td, f"segment_{name}")
        close(both(lambda d, i: run(d, i, 6), data, ids), wanted, 1e-14)  # noqa: B023
        close(eager(run, data, np.where(ids > 5, -1, ids)), wanted, 1e-14)
    same(both(lambda d, i: td.segment_max(d, i, 3), np.array([4, 7]), np.array([1, 1])), np.array(
        [np.iinfo(np.int64).min, 7, np.iinfo(np.int64).min]))  # fmt: skip
    same(both(lambda d, i: td.segment_mean(d, i, 2), np.array([4, 7]), np.uint32([1, 1])), np.float32([0, 5.5]))
    grid = ids[:6].reshape(3, 2)
    wanted = np.stack([np.stack([data[:3, :2, 0][grid == s].sum()]) for s in range(6)])[:, 0]
    close(both(lambda d, i: td.segment_sum(d, i, 6), data[:3, :2, 0], grid), wanted, 1e-14)
    same(eager(lambda d, i: td.segment_sum(d, i), data[:0], ids[:0]), np.zeros((0, 2, 3)))


def test_segments_of_ties_share_the_gradient():
    data, ids = np.array([3.0, 1.0, 3.0, 3.0, 2.0]), np.array([0, 0, 0, -1, 1])
    found = td.grad(lambda d: (td.segment_max(d, ids, 2) * np.array([1.0, 4.0])).sum())(td.tensor(data))
    same(found.numpy(), np.array([0.5, 0.0, 0.5, 0.0, 4.0]))


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("E0138", lambda d: td.segment_sum(d, d, 2)),
        ("E0140", lambda d: td.segment_sum(d, [0, 1], 2)),
        ("E0109", lambda d: td.segment_sum(d, [0, 1, 2], -2)),
        ("E0106", lambda d: td.segment_max(d > 0, [0, 1, 1], 2)),
        ("E0506", lambda d: td.bincount([1, -1])),
        ("E0138", lambda d: td.bincount(d)),
        ("E0103", lambda d: td.histogram(d, 0)),
        ("E0103", lambda d: td.histogram(d, [2.0, 1.0])),
        ("E0103", lambda d: td.histogram(d, 3, (2, 1))),
    ],
)
def test_mistakes(code, wrong):
    with pytest.raises(UserError, match=code):
        eager(wrong, np.arange(3.0))


# ------------------------------------------------------------------------------------------------------------- counting
def test_bincount():
    x, weights = np.array([1, 4, 1, 0]), np.array([0.5, 1.0, 2.0, -1.0])
    same(eager(td.bincount, x), np.bincount(x))
    same(eager(lambda x: td.bincount(x, minlength=7), x), np.bincount(x, minlength=7))
    same(eager(lambda x, w: td.bincount(x, w), x, weights), np.bincount(x, weights))
    same(both(lambda x: td.bincount(x, length=3), x), np.array([1, 2, 0]))
    same(both(lambda x, w: td.bincount(x, w, length=6), np.uint8(x), weights), np.bincount(x, weights, 6))
    same(eager(td.bincount, x[:0]), np.bincount(x[:0]))


@pytest.mark.parametrize("bins", [1, 7, np.array([-1.0, 0.0, 0.5, 3.0]), np.array([0, 2])], ids=str)
@pytest.mark.parametrize("range", [None, (-0.5, 2), (1, 1)], ids=str)
def test_histogram(bins, range):
    x = np.concatenate([RNG.integers(-4, 5, 60) / 2, RNG.standard_normal(60)])
    for data, weights in ((x, None), (x.reshape(4, 30), x.reshape(4, 30) ** 2), (np.array([2.0, 2.0]), None)):
        for density in (False, True):
            with np.errstate(invalid="ignore"):
                wanted, edges = np.histogram(data, bins, range, density, weights)
            found = both(
                lambda x, *w: td.histogram(x, bins, range, *w or (None,), density=density),  # noqa: B023
                data, *[] if weights is None else [weights],
            )  # fmt: skip
            close(found[1], edges, 1e-15)
            close(found[0], wanted, 1e-13)
            assert found[0].dtype == wanted.dtype


def test_histogram_of_integers_nothing_and_nan():
    x = np.array([3, 1, 4, 1, 5])
    same(both(lambda x: td.histogram(x, 4)[0], x), np.histogram(x, 4)[0])
    same(both(lambda x: td.histogram(x, 4)[0], x[:0].astype(float)), np.zeros(4, int))
    same(both(lambda x: td.histogram(x, 2, (0, 2))[0], np.array([np.nan, 0.5, 2.0, 2.5])), np.array([1, 1]))
    same(both(lambda x: td.histogram_bin_edges(x, 2), np.float32([1, 3])), np.float32([1, 2, 3]))


def test_all_compile():
    """One program of what is otherwise interpreted here."""
    x = np.array([3.0, 1.0, 1.0, 2.0, np.nan])

    @td.jit
    def run(x, ids):
        return (
            td.unique(x, size=4), td.flatnonzero(x > 1, size=3), td.masked_select(x, x < 3, size=3),
            td.histogram(x[:4], 2)[0], td.segment_prod(x, ids, 2), td.digitize(x, [1.5, 2.5]),
            td.bincount(ids, length=3),
        )  # fmt: skip

    found = [f.numpy() for f in run(td.tensor(x), td.tensor(np.array([0, 1, 1, 0, -1])))]
    wanted = (
        np.unique(x), np.int32([0, 3, 0]), np.array([1.0, 1.0, 2.0]), np.array([2, 2]), np.array([6.0, 1.0]),
        np.int32([2, 0, 0, 1, 2]), np.array([2, 2, 0]),
    )  # fmt: skip
    for a, b in zip(found, wanted, strict=True):
        same(a, b)
