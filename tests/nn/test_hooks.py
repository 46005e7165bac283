"""Hooks of cells, eager and compiled; names of parts; freezing."""

import copy
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import nn, optim

X = np.array([[1.0, -2.0, 0.5], [0.3, 0.7, -1.0]], np.float32)
MODES = pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])


@pytest.fixture(autouse=True)
def _seeded() -> None:
    td.manual_seed(0)


def model() -> Any:
    td.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@MODES
def test_hooks_change_what_goes_in_and_out_until_removed(wrap: Any) -> None:
    net = model()
    run = wrap(net)
    plain = run(X).numpy()
    first = net.register_forward_pre_hook(lambda cell, args: args[0] * 2)
    np.testing.assert_allclose(run(X).numpy(), net_of(X * 2), 1e-5)
    second = net.register_forward_hook(lambda cell, args, y: y + 1)
    np.testing.assert_allclose(run(X).numpy(), net_of(X * 2) + 1, 1e-5)
    first.remove()
    np.testing.assert_allclose(run(X).numpy(), plain + 1, 1e-5)
    second.remove()
    second.remove()
    np.testing.assert_array_equal(run(X).numpy(), plain)
    with net.register_forward_hook(lambda cell, args, y: y * 0):
        assert (run(X).numpy() == 0).all()
    np.testing.assert_array_equal(run(X).numpy(), plain)


def net_of(x: Any) -> Any:
    return model()(x).numpy()


def test_order_and_keyword_arguments() -> None:
    class Scaled(nn.Cell):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            return x * scale

    cell, seen = Scaled(), []
    cell.register_forward_pre_hook(lambda c, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True)
    cell.register_forward_pre_hook(lambda c, args: seen.append("second"))
    cell.register_forward_pre_hook(lambda c, args: seen.append("first"), prepend=True)
    cell.register_forward_hook(lambda c, args, kwargs, y: seen.append(kwargs["scale"]), with_kwargs=True)
    assert cell(td.Tensor(3.0), scale=2.0).item() == 9 and seen == ["first", "second", 3.0]


def test_hooks_are_part_of_the_program() -> None:
    net, count = model(), []
    net.register_forward_hook(lambda cell, args, y: count.append(1) or y * 2)
    run = td.jit(net)
    for _ in range(3):
        np.testing.assert_allclose(run(X).numpy(), net_of(X) * 2, 1e-5)
    assert len(count) == 1


def test_graph_mode_sees_hooks_come_and_go() -> None:
    net, plain = model(), net_of(X)
    td.context.set_context(mode="graph")
    try:
        with net[2].register_forward_hook(lambda cell, args, y: y * 2):
            np.testing.assert_allclose(net(X).numpy(), plain * 2, 1e-5)
        np.testing.assert_allclose(net(X).numpy(), plain, 1e-5)
    finally:
        td.context.set_context(mode="eager")


@MODES
def test_backward_hooks_see_and_change_gradients(wrap: Any) -> None:
    net, x = model(), td.Tensor(X)
    shapes: list[Any] = []

    def hook(cell: Any, into: Any, out: Any) -> Any:
        shapes.append([tuple(t.shape) for t in (*into, *out)])
        return (into[0] * 10 + out[0].sum(),)

    def gradients() -> Any:
        return wrap(lambda x: td.grad(lambda x, *_: net(x).sum(), 0)(x))(x).numpy()

    plain = gradients()
    handle = net.register_full_backward_hook(hook)
    np.testing.assert_allclose(gradients(), plain * 10 + 4, 1e-5)
    assert shapes[-1] == [(2, 3), (2, 2)]
    handle.remove()
    np.testing.assert_array_equal(gradients(), plain)
    with net.register_full_backward_pre_hook(lambda cell, out: (out[0] * 3,)):
        np.testing.assert_allclose(gradients(), plain * 3, 1e-5)
        net.register_full_backward_hook(lambda cell, into, out: (into[0] - out[0].sum(),))
        np.testing.assert_allclose(gradients(), plain * 3 - 12, 1e-5)


