"""Effects in the IR and on the way to a program: text, files, passes, lowering, cache."""

import numpy as np
import pytest

import treadle as td
from treadle import UserError, driver
from treadle.base import flags
from treadle.base.acting import OwnedLock, acting_for
from treadle.base.errors import InternalError
from treadle.ir import build, interp, serial
from treadle.ir.host import Host
from treadle.ir.node import Fn, Module
from treadle.ir.parser import parse_module
from treadle.ir.printer import print_module
from treadle.ir.quiet import quiet
from treadle.ir.types import f32
from treadle.ir.verify import verify
from treadle.lower.ordering import acts, ordered
from treadle.lower.stablehlo import lower_module, to_text
from treadle.ops.calls import call
from treadle.ops.effects import TOKEN, host_call
from treadle.runtime import pjrt

SEEN = []


def see(*arrays):
    SEEN.append([a.tolist() for a in arrays])


HOST = Host.of(see, "see")


def calling():
    """main calls `inner` twice, which acts."""
    with build.Builder("inner") as b:
        x = b.param(f32[2])
        host_call(x, host=HOST, ordered=False)
        inner = b.finish([x * 2])

    def main(x):
        (y,) = call(x, callee="inner", results=(f32[2],))
        return call(y, callee="inner", results=(f32[2],))

    return Module.of(build.trace(main, [f32[2]], "main", {"inner": inner}), {"inner": inner})


def test_functions_that_are_called():
    module = calling()
    assert acts(module)
    x = np.array([1, 2], np.float32)
    SEEN.clear()
    assert interp.run(module, x)[0].tolist() == [4.0, 8.0]
    assert driver.compile_module(module).call([x])[0].tolist() == [4.0, 8.0]
    assert driver.compile_module(driver.optimise(module)).call([x])[0].tolist() == [4.0, 8.0]
    assert SEEN == [[[1.0, 2.0]], [[2.0, 4.0]]] * 3


def test_the_token():
    module = verify(ordered(calling()))
    assert module.main.in_types == (f32[2], TOKEN)
    assert module.main.out_types == (f32[2], TOKEN)
    SEEN.clear()
    outputs = interp.run(module, np.ones(2, np.float32), np.int32(5))
    assert outputs[1] == 5
    assert len(SEEN) == 2
    plain = Module.of(build.trace(lambda x: x + x, [f32[2]]))
    assert ordered(plain) is plain


def test_quiet():
    module = calling()
    fns = dict(module.fns)
    silent = quiet(module.main, fns)
    SEEN.clear()
    assert interp.run_fn(silent, fns, np.ones(2, np.float32))[0].tolist() == [4.0, 4.0]
    assert not SEEN
    assert quiet(silent, fns) is silent


def test_passes_leave_effects_alone():
    def main(x):
        for _ in range(3):
            host_call(x, host=HOST, ordered=False)
            host_call(x + x, host=HOST, ordered=False)
        return x

    module = driver.optimise(Module.of(build.trace(main, [f32[2]])))
    SEEN.clear()
    interp.run(module, np.ones(2, np.float32))
    assert SEEN == [[[1.0, 1.0]], [[2.0, 2.0]]] * 3


def test_text_and_files(tmp_path):
    module = td.trace_module(lambda x: td.debug_print("{}", x), td.tensor(1.0))
    text = print_module(module)
    assert 'host_call %a0 {host=host("debug_print", ' in text
    with pytest.raises(UserError, match=r"E0192.*belonged to the process"):
        parse_module(text)
    with pytest.raises(UserError, match=r"E0193.*debug_print"):
        serial.save(module, tmp_path / "module.txt")
    assert not list(tmp_path.iterdir())


def test_equal_functions_share_a_host():
    def traced():
        return td.trace_module(lambda x: td.debug_print("{} {}", x, 1.0), td.tensor(1.0))

    assert str(traced()) == str(traced())
    other = td.trace_module(lambda x: td.debug_print("{} {}", x, 1), td.tensor(1.0))
    kept = traced()
    assert kept.main.nodes[0].attrs["host"] is not other.main.nodes[0].attrs["host"]
    assert Host.of([].append, "a") is not Host.of([].append, "a")


@pytest.mark.parametrize("platform", ["cpu", "cuda", "gpu", "rocm"])
def test_the_custom_call(platform):
    hosts = []
    lowered = lower_module(calling(), pjrt.mlir_context(), platform=platform, hosts=hosts)
    text = to_text(lowered)
    name = "cpu" if platform == "cpu" else "gpu"
    assert text.count(f"@xla_ffi_python_{name}_callback") == 1
    assert "has_side_effect = true" in text
    assert hosts == [(HOST, None)]
    assert "custom_call" in driver.stablehlo(calling())


def test_a_platform_without_python():
    with pytest.raises(UserError, match=r"E0412.*see calls Python.*tpu"):
        lower_module(calling(), pjrt.mlir_context(), platform="tpu")


def test_functions_must_be_given():
    lowered = lower_module(calling(), pjrt.mlir_context())
    with pytest.raises(InternalError, match="without the functions"):
        pjrt.compile(lowered, [pjrt.default_device()], pjrt.options([pjrt.default_device()]))


def test_not_from_the_cache():
    """The functions belong to this process: such a program is compiled anew."""

    def trip(x):
        return (td.callback(lambda: SEEN.append("called")), x * 3.25)[1]

    SEEN.clear()
    with flags.override(cache=True):
        for _ in range(2):
            compiled = td.jit(trip)
            assert compiled(td.ones(7)).tolist() == [3.25] * 7
            assert not compiled.programs()[0].executable.from_cache
    assert SEEN == ["called"] * 2


def test_state_is_not_donated_where_a_check_may_stop_the_program():
    w = td.Parameter(td.ones(3))
    plain = td.jit(lambda: w.assign(w + 1))
    checked = td.jit(lambda: (w.assign(w + 1), td.debug_check(w > 0))[0])
    plain(), checked()
    assert plain.programs()[0].executable.donated
    assert not checked.programs()[0].executable.donated


def test_a_body_that_cannot_be_ordered():
    from treadle.ops._declare import OPS

    rules = OPS["remat"].rules
    kept = rules.pop("ordered")
    try:
        compiled = td.jit(lambda x: td.checkpoint(lambda y: (td.callback(lambda: None), y)[1])(x))
        with pytest.raises(UserError, match=r"E0416.*remat"):
            compiled(td.ones(2))
    finally:
        rules["ordered"] = kept


def test_the_lock_of_an_owner():
    import threading

    lock, order = OwnedLock(), []
    me = threading.get_ident()

    def helper():
        with acting_for(me), lock:
            order.append("for me")

    def other():
        with lock:
            order.append("for itself")

    with lock, lock:
        threads = [threading.Thread(target=other), threading.Thread(target=helper)]
        for thread in threads:
            thread.start()
        threads[1].join(20)
        order.append("me")
    threads[0].join(20)
    assert order == ["for me", "me", "for itself"]


def test_a_token_that_is_none():
    with pytest.raises(UserError, match="E0177"):
        build.trace(lambda x: host_call(x, host=HOST, ordered=True), [f32[2]])
    assert isinstance(build.trace(lambda x: host_call(x, host=HOST, ordered=False), [f32[2]]), Fn)
