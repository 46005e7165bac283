"""Each rule of algebra.py: what it makes, that the numbers stay, and when it must not fire."""

import numpy as np
import pytest
from tests.transforms.support import check_pass, check_same_numbers, check_silent, module_of, run_step

from treadle.base import dtypes
from treadle.ir.build import trace
from treadle.ir.rewrite import apply_rules
from treadle.ir.types import bool_, f16, f32, f64, i8, i16, i32, u8
from treadle.ops.casting import cast
from treadle.ops.compare import less, select
from treadle.ops.creation import full
from treadle.ops.elementwise import add, div, mul, neg, sub
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import concatenate, pad, reshape, transpose
from treadle.transforms import algebra
from treadle.transforms.cse import Cse
from treadle.transforms.pipeline import Pipeline


def number(value):
    return full(value=value, shape=(), dtype=dtypes.float32)


def filled(like, value):
    return broadcast_to(full(value=value, shape=(), dtype=like.dtype), shape=like.shape)


@pytest.mark.parametrize(
    "rule, before, number",
    [
        (algebra.add_zero, lambda x, n: add(x, n), -0.0),
        (algebra.zero_add, lambda x, n: add(n, x), -0.0),
        (algebra.sub_zero, lambda x, n: sub(x, n), 0.0),
        (algebra.mul_one, lambda x, n: mul(x, n), 1.0),
        (algebra.one_mul, lambda x, n: mul(n, x), 1.0),
        (algebra.div_one, lambda x, n: div(x, n), 1.0),
    ],
)
def test_neutral_numbers(rule, before, number):
    check_pass(rule, lambda x: before(x, filled(x, number)), lambda x: x, f32[2, 3])
    check_silent(rule, lambda x: before(x, filled(x, -number)), f32[2, 3])
    check_silent(rule, lambda x: before(x, filled(x, 2.0)), f32[2, 3])
    check_silent(rule, lambda x, y: before(x, y), f32[2, 3], f32[2, 3])


@pytest.mark.parametrize(
    "rule, before",
    [(algebra.add_plus_zero, lambda x, n: add(x, n)), (algebra.plus_zero_add, lambda x, n: add(n, x))],
)
def test_plus_zero(rule, before):
    check_pass(rule, lambda x: before(x, filled(x, 0.0)), lambda x: x, f32[6], signed_zero=False)
    check_silent(rule, lambda x: before(x, filled(x, -0.0)), f32[6])
    check_silent(rule, lambda x: before(x, filled(x, 1.0)), f32[6])


def test_strict_keeps_the_sign_of_zeros():
    check_silent(algebra.Algebra(strict=True), lambda x: add(x, number(0.0)), f32[()])
    check_silent(algebra.Algebra(strict=True), lambda x: reduce_sum(x, axes=(0,)), f32[1])
    check_pass(algebra.Algebra(), lambda x: add(x, filled(x, 0.0)), lambda x: x, f32[6], signed_zero=False)


def test_integer_zero_is_neutral():
    check_pass(algebra.add_zero, lambda x: add(x, filled(x, 0)), lambda x: x, i32[3])
    check_pass(algebra.sub_zero, lambda x: sub(x, filled(x, 0)), lambda x: x, i32[3])
    check_silent(algebra.add_zero, lambda x: add(x, filled(x, 1)), i32[3])


@pytest.mark.parametrize("divisor, factor", [(4.0, 0.25), (-0.5, -2.0), (2.0**13, 2.0**-13)])
def test_div_power_of_two(divisor, factor):
    def after(x):
        return mul(x, full(value=factor, shape=x.shape, dtype=x.dtype))

    check_pass(algebra.div_power_of_two, lambda x: div(x, filled(x, divisor)), after, f32[6])


@pytest.mark.parametrize("divisor", [3.0, 0.0, float("inf"), float("nan"), 2.0**14])
def test_div_by_other_numbers_stays(divisor):
    check_silent(algebra.div_power_of_two, lambda x: div(x, filled(x, divisor)), f16[6])


def test_div_by_a_tensor_stays():
    check_silent(algebra.div_power_of_two, lambda x, y: div(x, y), f32[2], f32[2])


