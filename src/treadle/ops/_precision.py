"""How exactly products of float32 are computed: the attribute `precision` of every op declared with `amp="narrow"`.

| level | a product of float32 x and y | error of one product |
|---|---|---|
| "highest" (the attribute is left out) | x * y | 2**-24 |
| "high" | hi(x) hi(y) + (hi(x) lo(y) + lo(x) hi(y)), hi and lo in bfloat16, sums in float32 | about 2**-16 |
| "medium" | bf16(x) bf16(y), sums in float32 | about 2**-8 |

A level is a bound: a back end may be more exact. What no bfloat16 holds: in "high" an infinity or NaN has no low part
and takes no part in the two small products, so that inf * y stays what it is; a finite number beyond bfloat16's largest
has that for its high part. In "medium" numbers are cast, so that those above 3.396e38 become infinite.

The rules of such an op know nothing of the attribute: while one runs, the products that it makes (of a gradient, an
expansion, a batch) take the level of its node. Other element types than float32 ignore it. Source of the split: Henry,
Tang & Heinecke 2019, arXiv:1904.06376.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.base.dtypes import bfloat16, float32
from treadle.base.errors import UserError
from treadle.ir import interp
from treadle.ir.op import Op
from treadle.ir.types import TensorType, type_of

HIGHEST = "highest"
LEVELS = (HIGHEST, "high", "medium")
# Rules that are given a node's attributes; the others have no use for this one.
_GIVEN = ("type", "ref", "grad", "axes", "hlo", "onnx", "expand", "saved", "jvp", "batch", "flops", "prune", "reverse")


class _Running(threading.local):
    """The level of the node whose rule runs in this thread."""

    level = HIGHEST


_running = _Running()


def running() -> str:
    """The level that products take here: that of the node whose rule runs, else "highest"."""
    return _running.level


def check(level: Any) -> str:
    """The level. Raises E0194 for one that there is not."""
    if level not in LEVELS:
        raise UserError("E0194", f"precision {level!r}", fix=f"use one of {', '.join(map(repr, LEVELS))}")
    return str(level)


class Product(Op):
    """An op of products. `precision` may be given at the call; a rule's calls inherit it."""

    def __init__(self, name: str, doc: str, params: tuple[str, ...], rules: dict[str, Any], *rest: Any) -> None:
        super().__init__(name, doc, params, _Rules(self), *rest)
        self.rules.update(rules)

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        if _running.level is not HIGHEST and "precision" not in attrs and applies(args):
            attrs["precision"] = _running.level
        elif attrs.get("precision") == HIGHEST and not any(hasattr(type(a), "__treadle_op__") for a in args):
            del attrs["precision"]
        return super().__call__(*args, **attrs)


def applies(operands: Any) -> bool:
    """Whether a level means anything: all operands are float32."""
    return all(getattr(a, "dtype", None) in (float32, float32.np) for a in operands)


class _Rules(dict[str, Any]):
    """The rules of an op; a rule that is put in learns to live with the attribute."""

    def __init__(self, op: Product) -> None:
        self.op = op

    def __setitem__(self, kind: str, rule: Any) -> None:
        if kind == "ref":
            rule = _reference(self.op, rule)
        elif kind == "hlo":
            rule = _lowered(self.op, rule)
        elif kind == "onnx" and isinstance(rule, str) and rule != "expand":
            rule = _onnx(rule)
        elif kind in _GIVEN and callable(rule):
            rule = _inheriting(rule)
        super().__setitem__(kind, rule)

    def update(self, rules: dict[str, Any]) -> None:  # type: ignore[override]
        for kind, rule in rules.items():
            self[kind] = rule


def _at(level: str, rule: Callable[..., Any], *args: Any, **attrs: Any) -> Any:
    """What the rule gives, its products at this level."""
    before, _running.level = _running.level, level
    try:
        return rule(*args, **attrs)
    finally:
        _running.level = before


def _inheriting(rule: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(rule)
    def run(*args: Any, precision: str = HIGHEST, **attrs: Any) -> Any:
        return _at(precision if precision is HIGHEST else check(precision), rule, *args, **attrs)

    return run


def _onnx(name: str) -> Callable[..., Any]:
    """ONNX has no such attribute: products there are as exact as they can be."""
    return lambda g, *operands, **_: g.node(name, *operands)


def _is_bilinear(op: Op) -> bool:
    return op.rules.get("jvp") == "multilinear"


# ------------------------------------------------------------------------------------------------------- the reference
def _reference(op: Op, rule: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(rule)
    def run(*arrays: Any, precision: str = HIGHEST, **attrs: Any) -> Any:
        if precision == HIGHEST or not applies(arrays):
            return _at(HIGHEST, rule, *arrays, **attrs)
        if not _is_bilinear(op):
            body = interp.expansion(op, tuple([type_of(a) for a in arrays]), {**attrs, "precision": precision})
            results = interp.run(body, *arrays)
            return results if len(results) > 1 else results[0]
        product = functools.partial(_at, HIGHEST, rule, **attrs)
        x, y = arrays
        if precision == "medium":
            return product(rounded(x), rounded(y))
        (big_x, high_x, low_x), (big_y, high_y, low_y) = halves(x), halves(y)
        return product(big_x, big_y) + (product(high_x, low_y) + product(low_x, high_y))

    return run


def rounded(x: Any) -> Any:
    """float32 with the digits of bfloat16."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x.astype(bfloat16.np).astype(np.float32))


_LARGEST = np.float32(3.3895313892515355e38)  # of bfloat16


def halves(x: Any) -> tuple[Any, Any, Any]:
    """(high part, the same with zeros where x is not finite, low part) of a float32 array, each float32 with the digits
    of bfloat16; high + low is x to 17 bits or more."""
    finite = np.isfinite(x)
    high = np.where(finite, np.clip(rounded(x), -_LARGEST, _LARGEST), x)
    small = np.where(finite, high, np.float32(0))
    return high, small, rounded(np.where(finite, x, np.float32(0)) - small)


# -------------------------------------------------------------------------------------------------------- the back end
def _lowered(op: Op, rule: Callable[..., Any]) -> Callable[..., Any]:
    """XLA: on GPUs and TPUs the level is the product's `precision_config`. On CPUs three of XLA's products of bfloat16
    take longer than one of float32, so "high" is computed as "highest", and "medium" from rounded operands."""

    @functools.wraps(rule)
    def run(b: Any, *operands: Any, precision: str = HIGHEST, **attrs: Any) -> Any:
        if b.platform != "cpu":
            return _at(precision, rule, b, *operands, **attrs)
        if precision != "medium" or b.types[0].dtype is not float32:
            return _at(HIGHEST, rule, b, *operands, **attrs)
        operands = tuple([_round(b, x, t) for x, t in zip(operands, b.types, strict=True)])
        return _at(precision, rule, b, *operands, **attrs)

    return run


def _round(b: Any, x: Any, type: TensorType) -> Any:
    """A pair of casts, which XLA may not take out."""
    return b.op("reduce_precision", x, types=type, exponent_bits="8 : i32", mantissa_bits="7 : i32")
