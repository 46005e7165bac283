"""Scaled dot-product attention, one node with one node as its gradient (Vaswani et al. 2017, arXiv:1706.03762).

q: float[..., L, D], k: float[..., S, D], v: float[..., S, E], with the same leading axes (batch, heads); optionally a
mask that is added to the scores, of a shape that broadcasts to [..., L, S] (-inf hides a place). 16-bit floats: scores,
softmax and sums are in float32. `attention_fwd` keeps log(sum(exp(scores))) for the gradient, which computes the
probabilities again: nothing of the size of the scores is kept (Dao et al. 2022, arXiv:2205.14135). Attention with
dropout is in dropped_attention.py, made of the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from treadle.base.dtypes import int32
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import same_float
from treadle.ops.casting import cast
from treadle.ops.compare import equal, greater_equal, select
from treadle.ops.creation import full, iota
from treadle.ops.functions import exp, log
from treadle.ops.norm import exp_shift
from treadle.ops.products import contract
from treadle.ops.reduce import reduce_sum, wide, wide_array, wide_dtype, widen
from treadle.ops.shape import LETTERS, reshape

Drop = Callable[[Value], Value]


@op(group="attention", amp="narrow", onnx="expand")
def attention(q: Value, k: Value, v: Value, *mask: Value, scale: float, causal: bool) -> Any:
    """softmax(q k^T * scale + mask) v -> float[..., L, E]. causal: place i sees the places 0 to i only.

    A row that sees no place is NaN. Raises E0106 for integers, E0158 for unfit shapes, E0159 for a wrong mask.
    """


@op(group="attention", amp="narrow", onnx="expand")
def attention_fwd(q: Value, k: Value, v: Value, *mask: Value, scale: float, causal: bool) -> Any:
    """`attention` that also gives log(sum(exp(scores))) of each row, float[..., L], for the gradient.

    Raises as `attention`. float32 for 16-bit floats; -inf for a row that sees no place.
    """


@op(group="attention", amp="narrow", onnx="expand")
def attention_grad(
    q: Value, k: Value, v: Value, y: Value, sums: Value, d: Value, *mask: Value, scale: float, causal: bool
) -> Any:
    """The gradients of `attention` for q, k, v (and the mask), from both results of `attention_fwd`.

    Raises as `attention`, and E0158 for y, sums or d of other types than `attention_fwd` gives.
    """


# Types and axes.


def _scores(q: TensorType, k: TensorType, v: TensorType, mask: tuple[TensorType, ...]) -> TensorType:
    """The type of the scores."""
    same_float(*[t.with_shape(()) for t in (q, k, v)])
    fits = q.rank >= 2 and q.rank == k.rank == v.rank and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    if not fits or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        why = f"q is {q}, k is {k}, v is {v}"
        raise UserError("E0158", why, fix="shape them [..., L, D], [..., S, D], [..., S, E] with equal leading axes")
    shape = (*q.shape[:-1], k.shape[-2])
    if len(mask) > 1 or any(m.dtype is not q.dtype or not _broadcasts(m.shape, shape) for m in mask):
        why = f"the mask {', '.join(map(str, mask))} for scores of shape {list(shape)}"
        raise UserError("E0159", why, fix=f"give one mask of {q.dtype} that broadcasts to it")
    return q.with_shape(shape)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    skip = len(to) - len(shape)
    return skip >= 0 and all(a in (1, b) for a, b in zip(shape, to[skip:]))


@attention.type
def _(q: TensorType, k: TensorType, v: TensorType, *mask: TensorType, scale: float, causal: bool) -> TensorType:
    _scores(q, k, v, mask)
    return q.with_shape((*q.shape[:-1], v.shape[-1]))


@attention_fwd.type
def _(q: TensorType, k: TensorType, v: TensorType, *mask: TensorType, scale: float, causal: bool) -> Any:
    sums = _scores(q, k, v, mask).with_shape(q.shape[:-1])
    return q.with_shape((*q.shape[:-1], v.shape[-1])), sums.with_dtype(wide_dtype(q.dtype))


@attention_grad.type
def _(q: TensorType, k: TensorType, v: TensorType, *rest: TensorType, scale: float, causal: bool) -> Any:
    (y, sums, d), mask = rest[:3], rest[3:]
    row, out = _scores(q, k, v, mask).with_shape(q.shape[:-1]), q.with_shape((*q.shape[:-1], v.shape[-1]))
    row = row.with_dtype(wide_dtype(q.dtype))
    if y != out or sums != row or d != out:
        why = f"y is {y}, the sums are {sums}, d is {d}"
        raise UserError("E0158", why, fix=f"pass y and d as {out}, the sums as {row}")
    return q, k, v, *mask


def _names(q: TensorType, mask: tuple[TensorType, ...], placed: bool) -> dict[str, str]:
    """Axes by operand: the leading axes may be split, L too unless a row's place counts, S and D may not."""
    lead, row = " ".join(LETTERS[: q.rank - 2]), "!row" if placed else "row"
    text = {"q": f"{lead} {row} !dim", "k": f"{lead} !place !dim", "v": f"{lead} !place !width"}
    text |= {"y": f"{lead} {row} !width", "r": f"{lead} {row}", "s": f"{lead} !word", "m": ""}
    for m in mask:
        names = f"{lead} {row} !place".split()
        text["m"] = " ".join("1" if n == 1 else a for n, a in zip(m.shape, names[q.rank - m.rank :]))
    return text


