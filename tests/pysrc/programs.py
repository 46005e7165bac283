"""Random programs of branches, loops, jumps, calls and containers, as source text; every loop of them ends.

`programs()` is the Hypothesis strategy; `load(source, folder)` gives the function `main(x, y, n)` of a program. The
numbers stay small, as each product is put through a sine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

_NAMES = ("a", "b", "c")
_LIMITS = ("0.137", "-0.391", "0.713", "1.29", "-1.07")
_HEAD = """
class Box:
    def __init__(self, v):
        self.v, self.n = v, 0

    def put(self, v):
        if v > 0.211:
            self.v = (self.v + v).sin()
            self.n += 1
        return self.v


def helper(p, q=0.5):
    if p > q:
        return p - q
    elif p < -1.3:
        return (p * q).sin()
    return p + 0.25


def main(x, y, n):
    a, b, c, k, t = x, y, (x * y).sin(), n, y * 0.25
    s = x * 0
    items, table, box = [x, y], {"u": x, "v": y * 0.5}, Box(y)
"""
_TAIL = "    return a, b, c, k, s.sin(), items, table, box.v, box.n\n"


class _Writer:
    """Draws the lines of one program. depth: of blocks; loops: kinds of the loops around."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw, self.lines = draw, [_HEAD.rstrip("\n")]
        self.numbers = itertools.count()
        self.budget = 7

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def name(self) -> str:
        return str(self.pick(*_NAMES))

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def value(self, deep: int = 2) -> str:
        """An expression of one tensor."""
        kind = self.draw(st.integers(0, 11 if deep else 2))
        if kind <= 1:
            return self.name()
        if kind == 2:
            return str(
                self.pick(
                    'table["u"]', 'table["v"]', "items[0]", "items[-1]", "box.v", "box.put(a)", "(s * 0.3).sin()", "t",
                    "items[k % 2]", "[x, a, c][int(abs(b * 7)) % 3]", "items[int(a > 0.137)]",
                )
            )  # fmt: skip
        one, two = self.value(deep - 1), self.value(deep - 1)
        forms = (
            f"({one} + {two})", f"(({one} - {two}) * 0.5)", f"({one} * {two}).sin()", f"{one}.cos()",
            f"({one} * 0.5 + k * 0.1)", f"({one} if {self.test(1)} else {two})", f"helper({one})",
            f"helper({one}, q={two})", f"max({one}, {two} * 0.9)",
        )  # fmt: skip
        return forms[kind - 3]

    def test(self, deep: int = 2) -> str:
        """An expression that decides."""
        kind = self.draw(st.integers(0, 7 if deep else 2))
        limit = self.pick(*_LIMITS)
        if kind <= 1:
            return f"{self.name()} > {limit}"
        if kind == 2:
            return f"{self.name()} * 0.77 < {limit}"
        one, two = self.test(deep - 1), self.test(deep - 1)
        between = f"-0.83 < {self.name()} <= {limit}"
        return (f"{one} and {two}", f"({one}) or {two}", f"not {one}", between, "k > 1")[kind - 3]

    def block(self, depth: int, loops: tuple[str, ...]) -> None:
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement(depth, loops)

    def statement(self, depth: int, loops: tuple[str, ...]) -> None:
        self.budget -= 1
        compound = depth < 3 and self.budget > 0
        kind = self.draw(st.integers(0, 19 if compound else 7))
        if kind <= 1:
            self.put(depth, f"{self.name()} = {self.value()}")
        elif kind == 2:
            self.put(depth, f"s {self.pick('+=', '-=')} {self.value(1)} * 0.5")
        elif kind == 3:
            self.put(depth, f"items[{self.pick(0, 1, -1)}] = {self.value(1)}")
        elif kind == 4:
            self.put(depth, f"table[{self.pick('u', 'v')!r}] = {self.value(1)}")
        elif kind == 5:
            self.put(depth, f"k = {self.pick('k + 1', 'k - 1', '2')}")
        elif kind == 6:
            self.jump(depth, loops)
        elif kind == 7:
            self.small(depth)
        elif kind <= 10:
            self.branch(depth, loops)
        elif kind <= 13:
            self.loop_for(depth, loops)
        elif kind <= 15:
            self.loop_while(depth, loops)
        elif kind == 16:
            self.function(depth)
        elif kind == 17:
            self.match(depth, loops)
        elif kind == 18:
            self.walrus(depth, loops)
        else:
            self.generator(depth)

    def match(self, depth: int, loops: tuple[str, ...]) -> None:
        u = f"u{next(self.numbers)}"
        self.put(depth, f"match ({self.value(1)}, {self.pick('k', '1', self.name())}):")
        self.put(depth + 1, f"case ({u}, {self.pick('1', '0.25', '_')}) if {u} > {self.pick(*_LIMITS)}:")
        self.put(depth + 2, f"{self.name()} = ({u} * 1.1).sin()")
        self.block(depth + 2, loops)
        self.put(depth + 1, f"case ({u}, 2 | 0):")
        self.put(depth + 2, f"{self.name()} = {u} * 0.7")
        if self.draw(st.booleans()):
            self.put(depth + 1, "case _:")
            self.block(depth + 2, loops)

    def walrus(self, depth: int, loops: tuple[str, ...]) -> None:
        q = f"q{next(self.numbers)}"
        self.put(depth, f"if ({self.test(1)}) and ({q} := {self.value(1)}) > {self.pick(*_LIMITS)}:")
        self.put(depth + 1, f"{self.name()} = {q} * 0.9")
        self.block(depth + 1, loops)
        if self.draw(st.booleans()):
            self.put(depth, "else:")
            self.block(depth + 1, loops)

    def generator(self, depth: int) -> None:
        g = f"g{next(self.numbers)}"
        self.put(depth, f"def {g}(p):")
        self.put(depth + 1, f"for i in range({self.pick('3', '2')}):")
        self.put(depth + 2, f"if p > {self.pick(*_LIMITS)}:")
        self.put(depth + 3, "p = p - 0.3")
        self.put(depth + 2, "for j in range(4):")
        self.put(depth + 3, "p = (p + j * 0.1).cos()")
        self.put(depth + 3, f"if p < {self.pick(*_LIMITS)}:")
        self.put(depth + 4, self.pick("break", "continue"))
        self.put(depth + 2, "yield p * 0.5")
        self.put(depth, f"{self.name()} = sum({g}({self.value(1)}))")

    def small(self, depth: int) -> None:
        kind = self.draw(st.integers(0, 8))
        first, second = self.name(), self.name()
        lines = (
            f"{first}, {second} = {second}, {first}", f"print('at', {first} > 0.137)", f"box.v = {self.value(1)}",
            f"assert {first} < 1e9, 'too large'", f"{first} = sum([{second}, 0.5, {first}]) * 0.3", "s = s * 0.5",
            f"items[k % 2] = {self.value(1)}", f"t = {self.value(1)}", "items[k % 2] = items[k % 2] * 0.9",
        )  # fmt: skip
        self.put(depth, lines[kind])

    def jump(self, depth: int, loops: tuple[str, ...]) -> None:
        self.put(depth, f"if {self.test(1)}:")
        if loops and self.draw(st.booleans()):
            self.put(depth + 1, self.pick("break", "continue"))
        elif self.draw(st.integers(0, 2)) == 0:
            self.put(depth + 1, self.pick("t = None", "t = [a, b]", "t = 'left'", "t = a"))
            self.put(depth + 1, "return a, b, c, k, s.sin(), items, table, box.v, box.n")
        else:
            self.put(depth + 1, f"{self.name()} = {self.value(1)}")

    def branch(self, depth: int, loops: tuple[str, ...]) -> None:
        self.put(depth, f"if {self.test()}:")
        self.block(depth + 1, loops)
        if self.draw(st.booleans()):
            self.put(depth, f"elif {self.test(1)}:")
            self.block(depth + 1, loops)
        if self.draw(st.booleans()):
            self.put(depth, "else:")
            self.block(depth + 1, loops)

    def loop_for(self, depth: int, loops: tuple[str, ...]) -> None:
        i = f"i{next(self.numbers)}"
        kinds = ["range(3)", "(0.5, -0.25)", "list(items)", "enumerate(items)", "range(n)", "zip(items, (1, 2))"]
        over = self.pick(*kinds, *([] if loops else ["range(9)", "range(11)"]))
        target = f"{i}, j{i}" if over.startswith(("enumerate", "zip")) else i
        self.put(depth, f"for {target} in {over}:")
        self.put(depth + 1, f"{self.name()} = ({self.value(1)} + {i} * 0.1).sin()")
        self.block(depth + 1, (*loops, "for"))
        self.otherwise(depth, loops)

    def loop_while(self, depth: int, loops: tuple[str, ...]) -> None:
        w = f"w{next(self.numbers)}"
        start, limit = self.pick(("0", "3"), *([] if loops else [("a * 0", "3.5"), ("a * 0 + k * 0", "2.5")]))
        self.put(depth, f"{w} = {start}")
        more = "" if loops else self.pick("", f" and ({self.test(1)})")
        self.put(depth, f"while {w} < {limit}{more}:")
        self.put(depth + 1, f"{w} = {w} + 1")
        self.block(depth + 1, (*loops, "while"))
        self.otherwise(depth, loops)

    def otherwise(self, depth: int, loops: tuple[str, ...]) -> None:
        if self.draw(st.integers(0, 3)) == 0:
            self.put(depth, "else:")
            self.put(depth + 1, f"{self.name()} = {self.value(1)}")

    def function(self, depth: int) -> None:
        f = f"f{next(self.numbers)}"
        self.put(depth, f"def {f}(p):")
        changed = self.name()
        self.put(depth + 1, f"nonlocal {changed}")
        self.put(depth + 1, f"if p > {self.pick(*_LIMITS)}:")
        self.put(depth + 2, f"{changed} = ({changed} + p).sin()")
        self.put(depth + 1, "return p * 0.5")
        target = self.pick(*[n for n in _NAMES if n != changed])
        self.put(depth, f"{target} = {f}({self.value(1)})")


@st.composite
def programs(draw: Any) -> str:
    """The source of a program."""
    writer = _Writer(draw)
    for _ in range(draw(st.integers(2, 5))):
        writer.statement(1, ())
    return "\n".join(writer.lines) + "\n" + _TAIL


def load(source: str, folder: Path) -> Callable[..., Any]:
    """The function of a program, from a file, so that its source can be found."""
    path = folder / f"program{len(list(folder.iterdir()))}.py"
    path.write_text(source)
    space: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, str(path), "exec"), space)
    found: Callable[..., Any] = space["main"]
    return found
