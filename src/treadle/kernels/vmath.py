"""Elementary functions as vector code: they take and give values of `llvm.Function`s, scalars or vectors of any lanes.

NaN, infinities, signed zeros and subnormal numbers pass as in NumPy. float: within 4 units in the last place (tests/
kernels/test_vmath.py has the figures). double: exp, expm1, log, log1p, tanh, sigmoid here, the rest by calls of the C
library, lane by lane. `Builder` is what the ops' `kernel` rules get: the same functions, and the types of the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache

import numpy as np

from treadle.base.dtypes import DType
from treadle.kernels.llvm import FLOATS, Value, element, lanes, literal, short, size, vector

LN2, LOG2E = math.log(2), 1 / math.log(2)
_LN2_REST = float(Decimal(2).ln() - Decimal(LN2))  # what float64 lacks of ln 2


class NoVectorCode(Exception):
    """Raised by a `kernel` rule for element types that it does not take: XLA compiles such an op."""


class _Format:
    """What the functions know of a float type."""

    def __init__(self, x: Value) -> None:
        wide = element(x.type) == "double"
        self.mantissa, self.bias, self.word = (52, 1023, "i64") if wide else (23, 127, "i32")
        self.ints = vector(self.word, lanes(x.type))
        self.rounder = 1.5 * 2.0**self.mantissa  # x + rounder - rounder is x rounded to a whole number
        self.exp_range = (-746.0, 710.0) if wide else (-104.0, 89.0)
        self.exp_terms, self.log_terms = (14, 12) if wide else (8, 5)
        high, low = _split(LN2, 20 if wide else 9, wide)
        self.ln2 = high, low + _LN2_REST
        self.least = 2.0 ** (1 - self.bias)  # the least normal number


@lru_cache
def _split(number: float, spare: int, wide: bool) -> tuple[float, float]:
    """number = high + low; high ends in `spare` bits of 0, so that its product with a small integer is exact."""
    step = 2.0 ** (math.frexp(number)[1] - (53 if wide else 24) + spare)
    high = math.floor(number / step) * step
    return high, number - high


def poly(x: Value, coefficients: Sequence[float]) -> Value:
    """c[0] + c[1] * x + c[2] * x**2 ..."""
    result = x.f.constant(coefficients[-1], x.type)
    for c in coefficients[-2::-1]:
        result = result * x + c
    return result


@lru_cache
def fitted(name: str, low: float, high: float, degree: int) -> tuple[float, ...]:
    """A polynomial in t = (x - middle) / half near the least largest error on low..high (Chebyshev interpolation)."""
    from numpy.polynomial import Chebyshev, Polynomial

    curve = Chebyshev.interpolate(np.vectorize(_CURVES[name]), degree, domain=[low, high])
    inner = Chebyshev(curve.coef).convert(kind=Polynomial)
    return tuple([float(c) for c in inner.coef])


_CURVES: dict[str, Callable[[float], float]] = {
    "erf(root x) / root x": lambda x: math.erf(math.sqrt(x)) / math.sqrt(x) if x else 2 / math.sqrt(math.pi),
}


def rounded(x: Value) -> Value:
    """The nearest whole number of a float below 2**22 (2**51)."""
    rounder = _Format(x).rounder
    return (x + rounder) - rounder


def bits(x: Value) -> Value:
    """The float's bits as integers."""
    return x.f.bitcast(x, _Format(x).ints)


def with_sign(magnitude: Value, sign: Value) -> Value:
    """The magnitude with the sign of another."""
    return x_call("llvm.copysign", magnitude, sign)


def x_call(name: str, *args: Value) -> Value:
    """An intrinsic whose operands and result have one type."""
    x = args[0]
    return x.f.intrinsic(f"{name}.{short(x.type)}", x.type, *args)


def magnitude(x: Value) -> Value:
    """|x|; integers wrap around."""
    if x.is_float:
        return x_call("llvm.fabs", x)
    return x.f.select(x.f.compare("slt", x, 0), -x, x)


def _power_of_two(n: Value, form: _Format, like: str) -> Value:
    """2 ** n of integers, for normal results."""
    return n.f.bitcast((n + form.bias) << form.mantissa, like)


