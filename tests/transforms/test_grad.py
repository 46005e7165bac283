"""Reverse mode: how functions are split, what is kept, what is refused, where nodes come from, and loops of any length.

Derivatives of single ops are in tests/ops, those of random programs in test_random_gradients.py. Here everything runs
through the interpreter.
"""

import numpy as np
import pytest

from treadle import ops
from treadle.base import where
from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import f64, i32
from treadle.ir.verify import verify, verify_fn
from treadle.ir.walk import all_nodes
from treadle.ops._declare import No, op
from treadle.transforms.grad import linearise, value_and_vjp, vjp

S = f64[()]


def names(fn):
    return [node.op.name for node in fn.nodes]


def trace(function, *types):
    return build.trace(function, types, "main")


def run_split(line, arrays, cts):
    """Outputs and gradients by the two parts of a split function."""
    n = len(line.forward.outputs) - len(line.from_param)
    results = interp.run(line.forward, *arrays)
    return results[:n], interp.run(line.backward, *results[n:], *cts)


# --- splitting --------------------------------------------------------------------------------------------------------


def test_types_of_forward_and_backward():
    fn = trace(lambda x, n, y: (ops.tanh(x) * y, ops.add(n, 1), ops.reduce_sum(y, axes=(0,))), f64[3], i32[()], f64[3])
    line = linearise(fn, [True, False, True])
    verify_fn(line.forward)
    verify_fn(line.backward)
    assert line.forward.in_types == fn.in_types
    assert line.forward.out_types == (*fn.out_types, *line.residual_types)
    assert line.backward.in_types == (*line.residual_types, f64[3], S)
    assert line.backward.out_types == (f64[3], f64[3])
    x, y = np.array([0.1, -0.2, 0.3]), np.array([1.0, 2.0, 3.0])
    outputs, (dx, dy) = run_split(line, [x, np.int32(4), y], [np.ones(3), np.float64(2)])
    np.testing.assert_allclose(outputs[0], np.tanh(x) * y)
    assert outputs[1] == 5
    np.testing.assert_allclose(dx, y * (1 - np.tanh(x) ** 2))
    np.testing.assert_allclose(dy, np.tanh(x) + 2)


def test_only_outputs_that_are_asked_for_get_a_cotangent():
    line = linearise(trace(lambda x: (x * x, x * 3.0), S), [True], [False, True])
    assert line.backward.in_types == (*line.residual_types, S)
    assert line.residual_types == ()
    assert run_split(line, [np.float64(5)], [np.float64(2)])[1] == (6.0,)


def test_residuals_that_are_parameters_are_recognised():
    line = linearise(trace(lambda x, w: ops.tanh(x * w) * w, S, S), [True, True])
    assert len(line.from_param) == 3
    assert sorted(p for p in line.from_param if p is not None) == [0, 1]
    for residual, p in zip(line.forward.outputs[1:], line.from_param, strict=True):
        assert (residual in line.forward.params) == (p is not None)
        assert p is None or residual is line.forward.params[p]


def test_each_residual_is_kept_once():
    line = linearise(trace(lambda x: ops.exp(x) * ops.exp(x) + x * x, S), [True])
    assert len(set(line.forward.outputs[1:])) == len(line.from_param)


def test_constants_are_made_again_not_kept():
    def f(x):
        table = ops.reshape(ops.iota(shape=(4,), axis=0, dtype=x.dtype) * 2.0, shape=(2, 2))
        return x * table

    line = linearise(trace(f, f64[2, 2]), [True])
    assert line.from_param == ()
    assert line.backward.in_types == (f64[2, 2],)
    assert {"iota", "reshape"} <= set(names(line.backward))
    (grad,) = run_split(line, [np.ones((2, 2))], [np.ones((2, 2))])[1]
    assert grad.tolist() == [[0, 2], [4, 6]]


def test_what_does_not_depend_on_wrt_costs_nothing():
    line = linearise(trace(lambda x, y: ops.tanh(y) * x, S, S), [True, False])
    assert "tanh" not in names(line.backward)
    assert len(line.residual_types) == 1 and line.from_param == (None,)
    line = linearise(trace(lambda x, y: x + ops.tanh(y), S, S), [True, False])
    assert line.from_param == () and names(line.backward) == []


def test_gradients_of_inputs_that_nothing_reaches_are_zeros():
    fn = trace(lambda x, y: (x * 2.0, ops.stop_gradient(y)), S, f64[2])
    dx, dy = interp.run(vjp(fn), np.float64(1), np.ones(2), np.float64(1), np.ones(2))
    assert dx == 2 and dy.tolist() == [0, 0]


