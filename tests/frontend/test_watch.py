"""Plain values around a traced function: a compiled program is not used again when one of them has changed."""

import types

import numpy as np

import treadle as td
from treadle import ops

FACTOR = 2.0
TABLE = {"scale": [1.0, 2.0]}
SETTINGS = types.SimpleNamespace(scale=3.0, runs=0)


def helper(x):
    return ops.mul(x, FACTOR)


class Model:
    def __init__(self):
        self.scale, self.calls = 5.0, 0

    def run(self, x):
        return ops.mul(x, self.scale)


def check(function, change, before, after):
    f = td.jit(function)
    assert f(np.float32(1)).item() == before
    assert f(np.float32(1)).item() == before
    assert len(f.programs()) == 1
    change()
    assert f(np.float32(1)).item() == after
    assert len(f.programs()) == 2


def test_a_global_that_a_helper_reads(monkeypatch):
    check(lambda x: helper(x), lambda: monkeypatch.setitem(globals(), "FACTOR", 7.0), 2, 7)


def test_an_entry_of_a_container(monkeypatch):
    check(lambda x: ops.mul(x, TABLE["scale"][0]), lambda: monkeypatch.setitem(TABLE, "scale", [9.0]), 1, 9)


def test_an_attribute_of_an_object(monkeypatch):
    check(lambda x: ops.mul(x, SETTINGS.scale), lambda: monkeypatch.setattr(SETTINGS, "scale", 4.0), 3, 4)


def test_an_attribute_of_the_method_s_object():
    model = Model()
    check(model.run, lambda: setattr(model, "scale", 6.0), 5, 6)


def test_what_the_code_does_not_name_does_not_matter(monkeypatch):
    model = Model()
    f, g = td.jit(model.run), td.jit(lambda x: ops.mul(x, SETTINGS.scale))
    for _ in range(3):
        f(np.float32(1))
        g(np.float32(1))
        model.calls += 1
        monkeypatch.setattr(SETTINGS, "runs", SETTINGS.runs + 1)
    assert len(f.programs()) == len(g.programs()) == 1


def test_closures_and_nested_functions():
    scale, offsets = 2.0, {1.0}

    def change():
        nonlocal scale, offsets
        scale, offsets = 3.0, {4.0}

    check(lambda x: (lambda y: ops.add(ops.mul(y, scale), sum(offsets)))(x), change, 3, 7)


def test_nan_is_itself(monkeypatch):
    nan = float("nan")
    f = td.jit(lambda x: ops.mul(x, nan))
    f(np.float32(1))
    f(np.float32(1))
    assert len(f.programs()) == 1


def test_lists_in_cells():
    class Cell(td.Cell):
        def __init__(self):
            self.values = [1.0, 2.0]

        def forward(self, x):
            return ops.mul(x, sum(self.values))

    cell = Cell()
    f = td.jit(lambda x: cell(x))
    assert f(np.float32(1)).item() == 3
    cell.values = [4.0]
    assert f(np.float32(1)).item() == 4
    cell.values.append(2.0)
    assert f(np.float32(1)).item() == 6


WEIGHT = td.tensor([1.0])


class Scaler:
    factor = 2.0

    def __call__(self, x):
        return ops.mul(x, self.factor)


SCALER = Scaler()


def test_a_rebound_global_tensor(monkeypatch):
    check(
        lambda x: ops.reduce_sum(ops.mul(WEIGHT, x), axes=(0,)),
        lambda: monkeypatch.setitem(globals(), "WEIGHT", td.tensor([5.0])),
        1,
        5,
    )


def test_a_list_of_tensors_and_nested_settings():
    weights, config = [td.tensor(1.0)], types.SimpleNamespace(sub=types.SimpleNamespace(scale=1.0))

    def change():
        weights[0] = td.tensor(3.0)
        config.sub.scale = 2.0

    check(lambda x: ops.mul(ops.mul(weights[0], x), config.sub.scale), change, 1, 6)


def test_default_arguments_and_small_arrays():
    def f(x, scale=2.0):
        return ops.mul(ops.mul(x, scale), table[0])

    table = np.ones(1, np.float32)

    def change():
        f.__defaults__ = (3.0,)
        table[0] = 2.0

    check(f, change, 2, 6)


def test_classes_and_callable_objects(monkeypatch):
    check(lambda x: ops.mul(x, SCALER.factor), lambda: monkeypatch.setattr(Scaler, "factor", 4.0), 2, 4)


def test_minus_zero_is_not_zero():
    zero = 0.0

    def change():
        nonlocal zero
        zero = -0.0

    f = td.jit(lambda x: ops.mul(x, zero))
    assert not np.signbit(f(np.float32(1)).numpy())
    change()
    assert np.signbit(f(np.float32(1)).numpy())
    count = td.tensor(np.int32(1))
    assert not np.signbit(ops.mul(count, 0.0).numpy())
    assert np.signbit(ops.mul(count, -0.0).numpy())


def test_a_bound_method_of_an_object_with_slots():
    class Slots:
        __slots__ = ()

        def run(self, x):
            return ops.mul(x, 2.0)

    assert td.jit(Slots().run)(np.float32(1)).item() == 2
