"""Writes one of the bench's models as ONNX, from PyTorch with the bench's weights: what ONNX Runtime and OpenVINO read.

    onnx_export.py MODEL CHANGES FILE        run in the peers' environment; CHANGES as JSON

Inputs are called in0, in1; integers are int64. The batch size is fixed.
"""

from __future__ import annotations

import json
import sys

import torch
import torch_models
import weights as W


class Inference(torch.nn.Module):
    """`infer` of a model as the forward function, which is what the exporter takes."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.module.infer(*inputs)


def export(model: str, cfg: W.Config, path: str) -> None:
    """Write the model to `path`."""
    module = Inference(torch_models.module_of(model, cfg)).eval()
    inputs = torch_models.put(model, cfg, W.inputs(model, cfg))
    names = [f"in{i}" for i in range(len(inputs))]
    options = {"dynamo": True, "external_data": False, "verbose": False}
    torch.onnx.export(module, inputs, path, input_names=names, output_names=["out"], **options)


if __name__ == "__main__":
    model, changes, path = sys.argv[1:]
    export(model, W.config(model, **json.loads(changes)), path)
