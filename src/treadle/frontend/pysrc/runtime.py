"""What rewritten code calls (as `_td_`): decisions and loops that look whether a tensor decides.

If none does, each function does what Python does. If one does, the branches or the body are handed to the stage above
(`hooks`), which makes IR regions of them. A branch works on the variables of its function through a `State`: they are
read before, set back for each branch, and get the merged values afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.pysrc import builtin, lookup, recursion
from treadle.frontend.pysrc.builtin import Catching, is_symbolic, modulo
from treadle.frontend.pysrc.convert import converted, is_converted, note, own_method
from treadle.frontend.pysrc.exits import DONE, VALUE
from treadle.frontend.pysrc.fitting import match
from treadle.frontend.pysrc.lookup import augment, item, put
from treadle.frontend.pysrc.state import UNBOUND, Snapshot, State, Unbound, hidden, is_bound, retried
from treadle.frontend.trace import is_tensor

__all__ = [
    "Catching", "State", "and_", "assert_", "attribute", "augment", "bound", "callee", "compare", "for_", "guard",
    "hooks", "if_", "if_expression", "is_bound", "item", "manager", "match", "modulo", "not_", "nothing", "or_", "put",
    "result", "text", "while_",
]  # fmt: skip

# A Python loop of more trips than this is rolled where its body allows.
UNROLLED = 8


class _Hooks:
    """Installed by the stage that makes regions (api/staging.py).

    choose(pred, then, orelse, snapshot): the slots of both branches, merged. loop(test, step, snapshot, length, extra):
    the slots after the loop. truth(tensor): one bool. negated(tensor): `not`. logical(stop, value, rest, unchanged):
    and/or of two bools, None where that is not all. check(test, error): raise when the program runs. entry(numbers, i):
    the number at a place.
    """

    choose: Callable[..., Any]
    loop: Callable[..., Any]
    truth: Callable[..., Any]
    negated: Callable[..., Any]
    logical: Callable[..., Any]
    check: Callable[..., Any]
    entry: Callable[..., Any]


hooks = _Hooks()


# ----------------------------------------------------------------------------------------------------------- decisions
def decision(test: Any) -> Any:
    """What decides: a value, or what the `__bool__` of an object of the user gives for it."""
    own = None if is_tensor(test) or tracing.current() is None else own_method(test, "__bool__")
    return test if own is None else callee(own)(test)


def if_(test: Any, then: Callable[[], None], orelse: Callable[[], None], state: State) -> None:
    """`if`: one of two blocks that work on the variables of their function."""
    test = decision(test)
    if not is_symbolic(test):
        (then if test else orelse)()
        return
    snapshot = Snapshot(state)

    def branch(run: Callable[[], None]) -> Callable[[], list[Any]]:
        def traced() -> list[Any]:
            snapshot.restore()
            run()
            return snapshot.slots()

        return traced

    try:
        pred = hooks.truth(test)
        merged = retried(lambda: hooks.choose(pred, branch(then), branch(orelse), snapshot))
    finally:
        snapshot.restore()
    snapshot.write(merged)
    snapshot.watch(merged)


def guard(
    test: Any, then: Callable[[], None], orelse: Callable[[], None], state: State, flags: tuple[str, ...]
) -> None:
    """`if` on the flags of jumps: inside, names that those who jumped have not bound have their values. Those who
    returned come to none of these."""
    if not is_symbolic(test):
        (then if test else orelse)()
        return
    before = state.values()
    left = [h if (h := hidden(v)) is not None and h.flags & {DONE, *flags} else None for v in before]
    state.setter([v if h is None else h.value for h, v in zip(left, before, strict=True)])
    if_(test, then, orelse, state)
    after = zip(left, state.values(), strict=True)
    state.setter([v if h is None or not is_bound(v) else h.holding(v) for h, v in after])


def if_expression(test: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    """`a if test else b`."""
    test = decision(test)
    if not is_symbolic(test):
        return then() if test else orelse()
    found: list[Any] = [UNBOUND]

    def take(value: Callable[[], Any]) -> Callable[[], None]:
        return lambda: found.__setitem__(0, value())

    if_(test, take(then), take(orelse), _state_of(found, then, orelse))
    return found[0]


def _state_of(found: list[Any], *thunks: Callable[[], Any]) -> State:
    """The state of an expression: its value, and what the parts that may run reach."""
    getters: list[Callable[[], Any]] = [lambda: found[0], *[lambda t=t: t for t in thunks]]
    read = tuple([f"part {i}" for i in range(len(thunks))])
    return State(("the value",), read, tuple(getters), lambda values: found.__setitem__(0, values[0]))


def and_(first: Any, *rest: Callable[[], Any]) -> Any:
    """`a and b and ...`: the first that is false, or the last."""
    return _chain(first, rest, stop=False)


def or_(first: Any, *rest: Callable[[], Any]) -> Any:
    """`a or b or ...`: the first that is true, or the last."""
    return _chain(first, rest, stop=True)


def _chain(value: Any, rest: Sequence[Callable[[], Any]], stop: bool) -> Any:
    for i, thunk in enumerate(rest):
        if (asked := decision(value)) is not value and is_symbolic(asked):
            parts = tuple(rest[i:])
            ways = (lambda: value), (lambda: _chain(parts[0](), parts[1:], stop))  # noqa: B023
            return if_expression(asked, *(ways if stop else ways[::-1]))
        if is_symbolic(value):
            others = tuple(rest[i:])
            return _decided(stop, value, lambda: _chain(others[0](), others[1:], stop))  # noqa: B023
        if bool(value) is stop:
            return value
        value = thunk()
    return value


def _decided(stop: bool, value: Any, rest: Callable[[], Any]) -> Any:
    """`value and rest()`, `value or rest()` (stop) where a tensor decides. Both are computed if it does nothing."""
    snapshot = Snapshot(_state_of([UNBOUND], rest))

    def unchanged() -> bool:
        return not snapshot.differs(snapshot.initial())

    try:
        found = hooks.logical(stop, value, rest, unchanged)
    finally:
        snapshot.restore()
    if found is not None:
        return found
    test = hooks.truth(value)
    return if_expression(test, *((lambda: value), rest) if stop else (rest, lambda: value))


def not_(value: Any) -> Any:
    """`not value`."""
    value = decision(value)
    return hooks.negated(value) if is_symbolic(value) else not value


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt,
    "GtE": operator.ge, "Is": operator.is_, "IsNot": operator.is_not, "In": lambda x, y: lookup.contains(y, x),
    "NotIn": lambda x, y: not_(lookup.contains(y, x)),
}  # fmt: skip


def compare(left: Any, *links: tuple[str, Callable[[], Any]]) -> Any:
    """`a < b < c`: each operand is evaluated once, none after the first comparison that fails."""
    (name, thunk), *rest = links
    right = thunk()
    found = _OPERATORS[name](left, right)
    links = tuple(rest)
    return and_(found, lambda: compare(right, *links)) if links else found


def assert_(test: Any, message: Callable[[], Any]) -> None:
    """`assert test, message`."""
    test = decision(test)
    if is_symbolic(test):
        hooks.check(hooks.truth(test), lambda: AssertionError(*[m for m in [message()] if m is not None]))
    elif not test:
        text = message()
        raise AssertionError(text) if text is not None else AssertionError


# --------------------------------------------------------------------------------------------------------------- loops
def while_(test: Callable[[], Any], body: Callable[[], None], stopped: Callable[[], Any] | None, state: State) -> None:
    """`while`: runs in Python as long as no tensor decides, and is a region from there on."""
    while True:
        stop = stopped() if stopped is not None else False
        if not is_symbolic(stop) and stop:
            return
        before = Snapshot(state)
        goes_on = decision(test())
        if is_symbolic(stop) or is_symbolic(goes_on):
            binds = before.differs(before.initial())
            before.restore()
            _staged(test, body, stopped, before, binds)
            return
        if not goes_on:
            return
        body()


def _staged(
    test: Callable[[], Any], body: Callable[[], None], stopped: Callable[[], Any] | None, snapshot: Snapshot,
    test_binds: bool,
) -> None:  # fmt: skip
    def again(slots: list[Any]) -> Any:
        snapshot.write(slots)
        stop = stopped() if stopped is not None else False
        goes_on = decision(test())
        return hooks.truth(and_(not_(stop), lambda: goes_on))

    def step(slots: list[Any]) -> list[Any]:
        snapshot.write(slots)
        if test_binds:
            test()
        try:
            body()
        except UserError:
            raise
        except Exception as error:
            raise _TripError(error) from None
        return snapshot.slots()

    try:
        final = retried(lambda: hooks.loop(again, step, snapshot, None))
    except _TripError as found:  # whatever the tensors are: it raises in the first trip, if there is one
        error = found.error
        snapshot.restore()
        hooks.check(not_(test()), lambda: error)
        return
    finally:
        snapshot.restore()
    snapshot.write(final)
    snapshot.watch(final)
    if test_binds:
        test()


class _TripError(Exception):
    """A trip raised this while it was traced."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def for_(iterable: Any, body: Callable[[Any], None], stopped: Callable[[], Any] | None, state: State) -> None:
    """`for`: over what Python iterates over; long ranges and tensors are rolled where the body allows."""
    items = builtin.items_of(iterable)
    if items is None:
        named = sys.getrefcount(iterable) > _REFERENCES and hasattr(iterable, "__next__")
        _for_python(iter(iterable), body, stopped, state, named)
    elif not isinstance(items.count, int):
        _for_rolled(items, 0, body, stopped, Snapshot(state))
    else:
        _for_counted(items, body, stopped, state)


