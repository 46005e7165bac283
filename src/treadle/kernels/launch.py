"""How kernels run: the functions, written in LLVM IR, that share one call's tasks among threads.

A kernel is one or more phases: `void phase(ptr buffers, i64 task, ptr scratch)`, called for each task 0..tasks-1, a
phase after all tasks of the one before. `finish(module, phases, buffers)` adds to a kernel's module what describes it
and the handler that XLA calls. Threads take tasks by an atomic counter; a caller waits only for tasks in progress,
never for a thread that has not started, so that a busy or absent thread pool costs speed and nothing else.

The description: i64 words [places, phases, threads, tiles, buffers of a call of XLA's, then function, tasks and first
place of each phase, then of each place the buffer that it is in, -1 for none, and where in it]. A kernel's places are
its buffers; a run of kernels (runs.py) is one call whose phases and places are those of its kernels, one after the
other. A call's context: [references, description, ..., per phase a line for the next task and one for those done, then
the places' addresses].
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.kernels import pool
from treadle.kernels.llvm import Function, Module, Value, Variable

LINE = 64
# Offsets in the structures of XLA's foreign function interface (xla/ffi/api/c_api.h).
_FRAME_EXTENSION, _FRAME_API, _FRAME_CONTEXT = 8, 16, 24
_FRAME_INPUTS, _FRAME_INPUT_LIST, _FRAME_OUTPUTS, _FRAME_OUTPUT_LIST = 56, 72, 96, 112
_API_VERSION, _API_ERROR, _API_ERROR_DESTROY, _API_SCHEDULE, _API_THREADS = 32, 48, 64, 136, 144
_BUFFER_DATA, _METADATA, _METADATA_VERSION = 24, 24, 24
_SPINS = 2000  # pauses before a waiting thread gives its core away
_YIELDS = 200  # times that it does so before one that only helps leaves
_HEAD, _PHASE, _PLACE = 5, 3, 2  # words of a description before its phases, of each phase, of each place


@dataclass(frozen=True)
class Phase:
    """A function of the kernel's module and the number of its tasks."""

    function: str
    tasks: int


def finish(module: Module, phases: Sequence[Phase], buffers: int, threads: int = 0, tiles: bool = False) -> str:
    """Add `@describe` and the handler `@call` to a kernel's module; returns its text.

    buffers: inputs and outputs together. threads: at most so many work (0: one per task and core); tiles: uses AMX.
    """
    module.globals.append(_description(buffers, phases, threads, int(tiles), range(buffers)))
    f = Function(module, "call", ["ptr"], "ptr")
    f.give(f.intrinsic("treadle_launch", "ptr", f.args[0], f.symbol("@describe")))
    return module.text()


def _description(places: int, phases: Sequence[Phase], threads: int, tiles: int, order: Sequence[int]) -> str:
    """order: the kernel's buffers in the order in which a call of XLA's has them, inputs first."""
    most = threads or max([p.tasks for p in phases], default=1)
    called = [(order.index(i) if i in order else -1, 0) for i in range(places)]
    table = [(f"ptrtoint (ptr @{p.function} to i64)", p.tasks, 0) for p in phases]
    words = [f"i64 {word}" for word in described(table, called, len(order), most, tiles)]
    return f"@describe = constant [{len(words)} x i64] [{', '.join(words)}], align 64"


def described(
    phases: Sequence[tuple[Any, int, int]], places: Sequence[tuple[int, int]], buffers: int, threads: int, tiles: int
) -> list[Any]:
    """The words of a description. phases: function, tasks, first place; places: buffer and where in it."""
    words = [len(places), len(phases), threads, tiles, buffers]
    for each in (*phases, *places):
        words += each
    return words


