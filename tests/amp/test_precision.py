"""`td.precision`: how exact products of float32 are at each level, and that every way of computing keeps the level."""

import threading

import numpy as np
import pytest

import treadle as td
from treadle import ops
from treadle.base.errors import UserError
from treadle.base.flags import override
from treadle.ir import interp
from treadle.ir.walk import all_nodes
from treadle.lower.stablehlo import lower_module, to_text
from treadle.ops import _precision
from treadle.runtime import pjrt

RNG = np.random.default_rng(0)
# Largest error, in units of the sum of |x| |y| over what is summed.
BOUNDS = {"highest": 2e-7, "high": 2e-5, "medium": 8e-3}


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


PLAIN = {"stride": (1, 2), "padding": ((1, 1), (0, 1)), "dilation": (1, 1), "groups": 1}
POINT = {**PLAIN, "stride": (1, 1), "padding": ((0, 0),) * 2}
PRODUCTS = {
    "matmul": (ops.matmul, (normal(12, 40), normal(40, 9)), {}),
    "contract": (ops.contract, (normal(3, 5, 17), normal(3, 17, 4)), {"spec": "bij,bjk->ikb"}),
    "conv": (ops.conv, (normal(2, 6, 9, 8), normal(5, 6, 3, 3)), PLAIN),
    "conv 1x1": (ops.conv, (normal(2, 6, 16, 16), normal(5, 6, 1, 1)), POINT),
    "depthwise": (ops.conv, (normal(2, 6, 9, 8), normal(6, 1, 3, 3)), {**PLAIN, "groups": 6}),
    "conv_input_grad": (ops.conv_input_grad, (normal(2, 5, 9, 4), normal(5, 6, 3, 3)), {**PLAIN, "input_size": (9, 8)}),
    "conv_weight_grad": (
        ops.conv_weight_grad, (normal(2, 6, 9, 8), normal(2, 5, 9, 4)), {**PLAIN, "kernel_size": (3, 3)}
    ),
}  # fmt: skip
UNITED = {
    "attention": (ops.attention, (normal(2, 6, 8), normal(2, 7, 8), normal(2, 7, 3)), {"scale": 0.3, "causal": True}),
    "lstm_cell": (
        ops.lstm_cell, (normal(4, 6), normal(4, 5), normal(4, 5), normal(20, 6), normal(20, 5), normal(20)), {}
    ),
    "gru_cell": (ops.gru_cell, (normal(4, 6), normal(4, 5), normal(15, 6), normal(15, 5), normal(15), normal(15)), {}),
}  # fmt: skip
levels = pytest.mark.parametrize("level", _precision.LEVELS)


def first(result):
    return result[0] if isinstance(result, tuple) else result


def levels_of(module):
    """The levels of the products of a program."""
    return [n.attrs.get("precision", "highest") for n in all_nodes(module) if n.op.rules.get("amp") == "narrow"]


# ------------------------------------------------------------------------------------------------------------- numbers
@levels
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_error_of_a_product_is_within_the_level(name, level):
    op, arrays, attrs = PRODUCTS[name]
    exact = op.rules["ref"](*[a.astype(np.float64) for a in arrays], **attrs)
    sums = op.rules["ref"](*[abs(a).astype(np.float64) for a in arrays], **attrs)
    tensors = [td.tensor(a) for a in arrays]
    with td.precision(level):
        eager = op(*tensors, **attrs).numpy()
        compiled = td.jit(lambda *t: op(*t, **attrs))(*tensors).numpy()
    error, other = (np.abs(found - exact) / np.maximum(sums, 1e-30) for found in (eager, compiled))
    assert error.max() < BOUNDS[level]
    assert other.max() < BOUNDS[level]
    if level == "medium":  # both computed it so: the rounding is far above that of float32
        assert min(error.max(), other.max()) > 1e-4
        assert np.abs(eager - compiled).max() < 1e-6 * sums.max()
    if level == "high":
        assert error.max() > 1e-7


@pytest.mark.parametrize("name", UNITED)
def test_ops_that_hold_products_keep_the_level(name):
    op, arrays, attrs = UNITED[name]
    tensors = [td.tensor(a) for a in arrays]
    exact = first(op.rules["ref"](*[a.astype(np.float64) for a in arrays], **attrs))
    for level in _precision.LEVELS:
        with td.precision(level), override(fusion=0):  # kernels of our own may be more exact than the level
            eager = first(op(*tensors, **attrs)).numpy()
            compiled = first(td.jit(lambda *t: op(*t, **attrs))(*tensors)).numpy()
        assert np.abs(eager - exact).max() < 10 * BOUNDS[level]
        assert np.abs(compiled - exact).max() < 10 * BOUNDS[level]
        if level == "medium":
            assert np.abs(eager - exact).max() > 1e-4
            assert np.abs(eager - compiled).max() < 2e-4  # a float32 sum on the edge of rounding


