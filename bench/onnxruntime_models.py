"""The bench's models in ONNX Runtime, from the ONNX file that cfg["onnx"] names; inference in float32 on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import weights as W


def inference(model: str, cfg: W.Config) -> Callable[..., np.ndarray]:
    """The session's function from a batch's inputs to the result."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("BENCH_THREADS", 0))
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    session = onnxruntime.InferenceSession(cfg["onnx"], options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))[0]  # type: ignore[no-any-return]


def put(model: str, cfg: W.Config, arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The inputs; integers as int64."""
    return tuple(a.astype(np.int64) if a.dtype.kind == "i" else a for a in arrays)


def wait(values: Any) -> Any:
    """The same values: a call returns when it is done."""
    return values


def versions() -> dict[str, str]:
    """The version of this side."""
    return {"onnxruntime": onnxruntime.__version__}
