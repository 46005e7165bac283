"""The single ops of the sweep, as numbers: `cases(kinds)` lists them, `operands(case, bf16)` makes their arrays.

A case is one call: a kind (gemm, conv, softmax, layer_norm, attention, lstm, reduce, chain), what of it is computed
(`form`), the shapes of its operands, attributes, and what it must at least do: floating-point operations and bytes.
treadle_ops.py, jax_ops.py and torch_ops.py compute them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import weights as W


@dataclass(frozen=True)
class Case:
    """form: forward, dgrad (of the first operand), wgrad (of the second) or both (result and all gradients)."""

    kind: str
    label: str
    form: str
    shapes: tuple[tuple[int, ...], ...]
    out: tuple[int, ...]
    flops: float
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the results are kept under."""
        return f"{self.kind} {self.label} {self.form}"

    def bytes(self, width: int) -> int:
        """Bytes that must be read and written once, elements of `width` bytes."""
        operands, out = sum(map(math.prod, self.shapes)), math.prod(self.out)
        if self.form == "forward":
            return width * (operands + out)
        if self.form == "both":
            return width * (2 * operands + 2 * out)
        return width * (operands + out)  # a gradient of one operand reads the result's gradient and the other operand

    def copies(self, width: int) -> int:
        """Operand sets that one call works on: so many that it takes about 0.2 ms, so that calling is not measured."""
        seconds = max(self.flops / 1e11, self.bytes(width) / 2e10)
        return max(1, min(16, round(2e-4 / seconds)))

    def as_dict(self) -> dict[str, Any]:
        """For a worker, as JSON."""
        return asdict(self)


def from_dict(given: dict[str, Any]) -> Case:
    """The case of `as_dict`."""
    return Case(**{**given, "shapes": tuple(map(tuple, given["shapes"])), "out": tuple(given["out"])})


def _gemm() -> Iterator[Case]:
    for n in (64, 128, 256, 512, 1024, 2048):
        yield Case("gemm", f"{n}x{n}x{n}", "forward", ((n, n), (n, n)), (n, n), 2.0 * n**3)
    yield Case("gemm", "127x65x129", "forward", ((127, 65), (65, 129)), (127, 129), 2.0 * 127 * 65 * 129)
    for label, k, n in (
        ("qkv", 512, 1536),
        ("out", 512, 512),
        ("up", 512, 2048),
        ("down", 2048, 512),
        ("logits", 512, 8192),
    ):
        for form in ("forward", "dgrad", "wgrad"):  # 1024 tokens, as in gpt_small
            yield Case("gemm", f"{label} 1024x{k}x{n}", form, ((1024, k), (k, n)), (1024, n), 2.0 * 1024 * k * n)
    for b, m, k, n in ((32, 256, 64, 256), (32, 256, 256, 64), (96, 128, 64, 128), (8, 512, 512, 512)):
        yield Case(
            "gemm", f"batch {b} of {m}x{k}x{n}", "forward", ((b, m, k), (b, k, n)), (b, m, n), 2.0 * b * m * k * n
        )


