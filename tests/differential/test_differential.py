"""A sample of the random calls against the peers' answers to them, which golden.npz holds; see run.py."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.differential.calls import Entry, generate, read, write
from tests.differential.compare import differs, faults_of
from tests.differential.draw import Draw, Narrow
from tests.differential.explained import WHY, why
from tests.differential.page import page
from tests.differential.run import GROUPS, all_calls

HERE = Path(__file__).parent
ROWS = read(HERE / "golden.npz")


@pytest.mark.parametrize("group", GROUPS)
def test_the_sample_agrees_with_the_peers(group):
    found = []
    with warnings.catch_warnings(action="ignore"):
        for call, answers in ROWS:
            if call["group"] == group:
                faults = [f for f in faults_of(call, answers) if not why(call, *f)]
                found += [f"{call['ours']} number {call['number']}, {call['float']}: {fault}" for fault in faults]
    assert not found, "\n".join(found)


def test_the_sample_is_large_and_small():
    assert len(ROWS) > 300
    assert (HERE / "golden.npz").stat().st_size < 1_000_000


def test_there_are_enough_calls_and_each_is_explained():
    """Of the last run; the page of the documents is made from it."""
    summary = json.loads((HERE / "summary.json").read_text())
    assert sum(g["answered"] for g in summary["groups"].values()) >= 1500
    assert sum(g["gradients"] for g in summary["groups"].values()) >= 1000
    assert summary["unexplained"] == []
    assert set(summary["explained"]) <= set(WHY)
    assert (HERE.parents[1] / "docs" / "differential.md").read_text() == page(summary, WHY)


def test_calls_are_drawn_again_the_same(tmp_path):
    first, second = all_calls(3)[:40], all_calls(3)[:40]
    write(tmp_path / "a.npz", first)
    assert repr(read(tmp_path / "a.npz")) == repr(second)
    assert repr(all_calls(4)[:40]) != repr(first)


def test_differences_are_found():
    """A value, a gradient, a dtype, a NaN, a shape, a refusal."""
    entry = Entry("td.sin(x)", "", "", lambda d: {"x": d.array((3,), 0.5, 1.0)}, ("float64",), 1)
    (call,) = generate([entry], 1)
    x = call["args"]["x"]
    good = {"outs": [np.sin(x)], "grads": {}}
    assert list(faults_of(call, {"torch": good})) == []
    assert [f[1] for f in faults_of(call, {"torch": {**good, "outs": [np.sin(x) * (1 + 1e-6)]}})] == ["value"]
    assert [f[1] for f in faults_of(call, {"torch": {**good, "grads": {"x": np.cos(x)}}})] == ["gradient"]
    assert [f[1] for f in faults_of(call, {"torch": {**good, "outs": [np.sin(x).astype(np.complex128)]}})] == ["dtype"]
    assert [
        f[1] for f in faults_of({**call, "ours": "td.nothing(x)"} | {"ours": "td.reshape(x, 7)"}, {"jax": good})
    ] == ["refused"]
    assert differs(np.array([1.0, np.nan]), np.array([1.0, 2.0]), "float32")
    assert differs(np.zeros(3), np.zeros((3, 1)), "float32")
    assert not differs(np.array([np.inf]), np.array([np.inf]), "float32")


def test_rounding_is_told_from_faults():
    """A float32 disagreement counts as rounding only when the peer is no nearer to the float64 answer."""
    entry = Entry("td.sin(x)", "", "", lambda d: {"x": d.array((3,), 0.5, 1.0)}, ("float32",), 1)
    (call,) = generate([entry], 1)
    right = np.sin(call["args"]["x"].astype(np.float64))
    wrong_peer = {"outs": [(right * 1.01).astype(np.float32)], "grads": {}}
    assert [f[1] for f in faults_of(call, {"jax": wrong_peer})] == ["rounding value"]
    wrong_us = {**call, "ours": "td.sin(x) * (1.01 if x.dtype is td.float32 else 1)"}
    assert [f[1] for f in faults_of(wrong_us, {"jax": {**wrong_peer, "outs": [right.astype(np.float32)]}})] == ["value"]


def test_narrow_numbers_are_exact():
    array = Draw(np.random.default_rng(0), ("bfloat16",)).array((50,))
    assert isinstance(array, Narrow)
    assert not np.any(array.array.view(np.uint32) & 0xFFFF)
