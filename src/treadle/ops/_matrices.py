"""What the families of linear algebra share: type rules, triangles, adjoints, and the calls of LAPACK.

Matrices stand in the last two axes; the axes before them are a batch. Element types: float32, float64, complex64,
complex128. Gradients pair cotangents with complex numbers without conjugation (dL = Re(sum(d * dz))), so that textbook
formulas, which pair with conjugation, are used on conj(d) and conjugated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, bool_, complex64, complex128, float32, float64, int32
from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType
from treadle.ops.casting import cast
from treadle.ops.compare import greater_equal, is_finite, less_equal, select
from treadle.ops.complex import conj, imag, make_complex, real
from treadle.ops.creation import full, iota
from treadle.ops.elementwise import abs
from treadle.ops.products import swap
from treadle.ops.reduce import broadcast_to, reduce_max
from treadle.ops.shape import reshape, zeros_like

Array = np.ndarray[Any, Any]
NO_ONNX = No("ONNX has no such operator")
LETTERS = {float32: "s", float64: "d", complex64: "c", complex128: "z"}
PARTS = {complex64: float32, complex128: float64}


def matrix(x: TensorType) -> TensorType:
    """x itself. Raises E0181 for other element types, E0180 unless the last two axes are a matrix."""
    if x.dtype not in LETTERS:
        why = f"needs float32, float64, complex64 or complex128, got {x}"
        raise UserError("E0181", why, fix="cast it first: x.astype(td.float32)")
    if x.rank < 2:
        raise UserError("E0180", f"needs matrices in the last two axes, got {x}", fix="give it two axes or more")
    return x


def square(x: TensorType) -> TensorType:
    """x itself. Raises E0181, and E0180 unless the last two sizes are equal."""
    if matrix(x).shape[-1] != x.shape[-2]:
        raise UserError("E0180", f"needs square matrices, got {x}", fix="make the last two sizes equal")
    return x


def part(dtype: DType) -> DType:
    """The type of the absolute value."""
    return PARTS.get(dtype, dtype)


# --- values -----------------------------------------------------------------------------------------------------------


def conjugate(x: Value) -> Value:
    """conj(x), x itself where it is real."""
    made: Value = conj(x) if x.dtype.kind == "c" else x
    return made


def adjoint(x: Value) -> Value:
    """The conjugate transpose."""
    return conjugate(swap(x))


def real_part(x: Value) -> Value:
    made: Value = real(x) if x.dtype.kind == "c" else x
    return made


def imag_part(x: Value) -> Value:
    """The imaginary part of complex numbers, i times it as a complex tensor is `rotated`."""
    made: Value = imag(x)
    return made


def rotated(x: Value) -> Value:
    """i * x of real x."""
    made: Value = make_complex(zeros_like(x), x)
    return made


def like(x: Value, dtype: DType) -> Value:
    """x with elements of the type."""
    made: Value = x if x.dtype is dtype else cast(x, dtype=dtype)
    return made


def lower(x: Value, k: int = 0) -> Value:
    """The elements on and below the k-th diagonal, zeros elsewhere."""
    r = x.ndim
    rows, columns = [iota(shape=x.shape, axis=a, dtype=int32) for a in (r - 2, r - 1)]
    made: Value = select(less_equal(columns, rows + k), x, zeros_like(x))
    return made


def upper(x: Value, k: int = 0) -> Value:
    """The elements on and above the k-th diagonal, zeros elsewhere."""
    r = x.ndim
    rows, columns = [iota(shape=x.shape, axis=a, dtype=int32) for a in (r - 2, r - 1)]
    made: Value = select(greater_equal(columns, rows + k), x, zeros_like(x))
    return made


def diagonal(x: Value) -> Value:
    """The matrix with its diagonal only."""
    return lower(upper(x))


def eye(shape: Sequence[int], dtype: DType) -> Value:
    """Matrices with ones on the diagonal. shape: with batch axes."""
    made: Value = full(value=1, shape=tuple(shape), dtype=dtype)
    return diagonal(made)


def along_columns(x: Value, rows: int) -> Value:
    """[..., n] repeated as rows [..., rows, n]: element j is beside all of column j."""
    *lead, n = x.shape
    made: Value = broadcast_to(reshape(x, shape=(*lead, 1, n)), shape=(*lead, rows, n))
    return made


def along_rows(x: Value, columns: int) -> Value:
    """[..., n] repeated as columns [..., n, columns]: element i is beside all of row i."""
    made: Value = broadcast_to(reshape(x, shape=(*x.shape, 1)), shape=(*x.shape, columns))
    return made


def lower_gradient(s: Value) -> Value:
    """The gradient for a Hermitian matrix that is read from its lower triangle, from the gradient s for all elements.

    In textbook (conjugated) pairing.
    """
    both = s + adjoint(s)
    made: Value = lower(both, -1) + like(real_part(diagonal(s)), s.dtype)
    return made


def finite_or_nan(x: Value) -> Value:
    """x, all NaN where an element is infinite or NaN: LAPACK's iterations may not end for infinite ones."""
    r = x.ndim
    good = is_finite(reduce_max(abs(x), axes=(r - 2, r - 1)))
    wide = broadcast_to(reshape(good, shape=(*good.shape, 1, 1)), shape=x.shape)
    nan = like(full(value=float("nan"), shape=x.shape, dtype=part(x.dtype)), x.dtype)
    made: Value = select(wide, x, nan)
    return made


