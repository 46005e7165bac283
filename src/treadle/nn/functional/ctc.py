"""Connectionist temporal classification: the loss of a sequence whose alignment with its target is not known."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.api.control import scan
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.lift import cast, lift
from treadle.frontend.shaping import concatenate, stack, swapaxes
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.loss import _reduced
from treadle.ops.compare import equal, greater_equal, less, logical_and, logical_not, logical_or, select
from treadle.ops.elementwise import maximum
from treadle.ops.functions import exp, log


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the chance of all alignments that read as the target when repeats are joined and blanks left out.

    log_probs: float[T, N, C], log-probabilities (or [T, C] of one sequence). targets: int[N, S], padded with anything,
    or all targets one after the other, int[sum(target_lengths)]. input_lengths, target_lengths: int[N] (or one int).
    "mean": each loss over its target length (at least 1), then the mean. A target that does not fit into its input
    has loss infinity and gradient zero; zero_infinity: loss 0. Sources: Graves et al. 2006, doi:10.1145/1143844.1143891
    (in logarithms). Raises E0555 for shapes that do not fit, E0556.
    A label outside 0..C-1 gives NaN. 16-bit log_probs give a float32 loss.
    """
    log_probs, targets = lift(log_probs), lift(targets)
    if log_probs.dtype.bits == 16:
        log_probs = cast(log_probs, dtypes.float32)
    single = log_probs.ndim == 2
    if single:
        log_probs, targets = log_probs.reshape((log_probs.shape[0], 1, log_probs.shape[1])), targets.reshape((1, -1))
    if log_probs.ndim != 3:
        raise UserError("E0555", f"ctc_loss: log_probs is {log_probs.type}", fix="shape it as [T, N, C]")
    batch, classes = log_probs.shape[1:]
    if not isinstance(input_lengths, Tensor) and np.max(input_lengths, initial=0) > log_probs.shape[0]:
        why = f"ctc_loss: an input length of {np.max(input_lengths)} for {log_probs.shape[0]} steps"
        raise UserError("E0555", why, fix="give the number of steps of each sequence")
    if not 0 <= blank < classes:
        raise UserError("E0555", f"ctc_loss: blank is {blank} of {classes} classes", fix=f"use 0 to {classes - 1}")
    times, sizes = (_lengths(n, batch, what) for n, what in ((input_lengths, "input"), (target_lengths, "target")))
    if targets.ndim == 1:
        targets = _padded(targets, target_lengths)
    if targets.ndim != 2 or targets.shape[0] != batch or targets.dtype.is_inexact:
        raise UserError("E0555", f"ctc_loss: targets are {targets.type}", fix=f"give int[{batch}, S] or one row of all")
    loss = -_log_likelihood(log_probs, cast(targets, dtypes.int32), times, sizes, blank)
    zero = np.zeros((), loss.dtype.np)
    if zero_infinity:
        loss = select(equal(loss, np.asarray(np.inf, loss.dtype.np)), zero, loss)
    if reduction == "mean":
        loss = loss / cast(maximum(sizes, 1), loss.dtype)
    reduced = _reduced(loss, reduction)
    return reduced.reshape(()) if single and reduction == "none" else reduced


def _lengths(lengths: Any, batch: int, what: str) -> Tensor:
    made: Tensor = cast(lift(lengths), dtypes.int32).reshape((-1,))
    if made.shape != (batch,):
        raise UserError("E0555", f"ctc_loss: {what}_lengths are {made.type}", fix=f"give one per sequence, {batch}")
    return made


def _padded(targets: Tensor, lengths: Any) -> Tensor:
    """Targets given one after the other as rows; their lengths must be numbers, for they decide the shape."""
    if isinstance(lengths, Tensor) and lengths._trace is not None:
        why = "ctc_loss: targets one after the other with lengths that are known to the program only"
        raise UserError("E0555", why, fix="give padded targets, int[N, S]")
    sizes = np.asarray(lengths).reshape(-1).astype(np.int64)
    if sizes.sum() != targets.shape[0]:
        why = f"ctc_loss: {targets.shape[0]} targets for lengths that sum to {sizes.sum()}"
        raise UserError("E0555", why, fix="give as many targets as the lengths say")
    ends = np.cumsum(sizes)
    places = (ends - sizes)[:, None] + np.arange(int(sizes.max(initial=0)))
    row = concatenate([targets, np.zeros(1, targets.dtype.np)])  # so that a place past the end exists
    made: Tensor = row[np.minimum(places, targets.shape[0])]
    return made


def _log_likelihood(log_probs: Tensor, targets: Tensor, times: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """log of the chance of each target, [N]; states are blank, label, blank, label, ..., blank."""
    steps, batch, classes = log_probs.shape
    count = 2 * targets.shape[1] + 1
    blanks = np.full((batch, targets.shape[1]), blank, np.int32)
    labels = stack([blanks, targets], 2).reshape((batch, count - 1))
    labels = concatenate([labels, np.full((batch, 1), blank, np.int32)], 1)
    before = concatenate([np.full((batch, 2), blank, np.int32), labels[:, : count - 2]], 1)[:, :count]
    jump = logical_and(logical_not(equal(labels, blank)), logical_not(equal(labels, before)))
    known = logical_and(greater_equal(labels, 0), less(labels, classes))
    kind, place = log_probs.dtype, np.arange(count, dtype=np.int32)
    never, nan = (np.asarray(x, kind.np) for x in (-np.inf, np.nan))
    safe = fn.broadcast_to(select(known, labels, np.zeros((), np.int32)), (steps, batch, count))
    emitted = select(known, fn.take_along_axis(log_probs, safe, 2), nan)  # float[T, N, count]
    emitted = select(less(place, sizes.reshape((-1, 1)) * 2 + 1), emitted, never)

    def step(alpha: Any, now: Any) -> Any:
        row, t = now
        gap = np.full((batch, 1), never)
        one = concatenate([gap, alpha[:, :-1]], 1)
        two = select(jump, concatenate([gap, gap, alpha[:, :-2]], 1)[:, :count], never)
        new = _log_sum(stack([alpha, one, two])) + row
        return select(less(t, times.reshape((-1, 1))), new, alpha), None

    if steps == 0:
        nothing: Tensor = select(equal(sizes, 0), np.zeros((), kind.np), never)
        return nothing
    alpha = select(place < 2, emitted[0], never)
    if steps > 1:
        alpha, _ = scan(step, alpha, (emitted[1:], np.arange(1, steps, dtype=np.int32)))
    last = sizes.reshape((-1, 1)) * 2
    ends = logical_or(equal(place, last), logical_and(equal(place, last - 1), greater_equal(last, 1)))
    total = _log_sum(swapaxes(select(ends, alpha, never), 0, 1))
    untimed = select(equal(sizes, 0), np.zeros((), kind.np), never)
    chance: Tensor = select(equal(times, 0), untimed, total)
    return chance


def _log_sum(terms: Any) -> Any:
    """log of the sum of exp along axis 0; where all are -inf it is -inf with gradient zero."""
    top = fn.stop_gradient(fn.max(terms, 0))
    one, never = np.ones((), top.dtype.np), np.asarray(-np.inf, top.dtype.np)
    none = equal(top, never)
    base = select(none, np.zeros((), top.dtype.np), top)
    total = fn.sum(exp(terms - base), 0)
    return select(none, never, log(select(none, one, total)) + base)
