"""Weight gradients by blocks of places: tiles, panels and tasks that are not full, strides, borders, half steps."""

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.checking import TARGETS, check_plan
from tests.kernels.test_conv import attributes, out_size, second, values, weights

from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import bf16, f16, f32
from treadle.kernels import engine
from treadle.kernels.kernel import Plan
from treadle.kernels.target import host
from treadle.kernels.templates import conv, conv_finish
from treadle.kernels.templates.conv_weight_blocks import Blocks, block_schedules, pays
from treadle.ops.convolution import conv_weight_grad
from treadle.ops.groups import fused
from treadle.transforms.fuse import Fuse
from treadle.transforms.layout import Layout

NONE = ((0, 0), (0, 0))
CASES = {  # images, channels of x and dy, size, kernel, attributes
    "every second place": (3, 48, 30, (13, 14), (3, 3), attributes(2)),
    "one of four places": (5, 40, 17, (14, 13), (1, 1), attributes(2, NONE)),
    "all places": (3, 80, 45, (7, 7), (1, 1), attributes(1, NONE)),
    "many blocks": (4, 33, 9, (24, 21), (1, 1), attributes(1, NONE)),
    "borders that differ": (2, 20, 31, (9, 11), (2, 3), attributes((1, 2), ((-1, 2), (1, 0)), (2, 1))),
}


def gradient(case, t):
    n, c, o, size, kernel, attrs = CASES[case]
    return build.trace(weights(attrs, kernel), [t[n, *size, c], t[n, *out_size(size, kernel, attrs), o]])


def schedule(body, target):
    found = conv.read(body)
    return block_schedules(found.spec, target, found.dtype)[0]


def plan(body, target, **how):
    """The plan by blocks, with its schedule changed."""
    found, chosen = conv.read(body), replace(schedule(body, target), **how)
    spec, params = found.spec, [o.param for o in found.operands]
    sizes = {"o": spec.outputs, "r": spec.channels * spec.kernel[0] * spec.kernel[1]}
    tail = conv_finish.read(body, found.anchor, sizes, "r", params, target)
    make = lambda: conv._make_rows(Blocks, found, spec, chosen, tail, target)
    return Plan(str(chosen), make)


def check(body, target=None, special=(), **how):
    target = target or host()
    check_plan(plan(body, target, **how), body, values(body.in_types, 1, special), target)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_sizes(t, case):
    body = gradient(case, t)
    check(body)
    check(body, special=(0, 1), steps=10, splits=2)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
def test_on_cpus_that_have_less(name):
    check(gradient("every second place", f16), TARGETS[name])
    check(gradient("all places", bf16), TARGETS[name], steps=20, splits=3)


def test_tasks_share_places_outputs_and_channels():
    body = gradient("every second place", bf16)
    check(body, outputs=4, blocks=4, parts=2, steps=17, splits=3)
    check(body, outputs=7, vectors=1, blocks=2, parts=3, steps=200)
    check(gradient("all places", f32), outputs=5, blocks=3, parts=3, steps=9, splits=4)


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_what_follows(t):
    n, c, o, size, kernel, attrs = CASES["every second place"]

    def update(x, dy, w):
        return w - conv_weight_grad(second(x), second(dy), kernel_size=kernel, **attrs) * 0.125

    body = build.trace(update, [t[n, *size, c], t[n, *out_size(size, kernel, attrs), o], t[o, c, *kernel]])
    check(body)
    check(body, steps=16, splits=2)


def spec(n, c, o, size, kernel, stride=1):
    padding = tuple((k // 2, k // 2) for k in kernel)
    attrs = attributes(stride, padding)
    types = [bf16[n, *size, c], bf16[n, *out_size(size, kernel, attrs), o]]
    return conv.read(build.trace(weights(attrs, kernel), types)).spec


def test_where_it_is_the_first_choice():
    pairs, less = host(), host().without("avx512bf16")
    if pairs.has("amx") or not pairs.has("avx512bf16"):
        pytest.skip("the CPU has no pairs of bfloat16, or AMX")
    large, small = spec(8, 64, 256, (56, 56), (1, 1)), spec(2, 64, 256, (14, 14), (1, 1))
    assert pays(large, pairs, "bf16") and not pays(small, pairs, "bf16")
    assert not pays(large, pairs, "f32") and not pays(large, less, "bf16")
    strided = spec(2, 64, 64, (56, 56), (3, 3), 2)
    assert pays(strided, pairs, "bf16") and not pays(strided, pairs, "f32")
    assert pays(spec(2, 64, 64, (14, 14), (3, 3), 2), pairs, "f32")


def test_what_is_not_taken():
    assert block_schedules(spec(2, 3, 64, (20, 20), (3, 3)), host(), "f32") == []  # would fill no vector
    assert block_schedules(spec(2, 64, 64, (20, 20), (5, 5)), host(), "f32") == []


def test_gradients_of_float16_are_gathered():
    attrs = attributes(2)
    plain = lambda x, dy: conv_weight_grad(x, dy, kernel_size=(3, 3), **attrs)
    fn = build.trace(plain, [f16[4, 64, 28, 28], f16[4, 64, 14, 14]])
    made = Fuse(2)(Layout(small=True)(Module.of(fn))).main
    bodies = [node.attrs["body"] for node in made.nodes if node.op is fused]
    assert any(n.op is conv_weight_grad and engine.plans(b) for b in bodies for n in b.nodes)


def test_schedules_keep_to_the_scratch_that_there_is():
    wide = spec(1, 2048, 2048, (30, 30), (3, 3), 2)
    for target in TARGETS.values():
        for s in block_schedules(wide, target, "f32"):
            assert Blocks(wide, s, target, "f32", (0, 1, 2)).scratch() <= 8 << 20
            assert np.prod([s.splits, s.blocks, s.parts]) <= 64 * target.cores
