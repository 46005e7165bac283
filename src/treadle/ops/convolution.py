"""Convolution over one to three spatial axes and its two gradients, which are each other's gradients to any order.

Layout: x [N, C, *spatial], w [O, C / groups, *kernel], y [N, O, *spatial']. Attributes, one entry per spatial axis:
`stride`, `padding` as (low, high) pairs (negative: cut off), `dilation` (distance of kernel elements); and `groups`.
16-bit floats accumulate in float32. The three convolutions follow Dumoulin & Visin 2016, arXiv:1603.07285.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32
from treadle.ops import _depthwise, _padding, _unfolded
from treadle.ops._batching import merged, parted
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import same_float
from treadle.ops._windows import (
    Ints,
    Pairs,
    check_windows,
    dilated,
    letters,
    offsets,
    opposite,
    out_sizes,
    padded,
    strided,
)
from treadle.ops.products import sums_of_products


@op(images=((0,), (0,)), group="convolution", amp="narrow", jvp="multilinear")
def conv(x: Value, w: Value, *, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    """y[n,o,t] = sum of x[n, c, t * stride + k * dilation - low] * w[o,c,k] over c and k; no flip of the kernel.

    x: float[N, C, *s], w: float[O, C / groups, *k] -> float[N, O, *t]. Raises E0145 for wrong ranks, E0146 when
    channels and groups do not fit, E0147 for wrong attributes, E0148 when the kernel is larger than the padded input.
    """


conv.padded(_padding.filled(_padding.zero, places=True))


@op(images=((0,), (0,)), group="convolution", amp="narrow", jvp="multilinear")
def conv_input_grad(
    dy: Value, w: Value, *, input_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Any:
    """The gradient of `conv` for its input, of spatial sizes `input_size`: also called transposed convolution.

    dy: float[N, O, *t], w: float[O, C / groups, *k] -> float[N, C, *input_size]. Raises as `conv`, and E0149 when a
    convolution of such an input does not give dy's sizes.
    """


conv_input_grad.padded(_padding.filled(_padding.zero, "input_size", places=True))


@op(
    images=((0, 1), ()),
    group="convolution",
    amp="narrow",
    jvp="multilinear",
    onnx=No("ONNX has no operator for a kernel's gradient; export the function, not its gradient"),
)
def conv_weight_grad(
    x: Value, dy: Value, *, kernel_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Any:
    """The gradient of `conv` for its kernel, of spatial sizes `kernel_size`.

    x: float[N, C, *s], dy: float[N, O, *t] -> float[O, C / groups, *kernel_size]. Raises as `conv`, and E0149 when a
    convolution with such a kernel does not give dy's sizes.
    """


conv_weight_grad.padded(_padding.filled(_padding.zero, places=True))


def _ranks(x: TensorType, y: TensorType) -> int:
    """The number of spatial axes of two operands. Raises E0145 unless they are alike and 1 to 3."""
    same_float(x.with_shape(()), y.with_shape(()))
    if x.rank != y.rank or not 3 <= x.rank <= 5:
        why = f"{x} and {y} have not both [_, _] and the same one to three spatial axes"
        raise UserError("E0145", why, fix="shape data as [N, C, *spatial] and kernels as [O, C / groups, *kernel]")
    return x.rank - 2


def _grouped(inputs: int, outputs: int, groups: int) -> None:
    if groups < 1 or inputs % groups or outputs % groups:
        why = f"{inputs} input and {outputs} output channels are not both a multiple of groups={groups}"
        raise UserError("E0146", why, fix="choose groups that divide both")


def _fitting(dy: TensorType, sizes: Ints, what: str) -> None:
    if dy.shape[2:] != sizes:
        why = f"dy is {dy}, but {what} gives spatial sizes {list(sizes)}"
        raise UserError("E0149", why, fix="pass dy of these sizes")


@conv.type
def _(x: TensorType, w: TensorType, *, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> TensorType:
    check_windows(_ranks(x, w), w.shape[2:], stride, padding, dilation)
    _grouped(x.shape[1], w.shape[0], groups)
    if x.shape[1] != w.shape[1] * groups:
        why = f"x is {x} with {x.shape[1]} channels, the kernel {w} takes {w.shape[1]} x groups={groups}"
        raise UserError("E0146", why, fix=f"give the kernel {x.shape[1] // groups} in its second axis")
    return x.with_shape((x.shape[0], w.shape[0], *out_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)))


@conv_input_grad.type
def _(
    dy: TensorType, w: TensorType, *, input_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> TensorType:
    check_windows(_ranks(dy, w), w.shape[2:], stride, padding, dilation)
    _grouped(w.shape[1] * groups, w.shape[0], groups)
    if dy.shape[1] != w.shape[0]:
        raise UserError("E0146", f"dy is {dy}, the kernel {w} makes {w.shape[0]} channels", fix="make the two equal")
    _fitting(dy, out_sizes(input_size, w.shape[2:], stride, padding, dilation), f"input_size {input_size}")
    return dy.with_shape((dy.shape[0], w.shape[1] * groups, *input_size))


@conv_weight_grad.type
def _(
    x: TensorType, dy: TensorType, *, kernel_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> TensorType:
    check_windows(_ranks(x, dy), kernel_size, stride, padding, dilation)
    _grouped(x.shape[1], dy.shape[1], groups)
    if x.shape[0] != dy.shape[0]:
        raise UserError("E0146", f"x is {x}, dy is {dy}: the batch sizes differ", fix="make the first axes equal")
    _fitting(dy, out_sizes(x.shape[2:], kernel_size, stride, padding, dilation), f"kernel_size {kernel_size}")
    return x.with_shape((dy.shape[1], x.shape[1] // groups, *kernel_size))


# The meaning: one product per kernel position, over strided slices of the padded input.


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def _split(x: Any, axis: int, groups: int) -> Any:
    """x with its channel axis as (group, channel of the group)."""
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])


@conv.ref
def _(x: Any, w: Any, *, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    out = out_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    wide = padded(_wide(x), padding)
    y = np.zeros((x.shape[0], groups, w.shape[0] // groups, *out), wide.dtype)
    kernel = _split(_wide(w), 0, groups)
    for at in offsets(w.shape[2:]):
        part = _split(wide[strided(at, out, stride, dilation)], 1, groups)
        y += sums_of_products("ngc...,goc->ngo...", part, kernel[(..., *at)])
    return y.reshape(x.shape[0], w.shape[0], *out).astype(x.dtype)


@conv_input_grad.ref
def _(dy: Any, w: Any, *, input_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    d, kernel = _split(_wide(dy), 1, groups), _split(_wide(w), 0, groups)
    channels = w.shape[1] * groups
    room = tuple([n + low + high for n, (low, high) in zip(input_size, padding)])
    dx = np.zeros((dy.shape[0], channels, *room), d.dtype)
    for at in offsets(w.shape[2:]):
        part = sums_of_products("ngo...,goc->ngc...", d, kernel[(..., *at)])
        dx[strided(at, dy.shape[2:], stride, dilation)] += part.reshape(dy.shape[0], channels, *dy.shape[2:])
    return padded(dx, opposite(padding)).astype(dy.dtype)


@conv_weight_grad.ref
def _(x: Any, dy: Any, *, kernel_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    wide, d = padded(_wide(x), padding), _split(_wide(dy), 1, groups)
    dw = np.zeros((groups, dy.shape[1] // groups, x.shape[1] // groups, *kernel_size), wide.dtype)
    spatial = "xyz"[: len(kernel_size)]
    for at in offsets(kernel_size):
        part = _split(wide[strided(at, dy.shape[2:], stride, dilation)], 1, groups)
        dw[(slice(None),) * 3 + at] = sums_of_products(f"ngc{spatial},ngo{spatial}->goc", part, d)
    return dw.reshape(dy.shape[1], x.shape[1] // groups, *kernel_size).astype(x.dtype)


@conv.grad
def _(x: Value, w: Value, y: Value, d: Value, **attrs: Any) -> tuple[Value, Value]:
    dx = conv_input_grad(d, w, input_size=x.shape[2:], **attrs)
    return dx, conv_weight_grad(x, d, kernel_size=w.shape[2:], **attrs)


@conv_input_grad.grad
def _(dy: Value, w: Value, dx: Value, d: Value, *, input_size: Ints, **attrs: Any) -> tuple[Value, Value]:
    return conv(d, w, **attrs), conv_weight_grad(d, dy, kernel_size=w.shape[2:], **attrs)


@conv_weight_grad.grad
def _(x: Value, dy: Value, dw: Value, d: Value, *, kernel_size: Ints, **attrs: Any) -> tuple[Value, Value]:
    return conv_input_grad(dy, d, input_size=x.shape[2:], **attrs), conv(x, d, **attrs)


# Which axes may be split: with groups the channels hang together, spatial axes would need halos.


@conv.axes
def _(x: TensorType, w: TensorType, *, groups: int, **_: Any) -> str:
    s, k, t = (letters(m, x.rank - 2) for m in "skt")
    return f"n c {s}, o c {k} -> n o {t}" if groups == 1 else f"n !c {s}, !o !i {k} -> n !o {t}"


@conv_input_grad.axes
def _(dy: TensorType, w: TensorType, *, groups: int, **_: Any) -> str:
    s, k, t = (letters(m, dy.rank - 2) for m in "skt")
    return f"n o {t}, o c {k} -> n c {s}" if groups == 1 else f"n !o {t}, !o !i {k} -> n !c {s}"


@conv_weight_grad.axes
def _(x: TensorType, dy: TensorType, *, groups: int, **_: Any) -> str:
    s, k, t = (letters(m, x.rank - 2) for m in "skt")
    return f"n c {s}, n o {t} -> o c {k}" if groups == 1 else f"n !c {s}, n !o {t} -> !o !i {k}"


# StableHLO: roles of axes are renamed instead of moving data, which is what XLA recognises as a gradient convolution.


def _has_no_terms(b: Any) -> bool:
    """Whether a tensor without elements makes the result empty or zero, which back ends need not be asked for."""
    return 0 in (b.out[0].size, b.types[0].size, b.types[1].size)


def _emit(b: Any, x: Any, w: Any, roles: tuple[str, str, str], **attrs: Any) -> Any:
    """A convolution whose operands' first two axes have these roles; without elements it is zero."""
    if _has_no_terms(b):
        return b.splat(0, b.out[0])
    spatial = ", ".join(map(str, range(b.out[0].rank - 2)))
    lhs, rhs, out = (f"[{r[0]}, {r[1]}, {spatial}]" for r in roles)
    dims = f"#stablehlo.conv<{lhs}x{rhs}->{out}>"
    counts = {"feature_group_count": 1, "batch_group_count": 1} | b.precision(b.out[0].dtype) | attrs
    return b.op("convolution", x, w, dimension_numbers=dims, **counts)


