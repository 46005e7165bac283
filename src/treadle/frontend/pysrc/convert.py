"""`converted(function)`: the function with its control flow handed to the runtime, or itself where that cannot be.

Functions of the user and of installed packages are rewritten (once for each code object) when they are called in a
trace; those of Treadle, of the standard library and of array libraries are called as they are, as is code without
source. The new function has the old one's globals, defaults, closure cells and line numbers.
"""

from __future__ import annotations

import ast
import functools
import sys
import threading
import types
from pathlib import Path
from typing import Any

from treadle.base.where import is_hidden
from treadle.frontend.pysrc import source
from treadle.frontend.pysrc.rewrite import rewritten
from treadle.frontend.trace import is_tensor

_codes: dict[int, tuple[types.CodeType, types.CodeType | None]] = {}
_written: dict[int, types.CodeType] = {}  # held, so that their ids are not given away


class _Noted(threading.local):
    calls: dict[str, str]

    def __init__(self) -> None:
        self.calls = {}


noted = _Noted()  # the functions called in the running or last trace, with what was done with each


def note(function: Any, made: Any) -> None:
    """Remember a call for `td.explain`."""
    inner = getattr(function, "__func__", getattr(function, "func", function))
    code = getattr(inner, "__code__", None)
    if code is None or is_hidden(code.co_filename):
        return
    name = f"{inner.__qualname__} ({Path(code.co_filename).name}:{code.co_firstlineno})"
    if is_converted(made) or made is not function:
        noted.calls[name] = "compiled"
    elif not _is_users(inner):
        noted.calls[name] = f"run by Python: a library, {inner.__module__}"
    elif source.find(inner) is None:
        noted.calls[name] = "run by Python: its source cannot be found"
    else:
        noted.calls[name] = "run by Python: a coroutine"


def source_of(function: Any) -> str:
    """The text of the rewritten function, "" where it is not rewritten."""
    inner = getattr(function, "__func__", function)
    inner = inner if isinstance(inner, types.FunctionType) else getattr(type(function), "__call__", None)  # noqa: B004
    if not isinstance(inner, types.FunctionType) or not _is_users(inner):
        return ""
    node = source.find(inner)
    if node is None or isinstance(node, ast.AsyncFunctionDef):
        return ""
    return ast.unparse(ast.fix_missing_locations(rewritten(node, source.class_of(inner.__qualname__))))


def converted(function: Any) -> Any:
    """What to call instead of `function`: functions, methods, partials, classes and objects that are called."""
    if isinstance(function, types.FunctionType):
        return _function(function)
    if isinstance(function, types.MethodType):
        inner = converted(function.__func__)
        return function if inner is function.__func__ else types.MethodType(inner, function.__self__)
    if isinstance(function, functools.partial):
        inner = converted(function.func)
        return function if inner is function.func else functools.partial(inner, *function.args, **function.keywords)
    if isinstance(function, type):
        return _class(function)
    call = getattr(type(function), "__call__", None)  # noqa: B004
    if isinstance(call, types.FunctionType) and not is_tensor(function):
        inner = _function(call)
        return function if inner is call else types.MethodType(inner, function)
    return function


def own_method(owner: Any, name: str) -> types.FunctionType | None:
    """The method of this name of an object's class where the user has written it, to be called rewritten; else None."""
    found = getattr(type(owner), name, None)
    if not isinstance(found, types.FunctionType):
        return None
    return found if is_converted(found) or _function(found) is not found else None


def is_converted(function: Any) -> bool:
    """Whether a function is the result of rewriting."""
    return id(getattr(function, "__code__", None)) in _written


def _class(kind: type) -> Any:
    """A class of the user whose `__init__` is rewritten; one made in another way is called as it is."""
    made = vars(kind).get("__init__", getattr(kind, "__init__", None))
    plain = type(kind).__call__ is type.__call__ and getattr(kind, "__new__", None) is object.__new__
    if not plain or not isinstance(made, types.FunctionType) or not _is_users(made):
        return kind
    inner = _function(made)

    def create(*args: Any, **kwargs: Any) -> Any:
        instance: Any = object.__new__(kind)
        inner(instance, *args, **kwargs)
        return instance

    return kind if inner is made else create


def _function(function: types.FunctionType) -> types.FunctionType:
    code = function.__code__
    if id(code) in _written:
        return function
    if not _is_users(function):
        return function
    known = _codes.get(id(code))
    if known is None:
        known = _codes[id(code)] = (code, _new_code(function))
    new = known[1]
    if new is None:
        return function
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple([cells[n] if n != "_td_" else _runtime_cell() for n in new.co_freevars])
    made = types.FunctionType(new, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__doc__, made.__module__ = function.__qualname__, function.__doc__, function.__module__
    made.__annotations__ = function.__annotations__
    made.__dict__.update(function.__dict__)
    return made


@functools.lru_cache(maxsize=1)
def _runtime_cell() -> Any:
    return types.CellType(sys.modules["treadle.frontend.pysrc.runtime"])


def _is_users(function: types.FunctionType) -> bool:
    if is_hidden(function.__code__.co_filename):
        return False
    module = function.__globals__.get("__name__", "")
    return not (isinstance(module, str) and source.is_library(module))


def _new_code(function: types.FunctionType) -> types.CodeType | None:
    """The rewritten code object, None where there is no source or nothing to rewrite (coroutines)."""
    node = source.find(function)
    if node is None or isinstance(node, ast.AsyncFunctionDef):
        return None
    made = rewritten(node, source.class_of(function.__qualname__))
    free = [n for n in function.__code__.co_freevars if n != "_td_"]
    params = [ast.arg(n) for n in ["_td_", *free]]
    inner = made if isinstance(made, ast.FunctionDef) else ast.Return(made)
    body: list[ast.stmt] = [inner]
    if isinstance(made, ast.FunctionDef) and made.name not in free:
        body.insert(0, ast.Global([made.name]))  # a function that calls itself finds its name where it is defined
    factory = ast.FunctionDef("_td_factory", ast.arguments([], params, None, [], [], None, []), body, [], None, None)
    ast.copy_location(factory, made)
    module = ast.fix_missing_locations(ast.Module([factory], []))
    with source.building:
        code = compile(module, function.__code__.co_filename, "exec", dont_inherit=True, flags=_future_flags(function))
    outer = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    new = next(c for c in outer.co_consts if isinstance(c, types.CodeType) and c.co_name == function.__code__.co_name)
    _remember(new)
    return new


def _future_flags(function: types.FunctionType) -> int:
    import __future__

    known = [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]
    wanted: int = sum(known)
    return function.__code__.co_flags & wanted


def _remember(code: types.CodeType) -> None:
    _written[id(code)] = code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            _remember(part)


__all__ = ["converted", "is_converted", "note", "noted", "own_method", "source_of"]
