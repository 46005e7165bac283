"""Random attention for tests/kernels/drawn.py: forward, gradients (also joined), masks, dropout, views."""

from functools import partial
from math import prod

import numpy as np
from tests.kernels.draw import MOST_PRODUCTS

from treadle import ops
from treadle.ir.types import bf16, f16, f32, u32


def attentions(d):
    kind = d.one(f32, f32, bf16, f16)
    lead = tuple([d.rnd.randint(1, 3) for _ in range(d.rnd.randint(0, 2))])
    rows, keys, depth, width = (d.size() for _ in range(4))
    if d.chance(0.2):
        keys, width = rows, depth
    while prod(lead) * rows * keys * (depth + width) > MOST_PRODUCTS:
        rows, keys = max(rows // 2, 1), max(keys // 2, 1)
    attrs = {"scale": d.one(0.1, 0.3, 1.0), "causal": d.chance(0.4)}
    types = [kind[(*lead, rows, depth)], kind[(*lead, keys, depth)], kind[(*lead, keys, width)]]
    given, before, name = {}, 3, "attention"  # before: operands before the mask
    if d.chance(0.35):
        name, before, attrs["rate"] = "attention_dropout", 4, d.one(0.1, 0.3, 0.5, 0.9, 1.0, 0.0)
        types.append(u32[(*lead, 2)])
        given[3] = d.rng.integers(0, 2**32, (*lead, 2)).astype(np.uint32)
    forward, gradient = ops.OPS[f"{name}_fwd"], ops.OPS[f"{name}_grad"]
    some = [d.one(1, n) for n in lead]
    masks = [(), (), (rows, keys), (*lead, rows, keys), (*[1] * len(lead), 1, keys), (keys,)]
    masks.append((*some, d.one(1, rows), keys))
    if chosen := d.one(*masks):
        types.append(kind[chosen])
    if d.chance(0.4):  # the gradient, from what the forward one kept
        types.append(kind[(*lead, rows, width)])
        d.special, d.least = False, 10  # differences of numbers of this size are summed
        join = d.one(lambda *slopes: slopes, partial(_joined_slopes, (*range(1, 1 + len(lead)), -2, 0, -1)))
        count = d.one(3, 4)  # with the mask's, or without

        def function(q, k, v, *rest):
            y, sums = forward(q, k, v, *rest[:-1], **attrs)
            slopes = gradient(q, k, v, y, sums, rest[-1], *rest[:-1], **attrs)[:count]
            return (y, *join(*slopes[:3]), *slopes[3:])
    else:
        function = lambda *xs: d.one(ops.OPS[name], forward)(*xs, **attrs)
    if d.chance(0.5):
        seeds = types[3] if before == 4 else None
        types, function = d.viewed(types, function)
        if seeds is not None and types[3] != seeds:  # a view of more, or of less
            given[3] = d.rng.integers(0, 2**32, types[3].shape).astype(np.uint32)
    if attrs["causal"]:  # what a row does not see is left out: where that is NaN, 0 * NaN is not computed
        given[2] = d.values(types[2], special=False)
    if chosen and d.chance(0.5) and types[before].shape and types[before].dtype is kind[()].dtype:
        mask = d.values(types[before], special=False)
        mask[d.rng.random(mask.shape) < 0.3] = -np.inf  # rows may see nothing
        given[before] = mask if not attrs["causal"] and d.special else d.values(types[before], special=False)
    return d.traced(function, types, given)


def _joined_slopes(perm, dq, dk, dv):
    """Those of one shape in one, or side by side in another order of axes."""
    if not dq.shape == dk.shape == dv.shape:
        alike = dk.shape[:-1] == dv.shape[:-1]
        return (dq, ops.concatenate(dk, dv, axis=dk.ndim - 1)) if alike else (dq, dk, dv)
    both = ops.concatenate(*[ops.reshape(x, shape=(1, *x.shape)) for x in (dq, dk, dv)], axis=0)
    turned = ops.transpose(both, perm=tuple([p % both.ndim for p in perm]))
    return (ops.reshape(turned, shape=(*turned.shape[:-2], 3 * turned.shape[-1])),)
