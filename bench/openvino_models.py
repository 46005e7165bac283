"""The bench's models in OpenVINO, from the ONNX file that cfg["onnx"] names; inference in float32 or bfloat16."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import openvino
import weights as W

_PRECISIONS = {"f32": "f32", "bf16": "bf16"}


def inference(model: str, cfg: W.Config) -> Callable[..., np.ndarray]:
    """The compiled model's function from a batch's inputs to the result. Raises RuntimeError for another precision.

    OpenVINO computes in bfloat16 by itself where the processor has it, so float32 must be asked for.
    """
    if cfg["precision"] not in _PRECISIONS:
        raise RuntimeError(f"precision {cfg['precision']!r}: OpenVINO has f32 and bf16")
    core = openvino.Core()
    config = {"INFERENCE_PRECISION_HINT": _PRECISIONS[cfg["precision"]], "PERFORMANCE_HINT": "LATENCY"}
    if threads := os.environ.get("BENCH_THREADS"):
        config["INFERENCE_NUM_THREADS"] = threads
    made = core.compile_model(cfg["onnx"], "CPU", config)
    return lambda *inputs: made(inputs)[0]  # type: ignore[no-any-return]


def put(model: str, cfg: W.Config, arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The inputs; integers as int64."""
    return tuple(a.astype(np.int64) if a.dtype.kind == "i" else a for a in arrays)


def wait(values: Any) -> Any:
    """The same values: a call returns when it is done."""
    return values


def versions() -> dict[str, str]:
    """The version of this side."""
    return {"openvino": openvino.__version__}
