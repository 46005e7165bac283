"""What no anchor's group took: which reductions and chains become groups, and that they compute the same."""

import numpy as np
import pytest
from tests.transforms.test_random_programs import check_bits, check_executable

import treadle as td
from treadle.base.flags import override
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import bf16, f32, i32
from treadle.kernels import target
from treadle.ops.activation import silu
from treadle.ops.functions import exp, tanh
from treadle.ops.groups import fused
from treadle.ops.reduce import broadcast_to, cumsum, reduce_max, reduce_prod, reduce_sum
from treadle.ops.sorting import argmax
from treadle.transforms import _leftover
from treadle.transforms.fuse import Fuse

ROWS = (512, 1024)
FEW = (16, 16)  # rows of so little that XLA computes them
needs_kernels = pytest.mark.skipif(not target.available(), reason="kernels need llvmlite")


def grouped(function, *types):
    """Names of the ops in each group; the module is seen to compute the same."""
    fn = build.trace(function, types)
    made = Fuse()(Module.of(fn)).main
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape, np.float32).astype(t.dtype.np) for t in types]
    for got, want in zip(interp.run(made, *arrays), interp.run(fn, *arrays), strict=True):
        np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=1e-2, atol=1e-3)
    return [[n.op.name for n in node.attrs["body"].nodes] for node in made.nodes if node.op is fused]


def test_a_reduction_of_rows_takes_what_only_it_reads():
    t = f32[ROWS]
    assert grouped(lambda x: reduce_sum(x, axes=(1,)), t) == [["reduce_sum"]]
    assert grouped(lambda x: reduce_sum(x * x, axes=(0, 1)), t) == [["mul", "reduce_sum"]]

    def read_twice(x):
        y = x * x
        return y, reduce_max(y, axes=(1,))

    assert grouped(read_twice, t) == [["mul"], ["reduce_max"]]

    def read_by_another(x):
        y = x * x
        return reduce_sum(y, axes=(0,)), reduce_max(y, axes=(1,))

    assert grouped(read_by_another, t) == [["mul"], ["reduce_sum"], ["reduce_max"]]


def test_reductions_that_xla_computes_as_fast_are_left_to_it():
    assert grouped(lambda x: reduce_sum(x, axes=(1,)), f32[FEW]) == []
    assert grouped(lambda x: reduce_sum(x, axes=(0,)), f32[FEW]) == []
    assert grouped(lambda x: reduce_prod(tanh(x), axes=(1,)), f32[ROWS]) == []
    assert grouped(lambda x: reduce_sum(x + x, axes=(1,)), i32[ROWS]) == []


def test_reductions_over_any_axes_and_places_of_extremes_are_groups():
    assert grouped(lambda x: reduce_sum(x * x, axes=(0,)), f32[64, 256]) == [["mul", "reduce_sum"]]
    assert grouped(lambda x: reduce_max(x, axes=(0,)), f32[ROWS]) == [["reduce_max"]]
    assert grouped(lambda x: reduce_sum(x, axes=(1,)), f32[8, 64, 128]) == [["reduce_sum"]]
    assert grouped(lambda x: reduce_max(x, axes=(0, 2)), f32[8, 64, 128]) == [["reduce_max"]]
    assert grouped(lambda x: reduce_sum(x, axes=(0,)), i32[ROWS]) == [["reduce_sum"]]
    assert grouped(lambda x: argmax(x, axis=1), f32[ROWS]) == [["argmax"]]
    assert grouped(lambda x: argmax(x, axis=0), f32[ROWS]) == [["argmax"]]


def test_16_bit_floats_are_reduced_as_float32():
    t = bf16[ROWS]
    assert grouped(lambda x: reduce_sum(x, axes=(1,)), t) == [["cast", "reduce_sum"]]
    fn = build.trace(lambda x: reduce_max(x, axes=(1,)), [bf16[2, 16384]])
    assert [n.op.name for n in Fuse()(Module.of(fn)).main.nodes] == ["fused", "cast"]
    fn = build.trace(lambda x: reduce_max(x, axes=(1,)), [bf16[FEW]])
    assert [n.op.name for n in Fuse()(Module.of(fn)).main.nodes] == ["reduce_max"]


