"""The gradient of maximum pooling with windows side by side, as loops of our own."""

import numpy as np
import pytest
from tests.kernels.checking import TARGETS, check_plan

from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import TensorType, bf16, f32
from treadle.kernels.target import host
from treadle.kernels.templates import loops
from treadle.ops.groups import fused
from treadle.ops.pool import max_pool_grad
from treadle.ops.shape import transpose
from treadle.transforms.fuse import Fuse


def gradient(kind, size, window, last=False, stride=None):
    """A body; last: images with channels last."""
    attrs = {"window": window, "stride": stride or window, "padding": ((0, 0),) * len(window)}
    out = tuple([(n - w) // s + 1 for n, w, s in zip(size[2:], window, attrs["stride"], strict=True)])

    def body(x, dy):
        x = transpose(x, perm=(0, 3, 1, 2)) if last else x
        dx = max_pool_grad(x, dy, **attrs)
        return transpose(dx, perm=(0, 2, 3, 1)) if last else dx

    shape = (size[0], *size[2:], size[1]) if last else size
    return build.trace(body, [kind[shape], TensorType(kind.dtype, (*size[:2], *out))])


CASES = {
    "even": (f32, (2, 3, 8, 6), (2, 2)),
    "elements that no window has": (f32, (1, 5, 7, 11), (2, 3)),
    "channels last": (bf16, (3, 6, 10, 10), (2, 2), True),
    "many channels": (f32, (1, 37, 6, 9), (3, 3), True),
    "one axis": (bf16, (2, 3, 50), (5,)),
}


@pytest.mark.parametrize("path", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_first_maxima(case, path):
    body = gradient(*CASES[case])
    rng = np.random.default_rng(4)
    x, dy = (rng.integers(-2, 3, t.shape).astype(t.dtype.np) for t in body.in_types)  # many are equal
    x.reshape(-1)[::11], x.reshape(-1)[3::17] = np.nan, -np.inf
    check_plan(loops.plans(body, TARGETS[path])[0], body, [x, dy], TARGETS[path])


def test_windows_that_overlap_are_left_to_xla():
    assert loops.plans(gradient(f32, (2, 3, 9, 9), (3, 3), stride=(2, 2)), host()) == []
    large = [gradient(f32, (64, 8, 32, 32), (2, 2)), gradient(f32, (64, 8, 33, 33), (3, 3), stride=(2, 2))]
    assert [any(n.op is fused for n in Fuse()(Module.of(body)).main.nodes) for body in large] == [True, False]
