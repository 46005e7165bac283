"""Python's builtins where tensors reach them, and what a loop iterates over.

`range`, `zip`, `enumerate` and tensors become `Items`, which can be asked for the item of a trip that is itself a
tensor. `int`, `float`, `bool`, `min`, `max`, `any`, `all`, `print` and those that take functions have stand-ins; each
does what the builtin does unless a tensor of the trace is among its arguments.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import string
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.base.where import is_package
from treadle.frontend import trace as tracing
from treadle.frontend.pysrc.convert import converted
from treadle.frontend.trace import is_tensor


def is_symbolic(x: Any) -> bool:
    """Whether x is a tensor whose numbers are not known while tracing."""
    return is_tensor(x) and tracing.current() is not None and tracing.is_symbolic(x)


# --------------------------------------------------------------------------------------------------- what loops go over
class Items:
    """count: the number of items (an int, or a number of the trace); at(i): the item of trip i, perhaps one too."""

    def __init__(self, count: Any, at: Callable[[Any], Any]) -> None:
        self.count, self.at = count, at

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self.count, int):
            why = "a range whose end is a tensor is made into a list or the like: its length is not known while tracing"
            raise UserError("E0242", why, fix="loop over it with for, which compiles")
        return (self.at(i) for i in range(self.count))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def after(self, skipped: int) -> Items:
        """Without the first items."""
        return Items(self.count - skipped, lambda i: self.at(i + skipped))


def items_of(iterable: Any) -> Items | None:
    """What a loop goes over if the item of any trip can be computed; None for other iterables."""
    if isinstance(iterable, Items):
        return iterable
    if type(iterable) is range:
        return Items(len(iterable), lambda i: iterable.start + i * iterable.step)
    if is_tensor(iterable) and tracing.current() is not None and iterable.shape:
        return Items(iterable.shape[0], lambda i: iterable[i])
    return None


def _range(*args: Any) -> Any:
    if not any(map(is_symbolic, args)):
        return range(*args)
    numbers = [_int(a) for a in args]
    start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    if is_symbolic(step):
        why = "the step of a range is a tensor"
        raise UserError("E0242", why, fix="use a while loop, or a step that is a plain int")
    count = (stop - start + (step - 1 if step > 0 else step + 1)) // step
    return Items(_max(count, 0), lambda i: start + i * step)


def _zip(*iterables: Any, strict: bool = False) -> Any:
    found = [items_of(x) for x in iterables]
    counts = {f.count for f in found if f is not None and isinstance(f.count, int)}
    if not found or any(f is None or not isinstance(f.count, int) for f in found) or (strict and len(counts) > 1):
        return zip(*iterables, strict=strict)
    return Items(min(counts), lambda i: tuple([f.at(i) for f in found if f is not None]))


def _enumerate(iterable: Any, start: int = 0) -> Any:
    found = items_of(iterable)
    return enumerate(iterable, start) if found is None else Items(found.count, lambda i: (i + start, found.at(i)))


def _reversed(sequence: Any) -> Any:
    found = items_of(sequence)
    if found is None:
        return reversed(sequence)
    return Items(found.count, lambda i: found.at(found.count - 1 - i))


# ------------------------------------------------------------------------------------------------------------- numbers
class _Hooks:
    """number(kind, x): the Python number of a tensor's only element, as a number of the trace; extreme(larger, x, y):
    of two of them; show(parts, options): print. Installed by api/staging.py."""

    number: Callable[..., Any]
    extreme: Callable[..., Any]
    show: Callable[..., Any]


hooks = _Hooks()


def _int(x: Any = 0, *args: Any) -> Any:
    return hooks.number(int, x) if is_symbolic(x) else int(x, *args)


def _float(x: Any = 0.0) -> Any:
    return hooks.number(float, x) if is_symbolic(x) else float(x)


def _bool(x: Any = False) -> Any:
    return hooks.number(bool, x) if is_symbolic(x) else bool(x)


def _isinstance(x: Any, kinds: Any) -> bool:
    """A number that a tensor gives, int(x), is of the class that it has in eager mode."""
    kind = getattr(x, "_weak", None) if is_symbolic(x) else None
    return isinstance(x, kinds) if kind is None else issubclass(kind, kinds)


def _type(*args: Any, **options: Any) -> Any:
    kind = getattr(args[0], "_weak", None) if len(args) == 1 and is_symbolic(args[0]) else None
    return type(*args, **options) if kind is None else kind


def _len(x: Any) -> int:
    if type(x) is list and any(type(e).__name__ == "Unbound" for e in x):
        raise NotRepeatableError("the length of a list that grows in the loop")
    return len(x)


def item(x: Any) -> Any:
    """`x.item()`."""
    kind = {"b": bool, "c": complex, "f": float}.get(x.dtype.kind, int)
    return hooks.number(kind, x)


def _extreme(builtin: Callable[..., Any], larger: bool) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        values = list(args[0]) if len(args) == 1 else list(args)
        if options or not any(map(is_symbolic, values)):
            if "key" in options and options["key"] is not None:
                options["key"] = converted(options["key"])
            return builtin(values, **options) if len(args) == 1 else builtin(*args, **options)
        return functools.reduce(lambda x, y: hooks.extreme(larger, x, y), values)

    return function


_max, _min = _extreme(max, True), _extreme(min, False)


def _any(iterable: Any) -> Any:
    from treadle.frontend.pysrc import runtime

    found: Any = False
    for item in iterable:
        found = runtime.or_(found, lambda item=item: item)  # type: ignore[misc]
    return found if is_symbolic(found) else bool(found)


def _all(iterable: Any) -> Any:
    from treadle.frontend.pysrc import runtime

    found: Any = True
    for item in iterable:
        found = runtime.and_(found, lambda item=item: item)  # type: ignore[misc]
    return found if is_symbolic(found) else bool(found)


# ---------------------------------------------------------------------------------------------- functions of functions
def _with_function(builtin: Callable[..., Any]) -> Callable[..., Any]:
    def function(f: Any, *args: Any) -> Any:
        from treadle.frontend.pysrc import runtime

        return builtin(f if f is None else runtime.callee(f), *args)

    return function


def _sorted(iterable: Any, /, *, key: Any = None, reverse: bool = False) -> Any:
    return sorted(iterable, key=key if key is None else converted(key), reverse=reverse)


# ---------------------------------------------------------------------------------------------------------------- text
class Text:
    """An f-string that shows tensors of the trace; it can be printed, and be the message of an assert."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts

    def _refused(self, *_: Any) -> Any:
        why = "a text that shows a tensor is used while tracing, when the numbers are not known"
        raise UserError("E0243", why, fix="print it, use it as a message of assert, or make it outside the function")

    __str__ = __repr__ = __format__ = __hash__ = __eq__ = __ne__ = __lt__ = __len__ = _refused
    __iter__ = __getitem__ = __contains__ = __getattr__ = __mul__ = __bool__ = _refused

    def __add__(self, other: Any) -> Text:
        return Text((*self.parts, *_parts(other)))

    def __radd__(self, other: Any) -> Text:
        return Text((*_parts(other), *self.parts))