@pytest.mark.parametrize(
    "rule, before, after",
    [
        (algebra.add_neg, lambda x, y: add(x, neg(y)), lambda x, y: sub(x, y)),
        (algebra.neg_add, lambda x, y: add(neg(x), y), lambda x, y: sub(y, x)),
        (algebra.sub_neg, lambda x, y: sub(x, neg(y)), lambda x, y: add(x, y)),
        (algebra.mul_negs, lambda x, y: mul(neg(x), neg(y)), lambda x, y: mul(x, y)),
    ],
)
def test_signs(rule, before, after):
    check_pass(rule, before, after, f32[6], f32[6])
    check_pass(rule, before, after, i32[6], i32[6])
    check_silent(rule, after, f32[6], f32[6])


def test_double_neg():
    check_pass(algebra.double_neg, lambda x: neg(neg(x)), lambda x: x, f32[6])
    check_silent(algebra.double_neg, lambda x: neg(x), f32[6])


def test_select():
    def choose(value):
        return lambda x, y: select(full(value=value, shape=x.shape, dtype=dtypes.bool_), x, y)

    check_pass(algebra.select_true, choose(True), lambda x, y: x, f32[6], f32[6])
    check_pass(algebra.select_false, choose(False), lambda x, y: y, f32[6], f32[6])
    check_silent(algebra.select_true, choose(False), f32[6], f32[6])
    check_silent(algebra.select_false, choose(True), f32[6], f32[6])
    check_silent(algebra.select_true, lambda p, x, y: select(p, x, y), bool_[2], f32[2], f32[2])


def test_select_same():
    check_pass(algebra.select_same, lambda x, y: select(less(x, y), x, x), lambda x, y: x, f32[6], f32[6])
    check_silent(algebra.select_same, lambda x, y: select(less(x, y), x, y), f32[6], f32[6])


def test_same_cast():
    check_pass(algebra.same_cast, lambda x: cast(x, dtype=dtypes.float32), lambda x: x, f32[2])
    check_silent(algebra.same_cast, lambda x: cast(x, dtype=dtypes.float64), f32[2])


@pytest.mark.parametrize(
    "type, first, second",
    [
        (f32, "f64", "f16"), (f16, "f32", "bf16"), (i8, "i32", "u8"), (u8, "i16", "f32"), (i16, "f32", "f16"),
        (bool_, "f32", "i8"), (f32, "f64", "bool"),
    ],
)  # fmt: skip
def test_merge_casts(type, first, second):
    first, second = dtypes.of(first), dtypes.of(second)
    check_pass(
        algebra.merge_casts,
        lambda x: cast(cast(x, dtype=first), dtype=second),
        lambda x: cast(x, dtype=second),
        type[6],
    )


@pytest.mark.parametrize(
    "type, first, second",
    [
        (f32, "f16", "f32"), (f32, "bool", "f32"), (i32, "f32", "f64"), (i32, "u8", "i32"), (i16, "f32", "i8"),
        (u8, "i8", "i32"),
    ],
)  # fmt: skip
def test_casts_that_lose_something_stay(type, first, second):
    first, second = dtypes.of(first), dtypes.of(second)
    check_silent(algebra.merge_casts, lambda x: cast(cast(x, dtype=first), dtype=second), type[2])


def test_is_lossless_means_that_all_values_survive():
    for source in (d for d in dtypes.ALL if d.bits <= 16 and d.kind in "biuf"):
        bits = np.arange(2 if source.kind == "b" else 2**source.bits).astype(f"u{source.bytes}")
        values = bits.astype(bool) if source.kind == "b" else bits.view(source.np)
        with np.errstate(all="ignore"):
            values = values[values == values]
        for target in (d for d in dtypes.ALL if d.kind in "biuf"):
            with np.errstate(all="ignore"):
                there = values.astype(target.np)
                back = there.astype(source.np)
                survives = np.array_equal(back, values)
                if (target.kind in "iu" and source.kind == "f") or (target.kind == "b" and source.kind != "b"):
                    survives = False
                if source.kind in "iu" and target.kind in "iu":
                    survives = np.array_equal(there.astype(object), values.astype(object))
            assert algebra.is_lossless(source, target) == survives, (source, target)


