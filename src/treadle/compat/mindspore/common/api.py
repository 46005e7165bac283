"""`mindspore.common.api`."""

from treadle.compat.mindspore._grad import jit, jit_class

ms_function, ms_class = jit, jit_class

__all__ = ["jit", "jit_class", "ms_class", "ms_function"]