@levels
def test_what_is_not_finite_stays_what_it_is(level):
    inf, nan, big = np.inf, np.nan, np.finfo(np.float32).max
    x = np.array([[inf, 1], [-inf, 2], [nan, 1], [1, 0.3], [big, 0], [1e-38, 1e-40]], np.float32)
    y = np.array([[2.5, 1 / 3, 1], [1, 1, 0.1]], np.float32)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float64) @ y
    with td.precision(level):
        found = [f(td.tensor(x), td.tensor(y)).numpy() for f in (td.matmul, td.jit(td.matmul))]
    for made in found:
        rows = slice(0, 4)
        assert np.array_equal(np.isnan(made[rows]), np.isnan(wanted[rows]))
        assert np.array_equal(np.isinf(made[rows]), np.isinf(wanted[rows]))
        assert np.array_equal(np.sign(made[:2]), np.sign(wanted[:2]))
        # The largest float32 lies above bfloat16's: its part in "high" is finite, in "medium" it is infinite.
        third = made[4, 1]
        assert np.isposinf(third) if level == "medium" else abs(third / wanted[4, 1] - 1) < 1e-4
        assert np.isfinite(made[5]).all()


def test_the_halves_of_a_number_hold_seventeen_bits():
    x = np.concatenate([normal(10_000) * np.float32(10) ** RNG.integers(-30, 30, 10_000).astype(np.float32), [0.0]])
    high, small, low = _precision.halves(x.astype(np.float32))
    assert np.array_equal(high, small)
    assert (np.abs(high + low.astype(np.float64) - x) <= np.abs(x) * 2.0**-16).all()
    assert np.array_equal(_precision.rounded(high), high)
    assert np.array_equal(_precision.rounded(low), low)


def test_other_types_take_no_notice():
    for dtype in (td.float64, td.bfloat16, td.float16):
        x, y = (td.tensor(normal(4, 5)).astype(dtype), td.tensor(normal(5, 3)).astype(dtype))
        plain = td.matmul(x, y).numpy()
        with td.precision("medium"):
            assert np.array_equal(td.matmul(x, y).numpy(), plain)
            assert levels_of(td.trace_module(td.matmul, x, y)) == ["highest"]


# ----------------------------------------------------------------------------------------------- where levels come from
X, Y = td.tensor(normal(4, 4)), td.tensor(normal(4, 4))


def test_blocks_nest_and_end():
    assert levels_of(td.trace_module(td.matmul, X, Y)) == ["highest"]

    @td.precision("medium")
    def decorated(x, y):
        return td.matmul(x, y)

    block = td.precision("high")

    def several(x, y):
        with block:
            x = x @ y
            with block, td.precision("highest"):
                x = x @ y
            x = x @ y
        return decorated(x, y) @ y

    assert levels_of(td.trace_module(several, X, Y)) == ["high", "highest", "high", "medium", "highest"]
    with pytest.raises(ZeroDivisionError), block:
        raise ZeroDivisionError
    assert td.get_precision() == "highest"


@td.precision("medium")
def branching(x, y):
    if x.sum() > 0:
        return x @ y
    return x - y


class Decorated(td.Cell):
    def __init__(self):
        self.w = td.Parameter(np.ones((4, 4), np.float32))

    @td.amp.autocast()
    def forward(self, x):
        y = x @ self.w
        if y.astype(td.float32).sum() > 0:
            y = y * 2
        return y


def test_decorated_functions_may_branch_on_tensors():
    compiled, net = td.jit(branching), Decorated()
    for x in (td.abs(X), -td.abs(X)):
        assert np.allclose(branching(x, Y).numpy(), compiled(x, Y).numpy(), atol=1e-5)
        assert net(x).dtype is td.bfloat16
        assert np.array_equal(net(x).numpy(), td.jit(net)(x).numpy())
    assert set(levels_of(compiled.programs()[0].module)) == {"medium"}


