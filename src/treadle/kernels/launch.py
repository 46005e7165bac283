"""How kernels run: the functions, written in LLVM IR, that share one call's tasks among threads.

A kernel is one or more phases: `void phase(ptr buffers, i64 task, ptr scratch)`, called for each task 0..tasks-1, a
phase after all tasks of the one before. `finish(module, phases, buffers)` adds to a kernel's module what describes it
and the handler that XLA calls. Threads take tasks by an atomic counter; a caller waits only for tasks in progress,
never for a thread that has not started, so that a busy or absent thread pool costs speed and nothing else.

The description: i64 words [buffers, phases, threads, tiles, then function and tasks of each phase, then how many
buffers a call of XLA's has and which they are of the kernel's]. A call's context: [references, description, ..., per
phase a line for the next task and one for those done, then the buffers' addresses].

A run of kernels (runs.py) is one call too: its phases are those of its kernels, one kernel after the other. Its
description: [places, phases, threads, tiles, buffers of a call of XLA's, then function, tasks and first place of each
phase, then of each place the buffer that it is in, -1 for none, and where in it].
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treadle.kernels.llvm import Function, Module, Value, Variable

LINE = 64
# Offsets in the structures of XLA's foreign function interface (xla/ffi/api/c_api.h).
_FRAME_EXTENSION, _FRAME_API, _FRAME_CONTEXT = 8, 16, 24
_FRAME_INPUTS, _FRAME_INPUT_LIST, _FRAME_OUTPUTS, _FRAME_OUTPUT_LIST = 56, 72, 96, 112
_API_VERSION, _API_ERROR, _API_ERROR_DESTROY, _API_SCHEDULE, _API_THREADS = 32, 48, 64, 136, 144
_BUFFER_DATA, _METADATA, _METADATA_VERSION = 24, 24, 24
_SPINS = 2000  # pauses before a waiting thread gives its core away
_YIELDS = 200  # times that it does so before one that only helps leaves a run


class Words(NamedTuple):
    """How many words a description has before its phases, and for each phase."""

    head: int
    phase: int


_WORDS, _RUN_WORDS = Words(4, 2), Words(5, 3)


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


def _description(buffers: int, phases: Sequence[Phase], threads: int, tiles: int, order: Sequence[int]) -> str:
    """order: the kernel's buffers in the order in which a call of XLA's has them, inputs first."""
    most = threads or max([p.tasks for p in phases], default=1)
    words = [f"i64 {n}" for n in (buffers, len(phases), most, tiles)]
    for phase in phases:
        words += [f"i64 ptrtoint (ptr @{phase.function} to i64)", f"i64 {phase.tasks}"]
    words += [f"i64 {n}" for n in (len(order), *order)]
    return f"@describe = constant [{len(words)} x i64] [{', '.join(words)}], align 64"


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
    """The module that kernels share: `treadle_launch` and `treadle_launch_run` (XLA's handlers), `treadle_begin` and
    `treadle_worker` (for those who bring their own threads), and `treadle_init(scratch, flags, tiles)`, to be called
    first."""
    m = Module()
    m.globals += [f"@{name} = internal global ptr null" for name in ("scratch", "flags", "shape")]
    init = Function(m, "treadle_init", ["ptr", "ptr", "ptr"])
    for value, name in zip(init.args, ("@scratch", "@flags", "@shape"), strict=True):
        init.store(value, init.symbol(name))
    init.give()
    _begin(m)
    machine = slots, slot_bytes, x86, tiles
    _worker(m, "treadle_worker", _WORDS, False, *machine)
    _worker(m, "treadle_run_worker", _RUN_WORDS, False, *machine)
    _worker(m, "treadle_run_helper", _RUN_WORDS, True, *machine)
    _launch(m)
    _launch_run(m)
    return m.text()


def run_handler(name: str) -> str:
    """The module of a run's handler: `@call`, which finds the address of the run's description in `@place`. name: of
    the run; each has a module of its own."""
    m = Module()
    m.globals += ["@place = global ptr null", f'@name = private constant [{len(name)} x i8] c"{name}"']
    f = Function(m, "call", ["ptr"], "ptr")
    f.give(f.intrinsic("treadle_launch_run", "ptr", f.args[0], f.load(f.symbol("@place"), "ptr")))
    return m.text()


def described(address: int) -> tuple[list[tuple[int, int]], int, int, list[int]]:
    """Of a kernel's description in memory: function and tasks of each phase, threads, tiles, and the order of buffers:
    for each of a call of XLA's which it is of the kernel's."""
    head = (ctypes.c_int64 * _WORDS.head).from_address(address)
    _, phases, threads, tiles = head
    words = (ctypes.c_int64 * (2 * phases + 1)).from_address(address + 8 * _WORDS.head)
    order = (ctypes.c_int64 * words[2 * phases]).from_address(address + 8 * (_WORDS.head + 2 * phases + 1))
    return [(words[2 * i], words[2 * i + 1]) for i in range(phases)], threads, tiles, list(order)


def run_description(
    phases: Sequence[tuple[int, int, int]], places: Sequence[tuple[int, int]], buffers: int, threads: int, tiles: int
) -> list[int]:
    """The words of a run's description. phases: function, tasks, first place; places: buffer and where in it."""
    words = [len(places), len(phases), threads, tiles, buffers]
    for each in (*phases, *places):
        words += each
    return words


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


def _worker(
    m: Module, name: str, words: Words, leaves: bool, slots: int, slot_bytes: int, x86: bool, tiles: bool
) -> None:
    """void name(ptr context): take tasks until all are done; the last one to leave frees the context. words: of the
    description; where phases have three, the third is the first place of the phase's buffers. leaves: after a long wait
    for others, whose cores are busy then, the rest is left to them."""
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
        entry = f.offset(describe, p * (8 * words.phase) + 8 * words.head)
        function, tasks = f.load(entry, "ptr"), f.load(entry, "i64", 8)
        own = f.offset(places, f.load(entry, "i64", 16) * 8) if words.phase > 2 else places
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
    """ptr treadle_launch(ptr frame, ptr describe): XLA's call of a kernel. Returns null, or an error of XLA's."""
    f = Function(m, "treadle_launch", ["ptr", "ptr"], "ptr")
    frame, describe = f.args
    api = f.load(frame, "ptr", _FRAME_API)
    _answer_version(f, frame, api)
    inputs, outputs = f.load(frame, "i64", _FRAME_INPUTS), f.load(frame, "i64", _FRAME_OUTPUTS)
    called = f.offset(describe, f.load(describe, "i64", 8) * 16 + 32)
    _refuse_unless(f, f.compare("eq", inputs + outputs, f.load(called, "i64")), api)
    threads = _threads(f, frame, api, describe)
    ctx, places = _context(f, describe, threads)
    for count, list_at, skip in ((inputs, _FRAME_INPUT_LIST, f.i64(0)), (outputs, _FRAME_OUTPUT_LIST, inputs)):
        buffers = f.load(frame, "ptr", list_at)
        with f.loop(0, count) as i:
            data = f.load(f.load(buffers, "ptr", i * 8), "ptr", _BUFFER_DATA)
            f.store(data, f.offset(places, f.load(f.offset(called, (i + skip) * 8), "i64", 8) * 8))
    _work(f, frame, api, ctx, threads, "@treadle_worker", "@treadle_worker")


def _launch_run(m: Module) -> None:
    """ptr treadle_launch_run(ptr frame, ptr describe): XLA's call of a run. Returns null, or an error of XLA's."""
    f = Function(m, "treadle_launch_run", ["ptr", "ptr"], "ptr")
    frame, describe = f.args
    api = f.load(frame, "ptr", _FRAME_API)
    _answer_version(f, frame, api)
    inputs, outputs = f.load(frame, "i64", _FRAME_INPUTS), f.load(frame, "i64", _FRAME_OUTPUTS)
    _refuse_unless(f, f.compare("eq", inputs + outputs, f.load(describe, "i64", 32)), api)
    threads = _threads(f, frame, api, describe)
    ctx, places = _context(f, describe, threads)
    given, made = f.load(frame, "ptr", _FRAME_INPUT_LIST), f.load(frame, "ptr", _FRAME_OUTPUT_LIST)
    table = f.offset(describe, f.load(describe, "i64", 8) * (8 * _RUN_WORDS.phase) + 8 * _RUN_WORDS.head)
    with f.loop(0, f.load(describe, "i64")) as i:
        entry = f.offset(table, i * 16)
        buffer, at = f.load(entry, "i64"), f.load(entry, "i64", 8)
        with f.when(f.compare("sge", buffer, 0)):
            one, other = f.offset(given, buffer * 8), f.offset(made, (buffer - inputs) * 8)
            known = f.select(f.compare("slt", buffer, inputs), one, other)
            data = f.load(f.load(known, "ptr"), "ptr", _BUFFER_DATA)
            f.store(f.offset(data, at), f.offset(places, i * 8))
    _work(f, frame, api, ctx, threads, "@treadle_run_worker", "@treadle_run_helper")


def _threads(f: Function, frame: Value, api: Value, describe: Value) -> Value:
    """How many threads are to work at a call."""
    threads = f.variable("i64", f.load(describe, "i64", 16))
    with f.when(f.compare("sgt", threads.get(), 1)):
        threads.set(f.min_int(threads.get(), _pool_size(f, frame, api)))
    return threads.get()


def _work(f: Function, frame: Value, api: Value, ctx: Value, threads: Value, worker: str, helper: str) -> None:
    """Ask for helpers, work, and give XLA its answer."""
    with f.loop(1, threads):
        _schedule(f, frame, api, ctx, helper)
    f.call(worker, "void", ctx)
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


def _schedule(f: Function, frame: Value, api: Value, ctx: Value, worker: str) -> None:
    """Ask XLA's pool for a worker; where it has none, one reference less."""
    context = f.load(frame, "ptr", _FRAME_CONTEXT)
    block = _struct(f, frame, context, f.symbol(worker), ctx)
    error = f.call(f.load(api, "ptr", _API_SCHEDULE).name, "ptr", block)
    with f.when(f.compare("ne", error, f.null())):
        _drop(f, api, error)
        f.emit(f"atomicrmw sub ptr {ctx.name}, i64 1 acq_rel", "i64")


def _drop(f: Function, api: Value, error: Value) -> None:
    """Destroy an error of XLA's, if there is one."""
    with f.when(f.compare("ne", error, f.null())):
        f.call(f.load(api, "ptr", _API_ERROR_DESTROY).name, "void", _struct(f, api, error))
