"""What only the channels need is computed once, in a phase before, and memory is shared only where that is safe."""

import numpy as np
import pytest
from tests.kernels.checking import check_plan
from tests.kernels.test_conv import values

from treadle.ir import build
from treadle.ir.types import bf16, f32
from treadle.kernels.nests import nest
from treadle.kernels.target import host
from treadle.kernels.templates import loops
from treadle.kernels.templates._schedule import schedule
from treadle.ops.norm_batch import batch_norm_grad, batch_norm_grad_summed, batch_norm_inference
from treadle.ops.shape import transpose

LAST, BACK = (0, 2, 3, 1), (0, 3, 1, 2)
C = 40
IMAGE = f32[2, 9, 10, C]


def inference(x, *params):
    return transpose(batch_norm_inference(transpose(x, perm=BACK), *params, eps=1e-3), perm=LAST)


def gradient(x, scale, mean, var, dy, *more):
    op = batch_norm_grad_summed if len(more) > 2 else batch_norm_grad
    dx, *rest = op(transpose(x, perm=BACK), scale, mean, var, transpose(dy, perm=BACK), *more, eps=1e-3)
    return transpose(dx, perm=LAST), *rest


def stages(body):
    made = schedule(nest(body), host())
    return [[p.count * sum(a.extent for a in p.inner) for p in stage] for stage in made.stages]


def checked(function, types, shared):
    body = build.trace(function, types)
    (plan, *_) = loops.plans(body, host())
    arrays = [np.abs(a) for a in values(types, 4)]
    check_plan(plan, body, arrays, host())
    assert tuple(plan.build().aliases) == shared
    return body


@pytest.mark.parametrize("kind", [f32, bf16])
def test_of_channels_last_images(kind):
    image = kind[IMAGE.shape]
    body = checked(inference, [image, *[f32[C]] * 4], ((0, 0),))
    assert [max(stage) for stage in stages(body)] == [C, IMAGE.size]
    body = checked(gradient, [image, f32[C], f32[C], f32[C], image, *[f32[C]] * 4], ((0, 4),))
    assert [max(stage) for stage in stages(body)] == [C, IMAGE.size]


def test_what_a_later_stage_reads_is_not_written_over():
    def both(x, *params):
        return x * 2.0, inference(x, *params)

    checked(both, [IMAGE, *[f32[C]] * 4], ())


def test_both_sums_of_a_gradient_are_one_pass():
    body = checked(gradient, [IMAGE, f32[C], f32[C], f32[C], IMAGE, f32[C], f32[C]], ())
    made = schedule(nest(body), host())
    assert [len(p.columns) for stage in made.stages for p in stage if getattr(p, "columns", ())] == [2]
