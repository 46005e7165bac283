"""The scripts run in both modes, learn, and give the same numbers in both."""

import inspect

import numpy as np
import pytest
from tests.compat import scripts

import treadle.compat.mindspore as ms


def run(script, mode, folder):
    ms.set_context(mode=mode)
    try:
        ms.set_seed(3)
        return script(str(folder)) if inspect.signature(script).parameters else script()
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def both(script, folder, rtol=2e-3):
    """What the script gives in PYNATIVE_MODE; the other mode must give the same."""
    eager = run(script, ms.PYNATIVE_MODE, folder / "eager")
    graph = run(script, ms.GRAPH_MODE, folder / "graph")
    for a, b in zip(eager, graph, strict=True):
        assert len(a) == len(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)
    return eager


def test_linear_regression(tmp_path, capsys):
    losses, (weight, bias) = both(scripts.linear_regression, tmp_path)
    assert len(losses) == 80
    assert abs(weight - 2) < 0.05
    assert abs(bias - 3) < 0.05
    assert "epoch: 1 step: 40, loss is " in capsys.readouterr().out


def test_lenet(tmp_path):
    losses, (accuracy, again) = both(scripts.lenet, tmp_path, rtol=0.05)
    assert len(losses) == 40
    assert losses[-1] < 0.5 * losses[0]
    assert accuracy > 0.85
    assert accuracy == again
    assert sorted(f.name for f in (tmp_path / "graph").iterdir()) == ["lenet-3_10.ckpt", "lenet-4_10.ckpt"]


def test_functional_training(tmp_path):
    losses, (accuracy,) = both(scripts.functional_training, tmp_path)
    assert losses[-1] < 0.5 * losses[0]
    assert accuracy > 0.85


def test_resnet(tmp_path):
    losses, (moved,) = both(scripts.resnet, tmp_path, rtol=0.05)
    assert np.mean(losses[-3:]) < 0.9 * losses[0]
    assert moved > 0


def test_lstm_classifier(tmp_path):
    losses, _ = both(scripts.lstm_classifier, tmp_path, rtol=0.02)
    assert losses[-1] < 0.5 * losses[0]


def test_custom_train_step(tmp_path):
    losses, _ = both(scripts.custom_train_step, tmp_path)
    assert losses[-1] < 0.7 * losses[0]


def test_grad_operation(tmp_path):
    found, _ = both(scripts.grad_operation, tmp_path)
    x = np.array([[0.5, 0.6, 0.4], [1.2, 1.3, 1.1]])
    y = np.array([[0.01, 0.3, 1.1], [0.1, 0.2, 1.3], [2.1, 1.2, 3.3]])
    dx = 1.5 * np.ones((2, 3)) @ y.T
    dy = 1.5 * x.T @ np.ones((2, 3))
    dz = np.sum(x * (np.ones((2, 3)) @ y.T))
    second = [np.cos(0.3), -np.sin(0.3), -np.sin(0.3)]
    wanted = [*dx.flat, *dx.flat, *dy.flat, dz, *dx.flat, *dy.flat, dz, *second]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_control_flow(tmp_path):
    _, shares = both(scripts.control_flow, tmp_path)
    assert max(shares) < 0.97


def test_user_optimizer(tmp_path):
    losses, (rate,) = both(scripts.user_optimizer, tmp_path)
    assert losses[-1] < 0.5 * losses[0]
    assert rate == pytest.approx(0.05 * 0.5)
