"""Batching of functions against a loop over the lanes: random programs, every op with a body, and what the result is
made of; tests/ops/test_generated.py has it for each op."""

from itertools import product

import numpy as np
import pytest
from tests.ops.support import cases
from tests.support.random_programs import SMOOTH, random_arguments, random_module, together

from treadle import driver, ops
from treadle.base import dtypes
from treadle.base import flags as flags_of_treadle
from treadle.ir import build, interp
from treadle.ir.node import Fn, Module
from treadle.ir.types import bool_, f64, i32, u32
from treadle.ir.verify import verify
from treadle.ir.walk import all_nodes
from treadle.transforms.batch import Batch, batch
from treadle.transforms.grad import vjp
from treadle.transforms.jvp import jvp

COUNT, CHUNKS = 160, 4
THREE = list(product([False, True], repeat=3))


def check(fn, flags, arrays, size, fns=None, tol=1e-10):
    """The batched function is the loop over lanes; returns it."""
    fns = {} if fns is None else fns
    one = Module.of(fn, dict(fns))
    batched = batch(fn, flags, size, fns)
    module = verify(Module.of(batched, fns))
    found = interp.run(module, *arrays)
    lanes = [interp.run(one, *[a[k] if f else a for a, f in zip(arrays, flags)]) for k in range(size)]
    for i, result in enumerate(found):
        wanted = np.stack([lane[i] for lane in lanes])
        scale = tol * (1 + np.abs(wanted).max(initial=0)) if wanted.dtype.kind in "fc" else 0
        np.testing.assert_allclose(result, wanted, rtol=tol, atol=scale, err_msg=str(module))
        assert result.dtype == wanted.dtype
    return batched


def names(fn):
    return [n.op.name for n in all_nodes(fn)]


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs_are_loops_over_the_lanes(chunk):
    """They have branches, loops, scans, calls, rematerialised parts and derivatives given by hand."""
    for seed in range(chunk, COUNT, CHUNKS):
        module = random_module(seed, SMOOTH, size=8, dtype=dtypes.float64)
        rng = np.random.default_rng(seed)
        flags = [bool(b) for b in rng.integers(0, 2, len(module.main.params))]
        lanes = [random_arguments(module.main, seed + 1000 * k) for k in range(3)]
        arrays = [np.stack(x) if f else x[0] for x, f in zip(zip(*lanes), flags)]
        check(module.main, flags, arrays, 3, module.callees())


def test_gradients_of_random_programs_are_loops_over_the_lanes():
    for seed in range(40):
        module = vjp(random_module(seed, SMOOTH, size=5, dtype=dtypes.float64))
        flags = [(seed + i) % 3 > 0 for i in range(len(module.main.params))]
        lanes = [[draw(*t.shape, seed=10 * k + i) for i, t in enumerate(module.main.in_types)] for k in range(2)]
        arrays = [np.stack(x) if f else x[0] for x, f in zip(zip(*lanes), flags)]
        check(module.main, flags, arrays, 2, module.callees(), tol=1e-8)


@pytest.mark.parametrize("chunk", range(2))
def test_gradients_of_batched_programs_are_those_of_the_lanes(chunk):
    for seed in range(chunk, 50, 2):
        module = random_module(seed, SMOOTH, size=6, dtype=dtypes.float64)
        flags = [(seed + i) % 3 > 0 for i in range(len(module.main.params))]
        lanes = [random_arguments(module.main, seed + 1000 * k) for k in range(3)]
        arrays = [np.stack(x) if f else x[0] for x, f in zip(zip(*lanes), flags)]
        fns = module.callees()
        batched = Module.of(batch(module.main, flags, 3, fns), fns)
        cotangents = [draw(*t.shape, seed=seed) for t in batched.main.out_types]
        found = interp.run(vjp(batched), *arrays, *cotangents)
        one = vjp(module)
        each = [
            interp.run(one, *[a[k] if f else a for a, f in zip(arrays, flags)], *[c[k] for c in cotangents])
            for k in range(3)
        ]
        for grad, f, *parts in zip(found, flags, *each, strict=True):
            wanted = np.stack(parts) if f else sum(parts)
            scale = 1e-9 * (1 + np.abs(wanted).max(initial=0))
            np.testing.assert_allclose(grad, wanted, rtol=1e-9, atol=scale, err_msg=f"seed {seed}")


