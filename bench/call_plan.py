"""A training step as a list of native calls over a planned arena: what `call_list.py` compares with programs of XLA's.

`CallList(module, donate, arrays, threads)`: every group of nodes that has a kernel is one entry (the addresses of its
code and of its buffers), and a run of entries is one call from Python; all other nodes are gathered into as few
programs of XLA's (islands) as the data allows. Arrays between kernels lie in one arena, planned before (lifetimes,
first fit); parameters and what islands make have memory of their own. `run()` changes the parameters in place.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from treadle import driver
from treadle.ir import build
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import rebuild
from treadle.kernels import engine, jit, launch, tunings
from treadle.kernels.llvm import Function
from treadle.kernels.llvm import Module as Code
from treadle.ops.groups import fused
from treadle.runtime import pjrt
from treadle.transforms.fuse import smaller

ALIGN = 64


def on_host(value: Any) -> np.ndarray[Any, Any]:
    """A copy of an argument."""
    return np.array(value) if isinstance(value, np.ndarray) else pjrt.to_numpy(value)


@dataclass
class Segment:
    """Nodes that run one after the other: kernels, or one program of XLA's."""

    native: bool
    nodes: list[Node] = field(default_factory=list)


@dataclass
class Plan:
    """segments; roots: values that are another's memory (reshapes); constants: values that no parameter decides."""

    segments: list[Segment]
    roots: dict[Value, Value]
    constants: dict[Value, np.ndarray[Any, Any]]

    def root(self, v: Value) -> Value:
        """The value whose memory this one has."""
        while v in self.roots:
            v = self.roots[v]
        return v


def has_kernel(node: Node) -> bool:
    """Whether a node is a group that a kernel of ours computes."""
    return node.op is fused and engine.choose(node.attrs["body"]).loaded is not None


