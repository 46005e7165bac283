"""`td.random`: random tensors of every distribution, keyed by a `Generator` (the default one unless given).

Parameters are numbers or tensors that broadcast; `shape` is the result's (default: the parameters'). Draws are
functions of the key and of an element's place alone. Where a draw is a formula of a parameterless one (location and
scale, powers), it has a derivative for the parameters; gamma, beta, Dirichlet, t and counts have none.
"""

from __future__ import annotations

from typing import Any

from treadle import ops
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as td
from treadle.frontend import linalg, shaping
from treadle.frontend.create import (
    Generator,
    arange,
    bernoulli,
    categorical,
    default_generator,
    exponential,
    manual_seed,
    normal,
    permutation,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    standard_gamma,
    truncated_normal,
    uniform,
)  # fmt: skip
from treadle.frontend.lift import cast, floating, integer, ints, is_number, lift, one_axis
from treadle.ops._types import broadcast_shapes

__all__ = [
    "Generator", "bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "choice", "default_generator",
    "dirichlet", "exponential", "f", "gamma", "geometric", "gumbel", "laplace", "logistic", "lognormal", "manual_seed",
    "multinomial", "multivariate_normal", "negative_binomial", "normal", "orthogonal", "pareto", "permutation",
    "poisson", "rademacher", "rand", "rand_like", "randint", "randn", "randn_like", "rayleigh", "shuffle",
    "standard_gamma", "student_t", "truncated_normal", "uniform", "weibull",
]  # fmt: skip

_Gen = Generator | None
_F32 = dtypes.float32


