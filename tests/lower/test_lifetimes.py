"""Kernels take an operand's memory where nobody needs it any more, and only there: XLA then copies nothing."""

import re

import pytest

import treadle as td
from treadle.ir import build
from treadle.ir.types import f32
from treadle.kernels import target
from treadle.lower.lifetimes import Lifetimes
from treadle.ops.functions import exp, tanh
from treadle.ops.norm import softmax
from treadle.ops.shape import reshape

needs_kernels = pytest.mark.skipif(not target.available(), reason="kernels need llvmlite")


def ends(function, *types, ending=()):
    fn = build.trace(function, types)
    lifetimes = Lifetimes(fn, ending)
    return [sorted(lifetimes.ending_at(n)) for n in fn.nodes]


def test_a_value_ends_with_its_last_reader():
    t = f32[2, 3]
    assert ends(lambda x: exp(tanh(x)), t) == [[], [0]]
    assert ends(lambda x: exp(tanh(x)), t, ending={0}) == [[0], [0]]
    assert ends(lambda x: (tanh(x), x), t, ending={0}) == [[]]

    def read_twice(x):
        y = tanh(x)
        return exp(y), y * y

    assert ends(read_twice, t) == [[], [], []]


def test_an_earlier_reader_must_come_before_by_its_data():
    t = f32[2, 3]

    def ordered(x):
        y = tanh(x)
        return y * exp(y)

    assert ends(ordered, t) == [[], [], [0, 1]]

    def side_by_side(x):
        y = tanh(x)
        return exp(y), tanh(y)

    assert ends(side_by_side, t) == [[], [], []]


def test_a_reshaped_value_is_the_same_memory():
    t = f32[2, 3]

    def reshaped(x):
        y = tanh(x)
        return exp(reshape(y, shape=(6,))), y

    assert ends(reshaped, t)[-1] == []
    assert ends(lambda x: exp(reshape(tanh(x), shape=(6,))), t)[-1] == [0]


def copies(function, *args):
    """Sizes of the copies in the compiled program, which calls kernels."""
    step = td.jit(function)
    step(*args)
    (program,) = step.programs()
    text = program.executable.hlo_text()
    assert "treadle." in text
    return re.findall(r"= f32\[([\d,]+)\]\S* copy\(", text)


@needs_kernels
def test_a_program_does_not_copy_its_operands():
    x = td.ones((512, 1024))
    assert copies(lambda x: softmax(x, axis=1), x) == []
    assert copies(lambda x: softmax(softmax(x, axis=1), axis=1), x) == []
    scan = copies(lambda x: td.scan(lambda s, _: (softmax(s, axis=1), s[0, 0]), x, td.zeros((3,)))[0], x)
    assert len(scan) <= 1  # the operand, into the memory of the loop's state
