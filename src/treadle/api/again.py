"""Arguments of a kind seen before: told without building the key of the call again.

`kind_of(leaves, shape)` remembers what counts of each (`keys.counted`) and the level of precision; other settings, as
autocast, are looked at the long way. `kind.inputs(args, kwargs)` gives the dynamic leaves of arguments that have the
same key, with the device arrays that they hold now if they are nothing but tensors there; and None where the key is
another one or where the long way must decide.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.base.flags import flags
from treadle.frontend.keys import Fixed, Typed, counted
from treadle.frontend.trace import is_tensor
from treadle.frontend.tree import TreeDef, reader
from treadle.ir.types import type_of
from treadle.runtime import pjrt

_FIXED = frozenset({int, bool, str, bytes, type(None)})  # whose equality is that of the values alone
Inputs = tuple[Sequence[Any], list[Any] | None]
_value = operator.attrgetter("_value")
_aval = operator.attrgetter("aval")


def kind_of(leaves: Sequence[Any], shape: TreeDef) -> Kind | None:
    """The kind of these arguments, flattened, outside of traces and autocast; None where one of them is of a class that
    is looked at closely each time, or where a tensor is among them twice."""
    tensors = [leaf for leaf in leaves if is_tensor(leaf)]
    if len(set(map(id, tensors))) < len(tensors):
        return None
    for leaf in leaves:
        what, kind = counted(leaf), type(leaf)
        if isinstance(what, Fixed) and kind not in _FIXED:
            return None
        plain = is_tensor(leaf) or kind is np.ndarray or issubclass(kind, np.generic)
        if isinstance(what, Typed) and (what.weak is not None or not plain):
            return None
    return Kind(leaves, shape)


class Kind:
    """What the arguments of a call have in common with those of an earlier one."""

    __slots__ = ("_all", "_arrays", "_avals", "_count", "_dynamic", "_fixed", "_level", "_read", "_tensors", "_types")

    def __init__(self, leaves: Sequence[Any], shape: TreeDef) -> None:
        args, kwargs = shape.children
        self._types = tuple(map(type, leaves))
        # None: plain arguments, none of them a container
        plain = not kwargs.keys and all(child.kind is None for child in args.children)
        self._read = None if plain else reader(shape)
        self._tensors = [i for i, leaf in enumerate(leaves) if is_tensor(leaf)]
        known = list(enumerate(map(counted, leaves)))
        self._dynamic = [i for i, what in known if not isinstance(what, Fixed)]
        self._count = len(self._tensors)
        self._all = self._count == len(leaves)
        self._avals = [pjrt.aval(type_of(leaves[i]._value)) for i in self._tensors]
        self._arrays = [
            (i, what.dtype, what.shape) for i, what in known if isinstance(what, Typed) and not is_tensor(leaves[i])
        ]
        self._fixed = [(i, what.value) for i, what in known if isinstance(what, Fixed)]
        self._level = flags.precision

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs | None:
        """The dynamic leaves of arguments of this kind, and perhaps their arrays; None for arguments of others."""
        leaves: Sequence[Any]
        if self._read is not None:
            found = self._read((args, kwargs))
            if found is None:
                return None
            leaves = found
        elif kwargs:
            return None
        else:
            leaves = args
        if tuple(map(type, leaves)) != self._types or flags.precision != self._level:
            return None
        tensors = leaves if self._all else [leaves[i] for i in self._tensors]
        if len(set(map(id, tensors))) != self._count:
            return None
        values = list(map(_value, tensors))
        try:  # the type of a device array is mostly the very object
            if list(map(_aval, values)) != self._avals:
                return None
            if self._all:
                return leaves, values
        except AttributeError:
            if not self._same_types(values):
                return None
            if self._all:
                return leaves, None
        for i, dtype, shape in self._arrays:
            if leaves[i].dtype != dtype or leaves[i].shape != shape:
                return None
        for i, value in self._fixed:
            if leaves[i] != value:
                return None
        return [leaves[i] for i in self._dynamic], None

    def _same_types(self, values: list[Any]) -> bool:
        """Whether these arrays, of NumPy or on a device, have the tensors' types."""
        for value, aval in zip(values, self._avals, strict=True):
            if type(value) is np.ndarray:
                if value.dtype != aval.dtype or value.shape != aval.shape:
                    return False
            elif getattr(value, "aval", None) != aval:
                return False
        return True
