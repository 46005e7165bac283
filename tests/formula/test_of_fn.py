"""Every op's samples as formulas: where an op has one, its evaluation is the op's reference."""

import pytest
from tests.ops.support import assert_close, cases

from treadle.formula.interp import evaluate
from treadle.formula.of_fn import of_fn
from treadle.formula.text import parse
from treadle.ir import build
from treadle.ops._declare import OPS

MUST = {
    "add", "select", "exp", "cast", "gelu", "softmax", "broadcast_to", "reshape", "transpose", "slice", "pad", "iota",
    "concatenate", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean", "take", "one_hot",
    "take_along_axis", "reverse", "matmul", "contract", "full", "layer_norm", "logsumexp", "compute",
}  # fmt: skip


def formulas(name):
    """(case, formula) of the samples that are formulas."""
    for case in cases(name):
        fn = build.trace(lambda *v, case=case: case.op(*v, **case.node.attrs), case.types, name)
        found = of_fn(fn)
        if found is not None:
            yield case, found


# The counters of random numbers are long chains of bits: right, but slow to write down.
CHAINS = {n for n in OPS if n.startswith("random_")} | {"threefry", "fold_in"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in CHAINS else n for n in sorted(OPS)])
def test_the_formula_of_an_op_is_the_op(name):
    seen = 0
    for case, formula in formulas(name):
        seen += 1
        assert parse(formula.text) == formula
        assert formula.out_types == case.fn.out_types
        try:
            results = evaluate(formula, *case.arrays)
        except Exception as error:
            if getattr(error, "code", "") == "E0139":  # reads an empty tensor under a condition
                continue
            raise
        for found, wanted in zip(results, case.results, strict=True):
            assert_close(found, wanted, f"{case}\n{formula}", case.sample.tol, factor=5)
    assert seen or name not in MUST, f"{name} has no formula"


def test_a_formula_in_a_function_stays_as_it_is():
    """Between other ops, `compute` is not expanded: what stands before it is written into it."""
    from treadle.ir.types import f64
    from treadle.ops import compute
    from treadle.ops.computes import _matmul

    text = _matmul(f64[2, 3], f64[3, 4])
    fn = build.trace(lambda x, w: compute(-x, w, formula=text) * 2.0, (f64[2, 3], f64[3, 4]), "f")
    found = of_fn(fn)
    assert len(found.computes) == 2
    assert "add[i2:3](mul(neg(%a0[i0, i2]), %a1[i2, i1]))" in found.text
