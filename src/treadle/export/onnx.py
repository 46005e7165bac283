"""A module as an ONNX model: `to_onnx(module) -> onnx.ModelProto`, by the `onnx` rules of the ops.

The rules are given a `GraphWriter`. Calls are inlined; parameters of main become the inputs `x0, x1, ...`, its outputs
`y0, y1, ...`; nodes are named by the part of the model that they come from. Needs the package onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.base.arguments import brief
from treadle.base.dtypes import DType
from treadle.base.errors import UserError, internal_error
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.types import TensorType, Types

OPSET = 20
EXPAND = "expand"


class GraphWriter:
    """Collects the nodes of one ONNX graph. `types` and `out` are the types of the node being exported."""

    def __init__(self, module: Module) -> None:
        try:
            import onnx
        except ModuleNotFoundError:
            raise UserError("E0611", "the package onnx is not installed", fix="pip install onnx") from None
        self.onnx, self.module = onnx, module
        self.types: Types = ()
        self.out: Types = ()
        self.nodes: list[Any] = []
        self._count = 0
        self.constants: dict[str, Any] = {}
        self._path = ""
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The name of the node's output, a tuple of names when `outputs` > 1. An input "" is left out.

        attributes: as in the ONNX operator's description; an element type or a NumPy array may be given as such.
        """
        number = self._number()
        names = [f"v{number}" if outputs == 1 else f"v{number}_{i}" for i in range(outputs)]
        made = self.onnx.helper.make_node(op_type, list(inputs), names, f"{self._path}#{number}")
        made.attribute.extend([self._attribute(k, v) for k, v in attributes.items() if v is not None])
        self.nodes.append(made)
        return names[0] if outputs == 1 else tuple(names)

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    def graph(self, inputs: Types, outputs: Types, build: Callable[..., Sequence[str]]) -> Any:
        """A graph that is an attribute: a branch, or the body of a loop. `build` gets the names of its inputs, gives
        those of its outputs, and may use every name that is known around it."""
        number, around, self.nodes = self._number(), self.nodes, []
        names = [f"g{number}_x{i}" for i in range(len(inputs))]
        ends = [f"g{number}_y{i}" for i in range(len(outputs))]
        for result, end in zip(build(*names), ends, strict=True):
            self.nodes.append(self.onnx.helper.make_node("Identity", [result], [end], end))
        nodes, self.nodes = self.nodes, around
        values = [[self.value(*v) for v in zip(n, t, strict=True)] for n, t in ((names, inputs), (ends, outputs))]
        return self.onnx.helper.make_graph(nodes, f"{self._path}#g{number}", *values)

    def const(self, array: Any) -> str:
        """The name of a constant; equal ones are kept once."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self._known:
            name = self._known[key] = f"c{len(self.constants)}"
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return self._known[key]

    def element(self, dtype: DType) -> int:
        """ONNX's number of an element type."""
        number: int = self.onnx.helper.np_dtype_to_tensor_dtype(dtype.np)
        return number

    def inline(self, fn: Fn | str, *names: str) -> tuple[str, ...]:
        """Names of the outputs of an IR function, or of one of the module's that is named, exported in place."""
        fn = self.module.fns[fn] if isinstance(fn, str) else fn
        env: dict[Value, str] = dict(zip(fn.params, names, strict=True))
        for node in fn.nodes:
            results = self._export(node, [env[v] for v in node.inputs])
            env.update(zip(node.outputs, results, strict=True))
        return tuple([env[v] for v in fn.outputs])

    def value(self, name: str, type: TensorType) -> Any:
        """The description of a graph input or output."""
        return self.onnx.helper.make_tensor_value_info(name, self.element(type.dtype), type.shape)

    def _attribute(self, name: str, value: Any) -> Any:
        if isinstance(value, DType):
            value = self.element(value)
        elif isinstance(value, np.ndarray):
            value = self.onnx.numpy_helper.from_array(value)
        elif isinstance(value, tuple | list):
            value = list(value)
        kind = self.onnx.AttributeProto.INTS if value == [] else None
        return self.onnx.helper.make_attribute(name, value, attr_type=kind)

    def _export(self, node: Node, names: Sequence[str]) -> tuple[str, ...]:
        outer = self.types, self.out, self._path
        self.types, self.out = tuple([v.type for v in node.inputs]), tuple([v.type for v in node.outputs])
        self._path = f"{node.where.scope or self._path}/{node.op.name}"
        results = self._by_rule(node, names)
        self.types, self.out, self._path = outer
        if len(results) != len(node.outputs):
            internal_error(f"the onnx rule of {node.op.name} gave {len(results)} results, not {len(node.outputs)}")
        return results

    def _by_rule(self, node: Node, names: Sequence[str]) -> tuple[str, ...]:
        rule = node.op.rule("onnx")
        if rule == EXPAND:
            return self.inline(expansion(node.op, self.types, node.attrs), *names)
        if isinstance(rule, str):
            if node.attrs:
                internal_error(f"the onnx rule {rule!r} of {node.op.name} says nothing of {', '.join(node.attrs)}")
            results = self.node(rule, *names, outputs=len(node.outputs))
        elif "callee" in node.attrs:
            results = self.inline(node.attrs["callee"], *names)
        elif not rule:
            why = f"{node.op.name} has no ONNX form: {rule.reason}"
            raise UserError("E0610", why, fix="export the part of the model without it", where=node.where)
        else:
            results = rule(self, *names, **node.attrs)
        return results if isinstance(results, tuple) else (results,)


def to_onnx(module: Module, name: str = "treadle") -> Any:
    """The ONNX model (opset 20), checked. name: of its graph.

    Raises E0610 for an op without an ONNX form, E0611 without the package onnx, E0612 when an ONNX operator does not
    take the element type.
    """
    if not isinstance(module, Module):
        raise UserError("E0103", f"the module is {brief(module)}", fix="pass td.trace_module(function, *args)")
    writer = GraphWriter(module)
    main, helper = module.main, writer.onnx.helper
    inputs = [f"x{i}" for i in range(len(main.params))]
    outputs = [f"y{i}" for i in range(len(main.outputs))]
    for result, output in zip(writer.inline(main, *inputs), outputs, strict=True):
        writer.nodes.append(helper.make_node("Identity", [result], [output], output))
    graph = helper.make_graph(
        writer.nodes,
        name,
        [writer.value(n, t) for n, t in zip(inputs, main.in_types, strict=True)],
        [writer.value(n, t) for n, t in zip(outputs, main.out_types, strict=True)],
        list(writer.constants.values()),
    )
    opsets = [helper.make_opsetid("", OPSET)]
    version = helper.find_min_ir_version_for(opsets)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="treadle")
    try:
        writer.onnx.checker.check_model(model, full_check=True)
    except writer.onnx.shape_inference.InferenceError as error:
        if "unsupported type" not in str(error):
            internal_error(f"the ONNX model is not valid: {error}", model=str(model))
        raise UserError("E0612", f"ONNX refuses: {error}", fix="cast to float32 before the operation") from None
    return model
