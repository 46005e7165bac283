"""Small modules that the tests of the IR share."""

from treadle import ops
from treadle.base import where
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import TensorType, f64


def square_sum(x):
    return ops.reduce_sum(x * x, axes=(0,))


def with_call() -> Module:
    """main(x) = sum(x * x) + tanh(x)[0 sum], the square by a call."""
    callee = build.trace(lambda x: x * x, [f64[3]], "square")

    def main(x):
        (y,) = ops.call(x, callee="square", results=(f64[3],))
        with where.scope("net"), where.scope("last"):
            return ops.reduce_sum(ops.tanh(y) + x, axes=(0,)), y

    return Module.of(build.trace(main, [f64[3]], "main"), {"square": callee})


def recursive() -> Module:
    """A module whose functions call each other in a circle."""
    types: tuple[TensorType, ...] = (f64[2],)
    main = build.trace(lambda x: ops.call(x, callee="even", results=types), types, "main")
    even = build.trace(lambda x: ops.call(x, callee="odd", results=types), types, "even")
    odd = build.trace(lambda x: ops.call(x, callee="even", results=types), types, "odd")
    return Module.of(main, {"even": even, "odd": odd})


def with_regions() -> Module:
    """main(p, x) = x * x if p else -x."""
    then = build.trace(lambda x: x * x, [f64[3]], "then")
    orelse = build.trace(lambda x: -x, [f64[3]], "orelse")

    def main(p, x):
        return ops.if_(ops.less(p, 0.0), x, then=then, orelse=orelse)

    return Module.of(build.trace(main, [f64[()], f64[3]], "main"))
