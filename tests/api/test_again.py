"""Calls with arguments like those before, which find their program at once: the same programs and numbers as ever."""

import random
import threading

import numpy as np
import pytest

import treadle as td
from treadle.api.again import kind_of
from treadle.base.flags import override
from treadle.frontend import keys, tree


def combined(*args, **kwargs):
    """Of any arguments: a number in which values, types, texts and the identity of tensors can be seen."""
    leaves, _ = td.tree.flatten((args, kwargs))
    seen, total = [], td.tensor(np.zeros(2, np.float32))
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, td.Tensor | np.ndarray | float):
            twin = next((i for i, other in enumerate(seen) if other is leaf and isinstance(leaf, td.Tensor)), -1)
            total = total + (place + 1) * (td.ones(()) * leaf).sum().astype(td.float32) + 100 * (twin + 1)
        else:
            total = total + len(repr(leaf)) + (leaf if isinstance(leaf, int) else 0)
        seen.append(leaf)
    return [total, (total * 2, len(leaves))]


def tensor(rng, on_device):
    made = td.tensor(np.float32(rng.random()) * np.ones(rng.choice([2, 3]), rng.choice([np.float32, np.float64])))
    if on_device:
        td.jit(lambda x: x + 1)(made)  # takes it there
    return made


def leaf(rng, tensors):
    return rng.choice(
        [
            lambda: rng.choice(tensors),
            lambda: rng.choice(tensors),
            lambda: tensor(rng, rng.random() < 0.5),
            rng.random,
            lambda: rng.choice([0, 1, 2, True, False, "a", "b", None]),
            lambda: np.ones(rng.choice([2, 3]), np.float32) * rng.random(),
        ]
    )()


SHAPES = [
    lambda a, b: ((a, b), {}),
    lambda a, b: ((a,), {"k": b}),
    lambda a, b: (([(a, b)],), {}),
    lambda a, b: (({"x": a, "y": [b]},), {}),
    lambda a, b: (({"y": a, "x": [b]},), {}),
    lambda a, b: (([a], b), {"k": (a,)}),
]


@pytest.mark.parametrize("seed", range(3))
def test_many_calls_of_few_kinds_give_what_plain_calls_give(seed):
    rng = random.Random(seed)
    tensors = [tensor(rng, i % 2 == 0) for i in range(3)]
    kinds = [(rng.choice(SHAPES), leaf(rng, tensors), leaf(rng, tensors)) for _ in range(14)]
    f = td.jit(combined)
    for _ in range(150):
        shape, a, b = rng.choice(kinds[: rng.choice([2, 5, 14])])
        args, kwargs = shape(a, b)
        found, wanted = f(*args, **kwargs), combined(*args, **kwargs)
        np.testing.assert_allclose(found[0].numpy(), wanted[0].numpy(), rtol=1e-5)
        np.testing.assert_allclose(found[1][0].numpy(), wanted[1][0].numpy(), rtol=1e-5)
        assert found[1][1] == wanted[1][1] and type(found[1]) is tuple


def often(f, *args):
    for _ in range(4):
        found = f(*args)
    return found.tolist()


def test_each_difference_of_the_arguments_is_seen_after_many_equal_calls():
    f = td.jit(lambda x, n, y: x * n + y)
    x, y = td.tensor(np.ones(2, np.float32)), td.tensor(np.ones(2, np.float32))
    assert often(f, x, 2, y) == [3, 3]
    assert often(f, x, 3, y) == [4, 4]
    assert often(f, x, True, y) == [2, 2] and often(f, x, 1, y) == [2, 2]
    assert often(f, x, 2.5, y) == [3.5, 3.5] and often(f, x, 3.5, y) == [4.5, 4.5]
    assert often(f, x, 2, x) == [3, 3]
    assert often(f, td.tensor(np.ones(3, np.float32)), 2, y[0]) == [3, 3, 3]
    assert f(td.tensor(np.ones(2)), 2, y).dtype is td.float64
    assert len(f.programs()) == 8