def test_an_output_that_is_an_input_and_one_that_is_there_twice():
    def f(x):
        y = x * x
        return y, x, y

    (dx,) = interp.run(vjp(trace(f, S)), *map(np.float64, (3, 1, 10, 100)))
    assert dx == 101 * 6 + 10


def test_a_value_used_often_gets_the_sum():
    (dx,) = interp.run(vjp(trace(lambda x: x * x * x + x + ops.neg(x) * x, S)), np.float64(2), np.float64(1))
    assert dx == 3 * 4 + 1 - 2 * 2


@pytest.mark.parametrize(
    ("seeds", "params", "wanted"), [("params", 2, [4, 30]), ("ones", 0, [1 * 4 + 1 * 3]), ([False, True], 0, [3])]
)
def test_seeds(seeds, params, wanted):
    fn = trace(lambda x: (x * x, ops.cast(x, dtype=i32[()].dtype), x * 3.0), S)
    flags = seeds if isinstance(seeds, str) else [seeds[0], False, seeds[1]]
    joint = value_and_vjp(fn, [0], seeds=flags)
    assert len(joint.params) == 1 + params
    if params:
        found = [interp.run(joint, np.float64(2), *cts)[-1] for cts in (np.eye(2) * [1, 10])]
    else:
        found = [interp.run(joint, np.float64(2))[-1]]
    assert interp.run(joint, np.float64(2), *[np.float64(0)] * params)[:3] == (4, 2, 6)
    assert found == wanted


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_integer_inputs_are_refused():
    with pytest.raises(UserError, match=r"E0305.*argument 1 is i32"):
        value_and_vjp(trace(lambda x, n: x * 2.0, S, i32[3]), [0, 1])
    assert vjp(trace(lambda x, n: x * 2.0, S, i32[3])).main.out_types == (S,)


@pytest.fixture
def rounded():
    """An op on floats that has no derivative."""

    def rounded_down(x):
        """floor(x), without a derivative."""

    rules = {"type": lambda x: x, "axes": "... -> ...", "onnx": No("not here"), "samples": lambda s: iter(())}
    made = op(expand=lambda x: ops.floor(x), grad=No("it has steps"), **rules)(rounded_down)
    yield made
    del ops.OPS[made.name]


def test_a_derivative_that_does_not_exist_names_the_users_line(rounded):
    def f(x):
        y = x * 2.0
        return rounded(y)

    with pytest.raises(UserError, match=r"E0303 .*rounded_down has no derivative: it has steps") as caught:
        vjp(trace(f, f64[3]))
    error = caught.value
    assert error.where.file == __file__
    assert error.where.source_line() == "return rounded(y)"
    assert "stop_gradient" in error.fix
    fine = vjp(trace(lambda x: x * rounded(ops.stop_gradient(x)), f64[1]))
    assert interp.run(fine, np.array([2.5]), np.ones(1))[0].tolist() == [2]


def recursive():
    def body(n, x):
        then = build.trace(lambda n, x: ops.call(ops.sub(n, 1), x * x, callee="f", results=(S,)), [i32[()], S], "more")
        orelse = build.trace(lambda n, x: x, [i32[()], S], "done")
        return ops.if_(ops.greater(n, 0), n, x, then=then, orelse=orelse)

    callee = build.trace(body, [i32[()], S], "f")
    main = trace(lambda n, x: ops.call(n, x, callee="f", results=(S,)), i32[()], S)
    return Module.of(main, {"f": callee})


def test_recursion_is_refused():
    module = verify(recursive())
    assert interp.run(module, np.int32(2), np.float64(2)) == (16.0,)
    with pytest.raises(UserError, match=r"E0304.*f -> f"):
        vjp(module)


# --- calls ------------------------------------------------------------------------------------------------------------


def called_twice():
    callee = build.trace(lambda x, y: (ops.sin(x) * y, y * y), [S, S], "f")

    def main(x, y):
        a, b = ops.call(x, y, callee="f", results=(S, S))
        c, d = ops.call(a, b, callee="f", results=(S, S))
        return c + d

    return Module.of(trace(main, S, S), {"f": callee})


def test_a_function_called_twice_is_split_once():
    module = verify(vjp(called_twice()))
    assert set(module.fns) == {"main", "f", "f.fwd11", "f.bwd11"}
    called = [n.attrs["callee"] for n in module.main.nodes if n.op.name == "call"]
    assert called == ["f.fwd11", "f.fwd11", "f.bwd11", "f.bwd11"]


def test_a_function_called_with_other_active_inputs_is_split_again():
    callee = build.trace(lambda x, y: x * y, [S, S], "f")

    def main(x, y):
        (a,) = ops.call(x, y, callee="f", results=(S,))
        (b,) = ops.call(a, y, callee="f", results=(S,))
        return b

    module = verify(vjp(Module.of(trace(main, S, S), {"f": callee}), [1]))
    assert set(module.fns) == {"main", "f", "f.fwd01", "f.bwd01", "f.fwd11", "f.bwd11"}
    assert interp.run(module, np.float64(3), np.float64(2), np.float64(1)) == (12.0,)


