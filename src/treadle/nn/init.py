"""Initial values: functions of a shape that give NumPy arrays; those with a trailing underscore fill a tensor.

Numbers come from the default generator, so `td.manual_seed` makes them reproducible. They are computed on the host from
the raw bits of NumPy's Philox, a stream that NumPy promises not to change; nothing is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.create import default_generator
from treadle.frontend.tensor import Tensor

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def _bits(count: int) -> Array:
    """`count` random words of 64 bits; one draw of the default generator."""
    if tracing.current() is not None:
        raise UserError("E0561", "random parameters are made inside a compiled function", fix="make the layer outside")
    key, counter = default_generator.key.numpy(), default_generator.counter.numpy()
    default_generator.counter._set(Tensor(np.asarray(counter + np.uint32(1), np.uint32)))
    word = int(key[0]) << 32 | int(key[1])
    return np.asarray(np.random.Philox(key=np.array([word, int(counter)], np.uint64)).random_raw(count))


def _sizes(shape: Shape) -> Shape:
    """The sizes as ints. Raises E0103 for one that is negative or no whole number."""
    return tuple([arguments.count(n, "a size") for n in shape])


def _unit(shape: Shape) -> Array:
    """Even in 0..1, 1 left out; float64."""
    shape = _sizes(shape)
    return ((_bits(math.prod(shape)) >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _normal(shape: Shape) -> Array:
    """Standard normal, by Box & Muller 1958, doi:10.1214/aoms/1177706645; float64."""
    shape = _sizes(shape)
    count = math.prod(shape)
    half = (count + 1) // 2
    u = (_bits(2 * half) >> np.uint64(11)) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log1p(-u[:half])), 2 * np.pi * u[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count].reshape(shape)


def _as(array: Array, dtype: Any) -> Array:
    return array.astype(dtypes.of(dtypes.float32 if dtype is None else dtype).np)


def constant(shape: Shape, value: float, dtype: Any = None) -> Array:
    """Every element `value`."""
    return _as(np.full(_sizes(shape), value, np.float64), dtype)


def uniform(shape: Shape, low: float = 0.0, high: float = 1.0, dtype: Any = None) -> Array:
    """Even from low to high."""
    return _as(low + (high - low) * _unit(shape), dtype)


def normal(shape: Shape, mean: float = 0.0, std: float = 1.0, dtype: Any = None) -> Array:
    """Normal with this mean and standard deviation."""
    return _as(mean + std * _normal(shape), dtype)


def trunc_normal(
    shape: Shape, mean: float = 0.0, std: float = 1.0, low: float = -2.0, high: float = 2.0, dtype: Any = None
) -> Array:
    """Normal, drawn again where it falls outside low..high. Raises E0562 when hardly anything falls inside."""
    a, b = (low - mean) / std, (high - mean) / std
    if 0.5 * (math.erf(b / math.sqrt(2)) - math.erf(a / math.sqrt(2))) < 0.01:
        raise UserError("E0562", f"{low}..{high} holds under 1 % of normal({mean}, {std})", fix="give a wider range")
    z = _normal(shape).reshape(-1)
    while (outside := np.flatnonzero((z < a) | (z > b))).size:
        z[outside] = _normal((outside.size,))
    return _as(mean + std * z.reshape(shape), dtype)


def fans(shape: Shape) -> tuple[int, int]:
    """(inputs, outputs) of one element of a weight [out, in, *kernel]. Raises E0562 for fewer than two axes."""
    if len(shape) < 2:
        raise UserError("E0562", f"a weight of shape {list(shape)} has no fan", fix="give two axes or more")
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def gain(nonlinearity: str, slope: float = 0.01) -> float:
    """By what a layer before this function should scale, so that variances stay. Raises E0562 for an unknown name."""
    leaky = math.sqrt(2 / (1 + slope**2))
    gains = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "leaky_relu": leaky}
    if nonlinearity not in gains:
        raise UserError("E0562", f"nonlinearity {nonlinearity!r}", fix="use one of " + ", ".join(gains))
    found: float = gains[nonlinearity]
    return found


def xavier_uniform(shape: Shape, gain: float = 1.0, dtype: Any = None) -> Array:
    """Even in +-gain * sqrt(6 / (in + out)). Source: Glorot & Bengio 2010."""
    bound = gain * math.sqrt(6 / max(sum(fans(shape)), 1))
    return uniform(shape, -bound, bound, dtype)


def xavier_normal(shape: Shape, gain: float = 1.0, dtype: Any = None) -> Array:
    """Normal with deviation gain * sqrt(2 / (in + out)). Source: Glorot & Bengio 2010."""
    return normal(shape, 0.0, gain * math.sqrt(2 / max(sum(fans(shape)), 1)), dtype)


def _kaiming_std(shape: Shape, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise UserError("E0562", f"mode {mode!r}", fix="use 'fan_in' or 'fan_out'")
    fan = fans(shape)[mode == "fan_out"]
    return gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform(
    shape: Shape, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", dtype: Any = None
) -> Array:
    """Even in +-gain * sqrt(3 / fan). Source: He et al. 2015, arXiv:1502.01852."""
    bound = math.sqrt(3) * _kaiming_std(shape, a, mode, nonlinearity)
    return uniform(shape, -bound, bound, dtype)


def kaiming_normal(
    shape: Shape, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", dtype: Any = None
) -> Array:
    """Normal with deviation gain / sqrt(fan). Source: He et al. 2015, arXiv:1502.01852."""
    return normal(shape, 0.0, _kaiming_std(shape, a, mode, nonlinearity), dtype)


def orthogonal(shape: Shape, gain: float = 1.0, dtype: Any = None) -> Array:
    """A random matrix (axes after the first taken together) with orthonormal rows or columns, times gain.

    Source: Saxe et al. 2013, arXiv:1312.6120.
    """
    fans(shape)
    rows, columns = shape[0], math.prod(shape[1:])
    q, r = np.linalg.qr(_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return _as(gain * (q if rows >= columns else q.T).reshape(shape), dtype)


def _filled(tensor: Tensor, make: Callable[..., Array], *how: Any, **words: str) -> Tensor:
    """The tensor, filled with make(shape, *how, dtype). Raises E0562 for what is no tensor and for wrong numbers."""
    if not isinstance(tensor, Tensor):
        raise UserError("E0562", f"{arguments.brief(tensor)} cannot be filled", fix="pass a Parameter")
    if wrong := [h for h in how if not arguments.is_real(h)]:
        raise UserError("E0562", f"{make.__name__} with {wrong[0]!r}", fix="give numbers")
    return tensor.assign(make(tensor.shape, *how, **words, dtype=tensor.dtype))


def constant_(tensor: Tensor, value: float) -> Tensor:
    """Fill with `value`."""
    return _filled(tensor, constant, value)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill as `uniform`."""
    return _filled(tensor, uniform, a, b)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill as `normal`."""
    return _filled(tensor, normal, mean, std)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Fill as `trunc_normal`."""
    return _filled(tensor, trunc_normal, mean, std, a, b)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill as `xavier_uniform`."""
    return _filled(tensor, xavier_uniform, gain)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill as `xavier_normal`."""
    return _filled(tensor, xavier_normal, gain)


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fill as `kaiming_uniform`."""
    return _filled(tensor, kaiming_uniform, a, mode=mode, nonlinearity=nonlinearity)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fill as `kaiming_normal`."""
    return _filled(tensor, kaiming_normal, a, mode=mode, nonlinearity=nonlinearity)


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill as `orthogonal`."""
    return _filled(tensor, orthogonal, gain)


def eye(shape: Shape, dtype: Any = None) -> Array:
    """A matrix with ones on its diagonal. Raises E0562 for another number of axes than two."""
    if len(shape) != 2:
        raise UserError("E0562", f"eye of shape {list(shape)}", fix="give two sizes")
    return _as(np.eye(*shape), dtype)


def dirac(shape: Shape, groups: int = 1, dtype: Any = None) -> Array:
    """A convolution's weight [out, in, *kernel] that passes on channels: 1 in the middle where out and in are equal.

    groups: each group of outputs for itself. Raises E0562 for fewer than three or more than five axes, or groups that
    do not divide the outputs.
    """
    if not 3 <= len(shape) <= 5 or groups < 1 or shape[0] % groups:
        raise UserError("E0562", f"dirac of shape {list(shape)} in {groups} groups", fix="give [out, in, *kernel]")
    made = np.zeros(shape)
    each = shape[0] // groups
    middle = tuple([n // 2 for n in shape[2:]])
    for group in range(groups):
        for i in range(min(each, shape[1])):
            made[(group * each + i, i, *middle)] = 1
    return _as(made, dtype)


def sparse(shape: Shape, sparsity: float, std: float = 0.01, dtype: Any = None) -> Array:
    """Normal numbers, of which a share `sparsity` of each column, rounded up, is zero. Raises E0562 for no matrix.

    Source: Martens 2010 (Hessian-free).
    """
    if len(shape) != 2 or not 0 <= sparsity <= 1:
        raise UserError("E0562", f"sparse of shape {list(shape)}, sparsity {sparsity}", fix="give two sizes and 0 to 1")
    made = std * _normal(shape)
    order = np.argsort(_unit(shape), 0)
    made[order < math.ceil(sparsity * shape[0])] = 0
    return _as(made, dtype)


calculate_gain = gain  # PyTorch's name


def eye_(tensor: Tensor) -> Tensor:
    """Fill as `eye`."""
    return _filled(tensor, eye)


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill as `dirac`."""
    return _filled(tensor, dirac, groups)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Fill as `sparse`."""
    return _filled(tensor, sparse, sparsity, std)
