"""The bench's models, made small: Treadle's and JAX's give the same losses, gradients and results."""

import numpy as np
import pytest

SMALL = {
    "mlp": {"sizes": [12, 8, 5], "batch": 4},
    "lenet": {"batch": 2},
    "resnet50": {"blocks": [1, 1], "image": 16, "batch": 4, "classes": 7},
    "resnet18": {"blocks": [1, 1], "image": 16, "batch": 4, "classes": 7},
    "mobilenet_v2": {"image": 64, "batch": 8, "classes": 7},
    "gpt_small": {"layers": 1, "d": 16, "heads": 2, "seq": 8, "batch": 2, "vocab": 30},
    "bert": {"layers": 1, "d": 16, "heads": 2, "seq": 8, "batch": 2, "vocab": 30, "masked": 3},
    "lstm_lm": {"layers": 2, "d": 8, "seq": 5, "batch": 3, "vocab": 20},
    "dispatch": {"parameters": 5, "width": 3},
}
LONG = ("lenet", "resnet18", "mobilenet_v2", "bert")
MODELS = [pytest.param(m, marks=[pytest.mark.slow] if m in LONG else []) for m in SMALL]


def test_every_family_is_here(bench):
    weights = bench("weights")
    assert {weights.family(m) for m in SMALL} == {weights.family(m) for m in weights.CONFIGS}


@pytest.mark.parametrize("model", MODELS)
def test_training_steps_agree(bench, model, tmp_path):
    harness, checks = bench("harness"), bench("checks")
    sides = [harness.Local(name, model, SMALL[model]) for name in ("treadle", "jax")]
    found = checks.evidence(sides, tmp_path)
    assert (found["jax"]["gradients"] is None) == (model == "dispatch")  # which has no momentum to keep them
    verdict = checks.agreement(found, found["jax"], "jax", {"treadle": "f32", "jax": "f32"}, "treadle")
    assert verdict["agree"], verdict["wrong"]


@pytest.mark.slow
def test_layouts_agree(bench, tmp_path):
    harness, checks = bench("harness"), bench("checks")
    sides = [harness.Local(name, "resnet18", SMALL["resnet18"]) for name in ("jax_nhwc", "jax")]
    found = checks.evidence(sides, tmp_path)
    precision = dict.fromkeys(found, "f32")
    assert checks.agreement(found, found["jax"], "jax", precision, "treadle")["agree"]


@pytest.mark.parametrize("model", ["resnet50", "bert"])
def test_inference_agrees(bench, model, tmp_path):
    harness = bench("harness")
    results = []
    for name in ("treadle", "jax"):
        side = harness.LocalInference(name, model, SMALL[model])
        shape = side.output(str(tmp_path / f"{name}.npy"))
        results.append(np.load(tmp_path / f"{name}.npy"))
        assert list(results[-1].shape) == shape
        assert side.block(2) > 0
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_the_products_of_a_step_are_counted(bench):
    models, bounds, weights = bench("treadle_models"), bench("bounds"), bench("weights")
    peaks = {"f32_gflops": 100.0, "bf16_gflops": 200.0}
    cfg = weights.config("mlp", sizes=[12, 8, 4], batch=6)
    step = models.module("mlp", cfg)
    flops = 2 * 6 * (12 * 8 * 2 + 8 * 4 * 3)  # no gradient of the data
    assert bounds.of(step, "f32", peaks) == {"flops": flops, "peak_gflops": 100.0, "seconds": flops / 1e11}
    assert bounds.of(step, "bf16", peaks)["peak_gflops"] == 200.0
    assert bounds.of(step, "high", peaks)["peak_gflops"] == 100.0


def test_an_unknown_size_is_refused(bench):
    with pytest.raises(KeyError, match="no size 'depth'"):
        bench("weights").config("mlp", depth=3)


@pytest.mark.parametrize("where, wrong", [("w", 1.2), ("b", 3.0)])
def test_a_wrong_gradient_is_found(bench, tmp_path, where, wrong):
    checks = bench("checks")
    right = {"w": np.full((20, 20), 0.1, np.float32), "b": np.full(20, 0.1, np.float32)}
    for name, change in (("right", 1.0), ("same", 1.0 + 1e-6), ("left", wrong)):
        np.savez(tmp_path / f"{name}.npz", **{n: a * (change if n == where else 1) for n, a in right.items()})
    made = {n: {"losses": [1.0], "gradients": tmp_path / f"{n}.npz"} for n in ("right", "same", "left")}
    precision = dict.fromkeys(made, "f32")
    verdict = checks.agreement(made, made["right"], "right", precision, "left")
    assert not verdict["agree"]
    assert [line.split()[2] for line in verdict["wrong"]] == ["left"]


def test_bf16_is_held_against_its_peers(bench):
    checks = bench("checks")
    distance = {side: {"all": share, "worst": ["w", share]} for side, share in (("treadle", 0.2), ("torch", 0.05))}
    precision = dict.fromkeys(distance, "bf16")
    assert checks.judge("treadle", distance, precision, "treadle")
    distance["torch"]["all"] = 0.15
    assert not checks.judge("treadle", distance, precision, "treadle")


def test_gradients_under_other_names_are_found(bench, tmp_path):
    checks = bench("checks")
    np.savez(tmp_path / "left.npz", v=np.ones(3))
    np.savez(tmp_path / "right.npz", w=np.ones(3))
    with np.load(tmp_path / "right.npz") as right:
        found = checks.gradient_distance(tmp_path / "left.npz", right)
    assert np.isnan(found["all"])
    assert checks.judge("treadle", {"treadle": found}, {"treadle": "f32"}, "treadle")


def test_a_side_without_bf16_says_so(bench):
    with pytest.raises(RuntimeError, match="float32 only"):
        bench("harness").open_side("onnxruntime", "minilm", {"precision": "bf16"}, "inference")
