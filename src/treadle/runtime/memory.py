"""Host memory: allocator settings for large arrays, and what this process holds.

`tune_malloc()` must run before jaxlib is imported, `use_huge_pages()` when much memory may have been added; others call
them. The other functions return bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from functools import lru_cache
from pathlib import Path

from treadle.base import events
from treadle.base.flags import flags

# glibc malloc.h: parameter -> value. Large blocks come from the heap and stay there, so a big result does not fault in
# every page anew; one arena, because XLA allocates on its own threads, whose arenas would fall back to mmap.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_SETTINGS = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 256 << 20), (_M_ARENA_MAX, 1))
_RESERVE = 3 << 29  # bytes of address space; well below _M_TRIM_THRESHOLD

_lock = threading.Lock()
_tuned: bool | None = None
_huge_until = 0  # end of the heap when its pages were last asked to be huge


@lru_cache(maxsize=1)
def _glibc() -> ctypes.CDLL | None:
    """The C library if it is glibc on Linux."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None


def tune_malloc() -> bool:
    """Set up glibc's allocator for large arrays, once per process; True if the settings are in force.

    Off with TREADLE_MALLOC=0; does nothing without glibc. Price: freed memory stays with the process (see `trim`).
    """
    global _tuned
    with _lock:
        if _tuned is None:
            _tuned = _apply() if flags.malloc else False
        return _tuned


def _apply() -> bool:
    libc = _glibc()
    if libc is None:
        return False
    refused = [name for name, value in _SETTINGS if libc.mallopt(ctypes.c_int(name), ctypes.c_int(value)) != 1]
    if not refused and _may_reserve():
        libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        libc.free(libc.malloc(ctypes.c_size_t(_RESERVE)))  # stays the heap's end; nothing of it is touched
    events.record("runtime", "malloc", refused=refused, huge=not refused and _advised(libc))
    return not refused


def _may_reserve() -> bool:
    """Whether address space costs nothing: it is not limited, and memory is counted when it is touched."""
    import resource

    unlimited = all(
        resource.getrlimit(r)[0] == resource.RLIM_INFINITY for r in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    )
    policy = Path("/proc/sys/vm/overcommit_memory")
    counted = not policy.exists() or policy.read_text().strip() == "2"
    return unlimited and not counted and (total_bytes() or 0) >= 2 * _RESERVE


def use_huge_pages() -> bool:
    """Ask for huge pages where the heap has grown: large arrays are read up to twice as fast. True if they are in use.

    Only memory that is touched after this becomes huge pages at once, so it is called before programs run.
    """
    libc = _glibc()
    return bool(_tuned) and libc is not None and _advised(libc)


def _advised(libc: ctypes.CDLL) -> bool:
    global _huge_until
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, (ctypes.c_ssize_t,)
    end = int(libc.sbrk(0) or 0)
    if end > _huge_until:
        start = _huge_until or _heap_start() or end
        start += -start % mmap.PAGESIZE
        size = ctypes.c_size_t(end - start)
        if libc.madvise(ctypes.c_void_p(start), size, ctypes.c_int(getattr(mmap, "MADV_HUGEPAGE", -1))) != 0:
            return False  # a system without them
    _huge_until = end
    return True


def _heap_start() -> int:
    """Where the heap begins; 0 where the system does not say."""
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]")]
    return int(lines[0].split("-")[0], 16) if lines else 0


def trim() -> bool:
    """Give free heap memory back to the system; False where the C library cannot."""
    libc = _glibc()
    return libc is not None and libc.malloc_trim(ctypes.c_size_t(0)) == 1


def total_bytes() -> int | None:
    """Bytes of memory and swap space of this machine; None where the system does not say."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return sum(int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "SwapTotal"))
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def rss_bytes() -> int:
    """Bytes of memory this process holds now (its peak on systems without /proc)."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return peak_rss_bytes()
    import resource

    return int(statm.read_text().split()[1]) * resource.getpagesize()


def peak_rss_bytes() -> int:
    """The most bytes of memory this process has held so far. Raises ImportError where there is no getrusage."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
