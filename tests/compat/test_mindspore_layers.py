"""Layers, losses, optimisers and rates of treadle.compat.mindspore against their formulas in NumPy."""

import math

import numpy as np
import pytest

import treadle.compat.mindspore as ms
from treadle import UserError
from treadle.compat.mindspore import Parameter, Tensor, nn

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def close(found, wanted, rtol=1e-5, atol=1e-6):
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.asnumpy(), wanted, rtol=rtol, atol=atol)


# ------------------------------------------------------------------------------------------------------------- layers
def test_dense_and_its_initial_values():
    net, x = nn.Dense(16, 400), floats(3, 16)
    close(net(Tensor(x)), x @ net.weight.asnumpy().T + net.bias.asnumpy())
    for values in (net.weight.asnumpy(), net.bias.asnumpy()):  # HeUniform(sqrt(5)) is even in +-1 / sqrt(fan_in)
        assert 0.9 * 0.25 < np.abs(values).max() <= 0.25
        assert np.abs(values).std() > 0.05
    net = nn.Dense(2, 3, weight_init=0.5, bias_init="ones", activation="relu")
    close(net(Tensor([[1.0, -4.0]])), [[0, 0, 0]])
    assert nn.Dense(2, 3, has_bias=False).bias is None


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation"), [(7, 3, 1, 1), (7, 3, 2, 1), (8, 4, 3, 1), (9, 3, 1, 2)]
)
@pytest.mark.parametrize("mode", ["same", "valid", "pad"])
def test_conv2d(mode, size, kernel, stride, dilation):
    net = nn.Conv2d(2, 3, kernel, stride, mode, (1, 2, 0, 1) if mode == "pad" else 0, dilation, has_bias=True)
    x = floats(1, 2, size, size)
    reach = dilation * (kernel - 1) + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    pads = {"valid": ((0, 0), (0, 0)), "pad": ((1, 2), (0, 1)), "same": ((total // 2, total - total // 2),) * 2}[mode]
    wide = np.pad(x, ((0, 0), (0, 0), *pads))
    sizes = [(n - reach) // stride + 1 for n in wide.shape[2:]]
    wanted = np.zeros((1, 3, *sizes))
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            rows, columns = (slice(k * stride, k * stride + reach, dilation) for k in (i, j))
            wanted[0, :, i, j] = np.einsum("cij,ocij->o", wide[0, :, rows, columns], net.weight.asnumpy())
    wanted += net.bias.asnumpy()[:, None, None]
    close(net(Tensor(x)), wanted, 1e-4, 1e-5)
    if mode == "same":
        assert sizes == [-(-size // stride)] * 2


def test_conv_defaults_and_refusals():
    net = nn.Conv2d(4, 8, 3, group=2)
    assert (net.pad_mode, net.bias, net.weight.shape) == ("same", None, (8, 2, 3, 3))
    for options in ({"padding": 1}, {"pad_mode": "full"}, {"data_format": "NHWC"}, {"group": 3}):
        with pytest.raises(UserError):
            nn.Conv2d(4, 8, 3, **options)


@pytest.mark.parametrize("mode", ["same", "valid", "pad"])
def test_conv2d_transpose_is_the_gradient_of_conv2d(mode):
    padding = 1 if mode == "pad" else 0
    down = nn.Conv2d(3, 2, 3, stride=2, pad_mode=mode, padding=padding)
    x = Tensor(floats(1, 3, 8, 8))
    y = down(x)
    up = nn.Conv2dTranspose(2, 3, 3, stride=2, pad_mode=mode, padding=padding, weight_init=down.weight)
    d = Tensor(floats(*y.shape))
    wanted = ms.grad(lambda x: (down(x) * d).sum())(x).asnumpy()
    found = up(d).asnumpy()
    sizes = tuple(slice(0, n) for n in found.shape)
    np.testing.assert_allclose(found, wanted[sizes], rtol=1e-4, atol=1e-5)
    assert found.shape[2] == {"same": 8, "valid": 7, "pad": 7}[mode]


def test_pooling():
    x = floats(1, 1, 5, 5)
    most = nn.MaxPool2d(2, 2, pad_mode="same")(Tensor(x)).asnumpy()
    mean = nn.AvgPool2d(2, 2, pad_mode="same")(Tensor(x)).asnumpy()
    for i in range(3):
        for j in range(3):
            block = x[0, 0, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
            np.testing.assert_allclose([most[0, 0, i, j], mean[0, 0, i, j]], [block.max(), block.mean()], rtol=1e-5)
    assert nn.MaxPool2d(3)(Tensor(x)).shape == (1, 1, 3, 3)  # stride 1, "valid"
    padded = nn.AvgPool2d(2, 1, pad_mode="pad", padding=1)(Tensor(x)).asnumpy()
    np.testing.assert_allclose(padded[0, 0, 0, 0], x[0, 0, 0, 0] / 4, rtol=1e-5)
    with pytest.raises(UserError, match="E0592"):
        nn.MaxPool2d(2, 2, ceil_mode=True)


def test_batch_norm_momentum_is_the_share_that_stays():
    net, x = nn.BatchNorm2d(3, momentum=0.9), 2 * floats(4, 3, 5, 5) + 1
    assert net.training is False
    close(net(Tensor(x)), x / math.sqrt(1 + 1e-5), 1e-4)
    net.set_train()
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    wanted = (x - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None]
    close(net(Tensor(x)), wanted, 1e-4, 1e-5)
    close(net.moving_mean.value(), 0.1 * mean, 1e-4)
    close(net.moving_variance.value(), 0.9 + 0.1 * var * 100 / 99, 1e-4)
    assert [p.name for p in net.get_parameters()] == ["moving_mean", "moving_variance", "gamma", "beta"]
    assert [p.name for p in net.trainable_params()] == ["gamma", "beta"]


def test_layer_norm_over_more_axes():
    x = floats(2, 3, 4)
    net = nn.LayerNorm((4,))
    assert net.epsilon == 1e-7
    off = x - x.mean(-1, keepdims=True)
    close(net(Tensor(x)), off / np.sqrt((off**2).mean(-1, keepdims=True) + 1e-7), 1e-4, 1e-5)
    net = nn.LayerNorm([4], begin_norm_axis=1, begin_params_axis=2, gamma_init=2.0)
    off = x - x.mean((1, 2), keepdims=True)
    close(net(Tensor(x)), 2 * off / np.sqrt((off**2).mean((1, 2), keepdims=True) + 1e-7), 1e-4, 1e-5)
    with pytest.raises(UserError, match="tuple"):
        nn.LayerNorm(4)


def test_group_and_instance_norm():
    x = floats(2, 4, 3, 3)
    grouped = x.reshape(2, 2, 18)
    wanted = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    close(nn.GroupNorm(2, 4)(Tensor(x)), wanted.reshape(x.shape), 1e-4, 1e-5)
    wanted = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    close(nn.InstanceNorm2d(4)(Tensor(x)), wanted, 1e-4, 1e-5)


def test_dropout_by_p_and_by_keep_prob():
    ms.set_seed(1)
    x = ms.ops.ones((4000,), ms.float32)
    for net, p in ((nn.Dropout(p=0.2), 0.2), (nn.Dropout(keep_prob=0.9), 0.1), (nn.Dropout(), 0.5)):
        close(net(x), np.ones(4000))
        y = net.set_train()(x).asnumpy()
        assert set(np.round(np.unique(y), 4)) == {0.0, np.float32(np.round(np.float32(1 / (1 - p)), 4))}
        assert abs((y == 0).mean() - p) < 0.03


def test_embedding_and_padding():
    net = nn.Embedding(50, 20, padding_idx=3)
    table = net.embedding_table.asnumpy()
    assert abs(table.std() - 0.01) < 0.002
    assert not table[3].any()
    close(net(Tensor([[1, 3]], ms.int32)), table[[[1, 3]]])


def test_activations():
    x = floats(20) * 3
    t = Tensor(x)
    tanh = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    exact = x * np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
    wanted = {
        nn.GELU(): tanh,
        nn.GELU(approximate=False): exact,
        nn.LeakyReLU(): np.where(x > 0, x, 0.2 * x),
        nn.ELU(): np.where(x > 0, x, np.exp(x) - 1),
        nn.HSwish(): x * np.clip(x + 3, 0, 6) / 6,
        nn.HSigmoid(): np.clip(x + 3, 0, 6) / 6,
        nn.PReLU(): np.where(x > 0, x, 0.25 * x),
        nn.FastGelu(): x / (1 + np.exp(-1.702 * x)),
        nn.Softmax(): np.exp(x) / np.exp(x).sum(),
        nn.LogSoftmax(): x - np.log(np.exp(x).sum()),
        nn.ReLU6(): np.clip(x, 0, 6),
        nn.get_activation("sigmoid"): 1 / (1 + np.exp(-x)),
    }
    for net, y in wanted.items():
        close(net(t), y, 1e-4, 1e-5)


def test_lstm_against_its_equations():
    net, x = nn.LSTM(3, 4, batch_first=True), floats(2, 5, 3)
    w, u, b, c = (p.asnumpy() for p in net.get_parameters())
    assert [p.name for p in net.get_parameters()] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert all(isinstance(p, Parameter) for p in net.get_parameters())
    h = state = np.zeros((2, 4))

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    for t in range(5):
        i, f, g, o = np.split(x[:, t] @ w.T + h @ u.T + b + c, 4, 1)
        state = sigmoid(f) * state + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(state)
    outputs, (last, cell) = net(Tensor(x), (Tensor(np.zeros((1, 2, 4), np.float32)),) * 2)
    close(outputs[:, -1], h, 1e-4, 1e-5)
    close(last[0], h, 1e-4, 1e-5)
    close(cell[0], state, 1e-4, 1e-5)


@pytest.mark.parametrize("make", [nn.GRU, nn.RNN])
def test_other_recurrent_layers_have_mindspore_parameters(make):
    net = make(3, 4, num_layers=2, bidirectional=True)
    outputs, last = net(Tensor(floats(5, 2, 3)))
    assert (outputs.shape, last.shape) == ((5, 2, 8), (4, 2, 4))
    assert all(isinstance(p, Parameter) for p in net.get_parameters())
    assert nn.GRUCell(3, 4)(Tensor(floats(2, 3)), Tensor(floats(2, 4))).shape == (2, 4)
    with pytest.raises(UserError, match="E0592"):
        net(Tensor(floats(5, 2, 3)), None, Tensor([1, 2]))


# ------------------------------------------------------------------------------------------------------------- losses
def test_losses():
    x, y = floats(6, 4), floats(6, 4)
    labels = np.array([0, 3, 1, 2, 0, 1], np.int32)
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    rows = -logs[np.arange(6), labels]
    d = np.abs(x - y)
    a, b, t = Tensor(x), Tensor(y), Tensor(labels)
    hot = Tensor(np.eye(4, dtype=np.float32)[labels])
    close(nn.SoftmaxCrossEntropyWithLogits(sparse=True)(a, t), rows)
    close(nn.SoftmaxCrossEntropyWithLogits()(a, hot), rows)
    close(nn.SoftmaxCrossEntropyWithLogits(True, "mean")(a, t), rows.mean())
    close(nn.CrossEntropyLoss()(a, t), rows.mean())
    close(nn.CrossEntropyLoss(ignore_index=0)(a, t), rows[labels != 0].mean())
    smooth = -(0.9 * logs[np.arange(6), labels] + 0.1 * logs.mean(1)).mean()
    close(nn.CrossEntropyLoss(label_smoothing=0.1)(a, t), smooth)
    close(nn.NLLLoss()(Tensor(logs), t), rows.mean())
    close(nn.MSELoss()(a, b), (d**2).mean())
    close(nn.MSELoss("sum")(a, b), (d**2).sum(), 1e-4)
    close(nn.L1Loss()(a, b), d.mean())
    close(nn.RMSELoss()(a, b), np.sqrt((d**2).mean()))
    close(nn.SmoothL1Loss()(a, b), np.where(d < 1, d**2 / 2, d - 0.5))
    close(nn.HuberLoss(delta=0.5)(a, b), np.where(d < 0.5, d**2 / 2, 0.5 * (d - 0.25)).mean())
    p = 1 / (1 + np.exp(-x))
    target = (y > 0).astype(np.float32)
    bce = -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean()
    close(nn.BCELoss()(Tensor(p), Tensor(target)), bce, 1e-4)
    close(nn.BCEWithLogitsLoss()(a, Tensor(target)), bce, 1e-4)
    chosen = np.exp(-rows)
    close(nn.FocalLoss(gamma=2.0)(a, t), ((1 - chosen) ** 2 * rows).mean(), 1e-4)
    close(nn.KLDivLoss("sum")(Tensor(logs), Tensor(p)), (p * (np.log(p) - logs)).sum(), 1e-4)


# --------------------------------------------------------------------------------------------------------- optimisers
def steps(make, grads, start=(1.0, -2.0), name="w"):
    """The values of a parameter after each of the gradients."""
    p = Parameter(np.array(start, np.float32), name=name)
    optimizer = make([p])
    found = []
    for g in grads:
        optimizer((Tensor(np.array(g, np.float32)),))
        found.append(p.asnumpy().astype(np.float64))
    return found


GRADS = [np.array(g) for g in ([0.5, -1.0], [0.1, 0.3], [-0.7, 0.2])]


def momentum_formula(g, s, lr, u, nesterov=False):
    s["v"] = u * s.get("v", 0) + g
    return lr * (g + u * s["v"]) if nesterov else lr * s["v"]


def adam_formula(g, s, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8):
    s["t"] = s.get("t", 0) + 1
    s["m"], s["v"] = b1 * s.get("m", 0) + (1 - b1) * g, b2 * s.get("v", 0) + (1 - b2) * g * g
    return lr * math.sqrt(1 - b2 ** s["t"]) / (1 - b1 ** s["t"]) * s["m"] / (np.sqrt(s["v"]) + eps)


def rmsprop_formula(g, s, lr, rho, u, eps, centered=False):
    s["s"] = rho * s.get("s", 1.0) + (1 - rho) * g * g
    s["g"] = rho * s.get("g", 0) + (1 - rho) * g
    s["m"] = u * s.get("m", 0) + lr * g / np.sqrt(s["s"] - (s["g"] ** 2 if centered else 0) + eps)
    return s["m"]


FORMULAS = {
    "sgd": (lambda p: nn.SGD(p), lambda g, s, p: 0.1 * g),
    "sgd nesterov": (
        lambda p: nn.SGD(p, 0.05, momentum=0.9, nesterov=True),
        lambda g, s, p: momentum_formula(g, s, 0.05, 0.9, True),
    ),
    "momentum": (lambda p: nn.Momentum(p, 0.1, 0.9), lambda g, s, p: momentum_formula(g, s, 0.1, 0.9)),
    "momentum decay": (
        lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.1, loss_scale=2.0),
        lambda g, s, p: momentum_formula(g / 2 + 0.1 * p, s, 0.1, 0.9),
    ),
    "adam": (lambda p: nn.Adam(p, 0.1, eps=0.01), lambda g, s, p: adam_formula(g, s, 0.1, eps=0.01)),
    "rmsprop": (
        lambda p: nn.RMSProp(p, 0.1, 0.8, 0.5, 1e-6),
        lambda g, s, p: rmsprop_formula(g, s, 0.1, 0.8, 0.5, 1e-6),
    ),
    "rmsprop centered": (
        lambda p: nn.RMSProp(p, 0.1, 0.8, 0.5, 1e-6, centered=True),
        lambda g, s, p: rmsprop_formula(g, s, 0.1, 0.8, 0.5, 1e-6, True),
    ),
}


@pytest.mark.parametrize("which", FORMULAS)
def test_optimisers_against_their_formulas(which):
    make, formula = FORMULAS[which]
    p, state = np.array([1.0, -2.0]), {}
    for found, g in zip(steps(make, GRADS), GRADS, strict=True):
        p = p - formula(g, state, p)
        np.testing.assert_allclose(found, p, rtol=1e-5)


def test_sgd_dampening_begins_with_the_gradient():
    found = steps(lambda p: nn.SGD(p, 1.0, momentum=0.5, dampening=0.2), GRADS)
    v, p = GRADS[0], np.array([1.0, -2.0])
    for g, f in zip([None, *GRADS[1:]], found, strict=True):
        v = v if g is None else 0.5 * v + 0.8 * g
        p = p - v
        np.testing.assert_allclose(f, p, rtol=1e-5)


def test_adam_weight_decay_is_not_corrected():
    found = steps(lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.1), GRADS)
    p, m, v = np.array([1.0, -2.0]), 0, 0
    for g, f in zip(GRADS, found, strict=True):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - 0.1 * (m / (np.sqrt(v) + 1e-6) + 0.1 * p)
        np.testing.assert_allclose(f, p, rtol=1e-5)


def test_adagrad_and_amsgrad():
    found = steps(lambda p: nn.Adagrad(p, learning_rate=0.5), GRADS)
    p, s = np.array([1.0, -2.0]), 0.1
    for g, f in zip(GRADS, found, strict=True):
        s = s + g * g
        p = p - 0.5 * g / np.sqrt(s)
        np.testing.assert_allclose(f, p, rtol=1e-5)
    plain, most = (steps(lambda p, on=on: nn.Adam(p, 0.1, use_amsgrad=on, beta2=0.5), GRADS) for on in (False, True))
    np.testing.assert_allclose(plain[0], most[0])
    assert not np.allclose(plain[2], most[2])


def test_weight_decay_leaves_beta_and_gamma_alone():
    zero = [np.zeros(2)]
    np.testing.assert_allclose(steps(lambda p: nn.SGD(p, 1.0, weight_decay=0.5), zero)[0], [0.5, -1.0])
    np.testing.assert_allclose(steps(lambda p: nn.SGD(p, 1.0, weight_decay=0.5), zero, name="bn.gamma")[0], [1, -2])
    grouped = steps(lambda p: nn.SGD([{"params": p}], 1.0, weight_decay=0.5), zero, name="bn.gamma")[0]
    np.testing.assert_allclose(grouped, [0.5, -1.0])


def test_groups_rates_and_order():
    a, b = Parameter(np.float32(1), name="a"), Parameter(np.float32(1), name="b")
    optimizer = nn.SGD([{"params": [a], "lr": 0.5}, {"params": [b]}, {"order_params": [b, a]}], 0.25)
    assert [p.name for p in optimizer.parameters] == ["b", "a"]
    optimizer((Tensor(1.0), Tensor(1.0)))
    assert (a.item(), b.item()) == (0.5, 0.75)
    optimizer = nn.SGD([a], learning_rate=[0.1, 0.2])
    before, found = a.item(), []
    for _ in range(3):
        optimizer((Tensor(1.0),))
        found.append(before - a.item())
        before = a.item()
    np.testing.assert_allclose(found, [0.1, 0.2, 0.2], rtol=1e-5)


def test_optimisers_refuse():
    p = Parameter(np.float32(1), name="p")
    for wrong, code in (([], "E0530"), ([p, p], "E0530"), ([Tensor(1.0)], "E0530")):
        with pytest.raises(UserError, match=code):
            nn.SGD(wrong)
    with pytest.raises(UserError, match="E0533"):
        nn.SGD([p])((Tensor(1.0), Tensor(1.0)))
    with pytest.raises(UserError, match="E0531"):
        nn.Momentum([p], -0.1, 0.9)


# -------------------------------------------------------------------------------------------------------------- rates
def test_lists_of_rates():
    np.testing.assert_allclose(nn.piecewise_constant_lr([2, 5, 6], [0.1, 0.05, 0.01]), [0.1] * 2 + [0.05] * 3 + [0.01])
    np.testing.assert_allclose(nn.exponential_decay_lr(0.1, 0.9, 6, 2, 1), [0.1, 0.1, 0.09, 0.09, 0.081, 0.081])
    np.testing.assert_allclose(nn.inverse_decay_lr(0.1, 0.5, 4, 1, 1), [0.1 / (1 + 0.5 * e) for e in range(4)])
    cosine = [0.01 + 0.045 * (1 + math.cos(math.pi * min(e, 2) / 2)) for e in (0, 0, 1, 1, 2, 2)]
    np.testing.assert_allclose(nn.cosine_decay_lr(0.01, 0.1, 6, 2, 2), cosine)
    np.testing.assert_allclose(nn.natural_exp_decay_lr(0.1, 0.9, 3, 1, 2, True), [0.1, 0.1, 0.1 * math.exp(-1.8)])
    np.testing.assert_allclose(nn.polynomial_decay_lr(0.1, 0.01, 4, 1, 2, 2.0), [0.1, 0.09 * 0.25 + 0.01, 0.01, 0.01])
    np.testing.assert_allclose(nn.warmup_lr(0.1, 4, 1, 2), [0.0, 0.05, 0.1, 0.1])


def test_schedules_equal_their_formulas():
    step = Tensor(3, ms.int32)
    close(nn.ExponentialDecayLR(0.1, 0.9, 4)(step), 0.1 * 0.9**0.75)
    close(nn.ExponentialDecayLR(0.1, 0.9, 2, is_stair=True)(step), 0.09)
    close(nn.NaturalExpDecayLR(0.1, 0.9, 4)(step), 0.1 * math.exp(-2.7), 1e-4)
    close(nn.InverseDecayLR(0.1, 0.9, 4)(step), 0.1 / (1 + 0.9 * 0.75))
    close(nn.CosineDecayLR(0.01, 0.1, 4)(step), 0.01 + 0.045 * (1 + math.cos(math.pi * 0.75)))
    close(nn.PolynomialDecayLR(0.1, 0.01, 4, 0.5)(step), 0.09 * 0.25**0.5 + 0.01)
    close(nn.WarmUpLR(0.1, 4)(step), 0.075)