def axes_of(operands: str, results: str, placed: bool = False) -> Any:
    """An axes rule; placed: what a row gives depends on its place, as it does when causal."""

    def rule(q: TensorType, *rest: TensorType, causal: bool, **_: Any) -> str:
        mask = rest[len(operands) - 1 :]
        text = _names(q, mask, placed or causal)
        ins, outs = operands + "m" * len(mask), results + ("m" * len(mask) if "q" in results else "")
        return ", ".join(text[c] for c in ins) + " -> " + ", ".join(text[c] for c in outs)

    return rule


attention.axes(axes_of("qkv", "y"))
attention_fwd.axes(axes_of("qkv", "yr"))
attention_grad.axes(axes_of("qkvyry", "qkv"))


def flops_of(at_d: int, at_e: int) -> Any:
    """A flops rule: so many products of [L, S] with D and with E; a causal mask is not deducted."""

    def rule(ins: Sequence[TensorType], outs: Sequence[TensorType], **_: Any) -> int:
        q, k, v = ins[:3]
        return 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (at_d * q.shape[-1] + at_e * v.shape[-1])

    return rule


attention.flops(flops_of(1, 1))
attention_fwd.flops(flops_of(1, 1))
attention_grad.flops(flops_of(3, 2))


# The meaning.


def _hidden(rows: int, columns: int) -> Any:
    return np.arange(columns)[None, :] > np.arange(rows)[:, None]


@attention.ref
def _(q: Any, k: Any, v: Any, *mask: Any, scale: float, causal: bool) -> Any:
    return reference(q, k, v, mask, scale, causal)[0]


@attention_fwd.ref
def _(q: Any, k: Any, v: Any, *mask: Any, scale: float, causal: bool) -> Any:
    return reference(q, k, v, mask, scale, causal)


def reference(
    q: Any, k: Any, v: Any, mask: tuple[Any, ...], scale: float, causal: bool, drop: Callable[[Any], Any] = lambda x: x
) -> tuple[Any, Any]:
    """The result and the rows' sums with NumPy; drop: makes 0 of some weights, and the others larger."""
    s = np.matmul(wide_array(q), np.swapaxes(wide_array(k), -1, -2)).astype(np.float64) * scale
    for m in mask:
        s = s + m.astype(np.float64)
    if causal:
        s = np.where(_hidden(*s.shape[-2:]), -np.inf, s)
    most = s.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - most)
    total = e.sum(-1, keepdims=True)
    sums = np.where(most == -np.inf, -np.inf, most + np.log(total))[..., 0]
    return np.matmul(drop(e) / total, v.astype(np.float64)).astype(q.dtype), sums.astype(wide_array(q).dtype)


def _spec(operands: str, lead: int) -> str:
    """An einsum over the last two axes, "ld,sd->ls", with `lead` batch axes before."""
    batch = "".join(c for c in LETTERS if c not in "lsde")[:lead]
    ins, out = operands.split("->")
    return ",".join(batch + t for t in ins.split(",")) + "->" + batch + out


@attention.expand
def _(q: Value, k: Value, v: Value, *mask: Value, scale: float, causal: bool) -> Any:
    return attention_fwd(q, k, v, *mask, scale=scale, causal=causal)[0]


def _all_scores(q: Value, k: Value, mask: tuple[Value, ...], scale: float, causal: bool) -> Value:
    """What the softmax is taken of; -inf for places that are hidden."""
    s: Value = contract(wide(q), wide(k), spec=_spec("ld,sd->ls", q.ndim - 2)) * scale
    for m in mask:
        s = s + wide(m)
    if causal:
        rows, columns = (iota(shape=s.shape[-2:], axis=i, dtype=int32) for i in (0, 1))
        s = select(greater_equal(rows, columns), s, full(value=-math.inf, shape=(), dtype=s.dtype))
    return s


@attention_fwd.expand
def _(q: Value, k: Value, v: Value, *mask: Value, scale: float, causal: bool) -> Any:
    return forward(q, k, v, mask, scale, causal)


def forward(
    q: Value, k: Value, v: Value, mask: tuple[Value, ...], scale: float, causal: bool, drop: Drop = lambda x: x
) -> tuple[Value, Value]:
    """The result and the rows' sums in ops; drop: makes 0 of some weights, and the others larger."""
    s = _all_scores(q, k, mask, scale, causal)
    last, rows = (s.ndim - 1,), s.shape[:-1]
    if s.shape[-1] == 0:
        nothing = full(value=-math.inf, shape=rows, dtype=s.dtype)
        return full(value=math.nan, shape=(*rows, v.shape[-1]), dtype=q.dtype), nothing
    most = exp_shift(s, axes=last)
    e = exp(s - widen(most, s, last))
    total = reduce_sum(e, axes=last)
    p = cast(drop(e) / widen(total, e, last), dtype=q.dtype)
    hidden = equal(most, full(value=-math.inf, shape=(), dtype=s.dtype))
    return contract(p, v, spec=_spec("ls,se->le", q.ndim - 2)), select(hidden, most, most + log(total))


