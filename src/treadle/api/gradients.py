"""Differentiation of Python functions: `grad`, `grad_all`, `value_and_grad`, `vjp`, and what steers it.

In eager mode a tape records what the function does (eager_grad.py); inside a traced function it is traced in turn. The
IR so found is differentiated (transforms/grad.py), so they nest at will, inside and outside of `jit`. Parameters that
the function reads are found by identity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from treadle import driver, ops
from treadle.api import _apply, context, eager_grad
from treadle.api.programs import graph_call
from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend import numbers, tree
from treadle.frontend import tape as taping
from treadle.frontend import trace as tracing
from treadle.frontend.pysrc.convert import converted
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import Traced, is_tensor
from treadle.ir import build
from treadle.ir.node import Fn, Module
from treadle.ir.types import TensorType
from treadle.transforms.grad import linearise, value_and_vjp

Wrt = int | Sequence[Any]


def grad(function: Callable[..., Any], argnums: Wrt = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a scalar function with respect to the arguments `argnums` (or to tensors given in a list).

    The result has the shape of the argument (a tuple for several). has_aux: the function returns (loss, aux), the
    result is (gradient, aux). Raises E0306 when the function does not return one float, E0305 for an integer tensor.
    """
    both = value_and_grad(function, argnums, has_aux=has_aux)

    @functools.wraps(function, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return gradient


def value_and_grad(function: Callable[..., Any], wrt: Wrt = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """Like `grad`, but the result is (value, gradient). wrt: an argument number, a tuple of them, or a list of tensors
    (usually `net.parameters()`), for which the gradients are a list in the same order."""
    arguments.function(function, "what is to be differentiated")
    if not isinstance(wrt, int | Iterable) or isinstance(wrt, str | bytes):
        raise UserError("E0307", f"argument number {wrt!r}", fix="give an int, a tuple of ints or a list of tensors")

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        return _differentiate(function, wrt, args, kwargs, has_aux=has_aux, scalar=True)

    return run


def grad_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient with respect to every argument: one tensor for one argument, else a tuple.

    A result that is not a scalar is differentiated with the cotangent of ones. In graph mode the whole is compiled.
    """

    def gradients(*args: Any, **kwargs: Any) -> Any:
        wrt: Wrt = 0 if len(args) == 1 else tuple(range(len(args)))
        return _differentiate(function, wrt, args, kwargs, has_aux=False, scalar=False)[1]

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        if context.is_graph() and tracing.current() is None:
            return graph_call(function, "grad_all", gradients, args, kwargs)
        return gradients(*args, **kwargs)

    return run


def _differentiate(
    function: Callable[..., Any],
    wrt: Wrt,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    has_aux: bool,
    scalar: bool,
) -> tuple[Any, Any]:
    chosen = _arguments(wrt)
    args = tuple([inexact_numbers(a) if i in chosen else a for i, a in enumerate(args)])
    for i in chosen:
        if not 0 <= i < len(args):
            raise UserError("E0307", f"argument {i} of {len(args)} is to be differentiated", fix="argnums count from 0")
    seeds = functools.partial(_seeds, has_aux=has_aux, scalar=scalar)
    # A gradient inside another one is traced: what the outer one sees is its forward and backward part, as in `jit`.
    eager = tracing.current() is None and taping.current() is None
    if isinstance(wrt, int) or chosen:
        leaves, rebuild = _chosen_leaves(args, chosen, bare=isinstance(wrt, int))
        _check_inexact(leaves)
        if eager:
            result, grads = eager_grad.by_arguments(function, args, kwargs, chosen, seeds)
        else:
            result, grads = _symbolic(function, args, kwargs, lambda _: _positions(args, chosen), seeds)
        return result, rebuild(grads)
    tensors = _tensors(wrt)
    if eager:
        return eager_grad.by_tensors(function, args, kwargs, tensors, seeds)
    return _symbolic(function, args, kwargs, lambda traced: _captured_positions(traced, tensors), seeds)


def _symbolic(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    find: Callable[[Traced], list[int | Tensor]],
    seeds: eager_grad.Seeds,
) -> tuple[Any, list[Any]]:
    """(result, gradients) by tracing the function.

    find: the positions of the parameters to differentiate by, and tensors that the function does not read, whose
    gradients are zeros.
    """
    traced = _apply.trace(function, args, kwargs)
    n = traced.num_outputs
    flags = [*seeds(traced.fn.out_types[:n]), *[False] * (len(traced.fn.outputs) - n)]
    wanted = find(traced)
    fns = dict(traced.fns)
    joint = value_and_vjp(traced.fn, [p for p in wanted if isinstance(p, int)], fns, flags)
    module = driver.optimise(Module.of(joint, fns), "cse,dce")
    joint = module.main  # also where derivatives nest: each order would multiply its size
    fns = module.callees() if tracing.current() is None else fns
    outputs = _apply.run(traced, _apply.dynamic_leaves(args, kwargs), joint, fns)
    grads = iter(outputs[n:])
    return traced.result(outputs[:n]), [next(grads) if isinstance(p, int) else _zeros_like(p) for p in wanted]


def _check_inexact(leaves: Sequence[Any]) -> None:
    for i, leaf in enumerate(leaves):
        type = tracing.leaf_type(leaf)
        if not type.dtype.is_inexact:
            fix = "use float tensors: x.astype(td.float32)"
            raise UserError("E0305", f"number {i} of what to differentiate by is {type}", fix=fix)


def _arguments(wrt: Wrt) -> tuple[int, ...]:
    """The argument numbers that `wrt` names, none when it names tensors."""
    if isinstance(wrt, int):
        return (wrt,)
    return tuple(wrt) if isinstance(wrt, tuple) and all(isinstance(i, int) for i in wrt) else ()


def inexact_numbers(argument: Any) -> Any:
    """Python numbers of an argument that is differentiated become float32 tensors."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, int | float) and not isinstance(leaf, bool):
            return Tensor(float(leaf))
        if is_tensor(leaf):
            return leaf.strong()
        return Tensor(leaf) if type(leaf) is complex else leaf

    return tree.tree_map(convert, argument)


def _chosen_leaves(
    args: tuple[Any, ...], chosen: tuple[int, ...], bare: bool
) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The leaves of the chosen arguments, and how gradients take the arguments' shape.

    bare: the gradient of the one argument itself, not a tuple of one.
    """
    found: list[Any] = []
    shapes = []
    for i in chosen:
        leaves, shape = tree.flatten(args[i])
        for leaf in leaves:
            if not tracing.is_dynamic(leaf):
                why = f"argument {i} holds {leaf!r}, which has no gradient"
                raise UserError("E0305", why, fix="pass float tensors")
        found += leaves
        shapes.append(shape)

    def rebuild(grads: Sequence[Any]) -> Any:
        rest = iter(grads)
        parts = tuple([shape.unflatten([next(rest) for _ in range(shape.num_leaves)]) for shape in shapes])
        return parts[0] if bare else parts

    return found, rebuild


def _positions(args: tuple[Any, ...], chosen: tuple[int, ...]) -> list[int | Tensor]:
    """The positions of the chosen arguments' leaves among those of all arguments."""
    counts = [len(_apply.dynamic_leaves((a,))) for a in args]
    starts = [sum(counts[:i]) for i in range(len(args))]
    return [p for i in chosen for p in range(starts[i], starts[i] + counts[i])]


def _tensors(wrt: Any) -> list[Tensor]:
    found = list(wrt)
    for t in found:
        if not is_tensor(t):
            raise UserError("E0307", f"{t!r} is neither an argument number nor a tensor", fix="pass net.parameters()")
    _check_inexact(found)
    return found


def _captured_positions(traced: Traced, wanted: list[Tensor]) -> list[int | Tensor]:
    """Where the tensors are among the parameters of the traced function; those that it does not read, themselves."""
    place = {id(t): traced.num_args + i for i, t in enumerate(traced.captured)}
    return [place.get(id(t), t) for t in wanted]


def _zeros_like(tensor: Tensor) -> Tensor:
    return Tensor(np.zeros(tensor.shape, tensor.dtype.np))


def _seeds(types: Sequence[TensorType], has_aux: bool, scalar: bool) -> list[bool]:
    """Which results start with a cotangent of ones. Raises E0306 when a scalar loss is wanted and there is none."""
    if not scalar:
        return [t.dtype.is_inexact for t in types]
    if not types or types[0].shape != () or not types[0].dtype.is_float or (len(types) > 1 and not has_aux):
        found = ", ".join(map(str, types[:1] if has_aux else types)) or "no tensor"
        fix = "return one float: take the mean or sum of the loss" + (
            "" if has_aux else "; more results need has_aux=True"
        )
        raise UserError("E0306", f"the function to be differentiated returns {found}", fix=fix)
    return [True, *[False] * (len(types) - 1)]


def vjp(function: Callable[..., Any], *args: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """(result, pull): pull(cotangent of the result) gives the gradients of all float arguments, as a tuple.

    The cotangent has the structure of the result; integer results take None or are left out, and None for a float
    result means zeros. has_aux: the function returns (result, aux), and so (result, pull, aux) is returned. The
    function is run once; `pull` may be called any number of times, also inside another differentiation. Raises E0308
    for a cotangent that does not fit, E0306 when has_aux is given and the function returns no pair.
    """
    arguments.function(function, "what is to be differentiated")
    args = tuple([inexact_numbers(a) for a in args])
    traced = _apply.trace(function, args)
    leaves = _apply.dynamic_leaves(args)
    flags = [i < traced.num_args and t.dtype.is_inexact for i, t in enumerate(traced.fn.in_types)]
    n, m = traced.num_outputs, len(traced.fn.outputs)
    count = _main_results(traced) if has_aux else n
    live = [i < count and t.dtype.is_inexact for i, t in enumerate(traced.fn.out_types)]
    line = linearise(traced.fn, flags, live)
    outputs = _apply.run(traced, leaves, line.forward)
    results, residuals = outputs[:n], outputs[n:]
    assert len(line.forward.outputs) - m == len(residuals)

    def pull(*cotangents: Any) -> tuple[Any, ...]:
        cts = _cotangents(cotangents, traced.fn.out_types[:count], live)
        grads = iter(driver.run_fn(line.backward, traced.fns, [*residuals, *cts]))
        return tuple([tree.tree_map(lambda x: next(grads) if _has_gradient(x) else None, a) for a in args])

    if has_aux:
        result, aux = traced.result(results)
        return result, pull, aux
    return traced.result(results), pull


def _main_results(traced: Traced) -> int:
    """The number of tensors in the first part of what the function returned, which must be a pair (E0306)."""
    marks = [object() for _ in range(traced.num_outputs)]
    pair = traced.result(marks)
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise UserError("E0306", "has_aux=True, and the function returns no pair", fix="return (result, aux)")
    return sum(any(leaf is mark for mark in marks) for leaf in tree.flatten(pair[0])[0])


def _cotangents(given: tuple[Any, ...], types: Sequence[TensorType], live: Sequence[bool]) -> list[Tensor]:
    """Cotangents of the float results. Raises E0308 when they do not fit."""
    leaves = tree.flatten(given)[0]
    wanted = [t for t, is_live in zip(types, live, strict=False) if is_live]
    if len(leaves) == len(types) != len(wanted):
        leaves = [c for c, is_live in zip(leaves, live, strict=False) if is_live]
    if len(leaves) == len(wanted):
        leaves = [np.zeros(t.shape, t.dtype.np) if c is None else c for c, t in zip(leaves, wanted, strict=True)]
    cts = [c if is_tensor(c) else Tensor(c) for c in leaves]
    if [c.type for c in cts] != wanted:
        found = [str(c.type) for c in cts]
        raise UserError("E0308", f"the cotangents are {found}", fix=f"pass {[str(t) for t in wanted]}")
    return cts


def _has_gradient(leaf: Any) -> bool:
    return tracing.is_dynamic(leaf) and tracing.leaf_type(leaf).dtype.is_inexact


def stop_gradient(x: Any) -> Any:
    """x itself; its derivative is taken to be zero. Works on nested containers; integers pass through."""


    def stop(t: Any) -> Any:
        if not is_tensor(t) or not t.dtype.is_inexact:
            return t
        return ops.stop_gradient(t) if t._weak is None else numbers.compute(ops.stop_gradient, t)

    return tree.tree_map(stop, x)


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; its gradient keeps only the inputs and runs the function again (less memory, more work)."""

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        traced = _apply.trace(function, args, kwargs)
        leaves = _apply.dynamic_leaves(args, kwargs)
        outputs = _apply.region_op(ops.remat, _apply.inputs_of(traced, leaves), body=traced.fn)
        n = traced.num_outputs
        _apply.write_back(traced, leaves, outputs[n:])
        return traced.result(outputs[:n])

    return run


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function its own gradient: it returns (result, pull), where pull(cotangent) gives one gradient per
    argument.

        @td.custom_gradient
        def log1pexp(x):
            e = td.exp(x)
            return td.log(1 + e), lambda d: d * (1 - 1 / (1 + e))

    Raises E0309 when the function reads tensors that are not among its arguments: their gradient would be lost.
    """

    arguments.function(function, "what is given its own gradient")

    @functools.wraps(function, updated=())
    def run(*args: Any) -> Any:
        args = tuple([inexact_numbers(a) for a in args])
        leaves = [_apply.as_tensor(x) for x in _apply.dynamic_leaves(args)]
        body, backward, n_outputs, result = _trace_custom(function, args)
        outputs = _apply.region_op(ops.custom_vjp, leaves, body=body, backward=backward, n_outputs=n_outputs)
        return result(outputs)

    return run


def _trace_custom(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Fn, Fn, int, Callable[..., Any]]:
    """Body (operands -> results + residuals) and gradient of a function that returns (result, pull)."""
    pulled: list[Traced] = []

    def primal(*symbols: Any) -> Any:
        returned = converted(function)(*symbols)
        if not (isinstance(returned, tuple) and len(returned) == 2 and callable(returned[1])):
            raise UserError("E0310", f"{function.__name__} returned {returned!r}", fix="return (result, pull function)")
        result, pull = returned
        results = [t for t in tree.flatten(result)[0] if is_tensor(t)]
        seeds = [Tensor._of(t._value, t._trace) for t in results if t.dtype.is_inexact]
        shape = tree.flatten(symbols)[0]
        pulled.append(_apply.trace(lambda *cts: _checked(converted(pull)(*cts), shape), tuple(seeds)))
        return result, list(pulled[0].captured)

    traced = _apply.trace(primal, args)
    if traced.captured or traced.changed:
        why = f"{function.__name__} reads {len(traced.captured)} tensors that are not its arguments"
        raise UserError("E0309", why, fix="pass them as arguments")
    pull = pulled[0]
    n = traced.num_outputs - len(pull.captured)
    outs = [t for t in traced.fn.out_types[:n] if t.dtype.is_inexact]
    k = len(traced.fn.params)

    def gradient(*values: Any) -> Any:
        residuals, cts = values[k + n : k + traced.num_outputs], values[k + traced.num_outputs :]
        return build.inline(pull.fn, [*cts, *residuals])

    types = [*traced.fn.in_types, *traced.fn.out_types, *outs]
    backward = build.trace(gradient, types, f"{function.__name__}.pull", traced.fns)
    return traced.fn, backward, n, lambda outputs: traced.result([*outputs, *[None] * len(pull.captured)])[0]


def _checked(grads: Any, symbols: Sequence[Any]) -> list[Any]:
    """The gradients of the float arguments, which must have the arguments' types (E0311)."""
    given = list(grads) if isinstance(grads, tuple | list) else [grads]
    wanted = [s for s in symbols if is_tensor(s)]
    if len(given) != len(wanted):
        raise UserError("E0311", f"{len(given)} gradients for {len(wanted)} arguments", fix="return one per argument")
    for g, s in zip(given, wanted, strict=True):
        if s.dtype.is_inexact and (not is_tensor(g) or g.type != s.type):
            found = g.type if is_tensor(g) else repr(g)
            raise UserError(
                "E0311", f"the gradient of an argument {s.type} is {found}", fix="give it the argument's type"
            )
    return [g for g, s in zip(given, wanted, strict=True) if s.dtype.is_inexact]
