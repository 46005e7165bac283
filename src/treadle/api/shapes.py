"""`check_shapes`: shapes written down, and checked at every call, in eager mode and while tracing.

    @td.check_shapes("batch d, d k -> batch k")
    def project(x, w): ...

One text per tensor, between commas; results after `->`. An axis is a name (one size within a call), a number, `_` (any
size), `...` (any axes) or `*name` (any axes, the same within a call); `()` is a 0-d tensor and `-` an argument that is
not checked. `float32[batch d]` asks for an element type too; `float`, `int` and `complex` stand for all of their kind.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.base import dtypes
from treadle.base.arguments import brief
from treadle.base.errors import UserError
from treadle.base.where import Where
from treadle.frontend import trace as tracing
from treadle.frontend.pysrc.convert import converted
from treadle.ir.types import TensorType

Sizes = dict[str, Any]
_AXIS = re.compile(r"\.\.\.|_|\d+|\*?[A-Za-z]\w*")
_KINDS = {"float": "f", "int": "iu", "complex": "c"}


class _Calls(threading.local):
    """The sizes that names have in the checked functions that are running, innermost last."""

    def __init__(self) -> None:
        self.sizes: list[Sizes] = []


_calls = _Calls()


@dataclass(frozen=True)
class _Form:
    """One text, read: the axes, and the element type or kind ("" for any)."""

    text: str
    axes: tuple[str, ...]
    dtype: str


def check_shapes(*what: Any, **sizes: int) -> Any:
    """`check_shapes(spec)`: a decorator that checks arguments and results. `check_shapes(x, spec)`: check one tensor.

    Within a decorated function the second form knows the sizes of its names; sizes may be given too, as in
    `check_shapes(x, "batch d", d=64)`. It returns the sizes by name. Raises E0230 for another shape, E0231 for another
    element type, E0232 for a text that cannot be read.
    """
    if len(what) == 1 and isinstance(what[0], str):
        return _decorator(what[0])
    if len(what) != 2 or not isinstance(what[1], str):
        raise UserError("E0232", "check_shapes takes a text, or a tensor and a text", fix='check_shapes(x, "batch d")')
    bound = _calls.sizes[-1] if _calls.sizes else {}
    known = {**bound, **sizes}
    forms = _read(what[1])
    if len(forms) != 1:
        raise UserError("E0232", f"{what[1]!r} describes {len(forms)} tensors", fix="describe the one that is given")
    _check("the tensor", what[0], forms[0], known)
    bound.update({k: v for k, v in known.items() if k not in sizes})
    return known


def _decorator(spec: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    left, arrow, right = spec.partition("->")
    ins, outs = _read(left), _read(right) if arrow else None

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        names = [n for n in signature.parameters if n not in ("self", "cls")]
        if len(ins) > len(names) and not _takes_any(signature):
            why = f"{spec!r} describes {len(ins)} arguments, {function.__name__} has {len(names)}"
            raise UserError("E0232", why, fix="one text per argument, between commas")

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            _calls.sizes.append({})
            try:
                for name, value, form in _matched(signature, args, kwargs, ins):
                    _check(f"{function.__name__}: {name}", value, form, _calls.sizes[-1])
                result = (function if tracing.current() is None else converted(function))(*args, **kwargs)
                if outs is not None:
                    _check_results(function, result, outs)
                return result
            finally:
                _calls.sizes.pop()

        return run

    return decorate


def _takes_any(signature: inspect.Signature) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())


def _matched(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], forms: Sequence[_Form]
) -> list[tuple[str, Any, _Form]]:
    """Names, values and forms of the arguments that were passed; what does not fit is left to the function's call."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # the call of the function says it with its own name
        return []
    values: list[tuple[str, Any]] = []
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            values += [(f"{name}[{i}]", v) for i, v in enumerate(bound.arguments.get(name, ()))]
        elif parameter.kind is not parameter.VAR_KEYWORD:
            values.append((name, bound.arguments.get(name, parameter.default)))
    passed = [(n, v, f) for (n, v), f in zip(values, forms, strict=False) if v is not inspect.Parameter.empty]
    return [(n, v, f) for n, v, f in passed if v is not None]  # None: an optional argument left out


def _check_results(function: Callable[..., Any], result: Any, forms: Sequence[_Form]) -> None:
    """The results, one or a tuple; the line shown is the function's: it broke its word, not its caller."""
    results = list(result) if isinstance(result, tuple | list) else [result]
    code = getattr(function, "__code__", None)
    where = None if code is None else Where(code.co_filename, code.co_firstlineno)
    if len(results) != len(forms):
        why = f"{function.__name__}: {len(results)} results, declared {len(forms)}"
        raise UserError("E0230", why, fix="describe each result, between commas", where=where)
    for i, (value, form) in enumerate(zip(results, forms, strict=True)):
        name = "the result" if len(forms) == 1 else f"result {i}"
        _check(f"{function.__name__}: {name}", value, form, _calls.sizes[-1], where)


