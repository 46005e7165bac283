"""Why Treadle differs from a peer on purpose: the reasons, and which disagreement has which.

A disagreement without a reason here is a fault of Treadle or of this comparison; `make differential` ends with 1 then.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Rule(NamedTuple):
    """Calls whose text starts with one of `calls` may differ from `peer` ("" for both) in `part`, for the reason."""

    reason: str
    calls: tuple[str, ...]
    part: str
    peer: str = ""


WHY = {
    "index type": "Indices are int32; PyTorch's and JAX's (in 64-bit mode) are int64.",
    "integer sums": "Running sums of integers are int64, as sums are in NumPy and PyTorch; JAX keeps int32.",
    "default type": "Floats made from nothing are float32; JAX in 64-bit mode makes float64.",
    "wide loss": "The loss of 16-bit logits is float32, so that it does not lose its digits.",
    "staircase": "The function has no derivative, and Treadle says so (E0303); PyTorch gives a gradient for x.",
    "kink": "At the ends of hardtanh the derivative is that of `clamp`, which lets it through; the peers give 0.",
    "sixth": "PyTorch multiplies by 1/6 rounded to float32, also in float64; JAX agrees with Treadle.",
    "one triangle": (
        "The function reads the lower triangle only, so the gradient of the rest is 0; the peers share it between both "
        "triangles. Along symmetric directions the two are the same."
    ),
    "rounding": (
        "In float32 or bfloat16 both sides lose digits, by cancellation. Treadle's error is at most twice the peer's, "
        "measured from the float64 answers to the same numbers, in which the two agree."
    ),
}  # fmt: skip
INDICES = (
    "td.argmax(", "td.argmin(", "td.argsort(", "td.topk(", "td.unique(", "td.argwhere(", "td.nonzero(",
    "td.searchsorted(", "td.bucketize(", "F.adaptive_max_pool2d(x, o, return_indices", "F.max_pool1d(x, k, s, p, 1",
    "F.max_pool2d(x, k, s, p, 1", "F.max_pool3d(x, k, s, p, 1",
)  # fmt: skip
RULES = (
    Rule("index type", INDICES, "dtype"),
    Rule("integer sums", ("td.cumsum(x, a)", "td.cumprod(x, a)"), "dtype", "jax"),
    Rule("default type", ("td.linspace(", "td.eye(", "td.full(", "T.fftfreq("), "dtype", "jax"),
    Rule("wide loss", ("F.cross_entropy(x, i",), "dtype"),
    Rule("staircase", ("td.nextafter(",), "no gradient"),
    Rule("kink", ("F.hardtanh(",), "gradient"),
    Rule("sixth", ("F.hardsigmoid(",), "gradient", "torch"),
    Rule("one triangle", ("L.cholesky(", "L.eigvalsh(", "td.abs(L.eigh("), "gradient"),
)


def why(call: dict[str, Any], peer: str, part: str, text: str) -> str:
    """The name of the reason of a disagreement, "" if there is none."""
    plain = part.removeprefix("rounding ")
    for rule in RULES:
        if call["ours"].startswith(rule.calls) and plain == rule.part and rule.peer in ("", peer):
            if rule.reason == "index type" and text != "int32 instead of int64":
                continue
            if rule.reason == "one triangle" and not text.startswith("for e:"):
                continue
            return rule.reason
    return "rounding" if part.startswith("rounding ") else ""