def test_chains_are_groups_from_as_many_bytes_as_pay():
    t, less = f32[ROWS], f32[64, 128]  # three arrays of `less` are 96 KiB
    assert grouped(lambda x, y: silu(x) * y, t, t) == [["silu", "mul"]]
    assert grouped(lambda x, y: silu(x) * y, less, less) == [["silu", "mul"]]
    assert grouped(lambda x, y: silu(x) * y, f32[FEW], f32[FEW]) == []
    assert grouped(lambda x, y: (x + y) * x, t, t) == [["add", "mul"]]
    assert grouped(lambda x, y: (x + y) * x, less, less) == []
    assert grouped(lambda x, y: (s := x + y, s * x), less, less) == [["add", "mul"]]
    assert grouped(lambda x, y: (x + y) * x, bf16[ROWS], bf16[ROWS]) == [["add", "mul"]]


def test_one_node_is_a_group_where_xla_would_compute_it_alone():
    t = f32[ROWS]
    assert grouped(lambda x, y: x + y, t, t) == [["add"]]
    assert grouped(lambda x, y: x + broadcast_to(y, shape=ROWS), t, f32[1024]) == [["broadcast_to", "add"]]
    assert grouped(lambda x: exp(x), f32[64, 128]) == [["exp"]]
    assert grouped(lambda x, y: x + y, f32[64, 128], f32[64, 128]) == []
    assert grouped(lambda x, y: x + y, i32[ROWS], i32[ROWS]) == []
    assert grouped(lambda x: exp(reduce_sum(x, axes=(1,))), f32[1 << 16, 8]) == [["reduce_sum"], ["exp"]]
    assert grouped(lambda x: cumsum(exp(x), axis=0, reverse=False), t) == []
    assert grouped(lambda x: exp(cumsum(x, axis=0, reverse=False)), t) == []


def test_a_chain_that_a_reduction_of_xlas_reads_stays_with_it():
    assert grouped(lambda x, y: reduce_prod(exp(x) * y, axes=(1,)), f32[ROWS], f32[ROWS]) == []


def test_a_chain_that_a_reduction_reads_beside_others_is_a_group_and_so_is_the_reduction():
    def read_by_both(x, y):
        z = exp(x) * y
        return reduce_sum(z, axes=(1,)), z

    assert grouped(read_by_both, f32[ROWS], f32[ROWS]) == [["exp", "mul"], ["reduce_sum"]]


@needs_kernels
@pytest.mark.parametrize("kind", [td.float32, td.bfloat16], ids=["f32", "bf16"])
def test_programs_give_the_same_with_and_without(kind):
    rng = np.random.default_rng(1)
    x, y = (td.Tensor(rng.standard_normal(ROWS, np.float32)).astype(kind) for _ in range(2))

    def run():
        step = td.jit(lambda x, y: (td.nn.functional.silu(x) * y, td.sum(x * y, 1), td.max(x, 0), td.max(x * y)))
        return [np.asarray(v).astype(np.float32) for v in step(x, y)]

    with override(fusion=0):
        wants = run()
    short = kind is td.bfloat16  # whose products XLA does not round before it adds them
    for got, want in zip(run(), wants, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-2 if short else 1e-5, atol=0.3 if short else 1e-4)


def test_random_programs_with_all_that_can_be_taken(monkeypatch):
    monkeypatch.setattr(_leftover, "LEAST_BYTES", 0)
    monkeypatch.setattr(_leftover, "LEAST_CHEAP", 0)
    for seed in range(40):
        check_bits(seed, ("fuse{level=2}",))
    check_executable(range(6), size=6, optimise=True)
