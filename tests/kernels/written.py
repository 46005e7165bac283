"""Random norms and statistics that are written out as reductions and elementwise nodes: `written(draw)`."""

from treadle import ops


def written(d):
    """Means, variances, norms, softmaxes of rows, or of all axes but one between others."""
    kind = d.kind()
    if d.chance(0.5):
        shape = (d.rnd.randint(1, 5), d.rnd.randint(1, 20), d.rnd.randint(1, 30), d.rnd.randint(1, 40))
        axes = d.one((0, 2, 3), (2, 3), (0, 3), (0, 2, 3))
    else:
        shape = d.shape(1, 3)
        axes = tuple(range(d.rnd.randrange(len(shape)), len(shape)))
    x = kind[shape]
    wide = tuple([1 if a in axes else n for a, n in enumerate(shape)])
    steps = [d.one("mean", "spread", "largest", "scaled", "residual") for _ in range(d.rnd.randint(1, 3))]
    kept = [d.chance(0.3) for _ in steps]

    def of_rows(name, v):
        return ops.OPS["reduce_" + name](v, axes=axes)

    def over(v):
        return ops.broadcast_to(ops.reshape(v, shape=wide), shape=shape)

    def whole(v, w):
        made = []
        for step, leaves in zip(steps, kept, strict=True):
            if step == "mean":
                small = of_rows("mean", v)
                v = ops.sub(v, over(small) * 0.5)  # the rest of all would be rounding errors alone when summed
            elif step == "spread":
                small = ops.sqrt(of_rows("mean", ops.square(v)) + 0.01)
                v = ops.div(v, over(small))
            elif step == "largest":
                small = of_rows("max", v)
                v = ops.exp(ops.sub(v, over(small)))
            elif step == "scaled":
                small = of_rows("sum", ops.abs(v)) + 0.5
                v = ops.div(v, over(small))
            else:
                small = of_rows("sum", ops.square(v))
                v = ops.add(ops.tanh(v), w)
            made += [small] if leaves else []
        return (v, *made)

    return d.traced(whole, [x, x])
