"""`jit(function)`: trace once per kind of arguments, compile, and run the program from then on.

State that the function reads (parameters, buffers, any tensor from outside) becomes inputs; state that it changes
becomes outputs in donated memory. A program is used again when the key of the arguments fits and nothing the trace
relied on has changed (settings of cells, plain values around the function: frontend/watch.py); else the reason is
recorded and, at TREADLE_DEBUG >= 1, printed.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from treadle import driver
from treadle.api import _apply
from treadle.base import events
from treadle.base.errors import UserError
from treadle.base.flags import flags
from treadle.frontend import keys, tree
from treadle.frontend import trace as tracing
from treadle.frontend.keys import Key
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import Traced, clock, is_dynamic
from treadle.frontend.watch import changed, watch
from treadle.ir.node import Fn, Module
from treadle.ir.types import TensorType, type_of
from treadle.runtime import pjrt


def jit(function: Callable[..., Any] | None = None, *, name: str = "") -> Any:
    """Compile a function of tensors (or a cell). Use as `@jit`, `@jit(name=...)` or `jit(function)`.

    Raises E0213 for what cannot be called.
    """
    if function is None:
        return lambda f: jit(f, name=name)
    if not callable(function):
        fix = "put @classmethod or @staticmethod above @td.jit" if hasattr(function, "__func__") else "pass a function"
        raise UserError("E0213", f"a {type(function).__name__} cannot be compiled: it is not callable", fix=fix)
    return Jitted(function, name)


def trace_module(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Module:
    """The IR of a function on these arguments, before any pass."""
    traced = _apply.trace(function, args, kwargs)
    return Module.of(traced.fn, traced.fns)


class Jitted:
    """A function with its compiled programs. Inside another traced function it is simply part of it."""

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        self.function = function
        self.name = name or getattr(function, "__qualname__", type(function).__qualname__)
        self._programs: dict[Key, list[Program]] = {}
        self._bound: weakref.WeakKeyDictionary[Any, Jitted] = weakref.WeakKeyDictionary()
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.current() is not None:
            return self.function(*args, **kwargs)
        leaves, shape = tree.flatten((args, kwargs))
        key = keys.key_of(leaves, shape)
        program = self._find(key)
        if program is None:
            with _state_lock:
                program = self._find(key) or self._compile(key, args, kwargs)
        return program([leaf for leaf in leaves if is_dynamic(leaf)])

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A jitted method: one program cache per instance. Raises E0214 for instances that no cache can be kept for."""
        if instance is None:
            return self
        try:
            if instance not in self._bound:
                self._bound[instance] = Jitted(types.MethodType(self.function, instance), self.name)
            return self._bound[instance]
        except TypeError:
            why = f"a {type(instance).__name__} cannot be hashed or weakly referenced, so its method cannot be compiled"
            fix = "give the class a __hash__ and a __weakref__ slot, or jit a function that takes it apart"
            raise UserError("E0214", why, fix=fix) from None

    def _find(self, key: Key) -> Program | None:
        for program in self._programs.get(key, ()):
            if program.still_valid():
                return program
        return None

    def _compile(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
        why = keys.explain(key, list(self._programs))
        if flags.debug >= 1:
            print(f"treadle: compiling {self.name}: {why}", file=sys.stderr)
        with events.span("jit", self.name, why=why):
            program = Program(self.name, self.function, args, kwargs)
        self._programs.setdefault(key, []).append(program)
        return program

    def programs(self) -> list[Program]:
        """All compiled programs, oldest first."""
        return [p for programs in self._programs.values() for p in programs]


class Program:
    """One compiled program of a jitted function, with the state it reads and changes.

    Its parameters: the dynamic leaves of the arguments, the captured tensors that it only reads, those that it changes
    (donated). Its outputs: those of the traced function.
    """

    def __init__(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        traced = _apply.trace(function, args, kwargs, twins=True)
        self.settings = [(weakref.ref(obj), obj.settings()) for obj in traced.touched]
        held = [(weakref.ref(obj), obj.containers()) for obj in traced.touched]
        self.containers = [(ref, inside) for ref, inside in held if inside]
        self.watched = watch(function)
        self.clock = clock.now
        # Whoever owns this program may be among the objects that the trace touched: hold those weakly only.
        self.traced = dataclasses.replace(traced, touched=())
        self._changed_ids = frozenset(map(id, traced.changed))
        self._state_ids = frozenset(map(id, traced.captured))
        self.fixed = [t for t in traced.captured if id(t) not in self._changed_ids]
        self._places = [i for i, t in enumerate(traced.changed) if id(t) in self._state_ids]
        self.updated = [traced.changed[i] for i in self._places]
        self.module = Module.of(_ordered(traced, [*self.fixed, *self.updated]), traced.fns)
        self.optimised = driver.optimise(self.module)
        self._first_change = traced.num_outputs + len(traced.changed_args)
        base = traced.num_args + len(self.fixed)
        donate = {base + i: self._first_change + p for i, p in enumerate(self._places)}
        names = [f"argument {i}" for i in range(traced.num_args)]
        names += [getattr(t, "name", "") or "a captured tensor" for t in [*self.fixed, *self.updated]]
        self.executable = driver.compile_module(self.optimised, name, donate, names)
        self._known_fixed: list[Any] = []
        self._known_updated: list[Any] = []

    def still_valid(self) -> bool:
        """Whether everything that the trace relied on beside the arguments is as it was."""
        if changed(self.watched):
            return False
        if any(ref() is None or ref().containers() != inside for ref, inside in self.containers):  # type: ignore[union-attr]
            return False
        if clock.now != self.clock:
            if any(ref() is None or ref().settings() != settings for ref, settings in self.settings):  # type: ignore[union-attr]
                return False
            self.clock = clock.now
        return True

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Run on the dynamic leaves of the arguments; a program that changes state runs in one thread at a time."""
        if not self.traced.changed:
            return self._run(leaves)
        with _state_lock, _interrupts_deferred():
            return self._run(leaves)

    def _run(self, leaves: Sequence[Any]) -> Any:
        traced = self.traced
        if traced.changed or traced.changed_args:
            self._refuse_aliases(leaves)
        fixed, updated = [t._value for t in self.fixed], [t._value for t in self.updated]
        if not (_same_objects(fixed, self._known_fixed) and _same_objects(updated, self._known_updated)):
            types, name = self.executable.inputs[traced.num_args :], self.executable.name
            self._known_fixed = _admit(self.fixed, fixed, types[: len(fixed)], name)
            _admit(self.updated, updated, types[len(fixed) :], name)
        self._known_updated = []
        arrays = list(map(_to_device, leaves))
        if updated:
            _unshare(updated)
        outputs = self._execute([*arrays, *fixed, *updated])
        n, m = traced.num_outputs, self._first_change
        new = outputs[m:]
        for tensor, value in zip(traced.changed, new, strict=True):
            tensor._value = value
        self._known_updated = new if len(new) == len(updated) else [new[i] for i in self._places]
        for position, value in zip(traced.changed_args, outputs[n:m], strict=True):
            if isinstance(leaves[position], Tensor):
                leaves[position]._value = value
        return traced.result([Tensor._of(o) for o in outputs[:n]])

    def _refuse_aliases(self, leaves: Sequence[Any]) -> None:
        """What is passed may be part of the state only where neither side is changed (E0212)."""
        for i, leaf in enumerate(leaves):
            if id(leaf) in self._changed_ids or (i in self.traced.changed_args and id(leaf) in self._state_ids):
                tracing.refuse_alias(i)

    def _execute(self, arrays: list[Any]) -> list[Any]:
        if flags.debug >= 2:
            return driver._execute(self.executable, arrays, self.executable.name)
        return self.executable.call_unchecked(arrays)


# Programs may share state, and a trace gives shared tensors symbolic values for a while: one at a time.
_state_lock = threading.RLock()


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Ctrl-C waits until donated state has its new values: in between, a parameter would be lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _ordered(traced: Traced, captured: Sequence[Any]) -> Fn:
    """The traced function with its captured parameters in this order."""
    fn, n = traced.fn, traced.num_args
    place = {id(t): p for t, p in zip(traced.captured, fn.params[n:], strict=True)}
    return Fn(fn.name, (*fn.params[:n], *[place[id(t)] for t in captured]), fn.nodes, fn.outputs)


def _same_objects(values: list[Any], known: list[Any]) -> bool:
    return len(values) == len(known) and all(map(operator.is_, values, known))


def _admit(tensors: Sequence[Tensor], values: list[Any], types: Sequence[TensorType], name: str) -> list[Any]:
    """Check the types of captured tensors whose value is new to the program; bring them to the device, in place."""
    for i, (tensor, type) in enumerate(zip(tensors, types, strict=True)):
        value = values[i]
        if isinstance(value, np.ndarray):
            value = tensor._value = values[i] = pjrt.put(value)
        if type_of(value) != type:
            why = f"{name} was compiled for a captured tensor {type}, which is now {type_of(value)}"
            raise UserError("E0209", why, fix="give it its old shape and dtype, or jit the function again")
    return values


def _unshare(values: list[Any]) -> None:
    """Copy what is to be donated but is held elsewhere too (another handle, an argument): it must survive."""
    # Each is held by its tensor, by `values`, and as the argument of getrefcount.
    if max(map(sys.getrefcount, values)) > 3:
        for i in range(len(values)):
            if sys.getrefcount(values[i]) > 3:
                values[i] = pjrt.put(pjrt.to_numpy(values[i]))


def _to_device(leaf: Any) -> Any:
    """The device array of a dynamic leaf; a tensor's is moved there once and kept."""
    if isinstance(leaf, Tensor):
        value = leaf._value
        if isinstance(value, np.ndarray):
            value = leaf._value = pjrt.put(value)
        return value
    return pjrt.move(leaf, pjrt.single(pjrt.default_device())) if pjrt.is_array(leaf) else pjrt.put(np.asarray(leaf))


_graphs: weakref.WeakKeyDictionary[Any, dict[Any, Jitted]] = weakref.WeakKeyDictionary()


def graph_call(
    owner: Any, what: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call `function` compiled; programs are kept with `owner` (weakly) under the key `what`."""
    programs = _graphs.setdefault(owner, {})
    if what not in programs:
        programs[what] = Jitted(_weak_call(owner, function), name=getattr(owner, "__name__", type(owner).__name__))
    return programs[what](*args, **kwargs)


def _weak_call(owner: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, without keeping `owner` alive when it is the owner itself."""
    if function is not owner:
        return function
    ref = weakref.ref(owner)

    def call(*args: Any, **kwargs: Any) -> Any:
        target = ref()
        assert target is not None
        return target(*args, **kwargs)

    return call


__all__ = ["Jitted", "Program", "Traced", "graph_call", "jit", "trace_module"]