# A kernel of one element is a matrix product over the channels. As such, XLA's CPU back end (jaxlib 0.10.2) runs it 1.5
# to 4 times as fast; y and dx only where there are enough places for copies of the kernel, one per sample, to be cheap.


def _is_matrix(taps: Ints, padding: Pairs, groups: int) -> bool:
    return math.prod(taps) == 1 and groups == 1 and not any(p for pair in padding for p in pair)


def _many_places(size: Ints, kernel: TensorType, stride: Ints) -> bool:
    return math.prod(stride) == 1 and math.prod(size) >= max(256, *kernel.shape)


def _mixed(b: Any, x: Any, w: Any, side: int) -> Any:
    """The product over the channels of x [N, C, *s] with axis `side` of the kernel w [O, C, 1...]."""
    t, kernel = b.types
    n, places = t.shape[0], math.prod(t.shape[2:])
    flat, matrix = t.with_shape((n, t.shape[1], places)), kernel.with_shape(kernel.shape[:2])
    rows = kernel.shape[1 - side]
    copies, out = matrix.with_shape((n, rows, t.shape[1])), t.with_shape((n, rows, places))
    x = b.op("reshape", x, types=flat)
    # Turned where needed so that sums run along its rows, which that back end is faster at.
    w = b.broadcast_in_dim(b.op("reshape", w, types=matrix), (1, 2) if side else (2, 1), copies)
    y = b.dot_general(w, x, batch=((0,), (0,)), contract=((2,), (1,)), types=out)
    return b.op("reshape", y)


