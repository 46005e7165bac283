"""`make differential`: draws all calls, asks the peers, compares, writes docs/differential.md and summary.json.

    python -m tests.differential.run [--seed 1] [--folder runs/differential] [--golden]

The peers' Python is BENCH_PEERS_PYTHON or .venv-peers/bin/python (`make bench-peers`). Calls and answers stay in the
folder; answers of calls that are the same are taken from there. --golden writes golden.npz, the sample that
test_differential.py runs. Ends with 1 when a disagreement has no explanation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from . import library, places, plain, spatial
from .calls import generate, read, write
from .compare import faults_of, widened
from .explained import WHY, why
from .page import page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEERS = ("torch", "jax")
GROUPS = {
    "elementwise": plain.elementwise, "reductions": plain.reductions, "shapes and indexing": plain.shapes,
    "products": plain.products, "activations, distances": library.activations,
    "convolution, pooling, padding": library.windows, "norms, attention, embedding": library.norms,
    "losses": library.losses, "linear algebra": library.linalg, "Fourier transforms": library.fourier,
    "scatters": places.scatters, "segments, sets, searches": places.sets, "more linear algebra": places.linalg,
    "resizing, transposed convolution": spatial.resizing, "patches, sampling, unpooling": spatial.patches,
    "bags, rarer losses": spatial.losses,
}  # fmt: skip


def all_calls(seed: int) -> list[dict[str, Any]]:
    return [{"group": name, **call} for name, entries in GROUPS.items() for call in generate(entries(), seed)]


def peers_python() -> Path:
    path = Path(os.environ.get("BENCH_PEERS_PYTHON") or ROOT / ".venv-peers" / "bin" / "python")
    if not path.exists():
        raise SystemExit(f"there is no {path}: run `make bench-peers` or set BENCH_PEERS_PYTHON")
    return path


def digest(call: dict[str, Any], peer: str) -> str:
    """The same for calls that get the same answer of this peer."""
    numbers = {k: v for k, v in call.items() if k not in ("group", "torch", "jax", "args")}
    state = hashlib.sha256(json.dumps([peer, call[peer], numbers], sort_keys=True).encode())
    for name, value in call["args"].items():
        array = getattr(value, "array", value)
        state.update(f"{name} {type(value).__name__} {getattr(array, 'shape', array)}".encode())
        state.update(array.tobytes() if hasattr(array, "tobytes") else b"")
    return state.hexdigest()


def ask(peer: str, calls: list[dict[str, Any]], folder: Path) -> tuple[list[Any], dict[str, str]]:
    """The peer's answers, those that are known already from the folder; and its versions."""
    kept = folder / f"{peer}.npz"
    known, versions = read(kept) if kept.exists() else ({}, {})
    wanted = {digest(c, peer): c for c in calls}
    new = {key: c for key, c in wanted.items() if c[peer] and key not in known}
    if new:
        print(f"{peer}: {len(new)} calls", flush=True)
        asked, answered = folder / f"{peer}-calls.npz", folder / f"{peer}-answers.npz"
        write(asked, list(new.values()))
        command = [str(peers_python()), str(HERE / "peer.py"), peer, str(asked), str(answered)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found, versions = read(answered)
        known.update(zip(new, found))
        write(kept, [known, versions])
    return [known.get(digest(c, peer), {"error": "no such function"}) for c in calls], versions


def wrong_in_float64(rounded: list[tuple[dict[str, Any], str]], folder: Path) -> list[list[Any]]:
    """Of the calls whose disagreement with a peer was taken for rounding, those that disagree in float64 too."""
    found = []
    for peer in PEERS:
        wide = [widened(call) for call, p in rounded if p == peer]
        answers, _ = ask(peer, wide, folder)
        for call, row in zip(wide, answers):
            if "error" in row:
                found.append([call["ours"], call["number"], call["float"], peer, "refused", row["error"]])
            faults = [f for f in faults_of(call, {peer: row}) if not why(call, *f)]
            found += [[call["ours"], call["number"], call["float"], *fault] for fault in faults]
    return found


def compared(calls: list[dict[str, Any]], answers: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The numbers of the page: calls, answers and agreements by group and peer, disagreements by reason."""
    groups: dict[str, Counter[str]] = {name: Counter() for name in GROUPS}
    reasons: Counter[str] = Counter()
    unexplained, examples, rounded = [], dict[str, str](), []
    for i, (call, row) in enumerate(zip(calls, answers)):
        count = groups[call["group"]]
        faults = list(faults_of(call, row))
        answered = [p for p in PEERS if "error" not in row[p]]
        count.update(["calls", *answered, *(["answered"] if answered else [])])
        count["gradients"] += any(isinstance(row[p]["grads"], dict) and row[p]["grads"] != {} for p in answered)
        count.update(f"{p} agrees" for p in answered if all(f[0] != p for f in faults))
        for peer, part, text in faults:
            reason = why(call, peer, part, text)
            if reason == "rounding":
                rounded.append((call, peer))
            if reason:
                reasons[reason] += 1
                examples.setdefault(reason, f"{call['ours']}, {call['float']}: {part}, {peer}: {text[:70]}")
            else:
                unexplained.append([call["ours"], call["number"], call["float"], peer, part, text[:200]])
        if i % 500 == 0:
            print(f"compared {i} of {len(calls)}", flush=True)
    unexplained += wrong_in_float64(rounded, folder)
    found = {"groups": {k: dict(v) for k, v in groups.items()}, "explained": dict(reasons)}
    return {**found, "examples": examples, "unexplained": unexplained}


def write_golden(calls: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
    """The first calls of each function that agree with both peers or have an explanation, with the peers' answers."""
    kept = []
    for call, row in zip(calls, answers):
        some = {p: a for p, a in row.items() if "error" not in a}
        if call["number"] < 2 and some and "matrix_exp" not in call["ours"]:
            kept.append([call, some])
    write(HERE / "golden.npz", kept)
    print(f"golden.npz: {len(kept)} calls, {(HERE / 'golden.npz').stat().st_size >> 10} KiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "differential")
    parser.add_argument("--golden", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    calls = all_calls(options.seed)
    sides, versions = {}, dict[str, str]()
    for peer in PEERS:
        sides[peer], found = ask(peer, calls, options.folder)
        versions |= found
    answers = [{p: sides[p][i] for p in PEERS} for i in range(len(calls))]
    summary = {"seed": options.seed, "versions": versions, **compared(calls, answers, options.folder)}
    (HERE / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    (ROOT / "docs" / "differential.md").write_text(page(summary, WHY))
    if options.golden:
        write_golden(calls, answers)
    for fault in summary["unexplained"]:
        print("NOT EXPLAINED:", *fault)
    return 1 if summary["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
