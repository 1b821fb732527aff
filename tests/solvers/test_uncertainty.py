"""Standard errors follow what a noisy Hessian shows of the curvature."""

import numpy as np
import pytest
from scipy import stats

from dpglm.solvers.uncertainty import Curvature, Doubt


def doubt(assumed, found, noise, in_variance=0.0):
    in_variance = np.broadcast_to(in_variance, len(assumed))
    forms = (assumed, found, noise, in_variance, np.zeros(len(assumed)))
    return Doubt(*(np.diag(np.array(one, dtype=float)) for one in forms))


def factors(at):
    return at.factors(np.diag, np.eye(len(at.noise)))


def test_factors_are_those_of_fieller():
    at = doubt([1.0, 1.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.19, 3.0], [0.0, 0.25, 0.0, 0.1, 0.1])
    # Exact; with half of it in doubt; half of what was assumed; less than twice its noise; more.
    assert factors(at) == pytest.approx([1.0, 4.0 / 3.0, 2.0, np.inf, 1.0])


def test_intervals_for_ratios_cover_with_these_factors():
    """One direction: the estimate is a noisy score over a noisy curvature."""
    rng = np.random.default_rng(0)
    true, noise, s, truth = 1.0, 0.25, 0.2, 3.0
    curvature = true + noise * rng.normal(size=20_000)
    score = true * truth + s * rng.normal(size=20_000)
    with np.errstate(all="ignore"):
        estimate = score / curvature
        error = np.hypot(s, noise * estimate) / np.abs(curvature)
    longer = np.array([factors(doubt([g], [g], [noise]))[0] for g in curvature])
    covered = np.abs(estimate - truth) <= 1.96 * longer * error
    assert covered.mean() > 0.94
    assert (np.abs(estimate - truth) <= 1.96 * error).mean() < covered.mean()


def test_noise_in_a_variance_makes_critical_values_those_of_student():
    for freedom in (10.0, 40.0, 1000.0):
        (found,) = factors(doubt([1.0], [1.0], [0.0], np.sqrt(2.0 / freedom)))
        assert found == pytest.approx(stats.t(freedom).ppf(0.977) / stats.norm.ppf(0.977), rel=0.02)


def test_what_is_not_seen_is_told_apart_however_combinations_are_put():
    rng = np.random.default_rng(1)
    turned = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    forms = [
        turned @ np.diag(one) @ turned.T
        for one in ([1.0, 1.0, 1.0], [0.01, 1.0, 2.0], [0.1, 0.1, 0.1])
    ]
    at = Doubt(*forms, np.zeros((3, 3)), np.zeros((3, 3)))
    for mixed in (np.eye(3), rng.normal(size=(3, 3))):
        turn, found = at.told_apart(mixed, np.eye(3))
        assert turn.shape == (2, 3)
        assert sorted(found) == pytest.approx([1.0, 1.0 / (1.0 - 0.04)])
        assert np.abs(turn @ mixed @ turned[:, 0]).max() < 1e-12


def lifted_fits(curvature, runs=1000, size=8, noise=0.05, s=0.02, far=0.3):
    """Solve noisy equations, whose first direction has little curvature, from a start far away.

    Return errors of a mix of that direction and others, and of one without it, with standard
    errors by the doubt about each direction, and by that about combinations alone.
    """
    rng = np.random.default_rng(2)
    truth = np.diag([curvature, *np.ones(size - 1)])
    way = np.eye(size)[0] * far
    mixes = np.array([[0.6, *np.ones(size - 1)], [0.0, *np.ones(size - 1)]])
    errors, found, planted = [], [], []
    for _ in range(runs):
        drawn = noise * rng.normal(size=(size, size))
        seen = truth + 0.5 * (drawn + drawn.T)
        values, directions = np.linalg.eigh(seen)
        lifted = (directions * np.maximum(values, 4.0 * noise)) @ directions.T
        score = truth @ way + s * rng.normal(size=size)
        step = np.linalg.solve(lifted, score)
        errors.append(mixes @ (step - way))
        spread = s**2 + noise**2 * (step @ step) / 2.0
        least = Curvature.from_noisy(lifted, seen, noise)
        assumed = Curvature(lifted, np.zeros_like(lifted))
        for curvature_of, into in ((least, found), (assumed, planted)):
            inverse = np.linalg.inv(curvature_of.least)
            covariance = spread * inverse @ inverse
            at = Doubt.of(curvature_of, seen, noise, 0.0, np.eye(size))

            def quadratic(matrix):
                return np.einsum("ij,jk,ik->i", mixes, matrix, mixes)

            factors = at.factors(quadratic, covariance)
            into.append(np.sqrt(quadratic(covariance)) * factors)
    return tuple(map(np.array, (errors, found, planted)))


@pytest.mark.parametrize("curvature", [0.0, 0.1, 0.2, 0.4])
def test_finite_errors_of_a_lifted_direction_cover(curvature):
    errors, found, planted = lifted_fits(curvature)
    finite = np.isfinite(found)
    covered = np.abs(errors) <= 1.96 * found
    # A combination without the direction keeps its interval.
    assert finite[:, 1].mean() > 0.99
    assert covered[finite[:, 1], 1].mean() > 0.93
    if curvature < 0.1:
        assert finite[:, 0].mean() < 0.05
    else:
        assert covered[finite[:, 0], 0].mean() > 0.93
    # Planted: one quadratic form for each combination.
    if curvature < 0.1:
        assert np.isfinite(planted[:, 0]).all()
        assert (np.abs(errors) <= 1.96 * planted)[:, 0].mean() < 0.8