def _between(x: Value, low: float, high: float) -> Value:
    """x within low..high; NaN stays."""
    f = x.f
    x = f.select(f.compare("olt", x, low), low, x)
    return f.select(f.compare("ogt", x, high), high, x)


def _nearest(x: Value, form: _Format) -> tuple[Value, Value]:
    """n and r with x = n * ln 2 + r, |r| <= ln(2) / 2; both floats."""
    n = (x * LOG2E + form.rounder) - form.rounder
    high, low = form.ln2
    return n, (x - n * high) - n * low


def _scaled(x: Value, n: Value) -> Value:
    """x * 2 ** n of 512 bits, rounded once, by AVX-512's own instruction."""
    kind, lane_mask = ("ps", "i16") if element(x.type) == "float" else ("pd", "i8")
    every, way = x.f.constant(-1, lane_mask), x.f.constant(4, "i32")
    return x.f.intrinsic(f"llvm.x86.avx512.mask.scalef.{kind}.512", x.type, x, n, x, every, way)


def _reduced(x: Value, form: _Format) -> tuple[Value, Value]:
    """n (integers) and r with x = n * ln 2 + r, |r| <= ln(2) / 2."""
    shifted = x * LOG2E + form.rounder
    n = shifted - form.rounder
    high, low = form.ln2
    whole = bits(shifted) - bits(x.f.constant(form.rounder, x.type))
    return whole, (x - n * high) - n * low


def _inverse_factorials(first: int, terms: int) -> list[float]:
    return [1 / math.factorial(first + i) for i in range(terms)]


def exp(x: Value) -> Value:
    """e ** x; 2 ** n is applied in two steps, so that subnormal results are right."""
    form = _Format(x)
    if x.f.module.scales and x.type == _SIXTEEN:
        return _exp_of_sixteen(x, form)
    bounded = _between(x, *form.exp_range)
    if x.f.module.scales and size(x.type) == 64:
        n, r = _nearest(bounded, form)
        return _scaled(poly(r, _inverse_factorials(0, form.exp_terms)), n)
    n, r = _reduced(bounded, form)
    p = poly(r, _inverse_factorials(0, form.exp_terms))
    half = x.f.emit(f"ashr {n.type} {n.name}, {x.f.constant(1, n.type).name}", n.type)
    return p * _power_of_two(half, form, x.type) * _power_of_two(n - half, form, x.type)


def _exp_of_sixteen(x: Value, form: _Format) -> Value:
    """e ** x = 2 ** n * e ** r, n in sixteenths, whose power of two is looked up: r is so small that few terms do."""
    f, (high, low), rounder = x.f, form.ln2, form.rounder / 16
    shifted = x * LOG2E + rounder  # ends in the sixteenths of n
    n = shifted - rounder
    bound, way = f.constant(LN2 / 16, x.type), f.constant(_NEARER_ZERO, "i32")
    name, every, code = "llvm.x86.avx512.mask.range.ps.512", f.constant(-1, "i16"), f.constant(4, "i32")
    # where x is far out or no number, r is anything: within bounds, it leaves 0, infinity or NaN to n
    r = f.intrinsic(name, x.type, (x - n * high) - n * low, bound, way, x, every, code)
    power = f.intrinsic("llvm.x86.avx512.permvar.sf.512", x.type, _sixteenths(x), bits(shifted))
    return _scaled(power + (power * r) * poly(r, _inverse_factorials(1, 3)), n)


def _sixteenths(x: Value) -> Value:
    """2 ** (i / 16) in lane i."""
    powers = ", ".join(f"float {literal(2 ** (i / 16), 'float')}" for i in range(16))
    return Value(f"<{powers}>", x.type, x.f)


_SIXTEEN = vector("float", 16)
_NEARER_ZERO = 2  # of two numbers the one with the smaller magnitude, with the first one's sign


def expm1(x: Value) -> Value:
    """e ** x - 1, exact near 0."""
    form = _Format(x)
    bounded = _between(x, -float(form.mantissa) * 0.8, form.exp_range[1])
    return x.f.select(x.f.compare("oeq", x, 0), x, _expm1(bounded, form))


