"""Branches and loops that the source front end found to depend on a tensor, as IR regions.

What the front end hands over are functions without arguments (branches) or of the list of *slots* (loops), working on
Python variables and return the slots: any Python values. Both sides of a branch are traced; where their slots differ,
tensors become results of the region, Python numbers become numbers of the program, and all else must be equal. A loop
carries what a trip changes, and is traced again until the kinds of what it carries no longer change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import ops
from treadle.api import _apply, effects
from treadle.api.control import _Loop, _union
from treadle.base import dtypes
from treadle.base.errors import InternalError, UserError
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.lift import literal
from treadle.frontend.pysrc import aliases, builtin, runtime, state
from treadle.frontend.pysrc.exits import DONE, FLAGS, VALUE
from treadle.frontend.pysrc.recursion import BottomError
from treadle.frontend.pysrc.state import AgainError, Held, Snapshot, Unbound, is_object
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import Traced, is_tensor
from treadle.ir import build
from treadle.ir.node import Fn, Value, attr_key
from treadle.ir.types import TensorType
from treadle.ops import casting, creation

_WIDE = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}
_ORDER = list(_WIDE)
_DONE = frozenset([DONE])
_PLAIN = (*_WIDE, str, bytes, type(None), type(Ellipsis), frozenset, type)


class _Out:
    """A tensor among the slots of a trace: output i, of a type; kind: that of a Python number, None for a tensor.

    (No dataclass: those are containers to `tree`.)
    """

    def __init__(self, place: int, type: TensorType, kind: Any) -> None:
        self.place, self.type, self.kind = place, type, kind


class _Part:
    """A traced branch or trip: its function, and the leaves of each slot, in which tensors are `_Out`.

    objects: the leaves as they were while tracing, to see what is still the same. hidden: for each slot, what it holds
    if its value is there only behind the guard of a jump, else None.
    """

    def __init__(self, function: Callable[..., list[Any]], args: Sequence[Any] | None = None) -> None:
        self.objects: list[list[Any]] = []
        self.shapes: list[tree.TreeDef] = []
        self.hidden: list[Unbound | None] = []
        kinds: list[type | None] = []

        def run(*values: Any) -> Any:
            slots = function() if args is None else function(list(values))
            self.hidden = [state.hidden(s) for s in slots]
            flat = [tree.flatten(state.revealed(s)) for s in slots]
            self.objects, self.shapes = [leaves for leaves, _ in flat], [shape for _, shape in flat]
            kinds.extend([x._weak for leaves in self.objects for x in leaves if is_tensor(x)])
            return [[Tensor._of(x._value, x._trace) if is_tensor(x) and x._weak else x for x in leaves]
                    for leaves in self.objects]  # fmt: skip

        self.traced: Traced = _apply.trace(run, tuple(args or ()))
        types = self.traced.fn.out_types
        self.leaves: list[list[Any]] = self.traced.result([_Out(i, types[i], kind) for i, kind in enumerate(kinds)])


@dataclass(frozen=True)
class _Merged:
    """A leaf that the region gives: its type, the kind of number, what each side makes it of, and what it was there."""

    type: TensorType
    kind: Any
    sides: tuple[Any, ...]
    name: str
    seen: tuple[Any, ...]


# ------------------------------------------------------------------------------------------------------------ branches
def choose(
    pred: Tensor, then: Callable[[], list[Any]], orelse: Callable[[], list[Any]], snapshot: Snapshot
) -> list[Any]:
    """The slots of `then` where pred is true, else those of `orelse`; only one of them runs."""
    parts: list[_Part] = []
    for i, function in enumerate((then, orelse)):
        try:
            parts.append(_Part(function))
        except BottomError:
            snapshot.restore()
            return (orelse, then)[i]()  # its types are those of the whole
        except Exception as error:
            if isinstance(error, UserError | InternalError):
                raise
            return _raising(pred, i, error, function, (orelse, then)[i], snapshot)
    names = snapshot.names
    if new := [i for i in range(len(names)) if _is_new([p.objects[i] for p in parts])]:
        snapshot.open(new)
    merged: list[_Merged] = []
    flags = [i for i, n in enumerate(names) if n.startswith(FLAGS)]
    jumped = [frozenset(names[i] for i in flags if p.leaves[i] == [True]) for p in parts]
    returned = [DONE in j for j in jumped]
    slots: list[Any] = []
    for i, name in enumerate(names):
        sides = _Sides(name, [p.leaves[i] for p in parts], [p.shapes[i] for p in parts], [p.objects[i] for p in parts])
        hidden, count = [h for p in parts if (h := p.hidden[i]) is not None], len(merged)
        try:
            slots.append(_merge_slots(sides, merged, jumped, hidden))
        except UserError as error:
            if not (i < snapshot.plain and name != VALUE):
                raise
            del merged[count:]
            if any(returned) and not all(returned):  # all that follows is behind the guard of that return
                gone = Unbound(name, error=error, flags=_DONE)
                slots.append(_merge_one(sides, returned.index(False), merged, [gone]))
                continue
            lost = Unbound(name, error=error)  # an error where the name is looked at, if it is
            slots.append((tree.flatten(lost)[1], [lost], None))
    captured = _union([*[p.traced.captured for p in parts], *[p.traced.changed for p in parts]])
    changed = _union([p.traced.changed for p in parts])
    types = [t.type for t in captured]
    fns = [_branch(p.traced, [m.sides[i] for m in merged], [m.type for m in merged], captured, changed, types)
           for i, p in enumerate(parts)]  # fmt: skip
    outputs = _apply.region_op(ops.if_, [pred, *captured], then=fns[0], orelse=fns[1])
    for tensor, output in zip(changed, outputs[len(merged) :], strict=True):
        tensor._set(output)
    if merged:
        _watch(slots, merged, outputs, snapshot)
    return [_filled(s, merged, outputs) for s in slots]


def _watch(slots: Sequence[Any], merged: Sequence[_Merged], outputs: Sequence[Tensor], snapshot: Snapshot) -> None:
    """Remember the tensors that a branch has replaced, where they may have other names than that of their slot."""
    shared = snapshot.shared()
    for (_, leaves, _), before in zip(slots, snapshot.initial(), strict=True):
        own = set(map(id, tree.flatten(state.revealed(before))[0]))
        for leaf in leaves:
            if isinstance(leaf, _Place):
                seen = [x for x in merged[leaf.index].seen if is_tensor(x) and x._weak is None and aliases.is_older(x)]
                seen = [x for x in seen if id(x) in shared or id(x) not in own]
                if seen:
                    aliases.merged(outputs[leaf.index], seen, merged[leaf.index].name)


def _is_new(sides: Sequence[Sequence[Any]]) -> bool:
    """Whether a slot holds an object or container on one side that it does not hold on the other."""
    found = [[x for x in leaves if is_object(x) or isinstance(x, Held)] for leaves in sides]
    return any(found) and not (len(found[0]) == len(found[1]) and all(a is b for a, b in zip(*found)))


def _raising(
    pred: Tensor, side: int, error: Exception, function: Any, other: Callable[[], list[Any]], snapshot: Any
) -> list[Any]:
    """A side that raises is an error when the program takes it; what goes on is the other side."""
    snapshot.restore()
    effects.fail(pred if side == 0 else runtime.not_(pred), function)
    snapshot.restore()
    try:
        return other()
    except UserError:
        raise
    except Exception as second:
        if len(tracing._stack.traces) == 1:
            raise  # the call is then run by Python, see programs.py
        why = f"both branches raise, {type(error).__name__} and {type(second).__name__}, inside a branch or loop"
        raise UserError("E0246", why, fix="raise in one of them, after the other") from None


class _Sides:
    """A slot on both sides of a branch: its leaves, containers, and the leaves as they were while tracing."""

    def __init__(self, name: str, leaves: list[Any], shapes: list[tree.TreeDef], objects: list[Any]) -> None:
        self.name, self.leaves, self.shapes, self.objects = name, leaves, shapes, objects


def _merge_slots(sides: _Sides, merged: list[_Merged], jumped: Sequence[Any], hidden: list[Unbound]) -> Any:
    """(shape, leaves, hidden) of a slot after the branch: objects, or positions in `merged` as `_Place`. hidden: what
    it holds on the sides where it has its value only behind the guard of a jump; together, of all of them."""
    name, leaves, shapes = sides.name, sides.leaves, sides.shapes
    absent = [isinstance(ls[0], Unbound) if len(ls) == 1 else False for ls in leaves]
    if any(absent):
        excused = all(j for j, a in zip(jumped, absent, strict=True) if a)
        if all(absent) or not (name == VALUE or excused):
            return tree.flatten(Unbound(name))[1], [_error_of(leaves, name)], None
        gone = [] if name == VALUE else [*hidden, Unbound(name, flags=jumped[absent.index(True)])]
        return _merge_one(sides, absent.index(False), merged, gone)
    if shapes[0] != shapes[1]:
        why = f"{name} is {shapes[0]} in one branch and {shapes[1]} in the other"
        raise UserError("E0244", why, fix="give it the same containers in both")
    pairs = zip(zip(*leaves, strict=True), zip(*sides.objects, strict=True), strict=True)
    return shapes[0], [_merge(name, pair, seen, merged) for pair, seen in pairs], _together(hidden)


def _together(hidden: Sequence[Unbound]) -> Unbound | None:
    """What a name holds that has its value only behind the guards of several jumps."""
    if not hidden:
        return None
    error = next((h.error for h in hidden if h.error is not None), None)
    return Unbound(hidden[0].name, error=error, flags=frozenset.intersection(*[h.flags for h in hidden]))


def _error_of(leaves: Sequence[Any], name: str) -> Unbound:
    """What a name without a value holds, with the reason that a side knows."""
    known = [ls[0].error for ls in leaves if len(ls) == 1 and isinstance(ls[0], Unbound) and ls[0].error is not None]
    return Unbound(name, error=next(iter(known), None))


def _merge_one(sides: _Sides, side: int, merged: list[_Merged], hidden: Sequence[Unbound]) -> Any:
    """As `_merge_slots`, for a slot whose value on the other side is never looked at."""
    pairs = [(_Zeros() if isinstance(x, _Out) else x, x) for x in sides.leaves[side]]
    pairs = [pair if side == 1 else pair[::-1] for pair in pairs]
    return sides.shapes[side], [_merge(sides.name, pair, pair, merged) for pair in pairs], _together(hidden)


class _Place:
    def __init__(self, index: int) -> None:
        self.index = index


class _Zeros:
    """Stands for a value that is never looked at."""


def _merge(name: str, pair: tuple[Any, ...], seen: tuple[Any, ...], merged: list[_Merged]) -> Any:
    """One leaf of both sides: what it is if both agree, else a result of the region."""
    if seen[0] is seen[1] and not isinstance(pair[0], _Zeros):
        return seen[0]
    if all(not isinstance(x, _Out | _Zeros) for x in pair) and _equal(*pair):
        return pair[0]
    type_, kind = _common(name, pair)
    merged.append(_Merged(type_, kind, pair, name, seen))
    return _Place(len(merged) - 1)


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and isinstance(a, _PLAIN) and bool(attr_key(a) == attr_key(b))


def _common(name: str, sides: Sequence[Any]) -> tuple[TensorType, type | None]:
    """The type that all sides can have. Raises E0244 when there is none."""
    tensors = {s.type for s in sides if isinstance(s, _Out) and s.kind is None}
    kinds = [s.kind if isinstance(s, _Out) else type(s) for s in sides if not isinstance(s, _Zeros)]
    kinds = [k for k, s in zip(kinds, [s for s in sides if not isinstance(s, _Zeros)], strict=True)
             if not (isinstance(s, _Out) and s.kind is None)]  # fmt: skip
    if any(k not in _WIDE for k in kinds) or len(tensors) > 1:
        raise _differ(name, sides)
    if not tensors:
        kind = max(kinds, key=_ORDER.index)
        return TensorType(_WIDE[kind], ()), kind
    (found,) = tensors
    for kind in kinds:
        if found.shape != () or dtypes.promote_scalar(found.dtype, kind) is not found.dtype:
            raise _differ(name, sides)
    return found, None


def _differ(name: str, sides: Sequence[Any]) -> UserError:
    text = [str(s.type) if isinstance(s, _Out) else repr(s) for s in sides]
    fix = "give it the same dtype and shape in both; what is no tensor must be equal in both"
    return UserError("E0244", f"{name} is {text[0]} in one branch and {text[1]} in the other", fix=fix)


def _branch(
    traced: Traced, sides: Sequence[Any], types: Sequence[TensorType], captured: Sequence[Any], changed: Sequence[Any],
    in_types: Sequence[TensorType],
) -> Fn:  # fmt: skip
    def body(*values: Value) -> list[Value]:
        place = {id(t): v for t, v in zip(captured, values, strict=True)}
        results = build.inline(traced.fn, [place[id(t)] for t in traced.captured])
        new = {id(t): v for t, v in zip(traced.changed, results[traced.num_outputs :], strict=True)}
        return [*[_made(s, t, results) for s, t in zip(sides, types, strict=True)],
                *[new.get(id(t), place[id(t)]) for t in changed]]  # fmt: skip

    return build.trace(body, list(in_types), traced.fn.name, _apply.outer_fns())


def _made(side: Any, type: TensorType, results: Sequence[Value]) -> Value:
    """The value of a leaf on one side, in the common type."""
    if isinstance(side, _Zeros):
        made: Value = creation.full(value=0, shape=type.shape, dtype=type.dtype)
        return made
    value: Value = results[side.place] if isinstance(side, _Out) else literal(np.asarray(side, type.dtype.np))
    if value.dtype is not type.dtype:
        value = casting.cast(value, dtype=type.dtype)
    return value


def _filled(
    slot: tuple[tree.TreeDef, list[Any], Unbound | None], merged: Sequence[_Merged], outputs: Sequence[Tensor]
) -> Any:
    shape, leaves, hidden = slot
    value = shape.unflatten([
        _with_kind(outputs[x.index], merged[x.index].kind) if isinstance(x, _Place) else x for x in leaves
    ])  # fmt: skip
    return hidden.holding(value) if hidden is not None else value


def _with_kind(tensor: Tensor, kind: type | None) -> Tensor:
    return tensor if kind is None else Tensor._of(tensor._value, tensor._trace, kind)


# --------------------------------------------------------------------------------------------------------------- loops
@dataclass
class _Carried:
    """A leaf that the loop carries: its type and kind, and what it starts with."""

    type: TensorType
    kind: Any
    start: Any


def loop(
    test: Callable[[list[Any]], Any] | None, step: Callable[[list[Any]], list[Any]], snapshot: Snapshot,
    length: int | None, extra: Sequence[Any] = (),
) -> list[Any]:  # fmt: skip
    """The slots after slots = step(slots) while test(slots), or `length` times. extra: numbers in front of slots."""
    names = [*["the trip"] * len(extra), *snapshot.names]
    plan = _LoopPlan(names, [*extra, *snapshot.initial()], len(extra), snapshot.plain)
    for _ in range(8):
        try:
            stepped = _Part(lambda given: step(plan.slots(given)), plan.arguments())
        except BottomError:  # without a trip the types are those of the whole
            snapshot.restore()
            return plan.slots(plan.arguments())
        new = [i for i in range(len(plan.names)) if _is_new([plan.starts[i], stepped.objects[i]])]
        snapshot.open([i - len(extra) for i in new])
        if not plan.widen(stepped):
            break
    else:
        raise UserError("E0221", "what the loop carries changes with every trip", fix="keep its dtypes and shapes")
    tested = (
        None if test is None else _apply.trace(lambda *v: _truth_of(test(plan.slots(list(v)))), tuple(plan.arguments()))
    )
    if tested is not None and (tested.changed or tested.changed_args):
        raise UserError("E0223", "the test of the loop changes a tensor", fix="change it in the body")
    outputs = _region(plan, stepped, tested, length)
    n = len(plan.carried)
    return [*plan.final(outputs[:n], stepped, snapshot), *outputs[n:]]


def _truth_of(value: Any) -> Any:
    return value if is_tensor(value) else Tensor(np.asarray(bool(value)))


class _LoopPlan:
    """Which leaves of the slots are carried."""

    def __init__(self, names: list[str], slots: list[Any], counters: int, local: int) -> None:
        self.names, self.hidden = names, [state.hidden(s) for s in slots]
        flat = [tree.flatten(state.revealed(s)) for s in slots]
        self.starts, self.shapes = [leaves for leaves, _ in flat], [shape for _, shape in flat]
        self.carried: dict[tuple[int, int], _Carried] = {}
        self.given: dict[tuple[int, int], Tensor] = {}  # what stands for the carried leaves in the last trace
        self.local = range(counters, counters + local)  # the slots of local names
        for i in range(counters):
            self._carry(i, 0, self.starts[i][0])

    def _carry(self, i: int, j: int, leaf: Any) -> None:
        kind = leaf._weak if is_tensor(leaf) else type(leaf)
        type_ = leaf.type if is_tensor(leaf) else TensorType(_WIDE[kind], ())
        self.carried[i, j] = _Carried(type_, kind, leaf)

    def arguments(self) -> list[Tensor]:
        """Tensors of the carried leaves, as they start."""
        return [_start(c) for c in self.carried.values()]

    def slots(self, given: Sequence[Tensor]) -> list[Any]:
        """The slots with these tensors in place of the carried leaves."""
        found = self.given = dict(zip(self.carried, given, strict=True))
        return [shape.unflatten([found.get((i, j), leaf) for j, leaf in enumerate(leaves)])
                for i, (leaves, shape) in enumerate(zip(self.starts, self.shapes, strict=True))]  # fmt: skip

    def widen(self, part: _Part) -> bool:
        """Carry what the trip changed, in the type it has after it; whether anything is new."""
        before = {k: (c.type, c.kind) for k, c in self.carried.items()}
        lost = [i for i in self.local if self._lose(i, part)]
        for i, name in enumerate(self.names):
            if i in lost or self._is_own(i):
                continue
            if part.shapes[i] != self.shapes[i]:
                self._new_shape(i, name, part)
            for j, leaf in enumerate(part.leaves[i]):
                self._widen_leaf(i, j, name, leaf, part.objects[i][j])
        return bool(lost) or before != {k: (c.type, c.kind) for k, c in self.carried.items()}

    def _is_own(self, i: int) -> bool:
        """Whether the slot is of a name of the body alone: it has no value before a trip."""
        start = self.starts[i]
        return len(start) == 1 and isinstance(start[0], Unbound) and self.names[i] != VALUE

    def _lose(self, i: int, part: _Part) -> bool:
        """Whether a name that has a value before has none after a trip: it has none from the start, then."""
        after = part.leaves[i][0] if len(part.leaves[i]) == 1 else None
        if not isinstance(after, Unbound) or self.names[i] == VALUE or isinstance(self.starts[i][0], Unbound):
            return False
        self.starts[i], self.shapes[i] = [after], tree.flatten(after)[1]
        self.carried = {k: c for k, c in self.carried.items() if k[0] != i}
        return True

    def _new_shape(self, i: int, name: str, part: _Part) -> None:
        start = self.starts[i]
        if len(start) == 1 and isinstance(start[0], Unbound) and name == VALUE:
            self.starts[i] = [_Zeros() if isinstance(x, _Out) else x for x in part.leaves[i]]
            self.shapes[i] = part.shapes[i]
            return
        why = f"{name} is {self.shapes[i]} before a trip and {part.shapes[i]} after it"
        raise UserError("E0221", why, fix="keep the same containers from trip to trip")

    def _widen_leaf(self, i: int, j: int, name: str, leaf: Any, seen: Any) -> None:
        start, carried = self.starts[i][j], self.carried.get((i, j))
        if carried is None:
            if seen is start or (not isinstance(leaf, _Out) and _equal(leaf, start)):
                return
            if isinstance(start, Unbound):
                if name == VALUE and isinstance(leaf, _Out):
                    self.carried[i, j] = _Carried(leaf.type, leaf.kind, _Zeros())
                return  # the body's own: it has no value before a trip
            if isinstance(start, _Zeros):
                self.carried[i, j] = _Carried(leaf.type, leaf.kind, start)
                return
            if not is_tensor(start) and type(start) not in _WIDE:
                why = f"{name} is {start!r} before a trip and {_shown(leaf)} after it"
                raise UserError("E0221", why, fix="only tensors and numbers may change in a loop on a tensor")
            self._carry(i, j, start)
            carried = self.carried[i, j]
        side = _Out(0, carried.type, carried.kind)
        try:
            carried.type, carried.kind = _common(name, (side, leaf))
        except UserError:
            why = f"{name} is {carried.type} before a trip and {_shown(leaf)} after it"
            fix = "give it its final dtype and shape before the loop, and keep them"
            raise UserError("E0221", why, fix=fix) from None

    def final(self, outputs: Sequence[Tensor], stepped: _Part, snapshot: Snapshot) -> list[Any]:
        """The slots after the loop; names that only the body binds have no value. Raises E0247."""
        found: list[Tensor] = []
        shared, in_place = snapshot.shared(), stepped.traced.changed_args
        for place, (output, ((i, _), carried)) in enumerate(zip(outputs, self.carried.items(), strict=True)):
            found.append(_with_kind(output, carried.kind))
            if id(carried.start) in shared or any(carried.start is t for t in stepped.traced.changed):
                if place in in_place or any(carried.start is t for t in stepped.traced.changed):
                    raise aliases.changed_in_place(self.names[i])
                aliases.merged(found[-1], [carried.start], self.names[i])
        hidden = [after if before is None else before for before, after in zip(self.hidden, stepped.hidden)]
        return [v if h is None or isinstance(v, Unbound) else h.holding(v)
                for v, h in zip(self.slots(found), hidden, strict=True)]  # fmt: skip


def _shown(leaf: Any) -> str:
    return str(leaf.type) if isinstance(leaf, _Out) else repr(leaf)


def _start(carried: _Carried) -> Tensor:
    """What a carried leaf starts with, as a tensor or a number of the trace."""
    start, type_ = carried.start, carried.type
    if isinstance(start, _Zeros):
        made = Tensor(np.zeros(type_.shape, type_.dtype.np))
    elif is_tensor(start):
        plain = Tensor._of(start._value, start._trace)
        made = plain if start.type == type_ else plain.astype(type_.dtype)
    else:
        made = Tensor(np.asarray(start, type_.dtype.np))
    return Tensor._of(made._value, made._trace, carried.kind) if carried.kind is not None else made


def _region(plan: _LoopPlan, stepped: _Part, tested: Traced | None, length: int | None) -> list[Tensor]:
    """The carried leaves after the loop."""
    start = [Tensor._of(t._value, t._trace) if t._weak is not None else t for t in plan.arguments()]
    traces = [stepped.traced, *([tested] if tested is not None else [])]
    inner = _Loop(start, traces)
    n, k = len(inner.captured), len(start)
    keys = list(plan.carried)
    stacked = len(stepped.leaves) - len(plan.names)  # what the trip appends to lists

    def step(*values: Value) -> list[Value]:
        consts, carry = values[:n], values[n:]
        traced = stepped.traced
        results = build.inline(traced.fn, [*carry[:k], *inner.arguments(traced, carry, consts)])
        new = [_made(stepped.leaves[i][j], plan.carried[i, j].type, results) for i, j in keys]
        skip = traced.num_outputs + len(traced.changed_args)
        after = {id(t): v for t, v in zip(traced.changed, results[skip:], strict=True)}
        ys = results[traced.num_outputs - stacked : traced.num_outputs]
        return [*new, *[after.get(id(t), v) for t, v in zip(inner.changed, carry[k:], strict=True)], *ys]

    def again(*values: Value) -> Any:
        assert tested is not None
        consts, carry = values[:n], values[n:]
        return build.inline(tested.fn, [*carry[:k], *inner.arguments(tested, carry, consts)])

    inputs = [*inner.captured, *inner.init, *inner.changed]
    types, fns = [x.type for x in inputs], _apply.outer_fns()
    body = build.trace(step, types, "step", fns)
    if tested is None:
        trips = {"length": int(length or 0), "reverse": False}
        outputs = _apply.region_op(ops.scan, inputs, body=body, n_consts=n, n_carry=len(inputs) - n, **trips)
    else:
        test = build.trace(again, types, "again", fns)
        outputs = _apply.region_op(ops.while_, inputs, cond=test, body=body, n_consts=n, capacity=0)
    done = inner.finish(outputs)
    return [*done, *outputs[len(outputs) - stacked :]] if stacked else list(done)


# --------------------------------------------------------------------------------------------------- truth and numbers
def truth(value: Any) -> Any:
    """One bool of a tensor's only element, as `bool` would give it. Raises E0206 for several elements."""
    if not is_tensor(value):
        return bool(value)
    if value.size != 1:
        why = f"a tensor {value.type} decides, and has {value.size} elements"
        raise UserError("E0206", why, fix="use x.any() or x.all(); td.where chooses for each element")
    flat = Tensor._of(value._value, value._trace).reshape(())
    return flat if flat.dtype is dtypes.bool_ else flat != 0


