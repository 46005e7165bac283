"""More layers and losses against PyTorch's numbers: results, all gradients, parameter names, buffers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.nn import cases, more_cases
from tests.nn.test_layers import check

import treadle as td
from treadle import nn
from treadle.frontend import tree

F = nn.functional
GOLDEN = json.loads((Path(__file__).parent / "more_golden.json").read_text())["cases"]


@pytest.mark.parametrize("name", more_cases.CASES)
def test_values_and_gradients_are_pytorchs(name: str) -> None:
    compare(more_cases.CASES[name], GOLDEN[name])


def compare(case: Any, golden: Any) -> None:
    """Results, all gradients, parameter names and buffers of a case against PyTorch's."""
    make, inputs, call = case
    net = make(nn)
    for i, p in enumerate(net.parameters()):
        p.assign(cases.fill(p.shape, 0.3 + i))
    given = [td.Tensor(cases.fill(x, 5.0 + i) if isinstance(x, tuple) else x) for i, x in enumerate(inputs)]
    names, params = zip(*net.named_parameters(), strict=True) if net.parameters() else ((), ())
    assert list(names) == golden["names"]

    @td.jit
    def both(*xs: Any) -> Any:
        def objective() -> Any:
            outputs = tree.flatten(net(*xs) if call is None else call(net, *xs))[0]
            weighted = [(o * td.Tensor(cases.cotangent(o.shape))).sum() for o in outputs]
            return sum(weighted[1:], weighted[0]), outputs

        wanted = [x for x, like in zip(xs, inputs, strict=True) if isinstance(like, tuple)]
        return td.grad(objective, [*wanted, *params], has_aux=True)()

    grads, outputs = both(*given)
    count = len(golden["inputs"])
    for found, wanted in zip(outputs, golden["outputs"], strict=True):
        check(found, wanted, "output")
    for found, wanted in zip(grads[:count], golden["inputs"], strict=True):
        check(found, wanted, "gradient of an input")
    for n, found, wanted in zip(names, grads[count:], golden["params"], strict=True):
        np.testing.assert_allclose(cases.project(found), wanted, 3e-5, 3e-5, err_msg=n)
    assert sorted(dict(net.named_buffers())) == sorted(golden["buffers"])
    for n, b in net.named_buffers():
        np.testing.assert_allclose(b.numpy(), golden["buffers"][n], 1e-5, 1e-5)


def test_channels_are_dropped_whole() -> None:
    td.manual_seed(3)
    y = F.channel_dropout(np.ones((20, 30, 4), np.float32), 0.25).numpy()
    assert ((y == y[:, :, :1]).all()) and set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.65 < (y > 0).mean() < 0.85
    net = nn.Dropout2d(0.5)
    assert (net(np.ones((8, 8, 2, 2), np.float32)).numpy() == 0).any()
    assert (F.channel_dropout(np.ones((2, 2, 2), np.float32), 1.0).numpy() == 0).all()


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    td.manual_seed(3)
    x = td.randn(200, 200)
    y = F.alpha_dropout(x, 0.3, training=True).numpy()
    assert abs(y.mean()) < 0.03 and abs(y.std() - 1) < 0.03
    assert (y != x.numpy()).all()
    assert (F.alpha_dropout(x, 1.0, training=True).numpy() == 0).all()


@pytest.mark.parametrize("mode", ["reflect", "symmetric", "edge", "wrap", "replicate", "circular"])
def test_pad_modes_are_numpys(mode: str) -> None:
    x, widths = np.arange(12).reshape(3, 4), ((1, 2), (5, 0))
    name = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    np.testing.assert_array_equal(td.pad(x, widths, mode=mode).numpy(), np.pad(x, widths, name))


def test_infinite_values_stay_in_their_window() -> None:
    x = np.array([[np.inf, 1, 2, 3, np.nan]], np.float32)
    np.testing.assert_array_equal(F.adaptive_avg_pool1d(x, 4).numpy(), [[np.inf, 1.5, 2.5, np.nan]])


def test_copies_in_a_stack_are_their_own() -> None:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6), 2)
    first, second = net.layers[0].linear1.weight, net.layers[1].linear1.weight
    np.testing.assert_array_equal(first.numpy(), second.numpy())
    first.assign(np.zeros(first.shape, np.float32))
    assert (second.numpy() != 0).any()


def test_causal_decoding_does_not_look_ahead() -> None:
    net = nn.Transformer(4, 2, 1, 1, 6, dropout=0.0, batch_first=True)
    source, target = cases.fill((1, 3, 4), 1.0), cases.fill((1, 4, 4), 2.0)
    changed = target.copy()
    changed[:, -1] += 1
    one, two = (net(source, t, tgt_is_causal=True).numpy() for t in (target, changed))
    np.testing.assert_allclose(one[:, :-1], two[:, :-1], 1e-5, 1e-6)
    assert (one[:, -1] != two[:, -1]).any()


X = np.ones((2, 3, 4), np.float32)


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("E0566", lambda: F.prelu(X, np.ones(2, np.float32))),
        ("E0566", lambda: F.glu(X, 1)),
        ("E0566", lambda: F.bilinear(X, X, np.ones((2, 4, 3), np.float32))),
        ("E0566", lambda: F.pixel_shuffle(X, 2)),
        ("E0566", lambda: F.pixel_unshuffle(X, 2)),
        ("E0566", lambda: F.local_response_norm(X, 0)),
        ("E0543", lambda: F.adaptive_avg_pool1d(X, 0)),
        ("E0543", lambda: F.adaptive_max_pool2d(X, (1, 2, 3))),
        ("E0542", lambda: F.adaptive_max_pool3d(X, 1)),
        ("E0103", lambda: td.pad(X, 1, mode="around")),
        ("E0103", lambda: td.pad(X[:, :0], 1, mode="edge")),
        ("E0135", lambda: td.pad(X, -1, mode="edge")),
        ("E0103", lambda: F.pad(X, (1, 2, 3))),
        ("E0107", lambda: F.unflatten(X, 3, (2, 2))),
        ("E0112", lambda: F.unflatten(X, 1, (2, 2))),
        ("E0553", lambda: nn.InstanceNorm1d(4)(X)),
        ("E0546", lambda: F.instance_norm(X[:, :, :1])),
        ("E0554", lambda: F.channel_dropout(X, 2.0)),
        ("E0558", lambda: nn.RNN(3, 2, nonlinearity="sin")),
        ("E0558", lambda: nn.GRUCell(3, 2)(X)),
        ("E0559", lambda: nn.TransformerEncoder(nn.Linear(2, 2), 0)),
        ("E0559", lambda: nn.TransformerDecoderLayer(4, 2, activation="sin")),
        ("E0555", lambda: F.kl_div(X, X[0])),
        ("E0555", lambda: F.gaussian_nll_loss(X, X, X[0])),
        ("E0556", lambda: F.smooth_l1_loss(X, X, "all")),
    ],
)
def test_wrong_arguments(code: str, call: Any) -> None:
    with pytest.raises(td.UserError, match=code):
        call()
