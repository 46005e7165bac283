"""What the CPU of this machine can do: `host()` gives its instruction sets, vector width and caches.

Kernels choose their code by these values alone. `host().without("avx512f")` is the same machine pretending less: so
every path is tested that the machine can run.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from treadle.base import cores

# x86 names that kernels ask for, with those that must be there too.
_NEEDS = {
    "avx2": ("avx2", "fma", "bmi2"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"),
    "avx512bf16": ("avx512f", "avx512bw", "avx512vl", "avx512bf16"),
    "amx": ("amx-tile", "amx-bf16", "avx512f", "avx512bw", "avx512bf16"),
    "amx-int8": ("amx-tile", "amx-int8", "avx512f"),
    "vnni": ("avx512f", "avx512vnni"),
    "neon": ("neon",),
}
_LINUX_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True)
class Target:
    """A CPU. features: LLVM's names of what it has. Sizes in bytes, per core (l3: shared)."""

    triple: str
    cpu: str
    features: frozenset[str]
    l1: int
    l2: int
    l3: int
    cores: int

    def has(self, name: str) -> bool:
        """Whether the CPU has a set of instructions: avx2, avx512, avx512bf16, amx, amx-int8, vnni, neon."""
        return all(need in self.features for need in _NEEDS[name])

    @property
    def vector_bytes(self) -> int:
        """Width of the vectors to compute with."""
        return 64 if self.has("avx512") else 32 if self.has("avx2") else 16

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.has("avx512") or self.triple.startswith(("aarch64", "arm64")) else 16

    def lanes(self, bits: int) -> int:
        """Elements of so many bits in a vector."""
        return self.vector_bytes * 8 // bits

    def without(self, *names: str) -> Target:
        """The same CPU with these features of LLVM's (and what is built on them) not used."""
        gone = {f for f in self.features for name in names if f == name or (name == "avx512f" and "avx512" in f)}
        gone |= {f for f in self.features if f.startswith("amx")} if gone & {"avx512f", "amx-tile"} else set()
        return replace(self, features=self.features - gone)

    def sets(self) -> list[str]:
        """The names that `has` says yes to."""
        return [name for name in _NEEDS if self.has(name)]

    def text(self) -> str:
        """LLVM's list: what is there with +, the rest of what kernels know with -."""
        known = sorted({need for needs in _NEEDS.values() for need in needs} | self.features)
        x86 = self.triple.startswith(("x86", "i686"))
        names = known if x86 else sorted(self.features)
        return ",".join(("+" if n in self.features else "-") + n for n in names if n != "neon" or not x86)


@lru_cache(maxsize=1)
def host() -> Target:
    """This machine."""
    binding = llvm()
    found = {name for name, there in binding.get_host_cpu_features().items() if there}
    if "amx-tile" in found and not _may_use_tiles():
        found = {f for f in found if not f.startswith("amx")}
    l1, l2, l3 = (_cache_bytes(*level) for level in ((1, 32 << 10), (2, 1 << 20), (3, 16 << 20)))
    name = binding.get_host_cpu_name()
    return Target(binding.get_process_triple(), name, frozenset(found), l1, l2, l3, cores.usable())


def llvm() -> Any:
    """llvmlite's binding, ready to make code for this machine. Raises ImportError where it is not installed."""
    import llvmlite.binding as binding

    _prepare(binding)
    return binding


@lru_cache(maxsize=1)
def _prepare(binding: Any) -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether kernels can be made here: llvmlite is installed, and the system has what launch.py calls."""
    from importlib.util import find_spec

    return os.name == "posix" and find_spec("llvmlite") is not None


def _may_use_tiles() -> bool:
    """Ask Linux for the state of the AMX tiles, which a process gets only when it asks; False where it is refused."""
    if platform.system() != "Linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    granted: int = libc.syscall(_LINUX_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return granted == 0


def _cache_bytes(level: int, default: int) -> int:
    """Size of the data cache of a level, as Linux tells it."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, its_level = (index / "type").read_text().strip(), (index / "level").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if its_level == str(level) and kind in ("Data", "Unified") and size.endswith("K"):
            return int(size[:-1]) << 10
    return default
