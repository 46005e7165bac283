"""Statistics of `td.random`. Bounds are 5 standard errors or more; the draws never change."""

import math

import numpy as np
import pytest

import treadle as td

N = 10000
R = td.random
erf = np.vectorize(math.erf)


@pytest.fixture(autouse=True)
def _seed():
    td.manual_seed(7)


def distance(found, cdf):
    """The largest distance of the distribution functions times sqrt(n): beyond 2.2 once in 10**4 draws."""
    x = np.sort(found.numpy().astype(np.float64))
    steps, theory = np.arange(len(x) + 1) / len(x), cdf(x)
    return max(np.max(np.abs(theory - steps[1:])), np.max(np.abs(theory - steps[:-1]))) * math.sqrt(len(x))


CONTINUOUS = {
    "laplace": (lambda: R.laplace(1.0, 2.0, (N,)), lambda x: 0.5 - np.sign(x - 1) * np.expm1(-np.abs(x - 1) / 2) / 2),
    "gumbel": (lambda: R.gumbel(-1.0, 2.0, (N,)), lambda x: np.exp(-np.exp(-(x + 1) / 2))),
    "logistic": (lambda: R.logistic(1.0, 0.5, (N,)), lambda x: 1 / (1 + np.exp(-(x - 1) / 0.5))),
    "cauchy": (lambda: R.cauchy(1.0, 3.0, (N,)), lambda x: 0.5 + np.arctan((x - 1) / 3) / np.pi),
    "lognormal": (lambda: R.lognormal(0.5, 2.0, (N,)), lambda x: 0.5 + 0.5 * erf((np.log(x) - 0.5) / 2 / np.sqrt(2))),
    "rayleigh": (lambda: R.rayleigh(2.0, (N,)), lambda x: -np.expm1(-(x**2) / 8)),
    "weibull": (lambda: R.weibull(1.5, 2.0, (N,)), lambda x: -np.expm1(-((x / 2) ** 1.5))),
    "pareto": (lambda: R.pareto(3.0, 2.0, (N,)), lambda x: 1 - (2 / x) ** 3),
    "gamma": (lambda: R.gamma(2.0, 3.0, (N,)), lambda x: 1 - np.exp(-x / 3) * (1 + x / 3)),
    "beta": (lambda: R.beta(2.0, 1.0, (N,)), lambda x: x**2),
    "beta of small ones": (lambda: R.beta(0.5, 0.5, (N,)), lambda x: 2 / np.pi * np.arcsin(np.sqrt(x))),
    "dirichlet": (lambda: R.dirichlet(td.ones(3), (N,))[:, 1], lambda x: 1 - (1 - x) ** 2),
    "chi2": (lambda: R.chi2(4.0, (N,)), lambda x: 1 - np.exp(-x / 2) * (1 + x / 2)),
    "student_t": (lambda: R.student_t(2.0, (N,)), lambda x: 0.5 + x / (2 * np.sqrt(2 + x**2))),
    "f": (lambda: R.f(2.0, 2.0, (N,)), lambda x: x / (1 + x)),
    "float64": (lambda: R.logistic(shape=(N,), dtype=td.float64), lambda x: 1 / (1 + np.exp(-x))),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    draw, cdf = CONTINUOUS[name]
    x = draw()
    assert x.shape == (N,)
    assert distance(x, cdf) < 2.2


def test_the_measure_can_fail():
    assert distance(R.laplace(shape=(N,)), CONTINUOUS["logistic"][1]) > 5


def table(log_chance, top):
    return np.exp([log_chance(k) for k in range(top)])


def poisson(mean):
    return lambda k: k * math.log(mean) - mean - math.lgamma(k + 1)


def binomial(n, p):
    choose = lambda k: math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return lambda k: choose(k) + k * math.log(p) + (n - k) * math.log(1 - p) if k <= n else -math.inf


COUNTS = {
    "poisson of 0.7": (lambda: R.poisson(0.7, (N,)), poisson(0.7)),
    "poisson of 9": (lambda: R.poisson(9.0, (N,)), poisson(9.0)),
    "poisson of 10": (lambda: R.poisson(10.0, (N,)), poisson(10.0)),
    "poisson of 60": (lambda: R.poisson(60.0, (N,)), poisson(60.0)),
    "binomial by inversion": (lambda: R.binomial(12, 0.7, (N,)), binomial(12, 0.7)),
    "binomial by rejection": (lambda: R.binomial(100, 0.4, (N,)), binomial(100, 0.4)),
    "binomial, turned": (lambda: R.binomial(70, 0.8, (N,)), binomial(70, 0.8)),
    "geometric": (
        lambda: R.geometric(0.3, (N,)),
        lambda k: (k - 1) * math.log(0.7) + math.log(0.3) if k else -math.inf,
    ),
    "negative_binomial": (
        lambda: R.negative_binomial(3, 0.4, (N,)),
        lambda k: math.lgamma(k + 3) - math.lgamma(k + 1) - math.lgamma(3) + 3 * math.log(0.4) + k * math.log(0.6),
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    """Pearson's statistic over the counts that are expected 20 times or more, the rest in one class."""
    draw, log_chance = COUNTS[name]
    x = draw()
    assert x.dtype is td.int64
    expected = table(log_chance, 200) * N
    found = np.bincount(x.numpy(), minlength=200)[:200]
    often = expected > 20
    observed = np.append(found[often], N - found[often].sum())
    wanted = np.append(expected[often], N - expected[often].sum())
    statistic, freedom = np.sum((observed - wanted) ** 2 / np.maximum(wanted, 1)), often.sum()
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("mean", [1e3, 1e7])
def test_large_counts(mean):
    for x, variance in ((R.poisson(mean, (N,)), mean), (R.binomial(2 * mean, 0.5, (N,)), mean / 2)):
        x = x.numpy().astype(float)
        assert abs(x.mean() - mean) < 5 * math.sqrt(variance / N)
        assert abs(x.var() / variance - 1) < 5 * math.sqrt(2 / N)


def test_what_has_no_counts():
    assert R.poisson(td.tensor([-1.0, float("nan"), float("inf"), 0.0])).tolist() == [-1, -1, -1, 0]
    assert R.binomial(td.tensor([5, -1, 5, 5]), td.tensor([1.0, 0.5, 1.5, 0.0])).tolist() == [5, -1, -1, 0]
    assert R.geometric(td.tensor([1.0, 0.0, 2.0])).tolist() == [1, -1, -1]
    assert np.isnan(R.poisson(-1.0, dtype=td.float32).numpy())


def test_small_gammas_do_not_vanish():
    """Of alpha = 1e-3 most gamma numbers are below the least float; the shares of them are right all the same."""
    x = R.dirichlet(td.full((2,), 1e-3), (2000,)).numpy()
    np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-5)
    assert abs((x[:, 0] > 0.5).mean() - 0.5) < 0.06


def test_multinomial():
    chances = np.array([0.5, 0.2, 0.0, 0.3], np.float32)
    x = R.multinomial(td.tensor(chances * 7), N, replacement=True).numpy()
    counts = np.bincount(x, minlength=4)
    assert counts[2] == 0
    assert np.all(np.abs(counts - N * chances) <= 5 * np.sqrt(N * chances * (1 - chances)))
    rows = R.multinomial(td.tensor(np.tile(chances, (3000, 1))), 3).numpy()
    assert (np.sort(rows, -1) == [0, 1, 3]).all()
    first = np.bincount(rows[:, 0], minlength=4) / 3000
    assert np.all(np.abs(first - chances) <= 5 * np.sqrt(0.25 / 3000))
    second = (rows[rows[:, 0] == 0][:, 1] == 3).mean()  # 0.3 of the 0.5 that are left
    assert abs(second - 0.6) < 5 * math.sqrt(0.24 / 1500)


def test_choice():
    x = R.choice(6, (N,)).numpy()
    assert np.all(np.abs(np.bincount(x) - N / 6) < 5 * math.sqrt(N * 5 / 36))
    assert sorted(R.choice(6, (2, 3), replace=False).reshape(6).tolist()) == [0, 1, 2, 3, 4, 5]
    letters = td.tensor([[1, 10], [2, 20], [3, 30]])
    picked = R.choice(letters, (50,), p=td.tensor([0.0, 0.5, 0.5])).numpy()
    assert set(map(tuple, picked)) == {(2, 20), (3, 30)}
    assert R.choice(letters, 4, axis=1).shape == (3, 4)
    assert sorted(R.choice(3, 2, replace=False, p=td.tensor([0.5, 0.0, 0.5])).tolist()) == [0, 2]


def test_shuffle():
    x = td.arange(12).reshape(4, 3)
    rows, columns = R.shuffle(x).numpy(), R.shuffle(x, axis=1).numpy()
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], x.numpy())
    np.testing.assert_array_equal(columns[:, np.argsort(columns[0])], x.numpy())
    assert sorted(R.shuffle(5).tolist()) == [0, 1, 2, 3, 4]


