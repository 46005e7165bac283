"""Looking for NaN (and infinities): `check` judges the results of one op, `found` those of a whole program.

Arrays of the device or of NumPy go in; nothing comes out, or E0415 is raised with the op, the counts and the ranges of
the operands. `locate` runs a function node by node on NumPy arrays, bodies of loops and branches too, until a node's
results are bad. `flags.debug_nans` is 1 for NaN, 2 for infinities too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from treadle.base import where
from treadle.base.errors import UserError
from treadle.base.flags import flags
from treadle.ir import interp
from treadle.ir.node import Fn, Node
from treadle.ir.op import Op
from treadle.ir.types import type_of
from treadle.runtime import pjrt

Array = np.ndarray[Any, Any]


def check(op: Op, operands: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise E0415 when a result of the op has NaN (or infinities). An op without operands may make them: it says so.

    operands: arrays and Python numbers.
    """
    if any(hasattr(a, "dtype") for a in operands) and (bad := found(results)):
        arrays = [_on_host(a) if hasattr(a, "dtype") else np.asarray(a) for a in operands]
        _refuse(op, arrays, _on_host(results[bad[0]]))


def found(arrays: Sequence[Any]) -> list[int]:
    """The places of the arrays with NaN (or infinities)."""
    return [i for i, a in enumerate(arrays) if _is_inexact(a) and _is_bad(_on_host(a))]


def locate(fn: Fn, fns: Mapping[str, Fn], arrays: Sequence[Any]) -> list[Array]:
    """The outputs of `fn`, run node by node by the ops' references. Raises E0415 at the first node with bad results."""
    env = dict(zip(fn.params, map(_on_host, arrays), strict=True))
    for node in fn.nodes:
        operands = [env[v] for v in node.inputs]
        results = _run_node(node, operands, fns)
        with where.at(node.where):
            check(node.op, operands, results)
        env.update(zip(node.outputs, results, strict=True))
    return [env[o] for o in fn.outputs]


def _run_node(node: Node, operands: Sequence[Array], fns: Mapping[str, Fn]) -> Sequence[Array]:
    if not node.op.has_regions:
        return interp.run_node(node, operands, fns)

    def run_body(body: Fn | str, *args: Any) -> tuple[Array, ...]:
        return tuple(locate(fns[body] if isinstance(body, str) else body, fns, args))

    results = node.op.rules["ref"](run_body, *operands, **node.attrs)
    return results if isinstance(results, tuple) else (results,)


def refuse_unlocated(name: str, results: Sequence[Any]) -> NoReturn:
    """Raise E0415 for a compiled program whose bad results do not come back when it is run op by op."""
    place = found(results)[0]
    why = f"{name}: {_counts(_on_host(results[place]))} of its result {place}, but not when it is run op by op"
    raise UserError("E0415", why, fix="the compiled program rounds in another order: look for numbers near overflow")


def _refuse(op: Op, operands: Sequence[Array], result: Array) -> NoReturn:
    names = op.params if op.arity == len(operands) else [f"operand {i}" for i in range(len(operands))]
    ranges = "; ".join(f"{name} is {_range(a)}" for name, a in zip(names, operands, strict=False))
    held = any(_is_inexact(a) and _is_bad(a) for a in operands)
    fix = "look for where the operand comes from" if held else "keep the operands where the result is a number"
    why = f"{op.name}: {_counts(result)} of the result {type_of(result)}; {ranges}"
    raise UserError("E0415", why, fix=f"{fix}; td.debug_nans(False) goes on")


def _range(array: Array) -> str:
    """The type and the range of the finite elements, and what is not finite."""
    if array.size == 0:
        return f"{type_of(array)}"
    if not _is_inexact(array) or array.dtype.kind == "c":
        wide = np.abs(array) if array.dtype.kind == "c" else array
    else:
        wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)] if _is_inexact(array) else wide
    text = f"{type_of(array)} from {finite.min():.6g} to {finite.max():.6g}" if finite.size else f"{type_of(array)}"
    return f"{text} with {_counts(array)}" if _is_inexact(array) and not np.isfinite(wide).all() else text


def _counts(array: Array) -> str:
    """How many elements are NaN and infinite, in words."""
    wide = array if array.dtype.kind == "c" else array.astype(np.float64)
    counts = {"NaN": int(np.isnan(wide).sum()), "infinite": int(np.isinf(wide).sum())}
    return " and ".join(f"{n} {what}" for what, n in counts.items() if n) + f" among {array.size} elements"


def _is_inexact(array: Any) -> bool:
    return bool(array.dtype.kind in "fcV")  # V: bfloat16


def _is_bad(array: Array) -> bool:
    return not bool(np.isfinite(array).all()) if flags.debug_nans > 1 else bool(np.isnan(array).any())


def _on_host(array: Any) -> Array:
    return np.asarray(array) if isinstance(array, np.ndarray | np.generic) else pjrt.to_numpy(array, copy=False)
