"""What the generated tests share: the cases of an op, running them on the back end, comparing, splitting axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from treadle.base import flags
from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Fn, Module, Node
from treadle.ir.types import TensorType
from treadle.ir.verify import verify
from treadle.lower.stablehlo import lower_module
from treadle.ops._axes import Axes
from treadle.ops._axes import axes_of as node_axes
from treadle.ops._declare import OPS, Op, Sample, samples_of
from treadle.runtime import pjrt
from treadle.runtime.executable import Executable
from treadle.transforms.batch import batch
from treadle.transforms.grad import vjp
from treadle.transforms.jvp import jvp

Array = np.ndarray[Any, Any]
# Relative to the largest number of a result. 16-bit results are rounded once more or once less than the reference's.
TOLERANCE = {
    "float64": 1e-11, "complex128": 1e-11, "float32": 2e-5, "complex64": 2e-5, "float16": 4e-3, "bfloat16": 3e-2,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One good sample of an op: the op applied to it as a function `fn`, and the interpreter's results.

    node, arrays: the op itself and its operands there, after the promotion and broadcasting of its `prepare` rule.
    """

    op: Op
    index: int
    sample: Sample
    fn: Fn
    results: tuple[Array, ...]
    node: Node
    arrays: tuple[Array, ...]

    def __str__(self) -> str:
        types = ", ".join(map(str, self.sample.types))
        return f"sample {self.index} of {self.op.name}({types}) {self.sample.attrs}"

    @property
    def module(self) -> Module:
        return Module.of(self.fn)

    @property
    def types(self) -> tuple[TensorType, ...]:
        """Types of the operands of the node."""
        return tuple([v.type for v in self.node.inputs])

    @property
    def gradient(self) -> tuple[Module, tuple[Array, ...]] | None:
        """The gradient of all float and complex inputs, and arrays for it; None where the op has none."""
        return _gradient(self)

    def __hash__(self) -> int:
        return id(self)


@lru_cache(maxsize=1024)
def _gradient(case: Case) -> tuple[Module, tuple[Array, ...]] | None:
    inexact_in = any(t.dtype.is_inexact for t in case.fn.in_types)
    inexact_out = [t for t in case.fn.out_types if t.dtype.is_inexact]
    if not (case.sample.gradient and inexact_in and inexact_out):
        return None
    try:
        module = vjp(case.fn)
    except UserError as error:
        if error.code != "E0303":
            raise
        return None
    rng = np.random.default_rng(case.index)
    return module, (*case.sample.arrays, *[random(rng, t) for t in inexact_out])


@lru_cache(maxsize=256)
def cases(name: str) -> tuple[Case, ...]:
    """The good samples of an op with the interpreter's results."""
    op = OPS[name]
    found = []
    for index, sample in enumerate(samples_of(op)):
        if not sample.bad:
            fn = build.trace(lambda *values: op(*values, **sample.attrs), sample.types, op.name)  # noqa: B023
            node = next(n for n in reversed(fn.nodes) if n.op is op)
            before = Fn(fn.name, fn.params, fn.nodes, node.inputs)
            arrays = interp.run(before, *sample.arrays)
            found.append(Case(op, index, sample, fn, interp.run(fn, *sample.arrays), node, arrays))
    return tuple(found)


def random(rng: np.random.Generator, type: TensorType) -> Array:
    """Normally distributed numbers of a float or complex type."""
    values = rng.standard_normal(type.shape)
    if type.dtype.kind == "c":
        values = values + 1j * rng.standard_normal(type.shape)
    return np.asarray(values).astype(type.dtype.np)


def together(modules: Sequence[Module]) -> Module:
    """One module that runs all of them: their inputs and their outputs one after the other."""
    types = [t for m in modules for t in m.main.in_types]
    assert not any(m.callees() for m in modules)

    def run(*args: Any) -> list[Any]:
        rest, outputs = list(args), list[Any]()
        for module in modules:
            n = len(module.main.params)
            outputs += build.inline(module.main, rest[:n])
            rest = rest[n:]
        return outputs

    return Module.of(build.trace(run, types, "main"))


def program(module: Module, name: str) -> Executable:
    """The compiled module, not from the cache."""
    with flags.override(cache=False):
        hosts = []
        lowered = lower_module(module, pjrt.mlir_context(), name=name, hosts=hosts)
        return Executable(lowered, module.main.in_types, module.main.out_types, name=name, hosts=hosts)


