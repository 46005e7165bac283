"""The variables that a branch or a loop works on: read before, set back for each branch, merged afterwards.

`State` is made in the function itself: the names it may bind, those it only reads, and functions that get and set them.
`Snapshot` holds their values and the contents of the lists, dicts, sets and plain objects among them. Its *slots* are a
flat list: first the values of the names that may be bound, then the elements of the containers.
"""

from __future__ import annotations

import dis
import functools
import types
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from treadle.base.errors import UserError
from treadle.base.where import is_hidden
from treadle.frontend import tree
from treadle.frontend.pysrc import aliases, grown, source
from treadle.frontend.trace import is_tensor

_NONE = object()


class Unbound:
    """What a name holds that has no value; looking at it is an error.

    value: what it holds where the side that gives it none has left by a jump; it is there behind the jump's guard.
    flags: those that the jump has set. error: why it has no value, where it is not that none was given.
    """

    __slots__ = ("error", "flags", "name", "value")

    def __init__(
        self, name: str = "", value: Any = _NONE, error: UserError | None = None, flags: frozenset[str] = frozenset()
    ) -> None:
        self.name, self.value, self.error, self.flags = name, value, error, flags

    def holding(self, value: Any) -> Unbound:
        """The same with another value behind the guard."""
        return Unbound(self.name, value, self.error, self.flags)

    def __getattr__(self, attribute: str) -> Any:
        raise self.error or _unbound(self.name)

    def refuse(self) -> Any:
        """Raise the error of looking at it, E0240 unless there is another."""
        raise self.error or _unbound(self.name)

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise self.error or _unbound(self.name)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refused
    __call__ = __getitem__ = __iter__ = __len__ = __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __matmul__ = __rmatmul__ = __neg__ = __pow__ = __rpow__ = __index__ = __float__ = __int__ = _refused

    def __repr__(self) -> str:
        return f"<{self.name or 'nothing'} without a value>"


def _unbound(name: str) -> UserError:
    why = f"{name or 'the result'} may have no value here: one branch, or the loop's body, alone gives it one"
    return UserError("E0240", why, fix=f"give {name or 'it'} a value of the same type before the branch or loop")


UNBOUND = Unbound()


def hidden(value: Any) -> Unbound | None:
    """What a name holds that has a value only behind the guard of a jump, else None."""
    return value if isinstance(value, Unbound) and value.value is not _NONE else None


def revealed(value: Any) -> Any:
    """The value of a name behind the guard of a jump."""
    return value.value if hidden(value) is not None else value


def is_bound(value: Any) -> bool:
    """Whether a name has a value."""
    return not isinstance(value, Unbound)


class AgainError(BaseException):
    """Something came up that was not expected (new attributes of an object, a new object for a name): the branch or
    trip is traced again, now that it is."""


def retried(attempt: Callable[[], Any]) -> Any:
    """What `attempt` gives, once nothing comes up that is not expected."""
    while True:
        try:
            return attempt()
        except AgainError:
            continue


class Boxed:
    """A plain object as a container of its attributes; `tree` makes a new object of the same class of it."""

    def __init__(self, value: Any, around: tuple[Any, ...]) -> None:
        self.kind, self.names = type(value), tuple(vars(value))
        self.children = [boxed(v, (*around, value)) for v in vars(value).values()]


def _join(keys: Any, children: Sequence[Any]) -> Any:
    kind, names = keys
    made = object.__new__(kind)
    made.__dict__.update(zip(names, children, strict=True))
    return made


tree.register(Boxed, lambda b: ((b.kind, b.names), b.children), _join)


def boxed(value: Any, around: tuple[Any, ...] = ()) -> Any:
    """The value with each plain object in it as a container; not the objects around, which refer to themselves."""
    leaves, shape = tree.flatten(value)
    found = [is_object(x) and all(x is not a for a in around) for x in leaves]
    if not any(found):
        return value
    return shape.unflatten([Boxed(x, around) if f else x for x, f in zip(leaves, found, strict=True)])


class State:
    """written: names that may be bound; read: names that are read only; getters: one for each of both; setter: sets
    the written ones from a list."""

    __slots__ = ("getters", "read", "setter", "written")

    def __init__(
        self,
        written: tuple[str, ...],
        read: tuple[str, ...],
        getters: tuple[Callable[[], Any], ...],
        setter: Callable[[Sequence[Any]], None],
    ) -> None:
        self.written, self.read, self.getters, self.setter = written, read, getters, setter

    def values(self) -> list[Any]:
        """The values of the written names."""
        return [_get(n, g) for n, g in zip(self.written, self.getters)]

    def read_values(self) -> list[Any]:
        """The values of the names that are read only."""
        return [_get(n, g) for n, g in zip(self.read, self.getters[len(self.written) :], strict=True)]


