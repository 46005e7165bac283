"""Functions of each pair of elements of two arrays, of which one may be a Python number, under the standard's names."""

from __future__ import annotations

from treadle.array._types import two
from treadle.frontend import functions as td

add, subtract = two(td.add, "add"), two(td.subtract, "subtract")
multiply, divide = two(td.multiply, "multiply"), two(td.divide, "divide")
floor_divide, remainder = two(td.floor_divide, "floor_divide"), two(td.remainder, "remainder")
pow, atan2, hypot = two(td.pow, "pow"), two(td.atan2, "atan2"), two(td.hypot, "hypot")
logaddexp, copysign = two(td.logaddexp, "logaddexp"), two(td.copysign, "copysign")
nextafter = two(td.nextafter, "nextafter")
maximum, minimum = two(td.maximum, "maximum"), two(td.minimum, "minimum")
equal, not_equal = two(td.equal, "equal"), two(td.not_equal, "not_equal")
less, less_equal = two(td.less, "less"), two(td.less_equal, "less_equal")
greater, greater_equal = two(td.greater, "greater"), two(td.greater_equal, "greater_equal")
logical_and, logical_or = two(td.logical_and, "logical_and"), two(td.logical_or, "logical_or")
logical_xor, bitwise_and = two(td.logical_xor, "logical_xor"), two(td.bitwise_and, "bitwise_and")
bitwise_or, bitwise_xor = two(td.bitwise_or, "bitwise_or"), two(td.bitwise_xor, "bitwise_xor")
bitwise_left_shift = two(td.bitwise_left_shift, "bitwise_left_shift")
bitwise_right_shift = two(td.bitwise_right_shift, "bitwise_right_shift")