def _references(iterable: Any, body: Any, stopped: Any, state: Any) -> int:
    """The references to an argument that nobody else holds."""
    return sys.getrefcount(iterable)


_REFERENCES = _references(iter(()), None, None, None)


def _for_python(
    items: Iterator[Any],
    body: Callable[[Any], None],
    stopped: Callable[[], Any] | None,
    state: State,
    named: bool = False,
) -> None:
    """named: others hold the iterator, and would see how far the loop has come."""
    while True:
        stop = stopped() if stopped is not None else False
        if is_symbolic(stop):
            if named:
                why = "a loop that a tensor may end goes over an iterator that is used elsewhere too"
                raise UserError("E0242", why, fix="loop over a list, or over list(...) of what is left")
            _guarded(items, body, stopped, state)
            return
        if stop:
            return
        each = next(items, _END)
        if each is _END:
            return
        body(each)


_END = object()
_MOST_GUARDED = 1_000


def _guarded(rest: Iterator[Any], body: Callable[[Any], None], stopped: Any, state: State) -> None:
    """What is left of a loop in Python after a tensor may have ended it: each trip only if it has not."""
    for i, each in enumerate(rest):
        if i == _MOST_GUARDED:
            why = f"a loop that a tensor ends goes over more than {i} items of a {type(rest).__name__}"
            raise UserError("E0242", why, fix="loop over a range or a tensor, or use while")
        if_(not_(stopped()), functools.partial(body, each), lambda: None, state)


