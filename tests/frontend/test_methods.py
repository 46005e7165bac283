"""Operators and methods of tensors against NumPy, eager and traced."""

import operator

import numpy as np
import pytest
from tests.frontend.surface import both, close, eager, same, traced

from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.tensor import Tensor, make_tensor
from treadle.ir import interp

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal(4)
N, M = RNG.integers(-9, 10, (3, 4)), RNG.integers(1, 5, (3, 4)).astype(np.int64)
MATH = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
ORDER = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor]


def name(f):
    return f.__name__


@pytest.mark.parametrize("f", MATH + ORDER, ids=name)
def test_pairs(f):
    close(both(f, A, B), f(A, B))
    same(both(f, A, B).dtype, f(A, B).dtype)
    close(both(lambda x: f(x, 2), A), f(A, 2))
    close(both(lambda x: f(1.5, x), A), f(1.5, A))
    close(both(lambda x: f(x, B), A), f(A, B))
    close(both(lambda x: f(B, x), A), f(B, A))
    wanted = f(N, M)
    same(both(f, N, M), wanted.astype(np.float32) if f is operator.truediv else wanted)


@pytest.mark.parametrize("f", [*BITS, operator.lshift, operator.rshift], ids=name)
def test_bits(f):
    same(both(f, N, M), f(N, M))
    same(both(lambda x: f(x, 3), N), f(N, 3))
    same(both(lambda x: f(3, x), M), f(3, M))
    if f in BITS:
        same(both(f, N > 0, M > 2), f(N > 0, M > 2))
    x = np.array([255, 7, 128], np.uint8)
    same(both(lambda x: f(x, 2), x), f(x, 2))


@pytest.mark.parametrize("f", [operator.neg, operator.pos, operator.abs, operator.invert], ids=name)
def test_unary(f):
    same(both(f, N), f(N))
    if f is operator.invert:
        same(both(f, N > 0), f(N > 0))
    else:
        same(both(f, A), f(A))


def test_powers_and_products():
    close(both(lambda x: x**2, A), A**2)
    close(both(lambda x: 2**x, A), 2**A)
    close(both(lambda x, y: abs(x) ** y, A, B), np.abs(A) ** B)
    close(both(operator.matmul, A, B), A @ B)
    close(both(lambda x: B @ x.T, A), B @ A.T)
    same(both(lambda x: divmod(x, 4), N)[1], N % 4)


def test_foreign_operands():
    x = Tensor(A)
    assert (x == None) is False  # noqa: E711
    assert (x != None) is True  # noqa: E711
    assert (x == "x") is False
    assert x not in [None, "x"]
    with pytest.raises(TypeError):
        x + "x"
    with pytest.raises(TypeError):
        x += [1]


def test_promotion():
    """Python numbers are weak, also where an integer tensor meets a float."""
    for x, number, wanted in (
        (A.astype(np.float16), 2.0, np.float16), (N, 2, np.int64), (N.astype(np.int8), 2, np.int8),
        (N, 0.5, np.float32), (N > 0, 2, np.int64), (A.astype(np.float32), 1j, np.complex64), (A, 1j, np.complex128),
    ):  # fmt: skip
        assert both(lambda x: x * number, x).dtype == wanted  # noqa: B023
        for run in (eager, traced):
            assert run(lambda x, n: x * n, x, number).dtype == wanted


IN_PLACE = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
]  # fmt: skip


@pytest.mark.parametrize("f", IN_PLACE, ids=name)
def test_in_place(f):
    def function(x, y):
        same_one = x
        same_one = f(same_one, y)
        same_one = f(same_one, 2)
        return x, same_one

    wanted = f(f(np.abs(A), B), 2)
    x, y = both(function, np.abs(A), B)
    np.testing.assert_allclose(x, wanted)
    np.testing.assert_allclose(y, wanted)


