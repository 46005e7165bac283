"""Tensors, functions, primitives and gradients of treadle.compat.mindspore against NumPy and closed forms."""

import copy
import pickle
import types

import numpy as np
import pytest

import treadle as td
import treadle.compat.mindspore as ms
import treadle.compat.mindspore.numpy as mnp
from treadle import UserError
from treadle.compat.mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from treadle.compat.mindspore.common.initializer import One, TruncatedNormal, initializer
from treadle.compat.mindspore.ops import composite as C
from treadle.compat.mindspore.ops import operations as P

X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
Y = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)


def close(found, wanted, rtol=1e-5):
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.asnumpy(), wanted, rtol=rtol, atol=1e-6)


@pytest.fixture(params=[ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def mode(request):
    ms.set_context(mode=request.param)
    yield request.param
    ms.set_context(mode=ms.PYNATIVE_MODE)


# ------------------------------------------------------------------------------------------------------------ tensors
def test_making_tensors():
    assert Tensor(3).dtype == ms.int64
    assert Tensor([0.5]).dtype == ms.float32
    assert Tensor(np.zeros(2)).dtype == ms.float64
    assert Tensor((1, 2), ms.float16).dtype is ms.mstype.float16
    close(Tensor(shape=(2, 2), dtype=ms.float32, init=One()).init_data(), np.ones((2, 2)))
    with pytest.raises(UserError, match="E0590"):
        Tensor()
    a = Tensor(X)
    assert (a.shape, a.ndim, a.size, a.itemsize, a.nbytes) == ((3, 4), 2, 12, 4, 48)
    assert str(Tensor([1.0, 2.0])) == "[1. 2.]"
    assert repr(Tensor([1, 2], ms.int32)).startswith("Tensor(shape=[2], dtype=Int32, value=")


def test_methods():
    a = Tensor(X)
    close(a.mean(axis=1, keep_dims=True), X.mean(1, keepdims=True))
    close(a.sum(0), X.sum(0))
    close(a.std(), X.std())
    close(a.var(ddof=1), X.var(ddof=1))
    assert a.argmax(1).dtype == ms.int64
    close(a.argmax(axis=1), X.argmax(1))
    values, places = a.max(1, return_indices=True)
    close(values, X.max(1))
    close(places, X.argmax(1))
    assert a.view(2, 6).shape == a.view((2, 6)).shape == a.reshape(2, -1).shape == a.reshape((2, 6)).shape == (2, 6)
    close(a.T, X.T)
    close(a.transpose(1, 0), X.T)
    close(a.swapaxes(0, 1), X.T)
    assert [p.shape for p in a.split(3, axis=1)] == [(3, 3), (3, 1)]
    assert a.item((1, 2)) == X[1, 2]
    assert a.item(5) == X[1, 1]
    assert a.astype(ms.int32).dtype == ms.int32
    close(a.clip(-0.5, 0.5), X.clip(-0.5, 0.5))
    close(a[1:, ::2], X[1:, ::2])
    close(a[a > 0], X[X > 0])
    close(abs(-a).pow(2), X**2, 1e-4)
    close(a.expand_dims(0), X[None])
    close(a.gather(Tensor([2, 0]), 1), X[:, [2, 0]])
    close(a.fill(2.0), np.full((3, 4), 2.0))
    for made in (a.copy(), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        np.testing.assert_array_equal(np.asarray(made), X)


def test_types_of_mixed_operands():
    kinds = {
        (ms.int64, ms.float32): ms.float32,
        (ms.int32, ms.float16): ms.float16,
        (ms.bool_, ms.int32): ms.int32,
        (ms.float16, ms.float32): ms.float32,
        (ms.uint8, ms.int8): ms.int16,
        (ms.int32, ms.float64): ms.float64,
    }
    for (a, b), wanted in kinds.items():
        x, y = Tensor([1, 0], a), Tensor([1, 1], b)
        assert (x + y).dtype == (y * x).dtype == ops.mul(x, y).dtype == wanted, (a, b)
    assert (Tensor([1, 2]) / Tensor([2, 2])).dtype == ms.float32
    close(Tensor([1, 2]) / 2, [0.5, 1])
    close(1 / Tensor([4, 2]), [0.25, 0.5])
    assert (Tensor([1.0]) * np.float64(2)).dtype == ms.float32


def test_in_place_operators_make_new_tensors():
    x = Tensor([1.0, 2.0])
    y = x
    x += 1
    close(y, [1, 2])
    close(x, [2, 3])
    x[0] = 7.0
    close(x, [7, 3])


def test_parameters():
    p = Parameter(Tensor([1.0, 2.0]))
    assert (p.name, p.requires_grad, isinstance(p, Tensor), isinstance(p, td.Parameter)) == (
        "Parameter",
        True,
        True,
        True,
    )
    p.set_data(Tensor([3.0, 4.0]))
    close(p.value(), [3, 4])
    assert ops.assign_add(p, 1.0) is p
    close(p * 1, [4, 5])
    with pytest.raises(UserError, match="E0503"):
        p.set_data(Tensor([1.0]))
    twins = ParameterTuple([p]).clone("moments", init="zeros")
    assert twins[0].name == "moments.Parameter"
    close(twins[0] + 0, [0, 0])
    assert "requires_grad=False" in repr(Parameter(1.0, name="a", requires_grad=False))


# ---------------------------------------------------------------------------------------------------------- functions
def test_functions_against_numpy():
    a, b, i = Tensor(X), Tensor(Y), Tensor([2, 0, 1], ms.int32)
    softmax = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
    pairs = [
        (ops.reduce_mean(a, (0, 1)), X.mean()),
        (ops.reduce_sum(a, 1, True), X.sum(1, keepdims=True)),
        (ops.softmax(a), softmax),
        (ops.log_softmax(a, axis=-1), np.log(softmax)),
        (ops.transpose(a, (1, 0)), X.T),
        (ops.concat((a, b), axis=1), np.concatenate([X, Y], 1)),
        (ops.stack([a, b], axis=-1), np.stack([X, Y], -1)),
        (ops.one_hot(i, 3, Tensor(1.0), Tensor(0.0)), np.eye(3)[[2, 0, 1]]),
        (ops.gather(a, i, 0), X[[2, 0, 1]]),
        (ops.gather_elements(a, 1, Tensor([[0], [3], [1]])), np.take_along_axis(X, np.array([[0], [3], [1]]), 1)),
        (ops.gather_nd(a, Tensor([[0, 1], [2, 3]])), X[[0, 2], [1, 3]]),
        (ops.tensor_scatter_update(a, Tensor([[0], [2]]), b[:2]), np.stack([Y[0], X[1], Y[1]])),
        (ops.masked_fill(a, a > 0, 0.0), np.where(X > 0, 0, X)),
        (ops.select(a > b, a, b), np.maximum(X, Y)),
        (ops.clip_by_value(a, -1.0, 1.0), X.clip(-1, 1)),
        (ops.cumsum(a, 1), X.cumsum(1)),
        (ops.topk(a, 2)[0], -np.sort(-X, 1)[:, :2]),
        (ops.max(a, axis=1)[0], X.max(1)),
        (ops.max(a, axis=1)[1], X.argmax(1)),
        (ops.min(a)[0], X.min()),
        (ops.argmin(a, axis=0), X.argmin(0)),
        (ops.sort(a)[0], np.sort(X, -1)),
        (ops.pad(a, [1, 0, 0, 2]), np.pad(X, ((0, 2), (1, 0)))),
        (ops.tile(a, (2, 1)), np.tile(X, (2, 1))),
        (ops.broadcast_to(a[:1], (3, -1)), np.broadcast_to(X[:1], (3, 4))),
        (ops.matmul(a, b.T), X @ Y.T),
        (ops.bmm(a.reshape(1, 3, 4), b.reshape(1, 4, 3)), (X @ Y.reshape(4, 3))[None]),
        (ops.meshgrid(Tensor([1, 2]), Tensor([3, 4, 5]))[0], np.meshgrid([1, 2], [3, 4, 5])[0]),
        (ops.diag(Tensor([1.0, 2.0])), np.diag([1, 2])),
        (ops.arange(2, 8, 3), np.arange(2, 8, 3)),
        (ops.zeros((2, 3), ms.int32), np.zeros((2, 3))),
        (ops.l2_normalize(a, axis=1), X / np.linalg.norm(X, axis=1, keepdims=True)),
        (ops.norm(a), np.linalg.norm(X)),
        (ops.narrow(a, 1, 1, 2), X[:, 1:3]),
        (ops.strided_slice(a, (0, 1), (2, 4), (1, 2)), X[0:2, 1:4:2]),
        (ops.count_nonzero(a > 0), (X > 0).sum()),
        (ops.addn((a, b, a)) if hasattr(ops, "addn") else ops.AddN()((a, b, a)), X + Y + X),
        (ops.flatten(a.reshape(3, 2, 2)), X),
        (mnp.mean(mnp.array(X), axis=0), X.mean(0)),
        (mnp.concatenate((a, b)), np.concatenate([X, Y])),
    ]
    for n, (found, wanted) in enumerate(pairs):
        assert found.shape == np.shape(wanted), n
        close(found, wanted)
    assert ops.split(Tensor(np.arange(5)), 2)[2].shape == (1,)
    assert [t.shape for t in ops.unstack(a)] == [(4,)] * 3
    assert (ops.shape(a), ops.size(a), ops.rank(a), ops.dtype(a)) == ((3, 4), 12, 2, ms.float32)
    assert ops.topk(a, 2)[1].dtype == ops.Argmax()(a).dtype == ms.int32


def test_primitives():
    a, b = Tensor(X), Tensor(Y)
    close(P.MatMul(transpose_b=True)(a, b), X @ Y.T)
    close(P.ReduceMean(keep_dims=True)(a, 1), X.mean(1, keepdims=True))
    close(P.Concat(1)((a, b)), np.concatenate([X, Y], 1))
    close(P.Squeeze(0)(a[:1]), X[0])
    close(P.OneHot()(Tensor([1]), 3, Tensor(2.0), Tensor(-1.0)), [[-1, 2, -1]])
    close(P.Split(1, 2)(a)[1], X[:, 2:])
    close(P.Transpose()(a, (1, 0)), X.T)
    close(P.Softmax()(a), np.exp(X) / np.exp(X).sum(-1, keepdims=True))
    close(P.Cast()(a, ms.int32), X.astype(int))
    close(P.BiasAdd()(a, Tensor([1.0, 2, 3, 4])), X + [1, 2, 3, 4])
    close(P.StridedSlice()(a, (0, 0), (1, 2), (1, 1)), X[:1, :2])
    image = Tensor(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4))
    close(P.MaxPool(kernel_size=2, strides=2)(image), [[[[5, 7], [13, 15]]]])
    close(P.AvgPool(2, 2)(image), [[[[2.5, 4.5], [10.5, 12.5]]]])
    kernel = Tensor(np.ones((1, 1, 2, 2), np.float32))
    close(P.Conv2D(out_channel=1, kernel_size=2)(image, kernel)[0, 0, 0], [10, 14, 18])
    loss, gradient = P.SoftmaxCrossEntropyWithLogits()(a, Tensor(np.eye(4, dtype=np.float32)[:3]))
    assert (loss.shape, gradient.shape) == ((3,), (3, 4))
    with pytest.raises(UserError, match="E0594"):
        P.MatMul(transpose_c=True)


def test_random_numbers_follow_the_seed():
    def draw():
        return [ops.normal((2,), 0.0, 1.0), ops.uniform((2,), 1.0, 2.0), ops.randint(0, 9, (3,)), ops.randperm(5)]

    ms.set_seed(4)
    first = draw()
    ms.set_seed(4)
    for a, b in zip(first, draw(), strict=True):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    assert not np.allclose(ops.randn(50).asnumpy(), ops.randn(50).asnumpy())
    np.testing.assert_array_equal(ops.randn(5, seed=3).asnumpy(), ops.randn(5, seed=3).asnumpy())
    assert 0.4 < ops.bernoulli(ops.zeros((2000,), ms.float32), 0.5).asnumpy().mean() < 0.6


def test_clipping():
    parts = (Tensor([3.0]), Tensor([4.0]))
    close(ops.concat(ops.clip_by_global_norm(parts, 1.0)), [0.6, 0.8])
    close(ops.concat(ops.clip_by_global_norm(parts, 10.0)), [3, 4])
    close(ops.clip_by_norm(Tensor([3.0, 4.0]), 1.0), [0.6, 0.8])


def test_composites():
    add = C.MultitypeFuncGraph("add")
    add.register("Tensor", "Tensor")(lambda a, b: a + b)
    add.register("Number", "Tensor")(lambda a, b: 10 * a + b)
    one = Tensor([1.0])
    nested = ops.HyperMap(add)((one, (2, one)), (one, (one, one)))
    close(nested[0], [2])
    close(nested[1][0], [21])
    with pytest.raises(UserError, match="E0594"):
        add("a", one)
    assert ops.HyperMap()(lambda a, b: a * b, (2, 3), (4, 5)) == (8, 15)
    assert ops.Map()(len, ([1, 2], [3])) == (2, 1)


# ---------------------------------------------------------------------------------------------------------- gradients
def test_value_and_grad_forms(mode):
    w, b = Parameter(Tensor([2.0]), name="w"), Parameter(Tensor([1.0]), name="b")

    def forward(x, y):
        return (w * x * y + b).sum(), x + y

    x, y = Tensor([3.0]), Tensor([5.0])
    (value, total), grads = ms.value_and_grad(forward, (0, 1), [w, b], has_aux=True)(x, y)
    close(value, 31)
    close(total, [8])
    close(grads[0][0], [10])
    close(grads[0][1], [6])
    close(grads[1][0], [15])
    close(grads[1][1], [1])
    close(ms.value_and_grad(forward, None, w, has_aux=True)(x, y)[1], [15])
    gradient, aux = ms.grad(forward, 1, has_aux=True)(x, y)
    close(gradient, [6])
    close(aux[0], [8])
    gradients = ms.grad(forward, 0, [w], has_aux=True, return_ids=True)(x, y)[0]
    close(ms.get_grad(gradients, w), [15])
    close(ms.get_grad(gradients, 0), [10])
    close(ms.grad(forward)(x, y), [11])  # both results count
    with pytest.raises(UserError, match="E0307"):
        ms.grad(forward, None)
    with pytest.raises(UserError, match="E0307"):
        ms.grad(forward, 2)(x, y)


def test_grad_operation_with_sensitivity(mode):
    class Net(nn.Cell):
        def construct(self, x):
            return x * x

    x, sens = Tensor([1.0, 2.0]), Tensor([10.0, 100.0])
    close(ops.GradOperation(sens_param=True)(Net())(x, sens), [20, 400])
    close(ops.GradOperation()(Net())(x), [2, 4])
    close(ms.grad(ms.grad(lambda x: (x**3).sum()))(x), [6, 12])
    with pytest.raises(UserError, match="E0594"):
        ops.GradOperation(get_by_list=True)(lambda x: x)


OPTIONS = types.SimpleNamespace(factor=2.0)


def test_plain_values_around_a_function_are_watched(mode):
    def scaled(x):
        return (x * OPTIONS.factor).sum()

    x = Tensor([1.0])
    for find in (ops.GradOperation()(scaled), ms.grad(scaled), ms.jit(scaled)):
        OPTIONS.factor = 2.0
        close(find(x).reshape(1), [2])
        OPTIONS.factor = 3.0
        close(find(x).reshape(1), [3])


def test_stop_gradient_vjp_jvp_and_recompute():
    x = Tensor([2.0])
    close(ms.grad(lambda x: ops.stop_gradient(x) * x)(x), [2])
    value, pull = ms.vjp(lambda x: x**2, x)
    close(value, [4])
    close(pull(Tensor([3.0]))[0], [12])
    close(ms.jvp(lambda x: x**2, x, Tensor([3.0]))[1], [12])
    close(ms.grad(lambda x: ms.recompute(lambda x: x**3, x).sum())(x), [12])
    close(ms.vmap(lambda a, b: (a * b).sum(), in_axes=(0, None))(Tensor(X), Tensor(Y[0])), X @ Y[0])


def test_jit_forms():
    traced = []

    @ms.jit
    def double(x):
        traced.append(type(x))
        return x.mean(keep_dims=True) * 2

    class Plain:
        def __init__(self):
            self.scale = 3.0

        @ms.jit
        def run(self, x):
            return x * self.scale

    close(double(Tensor([1.0, 3.0])), [4])
    close(double(Tensor([2.0, 4.0])), [6])
    assert traced == [Tensor]
    plain = Plain()
    close(plain.run(Tensor([1.0])), [3])
    plain.scale = 4.0
    close(plain.run(Tensor([1.0])), [4])
    close(ms.ms_function(fn=lambda x: x + 1)(Tensor([1.0])), [2])
    close(ms.jit(nn.Dense(2, 1, "ones", "zeros"))(Tensor([[1.0, 2.0]])), [[3]])


# -------------------------------------------------------------------------------------------------------------- cells
def test_parameter_names():
    class Part(nn.Cell):
        def __init__(self):
            super().__init__()
            self.down = None
            self.fc = nn.Dense(2, 2)
            self.scale = Parameter(Tensor([1.0]), name="alpha")
            self.down = nn.SequentialCell([nn.Dense(2, 2), nn.BatchNorm1d(2)])

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.parts = nn.CellList([Part(), Part()])

    names = [p.name for p in Net().trainable_params()]
    one = ["alpha", "fc.weight", "fc.bias", "down.0.weight", "down.0.bias", "down.1.gamma", "down.1.beta"]
    assert sorted(names) == sorted(f"parts.{i}.{n}" for i in range(2) for n in one)
    net = Net()
    assert set(net.parameters_dict()) >= set(names)
    assert [n for n, _ in net.parts[0].cells_and_names()][:2] == ["", "down"]
    assert list(net.name_cells()) == ["parts"]
    net.parts.append(Part())
    assert net.parts[2].fc.weight.name == "2.fc.weight"
    wrapped = nn.WithLossCell(net, nn.MSELoss())
    assert wrapped.trainable_params()[0].name.startswith("parts.")


def test_modes_and_training_flag(mode):
    class Net(nn.Cell):
        def construct(self, x):
            return x + 1 if self.training else x - 1

    net = Net()
    close(net(Tensor([1.0])), [0])
    close(net.set_train()(Tensor([1.0])), [2])
    close(net.set_train(False)(Tensor([1.0])), [0])


def test_state_written_in_construct(mode):
    class Counter(nn.Cell):
        def __init__(self):
            super().__init__()
            self.count = Parameter(Tensor([0.0]), requires_grad=False)
            self.total = Parameter(Tensor([0.0]), requires_grad=False)

        def construct(self, x):
            self.count += 1
            ops.assign_add(self.total, x)
            return self.total / self.count

    net = Counter()
    found = [net(Tensor([n])).asnumpy().item() for n in (1.0, 3.0, 8.0)]
    assert found == [1.0, 2.0, 4.0]


def test_initializers():
    ms.set_seed(0)
    assert initializer("XavierUniform", [30, 20]).shape == (30, 20)
    assert initializer("truncated_normal", (9,)).dtype == ms.float32
    drawn = initializer(TruncatedNormal(sigma=1.0, a=-1.0, b=1.0), (500,)).asnumpy()
    assert np.abs(drawn).max() <= 1
    with pytest.raises(UserError, match="E0590"):
        initializer("unheard_of", (2,))


# ------------------------------------------------------------------------------------------------------ what is absent
def test_what_is_not_covered_names_the_nearest_function():
    with pytest.raises(AttributeError, match=r"E0592[\s\S]*td\.nn\.PixelShuffle"):
        nn.PixelShuffle(2)
    with pytest.raises(UserError, match=r"E0592[\s\S]*td\.nn\.functional\.grid_sample"):
        from treadle.compat.mindspore.ops import grid_sample  # noqa: F401
    assert not hasattr(ms, "mint")
    with pytest.raises(UserError, match="E0591"):
        ms.set_context(device_target="Ascend")
    with pytest.raises(UserError, match="E0591"):
        ms.set_context(unheard_of=1)
    ms.set_context(device_target="CPU", save_graphs=False)
    assert ms.get_context("device_target") == "CPU"


def test_own_gradient_and_hooks(mode):
    class Scaled(nn.Cell):
        def construct(self, x, y):
            return x * y

        def bprop(self, x, y, out, dout):
            return 10 * dout, out

    x, y = Tensor([2.0]), Tensor([5.0])
    close(Scaled()(x, y), [10])
    dx, dy = ms.grad(Scaled(), (0, 1))(x, y)
    close(dx, [10])
    close(dy, [10])
    net, seen = nn.ReLU(), []
    before = net.register_backward_pre_hook(lambda cell, grads: (3 * grads[0],))
    after = net.register_backward_hook(lambda cell, inputs, results: seen.append((type(inputs[0]), len(results))))
    close(ms.grad(lambda x: (net(x) * 2).sum())(x), [6])
    assert seen == [(Tensor, 1)]
    before.remove(), after.remove()
    close(ms.grad(lambda x: (net(x) * 2).sum())(x), [2])


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        (lambda: nn.Dense("a", 2), "E0"),
        (lambda: nn.Dense(2, 2, weight_init=Tensor(np.ones((3, 3), np.float32))), "E0590"),
        (lambda: nn.SequentialCell([3]), "E0550"),
        (lambda: nn.CellList([nn.ReLU()])(3), "E0551"),
        (lambda: nn.Cell()(3), "E0520"),
        (lambda: nn.Dropout(p=1.5), "E0554"),
        (lambda: nn.MSELoss("avg"), "E0556"),
        (lambda: nn.BatchNorm2d(2)(Tensor(X)), "E0553"),
        (lambda: nn.Adam([Parameter(1.0)], beta1=2), "E0531"),
        (lambda: ms.set_seed(-1), "E0590"),
        (lambda: ms.jit(3), "E0213"),
        (lambda: ms.grad(3), "E0213"),
        (lambda: ms.grad(lambda x: 3)(Tensor([1.0])), "E0306"),
        (lambda: ParameterTuple([1]), "E0590"),
        (lambda: nn.SequentialCell(nn.ReLU()).to_float(ms.int32), "E0590"),
        (lambda: ms.Model(3), "E0565"),
    ],
)
def test_mistakes_are_named(mistake, code):
    with pytest.raises(UserError, match=code):
        mistake()
