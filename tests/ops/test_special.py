"""Special functions against golden numbers of SciPy 1.17, exact identities, and digits where formulas change."""

import math

import numpy as np
import pytest
from tests.ops.support import execute

from treadle import ops
from treadle.ir import build, interp
from treadle.ir.node import Module

X = np.array([-4.3, -0.5, 1e-06, 0.3, 1.4616321449683622, 3.7, 12.5, 250.0])
GOLDEN = {
    "lgamma": [
        -2.2829708277169436, 1.2655121234846454, 13.81550998074943, 1.0957979948180756, -0.1214862905358497,
        1.428072326665388, 18.73434751193645, 1128.5237708729908,
    ],
    "digamma": [
        3.8529116001270105, 0.03648997397857651, -1000000.57721402, -3.502524222200133, -9.241265521729427e-17,
        1.1671535393615113, 2.4851956512749123, 5.519459584531046,
    ],
    "erfc": [
        1.9999999988065282, 1.5204998778130465, 0.9999988716208329, 0.6713732405408726, 0.03872850037014338,
        1.6715105790914599e-07, 6.231942781979911e-70, 0.0,
    ],
    "bessel_i0e": [
        0.19902325712922597, 0.64503527044915, 0.9999990000007495, 0.7575806251825481, 0.3732401111234624,
        0.21604944167297369, 0.1140219294622889, 0.025243969387054754,
    ],
    "bessel_i1e": [
        -0.1739746090458716, -0.15642080318487173, 4.999995000003124e-07, 0.11237756063983881, 0.21890695901836796,
        0.18383785802735622, 0.10936143099065089, 0.025193430757117306,
    ],
}  # fmt: skip
POLYGAMMA = {
    1: [
        1000000000001.645, 12.245364546107734, 0.9676722454476214, 0.31003785767003833, 0.08328522460157839,
        0.004008010666632532,
    ],
    2: [
        -2.0000000000000003e+18, -75.27253658872601, -0.8855263379671843, -0.09539530872855405,
        -0.006932436585788242, -1.6064127999317343e-05,
    ],
    4: [
        -2.4000000000000003e+31, -9883.468555496987, -3.934624930617758, -0.053038611107953965,
        -0.000287691422585387, -1.5483289595412602e-09,
    ],
    9: [
        3.6288000000000016e+65, 61454073052.034775, 8200.234590507313, 0.8363773679138979, 7.616055883914425e-06,
        1.0761168022326509e-17,
    ],
    20: [
        -2.4329020081766422e+144, -2.3258316052645292e+29, -840489852041955.0, -2862777.3779020025,
        -2.8230444895169593e-05, -1.3917510046505933e-31,
    ],
}  # fmt: skip


