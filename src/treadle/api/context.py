"""The mode in which cells run: `set_context(mode=GRAPH_MODE)` compiles whole calls, PYNATIVE_MODE runs op by op."""

from __future__ import annotations

from treadle.base.errors import UserError
from treadle.base.flags import flags

GRAPH_MODE, PYNATIVE_MODE = 0, 1


def set_context(*, mode: int | str) -> None:
    """Choose GRAPH_MODE (or "graph") or PYNATIVE_MODE (or "eager"). Raises E0208 for anything else."""
    names = {GRAPH_MODE: "graph", PYNATIVE_MODE: "eager", "graph": "graph", "eager": "eager"}
    if mode not in names or isinstance(mode, bool):
        raise UserError("E0208", f"mode {mode!r} is unknown", fix="use context.GRAPH_MODE or context.PYNATIVE_MODE")
    flags.set("mode", names[mode])


def get_context(name: str) -> int:
    """The value of a setting: "mode". Raises E0208 for another name."""
    if name != "mode":
        raise UserError("E0208", f"there is no setting {name!r}", fix="use 'mode'")
    return GRAPH_MODE if is_graph() else PYNATIVE_MODE


def is_graph() -> bool:
    """Whether cells are compiled whole."""
    return bool(flags.mode == "graph")
