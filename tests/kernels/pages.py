"""Arrays whose last byte is the last one before memory that must not be touched."""

import ctypes
import mmap

import numpy as np

_held = []  # mappings live as long as the process: NumPy arrays point into them


def at_page_end(array):
    """A copy of the array that ends where a page begins that can neither be read nor written."""
    array = np.ascontiguousarray(array)
    page = mmap.PAGESIZE
    room = -(-max(array.nbytes, 1) // page) * page
    held = mmap.mmap(-1, room + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    _held.append(held)
    there = np.frombuffer(held, np.uint8, array.nbytes, room - array.nbytes).view(array.dtype).reshape(array.shape)
    there[...] = array
    return there
