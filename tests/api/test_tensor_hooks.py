"""Hooks on the gradients of tensors: what they see and change, eager and compiled, under every transformation."""

import numpy as np
import pytest

import treadle as td
from treadle import UserError

BOTH = pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])


def close(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


@BOTH
def test_a_hook_replaces_the_gradient(wrap):
    def f(x):
        h = x * 3
        h.register_hook(lambda g: g * 10)
        return (h * h).sum()

    x = td.tensor(np.array([1.0, 2.0]))
    close(f(x), 45)
    close(wrap(td.grad(f))(x), 10 * 18 * x.numpy())


@BOTH
def test_later_hooks_run_first_and_none_changes_nothing(wrap):
    seen = []

    def f(x):
        h = x * 1.0
        h.register_hook(lambda g: g + 1)
        h.register_hook(lambda g: seen.append(g.shape))
        h.register_hook(lambda g: g * 2)
        return h.sum()

    close(wrap(td.grad(f))(td.ones(2)), [3, 3])
    assert seen == [(2,)]


@BOTH
def test_a_removed_hook_is_gone(wrap):
    def f(x):
        h = x * 2
        with h.register_hook(lambda g: g * 10):
            a = h.sum()
        handle = h.register_hook(lambda g: g * 100)
        handle.remove()
        handle.remove()
        return a + h.sum()

    close(wrap(td.grad(f))(td.ones(2)), [22, 22])


@BOTH
def test_arguments_parameters_and_containers(wrap):
    w = td.nn.Linear(2, 1).weight

    def f(tree):
        clipped = td.hook_gradient({**tree, "w": w}, lambda g: g.clip(-1, 1))
        return (clipped["x"] * clipped["w"]).sum() * 100 + clipped["n"]

    tree = {"x": td.ones(2), "n": td.tensor(3)}
    grads = wrap(lambda tree: td.value_and_grad(lambda: f(tree), [tree["x"], w])())(tree)[1]
    close(grads[0], np.sign(w.numpy()[0]) * np.minimum(1, 100 * abs(w.numpy()[0])))
    close(grads[1], [[1, 1]])


def test_under_vmap_second_order_and_in_a_loop():
    def f(x):
        def body(h):
            new = h * x
            new.register_hook(lambda g: g * 2)
            return new

        return td.while_loop(lambda h: h < 10, body, x)

    x = td.tensor(np.array([2.0, 4.0]))
    # 2 -> 16 after three trips, each of which doubles: dL/dx = sum over trips of 2^k * x^3, and 8 * x^3 of the start
    close(td.vmap(td.grad(f))(x), [8 * (2 + 4 + 8 + 8), 4 * (2 + 2)])
    twice = td.grad(lambda x: td.grad(lambda x: td.hook_gradient(x, lambda g: g * 3) ** 3)(x))
    close(twice(td.tensor(np.array(2.0))), 3 * 6 * 2)


def test_with_vjp_and_jit_without_a_gradient():
    def f(x):
        h = td.sin(x)
        h.register_hook(lambda g: g * 2)
        return h

    x = td.ones(2)
    result, pull = td.vjp(f, x)
    close(result, np.sin([1, 1]))
    close(pull(td.ones(2))[0], 2 * np.cos([1, 1]))
    close(td.jit(f)(x), np.sin([1, 1]))


@BOTH
def test_what_cannot_be_hooked(wrap):
    p = td.nn.Linear(2, 1).weight
    hook = lambda g: g
    changed = td.zeros(2)

    def argument(x):
        x.register_hook(hook)
        return x.sum()

    def outside(x):
        p.register_hook(hook)
        return (x * p).sum()

    def changes(x):
        def keep(g):
            changed[...] = g

        return td.hook_gradient(x, keep).sum()

    bad = lambda new: lambda x: td.hook_gradient(x, new).sum()
    for f in (argument, outside, changes, bad(lambda g: g[:1]), bad(lambda g: 1.0), bad("no function")):
        with pytest.raises(UserError, match="E0320"):
            wrap(td.grad(f))(td.ones(2))
    with pytest.raises(UserError, match="E0320"):
        p.register_hook(hook)