def _expm1(x: Value, form: _Format) -> Value:
    """The same where neither side is far out; 0 for -0.0."""
    f = x.f
    if f.module.scales and size(x.type) == 64:
        n, r = _nearest(x, form)
        half, none = _scaled(f.constant(0.5, x.type), n), f.compare("oeq", n, 0)
    else:
        whole, r = _reduced(x, form)
        half, none = _power_of_two(whole - 1, form, x.type), f.compare("eq", whole, 0)
    p = r + r * r * poly(r, _inverse_factorials(2, form.exp_terms - 1))
    return f.select(none, p, (half * p + (half - 0.5)) * 2.0)


def log(x: Value) -> Value:
    """The natural logarithm; -inf at 0, NaN below."""
    f, form = x.f, _Format(x)
    tiny = f.compare("olt", x, form.least)
    grown = f.select(tiny, x * 2.0**form.mantissa, x)
    start = bits(f.constant(math.sqrt(0.5), x.type))
    shifted = bits(grown) - start
    n = f.emit(f"ashr {form.ints} {shifted.name}, {f.constant(form.mantissa, form.ints).name}", form.ints)
    m = f.bitcast(bits(grown) - (n << form.mantissa), x.type)
    e = f.convert("sitofp", n - f.select(tiny, f.constant(form.mantissa, form.ints), 0), element(x.type))
    y = m - 1.0
    s = y / (y + 2.0)
    q = s * s
    rest = q * poly(q, [2 / (2 * i + 3) for i in range(form.log_terms)])
    high, low = form.ln2
    value = e * high + (y - (s * (y - rest) - e * low))
    value = f.select(f.compare("oeq", x, math.inf), x, value)
    value = f.select(f.compare("oeq", x, 0), -math.inf, value)
    return f.select(f.compare("uge", x, 0), f.select(f.compare("uno", x, x), x, value), math.nan)


def log1p(x: Value) -> Value:
    """log(1 + x), exact near 0: the rounding error of 1 + x is put back."""
    f = x.f
    u = x + 1.0
    lost = f.select(f.compare("ogt", x, 1), f.constant(1, x.type) - (u - x), x - (u - 1.0))
    value = log(u)
    inside = f.compare("ogt", u, 0) & f.compare("olt", u, math.inf)
    value = f.select(inside, value + lost / u, value)
    return f.select(f.compare("oeq", x, 0), x, value)


def tanh(x: Value) -> Value:
    """From expm1: t / (t + 2) with t = exp(2 |x|) - 1, which is 1 from where t is large."""
    large = magnitude(x)
    bounded = x.f.select(x.f.compare("ogt", large, 22.0), 22.0, large)
    t = _expm1(bounded + bounded, _Format(x))
    return with_sign(t / (t + 2.0), x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x)), with no overflow on either side."""
    f = x.f
    z = exp(-magnitude(x))
    return f.select(f.compare("olt", x, 0), z, 1.0) / (z + 1.0)


def quick_logistic(t: Value) -> tuple[Value, Value] | None:
    """s = 1 / (1 + 2 ** -t) and s * (1 - s), with errors of 2 ** -13 of themselves: for what is rounded to bfloat16.
    None where the CPU has no instructions for it. As in _exp_of_sixteen, the sixteenths' power is looked up."""
    f = t.f
    if not f.module.scales or t.type != _SIXTEEN:
        return None
    size, rounder = magnitude(t), _Format(t).rounder / 16
    shifted = f.constant(rounder, t.type) - size
    n = shifted - rounder
    bound, way, every = f.constant(1 / 16, t.type), f.constant(_NEARER_ZERO, "i32"), f.constant(-1, "i16")
    r = f.intrinsic("llvm.x86.avx512.mask.range.ps.512", t.type, size + n, bound, way, t, every, f.constant(4, "i32"))
    power = f.intrinsic("llvm.x86.avx512.permvar.sf.512", t.type, _sixteenths(t), bits(shifted))
    z = _scaled(power + (power * r) * (r * (LN2 * LN2 / 2) - LN2), n)
    q = f.intrinsic("llvm.x86.avx512.rcp14.ps.512", t.type, z + 1.0, t, every)
    zq = z * q
    return f.select(f.compare("olt", t, 0), zq, q), zq * q


