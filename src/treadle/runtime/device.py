"""The processors of this machine: PJRT devices as plain records, and the name of the host CPU.

`devices()` and `default_device()` start the platform (TREADLE_PLATFORM); `host()` needs the standard library only.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from treadle.base import cores
from treadle.runtime import pjrt


@dataclass(frozen=True)
class Device:
    """One device. `id` is unique over all processes; `memory`: bytes in use and available, empty if not reported."""

    platform: str
    id: int
    kind: str
    process: int
    memory: dict[str, int]
    handle: Any

    def __str__(self) -> str:
        limit = self.memory.get("bytes_limit")
        return f"{self.platform}:{self.id} ({self.kind}{f', {limit / 2**30:.1f} GiB' if limit else ''})"


@dataclass(frozen=True)
class Host:
    """The CPU of this machine: architecture, model name, cores this process may use, and the system's list of flags,
    which tells CPUs apart. What kernels may use of it: kernels/target.py."""

    machine: str
    model: str
    cores: int
    flags: frozenset[str]

    def identity(self) -> str:
        """Text that differs between machines whose compiled programs must not be exchanged."""
        return "|".join((self.machine, self.model, str(self.cores), " ".join(sorted(self.flags))))


def devices(platform: str | None = None) -> list[Device]:
    """The devices of this process. Raises E0408 when the platform cannot be started."""
    return [describe(d) for d in pjrt.devices(platform)]


def default_device() -> Device:
    """The device that programs run on unless told otherwise: the first one."""
    return describe(pjrt.default_device())


def describe(handle: Any) -> Device:
    """The record of a PJRT device."""
    memory = pjrt.device_memory(handle) or {}
    return Device(handle.platform, handle.id, handle.device_kind, handle.process_index, memory, handle)


@lru_cache(maxsize=1)
def host() -> Host:
    """The CPU this process runs on."""
    model, flags = _cpuinfo() if Path("/proc/cpuinfo").exists() else (platform.processor(), frozenset())
    return Host(platform.machine().lower(), model, cores.usable(), flags)


def _cpuinfo() -> tuple[str, frozenset[str]]:
    """Model name and feature flags from Linux: x86 calls the line `flags`, ARM `Features`."""
    lines = (line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    found: dict[str, str] = {}
    for key, value in lines:
        found.setdefault(key.strip().lower(), value.strip())
    words = found.get("flags", found.get("features", ""))
    return found.get("model name", platform.processor()), frozenset(words.split())
