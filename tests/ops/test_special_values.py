"""NaN, infinities, signed zeros, subnormal, huge and extreme numbers, empty and 0-d tensors through every elementwise
op and reduction, in all dtypes: the back end and the reference (eager mode on few elements) give what NumPy gives.

The ops are found from their declarations: elementwise, where the axes rule is `... -> ...` of any number of operands;
reductions and cumulative functions, where the one operand comes with `axes` or `axis`. The oracle is the function of
NumPy with the op's name (NUMPY where the names differ); the op's own reference where NumPy has none. Exceptions stand
below with their reason.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.ops.support import execute, together

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Fn, Module
from treadle.ir.types import TensorType
from treadle.ops._declare import OPS, Op, samples_of

FLOATS, COMPLEX = ("float64", "float32", "float16", "bfloat16"), ("complex64", "complex128")
INTEGERS = ("int8", "int32", "int64", "uint8", "uint32", "bool")
ALL = (*FLOATS, *COMPLEX, *INTEGERS)
# Relative to each number. Elementary functions of XLA are off by a few last digits, lgamma and others by more.
TOLERANCE = {
    "float64": 1e-10,
    "complex128": 1e-10,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 4e-3,
    "bfloat16": 2e-2,
}
NUMPY = {
    "neg": "negative", "sub": "subtract", "mul": "multiply", "div": "true_divide", "pow": "power", "atan2": "arctan2",
    **{f"a{f}": f"arc{f}" for f in ("cos", "sin", "tan", "cosh", "sinh", "tanh")}, "floor_div": "floor_divide",
    **{f"bit_{f}": f"bitwise_{f}" for f in ("and", "or", "xor", "not")}, "truncated_remainder": "fmod",
    "is_nan": "isnan", "is_inf": "isinf", "is_finite": "isfinite", "round": "rint", "select": "where",
    "shift_left": "left_shift", "shift_right_arithmetic": "right_shift", "popcount": "bitwise_count",
    **{f"reduce_{f}": f for f in ("sum", "prod", "max", "min", "mean")}, "reduce_and": "all", "reduce_or": "any",
}  # fmt: skip
SCANS = {"cummax": np.maximum, "cummin": np.minimum, "cumlogsumexp": np.logaddexp}
# name: why its result may differ from the function of that name in NumPy; the op's own reference is the oracle.
NOT_NUMPY = {
    "cast": "NumPy has another function of this name",
    "nextafter": "the neighbour depends on the dtype, and NumPy takes none of 16 bits for bfloat16",
    "popcount": "of the bits of the two's complement; NumPy counts those of the absolute value",
    "sinc": "0 at whole numbers and for large ones; NumPy takes the sine of a rounded pi * x",
    "shift_right_arithmetic": "copies the highest bit of unsigned numbers too; td.bitwise_right_shift does as NumPy",
}
# name: why the sign of a zero is open.
ANY_ZERO = {
    "maximum": "NumPy does not say which of 0.0 and -0.0 is larger",
    "minimum": "NumPy does not say which of 0.0 and -0.0 is smaller",
    "exp_shift": "a maximum",
    "sign": "XLA keeps the sign of a zero, NumPy drops it",
}


# --- the numbers ------------------------------------------------------------------------------------------------------


def special(name: str) -> list[Any]:
    """The numbers of one dtype that break functions."""
    if name == "bool":
        return [False, True]
    dtype = np.dtype(dtypes.of(name).np)
    if name in INTEGERS:
        info = np.iinfo(dtype)
        return [x for x in (info.min, info.min + 1, -7, -1, 0, 1, 2, 5, info.max - 1, info.max) if x >= info.min]
    part = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    info = ml_dtypes.finfo(part)
    small, large = float(info.smallest_normal), float(info.max)
    found = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, small, -small, large, -large]
    return found + [float(info.smallest_subnormal), small * 0.75, float(info.eps), 40.0, -40.0]


def columns(name: str, arity: int) -> list[Any]:
    """Arrays of one dtype that hold all combinations of special numbers (of some, for three operands)."""
    dtype = dtypes.of(name).np
    values = special(name)
    if name in COMPLEX:
        parts = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 1e-3]
        values = [complex(a, b) for a, b in itertools.product(parts, repeat=2)]
    if arity > 2:
        values = values[:6]
    if name in COMPLEX and arity == 2:
        values = values[::5]
    with np.errstate(all="ignore"):
        return [np.array(c).astype(dtype) for c in zip(*itertools.product(values, repeat=arity), strict=True)]


# --- the ops ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """An op on special numbers: its function for the operands' types, the arrays, what NumPy gives."""

    op: Op
    dtype: str
    attrs: dict[str, Any]
    fn: Fn
    arrays: tuple[Any, ...]

    def __str__(self) -> str:
        shown = f" {self.attrs}" if self.attrs else ""
        return f"{self.op.name} of {', '.join(map(str, self.fn.in_types))}{shown}"


