"""Threads that read the source of functions at once."""

import gc
import inspect
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from treadle.frontend.pysrc import convert, source


def test_trees_are_made_by_one_thread_at_a_time():
    """Python 3.11 takes the depth of another thread's tree for that of its own, and raises SystemError."""
    before = sys.getswitchinterval()
    pause = lambda *_: time.sleep(0)
    gc.callbacks.append(pause)
    sys.setswitchinterval(1e-6)

    def work(_):
        for _ in range(8):
            assert source.find(inspect.getsource).name == "getsource"
            assert source.find(convert.source_of).name == "source_of"

    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
    finally:
        sys.setswitchinterval(before)
        gc.callbacks.remove(pause)
