"""Derivatives of te tensors: the sample of the design, Jacobians, higher orders, overrides, the form of the results."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.te.known import conv2d, gather, softmax

import treadle as td
from treadle import te
from treadle.base.errors import UserError
from treadle.formula.expr import Reduce, post_order
from treadle.te.lang.cce import vadd, vadds, vexp, vmuls, vrec


def sigmoid(x):
    return vrec(vadds(vexp(vmuls(x, -1.0)), 1.0))


def sigmoid_ad(dout, x):
    out = sigmoid(x)
    [dx] = te.differentiate(out, [x], dout)
    return dx


def sigmoid_ad_optimized(dout, x):
    out = sigmoid(x)

    def custom_sigmoid_fdiff(out, inputs, grad):
        return [out * (1.0 - out)]

    [dx] = te.differentiate(out, [x], dout, override={out: ([x], custom_sigmoid_fdiff)})
    return dx


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("write", [sigmoid_ad, sigmoid_ad_optimized])
@pytest.mark.parametrize("how", [lambda f: f, td.jit, te.op, lambda f: td.jit(te.op(f))])
def test_the_sample_on_tensors(write, how):
    x, d = numbers(3, 4), numbers(3, 4, seed=1)
    s = 1 / (1 + np.exp(-x))
    assert_allclose(how(write)(td.Tensor(d), td.Tensor(x)).numpy(), d * s * (1 - s), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("write", [sigmoid_ad, sigmoid_ad_optimized])
def test_the_sample_on_placeholders(write):
    x, d = te.placeholder((3, 4), name="x"), te.placeholder((3, 4), name="d")
    made = write(d, x)
    a, b = numbers(3, 4), numbers(3, 4, seed=1)
    s = 1 / (1 + np.exp(-a))
    assert_allclose(te.evaluate(made, {x: a, d: b}), b * s * (1 - s), rtol=1e-5, atol=1e-6)


def test_the_derivative_of_sigmoid_is_out_times_one_minus_out():
    x, d = te.placeholder((3,)), te.placeholder((3,), name="d")
    text = te.show(sigmoid_ad(d, x))
    assert "mul(mul(%a1[i0], @0=reciprocal(" in text
    assert text.count("exp") == 1
    assert "sub(1.0:f32, @0))" in text
    assert len(text.splitlines()) == 4


def test_sigmoid_by_tensors_inside_transformations():
    x = td.Tensor(numbers(5))
    s = td.sigmoid(x)
    assert_allclose(td.grad(lambda v: td.sum(sigmoid(v)))(x).numpy(), (s * (1 - s)).numpy(), rtol=1e-5)
    operator = te.op(sigmoid)
    rows = td.Tensor(numbers(4, 5))
    assert_allclose(td.vmap(operator)(rows).numpy(), td.sigmoid(rows).numpy(), rtol=1e-5)
    _, tangent = td.jvp(operator, (x,), (td.ones_like(x),))
    assert_allclose(tangent.numpy(), (s * (1 - s)).numpy(), rtol=1e-5)


# --- forms ------------------------------------------------------------------------------------------------------------


def reduction_points(tensor):
    """Points of the one reduction that a te tensor is."""
    body = tensor.source.body
    assert isinstance(body, Reduce)
    assert body.combiner.kind == "add"
    assert not any(isinstance(e, Reduce) for p in body.parts for e in post_order(p))
    return int(np.prod([a.extent for a in body.axes], initial=1))


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "taps"), [(1, 0, 1, 3), (1, 1, 1, 3), (2, 1, 1, 2), (3, 1, 1, 1), (1, 2, 2, 3)]
)
def test_the_data_gradient_of_a_convolution_is_a_convolution(stride, padding, dilation, taps):
    """One sum over output channels and over the taps that meet an element; nothing compares positions any more."""
    x, w = te.placeholder((2, 3, 17, 17)), te.placeholder((5, 3, 3, 3), name="w")
    out = conv2d(stride, padding, dilation)(x, w)
    [dx] = te.differentiate(out, [x], te.placeholder(out.shape, name="d"))
    assert reduction_points(dx) == 5 * taps * taps
    assert "equal(i" not in te.show(dx).replace("_equal(", "(")


def test_the_weight_gradient_sums_over_the_images():
    x, w = te.placeholder((2, 3, 17, 17)), te.placeholder((5, 3, 3, 3), name="w")
    out = conv2d(2, 1)(x, w)
    [dw] = te.differentiate(out, [w], te.placeholder(out.shape, name="d"))
    assert reduction_points(dw) == 2 * out.shape[2] * out.shape[3]


def test_the_gradient_of_a_gather_is_a_sum_under_a_condition():
    x, at = te.placeholder((5, 3)), te.placeholder((4,), "int32", "at")
    out = gather(x, at)
    [dx] = te.differentiate(out, [x], te.placeholder(out.shape, name="d"))
    assert reduction_points(dx) == 4


def test_reshape_and_broadcast_are_inverted():
    x = te.placeholder((6, 4))
    flat = te.compute((24,), lambda i: x[i // 4, i % 4])
    [dx] = te.differentiate(flat, [x], te.placeholder((24,), name="d"))
    assert te.show(dx).splitlines()[1] == "  %0[i0:6, i1:4] = %a0[add(mul(i0, 4), i1)]"
    wide = te.compute((3, 6, 4), lambda b, i, j: x[i, j])
    [dx] = te.differentiate(wide, [x], te.placeholder((3, 6, 4), name="d"))
    assert te.show(dx).splitlines()[1] == "  %0[i0:6, i1:4] = add[i2:3](%a0[i2, i0, i1])"


def test_reads_that_are_clamped_get_their_share():
    """Replicated borders: nothing proves the index inside, so the equation stays a condition, and is right."""
    x = te.placeholder((4,), "float64")
    out = te.compute((6,), lambda i: x[i - 1] * x[i - 1])
    d = te.placeholder((6,), "float64", "d")
    [dx] = te.differentiate(out, [x], d)
    a, b = np.arange(1.0, 5), np.arange(6.0)
    assert_allclose(te.evaluate(dx, {x: a, d: b}), [2 * 1 * (0 + 1), 2 * 2 * 2, 2 * 3 * 3, 2 * 4 * (4 + 5)])


# --- Jacobians and higher orders --------------------------------------------------------------------------------------


def test_a_jacobian_is_its_products_with_unit_heads():
    x = te.placeholder((2, 3), "float64")
    out = softmax(x)
    [jacobian] = te.differentiate(out, [x])
    assert jacobian.shape == (2, 3, 2, 3)
    a = np.random.default_rng(0).standard_normal((2, 3))
    found = te.evaluate(jacobian, {x: a})
    own = td.jacrev(lambda v: td.nn.functional.softmax(v, axis=1))(td.Tensor(a)).numpy()
    assert_allclose(found, own, atol=1e-12)


def test_second_and_third_order():
    x = te.placeholder((4,), "float64")
    y = te.compute((4,), lambda i: te.exp(te.sin(x[i])) * x[i])
    one = te.compute((4,), lambda i: te.constant(1.0, "float64"))
    orders = [y]
    for _ in range(3):
        orders += te.differentiate(orders[-1], [x], one)
    a = np.random.default_rng(0).standard_normal(4)

    def own(v):
        return td.sum(td.exp(td.sin(v)) * v)

    g = own
    for order in orders[1:]:
        g = td.grad(lambda v, g=g: td.sum(g(v)))
        assert_allclose(te.evaluate(order, {x: a}), g(td.Tensor(a)).numpy(), rtol=1e-9)


def test_the_hessian_of_a_softmax_loss():
    x = te.placeholder((1, 3), "float64")
    p = softmax(x)
    k = te.reduce_axis(3)
    loss = te.compute((), lambda: te.sum(p[0, k] * p[0, k], axis=k))
    [gradient] = te.differentiate(loss, [x])
    [hessian] = te.differentiate(gradient, [x])
    a = np.random.default_rng(0).standard_normal((1, 3))

    def own(v):
        q = td.nn.functional.softmax(v, axis=1)
        return td.sum(q * q)

    wanted = td.hessian(own)(td.Tensor(a)).numpy().reshape(3, 3)
    assert_allclose(te.evaluate(hessian, {x: a}).reshape(3, 3), wanted, atol=1e-12)


def test_by_an_inner_tensor_and_several_inputs():
    x, w = te.placeholder((3,), "float64"), te.placeholder((3,), "float64", "w")
    inner = te.compute((3,), lambda i: x[i] * w[i])
    out = te.compute((3,), lambda i: inner[i] * inner[i] + x[i])
    d = te.placeholder((3,), "float64", "d")
    a, b, c = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), np.ones(3)
    found = te.evaluate(te.differentiate(out, [inner, x, w], d), {x: a, w: b, d: c})
    for f, wanted in zip(found, (2 * a * b, 2 * a * b * b + 1, 2 * a * b * a), strict=True):
        assert_allclose(f, wanted)


# --- overrides --------------------------------------------------------------------------------------------------------


def two_steps(x):
    inner = te.compute(x.shape, lambda i: te.tanh(x[i]))
    return inner, te.compute(x.shape, lambda i: te.exp(inner[i]))


@pytest.mark.parametrize("adjoint", [False, True])
def test_an_override_of_one_step_in_either_convention(adjoint):
    x, d = te.placeholder((5,), "float64"), te.placeholder((5,), "float64", "d")
    inner, out = two_steps(x)
    calls = []

    def rule(out, inputs, grad):
        calls.append((out, inputs))
        local = te.compute((5,), lambda i: 1.0 - out[i] * out[i], "by_hand")
        return [local * grad] if adjoint else [local]

    [dx] = te.differentiate(out, [x], d, override={inner: ([x], rule)})
    assert calls
    a, b = np.linspace(-1, 1, 5), np.arange(5.0)
    wanted = b * np.exp(np.tanh(a)) * (1 - np.tanh(a) ** 2)
    assert_allclose(te.evaluate(dx, {x: a, d: b}), wanted)
    [jacobian] = te.differentiate(out, [x], override={inner: ([x], rule)})
    full = te.evaluate(jacobian, {x: a})
    assert_allclose(full, np.diag(np.exp(np.tanh(a)) * (1 - np.tanh(a) ** 2)), atol=1e-12)


def test_an_override_of_a_whole_part():
    x, d = te.placeholder((5,), "float64"), te.placeholder((5,), "float64", "d")
    _, out = two_steps(x)

    def rule(out, inputs, grad):
        (x,) = inputs
        return te.compute((5,), lambda i: grad[i] * out[i] * (1.0 - te.tanh(x[i]) * te.tanh(x[i])), "whole")

    [dx] = te.differentiate(out, [x], d, override={out: ([x], rule)})
    assert "%" in te.show(dx)
    a, b = np.linspace(-1, 1, 5), np.arange(5.0)
    assert_allclose(te.evaluate(dx, {x: a, d: b}), b * np.exp(np.tanh(a)) * (1 - np.tanh(a) ** 2))


def test_an_override_that_is_no_derivative_is_refused():
    x, d = te.placeholder((5,)), te.placeholder((5,), name="d")
    out = te.compute((5,), lambda i: te.tanh(x[i]))
    for wrong in (lambda o, i, g: [1.0 - o], lambda o, i, g: [g * o], lambda o, i, g: [o, o], lambda o, i, g: [1.0]):
        with pytest.raises(UserError, match="E0580"):
            te.differentiate(out, [x], d, override={out: ([x], wrong)})
    with pytest.raises(UserError, match="E0580"):
        te.differentiate(out, [x], d, override={x: ([x], lambda o, i, g: [g])})


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_refusals():
    x, y, n = te.placeholder((3,)), te.placeholder((3,), name="y"), te.placeholder((3,), "int32", "n")
    out = te.compute((3,), lambda i: x[i] * 2.0 + n[i].astype("float32"))
    for code, inputs, head in (("E0307", [y], None), ("E0305", [n], None), ("E0308", [x], te.placeholder((4,)))):
        with pytest.raises(UserError, match=code):
            te.differentiate(out, inputs, head)
    with pytest.raises(UserError, match="E0581"):
        te.differentiate(td.ones(3), [td.ones(3)])
    t = td.ones(3)
    made = vexp(t)
    made += 1.0
    with pytest.raises(UserError, match="E0581"):
        te.differentiate(made, [t])
    with pytest.raises(UserError, match="E0581"):
        vadd(te.placeholder((3,)), t)


def test_long_chains_are_forgotten_and_say_so():
    x = first = td.ones(3)
    for _ in range(200):
        x = vadds(x, 1.0)
    with pytest.raises(UserError, match=r"E0581.*64 steps"):
        te.differentiate(x, [first])
    y = x
    for _ in range(5):
        y = vmuls(y, 2.0)
    assert te.differentiate(y, [x], td.ones(3))[0].tolist() == [32.0] * 3
    with pytest.raises(UserError, match="E0581"):
        te.differentiate(vadd(y, first), [first])


def test_equal_largest_share_the_derivative():
    x = te.placeholder((2, 4), "float64")
    k = te.reduce_axis(4)
    most = te.compute((2,), lambda i: te.max(x[i, k], axis=k))
    d = te.placeholder((2,), "float64", "d")
    [dx] = te.differentiate(most, [x], d)
    found = te.evaluate(dx, {x: [[1.0, 3.0, 3.0, 0.0], [5.0, 5.0, 5.0, 5.0]], d: [1.0, 2.0]})
    assert found.tolist() == [[0.0, 0.5, 0.5, 0.0], [0.5] * 4]


def test_a_clamped_read_of_a_step_that_is_written_into_its_reader():
    x = te.placeholder((3,), "float64")
    inner = te.compute((3,), lambda i: x[i] * (i + 1.0))
    out = te.compute((3,), lambda i: te.exp(inner[i - 1]))
    d = te.placeholder((3,), "float64", "d")
    [dx] = te.differentiate(out, [x], d)
    a, b = np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 4.0])
    scaled = np.exp(a * [1, 2, 3])[[0, 0, 1]] * b
    assert_allclose(te.evaluate(dx, {x: a, d: b}), [scaled[0] + scaled[1], 2 * scaled[2], 0.0])
    assert_allclose(td.jit(te.op(lambda x: te.compute((3,), lambda i: x[i - 1])))(a).numpy(), a[[0, 0, 1]])
