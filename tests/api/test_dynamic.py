"""`jit(dynamic=...)`: one program per bucket of sizes with the results of the real sizes, or a refusal."""

import math

import numpy as np
import pytest

import treadle as td
from treadle import UserError, nn, ops
from treadle.api import dynamic

F = nn.functional
RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(5, 4)).astype(np.float32)
TABLE = td.tensor(RNG.normal(size=(16, 5)).astype(np.float32))
ZERO, FAR = td.tensor(np.int32(0)), td.tensor(np.int32(100))
KERNEL = RNG.normal(size=(3, 5, 3)).astype(np.float32)


def merged(x):
    return (x.reshape(-1, 5) @ WEIGHT).reshape(x.shape[0], x.shape[1], 4)


def ones(x, count):
    return td.ones((x.shape[0], count, 5))


def while_loop(x):
    h, t = td.zeros((x.shape[0], 5)), td.tensor(0)
    while t < x.shape[1]:
        h, t = td.tanh(h * 0.5 + x[:, t]), t + 1
    return h


EXACT = {  # x: float32[batch, length, 5]
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(1),
    "max": lambda x: x.max(1),
    "min of all": lambda x: x.min(),
    "product": lambda x: (1.0 + x * 0.01).prod(1),
    "variance": lambda x: x.var(),
    "softmax": lambda x: td.softmax(x, axis=1),
    "logsumexp": lambda x: td.logsumexp(x, axis=1),
    "argmax": lambda x: x.argmax(1),
    "any": lambda x: (x > 2).any(1),
    "all": lambda x: (x > -2).all(1),
    "cumsum": lambda x: td.cumsum(x, axis=1),
    "cumprod": lambda x: td.cumprod(x, axis=1),
    "sort": lambda x: td.sort(x, axis=1),
    "top_k": lambda x: td.topk(x.sum(2), 2)[0],
    "flip": lambda x: td.flip(x, 1),
    "last": lambda x: x[:, -1],
    "last two": lambda x: x[:, -2:],
    "first three": lambda x: x[:, :3],
    "differences": lambda x: x[:, 1:] - x[:, :-1],
    "the middle": lambda x: x[:, x.shape[1] // 2],
    "the size as a number": lambda x: x.sum(1) / x.shape[1] + math.sqrt(x.shape[0]),
    "the size returned": lambda x: x.shape[1],
    "arange": lambda x: x * td.arange(x.shape[1])[:, None].astype(td.float32),
    "numpy table": lambda x: np.tril(np.ones((x.shape[1], x.shape[1]), np.float32)) @ x,
    "part of a table": lambda x: x + TABLE[: x.shape[1]],
    "contracted": lambda x: td.matmul(td.permute(x, (0, 2, 1)), x),
    "kept twice": lambda x: td.matmul(x, td.permute(x, (0, 2, 1))),
    "merged axes": merged,
    "merged axes returned": lambda x: x.reshape(-1, 5) * 2,
    "flattened": lambda x: x.reshape(x.shape[0], -1).mean(1),
    "joined in front": lambda x: td.concatenate([ones(x, 1), x], 1),
    "joined behind": lambda x: td.concatenate([x, ones(x, 2)], 1),
    "padded": lambda x: td.pad(x, ((0, 0), (1, 2), (0, 0))),
    "stacked": lambda x: td.stack([x, x * 2], 1),
    "rolled": lambda x: td.roll(x, 1, axis=1),
    "gathered": lambda x: td.take_along_axis(x, x.argmax(1)[:, None], 1),
    "one hot": lambda x: F.one_hot(x.argmax(1), x.shape[1]),
    "layer norm": lambda x: F.layer_norm(x, (5,)),
    "standardised": lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True),
    "convolution": lambda x: F.conv1d(td.permute(x, (0, 2, 1)), KERNEL, padding=1).max(2),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "clamped slice": lambda x: ops.dynamic_slice(x, ZERO, FAR, ZERO, sizes=(x.shape[0], 2, 5)),
    "clamped update": lambda x: ops.dynamic_update_slice(x, x[:, :2] * 0 + 7, ZERO, FAR, ZERO),
    "clamped take": lambda x: ops.take(x, td.tensor(np.array([0, 500], np.int32)), axis=1),
    "scattered": lambda x: ops.scatter_add_along(
        td.zeros((x.shape[0], 4, 5)), td.abs(x * 3).astype(td.int32), x, axis=1
    ),
    "branch": lambda x: td.cond(x.sum() > 0, lambda a: a * 2 / a.shape[1], lambda a: a - a.mean(1, keepdims=True), x),
    "checkpoint": lambda x: td.checkpoint(lambda a: td.softmax(a, axis=1) / a.shape[1])(x),
    "scan": lambda x: td.scan(lambda c, r: (c * 0.5 + r, c), ones(x, 1)[:, 0], td.permute(x, (1, 0, 2)), reverse=True)[
        0
    ],
    "while": while_loop,
    "running maximum": lambda x: ops.cummax(x, axis=1, reverse=True)[0],
    "cross entropy": lambda x: F.cross_entropy(x.reshape(-1, 5), td.abs(x[:, :, 0]).astype(td.int32).reshape(-1)),
    "batch norm": lambda x: F.batch_norm(td.permute(x, (0, 2, 1)), None, None, training=True),
    "vmap": lambda x: td.vmap(lambda row: td.softmax(row, axis=0).max(0))(x),
    "branch in Python": lambda x: x * 2 if x.shape[1] > 10 else x * 3,
    "NaN where there is padding": lambda x: (x / td.abs(x)).sum(1) + td.log(td.abs(x)).mean(0).sum(),
}
DIFFERENTIABLE = (
    "mean", "max", "softmax", "cumsum", "sort", "top_k", "flip", "last two", "first three", "differences",
    "the middle", "the size as a number", "arange", "part of a table", "merged axes", "joined in front",
    "joined behind", "padded", "gathered", "layer norm", "standardised", "convolution", "attention",
    "clamped update", "scattered", "branch", "checkpoint", "scan", "while", "cross entropy", "batch norm",
)  # fmt: skip


