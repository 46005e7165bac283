"""`td.check_shapes`: what fits passes, what does not is told with the sizes that the names have."""

from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.base.errors import UserError


def ones(*shape: int, dtype: Any = np.float32) -> Any:
    return td.tensor(np.ones(shape, dtype))


@td.check_shapes("batch d, d k -> batch k")
def project(x, w):
    return x @ w


MODES = [lambda f: f, td.jit]


@pytest.mark.parametrize("wrap", MODES)
def test_names_have_one_size_within_a_call(wrap):
    f = wrap(project)
    assert f(ones(2, 3), ones(3, 4)).shape == (2, 4)
    assert f(ones(5, 1), ones(1, 1)).shape == (5, 1)
    with pytest.raises(UserError, match=r"E0230 project: w is f32\[4,4\], declared 'd k' with d = 3: d is 4"):
        f(ones(2, 3), ones(4, 4))
    with pytest.raises(UserError, match=r"E0230 project: x is f32\[3\], declared 'batch d': 1 axes, not 2"):
        f(ones(3), ones(3, 4))


def test_the_line_is_the_callers_and_for_results_the_functions():
    with pytest.raises(UserError) as caught:
        project(ones(2), ones(2, 2))  # the call
    assert "# the call" in caught.value.where.source_line()

    @td.check_shapes("n -> n m")
    def wrong(x):
        return x

    with pytest.raises(UserError, match="E0230 wrong: the result is") as caught:
        wrong(ones(2))
    assert caught.value.where.source_line() == '@td.check_shapes("n -> n m")'


FITS = [
    ("a b", (2, 3)),
    ("2 3", (2, 3)),
    ("_ _", (2, 3)),
    ("a a", (3, 3)),
    ("...", ()),
    ("... a", (1, 2, 3)),
    ("a ... b", (1, 2)),
    ("*lead d", (4, 5, 6)),
    ("*lead", ()),
    ("()", ()),
    ("float32[a]", (2,)),
    ("f32[...]", (2, 1)),
    ("float[()]", ()),
    ("float[]", ()),
]
REFUSED = [
    ("a b", (2,), "1 axes, not 2"),
    ("2 4", (2, 3), "3 where 4 is declared"),
    ("a a", (2, 3), "a is 3"),
    ("a ... b", (1,), "1 axes, not 2 or more"),
    ("()", (1,), "1 axes, not 0"),
]


@pytest.mark.parametrize("spec, shape", FITS)
def test_what_fits(spec, shape):
    td.check_shapes(ones(*shape), spec)


@pytest.mark.parametrize("spec, shape, why", REFUSED)
def test_what_does_not(spec, shape, why):
    with pytest.raises(UserError, match=f"E0230 the tensor is .*: {why}"):
        td.check_shapes(ones(*shape), spec)


def test_sizes_are_returned_and_taken():
    sizes = td.check_shapes(ones(2, 3, 4), "batch *rest")
    assert sizes == {"batch": 2, "rest": (3, 4)}
    td.check_shapes(ones(2, 5), "batch n", batch=2)
    with pytest.raises(UserError, match="with batch = 7: batch is 2"):
        td.check_shapes(ones(2, 5), "batch n", batch=7)
    with pytest.raises(UserError, match=r"with rest = \[3, 4\]"):
        td.check_shapes(ones(3, 5), "*rest", **sizes)


def test_a_check_inside_knows_the_names_of_the_call():
    @td.check_shapes("batch d")
    def inner(x, bad):
        td.check_shapes(x * 2, "batch d")
        td.check_shapes(ones(x.shape[0], 7), "batch hidden")
        td.check_shapes(ones(8 if bad else 7), "hidden")
        return x

    inner(ones(2, 3), False)
    with pytest.raises(UserError, match="hidden = 7: hidden is 8"):
        inner(ones(2, 3), True)
    td.check_shapes(ones(9), "hidden")  # the call is over


def test_element_types():
    with pytest.raises(UserError, match=r"E0231 the tensor is f32\[2\], declared int"):
        td.check_shapes(ones(2), "int[n]")
    with pytest.raises(UserError, match=r"E0231 the tensor is f64\[2\], declared float32"):
        td.check_shapes(ones(2, dtype=np.float64), "float32[n]")
    td.check_shapes(ones(2, dtype=np.uint8), "int[n]")
    td.check_shapes(np.ones(3), "float64[n]")


def test_kinds_of_arguments():
    @td.check_shapes("n, -, n -> (), n")
    def mixed(x, how, y=None, *, scale=1.0):
        return x.sum() * scale, x

    mixed(ones(3), "fast")
    mixed(ones(3), how="fast", y=ones(3), scale=2.0)
    with pytest.raises(UserError, match="y is f32"):
        mixed(ones(3), "fast", y=ones(4))
    with pytest.raises(UserError, match="E0230 mixed: x is 'text' of type str, not a tensor"):
        mixed("text", "fast")
    with pytest.raises(TypeError, match="missing"):
        mixed()

    class Net(td.Cell):
        @td.check_shapes("batch 3 -> batch 3")
        def forward(self, x):
            return x

    assert td.jit(Net())(ones(2, 3)).shape == (2, 3)
    with pytest.raises(UserError, match="4 where 3 is declared"):
        Net()(ones(2, 4))

    @td.check_shapes("n, n")
    def many(*xs):
        return len(xs)

    assert many(ones(2), ones(2)) == 2
    with pytest.raises(UserError, match=r"xs\[1\] is f32"):
        many(ones(2), ones(3))


@pytest.mark.parametrize("spec", ["a; b", "a-b", "... ...", "*a *b", "float23[a]", "a,,b", ""])
def test_texts_that_cannot_be_read(spec):
    with pytest.raises(UserError, match="E0232"):
        td.check_shapes(ones(2), spec)


def test_declarations_that_do_not_fit_the_function():
    with pytest.raises(UserError, match=r"E0232 .* describes 2 arguments, f has 1"):

        @td.check_shapes("a, b")
        def f(x):
            return x

    @td.check_shapes("a -> a, a")
    def g(x):
        return x

    with pytest.raises(UserError, match="E0230 g: 1 results, declared 2"):
        g(ones(2))
    with pytest.raises(UserError, match="E0232"):
        td.check_shapes(3)
