"""Runs calls on Treadle and compares with the peers' answers: values, shapes, dtypes, gradients.

`faults_of(call, answers)` gives the disagreements of one call as (peer, part, text); part is "value", "dtype",
"gradient", "no gradient" (Treadle has none) or "refused"; "rounding value" and "rounding gradient": see
`_only_rounding`. Numbers are compared relative to the largest of the array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import treadle as td

from .calls import cotangent
from .draw import Narrow

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.04}
NAMES: dict[str, Any] = {"td": td, "F": td.nn.functional, "L": td.linalg, "T": td.fft}
Fault = tuple[str, str, str]


def put(value: Any) -> Any:
    """An argument as Treadle takes it."""
    if isinstance(value, Narrow):
        return td.tensor(value.array, dtype=td.bfloat16)
    return td.tensor(value) if isinstance(value, np.ndarray) else value


def get(tensor: Any) -> Any:
    array = tensor.numpy()
    return Narrow(array.astype(np.float32)) if array.dtype.name == "bfloat16" else array


def flat(result: Any) -> list[Any]:
    return [x for part in result for x in flat(part)] if isinstance(result, tuple | list) else [result]


def answer(call: dict[str, Any]) -> dict[str, Any]:
    """Treadle's answer, in the form of the peers'."""
    args = {k: put(v) for k, v in call["args"].items()}
    outs = flat(eval(call["ours"], {**NAMES, **args}))
    moving = [i for i, o in enumerate(outs) if o.dtype.is_inexact]
    result: dict[str, Any] = {"outs": [get(o) for o in outs], "grads": {}}
    if not moving or not call["wrt"]:
        return result

    def run(*values: Any) -> Any:
        found = flat(eval(call["ours"], {**NAMES, **args, **dict(zip(call["wrt"], values))}))
        return tuple(found[i] for i in moving)

    try:
        pushed, pull = td.vjp(run, *[args[n] for n in call["wrt"]])
    except td.UserError as error:
        if error.code != "E0303":
            raise
        return {**result, "grads": str(error)}
    cts = [cotangent(call, i, tuple(o.shape), o.dtype.kind) for i, o in zip(moving, pushed)]
    grads = pull(tuple(td.tensor(c, dtype=o.dtype) for c, o in zip(cts, pushed)))
    result["grads"] = {n: get(g) for n, g in zip(call["wrt"], flat(grads))}
    return result


def faults_of(call: dict[str, Any], answers: dict[str, Any]) -> Iterator[Fault]:
    """What differs from each peer that answered."""
    peers = {k: v for k, v in answers.items() if "error" not in v}
    if not peers:
        return
    try:
        found = answer(call)
    except (td.UserError, TypeError, ValueError) as error:
        for peer in peers:
            yield peer, "refused", f"{type(error).__name__}: {error}"
        return
    best = None
    for peer, wanted in peers.items():
        for fault, places in _faults(peer, call, found, wanted):
            if places is not None and call["float"] != "float64":
                best = best or answer(widened(call))
                if _only_rounding(*(_pick(side, *places) for side in (best, found, wanted))):
                    fault = (peer, f"rounding {fault[1]}", fault[2])
            yield fault


def widened(call: dict[str, Any]) -> dict[str, Any]:
    """The call with the same numbers in float64 and complex128."""
    args = {k: v.array.astype(np.float64) if isinstance(v, Narrow) else v for k, v in call["args"].items()}
    wide = {np.dtype("float32"): np.float64, np.dtype("complex64"): np.complex128}
    args = {k: v.astype(wide.get(v.dtype, v.dtype)) if isinstance(v, np.ndarray) else v for k, v in args.items()}
    return {**call, "args": args, "float": "float64"}


def _pick(side: dict[str, Any], part: str, key: Any) -> Any:
    return _wide(side[part][key])


def _only_rounding(best: Any, found: Any, wanted: Any) -> bool:
    """Whether ours is about as near to the float64 answer as the peer's, or nearer."""
    if best.shape != found.shape or not all(np.all(np.isfinite(x)) for x in (best, found, wanted)):
        return False
    ours, theirs = (float(np.max(np.abs(x - best), initial=0.0)) for x in (found, wanted))
    return ours <= 2 * theirs


Located = tuple[Fault, tuple[str, Any] | None]


def _faults(peer: str, call: dict[str, Any], found: dict[str, Any], wanted: dict[str, Any]) -> Iterator[Located]:
    """The faults, with the places of numbers that differ."""
    if len(found["outs"]) != len(wanted["outs"]):
        yield (peer, "value", f"{len(found['outs'])} results instead of {len(wanted['outs'])}"), None
        return
    for i, (a, b) in enumerate(zip(found["outs"], wanted["outs"])):
        if _name(a) != _name(b):
            yield (peer, "dtype", f"{_name(a)} instead of {_name(b)}"), None
        difference = differs(a, b, call["float"])
        if difference:
            yield (peer, "value", difference), ("outs", i)
    if isinstance(wanted["grads"], str):
        return
    if isinstance(found["grads"], str):
        yield (peer, "no gradient", found["grads"]), None
        return
    for name, b in wanted["grads"].items():
        if name not in found["grads"]:
            if np.any(_wide(b)):
                yield (peer, "gradient", f"none for {name}"), None
            continue
        difference = differs(found["grads"][name], b, call["float"])
        if difference:
            yield (peer, "gradient", f"for {name}: {difference}"), ("grads", name)


def _name(array: Any) -> str:
    return "bfloat16" if isinstance(array, Narrow) else str(array.dtype.name)


def _wide(array: Any) -> Any:
    array = array.array if isinstance(array, Narrow) else np.asarray(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def differs(found: Any, wanted: Any, kind: str) -> str:
    """ "" when the numbers agree; else how they differ. NaN and infinities must stand at the same places."""
    a, b = _wide(found), _wide(wanted)
    if a.shape != b.shape:
        return f"shape {a.shape} instead of {b.shape}"
    if not a.size:
        return ""
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return f"{_short(a)} instead of {_short(b)}"
    scale = max(float(np.max(np.abs(b[finite]), initial=0.0)), 1e-3)
    error = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / scale
    return f"by {error:.1e}: {_short(a)} instead of {_short(b)}" if error > TOLERANCE[kind] else ""


def _short(array: Any) -> str:
    return np.array2string(array.reshape(-1)[:6], precision=4)
