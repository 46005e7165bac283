"""Checkpoints: a folder with safetensors files and `manifest.json`, which holds a SHA-256 of each tensor's bytes.

Data files are named by their content and the manifest is replaced last, in one step: whenever a save is cut off, the
folder holds the old checkpoint or the new one. Loading verifies every byte before anything is changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend.create import default_generator
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Cell
from treadle.optim.optimizer import Optimizer

FORMAT = 1
MANIFEST = "manifest.json"
_NAMES = {  # element types of the file format
    "BOOL": dtypes.bool_, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds: the number of steps done, what the caller added, and tensors by part and name."""

    step: int
    extra: dict[str, Any]
    parts: dict[str, dict[str, np.ndarray[Any, Any]]] = field(repr=False)
    rng: dict[str, Any] | None = None


def save(
    path: str | Path,
    net: Cell,
    optimizer: Optimizer | None = None,
    extra: Mapping[str, Any] | None = None,
    step: int = 0,
) -> Path:
    """Write a checkpoint to the folder `path`, in place of the one that is there; returns the folder.

    extra: anything that JSON can hold (a loader's or schedule's state). The state of the default random generator is
    saved too. Raises E0605 for a path that is no folder, E0606 for what cannot be saved.
    """
    folder = _folder(path)
    if not isinstance(net, Cell):
        raise UserError("E0606", f"net is {arguments.brief(net)}, not a cell", fix="pass the td.Cell to be saved")
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise UserError("E0606", f"the optimiser is {arguments.brief(optimizer)}", fix="pass the optimiser itself")
    if folder.exists() and not folder.is_dir():
        raise UserError("E0605", f"{folder} is a file", fix="give the name of a folder")
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Mapping[str, Tensor]] = {"model": net.state_dict()}
    if optimizer is not None:
        parts["optimizer"] = optimizer.state_dict()
    body: dict[str, Any] = {"format": FORMAT, "step": int(step), "extra": dict(extra or {}), "parts": {}}
    body["rng"] = {"key": default_generator.key.tolist(), "counter": default_generator.counter.item()}
    try:
        _to_json(body)
    except (TypeError, ValueError) as error:
        why = f"extra cannot be written as JSON: {error}"
        raise UserError("E0606", why, fix="use numbers, texts, lists and dicts") from None
    for name, tensors in parts.items():
        body["parts"][name] = _write_part(folder, name, tensors)
    text = _to_json({"sha256": hashlib.sha256(_to_json(body).encode()).hexdigest(), **body})
    _replace(folder / MANIFEST, text.encode())
    _sync(folder)
    keep = {part["file"] for part in body["parts"].values()} | {MANIFEST}
    for old in folder.iterdir():
        if old.name not in keep and (old.suffix == ".safetensors" or old.name.endswith(".partial")):
            old.unlink()
    return folder


def load(
    path: str | Path, net: Cell | None = None, optimizer: Optimizer | None = None, restore_rng: bool = True
) -> Checkpoint:
    """Verify the checkpoint in the folder `path`, then put its state into `net` and `optimizer`; all or nothing.

    Raises E0608 where there is none, E0603 when it is damaged, E0604 when it is of another model or optimiser (with the
    differences), E0607 for a newer format.
    """
    checkpoint = read(path)
    targets: list[tuple[str, Any]] = [("model", net), ("optimizer", optimizer)]
    for name, target in targets:
        if target is not None:
            _compare(path, name, target.state_dict(), checkpoint.parts.get(name))
    for name, target in targets:
        if target is not None:
            target.load_state_dict(checkpoint.parts[name])
    if restore_rng and checkpoint.rng is not None:
        default_generator.key.assign(np.array(checkpoint.rng["key"], np.uint32))
        default_generator.counter.assign(np.array(checkpoint.rng["counter"], np.uint32))
    return checkpoint


def read(path: str | Path) -> Checkpoint:
    """The verified contents of the folder `path`, as NumPy arrays. Raises E0603, E0607, E0608."""
    folder = _folder(path)
    body = _read_manifest(folder)
    parts = {name: _read_part(folder / part["file"], part["tensors"]) for name, part in body["parts"].items()}
    return Checkpoint(body["step"], body["extra"], parts, body["rng"])


