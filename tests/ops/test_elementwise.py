"""What the generated tests cannot see of elementwise ops: Python's rules, kinks, promotion, exact digits."""

import itertools
import math

import numpy as np
import pytest
from tests.ops.support import execute

from treadle import ops
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import bool_, c64, f16, f32, f64, i32, i64, type_of, u8
from treadle.transforms.grad import vjp


def both(function, *arrays):
    """The result by the interpreter, which the back end must give too, bit for bit."""
    arrays = [np.asarray(a) for a in arrays]
    module = Module.of(build.trace(function, [type_of(a) for a in arrays]))
    (wanted,) = interp.run(module, *arrays)
    (found,) = execute(module, arrays, "test")
    np.testing.assert_array_equal(found, wanted)
    return wanted


def slopes(function, *arrays):
    """Gradients of the sum of the results for each argument."""
    arrays = [np.asarray(a, np.float64) for a in arrays]
    fn = build.trace(function, [type_of(a) for a in arrays])
    return interp.run(vjp(fn), *arrays, np.ones(fn.out_types[0].shape))


def bends(function, *arrays):
    """Gradients of the sum of the first argument's gradient."""
    arrays = [np.asarray(a, np.float64) for a in arrays]
    fn = build.trace(function, [type_of(a) for a in arrays])
    arrays.append(np.ones(fn.out_types[0].shape))
    return interp.run(vjp(vjp(fn, [0])), *arrays, np.ones(fn.in_types[0].shape))


NUMBERS = (-7, -5, -1, 0, 1, 5, 7)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.float32, np.float64])
def test_floor_div_and_remainder_are_python_s(dtype):
    pairs = [(x, y) for x, y in itertools.product(NUMBERS, NUMBERS) if y]
    x, y = (np.array(column, dtype) for column in zip(*pairs))
    down, rest = both(ops.floor_div, x, y), both(ops.remainder, x, y)
    assert down.tolist() == [a // b for a, b in pairs]
    assert rest.tolist() == [a % b for a, b in pairs]
    cut, left = both(ops.truncated_remainder, x, y), [math.fmod(a, b) for a, b in pairs]
    assert cut.tolist() == left
    if np.dtype(dtype).kind == "i":
        assert both(ops.truncated_div, x, y).tolist() == [int(a / b) for a, b in pairs]


def test_division_of_fractions_is_exact_python():
    """1 // 0.1 is 9, since 0.1 is a little more than a tenth; rounding 1 / 0.1 would give 10."""
    x, y = np.array([1.0, -1.0, 0.3, 1e300, 5.0]), np.array([0.1, 0.1, 0.1, 3e-5, math.inf])
    assert both(ops.floor_div, x, y).tolist() == [a // b for a, b in zip(x.tolist(), y.tolist())]
    assert both(ops.remainder, x, y).tolist() == [a % b for a, b in zip(x.tolist(), y.tolist())]


@pytest.mark.parametrize("op", [ops.floor_div, ops.remainder, ops.truncated_div, ops.truncated_remainder])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_whole_numbers_divided_by_zero_give_zero(op, dtype):
    assert both(op, np.array([5, 0, 9], dtype), np.zeros(3, dtype)).tolist() == [0, 0, 0]


def test_the_smallest_integer_wraps_around():
    low = np.array([-(2**31)], np.int32)
    assert both(ops.neg, low) == low and both(ops.abs, low) == low
    assert both(ops.minimum, low, low + 1) == low


def test_powers_of_integers():
    x, y = np.array([2, -3, 0, -1, -1, 1, 5, 0], np.int32), np.array([5, 3, 0, -3, -2, -9, -1, -1], np.int32)
    assert both(ops.pow, x, y).tolist() == [32, -27, 1, -1, 1, 1, 0, 0]


@pytest.mark.parametrize("power, slope, bend", [(1.0, 1.0, 0.0), (2.0, 0.0, 2.0), (3.0, 0.0, 0.0), (0.0, 0.0, 0.0)])
def test_the_slope_of_a_power_at_zero(power, slope, bend):
    dx, dy = slopes(ops.pow, [0.0], [power])
    assert dx == slope and dy == 0
    assert bends(ops.pow, [0.0], [power])[0] == bend
    if power:
        assert slopes(lambda x: ops.integer_pow(x, exponent=int(power)), [0.0])[0] == slope


def test_the_slope_of_a_power_of_a_negative_number():
    dx, dy = slopes(ops.pow, [-2.0, -2.0], [3.0, -1.0])
    np.testing.assert_allclose(dx, [12.0, -0.25], rtol=1e-15)
    assert dy.tolist() == [0.0, 0.0]


def test_ties_share_the_slope():
    for op in (ops.maximum, ops.minimum):
        assert [g.tolist() for g in slopes(op, [1.0, 2.0], [1.0, 3.0])] == (
            [[0.5, 0.0], [0.5, 1.0]] if op is ops.maximum else [[0.5, 1.0], [0.5, 0.0]]
        )


def test_the_slope_of_clamp_is_inside_up_to_the_ends():
    low, x, high = slopes(ops.clamp, [-1.0] * 5, [-2.0, -1.0, 0.0, 1.0, 2.0], [1.0] * 5)
    assert low.tolist() == [1, 0, 0, 0, 0] and x.tolist() == [0, 1, 1, 1, 0] and high.tolist() == [0, 0, 0, 0, 1]


def test_slopes_of_kinks_and_steps():
    for op, wanted in ((ops.abs, 0.0), (ops.relu, 0.0), (ops.relu6, 0.0), (ops.floor, 0.0), (ops.sign, 0.0)):
        assert slopes(op, [0.0])[0] == wanted
    assert slopes(lambda x: ops.leaky_relu(x, slope=0.25), [0.0])[0] == 0.25
    np.testing.assert_array_equal(slopes(lambda x: ops.elu(x, alpha=1.0), [1000.0, -1000.0])[0], [1.0, 0.0])
    np.testing.assert_array_equal(slopes(ops.softplus, [1000.0, -1000.0])[0], [1.0, 0.0])


def test_the_choice_not_taken_has_no_slope_even_if_it_is_nan():
    def safe_root(x):
        return ops.select(ops.greater(x, 0), ops.sqrt(ops.select(ops.greater(x, 0), x, 1.0)), 0.0)

    assert slopes(safe_root, [-1.0, 0.0, 4.0])[0].tolist() == [0.0, 0.0, 0.25]


def test_round_takes_the_even_neighbour():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999999])
    assert both(ops.round, x).tolist() == [0.0, 2.0, 2.0, -0.0, -2.0, 2.0]
    assert both(ops.trunc, x).tolist() == [0.0, 1.0, 2.0, -0.0, -1.0, 2.0]


