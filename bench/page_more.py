"""The parts of docs/bench.md about the front end, loops, depth and eager calls: result file -> lines of Markdown.

In these tables a ratio is Treadle's time divided by the other's: below 1, Treadle is faster.
"""

from __future__ import annotations

from typing import Any


def front_end(size: dict[str, Any]) -> list[str]:
    """Seconds from Python to optimised IR."""
    lines = ["", "## Front end", "", "| training step | trace and differentiate | optimise | nodes after | goal |"]
    lines += ["|---|---|---|---|---|"]
    for name, model in size["models"].items():
        best = min((run["first"] for run in model["all"]), key=lambda r: r["trace_s"] + r["optimise_s"])
        numbers = f"{best['trace_s']:.2f} s | {best['optimise_s']:.2f} s | {best['nodes_optimised']:,}"
        lines.append(f"| {name} | {numbers} | 1.5 s for both |")
    return lines


def start(found: dict[str, Any]) -> list[str]:
    """Seconds of the import."""
    text = f"`import treadle` takes {found['treadle_s']:.3f} s after NumPy's {found['numpy_s']:.3f} s"
    return ["", f"{text} (goal: 0.15 s together)."]


def loops(result: dict[str, Any]) -> list[str]:
    """One row for each case: the first side to the last one, by time and by temporary memory."""
    out = ["", "## Gradients of loops, float32: time of Treadle's `while` to JAX's scan", ""]
    out += [f"Load average before the run {result['load_before']:.1f}.", ""]
    out += ["| case | time by medians (minima) | goal | temporary memory |", "|---|---|---|---|"]
    for name, case in result["cases"].items():
        if "ratio" in case:
            ratio, memory = case["ratio"]["treadle while"], case["goals"]["temporaries"]["ratio"]
            limit = next(g["limit"] for n, g in case["goals"].items() if n != "temporaries")
            out.append(f"| {name} | {ratio['median']:.2f} ({ratio['min']:.2f}) | {limit} | {memory:.2f} |")
    long = result["cases"]["10,000 steps beside 10"]["goals"]
    compile_, nodes = long["compile"]["ratio"], long["nodes"]["ratio"]
    out += ["", f"A gradient of a scan of 10,000 steps beside one of 10: {compile_:.2f} times the time to compile,"]
    return [*out, f"{nodes:.2f} times the nodes (goal: 1.1)."]


def depth(result: dict[str, Any]) -> list[str]:
    """One row for each depth: compile time in parts and as one program, and the steps' ratio, in CPU seconds."""
    out = ["", "## Depth: GPT training steps of equal layers, in parts and as one program", ""]
    out += [f"CPU seconds on all cores; load average before the run {result['load_before']:.1f}.", ""]
    out += ["| width | layers | programs (runs) | compile | as one | step to one program (clock, medians) | peak MiB |"]
    out += ["|---|---|---|---|---|---|---|"]
    after = []
    for width, found in result["widths"].items():
        for row in found["rows"]:
            parts, whole, steps = row["compile"]["parts"], row["compile"]["whole"], row["steps"]
            made, ratio = steps["programs"]["parts"], steps["ratio"]
            out.append(
                f"| {width} | {row['layers']} | {made['programs']} ({made['runs']}) | {parts['cpu_s']:.1f} s "
                f"| {whole['cpu_s']:.1f} s | {ratio['cpu_s_min']:.2f} ({ratio['wall_s_median']:.2f}) "
                f"| {parts['peak_mib']:.0f}, {whole['peak_mib']:.0f} |"
            )
        first, last, growth = found["rows"][0]["layers"], found["rows"][-1]["layers"], found["growth"]
        after += ["", f"Width {width}: {last} layers compile in {growth['parts_cpu_s']:.2f} times the time of {first};"]
        after += [f"as one program {growth['whole_cpu_s']:.2f} times (goal: {found['goals']['compile']['limit']})."]
    return out + after


def eager(result: dict[str, Any]) -> list[str]:
    """One row for each op: time to PyTorch (to NumPy) at each size."""
    sizes = sorted({int(n) for rows in result["cases"].values() for n in rows} - {8})
    out = ["", "## Eager calls, float32: time to PyTorch (to NumPy), by number of elements", ""]
    out += ["| op | " + " | ".join(f"{n:,}" for n in sizes) + " | goal |", "|---|" + "---|" * (len(sizes) + 1)]
    for case, rows in result["cases"].items():
        goal = result["goals"].get(case, "")
        if "8" in rows:
            out.append(f"| {case}, batch of 8 | {_pair(rows['8'])} |" + " |" * len(sizes))
        else:
            out.append(f"| {case} | " + " | ".join(_pair(rows[str(n)]) for n in sizes) + f" | {goal} |")
    return out


def _pair(row: dict[str, Any]) -> str:
    ratio = row["ratio"]
    return f"{ratio['torch']:.2f}" + (f" ({ratio['numpy']:.2f})" if "numpy" in ratio else "")


PARTS = {"frontend_size": front_end, "import_time": start, "loops": loops, "depth": depth, "eager_ops": eager}
