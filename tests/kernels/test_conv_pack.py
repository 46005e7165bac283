"""Weights packed in blocks, where all their squares are whole, are the same bits as packed by columns."""

import numpy as np
import pytest
from tests.kernels.test_conv import attributes, backward, forward, values

from treadle.ir import build
from treadle.ir.types import bf16, f16, f32
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates import conv as template
from treadle.kernels.templates.conv_pack import Panels


def packed(body, weights, winograd):
    """What the first phase makes of weights, before which the workspace held nothing but 255."""
    plan = next(p for p in template.plans(body, host()) if ("winograd" in p.name) == winograd)
    kernel = plan.build()
    arrays = [np.zeros(t.shape, t.dtype.np) for t in (*kernel.inputs, *kernel.outputs)]
    arrays[1] = weights
    work = np.full(kernel.workspace, 255, np.uint8)
    jit.load(kernel.divided()[0].text).run([*arrays, work])
    return work


CASES = [
    (f32, (3, 3), 1, False),
    (bf16, (3, 3), 1, False),
    (bf16, (3, 3), 1, True),
    (f16, (1, 1), 1, False),
    (bf16, (1, 1), 1, False),
    (bf16, (3, 3), 2, False),
]


@pytest.mark.parametrize("kind, kernel, stride, winograd", CASES)
def test_blocks_are_columns(kind, kernel, stride, winograd, monkeypatch):
    pad = (kernel[0] // 2, kernel[0] // 2)
    attrs, size = attributes(stride=stride, padding=(pad, pad)), (10, 14)
    out = tuple([-(-n // stride) for n in size])
    w = kind[48, 32, *kernel]
    for fn, types in ((forward(attrs), [kind[1, *size, 32], w]), (backward(attrs, size), [kind[1, *out, 48], w])):
        body, weights = build.trace(fn, types), values([w], 4)[0]
        for special in (None, np.inf):
            if special is not None:
                weights[37, 29, -1, -1] = special
            found = []
            for even in (True, False):
                if not even:
                    monkeypatch.setattr(Panels, "even", False)
                found.append(packed(body, weights, winograd))
                monkeypatch.undo()
            np.testing.assert_array_equal(*found)
