"""Writes LLVM IR as text: values with operators, loops, vectors, masks.

`m = Module(); f = Function(m, "name", ["ptr", "i64"]); a, n = f.args; ...; m.text()` gives the text. Types are LLVM's
spellings: "i64", "float", "ptr", "<16 x float>". Offsets are in bytes. Loop counters and variables live in allocas,
which LLVM turns into registers. Float additions and products may contract to fused ones, nothing else is relaxed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Union

import numpy as np

FLOATS = ("float", "double", "half", "bfloat")
BYTES = {"float": 4, "double": 8, "half": 2, "bfloat": 2, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "ptr": 8}
_SHORT = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}
Operand = Union["Value", int, float]


def element(type: str) -> str:
    """Type of a vector's elements; of a scalar, itself."""
    return type[1:-1].split(" x ")[1] if type.startswith("<") else type


def lanes(type: str) -> int:
    """Number of a vector's elements; 0 for a scalar."""
    return int(type[1:-1].split(" x ")[0]) if type.startswith("<") else 0


def vector(elements: str, count: int) -> str:
    """The type of `count` elements; a scalar for 0."""
    return f"<{count} x {elements}>" if count else elements


def size(type: str) -> int:
    """Bytes of a value of the type."""
    return BYTES[element(type)] * max(lanes(type), 1)


def short(type: str) -> str:
    """The type as intrinsics spell it in their names: v16f32."""
    name = _SHORT.get(element(type), element(type))
    return f"v{lanes(type)}{name}" if lanes(type) else name


def literal(value: float, type: str) -> str:
    """A number as a constant of the type, the same in all lanes of a vector."""
    kind = element(type)
    if kind in FLOATS:
        text = _float_bits(float(value), kind)
    elif kind == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return f"splat ({kind} {text})" if lanes(type) else text


def _float_bits(value: float, kind: str) -> str:
    if kind == "half":
        return f"0xH{np.float16(value).view(np.uint16):04X}"
    if kind == "bfloat":
        bits = np.float32(value).view(np.uint32)
        return f"0xR{int(bits) >> 16:04X}"
    if kind == "float":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"


class Value:
    """A value of a function. Operators take another value of the same type, or a number."""

    __slots__ = ("f", "name", "type")

    def __init__(self, name: str, type: str, f: Function) -> None:
        self.name, self.type, self.f = name, type, f

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats."""
        return element(self.type) in FLOATS

    def _with(self, other: Operand, whole: str, floating: str, turned: bool = False) -> Value:
        right = self.f.constant(other, self.type)
        a, b = (right, self) if turned else (self, right)
        return self.f.emit(f"{floating if self.is_float else whole} {self.type} {a.name}, {b.name}", self.type)

    def __add__(self, other: Operand) -> Value:
        return self._with(other, "add", "fadd contract")

    def __sub__(self, other: Operand) -> Value:
        return self._with(other, "sub", "fsub contract")

    def __rsub__(self, other: Operand) -> Value:
        return self._with(other, "sub", "fsub contract", True)

    def __mul__(self, other: Operand) -> Value:
        return self._with(other, "mul", "fmul contract")

    def __truediv__(self, other: Operand) -> Value:
        return self._with(other, "sdiv", "fdiv")

    def __rtruediv__(self, other: Operand) -> Value:
        return self._with(other, "sdiv", "fdiv", True)

    def __floordiv__(self, other: Operand) -> Value:
        """Of integers that are not negative."""
        return self._with(other, "udiv", "fdiv")

    def __mod__(self, other: Operand) -> Value:
        """Of integers that are not negative."""
        return self._with(other, "urem", "frem")

    def __and__(self, other: Operand) -> Value:
        return self._with(other, "and", "and")

    def __or__(self, other: Operand) -> Value:
        return self._with(other, "or", "or")

    def __xor__(self, other: Operand) -> Value:
        return self._with(other, "xor", "xor")

    def __lshift__(self, other: Operand) -> Value:
        return self._with(other, "shl", "shl")

    def __rshift__(self, other: Operand) -> Value:
        """Logical, not arithmetic."""
        return self._with(other, "lshr", "lshr")

    def __neg__(self) -> Value:
        if self.is_float:
            return self.f.emit(f"fneg {self.type} {self.name}", self.type)
        return 0 - self

    __radd__ = __add__
    __rmul__ = __mul__


class Variable:
    """A place for values of one type that changes: `v.get()`, `v.set(x)`; LLVM keeps it in a register if it can."""

    def __init__(self, f: Function, type: str, start: Operand | None = None) -> None:
        self.f, self.type, self.place = f, type, f.alloca(type)
        if start is not None:
            self.set(start)

    def get(self) -> Value:
        """The value now."""
        return self.f.load(self.place, self.type)

    def set(self, value: Operand) -> None:
        """Another value from here on."""
        self.f.store(self.f.constant(value, self.type), self.place)


class Module:
    """Functions, and what they declare."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.declarations: dict[str, None] = {}
        self.globals: list[str] = []
        self.scales = False  # the CPU has an instruction for x * 2 ** n (AVX-512's vscalef)

    def declare(self, line: str) -> None:
        """A function that is defined elsewhere."""
        self.declarations[line] = None

    def table(self, name: str, numbers: Sequence[int], type: str = "i64") -> str:
        """A constant array; returns its name as an operand of type ptr."""
        items = ", ".join(f"{type} {int(n)}" for n in numbers)
        self.globals.append(f"@{name} = private unnamed_addr constant [{len(numbers)} x {type}] [{items}], align 64")
        return f"@{name}"

    def text(self) -> str:
        """The whole module."""
        defined = {f.name for f in self.functions}
        outside = [d for d in self.declarations if d.partition("@")[2].partition("(")[0] not in defined]
        ends = ["!0 = !{i32 1}", "!1 = distinct !{!1, !2}", '!2 = !{!"llvm.loop.unroll.disable"}']
        return "\n".join([*self.globals, *outside, *[f.text() for f in self.functions], *ends, ""])