def is_elementwise(op: Op) -> bool:
    rule = op.rules["axes"]
    return isinstance(rule, str) and set(rule.replace("->", " ").replace(",", " ").split()) == {"..."}


def is_reduction(op: Op) -> bool:
    return op.arity == 1 and {"axes", "axis"} & set(op.params) != set() and set(op.params) <= {
        op.params[0], "axes", "axis", "reverse",
    }  # fmt: skip


def settings(op: Op) -> list[dict[str, Any]]:
    """Up to three settings of the attributes of the op's good samples; for reductions the last axis of two."""
    if is_reduction(op):
        place = {"axes": (1,)} if "axes" in op.params else {"axis": 1}
        return [{**place, "reverse": r} for r in (False, True)] if "reverse" in op.params else [place]
    found: list[dict[str, Any]] = []
    for sample in samples_of(op):
        if not sample.bad and sample.attrs not in found:
            found.append(sample.attrs)
    return found if op.name == "cast" else found[:3]


def operand_types(op: Op, name: str) -> tuple[str, ...]:
    """One dtype for all operands, but for those that are of another in all samples (a condition, say)."""
    kinds = [{a.dtype.name for a in column} for column in zip(*[s.arrays for s in samples_of(op) if not s.bad])]
    return tuple("bool" if k == {"bool"} else name for k in kinds)


def calls(name: str) -> Iterator[Call]:
    """The ops that take this dtype, with the special numbers; also empty and, elementwise, one number."""
    for op in OPS.values():
        if op.name in ALL_LEFT_OUT or not (is_elementwise(op) or is_reduction(op)):
            continue
        types = operand_types(op, name)
        if name not in types:
            continue
        full = [columns(t, len(types)) for t in types]
        arrays = tuple(c[i] for i, c in enumerate(full)) if len(types) > 1 else (full[0][0],)
        size = min(a.size for a in arrays)
        arrays = tuple(a[:size] for a in arrays)
        variants = [arrays, tuple(a[:0] for a in arrays), tuple(a[0] for a in arrays)]
        if is_reduction(op):
            rows = _rows(arrays[0])
            variants = [(rows,), (rows[:0],), (rows[:, :0],)]
        if name not in ONE_OF_EACH_KIND:
            variants = variants[:1]
        for attrs, variant in itertools.product(settings(op), variants):
            made = _call(op, name, attrs, tuple(np.asarray(a) for a in variant))
            if made is not None:
                yield made


ONE_OF_EACH_KIND = ("float32", "complex64", "int32", "bool")  # in these, empty and 0-d tensors too
ALL_LEFT_OUT = {"threefry": "its operands are keys and counters, not numbers"}


def _rows(values: Any) -> Any:
    """[n, 3]: each special number between two ones, pairs of neighbours, and each alone."""
    one = np.ones((), values.dtype)
    near = np.roll(values, 1)
    return np.concatenate([
        np.stack([np.broadcast_to(one, values.shape), values, np.broadcast_to(one, values.shape)], 1),
        np.stack([values, near, values], 1),
        np.stack([values] * 3, 1),
    ])  # fmt: skip


def _call(op: Op, name: str, attrs: dict[str, Any], arrays: tuple[Any, ...]) -> Call | None:
    types = [TensorType(interp.type_of(a).dtype, a.shape) for a in arrays]
    try:
        fn = build.trace(lambda *xs: op(*xs, **attrs), types, op.name)
    except UserError:  # not for this dtype, or not of no element
        return None
    return Call(op, name, attrs, fn, arrays)


