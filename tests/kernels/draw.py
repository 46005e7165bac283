"""A source of random sizes, element types, views of operands and arrays: `Draw(seed)`.

Sizes are 1 to 130, edges of vectors and blocks more often, now and then up to 700; with `empty`, sometimes 0. Views are
transposed, sliced with steps, broadcast, cast or split operands; some arrays have NaN and infinity.
"""

import random
from math import prod

import numpy as np
from tests.kernels.checking import LEAST

from treadle import ops
from treadle.ir import build
from treadle.ir.types import bf16, f16, f32, f64

EDGES = (1, 1, 2, 3, 4, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 130)
FLOATS = {f32: 4, bf16: 2, f16: 1, f64: 1}
MOST_PRODUCTS, MOST_ELEMENTS = 4e6, 1.5e5
OTHER = {"gelu": {"approximate": True}, "elu": {"alpha": 1.0}, "leaky_relu": {"slope": 0.1}}  # attributes of ops


class Draw:
    """A source of sizes, types, views and arrays."""

    def __init__(self, seed, empty=0.0):
        self.rnd, self.rng, self.empty = random.Random(seed), np.random.default_rng(seed), empty
        self.special = self.rnd.random() < 0.25  # with NaN and infinity
        self.least = LEAST

    def chance(self, p):
        return self.rnd.random() < p

    def one(self, *among):
        return self.rnd.choice(among)

    def size(self, most=130):
        if self.chance(self.empty):
            return 0
        if most == 130 and self.chance(0.06):  # beyond blocks and tasks
            return self.rnd.randint(131, 700)
        return min(self.one(*EDGES), most) if self.chance(0.5) else self.rnd.randint(1, most)

    def shape(self, least=1, most=4, elements=MOST_ELEMENTS):
        found = [self.size() for _ in range(self.rnd.randint(least, most))]
        while prod(found) > elements:
            at = found.index(max(found))
            found[at] = self.rnd.randint(1, found[at] - 1)
        return tuple(found)

    def sizes(self, names, most=MOST_PRODUCTS, small=""):
        """A size for each letter, together at most so many; those of `small` are 1 to 4."""
        found = {c: self.size(4 if c in small else 130) for c in names}
        while prod(found.values()) > most:
            at = max(found, key=found.get)
            found[at] = max(1, found[at] // 2)
        return found

    def kind(self, *, without=()):
        kinds = [k for k in FLOATS if k not in without]
        return self.rnd.choices(kinds, [FLOATS[k] for k in kinds])[0]

    def values(self, t, spread=1.0, special=True):
        """An array of a type: normal numbers, small integers, bits."""
        if t.dtype.kind == "b":
            return self.rng.integers(0, 2, t.shape).astype(bool)
        if not t.dtype.is_float:
            return self.rng.integers(-4, 5, t.shape).astype(t.dtype.np)
        x = self.rng.normal(size=t.shape) * spread
        if self.special and special and x.size:
            x.reshape(-1)[self.rng.integers(0, x.size, 3)] = self.rng.choice([np.nan, np.inf, -np.inf], 3)
        return x.astype(t.dtype.np)

    def traced(self, function, types, given=(), **how):
        """The function with arrays of its parameters' types; given: arrays instead, by number."""
        given = dict(given)
        arrays = [given[i] if i in given else self.values(t, **how) for i, t in enumerate(types)]
        return build.trace(function, types), arrays

    # ------------------------------------------------------------------------------------- pieces of functions
    def view(self, t, plainly=0.5):
        """A type and what makes a tensor of type t of it without arithmetic."""
        rank = len(t.shape)
        how = "plain" if self.chance(plainly) else self.one("turned", "sliced", "cast", "split", "spread", "plain")
        if how == "turned" and rank > 1:
            perm = self.rnd.sample(range(rank), rank)
            shape = [0] * rank
            for i, p in enumerate(perm):
                shape[p] = t.shape[i]
            return t.with_shape(tuple(shape)), lambda x: ops.transpose(x, perm=tuple(perm))
        if how == "sliced" and rank and t.size:
            steps = [self.one(1, 1, 2, 3) if i == self.rnd.randrange(rank) else 1 for i in range(rank)]
            starts = [self.one(0, 0, 1, 5) for _ in t.shape]
            limits = [s + (n - 1) * k + 1 for s, n, k in zip(starts, t.shape, steps, strict=True)]
            whole = t.with_shape(tuple([n + self.one(0, 0, 1, 3) for n in limits]))
            where = {"starts": tuple(starts), "limits": tuple(limits), "strides": tuple(steps)}
            return whole, lambda x: ops.slice_(x, **where)
        if how == "cast" and t.dtype.is_float:
            return self.one(f32, bf16, f16)[t.shape], lambda x: ops.cast(x, dtype=t.dtype)
        if how == "split" and rank and t.size:
            n = t.shape[-1]
            factor = self.one(*[d for d in range(1, n + 1) if n % d == 0])
            return t.with_shape((*t.shape[:-1], factor, n // factor)), lambda x: ops.reshape(x, shape=t.shape)
        if how == "spread" and rank:
            kept = self.rnd.randint(0, rank)
            less = tuple([1 if self.chance(0.2) else n for n in t.shape[rank - kept :]])
            return t.with_shape(less), lambda x: ops.broadcast_to(x, shape=t.shape)
        return t, lambda x: x

    def viewed(self, types, function):
        """The function of views of operands of these types, and the views' types."""
        views = [self.view(t) for t in types]
        return [t for t, _ in views], lambda *xs: function(*[v(x) for (_, v), x in zip(views, xs, strict=True)])

    def after(self, t):
        """Something elementwise that may follow a result of type t: (types of more operands, function).

        No products with infinity: of what is 0 in float32 and almost 0 in float64 they are NaN and infinity."""
        types, steps = [], []
        for _ in range(self.rnd.randint(0, 4)):
            what = self.one("smooth", "smooth", "tensor", "row", "column", "scale", "mask", "round")
            if what == "smooth":
                name = self.one("relu", "tanh", "sigmoid", "gelu", "abs", "neg", "silu")
                steps.append(lambda z, _, name=name: ops.OPS[name](z, **OTHER.get(name, {})))
            elif what == "scale":
                steps.append(lambda z, _: z * 0.5 + 0.25)
            elif what == "round":
                to = self.one(f32, bf16, f16)[()].dtype
                steps.append(lambda z, _, to=to: ops.cast(ops.cast(z, dtype=to), dtype=z.dtype))
            elif what == "mask":
                n = len(types)
                types.append(t)
                steps.append(
                    lambda z, r, n=n: ops.select(r[n] > 0.0, z, ops.full(value=0.0, shape=t.shape, dtype=t.dtype))
                )
            else:
                rank = len(t.shape)
                less = {"tensor": t.shape, "row": t.shape[-1:], "column": (*t.shape[:-1], 1) if rank else ()}[what]
                n, by = len(types), self.one(ops.add, ops.sub, ops.sub if self.special else ops.mul)
                types.append(t.with_shape(less))
                steps.append(lambda z, r, n=n, by=by: by(z, ops.broadcast_to(r[n], shape=t.shape)))
        also, to = self.chance(0.25), self.one(f32, bf16)[()].dtype if self.chance(0.2) else t.dtype

        def follow(z, *rest):
            first = z
            for step in steps:
                z = step(z, rest)
            out = ops.cast(z, dtype=to)
            return (out, first) if also else out

        return types, follow

    def followed(self, t, function, types):
        """function(*operands), whose (first) result is of type t, with what follows: (types, function)."""
        more, follow = self.after(t)
        n = len(types)

        def whole(*xs):
            made = function(*xs[:n])
            first, *others = made if isinstance(made, tuple) else (made,)
            done = follow(first, *xs[n:])
            return (*(done if isinstance(done, tuple) else (done,)), *others)

        return [*types, *more], whole
