"""`vmap`: a function of one example applied to many at once.

The function is traced for one lane, the IR is batched (transforms/batch.py) and applied in the mode of the moment; so
it nests with `grad`, `jvp`, `jit` and itself, either way round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import driver, ops
from treadle.api import _apply
from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import Traced
from treadle.ir.node import Module
from treadle.transforms.batch import batch

Axes = Any


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """`function`, written for one example, applied to every example along an axis: one program, no Python loop.

    in_axes: the axis of the examples, for all arguments or one entry per argument; an entry may be a container with
    axes for the parts of the argument; None: the same for all examples. out_axes: where the new axis is put in the
    results, likewise. Tensors that the function reads from outside are the same for all. Keyword arguments are too.

        per_sample = td.vmap(td.grad(loss), in_axes=(None, 0, 0))   # gradients [n, *w.shape] for loss(w, x, y)

    Raises E0315 when the function changes a tensor that is there before, E0316 when an argument has no such axis, E0317
    when the sizes differ or there is nothing to map over.
    """

    arguments.function(function, "the function of vmap")

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, shape = tree.flatten(args)
        axes = _spread(in_axes, args, "in_axes")
        size = _size(leaves, axes)
        lanes = [x if a is None else _lane(x) for x, a in zip(_fronted(leaves, axes), axes, strict=True)]
        traced = _apply.trace(function, shape.unflatten(lanes), kwargs)
        _check_unchanged(traced, function)
        dynamic = [(x, a) for x, a in zip(_fronted(leaves, axes), axes, strict=True) if tracing.is_dynamic(x)]
        shared = _apply.dynamic_leaves((), kwargs)
        flags = [a is not None for _, a in dynamic] + [False] * (len(shared) + len(traced.captured))
        fns = dict(traced.fns)
        fn = batch(traced.fn, flags, size, fns)
        if tracing.current() is None:
            module = driver.optimise(Module.of(fn, fns), "cse,dce")
            fn, fns = module.main, module.callees()
        outputs = driver.run_fn(fn, fns, _apply.inputs_of(traced, [*[x for x, _ in dynamic], *shared]))
        result = traced.result(outputs)
        places = _spread(out_axes, result, "out_axes")
        found, form = tree.flatten(result)
        return form.unflatten([_placed(x, a) for x, a in zip(found, places, strict=True)])

    return run


def _spread(axes: Axes, target: Any, name: str) -> list[int | None]:
    """One axis for each leaf of `target`; `axes` is a number, None, or a container that fits its upper levels."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes] * tree.flatten(target)[1].num_leaves
    parts = _children(axes), _children(target)
    if parts[0] is None or parts[1] is None or parts[0].keys() != parts[1].keys():
        raise UserError("E0316", f"{name}={axes!r} does not fit {_form(target)}", fix="give one axis or None for each")
    return [a for key, part in parts[1].items() for a in _spread(parts[0][key], part, name)]


def _children(container: Any) -> dict[Any, Any] | None:
    """The parts of a container one level down, by name or place; None for a leaf."""
    if isinstance(container, dict):
        return dict(container)
    return dict(enumerate(container)) if isinstance(container, tuple | list) else None


def _form(target: Any) -> str:
    return str(tree.flatten(target)[1])


def _size(leaves: Sequence[Any], axes: Sequence[int | None]) -> int:
    """The number of examples."""
    sizes = []
    for leaf, axis in zip(leaves, axes, strict=True):
        if axis is None or not tracing.is_dynamic(leaf):
            continue
        shape = tracing.leaf_type(leaf).shape
        if not -len(shape) <= axis < len(shape):
            why = f"{tracing.leaf_type(leaf)} has no axis {axis} to map over"
            raise UserError("E0316", why, fix="give the axis of the examples in in_axes, None for what they share")
        sizes.append(shape[axis])
    if len(set(sizes)) != 1:
        found = f"axes of sizes {', '.join(map(str, sizes))}" if sizes else "no tensor"
        raise UserError("E0317", f"vmap over {found}", fix="map over axes of one size, at least one of them")
    return int(sizes[0])


def _fronted(leaves: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
    """The leaves with the axis of the examples first."""
    mapped = [a is not None and tracing.is_dynamic(x) for x, a in zip(leaves, axes, strict=True)]
    return [_moved(_apply.as_tensor(x), a or 0, 0) if m else x for x, a, m in zip(leaves, axes, mapped, strict=True)]


def _moved(x: Tensor, source: int, target: int) -> Tensor:
    """x with the axis `source` at the place `target`."""
    source, target = source % x.ndim, target % x.ndim
    if source == target:
        return x
    perm = [i for i in range(x.ndim) if i != source]
    perm.insert(target, source)
    made: Tensor = ops.transpose(x, perm=tuple(perm))
    return made


def _lane(x: Any) -> Any:
    """A stand-in with the type of one example, for tracing only; what is fixed in the program stays."""
    if not tracing.is_dynamic(x):
        return x
    return Tensor._of(np.empty(x.shape[1:], x.dtype.np))


def _placed(x: Any, axis: int | None) -> Any:
    if not tracing.is_tensor(x):
        return x
    if axis is None or not -x.ndim <= axis < x.ndim:
        raise UserError("E0316", f"out_axes: {x.type} has no axis {axis}", fix="give the place of the examples' axis")
    return _moved(x, 0, axis)


def _check_unchanged(traced: Traced, function: Callable[..., Any]) -> None:
    if traced.changed or traced.changed_args:
        name = getattr(function, "__name__", type(function).__name__)
        types = [t.type for t in traced.changed] + [traced.fn.in_types[i] for i in traced.changed_args]
        why = f"{name} changes tensors ({', '.join(map(str, types))}) that its examples share"
        raise UserError("E0315", why, fix="return the new values instead; pass a key per example to random functions")