# --- the oracle -------------------------------------------------------------------------------------------------------


def numpy_function(call: Call) -> Callable[..., Any] | None:
    """NumPy's function, of the same arrays; None where it has none."""
    name, attrs = call.op.name, call.attrs
    if name == "pow" and call.dtype in INTEGERS:  # NumPy refuses negative exponents
        return lambda x, y: np.where(y < 0, call.op.rules["ref"](x, y), np.power(x, np.where(y < 0, 0, y)))
    if name in NOT_NUMPY or attrs.get("reverse"):
        return None
    if name in SCANS:
        return lambda x: SCANS[name].accumulate(x, attrs["axis"])
    if name == "logsumexp":
        return lambda x: np.logaddexp.reduce(x, attrs["axes"][0])
    function = getattr(np, NUMPY.get(name, name), None)
    if function is None or not callable(function):
        return None
    if is_reduction(call.op):
        return lambda x: function(x, axis=attrs.get("axes", attrs.get("axis")))
    return function if not attrs else None


def wanted(call: Call) -> Any:
    """The oracle's result, in the result's dtype; 16-bit floats are computed in float32."""
    function = numpy_function(call)
    if function is None:
        return None
    out = call.fn.out_types[0].dtype.np
    narrow = call.dtype in ("float16", "bfloat16")
    wide = [a.astype(np.float32) if narrow and a.dtype.itemsize == 2 else a for a in call.arrays]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return np.asarray(function(*wide)).astype(out)


def difference(found: Any, right: Any, any_zero: bool, flushed: bool) -> list[int]:
    """Places at which two flat arrays are not the same number: NaN, infinity, sign of zero exactly.

    Parts of complex numbers are compared relative to the whole. flushed: a zero instead of a subnormal number, or of
    the smallest normal one, is right.
    """
    if found.dtype.kind == "c":
        size = np.where(np.isfinite(right), np.abs(right), 0)
        parts = ((found.real, right.real), (found.imag, right.imag))
        return sorted({i for a, b in parts for i in _apart(a, b, size, any_zero, flushed)})
    if found.dtype.kind in "biu":
        return list(np.flatnonzero(found != right))
    return _apart(found, right, np.abs(right.astype(np.float64)), any_zero, flushed)


def _apart(found: Any, right: Any, size: Any, any_zero: bool, flushed: bool) -> list[int]:
    info = ml_dtypes.finfo(found.dtype)
    tiny, smallest = 4 * float(info.smallest_subnormal), 1.01 * float(info.smallest_normal)
    a, b = found.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        one_sign = np.signbit(a) == np.signbit(b)
        close = np.abs(a - b) <= TOLERANCE[found.dtype.name] * size + tiny * (b != 0)
        close |= flushed & (a == 0) & (np.abs(b) <= smallest) & one_sign
        exact = np.isnan(a) | np.isnan(b) | np.isinf(a) | np.isinf(b) | ((a == 0) & (b == 0))
        equal = (np.isnan(a) & np.isnan(b)) | ((a == b) & (any_zero | one_sign))
    return list(np.flatnonzero(~np.where(exact, equal, close)))


def faults(call: Call, found: Any, right: Any, side: str) -> list[str]:
    """What differs, in words.

    The back end may take a subnormal operand or result for a zero. Of complex numbers it computes each part by a plain
    formula: what is infinite or NaN there, and signs of zeros, are left open (C's Annex G, as NumPy, has rules).
    """
    flushed, is_complex = side == "the back end", np.asarray(right).dtype.kind == "c"
    found, right = np.asarray(found), np.asarray(right)
    if found.shape != right.shape:
        return [f"{call}: {side} gives shape {found.shape} instead of {right.shape}"]
    places = difference(
        found.reshape(-1), right.reshape(-1), call.op.name in ANY_ZERO or (flushed and is_complex), flushed
    )
    shown = []
    if flushed:
        places = [i for i in places if not _left_open(call, found.shape, i)]
        if is_complex:
            places = [i for i in places if np.isfinite(right.reshape(-1)[i])]
    for i in places[:4]:
        at = np.unravel_index(i, found.shape) if found.shape else ()
        inputs = [a[at[: a.ndim]] if not is_reduction(call.op) else a[at[0]] for a in call.arrays]
        shown.append(f"{call}: {side} gives {found[at]!r} instead of {right[at]!r} for {inputs}")
    return [*shown, f"... {len(places)} places"] if len(places) > 4 else shown


