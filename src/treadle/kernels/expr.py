"""Formulas' expressions as vector code: `Emitter(...).value(expr)` is the expression at some points of its axes.

Vectors run along one axis (`along`); every other axis has one value. Each elementwise op brings its own code, its rule
`kernel` (see vmath.Builder); ops without one are written in other ops by their expansion. Bools are vectors of i1 and
16-bit floats vectors of float here; `stored` gives them as memory holds them (16-bit floats as i16).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from treadle.base.dtypes import DType, float32, int64
from treadle.formula.affine import Linear, bounds, conjuncts, facts, linear, proves
from treadle.formula.expr import (
    Axis,
    Call,
    Combiner,
    Compute,
    Const,
    Expr,
    Param,
    Read,
    Reduce,
    Source,
    call,
    const,
    element,
    free,
    index,
    post_order,
    reads,
    reduce,
    rewrite,
    with_parts,
)
from treadle.formula.scalars import apply_fn
from treadle.ir import op as op_table
from treadle.ir.interp import expansion
from treadle.ir.types import TensorType
from treadle.kernels import vmath
from treadle.kernels.llvm import BYTES, Function, Module, Value, short, vector
from treadle.kernels.llvm import element as element_type
from treadle.kernels.llvm import lanes as lanes_of
from treadle.kernels.target import Target, host
from treadle.kernels.vmath import Builder, NoVectorCode, computed, half_kind, stored

_UNROLLED = 16  # reductions over so many points have no loop


def lowered(expr: Expr) -> Expr:
    """The expression in ops that have vector code, as far as expansions lead there."""

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        new = with_parts(old, parts)
        if not isinstance(new, Call):
            return new
        op = op_table.get(new.op)
        if op.rules.get("kernel") or not op.rules.get("expand"):
            return new
        types = tuple([TensorType(p.dtype, ()) for p in parts])
        inner = expansion(op, types, dict(new.attrs))
        if any(node.op.has_regions for node in inner.nodes):
            return new
        (made,) = apply_fn(inner, parts)
        return lowered(made)

    return rewrite(expr, step)


def rounded_late(expr: Expr) -> Expr:
    """The (lowered) expression with the larger or smaller one of rounded numbers taken before they are rounded, which
    is the same number: they are rounded once, when they are stored."""

    def wide(e: Expr) -> Expr | None:
        if isinstance(e, Const):
            return const(e.value, float32)
        return e.parts[0] if isinstance(e, Call) and e.op == "cast" and e.parts[0].dtype is float32 else None

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        new = with_parts(old, parts)
        if not (isinstance(new, Call) and new.op in ("maximum", "minimum") and _is_half(new.dtype)):
            return new
        a, b = (wide(p) for p in new.parts)
        if a is None or b is None or all(isinstance(p, Const) for p in new.parts):
            return new
        return call("cast", call(new.op, a, b), dtype=new.dtype)

    return rewrite(expr, step)


def refuses(exprs: Iterable[Expr]) -> str:
    """Why there is no vector code for the (lowered) expressions; "" if there is."""
    for each in post_order(*exprs):
        if each.dtype.kind == "c":
            return "complex numbers"
        if isinstance(each, Call):
            why = _refusal(each.op, tuple([a.dtype for a in each.args]), each.dtype, each.attrs)
            if why:
                return why
    return ""


@lru_cache(maxsize=4096)
def _refusal(name: str, dtypes: tuple[DType, ...], dtype: DType, attrs: tuple[tuple[str, Any], ...]) -> str:
    """What the op's rule says when it is tried."""
    rule = op_table.get(name).rules.get("kernel")
    if not rule:
        return f"{name} has no vector code"
    f = Function(Module(), "trial", ["ptr"])
    b = Builder(f, 4, dtypes, dtype)
    try:
        rule(b, *[f.constant(1, b.type_of(t)) for t in dtypes], **dict(attrs))
    except NoVectorCode as error:
        return str(error)
    return ""


def cost(expr: Expr) -> int:
    """Instructions that the (lowered) expression takes, loads not counted, as LLVM text has them."""
    f = Function(Module(), "cost", ["ptr"])
    reading = {r.source: f.constant(1, vector(computed(r.dtype), 4)) for r in reads(expr)}
    axes = {a: f.i64(1) for e in post_order(expr) for a in (e, *getattr(e, "axes", ())) if isinstance(a, Axis)}
    emitter = Emitter(f, 4, axes, None, {}, reading)
    before = len(f._lines)
    emitter.value(expr)
    return len(f._lines) - before


