"""`Host`: a Python function as an attribute of a node. It has a number of its own, by which texts and keys tell it from
others; it belongs to this process, so that IR with one can be printed, not read back or saved.
"""

from __future__ import annotations

import itertools
import json
import threading
import weakref
from collections.abc import Callable
from typing import Any


class Host:
    """A Python function of NumPy arrays. Make it by `Host.of`."""

    __slots__ = ("__weakref__", "function", "name", "number")

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function, self.name, self.number = function, name, next(_numbers)

    @staticmethod
    def of(function: Callable[..., Any], name: str) -> Host:
        """The one for this function: equal functions share it, so that a function traced again gives equal IR."""
        try:
            with _lock:
                found = _known.get(function)
                if found is None:
                    found = _known[function] = Host(function, name)
                return found
        except TypeError:  # it cannot be hashed
            return Host(function, name)

    def __str__(self) -> str:
        return f"host({json.dumps(self.name)}, {self.number})"

    __repr__ = __str__


_numbers = itertools.count(1)
_lock = threading.Lock()
_known: weakref.WeakValueDictionary[Callable[..., Any], Host] = weakref.WeakValueDictionary()
