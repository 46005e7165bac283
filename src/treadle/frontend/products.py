"""Products that sum: matmul with NumPy's rules, dot, outer, tensordot, and einsum, two operands at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import shaping
from treadle.frontend.elementwise import pair
from treadle.frontend.lift import cast, dtype_of, integer, ints, is_number, is_tensor, lift, one_axis, weak_type
from treadle.ops import elementwise
from treadle.ops.products import contract
from treadle.ops.products import matmul as matmul_op
from treadle.ops.products import matmul_integer as matmul_integer_op
from treadle.ops.reduce import reduce_sum

Term = tuple[Any, str]  # a tensor and one letter for each of its axes


def matmul(x: Any, y: Any) -> Any:
    """x @ y: matrices in the last two axes, leading axes broadcast; a vector is a row (left) or a column (right).

    x: [..., m, k], y: [..., k, n] -> [..., m, n]. Raises E0114 for 0-d operands or when the k's differ.
    """
    if _are_plain(x, y):
        return matmul_op(x, y)
    x, y = _promoted(x, y)
    if x.ndim == 0 or y.ndim == 0:
        raise UserError("E0114", "a number in a matrix product", fix="use *")
    if x.shape[-1] != y.shape[-2 if y.ndim > 1 else 0]:
        why = f"inner sizes differ: x has shape {list(x.shape)}, y {list(y.shape)}"
        raise UserError("E0114", why, fix=f"give y {x.shape[-1]} rows")
    if x.ndim == 1 and y.ndim == 1:
        return reduce_sum(x * y, axes=(0,)) if not x.dtype.is_inexact else contract(x, y, spec="a,a->")
    left = shaping.expand_dims(x, 0) if x.ndim == 1 else x
    right = shaping.expand_dims(y, 1) if y.ndim == 1 else y
    out = matmul_op(left, right) if x.dtype.is_inexact else _integer_matmul(left, right)
    if x.ndim == 1:
        return shaping.squeeze(out, -2)
    return shaping.squeeze(out, -1) if y.ndim == 1 else out


def matmul_integer(x: Any, y: Any) -> Any:
    """x @ y of bytes, summed in int32 (modulo 2**32): the product of quantised numbers. A kernel's on CPUs with VNNI.

    x: int8 or uint8 [..., m, k], y: int8 or uint8 [..., k, n] -> int32[..., m, n]; leading axes broadcast. Raises E0106
    for other types, E0114 for fewer than two axes or when the k's differ, E0108 when the leading axes do.
    """
    return matmul_integer_op(lift(x), lift(y))


def _are_plain(x: Any, y: Any) -> bool:
    """Whether x and y are matrices of one float type whose sizes fit."""
    if not (is_tensor(x) and is_tensor(y)) or len(x.shape) != 2 or len(y.shape) != 2:
        return False
    return x.shape[1] == y.shape[0] and x.dtype is y.dtype and x.dtype.is_inexact


def _promoted(*operands: Any) -> tuple[Any, ...]:
    """Tensors of one element type, which Python numbers take from the others."""
    weak = [is_number(x) or weak_type(x) is not None for x in operands]
    strong = [lift(x) for x, w in zip(operands, weak, strict=True) if not w] or [lift(operands[0])]
    target = dtypes.promote(*[dtype_of(x) for x in strong])
    for x, w in zip(operands, weak, strict=True):
        target = dtypes.promote_scalar(target, weak_type(x) or type(x)) if w else target
    return tuple([cast(lift(x), target) for x in operands])


def _integer_matmul(x: Any, y: Any) -> Any:
    """The hardware's products are for floats; integers (which wrap around) are multiplied and summed."""
    products = shaping.expand_dims(x, -1) * shaping.expand_dims(y, -3)
    return reduce_sum(products, axes=(products.ndim - 2,))


