"""transforms/fuse: what is gathered around an anchor, what is not, and that groups can always be put in order."""

import numpy as np
import pytest
from tests.transforms.support import arguments, check_same_numbers, check_silent, module_of, run_step

from treadle.base.dtypes import bfloat16
from treadle.ir import interp
from treadle.ir.types import bf16, f32
from treadle.ir.verify import verify
from treadle.ops.activation import gelu
from treadle.ops.attentions import attention_grad
from treadle.ops.casting import cast
from treadle.ops.convolution import conv
from treadle.ops.elementwise import add, mul
from treadle.ops.functions import tanh
from treadle.ops.groups import fused
from treadle.ops.norm import softmax
from treadle.ops.norm_batch import batch_norm
from treadle.ops.optim import sgd_update
from treadle.ops.products import matmul
from treadle.ops.reduce import broadcast_to, reduce_max, reduce_sum
from treadle.ops.shape import concatenate, reshape, transpose
from treadle.transforms import fuse
from treadle.transforms.fuse import Fuse, smaller


def bodies(function, *types, level=3, exact=True):
    """The ops of each group, and how many results it has; numbers are compared on the way, their bits if `exact`."""
    module = module_of(function, types)
    after, _ = run_step(Fuse(level), module)
    if exact:
        check_same_numbers(module, verify(after))
    else:
        given = arguments(types, special=False)[0]
        for a, b in zip(interp.run(module, *given), interp.run(verify(after), *given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    groups = [n for n in after.main.nodes if n.op is fused]
    return [(" ".join(n.op.name for n in g.attrs["body"].nodes), len(g.outputs)) for g in groups]


def test_what_follows_a_product_is_gathered():
    def layer(x, w, b):
        return gelu(add(matmul(x, w), broadcast_to(b, shape=(4, 5))), approximate=True)

    types = f32[4, 3], f32[3, 5], f32[5]
    assert bodies(layer, *types) == [("matmul broadcast_to add gelu", 1)]
    assert bodies(layer, *types, level=2) == []  # too little work


def test_gradients_of_attention_are_gathered_with_what_joins_them():
    def packed(*operands):
        joined = concatenate(*[reshape(g, shape=(1, 2, 4, 3)) for g in _slopes(*operands)], axis=0)
        return cast(reshape(transpose(joined, perm=(2, 0, 1, 3)), shape=(4, 18)), dtype=bfloat16)

    def some_read(*operands):
        dq, dk, dv = _slopes(*operands)
        return concatenate(dq, dk, dv, axis=0), dk

    def _slopes(q, k, v, y, sums, d):
        return attention_grad(q, k, v, y, sums, d, scale=0.5, causal=False)

    types = *[f32[2, 4, 3]] * 4, f32[2, 4], f32[2, 4, 3]
    moves = "reshape reshape reshape concatenate transpose reshape"
    assert bodies(packed, *types, exact=False) == [(f"attention_grad {moves}", 1)]
    assert bodies(some_read, *types, exact=False) == [("attention_grad", 3)]


def test_a_value_that_others_need_is_a_result_of_the_group():
    def layer(x, w):
        u = matmul(x, w)
        return mul(tanh(u), u), reduce_sum(u, axes=(0,))

    assert bodies(layer, f32[4, 3], f32[3, 5]) == [("matmul tanh mul reduce_sum", 2)]


def test_transposes_before_a_product_are_gathered_and_copied_when_others_read_them():
    def one(x, w):
        return matmul(x, transpose(w, perm=(1, 0)))

    def two(x, w):
        turned = transpose(w, perm=(1, 0))
        return matmul(x, turned), tanh(turned)

    assert bodies(one, f32[4, 3], f32[5, 3]) == [("transpose matmul", 1)]
    assert bodies(two, f32[4, 3], f32[5, 3]) == [("transpose matmul", 1)]


def test_a_move_of_a_result_that_nobody_else_reads_is_gathered():
    def turned(x, w):
        return transpose(tanh(matmul(x, w)), perm=(1, 0))

    def twice(x, w):
        y = matmul(x, w)
        return transpose(y, perm=(1, 0)), y

    assert bodies(turned, f32[4, 3], f32[3, 5]) == [("matmul tanh transpose", 1)]
    assert bodies(twice, f32[4, 3], f32[3, 5]) == [("matmul", 1)]


def test_the_move_of_a_result_belongs_to_the_group_that_makes_it():
    def late(x, w):
        first = matmul(x, w)
        second = matmul(tanh(x), w)
        return add(first, transpose(second, perm=(1, 0)))

    assert bodies(late, f32[4, 4], f32[4, 4]) == [("matmul transpose", 1), ("matmul add", 1)]


ATTRS = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
BACK, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def normed(x, w, scale, bias, *, shift=None, attrs=ATTRS):
    """A convolution and batch_norm of it, all with the channels last."""
    z = transpose(conv(transpose(x, perm=BACK), w, **attrs), perm=LAST)
    z = z if shift is None else add(z, broadcast_to(shift, shape=z.shape))
    y, mean, var = batch_norm(transpose(z, perm=BACK), scale, bias, eps=1e-3)
    return tanh(transpose(y, perm=LAST)), mean, var


def normed_types(channels, groups=1):
    return f32[2, 6, 5, channels], f32[channels, channels // groups, 3, 3], f32[channels], f32[channels]


def test_a_convolution_takes_the_moments_of_its_result(monkeypatch):
    monkeypatch.setattr(fuse, "LEAST_NORM", 0)
    groups = ("transpose conv transpose channel_moments", 3), ("transpose batch_norm_inference transpose tanh", 1)
    assert tuple(bodies(normed, *normed_types(32), exact=False)) == groups

    def with_bias(x, w, scale, bias, shift):
        return normed(x, w, scale, bias, shift=shift)

    found = bodies(with_bias, *normed_types(32), f32[32], exact=False)
    assert [name for name, _ in found] == [
        "transpose conv transpose broadcast_to add channel_moments", "transpose batch_norm_inference transpose tanh",
    ]  # fmt: skip


def test_depthwise_convolutions_take_moments_and_other_groups_do_not(monkeypatch):
    monkeypatch.setattr(fuse, "LEAST_NORM", 0)

    def in_groups(count):
        return lambda *args: normed(*args, attrs=ATTRS | {"groups": count})

    assert "channel_moments" in bodies(in_groups(32), *normed_types(32, 32), exact=False)[0][0]
    assert bodies(in_groups(4), *normed_types(32, 4))[1][0] == "transpose batch_norm transpose tanh"


def test_moments_are_not_taken_where_that_does_not_pay(monkeypatch):
    assert [name for name, _ in bodies(normed, *normed_types(32))][1] == "transpose batch_norm transpose tanh"
    monkeypatch.setattr(fuse, "LEAST_NORM", 0)

    def of_a_parameter(x, scale, bias):
        return batch_norm(x, scale, bias, eps=1e-3)

    assert bodies(of_a_parameter, f32[2, 32, 6, 5], f32[32], f32[32]) == [("batch_norm", 3)]


def test_moments_that_no_kernel_takes_are_a_group_of_their_own(monkeypatch):
    monkeypatch.setattr(fuse, "LEAST_NORM", 0)
    module, _ = run_step(Fuse(3), module_of(normed, normed_types(32)))
    less = smaller(module.main.nodes[0].attrs["body"])
    names = [" ".join(n.op.name for n in g.attrs["body"].nodes) for g in less.nodes if g.op is fused]
    assert names == ["transpose conv transpose", "channel_moments"]


def test_updates_are_one_group():
    def step(p, q, d, e, lr):
        rates = {"momentum": 0.0, "weight_decay": 0.0, "nesterov": False}
        return sgd_update(p, d, d, lr, **rates)[0], sgd_update(q, e, e, lr, **rates)[0]

    assert bodies(step, f32[4], f32[2, 3], f32[4], f32[2, 3], f32[()]) == [("sgd_update sgd_update", 2)]


def test_each_anchor_has_its_own_group():
    def two(x, w):
        return softmax(matmul(matmul(x, w), w), axis=1)

    assert bodies(two, f32[4, 3], f32[3, 3]) == [("matmul", 1), ("matmul", 1), ("softmax", 1)]


def test_no_path_leaves_a_group_and_comes_back():
    def detour(x, w):
        u = matmul(x, w)
        rows = reduce_max(u, axes=(1,))  # outside, between u and the sum
        return add(tanh(u), broadcast_to(reshape(rows, shape=(4, 1)), shape=(4, 5)))

    assert bodies(detour, f32[4, 3], f32[3, 5]) == [("matmul tanh", 2)]


def test_two_groups_never_wait_for_each_other():
    def crossed(x, w):
        a, b = matmul(x, w), matmul(tanh(x), w)
        a2, b2 = tanh(a), tanh(b)
        return add(a, b2), add(b, a2)

    assert bodies(crossed, f32[4, 3], f32[3, 5]) == [("matmul tanh", 2), ("matmul tanh add add", 2)]


def test_the_levels():
    def layer(x, w):
        return tanh(matmul(x, w))

    large = f32[200, 100], f32[100, 200]
    assert bodies(layer, *large, level=0) == []
    assert bodies(layer, *large, level=1) == [("matmul", 1)]
    assert bodies(layer, *large, level=2) == [("matmul tanh", 1)]


def test_what_has_no_anchor_is_left_alone():
    check_silent(Fuse(3), lambda x, y: tanh(add(x, y)), f32[3], f32[3])
    check_silent(Fuse(0), lambda x, w: matmul(x, w), f32[3, 3], f32[3, 3])


@pytest.mark.parametrize("level", [3])
def test_a_second_run_finds_nothing(level):
    module = module_of(lambda x, w: tanh(matmul(x, w)), (f32[4, 3], f32[3, 5]))
    after, fired = run_step(Fuse(level), module)
    again, fired_again = run_step(Fuse(level), after)
    assert fired == {"product groups": 1} and not fired_again and again is after


def test_a_group_that_no_kernel_takes_is_tried_in_smaller_ones():
    def layer(x, w, b):
        return tanh(add(matmul(x, transpose(w, perm=(1, 0))), broadcast_to(b, shape=(4, 5))))

    module, _ = run_step(Fuse(3), module_of(layer, (f32[4, 3], f32[5, 3], f32[5])))
    names = []
    body = module.main.nodes[0].attrs["body"]
    for _ in range(4):
        names.append(" ".join(n.op.name for n in body.nodes))
        body = smaller(body)
        body = next((n.attrs["body"] for n in body.nodes if n.op is fused), body)
    assert names == [
        "transpose matmul broadcast_to add tanh", "matmul broadcast_to add tanh", "matmul", "matmul",
    ]  # fmt: skip
    assert smaller(body) is body


def test_parameters_that_only_products_read_are_made_narrow_in_their_groups():
    def step(w, x):
        small = cast(w, dtype=bfloat16)
        y = matmul(x, small)
        return y, matmul(y, transpose(small, perm=(1, 0)))

    assert bodies(step, f32[8, 8], bf16[4, 8]) == [("cast matmul", 1), ("cast transpose matmul", 1)]

    def others(w, x):
        small = cast(w, dtype=bfloat16)
        return matmul(x, small), tanh(small)

    assert [names for names, _ in bodies(others, f32[8, 8], bf16[4, 8])][:1] == ["matmul"]