# Work: two operations for each output element, channel of the group and kernel element; padding counts as data.


def _flops(y: TensorType, channels: int, kernel: Ints) -> int:
    return 2 * y.size * channels * math.prod(kernel)


@conv.flops
def _(ins: list[TensorType], outs: list[TensorType], **_: Any) -> int:
    return _flops(outs[0], ins[1].shape[1], ins[1].shape[2:])


@conv_input_grad.flops
def _(ins: list[TensorType], outs: list[TensorType], **_: Any) -> int:
    return _flops(ins[0], ins[1].shape[1], ins[1].shape[2:])


@conv_weight_grad.flops
def _(ins: list[TensorType], outs: list[TensorType], **_: Any) -> int:
    return _flops(ins[1], outs[0].shape[1], outs[0].shape[2:])


@conv.hlo
def _(b: Any, x: Any, w: Any, *, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    size, kernel = b.types[0].shape[2:], b.types[1]
    if _is_matrix(kernel.shape[2:], padding, groups) and _many_places(size, kernel, stride) and not _has_no_terms(b):
        return _mixed(b, x, w, 1)
    if _depthwise.fits(kernel, groups, padding, dilation) and not _has_no_terms(b):
        return b.inline(build.trace(lambda x, w: _depthwise.forward(x, w, stride, padding), b.types), x, w)
    if _unfolded.fits(kernel, groups, padding, size, out := b.out[0].shape[2:]) and not _has_no_terms(b):
        form = build.trace(lambda x, w: _unfolded.forward(x, w, out, stride, padding, dilation), b.types)
        return b.inline(form, x, w)
    return _emit(
        b, x, w, ("bf", "oi", "bf"),
        window_strides=stride, padding=padding, rhs_dilation=dilation, feature_group_count=groups,
    )  # fmt: skip


@conv_input_grad.hlo
def _(b: Any, dy: Any, w: Any, *, input_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    kernel, taps = b.types[1], b.types[1].shape[2:]
    if _is_matrix(taps, padding, groups) and _many_places(input_size, kernel, stride) and not _has_no_terms(b):
        return _mixed(b, dy, w, 0)
    if _depthwise.fits(kernel, groups, padding, dilation) and not _has_no_terms(b):
        form = build.trace(lambda dy, w: _depthwise.input_grad(dy, w, input_size, stride, padding), b.types)
        return b.inline(form, dy, w)
    if _unfolded.fits(kernel, groups, padding, b.types[0].shape[2:]) and not _has_no_terms(b):
        form = build.trace(lambda dy, w: _unfolded.input_grad(dy, w, input_size, stride, padding, dilation), b.types)
        return b.inline(form, dy, w)
    if groups > 1 and kernel.size:  # [G Og, Cg, *k] -> [Og, G Cg, *k]: the results' channels
        apart = kernel.with_shape((groups, kernel.shape[0] // groups, *kernel.shape[1:]))
        swapped = kernel.with_shape((apart.shape[1], groups, *kernel.shape[1:]))
        kernel = kernel.with_shape((apart.shape[1], groups * kernel.shape[1], *taps))
        w = b.op("reshape", w, types=apart)
        w = b.op("transpose", w, types=swapped, permutation=(1, 0, *range(2, apart.rank)))
        w = b.op("reshape", w, types=kernel)
    flipped = b.op("reverse", w, types=kernel, dimensions=tuple(range(2, kernel.rank)))
    pads = []
    for n, t, k, s, (low, _), d in zip(input_size, b.types[0].shape[2:], taps, stride, padding, dilation):
        before = dilated(k, d) - low - 1
        pads.append((before, n + dilated(k, d) - 1 - dilated(t, s) - before))
    return _emit(
        b, dy, flipped, ("bf", "io", "bf"),
        padding=tuple(pads), lhs_dilation=stride, rhs_dilation=dilation, feature_group_count=groups,
    )  # fmt: skip


def _outer(b: Any, x: Any, dy: Any, stride: Ints) -> Any:
    """The sum over samples and places of dy [N, O, *t] times x [N, C, *s], whose every `stride`-th element counts."""
    (t, d), ones = b.types, (1, 1)
    used = t.with_shape((*t.shape[:2], *d.shape[2:]))
    limits = t.shape[:2] + tuple([dilated(n, s) for n, s in zip(d.shape[2:], stride)])
    if used != t:
        x = b.op("slice", x, types=used, start_indices=(0,) * t.rank, limit_indices=limits, strides=ones + stride)
    axes = (0, *range(2, t.rank))
    matrix = t.with_shape((d.shape[1], t.shape[1]))
    product = b.dot_general(dy, x, batch=((), ()), contract=(axes, axes), types=matrix)
    return b.op("reshape", product)


@conv_weight_grad.hlo
def _(b: Any, x: Any, dy: Any, *, kernel_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    if _is_matrix(kernel_size, padding, groups) and not _has_no_terms(b):
        return _outer(b, x, dy, stride)
    if _depthwise.fits(b.out[0], groups, padding, dilation) and not _has_no_terms(b):
        form = build.trace(lambda x, dy: _depthwise.weight_grad(x, dy, kernel_size, stride, padding), b.types)
        return b.inline(form, x, dy)
    pads, (size, out) = [], (t.shape[2:] for t in b.types)
    for n, t, k, s, (low, _), d in zip(size, out, kernel_size, stride, padding, dilation):
        pads.append((low, dilated(t, s) - n + dilated(k, d) - low - 1))
    return _emit(
        b, x, dy, ("fb", "io", "fb"),
        window_strides=dilation, padding=tuple(pads), rhs_dilation=stride, batch_group_count=groups,
    )  # fmt: skip


# ONNX knows no negative padding: elements are cut off before, or zeros added after.


def _pads(padding: Pairs) -> list[int]:
    return [max(low, 0) for low, _ in padding] + [max(high, 0) for _, high in padding]


@conv.onnx
def _(g: Any, x: str, w: str, *, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    if _has_no_terms(g):
        return g.const(np.zeros(g.out[0].shape, g.out[0].dtype.np))
    cut = opposite(padding)
    if any(_pads(cut)):
        sizes, spatial = g.types[0].shape[2:], len(padding)
        ends = [n - max(high, 0) for n, (_, high) in zip(sizes, cut)]
        bounds = [g.const(np.array(v, np.int64)) for v in (_pads(cut)[:spatial], ends, list(range(2, spatial + 2)))]
        x = g.node("Slice", x, *bounds)
    return g.node("Conv", x, w, strides=list(stride), pads=_pads(padding), dilations=list(dilation), group=groups)


@conv_input_grad.onnx
def _(g: Any, dy: str, w: str, *, input_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    if _has_no_terms(g):
        return g.const(np.zeros(g.out[0].shape, g.out[0].dtype.np))
    cut = []  # what is left out at both ends of all the elements that the windows touch
    out, taps = (t.shape[2:] for t in g.types)
    for n, t, k, s, (low, _), d in zip(input_size, out, taps, stride, padding, dilation):
        cut.append((low, dilated(t, s) - 1 + dilated(k, d) - low - n))
    dx = g.node(
        "ConvTranspose", dy, w, strides=list(stride), pads=_pads(tuple(cut)), dilations=list(dilation), group=groups
    )
    added, spatial = _pads(opposite(tuple(cut))), len(cut)
    if not any(added):
        return dx
    amounts = [0, 0, *added[:spatial], 0, 0, *added[spatial:]]
    return g.node("Pad", dx, g.const(np.array(amounts, np.int64)))


def _plain(rank: int, **other: Any) -> dict[str, Any]:
    """Attributes of the plainest convolution, changed by `other`."""
    return {"stride": (1,) * rank, "padding": ((0, 0),) * rank, "dilation": (1,) * rank, "groups": 1} | other


# Lanes: more samples where they share the kernel, else more groups of channels.


@conv.batch
def _(run: Any, inputs: Any, flags: Any, *, groups: int, **attrs: Any) -> Any:
    if not run.size:
        return NotImplemented
    if not flags[1]:
        return [parted(conv(merged(inputs[0], 0), inputs[1], groups=groups, **attrs), 0, run.size)], [True]
    x, w = run.all(inputs, flags)
    y = conv(merged(x, 1), merged(w, 0), groups=groups * run.size, **attrs)
    return [parted(y, 1, run.size)], [True]


@conv_input_grad.batch
def _(run: Any, inputs: Any, flags: Any, *, groups: int, **attrs: Any) -> Any:
    if not run.size:
        return NotImplemented
    if not flags[1]:
        return [parted(conv_input_grad(merged(inputs[0], 0), inputs[1], groups=groups, **attrs), 0, run.size)], [True]
    dy, w = run.all(inputs, flags)
    dx = conv_input_grad(merged(dy, 1), merged(w, 0), groups=groups * run.size, **attrs)
    return [parted(dx, 1, run.size)], [True]


@conv_weight_grad.batch
def _(run: Any, inputs: Any, flags: Any, **attrs: Any) -> Any:
    """One product for all lanes: XLA's CPU back end runs the grouped form a hundred times as slow."""
    types = [v.type.with_shape(v.shape[1:]) if f else v.type for v, f in zip(inputs, flags, strict=True)]
    return run.replay(build.trace(lambda x, dy: _unfolded.weight_grad(x, dy, **attrs), types), inputs, flags)


@conv.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 3, 7], f64[4, 3, 3], **_plain(1, stride=(2,), padding=((1, 2),)))
    yield s(f64[2, 2, 5, 6], f64[3, 2, 3, 2], **_plain(2, padding=((1, 1), (0, 1))))
    yield s(f64[2, 4, 7, 6], f64[6, 2, 2, 3], stride=(2, 3), padding=((1, 2), (2, 0)), dilation=(2, 1), groups=2)
    yield s(f64[1, 3, 5, 5], f64[6, 1, 3, 3], **_plain(2, groups=3, padding=((-1, 1), (1, -1))))
    yield s(f64[2, 3, 5, 6], f64[3, 1, 3, 2], **_plain(2, groups=3, stride=(2, 1), padding=((1, 2), (0, 1))))
    yield s(bf16[2, 2, 5], bf16[2, 1, 3], **_plain(1, groups=2, padding=((1, 1),)))
    yield s(f64[1, 2, 3, 4, 3], f64[2, 2, 2, 2, 2], **_plain(3, padding=((0, 1),) * 3))
    yield s(f64[1, 1, 1, 1], f64[1, 1, 1, 1], **_plain(2))
    yield s(f64[2, 3, 16, 17], f64[2, 3, 1, 1], **_plain(2))
    yield s(f64[2, 3, 5], f64[2, 3, 1], **_plain(1, stride=(2,)))
    yield s(f64[0, 2, 4], f64[3, 2, 2], **_plain(1))
    yield s(f64[2, 0, 4], f64[3, 0, 2], **_plain(1))
    yield s(f32[2, 3, 5, 5], f32[2, 3, 3, 3], **_plain(2))
    yield s(bf16[1, 2, 4, 4], bf16[2, 2, 3, 3], **_plain(2))
    yield s(f16[1, 2, 4, 4], f16[2, 2, 3, 3], **_plain(2))
    yield s(f64[2, 3], f64[4, 3], **_plain(0), bad="E0145")
    yield s(f64[2, 3, 7], f64[4, 2, 3], **_plain(1), bad="E0146")
    yield s(f64[2, 3, 7], f64[4, 3, 3], **_plain(2), bad="E0147")
    yield s(f64[2, 3, 2], f64[4, 3, 3], **_plain(1), bad="E0148")
    yield s(f32[2, 3, 7], f64[4, 3, 3], **_plain(1), bad="E0105")
    yield s(i32[2, 3, 7], i32[4, 3, 3], **_plain(1), bad="E0106")


@conv_input_grad.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 4, 4], f64[4, 3, 3], **_plain(1, stride=(2,), padding=((1, 2),), input_size=(7,)))
    yield s(f64[2, 6, 4, 2], f64[6, 2, 2, 3], **_plain(2, groups=2, stride=(2, 3), dilation=(2, 1),
            padding=((1, 2), (2, 0)), input_size=(7, 6)))  # fmt: skip
    yield s(f64[1, 6, 3, 3], f64[6, 1, 3, 3], **_plain(2, groups=3, padding=((-1, 1), (1, -1)), input_size=(5, 5)))
    yield s(f64[2, 3, 3, 6], f64[3, 1, 3, 2], **_plain(2, groups=3, stride=(2, 1), padding=((1, 2), (0, 1)),
            input_size=(5, 6)))  # fmt: skip
    yield s(f64[1, 2, 2, 3, 2], f64[2, 2, 2, 2, 2], **_plain(3, input_size=(3, 4, 3)))
    yield s(f64[1, 2, 3], f64[2, 1, 1], **_plain(1, stride=(3,), input_size=(9,)))
    yield s(f64[2, 3, 16, 17], f64[3, 2, 1, 1], **_plain(2, input_size=(16, 17)))
    yield s(f64[0, 3, 3], f64[3, 2, 2], **_plain(1, input_size=(4,)))
    yield s(f64[2, 0, 3], f64[0, 2, 2], **_plain(1, input_size=(4,)))
    yield s(f32[1, 2, 3, 3], f32[2, 3, 3, 3], **_plain(2, input_size=(5, 5)))
    yield s(bf16[1, 2, 2, 2], bf16[2, 2, 3, 3], **_plain(2, input_size=(4, 4)))
    yield s(f64[2, 4], f64[4, 3], **_plain(0, input_size=()), bad="E0145")
    yield s(f64[2, 3, 5], f64[4, 3, 3], **_plain(1, input_size=(7,)), bad="E0146")
    yield s(f64[2, 4, 5], f64[4, 3, 3], **_plain(2, input_size=(7,)), bad="E0147")
    yield s(f64[2, 4, 1], f64[4, 3, 3], **_plain(1, input_size=(2,)), bad="E0148")
    yield s(f64[2, 4, 4], f64[4, 3, 3], **_plain(1, input_size=(7,)), bad="E0149")
    yield s(f32[2, 4, 5], f64[4, 3, 3], **_plain(1, input_size=(7,)), bad="E0105")
    yield s(i32[2, 4, 5], i32[4, 3, 3], **_plain(1, input_size=(7,)), bad="E0106")


@conv_weight_grad.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 3, 7], f64[2, 4, 4], **_plain(1, stride=(2,), padding=((1, 2),), kernel_size=(3,)))
    yield s(f64[2, 4, 7, 6], f64[2, 6, 4, 2], **_plain(2, groups=2, stride=(2, 3), dilation=(2, 1),
            padding=((1, 2), (2, 0)), kernel_size=(2, 3)))  # fmt: skip
    yield s(f64[1, 3, 5, 5], f64[1, 6, 3, 3], **_plain(2, groups=3, padding=((-1, 1), (1, -1)), kernel_size=(3, 3)))
    yield s(f64[2, 3, 5, 6], f64[2, 3, 3, 6], **_plain(2, groups=3, stride=(2, 1), padding=((1, 2), (0, 1)),
            kernel_size=(3, 2)))  # fmt: skip
    yield s(f64[1, 2, 3, 4, 3], f64[1, 2, 2, 3, 2], **_plain(3, kernel_size=(2, 2, 2)))
    yield s(f64[2, 1, 9], f64[2, 2, 3], **_plain(1, stride=(3,), kernel_size=(1,)))
    yield s(f64[2, 3, 4, 3], f64[2, 2, 4, 3], **_plain(2, kernel_size=(1, 1)))
    yield s(f64[0, 2, 4], f64[0, 3, 3], **_plain(1, kernel_size=(2,)))
    yield s(f32[1, 3, 5, 5], f32[1, 2, 3, 3], **_plain(2, kernel_size=(3, 3)))
    yield s(bf16[1, 2, 4, 4], bf16[1, 2, 2, 2], **_plain(2, kernel_size=(3, 3)))
    yield s(f64[2, 3], f64[2, 4], **_plain(0, kernel_size=()), bad="E0145")
    yield s(f64[2, 3, 7], f64[1, 4, 5], **_plain(1, kernel_size=(3,)), bad="E0146")
    yield s(f64[2, 3, 7], f64[2, 4, 5], **_plain(1, kernel_size=(0,)), bad="E0147")
    yield s(f64[2, 3, 2], f64[2, 4, 1], **_plain(1, kernel_size=(3,)), bad="E0148")
    yield s(f64[2, 3, 7], f64[2, 4, 4], **_plain(1, kernel_size=(3,)), bad="E0149")
    yield s(f32[2, 3, 7], f64[2, 4, 5], **_plain(1, kernel_size=(3,)), bad="E0105")
    yield s(i32[2, 3, 7], i32[2, 4, 5], **_plain(1, kernel_size=(3,)), bad="E0106")
