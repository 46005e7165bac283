"""Named rewrites of arithmetic and shapes. They are exact: the same bits come out, NaN, infinities and -0.0 included
(the payload of a NaN aside). Four, in SIGN_OF_ZERO, may give -0.0 where 0.0 was, as XLA's own simplifier does; equal
numbers otherwise. `algebra{strict=True}` leaves them out.

Not here because they change numbers: x * 0 -> 0 and x - x -> 0 (NaN, infinity), log(exp(x)) -> x,
(x * a) * b -> x * (a * b) and sums merged into one sum (rounding).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from treadle.base.dtypes import DType
from treadle.ir.node import Module, Value
from treadle.ir.rewrite import Rule, apply_rules, map_fns, rule
from treadle.ops.casting import cast
from treadle.ops.compare import select
from treadle.ops.creation import full
from treadle.ops.elementwise import add, div, mul, neg, sub
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import concatenate, pad, reshape, transpose
from treadle.transforms.pipeline import Pass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Algebra(Pass):
    """Applies the rules of this file until none fires. strict: only those that keep even the sign of zeros."""

    strict: bool = False

    def __call__(self, module: Module) -> Module:
        rules = [r for r in RULES if r not in SIGN_OF_ZERO] if self.strict else RULES
        return map_fns(module, lambda fn: apply_rules(fn, rules))


def uniform(x: Value) -> Any:
    """The number that every element of x is, as a Python number of x's element type; None when that is not known."""
    while x.node is not None and x.node.op in (broadcast_to, reshape, transpose):
        x = x.node.inputs[0]
    if x.node is None or x.node.op is not full or x.dtype.kind == "c":
        return None
    return {"b": bool, "f": float}.get(x.dtype.kind, int)(x.node.attrs["value"])


def is_number(x: Value, wanted: float) -> str:
    """ "" when every element of x is `wanted` (the sign of zero counts), else the reason why not."""
    found = uniform(x)
    if found is None:
        return "the operand is not one known number"
    same_sign = x.dtype.kind != "f" or math.copysign(1, found) == math.copysign(1, wanted)
    return "" if found == wanted and same_sign else f"the operand is {found}, not {wanted}"


def _no_op_for_add(zero: Value) -> str:
    return is_number(zero, -0.0 if zero.dtype.is_float else 0)


# ----------------------------------------------------------------------------------------------------------- arithmetic
@rule(match=lambda x, z: add(x, z), check=lambda x, z: _no_op_for_add(z))
def add_zero(x: Value, z: Value) -> Value:
    """x + -0.0 -> x, and x + 0 of integers. One op fewer; exact."""
    return x


@rule(match=lambda z, x: add(z, x), check=lambda z, x: _no_op_for_add(z))
def zero_add(z: Value, x: Value) -> Value:
    """-0.0 + x -> x, and 0 + x of integers. One op fewer; exact."""
    return x


@rule(match=lambda x, z: add(x, z), check=lambda x, z: is_number(z, 0.0))
def add_plus_zero(x: Value, z: Value) -> Value:
    """x + 0.0 -> x. One op fewer (sums of gradients start so); exact but for -0.0, which stays -0.0."""
    return x


@rule(match=lambda z, x: add(z, x), check=lambda z, x: is_number(z, 0.0))
def plus_zero_add(z: Value, x: Value) -> Value:
    """0.0 + x -> x. One op fewer; exact but for -0.0, which stays -0.0."""
    return x


@rule(match=lambda x, z: sub(x, z), check=lambda x, z: is_number(z, 0.0))
def sub_zero(x: Value, z: Value) -> Value:
    """x - 0.0 -> x. One op fewer; exact."""
    return x


@rule(match=lambda x, o: mul(x, o), check=lambda x, o: is_number(o, 1))
def mul_one(x: Value, o: Value) -> Value:
    """x * 1 -> x. One op fewer; exact."""
    return x


@rule(match=lambda o, x: mul(o, x), check=lambda o, x: is_number(o, 1))
def one_mul(o: Value, x: Value) -> Value:
    """1 * x -> x. One op fewer; exact."""
    return x


