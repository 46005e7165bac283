"""Activation functions: single nodes, each with its expansion; GELU and SiLU have their derivative as one node too.

All take floats only (E0106). 16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bfloat16
from treadle.ir.node import Value
from treadle.ir.types import bf16, f16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import floats, in_float32, same_float, widened
from treadle.ops.compare import greater, logical_and, select
from treadle.ops.elementwise import abs, largest, maximum, minimum, smallest
from treadle.ops.functions import erf, erf_of, exp, expm1, log1p, sigmoid

Grads = tuple[Value | None, ...]
UNARY = "... -> ..."
ROOT_HALF = math.sqrt(0.5)
NORMAL = 1 / math.sqrt(2 * math.pi)  # the density of the normal distribution at 0
TANH_SCALE, TANH_CUBE = math.sqrt(2 / math.pi), 0.044715
POWER = 2 * TANH_SCALE / math.log(2)  # 1 + tanh(u) = 2 / (1 + 2 ** -t), t = x * (POWER + POWER_CUBE * x ** 2)
POWER_CUBE = POWER * TANH_CUBE
FAR = 100.0  # from here on tanh is 1; the cube of a larger number could overflow


@op(
    type=same_float, ref=lambda x: largest(x, x.dtype.type(0)), axes=UNARY, onnx="Relu", samples=floats(1),
    host=lambda x: np.maximum(x, 0) + 0.0,  # + 0.0 turns -0.0 to 0.0
)  # fmt: skip
def relu(x: Value) -> Any:
    """max(x, 0) of each element; NaN stays; the derivative at 0 is 0."""


@relu.expand
def _(x: Value) -> Any:
    return maximum(x, 0)


@relu.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (select(greater(y, 0), d, 0),)  # from y: so x need not be kept


@op(type=same_float, axes=UNARY, samples=floats(1))
def relu6(x: Value) -> Any:
    """min(max(x, 0), 6) of each element; the derivative at 0 and at 6 is 0."""


@relu6.ref
def _(x: Any) -> Any:
    return np.minimum(largest(x, x.dtype.type(0)), x.dtype.type(6))


@relu6.expand
def _(x: Value) -> Any:
    return minimum(maximum(x, 0), 6)


@relu6.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (select(logical_and(greater(y, 0), greater(6, y)), d, 0),)  # one mask, if it is kept


@relu6.onnx
def _(g: Any, x: Any) -> Any:
    dtype = g.types[0].dtype.np
    return g.node("Clip", x, g.const(np.array(0, dtype)), g.const(np.array(6, dtype)))


@op(axes=UNARY, samples=floats(1, slope=0.125))
def leaky_relu(x: Value, *, slope: float) -> Any:
    """x where x > 0, else slope * x, of each element. The derivative at 0 is `slope`."""


@leaky_relu.type
def _(x: Any, *, slope: float) -> Any:
    return same_float(x)


@leaky_relu.ref
@widened
def _(x: Any, *, slope: float) -> Any:
    return np.where(x > 0, x, x.dtype.type(slope) * x)


@leaky_relu.expand
@in_float32
def _(x: Value, *, slope: float) -> Any:
    return select(greater(x, 0), x, slope * x)


@leaky_relu.grad
def _(x: Value, y: Value, d: Value, *, slope: float) -> Grads:
    return (select(greater(x, 0), d, slope * d),)


@leaky_relu.onnx
def _(g: Any, x: Any, *, slope: float) -> Any:
    return g.node("LeakyRelu", x, alpha=slope)


@op(axes=UNARY, samples=floats(1, alpha=1.25))
def elu(x: Value, *, alpha: float) -> Any:
    """x where x > 0, else alpha * (exp(x) - 1), of each element. Source: Clevert et al. 2015, arXiv:1511.07289."""


@elu.type
def _(x: Any, *, alpha: float) -> Any:
    return same_float(x)


@elu.ref
@widened
def _(x: Any, *, alpha: float) -> Any:
    return np.where(x > 0, x, x.dtype.type(alpha) * np.expm1(smallest(x, x.dtype.type(0))))


@elu.expand
@in_float32
def _(x: Value, *, alpha: float) -> Any:
    return select(greater(x, 0), x, alpha * expm1(minimum(x, 0)))


@elu.grad
def _(x: Value, y: Value, d: Value, *, alpha: float) -> Grads:
    return (select(greater(x, 0), d, d * (alpha * exp(minimum(x, 0)))),)


@elu.onnx
def _(g: Any, x: Any, *, alpha: float) -> Any:
    return g.node("Elu", x, alpha=alpha)


@op(amp="wide", type=same_float, axes=UNARY, onnx="Softplus", samples=floats(1))
def softplus(x: Value) -> Any:
    """log(1 + exp(x)) of each element, without overflow."""


@softplus.ref
@widened
def _(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@softplus.expand
@in_float32
def _(x: Value) -> Any:
    return maximum(x, 0) + log1p(exp(-abs(x)))


@softplus.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * sigmoid(x),)


@op(amp="wide", type=same_float, axes=UNARY, samples=floats(1), expand=lambda x: -softplus(-x))
def log_sigmoid(x: Value) -> Any:
    """log(1 / (1 + exp(-x))) of each element, without overflow."""


@log_sigmoid.ref
@widened
def _(x: Any) -> Any:
    return -(np.maximum(-x, 0) + np.log1p(np.exp(-np.abs(x))))


@log_sigmoid.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * sigmoid(-x),)


@log_sigmoid.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("Neg", g.node("Softplus", g.node("Neg", x)))


@op(type=same_float, axes=UNARY, samples=floats(1))
def silu(x: Value) -> Any:
    """x * sigmoid(x) of each element, also called swish. Source: Elfwing et al. 2017, arXiv:1702.03118."""


@silu.ref
@widened
def _(x: Any) -> Any:
    return x / (1 + np.exp(-x))


@silu.expand
@in_float32
def _(x: Value) -> Any:
    return x * sigmoid(x)


@silu.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (silu_grad(x, d),)


@silu.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("Mul", x, g.node("Sigmoid", x))


@op(type=same_float, axes="..., ... -> ...", onnx="expand", samples=floats(2))
def silu_grad(x: Value, d: Value) -> Any:
    """d times the derivative of silu at x. x, d: float[...] of one type. Raises E0105, E0106."""


@silu_grad.ref
@widened
def _(x: Any, d: Any) -> Any:
    s = 1 / (1 + np.exp(-x))
    return d * s * (1 + x * (1 - s))


@silu_grad.expand
@in_float32
def _(x: Value, d: Value) -> Any:
    s = sigmoid(x)
    return d * (s * (1 + x * (1 - s)))


def both_gelus(n: int) -> Callable[[Samples], Iterator[Sample]]:
    """Samples of n floats for either formula."""

    def make(s: Samples) -> Iterator[Sample]:
        yield from floats(n, approximate=False)(s)
        for t in (f64[()], f64[2, 3], f64[0, 3], f32[2, 2], f16[3], bf16[3]):
            yield s(*[t] * n, approximate=True)
        yield s(*[i32[2]] * n, approximate=True, bad="E0106")

    return make


@op(axes=UNARY, samples=both_gelus(1))
def gelu(x: Value, *, approximate: bool) -> Any:
    """x times the chance that a standard normal number is below x, of each element.

    approximate: 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), else by the error function.
    Source: Hendrycks & Gimpel 2016, arXiv:1606.08415. Raises E0106 for integers.
    """


@gelu.type
def _(x: Any, *, approximate: bool) -> Any:
    return same_float(x)


@gelu.ref
@widened
def _(x: Any, *, approximate: bool) -> Any:
    wide = x.astype(np.float64)
    if approximate:
        return (0.5 * wide * (1 + np.tanh(TANH_SCALE * (wide + TANH_CUBE * wide**3)))).astype(x.dtype)
    return (0.5 * wide * (1 + erf_of(wide * ROOT_HALF))).astype(x.dtype)


@gelu.expand
@in_float32
def _(x: Value, *, approximate: bool) -> Any:
    if approximate:
        return x * sigmoid((2 * TANH_SCALE) * (x + TANH_CUBE * (x * x * x)))  # 1 + tanh(u) = 2 sigmoid(2 u)
    return 0.5 * x * (1 + erf(x * ROOT_HALF))


@gelu.kernel
def _(b: Any, x: Any, *, approximate: bool) -> Any:
    if not approximate:
        return (x * 0.5) * (b.erf(x * ROOT_HALF) + 1.0)
    square = x * x
    quick = b.quick_logistic(x * (square * POWER_CUBE + POWER)) if b.dtype is bfloat16 else None
    return x * (quick[0] if quick else b.sigmoid(x * (square * (2 * TANH_SCALE * TANH_CUBE) + 2 * TANH_SCALE)))


@gelu.grad
def _(x: Value, y: Value, d: Value, *, approximate: bool) -> Grads:
    return (gelu_grad(x, d, approximate=approximate),)


@gelu.onnx
def _(g: Any, x: Any, *, approximate: bool) -> Any:
    return g.node("Gelu", x, approximate="tanh" if approximate else "none")


@op(axes="..., ... -> ...", onnx="expand", samples=both_gelus(2))
def gelu_grad(x: Value, d: Value, *, approximate: bool) -> Any:
    """d times the derivative of gelu at x. x, d: float[...] of one type. Raises E0105, E0106."""


@gelu_grad.type
def _(x: Any, d: Any, *, approximate: bool) -> Any:
    return same_float(x, d)


@gelu_grad.ref
@widened
def _(x: Any, d: Any, *, approximate: bool) -> Any:
    wide = x.astype(np.float64)
    if approximate:
        t = np.tanh(TANH_SCALE * (wide + TANH_CUBE * wide**3))
        near = np.clip(wide, -FAR, FAR)
        slope = 0.5 * (1 + t) + 0.5 * near * (1 - t * t) * TANH_SCALE * (1 + 3 * TANH_CUBE * near**2)
    else:
        slope = 0.5 * (1 + erf_of(wide * ROOT_HALF)) + wide * NORMAL * np.exp(-0.5 * wide**2)
    return (d * slope).astype(x.dtype)


@gelu_grad.expand
@in_float32
def _(x: Value, d: Value, *, approximate: bool) -> Any:
    square = x * x
    if not approximate:
        return d * (0.5 * (1 + erf(x * ROOT_HALF)) + x * (NORMAL * exp(-0.5 * square)))
    s = sigmoid((2 * TANH_SCALE) * (x + TANH_CUBE * (square * x)))
    near = minimum(maximum(x, -FAR), FAR)
    inner = (2 * TANH_SCALE) * (1 + 3 * TANH_CUBE * (near * near))
    return d * (s + near * ((s - s * s) * inner))


@gelu_grad.kernel
def _(b: Any, x: Any, d: Any, *, approximate: bool) -> Any:
    if not approximate:
        square = x * x
        return d * ((b.erf(x * ROOT_HALF) + 1.0) * 0.5 + x * (b.exp(square * -0.5) * NORMAL))
    near = b.between(x, -FAR, FAR)
    square = near * near
    inner = near * (square * (6 * TANH_SCALE * TANH_CUBE) + 2 * TANH_SCALE)
    quick = b.quick_logistic(near * (square * POWER_CUBE + POWER)) if b.dtype is bfloat16 else None
    if quick:
        return d * (quick[0] + inner * quick[1])
    s = b.sigmoid(near * (square * (2 * TANH_SCALE * TANH_CUBE) + 2 * TANH_SCALE))
    return d * (s + inner * (s - s * s))


@op(type=same_float, axes=UNARY, samples=floats(1, tol=2e-8))
def hard_sigmoid(x: Value) -> Any:
    """min(max(x / 6 + 1/2, 0), 1) of each element."""


@hard_sigmoid.ref
@widened
def _(x: Any) -> Any:
    return np.minimum(np.maximum(x / 6 + 0.5, 0), 1)


@hard_sigmoid.expand
@in_float32
def _(x: Value) -> Any:
    return minimum(maximum(x / 6 + 0.5, 0), 1)


@hard_sigmoid.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@op(type=same_float, axes=UNARY, onnx="HardSwish", samples=floats(1, tol=2e-8))
def hard_swish(x: Value) -> Any:
    """x * min(max(x / 6 + 1/2, 0), 1) of each element. Source: Howard et al. 2019, arXiv:1905.02244."""


@hard_swish.ref
@widened
def _(x: Any) -> Any:
    return x * np.minimum(np.maximum(x / 6 + 0.5, 0), 1)


@hard_swish.expand
@in_float32
def _(x: Value) -> Any:
    return x * hard_sigmoid(x)
