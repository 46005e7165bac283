"""How far a step is from what this machine can do: the time of its products alone at the measured peak.

`of(module, precision, peaks)` gives the floating-point operations of a module's products, convolutions, attention and
recurrent layers (two for each multiply-add; a causal mask is not deducted), and the seconds they need at least. Whoever
makes all these multiplications cannot be faster; other algorithms (Winograd's) could.
"""

from __future__ import annotations

from typing import Any

from treadle.ir.node import Fn, Module
from treadle.ops._axes import node_flops

_PRODUCTS = ("product", "convolution", "attention", "recurrent")


def of(module: Module, precision: str, peaks: dict[str, float]) -> dict[str, float]:
    """flops, the peak in GFLOP/s of the precision in which they are made ("high": three products of bfloat16, or
    float32, whichever is faster), seconds. peaks: as limits.py measures them, before other threads are there."""
    flops = _flops(module.main, module)
    narrow = peaks.get("bf16_gflops", 0.0)
    peak = {"bf16": narrow, "high": max(narrow / 3, peaks["f32_gflops"])}.get(precision, 0.0) or peaks["f32_gflops"]
    return {"flops": flops, "peak_gflops": peak, "seconds": flops / peak / 1e9}


def shares(bound: dict[str, float], fastest: dict[str, float], peer: str | None) -> dict[str, Any]:
    """The bound with what part of it each side's fastest step reaches, and the ratio to the peer that would be all."""
    found: dict[str, Any] = {**bound, "share": {n: bound["seconds"] / t for n, t in fastest.items()}}
    if peer:
        found["most"] = fastest[peer] / bound["seconds"]
    return found


def line(found: dict[str, Any]) -> str:
    """What a table says about it."""
    parts = ", ".join(f"{name} {share:.0%}" for name, share in found["share"].items())
    most = f"; ratio to the best peer at the limit: {found['most']:.2f}" if "most" in found else ""
    limit = f"products alone: {found['seconds'] * 1e3:.4g} ms at {found['peak_gflops']:.0f} GFLOP/s"
    return f"{limit}; of this {parts}{most}"


def _flops(fn: Fn, module: Module) -> int:
    total = 0
    for node in fn.nodes:
        inner = [_flops(region, module) for _, region in node.regions()]
        if inner:
            total += max(inner) * int(node.attrs.get("length", 1))
        elif "callee" in node.attrs:
            total += _flops(module.fns[node.attrs["callee"]], module)
        elif _is_product(node.op.rules.get("group")):
            total += node_flops(node, module)
    return total


def _is_product(group: Any) -> bool:
    return isinstance(group, str) and group in _PRODUCTS
