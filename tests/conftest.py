"""What all tests share: golden text files, written by `pytest --update-golden`; own cache; the IR verified after
passes."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported: no test sees programs of an earlier run, and every pass is checked."""
    folder = tempfile.TemporaryDirectory(prefix="treadle-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ.setdefault("TREADLE_CACHE_DIR", folder.name)
    os.environ.setdefault("TREADLE_VERIFY", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the files under tests/golden again")


@pytest.fixture(autouse=True)
def own_numbers(request: pytest.FixtureRequest) -> None:
    """What a test draws from its module's RNG does not depend on the tests that ran before it in this process."""
    rng = getattr(request.module, "RNG", None)
    if rng is not None:
        rng.bit_generator.state = np.random.PCG64(crc32(request.node.name.encode())).state


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text)` compares with golden/<test file>/<test>.txt, `golden(text, "a.txt")` with golden/a.txt.

    A missing file fails and prints the text. `pytest --update-golden` writes the files.
    """

    def compare(text: str, name: str = "") -> None:
        test = request.node.name.replace("[", "-").replace("]", "").replace("/", "-")
        check_golden(TESTS / "golden" / (name or f"{request.path.stem}/{test}.txt"), text, update)

    update = request.config.getoption("--update-golden")
    return compare


def check_golden(path: Path, text: str, update: bool) -> None:
    """Fail unless the file holds the text; with `update`, make it hold the text."""
    text = text if text.endswith("\n") else text + "\n"
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    elif not path.exists():
        pytest.fail(f"there is no {path}; `pytest --update-golden` writes it. The text is:\n{text}", pytrace=False)
    else:
        assert text == path.read_text(), f"the text differs from {path}; `pytest --update-golden` accepts it"
