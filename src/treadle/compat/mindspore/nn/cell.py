"""`Cell` with MindSpore's interface: `construct`, parameter names with prefixes, `set_train`, and cells of cells."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, Self

from treadle.api.gradients import custom_gradient
from treadle.api.precision import autocast
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore._tensor import Parameter, Tensor, tag
from treadle.frontend import tensor as base_tensor
from treadle.nn import cell as base


class Cell(base.Cell):
    """A part of a network: define `construct` and call the cell. Cells begin in evaluation: see `set_train`.

    Parameters are named by their place ("conv1.weight"): a cell that becomes an attribute of another gets the
    attribute's name in front of its parameters' names, unless the other was made with auto_prefix=False. A cell with
    `bprop(self, *inputs, out, dout)` has its own gradient; it may read no parameters (E0309).
    """

    training: bool = False
    _auto_prefix: bool = True
    _float: Any = None
    _products: Any = None  # the type that products are computed in (level "O1")

    def __init__(self, auto_prefix: bool = True, flags: Mapping[str, Any] | None = None) -> None:
        self._auto_prefix = auto_prefix
        self.add_flags(**(flags or {}))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tag(args), tag(kwargs)
        if self._float is not None:
            args = tuple([self._in_float(a) for a in args])
        with nullcontext() if self._products is None else autocast("O1", self._products):
            if hasattr(type(self), "bprop") and not kwargs:
                return tag(custom_gradient(self._with_own_gradient)(*args))
            return tag(super().__call__(*args, **kwargs))

    def _with_own_gradient(self, *args: Any) -> tuple[Any, Any]:
        """(result, pull): the cell's `bprop(*inputs, out, dout)` gives the gradients of its inputs."""
        tag(args)
        out = super().__call__(*args)
        bprop: Any = getattr(type(self), "bprop", None)

        def pull(dout: Any) -> Any:
            grads = tag(bprop(self, *args, tag(out), tag(dout)))
            return grads[0] if isinstance(grads, tuple) and len(args) == 1 else grads

        return out, pull

    def _in_float(self, value: Any) -> Any:
        is_float = isinstance(value, base_tensor.Tensor) and value.dtype.is_float and value._weak is None
        return value.astype(self._float) if is_float and value.dtype is not self._float else value

    def __setattr__(self, name: str, value: Any) -> None:
        old = self.__dict__.get(name)
        if isinstance(value, Parameter) and not isinstance(old, base.Parameter) and value.name == "Parameter":
            value.name = name
        tag(value)
        if self._auto_prefix and old is not value:
            for place, cell in base._held(name, value):
                if isinstance(cell, Cell):
                    cell.update_parameters_name(f"{place}.")
        super().__setattr__(name, value)

    # ------------------------------------------------------------------------------------------------ parameters
    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Put `prefix` before the names of the parameters."""
        for p in self.get_parameters(recurse):
            p.name = f"{prefix}{p.name}"

    def get_parameters(self, expand: bool = True) -> Iterator[Any]:
        """The parameters, frozen ones too; expand: those of the cells below as well."""
        return iter([p for _, p in self.parameters_and_names(expand=expand)])

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Any]]:
        """(path, parameter), each parameter once."""
        front = f"{name_prefix}." if name_prefix else ""
        found = self.named_parameters() if expand else iter(self._own_parameters())
        return iter([(f"{front}{path}", p) for path, p in found])

    def _own_parameters(self) -> list[tuple[str, base.Parameter]]:
        return [(n, v) for n, v in self._members() if isinstance(v, base.Parameter)]

    def trainable_params(self, recurse: bool = True) -> list[Any]:
        """The parameters that are trained (`requires_grad`)."""
        return [p for p in self.get_parameters(recurse) if p.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[Any]:
        """The parameters that are not trained."""
        return [p for p in self.get_parameters(recurse) if not p.requires_grad]

    def parameters_dict(self, recurse: bool = True) -> OrderedDict[str, Any]:
        """The parameters by their names. Raises E0593 where two have one name."""
        found: OrderedDict[str, Any] = OrderedDict()
        for p in self.get_parameters(recurse):
            if p.name in found:
                why = f"two parameters are called {p.name!r}"
                raise UserError("E0593", why, fix="name them: Parameter(..., name=...)")
            found[p.name] = p
        return found

    def insert_param_to_cell(self, param_name: str, param: Any, check_name_contain_dot: bool = True) -> None:
        """Make `param` the parameter `param_name`."""
        setattr(self, param_name, param)

    def insert_child_to_cell(self, child_name: str, child_cell: Any) -> None:
        """Make `child_cell` the cell `child_name`."""
        setattr(self, child_name, child_cell)

    def init_parameters_data(self, auto_parallel_mode: bool = False) -> dict[Any, Any]:
        """Nothing to do: initialisers fill at once. Each parameter by itself."""
        return {p: p for p in self.get_parameters()}

    # ------------------------------------------------------------------------------------------------ cells, modes
    def name_cells(self) -> OrderedDict[str, Any]:
        """The cells right below by name."""
        return OrderedDict(self.named_children())

    def cells_and_names(self, name_prefix: str = "") -> Iterator[tuple[str, Any]]:
        """(path, cell) of this cell, named "", and all below it."""
        return iter(list(self.named_cells(name_prefix)))

    def set_train(self, mode: bool = True) -> Self:
        """Switch to training (dropout on, batch statistics) or, with False, to evaluation; returns the cell."""
        return self.train(mode)

    def set_grad(self, requires_grad: bool = True) -> Self:
        """Nothing to do: gradients are asked for by `grad`; returns the cell."""
        return self

    def add_flags(self, **flags: Any) -> Self:
        """Plain attributes of the cell; returns the cell."""
        for name, value in flags.items():
            setattr(self, name, value)
        return self

    def to_float(self, dst_type: Any) -> Self:
        """Compute in float16, bfloat16 or float32: float inputs of this cell and all below are cast; returns the cell.

        Parameters keep their type; layers cast weights to the type of their inputs.
        """
        kind = dtypes.of(dst_type)
        if not kind.is_float:
            raise UserError("E0590", f"to_float({kind.name})", fix="use float16, bfloat16 or float32")
        for cell in self.cells():
            if isinstance(cell, Cell):
                cell._float = kind
        return self

    def register_backward_hook(self, hook_fn: Callable[..., Any]) -> Any:
        """Call hook_fn(cell, gradients of the inputs, gradients of the results); it may return new input gradients."""
        return self.register_full_backward_hook(lambda cell, *grads: hook_fn(cell, *tag(grads)))

    def register_backward_pre_hook(self, hook_fn: Callable[..., Any]) -> Any:
        """Call hook_fn(cell, gradients of the results) before the gradient passes; it may return new ones."""
        return self.register_full_backward_pre_hook(lambda cell, *grads: hook_fn(cell, *tag(grads)))

    @property
    def cls_name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    def extend_repr(self) -> str:
        """What stands between the brackets of the cell's text; for subclasses to say."""
        return ""

    def extra_repr(self) -> str:
        return self.extend_repr()

    def as_type(self, weight: Any, x: Any) -> Any:
        """The weight in the type of x where that is a narrower float (`to_float`)."""
        return (
            weight.astype(x.dtype)
            if weight is not None and x.dtype is not weight.dtype and x.dtype.bits == 16
            else weight
        )


