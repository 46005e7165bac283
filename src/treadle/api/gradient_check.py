"""`check_gradients`: derivatives of a user's function beside central differences, in double precision.

For random cotangents c and directions v the numbers <c, J v> are computed three ways: by reverse mode, by forward mode
and by differences of <c, f> along v. Higher orders check the gradient of <c, f> in the same way. Where numbers differ,
single elements are compared, so that the report can name one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle import ops
from treadle.api.forward import jvp
from treadle.api.gradients import grad
from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend import tree
from treadle.frontend.pysrc.convert import converted
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import is_tensor, leaf_type

MOST_ELEMENTS = 64  # of one tensor that are compared one by one, to name one that differs
Function = Callable[..., list[Tensor]]  # leaves -> float results


@dataclass(frozen=True)
class GradientReport:
    """What was compared: a row (order, mode, derivative by that mode, by differences) for each direction."""

    rows: tuple[tuple[int, str, float, float], ...]
    names: tuple[str, ...] = field(default=())

    @property
    def largest_error(self) -> float:
        """The largest |mode - differences| / (1 + |differences|)."""
        return max((abs(a - b) / (1 + abs(b)) for _, _, a, b in self.rows), default=0.0)

    def __str__(self) -> str:
        orders = max((row[0] for row in self.rows), default=0)
        what = f"{len(self.rows)} comparisons to order {orders} by {', '.join(self.names)}"
        return f"gradients agree with differences: {what}; largest error {self.largest_error:.1e}"


def check_gradients(
    function: Callable[..., Any],
    *args: Any,
    wrt: Sequence[Tensor] = (),
    order: int = 2,
    eps: float = 1e-3,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    directions: int = 2,
    seed: int = 0,
    modes: Sequence[str] = ("reverse", "forward"),
) -> GradientReport:
    """Compare the derivatives of `function` at `args` with central differences; E0321 names what differs.

    Every float or complex leaf of the arguments is differentiated, as float64 or complex128; others are passed on. wrt:
    tensors that the function reads (`net.parameters()`), which are float64 while the check runs. Results may be in
    containers; integers in them are left out. order: derivatives to check (2: also those of the gradient). eps: step
    of the differences, which are of fourth order; the function should be smooth within 2 eps of the point. rtol, atol:
    what may differ, relative and absolute. directions: random directions per order. modes: "reverse", "forward".

    The function is called many times: it must give the same results for the same arguments. Returns a report of all
    numbers. Raises E0321 as well when there is nothing to differentiate by, or a wrong mode is named.

        td.check_gradients(lambda x: td.sin(x).sum(), np.ones(3))
    """
    arguments.function(function, "what is to be checked")
    order = arguments.count(order, "order", 1, "E0321")
    directions = arguments.count(directions, "directions", 1, "E0321")
    if not modes or not set(modes) <= {"reverse", "forward"}:
        raise UserError("E0321", f"modes={tuple(modes)!r}", fix='give "reverse", "forward" or both')
    leaves, shape = tree.flatten(args)
    places = [i for i, x in enumerate(leaves) if _is_inexact(x)]
    paths = [f"argument {path[1:].replace(']', '', 1)}" for path in shape.paths()]
    names = [*[paths[i] for i in places], *[f"wrt[{i}]" for i in range(len(wrt))]]
    if not names:
        raise UserError("E0321", "no argument is a float tensor, and wrt is empty", fix="pass float tensors")
    with _in_double(wrt):
        point = [_double(leaves[i]) for i in places] + [t.copy() for t in wrt]
        flat = _flat(function, leaves, shape, places, wrt)
        run = _Check(names, eps, rtol, atol, tuple(modes), np.random.default_rng(seed), directions)
        run.orders(flat, point, order)
    return GradientReport(tuple(run.rows), tuple(modes))


def _is_inexact(leaf: Any) -> bool:
    if isinstance(leaf, bool):
        return False
    if isinstance(leaf, int | float | complex):
        return not isinstance(leaf, int)
    return (is_tensor(leaf) or isinstance(leaf, np.ndarray | np.generic)) and leaf_type(leaf).dtype.is_inexact


def _double(leaf: Any) -> Tensor:
    array = leaf.numpy() if is_tensor(leaf) else np.asarray(leaf)
    return Tensor(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))


@contextlib.contextmanager
def _in_double(tensors: Sequence[Tensor]) -> Iterator[None]:
    """The tensors hold double precision for a while."""
    for t in tensors:
        if not (is_tensor(t) and t.dtype.is_inexact):
            raise UserError("E0321", f"wrt holds {arguments.brief(t)}", fix="pass float tensors")
    before = [t._value for t in tensors]
    try:
        for t in tensors:
            t._value = _double(t)._value
        yield
    finally:
        for t, value in zip(tensors, before, strict=True):
            t._value = value


def _flat(
    function: Callable[..., Any], leaves: Sequence[Any], shape: Any, places: Sequence[int], wrt: Sequence[Tensor]
) -> Function:
    """The function of the list of what is differentiated, to the list of its float results."""
    function = converted(function)

    def run(*point: Tensor) -> list[Tensor]:
        given = list(leaves)
        for i, x in zip(places, point, strict=False):
            given[i] = x
        old = [t.copy() for t in wrt]
        for t, new in zip(wrt, point[len(places) :], strict=True):
            t._set(new)
        result = function(*shape.unflatten(given))
        found = [y for y in tree.flatten(result)[0] if is_tensor(y) and y.dtype.is_inexact]
        for t, value in zip(wrt, old, strict=True):
            t._set(value)
        if not found:
            raise UserError("E0321", "the function returns no float tensor", fix="return what is to be differentiated")
        return found

    return run


class _Check:
    """The comparisons of one call, in `rows`."""

    def __init__(
        self,
        names: Sequence[str],
        eps: float,
        rtol: float,
        atol: float,
        modes: tuple[str, ...],
        rng: np.random.Generator,
        directions: int,
    ) -> None:
        self.names, self.eps, self.rtol, self.atol = names, eps, rtol, atol
        self.modes, self.rng, self.directions = modes, rng, directions
        self.rows: list[tuple[int, str, float, float]] = []

    def orders(self, flat: Function, point: Sequence[Tensor], order: int) -> None:
        """Check `flat`, then its gradient, and so on."""
        everything = tuple(range(len(point)))
        for k in range(1, order + 1):
            cotangents = self.random(flat(*point))
            loss = _weighted(flat, cotangents)
            self.compare(k, loss, point)
            flat = _gradients(loss, everything)

    def random(self, like: Sequence[Tensor]) -> list[Tensor]:
        """Normal numbers of the same shapes, double precision."""
        made = []
        for t in like:
            array = self.rng.normal(size=t.shape)
            made.append(Tensor(array + 1j * self.rng.normal(size=t.shape) if t.dtype.kind == "c" else array))
        return made

    def compare(self, order: int, loss: Callable[..., Tensor], point: Sequence[Tensor]) -> None:
        """One loss along random directions. Raises E0321 for the first that differs."""
        grads = grad(loss, tuple(range(len(point))))(*point) if "reverse" in self.modes else None
        for _ in range(self.directions):
            v = self.random(point)
            wanted = self.differences(loss, point, v)
            for mode in self.modes:
                found = self.derivative(mode, loss, point, v, grads)
                self.rows.append((order, mode, found, wanted))
                if not self.near(found, wanted):
                    self.blame(order, mode, loss, point, grads, (found, wanted))

    def near(self, found: float, wanted: float) -> bool:
        return abs(found - wanted) <= self.atol + self.rtol * max(abs(found), abs(wanted))

    def differences(self, loss: Callable[..., Tensor], point: Sequence[Tensor], v: Sequence[Tensor]) -> float:
        """The derivative along v by four values of the loss."""

        def at(step: float) -> float:
            return float(loss(*[Tensor(x.numpy() + step * d.numpy()) for x, d in zip(point, v, strict=True)]).item())

        h = self.eps
        return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)

    def derivative(
        self, mode: str, loss: Callable[..., Tensor], point: Sequence[Tensor], v: Sequence[Tensor], grads: Any
    ) -> float:
        """The derivative along v by one mode."""
        if mode == "forward":
            return float(jvp(loss, tuple(point), tuple(v))[1].item())
        return float(sum(np.sum(g.numpy() * d.numpy()).real for g, d in zip(grads, v, strict=True)))

    def blame(
        self,
        order: int,
        mode: str,
        loss: Callable[..., Tensor],
        point: Sequence[Tensor],
        grads: Any,
        pair: tuple[float, float],
    ) -> None:
        """Raise E0321 for the element that is farthest off, or the direction if no single element is."""
        place, worst = "a random direction", 0.0
        for i, (x, name) in enumerate(zip(point, self.names, strict=True)):
            for index in list(np.ndindex(x.shape))[:MOST_ELEMENTS]:
                for unit in (1.0, 1j) if x.dtype.kind == "c" else (1.0,):
                    v = [Tensor(np.zeros(t.shape, t.dtype.np)) for t in point]
                    array = v[i].numpy()
                    array[index] = unit
                    v[i] = Tensor(array)
                    found = self.derivative(mode, loss, point, v, grads)
                    wanted = self.differences(loss, point, v)
                    error = abs(found - wanted) if np.isfinite(found - wanted) else np.inf
                    if not self.near(found, wanted) and error > worst:
                        of = f", element {index}" if index else ""
                        part = " (imaginary part)" if unit == 1j else ""
                        place, worst, pair = f"{name}{of}{part}", error, (found, wanted)
        both = f"{pair[0]:.9g} by {mode} mode, {pair[1]:.9g} by differences"
        why = f"the derivative of order {order} by {place} is {both}"
        fix = "look at gradients given by hand and at kinks near the point; eps, rtol and atol say what may differ"
        raise UserError("E0321", why, fix=fix)


def _weighted(flat: Function, weights: Sequence[Tensor]) -> Callable[..., Tensor]:
    """The real part of the sum of all results, each element times its weight."""

    def loss(*point: Tensor) -> Tensor:
        total: Any = None
        for y, weight in zip(flat(*point), weights, strict=True):
            product: Any = ops.mul(y.astype(weight.dtype), weight)
            product = ops.real(product) if product.dtype.kind == "c" else product
            part = ops.reduce_sum(product, axes=tuple(range(product.ndim)))
            total = part if total is None else ops.add(total, part)
        return total  # type: ignore[no-any-return]

    return loss


def _gradients(loss: Callable[..., Tensor], wrt: tuple[int, ...]) -> Function:
    """The gradients of the loss by all arguments, as a list."""
    return lambda *point: list(grad(loss, wrt)(*point))
