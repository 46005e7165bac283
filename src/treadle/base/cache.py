"""Compiled programs on disk: key -> bytes, bounded in size, shared safely between processes.

Loading a program runs its code, so only a folder that this user owns and nobody else may write to is trusted.
An entry is `magic, SHA-256 of the body, body`; what does not match is removed, recorded and compiled again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
import warnings
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from treadle.base import events
from treadle.base.flags import cache_folder, flags

_MAGIC = b"treadle1"
_SUFFIX = ".xla"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
_STALE_SECONDS = 3600.0  # a temporary file this old was left by a process that died


def key(*parts: bytes | str) -> str:
    """SHA-256 (hex) over the parts, lengths included, and the version of Treadle."""
    digest = hashlib.sha256()
    for part in (*parts, _version()):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _version() -> str:
    try:
        return metadata.version("treadle")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "unreleased"


_room: dict[tuple[Path, int], int] = {}  # bytes that may be written before all entries are looked at again


class ProgramCache:
    """Entries in one folder; the least recently used go when their sum exceeds `limit` bytes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit

    def _path(self, key: str) -> Path:
        return self.folder / (key + _SUFFIX)

    def get(self, key: str) -> bytes | None:
        """The entry's body, or None if there is none or it is damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                events.record("runtime", "cache unreadable", key=key, why=str(error))
            return None
        body = data[_HEADER:]
        if data[:_HEADER] != _MAGIC + hashlib.sha256(body).digest():
            self.discard(key, "checksum does not match")
            return None
        try:
            os.utime(path)  # the time of last use orders the eviction
        except OSError as error:
            events.record("runtime", "cache unreadable", key=key, why=str(error))
        return body

    def put(self, key: str, body: bytes) -> bool:
        """Store an entry and evict old ones; False (with an event) if the disk refuses or it exceeds the limit."""
        if len(body) + _HEADER > self.limit:
            return False
        try:
            handle, name = tempfile.mkstemp(prefix="tmp-", dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(body).digest() + body)
                os.replace(name, self._path(key))  # readers see the whole entry or none
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            place = self.folder, self.limit
            _room[place] = _room.get(place, 0) - len(body) - _HEADER
            if _room[place] < 0:
                _room[place] = self.evict()
        except OSError as error:
            events.record("runtime", "cache write failed", key=key, why=str(error))
            return False
        return True

    def discard(self, key: str, why: str) -> None:
        """Remove a damaged entry."""
        events.record("runtime", "cache corrupt", key=key, why=why)
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            events.record("runtime", "cache write failed", key=key, why=str(error))

    def evict(self) -> int:
        """Remove the least recently used entries until the rest fits, and what dead processes left half-written.

        The bytes that this process may write before it must look again: a part of what is left, as others write too.
        """
        entries: list[tuple[float, int, str]] = []
        for item in os.scandir(self.folder):
            try:
                info = item.stat(follow_symlinks=False)
            except FileNotFoundError:  # another process was faster
                continue
            if item.name.endswith(_SUFFIX):
                entries.append((info.st_mtime, info.st_size, item.path))
            elif item.name.startswith("tmp-") and time.time() - info.st_mtime > _STALE_SECONDS:
                Path(item.path).unlink(missing_ok=True)
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            Path(path).unlink(missing_ok=True)
            total -= size
        return max(self.limit - total, 0) // 8


def current() -> ProgramCache | None:
    """The cache that the flags ask for; None when it is off, or when its folder cannot be used or trusted."""
    if not flags.cache:
        return None
    folder = cache_folder()
    return ProgramCache(folder, flags.cache_bytes) if _usable(folder) else None


@lru_cache(maxsize=16)
def _usable(folder: Path) -> bool:
    """Make the folder, private to this user; say once why it is not used if it cannot be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = distrust(folder)
        if not why and not os.access(folder, os.W_OK | os.X_OK):
            why = "it cannot be written to"
    except OSError as error:
        why = str(error)
    if why:
        events.record("runtime", "cache refused", folder=str(folder), why=why)
        warnings.warn(
            f"compiled programs are not kept: {folder}: {why}; set TREADLE_CACHE_DIR to a folder of your own, "
            "or TREADLE_CACHE=0",
            RuntimeWarning,
            stacklevel=2,
        )
    return not why


def distrust(folder: Path) -> str:
    """Why programs from this folder must not be loaded; empty if they may be."""
    info = folder.stat()
    if not stat.S_ISDIR(info.st_mode):
        return "it is not a folder"
    if hasattr(os, "getuid") and info.st_uid != os.getuid():
        return f"it belongs to user {info.st_uid}, and loading a program runs its code"
    if os.name == "posix" and info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it, and loading a program runs its code"
    return ""