def test_kinds_tell_apart_what_keys_tell_apart():
    ones, device = (np.ones(2, np.float32), td.jit(lambda x: x + 1)(td.tensor([1.0, 2.0])))
    leaves = [td.tensor(ones), device, td.tensor(np.ones(3, np.float32)), td.tensor(np.ones(2)), td.tensor([1, 2])]
    leaves += [ones, np.zeros(2, np.float32), np.ones(3, np.float32), np.ones(2), np.float32(1), np.float64(1)]
    leaves += [0, 1, 1.0, 0.0, 1j, True, False, None, "a", "b", b"a"]
    found = [tree.flatten(((leaf,), {})) for leaf in leaves]
    kinds, made = [kind_of(*f) for f in found], [keys.key_of(*f) for f in found]
    for kind, key, leaf in zip(kinds, made, leaves, strict=True):  # kinds also tell tensors from arrays
        same = [kind.inputs((x,), {}) is not None for x in leaves]
        assert same == [k == key and type(x) is type(leaf) for k, x in zip(made, leaves, strict=True)]
    assert kind_of(*tree.flatten((([object()],), {}))) is None


def test_what_is_in_a_containers_place_is_seen():
    f = td.jit(lambda a: a[0] + a[1])
    x, y = td.tensor([1.0, 2.0]), td.tensor([3.0, 5.0])
    assert often(f, [x, y]) == [4, 7] and often(f, (x, y)) == [4, 7]
    assert often(f, {0: x, 1: y}) == [4, 7] and often(f, {1: x, 0: y}) == [4, 7]
    assert often(f, td.tensor([[1.0, 2.0], [3.0, 5.0]])) == [4, 7]
    assert len(f.programs()) == 5


def test_a_tensor_passed_twice_is_one_tensor_also_after_calls_with_two():
    def f(x, y):
        x += 1
        return x * y

    g = td.jit(f)
    one = lambda: td.tensor([1.0, 2.0])
    for _ in range(4):
        assert g(one(), one()).tolist() == [2, 6]
    x = one()
    assert g(x, x).tolist() == [4, 9] and x.tolist() == [2, 3]
    for _ in range(4):
        assert g(one(), one()).tolist() == [2, 6]


def test_values_around_the_function_are_looked_at_each_time():
    scale, options = 2, {"shift": 1, "kinds": "ab"}

    def f(x):
        return x * scale + options["shift"]

    g = td.jit(f)
    x = td.tensor([1.0])
    assert often(g, x) == [3]
    scale = 3
    assert often(g, x) == [4]
    options["shift"] = 5
    assert often(g, x) == [8]
    options["shift"] = 5.0
    assert often(g, x) == [8]
    scale = 2
    options["shift"] = 1
    assert often(g, x) == [3]
    assert len(g.programs()) == 4


def test_flags_are_looked_at_each_time():
    f = td.jit(lambda a, b: a @ b)
    a = td.tensor(np.ones((4, 4), np.float32))
    b = td.tensor(np.ones((4, 4), np.float32))
    often(f, a, b)
    with override(precision="medium"):
        often(f, a, b)
    with override(deterministic=True):
        often(f, a, b)
    often(f, a, b)
    with td.precision("high"):
        often(f, a, b)
    assert len(f.programs()) == 4


def test_nothing_is_left_of_programs_that_were_dropped():
    f = td.jit(lambda x: x + 1)
    x = td.tensor([1.0])
    often(f, x)
    f.clear()
    assert often(f, x) == [2] and f.cache_info()[:2] == (2, 1)
    with override(max_programs=1):
        often(f, td.tensor([1.0, 2.0]))
        assert often(f, x) == [2] and f.cache_info()[:2] == (4, 1)


def test_what_another_thread_trains_can_be_passed_all_the_time():
    w = td.Parameter(td.tensor(np.zeros(64, np.float32)))
    failed, over = [], threading.Event()

    @td.jit
    def step():
        w.assign(w + 1)

    spread = td.jit(lambda x: td.max(x) - td.min(x))

    def look():
        try:
            while not over.is_set():
                if spread(w).item() != 0:
                    failed.append("a mixture of two steps")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    [t.start() for t in threads]
    for _ in range(1500):
        step()
    over.set()
    [t.join() for t in threads]
    assert failed == [] and (w.numpy() == 1500).all()


def test_methods_find_the_programs_of_their_instance():
    class Scaled:
        def __init__(self, by):
            self.by = by

        @td.jit
        def run(self, x):
            return x * self.by

    a, b, x = Scaled(2), Scaled(3), td.tensor([1.0])
    for _ in range(4):
        assert a.run(x).tolist() == [2] and b.run(x).tolist() == [3]
    a.by = 5
    assert often(a.run, x) == [5] and often(b.run, x) == [3]
