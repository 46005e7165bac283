"""Functions and classes of another module, as a helper library would have them."""

import functools


def clip(x, low=-1.0, high=1.0):
    """x between two limits, by branches."""
    if x < low:
        return low + x * 0
    return high + x * 0 if x > high else x


def halve_until(x, limit=1.0):
    """Halved until it is below the limit."""
    while x > limit:
        x = x / 2
    return x


def traced(function):
    """A decorator that counts calls."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        call.count += 1
        return function(*args, **kwargs)

    call.count = 0
    return call


class Limiter:
    """An object with a limit."""

    def __init__(self, limit):
        self.limit = limit

    def __call__(self, x):
        return x if x < self.limit else self.limit + x * 0
