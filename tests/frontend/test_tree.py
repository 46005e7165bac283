"""Nested containers: flatten, unflatten, paths, registration, errors."""

import dataclasses
from collections import OrderedDict, namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import UserError, tree

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
