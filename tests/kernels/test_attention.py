"""Attention kernels against the formula in float64: shapes, masks, views, infinities, threads, edges of memory."""

import ml_dtypes
import numpy as np
import pytest
from tests.kernels.pages import at_page_end

from treadle.ir import build, interp
from treadle.ir.build import Builder
from treadle.ir.types import TensorType, bf16, f32
from treadle.kernels import engine, jit
from treadle.kernels.target import host
from treadle.kernels.templates import attention as template
from treadle.kernels.templates._attention_backward import Backward
from treadle.kernels.templates._attention_shape import problem
from treadle.kernels.templates._tiles import machine
from treadle.ops.attentions import attention, attention_fwd, attention_grad
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import concatenate, reshape, slice_, transpose

BF16 = ml_dtypes.bfloat16
TARGETS = {
    "host": host(),
    "no bf16": host().without("avx512bf16", "amx-tile"),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2"),
}
on_all_targets = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def slow(value):
    return pytest.param(value, marks=pytest.mark.slow)


def formula(q, k, v, *mask, scale, causal, d=None):
    """y and the rows' sums; with d the gradients of q, k and v: all in float64."""
    q, k, v, *mask = (x.astype(np.float64) for x in (q, k, v, *mask))
    s = q @ np.swapaxes(k, -1, -2) * scale
    for m in mask:
        s = s + m
    if causal:
        s = np.where(np.arange(s.shape[-1]) > np.arange(s.shape[-2])[:, None], -np.inf, s)
    with np.errstate(all="ignore"):
        top = s.max(-1, keepdims=True)
        e = np.exp(s - top)
        p = e / e.sum(-1, keepdims=True)
        y, sums = p @ v, np.where(top == -np.inf, top, top + np.log(e.sum(-1, keepdims=True)))[..., 0]
    if d is None:
        return y, sums
    d = d.astype(np.float64)
    dp = d @ np.swapaxes(v, -1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    return ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ d


def forward_body(types, op=attention_fwd, **attrs):
    with Builder("body") as b:
        made = op(*[b.param(t) for t in types], **attrs)
        return b.finish(made if isinstance(made, tuple) else (made,))


def gradient_body(types, count=3, **attrs):
    (q, _, v), mask = types[:3], types[3:]
    y, sums = q.with_shape((*q.shape[:-1], v.shape[-1])), f32[q.shape[:-1]]
    with Builder("body") as b:
        operands = [b.param(t) for t in (*types[:3], y, sums, y, *mask)]
        return b.finish(attention_grad(*operands, **attrs)[:count])


def run(body, arrays, target, plan=0, threads=(1, 2), place=np.array):
    """The outputs, the same for all numbers of threads; guards around them are left alone."""
    kernel = template.plans(body, target)[plan].build()
    code = jit.load(kernel.text, target)
    results = []
    for count in threads:
        outs = [place(np.full(t.shape, 7, t.dtype.np)) for t in body.out_types]
        extra = [np.full(kernel.workspace, 0xFF, np.uint8)] if kernel.workspace else []
        code.run([*arrays, *outs, *extra], count)
        results.append(outs)
    for others in results[1:]:
        for a, b in zip(results[0], others, strict=True):
            assert a.tobytes() == b.tobytes()
    return results[0]


def close(found, wanted, tolerance):
    """Equal up to rounding of numbers of size 1 or of the largest; NaN and infinity where they should be."""
    found, wanted = found.astype(np.float64), np.asarray(wanted)
    finite = np.isfinite(wanted)
    size = np.abs(wanted[finite]).max(initial=1.0)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * size)


def arrays_of(types, rng, spread=1.0):
    return [(rng.normal(size=t.shape) * spread).astype(t.dtype.np) for t in types]


def random_types(rng, kind):
    lead = tuple(int(n) for n in rng.integers(1, 4, size=rng.integers(0, 3)))
    rows, keys, depth, width = (int(n) for n in rng.integers(1, 131, size=4))
    types = [kind[(*lead, rows, depth)], kind[(*lead, keys, depth)], kind[(*lead, keys, width)]]
    masks = [(), (rows, keys), (*lead, rows, keys), (*[1 for _ in lead], 1, keys), (keys,)]
    if chosen := masks[rng.integers(0, len(masks))]:
        types.append(kind[chosen])
    return types