def _shape(shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape that is given, else the one that the parameters broadcast to."""
    if shape is not None:
        return ints((shape,))
    sizes: tuple[int, ...] = broadcast_shapes(*[() if is_number(p) else tuple(lift(p).shape) for p in parameters])
    return sizes


def _standard(shape: Any, dtype: Any, generator: _Gen, *parameters: Any) -> Any:
    """Exponential numbers of mean 1."""
    return exponential(1.0, _shape(shape, *parameters), dtype, generator)


def _scaled(draw: Any, loc: Any, scale: Any, dtype: Any) -> Any:
    return cast(draw * scale + loc, dtypes.of(dtype))


# --- locations and scales ---------------------------------------------------------------------------------------------


def laplace(
    loc: Any = 0.0, scale: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None
) -> Any:  # fmt: skip
    """Density exp(-|x - loc| / scale) / (2 scale)."""
    sizes = _shape(shape, loc, scale)
    sign = rademacher(sizes, dtype, generator)
    return _scaled(sign * _standard(sizes, dtype, generator), loc, scale, dtype)


def gumbel(loc: Any = 0.0, scale: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """The distribution of the largest of many: loc - scale * log(E), E exponential."""
    return _scaled(-td.log(_standard(shape, dtype, generator, loc, scale)), loc, scale, dtype)


def logistic(loc: Any = 0.0, scale: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """P(x < t) = sigmoid((t - loc) / scale)."""
    e = _standard(shape, dtype, generator, loc, scale)
    return _scaled(td.log(td.expm1(e)), loc, scale, dtype)


def cauchy(loc: Any = 0.0, scale: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """loc + scale times the quotient of two standard normal numbers."""
    sizes = _shape(shape, loc, scale)
    top, bottom = [randn(sizes, dtype=dtype, generator=generator) for _ in range(2)]
    return _scaled(top / bottom, loc, scale, dtype)


def lognormal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """The exponential of normal numbers with this mean and standard deviation."""
    return td.exp(normal(mean, std, _shape(shape, mean, std), dtype, generator))


def rayleigh(scale: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """The length of a vector of two normal numbers with this standard deviation."""
    return _scaled(td.sqrt(2 * _standard(shape, dtype, generator, scale)), 0.0, scale, dtype)


def weibull(concentration: Any, scale: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """scale * E ** (1 / concentration), E exponential."""
    e = _standard(shape, dtype, generator, concentration, scale)
    return _scaled(td.pow(e, 1 / concentration), 0.0, scale, dtype)


def pareto(alpha: Any, scale: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """P(x > t) = (scale / t) ** alpha for t >= scale. (`numpy.random.pareto` gives this less 1.)"""
    e = _standard(shape, dtype, generator, alpha, scale)
    return _scaled(td.exp(e / alpha), 0.0, scale, dtype)


def rademacher(shape: Any = (), dtype: Any = _F32, generator: _Gen = None) -> Any:
    """1 or -1 with equal chances."""
    return 2 * bernoulli(0.5, ints((shape,)), dtype, generator) - 1


def multivariate_normal(mean: Any, covariance: Any, shape: Any = (), generator: _Gen = None) -> Any:
    """Normal vectors. mean: [..., n], covariance: [..., n, n] -> [*shape, ..., n]; NaN unless positive definite.

    Raises E0180 for matrices that are not square.
    """
    mean, factor = floating(mean), linalg.cholesky(covariance)
    lead = broadcast_shapes(tuple(mean.shape[:-1]), tuple(factor.shape[:-2]))
    z = randn((*ints((shape,)), *lead, factor.shape[-1]), dtype=factor.dtype, generator=generator)
    return td.matmul(factor, z.reshape(*z.shape, 1)).reshape(z.shape) + mean


# --- gamma and its kin ------------------------------------------------------------------------------------------------


def _parameter(p: Any, sizes: tuple[int, ...], dtype: Any) -> Any:
    return shaping.broadcast_to(cast(floating(p), dtypes.of(dtype)), sizes)


def gamma(alpha: Any, scale: Any = 1.0, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """Density proportional to x ** (alpha - 1) * exp(-x / scale); NaN unless alpha > 0."""
    sizes = _shape(shape, alpha, scale)
    return _scaled(standard_gamma(_parameter(alpha, sizes, dtype), generator=generator), 0.0, scale, dtype)


def _log_gamma(alpha: Any, generator: _Gen) -> Any:
    """Logarithms of gamma numbers, which for small alpha would underflow themselves."""
    boost = exponential(1.0, tuple(alpha.shape), alpha.dtype, generator) / alpha
    return td.log(standard_gamma(alpha + 1, generator=generator)) - boost


def beta(a: Any, b: Any, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """Density proportional to x ** (a - 1) * (1 - x) ** (b - 1) on (0, 1)."""
    sizes = _shape(shape, a, b)
    first, second = [_log_gamma(_parameter(p, sizes, dtype), generator) for p in (a, b)]
    return td.sigmoid(first - second)


def dirichlet(alpha: Any, shape: Any = (), dtype: Any = _F32, generator: _Gen = None) -> Any:
    """Vectors of positive numbers with sum 1. alpha: [..., k] -> [*shape, ..., k]. Raises E0107 for a single number."""
    alpha = floating(alpha)
    if not alpha.ndim:
        raise UserError("E0107", "dirichlet of a single number", fix="give a vector of parameters")
    wide = _parameter(alpha, (*ints((shape,)), *alpha.shape), dtype)
    return td.softmax(_log_gamma(wide, generator), axis=-1)


def chi2(df: Any, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """The sum of df squared standard normal numbers."""
    return gamma(lift(df) / 2, 2.0, _shape(shape, df), dtype, generator)


def student_t(df: Any, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """Student's distribution: a normal number divided by the square root of chi2(df) / df."""
    sizes = _shape(shape, df)
    z = randn(sizes, dtype=dtype, generator=generator)
    return cast(z * td.rsqrt(chi2(df, sizes, dtype, generator) / df), dtypes.of(dtype))


def f(df1: Any, df2: Any, shape: Any = None, dtype: Any = _F32, generator: _Gen = None) -> Any:
    """Fisher's distribution: (chi2(df1) / df1) / (chi2(df2) / df2)."""
    sizes = _shape(shape, df1, df2)
    top, bottom = [chi2(df, sizes, dtype, generator) / df for df in (df1, df2)]
    return cast(top / bottom, dtypes.of(dtype))


# --- counts -----------------------------------------------------------------------------------------------------------


def _next(generator: _Gen) -> Any:
    return (generator or default_generator).next_key()


def _whole(drawn: Any, dtype: Any) -> Any:
    """Counts as integers, -1 for NaN; NaN stays where floats are wanted."""
    kind = dtypes.of(dtype)
    return cast(td.where(td.isnan(drawn), -1.0, drawn) if kind.is_integer else drawn, kind)


def _exact(p: Any, sizes: tuple[int, ...]) -> Any:
    return _parameter(p, sizes, dtypes.float64)


def poisson(rate: Any, shape: Any = None, dtype: Any = dtypes.int64, generator: _Gen = None) -> Any:
    """Counts with this mean; -1 (NaN in a float dtype) where it is negative, NaN or infinite."""
    return _whole(ops.random_poisson(_next(generator), _exact(rate, _shape(shape, rate))), dtype)


def binomial(n: Any, p: Any, shape: Any = None, dtype: Any = dtypes.int64, generator: _Gen = None) -> Any:
    """How many of n trials with chance p succeed; -1 (NaN in a float dtype) where n < 0 or p is not from 0 to 1."""
    sizes = _shape(shape, n, p)
    return _whole(ops.random_binomial(_next(generator), _exact(n, sizes), _exact(p, sizes)), dtype)


def negative_binomial(n: Any, p: Any, shape: Any = None, dtype: Any = dtypes.int64, generator: _Gen = None) -> Any:
    """How many trials with chance p fail before n of them succeed: Poisson counts whose means are gamma numbers."""
    sizes = _shape(shape, n, p)
    share = _exact(p, sizes)
    rate = standard_gamma(_exact(n, sizes), generator=generator) * ((1 - share) / share)
    return poisson(rate, sizes, dtype, generator)


def geometric(p: Any, shape: Any = None, dtype: Any = dtypes.int64, generator: _Gen = None) -> Any:
    """How many trials with chance p until one succeeds: 1 or more; -1 (NaN in a float dtype) unless 0 < p <= 1."""
    sizes = _shape(shape, p)
    share = _exact(p, sizes)
    right = (share > 0) & (share <= 1)
    e = exponential(1.0, sizes, dtypes.float64, generator)
    count = td.maximum(td.ceil(e / -td.log1p(-td.where(right, share, 1.0))), 1.0)
    return _whole(td.where(right, count, float("nan")), dtype)


# --- choices ----------------------------------------------------------------------------------------------------------


def multinomial(probs: Any, num_samples: int, replacement: bool = False, generator: _Gen = None) -> Any:
    """Indices drawn with chances proportional to probs [..., k] -> int64[..., num_samples].

    Without replacement no index comes twice, in the order in which they would be drawn. Raises E0103 for more draws
    than there are classes, E0107 for a single number, E0130 for no classes.
    """
    probs, count = floating(probs), integer(num_samples, "num_samples")
    logits = td.log(probs)
    if replacement or count == 1:
        return shaping.moveaxis(categorical(logits, (count,), generator), 0, -1)
    if not probs.ndim:
        raise UserError("E0107", "the chances are a single number", fix="give them an axis of classes")
    if not 0 <= count <= probs.shape[-1]:
        why = f"{count} different ones of {probs.shape[-1]}"
        raise UserError("E0103", why, fix="draw fewer, or with replacement=True")
    noisy = logits + gumbel(shape=tuple(logits.shape), dtype=logits.dtype, generator=generator)
    order = td.argsort(noisy, axis=-1, descending=True)
    return cast(shaping.cut(order, order.ndim - 1, 0, count), dtypes.int64)


def choice(
    a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0, generator: _Gen = None
) -> Any:  # fmt: skip
    """Elements of a along an axis (of 0 to a - 1 for an int), with equal chances or those of p [n].

    Raises E0103 when more are drawn without replacement than there are, or p has another length; E0126 for none.
    """
    sizes = ints((shape,))
    source = None if isinstance(a, int) else lift(a)
    along = 0 if source is None else one_axis(axis, source.ndim)
    n = integer(a, "a") if source is None else source.shape[along]
    total = 1
    for s in sizes:
        total *= s
    if not replace and total > n:
        raise UserError("E0103", f"{total} different ones of {n}", fix="draw fewer, or with replace=True")
    if p is not None and tuple(lift(p).shape) != (n,):
        raise UserError("E0103", f"chances {lift(p).type} for {n} elements", fix=f"give {n} of them")
    if p is not None:
        flat = multinomial(p, total, replace, generator)
    elif replace:
        flat = randint(0, n, (total,), dtypes.int64, generator)
    else:
        flat = shaping.cut(permutation(n, generator), 0, 0, total)
    places = shaping.reshape(flat, sizes)
    return places if source is None else td.take(source, places, axis=along)


def shuffle(x: Any, axis: int = 0, generator: _Gen = None) -> Any:
    """x with its slices along an axis in random order."""
    x = arange(integer(x, "x")) if isinstance(x, int) else lift(x)
    along = one_axis(axis, x.ndim)
    return td.take(x, permutation(x.shape[along], generator), axis=along)


def orthogonal(n: int, shape: Any = (), dtype: Any = _F32, generator: _Gen = None) -> Any:
    """Orthogonal matrices [*shape, n, n], evenly distributed. Source: Mezzadri 2007, arXiv:math-ph/0609050."""
    size = integer(n, "n")
    q, r = linalg.qr(randn((*ints((shape,)), size, size), dtype=dtype, generator=generator))
    sign = td.where(linalg.diagonal(r) < 0, -1.0, 1.0)
    return q * shaping.expand_dims(cast(sign, q.dtype), -2)
