"""Products that sum over an index: matrix products with batch axes, and `contract`, written with index letters.

16-bit floats accumulate in float32 and are rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bfloat16, float32, int8, int32, uint8
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i8, i32, u8
from treadle.ops import _formulas
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import broadcast_shapes, cast_together, same_inexact
from treadle.ops.reduce import broadcast_to, wide_array
from treadle.ops.shape import LETTERS, reshape, transpose


def _same_batches(x: Any, y: Any) -> tuple[Value, ...]:
    """Promote; add the axis that a vector lacks is the caller's business; broadcast the leading axes."""
    x, y = cast_together(x, y)
    if x.ndim < 2 or y.ndim < 2 or x.shape[:-2] == y.shape[:-2]:
        return x, y
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return broadcast_to(x, shape=lead + x.shape[-2:]), broadcast_to(y, shape=lead + y.shape[-2:])


@op(
    group="product", formula=_formulas.matmul,
    amp="narrow",
    jvp="multilinear",
    prepare=_same_batches,
    axes="... m k, ... k n -> ... m n",
    onnx="MatMul",
    host=np.matmul,
)
def matmul(x: Value, y: Value) -> Any:
    """x @ y. x: float[..., m, k], y: float[..., k, n] -> float[..., m, n]; 16-bit floats accumulate in float32.

    Raises E0114 for fewer than two axes or when the k's differ.
    """


@matmul.type
def _(x: TensorType, y: TensorType) -> TensorType:
    if x.rank < 2 or y.rank < 2:
        raise UserError("E0114", f"x is {x}, y is {y}: both need two axes or more", fix="reshape vectors to matrices")
    if x.shape[-1] != y.shape[-2]:
        raise UserError("E0114", f"inner sizes differ: x is {x}, y is {y}", fix=f"give y {x.shape[-1]} rows")
    same_inexact(x.with_shape(()), y.with_shape(()))
    if x.shape[:-2] != y.shape[:-2]:
        raise UserError("E0108", f"batch axes of {x} and {y} differ", fix="make them equal, or 1")
    return x.with_shape((*x.shape[:-1], y.shape[-1]))


@matmul.ref
def _(x: Any, y: Any) -> Any:
    return np.matmul(wide_array(x), wide_array(y)).astype(x.dtype)


@matmul.hlo
def _(b: Any, x: Any, y: Any) -> Any:
    batch = tuple(range(b.types[0].rank - 2))
    r = len(batch)
    return b.dot_general(x, y, batch=(batch, batch), contract=((r + 1,), (r,)))


def swap(x: Value) -> Value:
    """x with its last two axes exchanged."""
    r = x.ndim
    swapped: Value = transpose(x, perm=(*range(r - 2), r - 1, r - 2))
    return swapped


@matmul.grad
def _(x: Value, y: Value, out: Value, d: Value) -> tuple[Value, Value]:
    return d @ swap(y), swap(x) @ d


@matmul.batch
def _(run: Any, inputs: Any, flags: Any) -> Any:
    """Lanes of rows times one matrix are one product of all rows; else the lanes are another batch axis."""
    x, y = inputs
    if flags[1] or y.ndim > 2:
        return [matmul(*run.all(inputs, flags))], [True]
    rows = reshape(x, shape=(run.size * x.shape[1], x.shape[2]))
    return [reshape(matmul(rows, y), shape=(*x.shape[:2], y.shape[1]))], [True]


@matmul.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 3], f64[3, 4])
    yield s(f64[5, 2, 3], f64[5, 3, 4])
    yield s(f64[2, 1, 2, 3], f64[2, 1, 3, 2])
    yield s(f64[1, 1], f64[1, 1])
    yield s(f64[2, 0], f64[0, 4])
    yield s(f64[0, 2], f64[2, 4])
    yield s(f32[2, 3], f32[3, 4])
    yield s(bf16[2, 3], bf16[3, 4])
    yield s(f64[2, 3], f64[4, 2], bad="E0114")
    yield s(f64[3], f64[3], bad="E0114")
    yield s(f64[2, 2, 3], f64[3, 3, 2], bad="E0108")
    yield s(i32[2, 2], i32[2, 2], bad="E0106")


def _same_leads(x: Value, y: Value) -> tuple[Value, ...]:
    """Broadcast the leading axes; integers keep their types."""
    if x.ndim < 2 or y.ndim < 2 or x.shape[:-2] == y.shape[:-2]:
        return x, y
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return broadcast_to(x, shape=lead + x.shape[-2:]), broadcast_to(y, shape=lead + y.shape[-2:])


