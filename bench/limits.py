"""What this machine can do at most, with the cores that this process may use: `measure()` gives a dict.

    f32_gflops    fused multiply-adds of float32 (two operations each) in registers, all threads together
    bf16_gflops   dot products of bfloat16 into float32 (AMX, else AVX-512's), where the processor has them
    copy_gb_s     a large copy: bytes read plus bytes written

The arithmetic comes from small loops that LLVM compiles for this processor; the copy is the better of NumPy's and of
one with stores past the caches. Best of several runs: a limit that is measured too low would flatter everyone.
`python bench/limits.py` prints them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_LOOPS = 200_000
_COPY_BYTES = 128 << 20


def measure(quick: bool = False) -> dict[str, float]:
    """The limits. quick: fewer repetitions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    repeat, found = (3 if quick else 15), {}
    for name, loop in (("f32_gflops", _fma_loop()), ("bf16_gflops", _dot_loop())):
        if loop is not None:
            text, operations, target = loop
            found[name] = operations * cores / _best(_runner(text, target), cores, repeat) / 1e9
    copiers = [_copier, *([_streamer] if "f32_gflops" in found else [])]
    found["copy_gb_s"] = 2 * _COPY_BYTES * cores / min(_best(copier, cores, repeat) for copier in copiers) / 1e9
    return found


def _best(make: Callable[[], Callable[[], None]], threads: int, repeat: int) -> float:
    """Seconds of the fastest of several runs, in each of which every thread does its own work once."""
    works = [make() for _ in range(threads)]
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        helpers = [threading.Thread(target=work) for work in works[1:]]
        for helper in helpers:
            helper.start()
        works[0]()
        for helper in helpers:
            helper.join()
        times.append(time.perf_counter() - start)
    return min(times)


def _copier() -> Callable[[], None]:
    source, target = np.ones(_COPY_BYTES // 8), np.zeros(_COPY_BYTES // 8)
    return lambda: np.copyto(target, source)


def _streamer() -> Callable[[], None]:
    """The same copy with stores that go past the caches."""
    from treadle.kernels import jit

    vector, rows = "<16 x float>", range(4)
    lines = ["define void @stream(ptr %from, ptr %to, i64 %bytes) {\nentry:\n  br label %loop\nloop:"]
    lines += ["  %i = phi i64 [0, %entry], [%next, %loop]"]
    for j in rows:
        lines += [f"  %o{j} = add i64 %i, {64 * j}", f"  %f{j} = getelementptr i8, ptr %from, i64 %o{j}"]
        lines += [f"  %v{j} = load {vector}, ptr %f{j}, align 64", f"  %t{j} = getelementptr i8, ptr %to, i64 %o{j}"]
        lines += [f"  store {vector} %v{j}, ptr %t{j}, align 64, !nontemporal !0"]
    lines += ["  %next = add i64 %i, 256\n  %more = icmp slt i64 %next, %bytes"]
    lines += ["  br i1 %more, label %loop, label %end\nend:\n  ret void\n}\n!0 = !{i32 1}\n"]
    stream = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        jit.load("\n".join(lines)).address("stream")
    )
    room = np.ones((2, _COPY_BYTES + 64), np.uint8)
    source, target = (row.ctypes.data + -row.ctypes.data % 64 for row in room)

    def run(room: np.ndarray = room) -> None:  # which keeps the memory
        stream(source, target, _COPY_BYTES)

    return run


def _runner(text: str, target: Any) -> Callable[[], Callable[[], None]]:
    """Makes calls of `void probe(i64 loops, ptr out)` of a module; ctypes lets other threads run meanwhile."""
    from treadle.kernels import jit

    probe = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(jit.load(text, target).address("probe"))

    def make() -> Callable[[], None]:
        out = np.zeros(1 << 14, np.float32)
        return lambda: probe(_LOOPS, out.ctypes.data)

    return make


