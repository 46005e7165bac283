"""Loops and rows against the ops' references: values, edges, threads, memory outside the arrays."""

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.pages import Fenced

from treadle import ops
from treadle.ir import interp
from treadle.ir.build import trace
from treadle.ir.types import bf16, f16, f32, f64, i8, i32, i64
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates import loops

TARGETS = {
    "host": host(),
    "no bf16": host().without("avx512bf16"),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2", "fma", "avx", "f16c", "sse4.1"),
}
RNG = np.random.default_rng(0)


def draw(type, special=False):
    if type.dtype.kind == "f":
        x = RNG.normal(size=type.shape) * 2
        if special and x.size:
            x.reshape(-1)[RNG.integers(0, x.size, 3)] = [np.nan, np.inf, -np.inf]
        return x.astype(type.dtype.np)
    if type.dtype.kind == "b":
        return RNG.integers(0, 2, type.shape).astype(bool)
    return RNG.integers(0, 5, type.shape).astype(type.dtype.np)


def run(fn, arrays, target=None, threads=1, plan=0):
    target = target or host()
    found = loops.plans(fn, target)
    assert found, loops.why_not(fn, target)
    kernel = found[plan].build()
    inputs = [Fenced(a) for a in arrays]
    outs = [Fenced(np.zeros(t.shape, t.dtype.np)) for t in fn.out_types]
    extra = [np.full(kernel.workspace, 0xCD, np.uint8)] if kernel.workspace else []
    jit.load(kernel.text, target).run([*[f.array for f in (*inputs, *outs)], *extra], threads)
    assert all(f.intact() for f in (*inputs, *outs)), "something was written beside an array"
    for given, now in zip(arrays, inputs, strict=True):
        assert given.tobytes() == now.array.tobytes()
    return [o.array.copy() for o in outs]


def check(function, *types, target=None, threads=2, special=False, tol=None, arrays=None):
    fn = trace(function, types)
    arrays = arrays or [draw(t, special) for t in types]
    got = run(fn, arrays, target, threads)
    with np.errstate(all="ignore"):
        want = interp.run(fn, *arrays)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        if w.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w)
            continue
        bits = tol or {8: 1e-12, 4: 1e-5, 2: 1e-2}[w.dtype.itemsize]
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), bits, bits, equal_nan=True)
    again = run(fn, arrays, target, 1)
    for g, a in zip(got, again, strict=True):
        assert g.tobytes() == a.tobytes(), "results depend on the number of threads"
    return got


SHAPES = [(1,), (7,), (16,), (130,), (3, 5), (17, 33), (64, 127), (2, 3, 5), (1, 130), (130, 1), (5, 1, 19)]


@pytest.mark.parametrize("shape", SHAPES)
def test_pointwise(shape):
    check(lambda x: ops.gelu(x, approximate=True), f32[shape], special=True)
    check(lambda x, y: (x * y + x, ops.maximum(x, y)), f32[shape], f32[shape], special=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [f32, f64, bf16, f16])
def test_kinds_and_cpus(make, target):
    for shape in ((33,), (9, 31)):
        check(lambda x, y: ops.tanh(x * y) + x, make[shape], make[shape], target=TARGETS[target], special=True)
        check(lambda x: ops.softmax(x, axis=x.ndim - 1), make[shape], target=TARGETS[target])


def test_integers_and_bools():
    check(lambda x, y: (x * y + 3, ops.less(x, y)), i32[50], i32[50])
    check(lambda x, y: ops.select(ops.equal(x, y), x, y), i8[5, 70], i8[5, 70])
    check(lambda x: ops.cast(x, dtype="float32") * 0.5, i64[77])
    check(lambda x: ops.cast(x, dtype="int32"), f32[77], special=True)


@pytest.mark.parametrize("shape", [(4, 1), (1, 33), (17, 33), (3, 5, 130)])
def test_broadcasts(shape):
    spread = (6, *shape[:-1], shape[-1])
    check(lambda x, b: ops.relu(x + ops.broadcast_to(b, shape=spread)), f32[spread], f32[shape])
    check(lambda x, b: x * ops.broadcast_to(b, shape=spread), f32[spread], f32[shape[-1:]])
    check(lambda x, b: x * ops.broadcast_to(b, shape=spread), f32[spread], f32[()])
    check(lambda x, b: x * ops.broadcast_to(b, shape=spread), f32[spread], f32[(6, *[1] * len(shape))])


