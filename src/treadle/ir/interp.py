"""The meaning of the IR: run a module with NumPy arrays, one node after the other, by the ops' reference rules.

Ops without a `ref` rule are run by their expansion. Region ops get `run(fn, *arrays)` to run their bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from treadle.base import where
from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.node import Attrs, Fn, Module, Node, Value, attr_key
from treadle.ir.types import TensorType, Types, type_of

Array = np.ndarray[Any, Any]
_MAX_DEPTH = 200


def run(module: Module | Fn, *arrays: Any) -> tuple[Array, ...]:
    """The outputs of main. Raises E0104 when the arguments are not of the parameters' types."""
    if isinstance(module, Fn):
        module = Module({module.name: module, "main": module})
    fn = module.main
    found = tuple([type_of(np.asarray(a)) for a in arrays])
    if found != fn.in_types:
        raise UserError("E0104", f"{fn.name} takes {fn.in_types}, got {found}", fix="pass arrays of these types")
    return run_fn(fn, module.fns, *arrays)


def run_fn(fn: Fn, fns: Mapping[str, Fn], *arrays: Any, depth: int = 0) -> tuple[Array, ...]:
    """The outputs of `fn`; `fns` are the functions that its calls name."""
    if depth > _MAX_DEPTH:
        raise UserError("E0301", f"{fn.name} calls itself more than {_MAX_DEPTH} deep", fix="write it as a loop")
    env: dict[Value, Array] = dict(zip(fn.params, [np.asarray(a) for a in arrays], strict=True))
    for node in fn.nodes:
        results = run_node(node, [env[v] for v in node.inputs], fns, depth)
        env.update(zip(node.outputs, results, strict=True))
    return tuple([env[o] for o in fn.outputs])


def run_node(node: Node, arrays: Sequence[Array], fns: Mapping[str, Fn], depth: int = 0) -> list[Array]:
    """The results of one node, with exactly the types that the node declares."""
    ref = node.op.rules.get("ref")
    if node.op.has_regions:

        def run_region(region: Fn | str, *args: Any) -> tuple[Array, ...]:
            return run_fn(fns[region] if isinstance(region, str) else region, fns, *args, depth=depth + 1)

        results = ref(run_region, *arrays, **node.attrs)
    elif ref is not None:
        with np.errstate(all="ignore"):
            results = ref(*arrays, **node.attrs)
    else:
        types = tuple([v.type for v in node.inputs])
        results = run_fn(expansion(node.op, types, node.attrs), fns, *arrays, depth=depth)
    if not isinstance(results, tuple):
        results = (results,)
    return [_typed(r, out.type) for r, out in zip(results, node.outputs, strict=True)]


def _typed(result: Any, type: TensorType) -> Array:
    array = np.asarray(result)
    if array.shape != type.shape:
        raise AssertionError(f"the reference gave shape {array.shape}, the type rule {type}")
    return array if array.dtype == type.dtype.np else array.astype(type.dtype.np)


class _Key:
    """A hashable (op, types, attributes)."""

    __slots__ = ("attrs", "key", "op", "types")

    def __init__(self, op: Any, types: Types, attrs: Attrs) -> None:
        self.op, self.types, self.attrs = op, types, attrs
        self.key = (op.name, types, tuple([(k, attr_key(v)) for k, v in sorted(attrs.items())]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def expansion(op: Any, types: Types, attrs: Attrs) -> Fn:
    """The op written in other ops, as a function of its inputs. Raises E0302 when the op has no expansion."""
    return _expansion(_Key(op, types, attrs))


@lru_cache(maxsize=4096)
def _expansion(key: _Key) -> Fn:
    expand = key.op.rules.get("expand")
    if not expand:
        raise UserError("E0302", f"{key.op.name} has neither a reference nor an expansion", fix="declare one")
    with where.at(where.UNKNOWN):
        return build.trace(lambda *values: expand(*values, **key.attrs), key.types, key.op.name)