def test_gradients_of_any_order_have_the_level_of_their_product():
    @td.precision("high")
    def inner(x, y):
        return (x @ y).sum()

    def twice(x, y):
        with td.precision("medium"):  # not that of the block around the gradient
            return td.grad(lambda x: td.grad(inner)(x, y).sum() + (td.sin(inner(x, y))))(x)

    found = levels_of(td.trace_module(twice, X, Y))
    assert len(found) >= 3
    assert set(found) == {"high"}


def test_strict_products_have_strict_gradients_inside_a_block():
    def outer(x, y):
        with td.precision("medium"):
            return td.grad(lambda x: td.precision("highest")(td.matmul)(x, y).sum())(x)

    assert set(levels_of(td.trace_module(outer, X, Y))) == {"highest"}


@pytest.mark.parametrize("op", [*PRODUCTS, *UNITED])
def test_reverse_forward_and_batch_rules_keep_the_level(op):
    op, arrays, attrs = {**PRODUCTS, **UNITED}[op]
    tensors = [td.tensor(a) for a in arrays]

    def one(*t):
        return first(op(*t, **attrs)).sum()

    for transform in (
        td.grad(one),
        lambda *t: td.jvp(one, t, t),
        lambda *t: td.vmap(one)(*[td.stack([a, a]) for a in t]),
        lambda *t: td.grad(lambda *t: td.checkpoint(one)(*t))(*t),
    ):
        with td.precision("medium"):
            module = td.trace_module(transform, *tensors)
        found = [*levels_of(module), *[v for n in all_nodes(module) for v in _inner(n)]]
        assert found
        assert set(found) == {"medium"}
        assert set(levels_of(td.trace_module(transform, *tensors))) <= {"highest"}


def _inner(node):
    """Levels in the expansion of a node."""
    if node.op.rules.get("amp") != "narrow" or not node.op.rules.get("expand"):
        return []
    body = interp.expansion(node.op, tuple([v.type for v in node.inputs]), node.attrs)
    return levels_of(body)


def test_loops_and_branches_keep_the_level():
    def loops(x, y):
        with td.precision("high"):
            x = td.cond(x.sum() > 0, lambda x: x @ y, lambda x: y @ x, x)
            x = td.while_loop(lambda x: x.sum() < 3, lambda x: x @ y + 1, x)
            return td.scan(lambda c, _: (c @ y, None), x, length=3)[0]

    found = levels_of(td.trace_module(loops, X, Y))
    assert len(found) == 4
    assert set(found) == {"high"}


def test_a_compiled_function_has_a_program_for_each_level():
    f = td.jit(lambda x, y: x @ y)
    strict = f(X, Y).numpy()
    with td.precision("medium"):
        assert not np.array_equal(f(X, Y).numpy(), strict)
        assert f.programs()[-1].why == "the setting is precision medium, before no autocast"
    assert np.array_equal(f(X, Y).numpy(), strict)
    assert f.cache_info().compiled == 2


def test_the_level_of_everything_is_a_flag_and_blocks_belong_to_a_thread():
    seen = []
    with override(precision="medium"):
        assert td.get_precision() == "medium"
        eager = (X @ Y).numpy()  # the short cut of eager mode notices too
        with td.precision("high"):
            thread = threading.Thread(target=lambda: seen.append(td.get_precision()))
            thread.start()
            thread.join()
    assert seen == ["medium"]
    assert not np.array_equal(eager, (X @ Y).numpy())
    td.set_precision("high")
    try:
        assert levels_of(td.trace_module(td.matmul, X, Y)) == ["high"]
    finally:
        td.set_precision("highest")


def test_a_level_that_there_is_not():
    for wrong in ("low", None, 3):
        with pytest.raises(UserError, match="E0194"):
            td.precision(wrong)
    with pytest.raises(UserError, match="E0194"):
        ops.matmul(X, Y, precision="low")
    assert np.array_equal(ops.matmul(X, Y, precision="highest").numpy(), (X @ Y).numpy())


def test_other_devices_are_told_the_level():
    for level, word in (("highest", "HIGHEST"), ("high", "HIGH"), ("medium", "DEFAULT")):
        with td.precision(level):
            module = td.trace_module(lambda x, y: x @ y, X, Y)
        for platform in ("cuda", "cpu"):
            with pjrt.mlir_context() as context:
                text = to_text(lower_module(module, context, platform=platform), False)
            told = word if platform == "cuda" or level == "medium" else "HIGHEST"
            assert f"precision = [{told}, {told}]" in text or f"#stablehlo<precision {told}>" in text
            assert ("reduce_precision" in text) == (platform == "cpu" and level == "medium")
