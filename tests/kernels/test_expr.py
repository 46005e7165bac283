"""Expressions as vector code: every op with a vector rule against its reference, every way of reading, reductions."""

import numpy as np
import pytest

from treadle.base import dtypes
from treadle.formula.expr import Axis, Combiner, Compute, Param, Placeholder, call, const, fold, index, read, reduce
from treadle.formula.scalars import is_elementwise
from treadle.ir import interp
from treadle.ir.build import trace
from treadle.ir.types import TensorType, f32, type_of
from treadle.kernels import jit, launch
from treadle.kernels.expr import Emitter, cost, lowered, refuses
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module
from treadle.kernels.target import host
from treadle.ops._declare import OPS, samples_of

TARGETS = {
    "host": host(),
    "no bf16": host().without("avx512bf16"),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2", "fma", "avx", "f16c", "sse4.1"),
}


def evaluate(expr, axes, arrays, lanes=16, target=None, along=-1):
    """The expression at every point of its axes (sources by name in `arrays`), written in steps of vectors."""
    target = target or host()
    expr = lowered(expr)
    assert refuses([expr]) == ""
    out = Placeholder("out", TensorType(expr.dtype, tuple(a.extent for a in axes)))
    sources = [*arrays, out]
    m = Module()
    f = Function(m, "go", ["ptr", "i64", "ptr"])
    buffers = {s: f.load(f.args[0], "ptr", 8 * i) for i, s in enumerate(sources)}
    axis = axes[along] if axes else None

    def nest(left, at):
        if left:
            with f.loop(0, left[0].extent) as i:
                nest(left[1:], {**at, left[0]: i})
            return
        if axis is None or not lanes:
            write(at, None, 0)
            return
        with f.loop(0, axis.extent, lanes) as i:
            write({**at, axis: i}, f.mask(f.i64(axis.extent) - i, lanes), lanes)

    def write(at, mask, width):
        e = Emitter(f, width, at, axis if width else None, buffers, mask=mask, target=target)
        place = e.place(out, axes)
        if mask is None:
            f.store(e.stored(expr), place)
        else:
            f.store_masked(e.stored(expr), place, mask)

    nest([a for a in axes if a is not axis or not lanes], {})
    f.give()
    guard = 64
    room = np.full(out.type.bytes + 2 * guard, 0xAB, np.uint8)
    result = room[guard : guard + out.type.bytes].view(out.type.dtype.np).reshape(out.type.shape)
    text = launch.finish(m, [Phase("go", 1)], len(sources))
    jit.load(text, target).run([*[np.ascontiguousarray(arrays[s]) for s in arrays], result])
    assert (room[:guard] == 0xAB).all() and (room[guard + out.type.bytes :] == 0xAB).all()
    return result


def elementwise_cases():
    for name, op in sorted(OPS.items()):
        if op.rules.get("kernel") and is_elementwise(op):
            yield name


@pytest.mark.parametrize("name", list(elementwise_cases()))
def test_ops_against_their_references(name):
    op = OPS[name]
    tried = 0
    for i, sample in enumerate(s for s in samples_of(op) if not s.bad):
        if any(a.dtype.kind == "c" for a in sample.arrays) or sample.attrs.get("dtype", dtypes.bool_).kind == "c":
            continue
        fn = trace(lambda *v, attrs=sample.attrs: op(*v, **attrs), sample.types)
        arrays = [np.broadcast_to(a, fn.outputs[0].shape).reshape(-1) for a in sample.arrays]
        arrays = [a.astype(v.dtype.np) for a, v in zip(arrays, fn.nodes[-1].inputs, strict=True)]
        fn = trace(lambda *v, attrs=sample.attrs: op(*v, **attrs), [type_of(a) for a in arrays])
        (want,) = interp.run(fn, *arrays)
        axis = Axis("i", want.size)
        sources = {Placeholder(f"x{k}", type_of(a)): a for k, a in enumerate(arrays)}
        expr = call(name, *[read(s, axis) for s in sources], **sample.attrs)
        if refuses([lowered(expr)]):
            continue
        tried += 1
        got = evaluate(expr, [axis], sources, target=list(TARGETS.values())[i % 4])
        same(got, want, name, name == "gelu_grad")  # a difference of terms, 0 near x = -0.75
    assert tried >= 2


def same(got, want, what="", by_largest=False):
    """by_largest: errors are relative to the largest element."""
    assert got.dtype == want.dtype
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, what)
        return
    bits = {"float64": 1e-15, "float32": 5e-7, "float16": 1.1e-3, "bfloat16": 8e-3}[want.dtype.name]
    a, b = got.astype(np.float64), want.astype(np.float64)
    least = bits * np.nanmax(np.abs(b[np.isfinite(b)]), initial=0) if by_largest else 0
    np.testing.assert_allclose(a, b, bits, max(least, 1e-300 if want.dtype == np.float64 else 1e-37), err_msg=what)