@rule(match=lambda x, o: div(x, o), check=lambda x, o: is_number(o, 1))
def div_one(x: Value, o: Value) -> Value:
    """x / 1 -> x. One op fewer; exact."""
    return x


def _has_exact_inverse(x: Value, d: Value) -> str:
    number = uniform(d)
    if number is None or not d.dtype.is_float:
        return "the divisor is not one known float"
    if not math.isfinite(number) or number == 0 or abs(math.frexp(number)[0]) != 0.5:
        return f"the divisor {number} is not a power of two"
    return "" if 2.0**-13 <= abs(number) <= 2.0**13 else "its inverse may be subnormal or infinite in 16 bits"


@rule(match=lambda x, d: div(x, d), check=_has_exact_inverse)
def div_power_of_two(x: Value, d: Value) -> Value:
    """x / 2**k -> x * 2**-k for |k| <= 13. A multiplication is cheaper than a division; exact."""
    return x * full(value=1 / uniform(d), shape=d.shape, dtype=d.dtype)  # type: ignore[no-any-return]


@rule(match=lambda x: neg(neg(x)))
def double_neg(x: Value) -> Value:
    """-(-x) -> x. Two ops fewer; exact."""
    return x


@rule(match=lambda x, y: add(x, neg(y)))
def add_neg(x: Value, y: Value) -> Value:
    """x + -y -> x - y. One op fewer; exact."""
    return x - y


@rule(match=lambda x, y: add(neg(x), y))
def neg_add(x: Value, y: Value) -> Value:
    """-x + y -> y - x. One op fewer; exact."""
    return y - x


@rule(match=lambda x, y: sub(x, neg(y)))
def sub_neg(x: Value, y: Value) -> Value:
    """x - -y -> x + y. One op fewer; exact."""
    return x + y


@rule(match=lambda x, y: mul(neg(x), neg(y)))
def mul_negs(x: Value, y: Value) -> Value:
    """-x * -y -> x * y. Two ops fewer; exact."""
    return x * y


# --------------------------------------------------------------------------------------------------------------- choice
@rule(match=lambda p, x, y: select(p, x, y), check=lambda p, x, y: is_number(p, True))
def select_true(p: Value, x: Value, y: Value) -> Value:
    """select(True, x, y) -> x. One op and one operand fewer; exact."""
    return x


@rule(match=lambda p, x, y: select(p, x, y), check=lambda p, x, y: is_number(p, False))
def select_false(p: Value, x: Value, y: Value) -> Value:
    """select(False, x, y) -> y. One op and one operand fewer; exact."""
    return y


@rule(match=lambda p, x: select(p, x, x))
def select_same(p: Value, x: Value) -> Value:
    """select(p, x, x) -> x. One op and one operand fewer; exact."""
    return x


# ---------------------------------------------------------------------------------------------------------------- casts
_DIGITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


