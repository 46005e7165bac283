"""Parametrisations, parameters as a vector, padded sequences, fused layers."""

import copy
from typing import Any

import numpy as np
import pytest
from tests.nn.cases import fill

import treadle as td
from treadle import nn, optim
from treadle.nn import utils
from treadle.nn.utils import parametrizations as ready
from treadle.nn.utils import parametrize as P

X = fill((4, 3), 2.0)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    td.manual_seed(0)


class Symmetric(nn.Cell):
    def forward(self, x: Any) -> Any:
        return td.triu(x) + td.triu(x, 1).transpose(1, 0)


class Doubled(nn.Cell):
    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, value: Any) -> Any:
        return value / 2


def test_a_parametrised_weight_is_computed_and_its_original_learnt() -> None:
    net = nn.Linear(3, 3)
    original, kind = net.weight, type(net)
    P.register_parametrization(net, "weight", Symmetric())
    w = net.weight.numpy()
    np.testing.assert_array_equal(w, w.T)
    assert isinstance(net, nn.Linear) and P.is_parametrized(net, "weight") and not P.is_parametrized(net, "bias")
    names = dict(net.named_parameters())
    assert list(names) == ["bias", "parametrizations.weight.original"] and names.popitem()[1] is original
    optimizer = optim.SGD(net.parameters(), lr=0.01)
    loss = td.value_and_grad(lambda: (net(X) ** 2).sum(), net.parameters())
    values = []
    for step in range(3):
        value, grads = (td.jit(loss) if step else loss)()
        optimizer.step(grads)
        values.append(value.item())
        np.testing.assert_array_equal(net.weight.numpy(), net.weight.numpy().T)
    assert values[0] > values[1] > values[2]
    last = net.weight.numpy()
    P.remove_parametrizations(net, "weight")
    assert type(net) is kind and net.weight is original and not P.is_parametrized(net)
    np.testing.assert_array_equal(net.weight.numpy(), last)


def test_chains_inverses_and_copies() -> None:
    net = nn.Linear(3, 3)
    start = net.weight.numpy()
    P.register_parametrization(net, "weight", Doubled())
    np.testing.assert_allclose(net.weight.numpy(), start, 1e-6)
    P.register_parametrization(net, "bias", Doubled())
    net.weight = np.full((3, 3), 6.0, np.float32)
    assert (net.parametrizations["weight"].original.numpy() == 3).all()
    twin = copy.deepcopy(net)
    twin.weight = np.zeros((3, 3), np.float32)
    P.remove_parametrizations(twin, "bias")
    assert (net.weight.numpy() == 6).all() and P.is_parametrized(net, "bias")
    P.register_parametrization(net, "weight", Symmetric())
    assert (net.weight.numpy() == 6).all() and len(net.parametrizations["weight"]) == 2
    state = {k: v.numpy() for k, v in net.state_dict().items()}
    other = nn.Linear(3, 3)
    P.register_parametrization(other, "weight", Doubled())
    P.register_parametrization(other, "bias", Doubled())
    other.load_state_dict(state)
    np.testing.assert_array_equal(other(X).numpy(), net(X).numpy())
    P.remove_parametrizations(other, "weight", leave_parametrized=False)
    assert (other.weight.numpy() == 3).all()


def test_weight_norm_of_one_length_for_all() -> None:
    net = ready.weight_norm(nn.Linear(3, 2), dim=None)
    start = net.weight.numpy()
    g, v = (getattr(net.parametrizations["weight"], f"original{i}") for i in (0, 1))
    assert g.shape == () and v.shape == (2, 3)
    g.assign(g * 2)
    np.testing.assert_allclose(net.weight.numpy(), start * 2, 1e-6)


@pytest.mark.parametrize("make", [lambda: nn.Linear(3, 5), lambda: nn.Conv2d(2, 4, 3)])
def test_spectral_norm_has_largest_singular_value_one(make: Any) -> None:
    net = ready.spectral_norm(make(), n_power_iterations=30)
    found = np.linalg.svd(net.weight.numpy().reshape(net.weight.shape[0], -1), compute_uv=False)
    np.testing.assert_allclose(found[0], 1, 1e-4)


