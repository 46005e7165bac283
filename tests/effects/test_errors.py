"""What Python raises inside a program comes out of the call, with the user's line; nothing is lost, nothing hangs."""

import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest

import treadle as td
from treadle import UserError, nn, optim
from treadle.api.effects import check, fail
from treadle.base.acting import owner
from treadle.frontend import trace as tracing
from treadle.ir.host import Host
from treadle.runtime import calling, pjrt


class OwnError(Exception):
    pass


def refuse(x):
    if x.item() > 2:
        raise OwnError("too large", x)


def test_the_exception_itself():
    compiled = td.jit(lambda x: (td.callback(refuse, x), x * 2)[1])
    assert compiled(td.tensor(1.0)).item() == 2.0
    for _ in range(3):
        with pytest.raises(OwnError, match="too large") as caught:
            compiled(td.tensor(3.0))
        assert caught.value.args[1].item() == 3.0
        assert caught.value.__cause__ is None
        assert compiled(td.tensor(2.0)).item() == 4.0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, StopIteration, MemoryError, UserError])
def test_any_exception(kind):
    def stop():
        raise kind("E0999", "why") if kind is UserError else kind("why")

    compiled = td.jit(lambda x: (td.callback(stop), x @ x)[1])
    for size in (2, 700):  # the larger one is run by several threads
        with pytest.raises(kind, match="why"):
            compiled(td.ones((size, size)))


def test_the_program_stops():
    seen = []

    def function(x):
        def body(carry):
            td.callback(lambda i: seen.append(i.item()), carry)
            td.debug_check(carry < 3, "at {}", carry)
            return carry + 1

        end = td.while_loop(lambda c: c < 100, body, x)
        td.callback(lambda i: seen.append("end"), end)
        return end

    for run in (function, td.jit(function), td.jit(td.grad(lambda x: function(x) * x))):
        seen.clear()
        with pytest.raises(AssertionError, match=r"at Tensor.3"):
            run(td.tensor(0.0))
        assert seen == [0.0, 1.0, 2.0, 3.0]


def test_state_is_as_before():
    """A step of training that fails half way changes neither parameters nor the optimiser, and can be run again."""
    net = nn.Linear(3, 2)
    adam = optim.Adam(net.parameters(), 0.1)
    calls = td.Parameter(td.tensor(0), requires_grad=False)

    @td.jit
    def step(x, limit):
        calls.assign(calls + 1)

        def loss(x):
            y = net(x)
            td.debug_check(y.sum() < limit, "over")
            return (y * y).mean()

        value, grads = td.value_and_grad(loss, net.parameters())(x)
        adam.step(grads)
        td.debug_check(value > 0)
        return value

    x = td.ones((4, 3))
    step(x, 1e9)
    before = [p.numpy() for p in net.parameters()]
    with pytest.raises(AssertionError, match="over"):
        step(x, -1e9)
    after = [p.numpy() for p in net.parameters()]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert calls.item() == 1
    step(x, 1e9)
    assert calls.item() == 2
    assert not np.array_equal(net.weight.numpy(), before[0])


def test_changed_arguments_are_as_before():
    @td.jit
    def function(x):
        x.assign(x + 1)
        td.debug_check(x < 3)

    x = td.tensor(1.0)
    function(x)
    with pytest.raises(AssertionError):
        function(x)
    assert x.item() == 2.0


def test_the_line_of_the_user():
    @td.jit
    def function(x):
        y = x * 2
        check(y < 3, lambda: OwnError("over"))  # here
        return y

    with pytest.raises(OwnError) as caught:
        function(td.tensor(2.0))
    frames = [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename == __file__]
    assert [f.name for f in frames] == ["test_the_line_of_the_user", "compiled function"]
    assert frames[-1].line.endswith("# here")


def test_the_line_that_raised():
    @td.jit
    def function(x):
        def branch():
            raise OwnError("over")  # in the branch

        fail(x > 3, branch)
        return x

    with pytest.raises(OwnError) as caught:
        function(td.tensor(4.0))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line.endswith("# in the branch")


PROGRAM = """
import treadle as td

@td.jit
def root(x):
    td.debug_check(x >= 0, "negative: {}", x)
    return td.sqrt(x)

root(td.tensor(4.0))
root(td.tensor(-4.0))
"""


