"""Random data gradients with sums of them: `summed(draw)` gives a function of the IR and its arrays."""

from treadle import ops
from treadle.ir.types import f32, f64


def summed(d):
    """Data gradients with the sums that a batch norm's gradient wants, of channels-last images, masked or added to."""
    groups = d.chance(0.4) and d.rnd.randint(2, 70)
    c, o = (groups, groups) if groups else (d.rnd.randint(1, 90), d.rnd.randint(1, 60))
    size, kernel = (d.rnd.randint(2, 24), d.rnd.randint(2, 24)), d.one((1, 1), (3, 3), (3, 3), (2, 3), (5, 1))
    attrs = {"stride": d.one((1, 1), (1, 1), (2, 2), (2, 1), (1, 3)), "dilation": (1, 1), "groups": groups or 1}
    attrs["padding"] = tuple([(k // 2, d.one(k // 2, 0)) for k in kernel])
    rows = zip(size, kernel, attrs["padding"], attrs["stride"], strict=True)
    out = tuple([(n + sum(p) - k) // s + 1 for n, k, p, s in rows])
    if min(out) < 1:
        return summed(d)
    kind, n, how = d.kind(without=(f64,)), d.rnd.randint(1, 3), d.one("", "mask", "add", "x")
    image = kind[n, *size, c]

    def whole(dy, w, x, mean, more):
        second = ops.transpose(dy, perm=(0, 3, 1, 2))
        dx = ops.transpose(ops.conv_input_grad(second, w, input_size=size, **attrs), perm=(0, 2, 3, 1))
        dx = {"": lambda: dx, "mask": lambda: dx * ops.cast(more > 0.0, dtype=kind.dtype), "add": lambda: dx + more,
              "x": lambda: dx + x}[how]()  # fmt: skip
        return dx, *ops.channel_sums(dx, x, mean, axis=3)

    types = [kind[n, *out, o], kind[o, c // attrs["groups"], *kernel], image, f32[c], image]
    return d.traced(whole, types, {i: d.values(types[i], special=False) for i in range(1, 5)})
