"""Where the stages meet: module -> passes -> StableHLO -> executable -> arrays. Also runs single ops for eager mode.

`compile_module(module)` gives an `Executable`; `run_fn(fn, tensors)` applies a function in the mode of the moment:
inlined into the trace that is running, or node by node at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from treadle.base import dtypes, text, where
from treadle.base.errors import show_only_users_frames
from treadle.base.flags import check_environment, flags
from treadle.frontend import tensor as tensors
from treadle.frontend import trace as tracing
from treadle.frontend.tensor import Tensor
from treadle.ir import build
from treadle.ir.node import Attrs, Fn, Module, Value, attr_key
from treadle.ir.op import Op
from treadle.ir.types import TensorType, Types
from treadle.ir.walk import all_nodes
from treadle.lower.stablehlo import lower_module, to_text
from treadle.ops._types import is_scalar
from treadle.runtime import pjrt
from treadle.runtime.executable import Executable
from treadle.transforms.pipeline import DEFAULT, Pipeline

_lock = threading.RLock()


def optimise(module: Module, passes: str = DEFAULT) -> Module:
    """The module after the passes named in the text."""
    return Pipeline.parse(passes).run(module)


def stablehlo(
    module: Module, donate: Mapping[int, int | None] | None = None, name: str = "main", debug: bool = False
) -> str:
    """The StableHLO text of a module."""
    with pjrt.mlir_context() as context:
        return to_text(lower_module(module, context, donate=donate or {}, name=name), debug)


def compile_module(
    module: Module, name: str = "main", donate: Mapping[int, int | None] | None = None, names: Sequence[str] = ()
) -> Executable:
    """Lower and compile; donate maps parameters whose memory may be taken to the output that takes it (None: any)."""
    main = module.main
    with pjrt.mlir_context() as context:
        lowered = lower_module(module, context, donate=donate or {}, name=_identifier(name))
        if flags.debug >= 4:
            print(to_text(lowered), file=sys.stderr)
        made = Executable(
            lowered, main.in_types, main.out_types, tuple(donate or ()), name=name, argument_names=tuple(names)
        )
    if flags.debug >= 1:
        kind = "loaded" if made.from_cache else "compiled"
        print(f"treadle: {kind} {name} in {text.seconds(made.compile_seconds)}, {made.memory()}", file=sys.stderr)
    if flags.debug >= 6:
        print(made.hlo_text(), file=sys.stderr)
    return made


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_." else "_" for c in name)


# ------------------------------------------------------------------------------------------------------------ eager
_programs: dict[Any, tuple[Executable, bool]] = {}


def run_op(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Run one op at once on tensors, arrays and Python numbers; the result is one tensor or a tuple of them."""
    values, key = _operands(op, args, attrs)
    found = _programs.get(key)
    if found is None:
        found = _op_program(op, values, attrs, key)
    program, single = found
    arrays = [_device(a, v) for a, v in zip(args, values, strict=True) if not is_scalar(v)]
    outputs = _execute(program, arrays, op.name)
    made = [Tensor._of(o) for o in outputs]
    return made[0] if single else tuple(made)


def _operands(op: Op, args: Sequence[Any], attrs: Attrs) -> tuple[list[Any], Any]:
    """Arrays of the arguments, and the key of the program.

    A Python number takes the type it has beside the tensors and is an input, so that a new value runs the same
    program. One that changes the result's kind (a float beside integers), and a bool, stay literals of the program.
    """
    strong = [dtypes.of(a.dtype) for a in args if isinstance(a, Tensor | np.ndarray | np.generic)]
    values: list[Any] = []
    for a in args:
        if isinstance(a, Tensor):
            if a._trace is not None:
                tracing.refuse_escaped()
            values.append(a._value)
        elif isinstance(a, np.ndarray | np.generic):
            values.append(np.asarray(a))
        else:
            values.append(_scalar(a, strong))
    kinds = tuple([attr_key(v) if is_scalar(v) else (v.dtype, v.shape) for v in values])
    return values, (op.name, kinds, tuple([(k, attr_key(v)) for k, v in sorted(attrs.items())]))


def _scalar(number: Any, strong: Sequence[dtypes.DType]) -> Any:
    if not strong:
        return Tensor(number)._value
    together = dtypes.promote(*strong)
    target = dtypes.promote_scalar(together, type(number))
    dtypes.check_fits(number, target)
    return number if target.kind != together.kind or isinstance(number, bool) else _on_device(repr(number), target)


