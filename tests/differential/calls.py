"""A call of the comparison, how calls are drawn and kept in files, and the cotangents that all sides use.

A call is text, `td.sum(x, axis=a)`, with a value for each name in it; the peers' text stands beside it. `write` and
`read` keep lists of records (dicts of plain values and arrays) in one .npz: an index in JSON and the bytes of all
arrays. Needs NumPy only: the peers' environment has no Treadle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .draw import FLOATS, Draw, Narrow

Args = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One function: the text of the call on each side ("" where a side has none), how its arguments are drawn, the
    float types, how many calls, and the names that no gradient is taken for ("*": none at all)."""

    ours: str
    torch: str
    jax: str
    draw: Callable[[Draw], Args]
    types: tuple[str, ...] = FLOATS
    count: int = 8
    fixed: str = ""

    @property
    def name(self) -> str:
        return self.ours


def generate(entries: Iterable[Entry], seed: int) -> list[dict[str, Any]]:
    """The calls of all entries; those of one entry do not depend on the other entries."""
    calls = []
    for entry in entries:
        for number in range(entry.count):
            rng = np.random.default_rng([seed, number, *entry.ours.encode()])
            draw = Draw(rng, entry.types)
            args = entry.draw(draw)
            texts = {"ours": entry.ours, "torch": entry.torch, "jax": entry.jax}
            wrt = [k for k, v in args.items() if inexact(v) and k not in entry.fixed.split() and entry.fixed != "*"]
            calls.append({**texts, "number": number, "float": draw.float, "args": args, "wrt": wrt})
    return calls


def inexact(value: Any) -> bool:
    """An array of floats or complex numbers."""
    return isinstance(value, Narrow) or (isinstance(value, np.ndarray) and value.dtype.kind in "fc")


def cotangent(call: dict[str, Any], out: int, shape: tuple[int, ...], kind: str) -> Any:
    """The cotangent of a result, float64 or complex128; `kind`: "f" or "c"."""
    rng = np.random.default_rng([call["number"], out, *call["ours"].encode()])
    values = rng.standard_normal(shape)
    return np.asarray(values + 1j * rng.standard_normal(shape) if kind == "c" else values)


# --- files ------------------------------------------------------------------------------------------------------------


def write(path: Path, records: Any) -> None:
    """Write plain values, lists, dicts and arrays."""
    chunks: list[bytes] = []
    index = json.dumps(_index(records, chunks))
    data = np.frombuffer(b"".join(chunks), np.uint8)
    with path.open("wb") as file:
        np.savez_compressed(file, index=np.frombuffer(index.encode(), np.uint8), data=data)


def _index(value: Any, chunks: list[bytes]) -> Any:
    if isinstance(value, Narrow):
        return {"=narrow": _index(value.array, chunks)}
    if isinstance(value, np.ndarray):
        chunks.append(np.ascontiguousarray(value).tobytes())
        return {"=array": [value.dtype.name, list(value.shape)]}
    if isinstance(value, dict):
        return {k: _index(v, chunks) for k, v in value.items()}
    if isinstance(value, tuple):
        return {"=tuple": [_index(v, chunks) for v in value]}
    return [_index(v, chunks) for v in value] if isinstance(value, list) else value


def read(path: Path) -> Any:
    """What `write` wrote."""
    with np.load(path) as file:
        index, data = json.loads(file["index"].tobytes()), file["data"].tobytes()
    place = 0

    def value(x: Any) -> Any:
        nonlocal place
        if isinstance(x, list):
            return [value(v) for v in x]
        if not isinstance(x, dict):
            return x
        if "=narrow" in x:
            return Narrow(value(x["=narrow"]))
        if "=tuple" in x:
            return tuple(value(v) for v in x["=tuple"])
        if "=array" in x:
            name, shape = x["=array"]
            dtype = np.dtype(name)
            size = dtype.itemsize * int(np.prod(shape, dtype=int))
            place += size
            return np.frombuffer(data[place - size : place], dtype).reshape(shape).copy()
        return {k: value(v) for k, v in x.items()}

    return value(index)
