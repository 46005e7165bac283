"""Where the stages meet: module -> passes -> StableHLO -> executable -> arrays. Also runs single ops for eager mode.

`compile_module(module)` gives an `Executable`; `run_fn(fn, tensors)` applies a function in the mode of the moment:
inlined into the trace that is running, or node by node at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from treadle.base import dtypes, leaving, text, where
from treadle.base.arguments import brief
from treadle.base.errors import UserError, show_only_users_frames
from treadle.base.flags import check_environment, flags
from treadle.base.small import limit, quietly
from treadle.frontend import interop, quick
from treadle.frontend import tape as taping
from treadle.frontend import tensor as tensors
from treadle.frontend import trace as tracing
from treadle.frontend.tensor import Tensor
from treadle.ir import build
from treadle.ir.node import Attrs, Fn, Module, Node, Value, attr_key
from treadle.ir.op import Op
from treadle.ir.quiet import quiet
from treadle.ir.types import Types, type_of
from treadle.ir.walk import all_nodes
from treadle.kernels.target import available as kernels_available
from treadle.kernels.target import host as host_cpu
from treadle.lower.builder import Called, Target
from treadle.lower.stablehlo import lower_module, to_text
from treadle.ops._types import is_scalar
from treadle.ops.groups import fused
from treadle.runtime import device, dlpack, host, nans, pjrt
from treadle.runtime.chain import Chain, Run
from treadle.runtime.executable import Executable
from treadle.transforms.dce import Dce
from treadle.transforms.fuse import Fuse, kind, smaller
from treadle.transforms.inline import Inline
from treadle.transforms.layout import Layout
from treadle.transforms.panels import Offer, Params, Wanted, parts_with_panels, with_panels
from treadle.transforms.parts import Parts, split
from treadle.transforms.pipeline import DEFAULT, Pipeline
from treadle.transforms.runs import is_run, with_runs

_lock = threading.RLock()


def optimise(module: Module, passes: str = DEFAULT) -> Module:
    """The module after the passes named in the text."""
    return Pipeline.parse(passes).run(module)


def stablehlo(
    module: Module, donate: Mapping[int, int | None] | None = None, name: str = "main", debug: bool = False
) -> str:
    """The StableHLO text of a module."""
    with pjrt.mlir_context() as context:
        return to_text(lower_module(module, context, donate=donate or {}, name=name, **_platform()), debug)


def compile_module(
    module: Module, name: str = "main", donate: Mapping[int, int | None] | None = None, names: Sequence[str] = ()
) -> Executable:
    """Lower and compile; donate maps parameters whose memory may be taken to the output that takes it (None: any).

    A module of equal layers becomes a chain of programs, each compiled once (TREADLE_PARTS).
    """
    return compile_fixed(module, (), 0, name, donate, names)[0]


@leaving.held()
def compile_fixed(
    module: Module, fixed: Collection[int], spare: int, name: str = "main",
    donate: Mapping[int, int | None] | None = None, names: Sequence[str] = (),
) -> tuple[Executable, Params]:  # fmt: skip
    """The same for a module whose parameters `fixed` stay the same from call to call: what its kernels pack of those is
    not packed in each call. Comes with what the executable takes: parameters by number (from `spare` on only those that
    it needs, before that all), then what `panels` makes."""
    on_cpu = pjrt.default_device().platform == "cpu"
    parts = split(module, donate, device.host().cores) if flags.parts and on_cpu else None
    params: Params = tuple(range(len(module.main.params)))
    with ThreadPoolExecutor(device.host().cores, "treadle-panels") as pool:
        if parts is None:
            whole = grouped(module)
            if fixed:
                whole, params = with_panels(whole, fixed, spare, partial(_offer, pool=pool))
            made = compile_grouped(whole, name, donate, names)
        else:
            modules = [Dce()(Inline(only_once=True)(p.module)) if fixed else p.module for p in parts.programs]
            programs = [replace(p, module=grouped(m)) for p, m in zip(parts.programs, modules, strict=True)]
            parts = replace(parts, programs=tuple(programs))
            if fixed:
                parts, params = parts_with_panels(parts, len(params), fixed, spare, partial(_offer, pool=pool))
            made = _chain(parts, module, name, donate, names, params)
    if flags.debug >= 1:
        kind = "loaded" if made.from_cache else "compiled"
        how = "" if parts is None else f" as {parts}"
        packed = sum(p.bytes for p in params if isinstance(p, Wanted))
        kept = f", {text.size(packed)} of the arguments packed weights" if packed else ""
        seconds = text.seconds(made.compile_seconds)
        print(f"treadle: {kind} {name}{how} in {seconds}, {made.memory()}{kept}", file=sys.stderr)
    if flags.debug >= 6:
        print(made.hlo_text(), file=sys.stderr)
    return made, params


def _offer(body: Fn, pool: ThreadPoolExecutor) -> Offer | None:
    """A group's kernel in two, where it packs an operand."""
    from treadle.kernels import divided  # loads llvmlite

    found = divided.divide(body, pool)
    return None if found is None else Offer(found.name, found.operand, found.bytes, found.reads)


