"""What a compiled function does beside its results: `debug_print`, `debug_check`, `callback`; and `pure_callback` for
what only Python can compute. `show` and `check` are `print` and `assert` or `raise` of the source front end.

In eager mode all act at once. In a trace each becomes a node that calls Python when the program runs: once for each
time that it is reached, in the order of the program, in loops and branches too. In a gradient they act in the forward
part only, also where a body is run once more. Under `vmap` a call that depends on the lane runs for one lane after the
other, another one once. What is shown beside tensors is shown as it was while tracing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from treadle import ops
from treadle.api import _apply
from treadle.api._templates import Call, Compute, Format, Places, Print, Raise, Same
from treadle.api.control import cond
from treadle.base import arguments, where
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.pysrc.builtin import refuse_caught
from treadle.frontend.tensor import Tensor
from treadle.ir import build
from treadle.ir.host import Host
from treadle.ir.node import Value
from treadle.ir.op import Op
from treadle.ir.types import TensorType
from treadle.ops.effects import run_function


def debug_print(text: str, *args: Any, **kwargs: Any) -> None:
    """Print `text.format(*args, **kwargs)`, in a compiled function each time that it is reached.

        td.debug_print("loss {:.3f} at {step}", loss, step=step)

    Raises E0234 when text is no str. Where it does not fit the arguments, `str.format` says so when it is shown.
    """
    if not isinstance(text, str):
        raise UserError("E0234", f"the text of debug_print is {text!r}", fix="give a str with {} for each value")
    if tracing.current() is None:
        print(text.format(*args, **kwargs))
        return
    places = Places()
    line = Format(text, places.tree((args, kwargs)))
    _act(Print((line,)), places, "debug_print")


def debug_check(pred: Any, text: str = "", *args: Any, error: type[Exception] = AssertionError) -> None:
    """Raise `error(text.format(*args))` unless pred, or each element of it, is true.

    In a compiled function the exception comes out of the call of that function; state is then as before the call.
    Raises E0234 when text is no str or error no class of exceptions.
    """
    if not isinstance(text, str) or not (isinstance(error, type) and issubclass(error, Exception)):
        raise UserError("E0234", f"debug_check got {text!r} and {error!r}", fix="give a str and a class of exceptions")
    if tracing.current() is None:
        if not _holds(pred):
            raise error(text.format(*args)) if text else error()
        return
    refuse_caught(error.__new__(error))
    places = Places()
    message = (Format(text, places.tree((args, {}))),) if text else ()
    _raise_unless(pred, places, Raise(error, message, (), where.here()))


def callback(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Call function(*args, **kwargs) for what it does; what it returns is dropped.

    args, kwargs: anything, with tensors in it or not; in a compiled function the tensors have their values when it
    runs, the rest is as it was while tracing. What the function raises comes out of the call of the compiled function.
    It may run in another thread than the caller's, which waits; Ctrl-C reaches it in the caller's only.
    """
    arguments.function(function, "what callback calls")
    if tracing.current() is None:
        function(*args, **kwargs)
        return
    places = Places()
    _act(Call(Same(function), places.tree((args, kwargs))), places, _name(function))


