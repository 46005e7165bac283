"""`set_seed`: Treadle's default generator, and NumPy's, which data sets shuffle by."""

from __future__ import annotations

import random

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend.create import manual_seed


class _Seed:
    """The seed that was set, and the generator of data sets."""

    value: int | None = None
    data = np.random.default_rng()


def set_seed(seed: int) -> None:
    """Begin all streams of random numbers anew: initialisers, dropout, data sets, NumPy and `random`. Raises E0590."""
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UserError("E0590", f"the seed is {seed!r}", fix="give an integer of 0 or more")
    _Seed.value = seed
    manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    _Seed.data = np.random.default_rng(seed)


def get_seed() -> int | None:
    """The seed that was set, None if none was."""
    return _Seed.value


def data_rng() -> np.random.Generator:
    """The generator that data sets shuffle by."""
    return _Seed.data