def _folder(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise UserError("E0605", f"the folder is {arguments.brief(path)}", fix="give its name")
    return Path(path)


# ------------------------------------------------------------------------------------------------------------ writing
def _write_part(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write one safetensors file; the part's entry in the manifest."""
    from safetensors.numpy import save as serialize

    arrays = {k: np.ascontiguousarray(t.numpy()).reshape(t.shape) for k, t in tensors.items()}
    for k, a in arrays.items():
        if dtypes.of(a.dtype) not in _NAMES.values():
            why = f"{name} {k} is {a.dtype.name}, which the file format lacks"
            raise UserError("E0606", why, fix="save its real and imaginary parts")
    facts = {k: {"dtype": a.dtype.name, "shape": list(a.shape), "sha256": _hash(a)} for k, a in arrays.items()}
    data = serialize(arrays)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    file = f"{name}-{digest[:16]}.safetensors"
    _replace(folder / file, data)
    return {"file": file, "tensors": facts}


def _hash(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def _to_json(body: Any) -> str:
    return json.dumps(body, indent=1, sort_keys=True, allow_nan=False)


def _replace(file: Path, data: bytes) -> None:
    """Give the file new contents in one step, on disk before the name points to them."""
    partial = file.with_name(f"{file.name}.{secrets.token_hex(4)}.partial")
    with open(partial, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.replace(partial, file)


def _sync(folder: Path) -> None:
    """Bring the folder's list of names to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------------------------------------------------ reading
def _damaged(file: Path, why: str) -> UserError:
    return UserError("E0603", f"the checkpoint is damaged: {file}: {why}", fix="use another checkpoint")


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    if not file.is_file():
        raise UserError("E0608", f"there is no checkpoint in {folder}", fix="give the folder that was saved to")
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        found = body.pop("sha256")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _damaged(file, f"it cannot be read: {error}") from None
    if hashlib.sha256(_to_json(body).encode()).hexdigest() != found:
        raise _damaged(file, "its SHA-256 is not the one it names")
    if body["format"] > FORMAT:
        why = f"{file} has format {body['format']}, this version reads up to {FORMAT}"
        raise UserError("E0607", why, fix="install a newer treadle")
    return body  # type: ignore[no-any-return]


def _read_part(file: Path, facts: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    import safetensors

    parse: Any = safetensors.deserialize
    if not file.is_file():
        raise _damaged(file, "the file is missing")
    try:
        entries = dict(parse(file.read_bytes()))
    except safetensors.SafetensorError as error:
        raise _damaged(file, str(error)) from None
    if entries.keys() != facts.keys():
        raise _damaged(file, f"its tensors are not those of the manifest: {sorted(entries.keys() ^ facts.keys())[:5]}")
    arrays = {}
    for name, fact in facts.items():
        entry = entries[name]
        dtype = _NAMES.get(entry["dtype"])
        if dtype is None or dtype.name != fact["dtype"] or list(entry["shape"]) != fact["shape"]:
            found = f"{entry['dtype']}{list(entry['shape'])}"
            raise _damaged(file, f"{name} is {found}, not {fact['dtype']}{fact['shape']}")
        if hashlib.sha256(entry["data"]).hexdigest() != fact["sha256"]:
            raise _damaged(file, f"the bytes of {name} are not those that were saved")
        arrays[name] = np.frombuffer(bytes(entry["data"]), dtype.np).reshape(fact["shape"])
    return arrays


def _compare(path: str | Path, part: str, own: Mapping[str, Tensor], found: Mapping[str, Any] | None) -> None:
    """Raise E0604 with the differences between what the target holds and what the checkpoint does."""
    if found is None:
        raise UserError("E0604", f"{path} holds no {part}", fix="load without it, or save it too")
    types = {k: f"{dtypes.of(a.dtype)}[{','.join(map(str, a.shape))}]" for k, a in found.items()}
    wrong = [f"{k} is {t.type} here, not in the checkpoint" for k, t in own.items() if k not in types]
    wrong += [f"{k} is {t} in the checkpoint, not here" for k, t in types.items() if k not in own]
    both = [(k, str(t.type), types[k]) for k, t in own.items() if k in types]
    wrong += [f"{k} is {here} here, {there} in the checkpoint" for k, here, there in both if here != there]
    if wrong:
        more = f"\n  and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        why = f"{path} is of another {part}:\n  " + "\n  ".join(wrong[:10]) + more
        raise UserError("E0604", why, fix="build the model as it was when it was saved")
