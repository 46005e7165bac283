"""Products of matrices and vectors, as `mindspore.ops` has them."""

from __future__ import annotations

from typing import Any

from treadle.compat.mindspore._tensor import tag, tagged, together
from treadle.frontend import functions as fn
from treadle.frontend.lift import lift


def matmul(input: Any, other: Any) -> Any:
    """The product of matrices, vectors, or stacks of matrices."""
    return tag(fn.matmul(*together(input, other)))


bmm = mm = mv = matmul


def matmul_transposed(input: Any, other: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """The product of matrices, of which either may be taken transposed."""
    x, y = together(input, other)
    x, y = fn.swapaxes(x, -1, -2) if transpose_a else x, fn.swapaxes(y, -1, -2) if transpose_b else y
    return tag(fn.matmul(x, y))


def dense(input: Any, weight: Any, bias: Any = None) -> Any:
    """input @ weight.T + bias."""
    y = fn.matmul(input, fn.swapaxes(weight, -1, -2))
    return tag(y if bias is None else y + bias)


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta * input + alpha * (mat1 @ mat2)."""
    return tag(lift(input) * beta + fn.matmul(mat1, mat2) * alpha)


def tensor_dot(x1: Any, x2: Any, axes: Any) -> Any:
    """The sum of products over axes: their number, or (axes of x1, axes of x2)."""
    return tag(fn.tensordot(x1, x2, axes))


dot, outer = tagged(fn.dot), tagged(fn.outer)


def einsum(equation: str, *operands: Any) -> Any:
    """The sum of products that an equation such as "ij,jk->ik" names."""
    return tag(fn.einsum(equation, *operands))


def bias_add(input_x: Any, bias: Any) -> Any:
    """input_x plus one number for each channel, axis 1."""
    x = lift(input_x)
    return tag(x + fn.reshape(bias, (-1, *[1] * (x.ndim - 2))))


__all__ = [
    "addmm", "bias_add", "bmm", "dense", "dot", "einsum", "matmul", "mm", "mv", "outer", "tensor_dot",
]  # fmt: skip