def _loop_text(
    vector: str, count: int, step: Callable[[int], str], declare: str, before: str = "", after: str = ""
) -> str:
    """A module with `probe`: a loop over `count` accumulators, %r0 from %x0 and so on, stored at the end."""
    names = range(count)
    return "\n".join(
        [
            declare,
            "define void @probe(i64 %loops, ptr %out) {\nentry:",
            before,
            "  br label %loop\nloop:",
            "  %i = phi i64 [0, %entry], [%next, %loop]",
            *[f"  %x{j} = phi {vector} [zeroinitializer, %entry], [%r{j}, %loop]" for j in names],
            *[step(j) for j in names],
            "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %loops",
            "  br i1 %more, label %loop, label %end\nend:",
            after,
            *[
                f"  %p{j} = getelementptr i8, ptr %out, i64 {64 * j}\n  store {vector} %r{j}, ptr %p{j}, align 4"
                for j in names
            ],
            "  ret void\n}\n",
        ]
    )


def _fma_loop() -> tuple[str, float, Any] | None:
    """(module, operations of one call, processor): chains of x * 0.5 + 1, enough of them to fill the pipelines."""
    from treadle.kernels import target

    if not target.available():
        return None
    machine = target.host()
    lanes, count = machine.vector_bytes // 4, min(machine.registers - 4, 24)
    vector = f"<{lanes} x float>"
    half, one = f"splat (float {0.5})", f"splat (float {1.0})"
    name = f"llvm.fma.v{lanes}f32"
    if not (machine.has("avx2") or machine.has("avx512") or machine.has("neon")):  # no fused ones: two instructions
        step = lambda j: f"  %m{j} = fmul {vector} %x{j}, {half}\n  %r{j} = fadd {vector} %m{j}, {one}"
    else:
        step = lambda j: f"  %r{j} = call {vector} @{name}({vector} %x{j}, {vector} {half}, {vector} {one})"
    declare = f"declare {vector} @{name}({vector}, {vector}, {vector})"
    return _loop_text(vector, count, step, declare), 2.0 * lanes * count * _LOOPS, machine


def _dot_loop() -> tuple[str, float, Any] | None:
    """The same for products of bfloat16; None where the processor has none that this knows."""
    from treadle.kernels import target

    if not target.available():
        return None
    machine = target.host()
    if machine.has("amx"):
        return tile_loop(), 4 * 2.0 * 16 * 16 * 32 * _LOOPS, machine
    if not machine.has("avx512bf16"):
        return None
    vector, pairs, name = "<16 x float>", "<32 x bfloat>", "llvm.x86.avx512bf16.dpbf16ps.512"
    ones = "splat (bfloat 0xR3F80)"
    declare = f"declare {vector} @{name}({vector}, {pairs}, {pairs})"
    text = _loop_text(
        vector,
        24,
        lambda j: f"  %r{j} = call {vector} @{name}({vector} %x{j}, {pairs} {ones}, {pairs} {ones})",
        declare,
    )
    return text, 2.0 * 32 * 24 * _LOOPS, machine


def tile_loop() -> str:
    """AMX: four products of tiles of zeros in turn, each 16 x 32 by 32 x 16; all tiles have 16 rows of 64 bytes."""
    shape = [1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8]
    declare = [
        "declare void @llvm.x86.ldtilecfg(ptr)\ndeclare void @llvm.x86.tilerelease()",
        "declare void @llvm.x86.tilezero(i8)\ndeclare void @llvm.x86.tdpbf16ps(i8, i8, i8)",
        f"@shape = private constant [64 x i8] [{', '.join(f'i8 {n}' for n in shape)}], align 64",
    ]
    before = ["  call void @llvm.x86.ldtilecfg(ptr @shape)"]
    before += [f"  call void @llvm.x86.tilezero(i8 {t})" for t in range(8)]

    def step(j: int) -> str:
        product = f"  call void @llvm.x86.tdpbf16ps(i8 {j}, i8 {4 + j // 2}, i8 {6 + j % 2})"
        return f"  %r{j} = fadd <4 x float> %x{j}, zeroinitializer\n{product}"

    after = "  call void @llvm.x86.tilerelease()"
    return _loop_text("<4 x float>", 4, step, "\n".join(declare), "\n".join(before), after)


if __name__ == "__main__":
    for name, value in measure(quick="--quick" in sys.argv).items():
        print(f"{name} {value:.4g}")
