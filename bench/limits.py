"""What this CPU can do at most, with the cores that this process may use: `measure()` gives a dict.

    f32_gflops    multiply-adds of float32 (two operations each) that wait for nothing, all threads together
    bf16_gflops   the same of bfloat16 into float32, by AMX's tiles or AVX-512's pairs; not there without either
    copy_gb_s     bytes read plus bytes written of a copy far larger than the caches: the better of plain stores and of
                  stores past the caches

`caches(threads)` gives the speed of reading half of a core's first and second cache. All are kernels of the engine's
own; without llvmlite there is the copy alone, by NumPy and one thread. Best of several runs: a limit that is measured
too low would flatter everyone.

    python bench/limits.py [--quick]       # one line for one thread, one for all
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from treadle.base import cores
from treadle.kernels import target as targets

if TYPE_CHECKING:
    from treadle.kernels.llvm import Function, Value
    from treadle.kernels.microkernels import Isa
    from treadle.kernels.target import Target

TASKS, CHAINS = 16, 12
COPY_BYTES, CHUNK = 256 << 20, 1 << 20


def measure(quick: bool = False, threads: int = 0) -> dict[str, float]:
    """The limits. quick: fewer repetitions; threads: 0 for one on each core."""
    runs = 3 if quick else 15
    if not targets.available():
        return {"copy_gb_s": _copied_by_numpy(runs)}
    from treadle.kernels.microkernels import Isa

    machine = targets.host()
    threads, found = threads or cores.usable(), {}
    found["f32_gflops"] = multiply_adds(Isa.of(machine), threads, runs)
    if machine.has("amx"):
        found["bf16_gflops"] = tile_products(threads, runs)
    elif machine.has("avx512bf16"):
        found["bf16_gflops"] = multiply_adds(Isa.of(machine, pairs=True), threads, runs)
    found["copy_gb_s"] = copying(machine, threads, runs)
    return found


def caches(threads: int, runs: int = 15) -> dict[str, float]:
    """level1_gb_s, level2_gb_s: bytes read from half of each core's caches, all threads together."""
    machine = targets.host()
    sizes = {"level1_gb_s": machine.l1, "level2_gb_s": machine.l2}
    return {name: reading(machine, size // 2, threads, runs) for name, size in sizes.items()}


def _kernel(tasks: int, write: Callable[[Function, list[Value], Value], None], tiles: bool = False) -> str:
    """The text of a kernel of two buffers whose task `write` writes."""
    from treadle.kernels import launch
    from treadle.kernels.llvm import Function, Module

    module = Module()
    f = Function(module, "probe", ["ptr", "i64", "ptr"])
    write(f, [f.load(f.args[0], "ptr"), f.load(f.args[0], "ptr", 8)], f.args[1])
    f.give()
    return launch.finish(module, [launch.Phase("probe", tasks)], 2, tiles=tiles)


def _best(text: str, arrays: list[np.ndarray], threads: int, runs: int) -> float:
    """Seconds of the fastest of several calls."""
    from treadle.kernels import jit

    code: jit.Code = jit.load(text)
    return min([_seconds(lambda: code.run(arrays, threads)) for _ in range(runs)])


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def multiply_adds(isa: Isa, threads: int, runs: int, rounds: int = 400_000) -> float:
    """GFLOP/s of independent chains in registers."""

    def write(f: Function, buffers: list[Value], task: Value) -> None:
        sums = [f.variable(isa.sums, 0.0) for _ in range(CHAINS)]
        units = f.load(buffers[0], isa.units)
        with f.loop(0, rounds):
            for each in sums:
                each.set(isa.step(f, each.get(), units, units))
        total = sums[0].get()
        for each in sums[1:]:
            total = total + each.get()
        f.store(total, buffers[1], task * 64)

    arrays = [np.zeros(64, np.float32), np.zeros(TASKS * 16, np.float32)]
    seconds = _best(_kernel(TASKS, write), arrays, threads, runs)
    return 2 * isa.lanes * isa.per_unit * CHAINS * rounds * TASKS / seconds / 1e9


def tile_text(rounds: int) -> str:
    """A kernel of AMX's products into four tiles of sums, in turn."""

    def write(f: Function, buffers: list[Value], task: Value) -> None:
        number = [f.constant(i, "i8") for i in range(8)]
        for i in range(8):
            f.intrinsic("llvm.x86.tilezero", "void", number[i])
        with f.loop(0, rounds):
            for i in range(4):
                f.intrinsic("llvm.x86.tdpbf16ps", "void", number[i], number[4 + i // 2], number[6 + i % 2])

    return _kernel(TASKS, write, tiles=True)


def tile_products(threads: int, runs: int, rounds: int = 80_000) -> float:
    """GFLOP/s of AMX, each product 16 x 32 by 32 x 16."""
    seconds = _best(tile_text(rounds), [np.zeros(64, np.float32)] * 2, threads, runs)
    return 2 * 16 * 16 * 32 * 4 * rounds * TASKS / seconds / 1e9


def copying(machine: Target, threads: int, runs: int) -> float:
    """GB/s read plus written."""
    lanes = machine.lanes(32)
    room = np.ones((2, COPY_BYTES + 64), np.uint8)  # pages of zeros would all be one page, read from the cache
    arrays = [row[-row.ctypes.data % 64 :] for row in room]
    times = []
    for stream in (False, True):

        def write(f: Function, buffers: list[Value], task: Value, stream: bool = stream) -> None:
            first, second = (f.offset(b, task * CHUNK) for b in buffers)
            with f.loop(0, CHUNK, 4 * lanes * 4) as at:
                for i in range(4):
                    value = f.load(f.offset(first, at), f"<{lanes} x float>", i * lanes * 4)
                    f.store(value, f.offset(second, at, i * lanes * 4), align=lanes * 4, stream=stream)

        times.append(_best(_kernel(COPY_BYTES // CHUNK, write), arrays, threads, runs))
    return 2 * COPY_BYTES / min(times) / 1e9


def _copied_by_numpy(runs: int) -> float:
    source, target = np.ones(COPY_BYTES // 8), np.ones(COPY_BYTES // 8)
    return 2 * COPY_BYTES / min([_seconds(lambda: np.copyto(target, source)) for _ in range(runs)]) / 1e9


def reading(machine: Target, bytes: int, threads: int, runs: int) -> float:
    """GB/s read from a buffer of so many bytes, again and again; each thread has its own."""
    lanes, rounds = machine.lanes(32), max((8 << 20) // bytes, 1)
    block = 8 * lanes * 4
    bytes = bytes // block * block

    def write(f: Function, buffers: list[Value], task: Value) -> None:
        sums = [f.variable(f"<{lanes} x i32>", 0) for _ in range(8)]
        start = f.offset(buffers[0], task * bytes)
        with f.loop(0, rounds), f.loop(0, bytes, block) as at:
            for i, each in enumerate(sums):
                each.set(each.get() ^ f.load(f.offset(start, at), f"<{lanes} x i32>", i * lanes * 4))
        total = sums[0].get()
        for each in sums[1:]:
            total = total ^ each.get()
        f.store(total, buffers[1], task * 64)

    room = np.ones(threads * bytes + 64, np.uint8)
    arrays = [room[-room.ctypes.data % 64 :], np.zeros(threads * 16, np.float32)]
    return bytes * rounds * threads / _best(_kernel(threads, write), arrays, threads, runs) / 1e9


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    for count in sorted({1, cores.usable()}) if targets.available() else [1]:
        found = measure(quick, count) | (caches(count, 3 if quick else 15) if targets.available() else {})
        print(f"threads {count}: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()))
