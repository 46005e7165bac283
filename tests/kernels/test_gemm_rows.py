"""Products with the loss of their rows and its gradient, in one kernel, against the IR's own meaning."""

import numpy as np
import pytest
from tests.kernels.checking import TARGETS, check_plan

from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import bf16, f32, i32
from treadle.kernels import engine
from treadle.kernels.kernel import Plan
from treadle.kernels.target import host
from treadle.kernels.templates import gemm_rows
from treadle.ops.groups import fused
from treadle.ops.loss import cross_entropy_fwd, cross_entropy_grad
from treadle.ops.products import contract
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import reshape
from treadle.transforms.fuse import Fuse, smaller


def losses(m, n, k, kind=bf16, bias=False, spec="mk,nk->mn", logits=False, lead=0):
    """A body of a product, the loss of its rows, and the gradient for them; logits: the product is a result too."""
    x, _, y = spec.partition("->")[0].partition(",")
    sizes = {"m": m, "n": n, "k": k}

    def body(a, b, labels, d, *rest):
        z = contract(a, b, spec=spec)
        z = z + broadcast_to(rest[0], shape=(m, n)) if bias else z
        given = reshape(labels, shape=(m,))
        loss, shift, total = cross_entropy_fwd(z, given, ignore_index=-100)
        dz = cross_entropy_grad(z, given, shift, total, broadcast_to(d, shape=(m,)), ignore_index=-100)
        dz = reshape(dz, shape=(lead, m // lead, n)) if lead else dz
        return (loss, dz, z) if logits else (loss, dz)

    types = [kind[tuple(sizes[c] for c in part)] for part in (x, y)]
    shape = (lead, m // lead) if lead else (m,)
    return build.trace(body, [*types, i32[shape], f32[()], *([kind[n]] if bias else [])])


def arrays(body, seed, classes, odd=True):
    """Numbers for the body's parameters; odd: with labels that name no class or are ignored."""
    rng = np.random.default_rng(seed)
    found = [np.array(rng.standard_normal(t.shape) * 0.3).astype(t.dtype.np) for t in body.in_types]
    labels = rng.integers(0, classes, body.in_types[2].shape).astype(np.int32)
    if odd:
        labels.reshape(-1)[::5] = -100
        labels.reshape(-1)[1::7] = classes
    found[2] = labels
    return found


def only_plan(body, target) -> Plan:
    (plan,) = gemm_rows.plans(body, target)
    return plan


CASES = {
    "small": {"m": 2, "n": 3, "k": 1},
    "edges": {"m": 19, "n": 131, "k": 37},
    "float": {"m": 33, "n": 70, "k": 130, "kind": f32},
    "bias": {"m": 40, "n": 97, "k": 64, "bias": True},
    "rows of two axes": {"m": 36, "n": 50, "k": 20, "lead": 4},
    "turned": {"m": 45, "n": 33, "k": 18, "spec": "km,kn->mn", "kind": f32},
    "logits": {"m": 21, "n": 65, "k": 33, "logits": True},
    "many tasks": {"m": 401, "n": 48, "k": 16, "kind": f32},
    "blocks of columns": {"m": 20, "n": 700, "k": 340, "kind": f32},
}


PATHS = [(c, p) for p in TARGETS for c in CASES if p == "host" or c in ("edges", "bias", "turned")]


@pytest.mark.parametrize(("case", "path"), PATHS)
def test_sizes_and_paths(case, path):
    body = losses(**CASES[case])
    check_plan(only_plan(body, TARGETS[path]), body, arrays(body, 3, CASES[case]["n"]), TARGETS[path])


@pytest.mark.parametrize("seed", range(6))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.integers(2, 131)) for _ in range(3))
    body = losses(m, n, k, kind=(bf16, f32)[seed % 2], bias=seed % 3 == 0)
    check_plan(only_plan(body, host()), body, arrays(body, seed, n), host())


@pytest.mark.parametrize("kind", [f32, bf16])
def test_numbers_that_are_not_finite_stay_in_their_rows(kind):
    body = losses(24, 40, 12, kind)
    values = arrays(body, 5, 40, odd=False)
    values[0][3, 2], values[0][7, 0], values[0][11, 5] = np.inf, np.nan, -np.inf
    check_plan(only_plan(body, host()), body, values, host())


def groups(fn):
    return [n for n in fn.nodes if n.op is fused]


def anchors(body):
    return [n.op.name for n in body.nodes if n.op.rules.get("group") in ("product", "loss")]


def test_the_passes_gather_it():
    body = losses(128, 300, 96, kind=f32, lead=4)
    (group,) = groups(Fuse()(Module.of(body)).main)
    assert anchors(group.attrs["body"]) == ["contract", "cross_entropy_fwd", "cross_entropy_grad"]
    assert engine.plans(group.attrs["body"])[0].name.startswith("gemm rows")


def test_a_gradient_that_waits_for_the_loss_is_not_gathered():
    def body(a, b, labels):
        z = contract(a, b, spec="mk,nk->mn")
        loss, shift, total = cross_entropy_fwd(z, labels, ignore_index=None)
        d = broadcast_to(reduce_sum(loss, axes=(0,)), shape=(256,))
        return cross_entropy_grad(z, labels, shift, total, d, ignore_index=None)

    made = Fuse()(Module.of(build.trace(body, [f32[256, 64], f32[512, 64], i32[256]]))).main
    assert len(groups(made)) == 3


def test_what_is_not_taken_falls_apart():
    body = losses(64, 48, 5000, kind=f32)  # a sum that is too deep
    large = losses(16, 700, 700, kind=f32)  # panels that take more memory than the rows
    assert gemm_rows.plans(body, host()) == gemm_rows.plans(large, host()) == []
    made = smaller(body)
    assert sorted([anchors(g.attrs["body"]) for g in groups(made)]) == [
        ["contract"], ["cross_entropy_fwd"], ["cross_entropy_grad"]
    ]  # fmt: skip


@pytest.mark.parametrize("sizes", [(64, 48, 0), (0, 48, 16)])
def test_products_of_nothing_are_left_to_xla(sizes):
    assert gemm_rows.plans(losses(*sizes), host()) == gemm_rows.plans(losses(*sizes, kind=f32), host()) == []
