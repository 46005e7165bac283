"""Tracing: run a Python function on symbolic tensors and collect the IR it builds.

`trace(function, args)` gives a `Traced`: the `Fn`, whose parameters are the tensors among the arguments, then the
captured tensors (state that the function read from outside), and whose outputs are the returned tensors, then the new
values of the tensors that it changed. The caller's tensors are never touched: what the function writes into them is
kept in the trace, where this thread alone sees it; whoever runs the `Fn` writes the new values.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.acting import OwnedLock
from treadle.base.errors import UserError
from treadle.base.where import of_traceback
from treadle.frontend import tree
from treadle.ir import op as op_table
from treadle.ir.build import Builder
from treadle.ir.node import Fn, Value
from treadle.ir.types import Literal, TensorType


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.tapes: list[Any] = []  # of eager gradients, see tape.py
        self.busy = 0  # the number of both


_stack = _Stack()


class Clock:
    """Ticks whenever a setting changes that a traced program may rely on (the training flag of a cell, a replaced
    parameter), so that a program looks at the settings again only then."""

    def __init__(self) -> None:
        self.now = 0

    def tick(self) -> None:
        self.now += 1


clock = Clock()

# Programs that change state take its memory while they run: one of them at a time.
state_lock = OwnedLock()


def settled(read: Callable[[], Any]) -> Any:
    """What `read` gives; where another thread's program has taken the array just now, what it gives afterwards."""
    try:
        return read()
    except UserError as error:
        if error.code != "E0402":
            raise
    with state_lock:
        return read()


def current() -> Trace | None:
    """The innermost trace of this thread, or None in eager mode."""
    return _stack.traces[-1] if _stack.traces else None


class Trace:
    """One function being traced. Tensors made in it point back to it (`tensor._trace`)."""

    def __init__(self, name: str, fns: dict[str, Fn] | None = None) -> None:
        outer = current()
        shared = fns if fns is not None else outer.builder.fns if outer else {}
        self.builder: Builder = Builder(name, shared)
        self.open = False
        self.captured: dict[int, tuple[Any, Value]] = {}
        self.changed: dict[int, tuple[Any, Value]] = {}  # tensors from outside, with the value that they have here
        self.numbers: dict[int, tuple[Any, Any, bytes]] = {} if outer is None else outer.numbers
        self.made: list[weakref.ref[Any]] = [] if outer is None else outer.made  # every symbolic tensor
        self.touched: dict[int, Any] = {} if outer is None else outer.touched  # the whole program relies on them

    def __enter__(self) -> Trace:
        _stack.traces.append(self)
        _stack.busy += 1
        self.builder.__enter__()
        self.open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.builder.__exit__()
        _stack.traces.pop()
        _stack.busy -= 1
        self.open = False

    def read(self, tensor: Any) -> Value:
        """The IR value of a tensor here; a tensor from outside becomes a parameter."""
        if tensor._trace is self:
            found: Value = tensor._value
            return found
        key = id(tensor)
        here = self.changed.get(key) or self.captured.get(key)
        if here is None:
            _check_reachable(tensor)
            here = self.captured[key] = (tensor, self.builder.param(tensor.type))
        return here[1]

    def write(self, tensor: Any, value: Value) -> None:
        """Give a tensor another value here; one from outside keeps its own for everybody else."""
        if tensor._trace is self:
            tensor._value = value
        else:
            _check_reachable(tensor)
            self.changed[id(tensor)] = (tensor, value)

    def note_numbers(self, tensor: Any, array: Any) -> None:
        """Python has seen the numbers of this tensor: the program holds as long as they are the same."""
        self.numbers.setdefault(id(tensor), (tensor, tensor._value, fingerprint(array)))

    def constant(self, array: Any) -> Value:
        """A literal of this trace."""
        made: Value = op_table.get("constant")(value=Literal(np.asarray(array)))
        return made


def fingerprint(array: Any) -> bytes:
    """A digest of the type and the bytes of a NumPy array."""
    return hashlib.blake2b(f"{array.dtype}{array.shape}".encode() + array.tobytes()).digest()


