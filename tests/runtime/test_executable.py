"""Programs run and give NumPy's numbers; wrong calls raise and leave the process and the arguments alone."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest
from tests.runtime.programs import add, add_donating, binary

from treadle.base.errors import InternalError, UserError
from treadle.ir.types import bf16, bool_, c64, f32, f64, i32, i64, type_of, u8
from treadle.runtime import pjrt
from treadle.runtime.executable import Executable, mlir_type


def raises(code: str, *fragments: str):
    class Check:
        def __enter__(self):
            self.manager = pytest.raises(UserError)
            self.info = self.manager.__enter__()

        def __exit__(self, *args):
            done = self.manager.__exit__(*args)
            assert self.info.value.code == code
            for fragment in fragments:
                assert fragment in str(self.info.value)
            return done

    return Check()


SAMPLES = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.float32(2.5),
    np.zeros((0, 3), np.float32),
    np.array([True, False]),
    np.arange(4).astype(ml_dtypes.bfloat16),
    np.array([2**40, -5], np.int64),
    np.array([1e300, 1 / 3]),
    np.array([1 + 2j, 3 - 4j], np.complex64),
    np.array([250, 3], np.uint8),
    np.arange(12, dtype=np.int32).reshape(3, 4).T,
    np.arange(8, dtype=np.float64)[::-2],
    np.array([1, 2, 3], ">i4"),
]


@pytest.mark.parametrize("value", SAMPLES, ids=lambda v: f"{v.dtype}{v.shape}")
def test_values_survive_the_way_there_and_back(value):
    got = pjrt.to_numpy(pjrt.put(value))
    assert got.dtype == value.dtype.newbyteorder("=")
    np.testing.assert_array_equal(got, value)
    got[...] = 0  # a copy of one's own


@pytest.mark.parametrize("value", SAMPLES, ids=lambda v: f"{v.dtype}{v.shape}")
def test_add_of_every_type(value):
    type = type_of(value)
    (result,) = add(type).call([value, pjrt.put(value)])
    np.testing.assert_array_equal(pjrt.to_numpy(result), value + value)  # of bools: or
    assert type_of(result) == type


def test_put_copies():
    for size in (3, 1 << 16):
        value = np.ones(size, np.float32)
        there = pjrt.put(value)
        value[:] = 7
        assert (pjrt.to_numpy(there) == 1).all()


def test_put_refuses_types_that_treadle_lacks():
    for value in (np.array(["a"]), np.array([object()]), np.zeros(2, "M8[s]")):
        with raises("E0101"):
            pjrt.put(value)


def test_reading_an_array_does_not_prevent_donation():
    step = add_donating(f32[1000])
    w = pjrt.put(np.ones(1000, np.float32))
    seen = pjrt.to_numpy(w)
    (new,) = step.call([w, np.ones(1000, np.float32)])
    assert w.is_deleted()
    assert (seen == 1).all() and (pjrt.to_numpy(new) == 2).all()


def test_a_live_view_keeps_its_values_when_donated():
    w = pjrt.put(np.ones(1000, np.float32))
    view = pjrt.to_numpy(w, copy=False)
    (new,) = add_donating(f32[1000]).call([w, np.ones(1000, np.float32)])
    assert (view == 1).all() and (pjrt.to_numpy(new) == 2).all()


def test_wrong_count_type_and_shape():
    program, good = add(f32[3]), np.zeros(3, np.float32)
    with raises("E0401", "takes 2 arrays, not 1"):
        program.call([good])
    for wrong in (np.zeros(3, np.int32), np.zeros(3), np.zeros((3, 1), np.float32), np.zeros(4, np.float32)):
        for given in (wrong, pjrt.put(wrong)):
            with raises("E0401", "argument 1", str(type_of(wrong)), "f32[3]"):
                program.call([good, given])
    for wrong in (1.0, [1.0, 2.0, 3.0], None, "abc"):
        with raises("E0401", type(wrong).__name__):
            program.call([good, wrong])
    assert (pjrt.to_numpy(program.call([good, good])[0]) == 0).all()


def test_donated_arrays_are_gone_and_named():
    step = add_donating(f32[4])
    w, g = (pjrt.put(np.ones(4, np.float32)) for _ in range(2))
    (new,) = step.call([w, g])
    assert w.is_deleted() and not g.is_deleted()
    for call in (step.call, add(f32[4]).call):
        with raises("E0402", "argument 0"):
            call([w, g])
    with raises("E0402", "argument 0 (net.w)"):
        step.call([w, np.ones(4, np.float32)])  # the slow way in
    with raises("E0402", "donated"):
        step.call_unchecked([w, g])
    with raises("E0402"):
        pjrt.to_numpy(w)
    assert not g.is_deleted() and (pjrt.to_numpy(step.call([new, g])[0]) == 3).all()


def test_the_same_array_twice():
    step, a = add_donating(f32[4]), pjrt.put(np.ones(4, np.float32))
    assert (pjrt.to_numpy(add(f32[4]).call([a, a])[0]) == 2).all()
    with raises("E0403", "argument 0 (net.w)", "argument 1"):
        step.call([a, a])
    with raises("E0403"):
        step.call_unchecked([a, a])
    assert not a.is_deleted()


def test_buffer_donor_counts_as_donated():
    step = Executable(binary("add", f32[4], "jax.buffer_donor = true"), [f32[4]] * 2, [f32[4]], [0])
    w = pjrt.put(np.ones(4, np.float32))
    step.call([w, np.ones(4, np.float32)])
    assert w.is_deleted()


def test_the_module_must_have_the_stated_signature():
    text = binary("add", f32[4])
    for inputs, outputs, donated in (
        ([f32[4]] * 2, [f32[3]], ()),
        ([f32[4]] * 2, [i32[4]], ()),
        ([f32[4]], [f32[4]], ()),
        ([f32[4]] * 2, [f32[4]], (0,)),
    ):
        with pytest.raises(InternalError, match="stated signature"):
            Executable(text, inputs, outputs, donated)


def test_mlir_types():
    types = (f32[2, 3], bool_[()], bf16[1], c64[2], u8[0], i64[5], f64[()])
    assert [mlir_type(t) for t in types] == [
        "tensor<2x3xf32>", "tensor<i1>", "tensor<1xbf16>", "tensor<2xcomplex<f32>>", "tensor<0xui8>", "tensor<5xi64>",
        "tensor<f64>",
    ]  # fmt: skip


def test_invalid_modules_and_programs_that_xla_refuses():
    with pytest.raises(InternalError, match="not valid StableHLO"):
        Executable("module { nonsense }", [], [])
    text = """module { func.func public @main() -> tensor<f32> {
      %r = stablehlo.custom_call @no_such_target() : () -> tensor<f32>
      return %r : tensor<f32> } }"""
    with raises("E0407", "no_such_target"):
        Executable(text, [], [f32[()]]).call([])


def test_no_inputs_and_no_outputs():
    text = """module { func.func public @main() -> tensor<i32> {
      %r = stablehlo.constant dense<7> : tensor<i32>
      return %r : tensor<i32> } }"""
    assert pjrt.to_numpy(Executable(text, [], [i32[()]]).call([])[0]) == 7
    assert Executable("module { func.func public @main() { return } }", [], []).call([]) == []


def test_memory_report_and_optimised_text():
    program = add_donating(f32[1024])
    report = program.memory()
    assert (report.arguments, report.outputs, report.aliased) == (8192, 4096, 4096)
    assert report.total == 8192 + report.temporaries
    assert "total" in str(report)
    assert "input_output_alias" in program.hlo_text()


def test_what_cannot_fit_is_refused_before_it_is_compiled():
    n = 1 << 46
    text = f"""module {{ func.func public @main() -> tensor<{n}xf32> {{
      %r = stablehlo.iota dim = 0 : tensor<{n}xf32>
      return %r : tensor<{n}xf32> }} }}"""
    with raises("E0405", f"{4 * n:,} bytes"):
        Executable(text, [], [f32[n]])


def test_errors_of_xla_keep_their_text_and_get_a_code():
    for text, code in (
        ("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.", "E0405"),
        ("INVALID_ARGUMENT: Buffer has been deleted or donated.", "E0402"),
        ("INTERNAL: the cable is loose", "E0406"),
    ):
        error = pjrt.explain(RuntimeError(text), "running step")
        assert error.code == code and text in str(error)


CALLBACK = """module { func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %r = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {api_version = 4 : i32, has_side_effect = true,
    backend_config = {index = 0 : ui64}} : (tensor<2xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32> } }"""


def test_callbacks_run_are_not_cached_and_their_errors_come_out(cache_folder):
    triple = Executable(CALLBACK, [f32[2]], [f32[2]], callbacks=[lambda x: (x * 3,)])
    assert pjrt.to_numpy(triple.call([np.array([1, 2], np.float32)])[0]).tolist() == [3, 6]
    assert not list(cache_folder.glob("*"))

    def fail(x):
        raise ValueError("no such luck")

    failing = Executable(CALLBACK, [f32[2]], [f32[2]], callbacks=[fail])
    with raises("E0406", "no such luck"):
        pjrt.block_until_ready(failing.call([np.zeros(2, np.float32)]))


def test_eight_threads_compile_and_run():
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def work(k: int) -> None:
        try:
            start.wait()
            program = add(f32[k + 1])
            shared = add(f32[3])
            for i in range(20):
                for p, n in ((program, k + 1), (shared, 3)):
                    (result,) = p.call([np.full(n, i, np.float32), np.full(n, k, np.float32)])
                    assert (pjrt.to_numpy(result) == i + k).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
