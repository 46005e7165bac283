"""Applying traced functions: tensors for their parameters, and what they changed written back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle import driver
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.pysrc import recursion
from treadle.frontend.pysrc.convert import converted
from treadle.frontend.tensor import Tensor, make_tensor
from treadle.frontend.trace import Traced, is_dynamic, is_tensor
from treadle.ir.build import Builder, apply
from treadle.ir.node import Fn
from treadle.ir.op import Op


def trace(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, plain: bool = False
) -> Traced:
    """Trace a Python function, its control flow rewritten, on these arguments (plain: see `tracing.trace`)."""
    made, options = converted(function), dict(kwargs or {})
    with recursion.derived(function, made, args, options):
        return tracing.trace(made, args, options, make_tensor, plain=plain)


def dynamic_leaves(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
    """The leaves of the arguments that are parameters of the traced function."""
    leaves, _ = tree.flatten((args, dict(kwargs or {})))
    return [leaf for leaf in leaves if is_dynamic(leaf)]


def as_tensor(leaf: Any) -> Tensor:
    """A tensor for a dynamic leaf; Python floats travel in double precision, as the trace expects."""
    if isinstance(leaf, Tensor):
        return leaf
    if type(leaf) in (float, complex):
        return Tensor._of(np.asarray(leaf), None, type(leaf))
    return Tensor(leaf)


def inputs_of(traced: Traced, leaves: Sequence[Any]) -> list[Tensor]:
    """Tensors for all parameters of the traced function."""
    return [*[as_tensor(x) for x in leaves], *traced.captured]


def write_back(traced: Traced, leaves: Sequence[Any], finals: Sequence[Tensor]) -> None:
    """Give the tensors that the function changed their new values."""
    refuse_changed_arrays(traced, leaves)
    n = len(traced.changed_args)
    for position, new in zip(traced.changed_args, finals[:n], strict=True):
        if is_tensor(leaves[position]):
            leaves[position]._set(new)
    for tensor, new in zip(traced.changed, finals[n:], strict=True):
        tensor._set(new)


def refuse_changed_arrays(traced: Traced, leaves: Sequence[Any]) -> None:
    """Raise E0227 if the function changes a NumPy argument in place.

    A plain call would change the caller's array or not by what stands on the right: x += 1 does, x += tensor does not.
    """
    for i, position in enumerate(traced.changed_args):
        if isinstance(leaves[position], np.ndarray):
            node = traced.fn.outputs[traced.num_outputs + i].node
            why = f"argument {position} is a NumPy array, and the function changes it in place"
            fix = "write x = x + y instead of x += y, or pass a tensor: td.tensor(x)"
            raise UserError("E0227", why, fix=fix, where=None if node is None else node.where)


def region_op(op: Op, operands: Sequence[Tensor], **attrs: Any) -> list[Tensor]:
    """The results of an op with bodies, in the mode of the moment."""
    types = [t.type for t in operands]
    with Builder(op.name, outer_fns()) as b:
        results = apply(op, [b.param(t) for t in types], attrs)
        fn = b.finish(results)
    return driver.run_fn(fn, b.fns, operands)


def outer_fns() -> dict[str, Fn]:
    """The functions of the module being built, or a new table in eager mode."""
    outer = tracing.current()
    return outer.builder.fns if outer is not None else {}


def run(
    traced: Traced, leaves: Sequence[Any], fn: Fn | None = None, fns: Mapping[str, Fn] | None = None
) -> list[Tensor]:
    """Run `fn` (default: the traced one), whose first outputs are those of the traced function; write changes back.

    Returns the outputs without the changed values.
    """
    table = traced.fns if fns is None else fns
    outputs = driver.run_fn(traced.fn if fn is None else fn, table, inputs_of(traced, leaves))
    n, m = traced.num_outputs, len(traced.fn.outputs)
    write_back(traced, leaves, outputs[n:m])
    return [*outputs[:n], *outputs[m:]]
