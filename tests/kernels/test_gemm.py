"""Matrix products as kernels: every size, operand order and epilogue against the IR's own meaning, on every path.

Arrays end where readable memory ends, with guard bytes before them.
"""

import numpy as np
import pytest
from tests.kernels.checking import check_plan
from tests.kernels.pages import Fenced

from treadle.ir import build, interp
from treadle.ir.types import bf16, f16, f32
from treadle.kernels import engine, jit
from treadle.kernels.target import host
from treadle.kernels.templates import gemm
from treadle.ops.activation import gelu, relu
from treadle.ops.casting import cast
from treadle.ops.creation import full
from treadle.ops.products import contract, matmul
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import reshape, slice_, transpose

TARGETS = {
    "host": host(),
    "no bf16": host().without("avx512bf16"),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2", "fma", "f16c"),
}
TOLERANCE = {"f32": 2e-6, "bf16": 8e-3, "f16": 2e-3}


def trace(function, *types):
    return build.trace(function, types)


def run(plan, target, arrays, threads=1):
    kernel = plan.build()
    assert kernel.workspace >= 0
    code = jit.load(kernel.text, target)
    outs = [np.full(t.shape, 77, t.dtype.np) for t in kernel.outputs]
    extra = [np.empty(kernel.workspace, np.uint8)] if kernel.workspace else []
    held = [Fenced(a) for a in (*arrays, *outs)]
    code.run([*[h.array for h in held], *extra], threads)
    assert all(h.intact() for h in held)
    return [h.array.copy() for h in held[len(arrays) :]]


def check(body, target=None, arrays=None, plans=None, scale=1.0, seed=0):
    """Every plan (or the first few) against the interpreter; the same bits from one and two threads."""
    target = target or host()
    rng = np.random.default_rng(seed)
    if arrays is None:
        arrays = [rng.normal(size=t.shape).astype(t.dtype.np) for t in body.in_types]
    offers = gemm.plans(body, target)
    assert offers
    wants = interp.run(body, *arrays)
    for plan in offers[:plans]:
        results = run(plan, target, arrays)
        again = run(plan, target, arrays, threads=2)
        for got, want, other in zip(results, wants, again, strict=True):
            assert got.tobytes() == other.tobytes(), plan.name
            compare(got, want, scale, plan.name)


def compare(got, want, scale, name):
    tolerance = TOLERANCE[str(np.dtype(got.dtype).name).replace("float", "f").replace("bf", "bf")] * scale
    got, want = got.astype(np.float64), want.astype(np.float64)
    size = np.abs(want[np.isfinite(want)]).max(initial=1.0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * size, err_msg=name)


def letters(spec, m, n, k, kind, batch=3):
    sizes = {"m": m, "n": n, "k": k, "b": batch}
    x, y = spec.partition("->")[0].split(",")
    return trace(lambda a, b: contract(a, b, spec=spec), *[kind[tuple([sizes[c] for c in p])] for p in (x, y)])