@on_all_targets
@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
@pytest.mark.parametrize("seed", [0, slow(1), slow(2), slow(3), slow(4)])
def test_random_shapes_and_masks(seed, kind, target):
    rng = np.random.default_rng(seed)
    types, attrs = random_types(rng, kind), {"scale": 0.2, "causal": bool(seed % 2)}
    arrays = arrays_of(types, rng)
    y, sums = formula(*arrays, **attrs)
    tolerance = 3e-6 if kind is f32 else 2e-2
    plan = seed % 4
    found = run(forward_body(types, **attrs), arrays, target, plan)
    close(found[0], y, tolerance)
    close(found[1], sums, 3e-6)
    d = rng.normal(size=y.shape).astype(types[0].dtype.np)
    given = [*arrays[:3], found[0], found[1], d, *arrays[3:]]
    wanted = formula(*arrays, **attrs, d=d)
    for a, b in zip(run(gradient_body(types, **attrs), given, target, seed % 2), wanted, strict=True):
        close(a, b, 1e-5 if kind is f32 else 3e-2)


@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
@pytest.mark.parametrize("size", [1, 17, 33, 64, *map(slow, (7, 8, 15, 16, 31, 127, 130))])
def test_every_edge_of_a_block(size, kind):
    rng = np.random.default_rng(size)
    types = [kind[2, size, 16], kind[2, size, 16], kind[2, size, 16]]
    arrays = arrays_of(types, rng)
    for causal in (False, True):
        attrs = {"scale": 0.3, "causal": causal}
        y, wanted_sums = formula(*arrays, **attrs)
        found = run(forward_body(types, **attrs), arrays, host())
        close(found[1], wanted_sums, 3e-6)
        close(found[0], y, 3e-6 if kind is f32 else 2e-2)
        d = rng.normal(size=y.shape).astype(types[0].dtype.np)
        wanted = formula(*arrays, **attrs, d=d)
        given = [*arrays, *found, d]
        for a, b in zip(run(gradient_body(types, **attrs), given, host()), wanted, strict=True):
            close(a, b, 1e-5 if kind is f32 else 3e-2)


@on_all_targets
@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
def test_rows_that_see_nothing_are_nan_and_do_not_spoil_others(kind, target):
    types = [kind[20, 8], kind[150, 8], kind[150, 8], kind[20, 150]]
    rng = np.random.default_rng(0)
    q, k, v, mask = arrays_of(types, rng)
    mask[3] = -np.inf  # sees nothing
    mask[5, :140] = -np.inf  # nothing in the first blocks
    mask[6, 3:] = -np.inf  # nothing in the later ones
    attrs = {"scale": 0.5, "causal": False}
    y, sums = run(forward_body(types, **attrs), [q, k, v, mask], target)
    wanted, wanted_sums = formula(q, k, v, mask, **attrs)
    assert np.isnan(y[3].astype(np.float32)).all() and sums[3] == -np.inf
    close(y, wanted, 3e-6 if kind is f32 else 2e-2)
    close(sums, wanted_sums, 3e-6)
    mask[3] = 0
    d = rng.normal(size=y.shape).astype(y.dtype)
    y, sums = run(forward_body(types, **attrs), [q, k, v, mask], target)
    found = run(gradient_body(types, **attrs), [q, k, v, y, sums, d, mask], target)
    for a, b in zip(found, formula(q, k, v, mask, **attrs, d=d), strict=True):
        close(a, b, 1e-5 if kind is f32 else 3e-2)