def test_merge_transposes():
    check_pass(
        algebra.merge_transposes,
        lambda x: transpose(transpose(x, perm=(1, 0, 2)), perm=(0, 2, 1)),
        lambda x: transpose(x, perm=(1, 2, 0)),
        f32[2, 3, 4],
    )
    check_silent(algebra.merge_transposes, lambda x: transpose(neg(transpose(x, perm=(1, 0))), perm=(1, 0)), f32[2, 3])


def test_identity_transpose():
    check_pass(algebra.identity_transpose, lambda x: transpose(x, perm=(0, 1)), lambda x: x, f32[2, 2])
    check_silent(algebra.identity_transpose, lambda x: transpose(x, perm=(1, 0)), f32[2, 2])


def test_reshapes():
    check_pass(
        algebra.merge_reshapes,
        lambda x: reshape(reshape(x, shape=(6,)), shape=(3, 2)),
        lambda x: reshape(x, shape=(3, 2)),
        f32[2, 3],
    )
    check_silent(algebra.merge_reshapes, lambda x: reshape(x, shape=(6,)), f32[2, 3])
    check_pass(algebra.same_reshape, lambda x: reshape(x, shape=(2, 3)), lambda x: x, f32[2, 3])
    check_silent(algebra.same_reshape, lambda x: reshape(x, shape=(3, 2)), f32[2, 3])


def test_broadcasts():
    check_pass(algebra.same_broadcast, lambda x: broadcast_to(x, shape=(2, 3)), lambda x: x, f32[2, 3])
    check_silent(algebra.same_broadcast, lambda x: broadcast_to(x, shape=(2, 3)), f32[1, 3])
    check_pass(
        algebra.merge_broadcasts,
        lambda x: broadcast_to(broadcast_to(x, shape=(2, 3)), shape=(4, 2, 3)),
        lambda x: broadcast_to(x, shape=(4, 2, 3)),
        f32[2, 1],
    )
    check_silent(algebra.merge_broadcasts, lambda x: broadcast_to(x, shape=(4, 2, 3)), f32[2, 1])


def test_broadcast_reshape():
    def before(*middle):
        return lambda x: broadcast_to(reshape(x, shape=middle), shape=(4, 3, 3))

    check_pass(algebra.broadcast_reshape, before(1, 1, 3), lambda x: broadcast_to(x, shape=(4, 3, 3)), f32[3])
    check_silent(algebra.broadcast_reshape, before(3, 1), f32[3])
    check_silent(algebra.broadcast_reshape, before(3, 3), f32[9])


@pytest.mark.parametrize(
    "rule, move, shape",
    [
        (algebra.broadcast_full, lambda x: broadcast_to(x, shape=(4, 2, 3)), (4, 2, 3)),
        (algebra.reshape_full, lambda x: reshape(x, shape=(6,)), (6,)),
        (algebra.transpose_full, lambda x: transpose(x, perm=(1, 0)), (3, 2)),
    ],
)
def test_moved_full(rule, move, shape):
    def make(shape):
        return full(value=-0.0, shape=shape, dtype=dtypes.float32)

    check_pass(rule, lambda: move(make((2, 3))), lambda: make(shape))
    check_silent(rule, move, f32[2, 3])


def test_sum_unit_axes():
    def check(axes, shape, type):
        rule = algebra.sum_unit_axes
        before, after = (lambda x: reduce_sum(x, axes=axes)), (lambda x: reshape(x, shape=shape))
        check_pass(rule, before, after, type, signed_zero=False)

    check((0, 2), (3,), f32[1, 3, 1])
    check((), (6,), f32[6])
    check_silent(algebra.sum_unit_axes, lambda x: reduce_sum(x, axes=(0, 1)), f32[1, 3])
    check_silent(algebra.sum_unit_axes, lambda x: reduce_sum(x, axes=(0,)), f32[0, 3])


