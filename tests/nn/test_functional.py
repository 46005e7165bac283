"""Functions beyond what the layers show: masks, indices out of range, 16-bit types, and the errors."""

from typing import Any

import numpy as np
import pytest
from tests.nn.cases import fill

import treadle as td
from treadle import nn
from treadle.nn import functional as F


def tensor(shape: tuple[int, ...], seed: float = 1.0) -> Any:
    return td.Tensor(fill(shape, seed))


def test_embedding() -> None:
    table = tensor((4, 3))
    good, bad = td.Tensor(np.array([[3, 0], [1, 1]])), td.Tensor(np.array([0, 4]))
    np.testing.assert_array_equal(F.embedding(good, table).numpy(), table.numpy()[good.numpy()])
    np.testing.assert_array_equal(td.jit(F.embedding)(good, table).numpy(), table.numpy()[good.numpy()])
    np.testing.assert_array_equal(F.embedding(np.array([2], np.uint8), table).numpy(), table.numpy()[[2]])
    for wrong in (bad, td.Tensor(np.array([-1])), td.Tensor([0.5])):
        with pytest.raises(td.UserError, match="E0548"):
            F.embedding(wrong, table)
    rows = td.jit(F.embedding)(bad, table).numpy()
    assert np.isnan(rows[1]).all()
    np.testing.assert_array_equal(rows[0], table.numpy()[0])
    grad = td.jit(lambda t: td.grad(lambda t: F.embedding(good, t).sum())(t))(table)
    np.testing.assert_array_equal(grad.numpy()[:, 0], [1, 2, 0, 1])


def reference_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = np.einsum("...ld,...sd->...ls", q, k) / np.sqrt(q.shape[-1]) + mask
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("...ls,...se->...le", e / e.sum(-1, keepdims=True), v)


def test_attention_masks() -> None:
    q, k, v = (tensor((2, 3, s, 4), i) for i, s in enumerate((3, 5, 5)))
    arrays = [t.numpy() for t in (q, k, v)]
    seen = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    added = np.where(seen, 0, -np.inf).astype(np.float32)
    wanted = reference_attention(*arrays, added)
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, k, v, seen).numpy(), wanted, 1e-5, 1e-6)
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, k, v, added).numpy(), wanted, 1e-5, 1e-6)
    lower = np.where(np.tril(np.ones((3, 5))), 0, -np.inf)
    causal = F.scaled_dot_product_attention(q, k, v, is_causal=True).numpy()
    np.testing.assert_allclose(causal, reference_attention(*arrays, lower), 1e-5, 1e-6)
    dropped = F.scaled_dot_product_attention(q, k, v, dropout_p=1e-9, is_causal=True).numpy()
    np.testing.assert_allclose(dropped, causal, 1e-5, 1e-6)
    with pytest.raises(td.UserError, match="E0557"):
        F.scaled_dot_product_attention(q, k, v, seen, is_causal=True)


def test_multihead_masks_hide_the_same_places() -> None:
    net, x = nn.MultiheadAttention(4, 2, batch_first=True), tensor((2, 3, 4))
    hidden = ~np.tril(np.ones((3, 3), bool))
    causal = net(x, x, x, is_causal=True)[0].numpy()
    for mask in (hidden, np.where(hidden, -np.inf, 0).astype(np.float32), np.tile(hidden, (4, 1, 1))):
        np.testing.assert_allclose(net(x, x, x, attn_mask=mask)[0].numpy(), causal, 1e-5, 1e-6)
    padding = np.array([[False, False, True]] * 2)
    short = net(x, x[:, :2], x[:, :2])[0].numpy()
    np.testing.assert_allclose(net(x, x, x, key_padding_mask=padding)[0].numpy(), short, 1e-5, 1e-6)
    _, weights = net(x, x, x, key_padding_mask=padding, is_causal=True, need_weights=True)
    assert weights.shape == (2, 3, 3) and not weights.numpy()[:, :, 2].any()
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, 1e-5)


def test_causal_block_does_not_look_ahead() -> None:
    block, x = nn.TransformerBlock(4, 2), fill((1, 5, 4), 1.0)
    run = td.jit(block)
    y = run(x).numpy()
    x[0, 3, 1] += 1
    changed = np.abs(run(x).numpy() - y).max((0, 2)) > 1e-6
    assert list(changed) == [False, False, False, True, True]