def _parts(text: Any) -> tuple[Any, ...]:
    if not isinstance(text, str | Text):
        raise TypeError(f'can only concatenate str (not "{type(text).__name__}") to str')
    return text.parts if isinstance(text, Text) else (text,)


def _str(*args: Any, **options: Any) -> Any:
    return Text(((args[0], ord("s"), ""),)) if args and is_symbolic(args[0]) else str(*args, **options)


def of_str(name: str, text: str) -> Callable[..., Any] | None:
    """`text.format` or `text.join` for values of the trace; None for other methods of a str."""
    if name == "format":
        return lambda *args, **kwargs: _filled(text, args, kwargs)
    return (lambda parts: _joined(text, list(parts))) if name == "join" else None


def _filled(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not any(is_symbolic(x) or isinstance(x, Text) for x in (*args, *kwargs.values())):
        return text.format(*args, **kwargs)
    formatter, place = string.Formatter(), itertools.count()
    parts: list[Any] = []
    for literal, field, spec, conversion in formatter.parse(text):
        parts.append(literal)
        if field is None:
            continue
        name = f"{next(place)}{field}" if not field or field[0] in ".[" else field
        value, _ = formatter.get_field(name, args, kwargs)
        spec = str(_filled(spec, args, kwargs)) if spec and "{" in spec else spec or ""
        parts += value.parts if isinstance(value, Text) else [(value, ord(conversion) if conversion else -1, spec)]
    return Text(tuple(parts))


def _joined(separator: str, parts: list[Any]) -> Any:
    if not any(isinstance(p, Text) for p in parts):
        return separator.join(parts)
    found: list[Any] = [*_parts(parts[0])]
    for part in parts[1:]:
        found += [separator, *_parts(part)]
    return Text(tuple(found))


def modulo(x: Any, y: Any) -> Any:
    """`x % y`. Raises E0243 where it would put a tensor of the trace into a text."""
    if isinstance(x, str | bytes):
        values = y if isinstance(y, tuple) else y.values() if isinstance(y, dict) else (y,)
        if any(map(is_symbolic, values)):
            why = "a text that shows a tensor is made by %"
            raise UserError("E0243", why, fix='write it as an f-string, f"{x}", or "{}".format(x)')
    return x % y


def _suppress(*exceptions: Any) -> Any:
    return Catching(contextlib.suppress(*exceptions))


def _repr(x: Any) -> Any:
    return Text(((x, ord("r"), ""),)) if is_symbolic(x) else repr(x)


def _format(x: Any, spec: Any = "") -> Any:
    return Text(((x, -1, spec),)) if is_symbolic(x) else format(x, spec)


_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}


