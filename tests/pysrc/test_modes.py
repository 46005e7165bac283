"""Prints, checks, breakpoints and hooks do the same eager, in a compiled function, and in graph mode of the context."""

import sys

import numpy as np
import pytest

import treadle as td
from treadle.api import context


class InGraphMode:
    """A function or cell called while the context is in graph mode."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        context.set_context(mode=context.GRAPH_MODE)
        try:
            return self.function(*args)
        finally:
            context.set_context(mode=context.PYNATIVE_MODE)


MODES = {"eager": lambda f: f, "jit": td.jit, "graph mode": InGraphMode}
MODE = pytest.mark.parametrize("mode", MODES)
POINTS = [(np.array([1.0, 2.0]),), (np.array([-3.0, 1.0]),)]


def outcomes(function, capsys):
    """Result or error, and what is printed, of calls on the points; the first point again at the end."""
    found = []
    for point in (*POINTS, POINTS[0]):
        try:
            result = function(*map(td.tensor, point))
            end = np.asarray(result).tolist()
        except ValueError as error:
            end = repr(error)
        found.append((end, capsys.readouterr().out))
    return found


def prints(x):
    for i in range(2):
        if x.sum() > 0:
            print("step", i, x.sum())
            x = x * 2
    print(f"{x.sum():.2f}", "end", sep="|")
    return x


def debug_prints(x):
    y = x
    while y.sum() > 1:
        td.debug_print("y {:.3f}", y.sum())
        y = y / 2
    return y


def raises(x):
    if x.sum() < 0:
        print("below")
        raise ValueError("sum is negative")
    return x * 2


def checks(x):
    td.debug_check(x.sum() > 0, "sum {:.1f}", x.sum(), error=ValueError)
    return x


def calls_back(x):
    td.callback(lambda s: print("called", float(s)), x.sum())
    return x + 1


ACTS = [prints, debug_prints, raises, checks, calls_back]


@MODE
@pytest.mark.parametrize("function", ACTS)
def test_what_a_function_does_beside(function, mode, capsys):
    wanted = outcomes(function, capsys)
    assert any(out or "Error" in str(end) for end, out in wanted)
    assert outcomes(MODES[mode](function), capsys) == wanted


@MODE
@pytest.mark.parametrize("function", [prints, debug_prints, calls_back])
def test_what_it_does_under_a_gradient(function, mode, capsys):
    def slope(x):
        return td.grad(lambda x: (function(x) ** 2).sum())(x)

    wanted = outcomes(slope, capsys)
    assert all(out for _, out in wanted[::2])
    assert outcomes(MODES[mode](slope), capsys) == wanted


@MODE
def test_breakpoints(mode, monkeypatch):
    seen = []

    def hook():
        frame = sys._getframe(1)
        while "y" not in frame.f_locals:
            frame = frame.f_back
        seen.append(np.asarray(frame.f_locals["y"]).tolist())

    def function(x):
        y = x * 2
        if y.sum() > 3:
            breakpoint()
        return y

    monkeypatch.setattr(sys, "breakpointhook", hook)
    run = MODES[mode](function)
    for point in POINTS:
        run(td.tensor(*point))
    assert seen == [[2.0, 4.0]]


@MODE
def test_hooks_of_tensors(mode):
    def slope(x):
        def loss(x):
            y = x * 3
            y.register_hook(lambda g: g * 10)
            return (y if y.sum() > 0 else y * 2).sum()

        return td.grad(loss)(x)

    run = MODES[mode](slope)
    assert run(td.tensor(*POINTS[0])).tolist() == [30, 30]
    assert run(td.tensor(*POINTS[1])).tolist() == [60, 60]


@MODE
def test_what_hooks_of_tensors_do(mode, capsys):
    def clipped(g):
        print("gradient", g.sum())
        return g / 2 if g.sum() > 3 else g

    def slope(x):
        def loss(x):
            y = x * 3
            y.register_hook(clipped)
            return (y if y.sum() > 0 else y * 0.5).sum()

        return td.grad(loss)(x)

    wanted = outcomes(slope, capsys)
    assert [out.count("gradient Tensor(") for _, out in wanted] == [1, 1, 1]
    assert outcomes(MODES[mode](slope), capsys) == wanted


class Halved(td.nn.Cell):
    """x / 2, while it is large."""

    def construct(self, x):
        while x.sum() > 1:
            x = x / 2
        return x


@MODE
def test_hooks_of_cells(mode, capsys):
    cell = Halved()
    cell.register_forward_pre_hook(lambda cell, args: (args[0] + 1,))
    cell.register_forward_hook(lambda cell, args, out: print("out", out.sum()) or out * 10)
    wanted = [[2.5, 3.75], [-20.0, 20.0], [2.5, 3.75]]
    found = outcomes(MODES[mode](cell), capsys)
    assert [end for end, _ in found] == wanted
    assert [out for _, out in found] == [f"out Tensor({total}, dtype=float64)\n" for total in ("0.625", "0.", "0.625")]


class Watched(td.nn.Cell):
    """A cell with a weight."""

    def __init__(self):
        super().__init__()
        self.weight = td.nn.Parameter(td.tensor(np.array([1.0, 3.0])))

    def construct(self, x):
        return x * self.weight


@MODE
def test_what_backward_hooks_of_cells_do(mode, capsys):
    cell = Watched()

    def hook(cell, inner, outer):
        print("inner", inner[0].sum())
        return (inner[0] * 2 if inner[0].sum() > 0 else inner[0],)

    cell.register_full_backward_hook(hook)
    slope = td.grad(lambda x: cell(x * x).sum())
    wanted = outcomes(slope, capsys)
    assert [out for _, out in wanted] == ["inner Tensor(4., dtype=float64)\n"] * 3
    assert wanted[0][0] == [4.0, 24.0]
    assert outcomes(MODES[mode](slope), capsys) == wanted
