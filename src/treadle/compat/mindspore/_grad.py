"""Gradients and compilation: `grad`, `value_and_grad`, `GradOperation`, `jit`; functions in, functions out.

In GRAPH_MODE a gradient that is called outside a compiled function is compiled as a whole.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.api import context, gradients
from treadle.api.programs import Jitted
from treadle.api.programs import jit as compile_function
from treadle.base.errors import UserError
from treadle.compat.mindspore._missing import not_covered
from treadle.compat.mindspore._tensor import Tensor, tag
from treadle.frontend import functions as fn
from treadle.frontend import tensor as base
from treadle.frontend import trace as tracing
from treadle.nn.cell import Parameter

Function = Callable[..., Any]
_MOST_KEPT = 8  # gradient functions that one GradOperation remembers


def _run(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function's results, tagged. While tracing it is called as a jitted one is: as a part of the trace, its
    decisions on tensors included."""
    tag(args), tag(kwargs)
    inside = tracing.current() is not None and isinstance(function, types.FunctionType | types.MethodType)
    return tag((compile_function(function) if inside else function)(*args, **kwargs))


class _Tagging:
    """A function whose arguments have MindSpore's methods while it runs. `function` is what recompiling watches."""

    def __init__(self, function: Function) -> None:
        self.target = function
        self.function = (
            getattr(function, "function", function) if isinstance(function, types.FunctionType) else function
        )
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self.target, args, kwargs)