def panels(wanted: Wanted, array: Any) -> Any:
    """The device array of panels that are wanted, made of the value of their parameter."""
    from treadle.kernels import divided

    found = divided.named(wanted.kernel)
    assert found is not None, wanted
    threads = device.host().cores if wanted.bytes > _MANY_BYTES else 1
    return pjrt.put(found.panels(pjrt.to_numpy(array, copy=False), threads))


_MANY_BYTES = 1 << 20  # of panels that several threads make


@leaving.held()
def compile_grouped(
    module: Module, name: str, donate: Mapping[int, int | None] | None = None, names: Sequence[str] = ()
) -> Executable:
    """A module whose groups are made (see `grouped`) as one program."""
    main = module.main
    with pjrt.mlir_context() as context, _Kernels() as kernels:
        hosts: list[Called] = []
        if not donate and any(n.op is fused for n in main.nodes):  # kernels in runs share no memory with operands
            module = with_runs(module, lambda node: kernels.known(node) is not None)
        lowered = lower_module(
            module, context, donate=donate or {}, name=_identifier(name), hosts=hosts, kernels=kernels.of, **_platform()
        )
        kernels.register()
        if flags.debug >= 4:
            print(to_text(lowered), file=sys.stderr)
        return Executable(
            lowered,
            main.in_types,
            main.out_types,
            tuple(donate or ()),
            name=name,
            argument_names=tuple(names),
            hosts=hosts,
        )


def _chain(
    parts: Parts, module: Module, name: str, donate: Mapping[int, int | None] | None, names: Sequence[str],
    params: Params,
) -> Chain:  # fmt: skip
    """The module as several programs, whose groups are made."""
    programs = [compile_grouped(p.module, f"{name}.part{i}", p.donate) for i, p in enumerate(parts.programs)]
    runs = [Run(programs[r.part], r.inputs, r.outputs, r.frees) for r in parts.runs]
    main = module.main
    types = tuple([p.type if isinstance(p, Wanted) else main.in_types[p] for p in params])
    signature = types, main.out_types, tuple(donate or ()), name, tuple(names)
    return Chain(runs, parts.slots, parts.outputs, *signature)


def grouped(module: Module) -> Module:
    """The module with groups of nodes for kernels of our own, on CPUs where llvmlite is installed (TREADLE_FUSION)."""
    if not flags.fusion or pjrt.default_device().platform != "cpu" or not kernels_available():
        return module
    if flags.fusion > 1:
        turned = Layout(small=flags.fusion > 2)(module, _takes_rows)
        if turned is not module:
            made = Fuse(flags.fusion)(turned)
            if _takes_convolutions(made):
                return made
    return Fuse(flags.fusion)(module)


def _takes_rows(node: Node) -> bool:
    """Whether a kernel takes a convolution or gradient along the rows of images as users have them."""
    from treadle.kernels.templates import conv  # most programs need none

    return conv.takes_rows(node, host_cpu())


def _takes_convolutions(module: Module) -> bool:
    """Whether kernels compute all convolutions: XLA's own want images as the user has them."""
    from treadle.kernels import engine  # loads llvmlite

    groups = [n.attrs["body"] for n in all_nodes(module) if n.op is fused]
    wanted = [b for b in groups if any(kind(n) == "convolution" for n in b.nodes)]
    return all(engine.takes(body) for body in wanted)