@on_all_targets
@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
def test_nan_and_infinity_pass_as_in_numpy(kind, target):
    types = [kind[40, 6], kind[70, 6], kind[70, 4]]
    q, k, v = arrays_of(types, np.random.default_rng(1))
    q[2, 1] = np.nan  # its row
    q[7, :] = np.inf  # scores of both signs: NaN
    q[9, 0], k[:, 0] = np.inf, np.abs(k[:, 0]) + 1  # scores +inf: NaN
    v[:, 3] = np.inf  # a column of infinities
    v[5, 2] = np.nan  # weighs in everywhere
    attrs = {"scale": 0.5, "causal": False}
    with np.errstate(all="ignore"):
        wanted = formula(q, k, v, **attrs)[0]
    close(run(forward_body(types, op=attention, **attrs), [q, k, v], target)[0], wanted, 3e-6 if kind is f32 else 2e-2)
    q = np.where(np.isfinite(q.astype(np.float32)), q, 0).astype(q.dtype)
    v[:] = 1
    v[69] = np.nan
    causal = run(forward_body(types, op=attention, scale=0.5, causal=True), [q, k, v], target)[0].astype(np.float32)
    np.testing.assert_allclose(causal, 1, rtol=1e-2)  # no row sees the last key


def test_large_scores_do_not_overflow():
    types = [f32[1, 33, 4], f32[1, 33, 4], f32[1, 33, 4]]
    arrays = arrays_of(types, np.random.default_rng(2), 60.0)
    attrs = {"scale": 1.0, "causal": False}
    y, sums = run(forward_body(types, **attrs), arrays, host())
    wanted = formula(*arrays, **attrs)
    close(y, wanted[0], 2e-3)
    close(sums, wanted[1], 1e-5)


def packed_body(kind, batch, length, heads, size, causal):
    """As a transformer has it: q, k and v are parts of one buffer, the heads are merged again."""

    def head(x, i):
        part = slice_(
            x, starts=(0, 0, i * heads * size), limits=(batch, length, (i + 1) * heads * size), strides=(1,) * 3
        )
        return transpose(reshape(part, shape=(batch, length, heads, size)), perm=(0, 2, 1, 3))

    with Builder("body") as b:
        x = b.param(kind[batch, length, 3 * heads * size])
        y, sums = attention_fwd(*[head(x, i) for i in range(3)], scale=0.3, causal=causal)
        merged = reshape(transpose(y, perm=(0, 2, 1, 3)), shape=(batch, length, heads * size))
        return b.finish((merged, sums))


@on_all_targets
@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
def test_views_of_a_packed_buffer_are_read_in_place(kind, target):
    body = packed_body(kind, 2, 45, 3, 10, True)
    arrays = arrays_of(body.in_types, np.random.default_rng(3))
    for found, wanted in zip(run(body, arrays, target), interp.run(body, *arrays), strict=True):
        close(found, wanted.astype(np.float64), 3e-6 if kind is f32 else 2e-2)


def test_heads_that_share_keys_are_broadcast_views():
    with Builder("body") as b:
        q, k, v = b.param(f32[2, 6, 9, 8]), b.param(f32[2, 2, 9, 8]), b.param(f32[2, 2, 9, 5])

        def shared(x):
            size = x.shape[-1]
            spread = broadcast_to(reshape(x, shape=(2, 2, 1, 9, size)), shape=(2, 2, 3, 9, size))
            return reshape(spread, shape=(2, 2, 3, 9, size))

        grouped = reshape(q, shape=(2, 2, 3, 9, 8))
        y = attention(grouped, shared(k), shared(v), scale=0.4, causal=True)
        body = b.finish((reshape(y, shape=(2, 6, 9, 5)),))
    arrays = arrays_of(body.in_types, np.random.default_rng(4))
    close(run(body, arrays, host())[0], interp.run(body, *arrays)[0].astype(np.float64), 3e-6)


def test_gradients_of_views_are_written_in_place():
    kind, shape = f32, (2, 3, 37, 8)
    with Builder("body") as b:
        flat = [b.param(kind[2, 37, 24]) for _ in range(5)]
        split = [transpose(reshape(x, shape=(2, 37, 3, 8)), perm=(0, 2, 1, 3)) for x in flat]
        sums = b.param(f32[shape[:-1]])
        grads = attention_grad(*split[:4], sums, split[4], scale=0.3, causal=True)
        body = b.finish([reshape(transpose(g, perm=(0, 2, 1, 3)), shape=(2, 37, 24)) for g in grads])
    rng = np.random.default_rng(5)
    q, k, v, d = (rng.normal(size=shape).astype(np.float32) for _ in range(4))
    y, sums = formula(q, k, v, scale=0.3, causal=True)
    joined = [np.swapaxes(x, 1, 2).reshape(2, 37, 24).astype(np.float32) for x in (q, k, v, y, d)]
    found = run(body, [*joined, sums.astype(np.float32)], host())
    for a, b in zip(found, formula(q, k, v, scale=0.3, causal=True, d=d), strict=True):
        close(a, np.swapaxes(b, 1, 2).reshape(2, 37, 24), 1e-5)


