"""Processes that end while kernels compile in other threads: they must not crash, and threads that go on must work."""

import subprocess
import sys
import textwrap
import threading

import pytest

from treadle.base import leaving

PROGRAM = """
    import sys, threading, time
    import numpy as np
    import treadle as td
    from treadle import nn
    from treadle.base.flags import override
    from treadle.kernels import jit

    def work():
        with override(cache=False, fusion=3):
            layer = nn.TransformerEncoderLayer(64, 2, 80, dropout=0.1, batch_first=True)
            x = td.Tensor(np.ones((4, 48, 64), np.float32))
            step = td.jit(td.grad(lambda x: (layer(x) ** 2).sum()))
            print(np.isfinite(step(x).numpy()).all(), flush=True)

    threading.Thread(target=work, daemon=sys.argv[1] == "daemon").start()
    while len(jit._loaded) < int(sys.argv[2]):
        time.sleep(0.002)
"""


@pytest.mark.parametrize(
    "kernels", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["daemon", "plain"])
def test_the_end_of_the_main_thread(kind, kernels):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), kind, str(kernels)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    if kind == "plain":
        assert done.stdout == "True\n", done.stderr


def test_blocks_may_be_nested_and_are_counted_once():
    before = leaving._count
    inside, go = threading.Event(), threading.Event()

    def other():
        with leaving.held():
            inside.set()
            go.wait()

    with leaving.held():
        with leaving.held():
            assert leaving._count == before + 1
        assert leaving._count == before + 1
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
        assert leaving._count == before + 2
        go.set()
        thread.join()
    assert leaving._count == before
