"""Padding of random programs: either it is refused, or the padded program gives the numbers of the real size.

A program is drawn at each size with the same seed; where the draws then differ, padding must be refused. The padding of
the arguments is filled with NaN: nothing of it may come into a result.
"""

from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from tests.support import random_programs
from tests.support.random_programs import SMOOTH, random_module

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.ir import interp
from treadle.ir.node import Module
from treadle.ir.verify import verify
from treadle.transforms.grad import vjp
from treadle.transforms.padded import Dim, narrowed, outer_shape, pad_fn, widened

BUCKET, SIZES, CHUNKS, COUNT = {"n": 8}, (5, 8), 2, 100


def drawn(seed, n, gradient):
    """The random program of a seed with axes of size n in the place of those of 3; or its gradient."""
    shapes = tuple([tuple([n if s == 3 else s for s in shape]) for shape in random_programs._SHAPES])
    with patch.object(random_programs, "_SHAPES", shapes):
        module = random_module(seed, SMOOTH if gradient else (), size=8, dtype=dtypes.float64)
    return vjp(module) if gradient else module


def read(modules, points, axes):
    return pad_fn([m.main for m in modules], [m.fns for m in modules], points, axes)


def axes_at(types):
    """The axes of size 8 are the dimension: no other axis of a parameter has that size."""
    return [tuple([(Dim("n"),) if s == 8 else None for s in t.shape]) for t in types]


def with_nan(array, axes):
    """The argument at the bucket's size, NaN in its padding."""
    out = np.full(outer_shape(array.shape, axes, BUCKET), np.nan)
    out[tuple([slice(s) for s in array.shape])] = array
    return out


def padded_run(padded, arrays, axes, real):
    """The results of the padded program at the real size, cut."""
    extras = [widened(e.array, e.axes, real, BUCKET) for e in padded.extras]
    inputs = [with_nan(a, x) for a, x in zip(arrays, axes, strict=True)]
    verify(Module.of(padded.fn))
    with np.errstate(all="ignore"):
        outputs = interp.run(padded.fn, *inputs, np.int32(real["n"]), *extras)
    return [narrowed(o, x, real, BUCKET) for o, x in zip(outputs, padded.out_axes, strict=True)]


def check(seed, size, gradient, counts):
    real = {"n": size}
    points = [BUCKET, real, {"n": 7}]
    modules = [drawn(seed, p["n"], gradient) for p in points]
    if not any(s == 8 for t in modules[0].main.in_types for s in t.shape):
        return
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=t.shape) for t in modules[1].main.in_types]
    axes = axes_at(modules[0].main.in_types)
    if any(outer_shape(t.shape, x, real) != a.shape for t, x, a in zip(modules[0].main.in_types, axes, arrays)):
        return
    try:
        padded = read(modules, points, axes)
    except UserError as error:
        counts[error.code] += 1
        return
    with np.errstate(all="ignore"):
        wanted = interp.run(modules[1], *arrays)
    found = padded_run(padded, arrays, axes, real)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}, size {size}\n{modules[1]}")
    counts["padded"] += 1


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs_are_padded_exactly_or_refused(chunk, gradient):
    counts = Counter()
    for seed in range(chunk, COUNT, CHUNKS):
        for size in SIZES:
            check(seed, size, gradient, counts)
    assert set(counts) <= {"padded", "E0260", "E0261"}, counts
    assert counts["padded"] >= 50, "too many are refused for this to be a test"
