"""NaN, infinities, signed zeros and tiny numbers through every elementwise op: back end and interpreter, as NumPy.

An op takes part when its axes rule is `... -> ...` or `..., ... -> ...` and it needs no attributes. Exceptions stand
below.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.ops.support import execute

from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import f32, f64
from treadle.ops._declare import OPS, Op

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e30, -1e30)
# Ops whose result may be a zero of the other sign, and why.
ANY_ZERO = {
    "maximum": "NumPy does not say which of 0.0 and -0.0 is larger",
    "minimum": "NumPy does not say which of 0.0 and -0.0 is smaller",
    "sign": "XLA keeps the sign of a zero, NumPy drops it",
    "log_sigmoid": "log(1) may be reached as -softplus(-x) = -0.0",
}


def elementwise() -> list[tuple[str, int]]:
    """Names of the ops and their numbers of operands."""
    found = []
    for name, op in sorted(OPS.items()):
        rule = op.rules["axes"]
        if rule in ("... -> ...", "..., ... -> ...") and _takes_floats(op):
            found.append((name, op.arity))
    return found


def _takes_floats(op: Op) -> bool:
    if op.arity is None or len(op.params) != op.arity:
        return False
    try:
        build.trace(lambda *values: op(*values), [f64[2]] * op.arity)
    except UserError:
        return False
    return True


def test_most_ops_take_part():
    assert len(elementwise()) > 30


@pytest.mark.parametrize("name, arity", elementwise())
def test_special_values(name, arity):
    op = OPS[name]
    values = list(itertools.product(SPECIAL, repeat=arity))
    for type in (f64, f32):
        arrays = [np.array(column, type[1].dtype.np) for column in zip(*values, strict=True)]
        fn = build.trace(lambda *xs: op(*xs), [type[len(values)]] * arity, name)
        (wanted,) = interp.run(fn, *arrays)
        (found,) = execute(Module.of(fn), arrays, name)
        faults = [
            f"{name}{row} in {type[1].dtype}: back end {a!r}, interpreter {b!r}"
            for row, a, b in zip(values, found, wanted, strict=True)
            if not _same(a, b, name in ANY_ZERO)
        ]
        assert not faults, "\n".join(faults)


def _same(a: np.generic, b: np.generic, any_zero: bool) -> bool:
    """Both NaN, or the same infinity, or zeros of one sign (unless any will do), or close; complex: both parts."""
    if a.dtype.kind == "c":
        return _same(a.real, b.real, any_zero) and _same(a.imag, b.imag, any_zero)
    if a.dtype.kind != "f":
        return bool(a == b)
    if np.isnan(a) or np.isnan(b):
        return bool(np.isnan(a) and np.isnan(b))
    if np.isinf(a) or np.isinf(b) or a == 0 or b == 0:
        return bool(a == b and (any_zero or np.signbit(a) == np.signbit(b)))
    return bool(abs(a - b) <= 1e-5 * abs(b))
