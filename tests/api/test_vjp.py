"""`td.vjp` with containers, integer results, aux, state; and gradients of each sample by parameters."""

import numpy as np
import pytest

import treadle as td
from treadle import UserError

BOTH = pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])


def close(found, wanted):
    np.testing.assert_allclose(found.numpy(), np.asarray(wanted), rtol=1e-6)


def mixed(p, n):
    """Floats between integers, in containers."""
    return {"top": td.argmax(p["x"]), "square": p["x"] ** 2, "rest": [n + 1, p["y"] * p["x"].sum()]}


@BOTH
def test_cotangents_have_the_structure_of_the_result(wrap):
    x, y, dx, dy = np.array([1.0, 2.0]), np.array(3.0), np.array([1.0, 10.0]), np.array(2.0)

    def run(x, y, dx, dy):
        n = td.tensor(4)
        result, pull = td.vjp(mixed, {"x": x, "y": y}, n)
        whole = pull({"top": None, "square": dx, "rest": [None, dy]})
        return result, whole, pull(dx, dy), pull({"top": None, "square": None, "rest": [None, dy]})

    result, whole, bare, half = wrap(run)(x, y, dx, dy)
    close(result["rest"][1], 9)
    assert result["rest"][0].item() == 5
    for grads in (whole, bare):
        close(grads[0]["x"], 2 * x * dx + 2 * 3)
        close(grads[0]["y"], 2 * 3)
        assert grads[1] is None
    close(half[0]["x"], [6, 6])


@BOTH
def test_aux_comes_third(wrap):
    count = td.zeros(())

    def f(x):
        count[...] = count + 1
        return (td.sin(x), x * 2), {"n": 0, "x": x, "k": td.argmax(x)}

    def run(x, d):
        result, pull, aux = td.vjp(f, x, has_aux=True)
        return result, pull((d, None))[0], aux

    x = np.array([0.5, 1.0])
    result, grad, aux = wrap(run)(x, np.array([2.0, 3.0]))
    close(result[0], np.sin(x))
    close(grad, np.cos(x) * [2, 3])
    close(aux["x"], x)
    assert (aux["n"], aux["k"].item(), count.item()) == (0, 1, 1)


def test_sensitivities_from_data_differentiated():
    """d/ds of pull(s) is the derivative again; vjp in grad and grad in vjp."""
    x = td.tensor(np.array(0.5))
    close(td.grad(lambda s: td.vjp(td.sin, x)[1](s)[0])(td.tensor(np.array(2.0))), np.cos(0.5))
    close(td.vjp(td.grad(lambda x: x**3), x)[1](td.tensor(np.array(2.0)))[0], 6)


@pytest.mark.parametrize(
    "call",
    [
        lambda pull: pull(np.ones(3)),
        lambda pull: pull(np.ones(2, np.float32), None),
        lambda pull: pull(),
        lambda pull: pull({"top": None, "square": np.ones(2), "rest": [None, np.ones(2)]}),
    ],
)
def test_cotangents_that_do_not_fit(call):
    _, pull = td.vjp(mixed, {"x": np.ones(2), "y": np.array(3.0)}, td.tensor(1))
    with pytest.raises(UserError, match="E0308"):
        call(pull)


def test_aux_needs_a_pair():
    with pytest.raises(UserError, match="E0306"):
        td.vjp(lambda x: x, np.ones(2), has_aux=True)


@BOTH
def test_gradients_of_each_sample_by_parameters(wrap):
    """vmap over value_and_grad by tensors that the function reads from outside: a row for each sample."""
    net = td.nn.Sequential(td.nn.Linear(3, 4), td.nn.Tanh(), td.nn.Linear(4, 2))
    params = list(net.parameters())
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)

    def of_one(x, y):
        return td.value_and_grad(lambda: (net(x[None])[0] - y).square().sum(), params)()

    losses, grads = wrap(td.vmap(of_one))(xs, ys)
    for i in range(5):
        loss, wanted = of_one(td.tensor(xs[i]), td.tensor(ys[i]))
        np.testing.assert_allclose(losses[i].item(), loss.item(), rtol=1e-5)
        for g, w in zip(grads, wanted, strict=True):
            np.testing.assert_allclose(g[i].numpy(), w.numpy(), rtol=1e-4, atol=1e-6)
    assert [g.shape for g in grads] == [(5, *p.shape) for p in params]
