"""Releases with L2 noise and sums of local messages: recorded first, scaled right, exact laws."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chisquare, gamma, kstest

from dpglm.privacy import curator as mechanisms
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import MOST_SENDERS, BoundedSum, Curator
from dpglm.privacy.events import Composed, Gaussian, Pure
from dpglm.privacy.noise import SeededNoise, grid_sensitivity
from dpglm.privacy.noise.scales import l2_noise_scale, noise_scale

RUNS = 3000
EPSILON = 1.5


def total(value, bound=1.0, rounding=0.0, magnitude=100.0, sampling_rate=1.0):
    value = np.asarray(value, dtype=float)
    return BoundedSum(value, bound, magnitude, rounding, sampling_rate)


@pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
def test_the_scale_is_the_sensitivity_over_epsilon(adjacency):
    curator = Curator(adjacency, SeededNoise(0))
    with mock.patch.object(mechanisms, "add_l2_noise") as added:
        curator.release_l2(total(np.zeros((3, 2)), bound=2.0, rounding=0.25), 0.5)
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
        scale = l2_noise_scale(Adjacency.ZERO_OUT, bound, epsilon, 5, 10.0 * bound)
        sensitivity = bound + grid_sensitivity(5, scale.exponent)
        # In exact arithmetic: the product of two floats has at most 106 bits.
        exact = int(scale.std * 2**200) * int(epsilon * 2**200)
        assert exact >= int(sensitivity * 2**200) * 2**200


def test_a_large_magnitude_coarsens_the_grid_and_the_noise_pays():
    scale = l2_noise_scale(Adjacency.ZERO_OUT, 1.0, 1.0, 4, 2.0**40)
    assert 2.0 ** (52 + scale.exponent) > 2.0**40
    assert scale.std > 1.0 + 2.0 * 2.0**scale.exponent
    released = Curator(Adjacency.ZERO_OUT, SeededNoise(0)).release_l2(
        total([2.0**40, 0, 0, 0], magnitude=2.0**40), 1.0
    )
    assert np.abs(released - [2.0**40, 0, 0, 0]).max() < 50.0


def test_releases_are_recorded_before_they_are_drawn():
    curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
    for name in ("add_l2_noise", "add_gaussian"):
        broken = mock.patch.object(mechanisms, name, side_effect=RuntimeError)
        release = curator.release_l2 if name == "add_l2_noise" else local_release(curator)
        with broken, pytest.raises(RuntimeError):
            release(total(np.zeros(2)), 0.7)
    assert curator.event == Composed((Pure(0.7), Gaussian(0.7)))


def local_release(curator, senders=3):
    return lambda bounded, multiplier: curator.release_local(bounded, multiplier, senders)


def test_a_sum_over_a_sample_is_refused_and_nothing_is_recorded():
    curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
    with pytest.raises(ValueError, match=r"sampling_rate must be 1 for L2 noise, got 0\.5"):
        curator.release_l2(total(np.zeros(2), sampling_rate=0.5), 1.0)
    assert curator.event == Composed(())


def releases(value, adjacency=Adjacency.ZERO_OUT, epsilon=EPSILON, start=0):
    return np.array(
        [
            Curator(adjacency, SeededNoise(seed)).release_l2(total(value), epsilon)
            for seed in range(start, start + RUNS)
        ]
    )


def norm_p_value(released, value, scale):
    """Norms of the noise in m dimensions have the law Gamma(m, scale)."""
    norms = np.linalg.norm(released - np.asarray(value), axis=1)
    return kstest(norms, gamma(len(value), scale=scale).cdf).pvalue


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE], ids=str)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_noise_has_the_law_that_was_paid_for(size, adjacency):
    value = np.full(size, 0.3)
    released = releases(value, adjacency)
    scale = adjacency.sum_sensitivity(1.0) / EPSILON
    assert norm_p_value(released, value, scale) > 1e-4
    # Half the noise, a factor 2 forgotten or doubled, an error of a fifth.
    for wrong in (0.5, 2.0, 1.2):
        assert norm_p_value(released, value, wrong * scale) < 1e-6


def density_ratio(points, first, second, scale):
    """Logarithm of the ratio of the two densities at each point, exactly."""
    near, far = (np.linalg.norm(points - np.asarray(v), axis=1) for v in (first, second))
    return (far - near) / scale


@pytest.mark.parametrize("dimension", [1, 2])
def test_exact_density_ratios_never_pass_epsilon_and_reach_it(dimension):
    first, second = np.zeros(dimension), np.zeros(dimension)
    second[0] = 1.0
    scale = l2_noise_scale(Adjacency.ZERO_OUT, 1.0, EPSILON, dimension, 100.0).std
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
        bounded = total(np.zeros(5), bound=2.0, rounding=0.25)
        with mock.patch.object(mechanisms, "add_gaussian") as added:
            curator.release_local(bounded, 3.0, 49)
        _, std, exponent, _ = added.call_args.args
        one = noise_scale(adjacency, 2.25, 3.0, 5, 100.0)
        assert std == 7.0 * one.std
        assert one.std >= 3.0 * adjacency.sum_sensitivity(2.25)
        assert exponent == one.exponent
        assert curator.event == Gaussian(3.0)

    def test_noise_really_is_so_large(self):
        curator = Curator(Adjacency.ZERO_OUT, SeededNoise(1))
        noise = curator.release_local(total(np.zeros(40_000)), 3.0, 49)
        # Two per cent are five standard deviations of this estimate.
        assert noise.std() == pytest.approx(21.0, rel=0.02)
        assert noise.std() != pytest.approx(3.0, rel=0.5)

    @pytest.mark.parametrize("senders", [0, MOST_SENDERS + 1, 1.5])
    def test_the_number_of_senders_is_checked_and_nothing_recorded(self, senders):
        curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
        with pytest.raises(ValueError, match="senders must be"):
            curator.release_local(total(np.zeros(2)), 1.0, senders)
        assert curator.event == Composed(())

    @pytest.mark.parametrize("multiplier", [1e-3, 1.0, 1e6])
    def test_the_most_senders_fit_on_the_grid(self, multiplier):
        curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
        bounded = total(np.full(3, MOST_SENDERS / 2.0), magnitude=2.0 * MOST_SENDERS)
        noisy = curator.release_local(bounded, multiplier, MOST_SENDERS)
        assert np.isfinite(noisy).all()
