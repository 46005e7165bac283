"""Branches and loops as ONNX's If, Loop and Scan: the same results by ONNX's own reference implementation."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import treadle as td
from treadle.api import _apply
from treadle.export.onnx import to_onnx
from treadle.frontend import tree
from treadle.ir.node import Module
from treadle.ir.walk import all_nodes


def exported(function, *arrays):
    """The results by the exported model, and the model's operators, those of inner graphs included."""
    traced = _apply.trace(function, arrays)  # constants that Python made while tracing are inputs too
    module = Module.of(traced.fn, traced.fns)
    model = to_onnx(module)
    feeds = {f"x{i}": np.asarray(a) for i, a in enumerate([*arrays, *[t.numpy() for t in traced.captured]])}
    return ReferenceEvaluator(model).run(None, feeds), list(operators(model.graph)), module


def operators(graph):
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from operators(attribute.g)


def compare(function, *arrays):
    found, names, module = exported(function, *arrays)
    wanted = [t.numpy() for t in tree.flatten(function(*map(td.Tensor, arrays)))[0]]
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return names, module


X = np.array([0.5, -1.0, 2.0], np.float32)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_branch_sees_names_and_constants_outside(sign):
    def f(x):
        y = x * 3.0
        return td.cond(td.sum(x) > 0, lambda: (y + 3.0, td.zeros(2)), lambda: (y * y, td.ones(2) * td.sum(x)))

    names, _ = compare(f, X * np.float32(sign))
    assert names.count("If") == 1


@pytest.mark.parametrize("start", [0, 7])
def test_a_loop_that_may_not_run(start):
    def f(x):
        return td.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x + 1.0), (start, x))

    names, _ = compare(f, X)
    assert names.count("Loop") == 1


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_scan(reverse, length):
    def f(x, rows):
        return td.scan(lambda h, row: (h * 0.5 + row * x, (h, row - h)), x, rows, reverse=reverse)

    names, _ = compare(f, X, np.arange(3 * length, dtype=np.float32).reshape(length, 3))
    assert names.count("Scan") == (length > 0)


def test_scan_without_rows():
    names, _ = compare(lambda x: td.scan(lambda h, _: (h * 2.0, h), x, length=3), X)
    assert names.count("Scan") == 1


def test_loops_and_branches_inside_each_other():
    def f(x, rows):
        def outer(c):
            def inner(h, row):
                return td.cond(td.sum(row) > 2.0, lambda: (h + row * c[0], h), lambda: (h - x, row))

            h, ys = td.scan(inner, c[0], rows)
            return h * 0.1, c[1] + 1, c[2] + td.sum(ys)

        return td.while_loop(lambda c: c[1] < 3, outer, (x, 0, 0.0))

    names, module = compare(f, X, np.arange(6, dtype=np.float32).reshape(2, 3))
    assert {"Loop", "Scan", "If"} <= set(names)
    assert {"while", "scan", "if"} <= {n.op.name for n in all_nodes(module)}


def test_a_checkpointed_part_is_plain():
    names, _ = compare(lambda x: td.checkpoint(lambda y: td.sin(y) * y)(x), X)
    assert "Sin" in names