def _get(name: str, getter: Callable[[], Any]) -> Any:
    try:
        return getter()
    except (NameError, AttributeError, UserError):
        return Unbound(name)


class Held:
    """What a slot holds instead of a container: this very one, whose elements are slots of their own."""

    __slots__ = ("container",)

    def __init__(self, container: Any) -> None:
        self.container = container


class Snapshot:
    """The state of this moment."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.values = state.values()
        self.opened: set[int] = set()  # the slots that are given new containers or objects, which are taken apart
        self.taken: list[tuple[int, list[Any]]] = []  # for opened slots: containers with other names that they held
        self.rolled = False  # whether it is for a loop of known length, in which lists may grow
        self.grown: dict[int, int] = {}  # by place of the list: how many elements a trip appends
        self.appended: list[Any] = []  # by the last trip, to all lists
        self.containers: list[Any] = []
        read = state.read_values()
        _collect([*self.values, *read], self.containers, set())
        self.assigned = _assigned(state, [*self.values, *read])
        self.contents = [self._content(c) for c in self.containers]
        self.held = {id(c): Held(c) for c in self.containers if _is_container(c)}

    def _content(self, container: Any) -> tuple[Any, list[Any]]:
        """(keys, elements) of a container. A set is one element, as it has no places."""
        if isinstance(container, dict):
            return [*[f"[{k!r}]" for k in container], ".keys()"], [*container.values(), tuple(container)]
        if isinstance(container, set):
            return [""], [frozenset(container)]
        if isinstance(container, list | deque):
            return [f"[{i}]" for i in range(len(container))], list(container)
        if isinstance(container, Variable):
            return [""], [container.get()]
        names = dict.fromkeys([*vars(container), *self.assigned.get(id(container), ())])
        return [f".{n}" for n in names], [vars(container).get(n, Unbound(n)) for n in names]

    @property
    def plain(self) -> int:
        """How many of the first slots are those of local names, in a statement."""
        return 0 if self.state.written == ("the value",) else sum("." not in n for n in self.state.written)

    @property
    def names(self) -> list[str]:
        """A name for each slot."""
        inside = [f"{self._name_of(c)}{k}" for c, (keys, _) in zip(self.containers, self.contents) for k in keys]
        return [*self.state.written, *inside]

    def _name_of(self, container: Any) -> str:
        if isinstance(container, Variable):
            return container.name
        for name, value in zip([*self.state.written, *self.state.read], [*self.values, *self.state.read_values()]):
            if value is container:
                return name
        return type(container).__name__

    def slots(self) -> list[Any]:
        """The slots as they are now. Raises E0241 when a container has other keys or another length than before."""
        out = self.state.values()
        self.appended = []
        for place, (container, (keys, _)) in enumerate(zip(self.containers, self.contents, strict=True)):
            now, elements = self._content(container)
            if self.rolled and len(now) > len(keys) and type(container) is list:
                now, elements = self._grown(place, elements, len(keys))
            if now != keys:
                self._learn(container, keys, now)
                raise _changed(self._name_of(container), container, len(keys), len(now))
            out += elements
        return self._closed(out)

    def _grown(self, place: int, elements: list[Any], before: int) -> tuple[list[str], list[Any]]:
        """(keys, elements) of a list without what the trip has appended to it."""
        if place not in self.grown:
            self.grown[place] = len(elements) - before
            raise AgainError
        new = elements[before + 1 :]  # behind what stands for the elements of other trips
        if type(elements[before]) is not Unbound or len(new) != self.grown[place] or not all(map(is_tensor, new)):
            raise _changed(self._name_of(self.containers[place]), elements, before, len(elements))
        self.appended += new
        return self.contents[place][0], elements[:before]

    def fill(self, stacks: Sequence[Any], length: int) -> None:
        """Give the lists that have grown what all trips have appended: stacks of each."""
        for place, count in sorted(self.grown.items()):
            grown.fill(self.containers[place], stacks[:count], length)
            stacks = stacks[count:]

    def _learn(self, container: Any, keys: Any, now: Any) -> None:
        """Expect the attributes that an object has got, and ask for another try."""
        if is_object(container) and set(keys) < set(now):
            self.assigned.setdefault(id(container), []).extend(k[1:] for k in now if k not in keys)
            place = next(i for i, c in enumerate(self.containers) if c is container)
            names, known = [k for k in now if k not in keys], self.contents[place]
            self.contents[place] = [*known[0], *names], [*known[1], *[Unbound(n[1:]) for n in names]]
            raise AgainError

    def initial(self) -> list[Any]:
        """The slots as they were."""
        return self._closed([*self.values, *[e for _, elements in self.contents for e in elements]])

    def shared(self) -> set[int]:
        """The ids of the tensors that several names hold, or that come from outside of the function."""
        values = [*self.values, *self.state.read_values(), *[e for _, elements in self.contents for e in elements]]
        found = Counter(id(x) for v in values for x in tree.flatten(v)[0] if is_tensor(x))
        tensors = {id(x): x for v in values for x in tree.flatten(v)[0] if is_tensor(x)}
        return {
            i
            for i, x in tensors.items()
            if x._weak is None and (found[i] > 1 or getattr(x._value, "node", None) is None)
        }

    def _closed(self, slots: list[Any]) -> list[Any]:
        """The slots with containers that were there before as `Held`; what is new in an opened slot is taken apart."""
        for i in self.opened:
            self.taken.append((i, self._with_others(i, slots[i])))
        return [boxed(v) if i in self.opened else self.held.get(id(v), v) for i, v in enumerate(slots)]

    def _with_others(self, place: int, value: Any) -> list[Any]:
        """The containers in what a slot has got that were there before, under another name than this slot's."""
        before = [*self.values, *[e for _, elements in self.contents for e in elements]]
        now: list[Any] = []
        own: list[Any] = []
        _collect([value], now, set())
        _collect([before[place]], own, set())
        held, mine = aliases.holders([*before, *self.state.read_values()]), set(map(id, own))
        known = set(map(id, self.containers))
        return [c for c in now if id(c) in known and (id(c) not in mine or held[id(c)] > 1)]

    def watch(self, slots: Sequence[Any]) -> None:
        """What opened slots hold at last are copies: neither they nor what they are copies of may be changed."""
        for place, originals in self.taken:
            new: list[Any] = []
            _collect([slots[place]], new, set())
            if originals:
                aliases.copied(new, originals, self.names[place])

    def open(self, places: Sequence[int]) -> None:
        """Take what these slots hold apart, and ask for another try."""
        new = set(places) - self.opened
        if new:
            self.opened |= new
            raise AgainError

    def restore(self) -> None:
        """Everything as it was."""
        self.write([*self.values, *[e for _, elements in self.contents for e in elements]])

    def write(self, slots: Sequence[Any], in_trip: bool = False) -> None:
        """Set names and containers from slots. in_trip: in lists that grow something stands for what is unknown."""
        n = len(self.state.written)
        slots = [s.container if type(s) is Held else s for s in slots]
        self.state.setter(slots[:n])
        for place, (container, (keys, elements)) in enumerate(zip(self.containers, self.contents, strict=True)):
            _fill(container, keys, slots[n : n + len(elements)])
            if in_trip and place in self.grown:
                container.append(Unbound(f"{self._name_of(container)}[{len(elements)}]"))
            n += len(elements)

    def differs(self, slots: Sequence[Any]) -> bool:
        """Whether something is not what the slots say."""
        return any(a is not b for a, b in zip(self.slots(), slots, strict=True))