def both(op, *arrays, **attrs):
    """The interpreter's result and the back end's."""
    arrays = [np.asarray(a) for a in arrays]
    fn = build.trace(lambda *v: op(*v, **attrs), [interp.type_of(a) for a in arrays], op.name)
    return [interp.run(fn, *arrays)[0], execute(Module.of(fn), arrays, op.name)[0]]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_numbers(name):
    for result in both(ops.OPS[name], X):
        np.testing.assert_allclose(result, GOLDEN[name], rtol=1e-13, atol=1e-15)
    for result in both(ops.OPS[name], X.astype(np.float32)):
        np.testing.assert_allclose(result, GOLDEN[name], rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("order", POLYGAMMA)
def test_golden_numbers_of_polygamma(order):
    for result in both(ops.polygamma, X[2:], order=order):
        np.testing.assert_allclose(result, POLYGAMMA[order], rtol=1e-14)


def test_golden_numbers_of_polygamma_below_zero():
    wanted = {1: [14.871822813779856, 8.934802200544679], 2: [68.79460049528238, -0.82879664423432]}
    for order, numbers in wanted.items():
        for result in both(ops.polygamma, X[:2], order=order):
            np.testing.assert_allclose(result, numbers, rtol=1e-13)


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_polygamma_by_recurrence_into_negative_numbers(order):
    """polygamma(x + 1) = polygamma(x) + (-1)**n n! / x**(n + 1), DLMF 5.15.5."""
    x = np.array([-3.3, -2.8, -1.7, -0.4])  # near -1.5 the sixth order is steep for its size
    lower, upper = both(ops.polygamma, x, order=order)[1], both(ops.polygamma, x + 1, order=order)[1]
    step = (-1) ** order * math.factorial(order) / x ** (order + 1)
    scale = np.abs(lower) + np.abs(upper)
    assert np.max(np.abs(upper - lower - step) / scale) < 1e-12


def test_bessel_functions_are_their_integrals():
    """The integral of exp(t cos(a) - t) and that times cos(a), by many points, where the two series meet."""
    x = np.array([7.9, 7.999999, 8.0, 8.000001, 8.1, 60.0])
    angles = (np.arange(4000) + 0.5) * math.pi / 4000
    for op, weight in ((ops.bessel_i0e, 1.0), (ops.bessel_i1e, np.cos(angles))):
        wanted = np.mean(np.exp(x[:, None] * (np.cos(angles) - 1)) * weight, 1)
        for result in both(op, x):
            np.testing.assert_allclose(result, wanted, rtol=1e-13)


def test_lgamma_of_whole_numbers_is_the_logarithm_of_a_factorial():
    n = np.arange(1, 20)
    wanted = [math.log(math.factorial(k - 1)) for k in n]
    for type, tol in ((np.float64, 1e-14), (np.float32, 3e-6)):
        for result in both(ops.lgamma, n.astype(type)):
            np.testing.assert_allclose(result, wanted, rtol=tol)
            assert result[0] == result[1] == 0


def test_sinc_is_smooth_at_its_seam_and_zero_at_whole_numbers():
    x = np.array([-3.0, 1.0, 2.0, 1e6])
    for result in both(ops.sinc, x):
        np.testing.assert_array_equal(result, 0)
    seam = np.array([0.5 - 1e-12, 0.5, 0.5 + 1e-12, 1e-300, 0.0])
    for result in both(ops.sinc, seam):
        np.testing.assert_allclose(result, np.sinc(seam), rtol=1e-14)


def test_hypot_and_logaddexp_do_not_overflow():
    big = np.array([1e300, 1e-300, 0.0])
    for result in both(ops.hypot, big, big):
        np.testing.assert_allclose(result, np.hypot(big, big), rtol=1e-15)
    x, y = np.array([1000.0, -1000.0, -np.inf, np.inf]), np.array([1000.0, -1001.0, -np.inf, np.inf])
    for result in both(ops.logaddexp, x, y):
        np.testing.assert_allclose(result, np.logaddexp(x, y), rtol=1e-15)


def test_nextafter_and_copysign_of_narrow_floats():
    for type in (np.float16, np.float32, np.float64):
        x, y = np.array([1.0, 0.0, -0.0, -2.0], type), np.array([2.0, -1.0, 1.0, np.inf], type)
        for op, numpy in ((ops.nextafter, np.nextafter), (ops.copysign, np.copysign)):
            for result in both(op, x, y):
                np.testing.assert_array_equal(result, numpy(x, y))
                np.testing.assert_array_equal(np.signbit(result), np.signbit(numpy(x, y)))


@pytest.mark.parametrize("type", [np.int8, np.int32, np.int64, np.uint16])
def test_gcd_and_lcm_of_many_integers(type):
    rng = np.random.default_rng(0)
    info = np.iinfo(type)
    x, y = (rng.integers(info.min, info.max, 300, type, endpoint=True) for _ in range(2))
    x[:4], y[:4] = [0, 0, info.max, info.min], [0, 5, info.max, 1]
    for result in both(ops.gcd, x, y):
        np.testing.assert_array_equal(result, np.gcd(x, y))
    for result in both(ops.lcm, x // 12, y // 12):
        np.testing.assert_array_equal(result, np.lcm(x // 12, y // 12))
