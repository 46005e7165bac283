"""The builder that the ops' `hlo` rules write StableHLO with: MLIR values in, MLIR values out.

`HloBuilder(context, fns)` belongs to one lowering; `inline(fn, *operands)` lowers an IR function at the current place.
Operations are made in their generic form, with result types given and nothing verified before the end: of the ways that
MLIR's Python bindings offer, this one is the fastest. Types, attributes and positions are made once per lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import InternalError, UserError, internal_error
from treadle.base.where import UNKNOWN, Where
from treadle.ir.host import Host
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Node, Value
from treadle.ir.printer import print_attr
from treadle.ir.types import TensorType, Types
from treadle.lower.lifetimes import Lifetimes
from treadle.ops import _precision

Operand = Any
Called = tuple[Host, Types | None]


class Target(NamedTuple):
    """A kernel as a program calls it: its name, bytes of scratch that it wants, (output, operand) that share memory."""

    name: str
    workspace: int = 0
    aliases: tuple[tuple[int, int], ...] = ()


Kernels = Callable[[Fn, str], Target | Fn]
_SUMS = ("add", "multiply")
_LEVELS = {"highest": "HIGHEST", "high": "HIGH", "medium": "DEFAULT"}
# jaxlib's custom calls that run a Python function.
_PYTHON = {
    "cpu": "xla_ffi_python_cpu_callback",
    **dict.fromkeys(("gpu", "cuda", "rocm"), "xla_ffi_python_gpu_callback"),
}


class Region(NamedTuple):
    """The body of an operation: types of its arguments, and the function that builds it."""

    types: Types
    build: Callable[..., Any]


class HloBuilder:
    """Appends operations to the current block. `types` and `out` are the types of the node being lowered.

    lapack: the device has LAPACK's custom calls; ops whose rules want them are expanded where it has not.
    hosts: the Python functions that the program calls, by the number that its custom calls have for them, each with the
    types of its results, None for one that acts (and has the token for its first operand and its result).
    kernels: the kernel of a group of nodes, or a function to be lowered node by node in its place.
    """

    def __init__(
        self,
        context: Any,
        fns: Mapping[str, Fn],
        lapack: bool = True,
        platform: str = "cpu",
        kernels: Kernels | None = None,
    ) -> None:
        from jax.extend.mlir import ir

        self.ir, self.context, self.fns, self.lapack, self.platform = ir, context, fns, lapack, platform
        self.hosts: list[Called] = []
        self.kernels = kernels
        self.called: dict[str, frozenset[int]] = {}  # of functions: arguments that no caller needs afterwards
        self.types: Types = ()
        self.out: Types = ()
        self.ending: frozenset[int] = frozenset()  # operands of the node being lowered that nobody needs after it
        self.ip: Any = None
        self.loc = ir.Location.unknown(context)
        self._inside: tuple[Where, str] | None = None
        self._create = ir.Operation.create
        self._types: dict[TensorType, Any] = {}
        self._parsed: dict[Any, Any] = {}
        self._locations: dict[tuple[Where, str], Any] = {}
        self.positions: dict[str, Where] = {}

    # --- operations ---------------------------------------------------------------------------------------------------

    def op(
        self, name: str, *operands: Operand, types: Any = None, regions: Sequence[Region] = (), **attributes: Any
    ) -> Any:
        """The result of an operation, a tuple when it has several. name: without "stablehlo.", else with its dialect.

        types: of the results, one or several; left out: those of the node. attributes: see `attribute`.
        """
        wanted = self.out if types is None else (types,) if isinstance(types, TensorType) else types
        made = self._create(
            name if "." in name else f"stablehlo.{name}",
            [self.type(t) for t in wanted],
            operands,
            {k: self.attribute(v) for k, v in attributes.items()},
            regions=len(regions),
            loc=self.loc,
            ip=self.ip,
        )
        for place, region in zip(made.regions, regions):
            self.fill(place, region, "stablehlo.return")
        return made.result if len(wanted) == 1 else tuple(made.results)

    def region(self, arg_types: Sequence[TensorType], build: Callable[..., Any]) -> Region:
        """A body for `regions=`: `build(b, *args)` gives the operand or operands that it returns."""
        return Region(tuple(arg_types), build)

    def fill(self, place: Any, region: Region, end: str) -> None:
        """Build the block of an operation's body, closed by the operation `end`."""
        arguments = [self.type(t) for t in region.types]
        block = place.blocks.append(*arguments, arg_locs=[self.loc] * len(arguments))
        outer = self.ip, self.types, self.out, self.loc
        self.ip = self.ir.InsertionPoint(block)
        results = region.build(self, *block.arguments)
        results = tuple(results) if isinstance(results, tuple | list) else (results,)
        inner = self.ip
        self.ip, self.types, self.out, self.loc = outer
        self._create(end, [], results, loc=self.loc, ip=inner)

    def call(
        self, callee: str, operands: Sequence[Operand], types: Types, ending: Collection[int] | None = None
    ) -> tuple[Operand, ...]:
        """The results of another function of the module. ending: see `inline`; left out: as of the node's operands."""
        ends = self.ending if ending is None else frozenset(ending)
        self.called[callee] = self.called.get(callee, ends) & ends
        symbol = self.ir.FlatSymbolRefAttr.get(callee, self.context)
        results = [self.type(t) for t in types]
        made = self._create("func.call", results, list(operands), {"callee": symbol}, loc=self.loc, ip=self.ip)
        return tuple(made.results)

    def call_host(self, host: Host, operands: Sequence[Operand], acts: bool) -> Any:
        """The results of a Python function, whose types are those of the node; acts: it takes and gives a token. Raises
        E0412 where the platform cannot call Python."""
        target = _PYTHON.get(self.platform)
        if target is None:
            why = f"{host.name} calls Python, which a program on {self.platform} cannot"
            raise UserError("E0412", why, fix="run this part on the CPU: TREADLE_PLATFORM=cpu")
        called = host, None if acts else self.out
        if called not in self.hosts:
            self.hosts.append(called)
        return self.op(
            "custom_call",
            *operands,
            call_target_name=f'"{target}"',
            api_version="4 : i32",
            has_side_effect=acts,
            backend_config=f"{{index = {self.hosts.index(called)} : ui64}}",
        )

    def kernel(self, body: Fn, operands: Sequence[Operand], panels: str = "") -> tuple[Operand, ...]:
        """The results of a group of nodes: by a kernel where there is one. panels: the one that takes a last operand
        which is not the body's."""
        target = self.kernels(body, panels) if self.kernels is not None else body
        if isinstance(target, Fn):
            if panels and len(operands) == len(body.params):
                internal_error(f"a group needs the kernel {panels}, which is gone", body=str(body))
            own = [i for i in self.ending if i < len(body.params)]
            return self.inline(target, *operands[: len(body.params)], ending=own)
        types = list(body.out_types)
        if target.workspace:
            types.append(TensorType(dtypes.uint8, (target.workspace,)))
        attributes: dict[str, Any] = {
            "call_target_name": f'"{target.name}"',
            "api_version": "4 : i32",
            "backend_config": "{}",
            "operand_layouts": tuple([_row_major(t) for t in self.types]),
            "result_layouts": tuple([_row_major(t) for t in types]),
        }
        aliases = [pair for pair in target.aliases if pair[1] in self.ending]
        if aliases:
            alone = len(types) == 1
            attributes["output_operand_aliases"] = tuple(
                [
                    f"#stablehlo.output_operand_alias<output_tuple_indices = [{'' if alone else out}], "
                    f"operand_index = {operand}, operand_tuple_indices = []>"
                    for out, operand in aliases
                ]
            )
        made = self.op("custom_call", *operands, types=tuple(types), **attributes)
        return (made,) if len(types) == 1 else tuple(made[: len(body.out_types)])

    # --- what many rules need -----------------------------------------------------------------------------------------

    def constant(self, array: np.ndarray[Any, Any]) -> Operand:
        """A tensor with the elements of a NumPy array."""
        type = TensorType(dtypes.of(array.dtype), array.shape)
        return self._constant(np.ascontiguousarray(array).reshape(array.shape), type)

    def splat(self, value: complex, type: TensorType) -> Operand:
        """A tensor filled with one number."""
        return self._constant(np.full((), value, type.dtype.np), type)

    def _constant(self, array: np.ndarray[Any, Any], type: TensorType) -> Operand:
        if type.dtype is dtypes.bfloat16:
            array = array.view(np.uint16)
        element = self.type(type).element_type
        dense = self.ir.DenseElementsAttr.get(array, type=element, shape=type.shape, context=self.context)
        return self.op("constant", types=type, value=dense)

    def convert(self, x: Operand, from_type: TensorType, to_type: TensorType) -> Operand:
        """x with other elements: floats to integers toward zero, anything to bool is `!= 0` (NaN is true)."""
        if from_type.dtype is to_type.dtype:
            return x
        if to_type.dtype is not dtypes.bool_:
            return self.op("convert", x, types=to_type)
        zero = self.splat(0, from_type)
        return self.op("compare", x, zero, types=to_type, comparison_direction="#stablehlo<comparison_direction NE>")

    def broadcast(self, x: Operand, from_type: TensorType, to_type: TensorType) -> Operand:
        """x broadcast as NumPy does: new leading axes, and axes of size 1 repeated."""
        skip = to_type.rank - from_type.rank
        return self.broadcast_in_dim(x, tuple(range(skip, to_type.rank)), to_type)

    def broadcast_in_dim(self, x: Operand, dims: tuple[int, ...], to_type: TensorType) -> Operand:
        """x with its axis i as axis dims[i] of the result, repeated along the others."""
        return self.op("broadcast_in_dim", x, types=to_type, broadcast_dimensions=dims)

    def reduce(self, kind: str, x: Operand, x_type: TensorType, axes: tuple[int, ...], init: complex) -> Operand:
        """x reduced over axes by add, multiply, maximum, minimum, and, or. Sums and products of 16-bit floats are kept
        in float32 and rounded at the end."""
        narrow = x_type.dtype.is_float and x_type.dtype.bits == 16 and kind in _SUMS
        work = x_type.with_dtype(dtypes.float32) if narrow else x_type
        kept = tuple([n for i, n in enumerate(x_type.shape) if i not in axes])
        scalar = work.with_shape(())
        result = self.op(
            "reduce",
            self.convert(x, x_type, work),
            self.splat(init, scalar),
            types=work.with_shape(kept),
            regions=(self.region((scalar, scalar), lambda b, p, q: b.op(kind, p, q, types=scalar)),),
            dimensions=tuple(axes),
        )
        return self.convert(result, work.with_shape(kept), x_type.with_shape(kept))

    def dot_general(
        self,
        x: Operand,
        y: Operand,
        batch: tuple[tuple[int, ...], tuple[int, ...]],
        contract: tuple[tuple[int, ...], tuple[int, ...]],
        types: TensorType | None = None,
    ) -> Operand:
        """Batched contraction; 16-bit floats accumulate in float32. types: the result's, left out: the node's."""
        out = self.out[0] if types is None else types
        wide = out.with_dtype(dtypes.float32) if out.dtype.is_float and out.dtype.bits == 16 else out
        numbers = (
            f"#stablehlo.dot<lhs_batching_dimensions = {list(batch[0])}, rhs_batching_dimensions = {list(batch[1])}, "
            f"lhs_contracting_dimensions = {list(contract[0])}, rhs_contracting_dimensions = {list(contract[1])}>"
        )
        if out.dtype is dtypes.float32 and self.platform == "cpu" and _precision.running() == "medium":
            x, y = self._as_bfloat16(x), self._as_bfloat16(y)  # they are rounded already
        made = self.op("dot_general", x, y, types=wide, dot_dimension_numbers=numbers, **self.precision(out.dtype))
        return self.convert(made, wide, out)

    def _as_bfloat16(self, x: Operand) -> Operand:
        return self.op("convert", x, types=TensorType(dtypes.bfloat16, tuple(x.type.shape)))

    def precision(self, dtype: DType) -> dict[str, Any]:
        """Attributes of a product or convolution of such elements: float32 is computed as float32, also by GPUs and
        TPUs, which would take fewer digits (TF32, bfloat16) to be faster, unless the node's `precision` allows it. CPUs
        compute the same either way."""
        if dtype not in (dtypes.float32, dtypes.complex64):
            return {}
        level = _LEVELS[_precision.running()] if dtype is dtypes.float32 else "HIGHEST"
        return {"precision_config": (f"#stablehlo<precision {level}>",) * 2}

    # --- nodes --------------------------------------------------------------------------------------------------------

    def inline(self, fn: Fn | str, *operands: Operand, ending: Collection[int] | None = None) -> tuple[Operand, ...]:
        """The outputs of an IR function lowered in place; of one that is named, called.

        ending: operands that nobody else needs (see lifetimes.py); left out: the arguments of a loop's body.
        """
        if ending is None:
            block = self.ip.block
            inside = block.owner.name != "func.func"
            ending = [i for i, operand in enumerate(operands) if inside and operand.owner == block]
        if isinstance(fn, str):
            return self.call(fn, operands, self.fns[fn].out_types, ending)
        env: dict[Value, Operand] = dict(zip(fn.params, operands, strict=True))
        outer = self.types, self.out, self.loc, self.ending
        lifetimes = Lifetimes(fn, ending) if self.kernels is not None else None
        for node in fn.nodes:
            self.ending = lifetimes.ending_at(node) if lifetimes is not None else frozenset()
            results = self.node(node, [env[v] for v in node.inputs])
            env.update(zip(node.outputs, results, strict=True))
        self.types, self.out, self.loc, self.ending = outer
        return tuple([env[v] for v in fn.outputs])

    def node(self, node: Node, operands: Sequence[Operand]) -> Sequence[Operand]:
        """The results of one node: by the op's `hlo` rule; without one, or where it gives NotImplemented, by its
        expansion."""
        self.types, self.out = tuple([v.type for v in node.inputs]), tuple([v.type for v in node.outputs])
        self.loc = self._location(node)
        rule = node.op.rules.get("hlo")
        wanted = [self.type(t) for t in self.out]
        if isinstance(rule, str):
            name = rule if "." in rule else f"stablehlo.{rule}"
            made: Sequence[Operand] = self._create(name, wanted, operands, loc=self.loc, ip=self.ip).results
            return made
        out = self.out
        try:
            results: Any = rule(self, *operands, **node.attrs) if rule else NotImplemented
            results = self._expanded(node, operands) if results is NotImplemented else results
        except (UserError, InternalError):
            raise
        except Exception as error:
            _fail(node, f"{type(error).__name__}: {error}", error)
        found: tuple[Operand, ...] = results if isinstance(results, tuple) else (results,)
        if [r.type for r in found] != wanted:
            _fail(node, f"its hlo rule gives {[str(r.type) for r in found]}, not {[str(t) for t in out]}")
        return found

    def _expanded(self, node: Node, operands: Sequence[Operand]) -> tuple[Operand, ...]:
        """The node's expansion in its place; all that it consists of has the node's position."""
        if not node.op.rules.get("expand"):
            why = f"{node.op.name} cannot be compiled: {node.op.rule('hlo').reason}"
            raise UserError("E0412", why, fix="run it eagerly", where=node.where)
        body = expansion(node.op, self.types, node.attrs)
        outer = self._inside
        where, path = outer or (node.where, node.where.scope)
        self._inside = where, f"{path}/{node.op.name}" if path else node.op.name
        results = self.inline(body, *operands, ending=self.ending)
        self._inside = outer
        return results

    def _location(self, node: Node) -> Any:
        where, path = self._inside or (node.where, node.where.scope)
        key = where, f"{path}/{node.op.name}" if path else node.op.name
        found = self._locations.get(key)
        if found is None:
            file = None if where is UNKNOWN else self.ir.Location.file(where.file, where.line, 0, self.context)
            found = self.ir.Location.name(key[1], file, self.context)
            self._locations[key] = found
            self.positions[str(found)] = where
        return found

    # --- types and attributes -----------------------------------------------------------------------------------------

    def type(self, type: TensorType) -> Any:
        """The MLIR type."""
        found = self._types.get(type)
        if found is None:
            element = self._element(type.dtype)
            found = self._types[type] = self.ir.RankedTensorType.get(type.shape, element, loc=self.loc)
        return found

    def _element(self, dtype: DType) -> Any:
        ir, context = self.ir, self.context
        if dtype.kind == "f":
            return ir.BF16Type.get(context) if dtype is dtypes.bfloat16 else ir.Type.parse(f"f{dtype.bits}", context)
        if dtype.kind == "c":
            return ir.ComplexType.get(ir.Type.parse(f"f{dtype.bits // 2}", context))
        if dtype.kind == "u":
            return ir.IntegerType.get_unsigned(dtype.bits, context)
        return ir.IntegerType.get_signless(dtype.bits, context)

    def attribute(self, value: Any) -> Any:
        """The MLIR attribute of a Python value.

        bool, int (i64), float (f32), text in MLIR syntax, tuples of ints (array<i64>), of bools, of texts (a list), of
        tuples of ints (a tensor<RxCxi64>), or an MLIR attribute already.
        """
        if isinstance(value, self.ir.Attribute):
            return value
        if isinstance(value, float):  # not kept: 0.0 and -0.0 are the same key
            return self.ir.FloatAttr.get(self.ir.F32Type.get(self.context), value, self.loc)
        if not isinstance(value, bool | int | str | tuple):
            raise TypeError(f"{value!r} cannot be an MLIR attribute")
        key = type(value), value, tuple([type(v) for v in value]) if isinstance(value, tuple) else ()
        found = self._parsed.get(key)
        if found is None:
            found = self._parsed[key] = self._attribute(value)
        return found

    def _attribute(self, value: Any) -> Any:
        ir, context = self.ir, self.context
        if isinstance(value, bool):
            return ir.BoolAttr.get(value, context)
        if isinstance(value, int):
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)
        if isinstance(value, str):
            return ir.Attribute.parse(value, context)
        if value and all(isinstance(v, bool) for v in value):
            return ir.DenseBoolArrayAttr.get(value, context)
        if all(isinstance(v, int) for v in value):
            return ir.DenseI64ArrayAttr.get(value, context)
        if all(isinstance(v, str) for v in value):
            return ir.ArrayAttr.get([self.attribute(v) for v in value], context)
        rows = np.array([[*row] for row in value], np.int64)
        return ir.DenseElementsAttr.get(rows, type=ir.IntegerType.get_signless(64, context), context=context)


def _row_major(type: TensorType) -> str:
    """The layout of a dense array, last axis innermost, as MLIR writes it."""
    order = ", ".join(str(i) for i in reversed(range(type.rank)))
    return f"dense<{f'[{order}]' if type.rank else '[]'}> : tensor<{type.rank}xindex>"


def _fail(node: Node, why: str, cause: Exception | None = None) -> Any:
    """An internal error about a node."""
    inputs = ", ".join(str(v.type) for v in node.inputs)
    attrs = ", ".join(f"{k}={print_attr(v)}" for k, v in node.attrs.items())
    try:
        internal_error(f"lowering {node.op.name}({inputs}) at {node.where}: {why}", attributes=attrs)
    except InternalError as error:
        raise error from cause