def numeric(module, arrays, step=1e-6):
    """Central differences of the first result for every float argument that is one number."""
    moved = [i for i, a in enumerate(arrays) if a.dtype == np.float64]
    result = []
    for i in moved:
        ends = [interp.run(module, *[a + s if j == i else a for j, a in enumerate(arrays)])[0] for s in (step, -step)]
        result.append((ends[0] - ends[1]) / (2 * step))
    return result


def check_orders(module, *arrays):
    """First and second order against central differences of the order before, by numbers of the arguments' types."""
    arrays = [np.asarray(a) for a in arrays]
    first = verify(vjp(module))
    one = np.float64(1.0)
    np.testing.assert_allclose(interp.run(first, *arrays, one), numeric(module, arrays), rtol=1e-6, atol=1e-8)
    second = verify(vjp(first))
    grads = interp.run(first, *arrays, one)
    for i in range(len(grads)):
        cts = [np.float64(i == j) for j in range(len(grads))]
        found = interp.run(second, *arrays, one, *cts)
        one_result = Module.of(_result(first.main, i), first.callees())
        wanted = numeric(one_result, [*arrays, one])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def _result(fn, i):
    return type(fn)(fn.name, fn.params, fn.nodes, (fn.outputs[i],))


def test_second_order_through_calls():
    check_orders(called_twice(), 0.4, 0.7)


def test_second_order_through_rematerialisation_and_by_hand():
    body = build.trace(lambda x, y: ops.sin(x * y) * x, [S, S], "part")
    by_hand = build.trace(lambda x: (ops.exp(x), ops.exp(x)), [S], "exp")
    backward = build.trace(lambda x, y, kept, d: kept * d, [S] * 4, "exp_grad")

    def main(x, y):
        (z,) = ops.remat(x, y, body=body)
        return ops.custom_vjp(z * y, body=by_hand, backward=backward, n_outputs=1)

    check_orders(Module.of(trace(main, S, S)), 0.4, 0.7)


# --- positions --------------------------------------------------------------------------------------------------------


def everything():
    """A program with every op that has bodies, a saved variant and an op that is differentiated by its expansion."""
    callee = build.trace(lambda x: ops.tanh(x), [f64[3]], "f")
    cond, body = (build.trace(g, [i32[()], f64[3]], n) for g, n in ((below_two, "cond"), (grow, "body")))
    then, orelse = build.trace(lambda x: x * x, [f64[3]], "then"), build.trace(lambda x: ops.sin(x), [f64[3]], "orelse")
    step = build.trace(lambda c, x: (c * x, c + x), [S, S], "step")

    def main(x):
        (x,) = ops.call(x, callee="f", results=(f64[3],))
        with where.scope("loop"):
            _, x = ops.while_(ops.full(value=0, shape=(), dtype=i32[()].dtype), x, cond=cond, body=body, n_consts=0)
        total = ops.reduce_sum(x, axes=(0,))
        (x,) = ops.if_(ops.less(total, 0.0), x, then=then, orelse=orelse)
        (x,) = ops.remat(x, body=then)
        c, ys = ops.scan(total, x, body=step, n_consts=0, n_carry=1, length=3)
        return ops.reduce_sum(ops.softmax(ops.softplus(ys), axis=0) * ys, axes=(0,)) + c

    return Module.of(trace(main, f64[3]), {"f": callee})


def below_two(n, x):
    return ops.less(n, 2)


def grow(n, x):
    return ops.add(n, 1), ops.sin(x) * x


def test_every_node_of_a_gradient_has_a_position_of_the_program():
    module = everything()
    places = {(n.where.file, n.where.line) for n in all_nodes(module)}
    assert {file for file, _ in places} == {__file__}
    gradient = verify(vjp(module))
    second = verify(vjp(gradient))
    for each in (gradient, second):
        for node in all_nodes(each):
            assert (node.where.file, node.where.line) in places, f"{node!r} in\n{each}"
    assert {n.where.scope for n in all_nodes(gradient) if n.op.name == "while"} == {"loop"}


# --- loops ------------------------------------------------------------------------------------------------------------

CAPACITY = 4


def loop(trips, x, w, capacity=CAPACITY):
    """x after `trips` (a value) times x = sin(x w) + x."""
    types = [S, i32[()], i32[()], S]
    cond = build.trace(lambda w, n, i, x: ops.less(i, n), types, "cond")
    body = build.trace(lambda w, n, i, x: (n, ops.add(i, 1), ops.sin(x * w) + x), types, "body")
    start = ops.full(value=0, shape=(), dtype=i32[()].dtype)
    return ops.while_(w, trips, start, x, cond=cond, body=body, n_consts=1, capacity=capacity)[2]