class _Kernels:
    """The kernels of one program. LLVM compiles those that are new in threads of its own, while the next are written
    and the rest of the program is lowered."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(device.host().cores, "treadle-kernels")
        self._found: dict[str, Any] = {}

    def __enter__(self) -> _Kernels:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def known(self, node: Node) -> Any:
        """The kernel of a node that is a group; None if it has none."""
        from treadle.kernels import divided, engine  # loads llvmlite

        panels = node.attrs.get("panels", "")
        return divided.named(panels) if panels else engine.choose(node.attrs["body"], self._pool).loaded

    def of(self, body: Fn, panels: str = "") -> Target | Fn:
        """The kernel of a group of nodes, known to XLA by its name. Where there is none: the nodes in smaller groups,
        or, if XLA's own code was measured to be faster, in none. panels: the name of one that takes these too."""
        from treadle.kernels import divided, engine, runs, tunings  # loads llvmlite

        if is_run(body):
            run = runs.plan(body, self.known)
            if run is None:
                return body
            self._found[run.name] = run
            return Target(run.name, run.workspace)
        given = divided.named(panels)
        if given is not None:
            self._found[given.name] = given
            return Target(given.name, 0, given.kernel.aliases)
        choice = engine.choose(body, self._pool)
        if choice.loaded is None:
            return body if choice.plan == tunings.XLA else smaller(body)
        found = choice.loaded
        self._found[found.name] = found
        return Target(found.name, found.workspace, found.aliases)

    def register(self) -> None:
        """Tell XLA where they are, once they are compiled. Raises RuntimeError for one that LLVM refuses."""
        for name, found in self._found.items():
            handler = found.code.handler
            with _lock:
                if name not in _registered:
                    pjrt.register_kernel(name, handler)
                    _registered.add(name)


_registered: set[str] = set()


def _platform() -> dict[str, Any]:
    """What the lowering asks about the device: its platform, and whether programs may call LAPACK."""
    platform = pjrt.default_device().platform
    return {"platform": platform, "lapack": platform == "cpu"}


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_." else "_" for c in name)


# ------------------------------------------------------------------------------------------------------------ eager
class Plan:
    """How eager mode runs a function of these types: in NumPy, or by a program that is compiled when first needed.

    fns: the functions that its calls name. differentiable: the function that gradients are taken of, with the same
    results (see `_with_residuals`).
    """

    def __init__(self, fn: Fn, name: str, single: bool, fns: Mapping[str, Fn] | None = None) -> None:
        self.fn, self.name, self.single, self.fns = fn, name, single, fns or {}
        self.host = host.program(fn)
        self.differentiable = fn
        self.literals = False  # whether some of the call's arguments are part of `fn`, not its parameters
        self._executable: Executable | None = None
        self._recorded: Plan | None = None
        self._kernel: Any = _UNKNOWN

    def compiled(self) -> Executable:
        """The program."""
        if self._executable is None:
            with _lock:
                if self._executable is None:
                    module = Module.of(self.fn, self.fns)
                    module = optimise(module) if self.fns or any(n.op.has_regions for n in self.fn.nodes) else module
                    self._executable = compile_module(module, name=self.name)
        return self._executable

    def kernel(self) -> Any:
        """What computes it without XLA (kernels/direct.py); None if nothing does."""
        if self._kernel is _UNKNOWN:
            with _lock:
                if self._kernel is _UNKNOWN:
                    self._kernel = None if self.fns else _kernel_of(self.fn)
        return self._kernel

    def recorded(self) -> Plan:
        """The plan that also gives what the gradient wants kept; itself where no op saves anything."""
        if self._recorded is None:
            self._recorded = _with_residuals(self) if any("saved" in n.op.rules for n in self.fn.nodes) else self
        return self._recorded


_UNKNOWN = object()


def _kernel_of(fn: Fn) -> Any:
    """The kernel that is all there is to do for `fn`, on large arrays of a CPU."""
    if not flags.fusion or flags.debug >= 2 or pjrt.default_device().platform != "cpu" or not kernels_available():
        return None
    if not sys.platform.startswith("linux"):  # elsewhere kernels have no helpers without XLA
        return None
    from treadle.kernels import direct  # loads llvmlite

    found = direct.flat(fn)
    if found is not None:
        return found
    if all(kind(n) in ("elementwise", "constant") or n.op.name == "broadcast_to" for n in fn.nodes):
        return direct.whole(fn)
    main = grouped(Module.of(fn)).main
    if len(main.nodes) != 1 or main.nodes[0].op is not fused or main.nodes[0].attrs.get("panels"):
        return None
    node = main.nodes[0]
    same = node.inputs == main.params and node.outputs == main.outputs
    return direct.whole(node.attrs["body"]) if same else None