# --- NumPy ------------------------------------------------------------------------------------------------------------


def each(
    function: Callable[[Array], tuple[Any, ...]],
    x: Array,
    shapes: Sequence[Sequence[int]],
    dtypes: Any,
    finite: bool = False,
) -> Any:
    """function(matrix) -> arrays for each matrix of a batch; NaN where NumPy finds no answer.

    finite: NaN too where an element is infinite or NaN.
    """
    lead = x.shape[:-2]
    outs = [np.zeros((*lead, *shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    for index in np.ndindex(*lead):
        try:
            if finite and not np.isfinite(x[index]).all():
                raise np.linalg.LinAlgError("not finite")
            results = function(x[index])
        except np.linalg.LinAlgError:
            results = tuple([np.nan] * len(outs))
        for out, result in zip(outs, results, strict=True):
            out[index] = result
    return tuple(outs)


# --- LAPACK -----------------------------------------------------------------------------------------------------------


def lapack(b: Any, routine: str, operands: Sequence[Any], ins: Any, outs: Any, **modes: str) -> Any:
    """The results of a LAPACK routine by the custom calls that jaxlib registers for CPUs; runtime/pjrt.py loads them.

    routine: without the type's letter. ins, outs: TensorTypes; matrices are in column order. modes: letters.
    """
    name = f"lapack_{LETTERS[ins[0].dtype]}{routine}_ffi"
    return b.op(
        "custom_call",
        *operands,
        types=tuple(outs),
        call_target_name=f'"{name}"',
        api_version="4 : i32",
        backend_config="{" + ", ".join(f"{k} = {ord(v)} : ui8" for k, v in modes.items()) + "}",
        operand_layouts=_layouts(ins),
        result_layouts=_layouts(outs),
    )


def _layouts(types: Sequence[TensorType]) -> str:
    """Matrices in column order, batch axes around them; vectors and counts as they are. A type whose last axis is no
    column of a matrix is told by its rank being that of the batch plus one at most."""
    batch = max(t.rank for t in types) - 2
    texts = []
    for t in types:
        order = [*range(t.rank - 1, -1, -1)]
        if t.rank == batch + 2:
            order[:2] = [t.rank - 2, t.rank - 1]
        texts.append(f"dense<{order if order else ''}> : tensor<{t.rank}xindex>")
    return f"[{', '.join(texts)}]"


def unless_failed(b: Any, results: Sequence[Any], types: Sequence[TensorType], info: Any, info_type: TensorType) -> Any:
    """The results, NaN where LAPACK's info says that it found no answer."""
    good = b.op(
        "compare", info, b.splat(0, info_type), types=info_type.with_dtype(bool_),
        comparison_direction="#stablehlo<comparison_direction EQ>",
    )  # fmt: skip
    out = []
    for x, t in zip(results, types, strict=True):
        wide = t.with_dtype(bool_)
        mask = b.broadcast_in_dim(good, tuple(range(info_type.rank)), wide)
        out.append(b.op("select", mask, x, b.splat(np.nan, t), types=t))
    return tuple(out)


def inline_in(b: Any, function: Any, types: Any, *operands: Any) -> Any:
    """The results of a function of values, lowered in place."""
    return b.inline(build.trace(function, types), *operands)


def nothing(b: Any) -> Any:
    """Results for an empty operand, which LAPACK does not take; all are empty."""
    made = tuple([b.splat(0, t) for t in b.out])
    return made if len(made) > 1 else made[0]