class Function:
    """A function being written; `args` are its parameters. All that is emitted goes to the block that is open."""

    def __init__(
        self,
        module: Module,
        name: str,
        params: Sequence[str],
        returns: str = "void",
        linkage: str = "",
        attrs: str = "",
    ) -> None:
        self.module, self.name, self.returns, self.linkage, self.attrs = module, name, returns, linkage, attrs
        self.args = [Value(f"%a{i}", t, self) for i, t in enumerate(params)]
        self._count = self._labels = 0
        self._lines: list[str] = []
        self._allocas: list[str] = []
        module.functions.append(self)

    # --- lines --------------------------------------------------------------------------------------------------------

    def emit(self, text: str, type: str) -> Value:
        """An instruction with a result."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {text}")
        return Value(name, type, self)

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}")

    def label(self, hint: str = "l") -> str:
        """A new name for a block."""
        self._labels += 1
        return f"{hint}{self._labels}"

    def block(self, label: str) -> None:
        """Open a block; the one before must have been closed by a jump."""
        self._lines.append(f"{label}:")

    def jump(self, label: str) -> None:
        """Go to a block."""
        self.do(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Go to one of two blocks."""
        self.do(f"br i1 {condition.name}, label %{yes}, label %{no}")

    def give(self, value: Value | None = None) -> None:
        """Return."""
        self.do("ret void" if value is None else f"ret {value.type} {value.name}")

    def text(self) -> str:
        """The definition."""
        params = ", ".join(f"{a.type} {a.name}" for a in self.args)
        body = "\n".join(self._allocas + self._lines)
        return f"define {self.linkage} {self.returns} @{self.name}({params}) {self.attrs} {{\nentry:\n{body}\n}}\n"

    # --- values -------------------------------------------------------------------------------------------------------

    def constant(self, value: Operand, type: str) -> Value:
        """A number as a value of the type; a value stays as it is."""
        return value if isinstance(value, Value) else Value(literal(value, type), type, self)

    def i64(self, value: Operand) -> Value:
        """A number as i64."""
        return self.constant(value, "i64")

    def null(self) -> Value:
        """The null pointer."""
        return Value("null", "ptr", self)

    def symbol(self, name: str) -> Value:
        """The address of a global of the module, whose name has its @."""
        return Value(name, "ptr", self)

    def lane_numbers(self, count: int, type: str = "i32") -> Value:
        """0, 1, 2, ... in the lanes of a vector."""
        items = ", ".join(f"{type} {i}" for i in range(count))
        return Value(f"<{items}>", vector(type, count), self)

    def splat(self, scalar: Value, count: int) -> Value:
        """A scalar in all lanes; itself for a count of 0."""
        if not count:
            return scalar
        type = vector(scalar.type, count)
        one = self.emit(f"insertelement {type} poison, {scalar.type} {scalar.name}, i64 0", type)
        zeros = vector("i32", count)
        return self.emit(f"shufflevector {type} {one.name}, {type} poison, {zeros} zeroinitializer", type)

    def shuffle(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        """Lanes of a, then b, in the given order; -1: any."""
        items = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in order)
        type = vector(element(a.type), len(order))
        mask = f"<{len(order)} x i32> <{items}>"
        return self.emit(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, {mask}", type)

    def extract(self, v: Value, lane: Operand) -> Value:
        """One element of a vector."""
        return self.emit(f"extractelement {v.type} {v.name}, i64 {self.i64(lane).name}", element(v.type))

    def convert(self, op: str, v: Value, elements: str) -> Value:
        """v by one of LLVM's casts (sext, zext, trunc, fpext, fptrunc, sitofp, uitofp, fptosi) to such elements."""
        type = vector(elements, lanes(v.type))
        return v if type == v.type else self.emit(f"{op} {v.type} {v.name} to {type}", type)

    def bitcast(self, v: Value, type: str) -> Value:
        """The same bits as another type of the same size."""
        return v if type == v.type else self.emit(f"bitcast {v.type} {v.name} to {type}", type)

    def compare(self, how: str, a: Value, b: Operand) -> Value:
        """i1 of each lane. how: LLVM's eq, ne, slt, ult, ... for integers, oeq, olt, une, ... for floats."""
        b = self.constant(b, a.type)
        kind = "fcmp" if a.is_float else "icmp"
        return self.emit(f"{kind} {how} {a.type} {a.name}, {b.name}", vector("i1", lanes(a.type)))

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        """a where the condition holds, else b; one of the two is a value."""
        type = a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else ""
        a, b = self.constant(a, type), self.constant(b, type)
        return self.emit(f"select {condition.type} {condition.name}, {type} {a.name}, {type} {b.name}", type)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """a * b + c, rounded once."""
        return self.intrinsic(
            f"llvm.fma.{short(a.type)}", a.type, a, self.constant(b, a.type), self.constant(c, a.type)
        )

    def min_int(self, a: Value, b: Operand) -> Value:
        """The smaller of two signed integers."""
        b = self.constant(b, a.type)
        return self.select(self.compare("slt", a, b), a, b)

    def max_int(self, a: Value, b: Operand) -> Value:
        """The larger of two signed integers."""
        b = self.constant(b, a.type)
        return self.select(self.compare("sgt", a, b), a, b)

    def total(self, v: Value) -> Value:
        """The sum of a vector's lanes, in any order."""
        start = "float 0x8000000000000000, " if element(v.type) == "float" else "double 0x8000000000000000, "
        kind = element(v.type)
        if kind not in FLOATS:
            return self.intrinsic(f"llvm.vector.reduce.add.{short(v.type)}", kind, v)
        name = f"llvm.vector.reduce.fadd.{short(v.type)}"
        self.module.declare(f"declare {kind} @{name}({kind}, {v.type})")
        return self.emit(f"call reassoc {kind} @{name}({start}{v.type} {v.name})", kind)

    # --- memory -------------------------------------------------------------------------------------------------------

    def alloca(self, type: str, count: int = 1, align: int = 64) -> Value:
        """Room on the stack."""
        self._count += 1
        name = f"%v{self._count}"
        self._allocas.append(f"  {name} = alloca {type}, i64 {count}, align {align}")
        return Value(name, "ptr", self)

    def variable(self, type: str, start: Operand | None = None) -> Variable:
        """A place for values that change."""
        return Variable(self, type, start)

    def offset(self, pointer: Value, *bytes: Operand) -> Value:
        """The pointer moved by so many bytes."""
        for each in bytes:
            if isinstance(each, Value) or each:
                by = self.i64(each).name
                pointer = self.emit(f"getelementptr inbounds i8, ptr {pointer.name}, i64 {by}", "ptr")
        return pointer

    def load(self, pointer: Value, type: str, offset: Operand = 0, align: int = 0) -> Value:
        """The value at pointer + offset. align: known alignment in bytes; 0: that of one element."""
        pointer = self.offset(pointer, offset)
        return self.emit(f"load {type}, ptr {pointer.name}, align {align or size(element(type))}", type)

    def store(self, value: Value, pointer: Value, offset: Operand = 0, align: int = 0, stream: bool = False) -> None:
        """Write a value. stream: past the caches (the place must be aligned to the value's size)."""
        pointer = self.offset(pointer, offset)
        known = size(value.type) if stream else align or size(element(value.type))
        hint = ", !nontemporal !0" if stream else ""
        self.do(f"store {value.type} {value.name}, ptr {pointer.name}, align {known}{hint}")

    def mask(self, count: Value, width: int) -> Value:
        """True in the first `count` (i64) of `width` lanes."""
        narrow = self.min_int(self.max_int(count, 0), width)
        wide = self.splat(self.emit(f"trunc i64 {narrow.name} to i32", "i32"), width)
        return self.compare("ult", self.lane_numbers(width), wide)

    def load_masked(self, pointer: Value, type: str, mask: Value, offset: Operand = 0, other: Operand = 0) -> Value:
        """Lanes where the mask holds, `other` elsewhere; nothing else is touched."""
        pointer, rest = self.offset(pointer, offset), self.constant(other, type)
        name = f"llvm.masked.load.{short(type)}.p0"
        self.module.declare(f"declare {type} @{name}(ptr, {mask.type}, {type})")
        align = size(element(type))
        args = f"ptr align {align} {pointer.name}, {mask.type} {mask.name}, {type} {rest.name}"
        value = self.emit(f"call {type} @{name}({args})", type)
        return self._fenced(value) if size(type) % 4 == 0 else value

    def store_masked(self, value: Value, pointer: Value, mask: Value, offset: Operand = 0) -> None:
        """Write the lanes where the mask holds."""
        pointer, type = self.offset(pointer, offset), value.type
        if BYTES[element(type)] < 4 and size(type) % 4 == 0:
            value = self._fenced(value)
        name = f"llvm.masked.store.{short(type)}.p0"
        self.module.declare(f"declare void @{name}({type}, ptr, {mask.type})")
        align = size(element(type))
        self.do(f"call void @{name}({type} {value.name}, ptr align {align} {pointer.name}, {mask.type} {mask.name})")

    def _fenced(self, value: Value) -> Value:
        """The same value, its making kept apart from its use. LLVM 22 takes a masked store of a truncated vector, when
        it learns that the mask has but one lane, for a store of that lane before the truncation, which is too wide. And
        it makes a masked load the operand of an instruction under the same mask, which it may divide again into that
        instruction and a load of all lanes, of memory that may not be there."""
        floats = vector("float", size(value.type) // 4)
        kept = self.intrinsic(f"llvm.arithmetic.fence.{short(floats)}", floats, self.bitcast(value, floats))
        return self.bitcast(kept, value.type)

    def prefetch(self, pointer: Value, offset: Operand = 0, locality: int = 3, write: bool = False) -> None:
        """Ask for a line of memory. locality: 3 for the first cache ... 0 for none."""
        self.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        place = self.offset(pointer, offset).name
        self.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 {int(write)}, i32 {locality}, i32 1)")

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, name: str, returns: str, *args: Value) -> Value:
        """The result of a function of this module or outside (see `intrinsic`); name: with its @, or a pointer's."""
        given = ", ".join(f"{a.type} {a.name}" for a in args)
        if returns == "void":
            self.do(f"call void {name}({given})")
            return Value("void", "void", self)
        return self.emit(f"call {returns} {name}({given})", returns)

    def intrinsic(self, name: str, returns: str, *args: Value) -> Value:
        """The result of one of LLVM's intrinsics, or of a C function."""
        self.module.declare(f"declare {returns} @{name}({', '.join(a.type for a in args)})")
        return self.call(f"@{name}", returns, *args)

    # --- control ------------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, start: Operand, stop: Operand, step: Operand = 1, unroll: bool = False) -> Iterator[Value]:
        """The body for a counter (i64) from start up to, not including, stop. unroll: LLVM may unroll it."""
        first, last = self.i64(start), self.i64(stop)
        counter = self.alloca("i64", align=8)
        self.store(first, counter)
        head, body, end = self.label("head"), self.label("body"), self.label("end")
        self.jump(head)
        self.block(head)
        now = self.load(counter, "i64")
        self.branch(self.compare("slt", now, last), body, end)
        self.block(body)
        yield now
        self.store(self.emit(f"add nsw i64 {now.name}, {self.i64(step).name}", "i64"), counter)
        self.do(f"br label %{head}" + ("" if unroll else ", !llvm.loop !1"))
        self.block(end)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """The body if the condition holds."""
        yes, end = self.label("then"), self.label("end")
        self.branch(condition, yes, end)
        self.block(yes)
        yield
        self.jump(end)
        self.block(end)

    def either(self, condition: Value, yes: Any, no: Any) -> None:
        """Run one of two Python functions' code."""
        first, second, end = self.label("then"), self.label("else"), self.label("end")
        self.branch(condition, first, second)
        self.block(first)
        yes()
        self.jump(end)
        self.block(second)
        no()
        self.jump(end)
        self.block(end)