def test_the_inverse_error_function_has_all_its_digits():
    """erf(erf_inv(x)) is x to a few rounding errors of x and of 1 - x."""
    tiny = 2.0 ** -np.arange(1.0, 53)
    x = np.concatenate([tiny, 1 - tiny, -tiny, np.linspace(-0.999, 0.999, 1001)])
    (y,) = interp.run(build.trace(ops.erf_inv, [type_of(x)]), x)
    back = np.array([math.erf(v) for v in y])
    rest = np.array([math.erfc(abs(v)) for v in y])
    np.testing.assert_allclose(back, x, rtol=4e-16, atol=0)
    np.testing.assert_allclose(rest[:104], 1 - np.abs(x[:104]), rtol=3e-14, atol=0)
    ends = both(ops.erf_inv, np.array([1.0, -1.0, 1.5, math.nan]))
    np.testing.assert_array_equal(ends, [math.inf, -math.inf, math.nan, math.nan])
    (found,) = execute(Module.of(build.trace(ops.erf_inv, [f64[len(x)]])), [x], "erf_inv")
    np.testing.assert_allclose(found, y, rtol=2e-10)  # the back end's own error, largest near y = 4.1


@pytest.mark.parametrize("x, y, result", [
    (i32[3], i32[3], f32[3]), (i64[2, 1], i32[3], f32[2, 3]), (bool_[2], bool_[2], f32[2]), (u8[2], f16[2], f16[2]),
    (i32[3], f64[3], f64[3]), (f32[3], c64[3], c64[3]),
])  # fmt: skip
def test_true_division_promotes(x, y, result):
    assert build.trace(ops.div, [x, y]).out_types == (result,)


def test_python_numbers_are_weak():
    def outcome(function, type):
        return build.trace(function, [type]).out_types[0]

    assert outcome(lambda x: x + 1, f16[2]) == f16[2]
    assert outcome(lambda x: 2.5 * x, i32[2]) == f32[2]
    assert outcome(lambda x: x / 2, i64[2]) == f32[2]
    assert outcome(lambda x: 1j * x, f32[2]) == c64[2]
    assert outcome(lambda x: x < 3, u8[2]) == bool_[2]
    assert outcome(lambda x: ops.select(x, 1.0, 2), bool_[2]) == f32[2]


def test_errors_name_the_op_and_the_fix():
    with pytest.raises(UserError, match=r"E0106 logical_and: needs bool tensors, got i32\[2\]"):
        build.trace(ops.logical_and, [i32[2], i32[2]])
    with pytest.raises(UserError, match="E0102 add: 'text' is not a tensor"):
        build.trace(lambda x: ops.add(x, "text"), [f32[2]])
    with pytest.raises(UserError, match="E0102 select: the condition True is not a tensor"):
        build.trace(lambda x: ops.select(True, x, x), [f32[2]])


def test_16_bit_activations_round_once():
    """The result is the float64 value rounded to 16 bits, not the sum of several roundings."""
    x = np.linspace(-5, 5, 401).astype(dtypes.bfloat16.np)
    for op, attrs in ((ops.gelu, {"approximate": False}), (ops.silu, {}), (ops.softplus, {})):
        module = Module.of(build.trace(lambda v: op(v, **attrs), [type_of(x)]))  # noqa: B023
        exact = op.rules["ref"](x.astype(np.float64), **attrs)
        for (found,) in (interp.run(module, x), execute(module, [x], op.name)):
            error = np.abs(found.astype(np.float64) - exact)
            assert (error <= np.abs(exact) * 2.0**-8 * 1.02 + 1e-6).all(), op.name