def _convolution(n_in: int, n_out: int, kernel: int, stride: int, image: int, groups: int = 1) -> Iterator[Case]:
    """The three forms at batch 8; the image is square, padding keeps its size at stride 1."""
    out = -(-image // stride)
    shapes = ((8, n_in, image, image), (n_out, n_in // groups, kernel, kernel))
    flops = 2.0 * 8 * out * out * n_out * (n_in // groups) * kernel * kernel
    attrs = {"stride": stride, "padding": kernel // 2, "groups": groups}
    more = (f" /{stride}" if stride > 1 else "") + (" depthwise" if groups > 1 else "")
    label = f"{n_in}-{n_out} {kernel}x{kernel}{more} @{image}"
    for form in ("forward", "wgrad") if n_in == 3 else ("forward", "dgrad", "wgrad"):
        yield Case("conv", label, form, shapes, (8, n_out, out, out), flops, attrs)


def _conv() -> Iterator[Case]:
    """Each shape of ResNet-50 and of MobileNetV2 once, at 224x224."""
    seen: dict[tuple[int, ...], None] = {(3, 64, 7, 2, 224, 1): None}
    image, cfg = 56, W.config("resnet50")
    for _, n_in, width, stride, down in W.resnet_blocks(cfg):
        seen[n_in, width, 1, 1, image, 1] = None
        seen[width, width, 3, stride, image, 1] = None
        if down:
            seen[n_in, 4 * width, 1, stride, image, 1] = None
        image //= stride
        seen[width, 4 * width, 1, 1, image, 1] = None
    seen[3, 32, 3, 2, 224, 1] = None
    image = 112
    for _, n_in, wide, n_out, stride in W.mobilenet_blocks():
        if wide != n_in:
            seen[n_in, wide, 1, 1, image, 1] = None
        seen[wide, wide, 3, stride, image, wide] = None
        image //= stride
        seen[wide, n_out, 1, 1, image, 1] = None
    seen[320, 1280, 1, 1, 7, 1] = None
    for sizes in seen:
        yield from _convolution(*sizes)


def _rows() -> Iterator[Case]:
    for kind, flops in (("softmax", 5.0), ("layer_norm", 8.0)):
        for rows, n in ((1024, 512), (1024, 768), (8192, 256), (1024, 8192), (64, 50257)):
            if kind == "layer_norm" and n > 8192:
                continue
            more = ((n,), (n,)) if kind == "layer_norm" else ()
            for form, times in (("forward", 1), ("both", 3)):
                yield Case(kind, f"{rows}x{n}", form, ((rows, n), *more), (rows, n), times * flops * rows * n)


def _attention() -> Iterator[Case]:
    for b, heads, t, d, causal in (
        (4, 8, 256, 64, True),
        (8, 12, 128, 64, False),
        (1, 8, 1024, 64, True),
        (1, 8, 2048, 64, True),
    ):
        shape, label = (b, heads, t, d), f"{b}x{heads}x{t}x{d}{' causal' if causal else ''}"
        flops = 4.0 * b * heads * t * t * d * (0.5 if causal else 1)
        for form, times in (("forward", 1.0), ("both", 3.5)):
            yield Case("attention", label, form, (shape,) * 3, shape, times * flops, {"causal": causal})


def _lstm() -> Iterator[Case]:
    for t, b, n in ((35, 20, 650), (64, 16, 256), (100, 1, 512)):
        shapes = ((t, b, n), (4 * n, n), (4 * n, n), (4 * n,), (4 * n,))
        for form, times in (("forward", 1), ("both", 3)):
            yield Case("lstm", f"{t}x{b}x{n}", form, shapes, (t, b, n), times * 16.0 * t * b * n * n)


def _reduce() -> Iterator[Case]:
    for op, axes, shape in (
        ("sum", None, (16384, 1024)),
        ("sum", [1], (16384, 1024)),
        ("sum", [0], (16384, 1024)),
        ("max", [1], (16384, 1024)),
        ("max", [0], (16384, 1024)),
        ("argmax", [1], (1024, 16384)),
        ("mean", [0, 2, 3], (16, 256, 56, 56)),
        ("var", [0, 2, 3], (16, 256, 56, 56)),
        ("sum", [1], (262144, 64)),
        ("sum", [2, 3], (8, 2048, 7, 7)),
    ):  # fmt: skip
        out = tuple(n for i, n in enumerate(shape) if axes is not None and i not in axes)
        label = f"{op} of {'x'.join(map(str, shape))} over {'all' if axes is None else ','.join(map(str, axes))}"
        yield Case("reduce", label, "forward", (shape,), out, float(math.prod(shape)), {"op": op, "axes": axes})


# name: (number of operands, of them rows that are broadcast, operations for an element)
CHAINS = {
    "add, relu": (2, 0, 2),
    "add a row, gelu": (2, 1, 12),
    "silu, multiply": (2, 0, 6),
    "scale and shift, add, relu": (4, 2, 4),
    "adam": (4, 0, 14),
    "gauss": (3, 0, 6),
}


def _chain() -> Iterator[Case]:
    for name, (count, rows, flops) in CHAINS.items():
        for n in (64, 8192):  # in the caches, and in memory
            shapes = ((n, 2048),) * (count - rows) + ((2048,),) * rows
            out = (3, n, 2048) if name == "adam" else (n, 2048)
            yield Case("chain", f"{name} {n}x2048", "forward", shapes, out, float(flops * n * 2048), {"chain": name})


_KINDS = {
    "gemm": _gemm,
    "conv": _conv,
    "rows": _rows,
    "attention": _attention,
    "lstm": _lstm,
    "reduce": _reduce,
    "chain": _chain,
}
KINDS = tuple(_KINDS)


def cases(kinds: tuple[str, ...] = KINDS) -> list[Case]:
    """All cases of these kinds (`rows`: softmax and layer norm)."""
    return [case for kind in kinds for case in _KINDS[kind]()]


def operands(case: Case, copy: int = 0) -> list[np.ndarray]:
    """The operands, then the gradient of the result where one is needed; float32, weights scaled by their fan in."""
    rng = np.random.default_rng([copy, *case.out])
    arrays = [rng.standard_normal(shape, np.float32) for shape in case.shapes]
    if case.kind == "conv":
        arrays[1] /= math.sqrt(math.prod(case.shapes[1][1:]))
    elif case.kind == "gemm":
        arrays[1] /= math.sqrt(case.shapes[1][-2])
    elif case.kind == "lstm":
        arrays[1:] = [a / math.sqrt(case.shapes[0][-1]) for a in arrays[1:]]
    elif case.attrs.get("chain") == "adam":
        arrays[3] = arrays[3] * arrays[3]  # the mean of squares
    if case.form != "forward":
        arrays.append(rng.standard_normal(case.out, np.float32))
    return arrays
