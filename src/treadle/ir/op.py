"""The record of an op: its name and rules. The table of all ops is filled by `treadle.ops`; nothing here knows any
op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from treadle.base.errors import UserError
from treadle.ir import build

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class No:
    """A rule that an op does not have, with the reason: `grad=No("the result is an integer")`."""

    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError("No() needs a reason")

    def __bool__(self) -> bool:
        return False


RULES = (
    "type", "ref", "grad", "axes", "hlo", "onnx", "samples", "expand", "prepare", "saved", "jvp", "kernel", "effect",
    "has_regions", "reverse", "prune", "flops", "batch", "host", "ordered", "padded", "amp", "group", "images",
    "formula",
)  # fmt: skip


class _Setter:
    """`@some_op.kind` on a function makes it that op's rule `kind`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __get__(self, op: Op, owner: Any = None) -> Callable[[F], F]:
        def keep(rule: F) -> F:
            op.rules[self.kind] = rule
            return rule

        return keep


class Op:
    """An op and every rule about it. Calling it builds a node (or runs it, when an argument is an eager tensor).

    arity: the number of its operands, None where that may differ from call to call.
    """

    def __init__(
        self, name: str, doc: str, params: tuple[str, ...], rules: dict[str, Any], home: str, arity: int | None = None
    ) -> None:
        self.name, self.doc, self.params, self.rules, self.home = name, doc, params, rules, home
        self.arity = arity
        self.has_regions = bool(rules.get("has_regions"))
        self.__doc__ = doc
        self.__name__ = self.__qualname__ = name  # for wrappers, and so for messages

    def rule(self, kind: str) -> Any:
        """The rule, or `No(...)` saying why there is none."""
        return self.rules.get(kind, No(f"{self.name} declares no {kind} rule"))

    def numpy_function(self) -> Any:
        """The NumPy function that is the op on float32 and float64 arrays, None if there is none."""
        ref = getattr(self.rules.get("ref"), "direct", self.rules.get("ref"))
        of_floats = isinstance(ref, np.ufunc) and any(kinds.startswith("f" * ref.nin) for kinds in ref.types)
        return self.rules.get("host") or (ref if of_floats else None)

    type, ref, grad, saved = _Setter("type"), _Setter("ref"), _Setter("grad"), _Setter("saved")
    expand, prepare, samples = _Setter("expand"), _Setter("prepare"), _Setter("samples")
    axes, hlo, onnx, jvp = _Setter("axes"), _Setter("hlo"), _Setter("onnx"), _Setter("jvp")
    reverse, prune, flops, batch = _Setter("reverse"), _Setter("prune"), _Setter("flops"), _Setter("batch")
    ordered, padded, kernel = _Setter("ordered"), _Setter("padded"), _Setter("kernel")
    formula = _Setter("formula")

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        for arg in args:
            run = getattr(type(arg), "__treadle_op__", None)
            if run is not None:
                return run(self, args, attrs)
        return build.apply(self, args, attrs)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return get, (self.name,)


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Put the op into the table. Raises E0190 when the name is taken."""
    if op.name in OPS:
        raise UserError(
            "E0190", f"op {op.name!r} is declared twice: {OPS[op.name].home} and {op.home}", fix="rename one"
        )
    OPS[op.name] = op
    return op


def get(name: str) -> Op:
    """The op called `name`. Raises E0191 when there is none."""
    try:
        return OPS[name]
    except KeyError:
        raise UserError("E0191", f"there is no op {name!r}", fix="see docs/ops.md for the list") from None
