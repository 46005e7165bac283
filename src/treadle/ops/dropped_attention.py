"""Attention with dropout: some of the softmax's weights are 0, the others larger; one node, one node as its gradient.

Operands as in attentions.py, and `seeds`: u32[..., 2], a random key for each place of the leading axes. The weight of
row i and place j is dropped where the bits of (seed, i, j) are below rate * 2**32: bits of Threefry-2x32 with 20 rounds
(random.py) for the counter (i, j // 2), its first word for even j, its second for odd j. So the gradient finds the same
weights dropped without any being kept, on every back end, and a part of the leading axes is dropped alike on its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import uint32
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f16, f32, f64, u32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops.attentions import (
    Drop,
    attention,
    attention_fwd,
    attention_grad,
    axes_of,
    flops_of,
    forward,
    gradients,
    reference,
)
from treadle.ops.compare import greater_equal, select
from treadle.ops.creation import full, iota
from treadle.ops.random import threefry, threefry_of
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import concatenate, reshape, slice_


@op(group="attention", amp="narrow", onnx="expand")
def attention_dropout(
    q: Value, k: Value, v: Value, seeds: Value, *mask: Value, scale: float, causal: bool, rate: float
) -> Any:
    """dropout(softmax(q k^T * scale + mask)) v -> float[..., L, E]: weights 0 with chance rate, else / (1 - rate).

    seeds: u32[..., 2], a key for each head. All weights are 0 for rate 1; a row that sees no place is NaN.
    Raises as `attention`, E0124 for other seeds, E0554 for a rate outside 0..1.
    """


@op(group="attention", amp="narrow", onnx="expand")
def attention_dropout_fwd(
    q: Value, k: Value, v: Value, seeds: Value, *mask: Value, scale: float, causal: bool, rate: float
) -> Any:
    """`attention_dropout` that also gives log(sum(exp(scores))) of each row, float[..., L], for the gradient.

    The sums are of all weights, as in `attention_fwd`. Raises as `attention_dropout`.
    """


@op(group="attention", amp="narrow", onnx="expand")
def attention_dropout_grad(
    q: Value, k: Value, v: Value, y: Value, sums: Value, d: Value, seeds: Value, *mask: Value,
    scale: float, causal: bool, rate: float,
) -> Any:  # fmt: skip
    """The gradients of `attention_dropout` for q, k, v (and the mask), from both results of `attention_dropout_fwd`.

    Raises as `attention_dropout` and `attention_grad`.
    """


# Types and axes.


def _check(q: TensorType, seeds: TensorType, rate: float) -> None:
    wanted = TensorType(uint32, (*q.shape[:-2], 2))
    if seeds != wanted:
        raise UserError("E0124", f"the seeds are {seeds} for q of {q}", fix=f"give {wanted}, a key for each head")
    if not 0 <= rate <= 1:
        raise UserError("E0554", f"the rate of dropout is {rate}", fix="give a number from 0 to 1")


@attention_dropout.type
def _(q: TensorType, k: TensorType, v: TensorType, seeds: TensorType, *mask: TensorType, rate: float, **a: Any) -> Any:
    made = attention.rules["type"](q, k, v, *mask, **a)
    _check(q, seeds, rate)
    return made


@attention_dropout_fwd.type
def _(q: TensorType, k: TensorType, v: TensorType, seeds: TensorType, *mask: TensorType, rate: float, **a: Any) -> Any:
    made = attention_fwd.rules["type"](q, k, v, *mask, **a)
    _check(q, seeds, rate)
    return made


@attention_dropout_grad.type
def _(*types: TensorType, rate: float, **attrs: Any) -> Any:
    made = attention_grad.rules["type"](*types[:6], *types[7:], **attrs)
    _check(types[0], types[6], rate)
    return made


attention_dropout.axes(axes_of("qkvs", "y", True))
attention_dropout_fwd.axes(axes_of("qkvs", "yr", True))
attention_dropout_grad.axes(axes_of("qkvyrys", "qkv", True))
attention_dropout.flops(flops_of(1, 1))
attention_dropout_fwd.flops(flops_of(1, 1))
attention_dropout_grad.flops(flops_of(3, 2))


# The meaning.


def threshold(rate: float) -> int:
    """Weights are kept where their bits are at least this."""
    return min(round(rate * 2**32), 2**32 - 1)


def factor(rate: float) -> float:
    """What the weights that are kept are multiplied by."""
    return 0.0 if rate == 1 else 1 / (1 - rate)


def _kept_of(seeds: Any, rows: int, columns: int, rate: float) -> Any:
    """bool[..., rows, columns] with NumPy."""
    k0, k1 = (np.asarray(seeds)[..., i][..., None, None] for i in (0, 1))
    x0, x1 = np.arange(rows, dtype=np.uint32)[:, None], np.arange((columns + 1) // 2, dtype=np.uint32)[None]
    bits = np.stack(threefry_of(k0, k1, x0, x1), -1)
    return bits.reshape(*bits.shape[:-2], 2 * bits.shape[-2])[..., :columns] >= np.uint32(threshold(rate))


def _dropper_of(seeds: Any, rows: int, columns: int, rate: float) -> Any:
    kept, times = _kept_of(seeds, rows, columns, rate), factor(rate)
    return lambda x: np.where(kept, x * times, 0)


def _kept(seeds: Value, rows: int, columns: int, rate: float) -> Value:
    """The same in ops."""
    lead, shape = seeds.shape[:-1], (*seeds.shape[:-1], rows, (columns + 1) // 2)
    starts, limits = (0,) * len(lead), tuple(lead)

    def word(i: int) -> Value:
        one = slice_(seeds, starts=(*starts, i), limits=(*limits, i + 1), strides=(1,) * (len(lead) + 1))
        repeated: Value = broadcast_to(reshape(one, shape=(*lead, 1, 1)), shape=shape)
        return repeated

    counters = [iota(shape=shape, axis=len(lead) + i, dtype=uint32) for i in (0, 1)]
    words = [reshape(w, shape=(*shape, 1)) for w in threefry(word(0), word(1), *counters)]
    bits = reshape(concatenate(*words, axis=len(shape)), shape=(*shape[:-1], 2 * shape[-1]))
    bits = slice_(bits, starts=(0,) * len(shape), limits=(*shape[:-1], columns), strides=(1,) * len(shape))
    kept: Value = greater_equal(bits, full(value=threshold(rate), shape=(), dtype=uint32))
    return kept


def _dropper(seeds: Value, q: Value, k: Value, rate: float) -> Drop:
    kept, times = _kept(seeds, q.shape[-2], k.shape[-2], rate), factor(rate)

    def drop(x: Value) -> Value:
        dropped: Value = select(kept, x * times, full(value=0.0, shape=(), dtype=x.dtype))
        return dropped

    return drop


@attention_dropout.ref
def _(q: Any, k: Any, v: Any, seeds: Any, *mask: Any, scale: float, causal: bool, rate: float) -> Any:
    return reference(q, k, v, mask, scale, causal, _dropper_of(seeds, q.shape[-2], k.shape[-2], rate))[0]


@attention_dropout_fwd.ref
def _(q: Any, k: Any, v: Any, seeds: Any, *mask: Any, scale: float, causal: bool, rate: float) -> Any:
    return reference(q, k, v, mask, scale, causal, _dropper_of(seeds, q.shape[-2], k.shape[-2], rate))


@attention_dropout.expand
def _(q: Value, k: Value, v: Value, seeds: Value, *mask: Value, **attrs: Any) -> Any:
    return attention_dropout_fwd(q, k, v, seeds, *mask, **attrs)[0]


@attention_dropout_fwd.expand
def _(q: Value, k: Value, v: Value, seeds: Value, *mask: Value, scale: float, causal: bool, rate: float) -> Any:
    return forward(q, k, v, mask, scale, causal, _dropper(seeds, q, k, rate))


@attention_dropout.saved
def _(q: Value, k: Value, v: Value, seeds: Value, *mask: Value, **attrs: Any) -> Any:
    y, sums = attention_dropout_fwd(q, k, v, seeds, *mask, **attrs)
    return (y,), (sums,)


@attention_dropout.grad
def _(*args: Any, **attrs: Any) -> Any:
    (q, k, v, seeds, *mask), y, (sums,), d = args[:-3], args[-3], args[-2], args[-1]
    dq, dk, dv, *others = attention_dropout_grad(q, k, v, y, sums, d, seeds, *mask, **attrs)
    return dq, dk, dv, None, *others


@attention_dropout_grad.expand
def _(*args: Value, scale: float, causal: bool, rate: float) -> Any:
    operands, seeds, mask = args[:6], args[6], args[7:]
    return gradients(operands, mask, scale, causal, _dropper(seeds, args[0], args[1], rate))


_SHAPES = (  # q, k, v, mask
    ((2, 3), (4, 3), (4, 2), ()),
    ((2, 3, 2), (2, 3, 2), (2, 3, 2), ((3, 3),)),
    ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), ((2, 1, 3, 5),)),
    ((1, 1), (1, 1), (1, 1), ((1,),)),
    ((0, 3, 2), (0, 3, 2), (0, 3, 2), ()),
)


def _attrs(causal: bool = False, rate: float = 0.4) -> dict[str, Any]:
    return {"scale": 0.5, "causal": causal, "rate": rate}


def _seeds(s: Samples, q: tuple[int, ...]) -> Any:
    return s.ints(u32[(*q[:-2], 2)], 0, 2**32)


@attention_dropout.samples
@attention_dropout_fwd.samples
def _(s: Samples) -> Iterator[Sample]:
    for q, k, v, mask in _SHAPES:
        for causal in (False, True):
            yield s(f64[q], f64[k], f64[v], _seeds(s, q), *[f64[m] for m in mask], **_attrs(causal))
    types = f64[3, 2], f64[4, 2], f64[4, 3]
    for rate in (0.0, 0.9, 1.0):
        yield s(*types, _seeds(s, (3, 2)), **_attrs(rate=rate))
    yield s(f32[2, 3, 2], f32[2, 3, 2], f32[2, 3, 2], _seeds(s, (2, 3, 2)), **_attrs(True))
    yield s(bf16[3, 2], bf16[3, 2], bf16[3, 2], _seeds(s, (3, 2)), bf16[3, 3], **_attrs())
    yield s(f16[3, 2], f16[3, 2], f16[3, 2], _seeds(s, (3, 2)), **_attrs())
    yield s(f64[3, 2], f64[3, 4], f64[4, 3], _seeds(s, (3, 2)), **_attrs(), bad="E0158")
    yield s(*types, _seeds(s, (3, 2)), f64[2, 3], **_attrs(), bad="E0159")
    yield s(*types, u32[3], **_attrs(), bad="E0124")
    yield s(u32[3, 2], u32[4, 2], u32[4, 3], u32[2], **_attrs(), bad="E0106")
    yield s(*types, u32[2], **_attrs(rate=1.5), bad="E0554")


@attention_dropout_grad.samples
def _(s: Samples) -> Iterator[Sample]:
    def one(make: Any, q: Any, k: Any, v: Any, mask: Any, rate: float = 0.4, **more: Any) -> Sample:
        y, sums = make[(*q[:-1], v[-1])], (f32 if make is bf16 else make)[q[:-1]]
        masks = [make[m] for m in mask]
        return s(make[q], make[k], make[v], y, sums, y, _seeds(s, q), *masks, **_attrs(rate=rate), **more)

    for shapes in _SHAPES:
        yield one(f64, *shapes)
    yield one(f32, (2, 3), (4, 3), (4, 2), ())
    yield one(bf16, (2, 3), (4, 3), (4, 2), (), gradient=False)  # the sums' is float32, made of rounded numbers
    yield one(f64, (2, 3), (4, 2), (4, 2), (), bad="E0158")
    yield one(f64, (2, 3), (4, 3), (4, 2), ((4, 4),), bad="E0159")
    yield one(f64, (2, 3), (4, 3), (4, 2), (), rate=-0.5, bad="E0554")
    yield s(*[f64[2, 2]] * 4, f64[2], f64[2, 2], u32[3], **_attrs(), bad="E0124")
    yield one(u32, (2, 3), (4, 3), (4, 2), (), bad="E0106")
