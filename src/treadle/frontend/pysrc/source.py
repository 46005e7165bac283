"""The syntax tree of a function: `find(function)` gives its `def` or `lambda` node, or None where there is no source.

Files are read through `linecache`, which also knows notebook cells and doctests. A lambda is found by the columns that
its code object carries, so several may share a line. Source that no longer fits the code object is not used.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import threading
import types
from collections.abc import Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# Held while Python makes or reads a tree: 3.11 has one count of how deep it is for all threads, and raises SystemError
# where another one counts meanwhile (a garbage collection in between lets it, where it calls Python: XLA's does).
building = threading.RLock()
# Packages whose code is never rewritten (it holds no decisions on our tensors), and whose objects are no user's state.
_LIBRARIES = frozenset(
    {"treadle", "numpy", "ml_dtypes", "jax", "jaxlib", "torch", "scipy", "pytest", "_pytest", "pluggy", "hypothesis"}
)


@functools.lru_cache(maxsize=1 << 12)
def is_library(module: str) -> bool:
    """Whether a module, by its full name, is a library's or Python's own."""
    root = module.partition(".")[0]
    return root in _LIBRARIES or (root in sys.stdlib_module_names and root != "__main__")


def find(function: types.FunctionType) -> FunctionNode | None:
    """The node of a function, fresh for each call."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        return None
    try:
        with building:
            tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    found = [n for n in _functions(tree) if _first_line(n) == code.co_firstlineno and _is_of(n, code)]
    if isinstance(next(iter(found), None), ast.Lambda):
        found = sorted(found, key=_extent)
    return found[0] if found else None


def _functions(tree: ast.AST) -> Iterator[FunctionNode]:
    return (n for n in ast.walk(tree) if isinstance(n, FunctionNode))


def _first_line(node: FunctionNode) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *[d.lineno for d in decorators]])


def _is_of(node: FunctionNode, code: types.CodeType) -> bool:
    """Whether the code object was made of this node: same name, same parameters, positions inside."""
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    a = node.args
    named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]
    count = code.co_argcount + code.co_kwonlyargcount
    count += sum(bool(code.co_flags & flag) for flag in (0x04, 0x08))  # *args, **kwargs
    names = [_mangled_away(n) for n in code.co_varnames[:count]]
    if name != code.co_name or [_mangled_away(p.arg) for p in named] != names:
        return False
    start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    for line, last, column, last_column in code.co_positions():
        if line is None or column is None or last is None or last_column is None or (column, last_column) == (0, 0):
            continue
        if isinstance(node, ast.Lambda) and not (start <= (line, column) and (last, last_column) <= end):
            return False
    return isinstance(node, ast.Lambda) or (code.co_firstlineno <= node.lineno <= end[0])


def _mangled_away(name: str) -> str:
    """A private name without its class: `_Net__x` and `__x` are the same."""
    return name[name.index("__") :] if name.startswith("_") and "__" in name[1:] and not name.startswith("__") else name


def _extent(node: FunctionNode) -> tuple[int, int]:
    return ((node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset)


@functools.lru_cache(maxsize=256)
def class_of(qualname: str) -> str:
    """The class that a function was defined in, by its qualified name, "" for none: private names carry it."""
    parts = qualname.split(".")[:-1]
    return parts[-1].lstrip("_") if parts and parts[-1] != "<locals>" else ""