def read(address: int) -> tuple[list[tuple[int, int]], list[int], int, int]:
    """Of a kernel's description in memory: function and tasks of each phase, the buffer of XLA's call that each of its
    own is, -1 for one that no call gives, threads, tiles."""
    places, phases, threads, tiles, _ = (ctypes.c_int64 * _HEAD).from_address(address)
    words = list((ctypes.c_int64 * (_PHASE * phases + _PLACE * places)).from_address(address + 8 * _HEAD))
    end = _PHASE * phases
    functions = [(words[i], words[i + 1]) for i in range(0, end, _PHASE)]
    return functions, words[end::_PLACE], threads, tiles


def divided(text: str, inputs: int, outputs: int, operand: int, behind: bool) -> tuple[str, str]:
    """What `finish` gave as two kernels: of the first phase, which is called with input `operand` and gives the
    workspace; and of the others, which are called with the workspace in that input's place, or behind the inputs."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("@describe"))
    work, tiles = inputs + outputs, int(re.findall(r"i64 (\d+)", lines[at])[3])
    phases = [Phase(name, int(tasks)) for name, tasks in re.findall(r"@(\w+) to i64\), i64 (\d+)", lines[at])]

    def only(own: Sequence[Phase], order: Sequence[int]) -> str:
        others = "|".join([p.function for p in phases if p not in own])
        unused = re.compile(rf"^define +void @({others})\(")  # inside the module, LLVM leaves them out
        mine = [unused.sub(r"define internal void @\1(", line) for line in lines]
        mine[at] = _description(work + 1, own, 0, tiles, order)
        return "\n".join([*mine, ""])

    order = [work if i == operand and not behind else i for i in range(work)]
    if behind:
        order.insert(inputs, work)
    return only(phases[:1], (operand, work)), only(phases[1:], order)


def runtime(slots: int, slot_bytes: int, x86: bool, tiles: bool) -> str:
    """The module that kernels share: `treadle_launch` (XLA's handler), `treadle_begin` and `treadle_worker` (for those
    who bring their own threads), `treadle_call` (a call without XLA), `treadle_serve` (pool.py), and two to be called
    first: `treadle_init(scratch, flags, tiles)` and `treadle_helpers(boxes, number)`, of pool.py's threads."""
    m = Module()
    m.globals += [f"@{name} = internal global ptr null" for name in ("scratch", "flags", "shape", "boxes")]
    m.globals.append("@helpers = internal global i64 0")
    for name, places in (("treadle_init", ("scratch", "flags", "shape")), ("treadle_helpers", ("boxes", "helpers"))):
        init = Function(m, name, ["i64" if place == "helpers" else "ptr" for place in places])
        for value, place in zip(init.args, places, strict=True):
            init.store(value, init.symbol(f"@{place}"))
        init.give()
    _begin(m)
    _call(m)
    machine = slots, slot_bytes, x86, tiles
    _worker(m, "treadle_worker", False, *machine)
    _worker(m, "treadle_helper", True, *machine)
    pool.build(m, x86)
    _launch(m)
    return m.text()


def run_handler(name: str) -> str:
    """The module of a run's handler: `@call`, which finds the address of the run's description in `@place`. name: of
    the run; each has a module of its own."""
    m = Module()
    m.globals += ["@place = global ptr null", f'@name = private constant [{len(name)} x i8] c"{name}"']
    f = Function(m, "call", ["ptr"], "ptr")
    f.give(f.intrinsic("treadle_launch", "ptr", f.args[0], f.load(f.symbol("@place"), "ptr")))
    return m.text()


def _context(f: Function, describe: Value, threads: Value) -> tuple[Value, Value]:
    """A new context with counters at 0, and the place of its buffers' addresses."""
    buffers, phases = f.load(describe, "i64"), f.load(describe, "i64", 8)
    at = phases * (2 * LINE) + LINE
    bytes = (at + buffers * 8 + 2 * LINE) // LINE * LINE
    ctx = f.intrinsic("aligned_alloc", "ptr", f.i64(LINE), bytes)
    f.store(threads, ctx)
    f.store(describe, ctx, 8)
    with f.loop(0, phases * 2) as i:
        f.store(f.i64(0), f.offset(ctx, i * LINE + LINE))
    return ctx, f.offset(ctx, at)


