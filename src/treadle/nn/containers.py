"""Cells that hold cells: one after the other (`Sequential`), as a list, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from treadle.base import arguments
from treadle.base.errors import UserError, UserIndexError, UserKeyError
from treadle.nn.cell import Cell, Parameter


class CellList(Cell):
    """A list of cells; parameters are named by position: `0.weight`. Raises E0550 for what is no cell."""

    def __init__(self, cells: Iterable[Cell] = ()) -> None:
        self.extend(cells)

    def _items(self) -> list[Cell]:
        return [v for v in self.__dict__.values() if isinstance(v, Cell)]

    def append(self, cell: Cell) -> CellList:
        """Add a cell at the end; returns the list."""
        setattr(self, str(len(self)), _checked(cell))
        return self

    def extend(self, cells: Iterable[Cell]) -> CellList:
        """Add cells at the end; returns the list."""
        if isinstance(cells, Cell) or not isinstance(cells, Iterable):
            raise UserError("E0550", f"the cells are {arguments.brief(cells)}", fix="pass a list of cells")
        for cell in cells:
            self.append(cell)
        return self

    def insert(self, index: int, cell: Cell) -> None:
        """Put a cell before position `index`."""
        cells = self._items()
        cells.insert(index, _checked(cell))
        self._renumber(cells)

    def _renumber(self, cells: list[Cell]) -> None:
        for i in range(len(self)):
            delattr(self, str(i))
        self.extend(cells)

    def __setitem__(self, index: int, cell: Cell) -> None:
        setattr(self, str(range(len(self))[index]), _checked(cell))

    def __delitem__(self, index: int) -> None:
        cells = self._items()
        del cells[index]
        self._renumber(cells)

    def __getitem__(self, index: int | slice) -> Any:
        found = _at(self._items(), index)
        return type(self)(found) if isinstance(found, list) else found

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._items())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise UserError("E0551", "a CellList cannot be called", fix="call its cells, or use Sequential")


class Sequential(Cell):
    """Cells (or functions of one tensor) one after the other. Sequential(a, b) or Sequential({"name": a, ...})."""

    def __init__(self, *parts: Any) -> None:
        named = parts[0] if len(parts) == 1 and isinstance(parts[0], Mapping) else dict(enumerate(parts))
        for name, part in named.items():
            _checked_part(name, part)
            setattr(self, str(name), part)
        self.names = tuple([str(n) for n in named])

    def append(self, part: Any) -> Sequential:
        """Add a part at the end; returns the cell."""
        name = str(len(self.names))
        _checked_part(name, part)
        setattr(self, name, part)
        self.names = (*self.names, name)
        return self

    def _parts(self) -> list[Callable[[Any], Any]]:
        return [getattr(self, n) for n in self.names]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts())

    def __getitem__(self, index: int | slice) -> Any:
        found = _at(self._parts(), index)
        return Sequential(*found) if isinstance(found, list) else found

    def forward(self, x: Any) -> Any:
        for part in self._parts():
            x = part(x)
        return x


class CellDict(Cell):
    """Cells by name. Raises E0550 for what is no cell."""

    def __init__(self, cells: Mapping[str, Cell] | None = None) -> None:
        self.update(cells or {})

    def update(self, cells: Mapping[str, Cell]) -> None:
        """Add the cells, or put them in the place of those with their names."""
        if not isinstance(cells, Mapping | CellDict):
            raise UserError("E0550", f"the cells are {arguments.brief(cells)}", fix='pass a dict: {"name": cell}')
        for name, cell in cells.items():
            self[name] = cell

    def keys(self) -> list[str]:
        """The names."""
        return [k for k, v in self.__dict__.items() if isinstance(v, Cell)]

    def values(self) -> list[Cell]:
        """The cells."""
        return [v for v in self.__dict__.values() if isinstance(v, Cell)]

    def items(self) -> list[tuple[str, Cell]]:
        """Names and cells."""
        return list(zip(self.keys(), self.values(), strict=True))

    def __setitem__(self, name: str, cell: Cell) -> None:
        if hasattr(type(self), name):
            raise UserError("E0550", f"a cell cannot be called {name!r} in a CellDict", fix="choose another name")
        setattr(self, name, _checked(cell))

    def __getitem__(self, name: str) -> Cell:
        if name not in self:
            fix = f"use one of {', '.join(self.keys())}" if self.keys() else "add cells first"
            raise UserKeyError("E0550", f"there is no cell {name!r} in the CellDict", fix=fix)
        found: Cell = self.__dict__[name]
        return found

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise UserError("E0551", "a CellDict cannot be called", fix="call its cells")


def _at(items: list[Any], index: int | slice) -> Any:
    """items[index]. Raises E0506 for a position that is not there, or is none."""
    try:
        return items[index]
    except (IndexError, TypeError):
        why = f"part {index!r} of {len(items)} cells"
        raise UserIndexError("E0506", why, fix=f"use -{len(items)} to {len(items) - 1}") from None


def _checked_part(name: Any, part: Any) -> None:
    """Raise E0550 for what can be no part of a Sequential."""
    if isinstance(part, list | tuple):
        why = f"part {name} of Sequential is a {type(part).__name__}"
        raise UserError("E0550", why, fix="pass the cells one by one: Sequential(*layers)")
    if isinstance(part, type):
        why = f"part {name} of Sequential is the class {part.__name__}"
        raise UserError("E0550", why, fix=f"make a cell of it: {part.__name__}(...)")
    if not callable(part):
        raise UserError("E0550", f"part {name} of Sequential is {part!r}", fix="pass cells or functions")


class ParameterList(Cell):
    """A list of parameters, named by position. Other tensors and arrays become parameters."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end; returns the list."""
        setattr(self, str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end; returns the list."""
        for value in values:
            self.append(value)
        return self

    def _items(self) -> list[Parameter]:
        return [v for v in self.__dict__.values() if isinstance(v, Parameter)]

    def __getitem__(self, index: int | slice) -> Any:
        found = _at(self._items(), index)
        return ParameterList(found) if isinstance(found, list) else found

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(range(len(self))[index]), _parameter(value))

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._items())

    def extra_repr(self) -> str:
        return ", ".join(f"{i}: {p.type}" for i, p in enumerate(self._items()))


class ParameterDict(Cell):
    """Parameters by name. Other tensors and arrays become parameters. Raises E0550 for a name that is taken."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.update(values or {})

    def update(self, values: Mapping[str, Any]) -> None:
        """Add the parameters, or put them in the place of those with their names."""
        for name, value in values.items():
            self[name] = value

    def keys(self) -> list[str]:
        """The names."""
        return [k for k, v in self.__dict__.items() if isinstance(v, Parameter)]

    def values(self) -> list[Parameter]:
        """The parameters."""
        return [v for v in self.__dict__.values() if isinstance(v, Parameter)]

    def items(self) -> list[tuple[str, Parameter]]:
        """Names and parameters."""
        return list(zip(self.keys(), self.values(), strict=True))

    def __setitem__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):
            raise UserError("E0550", f"a parameter cannot be called {name!r} here", fix="choose another name")
        setattr(self, name, _parameter(value))

    def __getitem__(self, name: str) -> Parameter:
        found: Parameter = self.__dict__[name]
        return found

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def extra_repr(self) -> str:
        return ", ".join(f"{k}: {p.type}" for k, p in self.items())


def _parameter(value: Any) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)


def _checked(cell: Any) -> Cell:
    if not isinstance(cell, Cell):
        raise UserError("E0550", f"{cell!r} is not a cell", fix="pass instances of td.Cell")
    return cell