def _check_reachable(tensor: Any) -> None:
    """Raise E0202 for a symbolic tensor whose trace is not one of those running in this thread."""
    if tensor._trace is not None and all(tensor._trace is not t for t in _stack.traces):
        refuse_escaped()


def is_symbolic(tensor: Any) -> bool:
    """Whether the tensor has no numbers here: it is made or changed in a trace that is running."""
    return isinstance(tensor._value, Value) or any(id(tensor) in t.changed for t in _stack.traces)


def refuse_escaped() -> NoReturn:
    """Raise E0202: a symbolic tensor is used where its trace is over."""
    raise UserError(
        "E0202",
        "a tensor made inside a traced function is used after that function ended",
        fix="return it from the function, or assign it to a Parameter or buffer that was there before",
    )


@dataclass(frozen=True)
class Traced:
    """A traced function. Parameters of `fn`: the dynamic leaves of the arguments, then `captured`. Its outputs: the
    tensors returned, then the new values of the arguments `changed_args` (positions), then those of the tensors
    `changed`.

    result(tensors) builds what the function returned. `touched` are the objects whose `settings()` the trace relied on;
    `containers()` is the part of them that can change without `clock` ticking. `numbers` are the concrete tensors whose
    numbers Python has seen, each with the array that it held and its fingerprint. `made` are weak references to all
    symbolic tensors; none of those lives longer than the trace, unless somebody outside was given it.
    """

    fn: Fn
    fns: dict[str, Fn]
    num_args: int
    captured: tuple[Any, ...]
    changed_args: tuple[int, ...]
    changed: tuple[Any, ...]
    num_outputs: int
    result: Callable[[Sequence[Any]], Any]
    touched: tuple[Any, ...]
    numbers: tuple[tuple[Any, Any, bytes], ...]
    made: Sequence[Callable[[], Any]]


def trace(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    make_tensor: Callable[[Value, Trace, type | None], Any],
    name: str = "",
    plain: bool = False,
) -> Traced:
    """Trace `function(*args, **kwargs)`; see `is_dynamic` for which leaves become parameters.

    plain: as in a plain call, one tensor passed twice is one tensor inside too, and a Python number that is returned is
    one. (Not where each place has a meaning of
    its own: a gradient, a tangent, an axis.)
    """
    arguments.function(function, "what is to be traced")
    leaves, shape = tree.flatten((args, kwargs))
    with Trace(name or getattr(function, "__name__", type(function).__name__)) as t:
        dynamic: list[Any] = []
        symbols: list[Any] = []
        first: dict[int, Any] = {}
        for leaf in leaves:
            if is_dynamic(leaf):
                symbol = make_tensor(t.builder.param(leaf_type(leaf)), t, weak_type(leaf))
                symbols.append(first.setdefault(id(leaf), symbol) if plain and is_tensor(leaf) else symbol)
                dynamic.append(symbol)
            else:
                symbols.append(leaf)
        params = list(t.builder.params)
        new_args, new_kwargs = shape.unflatten(symbols)
        outputs, result = _outputs(_called(function, new_args, new_kwargs), t, plain)
        changed_args = [i for i, (s, p) in enumerate(zip(dynamic, params, strict=True)) if s._value is not p]
        changed = [tensor for tensor, _ in t.changed.values()]
        _refuse_aliases(t, [leaf for leaf in leaves if is_dynamic(leaf)], changed_args)
        finals = [t.read(x) for x in [*[dynamic[i] for i in changed_args], *changed]]
        fn = t.builder.finish([*outputs, *finals])
    return Traced(
        fn=fn,
        fns=t.builder.fns,
        num_args=len(dynamic),
        captured=tuple([c for c, _ in t.captured.values()]),
        changed_args=tuple(changed_args),
        changed=tuple(changed),
        num_outputs=len(outputs),
        result=result,
        touched=tuple(t.touched.values()),
        numbers=tuple(t.numbers.values()),
        made=t.made,
    )


class RefusalError(BaseException):
    """An error of tracing on its way out of a `try` of the user, who could not catch it in eager mode."""

    def __init__(self, error: UserError) -> None:
        super().__init__(error)
        self.error = error


