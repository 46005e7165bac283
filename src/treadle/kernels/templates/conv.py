"""Convolutions and their gradients with what surrounds them: `plans(body, target)` for bodies around one of them.

Images are taken with their channels last or second, results are given either way. float32 is computed as float32;
bfloat16 by the CPU's instruction for pairs where it has one, else, like float16, as float32 from converted operands.
Sums are float32 and are rounded once. conv_direct has outputs and data gradients, conv_weight weight gradients,
conv_depthwise those with one channel in a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from treadle.base.dtypes import bfloat16, float16, float32
from treadle.ir.node import Fn, Node, Value
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.target import Target
from treadle.kernels.templates import conv_finish, conv_sums, conv_weight_product
from treadle.kernels.templates.conv_depthwise import Depthwise, DepthwiseSchedule, DepthwiseWeight
from treadle.kernels.templates.conv_depthwise_rows import DepthwiseRows
from treadle.kernels.templates.conv_depthwise_weight import DepthwiseWeightRows
from treadle.kernels.templates.conv_direct import Buffers, Direct, Schedule
from treadle.kernels.templates.conv_few import Few, few_schedules
from treadle.kernels.templates.conv_few_weight import FewWeight, few_weight_schedules
from treadle.kernels.templates.conv_finish import Tail
from treadle.kernels.templates.conv_planes import Planes, PlanesWeight, plane_schedules
from treadle.kernels.templates.conv_schedule import depthwise_schedules, schedules, weight_schedules
from treadle.kernels.templates.conv_shape import Problem, Spec, data_gradient, forward
from treadle.kernels.templates.conv_weight import Weight, WeightSchedule
from treadle.kernels.templates.conv_weight_blocks import Blocks, block_schedules, pays
from treadle.kernels.templates.conv_winograd import Winograd, WinogradSchedule, winograd_schedules
from treadle.kernels.templates.conv_winograd_weight import (
    WinogradWeight,
    WinogradWeightSchedule,
    winograd_weight_schedules,
)
from treadle.kernels.templates.gemm_problem import dense, view_of
from treadle.ops.convolution import conv, conv_input_grad, conv_weight_grad


@dataclass(frozen=True)
class Image:
    """An input that is read as images. planar: its channels come second, not last."""

    param: int
    planar: bool


@dataclass(frozen=True)
class Found:
    """A convolution in a body. operands: its inputs, in order; weights, where they are one, are no image."""

    body: Fn
    anchor: Node
    spec: Spec
    operands: tuple[Image, Image]
    dtype: str


def plans(body: Fn, target: Target) -> list[Plan]:
    """Ways to compute a body around a convolution, the most promising first; [] if it is none of ours."""
    found = read(body)
    if found is None:
        return []
    return list(_weight(found, target) if found.anchor.op is conv_weight_grad else _direct(found, target))


def read(body: Fn) -> Found | None:
    """The one convolution of a body, if its operands are inputs in an order of axes that is taken."""
    anchors = [n for n in body.nodes if n.op.rules.get("group") == "convolution"]
    if len(anchors) != 1 or any(True for n in body.nodes for _ in n.regions()):
        return None
    anchor = anchors[0]
    if anchor.op not in (conv, conv_input_grad, conv_weight_grad) or not 3 <= anchor.outputs[0].ndim <= 4:
        return None
    first, second = (_image(body, v) for v in anchor.inputs)
    values = (*anchor.inputs, anchor.outputs[0])
    if first is None or second is None or 0 in [n for v in values for n in v.shape]:
        return None
    if anchor.op is not conv_weight_grad and not second.planar:  # weights as they are: [outputs, channels, *kernel]
        return None
    return Found(body, anchor, spec_of(anchor), (first, second), anchor.outputs[0].dtype.short)


def _image(body: Fn, value: Value) -> Image | None:
    """The input that a value is, with its axes in memory either as they are or with the second one last."""
    view = view_of(body, value)
    if view is None or view.offset or view.dtype is not view.used_as or view.dtype not in (float32, bfloat16, float16):
        return None
    n, c, *size = value.shape
    last = dense((n, *size, c))
    for planar, wanted in ((True, dense(value.shape)), (False, (last[0], last[-1], *last[1:-1]))):
        if all(a == b for a, b, extent in zip(view.strides, wanted, value.shape, strict=True) if extent > 1):
            return Image(view.param, planar)
    return None


def spec_of(node: Node) -> Spec:
    """The sizes of a convolution or of a gradient; with one spatial axis it gets a first one of 1."""
    attrs = node.attrs
    if node.op is conv_weight_grad:
        x, dy = (v.shape for v in node.inputs)
        n, channels, outputs = x[0], x[1], dy[1]
        size, out, kernel = x[2:], dy[2:], attrs["kernel_size"]
    else:
        given, w = (v.shape for v in node.inputs)
        made = node.outputs[0].shape
        n, channels, outputs, kernel = given[0], w[1] * attrs["groups"], w[0], w[2:]
        size, out = (given[2:], made[2:]) if node.op is conv else (made[2:], given[2:])
    pairs = [size, out, kernel, attrs["stride"], attrs["padding"], attrs["dilation"]]
    if len(size) == 1:
        ones: list[Any] = [1, 1, 1, 1, (0, 0), 1]
        pairs = [(one, *pair) for one, pair in zip(ones, pairs, strict=True)]
    both: list[Any] = [tuple(p) for p in pairs]
    size, out, kernel, stride, padding, dilation = both
    return Spec(n, channels, outputs, size, out, kernel, stride, padding, dilation, attrs["groups"])


def _one_order(image: tuple[int, int, int]) -> bool:
    """Whether channels last and channels second are the same in memory."""
    return image[0] * image[1] == 1 or image[2] == 1


def takes_rows(node: Node, target: Target) -> bool:
    """Whether a kernel takes a convolution or gradient along the rows of images as users have them, with their channels
    second: for such a one they need not be turned."""
    params = tuple([Value(v.type) for v in node.inputs])
    alone = Node(node.op, params, node.attrs, tuple([o.type for o in node.outputs]), node.where)
    found = read(Fn("alone", params, (alone,), alone.outputs))
    if found is None:
        return False
    spec = found.spec
    sizes = spec if node.op is conv_weight_grad else (forward if node.op is conv else data_gradient)(spec)
    both = [(*spec.size, spec.channels), (*spec.out, spec.outputs)]
    images = [sizes.source] if isinstance(sizes, Problem) else both
    return not any(map(_one_order, images)) and bool(_rows(sizes, target, found.dtype))


def _rows(sizes: Problem | Spec, target: Target, dtype: str) -> list[tuple[Any, Any]]:
    """What takes images with their channels second, along their rows: (Planes, Few or such, its schedule)."""
    ways: Any = (Planes, plane_schedules) if _is_depthwise(sizes) else (Few, few_schedules)
    if isinstance(sizes, Spec):
        ways = (PlanesWeight, plane_schedules) if _is_depthwise(sizes) else (FewWeight, few_weight_schedules)
    return [(ways[0], schedule) for schedule in ways[1](sizes, target, dtype)]


def _is_depthwise(sizes: Problem | Spec) -> bool:
    if isinstance(sizes, Spec):
        return sizes.channels == sizes.outputs == sizes.groups > 1
    return sizes.inner == sizes.outer == 1 and sizes.groups > 1


# ------------------------------------------------------------------------------------ outputs and data gradients
def _direct(found: Found, target: Target) -> Iterator[Plan]:
    problem = (forward if found.anchor.op is conv else data_gradient)(found.spec)
    sizes = {"n": problem.n, "o": problem.target[2], "h": problem.target[0], "w": problem.target[1]}
    planar = found.operands[0].planar and not _one_order(problem.source)
    if planar and (rows := _tail(found, sizes, "w", target)) is not None:
        for kind, of in _rows(problem, target, found.dtype):
            yield Plan(f"conv {of}", partial(_make_rows, kind, found, problem, of, rows, target))
    tail = _tail(found, sizes, "o", target)
    if tail is None and problem.step_out[1] == 1:
        tail = _tail(found, sizes, "w", target)
    if tail is None:
        return
    if _is_depthwise(problem):
        for lanes in depthwise_schedules(problem, target, found.dtype, planar):
            yield Plan(f"conv {lanes}", partial(_make_depthwise, found, problem, lanes, tail, planar, target))
        return
    first, then = winograd_schedules(problem, target, found.dtype, _exact(found))
    for s in first:
        yield Plan(f"conv {s}", partial(_make_winograd, found, problem, s, tail, planar, target))
    for p, schedule in schedules(problem, target, found.dtype, tail.last and not planar, planar):
        yield Plan(f"conv {schedule}", partial(_make, found, problem, p, schedule, tail, target))
    for s in then:
        yield Plan(f"conv {s}", partial(_make_winograd, found, problem, s, tail, planar, target))


def _exact(found: Found) -> bool:
    """Whether sums must be as near as float32 allows."""
    return found.dtype == "f32" and found.anchor.attrs.get("precision", "highest") == "highest"


def _tail(found: Found, sizes: dict[str, int], along: str, target: Target) -> Tail | None:
    """What follows a convolution, with the buffers' numbers that the body gives its outputs."""
    body, params = found.body, (found.operands[0].param, found.operands[1].param)
    rest, buffers, node = conv_sums.split(body)
    tail = conv_finish.read(rest, found.anchor, sizes, along, params, target)
    if tail is None or node is None:
        return tail
    made = conv_sums.moments(body, rest, node, buffers)
    grouped = found.spec.groups > 1 and not found.spec.groups == found.spec.channels == found.spec.outputs
    if made is None or not tail.last or grouped:
        return None
    if not tail.in_order(buffers.index(made.value), "nhwo"):
        return None
    finish = tail.finish
    finish.outputs = [replace(o, buffer=n) for o, n in zip(finish.outputs, buffers, strict=True)]
    return replace(tail, moments=made)


