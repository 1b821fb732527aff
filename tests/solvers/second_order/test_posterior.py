"""Posteriors from noisy matrices: independent computations, limits, and planted errors."""

import dataclasses
import functools
import math
import warnings

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from dpglm import LogisticRegression
from dpglm.preprocessing import SchemaEncoder
from dpglm.solvers.second_order.posterior import (
    NoisyMatrix,
    Posterior,
    Prior,
    column_moments,
    noisy_hessian,
    shrunk_eigenvalues,
    whitened,
    whitened_hessian,
)
from dpglm.solvers.uncertainty import without_repulsion

RNG = np.random.default_rng(5)


def symmetric(size, deviations, rng):
    """Draw a symmetric matrix of independent entries on and above the diagonal."""
    upper = np.triu(rng.normal(size=(size, size)) * deviations)
    return upper + np.triu(upper, 1).T


def positive(size, rng):
    root = rng.normal(size=(size, 2 * size))
    return root @ root.T / (2 * size)


def test_error_of_is_the_simulated_covariance():
    deviations = np.sqrt(np.abs(symmetric(4, np.ones((4, 4)), RNG)))
    x = RNG.normal(size=4)
    draws = np.array([symmetric(4, deviations, RNG) @ x for _ in range(40_000)])
    expected = NoisyMatrix(np.zeros((4, 4)), deviations**2).error_of(np.outer(x, x))
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.06 * np.abs(expected).max())


def test_secant_update_is_the_gaussian_conditional_mean():
    size, noise = 3, 0.1
    mean, variances = 5.0 * np.eye(size), np.full((size, size), 0.2)
    way, change = RNG.normal(size=size), RNG.normal(size=size) + 2.0
    entries = [(i, j) for i in range(size) for j in range(i, size)]
    observed = np.zeros((size, len(entries)))
    for column, (i, j) in enumerate(entries):
        observed[i, column] += way[j]
        if i != j:
            observed[j, column] += way[i]
    prior = 0.2 * np.eye(len(entries))
    gain = prior @ observed.T @ np.linalg.inv(observed @ prior @ observed.T + noise * np.eye(size))
    step = gain @ (change - mean @ way)
    found = NoisyMatrix(mean, variances).with_secant(way, change, noise).mean
    np.testing.assert_allclose([(found - mean)[at] for at in entries], step, atol=1e-9)


def test_posterior_tends_to_the_prior_and_to_the_likelihood():
    hessian, theta = positive(4, RNG), RNG.normal(size=4)
    prior, pooled = np.diag([1.0, 2.0, 3.0, 4.0]), hessian @ theta
    sure = Posterior.of(prior, hessian, 1e-12 * np.eye(4), pooled)
    np.testing.assert_allclose(sure.mean, theta, rtol=1e-5)
    none = Posterior.of(prior, 1e-9 * hessian, np.eye(4), pooled)
    np.testing.assert_allclose(none.covariance, prior, rtol=1e-6, atol=1e-12)
    # The information form, which inverts the matrices.
    error = 0.3 * positive(4, RNG)
    found = Posterior.of(prior, hessian, error, pooled)
    precision = np.linalg.inv(prior) + hessian @ np.linalg.inv(error) @ hessian
    np.testing.assert_allclose(found.covariance, np.linalg.inv(precision), rtol=1e-6)


def test_direction_without_curvature_keeps_its_prior():
    # The second direction is without curvature, but noise suggests some.
    hessian = NoisyMatrix(np.diag([1.0, 0.02]), np.full((2, 2), 0.03**2))
    prior = Prior(4.0 * np.eye(2), 4.0 * np.eye(2))
    error, pooled = 1e-4 * np.eye(2), np.array([1.0, 0.0])
    found = prior.updated(hessian, np.zeros((2, 2)), error, pooled, np.zeros(2))
    first, second = np.sqrt(np.diag(found.covariance))
    assert first < 0.2
    assert second > 1.0


def test_moments_of_independent_columns_lose_most_of_their_noise():
    size, noise = 40, 20.0
    means = RNG.uniform(0.05, 0.5, size - 1)
    exact = 1000.0 * np.outer(np.append(means, 1.0), np.append(means, 1.0))
    np.fill_diagonal(exact, 1000.0 * np.append(means, 1.0))
    deviations = np.full((size, size), noise / math.sqrt(2.0))
    np.fill_diagonal(deviations, noise)
    seen = exact + symmetric(size, deviations, RNG)
    found = column_moments(seen, noise)
    assert np.linalg.norm(found.mean - exact) < 0.75 * np.linalg.norm(seen - exact)
    vectors, inverse, own = whitened(found, noise)
    np.testing.assert_allclose(vectors @ inverse, np.eye(size), atol=1e-9)
    assert np.trace(own.mean) == pytest.approx(size)


