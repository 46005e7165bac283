"""Special functions of each element as NumPy and PyTorch users know them, beside those of `elementwise`.

Tensors, arrays and Python numbers come in, tensors go out. Integers count as float32; gcd and lcm take them only.
"""

from __future__ import annotations

from typing import Any

from treadle.frontend.elementwise import of_float_pairs, of_floats, of_pairs
from treadle.frontend.lift import floating
from treadle.ops import arithmetic, special, trigonometry

arcsinh, arccosh, arctanh = (of_floats(f) for f in (trigonometry.asinh, trigonometry.acosh, trigonometry.atanh))
exp2, sinc, erfc = of_floats(trigonometry.exp2), of_floats(trigonometry.sinc), of_floats(special.erfc)
lgamma, digamma = of_floats(special.lgamma), of_floats(special.digamma)
i0e, i1e = of_floats(special.bessel_i0e), of_floats(special.bessel_i1e)
hypot, logaddexp = of_float_pairs(trigonometry.hypot), of_float_pairs(trigonometry.logaddexp)
copysign, nextafter = of_float_pairs(arithmetic.copysign), of_float_pairs(arithmetic.nextafter)
gcd, lcm = of_pairs(arithmetic.gcd), of_pairs(arithmetic.lcm)


def polygamma(n: int, x: Any) -> Any:
    """The derivative of digamma of order n, 0 to 100, of each element of x. Raises E0128 for another n."""
    return special.polygamma(floating(x), order=n) if n else digamma(x)