def _read(spec: str) -> list[_Form]:
    """The texts between commas. Raises E0232 for one that cannot be read."""
    return [_read_one(part.strip()) for part in re.split(r",", spec)] if spec.strip() else []


def _read_one(text: str) -> _Form:
    match = re.fullmatch(r"(?:(\w+)\[(.*)\]|(.*))", text)
    assert match is not None
    dtype, inside, bare = match[1] or "", match[2], match[3]
    axes = tuple((inside if bare is None else bare).split())
    if dtype and dtype not in _KINDS and dtype not in {n for d in dtypes.ALL for n in (d.name, d.short)}:
        raise UserError("E0232", f"{text!r}: {dtype} is no element type", fix="write it as float32[batch d]")
    if axes in (("()",), ("-",)):
        return _Form(text, axes, dtype)
    if bad := [a for a in axes if not _AXIS.fullmatch(a)] or ([text] if not (axes or dtype) else []):
        fix = "use names, numbers, _, ... and *name between spaces; () for 0-d, - for no tensor"
        raise UserError("E0232", f"{bad[0]!r} in a shape text cannot be read", fix=fix)
    if sum(_is_many(a) for a in axes) > 1:
        raise UserError("E0232", f"{text!r} has more than one part of any length", fix="keep one ... or *name")
    return _Form(text, axes, dtype)


def _is_many(axis: str) -> bool:
    return axis == "..." or axis.startswith("*")


def _check(name: str, value: Any, form: _Form, sizes: Sizes, where: Where | None = None) -> None:
    """Compare the value with its form; names that have no size yet take the one they have here."""
    if form.axes == ("-",):
        return
    if not tracing.is_dynamic(value):
        raise UserError("E0230", f"{name} is {brief(value)}, not a tensor", fix="write - for it", where=where)
    found = tracing.leaf_type(value)
    if not _fits(found, form.dtype):
        why = f"{name} is {found}, declared {form.dtype}"
        raise UserError("E0231", why, fix="cast it, or change the declaration", where=where)
    axes = () if form.axes == ("()",) else form.axes
    if (wrong := _mismatch(found.shape, axes, sizes)) is not None:
        known = ", ".join(f"{k} = {_show(sizes[k])}" for k in map(_bare, axes) if k in sizes)
        why = f"{name} is {found}, declared {form.text!r}{' with ' + known if known else ''}: {wrong}"
        raise UserError("E0230", why, fix="pass what is declared, or change the declaration", where=where)


def _bare(axis: str) -> str:
    return axis.removeprefix("*")


def _show(size: Any) -> str:
    return str(list(size)) if isinstance(size, tuple) else str(size)


def _fits(found: TensorType, dtype: str) -> bool:
    return not dtype or (found.dtype.kind in _KINDS[dtype] if dtype in _KINDS else found.dtype is dtypes.of(dtype))


def _mismatch(shape: tuple[int, ...], axes: Sequence[str], sizes: Sizes) -> str | None:
    """What is wrong, in words; None, and new names in `sizes`, if all fits."""
    many = next((i for i, a in enumerate(axes) if _is_many(a)), None)
    least = len(axes) - (many is not None)
    if len(shape) < least or (many is None and len(shape) != least):
        return f"{len(shape)} axes, not {least}{' or more' if many is not None else ''}"
    new: Sizes = {}
    if many is not None:
        after = len(axes) - many - 1
        middle = shape[many : len(shape) - after]
        if axes[many] != "..." and _other(axes[many][1:], middle, sizes, new):
            return f"{axes[many]} is {list(middle)}"
        pairs = [*zip(axes[:many], shape), *zip(axes[many + 1 :], shape[len(shape) - after :])]
    else:
        pairs = list(zip(axes, shape, strict=True))
    for axis, size in pairs:
        if axis.isdigit() and int(axis) != size:
            return f"{size} where {axis} is declared"
        if axis != "_" and not axis.isdigit() and _other(axis, size, sizes, new):
            return f"{axis} is {size}"
    sizes.update(new)
    return None


def _other(name: str, size: Any, sizes: Mapping[str, Any], new: Sizes) -> bool:
    """Whether the name has another size; a name without one takes it."""
    return bool(sizes.get(name, new.setdefault(name, size)) != size)
