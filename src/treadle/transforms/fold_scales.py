"""Multiplies weights that stay the same by the fixed scales that follow: convolution * scale + shift becomes a
convolution with other weights + shift. A batch norm in inference is such a scale and shift.

`fold_scales(module, fixed)` gives a module whose main has one more result, a bool of the fixed parameters alone: only
where it is true are the others those of the old module, up to the rounding of each new weight and of the sums, with inf
and NaN in the same places unless sums overflow (which they do no sooner than before for inputs below 1e22 or so). It is
false where a new weight or shift is not finite or is huge, and where a weight that was not zero has become zero, as its
product with an infinite input would be NaN. None if there is nothing to fold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from treadle.base import where
from treadle.base.dtypes import DType, float32, float64
from treadle.ir import build
from treadle.ir.build import Builder
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import note
from treadle.ir.walk import users
from treadle.ops._axes import axes_of
from treadle.ops.casting import cast
from treadle.ops.compare import equal, is_finite, less, logical_and, logical_or, not_equal
from treadle.ops.convolution import conv
from treadle.ops.creation import full
from treadle.ops.elementwise import abs as magnitude
from treadle.ops.elementwise import add, mul, sub
from treadle.ops.reduce import broadcast_to, reduce_and
from treadle.ops.shape import reshape
from treadle.transforms.dce import remove_dead
from treadle.transforms.fuse import expanded
from treadle.transforms.hoist import early_nodes

LARGEST = 1e15  # of a new weight: times numbers as large as that, sums are far from overflow


@dataclass
class _Chain:
    """An anchor whose operand number `operand` is fixed; axis: of the result, along which its axis `weight_axis` runs.
    steps: nodes that follow one another, with what they add, subtract or multiply by (None: a cast), one number for
    each place of the axis."""

    anchor: Node
    operand: int
    axis: int = -1
    weight_axis: int = -1
    steps: list[tuple[Node, Value | None]] = field(default_factory=list)

    @property
    def last(self) -> Node:
        return self.steps[-1][0]


def fold_scales(module: Module, fixed: Collection[int]) -> Module | None:
    """fixed: numbers of the parameters of main that stay the same."""
    main = expanded(module.main)
    early = early_nodes(main, {main.params[i] for i in fixed}, module)
    known = {main.params[i] for i in fixed} | {o for n in early for o in n.outputs}
    uses = users(main)
    every = [_chain(n, known, uses, frozenset(main.outputs)) for n in main.nodes]
    found = [c for c in every if c is not None and _is_kept(c.anchor.inputs[c.operand], early)]
    if not found:
        return None
    note("scales folded", len(found))
    made = _Writer(found).run(main, module.callees())
    return Module.of(remove_dead(made, module.fns), module.callees())


def _is_kept(weights: Value, early: dict[Node, int]) -> bool:
    """Whether what is made of the weights is handed over by `hoist`."""
    return weights.node is None or weights.type.bytes <= 2 * early[weights.node]


def _chain(anchor: Node, known: set[Value], uses: dict[Value, list[Node]], results: frozenset[Value]) -> _Chain | None:
    """The steps from an anchor to the last multiplication or addition, if one multiplies."""
    if anchor.op.rules.get("group") not in ("product", "convolution") or len(anchor.inputs) != 2:
        return None
    sides = [i for i in (1, 0) if anchor.inputs[i] in known and anchor.inputs[1 - i] not in known]
    if not sides or anchor.inputs[sides[0]].dtype is not anchor.outputs[0].dtype:
        return None
    chain, now, whole = _Chain(anchor, sides[0]), anchor.outputs[0], 0
    while now not in results and len(uses.get(now, ())) == 1:
        node = uses[now][0]
        if not _continues(chain, node, now, known):
            break
        now = node.outputs[0]
        if node.op is not cast:
            whole = len(chain.steps)
    del chain.steps[whole:]
    return chain if any(n.op is mul for n, _ in chain.steps) and chain.last.outputs[0].dtype in _WIDE else None


_WIDE = (float32, float64)


def _continues(chain: _Chain, node: Node, now: Value, known: set[Value]) -> bool:
    """Take the node into the chain, if it is one."""
    if node.op is cast:
        if node.outputs[0].dtype not in _WIDE:
            return False
        chain.steps.append((node, None))
        return True
    if node.op not in (add, sub, mul) or node.inputs[0] is node.inputs[1]:
        return False
    at = node.inputs.index(now)
    other = node.inputs[1 - at]
    if node.op is sub and at == 1:
        return False
    spread = other.node
    if spread is None or spread.op is not broadcast_to or spread.inputs[0] not in known:
        return False
    shape = (1,) * (now.ndim - spread.inputs[0].ndim) + spread.inputs[0].shape
    axes = [i for i, n in enumerate(shape) if n > 1]
    if len(axes) != 1 or not _along(chain, axes[0]):
        return False
    chain.steps.append((node, spread.inputs[0]))
    return True


def _along(chain: _Chain, axis: int) -> bool:
    """Whether the axis of the result is one of the weights' alone, the same as before."""
    if chain.axis >= 0:
        return axis == chain.axis
    weight_axis = _weight_axis(chain.anchor, chain.operand, axis)
    if weight_axis is not None:
        chain.axis, chain.weight_axis = axis, weight_axis
    return weight_axis is not None