def test_spectral_norm_steps_in_training_only_and_has_the_derivative_of_a_quotient() -> None:
    net = ready.spectral_norm(nn.Linear(3, 2, bias=False))
    part = net.parametrizations["weight"][0]
    w, v = net.parameters()[0].numpy().astype(np.float64), np.array([0.6, 0.8, 0.0])
    part._v.assign(v.astype(np.float32))
    td.jit(lambda: net(X))()
    u = w @ v / np.linalg.norm(w @ v)
    np.testing.assert_allclose(part._u.numpy(), u, 1e-5)
    np.testing.assert_allclose(part._v.numpy(), w.T @ u / np.linalg.norm(w.T @ u), 1e-5)
    net.eval()
    u, v = part._u.numpy().astype(np.float64), part._v.numpy().astype(np.float64)
    td.jit(lambda: net(X))()
    np.testing.assert_array_equal(part._u.numpy(), u.astype(np.float32))
    sigma = u @ w @ v
    np.testing.assert_allclose(net.weight.numpy(), w / sigma, 1e-5)
    grad = td.grad(lambda: net.weight.sum(), net.parameters())()[0].numpy()
    np.testing.assert_allclose(grad, 1 / sigma - w.sum() / sigma**2 * np.outer(u, v), 1e-4, 1e-5)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
@pytest.mark.parametrize("how", ["matrix_exp", "cayley"])
def test_orthogonal_stays_orthogonal_and_can_learn(shape: Any, how: str) -> None:
    net = ready.orthogonal(nn.Linear(shape[1], shape[0], bias=False), orthogonal_map=how)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    target = fill(shape, 1.0)
    loss = td.jit(td.value_and_grad(lambda: ((net.weight - target) ** 2).sum(), net.parameters()))
    values = []
    for _ in range(4):
        w = net.weight.numpy()
        square = w @ w.T if shape[0] <= shape[1] else w.T @ w
        np.testing.assert_allclose(square, np.eye(min(shape)), atol=1e-5)
        value, grads = loss()
        values.append(value.item())
        optimizer.step(grads)
    assert values[-1] < values[0]


def test_a_recomputed_base_is_next_to_the_weight() -> None:
    q = np.linalg.qr(fill((3, 3), 1.0).astype(np.float64) + np.eye(3))[0]
    net = nn.Linear(3, 3)
    net.weight.assign(q.astype(np.float32))
    np.testing.assert_allclose(ready.orthogonal(net).weight.numpy(), q, atol=1e-5)


def test_parameters_as_a_vector() -> None:
    net = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(net.parameters())
    np.testing.assert_array_equal(vector.numpy(), np.concatenate([p.numpy().ravel() for p in net.parameters()]))
    utils.vector_to_parameters(vector * 2, net.parameters())
    np.testing.assert_array_equal(utils.parameters_to_vector(net.parameters()).numpy(), vector.numpy() * 2)


def test_padded_sequences() -> None:
    rows = [fill((n, 2), 1.0 + n) for n in (2, 4, 1)]
    y = utils.rnn.pad_sequence(rows, padding_value=-1.0)
    assert y.shape == (4, 3, 2) and (y.numpy()[2:, 0] == -1).all()
    for row, back in zip(rows, utils.rnn.unpad_sequence(y, [2, 4, 1]), strict=True):
        np.testing.assert_array_equal(back.numpy(), row)
    left = utils.rnn.pad_sequence(rows, batch_first=True, padding_side="left").numpy()
    np.testing.assert_array_equal(left[2], np.concatenate([np.zeros((3, 2), np.float32), rows[2]]))


@pytest.mark.parametrize("kind", ["conv", "linear"])
def test_fused_norms_do_the_same(kind: str) -> None:
    layer, norm = (nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)) if kind == "conv" else (nn.Linear(3, 3), nn.BatchNorm1d(3))
    x = fill((4, 2, 3, 3), 1.0) if kind == "conv" else X
    for _ in range(3):
        norm(layer(x))
    norm.weight.assign(np.array([1.0, -2.0, 0.5], np.float32))
    norm.bias.assign(np.array([1.0, 0.0, 0.5], np.float32))
    wanted = norm.eval()(layer.eval()(x)).numpy()
    fused = (utils.fuse_conv_bn_eval if kind == "conv" else utils.fuse_linear_bn_eval)(layer, norm)
    np.testing.assert_allclose(fused(x).numpy(), wanted, 1e-4, 1e-5)
    assert fused is not layer


