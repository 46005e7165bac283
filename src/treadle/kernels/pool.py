"""Threads of our own that help in calls of kernels: `start(code, number)` makes them, `ask` hands them a call.

Each has a box, a cache line in memory. `ask` puts the call's context in the boxes that are empty; a helper takes what
is in its box, works on it (treadle_helper, see launch.py), and then looks for the next call for some tenths of a
millisecond before it sleeps. The next call mostly comes by then: the kernels of a program follow each other within
microseconds, and to wake a thread that sleeps takes tens of them. While it looks it gives its core away again and
again, so that whoever has work gets it. A box that is still full belongs to a helper that got no core: the call goes
on without. A helper that looks on the caller's own core (the system put the caller there, and takes milliseconds to
see that another core is free) is sent to the others: without that one call in four took twice as long.

Only on Linux (unnamed semaphores); elsewhere XLA's pool helps (launch.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from treadle.kernels.llvm import Function, Module, Value

LINE = 64
BOX = 3 * LINE
# In a box: the context that waits, whether the helper sleeps, the semaphore on which it does (32 bytes in glibc, musl),
# the core on which the helper last looked, its thread, and in the lines behind the cores on which it may run.
_CONTEXT, _SLEEPS, _SEMAPHORE, _CORE, _THREAD, _CORES = 0, 8, 16, 48, 56, 64
_LINUX = sys.platform.startswith("linux")
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
    f.store(_core(f), box, _CORE)
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
        f.store(_core(f), box, _CORE)
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
    core = _core(f)
    with f.loop(0, helpers) as i:
        box = f.offset(boxes, i * BOX)
        taken = f.emit(f"cmpxchg ptr {box.name}, ptr null, ptr {ctx.name} seq_cst seq_cst", "{ ptr, i1 }")
        put = f.emit(f"extractvalue {{ ptr, i1 }} {taken.name}, 1", "i1")
        f.either(put, lambda box=box: _wake(f, box, core), lambda: _without(f, ctx))


def _core(f: Function) -> Value:
    """The number of the core on which this thread is; a negative one where the system does not tell."""
    return f.emit(f"sext i32 {f.intrinsic('sched_getcpu', 'i32').name} to i64", "i64") if _LINUX else f.i64(-1)


def _wake(f: Function, box: Value, core: Value) -> None:
    same = f.compare("eq", f.load(box, "i64", _CORE), core)
    with f.when(same & f.compare("ult", core, 8 * (BOX - _CORES))):
        _send_away(f, box, core)
    mark = f.offset(box, _SLEEPS)
    slept = f.emit(f"load atomic i64, ptr {mark.name} seq_cst, align 8", "i64")
    with f.when(f.compare("ne", slept, 0)):
        mine = f.emit(f"atomicrmw xchg ptr {mark.name}, i64 0 seq_cst", "i64")
        with f.when(f.compare("ne", mine, 0)):
            f.intrinsic("sem_post", "i32", f.offset(box, _SEMAPHORE))


def _send_away(f: Function, box: Value, core: Value) -> None:
    """The helper may run on all of its cores but this one; where it has no other, the system refuses and it stays."""
    others = f.alloca("i64", (BOX - _CORES) // 8)
    with f.loop(0, (BOX - _CORES) // 8) as i:
        f.store(f.load(box, "i64", i * 8 + _CORES), others, i * 8)
    word = core // 64 * 8
    f.store(f.load(others, "i64", word) & ((f.i64(1) << core % 64) ^ f.i64(-1)), others, word)
    f.intrinsic("pthread_setaffinity_np", "i32", f.load(box, "i64", _THREAD), f.i64(BOX - _CORES), others)
    f.store(f.i64(-1), box, _CORE)


def _without(f: Function, ctx: Value) -> None:
    f.emit(f"atomicrmw sub ptr {ctx.name}, i64 1 acq_rel", "i64")


def start(code: Any, number: int) -> tuple[int, int]:
    """At most `number` new threads: where their boxes are, and how many there are. code: the runtime's (jit.Code)."""
    if number < 1 or not _LINUX:
        return 0, 0
    process = ctypes.CDLL(None)
    process.aligned_alloc.restype = ctypes.c_void_p
    # The threads run until the process is gone: after the interpreter has taken down what Python objects hold.
    boxes = process.aligned_alloc(ctypes.c_size_t(LINE), ctypes.c_size_t(number * BOX))
    if not boxes:
        return 0, 0
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    ctypes.memset(boxes, 0, number * BOX)
    serve = ctypes.c_void_p(code.address("treadle_serve"))
    cores = sum(1 << core for core in os.sched_getaffinity(0) if core < 8 * (BOX - _CORES))
    for i in range(number):
        box = boxes + i * BOX
        process.sem_init(ctypes.c_void_p(box + _SEMAPHORE), 0, 0)
        ctypes.c_int64.from_address(box + _CORE).value = -1
        ctypes.memmove(box + _CORES, cores.to_bytes(BOX - _CORES, "little"), BOX - _CORES)
        thread = ctypes.c_ulong.from_address(box + _THREAD)
        if process.pthread_create(ctypes.byref(thread), None, serve, ctypes.c_void_p(box)):
            return boxes, i
        process.pthread_detach(thread)
    return boxes, number