def test_backward_hooks_of_inner_cells_and_state() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    loss = td.value_and_grad(lambda x: (net(x) ** 2).sum(), net.parameters())
    value, plain = loss(X)
    running = net[1].running_mean.numpy()
    net[1].running_mean.assign(np.zeros(4, np.float32))
    for cell in net:
        cell.register_full_backward_hook(lambda cell, into, out: None)
    net[2].register_full_backward_hook(lambda cell, into, out: (into[0] * 2,))
    again, changed = td.jit(loss)(X)
    np.testing.assert_allclose(again.item(), value.item(), 1e-5)
    np.testing.assert_allclose(net[1].running_mean.numpy(), running, 1e-5)  # changed once, not twice
    for p, g, h in zip(net.parameters(), plain, changed, strict=True):
        np.testing.assert_allclose(h.numpy(), g.numpy() * (1 if g.shape in ((2, 4), (2,)) else 2), 1e-3, 1e-5, p.name)


def test_backward_hooks_work_under_vmap_and_twice() -> None:
    cell = nn.Tanh()
    cell.register_full_backward_hook(lambda c, into, out: (into[0] * 2,))
    x = td.Tensor(np.array([0.3, -0.4]))
    slope = td.vmap(td.grad(lambda t: cell(t)))(x).numpy()
    np.testing.assert_allclose(slope, 2 / np.cosh(x.numpy()) ** 2, 1e-6)
    curve = td.jit(td.grad(lambda t: td.grad(lambda u: cell(u).sum())(t).sum()))(x).numpy()
    np.testing.assert_allclose(curve, -4 * np.tanh(x.numpy()) / np.cosh(x.numpy()) ** 2, 1e-5)


def test_a_copy_has_its_own_hooks() -> None:
    net = nn.Tanh()
    handle = net.register_forward_hook(lambda c, args, y: y + 1)
    twin = copy.deepcopy(net)
    handle.remove()
    assert net(td.Tensor(0.0)).item() == 0 and twin(td.Tensor(0.0)).item() == 1


def test_names_of_parts() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert net.get_cell("") is net and net.get_submodule("1") is net[1]
    assert net.get_parameter("0.weight") is net[0].weight and net.get_buffer("1.running_mean") is net[1].running_mean
    net.add_module("extra", nn.Tanh())
    net.register_parameter("gain", nn.Parameter(np.ones(2, np.float32)))
    assert net.get_cell("extra") is net.extra and "gain" in dict(net.named_parameters())


def test_frozen_parts_stay_as_they_are() -> None:
    net = model()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    step = td.value_and_grad(lambda: net(X).sum(), net.parameters())
    update = td.jit(lambda: optimizer.step(step()[1]))
    net[0].freeze()
    first, last = net[0].weight.numpy(), net[2].weight.numpy()
    update()
    np.testing.assert_array_equal(net[0].weight.numpy(), first)
    assert (net[2].weight.numpy() != last).any()
    net.unfreeze()
    update()
    assert (net[0].weight.numpy() != first).all()
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


def late(net: Any) -> Any:
    net.register_forward_hook(lambda *_: None)
    return net(X)


def bad_backward(hook: Any, pre: bool = False) -> Any:
    net = model()
    (net.register_full_backward_pre_hook if pre else net.register_full_backward_hook)(hook)
    return td.grad(lambda x: net(x).sum())(td.Tensor(X))


STATE = td.Tensor(np.zeros(()))


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("E0524", lambda: model().register_forward_hook(3)),
        ("E0524", lambda: bad_backward(lambda c, i, o: (i[0], i[0]))),
        ("E0524", lambda: bad_backward(lambda c, i, o: (i[0][0],))),
        ("E0524", lambda: bad_backward(lambda c, o: 3.0, pre=True)),
        ("E0524", lambda: bad_backward(lambda c, i, o: STATE.assign(i[0].sum().astype(td.float64)) and None)),
        ("E0521", lambda: (lambda net: td.jit(lambda: late(net))())(model())),
        ("E0525", lambda: model().get_cell("3")),
        ("E0525", lambda: model().get_parameter("0.scale")),
        ("E0525", lambda: model().get_buffer("0.weight")),
    ],
)
def test_wrong_use(code: str, call: Any) -> None:
    with pytest.raises(td.UserError, match=code):
        call()
