"""The pages that bench/page.py makes of the results, and the results that are kept."""

import json

import pytest


def test_the_readme_has_the_newest_table(bench):
    page = bench("page")
    text = page.README.read_text(encoding="utf-8")
    assert page.with_block(text) == text, "run `make docs`"


def test_a_stale_table_is_found_and_written_again(bench, monkeypatch):
    page = bench("page")
    monkeypatch.setattr(page, "table", lambda: "| new |")
    text = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    made = page.with_block(text)
    assert "old" not in made
    assert "| new |" in made
    assert made.startswith("before\n")
    assert made.endswith("\nafter\n")
    assert page.with_block(made) == made
    with pytest.raises(ValueError, match="bench: begin"):
        page.with_block("no markers")


def entry(model, precision, threads, **ratio):
    ratios = {peer: {"median": value, "min": value} for peer, value in ratio.items()}
    best = min(ratio, key=ratio.get)
    made = {"model": model, "precision": precision, "threads": threads, "load_before": 0.1}
    return {**made, "ratio": ratios, "best_peer": best}


def test_the_table_shows_the_best_peer(bench, monkeypatch, tmp_path):
    page = bench("page")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    found = {
        "a": entry("mlp", "f32", 2, torch=1.5, jax=1.25),
        "b": entry("mlp", "bf16", 1, torch=0.5),
        "c": {"model": "gpt", "check": {"agree": False}},  # nothing was timed
    }
    machine = {"cpu": "a chip", "cores": 2, "memory_gib": 8.0}
    (tmp_path / "train_steps.json").write_text(json.dumps({"machine": machine, "entries": found}))
    assert page.table().splitlines() == [
        "| | f32 | bf16, one thread |",
        "|---|---|---|",
        "| train mlp | 1.25 (JAX) | 0.50 (PyTorch) |",
    ]
    assert "| mlp | f32 | 2 | 1.25 (1.25) | 1.50 (1.50) | **1.25** | 0.1 |" in page.page()


def test_the_page_says_how_far_the_limit_is(bench, monkeypatch, tmp_path):
    page, bounds = bench("page"), bench("bounds")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    fastest = {"treadle": 0.02, "torch": 0.03, "jax": 0.05}
    limit = {"flops": 1e9, "peak_gflops": 100.0, "seconds": 0.01}
    found = entry("mlp", "f32", 2, torch=1.5, jax=2.5) | {"bound": bounds.shares(limit, fastest, "torch")}
    machine = {"cpu": "a chip", "cores": 2, "memory_gib": 8.0}
    (tmp_path / "train_steps.json").write_text(json.dumps({"machine": machine, "entries": {"a": found}}))
    assert "| mlp | f32 | 2 | 50% | 33% | 1.50 | 3.00 |" in page.page()
    assert bounds.line(found["bound"]).endswith("torch 33%, jax 20%; ratio to the best peer at the limit: 3.00")


def test_new_entries_join_old_ones_of_the_same_processor(bench, monkeypatch, tmp_path):
    harness = bench("harness")
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    harness.merge("x", {"a": {"v": 1}, "b": {"v": 2}})
    path = harness.merge("x", {"b": {"v": 3}})
    assert {n: e["v"] for n, e in json.loads(path.read_text())["entries"].items()} == {"a": 1, "b": 3}
    old = json.loads(path.read_text())
    old["machine"]["cpu"] = "another"
    path.write_text(json.dumps(old))
    assert set(json.loads(harness.merge("x", {"c": {"v": 4}}).read_text())["entries"]) == {"c"}


def test_the_environments_are_those_that_make_writes(bench):
    harness = bench("harness")
    makefile = (harness.ROOT / "Makefile").read_text()
    for variable, folder in harness.ENVIRONMENTS.values():
        assert variable.startswith("BENCH_")
        assert folder == ".venv-peers" or folder.removeprefix(".venv-peers-") in makefile
    assert {environment for _, _, environment in harness.SIDES.values()} == {"", *harness.ENVIRONMENTS}


def test_ops_of_the_two_layouts_are_kinds_of_their_own(bench, monkeypatch, tmp_path):
    page = bench("page")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    conv = {"kind": "conv", "form": "forward", "agree": True}
    found = {
        "a": entry("", "f32", 2, torch=0.5) | conv | {"layout": ""},
        "b": entry("", "f32", 2, torch=1.5) | conv | {"layout": ""},
        "c": entry("", "f32", 2, torch_nhwc=1.25) | conv | {"layout": "channels last"},
    }
    machine = {"cpu": "a chip", "cores": 2, "memory_gib": 8.0}
    (tmp_path / "op_sweeps.json").write_text(json.dumps({"machine": machine, "entries": found}))
    assert "| conv forward | f32 | 2 | 2 | 1.00 | 0.50 | 50% | - |" in page.page()
    assert "| conv, channels last, forward | f32 | 2 | 1 | 1.25 | 1.25 | 0% | - |" in page.page()
    assert "| op conv, channels last | 1.25 (lowest 1.25) |" in page.table()
