"""Running a function of tensors in both modes by the interpreter (nothing is compiled), and comparing with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.tensor import Tensor, hooks, make_tensor
from treadle.ir import build, interp
from treadle.ir.node import Module, Value
from treadle.ir.types import TensorType


def run_op(op: Any, args: Any, attrs: dict[str, Any]) -> Any:
    """One op on tensors, arrays and Python numbers, by its reference rule."""
    arrays = [a._value if isinstance(a, Tensor) else np.asarray(a) if hasattr(a, "dtype") else a for a in args]
    kept = [np.asarray(a) for a in arrays if hasattr(a, "dtype")]
    with build.Builder("main") as b:
        params = [b.param(TensorType(dtypes.of(a.dtype), a.shape)) if hasattr(a, "dtype") else a for a in arrays]
        result = build.apply(op, params, attrs)
        fn = b.finish([result] if isinstance(result, Value) else result)
    made = [Tensor._of(np.asarray(r)) for r in interp.run(fn, *kept)]
    return made[0] if isinstance(result, Value) else tuple(made)


@contextmanager
def interpreted() -> Iterator[None]:
    """Eager tensors run by the interpreter."""
    before = hooks.run_op, hooks.to_numpy
    hooks.run_op, hooks.to_numpy = run_op, np.asarray
    try:
        yield
    finally:
        hooks.run_op, hooks.to_numpy = before


def eager(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns at once, as arrays; arrays among the arguments become tensors."""
    with interpreted():
        return _arrays(function(*[_tensor(a) for a in args]))


def traced(function: Callable[..., Any], *args: Any) -> Any:
    """What the traced function returns, as arrays. Changes of the arguments are not seen."""
    given = tuple([_tensor(a) for a in args])
    t = tracing.trace(function, given, {}, make_tensor)
    inputs = [x for x in tree.flatten((given, {}))[0] if tracing.is_dynamic(x)]
    arrays = [np.asarray(x._value if isinstance(x, Tensor) else x) for x in [*inputs, *t.captured]]
    outputs = interp.run(Module.of(t.fn, t.fns), *arrays)
    return _arrays(t.result([Tensor._of(o) for o in outputs[: t.num_outputs]]))


def _tensor(x: Any) -> Any:
    return Tensor(x) if isinstance(x, np.ndarray | np.generic) else x


def _arrays(result: Any) -> Any:
    return tree.tree_map(lambda x: np.asarray(x._value) if isinstance(x, Tensor) else x, result)


def both(function: Callable[..., Any], *args: Any) -> Any:
    """The result, which must be the same in both modes, bit by bit."""
    first, second = eager(function, *args), traced(function, *args)
    for a, b in zip(tree.flatten(first)[0], tree.flatten(second)[0], strict=True):
        same(a, b)
    return first


def same(found: Any, wanted: Any) -> None:
    """Equal types, shapes and numbers."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype, f"{found.dtype} instead of {wanted.dtype}"
    np.testing.assert_array_equal(found, wanted, strict=True)


def close(found: Any, wanted: Any, tol: float = 1e-6) -> None:
    """Equal shapes; numbers equal up to rounding."""
    assert np.shape(found) == np.shape(wanted), f"shape {np.shape(found)} instead of {np.shape(wanted)}"
    np.testing.assert_allclose(found, wanted, rtol=tol, atol=tol)