def pure_callback(function: Callable[..., Any], results: Any, *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs), computed by Python also in a compiled function.

    results: what it returns, as a container of tensors, arrays or types (anything with `shape` and `dtype`); the
    function returns the like, of tensors or arrays. It must do nothing else: it is left out when nobody reads its
    results, and may run more than once. It has no derivative (E0303; see td.custom_gradient). Raises E0178 when the
    function returns something else, E0234 when results tell no types.
    """
    arguments.function(function, "what pure_callback calls")
    likes, shape = tree.flatten(results)
    types = tuple(map(_type, likes))
    places = Places()
    call = Compute(Call(Same(function), places.tree((args, kwargs))), shape)
    host = Host.of(call, _name(function))
    if tracing.current() is not None:
        found = _apply_op(ops.host_function, places.tensors, host=host, results=types)
    elif places.tensors:
        found = list(ops.host_function(*places.tensors, host=host, results=types))
    else:
        found = [Tensor(a) for a in run_function(host, (), types)]
    return shape.unflatten(found)


def _type(like: Any) -> TensorType:
    if isinstance(like, TensorType):
        return like
    if not hasattr(like, "shape") or not hasattr(like, "dtype"):
        fix = "give tensors, arrays or types of the shapes and dtypes that come back"
        raise UserError("E0234", f"the results of pure_callback are told by {like!r}", fix=fix)
    return tracing.leaf_type(like)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


# ------------------------------------------------------------------------------------------------ the source front end
def show(parts: Sequence[Any], sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    """`print(*parts, ...)`: parts are tensors, texts with tensors in them (`Text`), and any other objects."""
    if tracing.current() is None:
        print(*parts, sep=sep, end=end, file=file, flush=flush)
        return
    places = Places()
    texts = tuple([places.text(p) for p in parts])
    _act(Print(texts, sep, end, Same(file), bool(flush)), places, "print")


def pause(*args: Any, **kwargs: Any) -> None:
    """`breakpoint()`: stops where it stands each time that the program gets there, with the values of the variables of
    that moment. Changing them there changes nothing in the program."""
    frame: FrameType | None = sys._getframe(1)
    names: dict[str, Any] = {}
    while frame is not None:  # the blocks of a rewritten function are functions inside it
        if frame.f_code.co_filename == sys._getframe(1).f_code.co_filename:
            names = {**{k: v for k, v in frame.f_locals.items() if not k.startswith("_td_")}, **names}
            if not frame.f_code.co_name.startswith("_td_"):
                break
        frame = frame.f_back
    assert frame is not None
    callback(_stop, Same(frame.f_globals), names, args, kwargs)


def _stop(scope: Same, names: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    names = {**names, "_td_hook": lambda: sys.breakpointhook(*args, **kwargs)}
    exec(compile("_td_hook()", "<breakpoint>", "exec"), scope.value, names)


def check(pred: Any, make_error: Callable[[], Any]) -> None:
    """Raise make_error() unless `pred`, one bool tensor, is true when the program runs.

    While tracing, make_error is called once; the tensors and texts in the exception that it gives have their values
    when the program raises one like it.
    """
    if tracing.current() is None:
        if not _holds(pred):
            raise make_error()
        return
    error = make_error()
    _check(pred, error() if isinstance(error, type) else error)


def _check(pred: Any, error: BaseException) -> None:
    refuse_caught(error)
    places = Places()
    args = tuple([places.part(a) for a in error.args])
    state = tuple([(k, places.part(v)) for k, v in error.__dict__.items()])
    place = where.of_traceback(error.__traceback__)  # where it was raised while tracing, if it was
    _raise_unless(pred, places, Raise(type(error), args, state, place))


def fail(pred: Any, function: Callable[[], Any]) -> None:
    """Where `pred`, one bool tensor, is true when the program runs: run `function`, which raises, and raise that.

    What the function does before it raises is part of the program: it prints, and the tensors in the exception may be
    made in it. While tracing it is called once.
    """

    def run() -> None:
        try:
            function()
        except Exception as error:
            _check(False, error)

    cond(pred, run, lambda: None)


# ------------------------------------------------------------------------------------------------------------- building
class _Acted(threading.local):
    count = 0  # effects put into traces by this thread


acted = _Acted()


def _act(function: Callable[..., Any], places: Places, name: str) -> None:
    acted.count += 1
    _apply_op(ops.host_call, places.tensors, host=Host.of(function, name), ordered=False)


def _apply_op(op: Op, tensors: Sequence[Tensor], **attrs: Any) -> list[Tensor]:
    """The results of an op in the running trace, on tensors of any types, of which there may be none."""
    trace = tracing.current()
    assert trace is not None
    return [Tensor._of(v, trace) for v in build.apply(op, [trace.read(t) for t in tensors], attrs)]


def _holds(pred: Any) -> bool:
    """Whether pred, or each element of it, is true."""
    return bool(pred.all() if getattr(pred, "shape", ()) else pred)


def _raise_unless(pred: Any, places: Places, function: Raise) -> None:
    """Python is called only where the condition is false: a check that holds costs a branch."""
    if not isinstance(pred, Tensor):
        if not _holds(pred):
            _act(function, places, function.kind.__name__)
        return
    acted.count += 1
    one = pred if pred.dtype.kind == "b" else pred != 0
    one = one.all() if one.shape else one
    host = Host.of(function, function.kind.__name__)
    types, fns = [t.type for t in places.tensors], _apply.outer_fns()

    def fail(*args: Value) -> Any:
        return build.apply(ops.host_call, args, {"host": host, "ordered": False})

    holds, fails = build.trace(lambda *_: (), types, "holds", fns), build.trace(fail, types, "fails", fns)
    _apply.region_op(ops.if_, [one, *places.tensors], then=holds, orelse=fails)