def _make(found: Found, whole: Problem, p: Problem, schedule: Schedule, tail: Tail, target: Target) -> Kernel:
    body = found.body
    count = len(body.params) + len(body.outputs)
    plain = tail.plain("nhwo") and (tail.moments is None or tail.moments.other < 0)  # which the tail asks for
    written = tail.finish.outputs[0].buffer if plain else -1
    buffers = Buffers(found.operands[0].param, found.operands[1].param, written, count)
    kernel = Direct(
        p, schedule, target, found.dtype, found.dtype, buffers, None if plain else tail,
        found.operands[0].planar and not _one_order(whole.source), whole.target[:2], tail.moments,
    )  # fmt: skip
    text = launch.finish(kernel.module, kernel.build(), count + 1, tiles=schedule.amx)
    packs = -1 if tail.moments else found.operands[1].param
    return Kernel(body.in_types, body.out_types, text, kernel.workspace + 64, tail.aliases(len(body.params)), packs)


def _make_winograd(
    found: Found, problem: Problem, schedule: WinogradSchedule, tail: Tail, planar: bool, target: Target
) -> Kernel:
    body = found.body
    count = len(body.params) + len(body.outputs)
    buffers = found.operands[0].param, found.operands[1].param, count
    kernel = Winograd(problem, schedule, target, buffers, tail, planar, found.dtype)
    text = launch.finish(kernel.module, kernel.build(), count + 1)
    packs, room = -1 if planar or tail.moments else found.operands[1].param, kernel.workspace + 64
    return Kernel(body.in_types, body.out_types, text, room, tail.aliases(len(body.params)), packs, reads=True)