def test_rademacher():
    x = R.rademacher((N,)).numpy()
    assert set(x) == {-1.0, 1.0}
    assert abs(x.mean()) < 5 / math.sqrt(N)


def test_multivariate_normal():
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]], np.float32)
    x = R.multivariate_normal(td.tensor([1.0, -1.0]), td.tensor(covariance), (N,)).numpy()
    np.testing.assert_allclose(x.mean(0), [1, -1], atol=5 * math.sqrt(2 / N))
    np.testing.assert_allclose(np.cov(x.T), covariance, atol=0.15)


def test_orthogonal():
    x = R.orthogonal(3, (500,), dtype=td.float64).numpy()
    np.testing.assert_allclose(x @ np.swapaxes(x, -1, -2), np.broadcast_to(np.eye(3), x.shape), atol=1e-12)
    assert np.abs(x.mean(0)).max() < 5 * math.sqrt(1 / 3 / 500)
    assert abs((np.linalg.det(x) > 0).mean() - 0.5) < 5 * 0.5 / math.sqrt(500)


def test_draws_depend_on_the_key_alone():
    def draw():
        return R.laplace(shape=(4,)), R.poisson(30.0, (4,)), R.beta(2.0, 3.0, (4,)), R.choice(9, 3, replace=False)

    td.manual_seed(3)
    eager = [x.numpy() for x in draw()]
    td.manual_seed(3)
    for ours, theirs in zip(eager, td.jit(draw)(), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5)
    own = td.Generator(3)
    assert not np.array_equal(R.gumbel(shape=(3,), generator=own).numpy(), R.gumbel(shape=(3,), generator=own).numpy())


def test_parameters_broadcast_and_have_gradients():
    scale = td.tensor([1.0, 2.0, 3.0])
    assert R.laplace(td.zeros((2, 1)), scale).shape == (2, 3)
    for draw in (R.laplace, R.gumbel, R.logistic, R.cauchy):
        td.manual_seed(1)
        unit = draw(0.0, 1.0, (3,)).numpy()
        td.manual_seed(1)
        grad = td.grad(lambda s: draw(0.0, s).sum())(scale)  # noqa: B023
        np.testing.assert_allclose(grad.numpy(), unit, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: R.multinomial(td.ones(3), 4), "E0103"),
        (lambda: R.choice(3, 4, replace=False), "E0103"),
        (lambda: R.choice(3, p=td.ones(2)), "E0103"),
        (lambda: R.choice(0), "E0126"),
        (lambda: R.dirichlet(1.0), "E0107"),
        (lambda: R.multivariate_normal(td.zeros(2), td.ones((2, 3))), "E0180"),
    ],
)
def test_mistakes(call, code):
    with pytest.raises(td.UserError) as caught:
        call()
    assert caught.value.code == code, caught.value
