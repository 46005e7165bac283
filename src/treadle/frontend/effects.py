"""Side effects of a function that later calls of its compiled program would not repeat: found and refused.

Writing into tensors is kept in the program. Writing tensors anywhere else (a list, a dict, a global, an object) happens
only while the function is traced; `guarded` and `refuse_left_behind` say so, with the user's line.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Sequence
from typing import Any

from treadle.base.errors import UserError
from treadle.base.where import UNKNOWN, Where
from treadle.frontend import tree
from treadle.frontend.pysrc import grown
from treadle.frontend.pysrc.aliases import unchanged_in_place
from treadle.frontend.pysrc.builtin import Text
from treadle.frontend.pysrc.convert import noted
from treadle.frontend.pysrc.state import Unbound, boxed, is_object
from treadle.frontend.trace import is_symbolic, is_tensor
from treadle.ir.node import Value


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which must leave the containers among its arguments as they are (E0216)."""

    def run(*args: Any, **kwargs: Any) -> Any:
        before, shape = tree.flatten((args, kwargs))
        noted.calls = {}
        try:
            with unchanged_in_place():
                result = function(*args, **kwargs)
        finally:
            grown.forget()
        after, new_shape = tree.flatten((args, kwargs))
        if new_shape != shape or any(a is not b for a, b in zip(before, after, strict=True)):
            _refuse_container(before, shape, after, new_shape)
        return _shown(result)

    functools.update_wrapper(run, function, updated=())
    run.__name__ = getattr(function, "__name__", type(function).__name__)
    return run


def _shown(result: Any) -> Any:
    """The result, with objects that hold traced tensors as containers. Raises E0243 for a text that shows one."""
    leaves, _ = tree.flatten(result)
    for leaf in leaves:
        if isinstance(leaf, Text):
            str(leaf)
        if isinstance(leaf, Unbound):
            leaf.refuse()
    if not any(map(is_object, leaves)):
        return result
    inside, _ = tree.flatten(made := boxed(result))
    return made if any(is_tensor(x) and is_symbolic(x) for x in inside) else result


def _refuse_container(before: Sequence[Any], shape: tree.TreeDef, after: Sequence[Any], new: tree.TreeDef) -> None:
    if new == shape:
        path = next(p for p, a, b in zip(shape.paths(), before, after, strict=True) if a is not b)
    else:
        path = next(iter([*(set(new.paths()) ^ set(shape.paths())), *shape.paths()]))
    why = f"a compiled function writes into a container that it was given, at {tree.argument_name(path)}"
    fix = "return the new value, or write into the tensor that is there: x.assign(...), x[i] = ..."
    changed = [a for a in after if all(a is not b for b in before)]
    raise UserError("E0216", why, fix=fix, where=next(filter(None, map(_origin, changed)), None))


def _origin(leaf: Any) -> Where | None:
    """The line that computed a traced tensor, where it is known."""
    value = getattr(leaf, "_value", None)
    node = value.node if isinstance(value, Value) else None
    return None if node is None or node.where is UNKNOWN else node.where


def refuse_left_behind(made: Sequence[Callable[[], Any]], name: str) -> None:
    """Raise E0217 if a tensor that was made while tracing (given by weak references) is still held by somebody."""
    if not any(ref() is not None for ref in made):
        return
    gc.collect()  # some live in cycles only
    left = [tensor for ref in made if (tensor := ref()) is not None]
    if not left:
        return
    # The collector lists holders in any order; a variable may only lead to the container that counts.
    places = {_place(holder) for holder in gc.get_referrers(left[0]) if holder is not left} - {""}
    place = min(places, key=lambda p: (p == _VARIABLE, p), default="somewhere")
    why = f"{name} leaves a tensor behind in {place}: later calls of the compiled program would not"
    fix = "return it, or keep it in a tensor that is there before: x.assign(value)"
    raise UserError("E0217", why, fix=fix, where=_origin(left[0]))


_VARIABLE = "a variable of an outer function"


def _place(holder: Any) -> str:
    """In words what holds a tensor, "" for our own frames."""
    if isinstance(holder, types.FrameType):
        return ""
    if isinstance(holder, types.CellType):
        return _VARIABLE
    if not isinstance(holder, dict):
        return f"a {type(holder).__name__}"
    if "__name__" in holder and "__builtins__" in holder:
        return f"a global variable of {holder['__name__']}"
    owner = next((o for o in gc.get_referrers(holder) if getattr(o, "__dict__", None) is holder), None)
    return "a dict" if owner is None else f"an attribute of a {type(owner).__name__}"