def test_pruned_elements_stay_zero_while_the_rest_learns() -> None:
    net = nn.Linear(3, 4)
    w = net.weight.numpy()
    utils.prune.l1_unstructured(net, "weight", 0.5)
    gone = np.abs(w) <= np.sort(np.abs(w).ravel())[5]
    np.testing.assert_array_equal(net.weight.numpy(), np.where(gone, 0, w))
    assert utils.prune.is_pruned(net) and not utils.prune.is_pruned(nn.Linear(2, 2))
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    optimizer.step(td.grad(lambda: (net(X) ** 2).sum(), net.parameters())())
    assert (net.weight.numpy()[gone] == 0).all() and (net.weight.numpy() != w)[~gone].all()
    utils.prune.random_unstructured(net, "weight", 2)
    assert (net.weight.numpy() == 0).sum() == 8
    last = net.weight.numpy()
    utils.prune.remove(net, "weight")
    np.testing.assert_array_equal(net.weight.numpy(), last)
    assert type(net) is nn.Linear and not utils.prune.is_pruned(net)


def test_pruned_slices_and_several_tensors_at_once() -> None:
    net = nn.Conv1d(3, 4, 2)
    w = net.weight.numpy()
    utils.prune.ln_structured(net, "weight", 0.5, n=2, dim=0)
    order = np.argsort(np.linalg.norm(w.reshape(4, -1), axis=1))
    np.testing.assert_array_equal(np.flatnonzero((net.weight.numpy() == 0).all((1, 2))), np.sort(order[:2]))
    utils.prune.random_structured(net, "weight", 1, dim=1)
    assert (net.weight.numpy() == 0).all((0, 2)).sum() == 1
    first, second = nn.Linear(2, 2), nn.Linear(2, 3)
    first.weight.assign(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    second.weight.assign(np.array([[5.0, 0.1], [6.0, 7.0], [8.0, 2.5]], np.float32))
    utils.prune.global_unstructured([(first, "weight"), (second, "weight")], 0.4)
    np.testing.assert_array_equal(first.weight.numpy(), [[0, 0], [3, 4]])
    np.testing.assert_array_equal(second.weight.numpy(), np.array([[5, 0], [6, 7], [8, 0]], np.float32))


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("E0526", lambda: P.register_parametrization(nn.Linear(2, 2), "scale", Doubled())),
        ("E0526", lambda: P.register_parametrization(nn.Linear(2, 3), "weight", nn.Flatten(0))),
        ("E0526", lambda: P.remove_parametrizations(nn.Linear(2, 2), "weight")),
        ("E0526", lambda: P.remove_parametrizations(ready.weight_norm(nn.Linear(2, 2)), "weight", False)),
        ("E0526", lambda: setattr(P.register_parametrization(nn.Linear(2, 2), "weight", Symmetric()), "weight", X)),
        ("E0526", lambda: ready.spectral_norm(nn.Linear(2, 2), dim=2)),
        ("E0526", lambda: ready.spectral_norm(nn.Linear(2, 2), "scale")),
        ("E0526", lambda: ready.orthogonal(nn.Linear(2, 2), "bias")),
        ("E0526", lambda: ready.orthogonal(nn.Linear(2, 2), orthogonal_map="householder")),
        ("E0526", lambda: utils.prune.l1_unstructured(nn.Linear(2, 2), "weight", 1.5)),
        ("E0526", lambda: utils.prune.l1_unstructured(nn.Linear(2, 2), "weight", 5)),
        ("E0526", lambda: utils.prune.l1_unstructured(nn.Linear(2, 2), "scale", 1)),
        ("E0526", lambda: utils.prune.ln_structured(nn.Linear(2, 2), "weight", 1, dim=2)),
        ("E0526", lambda: utils.prune.custom_from_mask(nn.Linear(2, 2), "weight", np.ones(2))),
        ("E0526", lambda: utils.prune.remove(nn.Linear(2, 2), "weight")),
        ("E0566", lambda: utils.parameters_to_vector([])),
        ("E0566", lambda: utils.vector_to_parameters(np.ones(3, np.float32), nn.Linear(2, 2).parameters())),
        ("E0566", lambda: utils.fuse_linear_bn_eval(nn.Linear(2, 2), nn.BatchNorm1d(2))),
        ("E0566", lambda: utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(2).eval())),
        ("E0555", lambda: utils.rnn.pad_sequence([X, X[0]])),
        ("E0555", lambda: utils.rnn.unpad_sequence(X, [1])),
        ("E0103", lambda: utils.rnn.pad_sequence([X], padding_side="up")),
    ],
)
def test_wrong_use(code: str, call: Any) -> None:
    with pytest.raises(td.UserError, match=code):
        call()
