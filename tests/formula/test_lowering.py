"""What a formula becomes in other ops: the same numbers, and the forms that back ends are good at."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.te.known import KNOWN, conv2d, gather, matmul

from treadle import te
from treadle.formula.interp import evaluate
from treadle.formula.text import Formula
from treadle.ir import build, interp
from treadle.ir.types import TensorType
from treadle.ops import _lanes
from treadle.te._operator import formula_of


def lowered(formula):
    return build.trace(lambda *v: _lanes.expand(formula, v), formula.in_types, "lowered")


def names(formula):
    return [n.op.name for n in lowered(formula).nodes]


def formula(places, *outputs):
    return formula_of([p.source for p in places], outputs)


def gradient(write, shapes, which):
    places = [te.placeholder(s, "float64", f"x{n}") for n, s in enumerate(shapes)]
    out = write(*places)
    d = te.placeholder(out.shape, "float64", "d")
    return formula([*places, d], *te.differentiate(out, [places[which]], d))


def drawn(rng, type: TensorType):
    return (
        rng.integers(0, 4, type.shape).astype(type.dtype.np)
        if type.dtype.kind == "i"
        else rng.standard_normal(type.shape).astype(type.dtype.np)
    )


def check(found: Formula, seed=0):
    rng = np.random.default_rng(seed)
    arrays = [drawn(rng, t) for t in found.in_types]
    for a, b in zip(interp.run(lowered(found), *arrays), evaluate(found, *arrays), strict=True):
        assert a.dtype == b.dtype
        assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=str(found))


@pytest.mark.parametrize("seed", range(120))
def test_windows_of_every_kind(seed):
    """Random strides, steps of the taps, offsets, guards right or wrong, extra conditions, axes in any order."""
    rng = np.random.default_rng(seed)
    size, taps, out = int(rng.integers(3, 9)), int(rng.integers(1, 4)), int(rng.integers(1, 6))
    stride, step, offset = int(rng.integers(1, 4)), int(rng.choice([-2, -1, 1, 2])), int(rng.integers(-4, 4))
    x = te.placeholder((2, size, 3), "float64")
    w = te.placeholder((3, taps, 4), "float64", "w")
    rc, rk = te.reduce_axis(3), te.reduce_axis(taps)
    guard, extra = rng.integers(4), rng.integers(4)

    def element(b, f, t):
        p = t * stride + rk * step + offset
        value = x[b, p, rc] * w[rc, rk, f]
        conds = [[p >= 0, p < size], [p >= 0, p < size], [p >= 1, p < size], [p >= 0]][guard]
        if extra == 0:
            conds = [*conds, rk < t + 1]
        return te.sum(te.if_then_else(te.all(*conds), value, 0.0), axis=[rc, rk])

    order = [lambda b, f, t: element(b, f, t), lambda t, b, f: element(b, f, t)][seed % 2]
    shape = [(2, 4, out), (out, 2, 4)][seed % 2]
    made = formula([x, w], te.compute(shape, order))
    check(made, seed)
    if guard < 2 and extra and taps > 1 and "False" not in made.text:
        assert names(made).count("conv") == 1


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
def test_gradients_of_convolutions_are_convolutions(stride, padding, dilation):
    shapes = [(2, 3, 15, 13), (4, 3, 3, 3)]
    for which in (0, 1):
        found = gradient(conv2d(stride, padding, dilation), shapes, which)
        check(found)
        ops = names(found)
        assert "conv" in ops or (stride == 3 and which == 0)  # there one tap meets an element, and nothing slides
        assert "take" not in ops or which == 0


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("groups, weights", [(2, (6, 3, 3, 3)), (6, (6, 1, 3, 3)), (3, (12, 2, 3, 2))])
def test_grouped_convolutions_and_their_gradients_are_convolutions(groups, weights, padding):
    shapes, write = [(2, 6, 9, 8), weights], conv2d(1, padding, 1, groups)
    x, w = (te.placeholder(shape, "float64", name) for shape, name in zip(shapes, "xw", strict=True))
    whole = formula([x, w], write(x, w))
    check(whole)
    assert names(whole).count("conv") == 1
    assert "take" not in names(whole)
    for which in (0, 1):
        found = gradient(write, shapes, which)
        check(found)
        assert "conv" in names(found)
        assert "contract" not in names(found)


def test_channels_beside_their_groups():
    """The groups as an axis of their own: images and weights with five axes."""
    x, w = te.placeholder((2, 3, 4, 9, 8), "float64"), te.placeholder((3, 5, 4, 3, 3), "float64", "w")
    c, a, b = (te.reduce_axis(n) for n in (4, 3, 3))
    made = te.compute(
        (2, 3, 5, 7, 6),
        lambda n, g, f, i, j: te.sum(x[n, g, c, i + a, j + b] * w[g, f, c, a, b], axis=[c, a, b]),
    )
    found = formula([x, w], made)
    check(found)
    assert names(found).count("conv") == 1
    assert "take" not in names(found)


def test_a_strided_data_gradient_is_taken_apart():
    ops = names(gradient(conv2d(2, 1), [(2, 3, 8, 8), (4, 3, 3, 3)], 0))
    assert ops.count("conv") == 3  # taps 2 x 2, 2 x 1 and 1 x 2
    assert ops.count("contract") == 1  # one tap


def test_forms():
    x, w = te.placeholder((3, 4)), te.placeholder((4, 5), name="w")
    assert names(formula([x, w], matmul(x, w))) == ["contract"]
    k = te.reduce_axis(4)
    turned = te.compute((5, 3), lambda j, i: te.sum(x[i, k] * w[k, j], axis=k))
    assert names(formula([x, w], turned)) == ["contract"]
    assert names(formula([x], te.compute((4, 3), lambda j, i: x[i, j]))) == ["transpose"]
    assert names(formula([x], te.compute((3, 2), lambda i, j: x[i, 2 * j + 1]))) == ["slice"]
    assert "index_sum" in names(
        formula(
            [x, at := te.placeholder((7,), "int32", "at"), d := te.placeholder((7, 4), name="d")],
            *te.differentiate(gather(x, at), [x], d),
        )
    )


@pytest.mark.parametrize("name", KNOWN)
def test_known_gradients(name):
    from tests.te.test_known_ops import built, floats

    places, out, _, arrays = built(name)
    d = te.placeholder(out.shape, "float64", "d")
    found = formula([*places, d], *te.differentiate(out, [places[n] for n in floats(arrays)], d))
    given = [*arrays, np.random.default_rng(3).standard_normal(out.shape)]
    for a, b in zip(interp.run(lowered(found), *given), evaluate(found, *given), strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_positions_out_of_range_add_nowhere():
    """Unlike reads, a comparison with a position does not clamp it."""
    at, v = te.placeholder((6,), "int32", "at"), te.placeholder((6, 2), "float64", "v")
    k = te.reduce_axis(6)
    out = te.compute((3, 2), lambda j, f: te.sum(te.if_then_else(at[k] == j, v[k, f], 0.0), axis=k))
    made = formula([at, v], out)
    assert "index_sum" in names(made)
    places, values = np.array([0, 2, 2, -1, 3, 7], np.int32), np.arange(12.0).reshape(6, 2)
    (found,) = interp.run(lowered(made), places, values)
    assert found.tolist() == [[0.0, 1.0], [0.0, 0.0], [6.0, 8.0]]
    assert_allclose(evaluate(made, places, values)[0], found)