def _begin(m: Module) -> None:
    """ptr treadle_begin(ptr buffers, ptr describe, i64 threads): a context for so many calls of treadle_worker."""
    f = Function(m, "treadle_begin", ["ptr", "ptr", "i64"], "ptr")
    given, describe, threads = f.args
    ctx, places = _context(f, describe, threads)
    with f.loop(0, f.load(describe, "i64")) as i:
        f.store(f.load(given, "ptr", i * 8), f.offset(places, i * 8))
    f.give(ctx)


def _call(m: Module) -> None:
    """void treadle_call(ptr buffers, ptr describe): a call whose tasks this thread and the helpers share."""
    f = Function(m, "treadle_call", ["ptr", "ptr"])
    given, describe = f.args
    most = f.load(f.symbol("@helpers"), "i64") + 1
    threads = f.max_int(f.min_int(f.load(describe, "i64", 16), most), 1)
    ctx = f.call("@treadle_begin", "ptr", given, describe, threads)
    with f.when(f.compare("sgt", threads, 1)):
        pool.ask(f, f.load(f.symbol("@boxes"), "ptr"), ctx, threads - 1)
    f.call("@treadle_worker", "void", ctx)
    f.give()


def _pause(f: Function, x86: bool) -> None:
    if x86:
        f.intrinsic("llvm.x86.sse2.pause", "void")


def _claim(f: Function, slots: int, x86: bool) -> Value:
    """The number of a scratch slot that no other thread has; waits while all are taken."""
    slot, spins = f.variable("i64", 0), f.variable("i64", 0)
    again, taken, got = f.label("again"), f.label("taken"), f.label("got")
    flags = f.load(f.symbol("@flags"), "ptr")
    f.jump(again)
    f.block(again)
    flag = f.offset(flags, slot.get() * LINE)
    old = f.emit(f"atomicrmw xchg ptr {flag.name}, i64 1 acquire", "i64")
    f.branch(f.compare("eq", old, 0), got, taken)
    f.block(taken)
    slot.set((slot.get() + 1) % slots)
    _yield_after(f, spins, x86)
    f.jump(again)
    f.block(got)
    return slot.get()


def _yield_after(f: Function, spins: Variable, x86: bool) -> None:
    """One pause of a wait; the core is given away after many."""
    count = spins.get() + 1
    spins.set(count)
    f.either(f.compare("ugt", count, _SPINS), lambda: f.intrinsic("sched_yield", "i32"), lambda: _pause(f, x86))


def _worker(m: Module, name: str, leaves: bool, slots: int, slot_bytes: int, x86: bool, tiles: bool) -> None:
    """void name(ptr context): take tasks until all are done; the last one to leave frees the context. leaves: after a
    long wait for others, whose cores are busy then, the rest is left to them."""
    f = Function(m, name, ["ptr"])
    ctx = f.args[0]
    describe = f.load(ctx, "ptr", 8)
    phases = f.load(describe, "i64", 8)
    places = f.offset(ctx, phases * (2 * LINE) + LINE)
    slot = _claim(f, slots, x86)
    scratch = f.offset(f.load(f.symbol("@scratch"), "ptr"), slot * slot_bytes)
    uses_tiles = f.compare("ne", f.load(describe, "i64", 24), 0)
    if tiles:
        with f.when(uses_tiles):
            f.intrinsic("llvm.x86.ldtilecfg", "void", f.load(f.symbol("@shape"), "ptr"))
    leave = f.label("leave")
    with f.loop(0, phases) as p:
        lines = f.offset(ctx, p * (2 * LINE) + LINE)
        entry = f.offset(describe, p * (8 * _PHASE) + 8 * _HEAD)
        function, tasks = f.load(entry, "ptr"), f.load(entry, "i64", 8)
        own = f.offset(places, f.load(entry, "i64", 16) * 8)
        _tasks(f, lines, function, tasks, own, scratch)
        wait(f, f.offset(lines, LINE), tasks, x86, leave if leaves else "")
    f.jump(leave)
    f.block(leave)
    if tiles:
        with f.when(uses_tiles):
            f.intrinsic("llvm.x86.tilerelease", "void")
    flag = f.offset(f.load(f.symbol("@flags"), "ptr"), slot * LINE)
    f.do(f"store atomic i64 0, ptr {flag.name} release, align 8")
    left = f.emit(f"atomicrmw sub ptr {ctx.name}, i64 1 acq_rel", "i64")
    with f.when(f.compare("eq", left, 1)):
        f.intrinsic("free", "void", ctx)
    f.give()


