"""Whether the sides of a training step agree before they are timed: losses of three steps, gradients of the first.

The reference computes in float32. Float32 and "high" must come close to it; bf16 cannot, so Treadle's distance is held
against that of the peers which compute in bf16 too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 3
# Largest relative difference of a loss, and of all gradients together, from the reference. The second is Frobenius'
# norm of the difference over that of the reference. A peer's rounding may be larger: PyTorch's MobileNetV2 with
# channels last is 3.5 % off PyTorch's own without, where JAX is 0.2 %.
LOSS_RTOL = {"f32": 1e-3, "high": 1e-3, "bf16": 2e-2}
GRADIENT_RTOL = {"f32": 1e-2, "high": 1e-2}
PEERS_TIMES = 10
BF16_TIMES, BF16_PLUS = 1.5, 0.02  # Treadle's bf16 error may be the largest of the peers' times this, plus that


def evidence(sides: Sequence[Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Losses of STEPS steps of each side, which has made none so far, and the file with the first one's gradients."""
    out = {}
    for side in sides:
        path = folder / f"{side.side}{len(list(folder.iterdir()))}.npz"
        losses = side.losses(1)
        count = side.gradients(str(path))
        out[side.side] = {"losses": losses + side.losses(STEPS - 1), "gradients": path if count else None}
    return out


def agreement(
    found: dict[str, dict[str, Any]], reference: dict[str, Any], name: str, precision: dict[str, str], ours: str
) -> dict[str, Any]:
    """The verdict, with every number: `agree`, `losses`, relative differences of losses and gradients of each side.

    found: evidence per side; reference: that of the float32 side `name`; precision: of each side.
    """
    want = np.array(reference["losses"])
    far: dict[str, float] = {}
    wrong = []
    for side, it in found.items():
        far[side] = float(np.max(np.abs(np.array(it["losses"]) - want) / np.abs(want)))
        if not far[side] <= LOSS_RTOL[precision[side]]:  # a NaN, which compares false, fails
            wrong.append(f"losses of {side}: {it['losses']}, of {name}: {reference['losses']}")
    distance = {}
    if reference["gradients"] is not None:
        with np.load(reference["gradients"]) as right:
            distance = {side: gradient_distance(it["gradients"], right) for side, it in found.items()}
        wrong += [line for side in distance for line in judge(side, distance, precision, ours)]
    return {
        "reference": name,
        "losses": {side: it["losses"] for side, it in found.items()},
        "loss_difference": far,
        "gradient_difference": distance,
        "wrong": wrong,
        "agree": not wrong,
    }


def gradient_distance(path: Path | None, right: Any) -> dict[str, Any]:
    """{"all": difference of all gradients over the norm of all, "worst": [name, that of one parameter]}.

    A parameter's own difference is held against its own norm, or 1 % of the root mean square one if that is larger: the
    gradient of a bias in front of a batch norm is nothing but rounding.
    """
    if path is None:
        return {"all": float("nan"), "worst": ["no gradients", float("nan")]}
    with np.load(path) as left:
        if set(left.files) != set(right.files):
            odd = sorted(set(left.files) ^ set(right.files))
            return {"all": float("nan"), "worst": [f"names that the other lacks: {odd[:3]}", float("nan")]}
        norms = {n: float(np.linalg.norm(right[n].astype(np.float64))) for n in right.files}
        parts = {n: float(np.linalg.norm(left[n].astype(np.float64) - right[n])) for n in right.files}
    total = float(np.linalg.norm(list(norms.values())))
    floor = 0.01 * total / len(norms) ** 0.5
    shares = {n: parts[n] / max(norms[n], floor) for n in parts}
    name = max(shares, key=lambda n: shares[n])
    return {"all": float(np.linalg.norm(list(parts.values()))) / total, "worst": [name, shares[name]]}


def judge(side: str, distance: dict[str, dict[str, Any]], precision: dict[str, str], ours: str) -> list[str]:
    """What is wrong with the gradients of a side: a line, or nothing."""
    share = distance[side]["all"]
    if precision[side] in GRADIENT_RTOL:
        limit = GRADIENT_RTOL[precision[side]] * (1 if side == ours else PEERS_TIMES)
    elif side == ours:
        peers = [d["all"] for s, d in distance.items() if s != ours and precision[s] == precision[side]]
        if not peers:
            return [] if share <= 0.5 else [f"gradients of {side} are {share:.2g} off"]
        limit = BF16_TIMES * max(peers) + BF16_PLUS
    else:
        limit = 1.0  # a peer's own rounding; a broken one is further off
    worst = distance[side]["worst"]
    return [] if share <= limit else [f"gradients of {side} are {share:.2g} off (limit {limit:.2g}); worst {worst}"]


def folder() -> tempfile.TemporaryDirectory[str]:
    """A place for the gradients, which may take some hundred MB."""
    return tempfile.TemporaryDirectory(prefix="treadle-bench-")
