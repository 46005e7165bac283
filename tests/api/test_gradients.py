"""Differentiation of Python functions, in eager mode and compiled: values, nesting, containers, errors."""

import numpy as np
import pytest

import treadle as td
from treadle import Tensor, UserError, ops

BOTH = pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])


def total(x):
    return ops.reduce_sum(x, axes=tuple(range(x.ndim)))


@BOTH
def test_containers_of_arguments(wrap):
    def loss(params, x):
        return total(ops.mul(ops.mul(params["a"], params["b"][0]), x))

    params = {"a": Tensor(np.ones(2, np.float32)), "b": (Tensor(np.full(2, 3, np.float32)),)}
    value, grads = wrap(td.value_and_grad(loss))(params, np.array([1, 2], np.float32))
    assert value.item() == 9
    assert grads["a"].tolist() == [3, 6]
    assert grads["b"][0].tolist() == [1, 2]


@BOTH
def test_several_arguments_and_aux(wrap):
    def loss(x, y):
        return ops.mul(x, ops.mul(y, y)), {"y": y}

    grads, aux = wrap(td.grad(loss, (0, 1), has_aux=True))(2.0, 3.0)
    assert [g.item() for g in grads] == [9, 12]
    assert aux["y"].item() == 3


@BOTH
def test_gradients_of_parameters_by_identity(wrap):
    w, unused = Tensor(np.ones(2, np.float32)), Tensor(np.ones(3, np.float32))

    def run(x):
        return td.value_and_grad(lambda: total(ops.mul(w, x)), [w, unused])()

    value, grads = wrap(run)(np.array([4, 5], np.float32))
    assert value.item() == 9
    assert [g.tolist() for g in grads] == [[4, 5], [0, 0, 0]]


@BOTH
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_higher_order(wrap, order):
    f = lambda x: ops.exp(ops.mul(x, 2.0))
    g = f
    for _ in range(order):
        g = td.grad(g)
    np.testing.assert_allclose(wrap(g)(0.3).item(), 2**order * np.exp(0.6), rtol=1e-5)


@BOTH
def test_state_changed_while_differentiating(wrap):
    count = Tensor(np.float32(0))

    def loss(x):
        count.assign(ops.add(count, 1))
        return ops.mul(x, x)

    g = wrap(td.grad(loss))
    assert [g(3.0).item(), g(3.0).item()] == [6, 6]
    assert count.item() == 2


@BOTH
def test_vjp_pulls_any_cotangent(wrap):
    def run(x, d):
        y, pull = td.vjp(lambda x: ops.mul(x, x), x)
        return y, pull(d)[0], pull(ops.mul(d, 2))[0]

    y, g, g2 = wrap(run)(Tensor(np.array([1.0, 2.0])), Tensor(np.array([1.0, 10.0])))
    assert (y.tolist(), g.tolist(), g2.tolist()) == ([1, 4], [2, 40], [4, 80])


@BOTH
def test_stop_gradient_checkpoint_and_custom(wrap):
    assert wrap(td.grad(lambda x: ops.mul(x, td.stop_gradient(x))))(3.0).item() == 3
    assert wrap(td.grad(td.checkpoint(lambda x: ops.mul(x, ops.mul(x, x)))))(2.0).item() == 12

    @td.custom_gradient
    def clipped(x):
        return ops.mul(x, x), lambda d: ops.mul(d, 7.0)

    assert clipped(3.0).item() == 9
    assert wrap(td.grad(clipped))(3.0).item() == 7
    assert wrap(td.grad(td.grad(clipped)))(3.0).item() == 0


def test_custom_gradient_of_the_argument_itself():
    reverse = td.custom_gradient(lambda x: (x, lambda d: -d))
    twice = td.custom_gradient(lambda x: ((x, x), lambda a, b: a + 10 * b))
    assert td.grad(lambda x: reverse(x) * 3 + x * 5)(1.0).item() == 2
    assert td.grad(lambda x: reverse(x * 2) * 3 + x)(1.0).item() == -5
    assert td.grad(lambda x: twice(x)[0] * 3 + twice(x)[1])(1.0).item() == 13


def test_checkpoint_saves_only_inputs():
    def layer(x):
        for _ in range(4):
            x = ops.tanh(x)
        return x

    plain, saving = (
        str(td.api.trace_module(td.grad(lambda x, f=f: total(f(x))), Tensor(np.ones(3))))
        for f in (layer, td.checkpoint(layer))
    )
    assert plain.count("tanh") == 4
    assert "remat" in saving and "barrier" in saving


@BOTH
def test_control_flow(wrap):
    def power(x):
        return td.while_loop(lambda c: ops.less(c[0], 100.0), lambda c: (ops.mul(c[0], c[0]), ops.add(c[1], 1)), (x, 0))

    value, trips = wrap(power)(1.5)
    assert (round(value.item(), 3), trips.item()) == (656.841, 4)
    np.testing.assert_allclose(wrap(td.grad(lambda x: power(x)[0]))(1.5).item(), 16 * 1.5**15, rtol=1e-6)

    def rnn(w):
        h, ys = td.scan(lambda h, x: (ops.tanh(ops.add(ops.mul(w, h), x)),) * 2, 0.0, np.arange(3, dtype=np.float32))
        return ops.add(h, total(ys))

    step = 1e-3
    numeric = (wrap(rnn)(0.5 + step).item() - wrap(rnn)(0.5 - step).item()) / (2 * step)
    np.testing.assert_allclose(wrap(td.grad(rnn))(0.5).item(), numeric, rtol=1e-3)

    def absolute(x):
        return td.cond(ops.less(x, 0.0), lambda x: ops.neg(x), lambda x: x, x)

    assert [wrap(td.grad(absolute))(v).item() for v in (-2.0, 3.0)] == [-1, 1]


