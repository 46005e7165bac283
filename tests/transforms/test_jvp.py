"""Forward mode of functions: against reverse mode and central differences, through every op with a body, and to higher
order; tests/ops/test_generated.py has it for each op."""

import numpy as np
import pytest
from tests.ops.support import assert_transposed
from tests.support.random_programs import SMOOTH, random_arguments, random_module

from treadle import ops
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Fn, Module
from treadle.ir.types import f64, i32
from treadle.ir.verify import verify
from treadle.ir.walk import all_nodes
from treadle.transforms.jvp import jvp

COUNT, CHUNKS = 240, 4


def pushed(fn, arrays, tangents, wrt=None, fns=None):
    """Outputs and tangents by the interpreter."""
    fns = {} if fns is None else fns
    forward = jvp(fn, range(len(tangents)) if wrt is None else wrt, fns)
    return interp.run(verify(Module.of(forward, fns)), *arrays, *tangents)


def ops_of(fn):
    return [n.op.name for n in all_nodes(fn)]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs_agree_with_reverse_mode(chunk):
    """They have branches, loops, scans, calls, rematerialised parts and derivatives given by hand."""
    for seed in range(chunk, COUNT, CHUNKS):
        module = random_module(seed, SMOOTH, size=8, dtype=dtypes.float64)
        with np.errstate(all="ignore"):
            assert_transposed(module, random_arguments(module.main, seed), f"seed {seed}\n{module}", tol=1e-9)


def test_random_programs_agree_with_central_differences():
    for seed in range(40):
        module = random_module(seed, SMOOTH, size=6, dtype=dtypes.float64)
        arrays = random_arguments(module.main, seed)
        rng = np.random.default_rng(seed)
        moves = [rng.normal(size=a.shape) for a in arrays]
        ahead, behind = (interp.run(module, *[a + s * d for a, d in zip(arrays, moves)]) for s in (1e-6, -1e-6))
        found = pushed(module.main, arrays, moves, fns=module.callees())[len(ahead) :]
        for a, b, tangent in zip(ahead, behind, found, strict=True):
            scale = 1e-5 * (1 + np.abs(tangent).max(initial=0))
            np.testing.assert_allclose(tangent, (a - b) / 2e-6, atol=scale, err_msg=f"seed {seed}")


def test_third_order_is_forward_three_times():
    fn = build.trace(lambda x: ops.sin(x * x), [f64[()]])
    for _ in range(3):
        pushed_once, one = jvp(fn, [0]), lambda: ops.full(value=1.0, shape=(), dtype=dtypes.float64)
        fn = build.trace(lambda x: build.inline(pushed_once, [x, one()])[-1], [f64[()]])  # noqa: B023
    x = 0.7
    wanted = -12 * x * np.sin(x * x) - 8 * x**3 * np.cos(x * x)
    np.testing.assert_allclose(interp.run(fn, np.array(x))[0], wanted, rtol=1e-12)


def test_only_what_moves_gets_tangents():
    def f(x, y):
        return x * y, ops.sin(y), ops.argmax(x, axis=0)

    fn = build.trace(f, [f64[3], f64[3]])
    x, y, dx = np.array([1.0, 2, 3]), np.array([4.0, 5, 6]), np.array([1.0, 0, -1])
    results = pushed(fn, [x, y], [dx], wrt=[0])
    np.testing.assert_allclose(results[3], dx * y)
    np.testing.assert_array_equal(results[4], np.zeros(3))
    assert len(results) == 5
    assert ops_of(jvp(fn, [0])).count("cos") == 0


def test_linear_ops_are_applied_to_the_tangent():
    fn = build.trace(lambda x: ops.reduce_sum(ops.transpose(x, perm=(1, 0)), axes=(0,)), [f64[2, 3]])
    assert ops_of(jvp(fn, [0])) == ["transpose", "transpose", "reduce_sum", "reduce_sum"]


def test_a_product_has_one_term_for_each_factor_that_moves():
    fn = build.trace(lambda x, y: x @ y, [f64[2, 3], f64[3, 2]])
    assert ops_of(jvp(fn, [1])) == ["matmul", "matmul"]
    assert ops_of(jvp(fn, [0, 1])).count("matmul") == 3


