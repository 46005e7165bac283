"""The maximum of windows of channels-last images, and its gradient, as kernels of their own."""

import numpy as np
import pytest
from tests.kernels.checking import TARGETS, check_plan

from treadle.ir import build
from treadle.ir.types import bf16, f16, f32, i32
from treadle.kernels.target import host
from treadle.kernels.templates import max_pool as template
from treadle.ops._pooling import pooled
from treadle.ops.compare import greater, select
from treadle.ops.creation import full
from treadle.ops.elementwise import add
from treadle.ops.pool import max_pool, max_pool_grad
from treadle.ops.shape import transpose

SECOND, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def attributes(window, stride, padding):
    return {"window": window, "stride": stride, "padding": padding}


def bodies(kind, size, attrs, follow=False):
    """The maximum and its gradient of images [n, *size, c]. follow: with what may come after it."""
    n, h, w, c = size
    out = pooled((h, w), **attrs)

    def forward(x, r):
        y = transpose(max_pool(transpose(x, perm=SECOND), **attrs), perm=LAST)
        return add(y, r) if follow else y

    def gradient(x, dy, r):
        dx = max_pool_grad(transpose(x, perm=SECOND), transpose(dy, perm=SECOND), **attrs)
        dx = transpose(dx, perm=LAST)
        zero = full(value=0, shape=dx.shape, dtype=dx.dtype)
        return select(greater(r, zero), dx, zero) if follow else dx

    x, y = kind[n, h, w, c], kind[n, *out, c]
    given = [x, y] if follow else [x]
    one = build.trace(forward if follow else lambda x: forward(x, None), given)
    given = [x, y, x] if follow else [x, y]
    return one, build.trace(gradient if follow else lambda x, dy: gradient(x, dy, None), given)


def check(body, target, seed=0, least=-2):
    """Of whole numbers, many of which are equal, some NaN and minus infinity."""
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(least, 3, t.shape).astype(t.dtype.np) for t in body.in_types]
    x = arrays[0].reshape(-1)
    x[::23], x[5::7], x[2::29] = np.nan, -np.inf, np.inf
    if seed % 2:
        arrays[0][:, : arrays[0].shape[1] // 2] = -np.inf  # whole windows
    found = template.plans(body, target)
    assert found, "no plan"
    check_plan(found[0], body, arrays, target)


BOTH = ((1, 1), (1, 1))
CASES = {
    "of a network": (f32, (2, 14, 12, 32), attributes((3, 3), (2, 2), BOTH)),
    "bfloat16": (bf16, (1, 17, 15, 70), attributes((3, 3), (2, 2), BOTH), True),
    "stride of one": (f16, (2, 6, 5, 17), attributes((3, 3), (1, 1), BOTH)),
    "side by side": (f32, (1, 9, 8, 33), attributes((2, 2), (2, 2), ((0, 0), (0, 0))), True),
    "gaps between windows": (f32, (1, 11, 13, 16), attributes((2, 1), (3, 4), ((1, 0), (0, 0)))),
    "large padding": (bf16, (1, 5, 4, 16), attributes((5, 4), (2, 3), ((4, 3), (3, 1)))),
    "one row": (f32, (3, 1, 30, 19), attributes((1, 5), (1, 2), ((0, 0), (2, 4)))),
}


@pytest.mark.parametrize("path", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_first_maxima(case, path):
    for seed, body in enumerate(bodies(*CASES[case])):
        check(body, TARGETS[path], seed)
        check(body, TARGETS[path], seed + 1)


@pytest.mark.parametrize("seed", range(6))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    window = tuple(rng.integers(1, 5, 2).tolist())
    padding = tuple([tuple(rng.integers(0, w, 2).tolist()) for w in window])
    attrs = attributes(window, tuple(rng.integers(1, 4, 2).tolist()), padding)
    size = (int(rng.integers(1, 4)), *rng.integers(5, 24, 2).tolist(), int(rng.integers(8, 90)))
    for body in bodies([f32, bf16, f16][seed % 3], size, attrs, follow=seed > 2):
        check(body, host(), seed)


def test_what_is_not_taken():
    attrs = attributes((3, 3), (2, 2), BOTH)
    taken = lambda fn, *types: bool(template.plans(build.trace(fn, types), host()))
    last = lambda x: transpose(max_pool(transpose(x, perm=SECOND), **attrs), perm=LAST)
    assert taken(last, f32[1, 9, 9, 32])
    assert not taken(last, i32[1, 9, 9, 32])  # integers
    assert not taken(last, f32[1, 9, 9, 3])  # few channels
    assert not taken(lambda x: max_pool(x, **attrs), f32[1, 32, 9, 9])  # channels second
    line = attributes((3,), (2,), ((1, 1),))
    for shape in ((1, 32, 9), (9,), (2, 3, 32, 9)):
        assert not taken(lambda x: max_pool(x, **line), f32[shape])  # one axis