@BOTH
def test_loops_carry_the_state_they_change(wrap):
    def run(n):
        count = Tensor(np.float32(0))

        def body(i):
            count.assign(ops.add(count, 2))
            return ops.add(i, 1)

        td.while_loop(lambda i: ops.less(i, n), body, 0)
        td.scan(lambda c, x: (body(c), None), 0, np.zeros(3, np.float32))
        td.cond(ops.less(n, 100), lambda: (body(n), None)[1], lambda: None)
        return count

    assert wrap(run)(Tensor(5)).item() == 2 * (5 + 3 + 1)


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda: td.grad(lambda x: x)(np.ones(3)), "E0306"),
        (lambda: td.grad(lambda x: None)(1.0), "E0306"),
        (lambda: td.grad(lambda x: (x, x))(1.0), "E0306"),
        (lambda: td.grad(lambda x: total(x))(np.ones(3, np.int32)), "E0305"),
        (lambda: td.grad(lambda x: x, 1)(1.0), "E0307"),
        (lambda: td.grad(lambda x: x, ["w"])(1.0), "E0307"),
        (lambda: td.vjp(lambda x: x, 1.0)[1](np.ones(3, np.float32)), "E0308"),
        (lambda: td.custom_gradient(lambda x: (ops.mul(x, W), lambda d: d))(1.0), "E0309"),
        (lambda: td.custom_gradient(lambda x: x)(1.0), "E0310"),
        (lambda: td.grad(td.custom_gradient(lambda x: (x, lambda d: None)))(1.0), "E0311"),
        (lambda: td.cond(Tensor(True), lambda: Tensor(1), lambda: Tensor(1.0)), "E0220"),
        (lambda: td.while_loop(lambda c: ops.less(c, 9), lambda c: ops.mul(c, 2.0), 1), "E0221"),
        (lambda: td.while_loop(lambda c: c, lambda c: c, 1.0), "E0222"),
        (lambda: td.while_loop(lambda c: c["a"] < 3, lambda c: {"b": c["b"], "a": c["a"]}, {"a": 1, "b": 2}), "E0221"),
        (lambda: td.scan(lambda c, x: ([c[0]], x), (0.0,), np.ones(3)), "E0221"),
        (lambda: td.cond(Tensor(True), lambda: "a", lambda: "b"), "E0220"),
        (lambda: td.while_loop(lambda c: ops.less(W.assign(c), 3.0), lambda c: c, 1.0), "E0223"),
        (lambda: td.scan(lambda c, x: (c, x), 0.0, (np.ones(3), np.ones(4))), "E0224"),
        (lambda: td.scan(lambda c, x: c, 0.0, np.ones(3)), "E0225"),
        (lambda: td.context.set_context(mode="fast"), "E0208"),
        (lambda: td.context.get_context("speed"), "E0208"),
    ],
)
def test_errors(act, code):
    with pytest.raises(UserError) as error:
        act()
    assert error.value.code == code
    assert "test_gradients.py" in str(error.value)


W = Tensor(np.float32(1))


def test_a_tuple_of_one_argument_number_gives_a_tuple():
    (g,) = td.grad(lambda x, y: ops.mul(x, y), (1,))(2.0, 3.0)
    assert g.item() == 2


@BOTH
def test_numbers_returned_by_branches_and_bodies_are_results(wrap):
    def run(p):
        chosen = td.cond(p, lambda: 1.0, lambda: 2.0)
        _, ys = td.scan(lambda c, x: (c, 3.0), 0.0, np.ones(2, np.float32))
        return chosen, ys

    for flag, value in ((True, 1.0), (False, 2.0)):
        chosen, ys = wrap(run)(Tensor(flag))
        assert (chosen.item(), ys.tolist()) == (value, [3.0, 3.0])


@BOTH
def test_one_tensor_in_two_places_has_a_gradient_for_each(wrap):
    x = Tensor(np.float32(3))
    f = lambda x, y: ops.mul(ops.mul(x, x), y)
    assert [g.item() for g in wrap(td.grad(f, (0, 1)))(x, x)] == [18, 9]
    assert [g.item() for g in wrap(td.grad_all(f))(x, x)] == [18, 9]
    assert [g.item() for g in td.vjp(f, x, x)[1](1.0)] == [18, 9]
    assert wrap(lambda x: td.jvp(f, (x, x), (1.0, 0.0))[1])(x).item() == 18
    pair = Tensor(np.arange(4, dtype=np.float32).reshape(2, 2))
    assert wrap(lambda p: td.vmap(lambda a, b: a @ b, in_axes=(0, None))(p, p))(pair).tolist() == [[2, 3], [6, 11]]