@op(
    group="product", prepare=_same_leads, axes="... i k, ... k j -> ... i j", onnx="MatMulInteger",
    grad=No("integers have no derivative"),
)  # fmt: skip
def matmul_integer(x: Value, y: Value) -> Any:
    """x @ y of bytes, summed in int32 (modulo 2**32): the product of quantised numbers.

    x: int8[..., m, k] or uint8, y: int8[..., k, n] or uint8 -> int32[..., m, n]. Raises E0106 for other types, E0114
    for fewer than two axes or when the k's differ, E0108 when the leading axes do.
    """


@matmul_integer.type
def _(x: TensorType, y: TensorType) -> TensorType:
    for t in (x, y):
        if t.dtype not in (int8, uint8):
            raise UserError("E0106", f"needs tensors of int8 or uint8, got {t}", fix="cast it first: x.astype(td.int8)")
    made: TensorType = matmul.rule("type")(x.with_dtype(float32), y.with_dtype(float32))
    return made.with_dtype(int32)


@matmul_integer.ref
def _(x: Any, y: Any) -> Any:
    return np.matmul(x.astype(np.int32), y.astype(np.int32))


@matmul_integer.hlo
def _(b: Any, x: Any, y: Any) -> Any:
    """StableHLO multiplies operands of one type."""
    of_x, of_y = b.types
    if of_x.dtype is not of_y.dtype:
        x, y = (b.convert(v, t, t.with_dtype(int32)) for v, t in ((x, of_x), (y, of_y)))
    batch = tuple(range(of_x.rank - 2))
    r = len(batch)
    return b.dot_general(x, y, batch=(batch, batch), contract=((r + 1,), (r,)))


@matmul_integer.samples
def _(s: Samples) -> Iterator[Sample]:
    for x, y in ((i8, i8), (u8, i8), (i8, u8), (u8, u8)):
        low = [0 if t is u8 else -128 for t in (x, y)]
        yield s(s.ints(x[3, 70], low[0], low[0] + 256), s.ints(y[70, 4], low[1], low[1] + 256))
    yield s(i8[5, 2, 3], u8[5, 3, 4])
    yield s(u8[2, 1, 2, 3], i8[2, 1, 3, 2])
    yield s(i8[2, 0], i8[0, 4])
    yield s(i8[0, 2], i8[2, 4])
    yield s(i32[2, 2], i8[2, 2], bad="E0106")
    yield s(i8[2, 3], i8[4, 2], bad="E0114")
    yield s(i8[2, 2, 3], i8[3, 3, 2], bad="E0108")


@op(formula=_formulas.contract, group="product", amp="narrow", jvp="multilinear", prepare=cast_together)
def contract(x: Value, y: Value, *, spec: str) -> Any:
    """The product of x and y summed over the letters that the result lacks: spec "bij,bjk->bik" as `numpy.einsum`.

    Each letter stands once in a tensor, and in two of the three. Raises E0136 for any other spec, E0137 when the sizes
    of a letter differ, E0106 for integers.
    """


def spec_letters(spec: str) -> tuple[str, str, str]:
    """The letters of x, of y and of the result. Raises E0136 for a spec that `contract` does not take."""
    ins, arrow, out = spec.partition("->")
    x, comma, y = ins.partition(",")
    parts = (x, y, out)
    if not arrow or not comma or not all(p.isascii() and (p.isalpha() or not p) for p in parts):
        raise UserError("E0136", f"spec {spec!r} is not two operands and a result", fix='write it like "bij,bjk->bik"')
    for letter in sorted(set("".join(parts))):
        if any(p.count(letter) > 1 for p in parts) or sum(letter in p for p in parts) < 2:
            why = f"letter {letter!r} of spec {spec!r} must stand once each in two or three of x, y and the result"
            raise UserError("E0136", why, fix="take the diagonal or the sum of that axis first")
    return parts


@contract.type
def _(x: TensorType, y: TensorType, *, spec: str) -> TensorType:
    of_x, of_y, of_out = spec_letters(spec)
    same_inexact(x.with_shape(()), y.with_shape(()))
    if len(of_x) != x.rank or len(of_y) != y.rank:
        raise UserError("E0136", f"spec {spec!r} does not name the axes of {x} and {y}", fix="one letter per axis")
    sizes = dict(zip(of_x, x.shape, strict=True))
    for letter, size in zip(of_y, y.shape, strict=True):
        if sizes.setdefault(letter, size) != size:
            why = f"{letter!r} of {spec!r} is {sizes[letter]} in x, {size} in y"
            raise UserError("E0137", why, fix="make the sizes equal")
    return x.with_shape(tuple([sizes[letter] for letter in of_out]))


def sums_of_products(spec: str, x: Any, y: Any) -> Any:
    """`numpy.einsum` of two arrays. Of views that repeat an element NumPy takes y * sum(x): -inf where NaN is right."""
    return np.einsum(spec, np.asarray(x, order="C"), np.asarray(y, order="C"))


