"""What the declarations cover: for an op, which of gradient, forward mode, batching, axes, ONNX and dtypes it has.

The dtypes are found by running the type rule (after `prepare`, as a call does) over the types of the op's good samples
with one dtype put in the place of another. Feeds docs/ops.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from treadle.base.dtypes import ALL, DType
from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.types import TensorType
from treadle.ops._declare import No, Op, samples_of

Case = tuple[tuple[TensorType, ...], dict[str, Any]]


def has_gradient(each: Op) -> bool:
    """By its own rule, a region rule, or through the expansion."""
    return not isinstance(each.rules.get("grad"), No)


def batches_at_once(each: Op) -> bool:
    """Whether lanes are computed together: by a rule, by one more leading axis, or through the expansion."""
    rule = each.rules["axes"]
    left, _, right = rule.partition("->") if isinstance(rule, str) else ("", "", "")
    lists = [group.split()[:1] for side in (left, right) for group in side.split(",")]
    leads = bool(left) and all(names == ["..."] for names in lists)
    return bool(each.rules.get("batch")) or leads or "expand" in each.rules


def has(each: Op, rule: str) -> bool:
    """Whether a rule that must be declared is more than No(...)."""
    return not isinstance(each.rules[rule], No)


def accepted(each: Op) -> list[DType]:
    """The dtypes that the op takes in one operand at least, those of its samples among them; all for an op that takes
    what its body or callee takes, and for one without operands those that it makes."""
    if each.has_regions or "callee" in each.params or each.arity == 0:
        return list(ALL)
    cases = [(s.types, s.attrs) for s in samples_of(each) if not s.bad]
    shown = {t.dtype for types, _ in cases for t in types}
    simple = [c for c in cases if all(t.size for t in c[0])]
    return [d for d in ALL if d in shown or any(_takes(each, c) for c in _with(d, simple))]


def _with(dtype: DType, cases: list[Case]) -> Iterator[Case]:
    """Cases with `dtype` for one of the dtypes in them, at all its places."""
    seen = set()
    for types, attrs in cases:
        for old in dict.fromkeys([t.dtype for t in types]):
            changed = tuple([t.with_dtype(dtype) if t.dtype is old else t for t in types])
            key = (changed, repr(attrs))
            if key not in seen:
                seen.add(key)
                yield changed, attrs


def _takes(each: Op, case: Case) -> bool:
    types, attrs = case
    try:
        build.trace(lambda *values: each(*values, **attrs), types, each.name)
    except UserError:
        return False
    return True


def kinds(dtypes: list[DType]) -> str:
    """A list of dtypes in short: `float` for all floats, `int` for all integers, `complex` for both."""
    words = []
    for kind, name in (("b", "bool"), ("iu", "int"), ("f", "float"), ("c", "complex")):
        group = [d for d in ALL if d.kind in kind]
        found = [d for d in group if d in dtypes]
        words += [name] if len(found) == len(group) else [d.short for d in found]
    return " ".join(words)
