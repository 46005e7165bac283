"""Random Python functions on tensor handles (copies, changes in place, shared arrays, nested transforms) in eager mode:
their gradients against central differences, and twice, the second time by the kept program."""

import copy
import random

import numpy as np
import pytest

import treadle as td

EPS = 1e-6


@td.jit
def compiled(x, y):
    return td.sin(x) * y + x


@td.custom_gradient
def by_hand(x):
    return td.sin(x), lambda d: d * td.cos(x)


MAKE = [
    lambda x, y: x + y,
    lambda x, y: td.tanh(x) * y,
    lambda x, y: -0.5 * x,
    lambda x, y: x * np.array([1.0, 2.0, 3.0, 4.0]) - 2,
    lambda x, y: x.copy(),
    lambda x, y: x.clone(),
    lambda x, y: copy.deepcopy(x),
    lambda x, y: td.Tensor(x),
    lambda x, y: x.astype(td.float64),
    lambda x, y: x.reshape(4),
    lambda x, y: td.sin(x.reshape(2, 2).T).reshape(-1),
    lambda x, y: td.broadcast_to(x, (4,)),
    lambda x, y: td.real(x),
    lambda x, y: +x,
    lambda x, y: x[...],
    lambda x, y: x[::-1],
    lambda x, y: x.at[1].add(y[2]),
    lambda x, y: td.where(x > 0, x, y * 0.3),
    lambda x, y: td.cond(x.sum() > 0, lambda v, w: v * w, lambda v, w: td.sin(v) - w, td.tanh(x), td.tanh(y)),
    compiled,
    lambda x, y: by_hand(x),
    lambda x, y: td.checkpoint(lambda v: td.sin(v) * y)(x),
    lambda x, y: td.scan(lambda c, _: (td.sin(c) + y, None), x, length=2)[0],
    lambda x, y: td.concatenate(td.split(x, 2)[::-1]),
    lambda x, y: td.grad(lambda v: (td.sin(v) * y).sum())(x),
    lambda x, y: td.vmap(lambda a, b: a * td.cos(b))(x, y),
    lambda x, y: td.jvp(lambda v: td.sin(v) * y, (x,), (y,))[1],
    lambda x, y: td.softmax(x),
    lambda x, y: x,
]


def iadd(t, y):
    t += y


def imul(t, y):
    t *= td.tanh(y)


def put(t, y):
    t[1:3] = y[0:2]


CHANGE = [iadd, imul, put, lambda t, y: t.assign(y)]


def run(seed, tensors):
    """A scalar; `tensors` are changed, and so are those made on the way."""
    rng = random.Random(seed)
    made = []
    for _ in range(rng.randint(4, 12)):
        x, y = rng.choice([*tensors, *made * 3]), rng.choice([*tensors, *made * 3])
        if rng.random() < 0.25:
            rng.choice(CHANGE)(rng.choice([*tensors, *made]), y)
            continue
        z = rng.choice(MAKE)(x, y)
        made.append(td.tanh(z) if z is not x and rng.random() < 0.5 else z)
    return sum(((td.tanh(t) * (0.3 + i % 5)).sum() for i, t in enumerate([*made, *tensors])), td.Tensor(np.float64(0)))


def tensors(seed, moved=(), step=0.0):
    rng = np.random.default_rng(seed)
    all_of_them = [td.Parameter(rng.normal(size=4)) for _ in range(4)]
    for i, every in ((1, 3), (2, 5), (3, 4)):
        if seed % every == 0:
            all_of_them[i].assign(all_of_them[0])
    for i, direction in enumerate(moved):
        all_of_them[i].assign(all_of_them[i] + step * direction)
    return all_of_them


@pytest.mark.parametrize("chunk", range(4))
def test_gradients_are_true(chunk):
    for seed in range(chunk * 20, chunk * 20 + 20):
        rng = np.random.default_rng(seed)
        directions = [rng.normal(size=4) for _ in range(3)]
        ahead, behind = (run(seed, tensors(seed, directions, s)).item() for s in (EPS, -EPS))
        wanted = (ahead - behind) / (2 * EPS)
        found = []
        for _ in range(2):
            now = tensors(seed)
            if seed % 2:
                grads = td.grad(lambda a, b, c, rest=now[3], seed=seed: run(seed, [a, b, c, rest]), (0, 1, 2))(*now[:3])
            else:
                grads = td.value_and_grad(lambda now=now, seed=seed: run(seed, now), now[:3])()[1]
            found.append([g.numpy() for g in grads])
        np.testing.assert_array_equal(found[0], found[1])
        total = sum(float((g * d).sum()) for g, d in zip(found[0], directions, strict=True))
        assert abs(total - wanted) <= 1e-5 * (1 + abs(wanted)), (seed, total, wanted)