def _tasks(f: Function, lines: Value, function: Value, tasks: Value, places: Value, scratch: Value) -> None:
    """Call the function for tasks as long as there are some. What counts those done is a locked instruction on x86:
    what a task has written past the caches is there for others after it."""
    head, body, end = f.label("next"), f.label("task"), f.label("none")
    f.jump(head)
    f.block(head)
    task = f.emit(f"atomicrmw add ptr {lines.name}, i64 1 monotonic", "i64")
    f.branch(f.compare("slt", task, tasks), body, end)
    f.block(body)
    f.call(function.name, "void", places, task, scratch)
    done = f.offset(lines, LINE)
    f.emit(f"atomicrmw add ptr {done.name}, i64 1 release", "i64")
    f.jump(head)
    f.block(end)


def wait(f: Function, done: Value, tasks: Value, x86: bool, leave: str = "") -> None:
    """Until all tasks are done: the count at `done` has reached that of the tasks. leave: where to go after a wait that
    gave the core away often."""
    spins = f.variable("i64", 0)
    head, body, end = f.label("wait"), f.label("spin"), f.label("done")
    f.jump(head)
    f.block(head)
    now = f.emit(f"load atomic i64, ptr {done.name} acquire, align 8", "i64")
    f.branch(f.compare("sge", now, tasks), end, body)
    f.block(body)
    _yield_after(f, spins, x86)
    if leave:
        f.branch(f.compare("ugt", spins.get(), _SPINS + _YIELDS), leave, head)
    else:
        f.jump(head)
    f.block(end)


def _launch(m: Module) -> None:
    """ptr treadle_launch(ptr frame, ptr describe): XLA's call of a kernel or a run. Returns null, or an error of
    XLA's."""
    f = Function(m, "treadle_launch", ["ptr", "ptr"], "ptr")
    frame, describe = f.args
    api = f.load(frame, "ptr", _FRAME_API)
    _answer_version(f, frame, api)
    inputs, outputs = f.load(frame, "i64", _FRAME_INPUTS), f.load(frame, "i64", _FRAME_OUTPUTS)
    _refuse_unless(f, f.compare("eq", inputs + outputs, f.load(describe, "i64", 32)), api)
    threads = f.variable("i64", f.load(describe, "i64", 16))
    with f.when(f.compare("sgt", threads.get(), 1)):
        threads.set(f.min_int(threads.get(), _pool_size(f, frame, api)))
        own = f.load(f.symbol("@helpers"), "i64")
        threads.set(f.select(f.compare("sgt", own, 0), f.min_int(threads.get(), own + 1), threads.get()))
    ctx, places = _context(f, describe, threads.get())
    given, made = f.load(frame, "ptr", _FRAME_INPUT_LIST), f.load(frame, "ptr", _FRAME_OUTPUT_LIST)
    table = f.offset(describe, f.load(describe, "i64", 8) * (8 * _PHASE) + 8 * _HEAD)
    with f.loop(0, f.load(describe, "i64")) as i:
        entry = f.offset(table, i * (8 * _PLACE))
        buffer, at = f.load(entry, "i64"), f.load(entry, "i64", 8)
        with f.when(f.compare("sge", buffer, 0)):
            one, other = f.offset(given, buffer * 8), f.offset(made, (buffer - inputs) * 8)
            known = f.select(f.compare("slt", buffer, inputs), one, other)
            data = f.load(f.load(known, "ptr"), "ptr", _BUFFER_DATA)
            f.store(f.offset(data, at), f.offset(places, i * 8))
    boxes, others = f.load(f.symbol("@boxes"), "ptr"), threads.get() - 1
    f.either(
        f.compare("ne", boxes, f.null()),
        lambda: pool.ask(f, boxes, ctx, others),
        lambda: _schedule(f, frame, api, ctx, others),
    )
    f.call("@treadle_worker", "void", ctx)
    f.give(f.null())


