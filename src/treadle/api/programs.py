"""`jit(function)`: trace once per kind of arguments, compile, and run the program from then on.

State that the function reads (parameters, buffers, any tensor from outside) becomes inputs; state that it changes
becomes outputs in donated memory. A program is used again when the key of the arguments fits and nothing the trace
relied on has changed (settings of cells, plain values around the function: frontend/watch.py); else the reason is
recorded and, at TREADLE_DEBUG >= 1, printed.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import operator
import signal
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from treadle import driver
from treadle.api import _apply, effects, tuning
from treadle.api.again import Kind, kind_of
from treadle.api.prepared import Prepared
from treadle.base import arguments, events, where
from treadle.base.errors import UserError
from treadle.base.flags import flags
from treadle.frontend import keys, tree
from treadle.frontend import tape as taping
from treadle.frontend import trace as tracing
from treadle.frontend.effects import guarded, refuse_left_behind
from treadle.frontend.keys import Key
from treadle.frontend.pysrc.convert import converted, noted
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import Traced, _stack, clock, is_dynamic, state_lock
from treadle.frontend.watch import changed, watch
from treadle.ir.node import Fn, Module
from treadle.ir.quiet import quiet
from treadle.ir.types import TensorType, type_of
from treadle.lower.ordering import acts
from treadle.runtime import nans, pjrt
from treadle.runtime.executable import Executable


def jit(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    dynamic: Mapping[Any, Mapping[int, str]] | None = None,
    buckets: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a function of tensors (or a cell). Use as `@jit`, `@jit(name=...)` or `jit(function)`.

    dynamic: names for axes of arguments, {"x": {0: "batch", 1: "length"}}, whose sizes share programs: arguments are
    padded to the bucket of their size, with the results of the real size (api/dynamic.py). buckets: for a name, its
    sizes or a function of the size (default: powers of two from 8). Raises E0213 for what cannot be called, E0263 for
    other entries in these two.
    """
    if function is None:
        return lambda f: jit(f, name=name, dynamic=dynamic, buckets=buckets)
    if not callable(function):
        fix = "put @classmethod or @staticmethod above @td.jit" if hasattr(function, "__func__") else "pass a function"
        why = f"an object of type {type(function).__name__} cannot be compiled: it is not callable"
        raise UserError("E0213", why, fix=fix)
    arguments.function(function, "what is to be compiled")
    if dynamic is None and buckets is None:
        return Jitted(function, name)
    from treadle.api.dynamic import Dynamic  # it builds on this file

    return Dynamic(function, name, dynamic or {}, buckets)


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
        self._compiling = threading.RLock()
        self._compiled = 0
        self._recent: list[Recent] = []
        self._long_ways = 0
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recent = self._recent
        if not _stack.busy:
            for kind, known in recent:
                inputs = kind.inputs(args, kwargs)
                if inputs is not None and known.still_valid():
                    known.use()
                    return known(*inputs)
        elif tracing.current() is not None or taping.current() is not None:
            function = self.function if tracing.current() is None else converted(self.function)
            return function(*args, **kwargs)
        leaves, shape = tree.flatten((args, kwargs))
        key = keys.key_of(leaves, shape)
        program = self._find(key)
        if program is not None:
            self._note(recent, leaves, shape, program)
        else:
            acted = effects.acted.count
            try:
                with self._compiling:
                    program = self._find(key) or self._compile(key, args, kwargs)
            except UserError:
                raise
            except Exception:
                if effects.acted.count != acted:
                    self.function(*args, **kwargs)  # what it printed or checked before it raised is done by Python
                raise
        return program([leaf for leaf in leaves if is_dynamic(leaf)])

    def _note(self, recent: list[Recent], leaves: list[Any], shape: tree.TreeDef, program: Program) -> None:
        """Let the next calls with arguments like these find the program at once. recent: the list as it was before the
        program was found; one that was replaced meanwhile is not used any more."""
        self._long_ways += 1
        if _stack.busy or (self._long_ways > _MOST_RECENT and self._long_ways % 16):
            return
        kind = kind_of(leaves, shape)
        if kind is not None:
            recent.insert(0, (kind, program))
            del recent[_MOST_RECENT:]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A jitted method: one program cache per instance. Raises E0214 for instances that no cache can be kept for."""
        if instance is None:
            return self
        try:
            bound = self._bound.get(instance)
            if bound is None:
                bound = self._bound[instance] = self._of(types.MethodType(self.function, instance))
            return bound
        except TypeError:
            why = f"a {type(instance).__name__} cannot be hashed or weakly referenced, so its method cannot be compiled"
            fix = "give the class a __hash__ and a __weakref__ slot, or jit a function that takes it apart"
            raise UserError("E0214", why, fix=fix) from None

    def _of(self, method: Callable[..., Any]) -> Jitted:
        """A bound method compiled in the same way."""
        return Jitted(method, self.name)

    def _find(self, key: Key) -> Program | None:
        for program in self._programs.get(key, ()):
            if program.still_valid():
                program.use()
                return program
        return None

    def _compile(
        self,
        key: Key,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        make: Callable[[str], Program] | None = None,
    ) -> Program:
        why = keys.explain(key, list(self._programs))
        if flags.debug >= 1:
            print(f"treadle: compiling {self.name}: {why}", file=sys.stderr)
        with events.span("jit", self.name, why=why):
            program = make(self.name) if make else Program(self.name, self.function, args, kwargs)
        program.why = why
        self._compiled += 1
        if self._compiled == _MANY:
            _warn_of_many(self.name, why)
        kept = self.programs()
        if 0 < flags.max_programs <= len(kept):
            self._drop(min(kept, key=lambda p: p.used))
        self._programs[key] = [*self._programs.get(key, ()), program]
        return program

    def _drop(self, old: Program) -> None:
        for key, programs in list(self._programs.items()):
            left = [p for p in programs if p is not old]
            if not left:
                del self._programs[key]
            elif len(left) < len(programs):
                self._programs[key] = left
        self._recent = []
        events.record("jit", self.name, dropped="the program used longest ago")

    def programs(self) -> list[Program]:
        """All compiled programs that are kept, oldest first."""
        return [p for programs in list(self._programs.values()) for p in programs]

    def cache_info(self) -> CacheInfo:
        """How many programs were compiled, and how many of them are kept, for this function itself."""
        return CacheInfo(self._compiled, len(self.programs()), flags.max_programs)

    def clear(self) -> None:
        """Forget all compiled programs, also those of bound methods; the next call compiles."""
        with self._compiling:
            self._programs.clear()
            self._recent = []
            for bound in list(self._bound.values()):
                bound.clear()


Recent = tuple[Kind, "Program"]


class CacheInfo(NamedTuple):
    """Programs compiled since the function was jitted, programs kept, and the most that are kept (0: no limit)."""

    compiled: int
    kept: int
    limit: int


_uses = itertools.count()
_MOST_RECENT = 4  # kinds of arguments whose programs are found at once
_MANY = 32  # compilations of one function after which something seems to vary that should not


def _warn_of_many(name: str, why: str) -> None:
    place = where.here()
    text = (
        f"{name} was compiled {_MANY} times, the last time because {why}. Each kind of arguments has its own program: "
        "pad shapes to a few sizes, and pass what varies as a tensor or float. TREADLE_DEBUG=1 tells each reason"
    )
    warnings.warn_explicit(text, RuntimeWarning, place.file or "<unknown>", place.line)


def trace_for(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    """The trace that a program is made of."""
    return _apply.trace(guarded(converted(function)), args, kwargs, plain=True)


class Program:
    """One compiled program of a jitted function, with the state it reads and changes.

    Its parameters: the dynamic leaves of the arguments, the captured tensors that it only reads, those that it changes
    (donated). Its outputs: those of the traced function.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        traced: Traced | None = None,
    ) -> None:
        self.function = function
        self.used = next(_uses)
        traced = traced or trace_for(function, args, kwargs)
        self.why, self.calls = "", dict(noted.calls)
        refuse_left_behind(traced.made, name)
        _apply.refuse_changed_arrays(traced, _apply.dynamic_leaves(args, kwargs))
        self.settings = [(weakref.ref(obj), obj.settings()) for obj in traced.touched]
        held = [(weakref.ref(obj), obj.containers()) for obj in traced.touched]
        self.containers = [(ref, inside) for ref, inside in held if inside]
        self.watched = watch(function)
        self.numbers = [_Seen(*seen) for seen in traced.numbers]
        self.clock = clock.now
        # Whoever owns this program may be among the objects that the trace touched: hold those weakly only.
        self.traced = dataclasses.replace(traced, touched=(), numbers=(), made=())
        self._changed_ids = frozenset(map(id, traced.changed))
        self._state_ids = frozenset(map(id, traced.captured))
        self.fixed = [t for t in traced.captured if id(t) not in self._changed_ids]
        self._changes = bool(traced.changed)
        self._pure = not (traced.captured or traced.changed or traced.changed_args)
        self._places = [i for i, t in enumerate(traced.changed) if id(t) in self._state_ids]
        self.updated = [traced.changed[i] for i in self._places]
        self.module = Module.of(_ordered(traced, [*self.fixed, *self.updated]), traced.fns)
        self.optimised = driver.optimise(self.module)
        self._first_change = traced.num_outputs + len(traced.changed_args)
        base = traced.num_args + len(self.fixed)
        # A program that calls Python may be stopped by what that raises: the state must still be there then.
        self.acts = acts(self.optimised)
        donate = {} if self.acts else {base + i: self._first_change + p for i, p in enumerate(self._places)}
        names = [f"argument {i}" for i in range(traced.num_args)]
        names += [getattr(t, "name", "") or "a captured tensor" for t in [*self.fixed, *self.updated]]
        self.deterministic = flags.deterministic
        self.prepared: Prepared | None = None
        if self.fixed and not (traced.changed or traced.changed_args or self.acts):  # inference
            self.prepared = Prepared(self.optimised, range(traced.num_args, base), name, names)
            self.executable = self.prepared.executable
        else:
            if flags.tune:
                tuning.tune(self.optimised)
            self.executable = driver.compile_module(self.optimised, name, donate, names)
        # The values of the fixed tensors that were seen last, what runs with them, and what was made of them for that:
        # changed together, as several threads may be calling.
        self._ready: tuple[list[Any], Executable, list[Any]] = [], self.executable, []
        self._known_updated: list[Any] = []

    def use(self) -> None:
        """Note that the program is used now: those used longest ago are dropped first."""
        self.used = next(_uses)

    def still_valid(self) -> bool:
        """Whether everything that the trace relied on beside the arguments is as it was."""
        if self.deterministic != flags.deterministic:
            return False
        if changed(self.watched):
            return False
        if self.numbers and not all(seen.holds() for seen in self.numbers):
            return False
        if self.containers and any(ref() is None or ref().containers() != inside for ref, inside in self.containers):  # type: ignore[union-attr]
            return False
        if clock.now != self.clock:
            if any(ref() is None or ref().settings() != settings for ref, settings in self.settings):  # type: ignore[union-attr]
                return False
            self.clock = clock.now
        return True

    def __call__(self, leaves: Sequence[Any], arrays: list[Any] | None = None) -> Any:
        """Run on the dynamic leaves of the arguments; a program that changes state runs in one thread at a time.
        arrays: the device arrays that the leaves held just now, if known."""
        if not self._changes:
            try:
                return self._run(leaves, arrays)
            except UserError as error:
                if error.code != "E0402":
                    raise
            with state_lock:  # a program of another thread had taken an array: now it is back
                return self._run(leaves)
        with state_lock, nullcontext() if self.acts else _InterruptsDeferred():
            return self._run(leaves)

    def _run(self, leaves: Sequence[Any], arrays: list[Any] | None = None) -> Any:
        traced = self.traced
        if self._pure:
            given = list(map(_to_device, leaves)) if arrays is None else arrays
            return traced.result(_handles(self._execute(self.executable, given)))
        if traced.changed or traced.changed_args:
            self._refuse_aliases(leaves)
        fixed, updated = [t._value for t in self.fixed], [t._value for t in self.updated]
        known, executable, further = self._ready
        if not (_same_objects(fixed, known) and _same_objects(updated, self._known_updated)):
            types, name = self.executable.inputs[traced.num_args :], self.executable.name
            known = _admit(self.fixed, fixed, types[: len(fixed)], name)
            _admit(self.updated, updated, types[len(fixed) : len(fixed) + len(updated)], name)
            if self.prepared is not None:
                executable, further = self.prepared.make(fixed)
            self._ready = known, executable, further
        self._known_updated = []
        arrays = list(map(_to_device, leaves))
        if updated and not self.acts:
            _unshare(updated)
        outputs = self._execute(executable, [*arrays, *fixed, *updated, *further])
        n, m = traced.num_outputs, self._first_change
        new = outputs[m:]
        for tensor, value in zip(traced.changed, new, strict=True):
            tensor._value = value
        self._known_updated = new if len(new) == len(updated) else [new[i] for i in self._places]
        for position, value in zip(traced.changed_args, outputs[n:m], strict=True):
            if isinstance(leaves[position], Tensor):
                leaves[position]._value = value
        if taping.owners:
            for tensor in [*traced.changed, *[leaves[i] for i in traced.changed_args]]:
                taping.note_change(tensor)
        return traced.result(_handles(outputs[:n]))

    def _refuse_aliases(self, leaves: Sequence[Any]) -> None:
        """What is passed may be part of the state only where neither side is changed (E0212), and is no NumPy array if
        it is changed (E0227)."""
        _apply.refuse_changed_arrays(self.traced, leaves)
        for i, leaf in enumerate(leaves):
            if id(leaf) in self._changed_ids or (i in self.traced.changed_args and id(leaf) in self._state_ids):
                tracing.refuse_alias(i)

    def _execute(self, executable: Executable, arrays: list[Any]) -> list[Any]:
        if flags.debug_nans:
            return self._checked(executable, arrays)
        if flags.debug >= 2:
            return driver._execute(executable, arrays, executable.name)
        return executable.call_unchecked(arrays)

    def _checked(self, executable: Executable, arrays: list[Any]) -> list[Any]:
        """Run and look for NaN in the results; if there is one, run op by op to say where it begins (E0415).

        What is donated is copied before: then the state is as it was before the call.
        """
        count = len(self.module.main.params)  # behind them is what was prepared
        rest = arrays[: count - len(self.updated)]
        donated = [pjrt.to_numpy(a) for a in arrays[len(rest) : count]]
        outputs = executable.call_unchecked(arrays)
        if not nans.found(outputs):
            return outputs
        for tensor, value in zip(self.updated, donated, strict=True):
            tensor._value = value
        fns = self.module.callees()
        again = quiet(self.module.main, fns)
        driver.run_fn(again, fns, [Tensor._of(a) for a in [*rest, *donated]])
        nans.refuse_unlocated(self.executable.name, outputs)