@lru_cache(maxsize=1024)
def _on_device(number: str, dtype: dtypes.DType) -> Any:
    """A number, given by its text (0.0 and -0.0 are equal, but not the same), as a 0-d array on the device."""
    value = complex(number) if dtype.kind == "c" else int(number) if dtype.is_integer else float(number)
    return pjrt.put(np.asarray(value, dtype.np))


def _op_program(op: Op, values: Sequence[Any], attrs: Attrs, key: Any) -> tuple[Executable, bool]:
    """Compile the op for these types; errors point at the user's line, before anything runs."""
    with build.Builder("main") as b:
        operands = [v if is_scalar(v) else b.param(TensorType(dtypes.of(v.dtype), tuple(v.shape))) for v in values]
        result = build.apply(op, operands, attrs)
        fn = b.finish([result] if isinstance(result, Value) else result)
    with _lock:
        if key not in _programs:
            program = compile_module(Module.of(fn), name=op.name)
            _programs[key] = (program, isinstance(result, Value))
    return _programs[key]


def _device(arg: Any, value: Any) -> Any:
    """The value on the device; a tensor's array is moved there once and kept."""
    if isinstance(value, np.ndarray | np.generic):
        value = pjrt.put(np.asarray(value))
        if isinstance(arg, Tensor):
            arg._value = value
    return value


def _execute(program: Executable, arrays: list[Any], name: str) -> list[Any]:
    if flags.debug < 2:
        return program.call(arrays)
    start = time.perf_counter()
    outputs = program.call(arrays)
    pjrt.block_until_ready(outputs)
    seconds = time.perf_counter() - start
    moved = sum(t.bytes for t in (*program.inputs, *program.outputs))
    print(f"treadle: ran {name} in {text.seconds(seconds)}, {moved / seconds / 1e9:.1f} GB/s", file=sys.stderr)
    return outputs


# ------------------------------------------------------------------------------------------------- functions as values
def run_fn(fn: Fn, fns: Mapping[str, Fn], args: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of `fn` on tensors: inlined into the running trace, or each node at once."""
    trace = tracing.current()
    if trace is not None:
        trace.builder.fns.update({k: v for k, v in fns.items() if k not in trace.builder.fns})
        return [Tensor._of(v, trace) for v in build.inline(fn, [trace.read(a) for a in args])]
    env: dict[Value, Tensor] = dict(zip(fn.params, args, strict=True))
    for node in fn.nodes:
        with where.at(node.where):
            if any(True for _ in node.regions()) or "callee" in node.attrs:
                results = _run_region_node(node, fns, [env[v] for v in node.inputs])
            else:
                results = (
                    run_op(node.op, [env[v] for v in node.inputs], dict(node.attrs)) if node.inputs else _make(node)
                )
            env.update(zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True))
    return [env[o] for o in fn.outputs]


def _make(node: Any) -> Any:
    """A node without inputs, by its reference: nothing to compile."""
    if "ref" in node.op.rules:
        return Tensor(np.asarray(node.op.rules["ref"](**node.attrs)), dtype=node.outputs[0].type.dtype)
    return run_op(node.op, [], dict(node.attrs))


def _run_region_node(node: Any, fns: Mapping[str, Fn], args: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A node with bodies is one program: its loops and branches run on the device."""
    key = ("region", node.op.name, tuple([v.type for v in node.inputs]), _region_key(node, fns))
    if key not in _programs:
        types: Types = tuple([v.type for v in node.inputs])
        with build.Builder("main", dict(fns)) as b:
            fn = b.finish(build.emit(node, tuple([b.param(t) for t in types])))
        with _lock:
            module = optimise(Module.of(fn, fns))
            _programs[key] = (compile_module(module, name=node.op.name), False)
    program, _ = _programs[key]
    outputs = _execute(program, [_device(a, a._value) for a in args], node.op.name)
    return tuple([Tensor._of(o) for o in outputs])


def _region_key(node: Any, fns: Mapping[str, Fn]) -> str:
    """The text of the node's bodies and of every function they can reach."""
    texts = [f"{k}={v}" for k, v in sorted(node.attrs.items())]
    if "callee" in node.attrs or any("callee" in n.attrs for _, r in node.regions() for n in all_nodes(r)):
        texts += [str(f) for _, f in sorted(fns.items())]
    return "\n".join(texts)


def install() -> None:
    """Give tensors their executor; refuse misspelt switches (E0703); print errors of users without our frames."""
    tensors.hooks.run_op = run_op
    tensors.hooks.to_numpy = lambda value: value if isinstance(value, np.ndarray) else pjrt.to_numpy(value)
    show_only_users_frames()
    check_environment()


install()