_REFUSALS = ("E0202", "E0204", "E0206", "E0215", "E022", "E024")


def refuse_uncaught(error: Any) -> None:
    """Raise it as a RefusalError if it is one of those that only a traced function can have."""
    if isinstance(error, UserError) and error.code.startswith(_REFUSALS) and _stack.traces:
        raise RefusalError(error) from None


def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the function returns. Raises E0218 when it takes other arguments, E0215 when it calls itself for ever."""
    try:
        return arguments.call(function, args, kwargs)
    except RefusalError as refusal:
        if len(_stack.traces) > 1:
            raise
        raise refusal.error from None
    except RecursionError as error:
        if len(_stack.traces) > 1:
            raise
        why = "the function calls itself without end: while it is traced, a decision on a tensor cannot stop it"
        where = of_traceback(error.__traceback__)
        raise UserError("E0215", why, fix="write it as td.while_loop or td.scan", where=where) from None


def _refuse_aliases(t: Trace, leaves: Sequence[Any], changed_args: Sequence[int]) -> None:
    """Raise E0212 when a tensor is both an argument and read or changed from outside, and one of the two changes it."""
    outside = {*t.captured, *t.changed}
    for i, leaf in enumerate(leaves):
        if is_tensor(leaf) and id(leaf) in outside and (i in changed_args or id(leaf) in t.changed):
            refuse_alias(i)


def refuse_alias(position: int) -> NoReturn:
    """Raise E0212 for the argument at this position."""
    why = f"tensor argument {position} is also used by the function from outside, and one of the two changes it"
    raise UserError("E0212", why, fix="pass it as an argument only, or pass x.copy()")


_OUTPUT = object()


def _outputs(returned: Any, t: Trace, plain: bool) -> tuple[list[Value], Callable[[Sequence[Any]], Any]]:
    """IR values of the returned tensors, and how to build the returned object from what stands for them."""
    leaves, shape = tree.flatten(returned)
    found = [leaf for leaf in leaves if is_tensor(leaf)]
    outputs = [t.read(leaf if plain else leaf.strong()) for leaf in found]
    kinds = [leaf._weak if plain else None for leaf in found]
    # The symbolic tensors would keep the whole trace alive.
    parts = [_OUTPUT if is_tensor(leaf) else leaf for leaf in leaves]
    if len(found) == len(leaves) and all(kind is None for kind in kinds):
        if shape.kind is None:
            return outputs, lambda tensors: tensors[0]
        if shape.kind in (tuple, list) and all(child.kind is None for child in shape.children):
            return outputs, shape.kind

    def result(tensors: Sequence[Any]) -> Any:
        rest = iter([x if kind is None else kind(x.item()) for x, kind in zip(tensors, kinds, strict=True)])
        return shape.unflatten([next(rest) if part is _OUTPUT else part for part in parts])

    return outputs, result


def is_tensor(leaf: Any) -> bool:
    """A Treadle tensor."""
    return hasattr(type(leaf), "__treadle_op__")


def is_dynamic(leaf: Any) -> bool:
    """Tensors, NumPy arrays and scalars, and Python floats are inputs of the program; every other leaf is fixed in
    it."""
    return is_tensor(leaf) or type(leaf) in (float, complex) or (hasattr(leaf, "dtype") and hasattr(leaf, "shape"))


def weak_type(leaf: Any) -> type | None:
    """float or complex for a Python number, which takes the type of the tensors it meets; None for a tensor."""
    if is_tensor(leaf):
        weak: type | None = leaf._weak
        return weak
    return type(leaf) if type(leaf) in (float, complex) else None


def leaf_type(leaf: Any) -> TensorType:
    """The IR type of a dynamic leaf; Python floats travel in double precision until they meet a tensor."""
    if type(leaf) is float:
        return TensorType(dtypes.float64, ())
    if type(leaf) is complex:
        return TensorType(dtypes.complex128, ())
    return TensorType(dtypes.of(leaf.dtype), tuple(leaf.shape))
