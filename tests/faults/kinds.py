"""What a planted fault is, and the selections of tests that the lists share."""

from __future__ import annotations

from dataclasses import dataclass

GENERATED = "tests/ops/test_generated.py::test_"
KINDS = {
    "type": "the_type_rule_gives_the_type_of_the_numbers",
    "expand": "the_expansion_is_the_reference",
    "run": "the_back_end_agrees",
    "grad": "gradients_are_those_of_central_differences",
    "axes": "the_axes_rule_is_true",
    "bad": "bad_samples_raise_their_code",
}


@dataclass(frozen=True)
class Fault:
    """`before` becomes `after` in `file` (below src/treadle); `tests` are arguments of pytest.

    quick: one of the few that `make test` plants.
    """

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    quick: bool = False


def of(ops: str, kinds: str = "grad") -> tuple[str, ...]:
    """The generated tests of these kinds for these ops."""
    return tuple(f"{GENERATED}{KINDS[kind]}[{op}]" for op in ops.split() for kind in kinds.split())


GRAD = ("tests/transforms/test_grad.py",)
PASSES = ("tests/transforms/test_random_programs.py::test_passes_keep_the_bits",)
RANDOM = tuple(
    f"tests/transforms/test_random_gradients.py::test_gradients_are_true_before_and_after_passes[{i}]" for i in (0, 1)
)
TEXT = ("tests/ir/test_text.py",)
STRUCTURE = ("tests/ir/test_structure.py",)
SMALL = ("tests/transforms/test_dce_cse_inline.py",)
ALGEBRA = ("tests/transforms/test_algebra.py",)
FOLD = ("tests/transforms/test_fold.py",)
OUTLINE = ("tests/transforms/test_outline.py",)
JIT = ("tests/api/test_jit.py",)
LOWER = "tests/lower/test_builder.py::test_"
