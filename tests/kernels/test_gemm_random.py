"""Random products with random surroundings, by a random plan on a random path, against the IR's own meaning."""

import random
from math import prod

import pytest
from tests.kernels import test_gemm
from tests.kernels.test_gemm import SPECS, TARGETS, check, trace

from treadle.ir.types import bf16, f16, f32
from treadle.kernels.templates import gemm
from treadle.ops.activation import gelu, relu
from treadle.ops.products import contract
from treadle.ops.reduce import broadcast_to, reduce_sum

MORE = (
    "bqhd,bkhd->bhqk",
    "btk,kn->btn",
    "btm,btn->mn",
    "bmk,nk->bmn",
    "mbk,kn->bmn",
    "k,kn->n",
    "mk,k->m",
    "bk,bnk->bn",
)
EDGES = (1, 2, 3, 13, 16, 17, 31, 32, 33, 48, 64, 65, 96, 127, 128, 130)
MOST = 2e7  # multiplications


def drawn(rnd):
    """A body, and what is to be said of it where it is computed wrongly."""
    spec, kind = rnd.choice((*SPECS, *MORE)), rnd.choice([f32, f32, bf16, f16])
    left, _, right = spec.partition("->")[0].partition(",")
    result = spec.partition("->")[2]
    sizes = {c: rnd.randint(1, 4) if c in "bht" else rnd.choice([*EDGES, rnd.randint(1, 700)]) for c in left + right}
    while prod(sizes.values()) > MOST:
        sizes = {c: max(1, size // 2) for c, size in sizes.items()}
    x, y, out = (tuple([sizes[c] for c in part]) for part in (left, right, result))
    around = {
        "alone": ([], lambda z: z),
        "bias": ([kind[out[-1:]]], lambda z, b: relu(z + broadcast_to(b, shape=out))),
        "scale": ([kind[out]], lambda z, r: z * r),
        "both": ([], lambda z: (z, gelu(z, approximate=True))),
        "sums": ([], lambda z: (z, reduce_sum(z, axes=tuple(range(len(out) - 1))))),
    }
    name = rnd.choice(list(around))
    types, finish = around[name]
    body = trace(lambda a, b, *rest: finish(contract(a, b, spec=spec), *rest), kind[x], kind[y], *types)
    return body, f"{spec} {sizes} {name}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_products(seed, monkeypatch):
    rnd, taken = random.Random(seed), 0
    for case in range(25):
        body, what = drawn(rnd)
        target = TARGETS[rnd.choice(list(TARGETS))]
        offers = gemm.plans(body, target)
        if not offers:
            continue
        plan, taken = rnd.choice(offers), taken + 1
        monkeypatch.setattr(test_gemm.gemm, "plans", lambda *_, plan=plan: [plan])
        try:
            check(body, target, seed=case, scale=12)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
        finally:
            monkeypatch.undo()
    assert taken > 15
