"""The vector spellings of `te.lang.cce`, on te tensors and on real ones: `vadd(x, y)`, `vmuls(x, 2.0)`, `sum(x, axis)`.

Names that end in s take a number as their second argument. Reductions take an axis or several, counted from the front
or the back, and `keepdims`.
"""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.te import _functions
from treadle.te._bridge import on_tensors
from treadle.te._functions import elementwise
from treadle.te._functions import if_then_else as vsel
from treadle.te._scalar import Scalar, apply, divided, select
from treadle.te._tensor import Tensor, compute, plain, reduce_axis

_COMPARE = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip

vadd = _functions.of("add")
vsub = _functions.of("sub")
vmul = _functions.of("mul")
vmax = _functions.of("maximum")
vmin = _functions.of("minimum")
vlog = _functions.of("log")
vexp = _functions.of("exp")
vabs = _functions.of("abs")
vrec = _functions.of("reciprocal")
vrelu = _functions.of("relu")
vsqrt = _functions.of("sqrt")
vrsqrt = _functions.of("rsqrt")
vmod = _functions.of("remainder")
floor = _functions.of("floor")
ceil = _functions.of("ceil")
round = _functions.of("round")
vand = _functions.of("logical_and")
vor = _functions.of("logical_or")
vnot = _functions.of("logical_not")
vadds, vmuls, vmaxs, vmins = vadd, vmul, vmax, vmin

sum = _functions.reduction("add", "The sum over axes.")
reduce_max = _functions.reduction("maximum", "The largest over axes.")
reduce_min = _functions.reduction("minimum", "The smallest over axes.")
reduce_prod = _functions.reduction("mul", "The product over axes.")


def vdiv(x: Any, y: Any) -> Any:
    """x / y; integers are divided as float32."""
    return elementwise(divided, x, y, name="vdiv")


def vaxpy(x: Any, y: Any, a: Any) -> Any:
    """a * x + y."""
    return elementwise(lambda p, q: apply("add", apply("mul", p, a), q), x, y, name="vaxpy")


def vmla(x: Any, y: Any, z: Any) -> Any:
    """x * y + z."""
    return elementwise(lambda p, q, r: apply("add", apply("mul", p, q), r), x, y, z, name="vmla")


def vmadd(x: Any, y: Any, z: Any) -> Any:
    """x * z + y."""
    return vmla(x, z, y)


def vmaddrelu(x: Any, y: Any, z: Any) -> Any:
    """max(x * z + y, 0)."""
    return vrelu(vmadd(x, y, z))


def vcmp(x: Any, y: Any, operation: str = "lt") -> Any:
    """The comparison lt, le, gt, ge, eq or ne of each element, bool. Raises E0103 for another word."""
    if operation not in _COMPARE:
        raise UserError("E0103", f"there is no comparison {operation!r}", fix="one of " + ", ".join(_COMPARE))
    return elementwise(lambda p, q: apply(_COMPARE[operation], p, q), x, y, name="vcmp")


def vcmpsel(x: Any, y: Any, operation: str, a: Any, b: Any) -> Any:
    """a where the comparison of x and y holds, else b. Raises E0103."""
    if operation not in _COMPARE:
        raise UserError("E0103", f"there is no comparison {operation!r}", fix="one of " + ", ".join(_COMPARE))
    return elementwise(
        lambda p, q, r, s: select(apply(_COMPARE[operation], p, q), r, s), x, y, a, b, name="vcmpsel"
    )  # fmt: skip


def cast_to(x: Any, dtype: Any) -> Any:
    """x in another element type."""
    return _functions.cast(x, dtype)


def broadcast(x: Any, shape: Any, output_dtype: Any = None) -> Any:
    """x (a tensor or a number) repeated to `shape`, as NumPy's broadcasting. Raises E0108 where it does not fit."""
    sizes = tuple([int(n) for n in shape])
    target = None if output_dtype is None else dtypes.of(output_dtype)

    def spread(t: Any) -> Tensor:
        if isinstance(t, Tensor):
            if t.ndim > len(sizes) or any(n not in (1, m) for n, m in zip(t.shape[::-1], sizes[::-1], strict=False)):
                raise UserError("E0108", f"{list(t.shape)} does not broadcast to {list(sizes)}", fix="fit the shapes")

            def element(*i: Scalar) -> Scalar:
                own = zip(t.shape, i[len(sizes) - t.ndim :], strict=True)
                value = t[tuple([0 if n == 1 else at for n, at in own])]
                return value if target is None else value.astype(target)

            made: Tensor = compute(sizes, element, "broadcast")
            return made
        number: Tensor = compute(sizes, lambda *_: _functions.constant(t, target), "broadcast")
        return number

    return on_tensors(spread, x)


def matmul(x: Any, y: Any, trans_a: bool = False, trans_b: bool = False) -> Any:
    """The product of two matrices, each taken transposed where asked for. Raises E0114 where the sizes do not fit."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        (m, k), (k2, n) = (a.shape[::-1] if trans_a else a.shape), (b.shape[::-1] if trans_b else b.shape)
        if k != k2:
            raise UserError("E0114", f"inner sizes {k} and {k2} differ", fix="make them equal")
        r = reduce_axis(k, "k")

        def element(i: Scalar, j: Scalar) -> Scalar:
            left, right = (a[r, i] if trans_a else a[i, r]), (b[j, r] if trans_b else b[r, j])
            return plain("add", apply("mul", left, right), r)

        made: Tensor = compute((m, n), element, "matmul")
        return made

    return on_tensors(product, x, y)


def concat(xs: Any, axis: int) -> Any:
    """Tensors one behind the other along an axis."""

    def joined(*given: Tensor) -> Tensor:
        at = axis % given[0].ndim
        starts = [0]
        for t in given:
            starts.append(starts[-1] + t.shape[at])
        shape = [starts[-1] if d == at else n for d, n in enumerate(given[0].shape)]

        def element(*i: Scalar) -> Scalar:
            value = given[-1][(*i[:at], i[at] - starts[-2], *i[at + 1 :])]
            for t, start, stop in reversed(list(zip(given[:-1], starts, starts[1:], strict=False))):
                value = select(i[at] < stop, t[(*i[:at], i[at] - start, *i[at + 1 :])], value)
            return value

        made: Tensor = compute(shape, element, "concat")
        return made

    return on_tensors(joined, *xs)


__all__ = [
    "broadcast", "cast_to", "ceil", "concat", "floor", "matmul", "reduce_max", "reduce_min", "reduce_prod", "round",
    "sum", "vabs", "vadd", "vadds", "vand", "vaxpy", "vcmp", "vcmpsel", "vdiv", "vexp", "vlog", "vmadd", "vmaddrelu",
    "vmax", "vmaxs", "vmin", "vmins", "vmla", "vmod", "vmul", "vmuls", "vnot", "vor", "vrec", "vrelu", "vrsqrt",
    "vsel", "vsqrt", "vsub",
]  # fmt: skip
