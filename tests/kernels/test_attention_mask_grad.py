"""The gradient of attention's mask: repeated along any axes, causal, cut into tasks, beside NumPy."""

import numpy as np
import pytest
from tests.kernels.pages import at_page_end
from tests.kernels.test_attention import arrays_of, close, formula, gradient_body, on_all_targets, run

from treadle.ir.types import bf16, f32
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates import attention as template


def slopes(q, k, v, mask, d, scale, causal):
    """The mask's gradient, in float64."""
    q, k, v, mask, d = (x.astype(np.float64) for x in (q, k, v, mask, d))
    s = q @ np.swapaxes(k, -1, -2) * scale + mask
    if causal:
        s = np.where(np.arange(s.shape[-1]) > np.arange(s.shape[-2])[:, None], -np.inf, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    dp = d @ np.swapaxes(v, -1, -2)
    found = p * (dp - (p * dp).sum(-1, keepdims=True))
    skip = found.ndim - mask.ndim
    axes = tuple([i for i in range(found.ndim) if i < skip or mask.shape[i - skip] != found.shape[i]])
    return found.sum(axes).reshape(mask.shape)


MASKS = [(37, 70), (2, 1, 37, 70), (1, 3, 37, 70), (2, 1, 1, 70), (3, 1, 70), (70,)]


@on_all_targets
@pytest.mark.parametrize("mask", MASKS)
def test_it_is_summed_over_the_axes_along_which_the_mask_is_repeated(mask, target):
    kind, causal = (bf16, False) if len(mask) == 3 else (f32, mask[0] == 2)
    types, attrs = [kind[2, 3, 37, 10], kind[2, 3, 70, 10], kind[2, 3, 70, 6], kind[mask]], {"scale": 0.3}
    rng = np.random.default_rng(len(mask))
    q, k, v, m = arrays_of(types, rng)
    y, sums = formula(q, k, v, m, causal=causal, **attrs)
    d = rng.normal(size=y.shape).astype(q.dtype)
    body = gradient_body(types, 4, causal=causal, **attrs)
    given = [q, k, v, y.astype(q.dtype), sums.astype(np.float32), d, m]
    found = run(body, given, target, plan=mask[0] % 3, place=at_page_end)
    tolerance = 1e-5 if kind is f32 else 3e-2
    close(found[3], slopes(q, k, v, m, d, causal=causal, **attrs), tolerance)
    for a, b in zip(found, formula(q, k, v, m, d=d, causal=causal, **attrs), strict=False):
        close(a, b, tolerance)


def test_the_same_with_the_gradients_of_the_operands_left_out():
    """One head in many tasks, of which none gives dq."""
    types, attrs = [f32[70, 10], f32[300, 10], f32[300, 6], f32[70, 300]], {"scale": 0.3, "causal": False}
    rng = np.random.default_rng(3)
    q, k, v, m = arrays_of(types, rng)
    y, sums = formula(q, k, v, m, **attrs)
    d = rng.normal(size=y.shape).astype(np.float32)
    body = gradient_body(types, 4, **attrs)
    body = type(body)(body.name, body.params, body.nodes, body.outputs[3:])
    kernel = template.plans(body, host())[0].build()
    out, workspace = np.full((70, 300), 7, np.float32), np.full(kernel.workspace, 0xFF, np.uint8)
    given = [q, k, v, y.astype(np.float32), sums.astype(np.float32), d, m]
    jit.load(kernel.text, host()).run([*given, out, workspace], 2)
    close(out, slopes(q, k, v, m, d, **attrs), 1e-5)