def drawn(batch, length):
    return td.tensor(RNG.normal(size=(batch, length, 5)).astype(np.float32))


def check(function, sizes=((3, 9), (5, 13), (8, 16)), programs=1):
    compiled = td.jit(lambda x: function(x), dynamic={"x": {0: "batch", 1: "length"}})
    for batch, length in sizes:
        x = drawn(batch, length)
        found, wanted = compiled(x), function(x)
        if not isinstance(wanted, td.Tensor):
            assert found == wanted
            continue
        assert found.shape == wanted.shape and found.dtype is wanted.dtype
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.cache_info().compiled == programs


@pytest.mark.parametrize("name", EXACT)
def test_results_are_those_of_the_real_sizes(name):
    check(EXACT[name], programs=2 if name == "branch in Python" else 1)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_the_real_sizes(name):
    check(lambda x: td.grad(lambda y: td.sin(EXACT[name](y)).sum())(x))


REFUSED = {
    "sorted over merged axes": (lambda x: td.sort(x.reshape(-1), axis=0), "E0260"),
    "place in merged axes": (lambda x: x.reshape(-1).argmax(0), "E0260"),
    "convolution over merged axes": (lambda x: F.conv1d(x.reshape(1, 5, -1), KERNEL), "E0260"),
    "every second": (lambda x: x[:, ::2], "E0260"),
    "the first half": (lambda x: x[:, : x.shape[1] // 2], "E0260"),
    "joined to itself": (lambda x: td.concatenate([x, x], 1), "E0260"),
    "pooled": (lambda x: F.max_pool1d(td.permute(x, (0, 2, 1)), 2), "E0260"),
    "transformed": (lambda x: td.fft.rfft(x, axis=1), "E0260"),
    "printed": (lambda x: td.debug_print("{}", x), "E0260"),
    "size printed": (lambda x: td.debug_print(f"{x.shape[1]}"), "E0260"),
    "another tensor": (lambda x: x.sum() if x.shape[1] == 9 else TABLE.sum(), "E0261"),
    "another axis": (lambda x: (x @ td.permute(x, (0, 2, 1))).max(2 if x.shape[1] == 9 else 1), "E0261"),
    "another op": (lambda x: td.sin(x) if x.shape[1] == 9 else td.cos(x), "E0261"),
    "loop in Python": (lambda x: [td.sin(x[:, t]) for t in range(x.shape[1])][-1], "E0261"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_padded_is_refused_at_its_line(name):
    function, code = REFUSED[name]
    with pytest.raises(UserError) as e:
        td.jit(function, dynamic={0: {0: "batch", 1: "length"}})(drawn(3, 9))
    assert e.value.code == code
    if name != "another tensor":  # the traces as a whole differ there
        assert e.value.where.file == __file__


def test_a_size_at_which_the_function_differs_is_noticed_later_too():
    compiled = td.jit(lambda x: td.sin(x) if x.shape[0] == 13 else td.cos(x), dynamic={"x": {0: "n"}})
    for n in (12, 15):
        np.testing.assert_allclose(compiled(np.ones(n)).numpy(), np.cos(np.ones(n)))
    with pytest.raises(UserError, match="E0261"):
        compiled(np.ones(13))


def test_a_tensor_that_python_looks_at_for_some_sizes_only_counts_for_those():
    factor = td.tensor(2.0)
    f = td.jit(lambda x: x.sum() * (float(factor.item()) if x.shape[0] == 9 else 2.0), dynamic={"x": {0: "n"}})
    assert [f(np.ones(n)).item() for n in (10, 9, 9)] == [20, 18, 18]
    factor.assign(3.0)
    assert [f(np.ones(n)).item() for n in (10, 9)] == [20, 27]


def test_numbers_are_those_of_each_size_though_the_program_is_kept():
    @td.jit(dynamic={"x": {0: "n"}})
    def f(x):
        return x.sum() + x.shape[0] ** 2

    assert [f(np.ones(n)).item() for n in (9, 10, 9, 10)] == [90, 110, 90, 110]
    assert f.cache_info().compiled == 1


def test_a_new_size_is_traced_and_not_compiled_a_known_one_neither(monkeypatch):
    seen, trace = [], dynamic.trace_for

    def counted(function, args, kwargs):
        seen.append(args[0].shape[0])
        return trace(function, args, kwargs)

    monkeypatch.setattr(dynamic, "trace_for", counted)
    f = td.jit(lambda x: x.sum(), dynamic={"x": {0: "n"}})
    for n, sizes in ((9, [9, 16, 15]), (10, [10]), (9, []), (10, []), (16, [16])):
        seen.clear()
        assert f(np.ones(n)).item() == n and seen == sizes
    assert f.cache_info().compiled == 1


def test_random_numbers_are_those_of_the_real_places():
    def f(x, key):
        normal = ops.random_normal(key, shape=x.shape, dtype=td.float32)
        return x + normal, ops.random_uniform(key, shape=x.shape, dtype=td.float32, low=0.0, high=1.0)

    compiled, key = td.jit(f, dynamic={"x": {0: "batch", 1: "length"}}), td.tensor(np.array([1, 2], np.uint32))
    for sizes in ((5, 13), (3, 9)):
        x = drawn(*sizes)
        for found, wanted in zip(compiled(x, key), f(x, key), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_sizes_up_to_two_and_buckets_of_the_user():
    compiled = td.jit(lambda x: x / x.sum(0, keepdims=True), dynamic={"x": {0: "n"}}, buckets={"n": [4, 20]})
    for n in (0, 1, 2, 3, 4, 11, 20, 1):
        np.testing.assert_allclose(compiled(np.ones((n, 1))).numpy(), np.full((n, 1), 1 / max(n, 1)))
    assert compiled.cache_info().compiled == 5  # for 0, 1 and 2, up to 4, up to 20
    with pytest.raises(UserError, match="E0263 n is 21; its buckets are"):
        compiled(np.ones((21, 1)))
    tens = td.jit(lambda x: x.sum(), dynamic={"x": {0: "n"}}, buckets={"n": lambda n: -(-n // 10) * 10})
    assert [tens(np.ones(n)).item() for n in (5, 9, 11, 20)] == [5, 9, 11, 20]
    assert tens.cache_info().compiled == 2


def test_parameters_buffers_and_arguments_that_are_changed():
    class Net(td.Cell):
        def __init__(self):
            self.total = td.Parameter(td.zeros(2))

        def forward(self, x):
            self.total.assign(self.total + x.mean(0))
            x += 1.0
            return x.sum(0)

    net, x = Net(), td.ones((5, 2))
    compiled = td.jit(net, dynamic={"x": {0: "n"}})
    assert compiled(x).tolist() == [10, 10] and x.tolist() == [[2, 2]] * 5
    assert compiled(x).tolist() == [15, 15] and compiled(td.ones((7, 2))).tolist() == [14, 14]
    assert net.total.tolist() == [4, 4] and compiled.cache_info().compiled == 1
    keep = td.Parameter(td.zeros(9))
    with pytest.raises(UserError, match=r"E0263 .* E0503"):
        td.jit(lambda x: keep.assign(x), dynamic={"x": {0: "n"}})(np.ones(9, np.float32))


def test_containers_methods_and_names():
    class Model:
        @td.jit(dynamic={"batch": {0: "n"}})
        def total(self, batch, scale=1.0):
            return {"sum": (batch["x"] * batch["y"]).sum() * scale, "rows": batch["x"] * 2}

    model = Model()
    for n in (5, 7):
        found = model.total(batch={"x": np.ones(n), "y": np.ones(n)}, scale=2.0)
        assert found["sum"].item() == 2 * n and found["rows"].shape == (n,)
    assert Model.total is not None and td.jit(lambda x: x.mean(), dynamic={"x": {-1: "n"}})(np.ones((2, 5))).item() == 1


def test_wrong_use_is_told():
    two = td.jit(lambda x, y: x + y, dynamic={0: {0: "n"}, "y": {0: "n"}})
    with pytest.raises(UserError, match="E0262 n is 5 in axis 0 of argument 0 and 6 in axis 0 of argument 1"):
        two(np.ones(5), np.ones(6))
    for names, buckets, code in (
        ({"z": {0: "n"}}, None, "E0262"),
        ({"x": {3: "n"}}, None, "E0262"),
        ({"x": "n"}, None, "E0263"),
        ({"x": {0: 1}}, None, "E0263"),
        ({"x": {0: "n"}}, {"m": [8]}, "E0263"),
        ({"x": {0: "n"}}, {"n": 8}, "E0263"),
    ):
        with pytest.raises(UserError, match=code):
            td.jit(lambda x: x, dynamic=names, buckets=buckets)(np.ones(5))
    small = td.tensor(np.ones(13))
    with pytest.raises(UserError, match=r"E0263 at the padded sizes \{'n': 16\} the function fails: E0108"):
        td.jit(lambda x: x + small[: x.shape[0]], dynamic={"x": {0: "n"}})(np.ones(12))


def test_inside_other_traces_it_is_the_plain_function():
    f = td.jit(lambda x: (x * x).mean(), dynamic={"x": {0: "n"}})
    np.testing.assert_allclose(td.grad(f)(td.ones(5)).numpy(), np.full(5, 0.4), rtol=1e-6)
    assert td.jit(lambda x: f(x) + 1)(td.ones(5)).item() == 2 and f.cache_info().compiled == 0


def test_nan_in_padding_is_no_nan_found():
    with td.debug_nans():
        assert td.jit(lambda x: 1 / x, dynamic={"x": {0: "n"}})(np.ones(5)).tolist() == [1] * 5
