"""Tests that every op gets from its samples; nobody writes them. Each is run for each op.

1 the declaration is complete; 2 the type rule gives what the numbers are; 3 reference, interpreter, expansion, saved
variant and back end agree, forward and gradient; 4 gradients of order 1 and 2 against central differences; 5 forward
mode agrees with reverse mode; 6 the axes rule is true; 7 batching is a Python loop; 8 text round trips; 9 ONNX; 10 bad
samples.
Exceptions stand in this file with their reason.
"""

import warnings

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from tests.ops.support import (
    assert_batched,
    assert_close,
    assert_transposed,
    axes_of,
    cases,
    directional_error,
    execute,
    halves,
    joined,
    program,
    together,
)

from treadle.base.errors import UserError
from treadle.export.onnx import to_onnx
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.op import RULES
from treadle.ir.parser import parse_fn, parse_module
from treadle.ir.printer import print_fn, print_module
from treadle.ir.verify import verify, verify_fn
from treadle.lower.stablehlo import lower_module, to_text
from treadle.ops._axes import flops
from treadle.ops._declare import OPS, No, samples_of
from treadle.runtime import pjrt
from treadle.transforms.grad import vjp
from treadle.transforms.jvp import jvp

NAMES = sorted(OPS)
every_op = pytest.mark.parametrize("name", NAMES)


# --- 1 ----------------------------------------------------------------------------------------------------------------


@every_op
def test_declaration_is_complete(name):
    op = OPS[name]
    assert op.doc
    assert op.doc[0] == op.doc.lstrip()[0]
    assert op.doc.endswith(".")
    assert set(op.rules) <= set(RULES)
    for kind in ("type", "axes", "onnx", "samples"):
        assert kind in op.rules, f"{name} lacks {kind}"
    assert "expand" in op.rules or {"ref", "hlo"} <= set(op.rules)
    assert {"grad", "expand", "reverse"} & set(op.rules)
    reasons = [rule.reason for rule in op.rules.values() if isinstance(rule, No)]
    assert all(len(reason.split()) > 2 for reason in reasons), reasons
    if name not in NO_SAMPLES:
        sizes = [t.size for case in cases(name) for t in (*case.fn.in_types, *case.fn.out_types)]
        assert sizes, "no good sample"
        assert 0 in sizes or op.has_regions or name in NO_EMPTY, "no sample with an empty tensor"


NO_SAMPLES = {"call": "a sample is one node, and a call needs a second function; tests/ir and tests/lower test it"}
NO_EMPTY: dict[str, str] = {}


def test_the_number_of_ops_does_not_fall():
    assert len(OPS) >= 161


# --- 2 ----------------------------------------------------------------------------------------------------------------


@every_op
def test_the_type_rule_gives_the_type_of_the_numbers(name):
    for case in cases(name):
        verify_fn(case.fn)
        ref = case.op.rules.get("ref")
        if ref is None or case.op.has_regions:
            continue
        arrays = [np.array(a, order="F") for a in case.arrays]
        with np.errstate(all="ignore"):
            results = ref(*arrays, **case.node.attrs)
        results = results if isinstance(results, tuple) else (results,)
        assert len(results) == len(case.fn.outputs), case
        for result, type, other in zip(results, case.fn.out_types, case.results, strict=True):
            assert interp.type_of(np.asarray(result)) == type, case
            assert_close(result, other, f"{case}, operands in column order")


# --- 3 ----------------------------------------------------------------------------------------------------------------


@every_op
def test_the_expansion_is_the_reference(name):
    op = OPS[name]
    if not op.rules.get("expand"):
        return
    for case in cases(name):
        body = interp.expansion(op, case.types, case.node.attrs)
        assert body.out_types == case.fn.out_types, case
        for found, wanted in zip(interp.run(body, *case.arrays), case.results, strict=True):
            assert_close(found, wanted, f"expansion of {case}", case.sample.tol, factor=3)


