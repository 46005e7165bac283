"""Which functions run on the host, and that they run there as compiled."""

import numpy as np
import pytest

import treadle as td
from treadle import driver, ops
from treadle.base.flags import flags
from treadle.base.small import limit, quietly
from treadle.ir import build
from treadle.ir.types import TensorType
from treadle.runtime import host


def types(*shapes, dtype=td.float32):
    return [TensorType(dtype, shape) for shape in shapes]


def test_size_work_bodies_and_effects_decide():
    small = build.trace(lambda x: ops.add(ops.exp(x), x), types((8,)))
    assert host.program(small) is not None
    assert host.program(build.trace(ops.exp, types((flags.host_elements + 1,)))) is None
    spread = build.trace(lambda x: ops.broadcast_to(x, shape=(flags.host_elements + 1,)), types(()))
    assert host.program(spread) is None, "the result is large"
    assert host.program(build.trace(ops.matmul, types((180, 180), (180, 180)))) is None, "much work"


def test_ops_without_a_reference_are_taken_apart():
    fn = build.trace(lambda x, s, b: ops.layer_norm(x, s, b, axes_count=1, eps=1e-5), types((4, 8), (8,), (8,)))
    run = host.program(fn)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=t.shape).astype("f4") for t in fn.in_types]
    x, s, b = (a.astype("f8") for a in arrays)
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * s + b
    (found,) = run(arrays)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint64", "complex64"])
def test_types_are_those_of_compiled_programs(dtype):
    x = td.Tensor(np.array([1, 0, 1, 3])).astype(getattr(td, dtype))
    functions = [lambda x: x + x, lambda x: x * 2, lambda x: (x == x).sum(), lambda x: td.where(x == x, x, x * x)]
    functions += [lambda x: x.sum(), lambda x: x / 2, td.concatenate, lambda x: x.reshape(2, 2).T]
    for f in functions:
        args = [x, x] if f is td.concatenate else x
        eager, compiled = f(args), td.jit(f)(args)
        assert eager.dtype is compiled.dtype
        np.testing.assert_array_equal(eager.numpy(), compiled.numpy())


def test_no_warnings_of_numpy_and_errors_pass_through():
    with np.errstate(all="raise"):
        assert td.log(td.Tensor([0.0])).tolist() == [-np.inf]
        assert (td.Tensor([1e38]) * 1e38).tolist() == [np.inf]
        assert quietly(quietly, np.divide, 1.0, 0.0) == np.inf, "also one inside another"
    with pytest.raises(ValueError, match="mine"):
        quietly(_raise)


def _raise():
    raise ValueError("mine")


def test_a_changed_limit_plans_again():
    x = td.Tensor(np.ones(20))
    before = flags.host_elements
    assert isinstance((x * 3)._value, np.ndarray)
    try:
        flags.host_elements = 4
        driver.forget_eager_programs()
        assert limit.now == 4
        assert not isinstance((x * 3)._value, np.ndarray)
        assert (x * 3).tolist() == [3] * 20
    finally:
        flags.host_elements = before
        driver.forget_eager_programs()
    assert isinstance((td.Tensor(np.ones(20)) * 3)._value, np.ndarray)
