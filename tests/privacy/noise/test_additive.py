"""Releases with added noise: recorded first, scaled right, exact laws."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chisquare, gamma, kstest

from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Composed, Gaussian, ProjectedGaussian, Pure
from dpglm.privacy.noise import SeededNoise, additive, grid_sensitivity
from dpglm.privacy.noise.additive import (
    MOST_SENDERS,
    GaussianNoise,
    L2Noise,
    LocalGaussianNoise,
    ProjectedGaussianNoise,
)
from dpglm.privacy.noise.exact import noise_scale
from dpglm.privacy.releases import Bounded, Curator, Release

RUNS = 3000
EPSILON = 1.5


def declared_for(
    mechanism, size, bound=1.0, rounding=0.0, magnitude=100.0, adjacency=Adjacency.ZERO_OUT
):
    return Release("sum", mechanism, adjacency, bound, size, rounding=rounding, magnitude=magnitude)


def released(curator, mechanism, value, bound=1.0, **facts):
    """Declare a sum and release it."""
    declared = declared_for(mechanism, np.size(value), bound, adjacency=curator.adjacency, **facts)
    return curator.release(declared, Bounded(np.asarray(value, dtype=float), bound))


def l2_scale(bound, epsilon, size, magnitude):
    return declared_for(L2Noise(epsilon), size, bound, magnitude=magnitude).scale


@pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
def test_the_scale_is_the_sensitivity_over_epsilon(adjacency):
    curator = Curator(adjacency, SeededNoise(0))
    with mock.patch.object(additive, "add_l2_noise") as added:
        released(curator, L2Noise(0.5), np.zeros((3, 2)), bound=2.0, rounding=0.25)
    value, scale, exponent, source = added.call_args.args
    sensitivity = adjacency.sum_sensitivity(2.25 + grid_sensitivity(6, exponent))
    assert sensitivity <= 0.5 * scale < sensitivity * (1.0 + 1e-14)
    # The grid is fine against the noise.
    assert 2.0**-25 < 2.0**exponent / scale <= 2.0**-24
    assert value.shape == (3, 2)
    assert source is curator.noise
    assert curator.event == Pure(0.5)


def test_the_scale_is_never_a_last_digit_short():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        epsilon, bound = np.exp(rng.uniform(-8, 8, 2))
        scale = l2_scale(bound, epsilon, 5, 10.0 * bound)
        sensitivity = bound + grid_sensitivity(5, scale.exponent)
        # In exact arithmetic: the product of two floats has at most 106 bits.
        exact = int(scale.std * 2**200) * int(epsilon * 2**200)
        assert exact >= int(sensitivity * 2**200) * 2**200


def test_a_large_magnitude_coarsens_the_grid_and_the_noise_pays():
    scale = l2_scale(1.0, 1.0, 4, 2.0**40)
    assert 2.0 ** (52 + scale.exponent) > 2.0**40
    assert scale.std > 1.0 + 2.0 * 2.0**scale.exponent
    curator, value = Curator(Adjacency.ZERO_OUT, SeededNoise(0)), [2.0**40, 0, 0, 0]
    noisy = released(curator, L2Noise(1.0), value, magnitude=2.0**40)
    assert np.abs(noisy - value).max() < 50.0


def test_releases_are_recorded_before_they_are_drawn():
    curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
    both = ("add_l2_noise", "add_gaussian")
    broken = mock.patch.multiple(
        additive, **dict.fromkeys(both, mock.Mock(side_effect=ZeroDivisionError))
    )
    ways = (L2Noise(0.7), GaussianNoise(0.8), ProjectedGaussianNoise(0.9, 2))
    for mechanism in ways:
        with broken, pytest.raises(ZeroDivisionError):
            released(curator, mechanism, np.zeros(2))
    with broken, pytest.raises(ZeroDivisionError):
        local_release(curator, np.zeros(2), 0.6, 3)
    expected = (Pure(0.7), Gaussian(0.8), ProjectedGaussian(0.9, 2), Gaussian(0.6))
    assert dict(curator.event.terms) == dict(Composed(expected).terms)


def local_release(curator, value, multiplier, senders, **facts):
    """Declare a sum of messages, with a largest number, and release it."""
    noise = LocalGaussianNoise(multiplier, senders)
    declared = declared_for(noise, value.size, adjacency=curator.adjacency, **facts)
    bound = declared.contribution_bound
    return curator.release(declared, Bounded((value, senders), bound))


def releases(value, adjacency=Adjacency.ZERO_OUT, epsilon=EPSILON, start=0):
    return np.array(
        [
            released(Curator(adjacency, SeededNoise(seed)), L2Noise(epsilon), value)
            for seed in range(start, start + RUNS)
        ]
    )


def norm_p_value(noisy, value, scale):
    """Norms of the noise in m dimensions have the law Gamma(m, scale)."""
    norms = np.linalg.norm(noisy - np.asarray(value), axis=1)
    return kstest(norms, gamma(len(value), scale=scale).cdf).pvalue


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE], ids=str)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_noise_has_the_law_that_was_paid_for(size, adjacency):
    value = np.full(size, 0.3)
    noisy = releases(value, adjacency)
    scale = adjacency.sum_sensitivity(1.0) / EPSILON
    assert norm_p_value(noisy, value, scale) > 1e-4
    # Half the noise, a factor 2 forgotten or doubled, an error of a fifth.
    for wrong in (0.5, 2.0, 1.2):
        assert norm_p_value(noisy, value, wrong * scale) < 1e-6


def density_ratio(points, first, second, scale):
    """Logarithm of the ratio of the two densities at each point, exactly."""
    near, far = (np.linalg.norm(points - np.asarray(v), axis=1) for v in (first, second))
    return (far - near) / scale


@pytest.mark.parametrize("dimension", [1, 2])
def test_exact_density_ratios_never_pass_epsilon_and_reach_it(dimension):
    first, second = np.zeros(dimension), np.zeros(dimension)
    second[0] = 1.0
    scale = l2_scale(1.0, EPSILON, dimension, 100.0).std
    axis = np.linspace(-30, 30, 1201 if dimension == 1 else 121)
    points = np.stack(np.meshgrid(*[axis] * dimension), axis=-1).reshape(-1, dimension)
    ratios = density_ratio(points, first, second, scale)
    assert 0.999 * EPSILON <= np.abs(ratios).max() <= EPSILON
    # Half the noise passes it.
    assert np.abs(density_ratio(points, first, second, 0.5 * scale)).max() > 1.9 * EPSILON


@pytest.mark.parametrize("dimension", [1, 2])
def test_releases_of_neighbours_fall_as_the_exact_ratio_says(dimension):
    # Cells by the ratio itself, which is all that an attacker can use.
    first, second = np.zeros(dimension), np.zeros(dimension)
    second[0] = 1.0
    scale = 1.0 / EPSILON
    cuts = np.linspace(-0.9, 0.9, 7) * EPSILON
    counts = []
    for value, start in ((first, 0), (second, RUNS)):
        ratios = density_ratio(releases(value, start=start), first, second, scale)
        counts.append(np.bincount(np.searchsorted(cuts, ratios), minlength=8))
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(400_000, dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    noise = directions * gamma.rvs(dimension, scale=scale, size=(400_000, 1), random_state=rng)
    for found, value in zip(counts, (first, second), strict=True):
        ratios = density_ratio(noise + value, first, second, scale)
        law = np.bincount(np.searchsorted(cuts, ratios), minlength=8) / 400_000
        assert chisquare(found, RUNS * law / law.sum()).pvalue > 1e-4
    # No cell is more than e^epsilon as likely under one as under the other.
    few = 3.0 * np.sqrt(counts[0] + counts[1] + 1.0)
    assert (counts[0] - few <= math.exp(EPSILON) * (counts[1] + few)).all()
    assert (counts[1] - few <= math.exp(EPSILON) * (counts[0] + few)).all()


class TestLocalMessages:
    @pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
    def test_noise_is_that_of_a_sum_of_independent_ones(self, adjacency):
        curator = Curator(adjacency, SeededNoise(0))
        with mock.patch.object(additive, "add_gaussian") as added:
            local_release(curator, np.zeros(5), 3.0, 49, bound=2.0, rounding=0.25)
        _, std, exponent, _ = added.call_args.args
        one = noise_scale(adjacency, adjacency.sum_sensitivity(2.25), 3.0, 5, 100.0)
        assert std == 7.0 * one.std
        assert one.std >= 3.0 * adjacency.sum_sensitivity(2.25)
        assert exponent == one.exponent
        assert curator.event == Gaussian(3.0)

    def test_noise_really_is_so_large(self):
        curator = Curator(Adjacency.ZERO_OUT, SeededNoise(1))
        noise = local_release(curator, np.zeros(40_000), 3.0, 49)
        # Two per cent are five standard deviations of this estimate.
        assert noise.std() == pytest.approx(21.0, rel=0.02)
        assert noise.std() != pytest.approx(3.0, rel=0.5)

    @pytest.mark.parametrize("senders", [0, MOST_SENDERS + 1, 1.5])
    def test_the_number_of_senders_is_checked_and_nothing_recorded(self, senders):
        curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
        with pytest.raises(ValueError, match="most_senders must be"):
            local_release(curator, np.zeros(2), 1.0, senders)
        assert curator.event == Composed(())

    @pytest.mark.parametrize("senders", [0, 4, 1.5])
    def test_no_more_messages_are_summed_than_were_declared(self, senders):
        curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
        declared = declared_for(LocalGaussianNoise(1.0, 3), 2)
        with pytest.raises(ValueError, match="senders must be"):
            curator.release(declared, Bounded((np.zeros(2), senders), 1.0))

    @pytest.mark.parametrize("multiplier", [1e-3, 1.0, 1e6])
    def test_the_most_senders_fit_on_the_grid(self, multiplier):
        curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
        value, most = np.full(3, MOST_SENDERS / 2.0), 2.0 * MOST_SENDERS
        noisy = local_release(curator, value, multiplier, MOST_SENDERS, magnitude=most)
        assert np.isfinite(noisy).all()
