"""The last-iterate bound against exact one-dimensional densities of noisy gradient descent."""

import math

import numpy as np
import pytest
from scipy.special import expit

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import LastIterate


def densities(row_sums, n, ridge, step, std, steps, size=801):
    """Density of the last iterate, from 0, for each function giving the sum of row gradients."""

    def drift(row_sum, w):
        return w - step * (row_sum(w) / n + ridge * w)

    noise = step * std
    low = high = 0.0
    for _ in range(steps):
        ends = [drift(one, np.array([low, high])) for one in row_sums]
        low, high = min(map(np.min, ends)), max(map(np.max, ends))
    reach = 9.0 * noise / math.sqrt(1.0 - (1.0 - step * ridge) ** 2)
    grid = np.linspace(low - reach, high + reach, size)
    width = grid[1] - grid[0]
    assert width < 0.25 * noise
    result = []
    for one in row_sums:

        def normal(center):
            return np.exp(-0.5 * ((grid - center) / noise) ** 2) / (
                noise * math.sqrt(2.0 * math.pi)
            )

        density = normal(drift(one, np.zeros(1)))
        kernel = normal(drift(one, grid)[:, None]) * width
        for _ in range(steps - 1):
            density = density @ kernel
        assert density.sum() * width == pytest.approx(1.0, abs=1e-9)
        result.append(density)
    return grid, result


def hockey_stick(grid, p, q, epsilon):
    gaps = np.maximum(p - math.exp(epsilon) * q, 0.0)
    return float(gaps.sum() * (grid[1] - grid[0]))


def clipped_logistic_sum(x, y, clip):
    x, y = np.asarray(x), np.asarray(y)

    def row_sum(w):
        slopes = -y * expit(-y * x * np.asarray(w)[..., None])
        return (np.clip(slopes * x, -clip, clip)).sum(axis=-1)

    return row_sum


def constant_difference_sum(total):
    return lambda w: np.full(np.shape(w), total)


ROWS = {
    2: ([1.0, -0.7], [1.0, 1.0]),
    5: ([1.0, 0.9, -0.4, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0, 1.0]),
}
EPSILONS = [0.0, 0.1, 0.3, 1.0, 2.0, 4.0]


def worst_excess(n, clip, ridge, steps, claimed_noise_factor=1.0):
    """Largest ratio of exact delta to the delta claimed, over epsilons and both orders."""
    x, y = ROWS[n]
    smoothness = 0.25 * float(np.mean(np.square(x))) + ridge
    step = 1.0 / smoothness
    contraction = max(abs(1.0 - step * ridge), abs(1.0 - step * smoothness))
    multiplier = 0.8
    std = multiplier * clip / n
    full = clipped_logistic_sum(x, y, clip)
    without_first = clipped_logistic_sum(x[1:], y[1:], clip)
    grid, (p, q) = densities([full, without_first], n, ridge, step, std, steps)
    mu = LastIterate(claimed_noise_factor * multiplier, contraction, steps).mu
    ratios = [
        hockey_stick(grid, *order, epsilon) / gdp.delta(epsilon, mu)
        for epsilon in EPSILONS
        for order in ((p, q), (q, p))
        if gdp.delta(epsilon, mu) > 1e-9
    ]
    assert len(ratios) >= 6
    return max(ratios)


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("clip", [0.05, 0.4, 1.0])
@pytest.mark.parametrize(("ridge", "steps"), [(0.1, 1), (0.1, 4), (0.02, 12), (0.5, 12)])
def test_clipped_logistic_never_passes_the_bound(n, clip, ridge, steps):
    assert worst_excess(n, clip, ridge, steps) <= 1.0 + 1e-3


@pytest.mark.parametrize("n", [2, 5])
def test_half_the_noise_passes_the_bound(n):
    assert worst_excess(n, clip=0.05, ridge=0.1, steps=4, claimed_noise_factor=2.0) > 1.5


@pytest.mark.parametrize(("curvature", "steps"), [(0.05, 1), (0.05, 30), (0.6, 5), (1.6, 6)])
def test_bound_is_reached_by_quadratics(curvature, steps):
    # The first row's slope always binds at the clip, so neighbours differ by a constant.
    n, clip, multiplier = 5, 0.3, 0.9
    grid, (p, q) = densities(
        [constant_difference_sum(clip), constant_difference_sum(0.0)],
        n, curvature, 1.0, multiplier * clip / n, steps,
    )  # fmt: skip
    mu = LastIterate(multiplier, abs(1.0 - curvature), steps).mu
    if curvature < 1.0:
        for epsilon in EPSILONS:
            exact = hockey_stick(grid, p, q, epsilon)
            assert exact == pytest.approx(gdp.delta(epsilon, mu), rel=1e-2)
    else:
        # Past the minimum the shifts of successive steps cancel: the bound is not reached.
        assert hockey_stick(grid, p, q, 0.3) < gdp.delta(0.3, mu)


def test_clipped_logistic_regression_nearly_attains_epsilon():
    # Slopes beyond the clip everywhere: the objective is linear plus the ridge.
    n, clip, ridge, steps, multiplier = 2, 0.02, 0.02, 10, 1.0
    x, y = ROWS[n]
    step = 1.0 / (0.25 * float(np.mean(np.square(x))) + ridge)
    sums = [clipped_logistic_sum(x, y, clip), clipped_logistic_sum(x[1:], y[1:], clip)]
    grid, (p, q) = densities(sums, n, ridge, step, multiplier * clip / n, steps)
    event = LastIterate(multiplier, 1.0 - step * ridge, steps)
    for delta in (1e-2, 1e-4):
        claimed = GaussianAccountant().epsilon(event, Adjacency.ZERO_OUT, delta)
        assert hockey_stick(grid, p, q, claimed) <= delta * (1.0 + 1e-3)
        assert hockey_stick(grid, p, q, 0.97 * claimed) > delta


def test_amplification_beats_composition_for_many_steps():
    event = LastIterate(1.0, 0.9, 1000)
    assert event.mu < 0.2 * math.sqrt(1000)
    assert event.mu == pytest.approx(math.sqrt(1.9 / 0.1), rel=1e-12)