SPECS = ("mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "mk,kn->nm", "bmk,bkn->bmn", "mbk,bnk->mbn", "bkm,kn->bmn")


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", [f32, bf16, f16], ids=["f32", "bf16", "f16"])
def test_random_sizes_in_every_order(name, kind):
    rng = np.random.default_rng(len(name))
    primes = (1, 2, 3, 7, 13, 31, 61, 127)
    for i, spec in enumerate(SPECS):
        m, n, k = (int(rng.integers(1, 131)) if rng.random() < 0.6 else int(rng.choice(primes)) for _ in range(3))
        check(letters(spec, m, n, k, kind), TARGETS[name], plans=1, seed=i, scale=3)


@pytest.mark.parametrize("k", [0, 1, 2, 15, 16, 17, 33, 600, 1031])
@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
def test_every_length_of_the_sum(k, kind):
    for spec in ("mk,kn->mn", "km,nk->mn"):
        check(letters(spec, 19, 37, k, kind), scale=4)


@pytest.mark.parametrize("m, n", [(1, 1), (1, 100), (100, 1), (2, 33), (14, 32), (15, 64), (29, 48), (300, 70)])
def test_edges(m, n):
    check(letters("mk,kn->mn", m, n, 40, f32))


@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
@pytest.mark.parametrize("m, n, k", [(200, 1650, 41), (230, 820, 1100)])
def test_many_panels_of_rows_are_packed_by_a_task(m, n, k, kind):
    check(letters("km,kn->mn", m, n, k, kind), scale=4, plans=2)


@pytest.mark.parametrize("name", TARGETS)
def test_sums_in_several_blocks_end_in_any_task(name):
    check(letters("mk,nk->mn", 45, 75, 1700, f32), TARGETS[name], scale=4)
    check(letters("mk,kn->mn", 45, 75, 1701, bf16), TARGETS[name], plans=1)


@pytest.mark.parametrize(
    "spec", [",->", "k,k->", "m,n->nm", "k,kn->n", "mk,k->m", "bk,bk->b", "b,b->b", "bqhd,bshd->bhqs"]
)
def test_odd_shapes_of_contractions_are_right_or_refused(spec):
    x, y = spec.partition("->")[0].split(",")
    sizes = dict(zip("mnkbqhsd", (23, 41, 37, 3, 5, 4, 7, 18), strict=True))
    body = trace(lambda a, b: contract(a, b, spec=spec), *[f32[tuple([sizes[c] for c in p])] for p in (x, y)])
    if gemm.plans(body, host()):
        check(body)


def test_views_of_operands_are_read_in_place():
    def attention_scores(qkv):
        parts = reshape(qkv, shape=(2, 11, 3, 4, 16))
        q, k = (
            reshape(
                slice_(parts, starts=(0, 0, i, 0, 0), limits=(2, 11, i + 1, 4, 16), strides=(1,) * 5),
                shape=(2, 11, 4, 16),
            )
            for i in (0, 1)
        )
        return contract(transpose(q, perm=(0, 2, 1, 3)), k, spec="bhqd,bshd->bhqs")

    check(trace(attention_scores, f32[2, 11, 192]))
    check(trace(lambda x, w: matmul(x, broadcast_to(w, shape=(3, 20, 9))), f32[3, 5, 20], f32[20, 9]))
    check(trace(lambda x, w: matmul(transpose(x, perm=(1, 0)), transpose(w, perm=(1, 0))), f32[20, 31], f32[9, 20]))


def linear(x, w, b):
    y = matmul(x, w)
    return y + broadcast_to(b, shape=y.shape)


@pytest.mark.parametrize("name", TARGETS)
def test_epilogues(name):
    target = TARGETS[name]
    x, w, b = f32[37, 20], f32[20, 75], f32[75]
    check(trace(lambda x, w, b: relu(linear(x, w, b)), x, w, b), target)
    check(trace(lambda x, w, b: gelu(linear(x, w, b), approximate=True), x, w, b), target, plans=1)

    def both(x, w, b, r):
        u = linear(x, w, b)
        g = gelu(u, approximate=True)
        return u, g, cast(g + r, dtype=bf16[1].dtype)

    check(trace(both, x, w, b, f32[37, 75]), target, plans=1, scale=2)
    check(trace(lambda x, w, s: matmul(x, w) * broadcast_to(reshape(s, shape=(37, 1)), shape=(37, 75)), x, w, f32[37]))
    check(trace(lambda x, w: matmul(x, w) * full(value=0.5, shape=(37, 75), dtype=x.dtype), x, w), target)


@pytest.mark.parametrize("kind", [bf16, f16], ids=["bf16", "f16"])
@pytest.mark.parametrize("name", TARGETS)
def test_epilogues_round_where_the_ir_rounds(name, kind):
    body = trace(lambda x, w, b: relu(linear(x, w, b)), kind[37, 21], kind[21, 75], kind[75])
    check(body, TARGETS[name], plans=1)


def test_heads_are_written_where_attention_wants_them():
    def split(x, w, b):
        y = reshape(linear(x, w, b), shape=(2, 12, 3, 4, 16))
        return transpose(y, perm=(2, 0, 3, 1, 4))

    check(trace(split, f32[24, 30], f32[30, 192], f32[192]))

    def narrow(x, w):
        return transpose(reshape(matmul(x, w), shape=(24, 9, 5)), perm=(1, 0, 2))

    assert gemm.plans(trace(narrow, f32[24, 30], f32[30, 45]), host()) == []


def test_a_transposed_result_is_the_product_the_other_way_round():
    body = trace(lambda x, w: transpose(matmul(x, w), perm=(1, 0)), f32[37, 20], f32[20, 75])
    check(body)


@pytest.mark.parametrize("name", TARGETS)
def test_casts_of_operands(name):
    f, b = f32[1].dtype, bf16[1].dtype
    wide = trace(lambda x, w: matmul(x, cast(w, dtype=f)), f32[37, 21], bf16[21, 75])
    check(wide, TARGETS[name], plans=1)
    exact = trace(lambda x, w: matmul(cast(x, dtype=f), cast(w, dtype=f)), bf16[37, 21], bf16[21, 75])
    check(exact, TARGETS[name], plans=1)
    narrow = trace(lambda x, w: matmul(cast(x, dtype=b), w), f32[37, 21], bf16[21, 75])
    check(narrow, TARGETS[name], plans=1)


def test_medium_precision_multiplies_bfloat16():
    body = trace(lambda x, w: matmul(x, w, precision="medium"), f32[37, 64], f32[64, 75])
    x, w = (np.random.default_rng(0).normal(size=t.shape).astype(np.float32) for t in body.in_types)
    (got,) = run(gemm.plans(body, host())[0], host(), [x, w])
    exact = x.astype(np.float64) @ w
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert error < 1e-2
    assert (error > 1e-5) == host().has("avx512bf16")


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
def test_nan_and_infinity_stay_in_their_rows_and_columns(name, kind):
    rng = np.random.default_rng(5)
    x, w = (rng.normal(size=s).astype(kind[1].dtype.np) for s in ((33, 19), (19, 70)))
    x[3, 4], x[20, 18], w[2, 69], w[18, 40] = np.nan, np.inf, np.inf, -np.inf
    for spec, a, b in (("mk,kn->mn", x, w), ("mk,nk->mn", x, w.T.copy())):
        body = letters(spec, 33, 70, 19, kind)
        with np.errstate(all="ignore"):
            check(body, TARGETS[name], arrays=[a, b], plans=1)


def test_an_operand_is_packed_where_asking_for_it_early_does_not_do():
    bodies = {n: trace(matmul, f32[512, n], f32[n, n]) for n in (512, 1000)}
    packs = {n: not gemm.plans(body, host())[0].name.endswith("pack:-") for n, body in bodies.items()}
    assert packs == {512: False, 1000: True}  # rows of 1000 floats do not begin where lines of memory do


@pytest.mark.parametrize("kind", [bf16, f16], ids=["bf16", "f16"])
@pytest.mark.parametrize("name", TARGETS)
def test_sums_are_rounded_on_their_way_from_registers(name, kind):
    for m, k, n in ((1, 70, 17), (29, 300, 49), (40, 9, 33), (14, 1, 96)):
        check(trace(matmul, kind[m, k], kind[k, n]), TARGETS[name], plans=2, scale=3)


def test_what_is_not_taken():
    host_ = host()
    assert gemm.plans(trace(lambda x: relu(x), f32[3, 3]), host_) == []
    assert gemm.plans(trace(lambda x, w: matmul(matmul(x, w), w), f32[3, 3], f32[3, 3]), host_) == []
    assert gemm.plans(trace(lambda x, w: matmul(relu(x), w), f32[3, 3], f32[3, 3]), host_) == []
    assert gemm.plans(letters("mk,kn->mn", 0, 4, 3, f32), host_) == []


def test_an_input_of_the_result_s_size_may_be_overwritten():
    body = trace(lambda x, w, r: matmul(x, w) + r, f32[40, 20], f32[20, 50], f32[40, 50])
    for plan in gemm.plans(body, host()):
        kernel = plan.build()
        assert kernel.aliases == ((0, 2),)
        x, w, r = (np.random.default_rng(1).normal(size=t.shape).astype(np.float32) for t in body.in_types)
        want = x @ w + r
        jit.load(kernel.text).run([x, w, r, r], 2)
        np.testing.assert_allclose(r, want, rtol=1e-4, atol=1e-4)
    square = trace(lambda x, w: matmul(x, w) + x, f32[40, 40], f32[40, 40])
    assert gemm.plans(square, host())[0].build().aliases == ()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("m, n, k", [(37, 20, 30), (300, 75, 20), (1000, 33, 600), (5, 1, 9)])
def test_sums_of_columns_are_taken_on_the_way(name, m, n, k):
    def gradient(d, w, u):
        g = matmul(d, w) * relu(u)
        return g, reduce_sum(g, axes=(0,))

    check(trace(gradient, f32[m, k], f32[k, n], f32[m, n]), TARGETS[name], plans=1, scale=4)


def test_sums_over_rows_of_several_axes():
    def gradient(d, w):
        g = contract(d, w, spec="btk,kn->btn")
        h = cast(g, dtype=bf16[1].dtype)
        return reduce_sum(g, axes=(0, 1)), h, reduce_sum(h, axes=(0, 1))

    check(trace(gradient, f32[3, 50, 20], f32[20, 70]), scale=2)
    batched = trace(lambda d, w: reduce_sum(matmul(d, w), axes=(0, 1)), f32[4, 30, 20], f32[4, 20, 70])
    check(batched)
    check(trace(lambda d, w: reduce_sum(matmul(d, w), axes=(1,)), f32[30, 20], f32[20, 70]))


def test_sums_of_rows_beside_the_rows_are_not_taken():
    def both(d, w):
        g = matmul(d, w)
        return g, reduce_sum(g, axes=(1,))

    assert gemm.plans(trace(both, f32[30, 20], f32[20, 70]), host()) == []


def test_a_large_operand_is_not_packed_again_for_each_of_many_small_products():
    few = trace(
        lambda x, w: contract(transpose(x, perm=(1, 0, 2)), w, spec="btk,nk->btn"), f32[35, 20, 64], f32[999, 64]
    )
    assert gemm.plans(few, host()) == []
    whole = trace(lambda x, w: contract(x, w, spec="btk,nk->btn"), f32[35, 20, 64], f32[999, 64])
    tall = trace(
        lambda x, w: contract(transpose(x, perm=(1, 0, 2)), w, spec="btk,nk->btn"), f32[300, 9, 64], f32[999, 64]
    )
    assert gemm.plans(whole, host())
    assert gemm.plans(tall, host())


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_sums_over_axes_that_are_not_one_at_every_precision(precision):
    body = trace(
        lambda x, w: contract(transpose(x, perm=(0, 2, 1, 3)), w, spec="bthd,hdn->btn", precision=precision),
        f32[2, 3, 8, 4], f32[3, 4, 16],
    )  # fmt: skip
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype(t.dtype.np) for t in body.in_types]
    check_plan(engine.plans(body)[0], body, arrays, host())
