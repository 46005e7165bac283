"""Every test has its own empty cache folder; programs are StableHLO text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.base import flags


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "programs"
    with flags.override(cache_dir=str(folder)):
        yield folder
