"""Generated rows with targets of generalized linear models, and fits of them without privacy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import dpglm

_LARGE = 500_000  # Rows on which the target of a wrong model is computed.
RARE = {"rare": 0.02, "rarer": 0.005, "rarest": 0.001}
"""Columns that are 1 for few rows: for which share of them."""
REFERENCE, N_LEVELS = 0.0064, 8
"""Share of the rows of a factor's rare reference level, and how many levels it has."""
NARROW = (0.4, 0.005, 60.0)
"""Middle, half of the range, and effect of a column that is narrow for its bounds, like a year."""
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """A kind of target: how it is drawn, and the terms of a fit without privacy.

    ``variance`` is that of a target of a mean, without the dispersion; ``slope`` the derivative of
    the mean by the score, as a function of the mean (of a canonical link the variance). Targets
    of a wrong model are ``drawn`` with another variance. Coefficients are up to ``reach``.
    """

    estimator: Any
    mean: Callable[[Array], Array]
    variance: Callable[[Array], Array]
    drawn: Callable[[Array, Array, np.random.Generator, bool], Array]
    facts: dict[str, Any]
    reach: float
    slope: Callable[[Array], Array] | None = None
    has_dispersion: bool = False

    def weights(self, mean: Array) -> tuple[Array, Array]:
        """Return the factors of residuals in scores, and of rows in Fisher's information."""
        if self.slope is None:
            return np.ones_like(mean), self.variance(mean)
        factors = self.slope(mean) / self.variance(mean)
        return factors, factors * self.slope(mean)


def _binary(mean: Array, X: Array, rng: np.random.Generator, wrong: bool) -> Array:
    return (rng.uniform(size=len(mean)) < mean).astype(float)


def _normal(mean: Array, X: Array, rng: np.random.Generator, wrong: bool) -> Array:
    # Errors of a wrong model grow away from the middle of the first column.
    spread = 0.5 + 4.0 * X[:, 0] ** 2 if wrong else 2.0
    return mean + spread * rng.normal(size=len(mean))


def _late(mean: Array, X: Array, rng: np.random.Generator, wrong: bool) -> Array:
    drawn: Array = mean + 2.0 * (rng.exponential(size=len(mean)) - 1.0)
    return drawn


def _far(mean: Array, X: Array, rng: np.random.Generator, wrong: bool) -> Array:
    # Lognormal errors, of mean 0 and standard deviation 2.
    errors = np.exp(rng.normal(size=len(mean))) - math.exp(0.5)
    drawn: Array = mean + 2.0 * errors / math.sqrt(math.e * (math.e - 1.0))
    return drawn


def _amounts(mean: Array, X: Array, rng: np.random.Generator, wrong: bool) -> Array:
    drawn: Array = mean * rng.gamma(2.0, 0.5, size=len(mean))
    return drawn


def _sums_of_amounts(mean: Array, X: Array, rng: np.random.Generator, wrong: bool) -> Array:
    # Gamma amounts of shape 1, Poisson many: Tweedie's power is 1.5, and the dispersion 1.
    rate = 2.0 * np.sqrt(mean)
    drawn: Array = 0.5 * np.sqrt(mean) * rng.gamma(np.maximum(rng.poisson(rate), 1e-12))
    return drawn


def _mixed_counts(mean: Array, X: Array, rng: np.random.Generator, wrong: bool) -> Array:
    return _counts(mean, X, rng, True)


def _counts(mean: Array, X: Array, rng: np.random.Generator, wrong: bool) -> Array:
    # A gamma mixture of Poisson counts has the variance m + m^2 / 2.
    rate = mean * rng.gamma(2.0, 0.5, size=len(mean)) if wrong else mean
    return rng.poisson(rate).astype(float)


