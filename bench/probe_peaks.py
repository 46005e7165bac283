"""What this CPU can do at most, measured by small kernels: `peaks(threads)` gives GFLOP/s and GB/s.

float32: multiply-adds that wait for nothing; bfloat16: the instruction for pairs, or AMX's for tiles, 0 without either;
copy: bytes read plus bytes written of a buffer far larger than the caches, by plain and by non-temporal stores, the
better one; level 1 and 2: bytes read from half of the cache. Each the best of many short runs.

    python bench/probe_peaks.py            # one line per number of threads
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from treadle.kernels import jit, launch
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.microkernels import Isa
from treadle.kernels.target import Target, host

TASKS, ROUNDS, CHAINS = 16, 12, 12
COPY_BYTES, CHUNK = 256 << 20, 1 << 20


def _kernel(tasks: int, write: Callable[[Function, list[Value], Value], None], tiles: bool = False) -> jit.Code:
    """A kernel of two buffers whose task `write` writes."""
    module = Module()
    f = Function(module, "probe", ["ptr", "i64", "ptr"])
    write(f, [f.load(f.args[0], "ptr"), f.load(f.args[0], "ptr", 8)], f.args[1])
    f.give()
    return jit.load(launch.finish(module, [Phase("probe", tasks)], 2, tiles=tiles))


def _best(code: jit.Code, arrays: list[np.ndarray], threads: int) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        code.run(arrays, threads)
        times.append(time.perf_counter() - start)
    return min(times)


def multiply_adds(isa: Isa, threads: int, rounds: int = 20000) -> float:
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

    seconds = _best(_kernel(TASKS, write), [np.zeros(64, np.float32), np.zeros(TASKS * 16, np.float32)], threads)
    return 2 * isa.lanes * isa.per_unit * CHAINS * rounds * TASKS / seconds / 1e9


def tile_products(threads: int, rounds: int = 4000) -> float:
    """GFLOP/s of AMX on four tiles of sums."""

    def write(f: Function, buffers: list[Value], task: Value) -> None:
        number = [f.constant(i, "i8") for i in range(8)]
        for i in range(8):
            f.intrinsic("llvm.x86.tilezero", "void", number[i])
        with f.loop(0, rounds):
            for i in range(4):
                f.intrinsic("llvm.x86.tdpbf16ps", "void", number[i], number[4 + i // 2], number[6 + i % 2])

    seconds = _best(_kernel(TASKS, write, tiles=True), [np.zeros(64, np.float32)] * 2, threads)
    return 2 * 16 * 16 * 32 * 4 * rounds * TASKS / seconds / 1e9


def copying(target: Target, threads: int) -> float:
    """GB/s read plus written."""
    lanes = target.lanes(32)
    found = []
    for stream in (False, True):

        def write(f: Function, buffers: list[Value], task: Value, stream: bool = stream) -> None:
            first, second = (f.offset(b, task * CHUNK) for b in buffers)
            with f.loop(0, CHUNK, 4 * lanes * 4) as at:
                for i in range(4):
                    value = f.load(f.offset(first, at), f"<{lanes} x float>", i * lanes * 4)
                    f.store(value, f.offset(second, at, i * lanes * 4), align=lanes * 4, stream=stream)

        room = np.ones((2, COPY_BYTES + 64), np.uint8)  # pages of zeros would all be one page, read from the cache
        arrays = [row[-row.ctypes.data % 64 :] for row in room]
        found.append(2 * COPY_BYTES / _best(_kernel(COPY_BYTES // CHUNK, write), arrays, threads) / 1e9)
    return max(found)


def reading(target: Target, bytes: int, threads: int) -> float:
    """GB/s read from a buffer of so many bytes, again and again; each thread has its own."""
    lanes, rounds = target.lanes(32), max((8 << 20) // bytes, 1)
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
    return bytes * rounds * threads / _best(_kernel(threads, write), arrays, threads) / 1e9


def peaks(threads: int) -> dict[str, float]:
    """float32, bfloat16: GFLOP/s; copy, level1, level2: GB/s; of so many threads together."""
    target = host()
    narrow = 0.0
    if target.has("amx"):
        narrow = tile_products(threads)
    elif target.has("avx512bf16"):
        narrow = multiply_adds(Isa.of(target, pairs=True), threads)
    return {
        "float32": multiply_adds(Isa.of(target), threads),
        "bfloat16": narrow,
        "copy": copying(target, threads),
        "level1": reading(target, target.l1 // 2, threads),
        "level2": reading(target, target.l2 // 2, threads),
    }


if __name__ == "__main__":
    for count in sorted({1, host().cores}):
        print(count, {name: round(value, 1) for name, value in peaks(count).items()})
