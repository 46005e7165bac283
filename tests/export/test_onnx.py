"""ONNX models: names, calls and expansions in place, constants kept once, refusals. tests/ops compares the numbers."""

import sys

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from tests.ir.programs import with_call

from treadle import ops
from treadle.base import where
from treadle.base.errors import InternalError, UserError
from treadle.export.onnx import OPSET, to_onnx
from treadle.ir import build, interp
from treadle.ir.node import Fn, Module, Node
from treadle.ir.op import Op
from treadle.ir.types import bf16, c64, f32, f64


def test_a_model():
    def net(x, w, b):
        with where.scope("fc1"):
            return ops.relu(x @ w + b)

    module = Module.of(build.trace(net, [f32[2, 3], f32[3, 4], f32[4]]))
    model = to_onnx(module, "net")
    assert [i.name for i in model.graph.input] == ["x0", "x1", "x2"]
    assert [o.name for o in model.graph.output] == ["y0"]
    assert model.graph.name == "net"
    assert model.opset_import[0].version == OPSET
    assert model.graph.node[0].name.startswith("fc1/matmul")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype(np.float32) for t in module.main.in_types]
    (found,) = ReferenceEvaluator(model).run(None, {f"x{i}": a for i, a in enumerate(arrays)})
    np.testing.assert_allclose(found, interp.run(module, *arrays)[0], rtol=1e-6)


def test_no_path_of_this_computer_is_in_the_model():
    module = Module.of(build.trace(lambda x: ops.tanh(x), [f32[3]]))
    assert __file__.encode() not in to_onnx(module).SerializeToString()


def test_calls_are_inlined():
    module = with_call()
    x = np.array([1.0, -2.0, 0.5])
    found = ReferenceEvaluator(to_onnx(module)).run(None, {"x0": x})
    for a, b in zip(found, interp.run(module, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_outputs_may_be_inputs_and_repeat():
    model = to_onnx(Module.of(build.trace(lambda x, y: (y, y, x), [f64[2], f64[2]])))
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    found = ReferenceEvaluator(model).run(None, {"x0": a, "x1": b})
    np.testing.assert_array_equal(found, [b, b, a])


def test_equal_constants_are_kept_once():
    def f(x):
        return ops.reduce_sum(x, axes=(0,)), ops.reduce_sum(-x, axes=(0,))

    model = to_onnx(Module.of(build.trace(f, [f64[2, 2]])))
    assert len(model.graph.initializer) == 1


def test_ops_without_an_onnx_form():
    with pytest.raises(UserError, match="E0610 real has no ONNX form") as caught:
        to_onnx(Module.of(build.trace(lambda x: ops.real(x), [c64[2]])))
    assert "test_onnx.py" in str(caught.value)


def test_element_types_that_onnx_does_not_take():
    with pytest.raises(UserError, match=r"E0612.*bfloat16"):
        to_onnx(Module.of(build.trace(lambda x: ops.sin(x), [bf16[2]])))


def test_a_rule_that_forgets_attributes_is_a_fault():
    op = Op("careless", "For tests.", ("x",), {"type": lambda x, *, k: x, "onnx": "Relu"}, "here")
    params = build.trace(lambda x: x, [f64[2]]).params
    node = Node(op, params, {"k": 1}, (f64[2],))
    with pytest.raises(InternalError, match="says nothing of k"):
        to_onnx(Module.of(Fn("main", params, (node,), node.outputs)))


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match="E0611"):
        to_onnx(with_call())
