"""Matrix products with what surrounds them: `plans(body, target)` offers ways of computing a body around one product.

Which elements are multiplied is read by gemm_problem, what is done with the sums by gemm_finish; gemm_tile makes the
code. float32 is computed as float32; products of bfloat16 by the CPU's instruction for pairs where it has one, else,
like float16, as float32 from converted operands. Sums are float32 and are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import gcd

from treadle.base.dtypes import bfloat16, float32
from treadle.ir.node import Fn
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.llvm import Module
from treadle.kernels.microkernels import Isa, row_limit
from treadle.kernels.target import Target
from treadle.kernels.templates import gemm_amx, gemm_dot, gemm_finish, gemm_problem, gemm_tile
from treadle.kernels.templates.gemm_amx import AmxSchedule
from treadle.kernels.templates.gemm_dot import DotSchedule
from treadle.kernels.templates.gemm_finish import Finish, Store
from treadle.kernels.templates.gemm_problem import Problem
from treadle.kernels.templates.gemm_tile import Schedule, in_place

_TASK_FLOPS = 2e6  # of a task that is worth to be claimed by a thread
_LINE_BYTES = 128 << 10  # that a task of dot products reads
_PAGE = 4096  # bytes; lines so far apart compete for the same places in a cache
_WAYS = 8  # lines that share a place in the first cache
_TALL = 24  # rows of a panel whose lines are read so often that packing it pays for one tile
_FEW = 96  # rows, for which packing the other operand costs more than a tenth of their product
_LINE = 64  # bytes
_OFTEN = 1024  # rows; for more, a copy of the other operand costs nothing beside their product
_SHARED = 192  # rows; of fewer, tasks are done sooner that pack their part of B each, without a phase before them
_FLAT = 4  # panels of rows, of a task that reads a block of B often enough
_LEAST = 512  # multiplications of a product; many smaller ones are no work for tiles
_MOST = 6  # plans
_MOST_CACHE = 2 << 20  # bytes of the second cache that are made use of


def plans(body: Fn, target: Target) -> list[Plan]:
    """Ways to compute a body around a matrix product, the most promising first; [] if it is none of ours."""
    found = _read(body, target)
    if found is None:
        return []
    problem, finish, isa = found
    kind = "gemm pairs" if isa.pairs else "gemm"
    schedules = list(dict.fromkeys(schedules_for(problem, finish, isa, target)))[:_MOST]
    given = body, problem, finish, isa, target
    return [Plan(f"{kind} {s}", partial(make, *given, s), _apart(partial(make, *given), problem, s)) for s in schedules]


def _apart(
    make: Callable[[Schedule], Kernel], problem: Problem, schedule: Schedule | DotSchedule
) -> Callable[[], Kernel] | None:
    """The same with B packed as a whole, where each task packs its part."""
    if type(schedule) is not Schedule or schedule.share or not schedule.pack_b or problem.batches > 1:
        return None
    return partial(make, replace(schedule, share=True))


def _read(body: Fn, target: Target) -> tuple[Problem, Finish, Isa] | None:
    found = [p for p in (gemm_problem.read(body, swapped) for swapped in (False, True)) if p is not None]
    for problem in sorted(found, key=lambda p: p.n == 1):
        isa = Isa.of(target, multiplies_pairs(problem, target))
        if not packable(problem) or (problem.batches > 1 and problem.m * problem.n * problem.k < _LEAST):
            continue
        if _repeats(problem, isa):
            continue
        finish = gemm_finish.read(body, problem)
        if finish is not None and finish.width_divides() % isa.lanes == 0:
            return problem, finish, isa
    return None


def _repeats(problem: Problem, isa: Isa) -> bool:
    """Whether one large operand would be packed for each of many small products: its rows are rows of one product if
    the other operand is copied into their order first, which is less work."""
    if problem.batches == 1 or problem.flops < 2 * _TASK_FLOPS:
        return False
    left, right = problem.left, problem.right
    shared_right = not any(right.batch) and not in_place(right, isa, True) and problem.n > 4 * problem.m
    shared_left = not any(left.batch) and not in_place(left, isa, False) and problem.m > 4 * problem.n
    return (shared_right and problem.m < _FEW) or (shared_left and problem.n < _FEW)


def multiplies_pairs(problem: Problem, target: Target) -> bool:
    """Whether operands are multiplied as bfloat16: they are, both of them, or their product may be that inexact."""
    sides = (problem.left, problem.right)
    narrow = all(bfloat16 in (s.dtype, s.used_as) for s in sides)
    return target.has("avx512bf16") and (narrow or (problem.precision == "medium" and problem.dtype is float32))


def packable(problem: Problem) -> bool:
    """Whether each operand has an axis along which it lies without gaps, as packing wants it."""
    left, right = problem.left, problem.right
    tall = left.inner == 1 or left.outer == 1 or problem.m == 1 or problem.k == 1
    return tall and (right.inner == 1 or right.outer == 1 or problem.n == 1)


def make(
    body: Fn, problem: Problem, finish: Finish, isa: Isa, target: Target, schedule: Schedule | DotSchedule
) -> Kernel:
    """The kernel of a schedule."""
    module = Module()
    store = Store(finish, isa, target, module)
    buffers, workspace = len(body.params) + len(body.outputs), 0
    if isinstance(schedule, DotSchedule):
        phases = [gemm_dot.build(problem, isa, schedule, store, module, "gemm")]
    else:
        made = (
            gemm_amx.Tiles(problem, schedule, store)
            if isinstance(schedule, AmxSchedule)
            else gemm_tile.Gemm(problem, isa, schedule, store.tile, store.buffers, store.totals, store.ahead)
        )
        phases, workspace = gemm_tile.build(made, module), made.workspace
    text = launch.finish(module, phases, buffers + bool(workspace), tiles=isinstance(schedule, AmxSchedule))
    shared = isinstance(schedule, Schedule) and schedule.share and store.totals is None
    packs = problem.right.param if shared else -1
    return Kernel(body.in_types, body.out_types, text, workspace, finish.aliases(), packs)


def schedules_for(problem: Problem, finish: Finish, isa: Isa, target: Target) -> Iterator[Schedule | DotSchedule]:
    """Schedules worth trying, the best guess first."""
    if gemm_dot.fits(problem) and not any(o.summed for o in finish.outputs):
        at_once = 4 if problem.m * 4 + problem.m < isa.registers else 2
        wide = max(_LINE_BYTES // (problem.k * problem.right.dtype.bytes), 4 * isa.lanes)
        part = finish.width_divides()
        yield DotSchedule(at_once, min(part, wide // isa.lanes * isa.lanes) if part else wide // isa.lanes * isa.lanes)
    split = problem.precision == "high" and problem.left.used_as is problem.right.used_as is float32
    if target.has("amx") and (isa.pairs or split):
        yield from _amx(problem, finish, target, not isa.pairs)
    later: list[Schedule] = []
    for vectors in _widths(problem, finish, isa):
        first, *others = _cut(problem, isa, target, vectors, row_limit(isa, vectors))
        yield first
        later += others
    yield from later


def _amx(problem: Problem, finish: Finish, target: Target, split: bool) -> Iterator[Schedule]:
    """Schedules of tiles: the whole sum at once as long as B's block and A's panel stay in the second cache."""
    side = gemm_amx.STEP
    if finish.width_divides() % side:
        return
    panels, columns = -(-problem.m // side), -(-problem.n // side)
    parts_of = 3 if split else 1
    for most in (3072 // parts_of, 1024 // parts_of):
        parts = max(-(-problem.k // most), 1)
        depth = max(-(-problem.k // parts // side), 1) * side
        high, wide = _blocks(problem, target, panels, columns, side, side, parts_of * depth // 2, False)
        for pack_a in (split, split or problem.left.outer * 2 % _PAGE == 0):
            yield AmxSchedule(2, side, depth, high, wide, pack_a, True, split=split)


def _widths(problem: Problem, finish: Finish, isa: Isa) -> list[int]:
    """Vectors of a tile's columns, the best first."""
    need = -(-problem.n // isa.lanes)
    wanted = [3, 2] if isa.registers == 32 else [2]
    if problem.left.outer == 1 and problem.m > isa.lanes:  # columns of A are packed in whole vectors
        wanted.reverse()
    if problem.m <= isa.registers // 10:
        wanted = [isa.registers // 4, *wanted]
    part = finish.width_divides()
    fits = [v for v in wanted if v <= need and (not part or part % (v * isa.lanes) == 0)]
    rest = {v: -problem.n % (v * isa.lanes) for v in fits}
    return sorted(fits, key=lambda v: rest[v] * 10 > problem.n) or [1]


def _cut(problem: Problem, isa: Isa, target: Target, vectors: int, rows: int) -> Iterator[Schedule]:
    """Schedules for a width of tiles. An operand whose lines are a multiple of a page apart is packed, because they
    would all be in the same places of the caches; so is one that is read often enough, unless it comes in time by
    being asked for (gemm_tile) and its vectors lie in one line each."""
    width, left, right = vectors * isa.lanes, problem.left, problem.right
    panels, columns = -(-problem.m // rows), -(-problem.n // width)
    must_a, must_b = not in_place(left, isa, False), not in_place(right, isa, True)
    by_column = left.outer == 1 and problem.m > 1
    depth = _depth(problem, isa, target, by_column)
    room = max(_WAYS * _PAGE // gcd(left.outer * left.dtype.bytes, _PAGE), 9)  # lines of A's rows that stay
    far = left.inner == 1 and rows > room and depth > 64
    far = far or (by_column and left.inner * left.dtype.bytes >= _PAGE)
    pack_a = must_a or (far and problem.m > 1 and (problem.n > 3 * width or rows > _TALL))
    apart = right.inner * right.dtype.bytes
    close = depth > 128 and apart % _PAGE == 0
    soon = apart % _LINE == 0 and apart <= 2 * _PAGE and problem.m <= _OFTEN  # asked for in time, it is read as it is
    pack_b = must_b or (panels > 3 and not soon and (close or problem.k > depth))
    high, wide = _blocks(problem, target, panels, columns, rows, width, depth // isa.per_unit, by_column and pack_a)
    per_task = 2 * min(high * rows, problem.m) * min(wide * width, problem.n) * problem.k
    group = max(1, min(int(_TASK_FLOPS // max(per_task, 1)), problem.batches // (4 * target.cores)))
    small = problem.n * problem.k * 4 // isa.per_unit <= target.l3
    twice = pack_b and problem.batches == 1 and panels > high and problem.m >= _SHARED and small
    if twice:
        yield Schedule(vectors, rows, depth, high, wide, pack_a, True, share=True)
    for a, b in ((pack_a, pack_b), (pack_a, must_b), (must_a, pack_b), (True, pack_b), (pack_a, True)):
        if not (a and by_column) or pack_a:
            yield Schedule(vectors, rows, depth, high, wide, (a and problem.m > 1) or must_a, b, group)


def _depth(problem: Problem, isa: Isa, target: Target, by_column: bool) -> int:
    """Elements of a block of the sum: a few hundred, so that blocks are alike."""
    block, most = 2 * isa.lanes, 256 if by_column and not isa.pairs else 512 * isa.per_unit
    k = max(problem.k, 1)
    parts = 1 if k <= most * 3 // 2 else -(-k // most)
    return -(-k // parts // block) * block


def _blocks(
    problem: Problem, target: Target, panels: int, columns: int, rows: int, width: int, units: int, whole_a: bool
) -> tuple[int, int]:
    """Panels of rows and columns of a task: B's block in half of the second cache (all of it where A is packed anew for
    each block), and enough tasks for the cores."""
    cache = min(target.l2, _MOST_CACHE)
    wide = max(1, min(columns, cache // (1 if whole_a else 2) // (units * width * 4)))
    high = max(1, min(panels, 384 // rows))
    if whole_a:
        high = max(1, min(high, cache // 4 // (units * 64)))
    rows_first = whole_a and problem.batches == 1 and problem.m >= _SHARED  # B is packed once, A for each block of B
    while high * wide > 1 and target.cores > 1:
        tall, broad = min(high * rows, problem.m), min(wide * width, problem.n)
        small = 2 * tall * broad * problem.k < 2 * _TASK_FLOPS
        want = target.cores * (4 if min(tall, broad) > 96 else 1)
        if small or problem.batches * -(-panels // high) * -(-columns // wide) >= want:
            break
        if wide == 1 or (high > 1 and tall >= broad) or (high > _FLAT and rows_first):
            high = -(-high // 2)
        else:
            wide = -(-wide // 2)
    parts = [-(-panels // high), -(-columns // wide)]
    for _ in range(target.cores):  # as many tasks as cores or a multiple, where there are few
        tasks = problem.batches * parts[0] * parts[1]
        if tasks < target.cores or tasks % target.cores == 0 or tasks > 12 * target.cores:
            break
        parts[panels <= parts[0]] += 1
    return -(-panels // parts[0]), max(-(-columns // parts[1]), 1)
