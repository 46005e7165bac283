"""Loops whose gradient keeps few carries: the same values and gradients as the plain loop, less memory, each effect
once."""

import functools
import re

import numpy as np
import pytest

import treadle as td
from treadle import Tensor, UserError

TRIPS = [0, 1, 3, 4, 5, 9, 16, 23]


def tensor(*numbers):
    return Tensor(np.array(numbers, np.float64))


def step(x, y):
    return td.sin(y) * x + 0.5 * x


def loop(x, n, **options):
    """n trips with a constant, a counter and a float carry; n is data."""
    start = (td.zeros((), dtype=td.int32), x)
    return td.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, step(x, s[1])), start, **options)[1].sum()


def plain(x, n):
    y = x
    for _ in range(n):
        y = step(x, y)
    return y.sum()


def first(f):
    return td.value_and_grad(f)


def second(f):
    return td.value_and_grad(lambda x, n: td.grad(f)(x, n).square().sum())


@pytest.mark.parametrize(
    "order, options",
    [
        (first, {"checkpoint": True, "capacity": 16}),
        (first, {"checkpoint": 3, "capacity": 4}),
        (first, {"checkpoint": 1}),
        (second, {"checkpoint": 2, "capacity": 4}),
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_while_of_any_length(order, options):
    """One program for all trips: none, one, whole blocks, more than are kept."""
    x, run = tensor(0.3, -0.7), td.jit(order(functools.partial(loop, **options)))
    for trips in TRIPS if order is first else TRIPS[:6]:
        value, gradient = run(x, np.int32(trips))
        wanted = order(plain)(x, trips)
        np.testing.assert_allclose(value.numpy(), wanted[0].numpy(), rtol=1e-12)
        np.testing.assert_allclose(gradient.numpy(), wanted[1].numpy(), rtol=1e-10)
    assert len(run.programs()) == 1


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    "length, every, reverse", [(7, True, False), (9, 4, True), (6, 2, True), (4, 9, False), (3, 1, False), (0, 1, True)]
)
def test_scan_of_any_length(wrap, length, every, reverse):
    x, xs = tensor(0.3, -0.7), Tensor(np.random.default_rng(0).normal(size=(length, 2)))
    weights = Tensor(np.arange(1.0, length + 1))

    def run(x, xs, checkpoint):
        body = lambda h, row: (td.tanh(h * x + row), h * row)
        h, ys = td.scan(body, x, xs, reverse=reverse, checkpoint=checkpoint)
        return h.sum() + (ys.sum(1) * weights).sum(), ys

    found, found_ys = wrap(lambda x, xs: td.grad(run, (0, 1), has_aux=True)(x, xs, every))(x, xs)
    wanted, ys = td.grad(run, (0, 1), has_aux=True)(x, xs, False)
    for a, b in (*zip(found, wanted, strict=True), (found_ys, ys)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_second_derivatives_of_scan():
    x, xs = tensor(0.3, -0.7), Tensor(np.random.default_rng(0).normal(size=(7, 2)))

    def twice(checkpoint):
        f = lambda x: td.scan(lambda h, row: (td.tanh(h * x + row), None), x, xs, checkpoint=checkpoint)[0].sum()
        return td.jit(td.grad(lambda x: td.grad(f)(x).square().sum()))(x).numpy()

    np.testing.assert_allclose(twice(True), twice(False), rtol=1e-10)


def _temporaries(f, *args):
    program = td.jit(td.grad(f))
    program(*args)
    return program.programs()[0].executable.memory().temporaries


def test_memory_grows_with_the_root_of_the_length():
    """1,024 trips of 4 KiB of carry: all carries are 4 MiB, those of 32 blocks and of one block 256 KiB."""
    x, xs = Tensor(np.ones(1024, np.float32)), Tensor(np.zeros((1024, 1), np.float32))

    def repeated(checkpoint):
        options = {"capacity": 1024, "checkpoint": checkpoint}
        return lambda x: loop(x, np.int32(1000), **options)

    def scanned(checkpoint):
        return lambda x: td.scan(lambda h, _: (td.sin(h), None), x, xs, checkpoint=checkpoint)[0].sum()

    for f in (repeated, scanned):
        assert _temporaries(f(False), x) > 4 << 20
        assert _temporaries(f(True), x) < 1 << 20


def test_effects_and_state_once(capsys):
    count = td.zeros((), dtype=td.float64)

    def body(s):
        td.debug_print("trip {}", s[0])
        count[...] = count + s[1]
        return s[0] + 1, s[1] * 2

    def run(x):
        return td.while_loop(lambda s: s[0] < 5, body, (td.zeros((), dtype=td.int32), x), checkpoint=2)[1]

    grad = td.jit(td.grad(run))(tensor(1.0)[0])
    assert grad.item() == 32
    assert count.item() == 1 + 2 + 4 + 8 + 16
    assert re.findall(r"trip \D*(\d)", capsys.readouterr().out) == list("01234")


def test_wrong_checkpoints():
    start, body = td.zeros(()), lambda x: x + 1
    for wrong in (0, -1, 1.5, "yes"):
        with pytest.raises(UserError, match="E0173"):
            td.while_loop(lambda x: x < 3, body, start, checkpoint=wrong)
        with pytest.raises(UserError, match="E0224"):
            td.scan(lambda h, _: (h + 1, None), start, length=3, checkpoint=wrong)