def is_lossless(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`, which is a bool, integer or float type."""
    if "c" in source.kind + target.kind:
        return False
    if source is target or source.kind == "b":
        return True
    if target.kind == "b":
        return False
    if source.is_float:
        return target.is_float and (target.short, source.short) in _WIDER
    bits = source.bits - (source.kind == "i")
    if target.is_float:
        return bits <= _DIGITS[target.short]
    return target.bits - (target.kind == "i") >= bits and (source.kind == "u" or target.kind == "i")


_WIDER = {("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "bf16"), ("f64", "f32")}


def _first_cast_is_idle(x: Value, first: DType, second: DType) -> str:
    if not is_lossless(x.dtype, first):
        return f"{x.dtype} to {first} may lose something"
    wraps = first.is_float and second.is_integer and x.dtype.kind != "b"
    return f"{first} to {second} does not wrap as integers do" if wraps else ""


@rule(match=lambda x, d: cast(x, dtype=d), check=lambda x, d: "" if x.dtype is d else "it changes the type")
def same_cast(x: Value, d: DType) -> Value:
    """cast(x, its own type) -> x. One op fewer; exact."""
    return x


@rule(match=lambda x, d, e: cast(cast(x, dtype=d), dtype=e), check=_first_cast_is_idle)
def merge_casts(x: Value, d: DType, e: DType) -> Value:
    """cast(cast(x, d), e) -> cast(x, e) when d holds every value of x's type. One copy fewer; exact."""
    return cast(x, dtype=e)  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------------------- shapes
@rule(match=lambda x, p, q: transpose(transpose(x, perm=p), perm=q))
def merge_transposes(x: Value, p: Shape, q: Shape) -> Value:
    """transpose(transpose(x, p), q) -> transpose(x, p then q). One copy fewer; exact."""
    return transpose(x, perm=tuple([p[i] for i in q]))  # type: ignore[no-any-return]


def _is_identity(x: Value, p: Shape) -> str:
    return "" if p == tuple(range(len(p))) else f"{p} moves axes"


@rule(match=lambda x, p: transpose(x, perm=p), check=_is_identity)
def identity_transpose(x: Value, p: Shape) -> Value:
    """transpose(x, (0, 1, ...)) -> x. One copy fewer; exact."""
    return x


@rule(match=lambda x, s, t: reshape(reshape(x, shape=s), shape=t))
def merge_reshapes(x: Value, s: Shape, t: Shape) -> Value:
    """reshape(reshape(x, s), t) -> reshape(x, t). One op fewer; exact."""
    return reshape(x, shape=t)  # type: ignore[no-any-return]


def _keeps_shape(x: Value, s: Shape) -> str:
    return "" if x.shape == s else f"{x.shape} becomes {s}"


@rule(match=lambda x, s: reshape(x, shape=s), check=_keeps_shape)
def same_reshape(x: Value, s: Shape) -> Value:
    """reshape(x, its own shape) -> x. One op fewer; exact."""
    return x


@rule(match=lambda x, s: broadcast_to(x, shape=s), check=_keeps_shape)
def same_broadcast(x: Value, s: Shape) -> Value:
    """broadcast_to(x, its own shape) -> x. One op fewer; exact."""
    return x


@rule(match=lambda x, s, t: broadcast_to(broadcast_to(x, shape=s), shape=t))
def merge_broadcasts(x: Value, s: Shape, t: Shape) -> Value:
    """broadcast_to(broadcast_to(x, s), t) -> broadcast_to(x, t). One copy fewer; exact."""
    return broadcast_to(x, shape=t)  # type: ignore[no-any-return]


def _adds_front_axes(x: Value, s: Shape, t: Shape) -> str:
    extra = len(s) - x.ndim
    return "" if extra > 0 and s == (1,) * extra + x.shape else f"{x.shape} to {s} does more than add axes in front"


@rule(match=lambda x, s, t: broadcast_to(reshape(x, shape=s), shape=t), check=_adds_front_axes)
def broadcast_reshape(x: Value, s: Shape, t: Shape) -> Value:
    """broadcast_to(reshape(x, (1, ..., *x.shape)), t) -> broadcast_to(x, t). One op fewer; exact."""
    return broadcast_to(x, shape=t)  # type: ignore[no-any-return]


def _is_full(x: Value, _: Shape) -> str:
    return "" if x.node is not None and x.node.op is full else "the operand is not full(...)"


def _filled_like(x: Value, shape: Shape) -> Value:
    assert x.node is not None
    return full(value=x.node.attrs["value"], shape=shape, dtype=x.dtype)  # type: ignore[no-any-return]


@rule(match=lambda x, s: broadcast_to(x, shape=s), check=_is_full)
def broadcast_full(x: Value, s: Shape) -> Value:
    """broadcast_to(full(v), s) -> full(v, s). One copy fewer; exact."""
    return _filled_like(x, s)


@rule(match=lambda x, s: reshape(x, shape=s), check=_is_full)
def reshape_full(x: Value, s: Shape) -> Value:
    """reshape(full(v), s) -> full(v, s). One op fewer; exact."""
    return _filled_like(x, s)


@rule(match=lambda x, p: transpose(x, perm=p), check=_is_full)
def transpose_full(x: Value, p: Shape) -> Value:
    """transpose(full(v), p) -> full(v, shape reordered). One copy fewer; exact."""
    return _filled_like(x, tuple([x.shape[i] for i in p]))


# ------------------------------------------------------------------------------------------------------------- padding
def _is_nothing(x: Value, z: Value, a: Shape, b: Shape, c: Shape) -> str:
    padded = any(a) or any(b) or any(n and size > 1 for n, size in zip(c, x.shape))
    return "it adds elements" if padded else ""


@rule(match=lambda x, z, a, b, c: pad(x, z, low=a, high=b, interior=c), check=_is_nothing)
def pad_nothing(x: Value, z: Value, a: Shape, b: Shape, c: Shape) -> Value:
    """pad by no elements -> x. One copy fewer; exact."""
    return x


def _joint(x: Value, a: Shape, y: Value, b: Shape) -> int:
    """The one axis along which x, placed at a, ends where y, placed at b, begins; -1 if there is none."""
    apart = [i for i in range(len(a)) if (a[i], x.shape[i]) != (b[i], y.shape[i])]
    return apart[0] if len(apart) == 1 and a[apart[0]] + x.shape[apart[0]] == b[apart[0]] else -1


def _side_by_side(
    x: Value, y: Value, z: Value, a: Shape, b: Shape, c: Shape, d: Shape, e: Shape
) -> str:  # fmt: skip
    if any(e) or is_number(z, 0.0):
        return "it is padded with something other than 0 around"
    return "" if max(_joint(x, a, y, c), _joint(y, c, x, a)) >= 0 else "the parts are not side by side"


@rule(
    match=lambda x, y, z, a, b, c, d, e: add(
        pad(x, z, low=a, high=b, interior=e), pad(y, z, low=c, high=d, interior=e)
    ),
    check=_side_by_side,
)
def add_pads(x: Value, y: Value, z: Value, a: Shape, b: Shape, c: Shape, d: Shape, e: Shape) -> Value:
    """pad(x, 0) + pad(y, 0), side by side -> pad(concatenate(x, y), 0). Gradients of parts of a tensor are added so:
    one pass over memory for three; exact but for -0.0, which stays -0.0."""
    axis = _joint(x, a, y, c)
    if axis < 0:
        return add_pads.into(y, x, z, c, d, a, b, e)  # type: ignore[no-any-return]
    return pad(concatenate(x, y, axis=axis), z, low=a, high=d, interior=e)  # type: ignore[no-any-return]


@rule(match=lambda x, y, w, a: concatenate(concatenate(x, y, axis=a), w, axis=a))
def concatenate_three(x: Value, y: Value, w: Value, a: int) -> Value:
    """concatenate(concatenate(x, y), w) -> concatenate(x, y, w). One copy fewer; exact."""
    return concatenate(x, y, w, axis=a)  # type: ignore[no-any-return]


@rule(match=lambda x, y, w, a: concatenate(x, concatenate(y, w, axis=a), axis=a))
def concatenate_last_three(x: Value, y: Value, w: Value, a: int) -> Value:
    """concatenate(x, concatenate(y, w)) -> concatenate(x, y, w). One copy fewer; exact."""
    return concatenate(x, y, w, axis=a)  # type: ignore[no-any-return]


# ----------------------------------------------------------------------------------------------------------- reductions
def _only_unit_axes(x: Value, a: Shape) -> str:
    sizes = [x.shape[i] for i in a]
    return "" if all(n == 1 for n in sizes) else f"axes {a} have sizes {sizes}"


@rule(match=lambda x, a: reduce_sum(x, axes=a), check=_only_unit_axes)
def sum_unit_axes(x: Value, a: Shape) -> Value:
    """reduce_sum over no axes or axes of size 1 -> reshape. A reduction fewer; exact but for -0.0, which stays."""
    return reshape(x, shape=tuple([n for i, n in enumerate(x.shape) if i not in a]))  # type: ignore[no-any-return]


RULES: tuple[Rule, ...] = tuple([r for r in globals().values() if isinstance(r, Rule)])
SIGN_OF_ZERO = (add_plus_zero, plus_zero_add, sum_unit_axes, add_pads)
