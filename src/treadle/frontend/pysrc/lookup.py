"""`a[i]`, `a[i] = v`, `a[i] += v`, `i in a` and `a.get(i)` where a tensor of the trace says the place in a list, tuple
or dict.

The program then chooses among the elements that are there: the places are compared when it runs, and a place that is
not there raises what Python raises. All else is done by Python, and by `__getitem__` and the like of the user.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.pysrc import builtin, state
from treadle.frontend.pysrc.builtin import is_symbolic
from treadle.frontend.pysrc.convert import own_method
from treadle.frontend.trace import is_tensor

_SEQUENCES = (list, tuple, deque, range, str, bytes)
_DICTS = (dict, OrderedDict)
_NUMBERS = (bool, int, float)
_MOST = 256  # elements that a program chooses among
_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv, "Mod": operator.imod, "Pow": operator.ipow, "LShift": operator.ilshift,
    "RShift": operator.irshift, "BitOr": operator.ior, "BitXor": operator.ixor, "BitAnd": operator.iand,
    "MatMult": operator.imatmul,
}  # fmt: skip


def item(container: Any, place: Any) -> Any:
    """`container[place]`."""
    if tracing.current() is None or is_tensor(container):
        return container[place]
    own = own_method(container, "__getitem__")
    if own is not None:
        return _called(own, container, place)
    if is_symbolic(place):
        if isinstance(container, _SEQUENCES):
            return _chosen(list(container), _position(container, place))
        if isinstance(container, dict):
            return _of_dict(container, place)
    return container[place]


def put(value: Any, container: Any, place: Any) -> None:
    """`container[place] = value`."""
    if tracing.current() is None or is_tensor(container):
        container[place] = value
    elif (own := own_method(container, "__setitem__")) is not None:
        _called(own, container, place, value)
    elif is_symbolic(place) and type(container) in (list, deque):
        assigned = "assignment " if type(container) is list else ""
        _put_each(container, range(len(container)), _position(container, place, assigned), value)
    elif is_symbolic(place) and _is_number(place) and isinstance(container, dict):
        why = f"a {type(container).__name__} gets a value under a key that a tensor tells"
        raise UserError("E0241", why, fix="d[int(n)] += v for keys that are there; a list; or x = x.at[i].set(v)")
    else:
        container[place] = value


def augment(container: Any, place: Any, name: str, value: Callable[[], Any]) -> None:
    """`container[place] += value()`, or another operator. A tensor in a list is changed itself, as it may have other
    names. The element is there: reading it has made sure of that."""
    inside = type(container) in _DICTS if is_symbolic(place) and _is_number(place) else False
    if tracing.current() is None or not (inside or (is_symbolic(place) and type(container) in (list, deque))):
        put(_IN_PLACE[name](item(container, place), value()), container, place)
        return
    keys: Any = _number_keys(container) if inside else range(len(container))
    position = _found(container, keys, place) if inside else _position(container, place)
    given = value()
    for i, key in enumerate(keys):
        _augment_where(position == i, container, key, lambda old: _IN_PLACE[name](old, given))


def _augment_where(test: Any, container: Any, key: Any, change: Callable[[Any], Any]) -> None:
    from treadle.frontend.pysrc import runtime

    old = container[key]
    if is_tensor(old) and not _is_number(old):
        nothing = runtime.State((), (), (), lambda _: None)
        runtime.if_(test, lambda: change(old), lambda: None, nothing)
    else:
        container[key] = runtime.if_expression(test, lambda: change(old), lambda: old)


def contains(container: Any, value: Any) -> Any:
    """`value in container`: a bool, or one of the trace."""
    from treadle.frontend.pysrc import runtime

    if tracing.current() is None or is_tensor(container):
        return value in container
    own = own_method(container, "__contains__")
    if own is not None:
        return builtin.REPLACED[bool](_called(own, container, value))
    if is_symbolic(value) and type(container) is range:
        inside = runtime.and_(value >= min(container, default=0), lambda: value <= max(container, default=-1))
        return runtime.and_(inside, lambda: (value - container.start) % container.step == 0)
    if is_symbolic(value) and _is_number(value) and isinstance(container, set | frozenset | dict):
        return builtin.REPLACED[any](value == key for key in container if type(key) in _NUMBERS)
    if not isinstance(container, list | tuple | deque) or not (is_symbolic(value) or any(map(is_symbolic, container))):
        return value in container
    found: Any = False
    for each in container:
        found = runtime.or_(found, lambda each=each: True if each is value else each == value)  # type: ignore[misc]
    return found


def of_dict(owner: dict[Any, Any], name: str) -> Callable[..., Any] | None:
    """`owner.get` for keys that a tensor tells; None for other methods."""
    from treadle.frontend.pysrc import runtime

    def get(key: Any, default: Any = None) -> Any:
        if not (is_symbolic(key) and _is_number(key) and type(owner) in _DICTS):
            return owner.get(key, default)
        keys = _number_keys(owner)
        if not keys:
            return default
        values = [owner[k] for k in keys]
        return runtime.if_expression(
            contains(owner, key), lambda: _chosen(values, _place_in(keys, key)), lambda: default
        )

    return get if name == "get" else None


def _called(function: types.FunctionType, *args: Any) -> Any:
    from treadle.frontend.pysrc import runtime

    return runtime.callee(function)(*args)


def _is_number(x: Any) -> bool:
    """Whether it is a Python number in eager mode: int(x), not x."""
    return getattr(x, "_weak", None) is not None


def _refuse_trial() -> None:
    """A loop of known length is not rolled over a choice in each trip: Python knows the place in each."""
    if builtin.on_trial():
        raise builtin.NotRepeatableError("an element at a place that a tensor tells")


def _position(container: Any, place: Any, assigned: str = "") -> Any:
    """The place from 0 on, as a number of the trace that is checked when the program runs."""
    from treadle.frontend.pysrc import runtime

    _refuse_trial()
    kind = "string" if isinstance(container, str) else type(container).__name__
    count = len(container)
    whole = place.dtype.is_integer or (_is_number(place) and place.dtype.kind == "b")
    if not whole or place.size != 1:
        container[place._weak(0) if _is_number(place) else place]  # raises what Python raises
    if count > _MOST:
        why = f"an element of a {kind} of {count} elements is taken at a place that a tensor tells"
        raise UserError("E0249", why, fix=f"stack them to one tensor and index that; up to {_MOST} may be in a {kind}")
    number = builtin.REPLACED[int](place)
    message = f"{kind} {assigned}index out of range" if kind != "range" else "range object index out of range"
    runtime.hooks.check(runtime.and_(number >= -count, lambda: number < count), lambda: IndexError(message))
    return runtime.if_expression(number < 0, lambda: number + count, lambda: number)


def _chosen(elements: list[Any], position: Any) -> Any:
    """The element at a position of the trace; a table where all are plain numbers of one kind."""
    from treadle.frontend.pysrc import runtime

    kinds = {type(e) for e in elements}
    if len(elements) > 2 and len(kinds) == 1 and kinds <= set(_NUMBERS):
        return runtime.hooks.entry(elements, position)

    def between(low: int, high: int) -> Any:
        middle = (low + high) // 2
        if high - low == 1:
            return elements[low]
        return runtime.if_expression(position < middle, lambda: between(low, middle), lambda: between(middle, high))

    chosen = between(0, len(elements))
    state.copies(chosen, elements, "the element")
    return chosen


def _put_each(container: Any, keys: Any, position: Any, value: Any) -> None:
    from treadle.frontend.pysrc import runtime

    for i, key in enumerate(keys):
        old = container[key]
        container[key] = runtime.if_expression(position == i, lambda: value, lambda old=old: old)  # type: ignore[misc]


def _number_keys(container: dict[Any, Any]) -> list[Any]:
    return [k for k in container if type(k) in _NUMBERS]


def _place_in(keys: list[Any], key: Any) -> Any:
    """How many keys come before the one that is equal."""
    found: Any = 0
    for i, each in enumerate(keys):
        found = found + (key == each) * i
    return found


def _of_dict(container: dict[Any, Any], key: Any) -> Any:
    if not _is_number(key):
        if any(k is key for k in container):
            return container[key]
        why = f"a {type(container).__name__} is looked up by a tensor {key.type}, which is no key of it"
        raise UserError("E0249", why, fix="look it up by a number, d[int(n)]; a tensor is a key of its own")
    _refuse_trial()
    keys = _number_keys(container)
    if type(container) not in _DICTS or len(keys) > _MOST:
        why = f"a {type(container).__name__} of {len(container)} elements is looked up by a number that a tensor tells"
        raise UserError("E0249", why, fix=f"use a dict of up to {_MOST} elements, or a tensor and an index into it")
    return _chosen([container[k] for k in keys], _found(container, keys, key))


def _found(container: dict[Any, Any], keys: list[Any], key: Any) -> Any:
    """The place of a key of the trace, which is checked to be there when the program runs."""
    from treadle.frontend.pysrc import runtime

    runtime.hooks.check(contains(container, key), lambda: KeyError(key))
    return _place_in(keys, key)