def test_moves():
    check(lambda x: ops.transpose(x, perm=(1, 0)), f32[33, 47])
    check(lambda x: ops.transpose(x, perm=(0, 2, 1, 3)) * 2, f32[3, 5, 7, 19])
    check(lambda x: ops.reshape(ops.transpose(x, perm=(0, 2, 1, 3)), shape=(3, 7, 95)), f32[3, 5, 7, 19])
    check(lambda x: ops.slice_(x, starts=(1, 2), limits=(8, 30), strides=(1, 3)), f32[9, 31])
    check(lambda x, v: ops.pad(x, v, low=(1, 2), high=(3, 4), interior=(0, 0)), f32[9, 31], f32[()])
    check(lambda x, y: ops.concatenate(x, y, axis=1), f32[5, 17], f32[5, 30])
    check(lambda x: ops.reverse(x, axes=(1,)), f32[5, 40])
    check(lambda x, i: ops.take(x, i, axis=0), f32[11, 40], i32[6])


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(3, 5, 7), (17, 1, 130), (2, 33, 64)])
def test_reductions(shape, axes):
    check(lambda x: ops.reduce_sum(x, axes=axes), f32[shape])
    check(lambda x: ops.reduce_max(x, axes=axes) * 2, f32[shape], special=True)
    check(lambda x: ops.reduce_sum(x * x, axes=axes), i32[shape])


def test_long_reductions():
    check(lambda x: ops.reduce_sum(x, axes=(0,)), f32[300_001], tol=1e-4)
    check(lambda x: ops.reduce_sum(x, axes=(1,)), f32[3, 100_003], tol=1e-4)
    check(lambda x: ops.softmax(x, axis=0), f32[200_000])
    check(lambda x: ops.reduce_sum(x, axes=(0,)), f32[9000, 33], tol=1e-4)
    x = np.random.default_rng(0).uniform(0, 1, 3_000_000).astype(np.float32)
    fn = trace(lambda x: ops.reduce_sum(x, axes=(0,)), [f32[x.shape]])
    exact = x.astype(np.float64).sum()
    assert abs(run(fn, [x])[0] - exact) <= max(abs(x.sum() - exact), exact * 6e-8)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("extent", [1, 7, 16, 49, 64])
def test_many_short_rows(extent, target):
    check(lambda x: ops.reduce_sum(x, axes=(1,)), f32[133, extent], target=TARGETS[target])
    check(lambda x: ops.reduce_mean(x * x, axes=(2,)), f32[3, 70, extent], target=TARGETS[target], special=True)
    check(lambda x: ops.reduce_max(x, axes=(1,)), bf16[100, extent], target=TARGETS[target], special=True)
    check(lambda x: (ops.reduce_min(x, axes=(1,)), ops.reduce_sum(x, axes=(1,))), f32[90, extent], special=True)


def test_columns_of_more_than_the_second_cache():
    rows = max(host().l2, 1 << 20) // (4 * 300) + 7
    check(lambda x: ops.reduce_sum(x, axes=(0,)), f32[rows, 300], tol=1e-4)
    check(lambda x: ops.reduce_max(x, axes=(0,)), f32[rows, 300], special=True)


def test_places_of_extremes():
    x = np.random.default_rng(0).integers(-3, 4, (40, 70)).astype(np.float32)
    x[3, 5] = x[3, 60] = x[9, 0] = np.nan
    x[4], x[5] = -np.inf, np.inf
    for op in (ops.argmax, ops.argmin):
        check(lambda x, op=op: op(x, axis=1), f32[x.shape], arrays=[x])


ROWS = [(5, 7), (1, 130), (130, 1), (33, 64), (3, 4, 127)]


@pytest.mark.parametrize("shape", ROWS)
def test_rows(shape):
    last = shape[-1:]
    lead = shape[:-1]
    check(lambda x: ops.softmax(x, axis=x.ndim - 1), f32[shape], special=True)
    check(lambda x: ops.log_softmax(x, axis=x.ndim - 1), f32[shape])
    check(lambda y, d: ops.softmax_grad(y, d, axis=y.ndim - 1), f32[shape], f32[shape])
    check(lambda x, s, b: ops.layer_norm(x, s, b, axes_count=1, eps=1e-5), f32[shape], f32[last], f32[last])
    check(
        lambda x, s, m, r, d: ops.layer_norm_grad(x, s, m, r, d, axes_count=1),
        f32[shape], f32[last], f32[lead], f32[lead], f32[shape], tol=1e-4,
    )  # fmt: skip
    check(lambda x, s: ops.rms_norm(x, s, axes_count=1, eps=1e-5), f32[shape], f32[last])


