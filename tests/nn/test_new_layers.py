"""Bags of embeddings, margin losses, CTC, adaptive softmax and drawing functions, most against PyTorch's numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.nn import new_cases
from tests.nn.test_more_layers import compare

import treadle as td
from treadle import nn

F = nn.functional
GOLDEN = json.loads((Path(__file__).parent / "new_golden.json").read_text())["cases"]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    td.manual_seed(0)


@pytest.mark.parametrize("name", new_cases.CASES)
def test_values_and_gradients_are_pytorchs(name: str) -> None:
    compare(new_cases.CASES[name], GOLDEN[name])


def log_softmax(x: Any) -> Any:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


LOGS = log_softmax(np.random.RandomState(3).randn(4, 2, 3).astype(np.float32))


def test_ctc_is_the_sum_over_all_alignments() -> None:
    def read(path: Any) -> list[int]:
        joined = [a for i, a in enumerate(path) if i == 0 or path[i - 1] != a]
        return [a for a in joined if a != 0]

    paths = np.array(np.meshgrid(*[range(3)] * 4, indexing="ij")).reshape(4, -1).T
    chance = sum(np.exp(LOGS[range(4), 0, p].sum()) for p in paths if read(p) == [1, 1])
    loss = F.ctc_loss(LOGS[:, 0], np.array([1, 1]), [4], [2], reduction="none")
    np.testing.assert_allclose(loss.numpy(), -np.log(chance), 1e-5)


def test_ctc_of_what_does_not_fit_is_infinite_without_a_gradient() -> None:
    def losses(x: Any, zero: bool) -> Any:
        return F.ctc_loss(x, np.array([[1, 1], [1, 2]]), [2, 4], [2, 2], reduction="none", zero_infinity=zero)

    found = losses(LOGS, False).numpy()
    assert np.isposinf(found[0]) and np.isfinite(found[1]) and losses(LOGS, True).numpy()[0] == 0
    for zero in (False, True):
        g = td.grad(lambda x, zero=zero: losses(x, zero).sum())(td.Tensor(LOGS)).numpy()
        assert np.isfinite(g).all() and (g[:, 0] == 0).all() and (g[:, 1] != 0).any()


def test_ctc_lengths_may_be_tensors_and_wrong_labels_give_nan() -> None:
    @td.jit
    def loss(x: Any, targets: Any, times: Any, sizes: Any) -> Any:
        return F.ctc_loss(x, targets, times, sizes, reduction="none")

    given = [np.array([[1, 2], [2, 7]]), np.array([4, 3]), np.array([2, 1])]
    plain = F.ctc_loss(LOGS, *given, reduction="none").numpy()
    np.testing.assert_allclose(loss(LOGS, *given).numpy(), plain, 1e-6)
    assert np.isfinite(plain).all()  # the wrong label is behind the end
    assert np.isnan(loss(LOGS, given[0], given[1], np.array([2, 2])).numpy()[1])
    assert F.ctc_loss(LOGS.astype(np.float16), *given).dtype is td.float32


def test_ctc_hessian_is_symmetric_and_finite() -> None:
    x = td.Tensor(np.random.RandomState(1).randn(3, 1, 3))
    h = td.hessian(lambda x: F.ctc_loss(F.log_softmax(x, -1), np.array([[1]]), [3], [1]))(x).numpy().reshape(9, 9)
    assert np.isfinite(h).all() and np.abs(h).max() > 0.01
    np.testing.assert_allclose(h, h.T, atol=1e-6)


def test_gumbel_softmax_draws_the_classes() -> None:
    td.manual_seed(0)
    logits = np.log(np.array([0.6, 0.3, 0.1], np.float32))
    drawn = F.gumbel_softmax(np.broadcast_to(logits, (4000, 3)), tau=0.5, hard=True).numpy()
    np.testing.assert_allclose(np.sort(drawn, -1)[:, 2], 1, atol=1e-6)
    np.testing.assert_allclose(drawn.mean(0), np.exp(logits), atol=0.04)
    soft = F.gumbel_softmax(np.broadcast_to(logits[:, None], (3, 5)), dim=0).numpy()
    np.testing.assert_allclose(soft.sum(0), 1, 1e-5)
    g = td.grad(lambda x: (F.gumbel_softmax(x, hard=True) * np.array([1.0, 2, 3], np.float32)).sum())(td.Tensor(logits))
    assert (g.numpy() != 0).any()


def test_random_slopes_and_whole_channels() -> None:
    td.manual_seed(1)
    y = nn.RReLU(0.2, 0.4)(np.full((50, 50), -1.0, np.float32)).numpy()
    assert -0.4 <= y.min() < -0.38 and -0.22 < y.max() <= -0.2 and abs(y.mean() + 0.3) < 0.01
    z = F.feature_alpha_dropout(td.randn(20, 30, 4), 0.5, training=True).numpy()
    dropped = (z == z[:, :, :1]).all(-1)
    assert 0.4 < dropped.mean() < 0.6


def test_pairs_of_rows_and_a_given_table() -> None:
    x = np.random.RandomState(0).randn(4, 3).astype(np.float32)
    wanted = [np.abs(x[i] - x[j]).sum() for i in range(4) for j in range(i + 1, 4)]
    np.testing.assert_allclose(F.pdist(x, 1).numpy(), wanted, 1e-5)
    table = nn.Embedding.from_pretrained(x)
    np.testing.assert_array_equal(table(np.array([2, 0])).numpy(), x[[2, 0]])
    assert not table.weight.requires_grad and nn.Embedding.from_pretrained(x, freeze=False).weight.requires_grad
    assert (nn.EmbeddingBag(4, 2, padding_idx=1).weight.numpy()[1] == 0).all()


def test_adaptive_softmax_is_a_distribution() -> None:
    net = nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6])
    x = np.random.RandomState(0).randn(5, 4).astype(np.float32)
    logs = net.log_prob(x).numpy()
    np.testing.assert_allclose(np.exp(logs).sum(1), 1, 1e-5)
    np.testing.assert_array_equal(net.predict(x).numpy(), logs.argmax(1))
    target = np.array([0, 3, 9, 5, 10])
    output, loss = td.jit(net)(x, target)
    np.testing.assert_allclose(output.numpy()[:4], logs[range(4), target[:4]], 1e-5)
    assert np.isnan(output.numpy()[4]) and np.isnan(loss.item())
    assert net(x[0], 1).output.shape == ()


def test_a_causal_attention_with_more_keys_sees_them_and_the_past() -> None:
    net = nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    x = numbers((1, 3, 4))
    _, weights = net(x, x, x, need_weights=True, is_causal=True)
    seen = weights.numpy()[0] > 0
    np.testing.assert_array_equal(seen, [[1, 0, 0, 1, 1], [1, 1, 0, 1, 1], [1, 1, 1, 1, 1]])


def numbers(shape: Any) -> Any:
    return np.random.RandomState(0).randn(*shape).astype(np.float32)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weight", [None, np.array([1.0, 0.5, 2.0], np.float32)])
def test_chunks_of_logits_give_the_same_loss_and_gradients(reduction: str, weight: Any) -> None:
    net = nn.LinearCrossEntropyLoss(4, 3, bias=True, weight=weight, reduction=reduction, ignore_index=1)
    x, target = td.Tensor(numbers((7, 4))), np.array([0, 2, 1, 2, 0, 1, 2])
    loss = td.value_and_grad(lambda: net(x, target), [*net.parameters(), x])
    value, grads = loss()
    net.chunk = 3
    again, chunked = td.jit(loss)()
    np.testing.assert_allclose(again.item(), value.item(), 1e-5)
    for a, b in zip(chunked, grads, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-6)


@pytest.mark.parametrize("kind", ["BatchNorm1d", "InstanceNorm1d"])
def test_plain_means_of_the_statistics_of_all_batches(kind: str) -> None:
    options = {"track_running_stats": True, "affine": True} if kind == "InstanceNorm1d" else {}
    net = getattr(nn, kind)(3, momentum=None, **options)
    batches = [numbers((2, 3, 4)) * scale for scale in (1.0, 2.0, 5.0)]
    run = td.jit(net)
    for x in batches:
        run(x)
    axes = (0, 2) if kind == "BatchNorm1d" else (2,)
    means = [x.mean(axes).reshape(-1, 3).mean(0) for x in batches]
    variances = [x.var(axes, ddof=1).reshape(-1, 3).mean(0) for x in batches]
    np.testing.assert_allclose(net.running_mean.numpy(), np.mean(means, 0), 1e-4, 1e-6)
    np.testing.assert_allclose(net.running_var.numpy(), np.mean(variances, 0), 1e-4)
    run.function.eval()
    assert net.num_batches_tracked.item() == 3
    run(batches[0])
    assert net.num_batches_tracked.item() == 3 and "num_batches_tracked" in net.state_dict()


def test_lists_and_dicts_of_parameters() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            self.scales = nn.ParameterList([np.ones(2, np.float32), nn.Parameter(np.zeros(2, np.float32))])
            self.named = nn.ParameterDict({"gain": np.full(2, 3.0, np.float32)})

        def forward(self, x: Any) -> Any:
            for scale in self.scales:
                x = x * (scale + 1)
            return x * self.named["gain"]

    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["scales.0", "scales.1", "named.gain"]
    grads = td.jit(td.grad(lambda: net(np.ones(2, np.float32)).sum(), net.parameters()))()
    np.testing.assert_array_equal(grads[1].numpy(), [6, 6])
    net.scales.append(np.ones(1, np.float32))
    net.scales[0] = np.zeros(2, np.float32)
    assert len(net.scales) == 3 and len(net.scales[1:]) == 2 and (net.scales[0].numpy() == 0).all()
    assert "gain" in net.named and list(net.named) == ["gain"] and len(net.named.items()) == 1
    del net.named["gain"]
    assert len(net.named) == 0 and "0: " in repr(net.scales)
    with pytest.raises(td.UserError, match="E0550"):
        net.named["keys"] = np.ones(1, np.float32)


def test_initial_values() -> None:
    init = nn.init
    np.testing.assert_array_equal(init.eye_(td.Tensor(np.ones((2, 3), np.float32))).numpy(), np.eye(2, 3))
    zeros = (init.sparse((10, 4), 0.25) == 0).sum(0)
    assert (zeros == 3).all() and (init.sparse_(td.Tensor(np.ones((4, 4), np.float32)), 1.0).numpy() == 0).all()
    net = nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False)
    init.dirac_(net.weight, groups=2)
    x = numbers((1, 4, 5, 5))
    np.testing.assert_array_equal(net(x).numpy(), x)
    assert init.calculate_gain("tanh") == 5 / 3
    for wrong in (lambda: init.eye((2,)), lambda: init.dirac((2, 2)), lambda: init.sparse((2, 2), 2.0)):
        with pytest.raises(td.UserError, match="E0562"):
            wrong()


def test_softplus_beyond_its_threshold_is_its_argument() -> None:
    x = np.array([-3.0, 0.5, 0.9, 30.0])
    wanted = np.where(x * 2 > 1.5, x, np.log1p(np.exp(x * 2)) / 2)
    np.testing.assert_allclose(F.softplus(x, 2.0, 1.5).numpy(), wanted, 1e-12)


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("E0555", lambda: F.ctc_loss(LOGS, np.array([[1], [1]]), [4, 5], [1, 1])),
        ("E0555", lambda: F.ctc_loss(LOGS, np.array([1, 1]), [4, 4], [1, 2])),
        ("E0555", lambda: F.ctc_loss(LOGS, np.array([[1]]), [4, 4], [1, 1])),
        ("E0555", lambda: F.ctc_loss(LOGS, np.array([[1], [1]]), [4, 4], [1])),
        ("E0555", lambda: F.ctc_loss(LOGS, np.array([[1], [1]]), [4, 4], [1, 1], blank=3)),
        ("E0556", lambda: F.ctc_loss(LOGS, np.array([[1], [1]]), [4, 4], [1, 1], reduction="all")),
        ("E0103", lambda: F.multi_margin_loss(X, np.array([0, 1]), p=3)),
        ("E0555", lambda: F.multi_margin_loss(X, np.array([0, 1, 1]))),
        ("E0555", lambda: F.multilabel_margin_loss(X, np.array([0, 1]))),
        ("E0548", lambda: F.embedding_bag(np.array([0, 1]), X)),
        ("E0548", lambda: F.embedding_bag(np.array([[0, 1]]), X, per_sample_weights=X, mode="sum")),
        ("E0548", lambda: nn.Embedding(3, 2, padding_idx=3)),
        ("E0548", lambda: F.embedding(np.array([0]), X, padding_idx=-3)),
        ("E0556", lambda: F.embedding_bag(np.array([[0, 1]]), X, mode="median")),
        ("E0566", lambda: F.gumbel_softmax(X, 0.0)),
        ("E0566", lambda: F.softplus(X, beta=0)),
        ("E0164", lambda: F.multi_margin_loss(X, np.array([0, 3]))),
        ("E0164", lambda: nn.AdaptiveLogSoftmaxWithLoss(3, 10, [3])(X, np.array([0, 10]))),
        ("E0558", lambda: nn.GRU(3, 4, proj_size=2)),
        ("E0558", lambda: nn.LSTM(3, 4, proj_size=4)),
        ("E0556", lambda: F.linear_cross_entropy(X, X, np.array([0, 1]), reduction="none", chunk=1)),
        ("E0555", lambda: F.linear_cross_entropy(X, X, np.array([0]), chunk=1)),
        ("E0541", lambda: nn.Conv1d(2, 2, 3, padding_mode="around")),
        ("E0566", lambda: F.rrelu(X, 0.5, 0.1)),
        ("E0566", lambda: F.channel_shuffle(X, 2)),
        ("E0566", lambda: F.pdist(X[0])),
        ("E0566", lambda: F.feature_alpha_dropout(X[0], training=True)),
        ("E0566", lambda: nn.Softmax2d()(X)),
        ("E0566", lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 3])),
        ("E0566", lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3])(X, np.array([0, 1]))),
    ],
)
def test_wrong_arguments(code: str, call: Any) -> None:
    with pytest.raises(td.UserError, match=code):
        call()
