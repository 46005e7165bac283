"""Functions of complex numbers that the ops have for real ones only, made of real ops, so that derivatives pass.

`both(real, complex)` chooses by the type of the argument. Branch cuts and signs of zeros follow C99.
Source: W. Kahan, "Branch cuts for complex elementary functions", 1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from treadle.frontend import functions as td
from treadle.frontend.lift import lift
from treadle.ops.complex import make_complex

Function = Callable[..., Any]


def is_complex(x: Any) -> bool:
    """Whether x is an array of complex numbers."""
    return bool(lift(x).dtype.kind == "c")


def both(of_real: Function, of_complex: Function) -> Function:
    """The function of real arrays, and for complex ones that of (real part, imaginary part)."""

    def function(x: Any) -> Any:
        return of_complex(td.real(x), td.imag(x)) if is_complex(x) else of_real(x)

    function.__doc__ = of_real.__doc__
    return function


def _turned(f: Function) -> Function:
    """-i f(i z): sin of sinh, atan of atanh and so on."""

    def function(x: Any, y: Any) -> Any:
        out = f(make_complex(-y, x))
        return make_complex(td.imag(out), -td.real(out))

    return function


def _root(x: Any, y: Any) -> tuple[Any, Any]:
    """Real and imaginary part of the square root of x + i y, without overflow."""
    right, far = x >= 0, td.isinf(y)
    size = 2 * td.sqrt(td.where(right, x, -x) / 8 + td.hypot(x / 8, y / 8))
    other, side = y / td.where(size == 0, 1, 2 * size), _side(y)
    re, im = td.where(right, size, other * side), td.where(right, other, size * side)
    return td.where(far, math.inf, re), td.where(far, y, im)


def _side(x: Any) -> Any:
    """1 or -1, the sign of x, that of a zero too. x * _side(x) has a derivative at 0, where abs(x) has 0."""
    return td.copysign(1, x)


def _times(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _conj(a: tuple[Any, Any]) -> tuple[Any, Any]:
    return a[0], -a[1]


def _sqrt(x: Any, y: Any) -> Any:
    return make_complex(*_root(x, y))


def _far(x: Any, y: Any) -> Any:
    return td.logical_or(td.isinf(x), td.isinf(y))


def _corner(x: Any) -> Any:
    """x seen from far away: infinities as 1, finite numbers as 0, with their signs."""
    return td.where(td.isnan(x), x, td.copysign(td.where(td.isinf(x), 1, 0), x))


def _lost(x: Any, y: Any) -> Any:
    """On the imaginary axis, y being NaN: there one part is known."""
    return td.logical_and(x == 0, td.isnan(y))


def _asin(x: Any, y: Any) -> Any:
    below, above = _root(1 - x, -y), _root(1 + x, y)
    far = _far(x, y)
    re = td.where(_lost(x, y), x, td.atan2(x, _times(below, above)[0]))
    im = td.asinh(_times(_conj(below), above)[1])
    re = td.where(far, td.atan2(_corner(x), td.abs(_corner(y))), re)
    return make_complex(re, td.where(far, td.copysign(math.inf, y), im))


def _acos(x: Any, y: Any) -> Any:
    below, above = _root(1 - x, -y), _root(1 + x, y)
    far = _far(x, y)
    re = td.where(_lost(x, y), math.pi / 2, 2 * td.atan2(below[0], above[0]))
    im = td.asinh(_times(_conj(above), below)[1])
    re = td.where(far, td.atan2(td.abs(_corner(y)), _corner(x)), re)
    return make_complex(re, td.where(far, -td.copysign(math.inf, y), im))


def _acosh(x: Any, y: Any) -> Any:
    angle = _acos(x, y)
    side = _side(y)
    size = td.where(_far(x, y), math.inf, -td.imag(angle) * side)
    return make_complex(size, td.real(angle) * side)


def _atanh(x: Any, y: Any) -> Any:
    side, far = _side(x), _far(x, y)
    size = x * side
    gap, sum = td.hypot(1 - size, y), td.hypot(1 + size, y)
    near = gap < 0.1  # there the square of the gap may vanish
    close = (td.log(sum) - td.log(td.where(near, gap, 1))) / 2
    gap = td.where(near, 1, gap)
    re = td.where(near, close, td.log1p(4 * size / gap / gap) / 4) * side
    re = td.where(far, td.copysign(0, x), td.where(_lost(x, y), x, re))
    im = td.atan2(y, ((1 - x) * (1 + x) - y * y) / 2) / 2
    edge = td.where(td.isnan(y), y, td.copysign(math.pi / 2, y))
    return make_complex(re, td.where(far, edge, im))


def _expm1(x: Any, y: Any) -> Any:
    half, grown = td.sin(y / 2), td.exp(x)
    low, high = _open(x, y, x == -math.inf), _open(x, y, x == math.inf)
    re = td.expm1(x) * td.cos(y) - 2 * half * half
    re = re + td.stop_gradient(td.where(re == 0, td.abs(re), 0))  # -0.0 becomes 0.0
    im = td.where(td.logical_and(y == 0, td.logical_not(td.isfinite(grown))), y, grown * td.sin(y))
    return make_complex(td.where(low, -1, td.where(high, math.inf, re)), td.where(low, 0, im))


def _open(x: Any, y: Any, test: Any) -> Any:
    """Where the test of x holds and y is no finite number: there compilers give NaN for what C99 knows."""
    return td.logical_and(test, td.logical_not(td.isfinite(y)))


def _abs(x: Any, y: Any) -> Any:
    return td.where(_far(x, y), math.inf, td.abs(make_complex(x, y)))


def _exp(x: Any, y: Any) -> Any:
    out = td.exp(make_complex(x, y))
    low, high = _open(x, y, x == -math.inf), _open(x, y, x == math.inf)
    re = td.where(low, 0, td.where(high, math.inf, td.real(out)))
    return make_complex(re, td.where(low, 0, td.imag(out)))


def _log(x: Any, y: Any) -> Any:
    out = td.log(make_complex(x, y))
    return make_complex(td.where(_far(x, y), math.inf, td.real(out)), td.imag(out))


def _sinh(x: Any, y: Any) -> Any:
    out = td.sinh(make_complex(x, y))
    edge = _open(x, y, td.logical_or(x == 0, td.isinf(x)))
    return make_complex(td.where(edge, x, td.real(out)), td.imag(out))


def _cosh(x: Any, y: Any) -> Any:
    out = td.cosh(make_complex(x, y))
    re = td.where(_open(x, y, td.isinf(x)), math.inf, td.real(out))
    return make_complex(re, td.where(_open(x, y, x == 0), 0, td.imag(out)))


def _tanh(x: Any, y: Any) -> Any:
    out = td.tanh(make_complex(x, y))
    edge = td.logical_and(td.isinf(x), td.isfinite(y))
    re = td.where(_open(x, y, x == 0), x, td.real(out))
    return make_complex(re, td.where(edge, td.copysign(0, y), td.imag(out)))


def _log1p(x: Any, y: Any) -> Any:
    near = td.hypot(x, y) < 0.5
    small = td.log1p(td.where(near, x * (2 + x) + y * y, 0)) / 2
    return make_complex(td.where(near, small, td.log(td.hypot(1 + x, y))), td.atan2(y, 1 + x))


def _real_sign(x: Any) -> Any:
    """The sign of each number: -1, 0 (also of -0.0) or 1; of a complex one x / abs(x), 0 at 0."""
    return td.where(td.equal(x, 0), 0, td.sign(x))


def _sign(x: Any, y: Any) -> Any:
    size = td.hypot(x, y)
    nothing = size == 0
    size = td.where(nothing, 1, size)
    return make_complex(*[td.where(nothing, 0, part / size) for part in (x, y)])


abs, sqrt, sign = (
    both(td.abs, _abs),
    both(td.sqrt, _sqrt),
    both(lambda x: td.where(td.equal(x, 0), 0, td.sign(x)), _sign),
)
exp, log = both(td.exp, _exp), both(td.log, _log)
sinh, cosh, tanh = both(td.sinh, _sinh), both(td.cosh, _cosh), both(td.tanh, _tanh)
asin, acos, acosh, atanh = both(td.asin, _asin), both(td.acos, _acos), both(td.acosh, _acosh), both(td.atanh, _atanh)
asinh, atan = both(td.asinh, _turned(asin)), both(td.atan, _turned(atanh))
sin, tan = both(td.sin, _turned(sinh)), both(td.tan, _turned(tanh))
cos = both(td.cos, lambda x, y: cosh(make_complex(-y, x)))
expm1, log1p = both(td.expm1, _expm1), both(td.log1p, _log1p)
round = both(td.round, lambda x, y: make_complex(td.round(x), td.round(y)))
isfinite = both(td.isfinite, lambda x, y: td.logical_and(td.isfinite(x), td.isfinite(y)))
isnan = both(td.isnan, lambda x, y: td.logical_or(td.isnan(x), td.isnan(y)))
isinf = both(td.isinf, lambda x, y: td.logical_or(td.isinf(x), td.isinf(y)))