def test_lanes_that_do_not_take_a_branch_do_not_spoil_the_gradient():
    """sqrt has an infinite derivative at 0, where the other branch is taken or the loop is over."""
    root = build.trace(lambda x: ops.sqrt(x), [f64[()]])
    double = build.trace(lambda x: x * 2.0, [f64[()]])
    fn = build.trace(lambda x: ops.if_(ops.greater(x, 0.0), x, then=root, orelse=double), [f64[()]])
    positive = build.trace(lambda x: ops.greater(x, 0.5), [f64[()]])
    down = build.trace(lambda x: ops.sqrt(x) - 1.0, [f64[()]])
    loop = build.trace(lambda x: ops.while_(x, cond=positive, body=down, n_consts=0), [f64[()]])
    for each, arrays in ((fn, ([4.0, 0.0, 1.0], [0.0, 0.0], [1.0, 4.0])), (loop, ([4.0, 0.0, 9.0], [0.0, 0.0]))):
        for x in map(np.array, arrays):
            (found,) = interp.run(vjp(batch(each, [True], len(x))), x, np.ones(len(x)))
            wanted = [interp.run(vjp(each), v, np.array(1.0))[0] for v in x]
            assert np.isfinite(found).all()
            np.testing.assert_allclose(found, wanted)


def test_the_back_end_gives_the_interpreters_numbers():
    """Batched programs, their derivatives forwards, and batched derivatives, compiled together."""
    modules, arguments = [], []
    for seed in range(18):
        module = random_module(seed, SMOOTH, size=5, dtype=dtypes.float64)
        fns = module.callees()
        flags = [(seed + i) % 3 > 0 for i in range(len(module.main.params))]
        lanes = batch(module.main, flags, 2, fns)
        pushed = jvp(lanes if seed % 2 else module.main, range(len(flags)), fns)
        made = pushed if seed % 2 else batch(pushed, [*flags, *flags], 2, fns)
        modules.append(verify(Module.of(made, fns)))
        arguments.append([draw(*t.shape, seed=seed + i) for i, t in enumerate(made.in_types)])
    with flags_of_treadle.override(cache=False):
        executable = driver.compile_module(driver.optimise(together(modules)))
    found = iter(executable([a for arrays in arguments for a in arrays]))
    for seed, module, arrays in zip(range(18), modules, arguments):
        for wanted in interp.run(module, *arrays):
            np.testing.assert_allclose(np.asarray(next(found)), wanted, rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}")


def test_what_lanes_share_is_computed_once():
    fn = build.trace(lambda x, y: x + ops.exp(y), [f64[3], f64[3]])
    batched = check(fn, [True, False], [draw(4, 3), draw(3)], 4)
    exp = next(n for n in batched.nodes if n.op.name == "exp")
    assert exp.outputs[0].type == f64[3]
    same = check(fn, [False, False], [draw(3), draw(3)], 4)
    assert names(same) == ["exp", "add", "broadcast_to"]


def test_lanes_of_rows_times_one_matrix_are_one_product():
    fn = build.trace(lambda x, w: x @ w, [f64[2, 3], f64[3, 5]])
    batched = check(fn, [True, False], [draw(4, 2, 3), draw(3, 5)], 4)
    assert [n.outputs[0].type for n in batched.nodes if n.op.name == "matmul"] == [f64[8, 5]]
    assert names(check(fn, [True, True], [draw(4, 2, 3), draw(4, 3, 5)], 4)) == ["matmul"]


def test_convolutions_stay_one_node():
    window = {"stride": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 2}
    fn = build.trace(lambda x, w: ops.conv(x, w, **window), [f64[2, 4, 5], f64[6, 2, 3]])
    for flags in ((True, False), (False, True), (True, True)):
        arrays = [draw(*([3] * f), *s) for f, s in zip(flags, ((2, 4, 5), (6, 2, 3)))]
        batched = check(fn, flags, arrays, 3)
        assert names(batched).count("conv") == 1
        assert "scan" not in names(batched)


SINGLE = {
    "softmax": lambda x: ops.softmax(x, axis=1),
    "reduce_max": lambda x: ops.reduce_max(x, axes=(1,)),
    "sort": lambda x: ops.sort(x, axis=0, descending=True),
    "cumsum": lambda x: ops.cumsum(x, axis=1, reverse=False),
    "transpose": lambda x: ops.transpose(x, perm=(1, 0)),
    "concatenate": lambda x: ops.concatenate(x, x, axis=1),
    "slice": lambda x: ops.slice_(x, starts=(0, 1), limits=(2, 3), strides=(1, 1)),
    "top_k": lambda x: ops.top_k(x, k=2),
    "tanh": ops.tanh,
}