def dot(x: Any, y: Any) -> Any:
    """The product of numbers, vectors or matrices; else the sum over the last axis of x and the second last of y."""
    x, y = _promoted(x, y)
    if x.ndim == 0 or y.ndim == 0:
        return elementwise.mul(x, y)
    if x.ndim <= 2 and y.ndim <= 2:
        return matmul(x, y)
    return tensordot(x, y, ((-1,), (-2 if y.ndim > 1 else 0,)))


def outer(x: Any, y: Any) -> Any:
    """result[i, j] = x[i] * y[j]; both are flattened first."""
    x, y = pair(lift(x), lift(y))
    left, right = math.prod(x.shape), math.prod(y.shape)
    return elementwise.mul(shaping.reshape(x, (left, 1)), shaping.reshape(y, (1, right)))


def tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    """The sum over pairs of axes: the last n of x with the first n of y, or (axes of x, axes of y).

    The result has the other axes of x, then those of y. Raises E0103 when the pairs do not match.
    """
    x, y = _promoted(x, y)
    if not isinstance(axes, tuple | list):
        count = integer(axes, "the number of axes")
        axes = (list(range(x.ndim - count, x.ndim)), list(range(count)))
    of_x = [one_axis(a, x.ndim) for a in ints((axes[0],), "an axis")]
    of_y = [one_axis(a, y.ndim) for a in ints((axes[1],), "an axis")]
    if len(of_x) != len(of_y):
        raise UserError("E0103", f"axes {axes}: {len(of_x)} of x, {len(of_y)} of y", fix="name as many of both")
    letters = list(ascii_letters[: x.ndim + y.ndim])
    in_x, in_y = letters[: x.ndim], letters[x.ndim :]
    for a, b in zip(of_x, of_y, strict=True):
        in_y[b] = in_x[a]
    out = [c for c in in_x if c not in in_y] + [c for c in in_y if c not in in_x]
    return einsum(f"{''.join(in_x)},{''.join(in_y)}->{''.join(out)}", x, y)


# ---------------------------------------------------------------------------------------------------------- einsum
def einsum(spec: str, *operands: Any) -> Any:
    """The product of the operands summed over the letters that the result lacks, as `numpy.einsum`.

    "bij,bjk->bik"; a letter twice in one operand takes its diagonal; "..." stands for leading axes that broadcast;
    without "->" the result has the letters that occur once, sorted. Two operands are contracted at a time, those first
    that give the smallest tensor. Raises E0136 for a spec that does not fit, E0137 when the sizes of a letter differ.
    """
    if not isinstance(spec, str):
        raise UserError("E0136", f"the spec is a {type(spec).__name__}", fix='begin with it: einsum("ij,jk->ik", x, y)')
    tensors = list(_promoted(*operands))
    inputs, out = _parse(spec, [x.ndim for x in tensors])
    terms = [_diagonals(x, letters) for x, letters in zip(tensors, inputs, strict=True)]
    sizes = _sizes(spec, terms)
    terms = [_squeezed(x, letters, sizes) for x, letters in terms]
    if len(terms) == 1:
        terms = [_summed(*terms[0], set(out))]
    while len(terms) > 1:
        i, j = _cheapest(terms, out, sizes)
        right, left = terms.pop(j), terms.pop(i)
        terms.append(_contracted(left, right, {*out, *"".join(letters for _, letters in terms)}))
    x, letters = terms[0]
    return shaping.permute(x, tuple(map(letters.index, out)))