def copies(value: Any, originals: Sequence[Any], name: str) -> None:
    """Remember that a value is a copy of one or another: containers in any of them may not be changed."""
    new: list[Any] = []
    old: list[Any] = []
    _collect([value], new, set())
    _collect(originals, old, set())
    if old:
        aliases.copied(new, old, name)


def _collect(values: Sequence[Any], found: list[Any], seen: set[Any]) -> None:
    """Containers and plain objects among the values, outermost first."""
    for value in values:
        key = value.key if isinstance(value, Variable) else id(value)
        if key in seen:
            continue
        seen.add(key)
        if isinstance(value, tuple):
            _collect(value, found, seen)
        elif isinstance(value, Variable):
            found.append(value)
            _collect([value.get()], found, seen)
        elif isinstance(value, _CALLED):
            _collect(reached(value), found, seen)
        elif _is_container(value):
            found.append(value)
            _collect(list(value.values() if isinstance(value, dict) else value), found, seen)
        elif is_object(value) and len(found) < _MOST_OBJECTS:
            found.append(value)
            _collect(list(vars(value).values()), found, seen)


# ------------------------------------------------------------------------------------------ what called functions reach
class Variable:
    """A variable of an outer function or a global one that a function changes. key: what tells it from others."""

    __slots__ = ("key", "name", "place")

    def __init__(self, name: str, place: types.CellType | dict[str, Any]) -> None:
        self.name, self.place = name, place
        self.key = (id(place), name)

    def get(self) -> Any:
        try:
            return self.place[self.name] if isinstance(self.place, dict) else self.place.cell_contents
        except (KeyError, ValueError):
            return Unbound(self.name)

    def set(self, value: Any) -> None:
        if isinstance(self.place, dict):
            self.place[self.name] = value
        else:
            self.place.cell_contents = value