def _answer_version(f: Function, frame: Value, api: Value) -> None:
    """XLA asks first which version of its interface the handler was made for: the offsets used here are in all."""
    ask, tell, go = f.label("ask"), f.label("tell"), f.label("go")
    extension = f.load(frame, "ptr", _FRAME_EXTENSION)
    f.branch(f.compare("ne", extension, f.null()), ask, go)
    f.block(ask)
    f.branch(f.compare("eq", f.load(extension, "i32", 8), 1), tell, go)
    f.block(tell)
    metadata = f.load(extension, "ptr", _METADATA)
    f.store(f.load(api, "i64", _API_VERSION), metadata, _METADATA_VERSION)
    f.store(f.constant(0, "i32"), metadata, _METADATA_VERSION + 8)
    f.give(f.null())
    f.block(go)


def _struct(f: Function, frame: Value, *words: Value) -> Value:
    """An argument block of XLA's interface: its size, no extension, then the words."""
    place = f.alloca("i64", 2 + len(words))
    f.store(f.i64(8 * (2 + len(words))), place)
    f.store(f.null(), place, 8)
    for i, word in enumerate(words):
        f.store(word, place, 16 + 8 * i)
    return place


def _refuse_unless(f: Function, good: Value, api: Value) -> None:
    """An error of XLA's (INVALID_ARGUMENT) for a call with a wrong number of buffers."""
    text = b"a kernel was called with a wrong number of buffers\0"
    letters = "".join([f"\\{c:02X}" for c in text])
    wrong = f'@wrong = private constant [{len(text)} x i8] c"{letters}"'
    if wrong not in f.module.globals:
        f.module.globals.append(wrong)
    bad, fine = f.label("bad"), f.label("fine")
    f.branch(good, fine, bad)
    f.block(bad)
    block = _struct(f, api, f.symbol("@wrong"), f.i64(3))
    f.store(f.i64(28), block)
    f.give(f.call(f.load(api, "ptr", _API_ERROR).name, "ptr", block))
    f.block(fine)


def _pool_size(f: Function, frame: Value, api: Value) -> Value:
    """Threads that may work at once: those of XLA's pool; 1 where there is no pool."""
    size = f.variable("i64", 1)
    block = _struct(f, frame, f.load(frame, "ptr", _FRAME_CONTEXT), size.place)
    _drop(f, api, f.call(f.load(api, "ptr", _API_THREADS).name, "ptr", block))
    return f.max_int(f.emit(f"and i64 {size.get().name}, 4294967295", "i64"), 1)


def _schedule(f: Function, frame: Value, api: Value, ctx: Value, helpers: Value) -> None:
    """Ask XLA's pool for helpers; for each that it does not have, one reference less."""
    context = f.load(frame, "ptr", _FRAME_CONTEXT)
    with f.loop(0, helpers):
        block = _struct(f, frame, context, f.symbol("@treadle_helper"), ctx)
        error = f.call(f.load(api, "ptr", _API_SCHEDULE).name, "ptr", block)
        with f.when(f.compare("ne", error, f.null())):
            _drop(f, api, error)
            f.emit(f"atomicrmw sub ptr {ctx.name}, i64 1 acq_rel", "i64")


def _drop(f: Function, api: Value, error: Value) -> None:
    """Destroy an error of XLA's, if there is one."""
    with f.when(f.compare("ne", error, f.null())):
        f.call(f.load(api, "ptr", _API_ERROR_DESTROY).name, "void", _struct(f, api, error))