def joined_gradients(join, **attrs):
    """The gradients of q, k and v [2, 3, rows, depth] and what `join` makes of them."""
    q, k, v = f32[2, 3, 37, 8], f32[2, 3, 21, 8], f32[2, 3, 21, 8]
    with Builder("body") as b:
        operands = [b.param(t) for t in (q, k, v, q, f32[2, 3, 37], q)]
        return b.finish(join(b, *attention_grad(*operands, **attrs)))


def joined_along_heads(b, dq, dk, dv):
    """[2, rows, 3, 8] of dk and dv, and beside each other, as a packed projection has them; dq for itself."""
    both = concatenate(reshape(dv, shape=(1, 2, 3, 21, 8)), reshape(dk, shape=(1, 2, 3, 21, 8)), axis=0)
    return reshape(transpose(both, perm=(1, 3, 0, 2, 4)), shape=(2, 21, 48)), dq


def joined_along_rows(b, dq, dk, dv):
    """Of different lengths, in the order in which they are."""
    return (concatenate(dq, dk, transpose(transpose(dv, perm=(1, 0, 2, 3)), perm=(1, 0, 2, 3)), axis=2),)


@on_all_targets
@pytest.mark.parametrize("join", [joined_along_heads, joined_along_rows])
def test_gradients_are_written_into_what_joins_them(join, target):
    body = joined_gradients(join, scale=0.3, causal=True)
    rng = np.random.default_rng(9)
    q, k, v, _, _, d = (rng.normal(size=t.shape).astype(np.float32) for t in body.in_types)
    y, sums = formula(q, k, v, scale=0.3, causal=True)
    found = run(body, [q, k, v, y.astype(np.float32), sums.astype(np.float32), d], target, place=at_page_end)
    dq, dk, dv = formula(q, k, v, scale=0.3, causal=True, d=d)
    if join is joined_along_rows:
        wanted = [np.concatenate([dq, dk, dv], 2)]
    else:
        wanted = [np.stack([dv, dk]).transpose(1, 3, 0, 2, 4).reshape(2, 21, 48), dq]
    for a, b in zip(found, wanted, strict=True):
        close(a, b, 1e-5)


def test_gradients_joined_to_something_else_are_left_to_xla():
    def with_a_parameter(b, dq, dk, dv):
        return (concatenate(dq, dk, dv, b.param(f32[2, 3, 1, 8]), axis=2),)

    def twice(b, dq, dk, dv):
        return (concatenate(dq, dk, dv, dv, axis=2),)

    def across(b, dq, dk, dv):  # places without strides
        both = reshape(concatenate(dk, dv, axis=3), shape=(2, 3, 21, 4, 4))
        return transpose(both, perm=(0, 1, 3, 2, 4)), dq

    for join in (with_a_parameter, twice, across):
        assert not template.plans(joined_gradients(join, scale=0.3, causal=False), host())


def test_long_rows_far_apart_are_read_where_they_are():
    """Where copies do not fit into a worker's memory."""
    with Builder("body") as b:
        flat = [b.param(f32[40, 50]) for _ in range(5)]
        split = [transpose(reshape(x, shape=(40, 5, 10)), perm=(1, 0, 2)) for x in flat]
        grads = attention_grad(*split[:4], b.param(f32[5, 40]), split[4], scale=0.3, causal=False)
        body = b.finish(grads)
    p = problem(body, next(n for n in body.nodes if n.op is attention_grad))
    rng = np.random.default_rng(7)
    q, k, v, d = (rng.normal(size=(5, 40, 10)).astype(np.float32) for _ in range(4))
    y, sums = formula(q, k, v, scale=0.3, causal=False)
    arrays = [np.ascontiguousarray(np.swapaxes(x, 0, 1).reshape(40, 50), np.float32) for x in (q, k, v, y, d)]
    for copies in (False, True):
        maker = Backward(p, machine(host(), pairs=False), 32, 1, copies)
        code = jit.load(maker.kernel(body.in_types, body.out_types).text)
        outs = [np.zeros((5, 40, 10), np.float32) for _ in range(3)]
        code.run([*arrays, sums.astype(np.float32), *outs])
        for a, b in zip(outs, formula(q, k, v, scale=0.3, causal=False, d=d), strict=True):
            close(a, b, 1e-5)


