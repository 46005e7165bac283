"""Constant folding: what is computed, what is not, and that results keep type and bits."""

import numpy as np
import pytest
from tests.transforms.support import check_pass, check_silent

from treadle.base import dtypes
from treadle.ir.build import trace
from treadle.ir.op import Op
from treadle.ir.types import Literal, bool_, f32
from treadle.ops.casting import cast
from treadle.ops.compare import less
from treadle.ops.control import if_
from treadle.ops.creation import constant, full, iota
from treadle.ops.elementwise import add, div, mul, neg
from treadle.ops.products import matmul
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.transforms.fold import Fold


def number(value, shape=(), dtype=dtypes.float32):
    return full(value=value, shape=shape, dtype=dtype)


def array(*values, dtype=np.float32):
    return constant(value=Literal(np.array(values, dtype)))


def test_uniform_results_become_full():
    check_pass(Fold(), lambda x: add(x, neg(number(2.0, (3,)))), lambda x: add(x, number(-2.0, (3,))), f32[3])


def test_other_results_become_constant():
    check_pass(Fold(), lambda: neg(array(1.0, -0.0)), lambda: array(-1.0, 0.0))
    check_pass(Fold(), lambda: neg(array(1.0, 1.0)), lambda: number(-1.0, (2,)))


@pytest.mark.parametrize("value", [0.0, -0.0, float("inf"), float("nan")])
def test_special_numbers(value):
    check_pass(Fold(), lambda: mul(number(value, (2,)), number(1.0, (2,))), lambda: number(value, (2,)))


def test_iota_is_known_but_stays():
    check_silent(Fold(), lambda: iota(shape=(3,), axis=0, dtype=dtypes.int32))
    ramp = {"shape": (3,), "axis": 0, "dtype": dtypes.int32}
    check_pass(Fold(), lambda: neg(iota(**ramp)), lambda: array(0, -1, -2, dtype=np.int32))


def test_types_are_kept():
    bf16 = dtypes.bfloat16
    check_pass(Fold(), lambda: cast(number(1 / 3), dtype=bf16), lambda: number(0.333984375, (), bf16))
    check_pass(Fold(), lambda: less(number(1.0), number(2.0)), lambda: number(True, (), dtypes.bool_))
    check_pass(Fold(), lambda: div(number(1.0), number(3.0)), lambda: number(float(np.float32(1) / np.float32(3))))


def test_complex_numbers_become_constants():
    given = np.array([1 + 2j], np.complex64)
    check_pass(Fold(), lambda: neg(constant(value=Literal(given))), lambda: constant(value=Literal(-given)))


def test_a_large_tensor_is_not_computed():
    check_silent(Fold(limit=3), lambda: reduce_sum(array(1.0, 2.0, 3.0, 4.0), axes=(0,)))
    check_pass(Fold(limit=4), lambda: reduce_sum(array(1.0, 2.0, 3.0, 4.0), axes=(0,)), lambda: number(10.0))
    check_silent(Fold(limit=3), lambda: broadcast_to(array(1.0, 2.0), shape=(2, 2)))


def test_elementwise_ops_on_large_filled_tensors_are_folded():
    check_pass(Fold(limit=1), lambda: add(number(1.0, (2, 3)), number(2.0, (2, 3))), lambda: number(3.0, (2, 3)))
    check_silent(Fold(limit=1), lambda: matmul(number(1.0, (2, 3)), number(2.0, (3, 2))))


def test_what_depends_on_an_argument_stays():
    check_silent(Fold(), lambda x: add(x, number(1.0, (3,))), f32[3])


def test_regions_are_folded_inside_and_stay():
    def branch(value):
        return trace(value, [], "branch")

    one = {"then": branch(lambda: neg(number(1.0))), "orelse": branch(lambda: number(2.0))}
    two = {"then": branch(lambda: number(-1.0)), "orelse": branch(lambda: number(2.0))}
    check_pass(Fold(), lambda p: if_(p, **one)[0], lambda p: if_(p, **two)[0], bool_[()])
    check_silent(Fold(), lambda: if_(number(True, (), dtypes.bool_), **two)[0])


def test_effects_stay():
    rules = {"type": lambda x: x, "ref": lambda x: x, "effect": "prints"}
    say = Op("say", "For tests: has an effect.", ("x",), rules, "here")
    check_silent(Fold(), lambda: say(number(1.0)))
