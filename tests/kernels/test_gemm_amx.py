"""The AMX kernels: their logic run by emulated tiles on any CPU, their code assembled for one that has them."""

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.test_gemm import SPECS, compare, letters, linear, trace

from treadle.ir import interp
from treadle.ir.types import bf16, f32
from treadle.kernels import jit
from treadle.kernels.emulate import emulated
from treadle.kernels.launch import Phase, finish
from treadle.kernels.llvm import Function, Module
from treadle.kernels.target import host
from treadle.kernels.templates import gemm
from treadle.ops.activation import gelu
from treadle.ops.casting import cast
from treadle.ops.products import contract, matmul

NEEDED = {
    "amx-tile",
    "amx-bf16",
    "amx-int8",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512bf16",
    "fma",
    "avx2",
    "bmi2",
}
SAPPHIRE = replace(host(), cpu="sapphirerapids", features=host().features | NEEDED, l2=2 << 20)
x86 = pytest.mark.skipif(not host().triple.startswith("x86"), reason="AMX is of x86")


def check(body, plans=None, scale=1.0, arrays=None):
    offers = [p for p in gemm.plans(body, SAPPHIRE) if "amx" in p.name]
    assert offers
    rng = np.random.default_rng(1)
    if arrays is None:
        arrays = [rng.normal(size=t.shape).astype(t.dtype.np) for t in body.in_types]
    wants = interp.run(body, *arrays)
    for plan in offers[:plans]:
        kernel = plan.build()
        assert "llvm.x86.tdpbf16ps" in kernel.text
        code = jit.load(emulated(kernel.text))
        for threads in (1, 2):
            outs = [np.full(t.shape, 77, t.dtype.np) for t in kernel.outputs]
            code.run([*arrays, *outs], threads)
            for got, want in zip(outs, wants, strict=True):
                compare(got, want, scale, plan.name)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "m, n, k", [(3, 14, 17), (32, 32, 32), (70, 50, 45), (33, 65, 129), (16, 17, 64), (47, 31, 16)]
)
def test_sizes_and_orders(spec, m, n, k):
    check(letters(spec, m, n, k, bf16, batch=2), plans=1)


def test_every_plan_and_sums_in_blocks():
    check(letters("mk,kn->mn", 40, 40, 3300, bf16), scale=2)
    check(letters("km,nk->mn", 40, 70, 3301, bf16), scale=2)
    check(letters("mk,kn->mn", 64, 64, 2048, bf16))


def test_epilogues_and_casts():
    check(trace(lambda x, w, b: gelu(linear(x, w, b), approximate=True), bf16[40, 33], bf16[33, 70], bf16[70]), scale=2)
    wide = trace(
        lambda x, w: matmul(cast(x, dtype=f32[1].dtype), cast(w, dtype=f32[1].dtype)), bf16[40, 33], bf16[33, 70]
    )
    check(wide)
    narrow = trace(lambda x, w: matmul(cast(x, dtype=bf16[1].dtype), w), f32[40, 33], bf16[33, 70])
    check(narrow)


def test_nan_and_infinity_stay_in_their_rows_and_columns():
    rng = np.random.default_rng(5)
    x, w = (rng.normal(size=s).astype(bf16[1].dtype.np) for s in ((33, 19), (19, 70)))
    x[3, 4], x[20, 18], w[2, 69], w[18, 40] = np.nan, np.inf, np.inf, -np.inf
    with np.errstate(all="ignore"):
        check(letters("mk,kn->mn", 33, 70, 19, bf16), arrays=[x, w])


@pytest.mark.parametrize("m, n, k", [(40, 70, 45), (33, 32, 1100)])
def test_high_precision_is_three_products(m, n, k):
    for spec, x, w in (("mk,kn->mn", (m, k), (k, n)), ("km,nk->mn", (k, m), (n, k))):
        body = trace(lambda a, b, s=spec: contract(a, b, spec=s, precision="high"), f32[x], f32[w])
        check(body, plans=1, scale=30)  # the reference rounds as the kernel does: both differ from float32 alike
        arrays = [np.random.default_rng(1).normal(size=t.shape).astype(np.float32) for t in body.in_types]
        exact = np.einsum(spec, *[a.astype(np.float64) for a in arrays])
        plan = gemm.plans(body, SAPPHIRE)[0]
        assert "amx x3" in plan.name
        out = np.zeros(exact.shape, np.float32)
        jit.load(emulated(plan.build().text)).run([*arrays, out])
        error = np.abs(out - exact).max() / np.abs(exact).max()
        assert 1e-7 < error < 3e-5


def test_high_precision_at_its_corners():
    x = np.zeros((32, 32), np.float32)
    w = np.zeros((32, 32), np.float32)
    x[0, 0], x[1, 1], x[2, 2], x[3, 3], x[4, 4] = np.inf, np.nan, 3.4e38, 1.0 + 2.0**-12, -3.4e38
    for i in range(5):
        w[i, :2] = 1.0, 0.5 + 2.0**-12
    body = trace(lambda a, b: matmul(a, b, precision="high"), f32[32, 32], f32[32, 32])
    with np.errstate(all="ignore"):
        (want,) = interp.run(body, x, w)
    out = np.zeros_like(want)
    jit.load(emulated(gemm.plans(body, SAPPHIRE)[0].build().text)).run([x, w, out])
    np.testing.assert_allclose(out[:5, :2], want[:5, :2], rtol=1e-6)
    assert out[0, 1] == np.inf and np.isnan(out[1, 1]) and np.isfinite(out[2, 1])


@x86
def test_the_code_assembles_for_a_cpu_with_tiles():
    body = letters("mk,kn->mn", 100, 100, 100, bf16)
    plan = next(p for p in gemm.plans(body, SAPPHIRE) if "amx" in p.name)
    text = plan.build().text
    code = jit.assembly(text, SAPPHIRE)
    for instruction in ("tdpbf16ps", "tileloadd", "tilestored", "tilezero"):
        assert instruction in code
    assert len(jit.compile_object(text, SAPPHIRE)) > 1000
    assert '"i64 1"' not in text and gemm.plans(body, host().without("amx-tile"))[0].name.find("amx") < 0


def test_bytes_are_multiplied_as_the_instruction_does():
    m = Module()
    f = Function(m, "dot", ["ptr", "i64", "ptr"])
    places = [f.load(f.args[0], "ptr", 8 * i) for i in range(3)]
    number = [f.constant(i, "i8") for i in range(3)]
    f.intrinsic("llvm.x86.tilezero", "void", number[0])
    for i in (1, 2):
        f.intrinsic("llvm.x86.tileloadd64", "void", number[i], places[i - 1], f.i64(64))
    f.intrinsic("llvm.x86.tdpbssd", "void", *number)
    f.intrinsic("llvm.x86.tilestored64", "void", number[0], places[2], f.i64(64))
    f.give()
    a, b = np.random.default_rng(0).integers(-128, 128, size=(2, 16, 64), dtype=np.int8)
    out = np.zeros((16, 16), np.int32)
    jit.load(emulated(finish(m, [Phase("dot", 1)], 3))).run([a, b, out])
    words = b.reshape(16, 16, 4).transpose(0, 2, 1).reshape(64, 16)
    np.testing.assert_array_equal(out, a.astype(np.int32) @ words.astype(np.int32))
