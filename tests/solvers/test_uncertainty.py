"""Standard errors follow what a noisy Hessian shows of the curvature."""

import numpy as np
import pytest
from scipy import stats

from dpglm.solvers.uncertainty import Doubt


def doubt(assumed, found, noise, in_variance=0.0):
    in_variance = np.broadcast_to(in_variance, len(assumed))
    forms = (assumed, found, noise, in_variance)
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
    at = Doubt(*forms, np.zeros((3, 3)))
    for mixed in (np.eye(3), rng.normal(size=(3, 3))):
        turn, found = at.told_apart(mixed, np.eye(3))
        assert turn.shape == (2, 3)
        assert sorted(found) == pytest.approx([1.0, 1.0 / (1.0 - 0.04)])
        assert np.abs(turn @ mixed @ turned[:, 0]).max() < 1e-12
