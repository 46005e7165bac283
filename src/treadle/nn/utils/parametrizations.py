"""Parametrisations that come ready-made: weight norm, spectral norm, orthogonal matrices. Cells in, cells out."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend import linalg
from treadle.frontend.create import eye
from treadle.frontend.tensor import Tensor
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter
from treadle.nn.utils.parametrize import register_parametrization
from treadle.ops.elementwise import maximum


class _WeightNorm(Cell):
    def __init__(self, dim: int | None) -> None:
        self.dim = dim

    def _norm(self, v: Any) -> Any:
        axes = tuple([i for i in range(v.ndim) if self.dim is None or i != self.dim % v.ndim])
        return fn.sqrt(fn.sum(v * v, axes, keepdims=True))

    def forward(self, g: Any, v: Any) -> Any:
        return v * (g / self._norm(v))

    def right_inverse(self, weight: Any) -> Any:
        norm = self._norm(weight)
        return (norm.reshape(()) if self.dim is None else norm), weight * 1


def weight_norm(cell: Cell, name: str = "weight", dim: int | None = 0) -> Cell:
    """Split a weight into its lengths g (original0), one for each place of axis `dim`, and directions v (original1).

    The weight is v * g / |v|; dim None: one length for all. Source: Salimans & Kingma 2016, arXiv:1602.07868.
    """
    return register_parametrization(cell, name, _WeightNorm(dim))


class _SpectralNorm(Cell):
    def __init__(self, weight: Any, steps: int, eps: float, dim: int) -> None:
        if steps < 1 or not -weight.ndim <= dim < weight.ndim:
            why = f"n_power_iterations={steps}, dim={dim} for {weight.type}"
            raise UserError("E0526", why, fix="give 1 or more iterations and an axis of the weight")
        self.dim, self.eps, self.steps = dim % weight.ndim, eps, steps
        if weight.ndim > 1:
            rows, columns = self._matrix(weight).shape
            self._u = Tensor(init.normal((rows,), dtype=weight.dtype))
            self._v = Tensor(init.normal((columns,), dtype=weight.dtype))
            self._iterate(self._matrix(weight), 15)

    def _matrix(self, weight: Any) -> Any:
        return fn.moveaxis(weight, self.dim, 0).reshape((weight.shape[self.dim], -1))

    def _iterate(self, matrix: Any, steps: int) -> None:
        matrix, u, v = fn.stop_gradient(matrix), self._u, self._v
        for _ in range(steps):
            u = self._unit(matrix @ v)
            v = self._unit(fn.matrix_transpose(matrix) @ u)
        self._u.assign(u)
        self._v.assign(v)

    def _unit(self, x: Any) -> Any:
        return x / maximum(fn.sqrt(fn.sum(x * x)), self.eps)

    def forward(self, weight: Any) -> Any:
        if weight.ndim == 1:
            return self._unit(weight)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.steps)
        u, v = (fn.stop_gradient(x * 1) for x in (self._u, self._v))
        return weight / fn.sum(u * (matrix @ v))

    def right_inverse(self, value: Any) -> Any:
        return value


def spectral_norm(
    cell: Cell, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int = 0
) -> Cell:
    """Divide a weight by its largest singular value, axis `dim` against the others; a vector by its length.

    The value is estimated by power iteration, whose vectors are buffers; each use in training makes a step. Use dim=1
    for transposed convolutions. Source: Miyato et al. 2018, arXiv:1802.05957.
    """
    value = cell.__dict__.get(name)
    if not isinstance(value, Parameter):
        why = f"{type(cell).__name__} has no parameter {name!r} of its own"
        raise UserError("E0526", why, fix="name a parameter that is an attribute of the cell")
    return register_parametrization(cell, name, _SpectralNorm(value, n_power_iterations, eps, dim))


class _Orthogonal(Cell):
    def __init__(self, weight: Any, how: str) -> None:
        self.how = how
        rows, columns = weight.shape
        self.base = Tensor(np.zeros((max(rows, columns),) * 2, weight.dtype.np))

    def forward(self, x: Any) -> Any:
        wide = x.shape[0] < x.shape[1]
        lower = fn.tril(fn.matrix_transpose(x) if wide else x)
        n, k = lower.shape
        if n != k:
            lower = fn.concatenate([lower, np.zeros((n, n - k), x.dtype.np)], 1)
        skew = lower - fn.matrix_transpose(lower)
        if self.how == "matrix_exp":
            turn = linalg.matrix_exp(skew)
        else:
            one = eye(n, dtype=x.dtype)
            turn = linalg.solve(one - skew * 0.5, one + skew * 0.5)
        q = (self.base * 1 @ turn)[:, :k]
        return fn.matrix_transpose(q) if wide else q

    def right_inverse(self, value: Any) -> Any:
        """Zeros, with the orthogonal matrix next to the value as the place to turn from."""
        array = np.asarray(value, np.float64)
        tall = array.T if array.shape[0] < array.shape[1] else array
        q, r = np.linalg.qr(tall, mode="complete")
        signs = np.ones(len(tall))
        signs[: tall.shape[1]] = np.where(np.diag(r) < 0, -1, 1)
        self.base.assign((q * signs).astype(self.base.dtype.np))
        return np.zeros(array.shape, self.base.dtype.np)


def orthogonal(cell: Cell, name: str = "weight", orthogonal_map: str = "matrix_exp") -> Cell:
    """Keep a matrix orthogonal: its columns (rows, if there are fewer) stay orthonormal whatever training does.

    It is base * exp(A) ("matrix_exp") or base * (I - A/2)^-1 (I + A/2) ("cayley"), A skew-symmetric from the original,
    which begins at 0, base the orthogonal factor of the present weight. Raises E0526 for what is no real matrix or
    another map. Source: Lezcano-Casado 2019, arXiv:1909.09501.
    """
    value = cell.__dict__.get(name)
    if not isinstance(value, Parameter) or value.ndim != 2 or not value.dtype.is_float:
        found = getattr(value, "type", None)
        raise UserError("E0526", f"orthogonal of {name!r}, which is {found}", fix="name a parameter float[n, m]")
    if orthogonal_map not in ("matrix_exp", "cayley"):
        raise UserError("E0526", f"orthogonal_map={orthogonal_map!r}", fix="use 'matrix_exp' or 'cayley'")
    return register_parametrization(cell, name, _Orthogonal(value, orthogonal_map))