def formatted(value: Any, conversion: int, spec: str) -> str:
    """One part of an f-string."""
    return format(value if conversion == -1 else _CONVERSIONS[conversion](value), spec)


def _print(*args: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False) -> None:
    file = None if file is sys.stdout else file  # which is another one, perhaps, when the program runs
    hooks.show(args, sep=" " if sep is None else sep, end="\n" if end is None else end, file=file, flush=flush)


REPLACED: dict[Any, Callable[..., Any]] = {
    range: _range, zip: _zip, enumerate: _enumerate, reversed: _reversed, int: _int, float: _float, bool: _bool,
    max: _max, min: _min, any: _any, all: _all, map: _with_function(map), filter: _with_function(filter),
    functools.reduce: _with_function(functools.reduce), sorted: _sorted, print: _print,
    contextlib.suppress: _suppress, str: _str, repr: _repr, format: _format, len: _len,
    isinstance: _isinstance, type: _type,
}  # fmt: skip


# -------------------------------------------------------------------------------------------------- catching exceptions
class _Tried(threading.local):
    depth = 0


_tried = _Tried()


class Catching:
    """A context manager, or none: what a tensor raises inside would not be caught when the program runs."""

    def __init__(self, manager: Any = None) -> None:
        self.manager = manager

    def __enter__(self) -> Any:
        entered = self.manager.__enter__() if self.manager is not None else None
        _tried.depth += 1
        return entered

    def __exit__(self, *error: Any) -> Any:
        _tried.depth -= 1
        tracing.refuse_uncaught(error[1])
        return self.manager.__exit__(*error) if self.manager is not None else False


def refuse_caught(error: BaseException) -> None:
    """Raise E0246 where a `try` or context manager is around what raises when a tensor says so."""
    if _tried.depth:
        why = f"{type(error).__name__}, which is raised when a tensor says so, may be caught by a try or with around it"
        raise UserError("E0246", why, fix="move it out of the try or with, or decide by a branch instead of raising")


# ------------------------------------------------------------------------------------------------------- trying to roll
class NotRepeatableError(BaseException):
    """A loop's body calls what may have effects outside: it cannot be traced on trial. (No Exception: what a branch
    raises is the program's.)"""


class _Trial(threading.local):
    depth = 0


_trial = _Trial()
# What a body may raise when its trips are not alike, or when it needs to know the number of the trip.
NOT_ROLLED = (NotRepeatableError, UserError, TypeError, IndexError, KeyError, AttributeError)

_PURE = frozenset(
    {abs, callable, chr, complex, divmod, format, getattr, hasattr, hash, isinstance, issubclass, iter, len, list, next,
     ord, pow, repr, round, slice, str, sum, tuple, type, dict, set, frozenset, list.append, id}
)  # fmt: skip


@contextlib.contextmanager
def only_repeatable() -> Iterator[None]:
    """Inside, calls of what is not known to be free of outside effects raise NotRepeatableError."""
    _trial.depth += 1
    try:
        yield
    finally:
        _trial.depth -= 1


def on_trial() -> bool:
    """Whether a loop's body is traced on trial."""
    return _trial.depth > 0


def check_repeatable(function: Any) -> None:
    """Raise NotRepeatableError for a call on trial that may do something outside."""
    if not _trial.depth:
        return
    if isinstance(function, types.BuiltinFunctionType | types.MethodWrapperType | types.BuiltinMethodType):
        owner = getattr(function, "__self__", None)
        if function in _PURE or type(owner) in (list, dict, set, tuple, str, int, float):
            return
        raise NotRepeatableError(repr(function))
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is not None:
        # The standard library's and other libraries' functions may hold state: random numbers, files.
        if is_package(code.co_filename) or converted(function) is not function:
            return
        raise NotRepeatableError(repr(function))
    if not isinstance(function, type | np.ufunc | functools.partial):
        call = type(function).__call__ if callable(function) else None
        if not isinstance(call, types.FunctionType):
            raise NotRepeatableError(repr(function))
        check_repeatable(call)
        return
    if isinstance(function, functools.partial):
        check_repeatable(function.func)
        return
    if isinstance(function, type) and function not in _PURE and function.__module__ == "builtins":
        if issubclass(function, BaseException):
            return
        raise NotRepeatableError(repr(function))
