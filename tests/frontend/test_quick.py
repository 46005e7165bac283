"""The short cuts of eager mode give what the long way gives: values, types, signs of zeros, and errors."""

import operator
from functools import partial

import numpy as np
import pytest

import treadle as td
from treadle import UserError, ops
from treadle.base.small import limit

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-45, 3.7, -2.5, 1e30, 2.0])
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
OPERATORS += [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
NUMBERS = [True, 2, -3, 0, 1 << 53, (1 << 53) + 1, -(10**400), 2.5, 0.0, -0.0, float("nan"), 1e300, -1e-320, 1 + 2j]
NUMBERS += [np.float64(1.5), np.float32(2.5), np.int64(3), np.array(1.5), None, "a", [1.0]]
INDICES = [
    0, -12, 12, -13, True, None, ..., 2**70, 1.0, "a", (), slice(None, None, -1), slice(5, 1, -2), slice(0, 0),
    slice(None, None, 0), (0, 0), (slice(None), 0), (None, 0, None), (..., ...), np.uint8(2), np.bool_(True),
    np.array(1), np.array([0, -1, 2]), np.array([100]), np.array([], int), np.array([]), np.array([0, 200], np.uint8),
    np.array([-1], np.int8), np.array([[0, 1], [2, 0]]), np.ones(12, bool), np.eye(3, 4, dtype=bool), np.ones((), bool),
    np.array([True, False, True]), [0, 1], (np.array([0, 1]), 0), ([0, 1], [1, 0]), td.Tensor([0, 1]), td.Tensor(1),
    td.Tensor(np.array([True, False, True])), np.array([0, 1], ">i4"), np.array([0, 1], object), (slice(None),) * 5,
]  # fmt: skip
SHAPES = [(-1,), (3, 4), (4, -1), (), (1,), (-2,), (-5, 3), (-1, -1), (-1, 0), ((3, 4),), (np.int64(12),), (3.0, 4)]
AXES = [None, 0, -1, 1, 2, 5, -5, (0,), (0, 1), (), np.int64(0), True, 1.0, "a", [0], 2**70]


def arrays(dtype):
    with np.errstate(all="ignore"):
        a = SPECIAL.astype(dtype)
    return [a, a.reshape(3, 4), a[:1], a[2], a[:0].reshape(0, 3), a.reshape(4, 3)[:, :1]]


def outcome(function, most):
    before, limit.now = limit.now, most
    try:
        found = function()
    except (UserError, TypeError, OverflowError) as error:
        return type(error).__name__, getattr(error, "code", None)
    finally:
        limit.now = before
    return found if isinstance(found, td.Tensor) else repr(found)


def check(function, *args):
    """function(*args) both ways."""
    about = getattr(function, "__name__", function), args
    (+td.Tensor([1.0])).sum()  # the limit is known from the first op on
    assert limit.now > 0
    short, long = outcome(partial(function, *args), limit.now), outcome(partial(function, *args), 0)
    assert type(short) is type(long), about
    if not isinstance(short, td.Tensor):
        assert short == long, about
        return
    x, y = short.numpy(), long.numpy()
    assert (x.dtype, x.shape) == (y.dtype, y.shape), about
    np.testing.assert_allclose(x, y, rtol=3e-6 if x.dtype == np.float32 else 1e-12, err_msg=str(about))
    if x.dtype.kind == "f":
        real = ~np.isnan(x)
        np.testing.assert_array_equal(np.signbit(x[real]), np.signbit(y[real]), err_msg=str(about))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "?"])
def test_operators_beside_numbers(dtype):
    for a in arrays(dtype)[: 5 if dtype in ("f4", "f8") else 2]:
        x = td.Tensor(a)
        for function in OPERATORS:
            for number in NUMBERS:
                check(function, x, number)
                check(function, number, x)


@pytest.mark.parametrize("pair", [("f4", "f4"), ("f8", "f8"), ("f4", "f8"), ("f8", "i4")], ids="-".join)
def test_operators_of_two_tensors(pair):
    for a in arrays(pair[0]):
        for b in arrays(pair[1]):
            x, y = td.Parameter(a) if a.dtype.kind == "f" else td.Tensor(a), td.Tensor(b[..., ::-1] if b.ndim else b)
            for f in [*OPERATORS, operator.matmul, td.maximum, td.arctan2, td.copysign]:
                check(f, x, y)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "?"])
def test_reductions_shapes_and_types(dtype):
    for a in arrays(dtype):
        x = td.Tensor(a)
        for name in ("sum", "prod", "mean", "max", "min"):
            for axis in AXES:
                check(getattr(x, name), axis)
        for shape in SHAPES:
            check(x.reshape, *shape)
        check(operator.attrgetter("T"), x)
        for target in (td.float32, td.float64, td.float16, td.int32):
            if not (target is td.int32 and a.dtype.kind == "f"):  # NaN as an int is anything
                check(x.astype, target)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_indices(dtype):
    for a in arrays(dtype):
        for index in INDICES:
            check(operator.getitem, td.Tensor(a), index)


def test_a_negative_size_is_refused():
    with pytest.raises(UserError, match="E0112"):
        td.Tensor(np.ones(6)).reshape(-2)


def test_results_do_not_change_with_the_users_arrays():
    for function in (lambda a: td.reshape(a, (2, 3)), td.transpose, td.real, td.squeeze, td.Tensor, td.Parameter):
        a = np.arange(6.0)
        made = function(a)
        before = made.numpy()
        a[:] = 7
        np.testing.assert_array_equal(made.numpy(), before)
    buffer, x = np.ones(3), td.Tensor(np.array([1.0, 2.0, 3.0]))

    def loss(x):
        y = x * buffer
        buffer[:] = 5
        return (y * y).sum() + (x * buffer).sum()

    assert td.grad(loss)(x).tolist() == [7, 9, 11]


def test_ops_called_on_arrays_copy_them():
    buffer, x = np.ones(3), td.Tensor(np.array([1.0, 2.0, 3.0]))

    def loss(x):
        y = ops.mul(x, buffer)
        buffer[:] = 5
        return ops.reduce_sum(ops.mul(y, y), axes=(0,))

    assert td.grad(loss)(x).tolist() == [2, 4, 6]


def test_parts_and_shapes_of_large_arrays_on_the_host_are_views():
    a = np.random.default_rng(0).normal(size=(300, 500)).astype("f4")
    x = td.Tensor(a)
    flat, part, row = x.reshape(-1), x[1:, ::2], x[7]
    assert np.shares_memory(flat._value, x._value) and np.shares_memory(part._value, x._value)
    assert not np.shares_memory(row._value, x._value)
    np.testing.assert_array_equal(flat.numpy(), a.reshape(-1))
    np.testing.assert_array_equal((part + 1.0).numpy(), a[1:, ::2] + np.float32(1))
    np.testing.assert_allclose(td.exp(part).numpy(), np.exp(a[1:, ::2]), rtol=1e-6)
    np.testing.assert_array_equal(td.jit(lambda v: v * 2)(part).numpy(), 2 * a[1:, ::2])
    copy = flat.numpy()
    copy[0] = 100.0
    x[0, 0] = 50.0
    assert flat[0].item() == a[0, 0] and x[0, 0].item() == 50.0, "changing one leaves the others"
