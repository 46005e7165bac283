"""Decisions and loops on tensors as functions: `cond`, `while_loop`, `scan`. They work in every mode, run on the
device, and can be differentiated. Tensors from outside that a body reads are passed to it; those that it changes are
carried along.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle import driver, ops
from treadle.api import _apply
from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend import tree
from treadle.frontend.pysrc.convert import converted
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import Traced, is_dynamic
from treadle.ir import build
from treadle.ir.node import Fn, Value
from treadle.ir.types import Types
from treadle.ops._checkpointed import blocked_scan, blocked_while, power_above


def cond(pred: Any, then: Callable[..., Any], orelse: Callable[..., Any], *operands: Any) -> Any:
    """then(*operands) if pred (one bool tensor) else orelse(*operands); only one of them runs.

    Both are traced and must return the same kind of thing (E0220). A Python bool decides at once.
    """
    arguments.function(then, "the first branch of cond")
    arguments.function(orelse, "the second branch of cond")
    if isinstance(pred, bool):
        return then(*operands) if pred else orelse(*operands)
    pred = _apply.as_tensor(pred)
    if pred.shape != () or pred.dtype.kind != "b":
        fix = "give one bool, such as x.any() or x.all(); td.where chooses for each element"
        raise UserError("E0226", f"the condition of cond is {pred.type}, not one bool", fix=fix)
    branches = [_apply.trace(_with_tensors(f), operands) for f in (then, orelse)]
    _same_results(branches)
    captured = _union([t.captured for t in branches])
    changed = _union([t.changed for t in branches])
    captured = _union([captured, changed])
    leaves = _apply.dynamic_leaves(operands)
    inputs = [*[_apply.as_tensor(x) for x in leaves], *captured]
    args = sorted({i for t in branches for i in t.changed_args})
    fns = [_branch(t, len(leaves), captured, changed, args, [x.type for x in inputs]) for t in branches]
    outputs = _apply.region_op(ops.if_, [pred, *inputs], then=fns[0], orelse=fns[1])
    n = branches[0].num_outputs
    for position, new in zip(args, outputs[n:], strict=False):
        if isinstance(leaves[position], Tensor):
            leaves[position]._set(new)
    for tensor, new in zip(changed, outputs[n + len(args) :], strict=True):
        tensor._set(new)
    return branches[0].result(outputs[:n])


def _with_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with Python numbers in its result as tensors, so that they differ with the data as they should."""

    function = converted(function)

    @functools.wraps(function, updated=())
    def run(*args: Any) -> Any:
        return tree.tree_map(_strong, function(*args))

    return run


