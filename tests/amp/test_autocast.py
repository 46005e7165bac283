"""`td.amp.autocast`: which ops compute in which type, and that all ways of computing agree."""

import threading

import numpy as np
import pytest

import treadle as td
from treadle import nn, ops
from treadle.base.errors import UserError
from treadle.ir.op import OPS
from treadle.ir.walk import all_nodes
from treadle.transforms.pipeline import Pipeline

RNG = np.random.default_rng(0)
F = nn.functional
HALVES = pytest.mark.parametrize("half", [td.bfloat16, td.float16])


def tensor(*shape, dtype=td.float32):
    return td.tensor(RNG.uniform(0.3, 1.2, shape).astype(np.float32)).astype(dtype)


# ------------------------------------------------------------------------------------------------------ types by family
PLAIN = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
NARROW = {
    "matmul": lambda t: td.matmul(t(2, 3), t(3, 4)),
    "@": lambda t: t(2, 3) @ t(3, 4),
    "matmul of vectors": lambda t: td.matmul(t(3), t(3)),
    "dot": lambda t: td.dot(t(2, 3), t(3)),
    "einsum": lambda t: td.einsum("ij,jk,kl->il", t(2, 3), t(3, 4), t(4, 2)),
    "tensordot": lambda t: td.tensordot(t(2, 3), t(3, 4), 1),
    "linear": lambda t: F.linear(t(2, 3), t(4, 3), t(4)),
    "conv1d": lambda t: F.conv1d(t(2, 3, 7), t(4, 3, 3), t(4)),
    "conv2d": lambda t: F.conv2d(t(2, 3, 7, 6), t(4, 3, 3, 3), t(4)),
    "conv_transpose2d": lambda t: F.conv_transpose2d(t(2, 3, 4, 4), t(3, 4, 3, 3), t(4)),
    "conv_weight_grad": lambda t: ops.conv_weight_grad(t(2, 3, 7), t(2, 4, 5), kernel_size=(3,), **PLAIN),
    "attention": lambda t: F.scaled_dot_product_attention(t(2, 4, 3), t(2, 5, 3), t(2, 5, 3)),
    "lstm_cell": lambda t: ops.lstm_cell(t(2, 3), t(2, 4), t(2, 4), t(16, 3), t(16, 4), t(16))[0],
    "gru_cell": lambda t: ops.gru_cell(t(2, 3), t(2, 4), t(12, 3), t(12, 4), t(12), t(12)),
    "bilinear": lambda t: F.bilinear(t(2, 3), t(2, 4), t(5, 3, 4), t(5)),
}
WIDE = {
    "exp": td.exp, "log": td.log, "log1p": td.log1p, "expm1": td.expm1, "pow": lambda x: x**1.5, "square": td.square,
    "rsqrt": td.rsqrt, "reciprocal": td.reciprocal, "tan": td.tan, "sinh": td.sinh, "acos": lambda x: td.acos(x * 0.5),
    "sum": td.sum, "mean": lambda x: td.mean(x, axis=0), "prod": td.prod, "cumsum": lambda x: td.cumsum(x, 0),
    "logsumexp": lambda x: td.logsumexp(x, 1), "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 1), "softplus": F.softplus,
    "mse": lambda x: F.mse_loss(x, x * 2), "l1": lambda x: F.l1_loss(x, x * 2),
    "huber": lambda x: F.huber_loss(x, x * 2),
    "cross entropy": lambda x: F.cross_entropy(x, td.tensor([0, 1, 2, 0])),
    "nll": lambda x: F.nll_loss(F.log_softmax(x, 1), td.tensor([0, 1, 2, 0])),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, x * 0.2),
    "kl": lambda x: F.kl_div(F.log_softmax(x, 1), F.softmax(x, 1)),
}  # fmt: skip
FOLLOW = {
    "relu": F.relu, "gelu": F.gelu, "silu": F.silu, "sigmoid": td.sigmoid, "tanh": td.tanh, "add": lambda x: x + x,
    "mul by a number": lambda x: x * 0.5, "max": lambda x: td.max(x, axis=0), "reshape": lambda x: x.reshape(3, 4),
    "layer norm": lambda x: F.layer_norm(x, (3,)), "rms norm": lambda x: F.rms_norm(x, (3,)),
    "batch norm": lambda x: nn.BatchNorm1d(3)(x), "abs": td.abs, "concatenate": lambda x: td.concatenate([x, x], 0),
    "where": lambda x: td.where(x > 0.5, x, x), "max pool": lambda x: F.max_pool1d(x.reshape(1, 4, 3), 2),
}  # fmt: skip


