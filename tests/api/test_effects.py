"""What a compiled function does beside its result and changing tensors is refused: later calls would not do it."""

import collections
import types

import numpy as np
import pytest

import treadle as td
from treadle import Tensor, UserError, nn

ONES = np.ones(3, np.float32)


class Box:
    shared = None

    def __init__(self):
        self.held = None

    @property
    def anything(self):
        return self.held


def into_list(x, box):
    box.append(x * 2)


def into_dict(x, box):
    box["a"] = {"inside": [x * 2]}


def into_set(x, box):
    box.add(x * 2)


def into_attribute(x, box):
    box.held = x * 2


def into_class(x, box):
    box.shared = (x * 2,)


def into_cell(x, box):
    box.cache["k"] = x * 2


class Layer(nn.Cell):
    def __init__(self):
        self.cache = {}

    def forward(self, x):
        return x


WAYS = [
    (into_list, list, "a list"),
    (into_list, collections.deque, "a deque"),
    (into_dict, dict, "a list"),
    (into_set, set, "a set"),
    (into_attribute, Box, "an attribute of a Box|a Box"),
    (into_attribute, types.SimpleNamespace, "an attribute of a SimpleNamespace|a SimpleNamespace"),
    (into_class, lambda: Box, "a tuple"),
    (into_cell, Layer, "a dict"),
]


@pytest.mark.parametrize(("way", "make", "place"), WAYS, ids=lambda w: getattr(w, "__name__", str(w)))
def test_a_tensor_left_in_something_outside_is_refused(way, make, place):
    box = make()

    @td.jit
    def f(x):
        way(x, box)
        return x + 1

    with pytest.raises(UserError, match=f"E0217.*leaves a tensor behind in ({place})") as caught:
        f(ONES)
    assert "x * 2" in caught.value.where.source_line()
    Box.shared = None


def test_variables_of_outer_functions_and_globals_are_refused():
    last = None

    def nonlocal_(x):
        nonlocal last
        last = x * 2
        return x

    def global_(x):
        global LAST
        LAST = x * 2
        return x

    for function, place in ((nonlocal_, "a variable of an outer function"), (global_, "a global variable")):
        with pytest.raises(UserError, match=f"E0217.*{place}"):
            td.jit(function)(ONES)
    with pytest.raises(UserError, match="E0202"):
        last + 1
    globals().pop("LAST")


def test_a_returned_closure_over_a_traced_tensor_is_refused():
    with pytest.raises(UserError, match="E0217"):
        td.jit(lambda x: td.vjp(lambda y: td.sin(y) * y, x)[1])(ONES)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda d: d["list"].append(d["x"] * 2), r"argument 0\['list'\]"),
        (lambda d: d.update(y=d["x"] * 2), r"argument 0\['y'\]"),
        (lambda d: d.pop("x"), "argument 0"),
        (lambda d: d.update(x=d["x"] * 2), r"argument 0\['x'\]"),
        (lambda d: d["list"].reverse(), r"argument 0\['list'\]\[0\]"),
    ],
)
def test_containers_among_the_arguments_keep_what_they_hold(change, path):
    data = {"x": Tensor(ONES), "list": [1.0, 2.0]}

    @td.jit
    def f(d):
        x = d["x"]
        change(d)
        return x

    with pytest.raises(UserError, match=f"E0216.*{path}"):
        f(data)
    assert list(data) == ["x", "list"]


def test_what_stays_inside_is_allowed():
    memo = {}

    @td.jit
    def f(x, rest):
        mine, own = [], dict(rest)
        for i in range(3):
            mine.append(x * i)
            own[i] = mine
        loop = {"own": own}
        loop["loop"] = loop  # a cycle: gone only when it is collected
        memo["calls"] = memo.get("calls", 0) + 1
        rest["w"].assign(mine[2])
        return own, types.MappingProxyType({"n": 1})

    w = Tensor(ONES)
    found = f(ONES, {"w": w})
    assert found[0][2][2].tolist() == w.tolist() == [2, 2, 2]


def test_changing_a_numpy_argument_is_refused_and_a_tensor_changes():
    def f(x):
        x += 1
        return x * 2

    x = np.ones(3, np.float32)
    with pytest.raises(UserError, match="E0227") as caught:
        td.jit(f)(x)
    assert "x += 1" in caught.value.where.source_line()
    with pytest.raises(UserError, match="E0227"):
        td.checkpoint(f)(x)
    compiled = td.jit(f)
    t = Tensor(x)
    assert compiled(t).tolist() == [4, 4, 4]
    assert t.tolist() == [2, 2, 2]
    with pytest.raises(UserError, match="E0227"):
        compiled(x)
    assert x.tolist() == [1, 1, 1]
    assert compiled(np.float32(1)).item() == 4  # a scalar cannot be changed: the name gets another one


def test_hooks_that_keep_activations_are_refused_in_graph_mode():
    kept = []
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    run = td.jit(lambda x: kept.append(net(x)) or kept[-1].sum())
    with pytest.raises(UserError, match="E0217"):
        run(ONES)