def _strong(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.strong()
    return Tensor(leaf) if type(leaf) in (bool, int, float, complex) else leaf


def _branch(
    traced: Traced,
    num_args: int,
    captured: Sequence[Any],
    changed: Sequence[Any],
    args: Sequence[int],
    types: Sequence[Any],
) -> Fn:
    """A branch over the common operands, with the common outputs: results, changed arguments, changed tensors."""

    def body(*values: Value) -> list[Value]:
        place = {id(t): v for t, v in zip(captured, values[num_args:], strict=True)}
        results = build.inline(traced.fn, [*values[:num_args], *[place[id(t)] for t in traced.captured]])
        n, m = traced.num_outputs, traced.num_outputs + len(traced.changed_args)
        new_args = dict(zip(traced.changed_args, results[n:m], strict=True))
        new = {id(t): v for t, v in zip(traced.changed, results[m:], strict=True)}
        return [
            *results[:n],
            *[new_args.get(i, values[i]) for i in args],
            *[new.get(id(t), place[id(t)]) for t in changed],
        ]

    return build.trace(body, list(types), traced.fn.name, _apply.outer_fns())


def _same_results(branches: Sequence[Traced]) -> None:
    kinds: list[Types] = [t.fn.out_types[: t.num_outputs] for t in branches]
    results = [t.result(list(range(t.num_outputs))) for t in branches]
    if kinds[0] != kinds[1] or tree.flatten(results[0]) != tree.flatten(results[1]):
        text = [", ".join(map(str, k)) or repr(r) for k, r in zip(kinds, results, strict=True)]
        raise UserError("E0220", f"the branches return {text[0]} and {text[1]}", fix="return the same types from both")


def _union(groups: Sequence[Sequence[Any]]) -> list[Any]:
    """Tensors of all groups, each once, by identity."""
    return list({id(t): t for group in groups for t in group}.values())


class _Loop:
    """What a loop's body and condition need: carried leaves, tensors read (constants) and tensors changed (carried)."""

    def __init__(self, init: Any, traces: Sequence[Traced]) -> None:
        leaves, self.shape = tree.flatten(init)
        self.init = [_apply.as_tensor(x) for x in leaves]
        self.changed = _union([t.changed for t in traces])
        self.captured = [t for t in _union([t.captured for t in traces]) if all(t is not c for c in self.changed)]

    def arguments(self, traced: Traced, carry: Sequence[Value], consts: Sequence[Value]) -> list[Value]:
        """Values for the captured tensors of a trace, found among constants and carried state."""
        place = {id(t): v for t, v in zip(self.captured, consts, strict=True)}
        place.update({id(t): v for t, v in zip(self.changed, carry[len(self.init) :], strict=True)})
        return [place[id(t)] for t in traced.captured]

    def next_state(self, traced: Traced, results: Sequence[Value], carry: Sequence[Value]) -> list[Value]:
        """New values of the changed tensors after one trip."""
        new = {id(t): v for t, v in zip(traced.changed, results[traced.num_outputs :], strict=True)}
        old = carry[len(self.init) :]
        return [new.get(id(t), v) for t, v in zip(self.changed, old, strict=True)]

    def finish(self, outputs: Sequence[Tensor]) -> Any:
        """Write state back; the carried tree."""
        n = len(self.init)
        for tensor, new in zip(self.changed, outputs[n : n + len(self.changed)], strict=True):
            tensor._set(new)
        return self.shape.unflatten(outputs[:n])


def _carry(init: Any) -> Any:
    """The initial carry with Python numbers as tensors: the carry's type must be the same after each trip."""
    return tree.tree_map(lambda x: x.strong() if isinstance(x, Tensor) else Tensor(x), init)


def _check_carry(init: Any, traced: Traced, carry: Any, what: str) -> None:
    """The carry after a trip, with positions of outputs as leaves, must be shaped and typed as the initial one."""
    leaves, shape = tree.flatten(init)
    places, new_shape = tree.flatten(carry)
    if shape != new_shape or places != list(range(len(places))):
        fix = "return the same containers, with the same keys in the same order, holding tensors"
        raise UserError("E0221", f"the carry of {what} is {shape} before and {new_shape} after it", fix=fix)
    before = [t.type for t in leaves]
    after = list(traced.fn.out_types[: len(places)])
    if before != after or traced.changed_args:
        found = f"{', '.join(map(str, before))} before and {', '.join(map(str, after))} after it"
        fix = "return the carry with the same shapes and dtypes, and do not change it in place"
        raise UserError("E0221", f"the carry of {what} is {found}", fix=fix)


def while_loop(
    test: Callable[..., Any], body: Callable[..., Any], init: Any, *, capacity: int = 0, checkpoint: bool | int = False
) -> Any:
    """Repeat carry = body(carry) while test(carry) is true; returns the last carry.

    init: any container of tensors. capacity: trips whose residuals a gradient keeps at once (a power of two; 0: by
    size); more trips stay exact and cost time. checkpoint: keep only the carry of every that many trips, and compute
    the rest again on the way back; True: of every sqrt(capacity) trips (0: 1,024), so that the memory for n trips is
    about sqrt(n) carries and residuals. Raises E0221 when the carry changes type, E0222 when test gives no single bool,
    E0173 for a capacity that is no power of two or a wrong checkpoint.
    """
    arguments.function(test, "the test of while_loop")
    arguments.function(body, "the body of while_loop")
    capacity = arguments.count(capacity, "the capacity of while_loop", 0, "E0173")
    if capacity & (capacity - 1):
        raise UserError("E0173", f"the capacity of while_loop is {capacity}", fix=f"give {1 << capacity.bit_length()}")
    every = _every(checkpoint, capacity or 1024, "while_loop", "E0173")
    init = _carry(init)
    tested, stepped = _apply.trace(test, (init,)), _apply.trace(_with_tensors(body), (init,))
    _check_carry(init, stepped, stepped.result(list(range(stepped.num_outputs))), "while_loop")
    _check_test(tested)
    loop = _Loop(init, [tested, stepped])
    n, k = len(loop.captured), len(loop.init)

    def again(*values: Value) -> Any:
        consts, carry = values[:n], values[n:]
        return build.inline(tested.fn, [*carry[:k], *loop.arguments(tested, carry, consts)])

    def step(*values: Value) -> list[Value]:
        consts, carry = values[:n], values[n:]
        results = build.inline(stepped.fn, [*carry[:k], *loop.arguments(stepped, carry, consts)])
        return [*results[:k], *loop.next_state(stepped, results, carry)]

    inputs = [*loop.captured, *loop.init, *loop.changed]
    types, fns = [x.type for x in inputs], _apply.outer_fns()
    cond_fn, body_fn = build.trace(again, types, "again", fns), build.trace(step, types, "step", fns)
    parts = {"cond": cond_fn, "body": body_fn, "n_consts": n}
    if every:
        blocks = power_above(-(-(capacity or 1024) // every))
        return loop.finish(_built(blocked_while, inputs, every=every, blocks=blocks, **parts))
    return loop.finish(_apply.region_op(ops.while_, inputs, capacity=capacity, **parts))


def _every(checkpoint: bool | int, trips: int, what: str, code: str) -> int:
    """After how many trips a carry is kept; 0: none is, for the residuals of all trips are."""
    if checkpoint is True:
        return power_above(math.isqrt(trips))
    return 0 if checkpoint is False else arguments.count(checkpoint, f"checkpoint of {what}", 1, code)


def _built(function: Callable[..., Any], operands: Sequence[Tensor], **attrs: Any) -> list[Tensor]:
    """The results of a function on values, in the mode of the moment."""
    with build.Builder("loop", _apply.outer_fns()) as b:
        fn = b.finish(function(*[b.param(t.type) for t in operands], **attrs))
    return driver.run_fn(fn, b.fns, operands)


def _check_test(tested: Traced) -> None:
    kinds = tested.fn.out_types
    if tested.changed or tested.changed_args:
        raise UserError("E0223", "the test of while_loop changes a tensor", fix="change it in the body")
    if len(kinds) != 1 or kinds[0].shape != () or kinds[0].dtype.kind != "b":
        found = ", ".join(map(str, kinds)) or "no tensor"
        raise UserError("E0222", f"the test of while_loop gives {found}", fix="return one bool, such as x < 3")


def scan(
    body: Callable[..., Any],
    init: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    reverse: bool = False,
    checkpoint: bool | int = False,
) -> Any:
    """(carry, ys): carry, y = body(carry, x) for each x along the first axis of xs (a container of tensors); ys are
    stacked.

    length: number of trips when xs is None. checkpoint: what a gradient keeps. False: the residuals of every trip; a
    number: only the carry of every that many trips, and it runs the trips between again (1: every carry, and the body
    again); True: of every sqrt(length) trips. Raises E0221 when the carry changes type, E0224 when lengths differ or
    checkpoint is wrong.
    """
    arguments.function(body, "the body of scan")
    init = _carry(init)
    stacked = _apply.dynamic_leaves((xs,))
    if length is not None:
        length = arguments.count(length, "the length of scan", 0, "E0224")
    sizes = {next(iter(x.shape), None) for x in stacked} | ({length} - {None})
    if len(sizes) != 1 or None in sizes:
        raise UserError(
            "E0224",
            f"scan over lengths {sorted(map(str, sizes))}",
            fix="stack xs along the first axis, or give length=",
        )
    first = tree.tree_map(lambda x: _first(x) if is_dynamic(x) else x, xs)
    traced = _apply.trace(_with_tensors(body), (init, first))
    pair = traced.result(list(range(traced.num_outputs)))
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise UserError("E0225", "the body of scan returns no pair", fix="return (carry, y); y may be None")
    loop = _Loop(init, [traced])
    n, k, m = len(loop.captured), len(loop.init), len(loop.init) + len(loop.changed)
    _check_carry(init, traced, pair[0], "scan")

    def step(*values: Value) -> list[Value]:
        consts, carry, slices = values[:n], values[n : n + m], values[n + m :]
        results = build.inline(traced.fn, [*carry[:k], *slices, *loop.arguments(traced, carry, consts)])
        return [*results[:k], *loop.next_state(traced, results, carry), *results[k : traced.num_outputs]]

    stacks = [_apply.as_tensor(x) for x in stacked]
    inputs = [*loop.captured, *loop.init, *loop.changed, *stacks]
    types = [*[x.type for x in inputs[: n + m]], *[x.type.with_shape(x.shape[1:]) for x in stacks]]
    fn = build.trace(step, types, "step", _apply.outer_fns())
    size = int(sizes.pop() or 0)
    parts = {"body": fn, "n_consts": n, "n_carry": m, "length": size, "reverse": reverse}
    every = _every(checkpoint, size, "scan", "E0224")
    if size and every:
        outputs = _built(blocked_scan, inputs, every=every, **parts)
    else:
        outputs = _apply.region_op(ops.scan, inputs, **parts)
    carry = loop.finish(outputs[:m])
    return carry, traced.result([*[None] * k, *outputs[m:]])[1]


def _first(x: Any) -> Tensor:
    """A stand-in with the type of x[0], for tracing only."""
    import numpy as np

    t = _apply.as_tensor(x).type
    return Tensor._of(np.empty(t.shape[1:], t.dtype.np))
