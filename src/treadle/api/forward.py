"""Forward-mode differentiation of Python functions: `jvp` and `jacfwd`; and Jacobians by either mode.

A Jacobian is one product of tangents (`jacfwd`: as many as the argument has elements) or of cotangents (`jacrev`: as
many as the result has) with each vector of a basis, all in one program by `vmap`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import driver
from treadle.api import _apply
from treadle.api.batching import vmap
from treadle.api.gradients import inexact_numbers, vjp
from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.tensor import Tensor
from treadle.ir.node import Module
from treadle.transforms import jvp as forward


def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """(function(*primals), its directional derivative along `tangents`), in one forward run.

    tangents: one per argument, of its structure, shapes and dtypes; None for an argument that is not differentiated.
    Integer results have the tangent None. Tensors that the function reads from outside count as constants. Raises E0318
    when tangents do not fit.
    """
    pairs = list(zip(_both(primals, tangents), tangents, strict=True))
    args = tuple([p if t is None else inexact_numbers(p) for p, t in pairs])
    traced = _apply.trace(function, args)
    wrt, moving = _match(args, tangents)
    fns = dict(traced.fns)
    module = driver.optimise(Module.of(forward.jvp(traced.fn, wrt, fns), fns), "cse,dce")
    fn = module.main  # made small here too where derivatives nest: each order would make it four times as large
    fns = module.callees() if tracing.current() is None else fns
    leaves = _apply.dynamic_leaves(args)
    outputs = driver.run_fn(fn, fns, [*_apply.inputs_of(traced, leaves), *moving])
    n, m = traced.num_outputs, len(traced.fn.outputs)
    _apply.write_back(traced, leaves, outputs[n:m])
    pushed = iter(outputs[m:])
    moved = [next(pushed) if t.dtype.is_inexact else None for t in traced.fn.out_types[:n]]
    return traced.result(outputs[:n]), traced.result(moved)


def _both(primals: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise UserError(
                "E0318", f"{name} is {type(given).__name__}", fix="pass a tuple with one entry per argument"
            )
    if len(primals) != len(tangents):
        why = f"{len(tangents)} tangents for {len(primals)} arguments"
        raise UserError("E0318", why, fix="pass one per argument, None for a constant")
    return primals


def _match(args: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[int], list[Tensor]]:
    """Positions of the parameters that have a tangent, and the tangents."""
    wrt: list[int] = []
    moving: list[Tensor] = []
    start = 0
    for number, (arg, tangent) in enumerate(zip(args, tangents, strict=True)):
        leaves = _apply.dynamic_leaves((arg,))
        if tangent is not None:
            given = [_apply.as_tensor(t) for t in tree.flatten(inexact_numbers(tangent))[0]]
            wanted = [tracing.leaf_type(x) for x in leaves]
            if [t.type for t in given] != wanted or any(not t.dtype.is_inexact for t in wanted):
                why = f"argument {number} is {_text(wanted)}, its tangent {_text([t.type for t in given])}"
                raise UserError("E0318", why, fix="give the tangent the type of its float argument, or None")
            wrt += range(start, start + len(leaves))
            moving += given
        start += len(leaves)
    return wrt, moving


def _text(types: Sequence[Any]) -> str:
    return ", ".join(map(str, types)) or "no tensor"


def jacfwd(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The Jacobian of `function` with respect to one real tensor argument, by forward mode: [*result, *argument].

    Best where the argument has fewer elements than the result. Raises E0319 for anything but one real tensor in and
    one out.
    """

    arguments.function(function, "what is to be differentiated")

    @functools.wraps(function, updated=())
    def jacobian(*args: Any) -> Any:
        x, of_x = _alone(function, args, argnums)

        def column(tangent: Any) -> Any:
            _one_result(result := jvp(of_x, (x,), (tangent,))[1])
            return result

        columns = vmap(column, out_axes=-1)(_basis(x))
        return columns.reshape(*columns.shape[:-1], *x.shape)

    return jacobian


def jacrev(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The Jacobian of `function` with respect to one real tensor argument, by reverse mode: [*result, *argument].

    Best where the result has fewer elements than the argument. Raises E0319 for anything but one real tensor in and
    one out.
    """

    arguments.function(function, "what is to be differentiated")

    @functools.wraps(function, updated=())
    def jacobian(*args: Any) -> Any:
        x, of_x = _alone(function, args, argnums)
        result, pull = vjp(of_x, x)
        _one_result(result)
        rows = vmap(lambda cotangent: pull(cotangent)[0])(_basis(result))
        return rows.reshape(*result.shape, *x.shape)

    return jacobian


def hessian(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """Second derivatives of `function` with respect to one real tensor argument: [*result, *argument, *argument]."""
    return jacfwd(jacrev(function, argnums), argnums)


def _alone(function: Callable[..., Any], args: tuple[Any, ...], argnums: int) -> tuple[Tensor, Callable[[Any], Any]]:
    """The argument to differentiate by, and the function of it alone."""
    if not isinstance(argnums, int) or not 0 <= argnums < len(args):
        raise UserError(
            "E0307", f"argument {argnums!r} of {len(args)} is to be differentiated", fix="argnums count from 0"
        )
    x = inexact_numbers(args[argnums])
    x = Tensor(x) if isinstance(x, np.ndarray | np.generic) else x
    if not (tracing.is_tensor(x) and x.dtype.is_float):
        found = x.type if tracing.is_tensor(x) else type(x).__name__
        raise UserError("E0319", f"argument {argnums} is {found}", fix="differentiate by one real float tensor")
    return x, lambda value: arguments.call(function, (*args[:argnums], value, *args[argnums + 1 :]), {})


def _one_result(result: Any) -> None:
    if not (tracing.is_tensor(result) and result.dtype.is_float):
        found = result.type if tracing.is_tensor(result) else type(result).__name__
        raise UserError("E0319", f"the function returns {found}", fix="return one real float tensor")


def _basis(like: Tensor) -> Tensor:
    """The unit vectors of the shape of a tensor: [elements, *shape]."""
    size = int(np.prod(like.shape))
    return Tensor(np.eye(size).reshape(size, *like.shape).astype(like.dtype.np))