def _parse(spec: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """One letter per axis for each operand and for the result; axes under "..." get unused letters."""
    text = spec.replace(" ", "")
    ins, arrow, out = text.partition("->")
    parts = ins.split(",")
    plain = [p.replace("...", "", 1) for p in (*parts, out)]
    if len(parts) != len(ranks) or not all(p.isascii() and (p.isalpha() or not p) for p in plain):
        raise UserError("E0136", f"spec {spec!r} for {len(ranks)} operands", fix='write letters, like "bij,bjk->bik"')
    free = [c for c in ascii_letters if c not in text]
    spread = [rank - len(p) for rank, p in zip(ranks, plain, strict=False)]
    for n, part, rank in zip(spread, parts, ranks, strict=True):
        if n < 0 or (n > 0 and "..." not in part):
            raise UserError("E0136", f"{part!r} of spec {spec!r} stands for {rank} axes", fix="give each axis a letter")
    most = max((n for n, p in zip(spread, parts, strict=True) if "..." in p), default=0)
    lead = "".join(free[:most])
    inputs = [p.replace("...", lead[most - n :]) for n, p in zip(spread, parts, strict=True)]
    letters = "".join(parts).replace(".", "")
    if not arrow:
        return inputs, lead + "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)
    if len(set(plain[-1])) < len(plain[-1]) or not set(plain[-1]) <= set(letters):
        why = f"the result of spec {spec!r} repeats or invents a letter"
        raise UserError("E0136", why, fix="name letters of the operands, each once")
    return inputs, out.replace("...", lead)


def _diagonals(x: Any, letters: str) -> Term:
    """Each letter once: pairs of axes with one letter become their diagonal, the last axis."""
    for c in letters:
        while letters.count(c) > 1:
            a, b = letters.index(c), letters.rindex(c)
            if x.shape[a] != x.shape[b]:
                why = f"{c!r} stands for axes of sizes {x.shape[a]} and {x.shape[b]}"
                raise UserError("E0137", why, fix="make the sizes equal")
            x = shaping.diagonal(x, a, b)
            letters = letters[:a] + letters[a + 1 : b] + letters[b + 1 :] + c
    return x, letters


def _sizes(spec: str, terms: Sequence[Term]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for x, letters in terms:
        for c, n in zip(letters, x.shape, strict=True):
            known = sizes.setdefault(c, n)
            if n != known and 1 not in (n, known):
                raise UserError("E0137", f"a letter of {spec!r} has sizes {known} and {n}", fix="make the sizes equal")
            sizes[c] = n if known == 1 else known
    return sizes


def _squeezed(x: Any, letters: str, sizes: dict[str, int]) -> Term:
    """Without the axes of size 1 that are broadcast against another operand."""
    gone = tuple(i for i, c in enumerate(letters) if x.shape[i] == 1 and sizes[c] != 1)
    return shaping.squeeze(x, gone), "".join(c for i, c in enumerate(letters) if i not in gone)


def _summed(x: Any, letters: str, wanted: set[str]) -> Term:
    """Summed over the letters that nobody wants."""
    gone = tuple(i for i, c in enumerate(letters) if c not in wanted)
    return (reduce_sum(x, axes=gone) if gone else x), "".join(c for c in letters if c in wanted)


def _cheapest(terms: Sequence[Term], out: str, sizes: dict[str, int]) -> tuple[int, int]:
    """The pair whose contraction is the smallest tensor."""

    def cost(pair: tuple[int, int]) -> int:
        others = {c for k, (_, letters) in enumerate(terms) if k not in pair for c in letters}
        both = set(terms[pair[0]][1] + terms[pair[1]][1])
        return math.prod(sizes[c] for c in both & (others | set(out)))

    return min([(i, j) for j in range(len(terms)) for i in range(j)], key=cost)


def _contracted(left: Term, right: Term, wanted: set[str]) -> Term:
    """The product of two terms, summed over the letters of both that nobody wants any more."""
    x, in_x = _summed(*left, wanted | set(right[1]))
    y, in_y = _summed(*right, wanted | set(in_x))
    out = "".join(c for c in dict.fromkeys(in_x + in_y) if c in wanted)
    if x.dtype.is_inexact:
        return contract(x, y, spec=f"{in_x},{in_y}->{out}"), out
    both = "".join(dict.fromkeys(in_x + in_y))
    return _summed(elementwise.mul(_spread(x, in_x, both), _spread(y, in_y, both)), both, set(out))


def _spread(x: Any, letters: str, order: str) -> Any:
    """x with its axes in the given order, of size 1 where it has none."""
    kept = [c for c in order if c in letters]
    x = shaping.permute(x, tuple(map(letters.index, kept)))
    return shaping.reshape(x, tuple([x.shape[kept.index(c)] if c in kept else 1 for c in order]))