def erf(x: Value) -> Value:
    """The error function: x * P(x * x), exactly 1 or -1 from where it is that in float: 1 + erf(-inf) is 0."""
    if element(x.type) == "double":
        return by_lanes("erf", x)
    high = 3.92
    bounded = _between(x, -high, high)
    place = bounded * bounded * (2 / high**2) - 1.0
    value = bounded * poly(place, fitted("erf(root x) / root x", 0.0, high**2, 16))
    far = x.f.compare("oge", x_call("llvm.fabs", x), high)
    return x.f.select(far, x_call("llvm.copysign", x.f.constant(1.0, x.type), x), value)


def sqrt(x: Value) -> Value:
    """The square root, rounded right."""
    return x_call("llvm.sqrt", x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return 1.0 / sqrt(x)


_PI_BY_2_REST = 6.123233995736766e-17  # pi / 2 - float64(pi / 2)
_FAR = 1e6  # from here on angles are left to the C library


def _turn(x: Value, quarter: int, name: str) -> Value:
    """sin(x + quarter * pi / 2) of a float; the angle is reduced in double."""
    f = x.f
    wide = f.convert("fpext", x, "double")
    rounder = _Format(wide).rounder
    shifted = wide * (2 / math.pi) + rounder
    n = shifted - rounder
    high = _split(math.pi / 2, 21, True)[0]
    r = f.convert("fptrunc", (wide - n * high) - n * (_PI_BY_2_REST + (math.pi / 2 - high)), "float")
    ints = vector("i32", lanes(x.type))
    k = f.convert("trunc", f.bitcast(shifted, vector("i64", lanes(x.type))), "i32") + quarter
    q = r * r
    sine = r + r * q * poly(q, [-1 / 6, 1 / 120, -1 / 5040, 1 / 362880])
    cosine = poly(q, [(-1) ** i / math.factorial(2 * i) for i in range(6)])
    value = f.select(f.compare("eq", k & 1, 0), sine, cosine)
    value = f.bitcast(f.bitcast(value, ints) ^ ((k & 2) << 30), x.type)
    if not quarter:
        value = f.select(f.compare("oeq", x, 0), x, value)
    return _except_where(f.compare("ugt", magnitude(x), _FAR), x, value, name)


def _except_where(rare: Value, x: Value, value: Value, name: str) -> Value:
    """value, but the C library's result in the lanes that are rare; it is called only if there are some."""
    f = x.f
    count = lanes(x.type)
    some = f.intrinsic(f"llvm.vector.reduce.or.{short(rare.type)}", "i1", rare) if count else rare
    place = f.variable(x.type)
    place.set(value)
    with f.when(some):
        place.set(f.select(rare, by_lanes(name, x), value))
    return place.get()


def sin(x: Value) -> Value:
    """Sine of radians."""
    return by_lanes("sin", x) if element(x.type) == "double" else _turn(x, 0, "sin")


def cos(x: Value) -> Value:
    """Cosine of radians."""
    return by_lanes("cos", x) if element(x.type) == "double" else _turn(x, 1, "cos")


def by_lanes(name: str, *args: Value) -> Value:
    """A function of the C library (its name for doubles) on each lane: right, and slow.

    Raises NoVectorCode for integers.
    """
    x = args[0]
    if not x.is_float:
        raise NoVectorCode(f"{name} of integers")
    f, kind, count = x.f, element(x.type), lanes(x.type)
    name = name if kind == "double" else name + "f"
    if not count:
        return f.intrinsic(name, kind, *args)
    result = f.constant(0, x.type)
    for lane in range(count):
        one = f.intrinsic(name, kind, *[f.extract(a, lane) for a in args])
        result = f.emit(f"insertelement {x.type} {result.name}, {kind} {one.name}, i64 {lane}", x.type)
    return result


# --- 16-bit floats ----------------------------------------------------------------------------------------------------


def widen(x: Value, kind: str, native: bool) -> Value:
    """Words of 16 bits (i16), read as `kind` (half or bfloat), as float, exactly. native: the CPU converts half itself.

    Vectors of bfloat itself are avoided: LLVM takes some of them apart into calls of functions that need not be there.
    """
    f, count = x.f, lanes(x.type)
    if kind == "half" and native:
        return f.convert("fpext", f.bitcast(x, vector(kind, count)), "float")
    words = f.convert("zext", x, "i32")
    floats = vector("float", count)
    if kind == "bfloat":
        return f.bitcast(words << 16, floats)
    number = f.bitcast((words & 0x7FFF) << 13, floats)
    scaled = f.bitcast(number * 2.0**112, vector("i32", count))
    special = f.compare("uge", words & 0x7FFF, 0x7C00)
    scaled = f.select(special, scaled | 0x7F800000, scaled)
    return f.bitcast(scaled | ((words & 0x8000) << 16), floats)


def narrow(x: Value, kind: str, native: bool) -> Value:
    """float rounded to half or bfloat, to even at ties, as i16. native: the CPU has the conversion."""
    f, count = x.f, lanes(x.type)
    if native:
        return f.bitcast(f.convert("fptrunc", x, kind), vector("i16", count))
    words = f.bitcast(x, vector("i32", count))
    nan = f.compare("uno", x, x)
    if kind == "bfloat":
        up = (words + 0x7FFF) + ((words >> 16) & 1)
        short_words = f.select(nan, (words >> 16) | 0x40, up >> 16)
        return f.convert("trunc", short_words, "i16")
    large = words & 0x7FFFFFFF
    up = (large + 0xFFF) + ((large >> 13) & 1)
    normal = (up - (112 << 23)) >> 13
    number = f.bitcast(large, vector("float", count))
    tiny = f.bitcast(number + 0.5, vector("i32", count)) - 0x3F000000  # 0.5 has half's least step as its last bit
    result = f.select(f.compare("ult", large, 0x38800000), tiny, normal)
    result = f.select(f.compare("uge", up, 0x47800000), f.select(nan, f.constant(0x7E00, words.type), 0x7C00), result)
    result = result | ((words >> 16) & 0x8000)
    return f.convert("trunc", result, "i16")


# --- what kernel rules get --------------------------------------------------------------------------------------------


class Builder:
    """A node for its `kernel` rule: `dtypes` of its operands, `dtype` of its result, `lanes`, and functions.

    Operands and results are vectors of float for 16-bit floats, of i1 for bools, else of the type itself.
    """

    exp, expm1, log, log1p = staticmethod(exp), staticmethod(expm1), staticmethod(log), staticmethod(log1p)
    tanh, sigmoid, erf = staticmethod(tanh), staticmethod(sigmoid), staticmethod(erf)
    sqrt, rsqrt, sin, cos = staticmethod(sqrt), staticmethod(rsqrt), staticmethod(sin), staticmethod(cos)
    magnitude, by_lanes = staticmethod(magnitude), staticmethod(by_lanes)
    between, quick_logistic = staticmethod(_between), staticmethod(quick_logistic)
    call = staticmethod(x_call)

    def __init__(self, f: object, lanes: int, dtypes: tuple[DType, ...], dtype: DType) -> None:
        from treadle.kernels.llvm import Function

        assert isinstance(f, Function)
        self.f, self.lanes, self.dtypes, self.dtype = f, lanes, dtypes, dtype
        self.is_exact = False  # the result is a number of `dtype` without being rounded

    @property
    def signed(self) -> bool:
        """Whether the operands are signed integers."""
        return self.dtypes[0].kind == "i"

    def type_of(self, dtype: DType) -> str:
        """LLVM's type of vectors that hold such elements while they are computed with."""
        return vector(computed(dtype), self.lanes)

    def number(self, value: float) -> Value:
        """A constant of the result's type."""
        return self.f.constant(value, self.type_of(self.dtype))

    def exact(self, value: Value) -> Value:
        """The result, when it is one of the operands or a number that needs no rounding."""
        self.is_exact = True
        return value

    def compare(self, how: str, x: Value, y: Value | float) -> Value:
        """how: eq, ne, lt, le, gt, ge, with IEEE's rules for NaN."""
        if x.is_float:
            return x.f.compare("une" if how == "ne" else f"o{how}", x, y)
        return x.f.compare(how if how in ("eq", "ne") else ("s" if self.signed else "u") + how, x, y)

    def select(self, condition: Value, x: Value | float, y: Value | float) -> Value:
        """x where the condition holds."""
        return self.f.select(condition, x, y)

    def larger(self, x: Value, y: Value) -> Value:
        """The larger one; NaN if one is, 0.0 above -0.0 unless it is a constant."""
        if x.is_float and y.name == literal(0, y.type):  # one instruction; with the rule for zeros it would be three
            return self.exact(self.select(self.compare("lt", x, y), y, x))
        return self.exact(x_call("llvm.maximum", x, y) if x.is_float else self.select(self.compare("gt", x, y), x, y))

    def smaller(self, x: Value, y: Value) -> Value:
        """The smaller one; NaN if one is, -0.0 below 0.0."""
        return self.exact(x_call("llvm.minimum", x, y) if x.is_float else self.select(self.compare("lt", x, y), x, y))

    def whole_division(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Quotient, cut toward zero, and rest of integers; both 0 where y is."""
        zero, f = self.compare("eq", y, 0), self.f
        if not self.signed:
            by = self.select(zero, 1, y)
            return self.select(zero, 0, x // by), self.select(zero, 0, x % by)
        turned = self.compare("eq", y, -1)
        by = self.select(zero | turned, 1, y)
        rest = f.emit(f"srem {x.type} {x.name}, {by.name}", x.type)
        return self.select(zero, 0, self.select(turned, -x, x / by)), self.select(zero, 0, rest)

    def shift(self, way: str, x: Value, y: Value) -> Value:
        """shl, lshr or ashr by any number of places: past the width (or below 0) all bits are moved out."""
        width = self.dtype.bits
        inside = x.f.compare("ult", y, width)
        last = self.select(inside, y, width - 1 if way == "ashr" else 0)
        moved = x.f.emit(f"{way} {x.type} {x.name}, {last.name}", x.type)
        return moved if way == "ashr" else self.select(inside, moved, 0)

    def bits_as(self, x: Value, dtype: DType) -> Value:
        """The bits as another type of the same width. Raises NoVectorCode for 16-bit floats."""
        if any(t.is_float and t.bits == 16 for t in (dtype, self.dtypes[0])):
            raise NoVectorCode("bits of 16-bit floats")
        return x.f.bitcast(x, self.type_of(dtype))

    def convert(self, x: Value, source: DType, target: DType) -> Value:
        """x of one type as another, by the rules of the op `cast`. Raises NoVectorCode for 64 to 16 bits."""
        if source.bits == 64 and source.is_float and target.is_float and target.bits == 16:
            raise NoVectorCode("float64 rounded to 16 bits")
        have, want, f = computed(source), computed(target), x.f
        if target.kind == "b":
            return x if source.kind == "b" else f.compare("une" if x.is_float else "ne", x, 0)
        if want in FLOATS:
            if have in FLOATS:
                return x if have == want else f.convert("fpext" if want == "double" else "fptrunc", x, want)
            return f.convert("sitofp" if source.kind == "i" else "uitofp", x, want)
        if have in FLOATS:
            type, way = vector(want, lanes(x.type)), "si" if target.kind == "i" else "ui"
            return f.intrinsic(f"llvm.fpto{way}.sat.{short(type)}.{short(x.type)}", type, x)
        if target.bits == source.bits:
            return x
        if target.bits < source.bits:
            return f.convert("trunc", x, want)
        return f.convert("sext" if source.kind == "i" else "zext", x, want)


def computed(dtype: DType) -> str:
    """LLVM's type of an element while it is computed with. Raises KeyError for complex numbers."""
    if dtype.kind == "f":
        return "double" if dtype.bits == 64 else "float"
    return {"b": "i1", "i": f"i{dtype.bits}", "u": f"i{dtype.bits}"}[dtype.kind]


def stored(dtype: DType) -> str:
    """LLVM's type of an element in memory; i16 for 16-bit floats. Raises KeyError for complex numbers."""
    if dtype.kind == "f" and dtype.bits == 16:
        return "i16"
    return "i8" if dtype.kind == "b" else computed(dtype)


def half_kind(dtype: DType) -> str:
    """LLVM's name of a 16-bit float type."""
    return "bfloat" if dtype.short == "bf16" else "half"