def test_loops_keep_no_stacks():
    """A scan and a while in forward mode are one loop each, without the pushing and peeking of reverse mode."""
    step = build.trace(lambda w, h, x: (ops.tanh(h * w + x), h * x), [f64[2]] * 3)
    scan = build.trace(
        lambda w, h, xs: ops.scan(w, h, xs, body=step, n_consts=1, n_carry=1, length=4, reverse=False),
        [f64[2], f64[2], f64[4, 2]],
    )
    types = [f64[2], i32[()], f64[2]]
    cond = build.trace(lambda w, n, x: ops.less(n, 5), types)
    body = build.trace(lambda w, n, x: (n + 1, ops.sin(x * w)), types)
    loop = build.trace(lambda *a: ops.while_(*a, cond=cond, body=body, n_consts=1), types)
    for fn, wrt, name in ((scan, [0, 1, 2], "scan"), (loop, [0, 2], "while")):
        names = ops_of(jvp(fn, wrt))
        assert names.count(name) == 1
        assert not {"dynamic_slice", "dynamic_update_slice"} & set(names)


def test_a_carry_that_starts_still_gets_a_tangent_from_the_constants():
    body = build.trace(lambda w, h: (h + w,), [f64[()], f64[()]])
    fn = build.trace(
        lambda w, h: ops.scan(w, h, body=body, n_consts=1, n_carry=1, length=3, reverse=False), [f64[()], f64[()]]
    )
    assert pushed(fn, [np.array(2.0), np.array(1.0)], [np.array(1.0)], wrt=[0])[-1] == 3


def test_a_recursive_function_has_a_forward_derivative():
    """power(x, n) = x * power(x, n - 1); reverse mode refuses it (E0304)."""
    fns: dict[str, Fn] = {}
    types = (f64[()], i32[()])
    down = build.trace(lambda x, n: x * ops.call(x, n - 1, callee="power", results=(f64[()],))[0], types, "down", fns)
    stop = build.trace(lambda x, n: ops.full(value=1.0, shape=(), dtype=x.dtype), types, "stop", fns)
    fns["power"] = build.trace(
        lambda x, n: ops.if_(ops.greater(n, 0), x, n, then=down, orelse=stop), types, "power", fns
    )
    fn = build.trace(lambda x, n: ops.call(x, n, callee="power", results=(f64[()],)), types, "main", fns)
    value, tangent = pushed(fn, [np.array(2.0), np.array(5, np.int32)], [np.array(1.0)], wrt=[0], fns=fns)
    assert (value, tangent) == (32, 80)


def test_a_callee_is_differentiated_once_for_each_set_of_inputs():
    fns = {"f": build.trace(lambda x, y: x * y, [f64[2], f64[2]], "f")}
    call = lambda x, y: ops.call(x, y, callee="f", results=(f64[2],))[0]
    fn = build.trace(lambda x, y: call(call(call(x, y), y), y), [f64[2], f64[2]], "main", fns)
    jvp(fn, [0], fns)
    assert sorted(fns) == ["f", "f.jvp10"]


def test_a_derivative_given_by_hand_is_used():
    """Its backward says 3 times what is true, and so does forward mode."""
    body = build.trace(lambda x: ops.sin(x), [f64[2]])
    backward = build.trace(lambda x, y, d: 3.0 * d * ops.cos(x), [f64[2]] * 3)
    fn = build.trace(lambda x: ops.custom_vjp(x, body=body, backward=backward, n_outputs=1), [f64[2]])
    x, dx = np.array([0.3, 0.4]), np.array([1.0, -2])
    np.testing.assert_allclose(pushed(fn, [x], [dx])[-1], 3 * np.cos(x) * dx)


def test_stop_gradient_stops_tangents():
    fn = build.trace(lambda x: x * ops.stop_gradient(x), [f64[()]])
    assert pushed(fn, [np.array(3.0)], [np.array(1.0)])[-1] == 3


def test_what_cannot_be_differentiated_says_so():
    fn = build.trace(lambda n: n * 2, [i32[()]])
    with pytest.raises(UserError, match="E0305"):
        jvp(fn, [0])
