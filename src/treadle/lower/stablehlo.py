"""`lower_module(module, context)` gives a verified MLIR module of StableHLO; `to_text` prints it.

`main` becomes the public function @main, the functions that it calls become private ones. Operations carry the user's
position: the name `scope/op` over `file:line`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.base import events
from treadle.base.errors import UserError, internal_error
from treadle.ir.node import Fn, Module
from treadle.ir.printer import print_module
from treadle.ir.walk import all_nodes, callees
from treadle.lower.builder import Called, HloBuilder, Kernels, Region
from treadle.lower.ordering import ordered

Donations = Sequence[int] | Mapping[int, int | None]


def lower_module(
    module: Module,
    context: Any,
    *,
    donate: Donations = (),
    name: str = "main",
    lapack: bool = True,
    platform: str = "cpu",
    hosts: list[Called] | None = None,
    kernels: Kernels | None = None,
) -> Any:
    """The MLIR module. context: an MLIR context with the stablehlo, chlo and func dialects; name: of the module.

    donate: parameters of main whose memory the program may take; a mapping also says for which output (None: any).
    lapack: whether the program may call LAPACK, which CPUs have; else linear algebra is made of plain operations.
    hosts: receives the Python functions that the program calls (see HloBuilder); if one acts, main has a token more
    (lower/ordering.py).
    kernels: gives the kernel that computes a group of nodes, or what is to be lowered in its place.
    Raises E0411 when functions call each other in a circle, E0412 for an op that cannot be compiled; InternalError,
    with the user's line, when a rule gives illegal StableHLO.
    """
    start = time.perf_counter()
    module = ordered(module)
    order = _reachable(module)
    with context:
        builder = HloBuilder(context, module.fns, lapack, platform, kernels)
        made = builder.ir.Module.create(builder.loc)
        made.operation.attributes["sym_name"] = builder.ir.StringAttr.get(name)
        into = builder.ir.InsertionPoint(made.body)
        for each in order:
            if each == "main":
                attributes, ending = _argument_attributes(module.main, donate), frozenset(donate)
            else:  # its callers come before it
                attributes, ending = [], builder.called.get(each, frozenset())
            _function(builder, into, each, module.fns[each], attributes, ending)
        _verify(builder, made, module)
    if hosts is not None:
        hosts += builder.hosts
    events.record("lower", "stablehlo", time.perf_counter() - start, module=name, functions=len(order))
    return made


def to_text(mlir_module: Any, debug: bool = False) -> str:
    """The text of an MLIR module; with `debug` the positions too."""
    text: str = mlir_module.operation.get_asm(enable_debug_info=debug)
    return text


def _function(
    builder: HloBuilder, into: Any, name: str, fn: Fn, attributes: Sequence[str], ending: frozenset[int]
) -> None:
    """Append one function. ending: arguments that nobody needs after it."""
    ir = builder.ir
    ins, outs = [builder.type(t) for t in fn.in_types], [builder.type(t) for t in fn.out_types]
    head = {
        "sym_name": ir.StringAttr.get(name),
        "sym_visibility": ir.StringAttr.get("public" if name == "main" else "private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(ins, outs)),
    }
    if any(attributes):
        head["arg_attrs"] = ir.ArrayAttr.get([ir.Attribute.parse(f"{{{a}}}") for a in attributes])
    made = ir.Operation.create("func.func", attributes=head, regions=1, loc=builder.loc, ip=into)
    body = Region(fn.in_types, lambda b, *args: b.inline(fn, *args, ending=ending))
    builder.fill(made.regions[0], body, "func.return")


def _argument_attributes(main: Fn, donate: Donations) -> list[str]:
    """For each parameter of main the text of its attributes: how its memory may be reused."""
    targets = donate if isinstance(donate, Mapping) else dict.fromkeys(donate)
    texts = [""] * len(main.params)
    for index, output in targets.items():
        if output is not None and main.in_types[index] != main.out_types[output]:
            internal_error(f"parameter {index}, {main.in_types[index]}, cannot become output {output}", main=str(main))
        texts[index] = "jax.buffer_donor = true" if output is None else f"tf.aliasing_output = {output} : i32"
    return texts


def _reachable(module: Module) -> list[str]:
    """main and the functions that it calls, directly or not. Raises E0411 for a circle of calls."""
    order: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            where = next(n.where for n in all_nodes(module.fns[path[-1]]) if n.attrs.get("callee") == name)
            why = f"the functions call each other in a circle: {circle}"
            raise UserError("E0411", why, fix="write the recursion as a while loop", where=where)
        if name in order:
            return
        path.append(name)
        for each in sorted(callees(module.fns[name])):
            visit(each)
        order.append(name)
        path.pop()

    visit("main")
    return order[::-1]


def _verify(builder: HloBuilder, made: Any, module: Module) -> None:
    try:
        made.operation.verify()
    except builder.ir.MLIRError as error:
        places = [builder.positions.get(str(d.location)) for d in error.error_diagnostics]
        where = ", ".join(str(p) for p in places if p is not None) or "an unknown line"
        text = made.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
        internal_error(f"illegal StableHLO from {where}: {error}", ir=print_module(module), hlo=text)
