"""Which schedules to try for a convolution: sizes of tiles, tasks and panels, from the CPU's caches and registers."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapreplace

from treadle.kernels.target import Target
from treadle.kernels.templates.conv_depthwise import Depthwise, DepthwiseSchedule, DepthwiseWeight
from treadle.kernels.templates.conv_depthwise_rows import fits
from treadle.kernels.templates.conv_depthwise_weight import PRODUCTS, rows_at_once
from treadle.kernels.templates.conv_direct import SCRATCH, Buffers, Direct, Schedule
from treadle.kernels.templates.conv_micro import SIDE, WIDTH, arith
from treadle.kernels.templates.conv_shape import Problem, Spec, forward, joined, pointwise
from treadle.kernels.templates.conv_weight import Weight, WeightSchedule, joins_taps

TASKS_PER_CORE = 4
_LARGE = 64  # taps of a depthwise kernel, whose code is written out for each
ALIAS = 2048  # places this many bytes apart, or a multiple, share few sets of the first cache


def best_tile(rows: int, cols: int, places: int, most: int = 4) -> tuple[int, int]:
    """The tile of at most so many places, and so many rows, that covers a grid in the fewest steps of work."""

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        down, across = -(-rows // tile[0]), -(-cols // tile[1])
        # What a tile costs besides its places: the loads of the panel, and its beginning and end.
        edges = (cols % tile[1] != 0) * down + (rows % tile[0]) * across
        return rows * cols + 2.0 * (down * across) + edges, tile[0]

    sizes = [(h, w) for h in range(1, min(rows, most) + 1) for w in range(1, min(cols, places) + 1) if h * w <= places]
    return min(sizes, key=cost)


def schedules(
    problem: Problem, target: Target, dtype: str, join: bool = True, planar: bool = False, most: int = 4
) -> list[tuple[Problem, Schedule]]:
    """Problems and schedules for them, the most promising first. join: places of all images may be put in rows of any
    width, where that is the same; planar: the source has its channels first."""
    how = arith(target, dtype)
    registers = target.registers
    shapes = ((14, 2), (6, 4)) if registers == 32 else ((6, 2), (4, 3)) if how.fused else ((6, 2),)
    amx = _amx(problem, target, join, planar) if dtype == "bf16" and target.has("amx") else []
    if registers == 32 and outside(problem) > 0.03 and max(part.cols for part in problem.parts) < 10:
        shapes = ((9, 3), (14, 2))
    if pointwise(problem):  # short sums: what counts is to read each source element once and to write whole rows
        shapes = shapes[::-1]
    columns = -(-problem.outer // how.lanes)
    found = amx[:2]
    for places, vectors in shapes:
        if vectors > columns:  # the registers are shared by sums, a row of the panel and a splat
            vectors = columns
            places = (registers - vectors - 1) // vectors // 2 * 2
        for item in _with_tile(problem, target, dtype, (places, vectors), join, planar):
            if item not in found:
                found.append(item)
    return found[:most]


def _with_tile(
    problem: Problem, target: Target, dtype: str, tile_size: tuple[int, int], join: bool, planar: bool
) -> list[tuple[Problem, Schedule]]:
    how, (places, vectors), p = arith(target, dtype), tile_size, problem
    if join and pointwise(problem):
        p = joined(problem, min(places, problem.n * problem.target[0] * problem.target[1]))
    place_bytes = p.source[2] * WIDTH[dtype]
    widened = dtype != "f32" and how.kind == "f32"
    odd = how.depth == 2 and (p.inner % 2 != 0 or p.source[2] % 2 != 0)
    copy = planar or not p.inside() or widened or odd or place_bytes % ALIAS == 0
    grid = max(p.parts, key=lambda part: part.rows * part.cols)
    tile = (1, grid.cols) if p.flat else best_tile(grid.rows, grid.cols, places, 1 if outside(p) > 0.03 else 4)
    columns = -(-p.outer // how.lanes)
    panels = -(-columns // vectors)
    steps = -(-p.inner // how.depth)
    taps = max([len(part.taps) for part in p.parts] + [1])
    panel_bytes = steps * taps * vectors * how.bytes
    rows = _rows(p, tile, target, dtype, panels)
    inside = panels * panel_bytes <= target.l2 // 3
    result = []
    for order in (inside, not inside):
        per_task = panels
        while per_task > 1 and p.groups * p.n * -(-grid.rows // rows) * -(-panels // per_task) < _wanted(target):
            per_task = -(-per_task // 2)
        shares = _even(grid.rows, panels, (rows, per_task), target) if p.flat and not copy else (rows, per_task)
        result.append((p, Schedule(tile, vectors, shares[0], shares[1], order, copy)))
    return [r for r in result if _fits(r[0], r[1], target, dtype)]


def _even(rows: int, panels: int, shares: tuple[int, int], target: Target) -> tuple[int, int]:
    """Rows and panels of a task, about as many as `shares`, with which all cores are done at the same time."""
    ideal = rows * panels / target.cores

    def last(shares: tuple[int, int]) -> float:
        """When the last core is done, in rows of a panel; a task costs about a third of one."""
        ends = [0.0] * target.cores
        for work in [r * n + 0.3 for n in _parts(panels, shares[1]) for r in _parts(rows, shares[0])]:
            heapreplace(ends, ends[0] + work)
        return max(ends)

    high, many = shares
    if last(shares) < 1.03 * ideal or target.cores > rows * panels:
        return shares
    fewer = [(n, many) for n in range(high, high // 3, -1)] + [(high, n) for n in range(many, many // 3, -1)]
    return min([*fewer, (-(-high // 2), many), (-(-high // 3), many)], key=last)


def _parts(whole: int, part: int) -> list[int]:
    return [part] * (whole // part) + [whole % part] * (whole % part > 0)


def outside(p: Problem) -> float:
    """The share of products that tiles of one row need not make: with rows beyond the upper and lower border."""
    every = inside = 0
    for part in p.parts:
        for tap in part.taps:
            every += part.rows
            inside += sum(0 <= i * p.step_in[0] + tap.row < p.source[0] for i in range(part.rows))
    return 1 - inside / max(every, 1)


def _amx(problem: Problem, target: Target, join: bool, planar: bool) -> list[tuple[Problem, Schedule]]:
    """Schedules by AMX, which multiplies 16 places beside each other by 32 source channels: not for very few."""
    if problem.inner < SIDE:
        return []
    p = joined(problem, 2 * SIDE) if join and pointwise(problem) else problem
    grid = max(p.parts, key=lambda part: part.rows * part.cols)
    widths = range(1, min(grid.cols, 2 * SIDE) + 1)
    wide = min(widths, key=lambda w: (-(-grid.cols // w) * -(-w // SIDE), -w))
    tile = (2 if wide <= SIDE and grid.rows > 1 else 1), wide
    columns = -(-p.outer // SIDE)
    vectors = min(2, columns)
    panels = -(-columns // vectors)
    rows = _rows(p, tile, target, "bf16", panels)
    result = []
    for inside in (True, False):
        per_task = panels
        while per_task > 1 and p.groups * p.n * -(-grid.rows // rows) * -(-panels // per_task) < _wanted(target):
            per_task = -(-per_task // 2)
        result.append((p, Schedule(tile, vectors, rows, per_task, inside, True, amx=True)))
    return [r for r in result if _fits(r[0], r[1], target, "bf16")]


def _wanted(target: Target) -> int:
    return max(TASKS_PER_CORE * target.cores, 2 * TASKS_PER_CORE)


def _rows(p: Problem, tile: tuple[int, int], target: Target, dtype: str, panels: int) -> int:
    """Rows of a task: as many as half of the second cache holds, but enough tasks for all cores."""
    grid_rows = max([part.rows for part in p.parts])
    row_bytes = p.source[1] * p.inner * (4 if dtype != "f32" else WIDTH[dtype]) * p.step_in[0]
    rows = max(target.l2 * 2 // 5 // max(row_bytes, 1), 1)
    enough = -(-grid_rows * p.n // _wanted(target))
    if rows >= grid_rows and panels >= 4:  # panels may be shared out instead of rows
        enough = grid_rows
    rows = min(rows, max(enough, min(2 * tile[0], 4)), grid_rows)
    if rows >= grid_rows:
        return grid_rows
    rows = max(rows // tile[0] * tile[0], min(tile[0], grid_rows))
    # As even as possible: no small rest at the end of an image.
    blocks = -(-grid_rows // rows)
    even = -(-grid_rows // blocks)
    return min(-(-even // tile[0]) * tile[0], rows)


def _fits(p: Problem, schedule: Schedule, target: Target, dtype: str) -> bool:
    return Direct(p, schedule, target, dtype, dtype, Buffers(0, 1, 2, 3)).scratch() <= SCRATCH


def weight_schedules(
    spec: Spec, target: Target, dtype: str, planar: bool = False, most: int = 4
) -> list[tuple[Spec, WeightSchedule]]:
    """Schedules of the weight gradient, the most promising first; the places of a 1x1 kernel are put in longer rows."""
    spec = spec if planar else _longer_rows(spec)
    shapes = [(14, 2), (6, 4)] if target.registers == 32 else [(6, 2), (4, 3)]
    shapes = shapes if arith(target, dtype).fused else shapes[:1]  # a product of its own takes one more register
    found: list[tuple[Spec, WeightSchedule]] = []
    for places in (400, 800):
        for outputs, vectors in shapes:
            item = spec, _weight_schedule(spec, target, dtype, places, outputs, vectors)
            if item not in found and Weight(*item, target, dtype, dtype, (0, 1, 2, 3)).scratch() <= SCRATCH:
                found.append(item)
    return found[:most]


def _weight_schedule(spec: Spec, target: Target, dtype: str, places: int, outputs: int, vectors: int) -> WeightSchedule:
    how = arith(target, dtype)
    outer, inner = spec.outputs // spec.groups, spec.channels // spec.groups
    columns = -(-inner // how.lanes)
    if joins_taps(spec, how.lanes):
        columns = -(-inner * spec.kernel[0] * spec.kernel[1] // how.lanes)
    vectors = min(vectors, columns)
    # As many outputs in a tile as leave the fewest unused in the last one.
    outputs = min(
        range(max(outputs - (4 if outputs > 8 else 1), 1), outputs + 1), key=lambda r: (-(-outer // r) * r, -r)
    )
    rows = max(min(places // spec.out[1], spec.out[0]), 1)
    rows = -(-spec.out[0] // -(-spec.out[0] // rows))
    images = max(min(places // (spec.out[0] * spec.out[1]), spec.n), 1) if rows == spec.out[0] else 1
    units = -(-spec.n // images) * -(-spec.out[0] // rows)
    tiles = -(-outer // outputs)
    copied = spec.n * spec.size[0] * spec.size[1] * inner
    sums = outer * inner * spec.kernel[0] * spec.kernel[1]
    wanted = -(-_wanted(target) // spec.groups)
    choices = [(s, -(-wanted // s)) for s in range(1, min(units, wanted) + 1)]
    choices = [(s, b) for s, b in choices if b <= tiles and -(-units // s) * s <= 1.5 * units]
    splits, blocks = min(choices or [(1, 1)], key=lambda c: c[1] * copied + 2 * c[0] * sums)
    return WeightSchedule(outputs, vectors, images, rows, splits, blocks)


def _longer_rows(spec: Spec) -> Spec:
    """For a 1x1 kernel over all places: the same sums with all images as one, its rows long and even."""
    if spec.kernel != (1, 1) or spec.stride != (1, 1) or spec.size != spec.out or any(map(any, spec.padding)):
        return spec
    places = spec.n * spec.size[0] * spec.size[1]
    widths = [w for w in range(1, min(places, 64) + 1) if places % w == 0]
    width = max(widths, key=lambda w: (w % 2 == 0 and w >= 16, w))
    if width < min(spec.size[1], 16):
        return spec
    size = (places // width, width)
    return replace(spec, n=1, size=size, out=size)


def depthwise_schedules(
    sizes: Problem | Spec, target: Target, dtype: str, planar: bool = True
) -> list[DepthwiseSchedule]:
    """Schedules of a depthwise convolution: of a Problem for its outputs, of a Spec for its weight gradient. planar:
    the source has its channels first, it has to be copied."""
    if isinstance(sizes, Problem):
        rows, cols = max((part.rows, part.cols) for part in sizes.parts)
        taps, row_places = sizes.taps, sizes.source[1] * sizes.step_in[0]
        channels = sizes.source[2]
    else:
        (rows, cols), taps = sizes.out, sizes.kernel[0] * sizes.kernel[1]
        row_places, channels = sizes.size[1] * sizes.stride[0], sizes.channels
    most = max(target.l2 // 3 // (row_places * channels * 4), 1)
    enough = -(-rows * sizes.n // _wanted(target))
    high = -(-rows // -(-rows // min(max(min(most, enough), 4), rows)))
    widths = [(8, 7) if target.registers == 32 else (4, 3), (1,)][taps > _LARGE]
    best = sorted(widths, key=lambda w: (-(-cols // w) * w, -w))
    made = [
        DepthwiseSchedule(min(w, cols), r, min(_wanted(target), sizes.n * -(-rows // r)))
        for r in dict.fromkeys((high, 1))
        for w in best
    ]
    found = [s for s in made if _depthwise(sizes, s, target, dtype).scratch() <= SCRATCH][: len(best)]
    if not isinstance(sizes, Problem):
        return ([] if planar else _weight_rows(sizes, target, dtype)) + found
    if planar:
        return found
    bare = [replace(s, copy=False) for s in made[: len(best)] if fits(sizes, s.width)]
    return [s for s in bare if sizes.source[1] * channels * 4 + 256 <= SCRATCH] + found


def _weight_rows(spec: Spec, target: Target, dtype: str) -> list[DepthwiseSchedule]:
    """Those of a depthwise weight gradient that reads its operands where they are: bands that the second cache holds,
    and as many tasks as are wanted, rather by channels than by places, whose sums have to be added up."""
    high = rows_at_once(spec.kernel, target.registers)
    columns, problem = -(-spec.channels // target.lanes(32)), forward(spec)
    widths = [w for w in (7, 8, 4, 2, 1) if w * max(high, 1) * spec.kernel[1] <= PRODUCTS and fits(problem, w)]
    if not high or not widths or spec.size[1] * spec.channels * 4 + 256 > SCRATCH:
        return []
    width = min(widths[:2], key=lambda w: -(-spec.out[1] // w) * w)
    blocks = max(min(columns // 4, _wanted(target)), 1)
    row = (spec.size[1] * spec.stride[0] + spec.out[1]) * -(-columns // blocks) * target.lanes(32) * WIDTH[dtype]
    rows = min(max(target.l2 // 3 // row, 1), spec.out[0])
    rows = -(-spec.out[0] // -(-spec.out[0] // rows))
    units = spec.n * -(-spec.out[0] // rows)
    splits = min(-(-_wanted(target) // blocks), units)
    return [DepthwiseSchedule(min(width, spec.out[1]), rows, splits, False, blocks)]


def _depthwise(
    sizes: Problem | Spec, schedule: DepthwiseSchedule, target: Target, dtype: str
) -> Depthwise | DepthwiseWeight:
    if isinstance(sizes, Problem):
        return Depthwise(sizes, schedule, target, dtype, (0, 1, 2, 3))
    return DepthwiseWeight(sizes, schedule, target, dtype, (0, 1, 2, 3))