def _left_open(call: Call, shape: tuple[int, ...], i: int) -> bool:
    """Whether the result at flat place i comes from a subnormal operand, or complex numbers that are not finite."""
    at = np.unravel_index(i, shape) if shape else ()
    for array in call.arrays:
        numbers = np.atleast_1d(array[at[0]] if is_reduction(call.op) else array[at])
        if numbers.dtype.kind == "c" and not np.all(np.isfinite(numbers)):
            return True
        parts = (numbers.real, numbers.imag) if numbers.dtype.kind == "c" else (numbers,)
        for part in parts:
            if part.dtype.name in FLOATS:
                small = np.abs(part.astype(np.float64))
                if np.any((small > 0) & (small < float(ml_dtypes.finfo(part.dtype).smallest_normal))):
                    return True
    return False


def short_cut(call: Call, reference: Any) -> Any:
    """What the op's `host` rule gives, which eager mode takes for few float32 or float64 elements."""
    rule = call.op.rules.get("host")
    if not callable(rule) or call.dtype not in ("float32", "float64") or not call.arrays[0].size:
        return reference
    more = (1,) if is_reduction(call.op) else ()
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return rule(*call.arrays, *more)


@pytest.mark.parametrize("name", ALL)
def test_special_values(name):
    found, cases = [], list(calls(name))
    results = iter(execute(together([Module.of(c.fn) for c in cases]), [a for c in cases for a in c.arrays], name))
    for call in cases:
        reference = interp.run(call.fn, *call.arrays)
        compiled = [next(results) for _ in call.fn.outputs]
        right = wanted(call)
        if right is not None:
            found += faults(call, reference[0], right, "the reference")
        found += faults(call, short_cut(call, reference[0]), reference[0], "eager mode's short cut")
        for a, b in zip(compiled, reference, strict=True):
            found += faults(call, a, b, "the back end")
    assert not found, "\n".join(found)


def test_most_ops_take_part():
    names = {call.op.name for name in ("float64", "int32", "bool") for call in calls(name)}
    assert len(names) > 95
    assert sum(wanted(call) is not None for call in calls("float32")) > 150


def test_the_back_end_flushes_subnormals():
    """docs/semantics.md says so: compiled code takes subnormal float32 numbers for zeros, the host path does not."""
    x = np.array([1e-45, 1e-39], np.float32)
    fn = build.trace(lambda x: OPS["add"](x, x), [TensorType(dtypes.float32, (2,))], "add")
    (compiled,), (reference,) = execute(Module.of(fn), [x], "add"), interp.run(fn, x)
    assert not compiled.any() and reference.all()


@pytest.mark.parametrize("op, attrs", [("contract", {"spec": "ab,bc->ac"}), ("conv", {})])
def test_sums_of_repeated_infinities(op, attrs):
    """NumPy's einsum takes y * sum(x) where y repeats an element: -inf for what is NaN."""
    x, y = np.array([[1.0, -2.0, 3.0]], np.float32), np.float32(-np.inf)
    shapes = ((1, 3), (3, 4))
    if op == "conv":
        shapes, attrs = ((1, 3, 1), (4, 3, 1)), {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    with np.errstate(invalid="ignore"):
        made = OPS[op].rules["ref"](x.reshape(shapes[0]), np.broadcast_to(y, shapes[1]), **attrs)
    assert np.isnan(made).all()


def test_differences_are_found():
    """The comparison itself: a wrong sign of zero, a NaN too many, a lost digit."""
    right = np.array([0.0, np.inf, 1.0, np.nan, 2.0], np.float32)
    assert difference(right, right, False, False) == []
    wrong = np.array([-0.0, np.nan, 1.001, 0.0, 2.0], np.float32)
    assert difference(wrong, right, False, True) == [0, 1, 2, 3]
    assert difference(wrong, right, True, False) == [1, 2, 3]
    assert difference(np.array([1 + 1j, complex(0, np.nan)]), np.array([1 + 2j, complex(np.nan, 0)]), False, False) == [
        0,
        1,
    ]