def _weight_axis(anchor: Node, operand: int, axis: int) -> int | None:
    if anchor.op.rules.get("group") == "convolution":
        return 0 if anchor.op is conv and operand == 1 and axis == 1 else None
    names = axes_of(anchor)
    if names is None:
        return None
    name, mine, other = names.outs[0][axis], names.ins[operand], names.ins[1 - operand]
    return mine.index(name) if mine.count(name) == 1 and name not in other and name not in names.whole else None


class _Writer:
    """Writes the function again, with the check as its last result."""

    def __init__(self, chains: Sequence[_Chain]) -> None:
        self.ends = {c.last: c for c in chains}
        self.twin: dict[Value, Value] = {}
        self.checks: list[Value] = []

    def run(self, main: Fn, fns: dict[str, Fn]) -> Fn:
        """The new function."""
        with Builder(main.name, fns) as builder:
            builder.params = list(main.params)
            for node in main.nodes:
                with where.at(node.where):
                    made = [self._folded(self.ends[node])] if node in self.ends else self._same(node)
                self.twin.update(zip(node.outputs, made, strict=True))
            every = self.checks[0]
            for check in self.checks[1:]:
                every = logical_and(every, check)
            return builder.finish([*[self._of(o) for o in main.outputs], every])

    def _of(self, value: Value) -> Value:
        return self.twin.get(value, value)

    def _same(self, node: Node) -> Sequence[Value]:
        return build.emit(node, tuple([self._of(v) for v in node.inputs]))

    def _folded(self, chain: _Chain) -> Value:
        """What stands for the result of the chain's last step."""
        inputs, wide = [self._of(v) for v in chain.anchor.inputs], chain.last.outputs[0].dtype
        scale, shift = self._scale_and_shift(chain, wide)
        weights = inputs[chain.operand]
        rounded = weights.node is not None and weights.node.op is cast and weights.node.inputs[0].dtype in _WIDE
        old = _as(weights.node.inputs[0] if rounded and weights.node is not None else weights, wide)
        factor = _spread(scale, weights.shape, chain.weight_axis)
        new = _as(mul(old, factor), weights.dtype)
        self._check(old, factor, _as(new, wide), shift)
        inputs[chain.operand] = new
        (result,) = build.emit(chain.anchor, tuple(inputs))
        moved: Value = add(_as(result, wide), _spread(shift, result.shape, chain.axis))
        return moved

    def _scale_and_shift(self, chain: _Chain, wide: DType) -> tuple[Value, Value]:
        """[n] of the axis: what the sums are multiplied by, and what is added afterwards."""
        size = chain.anchor.outputs[0].shape[chain.axis]
        scale: Value = full(value=1.0, shape=(size,), dtype=wide)
        shift: Value = full(value=0.0, shape=(size,), dtype=wide)
        for node, operand in chain.steps:
            if operand is None:
                continue
            value = _as(reshape(self._of(operand), shape=(size,)), wide)
            if node.op is mul:
                scale, shift = mul(scale, value), mul(shift, value)
            else:
                shift = (add if node.op is add else sub)(shift, value)
        return scale, shift

    def _check(self, old: Value, factor: Value, new: Value, shift: Value) -> None:
        """old, new: weights; factor: what the old ones were multiplied by."""
        zero: Value = full(value=0.0, shape=old.shape, dtype=old.dtype)
        small = less(magnitude(new), full(value=LARGEST, shape=old.shape, dtype=old.dtype))
        same = logical_or(not_equal(new, zero), logical_or(equal(old, zero), equal(factor, zero)))
        every = reduce_and(logical_and(small, same), axes=tuple(range(old.ndim)))
        self.checks += [every, reduce_and(is_finite(shift), axes=(0,))]


def _as(value: Value, dtype: DType) -> Value:
    made: Value = value if value.dtype is dtype else cast(value, dtype=dtype)
    return made


def _spread(line: Value, shape: tuple[int, ...], axis: int) -> Value:
    """One number for each place of an axis, in an array of the shape."""
    kept = tuple([n if i == axis else 1 for i, n in enumerate(shape)])
    made: Value = broadcast_to(reshape(line, shape=kept), shape=shape)
    return made