@pytest.mark.parametrize("name", SINGLE)
def test_one_node_stays_one_node(name):
    batched = check(build.trace(SINGLE[name], [f64[2, 3]]), [True], [draw(4, 2, 3)], 4)
    assert names(batched) == [name]


def test_few_ops_go_lane_by_lane(monkeypatch):
    """All operands batched: only those that look up nothing on an axis of size 0. Others want a `batch` rule."""
    slow, each = set(), Batch._each

    def noted(self, node, inputs, flags):
        slow.add((node.op.name, any(v.type.size == 0 for v in (*node.inputs, *node.outputs))))
        return each(self, node, inputs, flags)

    monkeypatch.setattr(Batch, "_each", noted)
    for name in ops.OPS.keys() - {"host_call", "host_function"}:  # Python takes one lane
        for case in cases(name):
            fn = build.trace(lambda *v: case.op(*v, **case.node.attrs), case.types, name)  # noqa: B023
            batch(fn, [True] * len(case.types), 3)
    lookups = {"take", "index_sum", "index_add", "index_mul", "index_max", "index_min"}
    assert slow == {(name, True) for name in lookups}


def test_gradients_of_kernels_for_each_sample_are_one_product():
    """XLA's CPU back end runs a convolution with a group for each sample a hundred times as slow."""
    window = {"kernel_size": (3,), "stride": (2,), "padding": ((2, -1),), "dilation": (1,), "groups": 2}
    fn = build.trace(lambda x, dy: ops.conv_weight_grad(x, dy, **window), [f64[2, 4, 7], f64[2, 6, 3]])
    for flags in ((True, False), (False, True), (True, True)):
        arrays = [draw(*([3] * f), *s) for f, s in zip(flags, ((2, 4, 7), (2, 6, 3)))]
        assert names(check(fn, flags, arrays, 3)).count("contract") == 1


@pytest.mark.parametrize("flags", THREE)
def test_branches(flags):
    then = build.trace(lambda x, y: (x * y, x), [f64[2], f64[2]])
    orelse = build.trace(lambda x, y: (ops.sin(x), y), [f64[2], f64[2]])
    fn = build.trace(lambda p, x, y: ops.if_(p, x, y, then=then, orelse=orelse), [bool_[()], f64[2], f64[2]])
    pred = np.array([True, False, True]) if flags[0] else np.array(False)
    arrays = [pred, draw(*[3] * flags[1], 2), draw(*[3] * flags[2], 2, seed=1)]
    batched = check(fn, flags, arrays, 3)
    assert names(batched).count("if") == (2 if flags[0] else 1)
    assert "scan" not in names(batched)


def loop(body=lambda w, n, x: (n + 1, x * w)):
    types = [f64[2], i32[()], f64[2]]
    cond = build.trace(lambda w, n, x: ops.less(n, 5), types)
    step = build.trace(body, types)
    return build.trace(lambda *a: ops.while_(*a, cond=cond, body=step, n_consts=1), types)


@pytest.mark.parametrize("flags", THREE)
def test_loops_whose_lanes_end_at_different_trips(flags):
    start = np.array([7, 2, 4], np.int32) if flags[1] else np.array(2, np.int32)
    arrays = [draw(*[3] * flags[0], 2), start, draw(*[3] * flags[2], 2, seed=1)]
    batched = check(loop(), flags, arrays, 3)
    assert ("reduce_or" in names(batched)) == flags[1]
    assert names(batched).count("while") == 1


def test_a_loop_that_need_not_end_runs_only_for_the_lanes_that_want_it():
    """The inner loop ends for no other lane; and a branch with a loop runs only where it is taken."""
    count = [i32[()]]
    until = build.trace(lambda n: ops.not_equal(n, 0), count)
    down = build.trace(lambda n: n - 2, count)
    ends_if_even = build.trace(lambda n: ops.while_(n, cond=until, body=down, n_consts=0), count)
    same = build.trace(lambda n: n, count)
    choose = build.trace(lambda p, n: ops.if_(p, n, then=ends_if_even, orelse=same), [bool_[()], i32[()]])
    check(choose, [True, True], [np.array([True, False, True]), np.array([4, 3, 0], np.int32)], 3)

    outer_types = [i32[()], i32[()]]
    more = build.trace(lambda k, n: ops.less(k, 2), outer_types)
    both = build.trace(lambda k, n: (k + 1, *build.inline(ends_if_even, [n + 2 * k])), outer_types)
    fn = build.trace(lambda *a: ops.while_(*a, cond=more, body=both, n_consts=0), outer_types)
    check(fn, [True, True], [np.array([0, 5], np.int32), np.array([4, 3], np.int32)], 2)