@HALVES
@pytest.mark.parametrize("name", NARROW)
def test_products_compute_in_16_bits(name, half):
    with td.amp.autocast(dtype=half):
        assert NARROW[name](tensor).dtype is half
        assert NARROW[name](lambda *shape: tensor(*shape, dtype=half)).dtype is half
        assert NARROW[name](lambda *shape: tensor(*shape, dtype=td.float64)).dtype is td.float64
    assert NARROW[name](tensor).dtype is td.float32


@HALVES
@pytest.mark.parametrize("name", WIDE)
def test_losses_sums_and_powers_take_float32(name, half):
    x = tensor(4, 3, dtype=half)
    with td.amp.autocast(dtype=half):
        assert WIDE[name](x).dtype is td.float32
        assert WIDE[name](x.astype(td.float32)).dtype is td.float32
        assert WIDE[name](x.astype(td.float64)).dtype is td.float64


@HALVES
@pytest.mark.parametrize("name", FOLLOW)
def test_all_else_takes_what_it_is_given(name, half):
    with td.amp.autocast(dtype=half):
        for dtype in (half, td.float32):
            assert FOLLOW[name](tensor(4, 3, dtype=dtype)).dtype is dtype
        assert (tensor(3, dtype=half) + tensor(3)).dtype is td.float32


def test_every_op_says_a_word_that_is_known():
    words = {op.rules["amp"] for op in OPS.values() if "amp" in op.rules}
    assert words == {"narrow", "wide"}
    assert {n for n, op in OPS.items() if op.rules.get("jvp") == "multilinear" and op.rules.get("amp") != "narrow"} <= {
        "mul", "make_complex",
    }  # fmt: skip


def test_nothing_is_cast_beside_float64():
    x, y = tensor(3, 4), tensor(4, 2, dtype=td.float64)
    with td.amp.autocast():
        found = ops.matmul(x, y)
    assert np.allclose(found.numpy(), x.numpy().astype(np.float64) @ y.numpy(), rtol=1e-12)


def test_arrays_beside_tensors_are_cast_too():
    array = np.ones((3, 2), np.float32)
    with td.amp.autocast():
        assert (tensor(2, 3) @ array).dtype is td.bfloat16
        assert td.jit(lambda x: x @ array)(tensor(2, 3)).dtype is td.bfloat16


# --------------------------------------------------------------------------------------------------- eager and compiled
LAYERS = {
    "linear": (lambda: nn.Linear(6, 5), (3, 6)),
    "conv, batch norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()), (2, 3, 9, 8)
    ),
    "transposed conv": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 5)),
    "layer norm, gelu": (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)), (5, 6)),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), (2, 3, 6, 6)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (2, 5, 8)),
    "rnn": (lambda: nn.RNN(4, 5), (3, 2, 4)),
    "lstm": (lambda: nn.LSTM(4, 5), (3, 2, 4)),
    "softmax": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Softmax(-1), nn.Linear(5, 4), nn.PReLU()), (3, 6)),
}  # fmt: skip


@HALVES
@pytest.mark.parametrize("name", LAYERS)
def test_layers_eager_and_compiled(name, half):
    """Gradients are float32 and both modes agree within the rounding of 16 bits, which XLA may leave out in between."""
    make, shape = LAYERS[name]
    net, x = make(), tensor(*shape)

    def loss():
        with td.amp.autocast(dtype=half):
            y = net(x)
            return (td.sin(y[0] if isinstance(y, tuple) else y).astype(td.float32) ** 2).mean()

    value, grads = td.value_and_grad(loss, net.parameters())()
    other, others = td.jit(td.value_and_grad(loss, net.parameters()))()
    strict, exact = td.value_and_grad(lambda: _strict(net, x), net.parameters())()
    eps = {td.bfloat16: 2.0**-8, td.float16: 2.0**-11}[half]
    assert all(g.dtype is td.float32 for g in [*grads, *others])
    size = max(np.abs(g.numpy()).max() for g in exact)
    for a, b, c in zip(grads, others, exact, strict=True):
        assert np.abs(a.numpy() - b.numpy()).max() < 8 * eps * size
        assert np.abs(a.numpy() - c.numpy()).max() < 16 * eps * size
    assert abs(value.item() - other.item()) < 8 * eps * max(1, strict.item())
    assert any(not np.array_equal(a.numpy(), c.numpy()) for a, c in zip(grads, exact, strict=True))