def negated(value: Any) -> Any:
    """`not value`."""
    return _with_kind(~truth(value), bool)


def logical(stop: bool, value: Any, rest: Callable[[], Any], unchanged: Callable[[], bool]) -> Any:
    """`value and rest()`, or with stop `value or rest()`, of two bools as an op; None where rest() is another thing, or
    does something beside."""
    if value.dtype is not dtypes.bool_:
        return None
    acted = effects.acted.count
    try:
        part = _Part(lambda: [rest()])
    except (BottomError, AgainError):
        return None
    except Exception as error:
        if isinstance(error, UserError):
            raise
        return None
    (leaves,) = part.leaves
    plain = len(leaves) == 1 and isinstance(leaves[0], _Out) and leaves[0].type.dtype is dtypes.bool_
    if not plain or leaves[0].type.shape != value.shape or part.traced.changed or acted != effects.acted.count:
        return None
    if not unchanged():
        return None
    test, other = truth(value), truth(rest())
    kind = value._weak if value._weak is leaves[0].kind else None
    return _with_kind((test | other) if stop else (test & other), kind)


def number(kind: type, tensor: Tensor) -> Tensor:
    """int(x), float(x) or bool(x) of a tensor's only element, as a number of the trace."""
    if tensor.size != 1:
        raise UserError("E0205", f"{tensor.type} has {tensor.size} elements, not one", fix="index it")
    if kind is bool:
        return _with_kind(truth(tensor), bool)
    flat = Tensor._of(tensor._value, tensor._trace).reshape(())
    made = flat.astype(_WIDE[kind])
    return _with_kind(made if kind is int else ops.stop_gradient(made), kind)  # as Python's own numbers carry none


def entry(numbers: Sequence[Any], place: Any) -> Tensor:
    """The entry of a table of plain numbers, all of one kind, as such a number of the trace."""
    kind = type(numbers[0])
    flat = Tensor._of(place._value, place._trace).reshape(())
    return _with_kind(Tensor(np.asarray(numbers, _WIDE[kind].np))[flat], kind)


def extreme(larger: bool, x: Any, y: Any) -> Any:
    """max(x, y) or min(x, y) as Python gives it: the first unless the second is larger (smaller)."""
    second = y > x if larger else y < x
    return runtime.if_expression(second, lambda: y, lambda: x)


def install() -> None:
    """Give the source front end its regions."""
    runtime.hooks.choose, runtime.hooks.loop = choose, loop
    runtime.hooks.truth, runtime.hooks.negated, runtime.hooks.logical = truth, negated, logical
    runtime.hooks.entry = entry
    builtin.hooks.number, builtin.hooks.extreme = number, extreme
    builtin.hooks.show, runtime.hooks.check = effects.show, effects.check
    builtin.REPLACED[breakpoint] = effects.pause
