"""bench/gpu_check.py where no GPU is needed: what it says without one, and how it runs, stops and judges a part."""

import importlib.util
import io
import sys
import time
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "bench" / "gpu_check.py"


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("gpu_check", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gpu_check"]


def part(check, code, limit=30.0, said=lambda output: "fine", **more):
    return check.Part("a part", [sys.executable, "-c", code], limit, said, **more)


def test_without_a_gpu_it_says_what_it_looked_for(check, monkeypatch, capsys):
    monkeypatch.setattr(check, "hardware", list)
    monkeypatch.setattr(check, "jax_device", lambda: ("", "Unknown backend cuda"))
    monkeypatch.setattr(check, "parts", lambda: pytest.fail("nothing may run"))
    assert check.main() == 0
    assert "no GPU here" in (text := capsys.readouterr().out)
    assert "/dev/nvidia0" in text
    assert "Unknown backend cuda" in text


def test_a_gpu_that_jax_cannot_use_is_a_failure(check, monkeypatch, capsys):
    monkeypatch.setattr(check, "hardware", lambda: ["/dev/nvidia0"])
    monkeypatch.setattr(check, "jax_device", lambda: ("", "Unknown backend cuda"))
    assert check.main() == 1
    assert "there is a GPU (/dev/nvidia0)" in (text := capsys.readouterr().out)
    assert "cuda]" in text


def test_the_probe_gives_devices_or_the_reason(check, monkeypatch):
    monkeypatch.setattr(check, "PROBE", "print('a chip')")
    assert check.jax_device() == ("a chip", "")
    monkeypatch.setattr(check, "PROBE", "raise RuntimeError('no such backend')")
    assert check.jax_device() == ("", "RuntimeError: no such backend")


@pytest.mark.parametrize("codes, wanted", [(("print(1)", "print(2)"), 0), (("print(1)", "raise SystemExit(3)"), 1)])
def test_the_verdict_is_that_of_all_parts(check, monkeypatch, capsys, tmp_path, codes, wanted):
    monkeypatch.setattr(check, "jax_device", lambda: ("a chip", ""))
    monkeypatch.setattr(check, "parts", lambda: [part(check, code) for code in codes])
    monkeypatch.setattr(check, "LOG", tmp_path / "log")
    assert check.main() == wanted
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert ("failed: a part" in lines[-1]) == bool(wanted)
    assert "print(1)" in (tmp_path / "log").read_text()


def test_a_part_sees_its_environment_and_its_output_is_kept(check):
    log = io.StringIO()
    code = "import os; print('platform', os.environ['TREADLE_PLATFORM'])"
    outcome = check.run(part(check, code, said=lambda output: output.strip()), log)
    assert outcome.passed
    assert outcome.said == "platform cuda"
    assert "platform cuda" in log.getvalue()


def test_a_part_that_fails_says_why(check):
    outcome = check.run(part(check, "raise ValueError('broken')"), io.StringIO())
    assert not outcome.passed
    assert "FAILED" in outcome.line
    assert "ValueError: broken" in outcome.line


@pytest.mark.parametrize("partial", [False, True])
def test_a_part_is_stopped_at_its_limit_with_its_children(check, partial):
    # The child holds the pipe: were it left alone, its end would be waited for.
    child = "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    code = f"import subprocess, sys; print('begun', flush=True); {child}"
    start = time.perf_counter()
    outcome = check.run(part(check, code, 2.0, said=lambda output: output.strip(), partial=partial), io.StringIO())
    assert time.perf_counter() - start < 30
    assert outcome.passed is partial
    assert outcome.said == "begun; stopped at its limit of 2 s"


def test_stopped_tests_with_a_failure_have_failed(check):
    code = "print('t.py::a PASSED [ 1%]\\nt.py::b FAILED [ 2%]', flush=True); import time; time.sleep(60)"
    outcome = check.run(part(check, code, 2.0, check.tests_said, partial=True), io.StringIO())
    assert not outcome.passed
    assert outcome.said.startswith("1 passed, 1 failed, the first: t.py::b")


def test_stopped_tests_that_had_not_begun_have_failed(check):
    outcome = check.run(part(check, "import time; time.sleep(60)", 1.0, check.tests_said, partial=True), io.StringIO())
    assert not outcome.passed


def test_the_summaries_read_what_the_programs_print(check):
    assert check.demo_said("...\nheld-out accuracy 98.6 %\n") == "held-out accuracy 98.6 %"
    assert check.demo_said("") == "no accuracy printed"
    table = "mlp f32 2t      min ms  median ms\ntreadle 1 2\ngoal step: 1.083 >= 1.0 met\n"
    table += "\ngpt f32 2t  min ms\ngoal step: 0.900 >= 1.0 MISSED\n"
    assert check.bench_said(table) == "mlp 1.083 of JAX's speed, gpt 0.900 of JAX's speed"


def test_the_limits_keep_it_under_five_minutes(check):
    assert sum(p.limit_s for p in check.parts()) + check.PROBE_S <= 300
