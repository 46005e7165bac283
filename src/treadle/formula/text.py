"""`Formula`: tensors in, tensors out, with the element formulas between; and its text form.

    formula(%a0: f32[3,5], %a1: f32[5,4]) {
      %0[i0:3, i1:4] = add[i2:5](mul(%a0[i0, i2], %a1[i2, i1]))
      return %0
    }

The text is canonical (names of tensors and axes are given in order), so formulas are equal when their texts are; it is
the attribute that a node carries. `@0=e` names a subexpression that comes again as `@0`; `1.5:f32` is a constant; a
reduction with an own combiner is `fold[axes](l, r -> results -> init -> bodies) index`. `parse(text)` reads it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from treadle.base.dtypes import int64
from treadle.base.errors import UserError
from treadle.formula.expr import (
    Axis,
    Call,
    Combiner,
    Compute,
    Const,
    Expr,
    Param,
    Placeholder,
    Read,
    Reduce,
    Source,
    call,
    const,
    plain,
    post_order,
    read,
    reduce,
    sources,
)
from treadle.ir.parser import _Parser
from treadle.ir.printer import print_attr
from treadle.ir.types import Types


class Formula:
    """placeholders: the operands in order; outputs: the results. Equal when the texts are."""

    def __init__(self, placeholders: Sequence[Placeholder], outputs: Sequence[Compute]) -> None:
        self.placeholders, self.outputs = tuple(placeholders), tuple(outputs)
        known = set(self.placeholders)
        for source in sources(self.outputs):
            if isinstance(source, Placeholder) and source not in known:
                why = f"the formula reads {source.name}, which is not among its operands"
                raise UserError("E0103", why, fix="list every placeholder")

    @property
    def in_types(self) -> Types:
        return tuple([p.type for p in self.placeholders])

    @property
    def out_types(self) -> Types:
        return tuple([o.type for o in self.outputs])

    @cached_property
    def computes(self) -> list[Compute]:
        """Every computed tensor, each after those that it reads."""
        return [s for s in sources(self.outputs) if isinstance(s, Compute)]

    @cached_property
    def text(self) -> str:
        """The canonical text."""
        names: dict[Source, str] = {p: f"%a{i}" for i, p in enumerate(self.placeholders)}
        lines = []
        for i, compute in enumerate(self.computes):
            names[compute] = f"%{i}"
            lines.append(f"  {_Printer(names).compute(compute)}")
        heads = ", ".join(f"{names[p]}: {p.type}" for p in self.placeholders)
        outs = ", ".join(names[o] for o in self.outputs)
        return "\n".join([f"formula({heads}) {{", *lines, f"  return {outs}", "}"])

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class _Printer:
    """Writes one compute."""

    def __init__(self, names: dict[Source, str]) -> None:
        self.names = names
        self.atoms: dict[Expr, str] = {}
        self.shared: dict[Expr, int] = {}
        self.often: set[Expr] = set()

    def compute(self, compute: Compute) -> str:
        """`%0[i0:3] = body`."""
        counts: dict[Expr, int] = {}
        for each in post_order(compute.body):
            for p in each.parts:
                counts[p] = counts.get(p, 0) + 1
        self.often = {e for e, n in counts.items() if n > 1 and any(p.parts for p in e.parts)}
        return f"{self.names[compute]}[{self.bind(compute.axes)}] = {self.expr(compute.body)}"

    def bind(self, axes: Sequence[Axis]) -> str:
        for a in axes:
            self.atoms.setdefault(a, f"i{len(self.atoms)}")
        return ", ".join(f"{self.atoms[a]}:{a.extent}" for a in axes)

    def expr(self, expr: Expr) -> str:
        if expr in self.shared:
            return f"@{self.shared[expr]}"
        label = ""
        if expr in self.often:
            self.shared[expr] = len(self.shared)
            label = f"@{self.shared[expr]}="
        return label + self.fresh(expr)

    def fresh(self, expr: Expr) -> str:
        if isinstance(expr, Const):
            text = print_attr(expr.value)
            return text if expr.dtype.short == "i64" else f"{text}:{expr.dtype}"
        if isinstance(expr, Axis | Param):
            return self.atoms[expr]
        if isinstance(expr, Read):
            return f"{self.names[expr.source]}[{', '.join(map(self.expr, expr.parts))}]"
        if isinstance(expr, Reduce):
            return self.reduce(expr)
        assert isinstance(expr, Call)
        attrs = ", ".join(f"{k}={print_attr(v)}" for k, v in expr.attrs)
        return f"{expr.op}{f'{{{attrs}}}' if attrs else ''}({', '.join(map(self.expr, expr.parts))})"

    def reduce(self, expr: Reduce) -> str:
        c = expr.combiner
        if c.kind:
            return f"{c.kind}[{self.bind(expr.axes)}]({self.expr(expr.parts[0])})"
        head = f"fold[{self.bind(expr.axes)}]"
        params = []
        for p in (*c.left, *c.right):
            self.atoms[p] = f"p{len(self.atoms)}"
            params.append(f"{self.atoms[p]}:{p.dtype}")
        groups = " -> ".join([", ".join(map(self.expr, g)) for g in (c.results, c.init, expr.parts)])
        return f"{head}({', '.join(params)} -> {groups}) {expr.index}"


class _Reader(_Parser):
    """Recursive descent over the same tokens as the IR's text; tensors are `%name`s, the rest plain names."""

    def formula(self) -> Formula:
        self.expect("formula")
        self.expect("(")
        self.sources: dict[str, Source] = {}
        placeholders = []
        while not self.accept(")"):
            label = self.take("value")
            self.expect(":")
            made = Placeholder(label[1:], self.type())
            self.sources[label] = made
            placeholders.append(made)
            self.accept(",")
        self.expect("{")
        while not self.accept("return"):
            self.atoms: dict[str, Expr] = {}
            self.shared: dict[str, Expr] = {}
            label = self.take("value")
            self.expect("[")
            axes = self.bind()
            self.expect("=")
            self.sources[label] = Compute("c" + label[1:], axes, self.expr())
        outputs = []
        while not self.accept("}"):
            made_there = self.source()
            if not isinstance(made_there, Compute):
                self.fail("a formula returns computed tensors")
            outputs.append(made_there)
            self.accept(",")
        return Formula(placeholders, outputs)

    def source(self) -> Source:
        label = self.take("value")
        if label not in self.sources:
            self.fail(f"{label} is not defined before")
        return self.sources[label]

    def bind(self) -> tuple[Axis, ...]:
        axes = []
        while not self.accept("]"):
            name = self.take("name")
            self.expect(":")
            axis = self.atoms.setdefault(name, Axis(name, int(self.take("number"))))
            assert isinstance(axis, Axis)
            axes.append(axis)
            self.accept(",")
        return tuple(axes)

    def expr(self) -> Expr:
        if self.accept("@"):
            number = self.take("number")
            if self.accept("="):
                self.shared[number] = self.expr()
            if number not in self.shared:
                self.fail(f"@{number} is not defined before")
            return self.shared[number]
        if self.kind() == "value":
            source = self.source()
            self.expect("[")
            return read(source, *self.exprs("]"))
        if self.kind() == "name" and self.peek() in self.atoms:
            return self.atoms[self.take("name")]
        if self.kind() == "number" or self.peek() in ("True", "False", "complex"):
            value = self.attr()
            return const(value, self.dtype()) if self.accept(":") else const(value, int64)
        name = self.take("name")
        if self.accept("["):
            return self.fold() if name == "fold" else self.plain(name)
        attrs = {}
        if self.accept("{"):
            while not self.accept("}"):
                key = self.take("name")
                self.expect("=")
                attrs[key] = self.attr()
                self.accept(",")
        self.expect("(")
        return call(name, *self.exprs(")"), **attrs)

    def exprs(self, end: str) -> list[Expr]:
        found = []
        while not self.accept(end):
            found.append(self.expr())
            self.accept(",")
        return found

    def plain(self, kind: str) -> Expr:
        axes = self.bind()
        self.expect("(")
        bodies = self.exprs(")")
        return reduce(plain(kind, bodies[0].dtype), bodies, axes)

    def fold(self) -> Expr:
        axes = self.bind()
        self.expect("(")
        params = []
        while not self.accept("->"):
            name = self.take("name")
            self.expect(":")
            params.append(Param(name, self.dtype()))
            self.atoms[name] = params[-1]
            self.accept(",")
        half = len(params) // 2
        results, init, bodies = self.exprs("->"), self.exprs("->"), self.exprs(")")
        combiner = Combiner(params[:half], params[half:], results, init)
        return reduce(combiner, bodies, axes, int(self.take("number")))


@lru_cache(maxsize=1024)
def parse(text: str) -> Formula:
    """The formula that `Formula.text` wrote. Raises E0192 with line and column for other text."""
    return _Reader(text).formula()
