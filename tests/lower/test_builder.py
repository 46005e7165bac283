"""What the builder gives the ops' rules: constants, conversions, reductions, attributes."""

import itertools

import numpy as np
import pytest
from tests.lower.support import lowered, run

from treadle import ops
from treadle.base import dtypes
from treadle.base.errors import InternalError, UserError
from treadle.ir import build
from treadle.ir.node import Fn, Module, Node
from treadle.ir.op import No, Op
from treadle.ir.types import Literal, f32, f64, i32, type_of
from treadle.lower.builder import HloBuilder
from treadle.runtime import pjrt


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (9,), (2, 5), (0, 2), (17,)])
def test_constants_of_every_type_arrive_bit_for_bit(dtype, shape):
    rng = np.random.default_rng(0)
    array = rng.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype.np)
    fn = build.trace(lambda: ops.constant(value=Literal(array)), [])
    (found,) = run(Module.of(fn))
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_constants_of_special_values():
    array = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e308])
    (found,) = run(Module.of(build.trace(lambda: ops.constant(value=Literal(array)), [])))
    assert found.tobytes() == array.tobytes()


def test_a_transposed_constant():
    array = np.arange(6.0).reshape(2, 3).T
    b = _builder()
    with b.context:
        assert "dense<[[0.000000e+00, 3.000000e+00]" in str(_in_module(b, lambda: b.constant(array)))


@pytest.mark.parametrize("value, dtype", [(1.5, dtypes.bfloat16), (float("inf"), dtypes.float16), (True, dtypes.bool_)])
def test_splats(value, dtype):
    fn = build.trace(lambda: ops.full(value=value, shape=(2, 3), dtype=dtype), [])
    (found,) = run(Module.of(fn))
    np.testing.assert_array_equal(found, np.full((2, 3), value, dtype.np))


@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_conversions_are_numpys(source):
    """From each type to every other one, in one program; complex ones to complex and bool only.

    Negative numbers have no unsigned form, so floats are not converted to unsigned integers.
    """
    values = [0, 1, 3, 100] if source.kind in "biu" else [0.0, -0.0, 1.75, -3.5, 100.0]
    if source.kind == "u" or source.kind == "i":
        values.append(127)
    array = np.array(values).astype(source.np)
    targets = [d for d in dtypes.ALL if source.kind != "c" or d.kind in "cb"]
    targets = [d for d in targets if not (d.kind == "u" and source.is_float)]
    fn = build.trace(lambda x: [ops.cast(x, dtype=d) for d in targets], [type_of(array)])
    for target, found in zip(targets, run(Module.of(fn), array), strict=True):
        wanted = array != 0 if target.kind == "b" else array.astype(target.np)
        np.testing.assert_array_equal(found, wanted, err_msg=target.name)


def test_nan_is_true():
    fn = build.trace(lambda x: ops.cast(x, dtype=dtypes.bool_), [f32[3]])
    (found,) = run(Module.of(fn), np.array([np.nan, 0.0, -0.0], np.float32))
    assert found.tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_narrow_sums_are_kept_in_float32(dtype):
    """4096 ones and a half: added up in 16 bits they would stick at 256 or 2048."""
    array = np.ones(4096).astype(dtype.np)
    fn = build.trace(lambda x: ops.reduce_sum(x, axes=(0,)), [f32[4096].with_dtype(dtype)])
    assert float(run(Module.of(fn), array)[0]) == 4096
    assert "f32" in lowered(Module.of(fn))  # not every back end widens sums by itself
    product = build.trace(lambda x: ops.matmul(x, x), [f32[1, 1].with_dtype(dtype)])
    assert "f32" in lowered(Module.of(product))
    row = build.trace(lambda x, y: x @ y, [f32[1, 4096].with_dtype(dtype), f32[4096, 1].with_dtype(dtype)])
    assert float(run(Module.of(row), array.reshape(1, -1), array.reshape(-1, 1))[0][0, 0]) == 4096


# --- attributes -------------------------------------------------------------------------------------------------------


def _builder() -> HloBuilder:
    return HloBuilder(pjrt.mlir_context(), {})


