"""The text of docs/differential.md, made from the summary of a run."""

from __future__ import annotations

from typing import Any

HEAD = """# The same calls in PyTorch and JAX

Written by `make differential`.

Random calls of the public functions are run in Treadle, in PyTorch {torch} and in JAX {jax} (with 64-bit numbers on),
on the CPU, and compared: values, shapes, dtypes, and the gradients of a random cotangent for every float argument.
Shapes have 0 to 4 axes, some of them empty or of size 1, and broadcast; numbers are float32, float64 and bfloat16,
complex and integer where a function takes them. Numbers must agree, relative to the largest of the array, to 1e-9 in
float64, 1e-4 in float32 and 0.04 in bfloat16; NaN and infinities must stand at the same places. The calls are in
[tests/differential](../tests/differential); a sample of them with the peers' answers runs in `make test`.

*answered*: calls that a peer has and accepts. *gradients*: calls for which a peer gave gradients to compare.
"""


def page(summary: dict[str, Any], why: dict[str, str]) -> str:
    """The page; `summary` as `run.compared` gives it with seed and versions, `why`: the texts of the reasons."""
    keys = ("calls", "answered", "gradients", "torch", "torch agrees", "jax", "jax agrees")
    titles = ("calls", "answered", "gradients", "in PyTorch", "agree", "in JAX", "agree")
    rows = [["functions", *titles], ["---", *["---:"] * len(keys)]]
    totals = dict.fromkeys(keys, 0)
    for name, counts in summary["groups"].items():
        rows.append([name, *[str(counts.get(k, 0)) for k in keys]])
        for k in keys:
            totals[k] += counts.get(k, 0)
    rows.append(["all", *[str(totals[k]) for k in keys]])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    lines = [HEAD.format(**summary["versions"]), table, "", "## Disagreements", ""]
    count = sum(summary["explained"].values())
    missing = len(summary["unexplained"])
    lines.append(
        f"{count} have an explanation, {missing} have none. One call may disagree with both peers, or in two parts.\n"
    )
    lines += ["| reason | disagreements | why | one of them |", "|---|---:|---|---|"]
    for name, number in sorted(summary["explained"].items(), key=lambda item: -item[1]):
        example = summary["examples"][name].replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {name} | {number} | {why[name]} | `{example}` |")
    if missing:
        lines += ["", "Not explained:", ""]
        lines += [
            f"* `{call}` number {n}, {kind}, {peer}, {part}: {text}"
            for call, n, kind, peer, part, text in summary["unexplained"]
        ]
    return "\n".join(lines) + "\n"
