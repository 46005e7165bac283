"""Dropout inside attention: what is drawn, statistics, both modes, gradients, vmap, layers."""

import numpy as np
import pytest

import treadle as td
from treadle import nn
from treadle.nn import functional as F
from treadle.ops.dropped_attention import attention_dropout
from treadle.ops.random import threefry_of

RNG = np.random.default_rng(0)


def tensor(*shape, dtype=np.float32):
    return td.Tensor(RNG.normal(size=shape).astype(dtype))


def weights(rate, lead=(3, 4), rows=50, columns=61, seed=0):
    """The weights of a softmax of equal scores after dropout, times their number."""
    td.manual_seed(seed)
    q, k = (td.zeros((*lead, n, 2)) for n in (rows, columns))
    v = td.Tensor(np.broadcast_to(np.eye(columns, dtype=np.float32), (*lead, columns, columns)))
    return F.scaled_dot_product_attention(q, k, v, dropout_p=rate).numpy() * columns


def test_what_is_dropped_follows_from_seed_row_and_column():
    seeds = RNG.integers(0, 2**32, (2, 2)).astype(np.uint32)
    q, k, v = td.zeros((2, 5, 1)), td.zeros((2, 7, 1)), np.broadcast_to(np.eye(7, dtype=np.float32), (2, 7, 7))
    made = attention_dropout(q, k, td.Tensor(v), td.Tensor(seeds), scale=1.0, causal=False, rate=0.3).numpy()
    for head, row, column in np.ndindex(2, 5, 7):
        counter = np.uint32([row]), np.uint32([column // 2])
        bits = threefry_of(seeds[head, :1], seeds[head, 1:], *counter)[column % 2][0]
        np.testing.assert_allclose(made[head, row, column], 0 if bits < 0.3 * 2**32 else 1 / 7 / 0.7, rtol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_statistics(rate):
    found = weights(rate)
    dropped = found == 0
    np.testing.assert_allclose(found[~dropped], 1 / (1 - rate), rtol=1e-5)
    count = found.size
    spread = np.sqrt(rate * (1 - rate))
    assert abs(dropped.mean() - rate) < 4 * spread / np.sqrt(count)
    for axis in range(4):  # neighbours along any axis know nothing of each other
        a, b = (np.take(dropped, range(i, dropped.shape[axis] - 1 + i), axis).ravel() - rate for i in (0, 1))
        assert abs((a * b).mean()) < 5 * spread**2 / np.sqrt(a.size)
    for axes in ((2, 3), (0, 1, 2), (0, 1, 3)):  # no head, column or row is favoured
        means = dropped.mean(axes)
        assert (np.abs(means - rate) < 5 * spread / np.sqrt(count / means.size)).all()


def test_the_mean_of_many_draws_is_attention_without_dropout():
    q, k, v = tensor(1, 6, 4), tensor(1, 5, 4), tensor(1, 5, 3)
    wanted = F.scaled_dot_product_attention(q, k, v).numpy()
    wide = [td.Tensor(np.repeat(t.numpy(), 4000, 0)) for t in (q, k, v)]
    td.manual_seed(1)
    found = F.scaled_dot_product_attention(*wide, dropout_p=0.4).numpy()
    error = found.std(0) / np.sqrt(len(found))
    assert (np.abs(found.mean(0) - wanted[0]) < 5 * error).all()
    assert (found.std(0) > 0.05).all()


@pytest.mark.parametrize("causal", [False, True])
def test_both_modes_drop_the_same_and_each_call_something_else(causal):
    q, k, v, d = tensor(2, 3, 20, 8), tensor(2, 3, 20, 8), tensor(2, 3, 20, 5), tensor(2, 3, 20, 5)

    def loss(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=causal) * d).sum()

    step = td.value_and_grad(loss, (0, 1, 2))
    td.manual_seed(3)
    eager = [step(q, k, v) for _ in range(2)]
    td.manual_seed(3)
    run = td.jit(step)
    compiled = [run(q, k, v) for _ in range(2)]
    for (a, da), (b, db) in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)
        for x, y in zip(da, db, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-4, atol=1e-5)
    assert abs(eager[0][0].item() - eager[1][0].item()) > 1e-3


def test_the_gradient_is_that_of_the_same_weights():
    q, k, v, mask, d = (tensor(2, *s, dtype=np.float64) for s in ((4, 3), (5, 3), (5, 2), (4, 5), (4, 2)))

    def loss(*xs):
        td.manual_seed(5)
        return (F.scaled_dot_product_attention(*xs, dropout_p=0.4) * d).sum()

    grads = td.grad(loss, (0, 1, 2, 3))(q, k, v, mask)
    for i, grad in enumerate(grads):
        arrays = [x.numpy() for x in (q, k, v, mask)]
        for at in [(0, 0, 0), (1, 2, 1), (1, 3, 1)]:
            moved = []
            for step in (1e-5, -1e-5):
                changed = arrays[i].copy()
                changed[at] += step
                moved.append(loss(*[td.Tensor(changed if i == j else a) for j, a in enumerate(arrays)]).item())
            np.testing.assert_allclose(grad.numpy()[at], (moved[0] - moved[1]) / 2e-5, rtol=1e-6, atol=1e-8)


def test_rates_at_the_ends():
    q, k, v = tensor(2, 9, 4), tensor(2, 9, 4), tensor(2, 9, 4)
    plain = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0).numpy()
    np.testing.assert_array_equal(plain, F.scaled_dot_product_attention(q, k, v).numpy())
    assert not F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).numpy().any()
    grads = td.grad(lambda *xs: F.scaled_dot_product_attention(*xs, dropout_p=1.0).sum(), (0, 1, 2))(q, k, v)
    assert not any(g.numpy().any() for g in grads)
    for wrong in (-0.1, 1.5, "much"):
        with pytest.raises(td.UserError, match="E0554"):
            F.scaled_dot_product_attention(q, k, v, dropout_p=wrong)