RNG = np.random.default_rng(3)


def array(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def source(a, name="x"):
    return Placeholder(name, type_of(a))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [0, 8, 16])
def test_ways_of_reading(target, lanes):
    x = array(7, 37)
    p = source(x)
    i, j = Axis("i", 7), Axis("j", 37)
    ways = {
        "line": (read(p, i, j), x),
        "row": (read(p, i, index(3)), np.repeat(x[:, 3:4], 37, 1)),
        "reverse": (read(p, i, call("sub", index(36), j)), x[:, ::-1]),
        "gather": (read(p, i, call("floor_div", j, index(2))), x[:, np.arange(37) // 2]),
        "clamped": (read(p, i, call("add", j, index(5))), x[:, np.minimum(np.arange(37) + 5, 36)]),
        "below": (read(p, call("sub", i, index(2)), j), x[np.maximum(np.arange(7) - 2, 0)]),
    }
    for name, (expr, want) in ways.items():
        got = evaluate(expr, [i, j], {p: x}, lanes, TARGETS[target])
        np.testing.assert_array_equal(got, want, name)
    turned = evaluate(read(p, i, j), [j, i], {p: x}, lanes, TARGETS[target])
    np.testing.assert_array_equal(turned, x.T)


@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool"])
def test_padding_reads_nothing_outside(dtype, lanes):
    kind = dtypes.of(dtype)
    x = np.arange(5 * 19).reshape(5, 19).astype(np.float32).astype(kind.np)
    p = source(x)
    i, j = Axis("i", 9), Axis("j", 25)
    at = [call("sub", i, index(2)), call("sub", j, index(3))]
    inside = None
    for e, size in zip(at, x.shape, strict=True):
        both = call("logical_and", call("greater_equal", e, index(0)), call("less", e, index(size)))
        inside = both if inside is None else call("logical_and", inside, both)
    got = evaluate(call("select", inside, read(p, *at), const(1, kind)), [i, j], {p: x}, lanes)
    want = np.pad(x, ((2, 2), (3, 3)), constant_values=1)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32"])
def test_reductions_inside(dtype, target):
    kind = dtypes.of(dtype)
    x = RNG.integers(-3, 4, (11, 5, 33)).astype(kind.np)
    p = source(x)
    i, r, j = Axis("i", 11), Axis("r", 5), Axis("j", 33)
    inner = fold("add", read(p, i, r, j), [r])
    np.testing.assert_array_equal(
        evaluate(inner, [i, j], {p: x}, 16, TARGETS[target]), x.astype(np.float64).sum(1).astype(kind.np)
    )
    whole = fold("maximum", read(p, i, r, j), [i, r])
    np.testing.assert_array_equal(evaluate(whole, [j], {p: x}, 16, TARGETS[target]), x.max((0, 1)))
    best = evaluate(place_of_largest(read(p, i, r, j), r), [i, j], {p: x}, 16, TARGETS[target])
    np.testing.assert_array_equal(best, x.argmax(1))


def place_of_largest(expr, axis):
    """The first place of the largest element along an axis."""
    names = [Param(n, t) for n in ("l", "r") for t in (expr.dtype, dtypes.int64)]
    a, i, b, j = names
    first = call("logical_or", call("greater", a, b), call("logical_and", call("equal", a, b), call("less", i, j)))
    c = Combiner(
        (a, i), (b, j), (call("select", first, a, b), call("select", first, i, j)),
        (const(-1000, expr.dtype), const(1 << 40, dtypes.int64)),
    )  # fmt: skip
    return reduce(c, (expr, axis), (axis,), 1)


def test_computes_are_written_in_place_and_values_are_shared():
    x = array(50)
    p = source(x)
    i = Axis("i", 50)
    k = Axis("k", 50)
    double = Compute("double", [k], call("mul", read(p, k), const(2, dtypes.float32)))
    expr = call("exp", read(double, i))
    expr = call("sub", call("mul", expr, expr), expr)
    got = evaluate(expr, [i], {p: x})
    np.testing.assert_allclose(got, np.exp(2 * x) ** 2 - np.exp(2 * x), 1e-5, 1e-6)
    assert cost(expr) < 1.3 * cost(call("exp", read(double, i)))


def test_what_has_no_vector_code_is_refused():
    x = Placeholder("x", f32[4])
    assert refuses([call("erf_inv", read(x, Axis("i", 4)))]) == "erf_inv has no vector code"
    z = Param("z", dtypes.complex64)
    assert refuses([z]) == "complex numbers"
    assert refuses([call("cast", Param("d", dtypes.float64), dtype=dtypes.float16)]) == "float64 rounded to 16 bits"