# --------------------------------------------------------------------------------------------- weight gradients
def _weight(found: Found, target: Target) -> Iterator[Plan]:
    spec, (x, dy) = found.spec, found.operands
    planar = x.planar and not _one_order((*spec.size, spec.channels))
    turned = dy.planar and not _one_order((*spec.out, spec.outputs))  # only conv_winograd_weight takes it
    run = spec.channels // spec.groups * spec.kernel[0] * spec.kernel[1]
    tail = conv_finish.read(found.body, found.anchor, {"o": spec.outputs, "r": run}, "r", (x.param, dy.param), target)
    if tail is None:
        return
    for kind, of in _rows(spec, target, found.dtype) if planar and turned else ():
        yield Plan(f"conv weight {of}", partial(_make_rows, kind, found, spec, of, tail, target))
    first, then = winograd_weight_schedules(spec, target, found.dtype, _exact(found))
    for s in first:
        yield Plan(f"conv weight {s}", partial(_make_winograd_weight, found, s, tail, (planar, turned), target))
    if turned:
        return
    if _is_depthwise(spec):
        for lanes in depthwise_schedules(spec, target, found.dtype, planar)[:2]:
            yield Plan(f"conv weight {lanes}", partial(_make_depthwise, found, spec, lanes, tail, planar, target))
        return
    of_blocks = [
        Plan(f"conv weight {blocks}", partial(_make_rows, Blocks, found, spec, blocks, tail, target))
        for blocks in (block_schedules(spec, target, found.dtype) if not planar else ())
    ]
    early = pays(spec, target, found.dtype)
    yield from of_blocks if early else ()
    if not planar:
        yield from conv_weight_product.product_plans(found.body, found.anchor, spec, (x.param, dy.param), tail, target)
    for longer, schedule in weight_schedules(spec, target, found.dtype, planar):
        yield Plan(f"conv weight {schedule}", partial(_make_weight, found, longer, schedule, tail, planar, target))
    yield from () if early else of_blocks
    for s in then:
        yield Plan(f"conv weight {s}", partial(_make_winograd_weight, found, s, tail, (planar, False), target))


