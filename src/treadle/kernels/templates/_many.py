"""Many pointwise loops of one form over different tensors (the updates of all parameters) as one function and a table.

`grouped(items, lanes)` finds loops that are equal but for the tensors and their lengths; a `Many` is a phase whose
tasks look up in a table which tensors they work on and where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from treadle.base.dtypes import DType
from treadle.formula.expr import (
    Axis,
    Const,
    Expr,
    Placeholder,
    Read,
    Source,
    index,
    post_order,
    read,
    rewrite,
    with_parts,
)
from treadle.ir.types import TensorType
from treadle.kernels.expr import Emitter, byte_size
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.nests import Item
from treadle.kernels.target import Target
from treadle.kernels.vmath import stored

AXIS = Axis("n", 1 << 40)
CHUNK = 32 << 10  # elements of a task


@dataclass(frozen=True)
class Form:
    """A loop without its tensors: what each result is, in terms of numbered sources."""

    exprs: tuple[Expr, ...]
    types: tuple[DType, ...]


@dataclass(frozen=True)
class Piece:
    """The tensors of one loop: sources in the form's order, then results; elements."""

    sources: tuple[Source, ...]
    items: tuple[Item, ...]
    size: int


@dataclass(frozen=True)
class Many:
    """A phase of one form on many pieces."""

    form: Form
    pieces: tuple[Piece, ...]
    stream = False

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return sum(-(-p.size // CHUNK) for p in self.pieces)


@lru_cache
def _source(number: int, dtype: DType, single: bool) -> Placeholder:
    return Placeholder(f"s{number}", TensorType(dtype, (1 if single else AXIS.extent,)))


def form_of(axis: Axis, items: Sequence[Item]) -> tuple[Form, Piece] | None:
    """Form and tensors of a loop over one axis; None where an index is neither the axis nor 0."""
    sources: dict[Source, Placeholder] = {}
    for e in post_order(*[i.expr for i in items]):
        if isinstance(e, Read):
            single = isinstance(e.parts[0], Const) and e.source.type.size == 1
            if len(e.parts) != 1 or not (single or e.parts[0] is axis):
                return None
            sources.setdefault(e.source, _source(len(sources), e.dtype, single))

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        if isinstance(old, Read):
            return read(sources[old.source], index(0) if isinstance(old.parts[0], Const) else AXIS)
        return AXIS if old is axis else with_parts(old, parts)

    exprs = tuple([rewrite(i.expr, step) for i in items])
    types = tuple([i.place.type.dtype for i in items])
    return Form(exprs, types), Piece(tuple(sources), tuple(items), axis.extent)


def write(module: Module, name: str, many: Many, at: Mapping[Source, tuple[int, int]], target: Target) -> None:
    """Add the phase's function and the one that it calls."""
    rows: list[int] = []
    for p in many.pieces:
        places = [n for s in (*p.sources, *[i.place for i in p.items]) for n in at[s]]
        for low in range(0, p.size, CHUNK):
            rows += [*places, low, min(low + CHUNK, p.size)]
    table = module.table(f"{name}_table", rows)
    count = len(many.pieces[0].sources) + len(many.form.exprs)
    loop(module, f"{name}_loop", many.form, count, target)
    f = Function(module, name, ["ptr", "i64", "ptr"])
    row = f.offset(f.symbol(table), f.args[1] * (8 * (2 * count + 2)))
    tensors = []
    for n in range(count):
        base = f.load(f.offset(f.args[0], f.load(row, "i64", 16 * n) * 8), "ptr")
        tensors.append(f.offset(base, f.load(row, "i64", 16 * n + 8)))
    ends = [f.load(row, "i64", 16 * count + 8 * k) for k in range(2)]
    f.call(f"@{name}_loop", "void", *tensors, *ends)
    f.give()


def loop(module: Module, name: str, form: Form, count: int, target: Target) -> None:
    """void name(sources and results..., i64 low, i64 high)."""
    f = Function(module, name, ["ptr"] * count + ["i64", "i64"])
    *tensors, low, high = f.args
    lanes = target.lanes(32)
    found: dict[Source, None] = {}
    for e in post_order(*form.exprs):
        if isinstance(e, Read):
            found[e.source] = None
    base = Emitter(f, lanes, {}, AXIS, dict(zip(found, tensors, strict=False)), target=target)
    base.prepare(*form.exprs)
    outs = tensors[len(found) :]
    whole = low + (high - low) - (high - low) % lanes
    with f.loop(low, whole, lanes) as i:
        _store(base.inside({AXIS: i}), form, outs, i, None)
    with f.loop(whole, high, lanes) as i:
        mask = f.mask(high - i, lanes)
        _store(base.inside({AXIS: i}, mask), form, outs, i, mask)
    f.give()


def _store(e: Emitter, form: Form, outs: Sequence[Value], i: Value, mask: Value | None) -> None:
    values = [e.stored(x) for x in form.exprs]
    for value, out, dtype in zip(values, outs, form.types, strict=True):
        place = e.f.offset(out, i * byte_size(stored(dtype)))
        if mask is None:
            e.f.store(value, place)
        else:
            e.f.store_masked(value, place, mask)
