"""What the functions of the corpus use: functions and calls."""

import functools

from tests.pysrc import helpers

PAIRS = ((2.0,), (-3.0,), (0.5,))
SCALE = 3.0
COUNTER = 0
SOURCE = """
def from_exec(x):
    if x.ndim == 0:
        return x * 2
    return x
"""


def double_if_positive(x):
    if x > 0:
        return x * 2
    return x


def apply(f, x):
    return f(x) + 1


def twice(f):
    return lambda x: f(f(x))


def bracket(low, high=10.0, *more, step=1, **options):
    total = low + high * step
    for m in more:
        total = total + m
    return total + sum(options.values())


@helpers.traced
def decorated_outside_helper(x):
    if x > 0:
        return x * 2
    return x - 1


@functools.lru_cache(maxsize=4)
def cached_number(k):
    return k * 2 if k > 1 else k


def power(x, n):
    if n == 0:
        return x * 0 + 1
    half = power(x, n // 2)
    if n % 2:
        return half * half * x
    return half * half


def even(x, n):
    return x if n == 0 else odd(x * 2, n - 1)


def odd(x, n):
    return -x if n == 0 else even(x + 1, n - 1)