@pytest.mark.parametrize("own", [True, False])
def test_vmap_of_seeds_and_of_one_for_all(own):
    q, k, v = tensor(3, 2, 6, 4), tensor(3, 2, 6, 4), tensor(3, 2, 6, 4)
    seeds = td.Tensor(RNG.integers(0, 2**32, (3, 2, 2) if own else (2, 2)).astype(np.uint32))
    attend = lambda *xs: attention_dropout(*xs, scale=0.5, causal=False, rate=0.5)
    together = td.vmap(attend, (0, 0, 0, 0 if own else None))(q, k, v, seeds).numpy()
    for i in range(3):
        alone = attend(q[i], k[i], v[i], seeds[i] if own else seeds).numpy()
        np.testing.assert_allclose(together[i], alone, rtol=1e-5, atol=1e-6)
    with pytest.raises(td.UserError, match="E0315"):  # examples do not share a generator
        td.vmap(lambda *xs: F.scaled_dot_product_attention(*xs, dropout_p=0.5))(q, k, v)


def test_layers_use_it_in_training_alone():
    layer = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    x = tensor(2, 6, 8)
    hidden = td.Tensor(np.arange(6)[None] > np.array([[5], [3]]))
    attended = layer.eval()(x, x, x, key_padding_mask=hidden, is_causal=True)[0].numpy()
    layer.train()
    td.manual_seed(0)
    found = [layer(x, x, x, key_padding_mask=hidden, is_causal=True)[0].numpy() for _ in range(2)]
    assert not np.allclose(found[0], found[1])
    step = td.trace_module(td.grad(lambda x: layer(x, x, x, is_causal=True)[0].sum()), x)
    names = {node.op.name for node in step.main.nodes}
    assert {"attention_dropout_fwd", "attention_dropout_grad"} <= names and "softmax" not in names
    mean = np.mean([layer(x, x, x, key_padding_mask=hidden, is_causal=True)[0].numpy() for _ in range(150)], 0)
    np.testing.assert_allclose(mean, attended, atol=0.3)
    both = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    step = td.jit(td.value_and_grad(lambda x: (both(x) ** 2).sum()))
    assert np.isfinite(step(x)[1].numpy()).all()