def execute(module: Module, arrays: Sequence[Any], name: str) -> list[Array]:
    """Compile and run on the back end."""
    return [pjrt.to_numpy(a) for a in program(module, name).call([np.asarray(a) for a in arrays])]


def assert_close(found: Any, wanted: Any, what: str, tol: float = 0.0, factor: float = 1.0) -> None:
    """Same type, and numbers equal up to rounding, relative to the largest; NaN, infinity and integers exactly."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype, f"{what}: {found.dtype} instead of {wanted.dtype}"
    assert found.shape == wanted.shape, f"{what}: shape {found.shape} instead of {wanted.shape}"
    if found.dtype.kind in "biu":
        assert np.array_equal(found, wanted), f"{what}:\n{found}\ninstead of\n{wanted}"
        return
    name = found.dtype.name
    tol = max(tol, factor * TOLERANCE[name])
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    a, b = found.astype(wide), wanted.astype(wide)
    finite = np.isfinite(b)
    scale = float(np.max(np.abs(b[finite]), initial=0.0))
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(scale, 1e-3), err_msg=what)


def directional_error(module: Module, arrays: Sequence[Array], rng: np.random.Generator) -> float:
    """How far the gradient of a module is from a central difference along a random direction, relative to its size.

    All float inputs move. Complex numbers are paired without conjugation; the real part of both sides is compared.
    Where the function itself is NaN or infinite, or nothing can move, there is nothing to compare: 0.
    """
    main = module.main
    moving = [i for i, t in enumerate(main.in_types) if t.dtype.is_inexact]
    inexact = [i for i, t in enumerate(main.out_types) if t.dtype.is_inexact]
    cotangents = {i: random(rng, main.out_types[i]) for i in inexact}
    direction = {i: random(rng, main.in_types[i]) for i in moving}
    step = 1e-5

    def value(h: float) -> float:
        moved = [a + h * direction[i] if i in direction else a for i, a in enumerate(arrays)]
        outputs = interp.run(module, *[np.asarray(a) for a in moved])
        return sum(float(np.real(np.sum(cotangents[i] * outputs[i]))) for i in inexact)

    numeric = (value(step) - value(-step)) / (2 * step)
    if not sum(d.size for d in direction.values()) or not np.isfinite(value(0.0)):
        return 0.0
    grads = interp.run(vjp(module), *arrays, *cotangents.values())
    parts = [float(np.real(np.sum(g * direction[i]))) for g, i in zip(grads, moving, strict=True)]
    size = sum(float(np.sum(np.abs(g * direction[i]))) for g, i in zip(grads, moving, strict=True))
    return abs(sum(parts) - numeric) / max(size, abs(numeric), abs(value(0.0)), 1.0)


# --- forward mode and batching ----------------------------------------------------------------------------------------


def assert_transposed(module: Module, arrays: Sequence[Array], what: str, tol: float = 0.0) -> None:
    """<ct, jvp(t)> = <vjp(ct), t>, relative to the size of the terms; complex numbers are paired without conjugation,
    and the real parts compared. Where the pairing is NaN or infinite on one side, it must be on the other."""
    main, rng = module.main, np.random.default_rng(11)
    wrt = [i for i, t in enumerate(main.in_types) if t.dtype.is_inexact]
    tangents = [random(rng, main.in_types[i]) for i in wrt]
    cotangents = [random(rng, t) for t in main.out_types if t.dtype.is_inexact]
    fns = module.callees()
    forward = jvp(main, wrt, fns)
    verify(Module.of(forward, fns))
    results = interp.run(Module.of(forward, fns), *arrays, *tangents)
    for found, wanted in zip(results, interp.run(module, *arrays), strict=False):
        assert_close(found, wanted, f"results in forward mode of {what}", tol)
    pushed = results[len(main.outputs) :]
    assert [p.dtype for p in pushed] == [c.dtype for c in cotangents], what
    grads = interp.run(vjp(module), *arrays, *cotangents)
    sides = [_pairing(cotangents, pushed), _pairing(grads, tangents)]
    if not (np.isfinite(sides[0][0]) and np.isfinite(sides[1][0])):
        assert not np.isfinite(sides[0][0]) and not np.isfinite(sides[1][0]), what
        return
    scale = max(sides[0][1], sides[1][1], 1e-3)
    dtypes = [a.dtype.name for a in (*tangents, *cotangents)]
    tol = max(tol, 5 * max(TOLERANCE[d] for d in dtypes))
    assert abs(sides[0][0] - sides[1][0]) <= tol * scale, f"{what}: {sides[0][0]} and {sides[1][0]}"


def _pairing(a: Sequence[Array], b: Sequence[Array]) -> tuple[float, float]:
    """The real part of the sum of products, and the sum of their sizes."""
    with np.errstate(all="ignore"):
        terms = [np.asarray(x).astype(np.complex128) * np.asarray(y).astype(np.complex128) for x, y in zip(a, b)]
        return sum(float(np.sum(t.real)) for t in terms), sum(float(np.sum(np.abs(t))) for t in terms)


def assert_batched(case: Case, flags: Sequence[bool], size: int = 3) -> None:
    """The node of a case, batched in the operands flagged, is the loop over the lanes.

    Each lane has its sample's numbers, in another order along the first axis, so that they stay in the op's domain.
    """
    types = case.types
    fn = build.trace(lambda *v: case.op(*v, **case.node.attrs), types, case.op.name)
    fns: dict[str, Fn] = {}
    batched = Module.of(batch(fn, flags, size, fns), fns)
    verify(batched)
    lanes = [[_rolled(a, k) if f else a for a, f in zip(case.arrays, flags, strict=True)] for k in range(size)]
    stacked = [np.stack(x) if f else x[0] for x, f in zip(zip(*lanes, strict=True), flags, strict=True)]
    found = interp.run(batched, *stacked)
    one = [interp.run(fn, *lane) for lane in lanes]
    for i, result in enumerate(found):
        wanted = np.stack([r[i] for r in one])
        assert_close(result, wanted, f"{case} batched in {flags}", case.sample.tol, factor=5)


def _rolled(array: Array, by: int) -> Array:
    return np.roll(array, by, axis=0) if array.ndim else array + array.dtype.type(by) if _counts(array) else array


def _counts(array: Array) -> bool:
    return array.dtype.kind in "iuf" and array.dtype.itemsize > 2


# --- axes rules -------------------------------------------------------------------------------------------------------


def axes_of(case: Case) -> Axes | None:
    """The axes rule of a case, or None where the op has none."""
    return node_axes(case.node)


def halves(case: Case, axes: Axes, name: str) -> list[tuple[Array, ...]]:
    """The op run on both halves of every operand along the axis `name`, with the same attributes.

    Only an attribute that gives sizes of the result (`shape`, `sizes`; `limits` of a slice) is the half's.
    """
    sizes = axes.sizes(case.types)
    middle = sizes[name] // 2
    found = []
    for part, size in ((slice(0, middle), middle), (slice(middle, None), sizes[name] - middle)):
        arrays = [_cut(a, names, name, part) for a, names in zip(case.arrays, axes.ins, strict=True)]
        attrs = dict(case.node.attrs)
        for key in {"shape", "sizes", "limits"} & set(attrs):
            attrs[key] = tuple(size if n == name else s for n, s in zip(axes.outs[0], attrs[key], strict=True))
        found.append(run_op(case.op, arrays, attrs))
    return found


def run_op(op: Op, arrays: Sequence[Array], attrs: dict[str, Any]) -> tuple[Array, ...]:
    """The op on arrays, by the interpreter."""
    types = [TensorType(interp.type_of(a).dtype, a.shape) for a in arrays]
    call: Callable[..., Any] = lambda *values: op(*values, **attrs)
    return interp.run(build.trace(call, types, op.name), *arrays)


def _cut(array: Array, names: Sequence[str], name: str, part: slice) -> Array:
    return array[tuple(part if n == name else slice(None) for n in names)]


def joined(parts: Sequence[Array], names: Sequence[str], name: str) -> Array:
    """Halves put together along the axis `name`; added up where the result does not have it."""
    if name in names:
        return np.concatenate(parts, axis=names.index(name))
    wide = [p.astype(np.float32) if p.dtype.itemsize == 2 and p.dtype.kind not in "iu" else p for p in parts]
    total: Array = np.add(*wide).astype(parts[0].dtype) if parts[0].dtype.kind != "b" else np.logical_or(*parts)
    return total