FAMILIES = {
    "logistic": Family(
        dpglm.LogisticRegression,
        special.expit,
        lambda mean: mean * (1.0 - mean),
        _binary,
        {"classes": [0.0, 1.0], "C": math.inf},
        reach=1.5,
    ),
    "linear": Family(
        dpglm.LinearRegression,
        lambda z: z,
        np.ones_like,
        _normal,
        {"target_bounds": (-12.0, 12.0)},
        reach=1.5,
        has_dispersion=True,
    ),
    **{
        f"linear, {name}": Family(
            dpglm.LinearRegression,
            lambda z: z,
            np.ones_like,
            drawn,
            {"target_bounds": bounds},
            reach=reach,
            has_dispersion=True,
        )
        for name, drawn, bounds, reach in (
            ("exponential errors", _late, (-40.0, 40.0), 1.5),
            ("lognormal errors", _far, (-120.0, 120.0), 1.5),
            ("gamma targets", _amounts, (0.0, 60.0), 0.3),
            ("binary targets", _binary, (0.0, 1.0), 0.009),
        )
    },
    "poisson": Family(
        dpglm.PoissonRegressor,
        np.exp,
        lambda mean: mean,
        _counts,
        {"target_bounds": (0.0, 60.0), "alpha": 0.0},
        reach=0.5,
    ),
    "gamma": Family(
        dpglm.GammaRegressor,
        np.exp,
        np.square,
        _amounts,
        {"target_bounds": (1e-3, 60.0), "alpha": 0.0},
        reach=0.5,
        slope=lambda mean: mean,
        has_dispersion=True,
    ),
    "negative binomial": Family(
        dpglm.NegativeBinomialRegressor,
        np.exp,
        lambda mean: mean + 0.5 * mean**2,
        _mixed_counts,
        {"target_bounds": (0.0, 100.0), "dispersion": 0.5},
        reach=0.5,
        slope=lambda mean: mean,
    ),
    "probit": Family(
        dpglm.BinomialRegressor,
        special.ndtr,
        lambda mean: mean * (1.0 - mean),
        _binary,
        {"link": "probit"},
        reach=0.75,
        slope=lambda mean: np.exp(-0.5 * special.ndtri(mean) ** 2) / math.sqrt(2.0 * math.pi),
    ),
    "complementary log-log": Family(
        dpglm.BinomialRegressor,
        lambda z: -np.expm1(-np.exp(z)),
        lambda mean: mean * (1.0 - mean),
        _binary,
        {"link": "cloglog"},
        reach=0.75,
        slope=lambda mean: -(1.0 - mean) * np.log1p(-mean),
    ),
    "tweedie": Family(
        dpglm.TweedieRegressor,
        np.exp,
        lambda mean: mean**1.5,
        _sums_of_amounts,
        {"target_bounds": (0.0, 60.0), "alpha": 0.0, "power": 1.5},
        reach=0.5,
        slope=lambda mean: mean,
        has_dispersion=True,
    ),
}


@dataclass(frozen=True)
class Case:
    """One generated problem: a line of the table.

    ``columns`` is "even" (uniform, independent), "correlated" (uniform, correlations near 0.8),
    "skewed" (lognormal), one of ``RARE`` (every other column is 1 for few rows, else 0) or
    "reference" (the first columns are indicators of a factor with a rare reference level), or
    "levels" (all but three are those of a factor with uneven levels, which the fit knows), or
    "narrow" (the last one has the range and effect of ``NARROW``, and priors are unlimited).
    ``most`` bounds the length over that without privacy; ``effects`` multiplies coefficients, and
    ``wide`` the declared bounds of the first column.
    """

    family: str
    n_rows: int
    n_features: int
    epsilon: float
    columns: str = "even"
    intercept: float = 0.0
    robust: bool = False
    wrong: bool = False
    adjacency: str = "zero_out"
    effects: float = 1.0
    most: float = math.inf
    wide: float = 1.0

    @property
    def label(self) -> str:
        """The first cells of its line."""
        kind = [self.columns]
        kind += [f"intercept {self.intercept:g}"] if self.intercept else []
        kind += [f"effects times {self.effects:g}"] if self.effects != 1.0 else []
        kind += [f"bounds times {self.wide:g}"] if self.wide != 1.0 else []
        kind += ["wrong model"] if self.wrong else []
        kind += [] if self.adjacency == "zero_out" else [f"`{self.adjacency}`"]
        covariance = "robust" if self.robust else "model"
        return (
            f"{self.family} | {self.n_rows:,} | {self.n_features} | {self.epsilon:g} | "
            f"{', '.join(kind)} | {covariance}"
        )

    @property
    def factor(self) -> tuple[int, int]:
        """The first indicator of "levels", and the column after the last."""
        return 3, self.n_features

    @property
    def truth(self) -> Array:
        """The coefficients, the intercept first."""
        reach = self.effects * FAMILIES[self.family].reach
        found = np.append(self.intercept, np.linspace(-reach, reach, self.n_features))
        if self.columns == "narrow":
            middle, _, effect = NARROW
            found[[0, -1]] = self.intercept - effect * middle, effect
        return found


