"""Checkpoints: `save_checkpoint`, `load_checkpoint`, `load_param_into_net`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.compat.mindspore._missing import not_covered
from treadle.compat.mindspore._tensor import Parameter
from treadle.compat.mindspore.train import _files
from treadle.frontend import tensor as base
from treadle.nn import cell as base_cell


def _named(save_obj: Any) -> dict[str, Any]:
    """Arrays by name of a cell, of a list of {"name": ..., "data": ...}, or of a dict."""
    if isinstance(save_obj, base_cell.Cell):
        return {p.name: p.numpy() for p in save_obj.parameters()}
    if isinstance(save_obj, Mapping):
        return {name: _array(value) for name, value in save_obj.items()}
    if isinstance(save_obj, list | tuple) and all(isinstance(item, Mapping) for item in save_obj):
        return {item["name"]: _array(item["data"]) for item in save_obj}
    why = f"a {type(save_obj).__name__} cannot be saved"
    raise UserError("E0606", why, fix='give a Cell, a dict, or a list of {"name": ..., "data": ...}')


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, base.Tensor) else np.asarray(value)


def _path(name: Any, suffix: str = ".ckpt") -> Path:
    if not isinstance(name, str | os.PathLike):
        raise UserError("E0605", f"the file is {name!r}", fix="give its name")
    path = Path(name)
    return path if path.suffix == suffix else path.with_name(path.name + suffix)


def save_checkpoint(
    save_obj: Any,
    ckpt_file_name: Any,
    integrated_save: bool = True,
    async_save: bool = False,
    append_dict: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write parameters by name to a file in MindSpore's format, in one step; ".ckpt" is added where it is missing.

    append_dict: numbers, strings excepted, to be saved with them. Raises E0606 for what cannot be saved.
    """
    if unknown := [k for k, v in options.items() if v not in (None, False, "ckpt", "AES-GCM")]:
        not_covered(f"save_checkpoint with {', '.join(unknown)}", "leave it out")
    arrays = _named(save_obj)
    for name, value in (append_dict or {}).items():
        if isinstance(value, str):
            raise UserError("E0606", f"append_dict[{name!r}] is a text", fix="append numbers and tensors")
        arrays[name] = _array(value)
    path = _path(ckpt_file_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(_files.write(arrays))
    os.replace(partial, path)


def load_checkpoint(
    ckpt_file_name: Any,
    net: Any = None,
    strict_load: bool = False,
    filter_prefix: Any = None,
    dec_key: Any = None,
    dec_mode: str = "AES-GCM",
    specify_prefix: Any = None,
) -> dict[str, Any]:
    """Parameters by name of a file in MindSpore's format; put into `net` too if one is given.

    filter_prefix, specify_prefix: beginnings of names to leave out, or to take only. Raises E0608 where there is no
    file, E0603 for a damaged one.
    """
    if dec_key is not None:
        not_covered("load_checkpoint of encrypted files", "decrypt it first")
    path = _path(ckpt_file_name)
    if not path.is_file():
        raise UserError("E0608", f"there is no checkpoint {path}", fix="give the file that was saved")
    found = _files.read(path.read_bytes())
    out, only = _prefixes(filter_prefix), _prefixes(specify_prefix)
    found = {k: v for k, v in found.items() if not k.startswith(out) and (not only or k.startswith(only))}
    made = {name: Parameter(array, name) for name, array in found.items()}
    if net is not None:
        load_param_into_net(net, made, strict_load)
    return made


def _prefixes(given: Any) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def load_param_into_net(
    net: Any, parameter_dict: Mapping[str, Any], strict_load: bool = False
) -> tuple[list[str], list[str]]:
    """Give the parameters of a cell the values of their names: (names that got none, names nobody has).

    Raises E0523 for values of another shape, or, if strict_load, of another type; without it they are cast.
    """
    own = net.parameters_dict()
    known = {name: p for name, p in own.items() if name in parameter_dict}
    wrong = [
        f"{name} is {p.type}, the file has {parameter_dict[name].type}"
        for name, p in known.items()
        if parameter_dict[name].shape != p.shape or (strict_load and parameter_dict[name].dtype is not p.dtype)
    ]
    if wrong:
        raise UserError("E0523", f"the parameters do not fit: {', '.join(wrong[:8])}", fix="load the file of this net")
    for name, p in known.items():
        p.assign(parameter_dict[name])
    return [n for n in own if n not in known], [n for n in parameter_dict if n not in own]


def export(net: Any, *inputs: Any, file_name: str, file_format: str = "MINDIR", **options: Any) -> Path:
    """Not covered: raises E0592."""
    not_covered("export", "use treadle.export.onnx.to_onnx(td.trace_module(net, *inputs)), or save_checkpoint")


__all__ = ["export", "load_checkpoint", "load_param_into_net", "save_checkpoint"]
