"""Parametrisations: a parameter of a cell becomes a function of other parameters, which are what is learnt.

`register_parametrization(cell, "weight", f)`: from then on `cell.weight` is f(original), computed at each use, and the
cell's parameters hold `parametrizations.weight.original` in its place. Names and meaning as in torch.nn.utils.
"""

from __future__ import annotations

import functools
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend.trace import clock
from treadle.nn.cell import Cell, Parameter
from treadle.nn.containers import CellDict


class ParametrizationList(Cell):
    """The functions of one tensor, first to last, and their argument: `original`, or original0, original1, ...

    Called without arguments it gives the tensor.
    """

    def __init__(self, first: Cell, value: Parameter) -> None:
        inverse = getattr(first, "right_inverse", None)
        start = value if inverse is None else inverse(value)
        self.count = len(start) if isinstance(start, tuple | list) else 0
        if self.count:
            for i, part in enumerate(start):
                setattr(self, f"original{i}", _kept(part, value.requires_grad))
        elif isinstance(start, Parameter):
            self.original = start
        else:
            value.assign(start)
            self.original = value
        self.length = 1
        setattr(self, "0", first)

    def originals(self) -> list[Parameter]:
        """The parameters that are learnt."""
        return [getattr(self, f"original{i}") for i in range(self.count)] if self.count else [self.original]

    def parts(self) -> list[Cell]:
        """The functions, first to last."""
        return [getattr(self, str(i)) for i in range(self.length)]

    def __getitem__(self, index: int) -> Cell:
        return self.parts()[index]

    def __len__(self) -> int:
        return self.length

    def append(self, part: Cell) -> None:
        """Add a function at the end."""
        setattr(self, str(self.length), part)
        self.length += 1

    def forward(self) -> Any:
        first, *rest = self.parts()
        y = first(*self.originals())
        for part in rest:
            y = part(y)
        return y

    def set(self, value: Any) -> None:
        """Choose the originals so that the tensor is `value`. Raises E0526 without a right_inverse."""
        parts = self.parts()
        for part in reversed(parts):
            inverse = getattr(part, "right_inverse", None)
            if inverse is None:
                why = f"the tensor is given by {type(part).__name__}, which has no right_inverse"
                raise UserError("E0526", why, fix="define right_inverse(value), or set the original")
            value = inverse(value)
        values = value if isinstance(value, tuple | list) else [value]
        for old, new in zip(self.originals(), values, strict=True):
            old.assign(new)


def _kept(part: Any, requires_grad: bool) -> Parameter:
    return part if isinstance(part, Parameter) else Parameter(part, requires_grad=requires_grad)


@functools.cache
def _class_of(base: type, names: tuple[str, ...]) -> type:
    """The class `base` with these attributes computed by the cell's parametrisations."""

    def attribute(name: str) -> property:
        def get(self: Any) -> Any:
            return self.parametrizations[name]()

        def put(self: Any, value: Any) -> None:
            self.parametrizations[name].set(value)

        return property(get, put)

    made = {"__module__": base.__module__, "__doc__": base.__doc__, "_base": base, **{n: attribute(n) for n in names}}
    return type(f"Parametrized{base.__name__}", (base,), made)


def _reclass(cell: Cell) -> None:
    held = cell.__dict__.get("parametrizations")
    base: Any = getattr(type(cell), "_base", type(cell))
    names = () if held is None else tuple(held.keys())
    object.__setattr__(cell, "__class__", _class_of(base, names) if names else base)
    clock.tick()


def is_parametrized(cell: Cell, name: str | None = None) -> bool:
    """Whether a tensor of the cell (or the one of this name) is given by parametrisations."""
    held = cell.__dict__.get("parametrizations")
    return isinstance(held, CellDict) and (name is None or name in held)


def register_parametrization(cell: Cell, name: str, parametrization: Cell) -> Cell:
    """Let `cell.name` be parametrization(original), or of what was registered before; returns the cell.

    parametrization.right_inverse(value), if there, gives the original (or a tuple of originals) that leads to the
    present value; without it the original is the present value. Raises E0526 for a name that is no parameter, or when
    the result has another type.
    """
    if is_parametrized(cell, name):
        held: Any = cell.parametrizations[name]  # type: ignore[attr-defined]
        before = held().type
        held.append(parametrization)
        if (after := held().type) != before:
            held.length -= 1
            delattr(held, str(held.length))
            raise _changed(cell, name, before, after)
        clock.tick()
        return cell
    value = cell.__dict__.get(name)
    if not isinstance(value, Parameter):
        why = f"{type(cell).__name__} has no parameter {name!r} of its own"
        raise UserError("E0526", why, fix="name a parameter that is an attribute of the cell")
    start = value.copy()
    held = ParametrizationList(parametrization, value)
    after = held().type
    if after != value.type:
        value.assign(start)
        raise _changed(cell, name, value.type, after)
    delattr(cell, name)
    owner: Any = cell
    if "parametrizations" not in cell.__dict__:
        owner.parametrizations = CellDict()
    owner.parametrizations[name] = held
    _reclass(cell)
    return cell


def _changed(cell: Cell, name: str, before: Any, after: Any) -> UserError:
    why = f"the parametrisation makes {type(cell).__name__}.{name} {after}, it was {before}"
    return UserError("E0526", why, fix="return a tensor of the same shape and dtype")


def remove_parametrizations(cell: Cell, name: str, leave_parametrized: bool = True) -> Cell:
    """Make `cell.name` a parameter again: with its present value, or with the original's; returns the cell.

    Raises E0526 where there is none, or for the original's value when there are several originals.
    """
    if not is_parametrized(cell, name):
        why = f"{type(cell).__name__}.{name} has no parametrisation"
        raise UserError("E0526", why, fix="name one that was registered")
    every: Any = cell.parametrizations  # type: ignore[attr-defined]
    held = every[name]
    originals = held.originals()
    if not leave_parametrized and len(originals) > 1:
        why = f"{type(cell).__name__}.{name} has {len(originals)} originals"
        raise UserError("E0526", why, fix="use leave_parametrized=True")
    value = held()
    one = originals[0]
    if leave_parametrized and (len(originals) > 1 or one.type != value.type):
        one = Parameter(value, requires_grad=one.requires_grad)
    elif leave_parametrized:
        one.assign(value)
    del every[name]
    if not len(every):
        del cell.parametrizations  # type: ignore[attr-defined]
    _reclass(cell)
    one.name = name
    setattr(cell, name, one)
    return cell
