"""Effects and gradients, tangents, batching: once, in the forward part; a lane after the other."""

import pytest
from tests.effects.support import Log

import treadle as td

log = Log()
X = td.tensor(1.5)


def loop(x):
    def body(carry):
        i, y = carry
        td.callback(log("trip"), i, y)
        return i + 1, td.cond(y > 3, lambda: (td.callback(log("over"), y), y * 0.5)[1], lambda: y * y)

    td.callback(log("start"), x)
    result = td.while_loop(lambda c: c[0] < 5, body, (td.tensor(0), x))[1]
    td.callback(log("end"), result)
    return result


def scanned(x):
    def step(h, item):
        td.callback(log("item"), h)
        return td.tanh(h * item), h

    return td.scan(step, x, td.tensor([1.0, 2.0, 3.0]))[0]


def long(x):
    """More trips than a gradient keeps: earlier parts of the loop run again."""
    return td.while_loop(
        lambda c: c[0] < 20, lambda c: (c[0] + 1, (td.callback(log("trip"), c[0]), td.sin(c[1]))[1]),
        (td.tensor(0), x), capacity=4,
    )[1]  # fmt: skip


def again(x):
    """Checkpointed: the backward part runs the body again."""
    return td.checkpoint(loop)(x) * td.checkpoint(lambda y: (td.callback(log("in"), y), td.sin(y))[1])(x)


def custom(x):
    @td.custom_gradient
    def twice(y):
        td.callback(log("forward"), y)
        return y * 2, lambda d: (td.callback(log("backward"), d), d * 2)[1]

    return twice(x) * x


def jitted(x):
    @td.jit
    def part(y):
        td.callback(log("part"), y)
        return y * y

    return part(x) + part(x * 2)


FUNCTIONS = [loop, scanned, long, again, jitted]
MODES = {
    "grad": td.grad,
    "jit grad": lambda f: td.jit(td.grad(f)),
    "grad jit": lambda f: td.grad(td.jit(f)),
    "second": lambda f: td.jit(td.grad(td.grad(f))),
    "eager second": lambda f: td.grad(td.grad(f)),
    "jvp": lambda f: lambda x: td.jvp(f, (x,), (x,)),
    "jit jvp": lambda f: td.jit(lambda x: td.jvp(f, (x,), (x,))),
    "vjp": lambda f: lambda x: td.vjp(f, x)[1](x),
    "hessian": td.hessian,
    "jit jacrev": lambda f: td.jit(td.jacrev(f)),
}


CASES = [*[(loop, mode) for mode in MODES], *[(f, m) for f in FUNCTIONS[1:] for m in ("grad", "jit grad")]]
CASES += [(long, "second"), (again, "jit jvp"), (jitted, "hessian")]


@pytest.mark.parametrize(("function", "mode"), CASES)
def test_once_in_the_forward_part(function, mode):
    wanted = list(log.of(function, X))
    assert log.of(MODES[mode](function), X) == wanted


def test_gradients_are_those_without_effects():
    step = 1e-2
    for function in (long, again):
        compiled = td.jit(function)
        difference = (compiled(X + step).item() - compiled(X - step).item()) / (2 * step)
        assert td.jit(td.grad(function))(X).item() == pytest.approx(difference, rel=2e-2, abs=1e-4)


def test_an_effect_of_a_custom_gradient():
    assert log.of(td.jit(custom), X) == [("forward", 1.5)]
    for mode in (td.grad, lambda f: td.jit(td.grad(f))):
        assert log.of(mode(custom), X) == [("forward", 1.5), ("backward", 1.5)]


def test_lanes_one_after_the_other():
    def function(x):
        td.callback(log("a"), x)
        td.callback(log("shared"), td.tensor(7.0))
        td.callback(log("b"), x * 2)
        return td.cond(x > 0, lambda: (td.callback(log("positive"), x), x)[1], lambda: -x)

    xs = td.tensor([1.0, -2.0, 3.0])
    wanted = [*[("a", v) for v in (1.0, -2.0, 3.0)], ("shared", 7.0), *[("b", v) for v in (2.0, -4.0, 6.0)]]
    wanted += [("positive", 1.0), ("positive", 3.0)]
    for run in (td.vmap(function), td.jit(td.vmap(function))):
        assert log.of(run, xs) == wanted
        assert run(xs).tolist() == [1.0, 2.0, 3.0]


def test_lanes_of_a_loop():
    """Each lane makes its own trips."""

    def function(n):
        return td.while_loop(lambda c: c < n, lambda c: (td.callback(log("trip"), n, c), c + 1)[1], td.tensor(0))

    ns = td.tensor([2, 0, 1])
    for run in (td.vmap(function), td.jit(td.vmap(function))):
        assert log.of(run, ns) == [("trip", 2, 0), ("trip", 2, 1), ("trip", 1, 0)]


def test_a_check_of_one_lane():
    run = td.jit(td.vmap(lambda x: (td.debug_check(x < 3, "lane {}", x), x)[1]))
    assert run(td.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    with pytest.raises(AssertionError, match=r"lane Tensor.3"):
        run(td.tensor([1.0, 3.0]))


def test_per_sample_gradients():
    run = td.jit(td.vmap(td.grad(lambda x: (td.callback(log("x"), x), td.sin(x))[1])))
    assert log.of(run, td.tensor([1.0, 2.0])) == [("x", 1.0), ("x", 2.0)]


def test_looking_for_nans_does_not_act_again():
    def function(x):
        td.callback(log("once"), x)
        return td.log(td.while_loop(lambda c: c > 0, lambda c: (td.callback(log("trip"), c), c - 1)[1], x) - 1)

    compiled = td.jit(function)
    with td.debug_nans():
        for run in (compiled, function):
            log.entries = []
            with pytest.raises(td.UserError, match="E0415"):
                run(X)
            assert log.entries == [("once", 1.5), ("trip", 1.5), ("trip", 0.5)]