def draw_columns(case: Case, n_rows: int, rng: np.random.Generator) -> Array:
    """Draw rows, with entries in [-1, 1]."""
    shape = n_rows, case.n_features
    if case.columns == "correlated":
        common = rng.normal(size=(n_rows, 1))
        normal = math.sqrt(0.8) * common + math.sqrt(0.2) * rng.normal(size=shape)
        return 2.0 * special.ndtr(normal) - 1.0
    if case.columns == "skewed":
        skewed: Array = 2.0 * np.clip(np.exp(0.8 * rng.normal(size=shape) - 2.5), 0.0, 1.0) - 1.0
        return skewed
    X = rng.uniform(-1.0, 1.0, size=shape)
    if case.columns in RARE:
        X[:, ::2] = rng.uniform(size=X[:, ::2].shape) < RARE[case.columns]
    if case.columns == "narrow":
        X[:, -1] = NARROW[0] + NARROW[1] * X[:, -1]
    if case.columns == "levels":
        start, stop = case.factor
        sizes = 1.0 / np.arange(1, stop - start + 2)
        levels = rng.choice(len(sizes), size=n_rows, p=sizes / sizes.sum())
        X[:, start:stop] = levels[:, np.newaxis] == np.arange(1, len(sizes))
    if case.columns == "reference":
        others = np.full(N_LEVELS - 1, (1.0 - REFERENCE) / (N_LEVELS - 1))
        levels = rng.choice(N_LEVELS, size=n_rows, p=[REFERENCE, *others])
        X[:, : N_LEVELS - 1] = levels[:, np.newaxis] == np.arange(1, N_LEVELS)
    return X


def means(case: Case, X: Array) -> Array:
    """Return the mean of the target for each row."""
    truth = case.truth
    z = X @ truth[1:] + truth[0]
    if case.wrong:
        # A product and a square that the model does not have.
        z = z + 0.4 * X[:, 0] * X[:, 1] + 0.4 * X[:, 0] ** 2
    return FAMILIES[case.family].mean(z)


def fit_plain(family: Family, X: Array, y: Array, start: Array, steps: int = 4) -> Array:
    """Fit without privacy by Fisher scoring."""
    design, theta = _with_ones(X), start.copy()
    for _ in range(steps):
        mean = family.mean(design @ theta)
        factors, weights = family.weights(mean)
        hessian = design.T @ (weights[:, np.newaxis] * design)
        theta += np.linalg.solve(hessian, design.T @ (factors * (y - mean)))
    return theta


def plain_covariance(family: Family, X: Array, y: Array, theta: Array, robust: bool) -> Array:
    """Covariance of the fit without privacy."""
    design = _with_ones(X)
    mean = family.mean(design @ theta)
    factors, weights = family.weights(mean)
    inverse = np.linalg.inv(design.T @ (weights[:, np.newaxis] * design))
    if robust:
        scores = design * (factors * (y - mean))[:, np.newaxis]
        return inverse @ (scores.T @ scores) @ inverse
    if family.has_dispersion:
        inverse *= np.mean((y - mean) ** 2 / family.variance(mean))
    return inverse


def _with_ones(X: Array) -> Array:
    return np.column_stack([np.ones(len(X)), X])


def target_of(case: Case) -> Array:
    """Return the coefficients that intervals are about: those of the best model, if it is wrong.

    For a canonical link these solve an equation in the means of targets, so that none are drawn.
    """
    if not case.wrong:
        return case.truth
    rng = np.random.default_rng(0)
    X = draw_columns(case, _LARGE, rng)
    return fit_plain(FAMILIES[case.family], X, means(case, X), case.truth, steps=10)
