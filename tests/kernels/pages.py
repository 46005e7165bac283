"""Arrays beside memory that must not be touched: a protected page on one side, guard bytes on the other."""

import ctypes
import mmap

import numpy as np

GUARD = 0xA5


class Fenced:
    """A copy of an array, `.array`, that ends where readable memory ends; or, `first`, that begins where it begins (and
    so is aligned to a page). `.intact()`: whether the bytes on its other side are as they were. An array keeps the
    memory that it lies in."""

    def __init__(self, array, first=False):
        array = np.asarray(array, order="C")
        page = mmap.PAGESIZE
        room = (array.nbytes // page + 1) * page
        held = mmap.mmap(-1, room + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(held))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(start + (0 if first else room)), ctypes.c_size_t(page), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        bytes = np.frombuffer(held, np.uint8, room, page if first else 0)
        at = 0 if first else room - array.nbytes
        self.guard = bytes[array.nbytes :] if first else bytes[:at]
        self.guard[:] = GUARD
        self.array = bytes[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def intact(self):
        return bool((self.guard == GUARD).all())


def at_page_end(array):
    """A copy of the array that ends where a page begins that can neither be read nor written."""
    return Fenced(array).array