def _in_module(b, make):
    """The module in which `make` builds something."""
    module = b.ir.Module.create(b.loc)
    b.ip = b.ir.InsertionPoint(module.body)
    make()
    return module


@pytest.mark.parametrize(
    "value, text",
    [
        (True, "true"),
        (3, "3 : i64"),
        (0.5, "5.000000e-01 : f32"),
        ((), "array<i64>"),
        ((1, -2), "array<i64: 1, -2>"),
        ((True, False), "array<i1: true, false>"),
        (((1, 2), (3, 4)), "dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>"),
        ("#stablehlo<comparison_direction LT>", "#stablehlo<comparison_direction LT>"),
        (("#stablehlo<precision HIGHEST>",), "[#stablehlo<precision HIGHEST>]"),
    ],
)
def test_attributes(value, text):
    b = _builder()
    with b.context:
        assert str(b.attribute(value)) == text
        assert b.attribute(value) == b.attribute(value)


def test_attributes_that_are_equal_in_python_but_not_here():
    b = _builder()
    with b.context:
        assert [str(b.attribute(v)) for v in (1, True, 0.0, -0.0)] == [
            "1 : i64", "true", "0.000000e+00 : f32", "-0.000000e+00 : f32",
        ]  # fmt: skip
        assert str(b.attribute((1, 0))) != str(b.attribute((True, False)))


def test_what_cannot_be_an_attribute():
    b = _builder()
    with b.context, pytest.raises(TypeError, match="cannot be an MLIR attribute"):
        b.attribute([1, 2])


def test_every_type_has_an_mlir_type():
    b = _builder()
    with b.context:
        texts = [str(b.type(f32[2].with_dtype(d))) for d in dtypes.ALL]
    assert len(set(texts)) == len(dtypes.ALL)
    assert texts[0] == "tensor<2xi1>"
    assert texts[-1] == "tensor<2xcomplex<f64>>"


# --- rules that are wrong ---------------------------------------------------------------------------------------------


def _broken(hlo, types=(f64[3],), out=f64[3]):
    op = Op("broken", "For tests.", ("x",), {"type": lambda *t: out, "hlo": hlo}, "here")
    params = build.trace(lambda *xs: xs, types).params
    node = Node(op, params, {}, (out,), build.trace(lambda x: -x, [f64[2]]).nodes[0].where)
    return Module.of(Fn("main", params, (node,), node.outputs))


@pytest.mark.parametrize(
    "hlo, why",
    [
        (lambda b, x: 1 / 0, "ZeroDivisionError"),
        (lambda b, x: b.op("tanh", x, types=f32[3]), "gives"),
        (lambda b, x: (x, x), "gives"),
        (lambda b, x: b.op("tanh", x, x), "expected a single operand|broken"),
        ("add", "broken|expected 2 operands"),
    ],
)
def test_faulty_rules_name_the_op_and_the_line(hlo, why):
    with pytest.raises(InternalError, match=why) as caught:
        lowered(_broken(hlo))
    assert "test_builder.py" in str(caught.value)


def test_an_op_that_cannot_be_compiled():
    with pytest.raises(UserError, match=r"E0412 broken cannot be compiled: it lives in Python"):
        lowered(_broken(No("it lives in Python")))


def test_user_errors_of_rules_stay_user_errors():
    def refuse(b, x):
        raise UserError("E0999", "not here", fix="elsewhere")

    with pytest.raises(UserError, match="E0999"):
        lowered(_broken(refuse))


def test_several_axes_and_kinds_of_reductions():
    b_kinds = {"add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min}
    x = np.random.default_rng(0).integers(1, 5, (2, 3, 4)).astype(np.int32)
    for (kind, wanted), axes in itertools.product(b_kinds.items(), [(0,), (1, 2), (0, 1, 2), ()]):
        init = {"add": 0, "multiply": 1, "maximum": -100, "minimum": 100}[kind]
        hlo = lambda b, x, kind=kind, axes=axes, init=init: b.reduce(kind, x, b.types[0], axes, init)
        out = wanted(x, axis=axes)
        module = _broken(hlo, (i32[2, 3, 4],), i32[out.shape])
        np.testing.assert_array_equal(run(module, x)[0], out)
