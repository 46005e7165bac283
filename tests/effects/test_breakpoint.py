"""`breakpoint()` in a compiled function stops each time that the program gets there, and shows the variables."""

import sys

import treadle as td


def test_a_breakpoint_in_a_branch_of_a_loop(monkeypatch):
    seen = []

    def hook():
        frame = sys._getframe(1)
        while frame.f_code.co_filename != "<breakpoint>":
            frame = frame.f_back
        names = frame.f_locals
        seen.append((names["i"], names["y"].tolist(), names["n"]))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def function(x, n=2):
        y = x * n
        for i in range(3):
            if y.sum() > 5:
                breakpoint()
            y = y + 1 + 0 * i
        return y

    compiled = td.jit(function)
    assert compiled(td.Tensor([1.0, 2.0])).tolist() == [5, 7]
    assert seen == [(0, [2, 4], 2), (1, [3, 5], 2), (2, [4, 6], 2)]
    seen.clear()
    assert compiled(td.Tensor([0.0, 0.0])).tolist() == [3, 3]
    assert seen == []