def divided(main: Fn) -> Fn:
    """The function with smaller groups in the place of those that have no kernel, as the lowering takes them."""
    again = False

    def visit(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal again
        if node.op is not fused or has_kernel(node):
            return None
        body = node.attrs["body"]
        again = True
        return build.inline(body if engine.choose(body).plan == tunings.XLA else smaller(body), inputs)

    made = rebuild(main, visit)
    return divided(made) if again else made


def plan_of(main: Fn, fns: Mapping[str, Fn]) -> Plan:
    """Kernels and islands in turns, each as long as the data allows."""
    constants = _constants(main, fns)
    left = [n for n in main.nodes if not all(o in constants for o in n.outputs)]
    known = {*main.params, *constants}
    segments, roots = list[Segment](), dict[Value, Value]()
    native = False
    while left:
        segment = Segment(native)
        rest = []
        for node in left:
            if not all(v in known for v in node.inputs):
                rest.append(node)
                continue
            inside = any(v.node in segment.nodes for v in node.inputs if v.node is not None)
            if node.op.name == "reshape" and (native or not inside):
                roots[node.outputs[0]] = node.inputs[0]
            elif has_kernel(node) == native:
                segment.nodes.append(node)
            else:
                rest.append(node)
                continue
            known.update(node.outputs)
        left, native = rest, not native
        if segment.nodes:
            segments.append(segment)
    return Plan(segments, roots, constants)


def _constants(main: Fn, fns: Mapping[str, Fn]) -> dict[Value, np.ndarray[Any, Any]]:
    """The values that depend on nothing, computed once."""
    fixed: set[Value] = set()
    nodes = []
    for node in main.nodes:
        if all(v in fixed for v in node.inputs) and not node.op.rules.get("effect"):
            fixed.update(node.outputs)
            nodes.append(node)
    needed = {v for n in main.nodes if n not in nodes for v in n.inputs if v in fixed} | fixed & set(main.outputs)
    if not needed:
        return {}
    outputs = tuple(needed)
    made = driver.compile_grouped(Module({**fns, "main": Fn("main", (), tuple(nodes), outputs)}), "constants").call([])
    return {v: np.array(pjrt.to_numpy(a)) for v, a in zip(outputs, made, strict=True)}


class Arena:
    """Places in one block of memory, first fit: `take` at a step, `free` after the last one that reads."""

    def __init__(self) -> None:
        self.used: dict[Any, tuple[int, int]] = {}
        self.size = 0

    def take(self, key: Any, bytes: int) -> int:
        """The offset of a new place."""
        bytes = max(-(-bytes // ALIGN) * ALIGN, ALIGN)
        at = 0
        for start, end in sorted(self.used.values()):
            if start - at >= bytes:
                break
            at = max(at, end)
        self.used[key] = at, at + bytes
        self.size = max(self.size, at + bytes)
        return at

    def free(self, key: Any) -> None:
        """The place may be taken again."""
        self.used.pop(key)


def aligned(bytes: int) -> np.ndarray[Any, Any]:
    """New memory, u8[bytes], that XLA takes without a copy."""
    whole = np.empty(bytes + ALIGN, np.uint8)
    skip = -whole.ctypes.data % ALIGN
    return whole[skip : skip + bytes]


def as_type(memory: np.ndarray[Any, Any], type: Any) -> np.ndarray[Any, Any]:
    """The memory as an array of the type."""
    return memory[: type.bytes].view(type.dtype.np).reshape(type.shape)


@lru_cache(maxsize=1)
def _entries() -> tuple[Any, Any, int, int]:
    """run_list(calls, count, mail, threads, begin, worker), help_list(mail, count, worker); begin, worker: addresses.

    A call is (addresses of its buffers, description). With two threads the caller puts each call's context into the
    mail, where the helper finds it; calls of one task, and the end of the others, nobody waits for.
    """
    m = Code()
    f = Function(m, "run_list", ["ptr", "i64", "ptr", "i64", "ptr", "ptr"])
    calls, count, mail, threads, begin, work = f.args
    with f.loop(0, count) as i:
        entry = f.offset(calls, i * 16)
        places, describe = f.load(entry, "ptr"), f.load(entry, "ptr", 8)
        most = f.min_int(f.load(describe, "i64", 16), threads)
        context = f.call(begin.name, "ptr", places, describe, most)
        post = f.variable("i64", 1)
        with f.when(f.compare("sgt", most, 1)):
            post.set(f.emit(f"ptrtoint ptr {context.name} to i64", "i64"))
        with f.when(f.compare("sgt", threads, 1)):
            place = f.offset(mail, i * 8)
            f.do(f"store atomic i64 {post.get().name}, ptr {place.name} release, align 8")
        f.call(work.name, "void", context)
    f.give()
    h = Function(m, "help_list", ["ptr", "i64", "ptr"])
    mail, count, work = h.args
    with h.loop(0, count) as i:
        place = h.offset(mail, i * 8)
        launch.wait(h, place, h.i64(1), True)
        found = h.load(place, "i64")
        h.store(h.i64(0), place)
        with h.when(h.compare("sgt", found, 1)):
            h.call(work.name, "void", h.emit(f"inttoptr i64 {found.name} to ptr", "ptr"))
    h.give()
    code, (shared, _) = jit.load(m.text()), jit._runtime()
    many = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    run = ctypes.CFUNCTYPE(None, *many)(code.address("run_list"))
    helper = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(code.address("help_list"))
    return run, helper, shared.address("treadle_begin"), shared.address("treadle_worker")


class Native:
    """A run of kernels: buffers of each by address, which may be changed between steps."""

    def __init__(self, buffers: Sequence[np.ndarray[Any, Any]], codes: Sequence[jit.Code], pool: Any) -> None:
        self.buffers, self.pool = list(buffers), pool
        rows = [[b.ctypes.data, c.address("describe")] for b, c in zip(buffers, codes, strict=True)]
        self.calls = np.array(rows, np.int64)
        self.mail = np.zeros(len(rows), np.int64)
        self.run_list, self.help_list, self.begin, self.worker = _entries()

    def run(self, first: int = 0, count: int = 0) -> None:
        """All calls, or some."""
        count, calls = count or len(self.calls), self.calls.ctypes.data + 16 * first
        mail = self.mail.ctypes.data
        helping = self.pool and self.pool.submit(self.help_list, mail, count, self.worker)
        self.run_list(calls, count, mail, 2 if self.pool else 1, self.begin, self.worker)
        if helping:
            helping.result()


@dataclass
class Island:
    """A program of XLA's. patches: for each result the kernels' buffers that hold its address."""

    program: Any
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    patches: list[list[tuple[np.ndarray[Any, Any], int]]]


class CallList:
    """The same step as a list of calls."""

    def __init__(self, module: Module, donate: Mapping[int, int], arrays: Sequence[Any], threads: int) -> None:
        self.module = driver.grouped(module)
        self.main, self.donate = divided(self.module.main), donate
        self.fns = {name: fn for name, fn in self.module.fns.items() if name != "main"}
        with ThreadPoolExecutor(max(threads, 1)) as pool:  # LLVM works while the next kernels are written
            for node in self.main.nodes:
                if node.op is fused:
                    engine.choose(node.attrs["body"], pool)
            self.plan = plan_of(self.main, self.fns)
        self.pool = ThreadPoolExecutor(1) if threads > 1 else None
        self.memory: dict[Value, np.ndarray[Any, Any]] = {}  # roots that are ours
        self.device: dict[Value, Any] = {}  # values as device arrays: views of ours, or what islands gave
        self._keep_arguments(arrays)
        self._place()
        self.steps = [self._native(s) if s.native else self._island(s) for s in self.plan.segments]
        self._patch()

    def _keep_arguments(self, arrays: Sequence[Any]) -> None:
        for v, a in [*zip(self.main.params, arrays, strict=True), *self.plan.constants.items()]:
            self.memory[v] = aligned(max(v.type.bytes, 1))
            as_type(self.memory[v], v.type)[...] = on_host(a)

    def _place(self) -> None:
        """A place for each result of a kernel, and for each kernel's scratch."""
        plan, order = self.plan, list[tuple[Node, bool]]()
        for segment in plan.segments:
            order += [(n, segment.native) for n in segment.nodes]
        last = {plan.root(v): i for i, (n, _) in enumerate(order) for v in n.inputs}
        last |= {plan.root(v): len(order) for v in self.main.outputs}
        new_values = {plan.root(self.main.outputs[o]): self.main.params[p] for p, o in self.donate.items()}
        arena, offsets, spare = Arena(), dict[Value, int](), dict[Node, int]()
        ends: dict[int, list[Any]] = {}
        # An island reads until its end: nothing that it reads may be overwritten before.
        for i, (node, native) in enumerate(order):
            if native:
                loaded = engine.choose(node.attrs["body"]).loaded
                assert loaded is not None
                pairs = dict(loaded.aliases)
                for j, out in enumerate(node.outputs):
                    into = new_values.get(out)
                    theirs = plan.root(node.inputs[pairs[j]]) if j in pairs else None
                    if into is not None and (last.get(into, -1) < i or (into is theirs and last[into] == i)):
                        self.memory[out] = self.memory[into]
                        continue
                    offsets[out] = arena.take(out, out.type.bytes)
                    ends.setdefault(last.get(out, i), []).append(out)
                if loaded.workspace:
                    spare[node] = arena.take(node, loaded.workspace)
                    arena.free(node)
            for key in ends.pop(i, ()):
                arena.free(key)
        self.arena = aligned(arena.size)
        for v, at in offsets.items():
            self.memory[v] = self.arena[at : at + max(v.type.bytes, 1)]
        self.scratch = {n: self.arena[at:] for n, at in spare.items()}
        self.copies = [
            (p, o) for p, o in ((self.main.params[p], self.main.outputs[o]) for p, o in self.donate.items())
            if self.memory.get(plan.root(o)) is not self.memory[p]
        ]  # fmt: skip

    def _native(self, segment: Segment) -> Native:
        buffers, codes = [], []
        for node in segment.nodes:
            loaded = engine.choose(node.attrs["body"]).loaded
            assert loaded is not None
            held = [self.memory.get(self.plan.root(v)) for v in (*node.inputs, *node.outputs)]
            held += [self.scratch[node]] if loaded.workspace else []
            buffers.append(np.array([0 if m is None else m.ctypes.data for m in held], np.int64))
            codes.append(loaded.code)
        return Native(buffers, codes, self.pool)

    def _island(self, segment: Segment) -> Island:
        made = {o for n in segment.nodes for o in n.outputs}
        inputs = tuple(dict.fromkeys(v for n in segment.nodes for v in n.inputs if v not in made))
        inside = set(segment.nodes)
        rest = [v for s in self.plan.segments for n in s.nodes if n not in inside for v in n.inputs]
        wanted = {*rest, *self.main.outputs, *[w for v in (*rest, *self.main.outputs) for w in self._chain(v)]}
        outputs = tuple(o for n in segment.nodes for o in n.outputs if o in wanted)
        fn = Fn("main", tuple(Value(v.type) for v in inputs), tuple(segment.nodes), outputs)
        fn = build.trace(lambda *values: _inlined(fn, inputs, values), [v.type for v in inputs])
        program = driver.compile_grouped(Module({**self.fns, "main": fn}), "island")
        return Island(program, inputs, outputs, [[] for _ in outputs])

    def _chain(self, v: Value) -> Iterator[Value]:
        """The values whose memory a value has."""
        while v in self.plan.roots:
            v = self.plan.roots[v]
            yield v

    def _patch(self) -> None:
        """Note where kernels want the addresses of what islands make; views of our memory for islands."""
        makers = {o: (s, j) for s in self.steps if isinstance(s, Island) for j, o in enumerate(s.outputs)}
        for segment, step in zip(self.plan.segments, self.steps, strict=True):
            if isinstance(step, Native):
                for node, places in zip(segment.nodes, step.buffers, strict=True):
                    for k, v in enumerate(node.inputs):
                        root = self.plan.root(v)
                        if root not in self.memory:
                            island, j = makers[root]
                            island.patches[j].append((places, k))
            else:
                for v in step.inputs:
                    root = self.plan.root(v)
                    if root in self.memory:
                        self.device[v] = view_on_device(as_type(self.memory[root], v.type), v.type)

    def run(self) -> None:
        """One step."""
        for step in self.steps:
            if isinstance(step, Native):
                step.run()
                continue
            made = step.program.call_unchecked([self._given(v) for v in step.inputs])
            pjrt.block_until_ready(made)
            for v, array, patches in zip(step.outputs, made, step.patches, strict=True):
                self.device[v] = array
                if patches:
                    address = array.unsafe_buffer_pointer()
                    for places, k in patches:
                        places[k] = address
        held = set(self.main.params)
        values = [np.array(self.value(o)) if self.plan.root(o) in held else self.value(o) for _, o in self.copies]
        for (parameter, _), value in zip(self.copies, values, strict=True):
            as_type(self.memory[parameter], parameter.type)[...] = value

    def _given(self, v: Value) -> Any:
        if v in self.device:
            return self.device[v]
        made = self.device[self.plan.root(v)]  # a reshape of what another island made
        return pjrt.put(pjrt.to_numpy(made, copy=False).reshape(v.type.shape))

    def value(self, v: Value) -> np.ndarray[Any, Any]:
        """A value of the last step as an array that stays valid until the next."""
        root = self.plan.root(v)
        if root in self.memory:
            return as_type(self.memory[root], v.type)
        return pjrt.to_numpy(self.device[root], copy=False).reshape(v.type.shape)

    def block(self, k: int) -> float:
        """Seconds per step of k steps."""
        start = time.perf_counter()
        for _ in range(k):
            self.run()
        return (time.perf_counter() - start) / k

    def kernel_seconds(self, turns: int = 5) -> float:
        """The sum of the shortest CPU time of each kernel alone. Changes the state."""
        total = 0.0
        for step in self.steps:
            for i in range(len(step.calls) if isinstance(step, Native) else 0):
                times = []
                for _ in range(turns):
                    start = time.process_time()
                    step.run(i, 1)
                    times.append(time.process_time() - start)
                total += min(times)
        return total

    def island_seconds(self, turns: int = 5) -> float:
        """The same of XLA's programs."""
        total = 0.0
        for step in self.steps:
            if isinstance(step, Island):
                given, times = [self._given(v) for v in step.inputs], []
                for _ in range(turns):
                    start = time.process_time()
                    pjrt.block_until_ready(step.program.call_unchecked(given))
                    times.append(time.process_time() - start)
                total += min(times)
        return total

    def counts(self) -> dict[str, int]:
        """Kernels called, runs of them, islands, nodes in islands."""
        natives = [s for s in self.steps if isinstance(s, Native)]
        nodes = sum(len(s.nodes) for s in self.plan.segments if not s.native)
        islands = len(self.steps) - len(natives)
        calls = sum(len(n.calls) for n in natives)
        return {
            "calls": calls,
            "runs": len(natives),
            "islands": islands,
            "island_nodes": nodes,
            "copies": len(self.copies),
        }

    def planned_bytes(self) -> int:
        """Of the arena, and at most of what islands keep."""
        return int(self.arena.size) + sum(s.program.memory().temporaries for s in self.steps if isinstance(s, Island))


def _inlined(fn: Fn, inputs: Sequence[Value], values: Sequence[Value]) -> list[Value]:
    known = dict(zip(inputs, values, strict=True))
    for node in fn.nodes:
        made = build.emit(node, tuple([known[v] for v in node.inputs]))
        known.update(zip(node.outputs, made, strict=True))
    return [known[o] for o in fn.outputs]


def view_on_device(array: np.ndarray[Any, Any], type: Any) -> Any:
    """Our memory as a device array. Raises RuntimeError where XLA copies it."""
    lib, device = pjrt._load(), pjrt.default_device()
    how = lib.ext.HostBufferSemantics.ZERO_COPY
    made = lib.ext.batched_device_put(pjrt.aval(type), pjrt.single(device), [array], [device], True, False, how, True)
    if type.bytes and made.unsafe_buffer_pointer() != array.ctypes.data:
        raise RuntimeError(f"{type} was copied")
    return made