def _strict(net, x):
    y = net(x)
    return (td.sin(y[0] if isinstance(y, tuple) else y) ** 2).mean()


def test_loops_maps_and_checkpoints_inherit_it():
    w, xs = tensor(4, 4), tensor(5, 4)

    def run(xs, w):
        with td.amp.autocast():
            carry, ys = td.scan(lambda c, x: ((c @ w).astype(td.float32) + x, c.sum()), xs[0], xs)
            mapped = td.vmap(lambda x: x @ w)(xs)
            kept = td.checkpoint(lambda x: (x @ w).sum())(xs)
            chosen = td.cond(kept > 0, lambda x: x @ w, lambda x: w @ x, w)
        assert (mapped.dtype, kept.dtype, chosen.dtype) == (td.bfloat16, td.float32, td.bfloat16)
        return carry.sum() + ys.sum() + mapped.astype(td.float32).sum() + kept + chosen.astype(td.float32).sum()

    for function in (run, td.jit(run)):
        assert run(xs, w).item() == pytest.approx(function(xs, w).item(), rel=1e-2)
    module = td.trace_module(td.grad(run, (0, 1)), xs, w)
    products = [n for n in all_nodes(module) if n.op.rules.get("amp") == "narrow"]
    assert len(products) >= 12
    assert {v.type.dtype for n in products for v in n.inputs} == {td.bfloat16}


def test_a_weight_used_twice_is_cast_once():
    w, x = tensor(4, 4), tensor(3, 4)

    def twice(x, w):
        with td.amp.autocast():
            return td.tanh(x @ w) @ w

    optimised = Pipeline.parse("inline, algebra, fold, cse, dce").run(td.trace_module(twice, x, w))
    casts = [n for n in all_nodes(optimised) if n.op is ops.cast]
    assert [n.inputs[0] for n in casts].count(optimised.main.params[1]) == 1
    assert len(casts) == 2


# --------------------------------------------------------------------------------------------------------------- blocks
def test_blocks_nest_are_decorators_and_belong_to_a_thread():
    x, seen = tensor(2, 2), []

    @td.amp.autocast(dtype=td.float16)
    def decorated():
        """Its text."""
        return x @ x

    assert decorated.__doc__ == "Its text."
    block = td.amp.autocast()
    with block:
        assert decorated().dtype is td.float16
        with block, td.amp.autocast("O0"):
            assert (x @ x).dtype is td.float32
        with td.amp.autocast(enabled=False):
            assert (x @ x).dtype is td.float32
        assert (x @ x).dtype is td.bfloat16
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
    assert seen == [td.float32]
    assert (x @ x).dtype is td.float32


def test_a_compiled_function_has_a_program_with_and_without():
    f, x = td.jit(lambda x: x @ x), tensor(2, 2)
    assert f(x).dtype is td.float32
    with td.amp.autocast():
        assert f(x).dtype is td.bfloat16
    assert f.programs()[-1].why == "the setting is autocast bfloat16, before no autocast"
    assert f(x).dtype is td.float32
    assert f.cache_info().compiled == 2


def test_levels_and_types_that_there_are_not():
    for wrong in (
        lambda: td.amp.autocast("O3"),
        lambda: td.amp.autocast(dtype=td.float32),
        lambda: td.amp.initialize(nn.Linear(2, 2), level="O2"),
        lambda: td.amp.initialize("net"),
        lambda: td.amp.initialize(nn.Linear(2, 2), td.optim.SGD(nn.Linear(2, 2).parameters()), "O2"),
    ):
        with pytest.raises(UserError, match="E0195"):
            wrong()
