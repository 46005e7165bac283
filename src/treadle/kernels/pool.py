"""Threads of our own that help in calls of kernels: `start(code, number)` makes them, `ask` hands them a call.

Each has a box, a cache line in memory. `ask` puts the call's context in the boxes that are empty; a helper takes what
is in its box, works on it (treadle_helper, see launch.py), and then looks for the next call for some tenths of a
millisecond before it sleeps. The next call mostly comes by then: the kernels of a program follow each other within
microseconds, and to wake a thread that sleeps takes tens of them. While it looks it gives its core away again and
again, so that whoever has work gets it. A box that is still full belongs to a helper that got no core: the call goes
on without.

Only on Linux (unnamed semaphores); elsewhere XLA's pool helps (launch.py).
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from treadle.kernels.llvm import Function, Module, Value

LINE = 64
# In a box: the context that waits, whether the helper sleeps, the semaphore on which it does (32 bytes in glibc, musl).
_CONTEXT, _SLEEPS, _SEMAPHORE = 0, 8, 16
_LOOKS = 32  # between two yields
_YIELDS = 300  # before a helper sleeps


def build(m: Module, x86: bool) -> None:
    """Add `treadle_serve(ptr box)`, what a helper does as long as the process lives."""
    f = Function(m, "treadle_serve", ["ptr"])
    box = f.args[0]
    looks = f.variable("i64", 0)
    search, found, idle, again, tired = (f.label(hint) for hint in ("search", "found", "idle", "again", "tired"))
    f.jump(search)
    f.block(search)
    waiting = f.emit(f"load atomic ptr, ptr {box.name} monotonic, align 8", "ptr")
    f.branch(f.compare("ne", waiting, f.null()), found, idle)
    f.block(found)
    context = f.emit(f"atomicrmw xchg ptr {box.name}, ptr null acquire", "ptr")
    f.call("@treadle_helper", "void", context)
    looks.set(0)
    f.jump(search)
    f.block(idle)
    looks.set(looks.get() + 1)
    f.branch(f.compare("ugt", looks.get(), _LOOKS * _YIELDS), tired, again)
    f.block(again)
    if x86:
        f.intrinsic("llvm.x86.sse2.pause", "void")
    with f.when(f.compare("eq", looks.get() % _LOOKS, 0)):
        f.intrinsic("sched_yield", "i32")
    f.jump(search)
    f.block(tired)
    _sleep(f, box)
    looks.set(0)
    f.jump(search)


def _sleep(f: Function, box: Value) -> None:
    """Until somebody has put a context in the box. Whoever resets the mark decides: a caller that does posts, and then
    the helper takes the post; so each of the two sees what the other has written first."""
    mark = f.offset(box, _SLEEPS)
    f.emit(f"atomicrmw xchg ptr {mark.name}, i64 1 seq_cst", "i64")
    now = f.emit(f"load atomic ptr, ptr {box.name} seq_cst, align 8", "ptr")
    own = f.variable("i64", 0)
    with f.when(f.compare("ne", now, f.null())):
        own.set(f.emit(f"atomicrmw xchg ptr {mark.name}, i64 0 seq_cst", "i64"))
    with f.when(f.compare("eq", own.get(), 0)):
        f.intrinsic("sem_wait", "i32", f.offset(box, _SEMAPHORE))


def ask(f: Function, boxes: Value, ctx: Value, helpers: Value) -> None:
    """Put a context in so many boxes; for each that was full, one reference less (the context's first word)."""
    with f.loop(0, helpers) as i:
        box = f.offset(boxes, i * LINE)
        taken = f.emit(f"cmpxchg ptr {box.name}, ptr null, ptr {ctx.name} seq_cst seq_cst", "{ ptr, i1 }")
        put = f.emit(f"extractvalue {{ ptr, i1 }} {taken.name}, 1", "i1")
        f.either(put, lambda box=box: _wake(f, box), lambda: _without(f, ctx))


def _wake(f: Function, box: Value) -> None:
    mark = f.offset(box, _SLEEPS)
    slept = f.emit(f"load atomic i64, ptr {mark.name} seq_cst, align 8", "i64")
    with f.when(f.compare("ne", slept, 0)):
        mine = f.emit(f"atomicrmw xchg ptr {mark.name}, i64 0 seq_cst", "i64")
        with f.when(f.compare("ne", mine, 0)):
            f.intrinsic("sem_post", "i32", f.offset(box, _SEMAPHORE))


def _without(f: Function, ctx: Value) -> None:
    f.emit(f"atomicrmw sub ptr {ctx.name}, i64 1 acq_rel", "i64")


def start(code: Any, number: int) -> tuple[int, int]:
    """At most `number` new threads: where their boxes are, and how many there are. code: the runtime's (jit.Code)."""
    if number < 1 or not sys.platform.startswith("linux"):
        return 0, 0
    process = ctypes.CDLL(None)
    process.aligned_alloc.restype = ctypes.c_void_p
    # The threads run until the process is gone: after the interpreter has taken down what Python objects hold.
    boxes = process.aligned_alloc(ctypes.c_size_t(LINE), ctypes.c_size_t(number * LINE))
    if not boxes:
        return 0, 0
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    ctypes.memset(boxes, 0, number * LINE)
    serve = ctypes.c_void_p(code.address("treadle_serve"))
    for i in range(number):
        box, thread = ctypes.c_void_p(boxes + i * LINE), ctypes.c_ulong()
        process.sem_init(ctypes.c_void_p(boxes + i * LINE + _SEMAPHORE), 0, 0)
        if process.pthread_create(ctypes.byref(thread), None, serve, box):
            return boxes, i
        process.pthread_detach(thread)
    return boxes, number