def _with_residuals(plan: Plan) -> Plan:
    """The plan with the ops' residuals behind its results.

    What is run computes results and residuals together. What is differentiated has the ops themselves and, beside
    them, the same computation of the residuals, with which the one that reverse mode adds will be merged.
    """

    def run(*values: Value, beside: bool) -> list[Value]:
        twin: dict[Value, Value] = dict(zip(plan.fn.params, values, strict=True))
        residuals: list[Value] = []
        for node in plan.fn.nodes:
            inputs = tuple([twin[v] for v in node.inputs])
            outputs: Any = None
            if "saved" in node.op.rules:
                outputs, kept = node.op.rules["saved"](*inputs, **node.attrs)
                residuals += kept
            if outputs is None or beside:
                outputs = build.emit(node, inputs)
            twin.update(zip(node.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
        return [*[twin[o] for o in plan.fn.outputs], *residuals]

    with where.at(where.UNKNOWN):
        made = Plan(build.trace(partial(run, beside=False), plan.fn.in_types), plan.name, plan.single)
        made.differentiable = build.trace(partial(run, beside=True), plan.fn.in_types)
    return made


_plans: dict[Any, Plan] = {}
_plans_lock = threading.Lock()
_MAX_PLANS = 4096


def _keep(key: Any, plan: Plan) -> None:
    """Keep a plan; of too many, the half that was made first goes."""
    with _plans_lock:
        if len(_plans) >= _MAX_PLANS:
            for old in list(_plans)[: _MAX_PLANS // 2]:
                del _plans[old]
        _plans[key] = plan


def run_op(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Run one op at once on tensors, arrays and Python numbers; the result is one tensor or a tuple of them."""
    if op.rules.get("effect"):
        return op.rules["ref"](*[_on_host(a._value) if isinstance(a, Tensor) else np.asarray(a) for a in args], **attrs)
    values, key = _operands(op, args, attrs)
    plan = _plans.get(key)
    if plan is None:
        plan = _op_plan(op, values, attrs)
        plan.literals = any(map(is_scalar, values))
        _keep(key, plan)
    if plan.literals:
        kept = [(a, v) for a, v in zip(args, values, strict=True) if not is_scalar(v)]
        args, values = [a for a, _ in kept], [v for _, v in kept]
    outputs = _run_plan(plan, args, values)
    if flags.debug_nans:
        nans.check(op, values, outputs)
    results = outputs[: len(plan.fn.outputs)]  # behind them, on a tape, are those that the gradient wants kept
    return Tensor._of(results[0]) if plan.single else tuple([Tensor._of(o) for o in results])


def _run_plan(plan: Plan, args: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The results of a plan on the arrays `values` of the arguments; they are written on the tape, if there is one."""
    tape = taping.current()
    if tape is not None:
        plan = plan.recorded()
    if plan.host is not None:
        outputs = plan.host([_on_host(v) for v in values])
    elif (kernel := plan.kernel()) is not None:
        outputs = [_settled(o) for o in kernel.call([_seen(v) for v in values])]
    else:
        outputs = _execute(plan.compiled(), [_device(a, v) for a, v in zip(args, values, strict=True)], plan.name)
    return outputs if tape is None else tape.record(plan, values, outputs)


def forget_eager_programs() -> None:
    """Plan and compile the ops of eager mode again, as a flag that they depend on has changed."""
    with _plans_lock:
        _plans.clear()
    host.find_limit()


def _operands(op: Op, args: Sequence[Any], attrs: Attrs) -> tuple[list[Any], Any]:
    """Arrays of the arguments, and the key of the plan.

    A Python number takes the type it has beside the tensors and is an input, so that a new value runs the same
    program. One that changes the result's kind (a float beside integers), and a bool, stay literals of the program.
    """
    values: list[Any] = []
    kinds: list[Any] = [op.name]
    for a in args:
        if isinstance(a, Tensor):
            if a._trace is not None:
                tracing.refuse_escaped()
            value = a._value
        elif isinstance(a, np.ndarray | np.generic):
            value = np.array(a)  # the caller may change it while a result or a tape still has it
        else:
            strong = [dtypes.of(x.dtype) for x in args if isinstance(x, Tensor | np.ndarray | np.generic)]
            value = _scalar(a, strong)
        values.append(value)
        kinds.append(attr_key(value) if is_scalar(value) else (value.dtype, value.shape))
    for name in attrs:
        value = attrs[name]
        kind = type(value)
        kinds.append((name, kind, value if kind in _SIMPLE else attr_key(value)))
    return values, tuple(kinds)


_SIMPLE = frozenset({int, bool, str, type(None), dtypes.DType})  # equal values of one type are the same


def _scalar(number: Any, strong: Sequence[dtypes.DType]) -> Any:
    if not strong:
        return Tensor(number)._value
    if not is_scalar(number):
        raise UserError("E0102", f"an operand is {brief(number)}, not a tensor", fix="wrap it: td.tensor(...)")
    together = dtypes.promote(*strong)
    target = dtypes.promote_scalar(together, type(number))
    dtypes.check_fits(number, target)
    return number if target.kind != together.kind or isinstance(number, bool) else _number(repr(number), target)


@lru_cache(maxsize=1024)
def _number(number: str, dtype: dtypes.DType) -> Any:
    """A number, given by its text (0.0 and -0.0 are equal, but not the same), as a 0-d array."""
    value = complex(number) if dtype.kind == "c" else int(number) if dtype.is_integer else float(number)
    array: np.ndarray[Any, Any] = quietly(np.asarray, value, dtype.np)
    array.setflags(write=False)
    return array


@lru_cache(maxsize=1024)
def _number_on_device(number: str, dtype: dtypes.DType) -> Any:
    return pjrt.put(_number(number, dtype))


def _op_plan(op: Op, values: Sequence[Any], attrs: Attrs) -> Plan:
    """The op for these types; errors point at the user's line, before anything runs."""
    with build.Builder("main") as b:
        operands = [v if is_scalar(v) else b.param(type_of(v)) for v in values]
        result = build.apply(op, operands, attrs)
        fn = b.finish([result] if isinstance(result, Value) else result)
    return Plan(fn, op.name, isinstance(result, Value))


def _on_host(value: Any) -> Any:
    return value if type(value) is np.ndarray else pjrt.to_numpy(value)


def _seen(value: Any) -> Any:
    """The value's memory as an array that is only read, while nothing else changes or takes it."""
    return value if type(value) is np.ndarray else pjrt.to_numpy(value, copy=False)


def _settled(made: Any) -> Any:
    """A kernel's new array, where others expect it: small ones stay on the host."""
    return made if made.size <= limit.now else pjrt.adopt(made)


def _device(arg: Any, value: Any) -> Any:
    """The value on the device; a tensor's array is moved there once and kept."""
    if not isinstance(value, np.ndarray):
        return value
    if is_scalar(arg):
        return _number_on_device(repr(arg), dtypes.of(value.dtype))
    moved = pjrt.put(value)
    if isinstance(arg, Tensor):
        taping.replace(arg, value, moved)
    return moved


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
    if "ref" in node.op.rules and len(node.outputs) == 1:
        return Tensor(np.asarray(node.op.rules["ref"](**node.attrs)), dtype=node.outputs[0].type.dtype)
    return run_op(node.op, [], dict(node.attrs))


def _run_region_node(node: Any, fns: Mapping[str, Fn], args: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A node with bodies is one program: its loops and branches run on the device."""
    key = ("region", node.op.name, tuple([v.type for v in node.inputs]), _region_key(node, fns))
    plan = _plans.get(key)
    if plan is None:
        types: Types = tuple([v.type for v in node.inputs])
        with build.Builder("main", dict(fns)) as b:
            fn = b.finish(build.emit(node, tuple([b.param(t) for t in types])))
        plan = Plan(fn, node.op.name, False, fns)
        _keep(key, plan)
    arrays = [a._value for a in args]
    outputs = _run_plan(plan, args, arrays)
    if flags.debug_nans and nans.found(outputs):
        one = Fn("main", node.inputs, (node,), node.outputs)
        nans.locate(quiet(one, dict(fns)), fns, arrays)
        nans.refuse_unlocated(node.op.name, outputs)
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
    quick.peek.append(lambda value: pjrt.to_numpy(value, copy=False))
    taping.device_twin.append(pjrt.twin)
    tensors.hooks.to_numpy = lambda value: value if isinstance(value, np.ndarray) else pjrt.to_numpy(value)
    interop.runtime.dlpack = dlpack
    show_only_users_frames()
    check_environment()


install()
