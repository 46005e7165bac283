"""`treadle doctor`: versions, devices, CPU features, cache and flags; exit code 1 if anything looks wrong."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version

from treadle.base import text
from treadle.base.errors import UserError
from treadle.base.flags import FLAGS, cache_folder, check_environment, flags

_NEEDED = ("numpy", "ml_dtypes", "jax", "jaxlib")
_OPTIONAL = ("rich", "safetensors", "matplotlib")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command has none."""


def run(options: argparse.Namespace) -> int:
    """Print the report; 0 when nothing is wrong."""
    wrong: list[str] = []
    for title, section in _SECTIONS.items():
        print(f"{title}\n" + "\n".join(f"  {line}" for line in section(wrong)))
    for line in wrong:
        print(f"wrong: {line}")
    print(f"{len(wrong)} things are wrong" if wrong else "all is well")
    return 1 if wrong else 0


def _versions(wrong: list[str]) -> list[str]:
    rows = [f"python {platform.python_version()} on {platform.platform()}"]
    for name in ("treadle", *_NEEDED, *_OPTIONAL):
        try:
            rows.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            if name in _NEEDED:
                wrong.append(f"{name} is not installed")
            rows.append(f"{name} not installed{' (run from source)' if name == 'treadle' else ''}")
    return rows


def _host(wrong: list[str]) -> list[str]:
    from treadle.kernels import target
    from treadle.runtime import device

    host, known = device.host(), "without kernels of our own"
    if target.available():
        known = ", ".join(target.host().sets()) or "no vector features"
    return [f"{host.model or 'unknown'} ({host.machine})", f"{host.cores} cores, {known}"]


def _devices(wrong: list[str]) -> list[str]:
    from treadle.runtime import device

    try:
        return [str(d) for d in device.devices()]
    except (UserError, ImportError) as error:
        wrong.append(f"no device starts: {str(error).splitlines()[0]}")
        return ["none"]


def _cache(wrong: list[str]) -> list[str]:
    folder = cache_folder()
    if not flags.cache:
        return ["switched off"]
    sizes = [f.stat().st_size for f in folder.rglob("*") if f.is_file()] if folder.exists() else []
    return [f"{folder}", f"{len(sizes)} files, {text.size(sum(sizes))} of {text.size(flags.cache_bytes)}"]


def _flags(wrong: list[str]) -> list[str]:
    try:
        check_environment()
    except UserError as error:
        wrong.append(f"{error.why}; {error.fix}")
    rows = []
    for name, flag in FLAGS.items():
        try:
            value = getattr(flags, name)
        except UserError as error:
            wrong.append(error.why)
            continue
        if value != flag.default:
            rows.append(f"{flag.env}={value}")
    return rows or ["all at their defaults"]


_SECTIONS = {"versions": _versions, "processor": _host, "devices": _devices, "cache": _cache, "flags": _flags}