def test_a_gradient_that_does_not_fit_into_memory_is_left_to_xla():
    attrs = {"scale": 0.3, "causal": False}
    assert template.plans(gradient_body([f32[1, 2500, 128]] * 3, **attrs), host())
    assert not template.plans(gradient_body([f32[1, 9000, 128]] * 3, **attrs), host())
    assert template.plans(forward_body([f32[1, 20000, 128]] * 3, **attrs), host())
    assert not template.plans(forward_body([bf16[1, 80000, 64]] * 3, **attrs), host())


@pytest.mark.slow
def test_far_more_keys_than_a_block():
    """Strided keys whose copies would not fit into a worker's memory: they are read in place."""
    body = packed_body(f32, 1, 8200, 1, 130, False)
    arrays = arrays_of(body.in_types, np.random.default_rng(8))
    q, k, v = np.split(arrays[0], 3, axis=2)
    code = jit.load(template.plans(body, host())[0].build().text)
    y, sums = (np.zeros(t.shape, t.dtype.np) for t in body.out_types)
    code.run([*arrays, y, sums], 2)
    rows = [0, 31, 32, 4097, 8199]
    close(y[:, rows], formula(q[:, rows], k, v, scale=0.3, causal=False)[0], 1e-5)


@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
def test_nothing_is_touched_beyond_the_arrays(kind):
    types = [kind[2, 35, 10], kind[2, 67, 10], kind[2, 67, 6], kind[35, 67]]
    rng = np.random.default_rng(6)
    arrays = [at_page_end(a) for a in arrays_of(types, rng)]
    attrs = {"scale": 0.3, "causal": True}
    for target in TARGETS.values():
        y, sums = run(forward_body(types, **attrs), arrays, target, threads=(1,), place=at_page_end)
        d = at_page_end(rng.normal(size=y.shape).astype(y.dtype))
        given = [*arrays[:3], y, sums, d, *arrays[3:]]
        run(gradient_body(types, **attrs), given, target, threads=(1,), place=at_page_end)


def test_what_is_not_taken_is_left_to_xla():
    types = [f32[2, 8, 4], f32[2, 8, 4], f32[2, 8, 4], f32[8, 8]]
    attrs = {"scale": 0.3, "causal": False}
    assert template.plans(gradient_body(types, **attrs), host())
    column = [*types[:3], f32[8, 1]]  # a mask of one column
    assert not template.plans(gradient_body(column, count=4, **attrs), host())
    double = [TensorType(t.dtype, t.shape) for t in types[:3]]
    assert template.plans(forward_body(double, **attrs), host())
    with Builder("body") as b:
        q, k, v = (b.param(t) for t in double)
        body = b.finish((attention(q + q, k, v, **attrs),))
    assert not template.plans(body, host())  # a sum is no view
    with Builder("body") as b:
        q, k, v = (b.param(t) for t in double)
        y = attention(q, k, v, **attrs)
        body = b.finish((y, y + 1.0))
    assert not template.plans(body, host())
    assert not template.plans(forward_body([f32[0, 8, 4]] * 3, **attrs), host())
    with Builder("body") as b:
        y, sums = attention_fwd(*[b.param(t) for t in double], **attrs)
        body = b.finish((y, transpose(sums, perm=(1, 0))))
    assert not template.plans(body, host())  # sums far apart
    with Builder("body") as b:
        q, k, v = (transpose(b.param(t), perm=(0, 2, 1)) for t in [f32[2, 4, 8]] * 3)
        body = b.finish((attention(q, k, v, **attrs),))
    assert not template.plans(body, host())  # elements of a row far apart


def test_the_engine_finds_the_template():
    body = forward_body([f32[2, 8, 4]] * 3, scale=0.3, causal=True)
    assert engine.plans(body)[0].name.startswith("attention")
    assert build.active() is False