@contract.ref
def _(x: Any, y: Any, *, spec: str) -> Any:
    return sums_of_products(spec, wide_array(x), wide_array(y)).astype(x.dtype)


@contract.axes
def _(x: TensorType, y: TensorType, *, spec: str) -> str:
    of_x, of_y, of_out = spec_letters(spec)
    return f"{' '.join(of_x)}, {' '.join(of_y)} -> {' '.join(of_out)}"


@contract.hlo
def _(b: Any, x: Any, y: Any, *, spec: str) -> Any:
    """dot_general gives batch axes, then those of the first operand, then those of the second.

    The operands are ordered so that a result wanted the other way round needs no transpose: back ends turn that into a
    product of columns, which XLA's CPU back end runs slower, from a copy.
    """
    of_x, of_y, of_out = spec_letters(spec)
    batch = [c for c in of_out if c in of_x and c in of_y]
    summed = [c for c in of_x if c not in of_out]
    free_x, free_y = ([c for c in part if c in of_out and c not in batch] for part in (of_x, of_y))
    if "".join(batch + free_y + free_x) == of_out:
        x, y, of_x, of_y, free_x, free_y = y, x, of_y, of_x, free_y, free_x
    order = "".join(batch + free_x + free_y)
    sizes = dict(zip(of_out, b.out[0].shape, strict=True))
    made = b.dot_general(
        x,
        y,
        batch=(tuple(map(of_x.index, batch)), tuple(map(of_y.index, batch))),
        contract=(tuple(map(of_x.index, summed)), tuple(map(of_y.index, summed))),
        types=b.out[0].with_shape(tuple([sizes[c] for c in order])),
    )
    return made if order == of_out else b.op("transpose", made, permutation=tuple(map(order.index, of_out)))


@contract.grad
def _(x: Value, y: Value, out: Value, d: Value, *, spec: str) -> tuple[Value, Value]:
    of_x, of_y, of_out = spec_letters(spec)
    return contract(d, y, spec=f"{of_out},{of_y}->{of_x}"), contract(x, d, spec=f"{of_x},{of_out}->{of_y}")


@contract.onnx
def _(g: Any, x: str, y: str, *, spec: str) -> Any:
    """ONNX's Einsum takes no bfloat16."""
    dtype = g.out[0].dtype
    if dtype is not bfloat16:
        return g.node("Einsum", x, y, equation=spec)
    x, y = g.node("Cast", x, to=float32), g.node("Cast", y, to=float32)
    return g.node("Cast", g.node("Einsum", x, y, equation=spec), to=dtype)


@contract.batch
def _(run: Any, inputs: Any, flags: Any, *, spec: str) -> Any:
    """One more letter for the lanes."""
    lane = next(c for c in LETTERS + LETTERS.upper() if c not in spec)
    x, y, out = spec_letters(spec)
    marked = f"{lane * flags[0]}{x},{lane * flags[1]}{y}->{lane}{out}"
    return [contract(*inputs, spec=marked)], [True]


@contract.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 3, 4], f64[2, 4, 2], spec="bij,bjk->bik")
    yield s(f64[2, 3], f64[4, 3], spec="ij,kj->ki")
    yield s(f64[3], f64[3], spec="i,i->")
    yield s(f64[2], f64[3], spec="i,j->ji")
    yield s(f64[()], f64[2], spec=",a->a")
    yield s(f64[()], f64[()], spec=",->")
    yield s(f64[2, 3], f64[3, 2], spec="ab,ba->ba")
    yield s(f64[2, 3, 4, 2], f64[4, 2, 3], spec="aBcd,caB->Bda")
    yield s(f64[1, 3], f64[3, 0], spec="ab,bc->ca")
    yield s(f64[2, 0], f64[0, 3], spec="ab,bc->ca")
    yield s(f32[2, 3], f32[3, 2], spec="ab,bc->ac")
    yield s(bf16[2, 3], bf16[3, 2], spec="ab,bc->ac")
    yield s(f16[2, 3], f16[3, 2], spec="ab,bc->ca")
    yield s(f64[2, 3], f64[3, 2], spec="ab,bc", bad="E0136")
    yield s(f64[2, 2], f64[2, 2], spec="aa,ab->b", bad="E0136")
    yield s(f64[2, 3], f64[3], spec="ab,b->", bad="E0136")
    yield s(f64[2, 3], f64[3], spec="ab,ab->a", bad="E0136")
    yield s(f64[2, 3], f64[2, 2], spec="ab,bc->ac", bad="E0137")
    yield s(i32[2, 3], i32[3, 2], spec="ab,bc->ac", bad="E0106")
