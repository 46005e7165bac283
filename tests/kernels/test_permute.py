"""Transposes as kernels: every width of element and of vector, edges, slices before; and which become groups."""

import numpy as np
import pytest
from tests.kernels.checking import TARGETS, along_rows, check_plan

from treadle import ops
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import bf16, bool_, f32, f64, i8
from treadle.kernels import engine, target
from treadle.kernels.templates import permute
from treadle.ops.groups import fused
from treadle.transforms.fuse import Fuse
from treadle.transforms.layout import Layout

pytestmark = pytest.mark.skipif(not target.available(), reason="kernels need llvmlite")
LAST, SECOND = (0, 2, 3, 1), (0, 3, 1, 2)


def body_of(t, perm, before=lambda x: x):
    return build.trace(lambda x: ops.transpose(before(x), perm=perm), [t])


def every_plan(body, machine):
    """Names of the template's plans, each of which is seen to be right."""
    (t,) = body.in_types
    x = (np.arange(t.size) % 251).astype(t.dtype.np).reshape(t.shape)
    found = permute.plans(body, machine)
    for plan in found:
        check_plan(plan, body, [x], machine)
    return [p.name for p in found]


@pytest.mark.parametrize("machine", TARGETS.values(), ids=list(TARGETS))
@pytest.mark.parametrize("kind", [f32, bf16, i8, f64, bool_], ids=["f32", "bf16", "i8", "f64", "bool"])
def test_squares_of_every_width_up_to_the_edges(kind, machine):
    rows, columns = ((67, 130), (1, 0)), ((64, 3, 128), (2, 1, 0))
    for shape, perm in (rows, ((2, 70, 5, 16), LAST), ((3, 2, 65, 64), SECOND), columns):
        assert every_plan(body_of(kind[shape], perm), machine)[0] == "permute"


@pytest.mark.parametrize("machine", TARGETS.values(), ids=list(TARGETS))
@pytest.mark.parametrize("kind", [f32, bf16, i8, f64], ids=["f32", "bf16", "i8", "f64"])
def test_few_channels_are_woven(kind, machine):
    for n in (2, 3, 7):
        assert every_plan(body_of(kind[2, n, 9, 15], LAST), machine) == ["permute woven"]
        assert every_plan(body_of(kind[2, 9, 15, n], SECOND), machine) == ["permute woven"]


def test_rows_of_whole_lines_may_be_written_past_the_caches():
    machine = target.host()
    if machine.vector_bytes < 64:
        pytest.skip("vectors are not lines of the caches")
    assert every_plan(body_of(f32[48, 40], (1, 0)), machine) == ["permute", "permute past caches"]
    large = permute.plans(body_of(f32[4096, 4096], (1, 0)), machine)
    assert [p.name for p in large] == ["permute past caches", "permute"]


def test_what_lies_before_a_transpose_is_read_where_it_is():
    machine = target.host()
    part = lambda x: ops.slice_(x, starts=(1, 3), limits=(65, 100), strides=(1, 1))
    assert every_plan(body_of(f32[70, 101], (1, 0), part), machine) == ["permute", "permute past caches"]
    rows = lambda x: ops.reshape(x, shape=(35, 2, 64))
    assert every_plan(body_of(f32[70, 64], (2, 1, 0), rows), machine)
    assert every_plan(body_of(bf16[40, 36, 2], (1, 0, 2)), machine) == ["permute"]  # pairs are items of four bytes


def test_what_is_no_turn_is_left_to_others():
    machine = target.host()
    third = lambda x: ops.slice_(x, starts=(0, 0), limits=(64, 99), strides=(1, 3))
    for body in (
        body_of(f32[8, 16, 32, 64], (0, 2, 1, 3)),
        body_of(f32[64, 99], (1, 0), third),
        body_of(f32[0, 64], (1, 0)),
        build.trace(lambda x: ops.transpose(x, perm=(1, 0)) + 1, [f32[64, 64]]),
    ):
        assert permute.plans(body, machine) == []


# ------------------------------------------------------------------------------------------------------------- groups
def groups(function, *types, layout=False):
    """Names of the ops in each group."""
    module = Module.of(build.trace(function, types))
    made = Fuse()(Layout()(module, along_rows) if layout else module).main
    return [[n.op.name for n in node.attrs["body"].nodes] for node in made.nodes if node.op is fused]


def test_large_transposes_of_their_own_are_groups():
    turn = lambda x: ops.transpose(x, perm=(1, 0))
    assert groups(turn, f32[512, 512]) == [["transpose"]]
    assert groups(turn, f32[64, 64]) == []
    assert groups(lambda x: ops.transpose(x, perm=(0, 2, 1, 3)), f32[8, 64, 16, 64]) == []
    square = lambda x: ops.transpose(ops.reshape(x, shape=(512, 512)), perm=(1, 0))
    assert groups(square, f32[512 * 512]) == [["reshape", "transpose"]]


def test_a_transpose_that_groups_repeat_for_themselves_is_not_computed():
    big = f32[512, 512]
    assert groups(lambda x, y: ops.matmul(ops.transpose(x, perm=(1, 0)), y), big, big) == [["transpose", "matmul"]]

    def both(x, y):
        turned = ops.transpose(x, perm=(1, 0))
        return ops.matmul(turned, y), turned

    assert sorted(groups(both, big, big)) == [["transpose"], ["transpose", "matmul"]]


def test_images_are_turned_beside_a_convolution_not_in_it():
    attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    conv = lambda x, w: ops.conv(x, w, **attrs)
    found = groups(conv, f32[2, 64, 56, 56], f32[64, 64, 3, 3], layout=True)
    assert sorted(found) == [["transpose"], ["transpose"], ["transpose", "conv", "transpose"]]
    few = groups(conv, f32[2, 3, 224, 224], f32[64, 3, 3, 3], layout=True)
    assert few == [["conv"]]  # three channels are read as they are, and written so


def test_a_gradient_of_weights_takes_images_in_the_user_s_layout():
    attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    gradient = lambda x, g: ops.conv_weight_grad(x, g, kernel_size=(3, 3), **attrs)
    t = f32[2, 64, 56, 56]
    module = Layout()(Module.of(build.trace(gradient, [t, t])))
    bodies = [n.attrs["body"] for n in Fuse()(module).main.nodes if n.op is fused]
    assert len(bodies) == 3 and all(engine.takes(body) for body in bodies)
