"""Products of bytes as kernels: NumPy's numbers in int32 for all values, sizes, operand orders, epilogues and paths."""

import numpy as np
import pytest
from tests.kernels.pages import Fenced

import treadle as td
from treadle.base import events
from treadle.base.dtypes import float32, int8
from treadle.ir import build, interp
from treadle.ir.types import f32, i8, i32, u8
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates import gemm_int8
from treadle.ops.activation import relu
from treadle.ops.casting import cast
from treadle.ops.creation import full
from treadle.ops.elementwise import minimum, round
from treadle.ops.products import matmul_integer
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import transpose

TARGETS = {
    "vnni": host(),
    "avx512": host().without("avx512vnni"),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2", "fma", "f16c"),
}
TYPES = {"i8 i8": (i8, i8), "u8 i8": (u8, i8), "i8 u8": (i8, u8), "u8 u8": (u8, u8)}
SIZES = (1, 2, 3, 4, 5, 7, 13, 16, 31, 61, 64, 65, 127)


def run(plan, target, arrays, threads=1):
    kernel = plan.build()
    code = jit.load(kernel.text, target)
    outs = [np.full(t.shape, 77, t.dtype.np) for t in kernel.outputs]
    extra = [np.empty(kernel.workspace, np.uint8)] if kernel.workspace else []
    held = [Fenced(a) for a in (*arrays, *outs, *extra)]
    code.run([h.array for h in held], threads)
    assert all(h.intact() for h in held), plan.name
    return [h.array.copy() for h in held[len(arrays) : len(arrays) + len(outs)]]


def check(body, arrays, target, plans=None):
    """Every plan against the reference, and the same from two threads."""
    offers = gemm_int8.plans(body, target)
    assert offers
    wants = interp.run(body, *arrays)
    for plan in offers[:plans]:
        for threads in (1, 2):
            for got, want in zip(run(plan, target, arrays, threads), wants, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=plan.name)


def drawn(rng, type):
    low = -128 if type.dtype is int8 else 0
    return rng.integers(low, low + 256, type.shape).astype(type.dtype.np)


def product(x, y, turned_x=False, turned_y=False):
    """x: [m, k] and y: [k, n], each held the other way round if it is turned."""

    def order(v):
        return (*range(v.ndim - 2), v.ndim - 1, v.ndim - 2)

    def body(a, b):
        a = transpose(a, perm=order(a)) if turned_x else a
        b = transpose(b, perm=order(b)) if turned_y else b
        return matmul_integer(a, b)

    def given(t, turned):
        return t.with_shape((*t.shape[:-2], t.shape[-1], t.shape[-2])) if turned else t

    return build.trace(body, [given(x, turned_x), given(y, turned_y)])


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kinds", TYPES)
def test_random_sizes_in_every_order(name, kinds):
    x, y = TYPES[kinds]
    rng = np.random.default_rng([len(name), len(kinds), kinds.count("u")])
    for turned in range(4):
        m, n, k = (int(rng.integers(1, 131)) if rng.random() < 0.5 else int(rng.choice(SIZES)) for _ in range(3))
        body = product(x[m, k], y[k, n], bool(turned & 1), bool(turned & 2))
        check(body, [drawn(rng, t) for t in body.in_types], TARGETS[name], plans=1)


@pytest.mark.parametrize("name", TARGETS)
def test_the_largest_numbers(name):
    for x, low, high in ((i8, -128, 127), (u8, 0, 255)):
        for a in (low, high):
            for b in (-128, 127):
                body = product(x[5, 130], i8[130, 40])
                arrays = [np.full(t.shape, v, t.dtype.np) for t, v in zip(body.in_types, (a, b), strict=True)]
                check(body, arrays, TARGETS[name], plans=1)


def test_every_plan_of_large_and_thin_products():
    rng = np.random.default_rng(7)
    for x, m, k, n in (
        (i8, 300, 260, 200),
        (u8, 300, 260, 200),
        (i8, 1, 515, 300),
        (u8, 700, 4096, 16),
        (i8, 260, 9, 1),
    ):
        body = product(x[m, k], i8[k, n], turned_y=m == 1)
        check(body, [drawn(rng, t) for t in body.in_types], host())


def test_batches():
    rng = np.random.default_rng(8)
    for turned in (False, True):
        body = product(i8[5, 33, 70], i8[5, 70, 50], turned_y=turned)
        check(body, [drawn(rng, t) for t in body.in_types], host())


def quantised(x, y, bias, scale):
    """What follows in quantised inference: bias, scale, ReLU, and bytes again."""
    shape = (x.shape[0], y.shape[1])
    wide = cast(matmul_integer(x, y) + broadcast_to(bias, shape=shape), dtype=float32)
    floats = relu(wide * broadcast_to(scale, shape=shape))
    return floats, cast(minimum(round(floats), full(value=127.0, shape=shape, dtype=float32)), dtype=int8)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", [i8, u8], ids=["i8", "u8"])
def test_what_follows_in_quantised_inference(name, kind):
    rng = np.random.default_rng(9)
    for m, k, n in ((37, 129, 75), (4, 64, 1), (65, 32, 128)):
        body = build.trace(quantised, [kind[m, k], i8[k, n], i32[n], f32[n]])
        arrays = [drawn(rng, t) for t in body.in_types[:2]]
        arrays += [rng.integers(-9999, 9999, n).astype(np.int32), rng.uniform(1e-4, 1e-3, n).astype(np.float32)]
        check(body, arrays, TARGETS[name], plans=1)


def test_a_program_multiplies_bytes_by_a_kernel():
    rng = np.random.default_rng(10)
    x, y = (rng.integers(-128, 128, s).astype(np.int8) for s in ((512, 512), (512, 256)))
    step = td.jit(lambda x, y: matmul_integer(x, y) * 2)
    want = x.astype(np.int32) @ y.astype(np.int32) * 2
    with events.collected("kernels") as log:
        np.testing.assert_array_equal(np.asarray(step(td.Tensor(x), td.Tensor(y))), want)
    assert any("gemm int8" in str(e) for e in log)
