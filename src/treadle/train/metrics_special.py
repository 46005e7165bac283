"""Metrics of text (edit distance, error rates, BLEU) and of images (PSNR, SSIM). `update`, `compute`, `reset`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.train.metrics import Mean, Metric
from treadle.train.metrics_more import MeanSquaredError, _errors


def edit_distance(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The fewest insertions, removals and replacements that turn one sequence into the other (Levenshtein 1966)."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


class WordErrorRate:
    """Edits over all words of the references: `update(prediction, target)` takes a text each, or lists of texts.

    Raises E0560 when there are more texts of one kind.
    """

    name = "wer"

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.edits, self.length = 0, 0

    def split(self, text: str) -> Sequence[str]:
        """The units that are counted."""
        return text.split()

    def update(self, prediction: str | Sequence[str], target: str | Sequence[str]) -> None:
        """Add texts."""
        for found, wanted in _texts(prediction, target, self.name):
            units = self.split(wanted)
            self.edits += edit_distance(self.split(found), units)
            self.length += len(units)

    def compute(self) -> float:
        """The rate, which may pass 1; NaN without reference words."""
        return self.edits / self.length if self.length else math.nan


class CharErrorRate(WordErrorRate):
    """Edits over all characters of the references; as `WordErrorRate`."""

    name = "cer"

    def split(self, text: str) -> Sequence[str]:
        return text


def _texts(prediction: Any, target: Any, name: str) -> list[tuple[Any, Any]]:
    found = [prediction] if isinstance(prediction, str) else list(prediction)
    wanted = [target] if isinstance(target, str) else list(target)
    if len(found) != len(wanted):
        raise UserError("E0560", f"{name}: {len(found)} texts for {len(wanted)}", fix="give one text per reference")
    return list(zip(found, wanted, strict=True))


class BLEU:
    """exp(mean log share of n-grams, n = 1 to max_n, that are in a reference) times a penalty for short texts.

    `update(texts, references)`: references is a list of texts, or of lists of texts, one per text. Words are split at
    white space. smooth: one is added to the counts for n > 1 (Lin & Och 2004). Source: Papineni et al. 2002,
    doi:10.3115/1073083.1073135. Raises E0560.
    """

    name = "bleu"

    def __init__(self, max_n: int = 4, smooth: bool = False) -> None:
        if max_n < 1:
            raise UserError("E0560", f"max_n is {max_n}", fix="give 1 or more")
        self.max_n, self.smooth = max_n, smooth
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.right, self.total = np.zeros(self.max_n), np.zeros(self.max_n)
        self.length, self.wanted = 0, 0

    def update(self, prediction: str | Sequence[str], target: Any) -> None:
        """Add texts."""
        for found, references in _texts(prediction, target, self.name):
            words = found.split()
            sets = [r.split() for r in ([references] if isinstance(references, str) else references)]
            if not sets:
                raise UserError("E0560", "bleu: a text without reference", fix="give one or more for each")
            self.length += len(words)
            self.wanted += min((abs(len(r) - len(words)), len(r)) for r in sets)[1]
            for n in range(self.max_n):
                most: Counter[tuple[str, ...]] = Counter()
                for r in sets:
                    most |= _grams(r, n + 1)
                own = _grams(words, n + 1)
                self.right[n] += sum((own & most).values())
                self.total[n] += sum(own.values())

    def compute(self) -> float:
        """From 0 to 1; 0 where some n-gram never fits."""
        extra = (np.arange(self.max_n) > 0) * float(self.smooth)
        right, total = self.right + extra, self.total + extra
        if not self.length or (right == 0).any():
            return 0.0
        penalty = min(0.0, 1 - self.wanted / self.length)
        return math.exp(float(np.log(right / total).mean()) + penalty)


def _grams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


class PSNR(MeanSquaredError):
    """10 * log10(range ** 2 / mean squared error) in decibels. Raises E0560 when the shapes differ."""

    name = "psnr"

    def __init__(self, data_range: float = 1.0) -> None:
        super().__init__()
        self.data_range = data_range

    def compute(self) -> float:
        """Infinite for equal images; NaN of none."""
        error = super().compute()
        if math.isnan(error):
            return error
        return 10 * math.log10(self.data_range**2 / error) if error else math.inf


class SSIM(Metric):
    """Structural similarity, the mean over windows, channels and images: float[N, C, H, W] each, at least 11 x 11.

    Gaussian windows of 11 x 11, sigma 1.5, that lie inside the image. Source: Wang et al. 2004,
    doi:10.1109/TIP.2003.819861. Raises E0560.
    """

    name = "ssim"

    def __init__(self, data_range: float = 1.0) -> None:
        super().__init__()
        self.data_range, self.mean = data_range, Mean()

    def score(self, prediction: Any, target: Any) -> Any:
        _errors(prediction, target, self.name)
        if prediction.ndim != 4 or min(prediction.shape[2:]) < 11:
            why = f"ssim of shape {list(prediction.shape)}"
            raise UserError("E0560", why, fix="give [N, C, H, W], H and W of 11 or more")
        x, y = prediction.astype(np.float64), target.astype(np.float64)
        mx, my, xx, yy, xy = (_blurred(a) for a in (x, y, x * x, y * y, x * y))
        one, two = (0.01 * self.data_range) ** 2, (0.03 * self.data_range) ** 2
        top = (2 * mx * my + one) * (2 * (xy - mx * my) + two)
        return (top / ((mx**2 + my**2 + one) * (xx - mx**2 + yy - my**2 + two))).mean((1, 2, 3))


def _blurred(x: Any) -> Any:
    """Weighted means of all windows of the last two axes."""
    line = np.exp(-((np.arange(11) - 5) ** 2) / (2 * 1.5**2))
    line /= line.sum()
    for axis in (-1, -2):
        x = np.lib.stride_tricks.sliding_window_view(x, 11, axis=axis) @ line
    return x
