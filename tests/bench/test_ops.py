"""The op sweep's sides on small cases, the numbers that cases carry, and the probe of the machine's limits."""

import argparse

import numpy as np
import pytest

GROUPED = {"stride": 2, "padding": 1, "groups": 2}
SMALL = [
    ("gemm", ((3, 4), (4, 5)), (3, 5), {}, ("forward", "dgrad", "wgrad")),
    ("conv", ((2, 4, 5, 5), (6, 2, 3, 3)), (2, 6, 3, 3), GROUPED, ("forward", "dgrad", "wgrad")),
    ("softmax", ((3, 7),), (3, 7), {}, ("forward", "both")),
    ("layer_norm", ((3, 7), (7,), (7,)), (3, 7), {}, ("forward", "both")),
    ("attention", ((1, 2, 6, 4),) * 3, (1, 2, 6, 4), {"causal": True}, ("forward", "both")),
    ("lstm", ((4, 2, 3), (12, 3), (12, 3), (12,), (12,)), (4, 2, 3), {}, ("forward", "both")),
    ("reduce", ((3, 5),), (3,), {"op": "var", "axes": [1]}, ("forward",)),
    ("reduce", ((3, 5),), (3,), {"op": "argmax", "axes": [1]}, ("forward",)),
    ("reduce", ((3, 5),), (), {"op": "sum", "axes": None}, ("forward",)),
]  # fmt: skip


@pytest.mark.parametrize("kind, shapes, out, attrs, forms", SMALL, ids=lambda v: v if isinstance(v, str) else "")
def test_sides_agree(bench, kind, shapes, out, attrs, forms):
    cases, ours, theirs = bench("op_cases"), bench("treadle_ops"), bench("jax_ops")
    for form in forms:
        case = cases.Case(kind, "small", form, shapes, out, 1.0, attrs)
        assert cases.from_dict(case.as_dict()) == case
        left, right = (side.Call(case, "f32", 2).result() for side in (ours, theirs))
        assert len(left) == len(right)
        for a, b in zip(left, right):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=form)


@pytest.mark.parametrize("form", ["forward", "dgrad", "wgrad"])
def test_images_with_channels_last_give_the_same(bench, form):
    cases, ours = bench("op_cases"), bench("treadle_ops")
    attrs = {"stride": 2, "padding": 1, "groups": 1}
    case = cases.Case("conv", "x", form, ((2, 3, 9, 7), (5, 3, 3, 3)), (2, 5, 5, 4), 1.0, attrs)
    (usual,), (last,) = ours.Call(case, "f32", 2).result(), ours.Call(case, "f32", 2, channels_last=True).result()
    assert usual.shape == last.shape
    np.testing.assert_allclose(usual, last, rtol=1e-4, atol=1e-4)


def test_convolutions_have_an_entry_for_each_layout(bench, tmp_path):
    sweeps, cases = bench("op_sweeps"), bench("op_cases")

    class Side:
        """A side that takes so many seconds for everything."""

        def __init__(self, seconds):
            self.seconds = seconds

        def ask(self, what, *args):
            if what in ("write", "reference"):
                np.savez(args[-1], np.ones(3))
            return self.seconds

    workers = {"treadle": Side(2.0), "torch": Side(1.0), "torch_nhwc": Side(3.0), "treadle_nhwc": Side(1.0)}
    args = argparse.Namespace(quick=True, fast=False, rounds=3, cpu=False)
    case = cases.cases(("conv",))[0]
    found = sweeps.measure(case, "f32", workers, str(tmp_path), args)
    assert {layout: e["ratio"] for layout, e in found.items()} == {
        "": {"torch": {"median": 0.5, "min": 0.5}},
        "channels last": {"torch_nhwc": {"median": 3.0, "min": 3.0}},
    }
    assert list(sweeps.measure(cases.cases(("gemm",))[0], "f32", workers, str(tmp_path), args)) == [""]
    spread = sweeps.by_kind({n: {"threads": 2, **e} for n, e in found.items()})
    assert spread["conv f32 2t"] == {"cases": 1, "median": 0.5, "lowest": 0.5, "case": "", "below": 1.0}
    assert spread["conv, channels last f32 2t"]["median"] == 3.0