@attention.saved
def _(q: Value, k: Value, v: Value, *mask: Value, **attrs: Any) -> Any:
    y, sums = attention_fwd(q, k, v, *mask, **attrs)
    return (y,), (sums,)


@attention.grad
def _(*args: Any, **attrs: Any) -> Any:
    (q, k, v, *mask), y, (sums,), d = args[:-3], args[-3], args[-2], args[-1]
    return attention_grad(q, k, v, y, sums, d, *mask, **attrs)


@attention_grad.expand
def _(q: Value, k: Value, v: Value, y: Value, sums: Value, d: Value, *mask: Value, scale: float, causal: bool) -> Any:
    return gradients((q, k, v, y, sums, d), mask, scale, causal)


def gradients(
    operands: tuple[Value, ...], mask: tuple[Value, ...], scale: float, causal: bool, drop: Drop = lambda x: x
) -> tuple[Value, ...]:
    """What attention_grad gives, in ops. Scaling dq and dk costs less than scaling the gradient of the scores, which
    has more elements."""
    q, k, v, y, sums, d = operands
    lead, last = q.ndim - 2, (q.ndim - 1,)
    s = _all_scores(q, k, mask, scale, causal)
    p = exp(s - widen(sums, s, last))
    dv = contract(cast(drop(p), dtype=q.dtype), d, spec=_spec("ls,le->se", lead))
    dp = drop(contract(wide(d), wide(v), spec=_spec("le,se->ls", lead)))
    ds = p * (dp - widen(reduce_sum(wide(d) * wide(y), axes=last), dp, last))
    narrow = cast(ds, dtype=q.dtype)
    dq = contract(narrow, k, spec=_spec("ls,sd->ld", lead)) * scale
    dk = contract(narrow, q, spec=_spec("ls,ld->sd", lead)) * scale
    return dq, dk, dv, *[cast(_shrunk(ds, m), dtype=m.dtype) for m in mask]


def _shrunk(x: Value, like: Value) -> Value:
    """x summed over the axes along which `like` is broadcast to it."""
    skip = x.ndim - like.ndim
    axes = tuple(i for i in range(x.ndim) if i < skip or like.shape[i - skip] != x.shape[i])
    summed: Value = reshape(reduce_sum(x, axes=axes), shape=like.shape)
    return summed


def _attrs(causal: bool = False) -> dict[str, Any]:
    return {"scale": 0.5, "causal": causal}


_SHAPES = (  # q, k, v, mask
    ((2, 3), (4, 3), (4, 2), ()),
    ((2, 3, 2), (2, 3, 2), (2, 3, 2), ((3, 3),)),
    ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), ((2, 1, 3, 5),)),
    ((2, 2, 3, 2), (2, 2, 3, 2), (2, 2, 3, 2), ()),
    ((1, 1), (1, 1), (1, 1), ((1,),)),
    ((0, 3, 2), (0, 3, 2), (0, 3, 2), ()),
)


@attention.samples
@attention_fwd.samples
def _(s: Samples) -> Iterator[Sample]:
    for q, k, v, mask in _SHAPES:
        for causal in (False, True):
            yield s(f64[q], f64[k], f64[v], *[f64[m] for m in mask], **_attrs(causal))
    yield s(f32[2, 3, 2], f32[2, 3, 2], f32[2, 3, 2], **_attrs(True))
    yield s(bf16[3, 2], bf16[3, 2], bf16[3, 2], bf16[3, 3], **_attrs())
    yield s(f16[3, 2], f16[3, 2], f16[3, 2], **_attrs())
    yield s(f64[3, 2], f64[3, 4], f64[3, 2], **_attrs(), bad="E0158")
    yield s(f64[2], f64[2], f64[2], **_attrs(), bad="E0158")
    yield s(f64[3, 2], f64[3, 2], f64[3, 2], f64[2, 3], **_attrs(), bad="E0159")
    yield s(i32[3, 2], i32[3, 2], i32[3, 2], **_attrs(), bad="E0106")


@attention_grad.samples
def _(s: Samples) -> Iterator[Sample]:
    def one(make: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Sample:
        y, sums = make[(*q[:-1], v[-1])], (f32 if make is bf16 else make)[q[:-1]]
        return s(make[q], make[k], make[v], y, sums, y, *[make[m] for m in mask], **_attrs(), **more)

    for shapes in _SHAPES:
        yield one(f64, *shapes)
    yield one(f32, (2, 3), (4, 3), (4, 2), ())
    yield one(bf16, (2, 3), (4, 3), (4, 2), (), gradient=False)  # the sums' is float32, made of rounded numbers
    yield one(f64, (2, 3), (4, 2), (4, 2), (), bad="E0158")
    yield one(f64, (2, 3), (4, 3), (4, 2), ((4, 4),), bad="E0159")
    yield one(i32, (2, 3), (4, 3), (4, 2), (), bad="E0106")