@every_op
def test_the_back_end_agrees(name):
    """All samples, their saved variants and their gradients in one program."""
    modules, arrays, wanted = [], [], []
    for case in cases(name):
        modules.append(case.module)
        arrays += case.sample.arrays
        wanted += [(r, str(case), case.sample.tol, 1.0) for r in case.results]
        if "saved" in case.op.rules:
            saved = _saved_outputs(case)
            modules.append(saved)
            arrays += case.arrays
            for found, plain in zip(interp.run(saved, *case.arrays), case.results, strict=True):
                assert_close(found, plain, f"saved variant of {case}", case.sample.tol, factor=3)
            wanted += [(r, f"saved variant of {case}", case.sample.tol, 1.0) for r in case.results]
        if case.gradient is not None:
            module, values = case.gradient
            modules.append(module)
            arrays += values
            wanted += [(r, f"gradient of {case}", case.sample.tol, 5.0) for r in interp.run(module, *values)]
    found = execute(together(modules), arrays, name)
    for result, (value, what, tol, factor) in zip(found, wanted, strict=True):
        assert_close(result, value, f"back end, {what}", tol, factor)


def _saved_outputs(case):
    def run(*values):
        outputs, _ = case.op.rules["saved"](*values, **case.node.attrs)
        return outputs

    return Module.of(build.trace(run, case.types, "saved"))


# --- 4 ----------------------------------------------------------------------------------------------------------------


@every_op
def test_gradients_are_those_of_central_differences(name):
    """In float64, along one random direction; the second order is the gradient of the gradient function."""
    for case in cases(name):
        if case.gradient is None:
            continue
        module, arrays = case.gradient
        verify(module)
        inexact = [t for t in case.fn.in_types if t.dtype.is_inexact]
        assert module.main.out_types == tuple(inexact), case
        if all(t.dtype.name in ("float64", "complex128") for t in module.main.in_types if t.dtype.is_inexact):
            rng = np.random.default_rng(7)
            error = directional_error(case.module, case.sample.arrays, rng)
            assert error < max(1e-6, case.sample.tol), f"gradient of {case}: {error}"
            error = directional_error(module, arrays, rng)
            assert error < max(1e-6, case.sample.tol), f"second gradient of {case}: {error}"
        else:
            interp.run(module, *arrays)


@every_op
def test_what_has_no_gradient_says_so(name):
    if not isinstance(OPS[name].rules.get("grad"), No):
        return
    for case in cases(name):
        outputs = [t for t in case.fn.out_types if t.dtype.is_inexact]
        if outputs and any(t.dtype.is_inexact for t in case.fn.in_types):
            with pytest.raises(UserError, match="E0303"):
                vjp(case.fn)


# --- 5 ----------------------------------------------------------------------------------------------------------------


@every_op
def test_forward_mode_is_reverse_mode_transposed(name):
    """<ct, jvp(t)> = <vjp(ct), t>, for each sample that has a gradient; for one of them in float64 also of the
    gradient itself."""
    higher = 0
    for case in cases(name):
        if case.gradient is None:
            continue
        assert_transposed(case.module, case.sample.arrays, str(case), case.sample.tol)
        module, arrays = case.gradient
        if not higher and {t.dtype.name for t in case.fn.in_types if t.dtype.is_inexact} == {"float64"}:
            assert_transposed(module, arrays, f"gradient of {case}", case.sample.tol)
            higher += 1


@every_op
def test_what_has_no_derivative_says_so_forwards(name):
    if not isinstance(OPS[name].rules.get("grad"), No):
        return
    for case in cases(name):
        wrt = [i for i, t in enumerate(case.fn.in_types) if t.dtype.is_inexact]
        if wrt and any(t.dtype.is_inexact for t in case.fn.out_types):
            with pytest.raises(UserError, match="E0303"):
                jvp(case.fn, wrt)


# --- 6 ----------------------------------------------------------------------------------------------------------------


@every_op
def test_the_axes_rule_is_true(name):
    """Halves along each axis, joined or added up, are the whole."""
    for case in cases(name):
        axes = axes_of(case)
        for axis in axes.splittable() if axes is not None else ():
            parts = halves(case, axes, axis)
            for i, (names, whole) in enumerate(zip(axes.outs, case.results, strict=True)):
                result = joined([p[i] for p in parts], names, axis)
                assert_close(result, whole, f"{case} split along {axis}", case.sample.tol, factor=3)


@every_op
def test_flops_from_the_axes_are_xlas(name):
    """An op that sums products over a shared axis does 2 operations per point of its axes, as XLA counts them."""
    for case in cases(name):
        axes = axes_of(case)
        types = {*case.fn.in_types[:2], *case.fn.out_types}
        if axes is None or not axes.contracted() or {t.dtype.name for t in types} - {"float32", "float64"}:
            continue
        if axes.whole or len(case.fn.nodes) > 1 or not flops(case.module):
            continue
        assert program(case.module, name).cost_analysis()["flops"] == flops(case.module), case
        break
    else:
        assert name != "matmul"