class _Seen:
    """A tensor whose numbers Python saw while tracing, so that they are fixed in the program."""

    def __init__(self, tensor: Tensor, value: Any, numbers: bytes) -> None:
        self.tensor, self.value, self.numbers = weakref.ref(tensor), value, numbers

    def holds(self) -> bool:
        """Whether they are the same still. A tensor that is gone was made in the function, anew in each trace."""
        tensor = self.tensor()
        if tensor is None:
            self.value = None
        if tensor is None or tensor._value is self.value:
            return True
        if tracing.fingerprint(tensor.numpy()) != self.numbers:
            return False
        self.value = tensor._value  # moved to the device, or the same numbers again
        return True


# What signal.signal is made of: it makes enums of numbers and handlers, which takes longer than all the rest.
_signals: Any = importlib.import_module("_signal")


class _InterruptsDeferred:
    """Ctrl-C waits until donated state has its new values: in between, a parameter would be lost."""

    def __enter__(self) -> None:
        self._pressed: list[int] = []
        self._before: Any = None
        if threading.get_ident() == threading.main_thread().ident:
            before = _signals.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                _signals.signal(signal.SIGINT, lambda number, _: self._pressed.append(number))
                self._before = before

    def __exit__(self, kind: Any, *_: object) -> None:
        if self._before is not None:
            _signals.signal(signal.SIGINT, self._before)
        if self._pressed and kind is None:
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
            moved = pjrt.put(value)
            taping.replace(tensor, value, moved)
            value = values[i] = moved
        if type_of(value) != type:
            why = f"{name} was compiled for a captured tensor {type}, which is now {type_of(value)}"
            raise UserError("E0209", why, fix="give it its old shape and dtype, or jit the function again")
    return values


def _unshare(values: list[Any]) -> None:
    """Copy what is to be donated but is held elsewhere too (another handle, an argument): it must survive."""
    # Each is held by its tensor, by `values`, and as the argument of getrefcount.
    if pjrt.twins or max(map(sys.getrefcount, values)) > 3:
        for i in range(len(values)):
            if sys.getrefcount(values[i]) > 3 or id(values[i]) in pjrt.twins:
                values[i] = pjrt.put(pjrt.to_numpy(values[i]))


def _handles(arrays: list[Any]) -> list[Tensor]:
    """Tensors of device arrays: `Tensor._of`, written out as it is a twentieth of a small program's call."""
    made = []
    for array in arrays:
        tensor = object.__new__(Tensor)
        tensor._value = array
        tensor._trace = tensor._weak = None
        made.append(tensor)
    return made


def _to_device(leaf: Any) -> Any:
    """The device array of a dynamic leaf; a tensor's is moved there once and kept."""
    if isinstance(leaf, Tensor):
        value = leaf._value
        if isinstance(value, np.ndarray):
            moved = pjrt.put(value)
            taping.replace(leaf, value, moved)
            return moved
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
