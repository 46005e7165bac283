"""The language itself: types, reductions, operators on tensors, the spellings of te.lang.cce, and what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import treadle as td
from treadle import te
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.te.lang import cce


def given(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_numbers_and_index_variables_are_weak():
    x, n = te.placeholder((3,)), te.placeholder((3,), "int32", "n")
    types = {
        "float32": [
            lambda i: x[i] * 2 + i,
            lambda i: 1.5 * i,
            lambda i: x[i] * n[i].astype("float32"),
            lambda i: i / 2,
        ],
        "float64": [lambda i: x[i] + n[i]],
        "int64": [lambda i: i + 1, lambda i: i // 2],
        "int32": [lambda i: n[i] + 1, lambda i: n[i] * i],
        "bool": [lambda i: x[i] > 0, lambda i: i == 1],
    }
    for name, functions in types.items():
        for f in functions:
            assert te.compute((3,), f).dtype is dtypes.of(name)


def test_a_reduction_from_an_offset_and_over_two_axes():
    x = te.placeholder((4, 5))
    k, m = te.reduce_axis((1, 4)), te.reduce_axis((0, 4))
    a = given(4, 5)
    part = te.compute((4,), lambda i: te.sum(x[i, k], axis=k))
    assert_allclose(te.evaluate(part, {x: a}), a[:, 1:4].sum(1), rtol=1e-5)
    most = te.compute((), lambda: te.max(x[m, k], axis=[m, k]))
    assert te.evaluate(most, {x: a}) == a[:, 1:4].max()
    twice = te.compute((4,), lambda i: te.sum(x[i, k], axis=k) * te.sum(x[m, 0], axis=m))  # k and m serve twice
    assert_allclose(te.evaluate(twice, {x: a}), a[:, 1:4].sum(1) * a[:, 0].sum(), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_a_reducer_of_pairs_is_argmax(size):
    argmax = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[0] >= y[0], x[0], y[0]), te.if_then_else(x[0] >= y[0], x[1], y[1])),
        lambda t0, t1: (float("-inf"), -1),
    )

    @te.op
    def both(x):
        k = te.reduce_axis(x.shape[1])
        return te.compute((x.shape[0],), lambda i: argmax((x[i, k], k), axis=k))

    a = given(3, size)
    most, place = both(a)
    assert_allclose(most.numpy(), a.max(1))
    assert (place.numpy() == a.argmax(1)).all()
    gradient = td.grad(lambda x: td.sum(both(x)[0]))(td.Tensor(a)).numpy()
    assert_allclose(gradient, np.eye(size)[a.argmax(1)])


def test_an_order_is_kept_by_a_reducer_that_does_not_commute():
    last = te.comm_reducer(
        lambda x, y: (te.if_then_else(y[1], y[0], x[0]), x[1] | y[1]), lambda t0, t1: (0, False)
    )  # fmt: skip

    @te.op
    def newest(x, seen):
        k = te.reduce_axis(x.shape[0])
        return te.compute((), lambda: last((x[k], seen[k]), axis=k))[0]

    x, seen = np.arange(7, dtype=np.int32), np.array([1, 0, 1, 1, 0, 0, 0], bool)
    for run in (newest, td.jit(newest)):
        assert run(x, seen).item() == 3
    assert newest(x, np.zeros(7, bool)).item() == 0


def test_empty_reductions_and_empty_results():
    @te.op
    def total(x):
        k = te.reduce_axis(x.shape[1])
        return te.compute((x.shape[0],), lambda i: te.sum(x[i, k], axis=k))

    for run in (total, td.jit(total)):
        assert run(np.zeros((3, 0), np.float32)).tolist() == [0.0] * 3
        assert run(np.zeros((0, 3), np.float32)).shape == (0,)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_sums_are_kept_in_float32(dtype):
    @te.op
    def total(x):
        k = te.reduce_axis(x.shape[0])
        return te.compute((), lambda: te.sum(x[k], axis=k))

    x = td.ones(4096, dtype=dtype)
    for run in (total, td.jit(total)):
        assert run(x).item() == 4096.0


def test_an_operator_is_built_once_for_each_signature():
    built = []

    @te.op
    def scaled(x, by=2.0):
        """Each element times a number."""
        built.append((x.shape, by))
        return te.compute(x.shape, lambda *i: x[i] * by)

    assert scaled.__doc__ == "Each element times a number."
    for _ in range(3):
        assert scaled(np.ones(3, np.float32)).tolist() == [2.0] * 3
    assert scaled(np.ones(3, np.float32), by=3.0).tolist() == [3.0] * 3
    assert scaled(np.ones((2, 1), np.float32)).tolist() == [[2.0], [2.0]]
    assert len(built) == 3
    inner = te.placeholder((3,))
    assert isinstance(scaled(inner), te.Tensor)
    with pytest.raises(UserError, match="E0103"):
        scaled(np.ones(3, np.float32), by=[1])


def test_several_results_and_tensors_of_tensors():
    @te.op
    def split(x):
        half = x.shape[0] // 2
        return te.compute((half,), lambda i: x[i]), te.compute((half,), lambda i: x[i + half]) * 2.0

    low, high = split(np.arange(6, dtype=np.float32))
    assert (low.tolist(), high.tolist()) == ([0, 1, 2], [6, 8, 10])
    lanes = td.vmap(split)(td.Tensor(np.arange(12, dtype=np.float32).reshape(2, 6)))
    assert lanes[1].tolist() == [[6, 8, 10], [18, 20, 22]]


def test_an_operator_in_a_compiled_training_step():
    @te.op
    def dense(x, w):
        k = te.reduce_axis(x.shape[1])
        return te.compute((x.shape[0], w.shape[1]), lambda i, j: te.maximum(te.sum(x[i, k] * w[k, j], axis=k), 0.0))

    x, w = td.Tensor(given(4, 3)), td.Tensor(given(3, 2, seed=1))
    loss = td.jit(td.value_and_grad(lambda w: td.mean(dense(x, w))))
    wanted = td.value_and_grad(lambda w: td.mean(td.nn.functional.relu(x @ w)))
    for a, b in zip(loss(w), wanted(w), strict=True):
        assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


CCE = {
    "vadd": (cce.vadd, np.add, 2), "vsub": (cce.vsub, np.subtract, 2), "vmul": (cce.vmul, np.multiply, 2),
    "vdiv": (cce.vdiv, np.divide, 2), "vmax": (cce.vmax, np.maximum, 2), "vmin": (cce.vmin, np.minimum, 2),
    "vexp": (cce.vexp, np.exp, 1), "vlog": (cce.vlog, np.log, 1), "vabs": (cce.vabs, np.abs, 1),
    "vrec": (cce.vrec, np.reciprocal, 1), "vrelu": (cce.vrelu, lambda x: np.maximum(x, 0), 1),
    "vsqrt": (cce.vsqrt, np.sqrt, 1), "vrsqrt": (cce.vrsqrt, lambda x: 1 / np.sqrt(x), 1),
    "vadds": (lambda x: cce.vadds(x, 2.5), lambda x: x + np.float32(2.5), 1),
    "vmuls": (lambda x: cce.vmuls(x, 2.5), lambda x: x * np.float32(2.5), 1),
    "vmaxs": (lambda x: cce.vmaxs(x, 1.0), lambda x: np.maximum(x, np.float32(1)), 1),
    "vmins": (lambda x: cce.vmins(x, 1.0), lambda x: np.minimum(x, np.float32(1)), 1),
    "vaxpy": (lambda x, y: cce.vaxpy(x, y, 3.0), lambda x, y: 3 * x + y, 2),
    "vmla": (cce.vmla, lambda x, y, z: x * y + z, 3), "vmadd": (cce.vmadd, lambda x, y, z: x * z + y, 3),
    "vmaddrelu": (cce.vmaddrelu, lambda x, y, z: np.maximum(x * z + y, 0), 3),
    "vcmp": (lambda x, y: cce.vcmp(x, y, "gt"), np.greater, 2),
    "vcmpsel": (lambda x, y: cce.vcmpsel(x, y, "lt", x, 0.0), lambda x, y: np.where(x < y, x, np.float32(0)), 2),
    "sum": (lambda x: cce.sum(x, 1), lambda x: x.sum(1), 1),
    "sum_kept": (lambda x: cce.sum(x, [0, -1], keepdims=True), lambda x: x.sum((0, 1), keepdims=True), 1),
    "reduce_max": (lambda x: cce.reduce_max(x, 0), lambda x: x.max(0), 1),
    "reduce_min": (lambda x: cce.reduce_min(x, 0), lambda x: x.min(0), 1),
    "reduce_prod": (lambda x: cce.reduce_prod(x, 1), lambda x: x.prod(1), 1),
    "broadcast": (lambda x: cce.broadcast(x, (2, 3, 4)), lambda x: np.broadcast_to(x, (2, 3, 4)), 1),
    "cast_to": (lambda x: cce.cast_to(x, "int32"), lambda x: x.astype(np.int32), 1),
    "matmul": (lambda x, y: cce.matmul(x, y, False, True), lambda x, y: x @ y.T, 2),
    "matmul_trans_a": (lambda x, y: cce.matmul(x, y, True), lambda x, y: x.T @ y, 2),
    "concat": (lambda x, y, z: cce.concat([x, y, z], 0), lambda *xs: np.concatenate(xs, 0), 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CCE)
def test_the_spellings_of_cce(name):
    function, wanted, n = CCE[name]
    arrays = [np.abs(given(3, 4, seed=s)) + 0.1 for s in range(n)]
    answer = wanted(*arrays)
    places = [te.placeholder((3, 4), name=f"x{s}") for s in range(n)]
    found = te.evaluate(function(*places), dict(zip(places, arrays, strict=True)))
    assert found.dtype == answer.dtype
    assert_allclose(found, answer, rtol=1e-5)
    assert_allclose(function(*map(td.Tensor, arrays)).numpy(), answer, rtol=1e-5)
    assert_allclose(td.jit(function)(*map(td.Tensor, arrays)).numpy(), answer, rtol=1e-5)


def test_whole_tensors_broadcast():
    x, y = te.placeholder((3, 1)), te.placeholder((4,), name="y")
    a, b = given(3, 1), given(4)
    for made, wanted in (
        (x + y, a + b),
        (2.0 - x * y, 2 - a * b),
        (te.exp(x) / (y * y + 1.0), np.exp(a) / (b * b + 1)),
    ):
        assert_allclose(te.evaluate(made, {x: a, y: b}), wanted, rtol=1e-5)


def test_what_came_from_a_tensor_is_forgotten_with_it():
    from treadle.te import _bridge

    before = len(_bridge._origins)
    x = td.Tensor(given(3))
    for _ in range(5):
        y = cce.vexp(cce.vmuls(x, 2.0))
    del x, y
    assert len(_bridge._origins) <= before


def test_refusals():
    x = te.placeholder((3, 4))
    k = te.reduce_axis(4)
    for code, wrong in {
        "E0206": lambda: te.compute((3,), lambda i: 1.0 if i > 0 else 0.0),
        "E0107": lambda: x[0],
        "E0102": lambda: te.compute((3,), lambda i: "a"),
        "E0103": lambda: te.compute((3,), lambda i: x[i, k]),
        "E0138": lambda: te.compute((3,), lambda i: x[i, x[i, 0]]),
        "E0109": lambda: te.compute((-1,), lambda i: 0.0),
        "E0108": lambda: x + te.placeholder((5,)),
        "E0581": lambda: te.op(lambda x: 3)(np.ones(3)),
    }.items():
        with pytest.raises(UserError, match=code):
            wrong()
    with pytest.raises(UserError, match="E0107"):
        te.compute((3,), lambda i: te.sum(x[i, 0], axis=i))
    with pytest.raises(UserError, match="E0103"):
        te.comm_reducer(lambda a, b: a + b + x[0, 0], lambda t: 0.0)(x[0, k], axis=k)
    with pytest.raises(UserError, match="E0114"):
        cce.matmul(x, te.placeholder((5, 2)))
    with pytest.raises(UserError, match="E0103"):
        cce.vcmp(x, x, "about")
