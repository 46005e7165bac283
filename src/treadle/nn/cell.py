"""`Cell`: a part of a model; `Parameter`: a tensor that it learns. Tensors go in through a call, tensors come out.

A cell's bookkeeping is its attributes: a Parameter is learnt, another Tensor is a buffer, a Cell is a child (also in
lists, tuples and dicts), all else is a setting. So subclasses need not call `super().__init__()`.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from treadle.api import context
from treadle.api.programs import graph_call
from treadle.base import arguments, elsewhere, where
from treadle.base.dtypes import DType
from treadle.base.errors import UserError, no_attribute
from treadle.frontend import tape as taping
from treadle.frontend import trace as tracing
from treadle.frontend.pysrc.convert import converted
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import clock
from treadle.ir.node import attr_key
from treadle.nn.hooks import Handle, Hooks


class _Active(threading.local):
    """The cells whose forward functions are running on this thread, outermost first."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []


_active = _Active()
_BOOK = ("_born", "_hooks", "_paths", "_unsaved")  # the only attributes of a cell that are not the user's
_PLAIN = (bool, int, float, complex, str, bytes, type(None), DType)


class Parameter(Tensor):
    """A tensor that a model learns. Parameter(data, name="", requires_grad=True); data as for `Tensor`.

    `requires_grad=False`: optimisers leave it alone.
    """

    __slots__ = ("_requires_grad", "name")

    def __init__(self, data: Any, name: str = "", requires_grad: bool = True, dtype: Any = None) -> None:
        super().__init__(data, dtype)
        self.name, self._requires_grad = name, requires_grad

    @property
    def requires_grad(self) -> bool:
        """Whether optimisers may change it."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._requires_grad = value
        clock.tick()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return Parameter(self.copy(), self.name, self._requires_grad)

    def __reduce__(self) -> tuple[Any, ...]:
        return Parameter, (self.numpy(), self.name, self._requires_grad)

    def __repr__(self) -> str:
        return f"Parameter{super().__repr__().removeprefix('Tensor')}"


class Cell:
    """A part of a model: define `forward` (or `construct`) and call the cell.

    Attributes that are Parameters are learnt; other Tensors are buffers, saved with the model; Cells are children.
    Lists, tuples and dicts of them count too. A buffer is the cell's own: assigning copies the value, in eager mode and
    compiled alike. In eager mode a call runs at once, in graph mode it runs as one compiled program.
    """

    training: bool = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        if (trace := tracing.current()) is not None:
            self.__dict__["_born"] = weakref.ref(trace)
        return self

    # ------------------------------------------------------------------------------------------------ call
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = tracing.current()
        if trace is not None:
            if not self._is_new():  # a cell made by the function itself cannot change between calls
                trace.touched[id(self)] = self
        elif context.is_graph() and taping.current() is None:  # under an eager gradient its ops are taped
            return graph_call(self, "call", self, args, kwargs)
        forward = getattr(self, "forward", None) or getattr(self, "construct", None)
        if forward is None:
            raise UserError("E0520", f"{type(self).__name__} has no forward", fix="define forward(self, ...)")
        if tracing.current() is not None:
            forward = converted(forward)
        active = _active.cells
        name = active[-1]._path_of(self) if active else type(self).__name__
        active.append(self)
        try:
            with where.scope(name):
                hooks: Hooks | None = self.__dict__.get("_hooks")
                return forward(*args, **kwargs) if hooks is None else hooks.run(self, forward, args, kwargs)
        except TypeError as error:
            arguments.check_call(error, type(self).__name__, forward)
            raise
        finally:
            active.pop()

    def _path_of(self, part: Cell) -> str:
        """The scope path of a part below this cell: `layers/0/conv`; the class name of a cell that is no part."""
        version, paths = self.__dict__.get("_paths", (-1, {}))
        if version != clock.now or id(part) not in paths:
            paths = {id(cell): path.replace(".", "/") for path, cell in self.named_cells()}
            self.__dict__["_paths"] = (clock.now, paths)
        return paths.get(id(part)) or type(part).__name__

    # ------------------------------------------------------------------------------------------------ attributes
    def __setattr__(self, name: str, value: Any) -> None:
        """A tensor given to a tensor of its type passes its value on; the cell's own tensor stays the same object."""
        old = self.__dict__.get(name, self.training if name == "training" else None)
        if isinstance(old, Tensor) and isinstance(value, Tensor) and not isinstance(value, Parameter):
            if tracing.current() is not None or isinstance(old, Parameter) or old.type == value.type:
                old._set(value)
                return
        elif tracing.current() is not None and not self._is_new() and not _same(old, value):
            what = f"{type(self).__name__}.{name}"
            fix = "set it before the call; for a value that every call changes, make it a Tensor in __init__"
            raise UserError("E0521", f"{what} is set while being compiled, which later calls would not repeat", fix=fix)
        if isinstance(value, Parameter):
            value.name = value.name or name
        elif isinstance(value, Tensor) and value._trace is None:
            value = value.copy()
        if not _same(old, value) or not (name in self.__dict__ or name == "training"):
            clock.tick()
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name in ("forward", "construct"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise no_attribute(type(self).__name__, name, lambda: dir(self), elsewhere.CELL)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        clock.tick()

    def _is_new(self) -> bool:
        """Made inside the function being traced: nobody outside can see it change."""
        born = self.__dict__.get("_born")
        trace = None if born is None else born()
        return trace is not None and trace.open

    def settings(self) -> tuple[Any, ...]:
        """What a program that calls this cell depends on beside numbers: plain attributes, and which parts it has."""
        items = [(k, _setting(v)) for k, v in self.__dict__.items() if k not in _BOOK and k != "training"]
        hooks: Hooks | None = self.__dict__.get("_hooks")
        return (("training", self.training), *items, *(() if hooks is None else (("hooks", hooks.key()),)))

    def containers(self) -> tuple[Any, ...]:
        """The part of `settings` that can change without an attribute being set: lists, dicts and sets."""
        return tuple([(k, _setting(v)) for k, v in self.__dict__.items() if isinstance(v, list | dict | set)])

    # ------------------------------------------------------------------------------------------------ parts
    def _members(self) -> Iterator[tuple[str, Any]]:
        """The Tensors and Cells that this cell holds itself, with their names."""
        for name, value in self.__dict__.items():
            if name not in _BOOK:
                yield from _held(name, value)

    def named_children(self) -> Iterator[tuple[str, Cell]]:
        """The cells right below this one, each once, with their names."""
        seen: set[int] = set()
        for name, value in self._members():
            if isinstance(value, Cell) and id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def children(self) -> list[Cell]:
        """The cells right below this one."""
        return [cell for _, cell in self.named_children()]

    def named_cells(self, prefix: str = "") -> Iterator[tuple[str, Cell]]:
        """This cell, named "", and all below it, each once, outer ones first."""
        yield from self._walk(prefix, set())

    def _walk(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Cell]]:
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, cell in self.named_children():
            yield from cell._walk(f"{prefix}.{name}" if prefix else name, seen)

    def cells(self) -> list[Cell]:
        """This cell and all below it."""
        return [cell for _, cell in self.named_cells()]

    named_modules, modules = named_cells, cells

    def _tensors(self) -> Iterator[tuple[str, Tensor, bool]]:
        """(name, tensor, whether it is saved) of this cell and all below it; a shared tensor once per name."""
        for prefix, cell in self.named_cells():
            unsaved = cell.__dict__.get("_unsaved", ())
            for name, value in cell._members():
                if isinstance(value, Tensor):
                    yield (f"{prefix}.{name}" if prefix else name), value, name not in unsaved

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters of this cell and all below it; one that is shared comes once, with its first name."""
        seen: set[int] = set()
        for name, tensor, _ in self._tensors():
            if isinstance(tensor, Parameter) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def parameters(self) -> list[Parameter]:
        """The parameters of this cell and all below it, each once, frozen ones too."""
        return [p for _, p in self.named_parameters()]

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are not parameters (running statistics, for example), each once."""
        seen: set[int] = set()
        for name, tensor, _ in self._tensors():
            if not isinstance(tensor, Parameter) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def buffers(self) -> list[Tensor]:
        """The tensors that are not parameters, each once."""
        return [b for _, b in self.named_buffers()]

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Make `tensor` the buffer `name`; `persistent=False` keeps it out of `state_dict`."""
        setattr(self, name, tensor if tensor is None or isinstance(tensor, Tensor) else Tensor(tensor))
        unsaved = set(self.__dict__.get("_unsaved", ())) - {name}
        self.__dict__["_unsaved"] = unsaved if persistent else unsaved | {name}

    @property
    def num_parameters(self) -> int:
        """Number of elements of all parameters, each parameter once."""
        return sum(p.size for p in self.parameters())

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Make `parameter` the parameter `name`."""
        setattr(self, name, parameter)

    def add_cell(self, name: str, cell: Cell | None) -> None:
        """Make `cell` the child `name`."""
        setattr(self, name, cell)

    add_module = register_module = add_cell

    def get_cell(self, path: str) -> Cell:
        """The cell at a path such as "layers.0.conv"; "" is this cell. Raises E0525 where there is none."""
        found: Cell = _at(path, dict(self.named_cells()), "cell")
        return found

    get_submodule = get_cell

    def get_parameter(self, path: str) -> Parameter:
        """The parameter at a path such as "layers.0.weight". Raises E0525 where there is none."""
        every = {name: t for name, t, _ in self._tensors() if isinstance(t, Parameter)}
        found: Parameter = _at(path, every, "parameter")
        return found

    def get_buffer(self, path: str) -> Tensor:
        """The buffer at a path such as "norm.running_mean". Raises E0525 where there is none."""
        every = {name: t for name, t, _ in self._tensors() if not isinstance(t, Parameter)}
        found: Tensor = _at(path, every, "buffer")
        return found

    # ------------------------------------------------------------------------------------------------ hooks
    def _hook(self, kind: str, hook: Callable[..., Any], prepend: bool, with_kwargs: bool = False) -> Handle:
        if tracing.current() is not None and not self._is_new():
            what = f"a hook is registered on {type(self).__name__} while it is being compiled"
            raise UserError("E0521", what, fix="register it before the call")
        hooks: Hooks = self.__dict__.setdefault("_hooks", Hooks())
        return hooks.add(kind, hook, prepend, with_kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call hook(cell, args) before each call; what it returns, unless None, takes the place of the arguments.

        with_kwargs: hook(cell, args, kwargs), which returns None or (args, kwargs). `handle.remove()` ends it.
        """
        return self._hook("before", hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call hook(cell, args, result) after each call; what it returns, unless None, takes the result's place.

        with_kwargs: hook(cell, args, kwargs, result). In a compiled function hooks are part of the program.
        """
        return self._hook("after", hook, prepend, with_kwargs)

    def register_full_backward_hook(self, hook: Callable[..., Any], *, prepend: bool = False) -> Handle:
        """Call hook(cell, gradients of the positional float arguments, gradients of the float results).

        It is a step of the derivative, so it may only return new gradients of the arguments (or None), not change
        tensors (E0524). It does not run where nobody wants those gradients, and forward mode cannot pass it.
        """
        return self._hook("backward", hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False) -> Handle:
        """Call hook(cell, gradients of the float results), which may return new ones; else as the full backward hook.

        It runs before the gradient goes through the cell, so that it changes those of the parameters too.
        """
        return self._hook("backward_before", hook, prepend)

    # ------------------------------------------------------------------------------------------------ whole model
    def train(self, mode: bool = True) -> Self:
        """Switch this cell and all below it to training (dropout on, batch statistics); returns the cell."""
        for cell in self.cells():
            cell.training = mode
        return self

    def eval(self) -> Self:
        """Switch this cell and all below it to evaluation; returns the cell."""
        return self.train(False)

    def freeze(self, frozen: bool = True) -> Self:
        """Optimisers leave the parameters alone (`frozen=False`: change them again); returns the cell."""
        for parameter in self.parameters():
            parameter.requires_grad = not frozen
        return self

    def unfreeze(self) -> Self:
        """Optimisers may change all parameters again; returns the cell."""
        return self.freeze(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """PyTorch's name for `unfreeze` and, with False, `freeze`."""
        return self.freeze(not requires_grad)

    def apply(self, function: Callable[[Cell], Any]) -> Self:
        """Call `function` on every cell, inner ones first; returns the cell."""
        arguments.function(function, "what is applied to the cells")
        for cell in self.children():
            cell.apply(function)
        function(self)
        return self

    def astype(self, dtype: Any) -> Self:
        """Change the element type of all float parameters and buffers in place; returns the cell."""
        for _, tensor, _ in self._tensors():
            if tensor.dtype.is_float:
                tensor._value = tensor.astype(dtype)._value
        clock.tick()
        return self

    # ------------------------------------------------------------------------------------------------ state
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, as they are now: later training does not change what is returned."""
        return {name: tensor.copy() for name, tensor, saved in self._tensors() if saved}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Give parameters and buffers the values of `state` (tensors or arrays by name); all or nothing.

        Raises E0522 for names that are missing or that the cell does not know (only if strict), E0523 for values whose
        shape or element type differs.
        """
        if not isinstance(state, Mapping):
            raise UserError("E0522", f"the state is a {type(state).__name__}", fix="pass what state_dict() returned")
        own = {name: tensor for name, tensor, saved in self._tensors() if saved}
        given = {id(tensor) for name, tensor in own.items() if name in state}
        missing = [name for name, tensor in own.items() if id(tensor) not in given]
        unknown = [name for name in state if name not in own]
        name = type(self).__name__
        if strict and (missing or unknown):
            parts = [f"{what}: {_few(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names]
            raise UserError("E0522", f"the state does not fit {name}: {'; '.join(parts)}", fix="or pass strict=False")
        new = {k: v if isinstance(v, Tensor) else Tensor(np.asarray(v)) for k, v in state.items() if k in own}
        wrong = [f"{k} is {own[k].type}, the state has {v.type}" for k, v in new.items() if v.type != own[k].type]
        if wrong:
            raise UserError("E0523", f"the state does not fit {name}: {_few(wrong)}", fix="reshape or cast it")
        for key, value in new.items():
            own[key]._set(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        for tensor in [v for _, v in self._members() if isinstance(v, Tensor) and not isinstance(v, Parameter)]:
            memo[id(tensor)] = tensor.copy()
        memo[id(self)] = twin = type(self).__new__(type(self))
        held = {k: v for k, v in self.__dict__.items() if k not in ("_born", "_paths")}
        twin.__dict__.update(copy.deepcopy(held, memo))
        return twin

    # ------------------------------------------------------------------------------------------------ text
    def extra_repr(self) -> str:
        """What stands between the brackets of the cell's text; for subclasses to say."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.named_children()]
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        inside = "\n  ".join([extra, *lines] if extra else lines)
        return f"{type(self).__name__}(\n  {inside}\n)"


def _held(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The Tensors and Cells in an attribute, those in plain containers by their place there."""
    if isinstance(value, Tensor | Cell):
        yield name, value
    elif isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _held(f"{name}.{key}", item)


def _setting(value: Any) -> Any:
    """A hashable stand-in: plain values by value, containers by what is in them, everything else by what it is."""
    if isinstance(value, _PLAIN):
        return attr_key(value)
    if isinstance(value, tuple | list):
        return type(value).__name__, tuple([_setting(v) for v in value])
    if isinstance(value, dict):
        return "dict", tuple([(k, _setting(v)) for k, v in value.items()])
    if isinstance(value, set):
        return "set", tuple(sorted(map(repr, value)))
    return type(value).__name__, id(value)


def _same(old: Any, new: Any) -> bool:
    """The same object or equal plain values of one type."""
    return old is new or (type(old) is type(new) and isinstance(new, _PLAIN) and bool(old == new))


def _at(path: str, found: Mapping[str, Any], what: str) -> Any:
    if path not in found:
        names = _few([name for name in found if name]) or "none"
        raise UserError("E0525", f"there is no {what} {path!r}", fix=f"the names are: {names}")
    return found[path]


def _few(items: Sequence[str], most: int = 8) -> str:
    """The items in a line, the first ones where there are many."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")
