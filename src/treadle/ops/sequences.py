"""Recurrent layers over time, one node for all steps: `lstm` with gates i, f, g, o and `gru` with gates r, z, n.

x: float[T, N, G] is what a step gets from its input, made by one product for all steps: x w_ih^T + b. The rest of a
step needs the one before: w, float[G, H], is multiplied by h, float[N, H]. reverse: from the last step to the first.
16-bit floats: gates and c are computed in float32, h is rounded at each step. Sources: Hochreiter & Schmidhuber 1997,
doi:10.1162/neco.1997.9.8.1735; Cho et al. 2014, arXiv:1406.1078, in PyTorch's form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._regions import region, types_of
from treadle.ops._types import same_float
from treadle.ops.casting import cast
from treadle.ops.functions import sigmoid, tanh
from treadle.ops.loops import scan
from treadle.ops.products import contract
from treadle.ops.reduce import reduce_sum, wide, wide_array, widen
from treadle.ops.shape import concatenate, reshape, slice_


@op(group="recurrent", amp="narrow", axes="!t n !g, n !h, n !h, !g !h -> !t n !h, n !h", onnx="expand")
def lstm(x: Value, h: Value, c: Value, w: Value, *, reverse: bool) -> Any:
    """h after each step, float[T, N, H], and the last c, float[N, H]: c' = f * c + i * g, h' = o * tanh(c').

    i, f, g, o: parts of x + h w^T, sigmoids, g a tanh. x: float[T, N, 4H], h, c: float[N, H], w: float[4H, H].
    Raises E0106 for integers, E0163 for shapes that do not fit.
    """


@op(
    group="recurrent",
    amp="narrow",
    axes="!t n !g, n !h, n !h, !g !h -> !t n !h, n !h, !t n !h, !t n !g",
    onnx="expand",
)
def lstm_fwd(x: Value, h: Value, c: Value, w: Value, *, reverse: bool) -> Any:
    """`lstm` that also gives c, float[T, N, H], and the gates, float[T, N, 4H], of each step. Raises as `lstm`."""


@op(
    group="recurrent",
    amp="narrow",
    axes="n !h, !g !h, !t n !h, !t n !g, !t n !h, n !h -> !t n !g, n !h, n !h",
    onnx="expand",
)
def lstm_grad(c: Value, w: Value, cs: Value, gates: Value, dh: Value, dc: Value, *, reverse: bool) -> Any:
    """The gradients of `lstm` for x, h and c from what `lstm_fwd` gives and the results' gradients.

    dh: float[T, N, H], of h after each step; dc: float[N, H], of the last c. Raises as `lstm`.
    """


@op(group="recurrent", amp="narrow", axes="!t n !g, n !h, !g !h, !g -> !t n !h", onnx="expand")
def gru(x: Value, h: Value, w: Value, b: Value, *, reverse: bool) -> Any:
    """h after each step, float[T, N, H]: h' = (1 - z) * n + z * h with n = tanh(x_n + r * h_n).

    r, z: sigmoids of x_r + h_r and x_z + h_z; h_*: parts of h w^T + b. x: float[T, N, 3H], h: float[N, H],
    w: float[3H, H], b: float[3H]. Raises E0106 for integers, E0163 for shapes that do not fit.
    """


@op(group="recurrent", amp="narrow", axes="!t n !g, n !h, !g !h, !g -> !t n !h, !t n !f", onnx="expand")
def gru_fwd(x: Value, h: Value, w: Value, b: Value, *, reverse: bool) -> Any:
    """`gru` that also gives r, z, n and h_n of each step, float[T, N, 4H]. Raises as `gru`."""


@op(
    group="recurrent",
    amp="narrow",
    axes="n !h, !g !h, !t n !h, !t n !f, !t n !h -> !t n !g, !t n !g, n !h",
    onnx="expand",
)
def gru_grad(h: Value, w: Value, hs: Value, gates: Value, dh: Value, *, reverse: bool) -> Any:
    """The gradients of `gru` for x, for h w^T + b, both float[T, N, 3H], and for h. Raises as `gru`."""


def _fit(gates: int, *operands: TensorType, wanted: str) -> dict[str, int]:
    """The sizes; E0163 unless the operands have these shapes, in letters: T, N, H, G = gates * H, F = 4 * H."""
    same_float(*[t.with_shape(()) for t in operands])
    sizes: dict[str, int] = {}
    good = True
    for t, names in zip(operands, wanted.split(), strict=True):
        good = good and t.rank == len(names) and all(sizes.setdefault(a, n) == n for a, n in zip(names, t.shape))
    if not good or sizes["G"] != gates * sizes["H"] or sizes.setdefault("F", 4 * sizes["H"]) != 4 * sizes["H"]:
        why = f"operands {', '.join(map(str, operands))}"
        raise UserError("E0163", why, fix=f"shape them {wanted.replace(' ', ', ')} with G = {gates} * H")
    return sizes


def _typed(like: TensorType, sizes: dict[str, int], results: str) -> tuple[TensorType, ...]:
    return tuple([like.with_shape(tuple([sizes[a] for a in names])) for names in results.split()])


_LSTM, _LSTM_GRAD, _GRU, _GRU_GRAD = "TNG NH NH GH", "NH GH TNH TNG TNH NH", "TNG NH GH G", "NH GH TNH TNF TNH"


@lstm.type
def _(*types: TensorType, reverse: bool) -> Any:
    return _typed(types[0], _fit(4, *types, wanted=_LSTM), "TNH NH")


@lstm_fwd.type
def _(*types: TensorType, reverse: bool) -> Any:
    return _typed(types[0], _fit(4, *types, wanted=_LSTM), "TNH NH TNH TNG")


@lstm_grad.type
def _(*types: TensorType, reverse: bool) -> Any:
    return _typed(types[0], _fit(4, *types, wanted=_LSTM_GRAD), "TNG NH NH")


@gru.type
def _(*types: TensorType, reverse: bool) -> Any:
    return _typed(types[0], _fit(3, *types, wanted=_GRU), "TNH")[0]


@gru_fwd.type
def _(*types: TensorType, reverse: bool) -> Any:
    return _typed(types[0], _fit(3, *types, wanted=_GRU), "TNH TNF")


@gru_grad.type
def _(*types: TensorType, reverse: bool) -> Any:
    return _typed(types[0], _fit(3, *types, wanted=_GRU_GRAD), "TNG TNG NH")


# The meaning, in NumPy.


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _order(length: int, reverse: bool) -> Any:
    return reversed(range(length)) if reverse else range(length)


def _lstm_reference(arrays: tuple[Any, ...], reverse: bool) -> tuple[Any, ...]:
    x, h, c, w = arrays
    steps, hidden = x.shape[0], h.shape[1]
    c = wide_array(c)
    hs, cs = (np.zeros((*x.shape[:2], hidden), x.dtype) for _ in range(2))
    gates = np.zeros_like(x)
    for t in _order(steps, reverse):
        i, f, g, o = np.split(wide_array(x[t]) + np.matmul(wide_array(h), wide_array(w).T), 4, axis=1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c = f * c + i * g
        h = (o * np.tanh(c)).astype(x.dtype)
        hs[t], cs[t], gates[t] = h, c.astype(x.dtype), np.concatenate([i, f, g, o], axis=1).astype(x.dtype)
    return hs, c.astype(x.dtype), cs, gates


@lstm.ref
def _(*arrays: Any, reverse: bool) -> Any:
    return _lstm_reference(arrays, reverse)[:2]


@lstm_fwd.ref
def _(*arrays: Any, reverse: bool) -> Any:
    return _lstm_reference(arrays, reverse)


def _gru_reference(arrays: tuple[Any, ...], reverse: bool) -> tuple[Any, Any]:
    x, h, w, b = arrays
    steps, hidden = x.shape[0], h.shape[1]
    hs, gates = (np.zeros((*x.shape[:2], n * hidden), x.dtype) for n in (1, 4))
    for t in _order(steps, reverse):
        xr, xz, xn = np.split(wide_array(x[t]), 3, axis=1)
        hr, hz, hn = np.split(np.matmul(wide_array(h), wide_array(w).T) + wide_array(b), 3, axis=1)
        r, z = _sigmoid(xr + hr), _sigmoid(xz + hz)
        n = np.tanh(xn + r * hn)
        h = ((1 - z) * n + z * wide_array(h)).astype(x.dtype)
        hs[t], gates[t] = h, np.concatenate([r, z, n, hn], axis=1).astype(x.dtype)
    return hs, gates


@gru.ref
def _(*arrays: Any, reverse: bool) -> Any:
    return _gru_reference(arrays, reverse)[0]


@gru_fwd.ref
def _(*arrays: Any, reverse: bool) -> Any:
    return _gru_reference(arrays, reverse)


# The meaning, in ops: a scan.


def _pieces(x: Value, count: int) -> list[Value]:
    """x [N, count * H] cut into its gates, in the type that is computed with."""
    n, width = x.shape[0], x.shape[1] // count
    x = wide(x)
    return [slice_(x, starts=(0, i * width), limits=(n, (i + 1) * width), strides=(1, 1)) for i in range(count)]


def _product(x: Value, w: Value, spec: str) -> Value:
    made: Value = contract(wide(x), wide(w), spec=spec)
    return made


def _before(first: Value, rest: Value, reverse: bool) -> Value:
    """A state before each step, from the first one and those after each step."""
    t, shape = rest.shape[0], rest.shape
    first = reshape(first, shape=(1, *shape[1:]))
    low, high = (1, t) if reverse else (0, t - 1)
    others = slice_(rest, starts=(low, 0, 0), limits=(high, *shape[1:]), strides=(1, 1, 1))
    made: Value = concatenate(others, first, axis=0) if reverse else concatenate(first, others, axis=0)
    return made


def _scanned(step: Any, values: list[Value], counts: tuple[int, int], stacked: list[Value], reverse: bool) -> Any:
    """scan of a Python function. counts: constants and carried ones among `values`."""
    types = (*types_of(values), *[x.type.with_shape(x.shape[1:]) for x in stacked])
    shape = {"n_consts": counts[0], "n_carry": counts[1], "length": stacked[0].shape[0], "reverse": reverse}
    return scan(*values, *stacked, body=region(step, types, "step"), **shape)


@lstm.expand
def _(*operands: Value, reverse: bool) -> Any:
    return lstm_fwd(*operands, reverse=reverse)[:2]


@lstm_fwd.expand
def _(x: Value, h: Value, c: Value, w: Value, *, reverse: bool) -> Any:
    kind = x.dtype

    def step(w: Value, h: Value, c: Value, x: Value) -> Any:
        i, f, g, o = _pieces(wide(x) + _product(h, w, "nh,gh->ng"), 4)
        i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        c = f * c + i * g
        h = cast(o * tanh(c), dtype=kind)
        return h, c, h, cast(c, dtype=kind), cast(concatenate(i, f, g, o, axis=1), dtype=kind)

    _, last, hs, cs, gates = _scanned(step, [w, h, wide(c)], (1, 2), [x], reverse)
    return hs, cast(last, dtype=kind), cs, gates


@lstm.saved
def _(*operands: Value, reverse: bool) -> Any:
    hs, last, cs, gates = lstm_fwd(*operands, reverse=reverse)
    return (hs, last), (cs, gates)


@lstm.grad
def _(*args: Any, reverse: bool) -> Any:
    (_x, h, c, w), (hs, _), (cs, gates), (dh, dc) = args[:4], args[4:6], args[6], args[7:]
    dx, dh0, dc0 = lstm_grad(c, w, cs, gates, dh, dc, reverse=reverse)
    return dx, dh0, dc0, _weights(dx, h, hs, reverse)


def _weights(dx: Value, h: Value, hs: Value, reverse: bool) -> Value:
    """The gradient of w."""
    before = hs if hs.shape[0] == 0 else _before(h, hs, reverse)
    made: Value = contract(dx, before, spec="tng,tnh->gh")
    return made


@lstm_grad.expand
def _(c: Value, w: Value, cs: Value, gates: Value, dh: Value, dc: Value, *, reverse: bool) -> Any:
    kind = c.dtype
    if cs.shape[0] == 0:
        return gates, c * 0.0, dc

    def step(w: Value, more: Value, dc: Value, c: Value, before: Value, gates: Value, dh: Value) -> Any:
        i, f, g, o = _pieces(gates, 4)
        t, d = tanh(wide(c)), wide(dh) + more
        inner = dc + d * o * (1.0 - t * t)
        di, df, dg, do = inner * g, inner * wide(before), inner * i, d * t
        dx = concatenate(di * i * (1.0 - i), df * f * (1.0 - f), dg * (1.0 - g * g), do * o * (1.0 - o), axis=1)
        dx = cast(dx, dtype=kind)
        return _product(dx, w, "ng,gh->nh"), inner * f, dx

    values = [w, wide(c) * 0.0, wide(dc)]
    dh0, dc0, dx = _scanned(step, values, (1, 2), [cs, _before(c, cs, reverse), gates, dh], not reverse)
    return dx, cast(dh0, dtype=kind), cast(dc0, dtype=kind)


@gru.expand
def _(*operands: Value, reverse: bool) -> Any:
    return gru_fwd(*operands, reverse=reverse)[0]


@gru_fwd.expand
def _(x: Value, h: Value, w: Value, b: Value, *, reverse: bool) -> Any:
    kind = x.dtype

    def step(w: Value, b: Value, h: Value, x: Value) -> Any:
        made = _product(h, w, "nh,gh->ng")
        (xr, xz, xn), (hr, hz, hn) = _pieces(x, 3), _pieces(made + widen(wide(b), made, (0,)), 3)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = tanh(xn + r * hn)
        h = cast((1.0 - z) * n + z * wide(h), dtype=kind)
        return h, h, cast(concatenate(r, z, n, hn, axis=1), dtype=kind)

    return _scanned(step, [w, b, h], (2, 1), [x], reverse)[1:]


@gru.saved
def _(*operands: Value, reverse: bool) -> Any:
    hs, gates = gru_fwd(*operands, reverse=reverse)
    return (hs,), (gates,)


@gru.grad
def _(*args: Any, reverse: bool) -> Any:
    (_x, h, w, _b), hs, (gates,), dh = args[:4], args[4], args[5], args[6]
    dx, inner, dh0 = gru_grad(h, w, hs, gates, dh, reverse=reverse)
    return dx, dh0, _weights(inner, h, hs, reverse), reduce_sum(inner, axes=(0, 1))


@gru_grad.expand
def _(h: Value, w: Value, hs: Value, gates: Value, dh: Value, *, reverse: bool) -> Any:
    kind = h.dtype
    if hs.shape[0] == 0:
        nothing = _fit_width(gates, w.shape[0])
        return nothing, nothing, h * 0.0

    def step(w: Value, more: Value, before: Value, gates: Value, dh: Value) -> Any:
        r, z, n, hn = _pieces(gates, 4)
        d = wide(dh) + more
        dn = d * (1.0 - z) * (1.0 - n * n)
        dr, dz = dn * hn * r * (1.0 - r), d * (wide(before) - n) * z * (1.0 - z)
        inner = cast(concatenate(dr, dz, dn * r, axis=1), dtype=kind)
        dx = cast(concatenate(dr, dz, dn, axis=1), dtype=kind)
        return d * z + _product(inner, w, "ng,gh->nh"), dx, inner

    values = [w, wide(h) * 0.0]
    dh0, dx, inner = _scanned(step, values, (1, 1), [_before(h, hs, reverse), gates, dh], not reverse)
    return dx, inner, cast(dh0, dtype=kind)


def _fit_width(x: Value, width: int) -> Value:
    """No steps [0, N, .] of another width."""
    made: Value = slice_(x, starts=(0, 0, 0), limits=(0, x.shape[1], width), strides=(1, 1, 1))
    return made


_SIZES = ((3, 2, 2), (1, 1, 1), (0, 2, 2), (2, 0, 2))  # T, N, H


def _sample_types(make: Any, wanted: str, gates: int, sizes: tuple[int, int, int]) -> list[TensorType]:
    t, n, h = sizes
    named = {"T": t, "N": n, "H": h, "G": gates * h, "F": 4 * h}
    return [make[tuple([named[c] for c in names])] for names in wanted.split()]


def _sequence_samples(wanted: str, gates: int) -> Any:
    def make(s: Samples) -> Iterator[Sample]:
        for sizes in _SIZES:
            yield s(*_sample_types(f64, wanted, gates, sizes), reverse=False)
        yield s(*_sample_types(f64, wanted, gates, (3, 2, 2)), reverse=True)
        yield s(*_sample_types(f32, wanted, gates, (3, 2, 2)), reverse=False)
        yield s(*_sample_types(bf16, wanted, gates, (2, 2, 2)), reverse=True, gradient=False)
        yield s(*_sample_types(f64, wanted, gates - 1, (3, 2, 2)), reverse=False, bad="E0163")
        yield s(*_sample_types(i32, wanted, gates, (3, 2, 2)), reverse=False, bad="E0106")

    return make


lstm.samples(_sequence_samples(_LSTM, 4))
lstm_fwd.samples(_sequence_samples(_LSTM, 4))
lstm_grad.samples(_sequence_samples(_LSTM_GRAD, 4))
gru.samples(_sequence_samples(_GRU, 3))
gru_fwd.samples(_sequence_samples(_GRU, 3))
gru_grad.samples(_sequence_samples(_GRU_GRAD, 3))
