"""Is this legal IR? `verify(module)` raises `InternalError` naming the function, the node and the fault.

Checked: every value is defined before it is used, once, in the same function; types of results are what the op's type
rule gives; regions see only their parameters; `call` names a function of the module with the same types.
"""

from __future__ import annotations

from typing import NoReturn

from treadle.base.errors import UserError, internal_error
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.printer import print_fn


def verify(module: Module) -> Module:
    """The module itself, if it is legal."""
    for name, fn in module.fns.items():
        if name != fn.name:
            internal_error(f"function {fn.name!r} is in the module as {name!r}")
        verify_fn(fn, module)
    return module


def verify_fn(fn: Fn, module: Module | None = None) -> Fn:
    """The function itself, if it is legal; calls are checked when the module is given."""
    seen: set[Value] = set(fn.params)
    if len(seen) != len(fn.params):
        internal_error(f"{fn.name}: a parameter is there twice")
    for node in fn.nodes:
        for value in node.inputs:
            if value not in seen:
                _fail(fn, node, f"input {value!r} is not defined before it is used")
        _check_types(fn, node)
        for name, region in node.regions():
            verify_fn(region, module)
            if region is fn:
                _fail(fn, node, f"region {name} contains itself")
        callee = node.attrs.get("callee")
        if callee is not None and module is not None:
            _check_call(fn, node, module, callee)
        for out in node.outputs:
            if out in seen or out.node is not node:
                _fail(fn, node, "a result is defined twice")
            seen.add(out)
    for out in fn.outputs:
        if out not in seen:
            internal_error(f"{fn.name}: output {out!r} is not defined in it", ir=print_fn(fn) if out in seen else "")
    return fn


def _check_types(fn: Fn, node: Node) -> None:
    try:
        types = node.op.rules["type"](*[v.type for v in node.inputs], **node.attrs)
    except UserError as error:
        _fail(fn, node, str(error))
    types = types if isinstance(types, tuple) else (types,)
    found = tuple([o.type for o in node.outputs])
    if types != found:
        _fail(fn, node, f"results are {found}, the type rule gives {types}")


def _check_call(fn: Fn, node: Node, module: Module, callee: str) -> None:
    target = module.fns.get(callee)
    if target is None:
        _fail(fn, node, f"the module has no function {callee!r}")
    if target.in_types != tuple([v.type for v in node.inputs]):
        _fail(fn, node, f"{callee} takes {target.in_types}")
    if target.out_types != tuple([o.type for o in node.outputs]):
        _fail(fn, node, f"{callee} returns {target.out_types}")


def _fail(fn: Fn, node: Node, why: str) -> NoReturn:
    internal_error(f"illegal IR in {fn.name}, {node.op.name} ({node.where}): {why}")
