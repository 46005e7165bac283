"""transforms/panels: which operands are replaced, which parameters remain, in one module and in parts."""

import numpy as np
import pytest

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import f32
from treadle.ir.verify import verify
from treadle.ops.elementwise import add
from treadle.ops.functions import tanh
from treadle.ops.groups import fused
from treadle.ops.products import matmul
from treadle.transforms.panels import Offer, Wanted, parts_with_panels, with_panels
from treadle.transforms.parts import Part, Parts, Run

SQUARE = f32[4, 4]
BODY = build.trace(matmul, [SQUARE, SQUARE], "product")


def module_of(function, count):
    return Module.of(build.trace(function, [SQUARE] * count, "main"))


def product(x, w):
    return fused(x, w, body=BODY)[0]


def offering(reads):
    return lambda body: Offer("kernel", 1, 96, reads)


def types(module):
    return [str(t) for t in module.main.in_types]


def test_panels_stand_in_the_place_of_the_operand():
    module = module_of(lambda x, v, w: product(product(x, v), w), 3)
    made, params = with_panels(module, {1, 2}, 3, offering(False))
    verify(made)
    assert params == (0, 1, 2, Wanted(1, "kernel", 96), Wanted(2, "kernel", 96))
    assert types(made) == ["f32[4,4]"] * 3 + ["u8[96]"] * 2
    assert [n.inputs[1].dtype for n in made.main.nodes] == [dtypes.uint8] * 2
    with pytest.raises(UserError, match=r"E0175 .*only packed"):
        interp.run(made, *[np.ones((4, 4), np.float32)] * 3, *[np.zeros(96, np.uint8)] * 2)


def test_parameters_that_nobody_reads_are_left_out():
    def function(x, v, w):
        return add(product(product(x, v), w), v)

    made, params = with_panels(module_of(function, 3), {1, 2}, 1, offering(False))
    assert params == (0, 1, Wanted(1, "kernel", 96), Wanted(2, "kernel", 96))  # v is added, too
    assert types(made) == ["f32[4,4]"] * 2 + ["u8[96]"] * 2
    assert with_panels(module_of(function, 3), {1, 2}, 2, offering(False))[1][:3] == (0, 1, Wanted(1, "kernel", 96))


def test_a_kernel_that_reads_the_operand_has_both():
    module = module_of(lambda x, w: tanh(product(x, w)), 2)
    made, params = with_panels(module, {1}, 1, offering(True))
    verify(made)
    assert params == (0, 1, Wanted(1, "kernel", 96)) and types(made) == ["f32[4,4]", "f32[4,4]", "u8[96]"]
    x, w = np.eye(4, dtype=np.float32), np.full((4, 4), 0.5, np.float32)
    got = interp.run(made, x, w, np.zeros(96, np.uint8))
    np.testing.assert_array_equal(got[0], interp.run(module, x, w)[0])


def test_what_is_not_fixed_stays():
    module = module_of(product, 2)
    assert with_panels(module, {0}, 2, offering(False)) == (module, (0, 1))
    assert with_panels(module, {0, 1}, 2, lambda body: None) == (module, (0, 1))
    computed = module_of(lambda x, w: product(x, tanh(w)), 2)
    assert with_panels(computed, {0, 1}, 2, offering(False)) == (computed, (0, 1))


def test_one_operand_of_two_groups_is_packed_once():
    made, params = with_panels(module_of(lambda x, w: product(product(x, w), w), 2), {1}, 1, offering(False))
    assert params == (0, Wanted(1, "kernel", 96)) and len(made.main.nodes) == 2


def parts():
    """Two runs of one product and one of a sum: of x (0), weights (1, 2), y (3)."""
    first = Part(module_of(product, 2), {0: 0}, 2)
    second = Part(module_of(lambda x, y: add(x, y), 2), {}, 1)
    runs = (
        Run(0, (0, 1), (4,), (0,)),
        Run(0, (4, 2), (5,), (4, 2)),
        Run(1, (5, 3), (6,), (5,)),
    )
    return Parts((first, second), runs, 7, (6,))


def run(split, arrays):
    held = [*arrays, *[None] * (split.slots - len(arrays))]
    for each in split.runs:
        made = interp.run(split.programs[each.part].module, *[held[i] for i in each.inputs])
        for slot, array in zip(each.outputs, made, strict=True):
            held[slot] = array
        for slot in each.frees:
            held[slot] = None
    return [held[i] for i in split.outputs]


def test_parts_share_a_program_and_have_panels_of_their_own():
    made, params = parts_with_panels(parts(), 4, {1, 2}, 4, offering(True))
    assert params == (0, 1, 2, 3, Wanted(1, "kernel", 96), Wanted(2, "kernel", 96))
    assert [r.inputs for r in made.runs] == [(0, 1, 4), (6, 2, 5), (7, 3)]
    assert made.slots == 9 and made.outputs == (8,) and made.programs[0].donate == {0: 0}
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(4)]
    panels = [np.zeros(96, np.uint8)] * 2
    np.testing.assert_array_equal(run(made, [*arrays, *panels])[0], run(parts(), arrays)[0])


def test_parts_without_what_is_packed():
    made, params = parts_with_panels(parts(), 4, {1, 2}, 1, offering(False))
    assert params == (0, 3, Wanted(1, "kernel", 96), Wanted(2, "kernel", 96))
    assert [r.inputs for r in made.runs] == [(0, 2), (4, 3), (5, 1)]
    assert [r.outputs for r in made.runs] == [(4,), (5,), (6,)] and made.slots == 7 and made.outputs == (6,)
    assert made.runs[1].frees == (4,)


def test_a_part_whose_operand_is_fixed_in_some_runs_only():
    assert parts_with_panels(parts(), 4, {1}, 4, offering(False))[1] == (0, 1, 2, 3)
