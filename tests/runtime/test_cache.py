"""Compiled programs on disk: found by another process, refused when damaged, foreign or made for another CPU."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.programs import add, add_donating, binary

import treadle.base
from treadle.base import cache, events, flags
from treadle.base.cache import ProgramCache
from treadle.ir.types import f32
from treadle.runtime import device, pjrt
from treadle.runtime.executable import Executable

OTHER_PROCESS = """
import numpy as np
from tests.runtime.programs import add, add_donating
from treadle.ir.types import f32
from treadle.runtime import pjrt
step, plain = add_donating(f32[64]), add(f32[64])
w = pjrt.put(np.ones(64, np.float32))
(new,) = step.call([w, np.ones(64, np.float32)])
print(step.from_cache, plain.from_cache, w.is_deleted(), float(pjrt.to_numpy(new).sum()), step.memory().aliased)
"""


def python(code: str, **environment: str) -> str:
    paths = [str(Path(treadle.base.__file__).parents[2]), str(Path(__file__).parents[2])]
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def works(program: Executable) -> bool:
    one = np.ones(program.inputs[0].shape, np.float32)
    return bool((pjrt.to_numpy(program.call([one, one])[0]) == 2).all())


def test_another_process_finds_the_programs(cache_folder):
    add(f32[64])
    add_donating(f32[64])
    assert python(OTHER_PROCESS, TREADLE_CACHE_DIR=str(cache_folder)) == "True True True 128.0 256"
    assert python(OTHER_PROCESS, TREADLE_CACHE_DIR=str(cache_folder), TREADLE_CACHE="0") == "False False True 128.0 256"
    flagged = python(OTHER_PROCESS, TREADLE_CACHE_DIR=str(cache_folder), XLA_FLAGS="--xla_cpu_enable_fast_math=true")
    assert flagged == "False False True 128.0 256"


def test_hit_and_miss_in_one_process():
    assert [add(f32[5]).from_cache, add(f32[5]).from_cache, add(f32[6]).from_cache] == [False, True, False]
    assert works(add(f32[5]))
    with flags.override(cache=False):
        assert not add(f32[5]).from_cache


def test_moved_source_lines_hit_but_other_options_miss():
    def program(where: str, **overrides: object) -> Executable:
        return Executable(binary("add", f32[5], where=where), [f32[5]] * 2, [f32[5]], overrides=overrides)

    assert not program("a.py").from_cache
    assert program("b.py").from_cache
    assert not program("a.py", xla_cpu_enable_fast_math=True).from_cache


def test_positions_stay_in_the_program():
    with flags.override(cache=False):
        assert "model.py" in add(f32[5]).hlo_text()


DAMAGES = [lambda b: b[:-10], lambda b: b[:60] + b"x" + b[61:], lambda b: b"", lambda b: b"junk" * 99]


@pytest.mark.parametrize("damage", DAMAGES, ids=["cut", "one byte", "empty", "foreign"])
def test_a_damaged_entry_is_replaced(cache_folder, damage):
    add(f32[5])
    (entry,) = cache_folder.glob("*.xla")
    good = entry.read_bytes()
    entry.write_bytes(damage(good))
    with events.collected("runtime") as found:
        program = add(f32[5])
    assert not program.from_cache and works(program)
    assert [e.name for e in found] == ["cache corrupt", "compile"]
    assert add(f32[5]).from_cache


def test_an_entry_that_xla_refuses_is_replaced(cache_folder):
    add(f32[5])
    (entry,) = cache_folder.glob("*.xla")
    ProgramCache(cache_folder, 1 << 30).put(entry.stem, b"well kept nonsense")
    program = add(f32[5])
    assert not program.from_cache and works(program)
    assert add(f32[5]).from_cache


def test_another_cpu_misses(monkeypatch):
    add(f32[5])
    there = device.host()
    other = device.Host(there.machine, there.model, there.cores, there.flags ^ {"avx512f"})
    monkeypatch.setattr(device, "host", lambda: other)
    assert not add(f32[5]).from_cache
    monkeypatch.undo()
    assert add(f32[5]).from_cache


def test_cacheable_false_leaves_no_entry(cache_folder):
    Executable(binary("add", f32[5]), [f32[5]] * 2, [f32[5]], cacheable=False)
    assert not cache_folder.exists()


def test_the_folder_is_private(cache_folder):
    add(f32[5])
    assert stat.S_IMODE(cache_folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(p.stat().st_mode) for p in cache_folder.iterdir()] == [0o600]


def test_a_folder_that_others_may_write_to_is_refused(cache_folder):
    cache_folder.mkdir()
    cache_folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write"):
        program = add(f32[5])
    assert works(program) and not list(cache_folder.iterdir())


def test_a_folder_of_another_user_is_refused(cache_folder, monkeypatch):
    cache_folder.mkdir(mode=0o700)
    assert cache.distrust(cache_folder) == ""
    owner = cache_folder.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert f"belongs to user {owner}" in cache.distrust(cache_folder)


def test_a_file_in_place_of_the_folder(cache_folder):
    cache_folder.write_text("")
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert works(add(f32[5]))


def test_least_recently_used_entries_go_first(tmp_path):
    store = ProgramCache(tmp_path, 3 * 1100)
    for age, name in ((30, "a"), (20, "b"), (10, "c")):
        assert store.put(name, name.encode() * 1000)
        os.utime(tmp_path / f"{name}.xla", times=(time.time() - age,) * 2)
    assert store.get("a") == b"a" * 1000  # now the most recently used
    store.put("d", b"d" * 1000)
    assert [name for name in "abcd" if store.get(name)] == ["a", "c", "d"]
    assert not store.put("e", b"e" * 4000)
    assert [name for name in "abcde" if store.get(name)] == ["a", "c", "d"]


def test_the_limit_holds_though_not_every_write_looks_at_all_entries(tmp_path, monkeypatch):
    store, looked, scan = ProgramCache(tmp_path, 100_000), [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: (looked.append(folder), scan(folder))[1])
    for i in range(60):
        store.put(f"many{i}", bytes(960))
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) == 60_000 and len(looked) < 30
    for i in range(300):
        ProgramCache(tmp_path, 100_000).put(f"more{i}", bytes(960))
        assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 100_000


def test_half_written_files_of_dead_processes_are_removed(tmp_path):
    store = ProgramCache(tmp_path, 1 << 20)
    for name, age in (("tmp-old", 7200), ("tmp-new", 1)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, times=(time.time() - age,) * 2)
    store.put("a", b"a")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.xla", "tmp-new"]


def test_key_parts_do_not_run_into_each_other():
    assert cache.key("ab", "c") != cache.key("a", "bc") != cache.key(b"a", b"bc", b"")