class Emitter:
    """Writes expressions into f, each once.

    lanes: of the vectors, 0 for scalars. axes: the value (i64) of each axis, for `along` that of the first lane.
    buffers: the address of each source that is in memory; given: values of sources at this place, as vectors; other
    `Compute`s are written in place. mask: lanes that count (None: all); nothing is read for others.
    """

    def __init__(
        self,
        f: Function,
        lanes: int,
        axes: Mapping[Axis, Value],
        along: Axis | None,
        buffers: Mapping[Source, Value],
        given: Mapping[Source, Value] | None = None,
        mask: Value | None = None,
        target: Target | None = None,
    ) -> None:
        self.f, self.lanes, self.axes, self.along, self.buffers = f, lanes, dict(axes), along, buffers
        self.given, self.mask, self.target = dict(given or {}), mask, target or host()
        f.module.scales = self.target.has("avx512")
        self._done: dict[Expr, Value] = {}
        self._narrow: dict[Expr, Value] = {}
        self._known: list[Linear] = []
        self._above: Emitter | None = None
        self._changed: frozenset[Expr] = frozenset()

    # --- places -------------------------------------------------------------------------------------------------------

    def inside(
        self, axes: Mapping[Axis, Value], mask: Value | None = None, given: Mapping[Source, Value] | None = None
    ) -> Emitter:
        """An emitter for code in a block below: other values of some axes; what does not depend on them is shared."""
        made = Emitter(
            self.f, self.lanes, {**self.axes, **axes}, self.along, self.buffers, self.given, mask, self.target
        )
        made.mask = self.mask if mask is None else mask
        made.given.update(given or {})
        made._known, made._above, made._changed = self._known, self, frozenset(axes)
        return made

    def prepare(self, *exprs: Expr) -> None:
        """Write what the expressions contain that needs no axis or source that is not known here."""
        stack, seen = list(exprs), set[Expr]()
        while stack:
            e = stack.pop()
            if e in seen or isinstance(e, Const | Axis | Param):
                continue
            seen.add(e)
            if self._ready(e):
                self.value(e)
            elif not isinstance(e, Reduce):
                stack.extend(e.parts)

    def _ready(self, expr: Expr) -> bool:
        if not all(a in self.axes for a in free(expr)):
            return False
        return all(r.source in self.buffers or r.source in self.given for r in reads(expr))

    def _find(self, expr: Expr) -> Value | None:
        at: Emitter | None = self
        while at is not None:
            if expr in at._done:
                return at._done[expr]
            if free(expr) & at._changed:
                return None
            at = at._above
        return None

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """The expression's vector (a scalar for 0 lanes). Raises ValueError for an axis or param without a value."""
        found = self._find(expr)
        if found is None:
            found = self._done[expr] = self._made(expr)
        return found

    def stored(self, expr: Expr) -> Value:
        """The same as memory holds it."""
        value = self.value(expr)
        if expr.dtype.kind == "b":
            return self.f.convert("zext", value, "i8")
        if not _is_half(expr.dtype):
            return value
        if expr not in self._narrow:
            self._narrow[expr] = self._narrowed(value, expr.dtype)
        return self._narrow[expr]

    def preset(self, values: Mapping[Expr, Value]) -> None:
        """Values of expressions that are had already."""
        self._done.update(values)

    def _made(self, expr: Expr) -> Value:
        f = self.f
        if isinstance(expr, Const):
            return f.constant(expr.value, vector(computed(expr.dtype), self.lanes))
        if isinstance(expr, Axis):
            return self._axis(expr)
        if isinstance(expr, Read):
            return self._read(expr)
        if isinstance(expr, Reduce):
            return self._reduce(expr)
        if not isinstance(expr, Call):
            raise ValueError(f"{expr!r} has no value here")
        if expr.dtype is int64 and expr.op in ("floor_div", "remainder"):
            quick = self._division(expr)
            if quick is not None:
                return quick
        if expr.op == "select":
            return self._select(expr)
        return self._call(expr, [self.value(a) for a in expr.args])

    def _axis(self, axis: Axis) -> Value:
        if axis not in self.axes:
            raise ValueError(f"{axis!r} has no value here")
        whole = self.f.splat(self.axes[axis], self.lanes)
        return whole + self.f.lane_numbers(self.lanes, "i64") if axis is self.along and self.lanes else whole

    def _call(self, expr: Call, args: Sequence[Value]) -> Value:
        rule = op_table.get(expr.op).rules.get("kernel")
        if not rule:
            raise ValueError(f"{expr.op} has no vector code")
        b = Builder(self.f, self.lanes, tuple([a.dtype for a in expr.args]), expr.dtype)
        value: Value = rule(b, *args, **dict(expr.attrs))
        if _is_half(expr.dtype) and not b.is_exact:
            self._narrow[expr] = self._narrowed(value, expr.dtype)
            value = self._widened(self._narrow[expr], expr.dtype)
        return value

    def _narrowed(self, value: Value, dtype: DType) -> Value:
        has = self.target.has("avx512bf16") if dtype.short == "bf16" else _converts_half(self.target)
        return vmath.narrow(value, half_kind(dtype), has)

    def _widened(self, value: Value, dtype: DType) -> Value:
        if element_type(value.type) != "i16":
            value = self.f.bitcast(value, vector("i16", lanes_of(value.type)))
        return vmath.widen(value, half_kind(dtype), _converts_half(self.target))

    def _division(self, expr: Call) -> Value | None:
        """Quotient or rest of small numbers that are not negative, by a constant: cheap in 32 bits."""
        by, (low, high) = expr.args[1], bounds(expr.args[0])
        if not isinstance(by, Const) or not (low >= 0 and high < 2**31 and 0 < by.value < 2**31):
            return None
        word = self.f.convert("trunc", self.value(expr.args[0]), "i32")
        result = word // by.value if expr.op == "floor_div" else word % by.value
        return self.f.convert("zext", result, "i64")

    def _select(self, expr: Call) -> Value:
        """A side that reads at places which only its condition makes valid is read under a mask."""
        cond, a, b = expr.args
        claims = [fact for c in conjuncts(cond) for fact in facts(c)]
        if not claims or self.lanes == 0 or not any(_clamps(r) or not _valid(r, self._known) for r in reads(a)):
            return self._call(expr, [self.value(x) for x in (cond, a, b)])
        yes = self.value(cond)
        guarded = self.inside({}, yes if self.mask is None else yes & self.mask)
        guarded._known = [*self._known, *claims]
        return self._call(expr, [yes, guarded.value(a), self.value(b)])

    def _reduce(self, expr: Reduce) -> Value:
        """All parts of a reduction over its axes, one point after the other; lanes are apart."""
        wanted = {e: i for i, e in enumerate(_parts_of(expr))}
        results = self.folded(expr, {})
        self._done.update({e: self.rounded(results[i], e.dtype) for e, i in wanted.items()})
        return self._done[expr]

    def rounded(self, value: Value, dtype: DType) -> Value:
        """A float rounded to a 16-bit type; other values as they are."""
        return self._widened(self._narrowed(value, dtype), dtype) if _is_half(dtype) else value

    def folded(self, expr: Reduce, stops: Mapping[Axis, Value]) -> list[Value]:
        """The parts of a reduction, not rounded. stops: where axes end before their extent."""
        f, c = self.f, expr.combiner
        types = [vector(computed(b.dtype), self.lanes) for b in expr.bodies]
        start = [f.constant(i.value, t) for i, t in zip(_initial(c), types, strict=True)]
        if not stops and prod(a.extent for a in expr.axes) <= _UNROLLED:
            parts = start
            for place in _places(expr.axes):
                child = self.inside({a: f.i64(i) for a, i in place.items()})
                parts = child.joined(c, parts, [child.value(b) for b in expr.bodies])
            return parts
        self.prepare(*expr.bodies)
        kept = [f.variable(t, s) for t, s in zip(types, start, strict=True)]
        self._nest(expr, list(expr.axes), {}, kept, stops)
        return [k.get() for k in kept]

    def _nest(self, expr: Reduce, axes: list[Axis], at: dict[Axis, Value], kept: Any, stops: Any) -> None:
        if not axes:
            child = self.inside(at)
            new = child.joined(expr.combiner, [k.get() for k in kept], [child.value(b) for b in expr.bodies])
            for k, v in zip(kept, new, strict=True):
                k.set(v)
            return
        with self.f.loop(0, stops.get(axes[0], axes[0].extent)) as i:
            self._nest(expr, axes[1:], {**at, axes[0]: i}, kept, stops)

    def joined(self, c: Combiner, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        """Two partial results as one."""
        if c.kind == "add":
            return [left[0] + right[0]]
        if c.kind in ("maximum", "minimum") and left[0].is_float:  # the sign of a zero does not matter here
            name = f"llvm.{c.kind}.{short(left[0].type)}"
            self.f.module.declare(f"declare {left[0].type} @{name}({left[0].type}, {left[0].type})")
            type, a, b = left[0].type, left[0].name, right[0].name
            return [self.f.emit(f"call nsz {type} @{name}({type} {a}, {type} {b})", type)]
        lanes = lanes_of(left[0].type)
        child = Emitter(self.f, lanes, {}, None, {}, target=self.target)
        child.preset(dict(zip((*c.left, *c.right), (*left, *right), strict=True)))
        return [child.value(lowered(r)) for r in c.results]

    # --- memory -------------------------------------------------------------------------------------------------------

    def _read(self, expr: Read) -> Value:
        if expr.source in self.given:
            value = self.given[expr.source]
            value = value if lanes_of(value.type) == self.lanes else self.f.splat(value, self.lanes)
            wide = not _is_half(expr.dtype) or element_type(value.type) == "float"
            return value if wide else self._widened(value, expr.dtype)
        if expr.source not in self.buffers:
            if isinstance(expr.source, Compute):
                return self.value(lowered(element(expr.source, inside_bounds(expr, self._known if self.mask else []))))
            raise ValueError(f"{expr.source.name} is neither in memory nor given")
        return self.loaded(expr, self.raw(expr))

    def raw(self, expr: Read) -> Value:
        """The elements as memory holds them."""
        return self._loaded(expr, stored(expr.dtype))

    def loaded(self, expr: Read, value: Value) -> Value:
        """The value of a read whose elements are had as memory holds them."""
        if expr.dtype.kind == "b":
            return self.f.compare("ne", value, 0)
        if _is_half(expr.dtype):
            self._narrow[expr] = value
            return self._widened(value, expr.dtype)
        return value

    def _loaded(self, expr: Read, kind: str) -> Value:
        base, width = self.buffers[expr.source], byte_size(kind)
        place = flat(expr, self._known if self.mask is not None else [])
        still = {a: c for a, c in place.terms.items() if self.along is None or self.along not in free(a)}
        moving = {a: c for a, c in place.terms.items() if a not in still}
        if not moving or not self.lanes:
            place = flat(expr, [])  # one element: it must be there whatever the mask says
            return self.f.splat(self.f.load(self.f.offset(base, self.scalar(place) * width), kind), self.lanes)
        first = self.scalar(Linear(still, place.offset))
        step = moving.get(self.along, 0) if len(moving) == 1 and self.along is not None else 0
        if step in (1, -1):
            assert self.along is not None
            first = first + self.axes[self.along] * step
            return self._line(self.f.offset(base, first * width), kind, step, width)
        if step == 2 and self.along is not None:
            return self._every_second(self.f.offset(base, (first + self.axes[self.along] * 2) * width), kind, width)
        numbers = self.f.splat(first, self.lanes)
        for atom, c in moving.items():
            numbers = numbers + self.value(atom) * c
        return self._gathered(base, numbers * width, kind)

    def _line(self, place: Value, kind: str, step: int, width: int) -> Value:
        """Neighbours in memory, upward or downward."""
        f, type = self.f, vector(kind, self.lanes)
        turned = list(range(self.lanes - 1, -1, -1))
        if step < 0:
            place = f.offset(place, -(self.lanes - 1) * width)
        if self.mask is None:
            value = f.load(place, type)
        else:
            mask = self.mask if step > 0 else f.shuffle(self.mask, self.mask, turned)
            value = f.load_masked(place, type, mask)
        return value if step > 0 else f.shuffle(value, value, turned)

    def _every_second(self, place: Value, kind: str, width: int) -> Value:
        """Every second element from a place on; those between are not touched."""
        f, n, type = self.f, self.lanes, vector(kind, self.lanes)
        mask = self.mask if self.mask is not None else f.constant(1, vector("i1", n))
        none = f.constant(0, vector("i1", n))
        halves = []
        for half in range(2):
            order = [half * n // 2 + i // 2 if i % 2 == 0 else n for i in range(n)]
            halves.append(f.load_masked(place, type, f.shuffle(mask, none, order), half * n * width))
        return f.shuffle(halves[0], halves[1], [2 * i for i in range(n)])

    def _gathered(self, base: Value, offsets: Value, kind: str) -> Value:
        f, type = self.f, vector(kind, self.lanes)
        places = f.emit(f"getelementptr i8, ptr {base.name}, {offsets.type} {offsets.name}", vector("ptr", self.lanes))
        mask = self.mask if self.mask is not None else f.constant(1, vector("i1", self.lanes))
        name = f"llvm.masked.gather.{short(type)}.v{self.lanes}p0"
        f.module.declare(f"declare {type} @{name}({places.type}, {mask.type}, {type})")
        given = f"{places.type} align {byte_size(kind)} {places.name}, {mask.type} {mask.name}, {type} zeroinitializer"
        return f.emit(f"call {type} @{name}({given})", type)

    def scalar(self, sum: Linear) -> Value:
        """An integer sum as one number, that of the first lane."""
        total = self.f.i64(sum.offset)
        scalars = self._scalars() if any(not isinstance(a, Axis) for a in sum.terms) else self
        for atom, c in sum.terms.items():
            term = self.axes[atom] if isinstance(atom, Axis) and atom in self.axes else scalars.value(atom)
            term = term if c == 1 else term * c
            total = term if total.name == "0" else total + term
        return total

    def _scalars(self) -> Emitter:
        given = {s: v for s, v in self.given.items() if not lanes_of(v.type)}
        return Emitter(self.f, 0, self.axes, None, self.buffers, given, target=self.target)

    def place(self, source: Source, indices: Sequence[Expr]) -> Value:
        """The address of the element (for vectors: of the first lane), which must be inside."""
        sum = Linear({}, 0)
        for i, stride in zip(indices, strides(source.type.shape), strict=True):
            sum = sum.plus(linear(i), stride)
        return self.f.offset(self.buffers[source], self.scalar(sum) * byte_size(stored(source.type.dtype)))


def byte_size(kind: str) -> int:
    """Bytes of an element in memory."""
    return BYTES[kind]


def strides(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours of each axis of a row-major tensor."""
    result = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        result[i] = result[i + 1] * shape[i + 1]
    return result


def flat(expr: Read, known: Sequence[Linear]) -> Linear:
    """The number of the element that is read, row-major; indices that may be outside are clamped."""
    sum = Linear({}, 0)
    for i, stride in zip(inside_bounds(expr, known), strides(expr.source.type.shape), strict=True):
        sum = sum.plus(linear(i), stride)
    return sum


def inside_bounds(expr: Read, known: Sequence[Linear]) -> list[Expr]:
    """The indices, clamped where they may be outside: neither ranges nor what is known to be >= 0 forbid it."""
    result: list[Expr] = []
    for i, size in zip(expr.indices, expr.source.type.shape, strict=True):
        i = _relaxed(i, known) if known else i
        line, top = linear(i), Linear({}, size - 1)
        if not proves(known, line):
            i = call("maximum", i, index(0))
        if not proves(known, top.plus(line, -1)):
            i = call("minimum", i, index(max(size - 1, 0)))
        result.append(i)
    return result


def _relaxed(expr: Expr, known: Sequence[Linear]) -> Expr:
    """An index without the clamps that do nothing under the conditions that are known to hold."""

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        new = with_parts(old, parts)
        if isinstance(new, Call) and new.op in ("maximum", "minimum"):
            for a, b in (new.args, new.args[::-1]):
                gap = linear(a).plus(linear(b), -1)
                if proves(known, gap if new.op == "maximum" else gap.times(-1)):
                    return a
        return new

    return rewrite(expr, step)


def _clamps(expr: Read) -> bool:
    """Whether an index is clamped."""
    return any(isinstance(e, Call) and e.op in ("maximum", "minimum") for e in post_order(*expr.indices))


def _valid(expr: Read, known: Sequence[Linear]) -> bool:
    """Whether all indices are inside."""
    return all(a is b for a, b in zip(inside_bounds(expr, known), expr.indices, strict=True))


def _is_half(dtype: DType) -> bool:
    return dtype.kind == "f" and dtype.bits == 16


def _converts_half(target: Target) -> bool:
    return "f16c" in target.features or target.has("avx512") or target.triple.startswith(("aarch64", "arm64"))


def _places(axes: Sequence[Axis]) -> Iterable[dict[Axis, int]]:
    if not axes:
        yield {}
        return
    for i in range(axes[0].extent):
        for rest in _places(axes[1:]):
            yield {axes[0]: i, **rest}


def _initial(c: Combiner) -> list[Const]:
    return [i for i in c.init if isinstance(i, Const)]


def _parts_of(expr: Reduce) -> list[Expr]:
    """The reductions that differ from this one in the part alone."""
    return [reduce(expr.combiner, expr.bodies, expr.axes, i) for i in range(len(expr.bodies))]
