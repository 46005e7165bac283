"""Files: a module as versioned text with a checksum. Readers for all older versions are kept here.

`save(module, path)` writes `treadle-ir 1` text with positions and a closing line `# crc32 ...`; `load(path)` checks it.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from treadle.base.errors import UserError
from treadle.ir.host import Host
from treadle.ir.node import Module
from treadle.ir.parser import parse_module
from treadle.ir.printer import print_module
from treadle.ir.walk import all_nodes

_MARK = "# crc32 "


def save(module: Module, path: str | Path) -> None:
    """Write the module to a file, replacing it at once or not at all. Raises E0193 for one that calls Python."""
    for node in all_nodes(module):
        if (host := next((a for a in node.attrs.values() if isinstance(a, Host)), None)) is not None:
            why = f"a program that calls the Python function {host.name} cannot be written to a file"
            raise UserError("E0193", why, fix="leave prints, checks and callbacks out of it", where=node.where)
    text = print_module(module, where=True)
    target = Path(path)
    draft = target.with_name(target.name + ".new")
    draft.write_text(f"{text}{_MARK}{zlib.crc32(text.encode()):08x}\n")
    draft.replace(target)


def load(path: str | Path) -> Module:
    """Read a module. Raises E0602 for a damaged file and E0192 for one of an unknown version."""
    raw = Path(path).read_bytes()
    body, mark, checksum = raw.rpartition(_MARK.encode())
    if not mark or checksum.strip() != b"%08x" % zlib.crc32(body):
        raise UserError("E0602", f"{path} is damaged: its checksum does not match", fix="take another copy")
    return parse_module(body.decode())
