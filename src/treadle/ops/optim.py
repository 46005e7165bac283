"""Steps of optimisers as single nodes, so that an engine can map each to one pass over memory.

Parameters, gradients and state in, new parameters and state out. The learning rate and the step count are 0-d tensors:
a new value needs no new program. 16-bit floats are computed in float32 and rounded once. Gradients (for learning to
learn) follow from the expansions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, float64, promote
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f32, f64, i32, i64
from treadle.ops._declare import Sample, Samples, op
from treadle.ops.casting import cast
from treadle.ops.functions import expm1, sqrt
from treadle.ops.reduce import broadcast_to, wide_dtype


def _check(param: TensorType, grad: TensorType, state: tuple[TensorType, ...], lr: TensorType) -> None:
    if not all(t.dtype.is_float for t in (param, grad, *state)):
        raise UserError("E0106", f"needs float tensors, got {param}, {grad}", fix="cast them: x.astype(td.float32)")
    if any(t.shape != param.shape for t in (grad, *state)):
        text = ", ".join(map(str, (param, grad, *state)))
        raise UserError("E0143", f"the shapes differ: {text}", fix="give gradient and state the shape of the parameter")
    if lr.rank or not lr.dtype.is_float:
        raise UserError("E0144", f"the learning rate is {lr}", fix="give it as a 0-d float tensor")


def _work(*values: Value) -> DType:
    """The element type to compute in."""
    return wide_dtype(promote(*[v.dtype for v in values]))


def _to(value: Value, dtype: DType) -> Value:
    made: Value = value if value.dtype is dtype else cast(value, dtype=dtype)
    return made


def _spread(number: Value, like: Value) -> Value:
    """A 0-d value in every element of a tensor like `like`."""
    made: Value = broadcast_to(_to(number, like.dtype), shape=like.shape)
    return made


@op(group="update", axes="..., ..., ..., -> ..., ...", onnx="expand")
def sgd_update(
    param: Value, grad: Value, buffer: Value, lr: Value, *, momentum: float, weight_decay: float, nesterov: bool
) -> Any:
    """One step of stochastic gradient descent: (new param, new buffer). lr: float[], the others float[...].

    g = grad + weight_decay * param; buffer = momentum * buffer + g; param -= lr * (buffer, or g + momentum * buffer if
    nesterov). A buffer of zeros starts; without momentum it is passed through (plain arithmetic then needs none).
    Source: Sutskever et al. 2013, in the form of torch.optim.SGD. Raises E0106, E0143, E0144.
    """


@sgd_update.type
def _(
    param: TensorType,
    grad: TensorType,
    buffer: TensorType,
    lr: TensorType,
    *,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> tuple[TensorType, TensorType]:
    _check(param, grad, (buffer,), lr)
    return param, buffer


@sgd_update.expand
def _(
    param: Value, grad: Value, buffer: Value, lr: Value, *, momentum: float, weight_decay: float, nesterov: bool
) -> tuple[Value, Value]:
    work = _work(param, grad, buffer) if momentum else _work(param, grad)
    p, g = _to(param, work), _to(grad, work)
    if weight_decay:
        g = g + p * weight_decay
    step, kept = g, buffer
    if momentum:
        speed = _to(buffer, work) * momentum + g
        step, kept = g + speed * momentum if nesterov else speed, _to(speed, buffer.dtype)
    return _to(p - _spread(lr, p) * step, param.dtype), kept


@sgd_update.samples
def _(s: Samples) -> Iterator[Sample]:
    for momentum, decay, nesterov in ((0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.01, True)):
        attrs: dict[str, Any] = {"momentum": momentum, "weight_decay": decay, "nesterov": nesterov}
        yield s(f64[2, 3], f64[2, 3], f64[2, 3], np.float64(0.1), **attrs)
    attrs = {"momentum": 0.9, "weight_decay": 0.01, "nesterov": False}
    yield s(f32[3], f32[3], f32[3], np.float32(0.1), **attrs)
    yield s(bf16[3], bf16[3], f32[3], np.float32(0.1), **attrs)
    yield s(f64[()], f64[()], f64[()], np.float32(0.1), **attrs)
    yield s(f32[0, 2], f32[0, 2], f32[0, 2], np.float32(0.1), **attrs)
    yield s(f32[2], f32[3], f32[2], np.float32(0.1), bad="E0143", **attrs)
    yield s(i32[2], i32[2], i32[2], np.float32(0.1), bad="E0106", **attrs)
    yield s(f32[2], f32[2], f32[2], f32[2], bad="E0144", **attrs)


@op(group="update", axes="..., ..., ..., ..., , -> ..., ..., ...", onnx="expand")
def adam_update(
    param: Value,
    grad: Value,
    m: Value,
    v: Value,
    step: Value,
    lr: Value,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> Any:
    """One step of Adam, or of AdamW if `decoupled`: (new param, new m, new v).

    step: integer or float[], 1 at first; lr: float[]; the others float[...] of one shape.
    Adam adds weight_decay * param to the gradient, AdamW multiplies param by 1 - lr * weight_decay. Then
    m = m + (g - m) * (1 - beta1); v = beta2 * v + (1 - beta2) * g * g; c = 1 - beta ** step for each;
    param -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps).
    Source: Kingma and Ba 2015, Loshchilov and Hutter 2019, in the form of torch.optim.Adam and AdamW.
    Raises E0106, E0143, E0144 for a learning rate or step that is no 0-d number.
    """


@adam_update.type
def _(
    param: TensorType,
    grad: TensorType,
    m: TensorType,
    v: TensorType,
    step: TensorType,
    lr: TensorType,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> tuple[TensorType, ...]:
    _check(param, grad, (m, v), lr)
    if step.rank or step.dtype.kind not in "iuf":
        raise UserError("E0144", f"the step is {step}", fix="give it as a 0-d number tensor")
    return param, m, v


@adam_update.expand
def _(
    param: Value,
    grad: Value,
    m: Value,
    v: Value,
    step: Value,
    lr: Value,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> tuple[Value, ...]:
    work = _work(param, grad, m, v)
    p, g, rate, count = _to(param, work), _to(grad, work), _to(lr, work), _to(step, work)
    if weight_decay and decoupled:
        p = p * _spread(1 - rate * weight_decay, p)
    elif weight_decay:
        g = g + p * weight_decay
    first, second = _to(m, work), _to(v, work)
    first = first + (g - first) * (1 - beta1)
    second = second * beta2 + g * g * (1 - beta2)
    size, scale = rate / _correction(count, beta1), 1 / sqrt(_correction(count, beta2))
    change = first * _spread(size, p) / (sqrt(second) * _spread(scale, p) + eps)
    return _to(p - change, param.dtype), _to(first, m.dtype), _to(second, v.dtype)


def _correction(step: Value, beta: float) -> Value:
    """1 - beta ** step without the loss of digits that subtraction brings at the first steps."""
    if beta == 0:
        return step * 0 + 1
    made: Value = -expm1(step * math.log(beta))
    return made


@adam_update.samples
def _(s: Samples) -> Iterator[Sample]:
    attrs: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "decoupled": False}

    def of(t: TensorType, state: TensorType, step: Any, **more: Any) -> Sample:
        big = s.uniform(state, 0.2, 1.5)
        lr = np.asarray(0.1, np.float64 if t.dtype is float64 else np.float32)
        return s(t, t, state, big, step, lr, **{**attrs, **more})

    yield of(f64[2, 3], f64[2, 3], np.int32(3))
    yield of(f64[3], f64[3], np.float64(2), weight_decay=0.1)
    yield of(f64[3], f64[3], np.int64(1), weight_decay=0.1, decoupled=True, eps=0.1)
    yield of(f64[()], f64[()], np.int32(1), beta1=0.0)
    yield of(f32[3], f32[3], np.int32(5))
    yield of(bf16[3], f32[3], np.float32(5), decoupled=True, weight_decay=0.01)
    yield of(f32[0, 2], f32[0, 2], np.int32(1))
    yield s(f32[2], f32[2], f32[2], f32[3], i32[()], np.float32(0.1), bad="E0143", **attrs)
    yield s(i32[2], f32[2], f32[2], f32[2], i32[()], np.float32(0.1), bad="E0106", **attrs)
    yield s(f32[2], f32[2], f32[2], f32[2], i32[2], np.float32(0.1), bad="E0144", **attrs)
    yield s(f32[2], f32[2], f32[2], f32[2], i64[()], i32[()], bad="E0144", **attrs)