def _make_weight(
    found: Found, spec: Spec, schedule: WeightSchedule, tail: Tail, planar: bool, target: Target
) -> Kernel:
    body, (x, dy) = found.body, found.operands
    count = len(body.params) + len(body.outputs)
    plain = tail.plain("or")
    buffers = x.param, dy.param, len(body.params) if plain else -1, count
    kernel = Weight(spec, schedule, target, found.dtype, found.dtype, buffers, planar)
    text = launch.finish(kernel.module, kernel.build(None if plain else tail), count + 1)
    return Kernel(body.in_types, body.out_types, text, kernel.workspace + 64, tail.finish.aliases())


def _make_winograd_weight(
    found: Found, schedule: WinogradWeightSchedule, tail: Tail, planar: tuple[bool, bool], target: Target
) -> Kernel:
    body, (x, dy) = found.body, found.operands
    count = len(body.params) + len(body.outputs)
    buffers = x.param, dy.param, count
    kernel = WinogradWeight(found.spec, schedule, target, found.dtype, buffers, tail, planar)
    text = launch.finish(kernel.module, kernel.build(), count + 1)
    return Kernel(body.in_types, body.out_types, text, kernel.workspace + 64, tail.finish.aliases())


def _make_depthwise(
    found: Found, sizes: Problem | Spec, schedule: DepthwiseSchedule, tail: Tail, planar: bool, target: Target
) -> Kernel:
    """Either direction: of a Problem the outputs, of a Spec the weight gradient."""
    body, count = found.body, len(found.body.params) + len(found.body.outputs)
    plain = tail.plain("nhwo" if isinstance(sizes, Problem) else "or")
    written = tail.finish.outputs[0].buffer if plain else -1
    buffers = found.operands[0].param, found.operands[1].param, written, count
    kinds = (DepthwiseWeight, DepthwiseWeightRows) if isinstance(sizes, Spec) else (Depthwise, DepthwiseRows)
    kind = kinds[not schedule.copy]
    kernel: Any = kind(sizes, schedule, target, found.dtype, buffers, None if plain else tail, planar)  # type: ignore[arg-type]
    if isinstance(kernel, Depthwise):
        kernel.moments = tail.moments
    text = launch.finish(kernel.module, kernel.build(), count + 1)
    packs = found.operands[1].param if isinstance(sizes, Problem) and tail.moments is None else -1
    return Kernel(body.in_types, body.out_types, text, kernel.workspace + 64, tail.aliases(len(body.params)), packs)


def _make_rows(kind: Any, found: Found, sizes: Problem | Spec, schedule: Any, tail: Tail, target: Target) -> Kernel:
    """By Planes, PlanesWeight, Few or FewWeight, which take images with their channels second, or by Blocks."""
    body, count = found.body, len(found.body.params) + len(found.body.outputs)
    works = kind in (FewWeight, Blocks)
    buffers = (*[o.param for o in found.operands], *[count] * works)
    kernel = kind(sizes, schedule, target, found.dtype, buffers, tail)
    room = kernel.workspace if works else 0
    text = launch.finish(kernel.module, kernel.build(), count + bool(room))
    return Kernel(body.in_types, body.out_types, text, room, tail.aliases(len(body.params)))