class Compiled:
    """A function that runs as one compiled program; also as a method."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._run: Jitted = compile_function(_Tagging(function), name=getattr(function, "__qualname__", "function"))
        self._bound: weakref.WeakKeyDictionary[Any, Compiled] = weakref.WeakKeyDictionary()
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return tag(self._run(*args, **kwargs))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if instance not in self._bound:
            self._bound[instance] = Compiled(types.MethodType(self.function, instance))
        return self._bound[instance]


def jit(function: Function | None = None, **options: Any) -> Any:
    """Compile a function or method: @jit, @jit(...) or jit(function). Options of the other compiler change nothing.

    A cell is returned as it is in GRAPH_MODE's way: compiled when called.
    """
    function = options.pop("fn", function)
    if function is None:
        return lambda f: jit(f, **options)
    if not callable(function):
        raise UserError("E0213", f"a {type(function).__name__} cannot be compiled", fix="pass a function or Cell")
    return Compiled(function)


def jit_class(cls: type) -> type:
    """The class itself: its objects are simply run while a function is compiled."""
    return cls


def _compiled_in_graph_mode(run: Function) -> Function:
    """`run`, compiled in GRAPH_MODE unless it is called inside a compiled function."""
    compiled: list[Compiled] = []

    @functools.wraps(run, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if not context.is_graph() or tracing.current() is not None:
            return run(*args, **kwargs)
        if not compiled:
            compiled.append(Compiled(run))
        return compiled[0](*args, **kwargs)

    return call


def _as_tensor(value: Any) -> Any:
    return Tensor(value) if isinstance(value, int | float | np.ndarray) and not isinstance(value, bool) else value


def _float_leaves(result: Any) -> list[Any]:
    if isinstance(result, base.Tensor):
        return [result] if result.dtype.is_inexact else []
    return [t for part in result for t in _float_leaves(part)] if isinstance(result, tuple | list) else []


def _objective(result: Any, sens: Any) -> Any:
    """The number whose gradients are wanted: the sum of all results, each times its sensitivity."""
    leaves = _float_leaves(result)
    if not leaves:
        raise UserError("E0306", "the function to be differentiated returns no float tensor", fix="return the loss")
    weights = [1.0] * len(leaves) if sens is None else _float_leaves(sens if isinstance(sens, tuple) else (sens,))
    if len(weights) != len(leaves):
        why = f"{len(weights)} sensitivities for {len(leaves)} results"
        raise UserError("E0594", why, fix="give a tuple with one for each result")
    total: Any = 0.0
    for leaf, weight in zip(leaves, weights, strict=True):
        part = leaf if sens is None else leaf * fn.stop_gradient(weight)
        total = total + (part if part.ndim == 0 else fn.sum(part))
    return total


def _differentiated(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[Any], has_aux: bool, sens: Any
) -> tuple[Any, list[Any]]:
    """(all results, gradients by the tensors `wrt`); has_aux: only the first result counts."""

    def objective() -> tuple[Any, Any]:
        result = _run(function, args, kwargs)
        first = result[0] if has_aux and isinstance(result, tuple) else result
        return _objective(first, sens), result

    (_, result), grads = gradients.value_and_grad(objective, wrt, has_aux=True)()
    return tag(result), tag(list(grads))


def _positions(grad_position: Any, count: int) -> tuple[int, ...]:
    places = () if grad_position is None else grad_position if isinstance(grad_position, tuple) else (grad_position,)
    if wrong := [p for p in places if not isinstance(p, int) or not 0 <= p < count]:
        raise UserError("E0307", f"grad_position {wrong[0]!r} of {count} arguments", fix="positions count from 0")
    return places


def _weights(weights: Any) -> list[Any]:
    found = [] if weights is None else [weights] if isinstance(weights, Parameter) else list(weights)
    if wrong := [w for w in found if not isinstance(w, Parameter)]:
        why = f"a weight is a {type(wrong[0]).__name__}"
        raise UserError("E0307", why, fix="pass optimizer.parameters or net.trainable_params()")
    return found


def _both(
    function: Function, grad_position: Any, weights: Any, has_aux: bool, return_ids: bool, pick: Function
) -> Function:
    if not callable(function):
        raise UserError("E0213", f"a {type(function).__name__} cannot be differentiated", fix="pass a function or Cell")
    chosen = _weights(weights)
    if grad_position is None and weights is None:
        raise UserError("E0307", "grad_position and weights are both None", fix="give one of them")

    def run(*args: Any, **kwargs: Any) -> Any:
        places = _positions(grad_position, len(args))
        args = tuple([_as_tensor(a) if i in places else a for i, a in enumerate(args)])
        inputs = [args[i] for i in places]
        if any(not isinstance(a, base.Tensor) for a in inputs):
            raise UserError("E0305", "an argument to differentiate by is no tensor", fix="pass a float Tensor")
        result, grads = _differentiated(function, args, kwargs, [*inputs, *chosen], has_aux, None)
        if return_ids:
            names = [*places, *[w.name for w in chosen]]
            grads = list(zip(names, grads, strict=True))
        n = len(inputs)
        of_inputs = grads[0] if isinstance(grad_position, int) else tuple(grads[:n])
        of_weights = grads[n] if isinstance(weights, Parameter) else tuple(grads[n:])
        found = of_weights if grad_position is None else of_inputs if weights is None else (of_inputs, of_weights)
        return pick(result, found)

    functools.update_wrapper(run, function, updated=())
    run.function = function  # type: ignore[attr-defined]
    return _compiled_in_graph_mode(run)


def value_and_grad(
    fn: Function, grad_position: Any = 0, weights: Any = None, has_aux: bool = False, return_ids: bool = False
) -> Function:
    """A function that gives (results, gradients) of fn, by arguments (an int or a tuple), by weights, or by both.

    Gradients: of one position a tensor, of several a tuple; of weights a tuple in their order; of both a pair of these.
    has_aux: only the first result is differentiated. A result that is no scalar counts as its sum. return_ids: pairs
    (position or name, gradient) for `get_grad`.
    """
    return _both(fn, grad_position, weights, has_aux, return_ids, lambda result, grads: (result, grads))


def grad(
    fn: Function, grad_position: Any = 0, weights: Any = None, has_aux: bool = False, return_ids: bool = False
) -> Function:
    """As `value_and_grad`, the gradients only; with has_aux (gradients, the tuple of the other results)."""
    return _both(fn, grad_position, weights, has_aux, return_ids, _gradients_and_aux if has_aux else _gradients)


def _gradients(result: Any, grads: Any) -> Any:
    return grads


def _gradients_and_aux(result: Any, grads: Any) -> Any:
    return grads, tuple(result[1:])


def get_grad(gradients: Any, identifier: Any) -> Any:
    """The gradient of a position or parameter name among those made with return_ids=True. Raises E0594."""
    wanted = identifier.name if isinstance(identifier, Parameter) else identifier
    pending = [gradients]
    while pending:
        item = pending.pop()
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], int | str):
            if item[0] == wanted:
                return item[1]
        elif isinstance(item, tuple | list):
            pending += item
    raise UserError("E0594", f"there is no gradient of {wanted!r}", fix="use a position or name that was asked for")


class GradOperation:
    """GradOperation(get_all, get_by_list, sens_param)(net, weights) is a function that gives gradients.

    By the first argument; get_all: by all tensor arguments, a tuple; get_by_list: by `weights` (all trainable ones of
    the cell unless given), a tuple; both: a pair of tuples. sens_param: the last argument is the sensitivity of the
    result, ones otherwise.
    """

    def __init__(self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False) -> None:
        if not all(isinstance(flag, bool) for flag in (get_all, get_by_list, sens_param)):
            raise UserError("E0594", "an option of GradOperation is no bool", fix="use True or False")
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param
        self._made: dict[Any, Any] = {}

    def __call__(self, function: Any, weights: Any = None) -> Function:
        """The gradient function; the same one for the same arguments, so that it is compiled once."""
        key = (id(function), tuple(map(id, _weights(weights))))
        if key not in self._made:
            while len(self._made) >= _MOST_KEPT:
                del self._made[next(iter(self._made))]
            self._made[key] = function, self._make(function, weights)
        made: Function = self._made[key][1]
        return made

    def _make(self, function: Any, weights: Any) -> Function:
        if self.get_by_list and weights is None:
            if not hasattr(function, "trainable_params"):
                raise UserError(
                    "E0594", "get_by_list without weights", fix="pass ParameterTuple(net.trainable_params())"
                )
            weights = function.trainable_params()
        chosen = _weights(weights) if self.get_by_list else []

        def run(*args: Any, **kwargs: Any) -> Any:
            sens = args[-1] if self.sens_param else None
            args = tuple([_as_tensor(a) for a in (args[:-1] if self.sens_param else args)])
            floats = [a for a in args if isinstance(a, base.Tensor) and a.dtype.is_inexact]
            inputs = floats if self.get_all else [] if self.get_by_list else floats[:1]
            if not inputs and not chosen:
                raise UserError("E0305", "no argument is a float tensor", fix="pass one to differentiate by")
            _, grads = _differentiated(function, args, kwargs, [*inputs, *chosen], False, sens)
            n = len(inputs)
            if self.get_by_list:
                return (tuple(grads[:n]), tuple(grads[n:])) if self.get_all else tuple(grads)
            return tuple(grads) if self.get_all else grads[0]

        run.function = function  # type: ignore[attr-defined]  # what recompiling watches
        return _compiled_in_graph_mode(run)


def vjp(fn: Function, *inputs: Any, weights: Any = None, has_aux: bool = False) -> tuple[Any, Function]:
    """(result, pull): pull(cotangent) gives the gradients of the inputs, a tuple."""
    if weights is not None or has_aux:
        not_covered("vjp with weights or has_aux", "use value_and_grad")
    result, pull = gradients.vjp(_Tagging(fn), *inputs)
    return tag(result), lambda *sens: tag(pull(*sens))


def jvp(fn: Function, inputs: Any, v: Any, has_aux: bool = False) -> Any:
    """(result, its change along v): inputs and v are tensors or tuples of tensors."""
    from treadle.api.forward import jvp as base_jvp

    if has_aux:
        not_covered("jvp with has_aux", "return the result alone")
    xs, vs = (inputs if isinstance(inputs, tuple) else (inputs,)), (v if isinstance(v, tuple) else (v,))
    return tag(base_jvp(_Tagging(fn), xs, vs))


def jacrev(fn: Function, grad_position: int = 0, has_aux: bool = False) -> Function:
    """The Jacobian by one argument, in reverse mode."""
    from treadle.api.forward import jacrev as base_jacrev

    if has_aux or not isinstance(grad_position, int):
        not_covered("jacrev with has_aux or several positions", "use one position")
    made = base_jacrev(_Tagging(fn), grad_position)
    return lambda *args: tag(made(*args))


def vmap(fn: Function, in_axes: Any = 0, out_axes: Any = 0) -> Function:
    """fn over an axis of its arguments at once."""
    from treadle.api.batching import vmap as base_vmap

    made = base_vmap(_Tagging(fn), in_axes, out_axes)
    return lambda *args: tag(made(*args))


def stop_gradient(value: Any) -> Any:
    """The same value, which gradients do not pass."""
    return tag(fn.stop_gradient(value))


def recompute(block: Function, *args: Any, **kwargs: Any) -> Any:
    """block(*args), whose inner values are computed again for the gradient instead of kept."""
    return tag(gradients.checkpoint(_Tagging(block))(*args, **kwargs))


def tensors_of(values: Sequence[Any]) -> list[Any]:
    """The tensors among values."""
    return [v for v in values if isinstance(v, base.Tensor)]
