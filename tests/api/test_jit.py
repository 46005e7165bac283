"""`jit`: one program per kind of arguments, state as inputs and donated outputs, reasons for each recompile."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import treadle as td
from treadle import Tensor, UserError, ops


def total(x):
    return ops.reduce_sum(x, axes=tuple(range(x.ndim)))


def test_same_numbers_as_eager():
    def f(x, y):
        return ops.tanh(ops.mul(x, y)), {"sum": total(x), "text": "kept"}

    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(0.5)
    eager, compiled = f(Tensor(x), Tensor(y)), td.jit(f)(x, y)
    np.testing.assert_allclose(eager[0].numpy(), compiled[0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(eager[1]["sum"].item(), compiled[1]["sum"].item(), rtol=1e-6)
    assert compiled[1]["text"] == "kept"


def test_one_program_per_type_and_static_value_not_per_float():
    runs = []

    @td.jit
    def f(x, scale, n):
        runs.append(n)
        return ops.mul(x, scale) if n == 1 else ops.mul(x, n)

    for scale in (0.5, 1.5, 2.5):
        assert f(np.ones(2, np.float32), scale, 1).tolist() == [scale, scale]
    assert runs == [1]
    assert f(np.ones(2, np.float32), 0.5, 3).tolist() == [3.0, 3.0]
    f(np.ones(3, np.float32), 0.5, 1)
    f(np.ones(3, np.float32), 7.5, 1)
    assert runs == [1, 3, 1]


def test_tensors_of_other_types_get_their_own_programs():
    f = td.jit(lambda x: ops.add(x, x))
    for array in (np.ones(2, np.float32), np.ones(2), np.ones(3, np.float32), np.ones(2, np.int32)):
        found = f(Tensor(array))
        assert (found.dtype.name, found.shape) == (array.dtype.name, array.shape)
    assert len(f.programs()) == 4


def test_a_float_argument_takes_the_precision_of_the_tensor_it_meets():
    f = td.jit(lambda x, s: ops.mul(x, s))
    assert f(np.ones(1, np.float64), 0.1).numpy()[0] == np.float64(0.1)
    assert f(np.ones(1, np.float32), 0.1).numpy()[0] == np.float32(0.1)
    assert td.jit(lambda s: s)(0.1) == 0.1


def test_recompiles_are_explained(capsys):
    from treadle.base.flags import override

    f = td.jit(lambda x, n: ops.mul(x, n), name="scaled")
    with override(debug=1):
        f(np.ones(2, np.float32), 3)
        f(np.ones(2, np.float32), 4)
        f(np.ones((2, 2), np.float32), 4)
    said = capsys.readouterr().err
    assert "compiling scaled: first call" in said
    assert "argument 1 is 4 (fixed in the program), before 3" in said
    assert "argument 0 is float32[2, 2], before float32[2]" in said


def test_plain_globals_and_closure_values_are_watched():
    factor = 2

    def make():
        def f(x):
            return ops.mul(x, factor)

        return f

    f = td.jit(make())
    assert f(np.float32(3)).item() == 6
    factor = 5
    assert f(np.float32(3)).item() == 15


def test_state_is_read_and_written():
    w = Tensor(np.ones(3, np.float32))

    @td.jit
    def step(x):
        w.assign(ops.add(w, x))
        return total(w)

    assert [step(np.ones(3, np.float32)).item() for _ in range(3)] == [6, 9, 12]
    assert w.tolist() == [4, 4, 4]
    w.assign(np.zeros(3))
    assert step(np.ones(3, np.float32)).item() == 3
    assert len(step.programs()) == 1


def test_donated_state_that_is_held_elsewhere_survives():
    w = Tensor(np.ones(3, np.float32))

    @td.jit
    def step(x):
        w.assign(ops.add(w, x))

    step(np.ones(3, np.float32))
    kept = w.copy()
    step(np.ones(3, np.float32))
    step(w.copy())
    assert kept.tolist() == [2, 2, 2]
    assert w.tolist() == [6, 6, 6]
    with pytest.raises(UserError, match="E0212"):
        step(w)
    assert w.tolist() == [6, 6, 6]


def test_an_argument_changed_in_place_changes_for_the_caller():
    def f(x):
        x.assign(ops.mul(x, 2))
        return ops.add(x, 1)

    for run in (f, td.jit(f)):
        x = Tensor(np.ones(2, np.float32))
        assert run(x).tolist() == [3, 3]
        assert x.tolist() == [2, 2]


def test_captured_tensor_of_another_type_is_refused():
    w = Tensor(np.ones(3, np.float32))
    f = td.jit(lambda x: ops.add(w, x))
    f(np.float32(1))
    w._value = np.ones(4, np.float32)
    with pytest.raises(UserError, match="E0209"):
        f(np.float32(1))


def test_tensors_do_not_escape_a_trace():
    leak = []
    td.vmap(lambda x: leak.append(ops.mul(x, 2)) or x)(np.ones(2, np.float32))
    with pytest.raises(UserError, match="E0202"):
        leak[0].numpy()
    with pytest.raises(UserError, match="E0202"):
        td.jit(lambda x: ops.mul(x, leak[0]))(np.float32(1))


@pytest.mark.parametrize(
    ("use", "code"),
    [
        (lambda x: sorted([x, 2.0]), "E0206"),
        (lambda x: "ab"[x.astype(td.int32)], "E0206"),
        (lambda x: x.numpy(), "E0204"),
        (lambda x: range(int(x)), "E0206"),
    ],
)
def test_asking_a_traced_tensor_for_its_numbers_names_the_users_line(use, code):
    with pytest.raises(UserError, match=code) as error:
        td.jit(use)(np.float32(1))
    assert "test_jit.py" in str(error.value)


def test_unhashable_argument_is_named():
    class Box:
        __hash__ = None

    with pytest.raises(UserError, match=r"E0207.*argument 1 is a Box"):
        td.jit(lambda x, b: x)(np.float32(1), Box())


def test_jitted_functions_nest_and_methods_bind():
    class Model:
        def __init__(self, w):
            self.w = Tensor(np.float32(w))

        @td.jit
        def run(self, x):
            return double(ops.mul(x, self.w))

    double = td.jit(lambda x: ops.add(x, x))
    a, b = Model(3.0), Model(5.0)
    assert [a.run(np.float32(2)).item(), b.run(np.float32(2)).item(), a.run(np.float32(1)).item()] == [12, 20, 6]


def test_many_threads_compile_and_call_one_function():
    f = td.jit(lambda x: total(ops.mul(x, x)))
    results = {}

    def work(n):
        results[n] = [f(np.full(n % 3 + 1, n, np.float32)).item() for _ in range(5)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {n: [float(n * n * (n % 3 + 1))] * 5 for n in range(8)}
    assert len(f.programs()) == 3


def test_a_cell_in_graph_mode_is_freed():
    import gc
    import weakref

    from treadle import nn

    td.context.set_context(mode="graph")
    try:
        net = nn.Linear(2, 2)
        net(np.ones((1, 2), np.float32))
        ref = weakref.ref(net)
        del net
        gc.collect()
        assert ref() is None
    finally:
        td.context.set_context(mode="eager")


def test_copies_and_pickles_are_independent():
    import copy
    import pickle

    x = Tensor(np.ones(2, np.float32))
    for twin in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.astype(td.float32)):
        twin.assign([5.0, 5.0])
        assert x.tolist() == [1, 1]
        assert twin.dtype == x.dtype


def test_uncaught_errors_show_only_the_users_frames(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import numpy as np, treadle as td\ntd.jit(lambda x: x @ x)(np.ones((2, 3), np.float32))\n")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert "E0114" in run.stderr
    assert [line for line in run.stderr.splitlines() if line.startswith("  File")] == [
        f'  File "{script}", line 2, in <module>',
        f'  File "{script}", line 2, in <lambda>',
    ]


def test_a_misspelt_switch_is_refused():
    run = subprocess.run(
        [sys.executable, "-c", "import treadle as td; td.zeros(2)"],
        capture_output=True,
        text=True,
        env={**os.environ, "TREADLE_DEBUGG": "1"},
    )
    assert "E0703 the environment sets TREADLE_DEBUGG" in run.stderr


def test_one_tensor_passed_twice_is_one_tensor_inside():
    def f(pair):
        pair[0].assign(ops.add(pair[0], 1))
        return ops.mul(pair[1], 1)

    for run in (f, td.jit(f)):
        x, y = Tensor(np.float32(1)), Tensor(np.float32(1))
        assert run((x, x)).item() == 2
        assert run((x, y)).item() == 1


def test_an_argument_that_is_state_too_is_refused_when_traced():
    w = Tensor(np.float32(1))

    def f(a):
        a.assign(ops.add(a, 1))
        w.assign(ops.mul(w, 10))

    with pytest.raises(UserError, match="E0212"):
        td.jit(f)(w)
    assert w.item() == 1


def test_programs_that_share_state_take_turns():
    w = Tensor(np.float32(0))

    @td.jit
    def step(x):
        w.assign(ops.add(w, ops.reduce_sum(x, axes=(0,))))

    def work(n):
        for _ in range(50):
            step(np.ones(n, np.float32))

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert w.item() == 50 * 6


def test_an_interrupt_waits_for_the_state(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        _interrupt_a_step(monkeypatch)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_a_step(monkeypatch):
    w = Tensor(np.float32(0))
    step = td.jit(lambda x: w.assign(ops.add(w, x)))
    step(np.float32(1))
    program = step.programs()[0]
    run = program._execute

    def interrupted(executable, arrays):
        outputs = run(executable, arrays)
        os.kill(os.getpid(), signal.SIGINT)
        return outputs

    monkeypatch.setattr(program, "_execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(np.float32(1))
    assert w.item() == 2


def test_a_cell_made_in_the_function_does_not_compile_again():
    from treadle import nn

    f = td.jit(lambda x: nn.LayerNorm(2)(nn.ReLU()(x)))
    for _ in range(3):
        f(np.ones((1, 2), np.float32))
        nn.ReLU().eval()
    assert len(f.programs()) == 1


def test_numbers_that_do_not_fit_are_refused_alike():
    x = Tensor(np.ones(2, np.uint8))
    for run in (lambda x: ops.mul(x, 300), td.jit(lambda x: ops.mul(x, 300))):
        with pytest.raises(UserError, match="E0115"):
            run(x)


def test_methods_that_cannot_be_compiled_say_why():
    class Slots:
        __slots__ = ()

        @td.jit
        def run(self, x):
            return x

    class Unhashable:
        __hash__ = None

        @td.jit
        def run(self, x):
            return x

    for kind in (Slots, Unhashable):
        with pytest.raises(UserError, match="E0214"):
            kind().run(np.float32(1))
    with pytest.raises(UserError, match=r"E0213.*classmethod"):
        td.jit(classmethod(lambda cls, x: x))
