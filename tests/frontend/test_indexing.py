"""x[index] and x[index] = v against NumPy, eager and traced."""

import numpy as np
import pytest
from tests.frontend.surface import both, eager, same, traced

from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.tensor import Tensor, make_tensor
from treadle.ir import interp
from treadle.ir.node import Fn
from treadle.transforms.grad import vjp

X = np.arange(60.0).reshape(3, 4, 5)
ROWS, COLUMNS = np.array([2, 0, -1]), np.array([1, -4, 3])
GRID = np.array([[0, 2], [1, -1]])
MASK = np.array([[True, False, True, False]] * 2 + [[False] * 4])

STATIC = [
    0, -1, (1, 2), (1, 2, 3), (-3, -4, -5), slice(1, 3), slice(None, None, -1), slice(None, None, 2), slice(2, 0, -1),
    slice(5, 1), slice(-2, None), (slice(None), 1), (Ellipsis, 0), (0, Ellipsis), (Ellipsis,), (), None,
    (None, 0, None),
    (slice(None), None, slice(1, 4, 2), Ellipsis, None), (1, slice(None, None, -2), slice(0, 5, 3)),
    (slice(0, 0), 1), (np.int64(2), np.int32(-1)), (slice(None), slice(3, 0, -2), 4),
]  # fmt: skip
ARRAYS = [
    ROWS, GRID, (slice(None), ROWS), (Ellipsis, GRID), (ROWS, COLUMNS), (slice(None), ROWS, COLUMNS),
    (ROWS, slice(None), COLUMNS), (0, slice(None), COLUMNS), (0, ROWS), (ROWS, 0), (ROWS, slice(None), 0),
    (GRID, ROWS[:2]), (GRID, None, COLUMNS[:2]), (ROWS[:, None], COLUMNS[None]),
    (slice(None, None, -1), ROWS, slice(1, 5, 2)),
    (ROWS, COLUMNS, ROWS), (None, ROWS, 1, COLUMNS), [0, 2], ([0, 1], [1, 2]), (1, [0, 1], slice(None)),
    np.array([], np.int64), (slice(None), np.array([], int)), np.array([[1]]), (np.uint8([1, 2]), np.int8([-1, 0])),
    MASK, (slice(None), MASK[0]), (0, MASK[0]), (MASK[:, 0], MASK[0, :3].repeat(2)[:4]), np.zeros((3, 4, 5), bool),
    X > 30,
    (MASK[:, 0], slice(1, 3)), (Ellipsis, np.array([True, False, True, False, False])),
]  # fmt: skip


def text(index):
    return str(index).replace("\n", "")


@pytest.mark.parametrize("index", STATIC + ARRAYS, ids=text)
def test_reading(index):
    same(both(lambda x: x[index], X), X[index])


def writing(index, value, x=X):
    def function(x, value):
        x[index] = value
        return x

    return function, x, value


@pytest.mark.parametrize("index", STATIC + ARRAYS, ids=text)
def test_writing(index):
    part = X[index]
    # NumPy wants 1-d values for a mask of all axes
    is_full_mask = getattr(index, "dtype", None) is np.dtype(bool) and index.ndim == X.ndim
    wide = np.ones((1, *part.shape) if part.ndim and not is_full_mask else part.shape)
    many = np.asarray(-100.0 - np.arange(part.size).reshape(part.shape))
    for value in (many, np.array(-1.0), wide):
        wanted = X.copy()
        wanted[index] = value
        same(both(*writing(index, value)), wanted)


TENSORS = [
    lambda i, j: i, lambda i, j: (i, j), lambda i, j: (slice(None), i), lambda i, j: (i, slice(None), j),
    lambda i, j: (Ellipsis, i, None), lambda i, j: (1, i, slice(0, 5, 2)), lambda i, j: (slice(None, None, -1), i),
    lambda i, j: (i, 2, slice(1, 3)),
]  # fmt: skip


@pytest.mark.parametrize("make", TENSORS, ids=range(len(TENSORS)))
def test_scalar_tensors(make):
    for i, j in ((0, 1), (-1, 2), (2, -3)):
        index = make(i, j)
        same(both(lambda x, i, j: x[make(i, j)], X, np.int32(i), np.int64(j)), X[index])
        wanted = X.copy()
        wanted[index] = value = -1.0 - np.arange(X[index].size).reshape(X[index].shape)

        def write(x, i, j, value):
            x[make(i, j)] = value
            return x

        same(both(write, X, np.int32(i), np.int64(j), value), wanted)


@pytest.mark.parametrize("i, clamped", [(7, 2), (-9, 0)])
def test_tensors_out_of_range_are_refused_where_known_and_clamped_where_traced(i, clamped):
    same(traced(lambda x, i: x[i], X, np.int32(i)), X[clamped])
    with pytest.raises(UserError, match="E0506"):
        eager(lambda x, i: x[i], X, np.int32(i))


INDEX_TENSORS = [
    lambda a, b: a, lambda a, b: (a, b), lambda a, b: (slice(None), a), lambda a, b: (a, slice(None), b),
    lambda a, b: (0, slice(None), a), lambda a, b: (a, COLUMNS), lambda a, b: (slice(1, 3), a, slice(None, None, 2)),
]  # fmt: skip
REPEATED = [(np.array([1, 1, 1]), np.array([2, 2, 2])), (np.array([0, 2, 0]), np.array([1, 0, 1]))]