def test_the_traceback_is_short(tmp_path):
    file = tmp_path / "user.py"
    file.write_text(PROGRAM)
    text = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False).stderr
    lines = [line for line in text.splitlines() if line.strip(" ^")]
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 10, in <module>',
        "    root(td.tensor(-4.0))",
        f'  File "{file}", line 6, in compiled function',
        '    td.debug_check(x >= 0, "negative: {}", x)',
        "AssertionError: negative: Tensor(-4., dtype=float32)",
    ]


def test_xlas_own_errors_stay():
    """An error that is not Python's is raised as it is."""

    def broken(arrays):
        raise pjrt.execution_error()("INTERNAL: something of XLA's")

    with pytest.raises(pjrt.execution_error(), match="of XLA's"):
        calling.runner(broken, True)([])


def test_the_runner_waits():
    """On other devices a call comes back before the program has ended, and what it raises is known later."""

    class Late:
        def block_until_ready(self):
            waited.append(1)
            return self

    waited = []
    calling.runner(lambda arrays: [Late(), Late()], False)([])
    assert len(waited) == 2


def test_the_work_of_the_waiting_thread():
    """A call from another thread of XLA's belongs to the thread that waits: its locks are open to it."""
    done = []

    def inside():
        with tracing.state_lock:
            done.append(owner())

    call = calling.action(Host.of(inside, "inside"))

    def run(arrays):
        thread = threading.Thread(target=call, args=(np.asarray(arrays[-1]),), daemon=True)
        thread.start()
        thread.join(20)
        return arrays

    with tracing.state_lock:
        calling.runner(run, True)([])
    assert done == [threading.get_ident()]


# --- threads ----------------------------------------------------------------------------------------------------------


def run_threads(count, work):
    """Run work(i) in so many threads; every one must end, and none may raise."""
    problems = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not problems


def test_each_thread_gets_its_own_exception():
    def refuse_odd(x):
        if x.item() % 2:
            raise OwnError(x.item())

    compiled = td.jit(lambda x: (td.callback(refuse_odd, x.sum()), x * 2)[1])

    def work(i):
        for k in range(20):
            number = float(i + 10 * k)
            if number % 2:
                with pytest.raises(OwnError) as caught:
                    compiled(td.tensor([number]))
                assert caught.value.args == (number,)
            else:
                assert compiled(td.tensor([number])).item() == 2 * number

    run_threads(4, work)


def wide(callback, *xs):
    """A program that XLA runs in several threads, with callbacks in its midst."""
    ys = [td.cos(td.sin(x) @ x) for x in xs]
    for place in (7, 2, 5):
        td.callback(callback, ys[place])
    return [y @ y for y in ys]


XS = [td.tensor(np.random.default_rng(i).random((200, 200), np.float32)) for i in range(8)]


def test_programs_inside_callbacks():
    """Eager ops on device arrays, other programs and their state: also where XLA calls from a thread of its own, while
    the thread that waits holds the lock of changed state."""
    count, weight = td.Parameter(td.tensor(0.0)), td.Parameter(td.tensor(0.0))
    bump = td.jit(lambda: count.assign(count + 1))

    def inside(y):
        bump()
        assert float((y @ y).sum()) == pytest.approx(float((y.numpy() @ y.numpy()).sum()), rel=1e-4)

    def step(*xs):
        weight.assign(weight + 1)
        return wide(inside, *xs)

    compiled = td.jit(step)
    compiled(*XS)
    run_threads(3, lambda _: [compiled(*XS) for _ in range(3)])
    assert (count.item(), weight.item()) == (30.0, 10.0)


def test_an_exception_from_another_thread():
    def refuse_all(y):
        raise OwnError(threading.get_ident())

    compiled = td.jit(lambda *xs: wide(refuse_all, *xs))
    for _ in range(5):
        with pytest.raises(OwnError):
            compiled(*XS)


def test_a_program_inside_its_own_callback():
    """The same program again, from its callback, to some depth."""
    depth = []

    def inside(n):
        depth.append(n.item())
        if n.item() > 0:
            compiled(n - 1)

    compiled = td.jit(lambda n: (td.callback(inside, n), n)[1])
    compiled(td.tensor(4))
    assert depth == [4, 3, 2, 1, 0]
