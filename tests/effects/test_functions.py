"""`debug_print`, `debug_check`, `callback`, `pure_callback`, and the hooks of the source front end: as eager mode."""

import io

import numpy as np
import pytest
from tests.effects.support import Log, printed

import treadle as td
from treadle import UserError, driver
from treadle.api.effects import check, fail, show
from treadle.frontend import trace as tracing
from treadle.frontend.pysrc.builtin import Text

X = td.tensor([1.0, 2.5, -3.0])


def both(function, *args):
    """What an eager call prints and gives; the same must come from two calls of the compiled function."""
    wanted = printed(function, *args)
    compiled = td.jit(function)
    assert printed(compiled, *args) == wanted
    assert printed(compiled, *args) == wanted
    return wanted


def text(*parts):
    """An f-string, as the source front end makes it."""
    if tracing.current() is not None:
        return Text(parts)
    return "".join([p if isinstance(p, str) else format(repr(p[0]) if p[1] == 114 else p[0], p[2]) for p in parts])


# --- printing ---------------------------------------------------------------------------------------------------------


def test_debug_print():
    def function(x, rate):
        td.debug_print("x is {}, {:.3f} {name!r} {k[0]}", x, x.sum(), name="a", k=[x, 2])
        td.debug_print("rate {} {:.1e}", rate, rate)
        td.debug_print("no tensor {}", 3)
        return x

    found, _ = both(function, X, 0.001)
    assert "0.001 1.0e-03" in found
    assert "Tensor([ 1. ,  2.5, -3. ], dtype=float32), 0.500 'a'" in found


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64", "complex64"])
def test_all_dtypes(dtype):
    x = td.ones((2, 2)).astype(dtype)
    assert dtype in both(lambda x: show([x, x[0, 0]]), x)[0]


def test_a_text_that_does_not_fit():
    found = both(lambda x: td.debug_print("{} {}", x), X)
    assert "IndexError" in found[1]
    with pytest.raises(UserError, match="E0234"):
        td.debug_print(X)


def test_show_is_print():
    def function(x):
        show(["a", x, 3, None, [x, 2.5, "b"], {"k": (x[0], x)}], sep=" | ", end="!\n")
        show([])
        show([x], flush=True)
        show([np.arange(2), "text", x.sum()])

    found, _ = both(function, X)
    assert found.startswith("a | Tensor([")
    assert "'b']" in found
    assert found.count("\n") == 4


def test_show_to_a_file():
    file = io.StringIO()
    both(lambda x: show(["to", x], file=file), X)
    assert file.getvalue() == "to Tensor([ 1. ,  2.5, -3. ], dtype=float32)\n" * 3


def test_templates():
    def function(x, rate):
        width = 12
        show([text("sum=", (x.sum(), -1, ".2f"), ";", (x, ord("r"), ""), (x.shape, -1, "")), 5])
        show([text((x.sum(), -1, text((width, -1, ""), ".3f")), "<")])
        show([text("rate ", (rate, -1, ""), " ", (rate, -1, ".1%"))])

    found, _ = both(function, X, 0.25)
    assert "sum=0.50;Tensor([" in found
    assert "       0.500<" in found
    assert "rate 0.25 25.0%" in found


def test_what_is_shown_is_as_it_was():
    """An object shown beside a tensor is shown as it was at that place, not at the end of the trace."""

    def function(x):
        names = ["a"]
        show([x.sum(), names])
        names.append("b")
        show([x.sum(), names])

    assert "['a']\n" in both(function, X)[0]


def test_parameters_and_state():
    p = td.Parameter(td.tensor([1.0, 2.0]))

    def step():
        show(["before", p])
        p.assign(p + 1)
        show(["after", p])

    compiled = td.jit(step)
    assert printed(step)[0] == ("before Parameter([1., 2.], dtype=float32)\nafter Parameter([2., 3.], dtype=float32)\n")
    assert printed(compiled)[0] == (
        "before Parameter([2., 3.], dtype=float32)\nafter Parameter([3., 4.], dtype=float32)\n"
    )
    assert p.tolist() == [3.0, 4.0]


def test_dataclasses_with_tensors():
    import dataclasses

    @dataclasses.dataclass
    class Point:
        x: td.Tensor
        name: str

        def __str__(self):
            return f"<{self.name.upper()}: {self.x.sum().item()}>"

    assert both(lambda x: show([Point(x, "p")]), X)[0] == "<P: 0.5>\n"


# --- checks -----------------------------------------------------------------------------------------------------------


def test_debug_check():
    def function(x):
        td.debug_check(x > -5, "too small: {:.1f} of {}", x.min(), x)
        td.debug_check((x < 100).all(), error=ValueError)
        td.debug_check(True, "never")
        return x + 1

    assert both(function, X)[1].startswith("Tensor(")
    assert both(function, X * 2)[1].startswith("AssertionError('too small: -6.0 of Tensor(")
    assert both(function, td.tensor([1.0, 200.0]))[1] == "ValueError()"
    with pytest.raises(UserError, match="E0234"):
        td.debug_check(True, "a", error=3)


def test_a_plain_false_in_a_branch_not_taken():
    def function(x):
        return td.cond(x > 0, lambda: (td.debug_check(False, "taken"), x)[1], lambda: -x)

    assert both(function, td.tensor(-1.0))[1].startswith("Tensor(1.")
    assert both(function, td.tensor(1.0))[1] == "AssertionError('taken')"


