"""`treadle tune FILE:FUNCTION`: measures the kernels of a function's groups beside XLA's code, for later compilations.

What was measured is kept in the cache's folder, per kind of CPU. The arguments are those of `treadle show`.
"""

from __future__ import annotations

import argparse

from treadle.base import text
from treadle.base.errors import UserError
from treadle.cli import show


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file and the function in it")
    parser.add_argument("--args", default=None, metavar="TYPES", help='types of the arguments: "f32[4,8],i32[4]"')
    parser.add_argument("--budget", type=float, default=60.0, help="seconds to spend at most (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="measure what was measured before, too")


def run(options: argparse.Namespace) -> int:
    """Run the command; 0 when everything was measured. Raises E0418 without llvmlite."""
    from treadle import driver
    from treadle.api.programs import trace_module
    from treadle.api.tuning import tune
    from treadle.kernels.target import available

    if not available():
        raise UserError(
            "E0418", "there are no kernels to measure: llvmlite is not installed", fix="install treadle[kernels]"
        )
    function, values = show.target(options.target, options.args)
    module = driver.optimise(show.called(lambda: trace_module(function, *values)))
    measured = show.called(lambda: tune(module, options.budget, options.again))
    rows = [
        (key[:8], plan, text.seconds(seconds), "*" if seconds == min(times.values()) else "")
        for key, times in measured.items()
        for plan, seconds in sorted(times.items(), key=lambda item: item[1])
    ]
    print(text.table(("group", "plan", "time", "taken"), rows) if rows else "nothing new to measure")
    return 0
