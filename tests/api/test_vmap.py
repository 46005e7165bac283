"""`vmap`, `jvp` and the Jacobians: values against loops and formulas, nesting with grad and jit, containers, errors."""

import numpy as np
import pytest

import treadle as td
from treadle import Tensor, UserError

BOTH = pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])


def draw(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def close(found, wanted, tol=1e-5):
    wanted = wanted.numpy() if isinstance(wanted, Tensor) else wanted
    np.testing.assert_allclose(found.numpy(), wanted, rtol=tol, atol=tol)


def loss(w, x, y):
    return ((x @ w).tanh() - y).square().sum()


# --- vmap -------------------------------------------------------------------------------------------------------------


@BOTH
def test_gradients_of_each_sample(wrap):
    w, x, y = draw(3, 2), draw(5, 3), draw(5, 2, seed=1)
    found = wrap(td.vmap(td.grad(loss), in_axes=(None, 0, 0)))(w, x, y)
    assert found.shape == (5, 3, 2)
    close(found, np.stack([td.grad(loss)(w, x[i], y[i]).numpy() for i in range(5)]))
    close(Tensor(found.numpy().sum(0)), td.grad(lambda w: td.vmap(lambda x, y: loss(w, x, y))(x, y).sum())(w))


@BOTH
def test_axes_of_arguments_and_results(wrap):
    x, y = draw(2, 4, 3), draw(3, 4, seed=1)
    f = lambda a, b: {"sum": a + b, "both": (a * b, b)}
    found = wrap(td.vmap(f, in_axes=(1, -1), out_axes={"sum": 1, "both": (0, -1)}))(x, draw(3, 4, seed=1)[None])
    close(found["sum"], (x.numpy().transpose(1, 0, 2) + y.numpy().T[:, None]).transpose(1, 0, 2))
    close(found["both"][0], x.numpy().transpose(1, 0, 2) * y.numpy().T[:, None])
    close(found["both"][1], y.numpy()[None])


@BOTH
def test_containers_of_arguments(wrap):
    params = {"w": draw(4, 3), "b": draw(3, seed=1)}
    found = wrap(td.vmap(lambda p, x: p["w"] * x + p["b"], in_axes=({"w": 0, "b": None}, None)))(params, 2.0)
    close(found, params["w"].numpy() * 2 + params["b"].numpy())


@BOTH
def test_nested_vmap_is_the_outer_product(wrap):
    x, y = draw(3), draw(4, seed=1)
    outer = td.vmap(td.vmap(lambda a, b: a * b, in_axes=(None, 0)), in_axes=(0, None))
    close(wrap(outer)(x, y), np.outer(x.numpy(), y.numpy()))


@BOTH
def test_tensors_from_outside_are_shared_and_differentiated(wrap):
    w, x = draw(3), draw(5, 3)
    gradient = lambda x: td.value_and_grad(lambda: td.vmap(lambda row: (row * w).sum().sin())(x).sum(), [w])()[1][0]
    close(wrap(gradient)(x), (np.cos(x.numpy() @ w.numpy())[:, None] * x.numpy()).sum(0))


@BOTH
def test_a_result_that_does_not_depend_on_the_lane(wrap):
    found = wrap(td.vmap(lambda x: (x, td.ones(2), "kept")))(draw(3))
    assert found[1].shape == (3, 2)
    assert found[2] == "kept"


@BOTH
def test_decisions_and_loops_in_lanes(wrap):
    def collatz(n):
        step = lambda s: (td.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
        return td.while_loop(lambda s: s[0] != 1, step, (n, td.zeros((), dtype=td.int32)))[1]

    numbers = np.array([1, 2, 3, 6, 7, 27], np.int32)
    assert wrap(td.vmap(collatz))(numbers).tolist() == [0, 1, 7, 8, 16, 111]
    sign = td.vmap(lambda x: td.cond(x > 0, lambda: x * 2, lambda: x * 3))
    close(wrap(sign)(np.array([1.0, -1.0], np.float32)), [2, -3])


@BOTH
def test_a_layer_in_lanes_is_the_layer_on_the_batch(wrap):
    net = td.nn.Sequential(td.nn.Linear(4, 8), td.nn.LayerNorm(8), td.nn.Linear(8, 2))
    x = draw(6, 4)
    close(wrap(td.vmap(lambda row: net(row[None])[0]))(x), net(x), tol=1e-4)


def test_keyword_arguments_are_shared():
    found = td.vmap(lambda x, scale: x * scale)(draw(3), scale=draw())
    close(found, draw(3).numpy() * draw().numpy())


def test_a_function_that_changes_a_shared_tensor_is_refused():
    count = td.zeros(2)

    def f(x):
        count[:] = count + x
        return x

    with pytest.raises(UserError, match="E0315") as caught:
        td.vmap(f)(draw(3))
    assert "f changes tensors (f32[2])" in str(caught.value)
    assert count.tolist() == [0, 0]


def test_an_argument_that_the_function_changes_is_refused():
    def f(x):
        x[0] = 1.0
        return x

    with pytest.raises(UserError, match="E0315"):
        td.vmap(f)(draw(3, 2))


@pytest.mark.parametrize(
    "in_axes, args, code",
    [
        (0, (1.0,), "E0316"),
        (2, (draw(3, 2),), "E0316"),
        ((0,), (draw(3), draw(3)), "E0316"),
        (({"a": 0},), (draw(3),), "E0316"),
        (None, (draw(3),), "E0317"),
        (0, (draw(3), draw(4)), "E0317"),
        (0, (), "E0317"),
    ],
)
def test_wrong_axes(in_axes, args, code):
    with pytest.raises(UserError, match=code):
        td.vmap(lambda *xs: xs[0], in_axes=in_axes)(*args)


def test_wrong_axes_of_results():
    with pytest.raises(UserError, match="E0316"):
        td.vmap(lambda x: x, out_axes=2)(draw(3, 2))


# --- jvp --------------------------------------------------------------------------------------------------------------


@BOTH
def test_jvp_of_several_arguments(wrap):
    x, y, dx = draw(3), draw(3, seed=1), draw(3, seed=2)
    f = lambda x, y: {"z": td.sin(x) * y, "n": td.argmax(x)}
    value, moved = wrap(lambda x, y, dx: td.jvp(f, (x, y), (dx, None)))(x, y, dx)
    close(value["z"], np.sin(x.numpy()) * y.numpy())
    close(moved["z"], np.cos(x.numpy()) * y.numpy() * dx.numpy())
    assert moved["n"] is None


@BOTH
def test_jvp_in_jvp_and_in_grad(wrap):
    second = lambda x: td.jvp(lambda y: td.jvp(td.sin, (y,), (1.0,))[1], (x,), (1.0,))[1]
    mixed = td.grad(lambda x: td.jvp(lambda y: y * y * y, (x,), (1.0,))[1])
    np.testing.assert_allclose(wrap(second)(Tensor(0.4)).item(), -np.sin(0.4), rtol=1e-6)
    np.testing.assert_allclose(wrap(mixed)(Tensor(2.0)).item(), 12, rtol=1e-6)


def test_directions_of_one_run_do_not_mix():
    """d/dx (x * d/dy (x + y)) = 1: the inner direction is not the outer one."""
    f = lambda x: x * td.jvp(lambda y: x + y, (Tensor(3.0),), (1.0,))[1]
    assert td.jvp(f, (Tensor(2.0),), (1.0,))[1].item() == 1


def test_jvp_takes_numbers_and_containers():
    value, moved = td.jvp(lambda p: p["a"] * p["b"], ({"a": 2.0, "b": draw(2)},), ({"a": 1.0, "b": draw(2)},))
    close(value, 2 * draw(2).numpy())
    close(moved, 3 * draw(2).numpy())


@pytest.mark.parametrize(
    "primals, tangents",
    [
        ((draw(3),), ()),
        ((draw(3),), (draw(2),)),
        ((Tensor([1, 2]),), (Tensor([1, 2]),)),
        (draw(3), (draw(3),)),
    ],
)
def test_tangents_that_do_not_fit(primals, tangents):
    with pytest.raises(UserError, match="E0318"):
        td.jvp(lambda x: x, primals, tangents)


# --- Jacobians --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("mode", [td.jacfwd, td.jacrev])
def test_jacobians(wrap, mode):
    a, x = draw(4, 2, 3), draw(3, seed=1)
    found = wrap(mode(lambda scale, x: (a @ x).tanh() * scale, 1))(2.0, x)
    inner = a.numpy() @ x.numpy()
    close(found, 2 * (1 - np.tanh(inner) ** 2)[..., None] * a.numpy())


@BOTH
def test_hessian(wrap):
    x = draw(2, 2)
    found = wrap(td.hessian(lambda x: (x * x * x).sum() / 6 + x[0, 0] * x[1, 1]))(x)
    wanted = np.diag(x.numpy().reshape(-1))
    wanted[0, 3] = wanted[3, 0] = 1
    close(found, wanted.reshape(2, 2, 2, 2))


def test_what_has_no_jacobian_says_so():
    for mode in (td.jacfwd, td.jacrev):
        with pytest.raises(UserError, match="E0319"):
            mode(lambda x: x)(Tensor([1, 2]))
        with pytest.raises(UserError, match="E0319"):
            mode(lambda x: (x, x))(draw(2))
        with pytest.raises(UserError, match="E0307"):
            mode(lambda x: x, 1)(draw(2))