def test_in_place_keeps_the_type():
    def add(x, y):
        x += y
        return x

    assert both(add, A.astype(np.float32), B).dtype == np.float32
    assert both(add, N.astype(np.int8), M).dtype == np.int8
    for run in (eager, traced):
        with pytest.raises(UserError, match="E0504"):
            run(lambda x: add(x, 0.5), N)
        with pytest.raises(UserError, match="E0504"):
            run(operator.itruediv, N, M)
        with pytest.raises(UserError, match="E0504"):
            run(lambda x: add(x, 1), N > 0)
        with pytest.raises(UserError, match="E0503"):
            run(add, B, A)


def test_python_numbers_are_not_changed():
    """An input that is a Python float behaves like one: += gives another number."""

    def function(s, x):
        t = s
        t += x
        return s * 1.0, t

    for run in (eager, traced):
        s, t = run(function, 0.5, B)
        close(s, 0.5)
        close(t, 0.5 + B)
    with pytest.raises(UserError, match="E0505"):
        traced(lambda s: operator.setitem(s, ..., 1), 0.5)


def test_numbers_stay_numbers():
    """Python arithmetic on an input that is a Python float gives one: double precision, and weak beside tensors."""
    for f in (
        lambda s: s * 2 + 1, lambda s: (-s) ** 2, lambda s: 1 / s - s, lambda s: abs(s) // 0.1,
        lambda s: 2**s, lambda s: s % 0.3,
    ):  # fmt: skip
        for x in (A.astype(np.float16), A.astype(np.float32), A):
            first, second = (run(lambda x, s: x * f(s), x, 0.7) for run in (eager, traced))  # noqa: B023
            same(first, second)
            assert first.dtype == x.dtype
    same(traced(lambda s: s * 0.1 - 0.03, 0.3), np.float32(0.3 * 0.1 - 0.03))
    assert traced(lambda s: s > 0.3, 0.3) == np.False_


def test_types():
    for method, wanted in (
        ("half", "float16"), ("float", "float32"), ("double", "float64"), ("int", "int32"), ("long", "int64"),
        ("bool", "bool"),
    ):  # fmt: skip
        same(both(lambda x: getattr(x, method)(), A), A.astype(wanted))  # noqa: B023
    assert both(lambda x: x.bfloat16(), A).dtype.name == "bfloat16"
    same(both(lambda x: x.to("float32"), A), A.astype(np.float32))


def test_methods_are_the_functions():
    x = A
    close(both(lambda x: x.sum(0).exp().reshape(2, 2).T, x), np.exp(x.sum(0)).reshape(2, 2).T)
    close(both(lambda x: x.view(-1).mean(dim=0), x), x.mean())
    close(both(lambda x: x[None].mT.softmax(-1).argmax(2), x), x.T[None].argmax(2))
    close(both(lambda x: x.clip(0, 1).sqrt().unsqueeze(0).squeeze(), x), np.sqrt(x.clip(0, 1)))
    close(both(lambda x: x.clone().detach().tanh() + x.dim() + x.numel(), x), np.tanh(x) + 14)


def test_copies_are_apart():
    def function(x):
        for y in (x.clone(), +x, x.to("float64"), x.double(), x.detach(), x.view(3, 4)):
            y += 1
        return x

    same(both(function, A), A)


def test_state_is_read_at_each_call():
    """A copy of a tensor from outside is a read of it in the program, not the value that it had during tracing."""
    state = Tensor(A)
    t = tracing.trace(lambda: state.clone() + state.reshape(3, 4), (), {}, make_tensor)
    assert [c is state for c in t.captured] == [True]


def test_state_is_changed_by_programs():
    """+= and [] = on a tensor from outside are outputs of the program; after the trace it has its old value."""
    state = Tensor(A)

    def function(x):
        state[0] = x
        state.T[0] = 7  # another tensor
        same_one = state
        same_one += 1
        return state.sum()

    t = tracing.trace(function, (Tensor(B),), {}, make_tensor)
    assert [x is state for x in t.changed] == [True]
    same(state._value, A)
    wanted = A.copy()
    wanted[0] = B
    total, new = interp.run(t.fn, B, A)
    same(new, wanted + 1)
    close(total, np.sum(wanted + 1))
