"""Printing and parsing: every module comes back identical, every fault is named by line and column."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ir.programs import square_sum, with_call, with_regions

from treadle import ops
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.base.where import Where
from treadle.ir import build
from treadle.ir.node import Fn, Module, Node, attr_key
from treadle.ir.parser import parse_fn, parse_module
from treadle.ir.printer import print_attr, print_fn, print_module
from treadle.ir.types import Literal, TensorType, f64, type_of

TEXT = """fn square_sum(%a0: f64[3]) -> (f64[]) {
  %0 = mul %a0, %a0 : f64[3]
  %1 = reduce_sum %0 {axes=(0,)} : f64[]
  return %1
}"""


def test_the_text_of_a_function():
    fn = build.trace(square_sum, [f64[3]])
    assert str(fn) == TEXT
    assert str(parse_fn(TEXT)) == TEXT


@pytest.mark.parametrize("make", [with_call, with_regions, lambda: Module.of(build.trace(square_sum, [f64[3]]))])
@pytest.mark.parametrize("where", [True, False])
def test_modules_come_back(make, where):
    module = make()
    text = print_module(module, where)
    back = parse_module(text)
    assert print_module(back, where) == text
    if where:
        assert back == module
        assert [n.where for n in back.main.nodes] == [n.where for n in module.main.nodes]


def test_positions_and_scopes_are_written():
    text = print_module(with_call(), where=True)
    assert 'programs.py"' in text
    assert 'in "net/last"' in text


def test_names_do_not_depend_on_what_is_elsewhere():
    fn = build.trace(lambda x, y: (x, ops.tanh(y)), [f64[2], f64[2]], "f")
    assert "%0 = tanh %a1 : f64[2]\n  return %a0, %0" in str(fn)


def test_a_function_without_parameters_and_outputs():
    fn = Fn("empty", (), (), ())
    assert parse_fn(print_fn(fn)) == fn


def test_comments_and_space_are_ignored():
    assert str(parse_fn(TEXT.replace("return", "# a note\n\n   return"))) == TEXT


FAULTS = [
    ("fn f(%a0: f64[3]) -> (f64[3]) {\n  %0 = tanh %b : f64[3]\n  return %0\n}", 2, 13, "%b is not defined"),
    ("fn f(%a0: f64[3]) -> (f64[3]) {\n  %0 = tanh %a0 f64[3]\n  return %0\n}", 2, 17, "expected ':'"),
    ("fn f(%a0: f64[3]) -> (f64[3]) {\n  %0 = tanh %a0 : f64[3]\n  return %0\n", 4, 1, "end of text"),
    ("fn f(%a0: f64[3]) -> (f32[3]) {\n  return %a0\n}", 3, 2, "other types"),
    ("fn f(%a0: f64[3]) -> (f64[3]) {\n  %0, %1 = tanh %a0 : f64[3]\n  return %0\n}", 3, 3, "2 results but 1 types"),
    ("fn f(%a0: f64[3]) -> (f64[3]) {\n  %0 = tanh %a0 ; f64[3]", 2, 17, "unexpected ';'"),
    ("fn f(%a0: f99[3]) -> (f64[3]) {\n  return %a0\n}", 1, 11, "f99"),
    ("fn f(%a0: f64[3]) -> (f64[]) {\n  %0 = reduce_sum %a0 {axes=:} : f64[]\n  return %0\n}", 2, 29, "no attribute"),
    ("fn f() -> (f64[2]) {\n  %0 = constant {value=dense f64[2] [1.0]} : f64[2]\n  return %0\n}", 2, 42, "1 elements"),
    ("fn f(%a0: f64[3]) -> (f64[3]) {\n  %0 = thanh %a0 : f64[3]\n  return %0\n}", 2, 8, "thanh"),
]


@pytest.mark.parametrize("text, line, column, why", FAULTS)
def test_faults_are_named_by_line_and_column(text, line, column, why):
    with pytest.raises(UserError) as caught:
        parse_fn(text)
    assert caught.value.code == "E0192", caught.value
    assert why in caught.value.why
    assert f"line {line} column {column}:" in caught.value.why


def test_faults_in_a_module_count_lines_from_its_head():
    text = "treadle-ir 1\n\nfn main() -> () {\n  return %x\n}\n"
    with pytest.raises(UserError, match="line 4 column 10: %x is not defined"):
        parse_module(text)


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "begins with ''"),
        ("treadle-ir 2\nfn main() -> () {\n return\n}", "begins with 'treadle-ir 2'"),
        ("treadle-ir 1\nfn f() -> () {\n  return\n}", "no function main"),
        ("treadle-ir 1\n" + 2 * "fn main() -> () {\n  return\n}\n", "twice"),
    ],
)
def test_what_is_no_module(text, why):
    with pytest.raises(UserError, match="E0192") as caught:
        parse_module(text)
    assert why in caught.value.why


# --- attributes -------------------------------------------------------------------------------------------------------

types = st.builds(TensorType, st.sampled_from(dtypes.ALL), st.lists(st.integers(0, 3), max_size=3).map(tuple))


@st.composite
def literals(draw):
    type = draw(types)
    bits = draw(st.binary(min_size=type.bytes, max_size=type.bytes))
    if type.dtype.kind == "b":
        bits = bytes(b & 1 for b in bits)
    return Literal(np.frombuffer(bits, type.dtype.np).reshape(type.shape))


simple = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.sampled_from(dtypes.ALL),
    types,
    literals(),
)
attributes = st.recursive(simple, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@given(attributes)
@settings(max_examples=300, deadline=None)
def test_attributes_come_back(attr):
    node = Node(ops.stop_gradient, (), {"a": attr}, ())
    fn = Fn("f", (), (node,), ())
    text = print_fn(fn)
    back = parse_fn(text).nodes[0].attrs["a"]
    assert attr_key(back) == attr_key(attr), text


@given(st.text(min_size=1), st.integers(1, 10**6), st.text())
@settings(max_examples=100, deadline=None)
def test_positions_come_back(file, line, scope):
    node = Node(ops.stop_gradient, (), {}, (), Where(file, line, scope))
    fn = Fn("f", (), (node,), ())
    assert parse_fn(print_fn(fn, where=True)) == fn


def test_what_cannot_be_an_attribute():
    with pytest.raises(TypeError, match="list"):
        print_attr([1, 2])


def test_literals_are_equal_by_their_bits():
    assert Literal(np.array(0.0)) != Literal(np.array(-0.0))
    assert Literal(np.array(np.nan)) == Literal(np.array(np.nan))
    assert Literal(np.array([1, 2])) != Literal(np.array([[1, 2]]))
    assert Literal(np.float32(1)) != Literal(np.float64(1))
    assert type_of(Literal(np.zeros((2, 0))).array) == f64[2, 0]
