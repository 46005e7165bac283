"""Vector functions against NumPy in a wider type, over all magnitudes, special values included, on several CPUs."""

import math

import numpy as np
import pytest

from treadle.kernels import jit, launch, vmath
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module
from treadle.kernels.target import host

TARGETS = {
    "host": host(),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2", "fma", "avx", "f16c", "sse4.1"),
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38]


def vector_function(make, x, out_type="float", target=None, lanes=16):
    """make(Value) on every element of x, whose size is a multiple of the lanes."""
    kinds = {np.dtype(k): v for k, v in (("f4", "float"), ("f8", "double"), ("u2", "i16"))}
    m = Module()
    m.scales = (target or host()).has("avx512")
    f = Function(m, "go", ["ptr", "i64", "ptr"])
    source, result = (f.load(f.args[0], "ptr", 8 * i) for i in range(2))
    kind = kinds[x.dtype]
    with f.loop(0, x.size, max(lanes, 1)) as i:
        v = f.load(f.offset(source, i * x.itemsize), f"<{lanes} x {kind}>" if lanes else kind)
        value = make(v)
        f.store(value, f.offset(result, i * {"float": 4, "double": 8, "i16": 2}[out_type]))
    f.give()
    out = np.empty(x.shape, {"float": "f4", "double": "f8", "i16": "u2"}[out_type])
    jit.load(launch.finish(m, [Phase("go", 1)], 2), target or host()).run([x, out])
    return out


def numbers(count=1 << 16, kind=np.float32):
    """Floats of all magnitudes, of usual ones, and special ones."""
    rng = np.random.default_rng(0)
    words = {np.float32: (np.uint32, 32), np.float64: (np.uint64, 64)}[kind]
    any = rng.integers(0, 1 << words[1], count, words[0], endpoint=False).view(kind)
    usual = rng.normal(size=count) * 10.0 ** rng.integers(-3, 3, count)
    near = rng.uniform(-20, 20, count)
    return np.concatenate([any, *[part.astype(kind) for part in (usual, near, np.resize(SPECIAL, 64))]])


def errors(got, want):
    """Error in units of the last place of the right result, rounded to the type; special values must be the same."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        whole = ~np.isfinite(rounded) & ~np.isnan(rounded)
        unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1)))
        off = np.abs(got.astype(want.dtype) - want) / unit.astype(want.dtype)
        off[whole] = np.where(got[whole] == rounded[whole], 0, np.inf)
        off[np.isnan(rounded)] = 0
        zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(got[zero & (got == 0)]), np.signbit(rounded[zero & (got == 0)]))
    return off


def erf(x):
    return np.vectorize(math.erf)(x)


SINGLE = {
    "exp": (np.exp, 2), "expm1": (np.expm1, 2), "log": (np.log, 2), "log1p": (np.log1p, 2), "tanh": (np.tanh, 3),
    "sigmoid": (lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x))), 3), "erf": (erf, 4),
    "sqrt": (np.sqrt, 0.51), "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6), "sin": (np.sin, 1.5), "cos": (np.cos, 1.5),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SINGLE)
def test_float_functions(name, target):
    exact, bound = SINGLE[name]
    x = numbers()
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.float64))
    got = vector_function(getattr(vmath, name), x, target=TARGETS[target])
    off = errors(got, want)
    worst = int(np.argmax(off))
    assert off[worst] <= bound, (name, x[worst], got[worst], want[worst], off[worst])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_limits_are_reached(name, target):
    """1 + erf(x) is 0 for large negative numbers, so that gelu(-inf) is NaN as elsewhere and not infinite."""
    x = np.repeat(np.float32([np.inf, 1e30, 200, -200, -1e30, -np.inf]), 16)
    low = 0.0 if name == "sigmoid" else -1.0
    got = vector_function(getattr(vmath, name), x, target=TARGETS[target])
    np.testing.assert_array_equal(got, np.where(x > 0, np.float32(1), np.float32(low)))


@pytest.mark.skipif(not host().has("avx512"), reason="for AVX-512")
def test_the_quick_logistic_function():
    x = numbers()
    with np.errstate(all="ignore"):
        z = 2.0 ** -np.abs(x.astype(np.float64))
        wants = np.where(x < 0, z, 1.0) / (1 + z), z / (1 + z) ** 2
    for i, want in enumerate(wants):
        want[np.isnan(x)] = np.nan
        got = vector_function(lambda v, i=i: vmath.quick_logistic(v)[i], x)
        np.testing.assert_allclose(got, want, 2**-13, 2**-126)
    assert got[x == np.inf].max() == got[x == -np.inf].max() == 0.0


def test_no_quick_logistic_function_without_its_instructions():
    seen = []
    x = np.ones(16, np.float32)
    vector_function(lambda v: seen.append(vmath.quick_logistic(v)) or v, x, target=TARGETS["avx2"])
    assert seen == [None]


@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "rsqrt"])
def test_double_functions(name):
    x = numbers(1 << 13, np.float64)
    with np.errstate(all="ignore"):
        want = SINGLE[name][0](x.astype(np.longdouble) if name != "erf" else x)
    off = errors(vector_function(getattr(vmath, name), x, "double", lanes=8), want)
    worst = int(np.argmax(off))
    assert off[worst] <= 4, (x[worst], want[worst], off[worst])


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("kind", ["half", "bfloat"])
def test_sixteen_bit_floats(kind, native):
    import ml_dtypes

    dtype = np.dtype(np.float16 if kind == "half" else ml_dtypes.bfloat16)
    words = np.arange(1 << 16, dtype=np.uint16)
    got = vector_function(lambda v: vmath.widen(v, kind, native), words)
    np.testing.assert_array_equal(got, words.view(dtype).astype(np.float32))
    between = got[np.isfinite(got)]
    x = np.concatenate([numbers(), got, np.nextafter(between, np.float32(0)), between * np.float32(1.0009765)])
    x = x[: x.size // 16 * 16]
    if native and kind == "bfloat":
        if not host().has("avx512bf16"):
            pytest.skip("this CPU does not convert to bfloat")
        x = np.where(np.abs(x) < 2.0**-126, np.float32(0), x)  # the instruction takes subnormal numbers for 0
    with np.errstate(all="ignore"):
        want = x.astype(dtype)
    narrow = vector_function(lambda v: vmath.narrow(v, kind, native), x, "i16").view(dtype)
    np.testing.assert_array_equal(narrow.astype(np.float32), want.astype(np.float32))
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(narrow[zeros]), np.signbit(want[zeros]))


def test_scalars():
    x = numbers(1 << 8)
    got = vector_function(vmath.tanh, x, lanes=0)
    np.testing.assert_array_equal(got, vector_function(vmath.tanh, x))