@pytest.mark.parametrize("flags", THREE)
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(flags, reverse):
    step = build.trace(lambda w, n, h, x: (n + 1, h * w, ops.sin(h) + x), [f64[2], i32[()], f64[2], f64[2]])
    shape = {"n_consts": 1, "n_carry": 2, "length": 4, "reverse": reverse}
    types = [f64[2], i32[()], f64[2], f64[4, 2]]
    fn = build.trace(lambda *a: ops.scan(*a, body=step, **shape), types)
    w, h, x = flags
    arrays = [draw(*[3] * w, 2), np.array(0, np.int32), draw(*[3] * h, 2, seed=1), draw(*[3] * x, 4, 2, seed=2)]
    batched = check(fn, [w, False, h, x], arrays, 3)
    assert names(batched).count("scan") == 1
    scan = next(n for n in batched.nodes if n.op.name == "scan")
    assert scan.outputs[0].type == i32[()], "the counter is the same for all lanes"
    assert (scan.outputs[1].type == f64[3, 2]) == (w or h)


def test_calls_are_batched_once_and_recursion_ends():
    fns: dict[str, Fn] = {}
    types = (f64[()], i32[()])
    down = build.trace(lambda x, n: x * ops.call(x, n - 1, callee="power", results=(f64[()],))[0], types, "down", fns)
    stop = build.trace(lambda x, n: ops.full(value=1.0, shape=(), dtype=x.dtype), types, "stop", fns)
    fns["power"] = build.trace(
        lambda x, n: ops.if_(ops.greater(n, 0), x, n, then=down, orelse=stop), types, "power", fns
    )
    call = lambda x, n: ops.call(x, n, callee="power", results=(f64[()],))[0]
    fn = build.trace(lambda x, n: call(x, n) + call(2.0 * x, n), types, "main", fns)
    check(fn, [True, False], [draw(3), np.array(4, np.int32)], 3, fns)
    assert [k for k in fns if "batch" in k] == ["power.batch3_10"]
    check(fn, [True, True], [draw(3), np.array([4, 0, 2], np.int32)], 3, fns)


def test_a_derivative_given_by_hand_stays_and_sums_over_lanes_that_share():
    body = build.trace(lambda x, w: x * w, [f64[2], f64[2]])
    backward = build.trace(lambda x, w, y, d: (3.0 * d * w, 5.0 * d * x), [f64[2]] * 4)
    fn = build.trace(lambda x, w: ops.custom_vjp(x, w, body=body, backward=backward, n_outputs=1), [f64[2], f64[2]])
    x, w, d = draw(3, 2), draw(2, seed=1), draw(3, 2, seed=2)
    batched = check(fn, [True, False], [x, w], 3)
    dx, dw = interp.run(vjp(batched), x, w, d)
    np.testing.assert_allclose(dx, 3 * d * w)
    np.testing.assert_allclose(dw, np.sum(5 * d * x, axis=0))


def test_a_rematerialised_part_stays_one():
    body = build.trace(lambda x, w: ops.tanh(x * w), [f64[2], f64[2]])
    fn = build.trace(lambda x, w: ops.remat(x, w, body=body), [f64[2], f64[2]])
    assert "remat" in names(check(fn, [True, False], [draw(3, 2), draw(2)], 3))


@pytest.mark.parametrize("size", [0, 1])
def test_no_lane_and_one_lane(size):
    def f(x, w, i):
        y = ops.softmax(x @ w, axis=1)
        return ops.take(y, i, axis=0), ops.reduce_sum(y, axes=(0, 1)), ops.sort(y, axis=0, descending=False)

    fn = build.trace(f, [f64[2, 3], f64[3, 3], i32[4]])
    arrays = [draw(size, 2, 3), draw(3, 3), np.zeros((size, 4), np.int32)]
    batched = batch(fn, [True, False, True], size)
    found = interp.run(batched, *arrays)
    assert [r.shape for r in found] == [(size, 4, 3), (size,), (size, 2, 3)]
    if size:
        check(fn, [True, False, True], arrays, 1)


def test_random_numbers_by_keys():
    fn = build.trace(lambda k: ops.random_normal(k, shape=(3,), dtype=dtypes.float64), [u32[2]])
    keys = np.array([[0, 1], [2, 3]], np.uint32)
    batched = check(fn, [True], [keys], 2)
    assert "scan" not in names(batched)
