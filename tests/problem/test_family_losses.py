"""Losses of families: against the likelihoods of SciPy, many digits, and worst cases by search."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_tweedie_deviance

from dpglm.problem import (
    Binomial,
    ComplementaryLogLog,
    ConvexScalarLoss,
    Gamma,
    NegativeBinomial,
    Pinball,
    Poisson,
    Probit,
    Tweedie,
)

pytestmark = pytest.mark.one_in(3)

SMOOTH = [
    Gamma(),
    Tweedie(1.05),
    Tweedie(1.5),
    Tweedie(1.9),
    NegativeBinomial(0.4),
    NegativeBinomial(3.0),
    Binomial(),
    Probit(),
    ComplementaryLogLog(),
]
every_loss = pytest.mark.parametrize("loss", SMOOTH, ids=repr)


def targets_of(loss: ConvexScalarLoss) -> list[float]:
    return [0.0, 0.3, 1.0] if loss.target.bounds[1] == 1.0 else [0.5, 1.0, 7.0]


@pytest.mark.parametrize("power", [1.0, 1.3, 1.8, 2.0])
def test_differences_are_half_those_of_the_deviance(power: float) -> None:
    loss = {1.0: Poisson(), 2.0: Gamma()}.get(power) or Tweedie(power)
    for y in (0.5, 1.0, 6.0):
        z = np.linspace(-2, 2, 9)
        deviance = [mean_tweedie_deviance([y], [np.exp(one)], power=power) for one in z]
        value = loss.value(z, np.full_like(z, y))
        np.testing.assert_allclose(value - value[4], np.subtract(deviance, deviance[4]) / 2)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_negative_binomial_is_the_likelihood_of_counts(alpha: float) -> None:
    loss, z = NegativeBinomial(alpha), np.linspace(-2, 3, 11)
    for y in (0, 1, 9):
        likelihood = stats.nbinom.logpmf(y, 1 / alpha, 1 / (1 + alpha * np.exp(z)))
        value = loss.value(z, np.full_like(z, y))
        np.testing.assert_allclose(value - value[0], -(likelihood - likelihood[0]), atol=1e-9)
        variance = stats.nbinom.var(1 / alpha, 1 / (1 + alpha * np.exp(z)))
        np.testing.assert_allclose(loss.variance(np.exp(z)), variance)


def test_little_overdispersion_is_almost_poisson() -> None:
    z, y = np.linspace(-3, 3, 7), np.arange(7.0)
    nearly = NegativeBinomial(1e-9).slope(z, y)
    np.testing.assert_allclose(nearly, Poisson().slope(z, y), rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "probability"),
    [
        (Binomial(), lambda z: 1 / (1 + mpmath.exp(-z))),
        (Probit(), mpmath.ncdf),
        (ComplementaryLogLog(), lambda z: -mpmath.expm1(-mpmath.exp(z))),
    ],
    ids=["logit", "probit", "cloglog"],
)
def test_proportions_against_many_digits(loss: ConvexScalarLoss, probability) -> None:
    z = np.array([-30.0, -7.5, -1.0, 0.0, 0.7, 3.0])
    with mpmath.workdps(450):
        for share in (0.0, 0.25, 1.0):

            def exact(at, share=share):
                p = probability(at)
                total = mpmath.mpf(0)
                if share > 0:
                    total -= share * mpmath.log(p)
                return total - (1 - share) * mpmath.log(1 - p) if share < 1 else total

            y = np.full_like(z, share)
            value = [float(exact(mpmath.mpf(one))) for one in z]
            slope = [float(mpmath.diff(exact, mpmath.mpf(one))) for one in z]
            curvature = [float(mpmath.diff(exact, mpmath.mpf(one), 2)) for one in z]
            np.testing.assert_allclose(loss.value(z, y), value, rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(loss.slope(z, y), slope, rtol=1e-9, atol=1e-13)
            np.testing.assert_allclose(loss.curvature(z, y), curvature, rtol=1e-6, atol=1e-9)
        means = [float(probability(mpmath.mpf(one))) for one in z]
    np.testing.assert_allclose(loss.link.inverse(z), means, rtol=1e-13)


def test_probit_far_out() -> None:
    curvature = Probit().curvature(np.array([-1e3, -31, -29, 1e3]), np.array([1.0, 1, 1, 0]))
    np.testing.assert_allclose(curvature, [1 - 1e-6, 1 - 31.0**-2, 1 - 29.0**-2, 1 - 1e-6], 1e-4)
    assert (curvature < 1).all()


@every_loss
def test_slope_inverse(loss: ConvexScalarLoss) -> None:
    z = np.linspace(-2, 2, 41)
    for y in targets_of(loss):
        targets = np.full_like(z, y)
        found = loss.slope_inverse(loss.slope(z, targets), targets)
        np.testing.assert_allclose(found, z, atol=1e-9)


@every_loss
@pytest.mark.parametrize("limit", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("z_bound", [0.3, 2.0, np.inf])
def test_no_curvature_exceeds_the_bound_where_slopes_are_limited(
    loss: ConvexScalarLoss, limit: float, z_bound: float
) -> None:
    high = 1.0 if loss.target.bounds[1] == 1.0 else 7.0
    low = 0.01 if isinstance(loss, Gamma) else 0.0
    z = np.linspace(-min(z_bound, 12), min(z_bound, 12), 4801)
    bound = loss.smoothness_below(limit, z_bound, low, high)
    largest = 0.0
    for y in np.linspace(low, high, 57):
        targets = np.full_like(z, y)
        within = np.abs(loss.slope(z, targets)) <= limit
        largest = max(largest, loss.curvature(z, targets)[within].max(initial=0.0))
    assert largest <= bound * (1 + 1e-9)
    if z_bound == np.inf and limit == 3.0:
        assert largest > 0.3 * bound


def test_a_pinball_minimiser_is_a_quantile() -> None:
    y = np.random.default_rng(0).normal(size=1001)
    for q in (0.1, 0.5, 0.85):
        values = [Pinball(q).value(np.full_like(y, z), y).sum() for z in np.sort(y)]
        assert np.sort(y)[np.argmin(values)] == np.quantile(y, q)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (Tweedie, "power", (1.0, 2.0, 0.0, np.nan)),
        (Pinball, "quantile", (0.0, 1.0, -1.0, np.nan)),
        (NegativeBinomial, "alpha", (0.0, -1.0, np.inf, np.nan)),
        (NegativeBinomial, "dispersion", (0.0, np.nan)),
        (Poisson, "dispersion", (0.0, -1.0)),
    ],
)
def test_settings_are_checked(kind: type, name: str, values: tuple[float, ...]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=name):
            kind(**{name: value})