def test_other_axes():
    check(lambda x: ops.softmax(x, axis=0), f32[33, 70])
    check(lambda x: ops.softmax(x, axis=1), f32[5, 33, 70])


@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (8, 20, 7, 7), (300, 33), (2, 64, 16, 16)])
def test_batch_norm(shape):
    c = shape[1:2]
    check(lambda x, s, b: ops.batch_norm(x, s, b, eps=1e-3), f32[shape], f32[c], f32[c], tol=1e-4)
    check(
        lambda x, s, m, v, d, dm, dv: ops.batch_norm_grad(x, s, m, v * v + 1, d, dm, dv, eps=1e-3),
        f32[shape], f32[c], f32[c], f32[c], f32[shape], f32[c], f32[c], tol=1e-3,
    )  # fmt: skip


def test_cross_entropy():
    labels = RNG.integers(-1, 36, 65).astype(np.int32)
    x = RNG.normal(size=(65, 35)).astype(np.float32)
    check(lambda x, y: ops.cross_entropy_fwd(x, y, ignore_index=-1), f32[65, 35], i32[65], arrays=[x, labels])
    given = [RNG.uniform(1, 2, 65).astype(np.float32) for _ in range(3)]
    check(
        lambda x, y, s, t, d: ops.cross_entropy_grad(x, y, s, t, d, ignore_index=None),
        f32[65, 35], i32[65], *[f32[65]] * 3, arrays=[x, labels, *given],
    )  # fmt: skip


def taken_ops():
    from treadle.ops import OPS

    for name, op in sorted(OPS.items()):
        if not op.rules.get("effect") and not op.has_regions:
            yield name


def cases_of(name):
    """Functions of one op with arrays, as far as its samples are wholly numeric."""
    from treadle.ops import OPS
    from treadle.ops._declare import samples_of

    op = OPS[name]
    for sample in samples_of(op):
        if not sample.bad and not any(a.dtype.kind == "c" for a in sample.arrays):
            yield trace(lambda *v, s=sample: op(*v, **s.attrs), sample.types), list(sample.arrays)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(taken_ops()))
def test_samples_of_every_op_that_is_taken(name):
    for fn, arrays in cases_of(name):
        if not loops.plans(fn, host()):
            continue
        arrays = [np.asarray(a).astype(t.dtype.np) for a, t in zip(arrays, fn.in_types, strict=True)]
        got = run(fn, arrays)
        with np.errstate(all="ignore"):
            want = interp.run(fn, *arrays)
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype
            bits = 0 if w.dtype.kind in "biu" else {8: 1e-10, 4: 2e-5, 2: 2e-2}[w.dtype.itemsize]
            a, b = g.astype(np.float64), w.astype(np.float64)
            np.testing.assert_allclose(a, b, bits, bits, equal_nan=True, err_msg=str(fn))


def test_updates_of_many_parameters():
    attrs = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1, "decoupled": True}
    shapes = [(3, 5), (7,), (64, 33), (1,), (40_000,), (5, 3)]

    def update(*values):
        *tensors, step, rate = values
        results = []
        for n in range(0, len(tensors), 4):
            results += ops.adam_update(*tensors[n : n + 4], step, rate, **attrs)
        return results

    types = [f32[s] for s in shapes for _ in range(4)] + [f32[()], f32[()]]
    arrays = [np.abs(draw(t)) for t in types[:-2]] + [np.array(3, np.float32), np.array(0.01, np.float32)]
    check(update, *types, arrays=arrays)
    mixed = [bf16[33], f32[33], bf16[50], f32[50]]
    check(lambda a, b, c, d: (a + ops.cast(b, dtype=a.dtype), c + ops.cast(d, dtype=c.dtype)), *mixed)


