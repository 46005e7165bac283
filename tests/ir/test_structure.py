"""Building, equality, the verifier and walking."""

import pytest
from tests.ir.programs import recursive, square_sum, with_call, with_regions

from treadle import ops
from treadle.base.errors import InternalError, UserError
from treadle.ir import build, walk
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.parser import parse_module
from treadle.ir.printer import print_module
from treadle.ir.types import f32, f64, i32
from treadle.ir.verify import verify, verify_fn


def test_errors_name_the_op_and_the_line():
    with pytest.raises(UserError) as caught:
        build.trace(lambda x, y: x @ y, [f64[2, 3], f64[2, 3]])
    text = str(caught.value)
    assert text.startswith("E0114 matmul: inner sizes differ")
    assert "test_structure.py:" in text
    assert "x @ y" in text


def test_wrong_arguments():
    with pytest.raises(UserError, match="E0103 tanh"):
        build.trace(lambda x: ops.tanh(x, x), [f64[2]])
    with pytest.raises(UserError, match="E0103 tanh"):
        build.trace(lambda x: ops.tanh(x, axis=1), [f64[2]])
    with pytest.raises(UserError, match="E0102 tanh: argument 0 is 'x'"):
        build.trace(lambda: ops.tanh("x"), [])


def test_values_outside_a_function():
    fn = build.trace(lambda x: x, [f64[2]])
    with pytest.raises(UserError, match="E0201"):
        ops.tanh(fn.params[0])


def test_equality_is_structural():
    def two_lines(x):
        y = ops.tanh(x)
        return y * y

    a, b = build.trace(two_lines, [f64[3]]), build.trace(two_lines, [f64[3]])
    assert a == b
    assert a != build.trace(two_lines, [f32[3]])
    assert a != build.trace(lambda x: ops.tanh(x), [f64[3]], "two_lines")
    assert Module.of(a) == Module.of(b)
    assert Module.of(a) != Module.of(b, {"other": b})


def test_wiring_matters():
    a = build.trace(lambda x, y: x - y, [f64[3], f64[3]], "f")
    node = a.nodes[0]
    swapped = Node(node.op, node.inputs[::-1], node.attrs, (f64[3],), node.where)
    assert a != Fn("f", a.params, (swapped,), swapped.outputs)


def test_inline_keeps_positions_and_meaning():
    fn = build.trace(square_sum, [f64[3]])
    twice = build.trace(lambda x: build.inline(fn, [x])[0] + build.inline(fn, [x])[0], [f64[3]])
    assert [n.op.name for n in twice.nodes] == ["mul", "reduce_sum", "mul", "reduce_sum", "add"]
    assert twice.nodes[0].where == fn.nodes[0].where


@pytest.mark.parametrize("make", [with_call, with_regions])
def test_legal_modules_pass(make):
    module = make()
    assert verify(module) is module


def _fn(nodes, outputs, params=()):
    return Fn("f", tuple(params), tuple(nodes), tuple(outputs))


def test_use_before_definition():
    x = Value(f64[2])
    first = Node(ops.tanh, (x,), {}, (f64[2],))
    second = Node(ops.tanh, (first.outputs[0],), {}, (f64[2],))
    with pytest.raises(InternalError, match="not defined before it is used"):
        verify_fn(_fn([second, first], second.outputs, [x]))


def test_values_of_another_function():
    x, y = Value(f64[2]), Value(f64[2])
    node = Node(ops.tanh, (y,), {}, (f64[2],))
    with pytest.raises(InternalError, match="not defined"):
        verify_fn(_fn([node], node.outputs, [x]))
    with pytest.raises(InternalError, match="output"):
        verify_fn(_fn([], [y], [x]))


def test_wrong_types():
    x = Value(f64[2])
    node = Node(ops.tanh, (x,), {}, (f32[2],))
    with pytest.raises(InternalError, match="the type rule gives"):
        verify_fn(_fn([node], node.outputs, [x]))
    wrong = Node(ops.reduce_sum, (x,), {"axes": (1,)}, (f64[2],))
    with pytest.raises(InternalError, match="E0107"):
        verify_fn(_fn([wrong], wrong.outputs, [x]))


def test_double_definitions():
    x = Value(f64[2])
    node = Node(ops.tanh, (x,), {}, (f64[2],))
    with pytest.raises(InternalError, match="defined twice"):
        verify_fn(_fn([node, node], node.outputs, [x]))
    with pytest.raises(InternalError, match="there twice"):
        verify_fn(_fn([], [], [x, x]))


def test_calls_are_checked():
    module = with_call()
    square = build.trace(lambda x: x, [f64[4]], "square")
    with pytest.raises(InternalError, match="takes"):
        verify(Module.of(module.main, {"square": square}))
    with pytest.raises(InternalError, match="has no function 'square'"):
        verify(Module.of(module.main))
    wrong = build.trace(lambda x: ops.cast(x, dtype=f32[()].dtype), [f64[3]], "square")
    with pytest.raises(InternalError, match="returns"):
        verify(Module.of(module.main, {"square": wrong}))


def test_names_are_checked():
    fn = build.trace(square_sum, [f64[3]])
    with pytest.raises(InternalError, match="is in the module as"):
        verify(Module({"main": fn}))


def test_regions_see_only_their_parameters():
    outer = Value(f64[3])
    inner = Node(ops.tanh, (outer,), {}, (f64[3],))
    region = Fn("then", (Value(f64[3]),), (inner,), inner.outputs)
    pred = Node(ops.less, (outer, outer), {}, (ops.less.rules["type"](f64[3], f64[3]),))
    good = with_regions()
    node = good.main.nodes[-1]
    attrs = {**node.attrs, "then": region}
    bad = Node(node.op, node.inputs, attrs, (f64[3],), node.where)
    main = Fn("main", good.main.params, (*good.main.nodes[:-1], bad), bad.outputs)
    with pytest.raises(InternalError, match="not defined"):
        verify(Module.of(main))
    assert pred.outputs[0].shape == (3,)


def test_walking():
    module = with_regions()
    assert [f.name for f in walk.all_fns(module)] == ["main", "then", "orelse"]
    assert {n.op.name for n in walk.all_nodes(module)} >= {"if", "less", "mul", "neg"}
    assert walk.callees(with_call().main) == {"square"}
    assert walk.callees(recursive().fns["even"]) == {"odd"}
    fn = build.trace(lambda x: ops.reduce_sum(-x + x, axes=(0,)), [i32[3]])
    assert [n.op.name for n in walk.users(fn)[fn.params[0]]] == ["neg", "add"]


def test_needed_leaves_out_what_nobody_uses():
    def f(x):
        ops.tanh(x)
        return x * x

    fn = build.trace(f, [f64[2]])
    assert [n.op.name for n in fn.nodes if n in walk.needed(fn, fn.outputs)] == ["mul"]


def test_hashes_agree_with_equality():
    module = with_call()
    assert hash(module) == hash(parse_module(print_module(module, where=True)))