def test_add_pads():
    def padded(x, low, high, value=0.0):
        zeros = (0,) * len(low)
        return pad(x, full(value=value, shape=(), dtype=x.dtype), low=low, high=high, interior=zeros)

    def before(x, y):
        return add(padded(x, (0, 0), (3, 0)), padded(y, (2, 0), (0, 0)))

    def turned(x, y):
        return add(padded(y, (2, 0), (1, 0)), padded(x, (0, 0), (4, 0)))

    rules = algebra.add_pads, algebra.pad_nothing
    types = f32[2, 3], f32[3, 3]
    module = module_of(before, types)
    shared, _ = run_step(Cse(), module)
    changed, fired = run_step(rules[0], shared)
    assert fired == {"add_pads": 1}
    check_same_numbers(module, changed, signed_zero=False)
    check_pass(algebra.pad_nothing, lambda x: padded(x, (0, 0), (0, 0)), lambda x: x, f32[2, 3])
    check_silent(algebra.pad_nothing, lambda x: padded(x, (0, 1), (0, 0)), f32[2, 3])
    module, _ = run_step(Cse(), module_of(turned, (f32[2, 3], f32[3, 3])))
    changed, fired = run_step(rules[0], module)
    assert fired == {"add_pads": 1}
    check_same_numbers(module, changed, signed_zero=False)

    def silent(low, high, value):
        def sum_of(x, y):
            return add(padded(x, (0, 0), (3, 0), value), padded(y, low, high, value))

        apart, _ = run_step(Cse(), module_of(sum_of, (f32[2, 3], f32[5 - sum(low) - sum(high), 3])))
        assert run_step(algebra.add_pads, apart)[1] == {}

    silent((3, 0), (0, 0), 0.0)
    silent((1, 0), (1, 0), 0.0)
    silent((2, 0), (0, 0), 1.0)


def test_gradients_of_the_parts_of_a_tensor_are_joined():
    def parts(x, y, z):
        made = [
            pad(v, full(value=0.0, shape=(), dtype=v.dtype), low=(i, 0), high=(2 - i, 0), interior=(0, 0))
            for i, v in enumerate((x, y, z))
        ]
        return add(add(made[2], made[1]), made[0])

    module = module_of(parts, (f32[1, 3],) * 3)
    after = Pipeline.parse("cse,algebra,dce").run(module)
    assert [n.op.name for n in after.main.nodes] == ["concatenate"]
    check_same_numbers(module, after, signed_zero=False)


def test_concatenate_three():
    check_pass(
        algebra.concatenate_three,
        lambda x, y, z: concatenate(concatenate(x, y, axis=0), z, axis=0),
        lambda x, y, z: concatenate(x, y, z, axis=0),
        *[f32[2, 3]] * 3,
    )
    check_silent(
        algebra.concatenate_three,
        lambda x, y, z: concatenate(concatenate(x, y, axis=0), z, axis=1),
        f32[1, 3], f32[1, 3], f32[2, 2],
    )  # fmt: skip


def test_concatenate_last_three():
    check_pass(
        algebra.concatenate_last_three,
        lambda x, y, z: concatenate(x, concatenate(y, z, axis=1), axis=1),
        lambda x, y, z: concatenate(x, y, z, axis=1),
        *[f32[2, 3]] * 3,
    )
    check_silent(
        algebra.concatenate_last_three,
        lambda x, y, z: concatenate(x, concatenate(y, z, axis=1), axis=0),
        f32[1, 4], f32[2, 2], f32[2, 2],
    )  # fmt: skip


def test_the_pass_runs_to_the_end():
    def before(x, y):
        flipped = neg(transpose(transpose(x, perm=(1, 0)), perm=(1, 0)))
        return add(mul(y, filled(y, 1.0)), neg(neg(flipped)))

    check_pass(algebra.Algebra(), before, lambda x, y: sub(y, x), f64[2, 3], f64[2, 3])


def test_a_firing_rule_keeps_the_position():
    fn = trace(lambda x, y: add(x, neg(y)), (f32[2], f32[2]))
    assert apply_rules(fn, [algebra.add_neg]).nodes[-1].where == fn.nodes[-1].where


def test_every_rule_states_gain_and_exactness():
    assert len(algebra.RULES) > 20
    for rule in algebra.RULES:
        assert "->" in rule.doc and "exact" in rule.doc, rule.name
