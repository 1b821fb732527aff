"""Scales of terms by marginal likelihood: they find the truth, and count the noise."""

import numpy as np
import pytest
from scipy import stats

from dpglm.solvers.second_order.posterior import ScaleLaw, term_scales

LEVELS, OTHERS = 50, 30
SIZE = LEVELS + OTHERS


def drawn(tau, seed, noise=25.0):
    """Return roots, a Hessian, the error's covariance and the pooled vector."""
    rng = np.random.default_rng(seed)
    curvature = np.concatenate([rng.uniform(5.0, 200.0, LEVELS), rng.uniform(20.0, 60.0, OTHERS)])
    error = np.diag(curvature) + noise * np.eye(SIZE)
    theta = rng.normal(size=SIZE) * np.repeat([tau, 0.5], [LEVELS, OTHERS])
    pooled = curvature * theta + rng.multivariate_normal(np.zeros(SIZE), error)
    roots = np.split(np.eye(SIZE), [LEVELS], axis=1)
    return roots, np.diag(curvature), error, pooled


@pytest.mark.parametrize("tau", [0.0, 0.1, 0.3, 1.0])
def test_term_scales_cover_the_truth(tau):
    laws = []
    for seed in range(60):
        roots, hessian, error, pooled = drawn(tau, seed)
        laws.append(term_scales(hessian, error, pooled, np.zeros_like(hessian), roots)[0])
    low, high = np.array([law.interval() for law in laws]).T
    assert np.mean((low <= tau + 1e-9) & (tau <= high)) >= 0.88
    assert np.mean([law.mode for law in laws]) == pytest.approx(tau, abs=0.05)


def test_term_scales_count_the_noise():
    modes = []
    for seed in range(20):
        roots, hessian, error, pooled = drawn(0.0, seed, 400.0)
        blind = error - 400.0 * np.eye(SIZE)
        modes.append(
            [
                term_scales(hessian, one, pooled, np.zeros_like(hessian), roots)[0].mode
                for one in (error, blind)
            ]
        )
    found, planted = np.mean(modes, axis=0)
    assert found < 0.05 < 0.1 < planted


def test_term_scales_follow_the_density_of_the_released_vector():
    roots, hessian, error, pooled = drawn(0.4, 0)
    fixed = 0.01 * np.eye(SIZE)
    law, other = term_scales(hessian, error, pooled, fixed, roots, unit=2.0)
    spread = fixed + other.mode**2 * roots[1] @ roots[1].T
    logs = np.array(
        [
            stats.multivariate_normal.logpdf(
                pooled, cov=error + hessian @ (spread + tau**2 * roots[0] @ roots[0].T) @ hessian
            )
            - tau**2 / 8.0
            for tau in law.values
        ]
    )
    assert law.mode == law.values[logs.argmax()]
    inner = slice(1, -1)
    widths = 0.5 * (law.values[2:] - law.values[:-2])
    expected = np.exp(logs - logs.max())[inner] * widths
    ratio = law.weights[inner] / expected
    shown = expected > 1e-6
    np.testing.assert_allclose(ratio[shown], ratio[shown][0], rtol=1e-6)


def test_scale_law_without_information_is_the_prior():
    law = ScaleLaw.of(np.zeros(49), 2.0)
    assert law.mode == 0.0
    assert law.mean_square == pytest.approx(4.0, rel=0.02)
    levels = np.array([0.25, 0.5, 0.9])
    np.testing.assert_allclose(
        law.quantiles(levels), stats.halfnorm.ppf(levels, scale=2.0), rtol=0.05
    )
