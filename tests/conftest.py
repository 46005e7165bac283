"""What all tests share: golden text files, written by `pytest --update-golden`; own cache; the IR verified after
passes."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

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
