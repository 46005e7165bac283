"""What pass tests share: `check_pass(rule or pass, before, after, *types)` and `check_silent` where none may fire."""

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.ir import build, interp
from treadle.ir.node import Fn, Module
from treadle.ir.rewrite import Rule, apply_rules, counting
from treadle.ir.types import TensorType
from treadle.ir.verify import verify
from treadle.ops._declare import Samples
from treadle.transforms.dce import Dce
from treadle.transforms.pipeline import Pass


def module_of(function: Callable[..., Any] | Fn | Module, types: tuple[TensorType, ...]) -> Module:
    """The function traced as main."""
    if isinstance(function, Module):
        return function
    return Module.of(function if isinstance(function, Fn) else build.trace(function, types, "main"))


def run_step(step: Rule | Pass, module: Module) -> tuple[Module, dict[str, int]]:
    """The module after a rule or pass and what fired."""
    with counting() as fired:
        if isinstance(step, Pass):
            return step(module), fired
        return Module({name: apply_rules(fn, [step]) for name, fn in module.fns.items()}), fired


def check_pass(
    step: Rule | Pass, before: Any, after: Any, *types: TensorType, special: bool = True, signed_zero: bool = True
) -> Module:
    """`step` turns `before` into `after` (equal text, dead nodes aside), with the same bits for random and special
    numbers; the result is verified, and a second run fires nothing."""
    module = module_of(before, types)
    changed, fired = run_step(step, module)
    assert fired, f"{step} does not fire on\n{module}"
    verify(changed)
    assert str(Dce()(changed)) == str(Dce()(module_of(after, types)))
    again, fired_again = run_step(step, changed)
    assert not fired_again, f"fires again: {fired_again}"
    assert str(again) == str(changed)
    check_same_numbers(module, changed, special=special, signed_zero=signed_zero)
    return changed


def check_silent(step: Rule | Pass, function: Any, *types: TensorType) -> None:
    """`step` leaves the function alone."""
    module = module_of(function, types)
    changed, fired = run_step(step, module)
    assert not fired
    assert str(changed) == str(module)
    if isinstance(step, Pass):
        assert changed is module


def check_same_numbers(
    before: Module, after: Module, seed: int = 0, special: bool = True, signed_zero: bool = True
) -> None:
    """Both modules give the same bits (NaN is NaN) for random arguments and, if asked, for NaN, infinities and -0.0."""
    for arrays in arguments(before.main.in_types, seed, special):
        assert_same_bits(interp.run(before, *arrays), interp.run(after, *arrays), signed_zero)


def arguments(types: tuple[TensorType, ...], seed: int = 0, special: bool = True) -> list[list[Any]]:
    """Random arguments of the types; a second set with special numbers in float tensors."""
    draw = Samples(seed).draw
    sets = [[draw(t) for t in types]]
    if special:
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40])
        sets.append([np.resize(odd, t.shape).astype(t.dtype.np) if t.dtype.is_float else draw(t) for t in types])
    return sets


def assert_same_bits(first: tuple[Any, ...], second: tuple[Any, ...], signed_zero: bool = True) -> None:
    """Equal types and bits; any NaN equals any NaN, and without `signed_zero` -0.0 equals 0.0."""
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        nan = a != a
        assert np.array_equal(nan, b != b)
        if not signed_zero:
            a, b = (np.where(x == 0, np.zeros_like(x), x) for x in (a, b))
        assert np.where(nan, 0, a).astype(a.dtype).tobytes() == np.where(nan, 0, b).astype(b.dtype).tobytes()
