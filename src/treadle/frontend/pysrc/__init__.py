"""The source front end: the control flow of a user's function, rewritten so that tensors may decide.

`converted(function)` gives the function to run in a trace; source.py finds its syntax tree, exits.py removes jumps,
rewrite.py turns decisions and loops into calls of runtime.py, which stages what depends on a tensor.
"""

from treadle.frontend.pysrc import runtime
from treadle.frontend.pysrc.convert import converted, is_converted

__all__ = ["converted", "is_converted", "runtime"]
