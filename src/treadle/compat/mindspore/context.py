"""`set_context(mode=GRAPH_MODE | PYNATIVE_MODE, device_target=...)`: the mode is Treadle's; other settings are noted.

Devices: Treadle runs on the one its environment names; asking for another raises E0591. What has no meaning here
(paths, memory, debugging of the other runtime) is kept for `get_context` and changes nothing.
"""

from __future__ import annotations

from typing import Any

from treadle.api import context as base
from treadle.base.errors import UserError

GRAPH_MODE, PYNATIVE_MODE = base.GRAPH_MODE, base.PYNATIVE_MODE
STRICT, LAX = 0, 2  # syntax levels of the other compiler
_IGNORED = (
    "device_id", "save_graphs", "save_graphs_path", "max_device_memory", "enable_graph_kernel", "max_call_depth",
    "graph_kernel_flags", "reserve_class_name_in_scope", "enable_reduce_precision", "pynative_synchronize",
    "enable_compile_cache", "compile_cache_path", "runtime_num_threads", "memory_optimize_level", "memory_offload",
    "jit_config", "jit_level", "inter_op_parallel_num", "variable_memory_max_size", "auto_tune_mode", "check_bprop",
    "print_file_path", "env_config_path", "ascend_config", "gpu_config", "deterministic", "precompile_only",
    "jit_syntax_level",
)  # fmt: skip
_noted: dict[str, Any] = {}


def set_context(**settings: Any) -> None:
    """Choose the mode and note other settings. Raises E0591 for a setting that is unknown or cannot be met."""
    for name, value in settings.items():
        if name == "mode":
            base.set_context(mode=value)
        elif name == "device_target":
            set_device(value)
        elif name in _IGNORED:
            _noted[name] = value
        else:
            raise UserError("E0591", f"there is no setting {name!r}", fix="use mode= and device_target=")


def set_device(device_target: str, device_id: int | None = None) -> None:
    """Check that the device is the one Treadle runs on: "CPU", or "GPU" where TREADLE_PLATFORM chose one (E0591)."""
    current = _device()
    if device_target != current:
        fix = "the environment chooses the device: TREADLE_PLATFORM=cpu, cuda or tpu; leave device_target out"
        raise UserError("E0591", f"device_target is {device_target!r}, Treadle runs on {current}", fix=fix)


def get_context(attr_key: str) -> Any:
    """The value of a setting. Raises E0591 for an unknown one."""
    if attr_key == "mode":
        return base.get_context("mode")
    if attr_key == "device_target":
        return _device()
    if attr_key not in _IGNORED:
        raise UserError("E0591", f"there is no setting {attr_key!r}", fix="use 'mode' or 'device_target'")
    return _noted.get(attr_key)


def reset_auto_parallel_context() -> None:
    """Nothing to reset: programs run on one device."""


def set_auto_parallel_context(**settings: Any) -> None:
    """Only the stand-alone mode is there (E0591)."""
    if settings.get("parallel_mode", "stand_alone") != "stand_alone":
        why = f"parallel_mode is {settings['parallel_mode']!r}"
        raise UserError("E0591", why, fix="programs of treadle.compat.mindspore run on one device")


def _device() -> str:
    from treadle.runtime import pjrt

    platform = str(pjrt.default_device().platform).upper()
    return {"CUDA": "GPU", "ROCM": "GPU"}.get(platform, platform)


__all__ = [
    "GRAPH_MODE",
    "LAX",
    "PYNATIVE_MODE",
    "STRICT",
    "get_context",
    "reset_auto_parallel_context",
    "set_auto_parallel_context",
    "set_context",
    "set_device",
]