def test_check_takes_the_values_of_the_message():
    def function(x):
        check((x > 0).all(), lambda: AssertionError(text("bad ", (x, -1, ""), ", sum ", (x.sum(), -1, ".3f"))))
        check(x.sum() < 10, lambda: KeyError(x.sum(), "key"))
        check(x.sum() < 9, lambda: OverflowError)
        return x

    assert both(function, X)[1].startswith("AssertionError('bad Tensor(")
    assert both(function, td.tensor([20.0]))[1] == "KeyError(Tensor(20., dtype=float32), 'key')"
    assert both(function, td.tensor([9.5]))[1] == "OverflowError()"


def test_exceptions_with_their_own_constructor():
    class BadValueError(Exception):
        def __init__(self, value, *, limit):
            super().__init__(f"over {limit}")
            self.value, self.limit = value, limit

    def function(x):
        check(x < 3, lambda: BadValueError(x, limit=3))
        return x

    for run in (function, td.jit(function)):
        with pytest.raises(BadValueError, match="over 3") as caught:
            run(td.tensor(4.0))
        assert (caught.value.value.item(), caught.value.limit) == (4.0, 3)


def test_a_branch_that_fails():
    """It acts before it raises, and the message may hold what was computed in it."""

    def function(x):
        def branch():
            y = x * 2
            show(["failing", y])
            raise KeyError(text("twice ", (y, -1, ".1f")), y)

        if tracing.current() is not None:
            fail(x > 3, branch)
        elif x > 3:
            branch()
        show(["fine"])
        return x

    assert both(function, td.tensor(1.0))[0] == "fine\n"
    found, error = both(function, td.tensor(4.0))
    assert found == "failing Tensor(8., dtype=float32)\n"
    assert error == "KeyError('twice 8.0', Tensor(8., dtype=float32))"


def test_a_check_that_holds_does_not_call_python():
    """Only a false condition leaves the program."""
    made = []

    class Error(Exception):
        def __init__(self, *args):
            made.append(args)

    compiled = td.jit(lambda x: (td.debug_check(x > 0, "{}", x, error=Error), x)[1])
    compiled(td.tensor(1.0))
    assert not made
    with pytest.raises(Error):
        compiled(td.tensor(-1.0))


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_callback_gets_tensors_and_the_rest_as_it_is():
    seen = []
    other = object()

    def function(x, rate):
        td.callback(lambda *a, **k: seen.append((a, k)), x, [x[0], other], rate, key={"x": x})

    for run in (function, td.jit(function)):
        run(X, 0.5)
        (x, (first, same), rate), kwargs = seen.pop()
        assert isinstance(x, td.Tensor)
        assert x.tolist() == kwargs["key"]["x"].tolist() == X.tolist()
        assert (first.item(), rate) == (1.0, 0.5)
        assert type(rate) is float
        assert same is other


def test_what_a_callback_keeps_stays():
    """The arrays are its own: XLA uses its memory again."""
    kept = []
    compiled = td.jit(lambda x: (td.callback(kept.append, x * 2), x @ x)[1])
    for i in range(4):
        compiled(td.ones((64, 64)) * i)
    assert [t[0, 0].item() for t in kept] == [0.0, 2.0, 4.0, 6.0]


def test_pure_callback():
    def function(x):
        a, rest = td.pure_callback(lambda t: (t.numpy()[::-1].copy(), {"n": t.sum()}), (x, {"n": x.sum()}), x)
        return a * 2, rest["n"]

    assert both(function, X)[1].startswith("(Tensor([-6.")
    assert td.jit(lambda: td.pure_callback(lambda: np.float32(3), np.float32(0)))().item() == 3.0
    assert td.pure_callback(lambda: np.float32(3), np.float32(0)).item() == 3.0


def test_pure_callback_says_what_is_wrong():
    def wrong_type(x):
        return td.pure_callback(lambda t: t.numpy().astype(np.float64), x, x)

    def wrong_container(x):
        return td.pure_callback(lambda t: [t], x, x)

    for function in (wrong_type, wrong_container):
        for run in (function, td.jit(function)):
            with pytest.raises(UserError, match="E0178"):
                run(X)
    with pytest.raises(UserError, match="E0234"):
        td.pure_callback(lambda x: x, 3, X)
    for run in (td.grad(lambda x: wrong_type(x).sum()), td.jit(td.grad(lambda x: wrong_type(x).sum()))):
        with pytest.raises(UserError, match=r"E0303|E0178"):
            run(X)
    with pytest.raises(UserError, match="E0303"):
        td.grad(lambda x: td.pure_callback(lambda t: t, x, x).sum())(X)


def test_pure_callback_is_left_out_and_batched():
    log = Log()

    def twice(x):
        log.entries.append(x.tolist())
        return x * 2

    assert log.of(td.jit(lambda x: (td.pure_callback(twice, x, x), x)[1]), X) == []
    lanes = td.vmap(lambda x: td.pure_callback(twice, x, x))
    assert lanes(X).tolist() == td.jit(lanes)(X).tolist() == [2.0, 5.0, -6.0]


def test_constants_do_not_call_at_compile_time():
    calls = []
    compiled = td.jit(lambda: td.pure_callback(lambda t: calls.append(1) or t, td.ones(3), td.ones(3) * 2))
    driver.optimise(td.trace_module(compiled.function))
    assert not calls
    for trip in (1, 2):
        assert compiled().tolist() == [2.0] * 3
        assert len(calls) == trip


def test_not_a_function():
    with pytest.raises(UserError):
        td.callback(3, X)
    with pytest.raises(UserError):
        td.pure_callback(3, X, X)