class GraphCell(Cell):
    """Not covered: a cell of a MindIR file (E0592)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from treadle.compat.mindspore._missing import not_covered

        not_covered("GraphCell", "build the network and use load_checkpoint")


class _Cells(Cell):
    """Cells by position: their parameters are called "0.weight", "1.weight"."""

    def __init__(self, *args: Any, auto_prefix: bool = True) -> None:
        super().__init__(auto_prefix)
        first = args[0] if len(args) == 1 else None
        if isinstance(first, Mapping):
            for name, cell in first.items():
                setattr(self, str(name), self._checked(cell))
        else:
            for cell in first if isinstance(first, list | tuple | _Cells) else args:
                self.append(cell)

    @staticmethod
    def _checked(cell: Any) -> Any:
        if not isinstance(cell, base.Cell):
            raise UserError("E0550", f"{cell!r} is not a cell", fix="pass instances of nn.Cell")
        return cell

    def _items(self) -> list[Any]:
        return [v for v in self.__dict__.values() if isinstance(v, base.Cell)]

    def append(self, cell: Any) -> Self:
        """Add a cell at the end; returns the cells."""
        setattr(self, str(len(self)), self._checked(cell))
        return self

    def extend(self, cells: Iterable[Any]) -> Self:
        """Add cells at the end; returns the cells."""
        for cell in cells:
            self.append(cell)
        return self

    def insert(self, index: int, cell: Any) -> None:
        """Put a cell before a position; the parameters of the others keep their names."""
        cells = self._items()
        cells.insert(index, self._checked(cell))
        names = [k for k, v in self.__dict__.items() if isinstance(v, base.Cell)]
        for name in names:
            delattr(self, name)
        for i, each in enumerate(cells):
            self._put(str(i), each, renamed=each is cell)

    def _put(self, name: str, cell: Any, renamed: bool) -> None:
        before, self._auto_prefix = self._auto_prefix, renamed and self._auto_prefix
        setattr(self, name, cell)
        self._auto_prefix = before

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self.__dict__[index]
        found = self._items()[index]
        if isinstance(index, slice):
            made = type(self)(auto_prefix=False)
            made.extend(found)
            return made
        return found

    def __setitem__(self, index: int, cell: Any) -> None:
        names = [k for k, v in self.__dict__.items() if isinstance(v, base.Cell)]
        self.__dict__.pop("_paths", None)
        if isinstance(cell, Cell) and self._auto_prefix:
            cell.update_parameters_name(f"{names[index]}.")
        setattr(self, names[index], self._checked(cell))

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __bool__(self) -> bool:
        return True


class SequentialCell(_Cells):
    """Cells one after the other: SequentialCell(a, b), SequentialCell([a, b]) or SequentialCell(OrderedDict)."""

    def construct(self, x: Any) -> Any:
        for cell in self._items():
            x = cell(x)
        return x


class CellList(_Cells):
    """A list of cells; it cannot be called itself (E0551)."""

    def construct(self, *args: Any) -> Any:
        raise UserError("E0551", "a CellList cannot be called", fix="call its cells, or use SequentialCell")


class CellDict(_Cells):
    """Cells by name."""

    def __init__(self, *args: Any, auto_prefix: bool = True) -> None:
        given = args[0] if args else {}
        super().__init__(OrderedDict(given) if not isinstance(given, Mapping) else given, auto_prefix=auto_prefix)

    def __setitem__(self, name: Any, cell: Any) -> None:
        setattr(self, name, self._checked(cell))

    def keys(self) -> list[str]:
        """The names."""
        return [k for k, v in self.__dict__.items() if isinstance(v, base.Cell)]

    def values(self) -> list[Any]:
        """The cells."""
        return self._items()

    def items(self) -> list[tuple[str, Any]]:
        """Names and cells."""
        return list(zip(self.keys(), self._items(), strict=True))

    def construct(self, *args: Any) -> Any:
        raise UserError("E0551", "a CellDict cannot be called", fix="call its cells")


def parameter(rule: Any, shape: tuple[int, ...], dtype: Any = dtypes.float32) -> Parameter:
    """A parameter filled by an initialiser, its name, a number or a tensor."""
    from treadle.compat.mindspore.common.initializer import initializer

    return Parameter(initializer(rule, shape, dtype))


def fixed(rule: Any, shape: tuple[int, ...], dtype: Any = dtypes.float32) -> Parameter:
    """As `parameter`, one that is not trained."""
    made = parameter(rule, shape, dtype)
    made.requires_grad = False
    return made


__all__ = ["Cell", "CellDict", "CellList", "GraphCell", "Parameter", "SequentialCell", "Tensor", "fixed", "parameter"]
