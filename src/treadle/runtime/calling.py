"""Programs that call Python while they run: `functions(hosts)` are what XLA calls, `runner` runs such a program.

Each run has a number, which travels through the program as its token, from one call of Python to the next. So a call
knows the run that it belongs to: the thread that waits for it, whose work it does and whose locks it has. What Python
raises stops the program; the runner raises the same exception in the thread that called the program.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.base.acting import acting_for, owner
from treadle.base.errors import UserError
from treadle.ir.host import Host
from treadle.ir.types import Types
from treadle.ops.effects import run_function
from treadle.runtime import pjrt

Called = tuple[Host, Types | None]
Runner = Callable[[Sequence[Any]], list[Any]]

_numbers = itertools.count()
_runs: dict[int, int] = {}  # number of a run -> the thread that waits for it
_raised: dict[int, BaseException] = {}  # ticket -> what a Python function raised


class _StoppedError(Exception):
    """What XLA is told instead of the exception itself: its text comes back, with the number of the exception."""


_TICKET = re.compile(r"treadle-ticket-(\d+)")


def action(host: Host) -> Callable[..., Any]:
    """A function that acts, for XLA: (token, arrays) -> (token,)."""

    def run(token: Any, *arrays: Any) -> tuple[Any]:
        try:
            with acting_for(_runs.get(int(token), threading.get_ident())):
                host.function(*map(_own, arrays))
        except BaseException as error:
            raise _ticket(error) from None
        return (np.asarray(token),)

    return run


def function(host: Host, results: Types) -> Callable[..., Any]:
    """A function that only computes, for XLA: arrays -> arrays."""

    def run(*arrays: Any) -> tuple[Any, ...]:
        try:
            return run_function(host, tuple(map(_own, arrays)), results)
        except BaseException as error:
            raise _ticket(error) from None

    return run


def _own(array: Any) -> np.ndarray[Any, Any]:
    """The array in memory of its own: XLA takes its memory back."""
    return array if array.flags.owndata else np.array(array)


def _ticket(error: BaseException) -> _StoppedError:
    ticket = next(_numbers)
    _raised[ticket] = error
    return _StoppedError(f"treadle-ticket-{ticket}")


def functions(hosts: Sequence[Called]) -> list[Callable[..., Any]]:
    """What XLA calls for each of them; a host without types of results acts."""
    return [action(host) if types is None else function(host, types) for host, types in hosts]


def runner(run: Runner, token: bool) -> Runner:
    """A program that calls Python, as a function of its arrays; token: it has one, as last parameter and result."""

    def call(arrays: Sequence[Any]) -> list[Any]:
        number = next(_numbers) & 0x7FFFFFFF
        _runs[number] = owner()
        try:
            outputs = run([*arrays, pjrt.put(np.int32(number))] if token else arrays)
            pjrt.block_until_ready(outputs)
            return outputs[:-1] if token else outputs
        except (pjrt.execution_error(), UserError) as problem:
            ticket = _TICKET.search(str(problem))
            if ticket is None:
                raise
            error = _raised.pop(int(ticket[1]))
        finally:
            del _runs[number]
        raise error

    return call
