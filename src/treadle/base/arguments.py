"""What functions for users share: arguments of the wrong kind are refused here, with their name and value.

A value and its name go in; the value comes out, as an int, a function or a NumPy array of numbers.
"""

from __future__ import annotations

import inspect
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.base.where import is_package


def brief(value: Any) -> str:
    """A value in a message: its text if that is short, and its type."""
    if isinstance(value, types.FunctionType | type):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"a {type(value).__name__} of shape {list(value.shape)}"
    text = repr(value)
    if text.startswith("<"):  # an address says nothing
        return f"a {type(value).__name__}"
    text = text if len(text) <= 40 and "\n" not in text else text[:37].split("\n")[0] + "..."
    return "None" if value is None else f"{text} of type {type(value).__name__}"


def count(value: Any, what: str, least: int = 0, code: str = "E0103") -> int:
    """A whole number of `least` or more, as an int. Raises `code` for anything else, 2.0 and True included."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise UserError(code, f"{what} is {brief(value)}, not a whole number", fix=f"give an int of {least} or more")
    number = operator.index(value)
    if number < least:
        raise UserError(code, f"{what} is {number}", fix=f"give {least} or more")
    return number


def is_real(value: Any) -> bool:
    """A real number that is not NaN: an int, a float, or a NumPy scalar of one."""
    return isinstance(value, int | float | np.integer | np.floating) and not math.isnan(value)


def function(value: Any, what: str, code: str = "E0213") -> Callable[..., Any]:
    """Something that can be called and gives its result at once. Raises `code` for values, generators, coroutines."""
    if not callable(value):
        why = f"{what} is of type {type(value).__name__}, which cannot be called"
        raise UserError(code, why, fix="pass the function itself, not what it returned")
    kinds = {"a generator": inspect.isgeneratorfunction, "an async": inspect.iscoroutinefunction}
    for kind, test in kinds.items():
        if test(value):
            why = f"{what} is {kind} function, whose body runs later"
            raise UserError(code, why, fix="write a plain function that returns its results, as a list")
    return value  # type: ignore[no-any-return]


def array(data: Any, what: str = "the data") -> np.ndarray[Any, Any]:
    """A NumPy array of numbers. Raises E0116 for nested lists with rows of different lengths, E0102 for what holds no
    numbers."""
    try:
        made = np.asarray(data)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        why = f"{what} is a nested list whose rows have different lengths"
        raise UserError("E0116", why, fix="pad the rows to one length, or make a tensor of each") from None
    if made.dtype.kind in "OUSMm" and (made.dtype.kind == "O" or not hasattr(data, "dtype")):
        raise UserError("E0102", f"{what} is {_culprit(data)}", fix="give numbers, arrays, tensors or lists of them")
    return made


def _culprit(data: Any) -> str:
    """The part of nested lists that is no number, in words."""
    if isinstance(data, list | tuple):
        bad = next((d for d in data if isinstance(d, list | tuple) or not isinstance(d, int | float | complex)), data)
        if bad is not data:
            found = _culprit(bad)
            return found if found.startswith("a list with ") else f"a list with {found}"
    return f"{brief(data)}, which holds no numbers"


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """function(*args, **kwargs). Raises E0218 when it takes other arguments."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        check_call(error, getattr(function, "__name__", type(function).__name__), function)
        raise


def check_call(error: TypeError, name: str, target: Callable[..., Any]) -> None:
    """Raise E0218 when the error says that `target` was called with the wrong arguments: the call itself raised it, in
    a line of the package, with the name of the target."""
    trace, named = error.__traceback__, f"{getattr(target, '__qualname__', '?')}()"
    while trace is not None and is_package(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    if trace is not None or not str(error).startswith(named):
        return
    try:
        bare = inspect.Parameter.empty
        found = inspect.signature(target)
        parameters = [p.replace(annotation=bare) for p in found.parameters.values()]
        wanted = str(found.replace(parameters=parameters, return_annotation=bare))
    except (TypeError, ValueError):  # some functions of C have none
        wanted = "(...)"
    raise UserError("E0218", f"{name} is called with wrong arguments: {error}", fix=f"call {name}{wanted}") from None