def test_chains_agree(bench):
    cases, ours, theirs = bench("op_cases"), bench("treadle_ops"), bench("jax_ops")
    for name, (count, rows, _) in cases.CHAINS.items():
        shapes = ((2, 9),) * (count - rows) + ((9,),) * rows
        case = cases.Case("chain", name, "forward", shapes, (2, 9), 1.0, {"chain": name})
        for a, b in zip(*[side.Call(case, "f32", 1).result() for side in (ours, theirs)], strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=name)


def test_cases_have_names_of_their_own_and_shapes_that_fit(bench):
    cases = bench("op_cases")
    found = cases.cases()
    assert len({c.name for c in found}) == len(found) > 200
    for case in found:
        assert case.flops > 0
        assert 1 <= case.copies(4) <= 16
        if case.kind == "gemm":
            assert case.flops == 2.0 * np.prod(case.out) * case.shapes[0][-1]


def test_convolutions_are_those_of_the_networks(bench):
    names = {c.name for c in bench("op_cases").cases(("conv",))}
    for shape in (
        "3-64 7x7 /2 @224",
        "64-64 3x3 @56",
        "512-512 3x3 @7",
        "1024-2048 1x1 /2 @14",
        "960-960 3x3 depthwise @7",
    ):
        assert f"conv {shape} forward" in names
    assert "conv 3-64 7x7 /2 @224 dgrad" not in names  # nobody wants the gradient of an image


def test_speedups_are_above_one_where_ours_is_faster(bench):
    harness = bench("harness")
    found = harness.speedups({"ours": [1.0, 2.0, 1.0], "slow": [2.0, 2.0, 3.0], "fast": [0.5, 1.0, 0.5]}, "ours")
    assert found["slow"] == {"median": 2.0, "min": 2.0}
    assert harness.best_peer(found) == "fast"
    assert harness.best_peer({}) is None


def test_blocks_are_as_long_as_asked_for(bench):
    class Side:
        def __init__(self, seconds):
            self.block = lambda k: seconds

    assert bench("harness").calibrate([Side(0.01), Side(0.02), Side(0.04)], 1.0, 1e9, 10) == (50, 10)
    assert bench("harness").calibrate([Side(2.0)], 1.0, 30.0, 10) == (1, 7)
    assert bench("harness").calibrate([Side(60.0)], 1.0, 30.0, 10) == (1, 3)


def test_limits_are_those_of_a_processor(bench):
    pytest.importorskip("llvmlite")
    limits = bench("limits")
    found = limits.measure(quick=True)
    assert 1 < found["f32_gflops"] < 1e5
    assert found.get("bf16_gflops", np.inf) > 0.9 * found["f32_gflops"]
    assert 0.1 < found["copy_gb_s"] < 1e4
    assert all(v > found["copy_gb_s"] / 4 for v in limits.caches(1, 3).values())


def test_the_loop_over_tiles_is_made_of_tile_products(bench):
    pytest.importorskip("llvmlite")
    from dataclasses import replace

    from treadle.kernels import jit, target

    machine = target.host()
    if not machine.triple.startswith("x86_64"):
        pytest.skip("tiles are Intel's")
    machine = replace(machine, cpu="sapphirerapids", features=machine.features | {"amx-tile", "amx-bf16"})
    assert jit.assembly(bench("limits").tile_text(10), machine).count("tdpbf16ps") == 4


def test_shares_are_parts_of_the_larger_limit(bench):
    sweeps, cases = bench("op_sweeps"), bench("op_cases")
    limit = {"f32_gflops": 100.0, "copy_gb_s": 10.0}
    product = cases.Case("gemm", "x", "forward", ((1000, 1000),) * 2, (1000, 1000), 2e9)
    times = {"treadle": {"min": 4e4}, "torch": {"min": 2e4}}
    entry = {"precision": "f32", "copies": 1, "microseconds": times}
    assert sweeps.shares(product, entry, limit) == pytest.approx({"treadle": 0.5, "torch": 1.0})
    small = cases.Case("chain", "x", "forward", ((1000, 10),), (1000, 10), 1e4)
    assert sweeps.shares(small, entry, limit) == {}
    large = cases.Case("chain", "x", "forward", ((10000, 1000),), (10000, 1000), 1e7)
    assert sweeps.shares(large, entry, limit)["treadle"] == pytest.approx(0.2)
