"""Known operators written in te: values and vector-Jacobian products against the framework's own ops and against
central differences, in float64.
"""

import numpy as np
import pytest
from tests.te.known import KNOWN, drawn

import treadle as td
from treadle import te


def built(name):
    """te placeholders, output, the framework's function and operands of one entry."""
    write, own, specs = KNOWN[name]
    arrays = drawn(specs)
    places = [te.placeholder(a.shape, a.dtype, f"x{n}") for n, a in enumerate(arrays)]
    return places, write(*places), own, arrays


def floats(arrays):
    return [n for n, a in enumerate(arrays) if a.dtype.kind == "f"]


@pytest.mark.parametrize("name", KNOWN)
def test_the_operator_is_the_frameworks(name):
    places, out, own, arrays = built(name)
    wanted = own(*map(td.Tensor, arrays)).numpy()
    np.testing.assert_allclose(te.evaluate(out, dict(zip(places, arrays, strict=True))), wanted, rtol=1e-10, atol=1e-12)
    compiled = td.jit(te.op(KNOWN[name][0]))(*map(td.Tensor, arrays)).numpy()
    np.testing.assert_allclose(compiled, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", KNOWN)
def test_the_derivative_is_the_frameworks(name):
    places, out, own, arrays = built(name)
    which = floats(arrays)
    head = np.random.default_rng(1).standard_normal(out.shape)
    d = te.placeholder(out.shape, "float64", "d")
    grads = te.differentiate(out, [places[n] for n in which], d)
    found = te.evaluate(grads, {**dict(zip(places, arrays, strict=True)), d: head})
    tensors = [td.Tensor(a) for a in arrays]

    def of_floats(*xs):
        given = list(tensors)
        for n, x in zip(which, xs, strict=True):
            given[n] = x
        return td.sum(own(*given) * td.Tensor(head))

    wanted = td.grad(of_floats, argnums=tuple(range(len(which))))(*[tensors[n] for n in which])
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w.numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", KNOWN)
def test_the_derivative_is_the_difference_quotient(name):
    places, out, _, arrays = built(name)
    which = floats(arrays)
    rng = np.random.default_rng(2)
    head = rng.standard_normal(out.shape)
    d = te.placeholder(out.shape, "float64", "d")
    grads = te.differentiate(out, [places[n] for n in which], d)
    found = te.evaluate(grads, {**dict(zip(places, arrays, strict=True)), d: head})
    ways = {n: rng.standard_normal(arrays[n].shape) for n in which}

    def at(step):
        moved = [a + step * ways[n] if n in ways else a for n, a in enumerate(arrays)]
        return float((te.evaluate(out, dict(zip(places, moved, strict=True))) * head).sum())

    step = 1e-6
    slope = sum(float((f * ways[n]).sum()) for f, n in zip(found, which, strict=True))
    np.testing.assert_allclose((at(step) - at(-step)) / (2 * step), slope, rtol=2e-5, atol=2e-6)


def test_there_are_at_least_forty():
    assert len(KNOWN) >= 40
