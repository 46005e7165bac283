"""Every switch that the environment can set, in one table; the only reader of the environment.

`flags.debug` reads the value; `with override(debug=3):` changes it for a block. `python -m treadle.base.flags` prints
the table of docs/flags.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treadle.base.errors import UserError


@dataclass(frozen=True)
class Flag:
    """One switch: environment variable, type, default and one line of help; `choices` limits what is allowed.

    option: a variable of another framework and the option in its text that means the same, "--name=value".
    """

    env: str
    type: type
    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    option: tuple[str, str] = ("", "")

    def read(self) -> Any:
        """The value that the environment gives. Raises E0701 for a text that means none."""
        text = os.environ.get(self.env)
        if text is not None or self.option[0] not in os.environ:
            return self.default if text is None else self.parse(text)
        env, name = self.option
        words = os.environ[env].split()
        if len(words) != 1 or not words[0].startswith(f"{name}="):
            raise UserError("E0701", f"{env}={os.environ[env]!r} is not {name}=N", fix=f"use {self.env} instead")
        return self.parse(words[0].partition("=")[2])

    def parse(self, text: str) -> Any:
        """The value that `text` means. Raises E0701 when it means none."""
        try:
            value = {"0": False, "1": True}[text] if self.type is bool else self.type(text)
        except (KeyError, ValueError):
            raise UserError("E0701", f"{self.env}={text!r} is not {self._wanted()}", fix=f"unset {self.env}") from None
        if (self.choices and value not in self.choices) or (self.type is int and value < 0):
            raise UserError("E0701", f"{self.env}={text!r} is not {self._wanted()}", fix=f"unset {self.env}")
        return value

    def _wanted(self) -> str:
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        return {bool: "0 or 1", int: "a whole number of 0 or more"}.get(self.type, "a text")


FLAGS: dict[str, Flag] = {
    "debug": Flag("TREADLE_DEBUG", int, 0, "How much to print, 0 to 6; each level adds a layer.", tuple(range(7))),
    "mode": Flag("TREADLE_MODE", str, "eager", "How cells run unless the context says otherwise.", ("eager", "graph")),
    "platform": Flag("TREADLE_PLATFORM", str, "", "cpu, cuda, tpu or a PJRT plug-in's name; empty: the best there is."),
    "cache": Flag("TREADLE_CACHE", bool, True, "Keep compiled programs on disk."),
    "cache_dir": Flag("TREADLE_CACHE_DIR", str, "", "Folder of compiled programs; empty: the user's cache folder."),
    "cache_bytes": Flag("TREADLE_CACHE_BYTES", int, 2 << 30, "Size in bytes above which old programs are removed."),
    "malloc": Flag("TREADLE_MALLOC", bool, True, "Tune the C allocator for large arrays before the first one (glibc)."),
    "max_programs": Flag(
        "TREADLE_MAX_PROGRAMS", int, 128, "Programs that a jitted function keeps, the last used ones; 0: no limit."
    ),
    "host_elements": Flag(
        "TREADLE_HOST_ELEMENTS", int, 1 << 15, "Eager ops on CPU arrays of up to so many elements use NumPy; 0: none."
    ),
    "debug_nans": Flag(
        "TREADLE_DEBUG_NANS", int, 0, "1: stop at the first op that gives NaN; 2: or an infinity.", (0, 1, 2)
    ),
    "deterministic": Flag("TREADLE_DETERMINISTIC", bool, False, "Let XLA use only kernels that give the same bits."),
    "precision": Flag(
        "TREADLE_PRECISION",
        str,
        "highest",
        "How exactly float32 products are computed unless `td.precision` says otherwise.",
        ("highest", "high", "medium"),
    ),
    "fusion": Flag(
        "TREADLE_FUSION",
        int,
        2,
        "Own kernels on CPUs: 0 none, 1 for single nodes, 2 for groups, 3 for small ones too; also as "
        "MS_GRAPH_KERNEL_FLAGS=--opt_level=N.",
        (0, 1, 2, 3),
        ("MS_GRAPH_KERNEL_FLAGS", "--opt_level"),
    ),
    "tune": Flag(
        "TREADLE_TUNE", bool, False, "Measure kernels, XLA's among them, before a function is first compiled."
    ),
    "parts": Flag("TREADLE_PARTS", bool, True, "Compile equal layers once, as programs of their own, if it pays."),
    "recursion": Flag(
        "TREADLE_RECURSION", int, 1024, "How deep a compiled function may call itself where tensors decide (E0312)."
    ),
    "verify": Flag("TREADLE_VERIFY", bool, False, "Check the IR after every pass (tests switch it on)."),
    "events": Flag("TREADLE_EVENTS", str, "", "File to which events are appended as JSON lines; empty: none."),
}


def _xdg_cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def cache_folder() -> Path:
    """The folder for compiled programs: the flag's, else `treadle` in the user's cache folder."""
    return Path(flags.cache_dir) if flags.cache_dir else _xdg_cache_home() / "treadle"


class _Flags:
    """Attribute access to the flags. The environment is read once per flag, when first asked for."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in FLAGS:
            raise AttributeError(name)
        value = FLAGS[name].read()
        self._values[name] = value
        self.__dict__[name] = value
        return value

    def set(self, name: str, value: Any) -> Any:
        """Set one flag to a value of its type; returns the old one. Raises E0702 for an unknown name."""
        if name not in FLAGS:
            raise UserError("E0702", f"there is no flag {name!r}", fix="use one of " + ", ".join(FLAGS))
        flag = FLAGS[name]
        if flag.type is bool:
            value = flag.parse(str(int(value)) if isinstance(value, bool | int) else str(value))
        else:
            value = flag.parse(str(value))
        before = getattr(self, name)
        self.__dict__[name] = value
        return before


flags = _Flags()


@contextmanager
def override(**values: Any) -> Iterator[None]:
    """Flags have the given values inside the block."""
    before = {name: flags.set(name, value) for name, value in values.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            flags.__dict__[name] = value


def check_environment() -> None:
    """Raise E0703 for a TREADLE_ variable that no flag reads: a misspelt switch must not be silent."""
    known = [flag.env for flag in FLAGS.values()]
    for name in os.environ:
        if name.startswith("TREADLE_") and name not in known:
            raise UserError(
                "E0703", f"the environment sets {name}, which no flag reads", fix="known: " + ", ".join(known)
            )


def document() -> str:
    """The text of docs/flags.md."""
    rows = [f"| `{f.env}` | {f.type.__name__} | `{f.default!r}` | {f.help} |" for f in FLAGS.values()]
    head = "# Flags\n\nGenerated by `python -m treadle.base.flags`.\n\n"
    head += "| variable | type | default | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(document(), end="")
