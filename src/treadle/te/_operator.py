"""`te.op`: a function of placeholders as an operator on tensors; `te.evaluate`: a formula with NumPy.

The operator is built once for each set of operand types and options; it is then the op `compute`, so it runs eagerly,
in `td.jit`, `td.grad` and `td.vmap`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.formula.expr import Compute, Placeholder
from treadle.formula.interp import evaluate as evaluate_formula
from treadle.formula.text import Formula
from treadle.frontend.lift import lift
from treadle.ir.types import TensorType
from treadle.ops.computes import compute as compute_op
from treadle.te._bridge import computed
from treadle.te._tensor import Tensor


def op(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The operator that `fn` describes: fn(*te tensors, **options) returns a te tensor or several.

    Called with tensors (or arrays) it computes; with te tensors it is `fn` itself. Options are keywords, hashable.
    Raises E0581 when fn returns something else, E0103 for an option that is not hashable.
    """

    @functools.lru_cache(maxsize=256)
    def formula(types: tuple[TensorType, ...], options: tuple[tuple[str, Any], ...]) -> tuple[str, bool]:
        places = [Placeholder(f"x{n}", t) for n, t in enumerate(types)]
        made = fn(*[Tensor(p) for p in places], **dict(options))
        several = isinstance(made, tuple | list)
        return formula_of(places, made if several else [made]).text, several

    @functools.wraps(fn)
    def call(*args: Any, **options: Any) -> Any:
        if any(isinstance(a, Tensor) for a in args):
            return fn(*args, **options)
        tensors = [lift(a) for a in args]
        try:
            text, several = formula(tuple([t.type for t in tensors]), tuple(sorted(options.items())))
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            raise UserError("E0103", f"an option of {fn.__name__}: {error}", fix="pass numbers or tuples") from None
        results = compute_op(*tensors, formula=text)
        return (results,) if several and not isinstance(results, tuple) else results

    return call


def formula_of(placeholders: Sequence[Placeholder], outputs: Sequence[Any]) -> Formula:
    """The formula of te tensors. Raises E0581 for anything else."""
    for out in outputs:
        if not isinstance(out, Tensor):
            raise UserError("E0581", f"{out!r} is no te tensor", fix="return what te.compute gives")
    return Formula(placeholders, [computed(out.source) for out in outputs])


def evaluate(outputs: Any, feeds: Mapping[Tensor, Any]) -> Any:
    """The outputs (a te tensor or a list) as NumPy arrays, given an array for each placeholder. Raises E0104."""
    several = isinstance(outputs, tuple | list)
    places = [t.source for t in feeds if isinstance(t.source, Placeholder)]
    formula = formula_of(places, outputs if several else [outputs])
    arrays = [np.asarray(a) for t, a in feeds.items() if isinstance(t.source, Placeholder)]
    results = evaluate_formula(formula, *arrays)
    return list(results) if several else results[0]


def show(outputs: Any) -> str:
    """The text of the formula that te tensors are, operands in the order of their first use."""
    from treadle.formula.expr import sources

    roots = [computed(t.source) for t in (outputs if isinstance(outputs, tuple | list) else [outputs])]
    return Formula([s for s in sources(roots) if not isinstance(s, Compute)], roots).text