# --- 7 ----------------------------------------------------------------------------------------------------------------


@every_op
def test_batching_is_a_python_loop(name):
    """Three lanes; the operands that differ between lanes are all, then each one alone."""
    for case in cases(name):
        n = len(case.types)
        choices = {tuple([True] * n), *[tuple([j == i for j in range(n)]) for i in range(n)]} if n else set()
        for flags in sorted(choices):
            assert_batched(case, flags)


# --- 8 ----------------------------------------------------------------------------------------------------------------


CALLS_PYTHON = ("host_call", "host_function")  # a function belongs to its process


@every_op
def test_text_round_trips(name):
    for case in cases(name):
        text = print_fn(case.fn, where=True)
        if name in CALLS_PYTHON:
            with pytest.raises(UserError, match=r"E0192.*a Python function"):
                parse_fn(text)
            continue
        assert parse_fn(text) == case.fn, text
        assert case.fn.nodes[-1].where.file == __file__.replace("test_generated", "support")
        if case.gradient is not None:
            module, _ = case.gradient
            text = print_module(module, where=True)
            assert parse_module(text) == module, text


@every_op
def test_the_stablehlo_text_is_valid(name):
    module = together([case.module for case in cases(name)])
    lowered = lower_module(module, pjrt.mlir_context(), name=name)
    again = pjrt.parse(to_text(lowered))
    assert pjrt.main_signature(again) == pjrt.main_signature(lowered)


# --- 9 ----------------------------------------------------------------------------------------------------------------


@every_op
def test_onnx_gives_the_same_numbers(name):
    """By ONNX's own reference implementation; ONNX operators take no complex numbers."""
    rule = OPS[name].rule("onnx")
    if isinstance(rule, No):
        pytest.skip(f"{name} has no ONNX form: {rule.reason}")
    left_out, _ = ONNX_EXCEPTIONS.get(name, (lambda case: False, ""))
    done = 0
    for case in cases(name):
        if any(t.dtype.kind == "c" for t in (*case.fn.in_types, *case.fn.out_types)) or left_out(case):
            continue
        try:
            model = to_onnx(case.module)
        except UserError:  # of this element type; the assertion below wants another that works
            continue
        feeds = {f"x{i}": a for i, a in enumerate(case.sample.arrays)}
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            found = ReferenceEvaluator(model).run(None, feeds)
        for result, value in zip(found, case.results, strict=True):
            assert_close(result, value, f"ONNX, {case}", max(case.sample.tol, ONNX_TOLERANCE), factor=3)
        done += 1
    assert done, "no sample could be exported"


ONNX_TOLERANCE = 1e-6  # attributes of ONNX operators are float32, and its erf is an approximation
ONNX_EXCEPTIONS = {
    "pow": (lambda case: case.types[0].dtype.is_integer, "onnx runs it by NumPy, which refuses negative powers"),
    "max_pool": (lambda case: np.isnan(case.arrays[0]).any(), "ONNX says nothing about NaN in a maximum"),
    "cast": (
        lambda case: case.fn.out_types[0].dtype.is_integer and not np.all(np.abs(case.arrays[0]) < 128),
        "ONNX says nothing about numbers outside the range of the integers",
    ),
    "conv_input_grad": (lambda case: case.node.attrs["groups"] > 1, "onnx's ConvTranspose fails on grouped kernels"),
}


def test_ops_without_onnx(golden):
    """The list may only get shorter."""
    golden("".join(f"{name}: {OPS[name].rule('onnx').reason}\n" for name in NAMES if not OPS[name].rule("onnx")))


# --- 10 --------------------------------------------------------------------------------------------------------------


@every_op
def test_bad_samples_raise_their_code(name):
    op = OPS[name]
    for sample in samples_of(op):
        if sample.bad:
            with pytest.raises(UserError) as caught:
                build.trace(lambda *values: op(*values, **sample.attrs), sample.types, op.name)  # noqa: B023
            error = caught.value
            assert error.code == sample.bad, f"{name}{sample.types}{sample.attrs}: {error}"
            assert error.why.startswith(f"{name}: "), error
            assert error.where.file == __file__, error
            assert "lambda *values" in error.where.source_line(), error
            assert error.fix, error