@pytest.mark.parametrize("make", INDEX_TENSORS, ids=range(len(INDEX_TENSORS)))
def test_index_tensors(make):
    """Repeated places too: the last write counts."""
    for a, b in ((ROWS, COLUMNS), *REPEATED):
        index = make(a, b)
        same(both(lambda x, a, b: x[make(a, b)], X, a.astype(np.int32), b), X[index])
        wanted = X.copy()
        wanted[index] = value = -1.0 - np.arange(X[index].size).reshape(X[index].shape)

        def write(x, a, b, value):
            x[make(a, b)] = value
            return x

        same(both(write, X, a.astype(np.int32), b, value), wanted)


def test_last_write_counts_for_many_entries():
    rng = np.random.default_rng(0)
    places, values = rng.integers(0, 7, 50), rng.standard_normal(50)
    wanted = np.zeros(9)
    for place, value in zip(places, values, strict=True):
        wanted[place] = value

    def write(x, places, values):
        x[places] = values
        return x

    same(both(write, np.zeros(9), places, values), wanted)
    same(both(lambda x, values: write(x, places, values), np.zeros(9), values), wanted)
    same(both(write, np.zeros(9), places, np.full(50, -0.0)).view(np.int64) < 0, np.arange(9) < 7)


def test_types_written():
    for x in (np.zeros((2, 3), np.int32), np.zeros((2, 3), bool), np.zeros((2, 3), np.complex64)):
        wanted = x.copy()
        wanted[1, [0, 2]] = True
        wanted[0] = 1
        same(both(_write_ones, x), wanted)


def _write_ones(x):
    x[1, [0, 2]] = True
    x[0] = 1
    return x


def test_traced_mask():
    """Where the value has no axis for the mask's elements, the mask may be unknown."""

    def fill(x, mask, value):
        x[mask] = value
        return x

    for value in (np.array(-1.0), np.arange(5.0), np.array([[1.0]])[0]):
        wanted = X.copy()
        wanted[MASK] = value
        same(both(fill, X, MASK, value), wanted)
    same(eager(lambda x, m: x[m], X, MASK), X[MASK])
    with pytest.raises(UserError, match="E0507"):
        traced(lambda x, m: x[m], X, MASK)
    with pytest.raises(UserError, match="E0507"):
        traced(fill, X, MASK, np.ones((4, 5)))


@pytest.mark.parametrize(
    ("index", "code"),
    [
        (3, "E0506"), (-4, "E0506"), ((0, 4), "E0506"), ((0, 0, 0, 0), "E0506"), (ROWS + 1, "E0506"), (1.5, "E0506"),
        ("a", "E0506"), (True, "E0506"), ((Ellipsis, Ellipsis), "E0506"), (slice(None, None, 0), "E0506"),
        (np.ones((3, 3), bool), "E0506"), (np.array([0.5]), "E0138"), (slice(0.5), "E0103"), ((ROWS, GRID), "E0108"),
    ],
    ids=text,
)  # fmt: skip
def test_errors(index, code):
    for run in (eager, traced):
        with pytest.raises(UserError, match=code):
            run(lambda x: x[index], X)


def test_values_that_do_not_fit():
    for run in (eager, traced):
        with pytest.raises(UserError, match="E0108"):
            run(*writing(0, np.ones(3)))


def test_no_views():
    def function(x):
        y, whole, wide = x[0], x[...], x.reshape(x.shape)
        y += 1
        whole += 1
        wide[0] = 5
        return x, y, whole

    x, y, whole = both(function, X)
    same(x, X)
    same(y, X[0] + 1)
    same(whole, X + 1)


def test_same_handle():
    def function(x):
        y = x
        y[1] = 0
        y += 1
        x[0] += 2
        return x, y

    wanted = X.copy()
    wanted[1] = 0
    wanted += 1
    wanted[0] += 2
    x, y = both(function, X)
    same(x, wanted)
    same(y, wanted)


def test_iteration():
    def function(x):
        a, b, c = x
        return a, b + c

    same(both(function, X)[1], X[1] + X[2])
    with pytest.raises(UserError, match="E0107"):
        list(Tensor(1.0))


def test_empty():
    x = np.zeros((0, 3))
    for index in (slice(None), (slice(None), 1), (slice(None), [0, 2]), np.zeros(0, int), slice(None, None, -1)):
        same(both(lambda x: x[index], x), x[index])  # noqa: B023
        same(both(*writing(index, np.array(1.0), x)), x)


@pytest.mark.parametrize("index", [1, (slice(None), slice(2, None, -2)), (ROWS, COLUMNS), MASK, (0, [1, 3])], ids=text)
def test_derivatives(index):
    """A cotangent goes to the value at the places written, to x elsewhere."""
    value = np.ones(X[index].shape)
    t = tracing.trace(writing(index, value)[0], (Tensor(X), Tensor(value)), {}, make_tensor)
    d = np.random.default_rng(0).standard_normal(X.shape)
    of_x, of_value = interp.run(vjp(_first_output(t.fn)), X, value, d)
    wanted = d.copy()
    wanted[index] = 0
    same(of_x, wanted)
    same(of_value, d[index])


def _first_output(fn):
    return Fn(fn.name, fn.params, fn.nodes, fn.outputs[:1])
