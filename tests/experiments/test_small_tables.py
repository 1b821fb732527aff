"""Bootstraps of small tables: the debiased one undoes shrinkage, the parametric one does not."""

import numpy as np
import pytest

from experiments.families import Case
from experiments.small_tables import METHODS, bootstrapped, debiased, one

TRUTH = np.array([1.0, -2.0, 0.5])


def shrunk(thetas, rng):
    return 0.5 * thetas + 0.1 * rng.normal(size=thetas.shape)


def test_debiased_bootstrap_undoes_shrinkage():
    rng, inside = np.random.default_rng(0), []
    for _ in range(200):
        estimate = shrunk(TRUTH, rng)
        again = shrunk(np.tile(estimate, (40, 1)), rng)
        thetas = estimate + 2.0 * (again - again.mean(axis=0))
        found = [bootstrapped(estimate, again), *debiased(estimate, thetas, shrunk(thetas, rng))]
        ends = map(np.transpose, found)
        inside.append([(low <= TRUTH) & (high >= TRUTH) for low, high in ends])
    plain, own, joint = np.mean(inside, axis=(0, 2))
    assert plain < 0.6
    assert 0.92 <= own <= joint


def test_coordinates_without_information_have_no_end():
    rng = np.random.default_rng(1)
    thetas = rng.normal(size=(40, 3))
    fits = np.column_stack([thetas[:, :2] + 0.1 * rng.normal(size=(40, 2)), np.zeros(40)])
    fits[:, 2] += 0.1 * rng.normal(size=40)
    for ends in debiased(np.zeros(3), thetas, fits):
        assert np.isfinite(ends[:2]).all()
        assert np.isinf(ends[2]).all()


@pytest.mark.parametrize("replicates", [0, 20])
def test_a_run_has_all_methods(replicates):
    covered, lengths = one(Case("linear", 500, 5, 4.0), 0, replicates)
    assert covered.shape == lengths.shape == (len(METHODS) if replicates else 1, 6)
    assert (lengths > 0.0).all()
    assert covered[0].sum() >= 4