def reached(function: Any) -> list[Any]:
    """What a function or method of the user works on: the variables that it changes, the values of those it reads."""
    if isinstance(function, types.MethodType):
        return [function.__self__, function.__func__]
    if isinstance(function, functools.partial):
        return [function.func, *function.args, *function.keywords.values()]
    if function.__code__.co_filename == _RUNTIME:  # a part of an expression: what matters is behind it
        cells = [c.cell_contents for c in function.__closure__ or ()]
        return [x for x in cells if isinstance(x, tuple | types.FunctionType)]
    if is_hidden(function.__code__.co_filename) or source.is_library(function.__globals__.get("__name__", "")):
        return []
    stored, outside = _changes(function.__code__)
    found: list[Any] = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if not name.startswith(("_td_", "__class__")):
            variable = Variable(name, cell)
            found.append(variable if name in stored else variable.get())
    for name in outside:
        if name in stored or name in function.__globals__:
            variable = Variable(name, function.__globals__)
            found.append(variable if name in stored else variable.get())
    return found


@functools.lru_cache(maxsize=1 << 12)
def _changes(code: types.CodeType) -> tuple[frozenset[str], tuple[str, ...]]:
    """(outer and global names that a function or one inside it sets, all global names that it uses)."""
    stored, outside = set(), set()
    for i in dis.get_instructions(code):
        if i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval in code.co_freevars:
            stored.add(i.argval)
        elif i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_GLOBAL"):
            outside.add(i.argval)
            if i.opname != "LOAD_GLOBAL":
                stored.add(i.argval)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            inner, more = _changes(part)
            stored |= {n for n in inner if n in more or n in code.co_freevars}
            outside |= set(more)
    return frozenset(stored), tuple(sorted(outside))


# Objects whose attributes are looked after; more belong to a large structure that a branch hardly changes.
_MOST_OBJECTS = 256
_RUNTIME = str(Path(__file__).with_name("runtime.py"))
_CALLED = (types.FunctionType, types.MethodType, functools.partial)
_NOT_DATA = (Unbound, type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def _is_container(value: Any) -> bool:
    return type(value) in (list, dict, set, deque)


def is_object(value: Any) -> bool:
    """Whether it is an instance of a class of the user, with attributes. (Cells look after their own.)"""
    if isinstance(value, _NOT_DATA) or is_tensor(value) or not isinstance(getattr(value, "__dict__", None), dict):
        return False
    kind = type(value)
    return not source.is_library(kind.__module__) and not hasattr(kind, "settings")


def _assigned(state: State, values: Sequence[Any]) -> dict[int, list[str]]:
    """The attributes that the block assigns, for each object that a name holds."""
    named = dict(zip([*state.written, *state.read], values, strict=True))
    found: dict[int, list[str]] = {}
    for name in state.written:
        owner, _, attribute = name.rpartition(".")
        if owner in named:
            found.setdefault(id(named[owner]), []).append(attribute)
    return found


def _fill(container: Any, keys: Any, elements: Sequence[Any]) -> None:
    if isinstance(container, dict):
        *values, names = elements
        container.clear()
        container.update(zip(names, values, strict=True))
    elif isinstance(container, set):
        container.clear()
        container.update(elements[0])
    elif isinstance(container, list | deque):
        container.clear()
        container.extend(elements)
    elif isinstance(container, Variable):
        container.set(elements[0])
    else:
        vars(container).clear()
        bound = [(k[1:], e) for k, e in zip(keys, elements, strict=True) if is_bound(e)]
        vars(container).update(bound)


def _changed(name: str, container: Any, before: int, now: int) -> UserError:
    why = f"{name}, a {type(container).__name__} of {before} elements, has {now} after a branch or loop on a tensor"
    fix = "give it its length before, and assign elements; or keep the values in a tensor: x = x.at[i].set(v)"
    return UserError("E0241", why, fix=fix)
