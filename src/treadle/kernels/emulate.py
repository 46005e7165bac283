"""AMX kernels on CPUs without AMX, for tests: `emulated(text)` is a module that does the same by ordinary vectors.

Every function that uses tiles gets eight of them (16 rows of 64 bytes, the shape that the launcher configures) on its
stack, and its tile instructions become calls of the functions written here. A tile must not outlive the call of the
function that filled it. Slow. Source of the instructions' meaning: Intel, Architecture Instruction Set Extensions,
chapter 3 (TILELOADD, TILESTORED, TILEZERO, TDPBF16PS, TDPBSSD).
"""

from __future__ import annotations

import re

from treadle.kernels.llvm import Function, Module, Value

_ROWS, _ROW_BYTES, _TILES = 16, 64, 8
_NAMES = ("tileloadd64", "tilestored64", "tilezero", "tdpbf16ps", "tdpbssd")
_CALL = re.compile(rf"call void @llvm\.x86\.({'|'.join(_NAMES)})\(")
_DECLARATION = re.compile(rf"declare void @llvm\.x86\.({'|'.join(_NAMES)})\(.*\n")


def emulated(text: str) -> str:
    """The module with tile instructions replaced."""
    parts = re.split(r"(?m)^(?=define )", _DECLARATION.sub("", text))
    found = [_with_tiles(p) if _CALL.search(p) else p for p in parts]
    return "".join(found) + _library()


def _with_tiles(function: str) -> str:
    room = f"entry:\n  %tiles = alloca i8, i64 {_TILES * _ROWS * _ROW_BYTES}, align 64\n"
    return _CALL.sub(r"call void @emulated.\1(ptr %tiles, ", function.replace("entry:\n", room, 1))


def _library() -> str:
    m = Module()
    _move(m, "tileloadd64", True)
    _move(m, "tilestored64", False)
    f = _function(m, "tilezero", ["ptr", "i8"])
    with f.loop(0, _ROWS) as row:
        f.store(f.constant(0, "<16 x i32>"), _row(f, f.args[1], row))
    f.give()
    _dot(m, "tdpbf16ps", "<16 x float>", _pairs)
    _dot(m, "tdpbssd", "<16 x i32>", _quads)
    text = m.text()
    return text[: text.index("!0 =")] if "!0 =" in text else text


def _function(m: Module, name: str, params: list[str]) -> Function:
    return Function(m, f"emulated.{name}", params, linkage="internal")


def _row(f: Function, tile: Value, row: Value) -> Value:
    """The address of a tile's row; the tiles are the first argument."""
    number = f.convert("zext", tile, "i64")
    return f.offset(f.args[0], number * (_ROWS * _ROW_BYTES), row * _ROW_BYTES)


def _move(m: Module, name: str, is_load: bool) -> None:
    """Between a tile and rows in memory a number of bytes apart."""
    f = _function(m, name, ["ptr", "i8", "ptr", "i64"])
    _, tile, place, step = f.args
    with f.loop(0, _ROWS) as row:
        memory = f.emit(f"mul i64 {row.name}, {step.name}", "i64")
        outside, inside = f.offset(place, memory), _row(f, tile, row)
        source, target = (outside, inside) if is_load else (inside, outside)
        f.store(f.load(source, "<16 x i32>"), target)
    f.give()


def _dot(m: Module, name: str, sums: str, products: object) -> None:
    """sums[row, n] += the sum over k of products(left[row, k], right[k, n]), k counting words of 32 bits."""
    f = _function(m, name, ["ptr", "i8", "i8", "i8"])
    _, total, left, right = f.args
    assert callable(products)
    with f.loop(0, _ROWS) as row:
        place, now = _row(f, total, row), f.variable(sums)
        now.set(f.load(place, sums))
        with f.loop(0, _ROW_BYTES // 4) as k:
            a = f.splat(f.load(f.offset(_row(f, left, row), k * 4), "i32"), 16)
            b = f.load(_row(f, right, k), "<16 x i32>")
            for product in products(f, a, b):
                now.set(now.get() + product)
        f.store(now.get(), place)
    f.give()


def _pairs(f: Function, a: Value, b: Value) -> list[Value]:
    """Products of the two bfloat16 in each word, the low one first."""
    low = f.bitcast(a << 16, "<16 x float>") * f.bitcast(b << 16, "<16 x float>")
    high = f.bitcast(a & -65536, "<16 x float>") * f.bitcast(b & -65536, "<16 x float>")
    return [low, high]


def _quads(f: Function, a: Value, b: Value) -> list[Value]:
    """Products of the four signed bytes in each word."""

    def byte(v: Value, i: int) -> Value:
        top = v << (24 - 8 * i)
        return f.emit(f"ashr {v.type} {top.name}, {f.constant(24, v.type).name}", v.type)

    return [byte(a, i) * byte(b, i) for i in range(4)]