def test_labels_out_of_range_are_refused_or_give_nan() -> None:
    x = tensor((2, 3))
    for ignore in (None, -100):
        for weight in (None, np.ones(3, np.float32)):
            with pytest.raises(td.UserError, match="E0164 cross_entropy: the label 3 of 3 classes"):
                F.cross_entropy(x, np.array([1, 3]), weight, ignore, "none")
            compiled = td.jit(lambda y, w=weight, i=ignore: F.cross_entropy(x, y, w, i, "none"))
            loss = compiled(np.array([1, 3])).numpy()
            assert np.isfinite(loss[0]) and np.isnan(loss[1])


def test_16_bit_types() -> None:
    x = td.Tensor(fill((2, 3, 4, 4), 1.0), dtype=td.bfloat16)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    wanted = net(td.Tensor(x.numpy().astype(np.float32))).numpy()
    mean = net[1].running_mean.numpy()
    net[1].running_mean.assign(np.zeros(4))
    found = net.astype(td.bfloat16)(x)
    assert found.dtype is td.bfloat16
    np.testing.assert_allclose(found.numpy().astype(np.float32), wanted, 0.1, 0.03)
    np.testing.assert_allclose(net[1].running_mean.numpy().astype(np.float32), mean, 0.1, 0.02)
    assert F.cross_entropy(found, np.array([0, 1])).dtype is td.float32


def test_running_statistics_over_several_batches() -> None:
    net, mean, var = nn.BatchNorm1d(3, momentum=0.3), np.zeros(3), np.ones(3)
    for i in range(3):
        x = fill((5, 3), float(i))
        net(td.Tensor(x))
        mean, var = 0.7 * mean + 0.3 * x.mean(0), 0.7 * var + 0.3 * x.var(0, ddof=1)
    np.testing.assert_allclose(net.running_mean.numpy(), mean, 1e-5, 1e-6)
    np.testing.assert_allclose(net.running_var.numpy(), var, 1e-5)


def test_batch_norm_of_nothing_and_one() -> None:
    net = nn.BatchNorm1d(3)
    with pytest.raises(td.UserError, match="E0546"):
        net(tensor((1, 3)))
    assert net.eval()(tensor((1, 3))).shape == (1, 3)
    with pytest.raises(td.UserError, match="E0553"):
        net(tensor((2, 4)))
    with pytest.raises(td.UserError, match="E0546"):
        F.batch_norm(tensor((2, 3)))


@pytest.mark.parametrize(
    "code, call",
    [
        ("E0540", lambda: F.gelu(tensor((2,)), "erf")),
        ("E0541", lambda: nn.Conv2d(1, 1, (3, 3, 3))),
        ("E0541", lambda: F.conv2d(tensor((1, 1, 4, 4)), tensor((1, 1, 3, 3)), padding="full")),
        ("E0541", lambda: F.conv2d(tensor((1, 1, 4, 4)), tensor((1, 1, 3, 3)), stride=2, padding="same")),
        ("E0542", lambda: F.max_pool2d(tensor((4, 4)), 2)),
        ("E0543", lambda: F.adaptive_avg_pool2d(tensor((1, 1, 5, 4)), 0)),
        ("E0544", lambda: F.layer_norm(tensor((2, 3)), 4)),
        ("E0544", lambda: F.rms_norm(tensor((2, 3)), (2, 2, 3))),
        ("E0545", lambda: F.group_norm(tensor((2, 3)), 2)),
        ("E0545", lambda: nn.GroupNorm(2, 3)),
        ("E0547", lambda: nn.Linear(3, 2)(tensor((2, 4)))),
        ("E0552", lambda: nn.Conv2d(3, 4, 1, groups=2)),
        ("E0555", lambda: F.mse_loss(tensor((2, 1)), tensor((2,)))),
        ("E0555", lambda: F.cross_entropy(tensor((2, 3)), np.array([[0, 1]]))),
        ("E0556", lambda: F.l1_loss(tensor((2,)), tensor((2,)), "max")),
        ("E0558", lambda: nn.LSTM(3, 2)(tensor((4, 2, 2)))),
        ("E0558", lambda: nn.LSTM(3, 2)(tensor((4, 2, 3)), (tensor((1, 1, 2)),) * 2)),
        ("E0558", lambda: nn.LSTM(3, 2, num_layers=0)),
        ("E0559", lambda: nn.MultiheadAttention(5, 2)),
        ("E0559", lambda: nn.MultiheadAttention(4, 2)(*[tensor((2, 4))] * 3)),
        ("E0559", lambda: nn.TransformerEncoderLayer(4, 2, activation="tanh")),
    ],
)
def test_errors(code: str, call: Any) -> None:
    with pytest.raises(td.UserError, match=code) as caught:
        call()
    assert caught.value.fix and caught.value.where.file == __file__