@pytest.mark.parametrize("width", [1, 7, 16, 130])
@pytest.mark.parametrize("kind", [f32, f64, i32])
def test_rows_added_by_index(kind, width):
    from treadle.kernels.templates import rows_added

    fn = trace(lambda i, u: ops.index_sum(i, u, axis=0, size=11), [i64[5, 9], kind[5, 9, width]])
    arrays = [RNG.integers(-3, 14, (5, 9)), RNG.integers(-4, 5, (5, 9, width)).astype(kind[()].dtype.np)]
    (want,) = interp.run(fn, *arrays)
    for target in TARGETS.values():
        kernel = rows_added.plans(fn, target)[0].build()
        for threads in (1, 2):
            out = Fenced(np.zeros(fn.out_types[0].shape, fn.out_types[0].dtype.np)).array
            jit.load(kernel.text, target).run([*arrays, out], threads)
            np.testing.assert_array_equal(out, want)
    assert rows_added.plans(trace(lambda x: ops.exp(x), [f32[3]]), host()) == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("width", "start"), [(64, 0), (64, 4), (16, 0), (16, 8), (130, 0), (24, 4)])
def test_rows_added_past_the_caches(width, start, target):
    from treadle.kernels.templates import rows_added

    fn = trace(lambda i, u: ops.index_sum(i, u, axis=0, size=301), [i32[40], f32[40, width]])
    arrays = [RNG.integers(0, 301, 40).astype(np.int32), RNG.integers(-4, 5, (40, width)).astype(np.float32)]
    (want,) = interp.run(fn, *arrays)
    kernel = rows_added.plans(fn, replace(TARGETS[target], l3=1 << 10))[0].build()
    assert ("nontemporal" in kernel.text) == (width % TARGETS[target].lanes(32) == 0)
    for threads in (1, 2):
        whole = np.full(want.nbytes + 256, 0xCD, np.uint8)
        begin = -whole.ctypes.data % 64 + 64 + start
        out = whole[begin : begin + want.nbytes].view(np.float32).reshape(want.shape)
        jit.load(kernel.text, TARGETS[target]).run([*arrays, out], threads)
        np.testing.assert_array_equal(out, want)
        assert np.all(whole[:begin] == 0xCD) and np.all(whole[begin + want.nbytes :] == 0xCD)


@pytest.mark.parametrize("plan", range(3))
def test_every_plan_gives_the_same(plan):
    fn = trace(lambda x: (ops.softmax(x, axis=1), ops.exp(x)), [f32[37, 150]])
    x = draw(fn.in_types[0])
    assert len(loops.plans(fn, host())) == 3
    for got, want in zip(run(fn, [x], plan=plan), interp.run(fn, x), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def test_what_is_left_to_xla():
    reasons = {
        "empty tensors": trace(lambda x: ops.exp(x), [f32[0, 3]]),
        "an op without a formula": trace(lambda x: ops.sort(x, axis=0, descending=False), [f32[5]]),
        "erf_inv has no vector code": trace(lambda x: ops.erf_inv(x), [f32[5]]),
        "every element is used very often": trace(lambda x, y: ops.matmul(x, y), [f32[99, 99], f32[99, 99]]),
        "reductions over different axes": trace(
            lambda x: (ops.reduce_sum(x, axes=(1,)), ops.reduce_sum(x, axes=(0, 1))), [f32[9, 9]]
        ),
        "one result twice": trace(lambda x: [ops.reduce_sum(x, axes=(0,))] * 2, [f32[9, 9]]),
    }
    for why, fn in reasons.items():
        assert loops.why_not(fn, host()) == why
        assert loops.plans(fn, host()) == []


def test_short_runs_through_much_memory_are_asked_for():
    large, target = f32[16, 8, 2048], replace(host(), l3=1 << 20)
    mean = lambda x: ops.reduce_mean(x, axes=(0, 2))
    check(mean, large, target=target, special=True)
    asks = lambda t, cpu: "prefetch" in loops.plans(trace(mean, [t]), cpu)[0].build().text
    assert asks(large, target) and not asks(large, replace(target, l3=1 << 30))  # what caches may hold
    assert not asks(f32[128, 8, 128], target)  # of runs of 512 bytes


def test_places_are_not_kept_for_the_next_run_over_a_row():
    def spread(x):
        mean = ops.broadcast_to(ops.reshape(ops.reduce_mean(x, axes=(0, 2)), shape=(1, 8, 1)), shape=x.shape)
        return ops.reduce_mean(ops.square(x - mean), axes=(0, 2))

    check(spread, f32[16, 8, 208])
    text = loops.plans(trace(spread, [f32[16, 8, 208]]), host())[0].build().text
    assert not [line for line in text.splitlines() if line.strip().startswith("store <") and "x i64>" in line]