def _for_counted(
    items: builtin.Items, body: Callable[[Any], None], stopped: Callable[[], Any] | None, state: State
) -> None:
    """A known number of trips. The first trip gives the variables their types; the others are rolled if they can be."""
    if items.count <= UNROLLED or tracing.current() is None:
        _for_python(iter(items), body, stopped, state)
        return
    body(items.at(0))
    snapshot = Snapshot(state)
    try:
        with builtin.only_repeatable():
            _for_rolled(items, 1, body, stopped, snapshot)
    except builtin.NOT_ROLLED:
        snapshot.restore()
        _for_python(iter(items.after(1)), body, stopped, state)


def _for_rolled(
    items: builtin.Items, start: int, body: Callable[[Any], None], stopped: Callable[[], Any] | None, snapshot: Snapshot
) -> None:
    def again(slots: list[Any]) -> Any:
        snapshot.write(slots[1:])
        stop = stopped() if stopped is not None else False
        return hooks.truth(and_(slots[0] < items.count, lambda: not_(stop)))

    def step(slots: list[Any]) -> list[Any]:
        snapshot.write(slots[1:], in_trip=True)
        body(items.at(slots[0]))
        after = snapshot.slots()
        return [slots[0] + 1, *after, *snapshot.appended]

    fixed = snapshot.rolled = isinstance(items.count, int) and stopped is None
    length = items.count - start if fixed else None
    try:
        final = retried(lambda: hooks.loop(None if fixed else again, step, snapshot, length, [start]))
    finally:
        snapshot.restore()
    slots = 1 + len(snapshot.names)
    snapshot.write(final[1:slots])
    snapshot.watch(final[1:slots])
    if length is not None:
        snapshot.fill(final[slots:], length)


# --------------------------------------------------------------------------------------------------------- all the rest
def callee(function: Any) -> Any:
    """What is called where the source says `function`."""
    if tracing.current() is None:
        return function
    try:
        replaced = builtin.REPLACED.get(function)
    except TypeError:  # cannot be hashed
        replaced = None
    if replaced is not None:
        return replaced
    builtin.check_repeatable(function)
    owner: Any = getattr(function, "__self__", None)
    if is_symbolic(owner) and function.__name__ == "item":
        return lambda *place: builtin.item(owner[place] if place else owner)
    if isinstance(owner, str) and (found := builtin.of_str(getattr(function, "__name__", ""), owner)) is not None:
        return found
    if type(owner) is dict and (found := lookup.of_dict(owner, function.__name__)) is not None:
        return found
    made = converted(function)
    note(function, made)
    return recursion.watched(made) if is_converted(made) else made


def manager(found: Any) -> Any:
    """What follows `with`: a manager of the user may catch what the body raises."""
    kind = type(found)
    if tracing.current() is None or kind is Catching or kind.__module__.partition(".")[0] in _NEVER_CATCH:
        return found
    return Catching(found) if not isinstance(found, contextlib.nullcontext) else found


_NEVER_CATCH = ("treadle", "numpy", "threading", "_thread", "_io", "warnings")


def attribute(owner: Any, name: str) -> Any:
    """`owner.name`, where the getter of a property is rewritten."""
    if not is_tensor(owner) and tracing.current() is not None:
        found = getattr(type(owner), name, None)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            return callee(found.fget)(owner)
    return getattr(owner, name)


def text(*parts: Any) -> Any:
    """An f-string: text, and (value, conversion, format) for what is shown."""
    if any(isinstance(p, tuple) and is_symbolic(p[0]) for p in parts):
        return builtin.Text(parts)
    return "".join([p if isinstance(p, str) else builtin.formatted(*p) for p in parts])


def nothing() -> Any:
    """What a function has returned before it returns."""
    return UNBOUND


def result(value: Any) -> Any:
    """What a function returns: nothing if no `return` was reached."""
    return None if isinstance(value, Unbound) and value.name in ("", VALUE) else bound(value)


def bound(value: Any) -> Any:
    """The value of a name. Raises E0240 when it may have none."""
    if type(value) is Unbound:
        value.refuse()
    return value
