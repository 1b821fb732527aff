"""Survey weights: the sandwich of weighted scores, and coefficients of the population."""

import dataclasses

import numpy as np
import pytest

from dpglm.solvers.second_order import sufficient_statistics_method as solver_module
from experiments import survey
from experiments.survey import Design

EXACT = Design(4.0, n_rows=10_000, epsilon=1000.0)


def covered(design, runs=20):
    error, se, _ = np.array([survey.one(design, seed) for seed in range(runs)]).transpose(1, 0, 2)
    return np.mean(np.abs(error) < survey.Z * se)


@pytest.mark.parametrize("epsilon", [1e3, 1e4])
@pytest.mark.parametrize("clusters", [False, True])
def test_weighted_errors_without_noise_are_the_sandwich(clusters, epsilon):
    exact = dataclasses.replace(EXACT, clusters=clusters, epsilon=epsilon)
    error, found, own = survey.one(exact, 0)
    assert np.mean(found / own) == pytest.approx(1.0, abs=0.07)
    assert (np.abs(error) < 4.0 * own).all()


def test_noise_in_products_for_too_wide_a_bound_is_found(monkeypatch):
    """Planted: the bound on scores counts only the noise in scores."""
    monkeypatch.setattr(solver_module, "UNSURE", 1e-12)
    _, found, own = survey.one(dataclasses.replace(EXACT, clusters=True, epsilon=1e4), 0)
    assert np.mean(found / own) > 3.0


def test_errors_without_weights_are_shorter():
    _, ignored, own = survey.one(dataclasses.replace(EXACT, weight_bound=None), 0)
    assert np.mean(ignored / own) < 0.9


@pytest.mark.parametrize("weight_bound", [4.0, 8.0])
def test_noise_is_that_of_weighted_scores(weight_bound):
    # Noise for the largest weight times the largest score makes lengths of 2.5 and 4.
    _, found, own = survey.one(Design(weight_bound), 0)
    assert np.mean(found / own) < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [False, True])
def test_weights_make_intervals_cover_the_population(clusters):
    assert covered(Design(4.0, clusters=clusters)) >= 0.88
    assert covered(Design(None)) < 0.5


@pytest.mark.slow
def test_intervals_that_ignore_strata_cover():
    table = survey.tables()["Adult by occupation"]
    error, se, _, ignored, used = np.array(
        [survey.stratified(table, 0.5, seed) for seed in range(12)]
    ).transpose(1, 0, 2)
    assert np.mean(np.abs(error) < survey.Z * se) >= 0.95
    # Scores centred by stratum have less variance, and little less.
    assert (used < ignored).all()
    assert np.mean(used / ignored) > 0.98