LEVELS = [f"l{k:02d}" for k in range(20)]
SIZES = np.maximum(5000 / np.arange(1, 21) ** 1.2 / 2.2, 10.0)
EFFECTS = np.linspace(-1.0, 1.0, 20)[np.random.default_rng(3).permutation(20)]
EFFECTS -= EFFECTS[0]


@functools.cache
def inferences(runs):
    """Return inferences about a factor with uneven levels."""
    column = {"type": "categorical", "categories": LEVELS, "reference": "l00"}
    encoder = SchemaEncoder({"columns": {"g": column}, "provenance": "public knowledge"})
    found = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        g = rng.choice(20, size=6000, p=SIZES / SIZES.sum())
        y = (EFFECTS[g] + rng.logistic(size=6000) > 0).astype(int)
        X = encoder.fit_transform({"g": np.array(LEVELS)[g]})
        model = LogisticRegression(
            C=np.inf,
            classes=[0, 1],
            row_norm=encoder.row_norm_,
            inference=True,
            prior_scales=encoder.schema_.encoding.prior_scales,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(model.fit(X, y).inference_)
    return found


def coverage(runs, forget=False):
    """Return coverage of the effects of levels, and whether all intervals are finite."""
    covered, finite = [], True
    for inference in inferences(runs):
        if forget:
            none = np.zeros_like(inference.covariance)
            estimates = dataclasses.replace(inference.estimates, privacy=none)
            inference = dataclasses.replace(inference, estimates=estimates)
        ends = inference.conf_int()[1:]
        finite = finite and bool(np.isfinite(ends).all())
        covered.append((ends[:, 0] <= EFFECTS[1:]) & (EFFECTS[1:] <= ends[:, 1]))
    return np.mean(covered), finite


def test_uneven_levels_have_finite_intervals_that_cover():
    found, finite = coverage(25)
    assert finite
    assert found >= 0.93


def test_intervals_that_forget_noise_do_not_cover():
    assert coverage(25, forget=True)[0] < 0.85


def fits_along_little_curvature(curvature, update, runs=300, size=8, noise=0.05, s=0.02, far=1.0):
    """Return errors of two combinations, and their standard errors.

    The first has a component of a direction with little curvature, along which scores are released
    far from the truth; the second has none.
    """
    rng = np.random.default_rng(2)
    truth = np.diag([curvature, *np.ones(size - 1)])
    mixes = np.array([[0.6, *np.ones(size - 1)], [0.0, *np.ones(size - 1)]])
    parameter, prior = np.eye(size)[0] * far, Prior(np.eye(size), 0.2 * np.eye(size))
    errors, deviations = [], []
    for _ in range(runs):
        drawn = noise * rng.normal(size=(size, size))
        hessian = noisy_hessian(truth + 0.5 * (drawn + drawn.T), noise)
        pooled = truth @ parameter + s * rng.normal(size=size)
        one = s**2 * np.eye(size)
        found = update(prior, hessian, 0.0 * one, one, pooled, np.zeros(size))
        errors.append(mixes @ (found.mean - parameter))
        deviations.append(np.sqrt(np.einsum("ij,jk,ik->i", mixes, found.covariance, mixes)))
    return np.abs(errors), np.array(deviations)


@pytest.mark.parametrize("curvature", [0.0, 0.1, 0.2, 0.4])
def test_intervals_cover_along_little_curvature(curvature):
    errors, deviations = fits_along_little_curvature(curvature, Prior.updated)
    assert (errors <= 1.96 * deviations).mean(axis=0).min() > 0.91


def test_a_hessian_taken_as_exact_is_found():
    def exact(prior, hessian, penalty, error, pooled, center):
        return Posterior.of(prior.declared, hessian.mean, error, pooled)

    errors, deviations = fits_along_little_curvature(0.2, exact)
    assert (errors <= 1.96 * deviations).mean(axis=0).max() < 0.75


@pytest.mark.parametrize("size", [2, 5, 30])
@pytest.mark.parametrize("spectrum", ["equal", "geometric", "one without curvature"])
def test_noisy_hessian_has_less_error_and_reports_it(size, spectrum):
    """Planted: the noise is kept, and one share of it is claimed for all entries."""
    rng, noise = np.random.default_rng(5), 0.1
    values = {"equal": np.ones(size), "geometric": np.geomspace(0.05, 1.0, size)}
    truth = np.diag(values.get(spectrum, np.append(np.ones(size - 1), 0.0)))
    deviations = np.full((size, size), noise / math.sqrt(2.0))
    np.fill_diagonal(deviations, noise)
    errors, kept, said, evenly, seen_least, said_least = [], [], [], [], [], []
    for _ in range(400):
        seen = truth + symmetric(size, deviations, rng)
        found = noisy_hessian(seen, noise)
        error = (found.directions.T @ (found.mean - truth) @ found.directions) ** 2
        kept.append(((seen - truth) ** 2).sum())
        errors.append(error.sum())
        said.append(found.variances.sum())
        # Of the eigenvector of least curvature with others.
        seen_least.append(error[0, 1:].sum())
        evenly.append((size - 1) / 2.0 * noise**2 * errors[-1] / kept[-1])
        said_least.append(found.variances[0, 1:].sum())
    assert np.mean(errors) <= 1.05 * np.mean(kept)
    assert np.mean(said) >= 0.9 * np.mean(errors)
    if size == 30:
        assert np.mean(errors) < 0.7 * np.mean(kept)
    if (size, spectrum) == (30, "one without curvature"):
        assert np.mean(said_least) >= 0.9 * np.mean(seen_least)
        assert np.mean(evenly) < 0.5 * np.mean(seen_least)
    assert noisy_hessian(truth + 0.01, 0.0).mean == pytest.approx(truth + 0.01, abs=1e-3)


def estimates_of_eigenvalues(values, noise):
    """Return the two estimates, and the sum of derivatives of each, by differences."""

    def james_stein(seen):
        degrees, around = 0.5 * (len(seen) - 1) * (len(seen) + 2), seen - seen.mean()
        return seen - min(noise**2 * (degrees - 2.0) / (around @ around), 1.0) * around

    def moved(seen):
        return isotonic_regression(without_repulsion(seen, noise)).x

    found = []
    for estimate in (james_stein, moved):
        best, step, above = estimate(values), 1e-5 * noise, np.triu_indices(len(values), 1)
        of_pairs = np.subtract.outer(best, best) / (
            np.subtract.outer(values, values) + np.eye(len(values))
        )
        of_each = [
            (estimate(values + one)[k] - estimate(values - one)[k]) / (2.0 * step)
            for k, one in enumerate(step * np.eye(len(values)))
        ]
        found.append((best, sum(of_each) + of_pairs[above].sum()))
    return found


@pytest.mark.parametrize(
    ("spectrum", "better"), [(np.full(20, 0.2), 0), (np.array([0.02, 0.05, *[0.2] * 18]), 1)]
)
def test_eigenvalues_have_the_risk_of_the_better_estimate(spectrum, better):
    """Planted: either estimate alone, and a weight from distances without the derivatives."""
    rng, noise, size = np.random.default_rng(8), 0.01, len(spectrum)
    deviations = np.full((size, size), noise / math.sqrt(2.0))
    np.fill_diagonal(deviations, noise)
    risks = np.zeros(4)
    for _ in range(40):
        values, turn = np.linalg.eigh(np.diag(spectrum) + symmetric(size, deviations, rng))
        (even, of_even), (moved, of_moved) = estimates_of_eigenvalues(values, noise)
        apart = moved - even
        naive = (values - even) @ apart / (apart @ apart)
        weight = naive - noise**2 * (of_moved - of_even) / (apart @ apart)
        found, _ = shrunk_eigenvalues(values, noise)
        np.testing.assert_allclose(found, even + np.clip(weight, 0.0, 1.0) * apart, atol=1e-7)
        for place, one in enumerate((even, moved, found, even + np.clip(naive, 0.0, 1.0) * apart)):
            risks[place] += (((turn * one) @ turn.T - np.diag(spectrum)) ** 2).sum()
    assert risks[1 - better] > 2.0 * risks[better]
    assert risks[2] < 0.6 * risks[1 - better]
    if better == 0:
        assert risks[3] > 2.0 * risks[2]


@pytest.mark.parametrize("directions", [None, np.eye(2)])
def test_curvature_bounds_the_doubt_about_it(directions):
    """An estimate exceeds a curvature that is not negative by at most itself."""
    for noise, most in ((1.0, 1.0 + 0.3**2), (1e-4, 22.0 * 1e-4)):
        matrix = NoisyMatrix(0.3 * np.eye(2), np.full((2, 2), noise), directions)
        assert matrix.doubted(np.array([5.0, 0.0])) <= most * (1.0 + 1e-12)


def test_curvature_along_the_parameter_is_kept():
    """Planted: it is moved to the curvature of other directions, far beyond its stated error."""
    rng, size, noise = np.random.default_rng(7), 60, 0.1
    way = rng.normal(size=size) / math.sqrt(size)
    along = (way / np.linalg.norm(way))[:, np.newaxis]
    truth = np.eye(size) - 0.8 * along @ along.T
    deviations = np.full((size, size), noise / math.sqrt(2.0))
    np.fill_diagonal(deviations, noise)
    for known, most in ((along, 3.0), (None, math.inf)):
        ratios = []
        for _ in range(40):
            found = noisy_hessian(truth + symmetric(size, deviations, rng), noise, None, known)
            error = float((along.T @ (found.mean - truth) @ along).item())
            stated = along.T @ found.error_of(along @ along.T) @ along
            ratios.append(error / math.sqrt(float(stated.item())))
        assert abs(np.mean(ratios)) < most
        assert (abs(np.mean(ratios)) > 3.0) == (known is None)
    # A direction with the usual curvature is estimated like all others.
    seen = np.eye(size) + symmetric(size, deviations, rng)
    usual = next(axis for axis in np.eye(size) if abs(axis @ seen @ axis - 1.0) < noise)
    found = noisy_hessian(seen, noise, None, usual[:, np.newaxis])
    np.testing.assert_allclose(found.mean, noisy_hessian(seen, noise).mean, atol=1e-12)
    # One direction is always left to estimate.
    for size in (1, 2):
        hessian = noisy_hessian(np.diag([1.0, 3.0][:size]), 1e-3, None, np.eye(size))
        assert np.isfinite(hessian.mean).all()


def test_secants_follow_the_basis_of_independent_errors():
    """The same correction in turned coordinates is the turned correction."""
    rng = np.random.default_rng(6)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    mean, variances = np.diag([1.0, 2.0, 3.0, 4.0]), symmetric(4, np.ones((4, 4)), rng) ** 2
    way, change = rng.normal(size=(2, 4))
    plain = NoisyMatrix(mean, variances)
    turned = NoisyMatrix(turn @ mean @ turn.T, variances, turn)
    expected = turn @ plain.with_secant(way, change, 0.1).mean @ turn.T
    found = turned.with_secant(turn @ way, turn @ change, 0.1).mean
    np.testing.assert_allclose(found, expected, atol=1e-12)
    spread = np.outer(way, way)
    expected = turn @ plain.error_of(spread) @ turn.T
    np.testing.assert_allclose(turned.error_of(turn @ spread @ turn.T), expected, atol=1e-12)


def test_hessian_is_shrunk_towards_a_multiple_of_moments():
    """The truth is half of uneven moments; planted: the noise of the multiple does not count."""
    rng, size, noise = np.random.default_rng(4), 6, 0.2
    moments = np.diag(np.linspace(0.4, 4.0, size)) + 0.2
    deviations = np.full((size, size), noise / math.sqrt(2.0))
    np.fill_diagonal(deviations, noise)
    before, after, said, without = [], [], [], []
    for _ in range(400):
        seen = 0.5 * moments + symmetric(size, deviations, rng)
        found = whitened_hessian(seen, noise, moments)
        before.append((seen - 0.5 * moments) ** 2)
        after.append((found.mean - 0.5 * moments) ** 2)
        said.append(found.variances.sum())
        unit = moments / np.trace(moments)
        without.append(said[-1] - size * noise**2 * (unit**2).sum())
    assert np.mean(after) < 0.5 * np.mean(before)
    error = np.sum(after, axis=(1, 2)).mean()
    assert 0.8 * error <= np.mean(said) <= 1.5 * error
    assert np.mean(without) < 0.8 * error


def test_whitened_hessian_has_less_error_and_reports_it():
    rng, size, noise = np.random.default_rng(3), 12, 0.2
    truth = np.eye(size) + symmetric(size, np.full((size, size), 0.1), rng)
    truth[-1], truth[:, -1] = 0.0, 0.0
    truth[-1, -1] = 0.05
    deviations = np.full((size, size), noise / math.sqrt(2.0))
    np.fill_diagonal(deviations, noise)
    alike = np.arange(size) < size - 1
    before, after, said = [], [], []
    for _ in range(200):
        seen = truth + symmetric(size, deviations, rng)
        found = whitened_hessian(seen, noise, np.diag(1.0 * alike))
        before.append(((seen - truth)[:-1, :-1] ** 2).sum())
        after.append(((found.mean - truth)[:-1, :-1] ** 2).sum())
        said.append(found.variances[:-1, :-1].sum())
    assert np.mean(after) < 0.5 * np.mean(before)
    assert np.mean(said) == pytest.approx(np.mean(after), rel=0.25)
    # Without noise nothing changes, and a matrix of no coordinate alike keeps its noise.
    exact = whitened_hessian(truth, 0.0, np.diag(1.0 * alike))
    np.testing.assert_allclose(exact.mean, truth, atol=1e-12)
    none = whitened_hessian(truth, noise, np.zeros((size, size)))
    np.testing.assert_allclose(none.variances, deviations**2)