@pytest.mark.parametrize("trips", [0, 1, CAPACITY - 1, CAPACITY, CAPACITY + 1, 3 * CAPACITY + 2])
@pytest.mark.parametrize("capacity", [1, CAPACITY])
def test_loops_of_any_length(trips, capacity):
    module = Module.of(trace(lambda n, x, w: loop(n, x, w, capacity), i32[()], S, S))
    check_orders(module, np.int32(trips), 0.4, 0.3)


def test_a_loop_runs_the_body_again_only_beyond_its_capacity():
    """The numbers of body runs are what docs/decisions promises: trips, and those of the earlier segments again."""
    module = vjp(trace(lambda n, x, w: loop(n, x, w), i32[()], S, S))
    sines = []
    sin = ops.OPS["sin"].rules["ref"]

    def counted(x):
        sines.append(x)
        return sin(x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ops.OPS["sin"].rules, "ref", counted)
        for trips, runs in ((0, 0), (3, 3), (4, 4), (5, 5 + 4), (10, 10 + 8 + 4)):
            sines.clear()
            interp.run(module, np.int32(trips), *map(np.float64, (0.4, 0.3, 1.0)))
            assert len(sines) == runs, f"{trips} trips"


def test_a_capacity_that_is_no_power_of_two_is_refused():
    with pytest.raises(UserError, match=r"E0173.*capacity 3"):
        vjp(trace(lambda n, x, w: loop(n, x, w, 3), i32[()], S, S))


@pytest.mark.parametrize("trips", [0, 3, 6])
def test_a_loop_in_a_scan(trips):
    step = build.trace(lambda n, w, c, x: (loop(n, c * x, w, 2), c + x), [i32[()], S, S, S], "step")

    def main(n, x, w):
        xs = ops.concatenate(ops.reshape(x, shape=(1,)), ops.reshape(w, shape=(1,)), axis=0)
        c, ys = ops.scan(n, w, x, xs, body=step, n_consts=2, n_carry=1, length=2)
        return c * ops.reduce_sum(ys, axes=(0,))

    check_orders(Module.of(trace(main, i32[()], S, S)), np.int32(trips), 0.4, 0.3)


@pytest.mark.parametrize("trips", [0, 3])
@pytest.mark.parametrize("flag", [True, False])
def test_a_loop_in_a_branch(trips, flag):
    then = build.trace(lambda n, x, w: loop(n, x, w, 2), [i32[()], S, S], "then")
    orelse = build.trace(lambda n, x, w: ops.sin(w) * x * x, [i32[()], S, S], "orelse")

    def main(n, x, w):
        return ops.if_(ops.less(x, 1.0 if flag else -1.0), n, x, w, then=then, orelse=orelse)

    check_orders(Module.of(trace(main, i32[()], S, S)), np.int32(trips), 0.4, 0.3)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_branch_in_a_loop(trips):
    types = [S, S]
    then = build.trace(lambda x, w: x * w, types, "then")
    orelse = build.trace(lambda x, w: ops.exp(x) + w, types, "orelse")
    carry = [S, i32[()], i32[()], S]

    def body(w, n, i, x):
        (x,) = ops.if_(ops.less(x, 1.0), x, w, then=orelse, orelse=then)
        return n, ops.add(i, 1), x

    cond = build.trace(lambda w, n, i, x: ops.less(i, n), carry, "cond")
    step = build.trace(body, carry, "body")

    def main(n, x, w):
        zero = ops.full(value=0, shape=(), dtype=i32[()].dtype)
        return ops.while_(w, n, zero, x, cond=cond, body=step, n_consts=1, capacity=2)[2]

    check_orders(Module.of(trace(main, i32[()], S, S)), np.int32(trips), 0.4, 0.3)


def test_a_loop_in_a_loop():
    types = [S, i32[()], i32[()], S]
    cond = build.trace(lambda w, n, i, x: ops.less(i, n), types, "cond")
    body = build.trace(lambda w, n, i, x: (n, ops.add(i, 1), loop(i, x, w, 1)), types, "body")

    def main(n, x, w):
        zero = ops.full(value=0, shape=(), dtype=i32[()].dtype)
        return ops.while_(w, n, zero, x, cond=cond, body=body, n_consts=1, capacity=2)[2]

    check_orders(Module.of(trace(main, i32[()], S, S)), np.int32(3), 0.4, 0.3)


def test_a_loop_of_default_capacity():
    check_orders(Module.of(trace(lambda n, x, w: loop(n, x, w, 0), i32[()], S, S)), np.int32(5), 0.4, 0.3)
