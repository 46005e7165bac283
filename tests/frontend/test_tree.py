"""Nested containers: flatten, unflatten, paths, registration, errors."""

import dataclasses
from collections import OrderedDict, namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import UserError, tree
from treadle.frontend.tree import reader

Point = namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Pair:
    left: object
    right: object


TREES = st.recursive(
    st.integers() | st.text() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Point, inner, inner)
    ),
)


@given(TREES)
def test_unflatten_is_the_inverse_of_flatten(value):
    leaves, shape = tree.flatten(value)
    assert shape.unflatten(leaves) == value
    assert shape.num_leaves == len(leaves) == len(shape.paths())
    assert tree.flatten(value)[1] == shape
    assert hash(tree.flatten(value)[1]) == hash(shape)


@given(TREES, TREES)
def test_a_reader_gives_the_leaves_of_trees_of_its_shape_alone(value, other):
    leaves, shape = tree.flatten(value)
    read = reader(shape)
    assert read(value) == leaves
    found = read(other)
    if tree.flatten(other)[1] == shape:
        assert found == tree.flatten(other)[0]
    else:
        assert found is None or list(map(type, found)) != list(map(type, leaves))


def test_a_reader_counts_the_parts_of_registered_classes():
    class Bag:
        def __init__(self, *parts):
            self.parts = parts

    tree.register(Bag, lambda bag: ((), bag.parts), lambda keys, parts: Bag(*parts))
    _, shape = tree.flatten((Bag(1), Bag(2, 3)))
    assert reader(shape)((Bag(4), Bag(5, 6))) == [4, 5, 6]
    assert reader(shape)((Bag(4, 5), Bag(6))) is None


@given(TREES)
def test_tree_map_keeps_the_shape(value):
    doubled = tree.tree_map(lambda x: (x,), value)
    assert tree.tree_map(lambda x, y: y, value, value) == value
    assert tree.flatten(doubled)[1].num_leaves == tree.flatten(value)[1].num_leaves


def test_order_of_dicts_and_ordered_dicts_is_theirs():
    leaves, shape = tree.flatten(OrderedDict(b=1, a=2))
    assert leaves == [1, 2]
    assert isinstance(shape.unflatten([3, 4]), OrderedDict)


def test_paths_tell_how_to_reach_a_leaf():
    _, shape = tree.flatten(({"w": [1, Pair(2, 3)]},))
    assert shape.paths("args") == ["args[0]['w'][0]", "args[0]['w'][1].left", "args[0]['w'][1].right"]


def test_own_classes_can_be_registered():
    class Box:
        def __init__(self, inside):
            self.inside = inside

    box = Box([1, 2])
    assert tree.flatten(box)[0] == [box]
    tree.register(Box, lambda b: (("inside",), [b.inside]), lambda keys, children: Box(*children))
    leaves, shape = tree.flatten(Box([1, 2]))
    assert leaves == [1, 2]
    assert shape.unflatten([5, 6]).inside == [5, 6]


def test_wrong_numbers_of_leaves_and_different_trees_are_refused():
    _, shape = tree.flatten([1, 2])
    for leaves in ([1], [1, 2, 3]):
        with pytest.raises(UserError, match="E0210"):
            shape.unflatten(leaves)
    with pytest.raises(UserError, match="E0211"):
        tree.tree_map(lambda a, b: a, [1], (1,))
