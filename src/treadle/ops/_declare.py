"""The op contract: `@op(...)` on a function head declares an op with all its rules in one place.

| rule | form | when it is left out |
|---|---|---|
| head | signature and docstring | error at import |
| type | types, attributes -> type or tuple of types | error at import |
| ref | NumPy arrays -> array(s) | the expansion is run |
| expand | values -> values, in other ops | error unless `ref` and `hlo` are there |
| grad | (*inputs, *outputs, *cotangents) -> a cotangent or None per input, in ops | taken from `expand` |
| saved | values -> (outputs, residuals); then `grad(*inputs, *outputs, residuals, *cts)` | plain inputs and outputs |
| jvp | "linear", "multilinear" or a function (see transforms/jvp.py) | from `grad` or `expand`, exactly |
| batch | "leading", "shift axis" or a function (see transforms/batch.py) | from `axes` or `expand`, else lane by lane |
| axes | `"m k, k n -> m n"` (see `_axes.py`), or a function giving it | error: write No("...") |
| hlo | StableHLO name, or function(b, *operands, **attrs) of a builder | `expand` is lowered |
| onnx | ONNX name, or function(g, *names, **attrs) of a graph writer | error: write No("...") |
| amp | "narrow": products (see `_precision.py`), 16-bit under autocast; "wide": float32 there | operands as they are |
| kernel | function(b, *vectors, **attrs) of `kernels/vmath.py`: vector code | from `expand`, else XLA compiles it |
| padded | rule(run, group): the op on padded axes (`_padding.py`) | `axes` with zeros in sums, or `expand` |
| host | NumPy ufunc that is the op on float32 and float64, or No("reason why small operands are compiled") | `ref` |
| group | how transforms/fuse takes it: an anchor ("product", "row", ...), "move", or function(node) | from `axes` |
| formula | rule(t, *operands, **attrs) -> the element, see formula/of_fn.py | op itself if elementwise; `expand` |
| images | numbers of the operands and of the results that are images [N, C, *s] | none is |
| prepare | arguments -> values: promotion and broadcasting at the call | arguments must be tensors of fitting types |
| effect | "" or what it does beside its results (such an op is never removed, merged or moved) | "" |
| ordered | rule(run, inputs, token, **attrs) -> (outputs, token), see lower/ordering.py | `expand` |
| samples | generator of `s(types or arrays, **attrs)`: small, one empty, one bad per error code | error at import |

A rule that does not exist is `No("reason")`. Rules receive what they need; they import no stage.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treadle.ir.op import OPS, RULES, No, Op, register
from treadle.ir.types import TensorType, type_of
from treadle.ops._precision import Product

__all__ = ["OPS", "No", "Op", "Sample", "Samples", "check_declarations", "op"]


def op(**rules: Any) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op: the function below gives name, parameters and docstring; `rules` give the rest (see the
    module)."""
    unknown = rules.keys() - set(RULES)
    if unknown:
        raise TypeError(f"no such rule: {', '.join(sorted(unknown))}")

    def declare(head: Callable[..., Any]) -> Op:
        doc = inspect.getdoc(head)
        if not doc:
            raise TypeError(f"op {head.__name__} has no docstring")
        params = inspect.signature(head).parameters
        operands = [p for p in params.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        fixed = all(p.kind is not p.VAR_POSITIONAL and p.default is p.empty for p in operands)
        home = f"{Path(head.__code__.co_filename).name}:{head.__code__.co_firstlineno}"
        arity = len(operands) if fixed else None
        kind = Product if rules.get("amp") == "narrow" else Op
        return register(kind(head.__name__.rstrip("_"), doc, tuple(params), rules, home, arity))

    return declare


def check_declarations() -> None:
    """Raise TypeError for an op with a missing rule; called once all families are imported."""
    for each in OPS.values():
        missing = [r for r in ("type", "axes", "onnx", "samples") if r not in each.rules]
        has_meaning = "expand" in each.rules or ("ref" in each.rules and "hlo" in each.rules)
        if not has_meaning:
            missing.append("expand (or ref and hlo)")
        if "grad" not in each.rules and "expand" not in each.rules and "reverse" not in each.rules:
            missing.append("grad")
        if missing:
            raise TypeError(
                f"op {each.name} ({each.home}) lacks {', '.join(missing)}; write No('reason') where there is none"
            )


@dataclass(frozen=True)
class Sample:
    """One call of an op: arrays, attributes; `bad`: the error code it must raise; `tol`: relative error allowed."""

    arrays: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    bad: str = ""
    tol: float = 0.0
    gradient: bool = True

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple([type_of(a) for a in self.arrays])


class Samples:
    """Makes samples: `s(f64[2, 3], f64[3, 4], k=1)`; arrays may be given instead of types.

    Floats are drawn from 0.2..1.5 and signed at random unless made with `uniform`, away from kinks; ints from 0..4.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *specs: Any, bad: str = "", tol: float = 0.0, gradient: bool = True, **attrs: Any) -> Sample:
        arrays = tuple([self.draw(s) if isinstance(s, TensorType) else np.asarray(s) for s in specs])
        return Sample(arrays, attrs, bad, tol, gradient)

    def draw(self, type: TensorType) -> Any:
        """A random array of the type."""
        kind, shape = type.dtype.kind, type.shape
        if kind == "b":
            return self.rng.integers(0, 2, shape).astype(bool)
        if kind in "iu":
            return self.rng.integers(0, 5, shape).astype(type.dtype.np)
        values = self.rng.uniform(0.2, 1.5, shape) * self.rng.choice([-1.0, 1.0], shape)
        if kind == "c":
            values = values + 1j * self.rng.uniform(0.2, 1.5, shape)
        return np.asarray(values).astype(type.dtype.np)

    def uniform(self, type: TensorType, low: float, high: float) -> Any:
        """Floats from low to high."""
        return np.asarray(self.rng.uniform(low, high, type.shape)).astype(type.dtype.np)

    def ints(self, type: TensorType, low: int, high: int) -> Any:
        """Integers from low up to, not including, high."""
        return np.asarray(self.rng.integers(low, high, type.shape)).astype(type.dtype.np)


def samples_of(each: Op) -> Iterator[Sample]:
    """The samples that an op declares, the same ones each time."""
    yield from each.rules["samples"](Samples())
