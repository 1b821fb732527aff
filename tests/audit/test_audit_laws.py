"""The laws that attackers expect are those that the mechanisms follow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dpglm.audit.games import NoiseLaw, choice_law, flip_law
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.selection.choices import exponential_mechanism, permute_and_flip

SCORES, SENSITIVITY, EPSILON = np.array([0.0, 1.0, 0.5, 4.0]), 1.0, 2.0


@pytest.mark.parametrize(
    ("law", "choose"), [(choice_law, exponential_mechanism), (flip_law, permute_and_flip)]
)
def test_choices_follow_their_law(law, choose):
    expected = law(SCORES, SENSITIVITY, EPSILON).probabilities
    source, runs = SeededNoise(0), 2000
    seen = [choose(SCORES, SENSITIVITY, EPSILON, source) for _ in range(runs)]
    counts = np.bincount(seen, minlength=4)
    chi_squared = ((counts - runs * expected) ** 2 / (runs * expected)).sum()
    assert chi_squared < 20.0
    # The law of the other mechanism does not fit.
    other = {choice_law: flip_law, flip_law: choice_law}[law](SCORES, SENSITIVITY, EPSILON)
    wrong = runs * other.probabilities
    assert ((counts - wrong) ** 2 / wrong).sum() > 20.0


def test_runs_of_equal_candidates_share_their_budget():
    together = choice_law([0.0, 1.0], SENSITIVITY, EPSILON, [2, 3])
    apart = choice_law([0.0, 0.0, 1.0, 1.0, 1.0], SENSITIVITY, EPSILON)
    for position in range(5):
        assert together.log_density(position) == pytest.approx(apart.log_density(position))
    assert together.masses.sum() == pytest.approx(1.0)


def test_gaussian_density():
    law = NoiseLaw(np.array([[1.0, 2.0]]), 0.3)
    expected = multivariate_normal([1.0, 2.0], 0.09).logpdf([1.2, 1.7])
    assert law.log_density(np.array([[1.2, 1.7]])) == pytest.approx(expected)


@pytest.mark.parametrize("size", [1, 2])
def test_l2_densities_add_up_to_one(size):
    law = NoiseLaw(np.ones(size), 0.5, is_gaussian=False)
    axis = 1.0 + 0.05 * (np.arange(1200) - 599.5)
    grid = np.stack([one.ravel() for one in np.meshgrid(*[axis] * size)], axis=1)
    assert np.exp(law.log_densities(grid)).sum() * 0.05**size == pytest.approx(1.0, abs=2e-3)
    away = np.full(size, 1.0 + 1.0 / np.sqrt(size))
    assert law.log_density(away) - law.log_density(np.ones(size)) == pytest.approx(-2.0)
