"""What an attention kernel is made for: `problem(body, anchor)` reads a body; `Problem` has sizes and views."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.ir.node import Fn, Node
from treadle.kernels.templates import _views
from treadle.kernels.templates._views import View

_UNIT = {"f32": 4, "bf16": 2, "f16": 2}


@dataclass(frozen=True)
class Problem:
    """Attention of `rows` queries and `keys` keys for each of `heads` leading places. depth, width: sizes of a query
    and of a value. kind: "f32", "bf16" or "f16". inputs: q, k, v and, for the gradient, y, the rows' sums, d; views of
    the parameters with their strides; mask, seeds: views or None; rate: of the dropout that there is with seeds.
    outputs: y and the sums, or dq, dk, dv and the mask's gradient as `mask`; None: not wanted."""

    kind: str
    lead: tuple[int, ...]
    rows: int
    keys: int
    depth: int
    width: int
    scale: float
    causal: bool
    inputs: tuple[View, ...]
    mask: View | None
    outputs: tuple[View | None, ...]
    buffers: int
    params: int
    seeds: View | None = None
    rate: float = 0.0

    @property
    def heads(self) -> int:
        """Places along the leading axes."""
        count = 1
        for n in self.lead:
            count *= n
        return count

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return _UNIT[self.kind]


def problem(body: Fn, anchor: Node) -> Problem | None:
    """The problem of a body whose only node that computes is the anchor; None where the kernels do not take it."""
    q, k, v = anchor.inputs[:3]
    gradient = len(anchor.outputs) > 2
    given = 6 if gradient else 3
    lead, depth, width = q.shape[:-2], q.shape[-1], v.shape[-1]
    if q.dtype.short not in _UNIT or 0 in (q.type.size, k.type.size, v.type.size):
        return None
    inputs = [_views.of_input(x, body) for x in anchor.inputs[:given]]
    good = [x for x in inputs if x is not None]
    item = q.dtype.bytes
    if len(good) < given or not all(_side_by_side(x, v.dtype.bytes) for x, v in zip(good, anchor.inputs, strict=False)):
        return None
    mask, seeds, rest = None, None, anchor.inputs[given:]
    if "rate" in anchor.attrs:
        seeds, rest = _views.of_input(rest[0], body), rest[1:]
        if seeds is None:
            return None
    if rest:
        mask = _mask(_views.of_input(rest[0], body), (*q.shape[:-1], k.shape[-2]), item)
        if mask is None:
            return None
    outputs = _outputs(body, anchor)
    if outputs is None:
        return None
    if gradient and rest and outputs[3] is not None:
        outputs = (*outputs[:3], _spread(outputs[3], (*q.shape[:-1], k.shape[-2])))
    scale, causal = float(anchor.attrs["scale"]), bool(anchor.attrs["causal"])
    buffers, params = len(body.params) + len(body.outputs), len(body.params)
    shape = (lead, q.shape[-2], k.shape[-2], depth, width)
    rate = float(anchor.attrs.get("rate", 0.0))
    return Problem(q.dtype.short, *shape, scale, causal, tuple(good), mask, outputs, buffers, params, seeds, rate)


def _side_by_side(view: View, item: int) -> bool:
    """Whether the elements of a row lie one after another."""
    return view.sizes[-1] == 1 or view.strides[-1] == item


def _outputs(body: Fn, anchor: Node) -> tuple[View | None, ...] | None:
    """Views of the results that are wanted; all outputs of the body must be made of them."""
    found = list[View | None]()
    for value in anchor.outputs:
        wanted = value in body.outputs or any(value in n.inputs for n in body.nodes)
        view = _views.of_output(value, body) if wanted else None
        if wanted and view is None:
            return None
        if view is not None and not _side_by_side(view, value.dtype.bytes):
            return None
        found.append(view)
    filled = [0] * len(body.outputs)  # elements: views of different results have none in common
    for view in found:
        if view is not None:
            filled[view.buffer] += prod(view.sizes)
    return tuple(found) if filled == [o.type.size for o in body.outputs] else None


def _mask(view: View | None, scores: tuple[int, ...], item: int) -> View | None:
    """A mask as a view of the scores' shape, with stride 0 where it is repeated. Columns must be there."""
    if view is None or view.strides[-1:] != (item,) or view.sizes[-1] != scores[-1]:
        return None
    return _spread(view, scores)


def _spread(view: View, scores: tuple[int, ...]) -> View:
    """A view of the scores' shape: with stride 0 where it is repeated."""
    skip = len(scores) - len(view.sizes)
    strides = [s if n == m else 0 for n, m, s in zip(view.sizes, scores[skip:], view.strides, strict=True)]
    return View(view.buffer, view.offset, scores, (0,) * skip + tuple(strides))
