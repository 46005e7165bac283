"""Initialisers: `initializer(init, shape, dtype)` makes a tensor, filled at once from Treadle's default generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore._tensor import Tensor
from treadle.nn import init as made

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Initializer:
    """Base: a subclass makes the numbers of a shape in `array`, or fills a given array in `_initialize`."""

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        """The numbers, as a NumPy array."""
        numbers = np.zeros(shape, dtypes.of(dtype).np)
        fill = getattr(self, "_initialize", None)
        if fill is None:
            raise UserError("E0590", f"{type(self).__name__} has no array", fix="define array(self, shape, dtype)")
        fill(numbers)
        return numbers

    def __call__(self, arr: Array) -> Array:
        """Fill a NumPy array in place; returns it."""
        arr[...] = self.array(arr.shape, arr.dtype)
        return arr


class Zero(Initializer):
    """Zeros."""

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return made.constant(shape, 0.0, dtype)


class One(Initializer):
    """Ones."""

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return made.constant(shape, 1.0, dtype)


class Constant(Initializer):
    """One number, or an array that fits the shape."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return np.array(np.broadcast_to(np.asarray(self.value), shape), dtypes.of(dtype).np)


class Uniform(Initializer):
    """Even from -scale to scale."""

    def __init__(self, scale: float = 0.07) -> None:
        self.scale = scale

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return made.uniform(shape, -self.scale, self.scale, dtype)


class Normal(Initializer):
    """Normal with deviation sigma."""

    def __init__(self, sigma: float = 0.01, mean: float = 0.0) -> None:
        self.sigma, self.mean = sigma, mean

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return made.normal(shape, self.mean, self.sigma, dtype)


class TruncatedNormal(Initializer):
    """Normal with deviation sigma, cut at mean + a * sigma and mean + b * sigma."""

    def __init__(self, sigma: float = 0.01, mean: float = 0.0, a: float = -2.0, b: float = 2.0) -> None:
        self.sigma, self.mean, self.a, self.b = sigma, mean, a, b

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        low, high = self.mean + self.a * self.sigma, self.mean + self.b * self.sigma
        return made.trunc_normal(shape, self.mean, self.sigma, low, high, dtype)


class XavierUniform(Initializer):
    """Even with bound gain * sqrt(6 / (fan_in + fan_out)). Source: Glorot & Bengio 2010."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return made.xavier_uniform(shape, self.gain, dtype)


class XavierNormal(XavierUniform):
    """Normal with deviation gain * sqrt(2 / (fan_in + fan_out))."""

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return made.xavier_normal(shape, self.gain, dtype)


class HeUniform(Initializer):
    """Even with bound gain * sqrt(3 / fan). Source: He et al. 2015, arXiv:1502.01852."""

    make: Callable[..., Array] = staticmethod(made.kaiming_uniform)

    def __init__(self, negative_slope: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> None:
        self.negative_slope, self.mode, self.nonlinearity = negative_slope, mode, nonlinearity

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return type(self).make(shape, self.negative_slope, self.mode, self.nonlinearity, dtype)


class HeNormal(HeUniform):
    """Normal with deviation gain / sqrt(fan)."""

    make = staticmethod(made.kaiming_normal)


class Orthogonal(Initializer):
    """Orthonormal rows or columns, times gain."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return made.orthogonal(shape, self.gain, dtype)


class Identity(Initializer):
    """Ones on the diagonal of a matrix."""

    def array(self, shape: Shape, dtype: Any = dtypes.float32) -> Array:
        return made.eye(shape, dtype)


def _named(name: str) -> Initializer:
    """The initialiser of a name, whatever its case and underscores: "he_uniform", "HeUniform"."""
    every: dict[str, type[Initializer]] = {}
    every |= {c.__name__.lower(): c for c in (Zero, One, Uniform, Normal, TruncatedNormal, XavierUniform, XavierNormal)}
    every |= {c.__name__.lower(): c for c in (HeUniform, HeNormal, Orthogonal, Identity)}
    key = name.lower().replace("_", "")
    key = {"zeros": "zero", "ones": "one"}.get(key, key)
    if key not in every:
        raise UserError("E0590", f"there is no initialiser {name!r}", fix=f"use one of {', '.join(every)}")
    return every[key]()


def initializer(init: Any, shape: Any = None, dtype: Any = dtypes.float32) -> Any:
    """A Tensor of this shape. init: a name, a number, an Initializer, or a tensor that has the shape (E0590 else)."""
    if isinstance(shape, int):
        shape = (shape,)
    if isinstance(init, Initializer | str | bool | int | float):
        if isinstance(init, str):
            init = _named(init)
        rule = init if isinstance(init, Initializer) else Constant(init)
        if shape is None:
            raise UserError("E0590", "the shape to be initialised is missing", fix="initializer(init, shape, dtype)")
        return Tensor(rule.array(tuple(shape), dtype))
    tensor = Tensor(init, dtype)
    if shape is not None and tuple(shape) != tuple(tensor.shape):
        why = f"an initial value of shape {tuple(tensor.shape)} for {tuple(shape)}"
        raise UserError("E0590", why, fix="give it the shape of the parameter")
    return tensor


def dense_bound(fan_in: int) -> float:
    """The bound of the even distribution that biases begin with: 1 / sqrt(fan_in)."""
    return 1 / math.sqrt(max(fan_in, 1))


__all__ = [
    "Constant",
    "HeNormal",
    "HeUniform",
    "Identity",
    "Initializer",
    "Normal",
    "One",
    "Orthogonal",
    "TruncatedNormal",
    "Uniform",
    "XavierNormal",
    "XavierUniform",
    "Zero",
    "initializer",
]
