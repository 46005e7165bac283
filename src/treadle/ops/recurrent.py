"""Recurrent cells, one step each: `lstm_cell` with gates in the order i, f, g, o, and `gru_cell` with r, z, n.

x: float[N, I], h and c: float[N, H]; weights float[gates * H, I or H], biases float[gates * H]. 16-bit floats: gates
and states are computed in float32 and rounded at the end. Sources: Hochreiter & Schmidhuber 1997,
doi:10.1162/neco.1997.9.8.1735; Cho et al. 2014, arXiv:1406.1078. The order of the gates is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import same_float
from treadle.ops.casting import cast
from treadle.ops.functions import sigmoid, tanh
from treadle.ops.products import contract
from treadle.ops.reduce import reduce_sum, wide, wide_array, widen
from treadle.ops.shape import concatenate, slice_


@op(group="recurrent", amp="narrow", axes="n !i, n !h, n !h, !g !i, !g !h, !g -> n !h, n !h", onnx="expand")
def lstm_cell(x: Value, h: Value, c: Value, w_ih: Value, w_hh: Value, b: Value) -> Any:
    """The next (h, c): c' = f * c + i * g and h' = o * tanh(c'), gates i, f, g, o of x w_ih^T + h w_hh^T + b.

    x: float[N, I], h, c: float[N, H], w_ih: float[4H, I], w_hh: float[4H, H], b: float[4H]. i, f, o are sigmoids, g a
    tanh. Raises E0106 for integers, E0163 for shapes that do not fit.
    """


@op(group="recurrent", amp="narrow", axes="n !i, n !h, n !h, !g !i, !g !h, !g -> n !h, n !h, n !g", onnx="expand")
def lstm_cell_fwd(x: Value, h: Value, c: Value, w_ih: Value, w_hh: Value, b: Value) -> Any:
    """`lstm_cell` that also gives the gates, float[N, 4H], for the gradient. Raises as `lstm_cell`."""


@op(
    group="recurrent",
    amp="narrow",
    axes="n !i, n !h, n !h, !g !i, !g !h, n !h, n !g, n !h, n !h -> n !i, n !h, n !h, !g !i, !g !h, !g",
    onnx="expand",
)
def lstm_cell_grad(
    x: Value, h: Value, c: Value, w_ih: Value, w_hh: Value, c_next: Value, gates: Value, dh: Value, dc: Value
) -> Any:
    """The gradients of `lstm_cell` for its six operands, from its second result and its gates. Raises as it."""


@op(group="recurrent", amp="narrow", axes="n !i, n !h, !g !i, !g !h, !g, !g -> n !h", onnx="expand")
def gru_cell(x: Value, h: Value, w_ih: Value, w_hh: Value, b_ih: Value, b_hh: Value) -> Any:
    """The next h = (1 - z) * n + z * h with n = tanh(x_n + r * h_n), r and z sigmoids of x_r + h_r and x_z + h_z.

    x_*: parts of x w_ih^T + b_ih, h_*: of h w_hh^T + b_hh. x: float[N, I], h: float[N, H], w_ih: float[3H, I],
    w_hh: float[3H, H], biases: float[3H]. Raises E0106 for integers, E0163 for shapes that do not fit.
    """


def _fit(gates: int, x: TensorType, *rest: TensorType, wanted: str) -> TensorType:
    """E0163 unless the operands have these shapes, in letters: N, I, H, G = gates * H."""
    operands = (x, *rest)
    same_float(*[t.with_shape(()) for t in operands])
    sizes: dict[str, int] = {}
    good = True
    for t, names in zip(operands, wanted.split(), strict=True):
        good = good and t.rank == len(names) and all(sizes.setdefault(a, n) == n for a, n in zip(names, t.shape))
    if not good or sizes["G"] != gates * sizes["H"]:
        why = f"operands {', '.join(map(str, operands))}"
        raise UserError("E0163", why, fix=f"shape them {wanted.replace(' ', ', ')} with G = {gates} * H")
    return rest[0]


@lstm_cell.type
def _(*types: TensorType) -> Any:
    state = _fit(4, *types, wanted="NI NH NH GI GH G")
    return state, state


@lstm_cell_fwd.type
def _(*types: TensorType) -> Any:
    state = _fit(4, *types, wanted="NI NH NH GI GH G")
    return state, state, state.with_shape((state.shape[0], 4 * state.shape[1]))


@lstm_cell_grad.type
def _(*types: TensorType) -> Any:
    _fit(4, *types, wanted="NI NH NH GI GH NH NG NH NH")
    return (*types[:5], types[3].with_shape(types[3].shape[:1]))


@gru_cell.type
def _(*types: TensorType) -> TensorType:
    return _fit(3, *types, wanted="NI NH GI GH G G")


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _lstm_reference(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b: Any) -> Any:
    wx, wh = (np.matmul(wide_array(a), wide_array(w).T) for a, w in ((x, w_ih), (h, w_hh)))
    i, f, g, o = np.split(wx + wh + wide_array(b), 4, axis=1)
    i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
    c_next = f * wide_array(c) + i * g
    results = (o * np.tanh(c_next), c_next, np.concatenate([i, f, g, o], axis=1))
    return tuple([r.astype(x.dtype) for r in results])


@lstm_cell.ref
def _(*arrays: Any) -> Any:
    return _lstm_reference(*arrays)[:2]


@lstm_cell_fwd.ref
def _(*arrays: Any) -> Any:
    return _lstm_reference(*arrays)


@gru_cell.ref
def _(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    wx, wh = (
        np.matmul(wide_array(a), wide_array(w).T) + wide_array(b) for a, w, b in ((x, w_ih, b_ih), (h, w_hh, b_hh))
    )
    (xr, xz, xn), (hr, hz, hn) = np.split(wx, 3, axis=1), np.split(wh, 3, axis=1)
    z = _sigmoid(xz + hz)
    return ((1 - z) * np.tanh(xn + _sigmoid(xr + hr) * hn) + z * wide_array(h)).astype(x.dtype)


def _linear(x: Value, w: Value) -> Value:
    """x w^T, in float32 for 16-bit floats."""
    product: Value = contract(wide(x), wide(w), spec="ni,gi->ng")
    return product


def _pieces(x: Value, count: int) -> list[Value]:
    """x [N, count * H] cut into its gates."""
    n, width = x.shape[0], x.shape[1] // count
    return [slice_(x, starts=(0, i * width), limits=(n, (i + 1) * width), strides=(1, 1)) for i in range(count)]


def _row(b: Value, like: Value) -> Value:
    """A bias for each row."""
    return widen(wide(b), like, (0,))


@lstm_cell.expand
def _(*operands: Value) -> Any:
    return lstm_cell_fwd(*operands)[:2]


@lstm_cell_fwd.expand
def _(x: Value, h: Value, c: Value, w_ih: Value, w_hh: Value, b: Value) -> Any:
    total = _linear(x, w_ih) + _linear(h, w_hh)
    i, f, g, o = _pieces(total + _row(b, total), 4)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c_next = f * wide(c) + i * g
    results = (o * tanh(c_next), c_next, concatenate(i, f, g, o, axis=1))
    return tuple([cast(r, dtype=x.dtype) for r in results])


@lstm_cell.saved
def _(*operands: Value) -> Any:
    h, c, gates = lstm_cell_fwd(*operands)
    return (h, c), (gates,)


@lstm_cell.grad
def _(*args: Any) -> Any:
    (x, h, c, w_ih, w_hh, _b), (_h_next, c_next), saved, cts = args[:6], args[6:8], args[8], args[9:]
    return lstm_cell_grad(x, h, c, w_ih, w_hh, c_next, *saved, *cts)


@lstm_cell_grad.expand
def _(x: Value, h: Value, c: Value, w_ih: Value, w_hh: Value, c_next: Value, gates: Value, dh: Value, dc: Value) -> Any:
    i, f, g, o = _pieces(wide(gates), 4)
    t, d = tanh(wide(c_next)), wide(dh)
    inner = wide(dc) + d * o * (1.0 - t * t)
    di, df, dg, do = inner * g, inner * wide(c), inner * i, d * t
    dgates = concatenate(di * i * (1.0 - i), df * f * (1.0 - f), dg * (1.0 - g * g), do * o * (1.0 - o), axis=1)
    grads = (
        contract(dgates, wide(w_ih), spec="ng,gi->ni"),
        contract(dgates, wide(w_hh), spec="ng,gh->nh"),
        inner * f,
        contract(dgates, wide(x), spec="ng,ni->gi"),
        contract(dgates, wide(h), spec="ng,nh->gh"),
        reduce_sum(dgates, axes=(0,)),
    )
    return tuple([cast(each, dtype=x.dtype) for each in grads])


@gru_cell.expand
def _(x: Value, h: Value, w_ih: Value, w_hh: Value, b_ih: Value, b_hh: Value) -> Any:
    wx, wh = _linear(x, w_ih), _linear(h, w_hh)
    (xr, xz, xn), (hr, hz, hn) = _pieces(wx + _row(b_ih, wx), 3), _pieces(wh + _row(b_hh, wh), 3)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    return cast((1.0 - z) * tanh(xn + r * hn) + z * wide(h), dtype=x.dtype)


_SIZES = ((2, 3, 2), (1, 1, 1), (0, 2, 3), (3, 0, 2))  # N, I, H


def _operands(make: Any, wanted: str, gates: int, n: int, i: int, h: int) -> list[TensorType]:
    sizes = {"N": n, "I": i, "H": h, "G": gates * h}
    return [make[tuple([sizes[c] for c in names])] for names in wanted.split()]


def _cell_samples(wanted: str, gates: int) -> Any:
    def make(s: Samples) -> Iterator[Sample]:
        for sizes in _SIZES:
            yield s(*_operands(f64, wanted, gates, *sizes))
        yield s(*_operands(f32, wanted, gates, 2, 3, 2))
        yield s(*_operands(bf16, wanted, gates, 2, 3, 2))
        yield s(*_operands(f64, wanted, gates - 1, 2, 3, 2), bad="E0163")
        yield s(*_operands(i32, wanted, gates, 2, 3, 2), bad="E0106")

    return make


lstm_cell.samples(_cell_samples("NI NH NH GI GH G", 4))
lstm_cell_fwd.samples(_cell_samples("NI NH NH GI GH G", 4))
lstm_cell_grad.samples(_cell_samples("NI NH NH GI GH NH NG NH NH", 4))
gru_cell.samples(_cell_samples("NI NH GI GH G G", 3))
