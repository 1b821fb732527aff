"""Survey weights: the sandwich of weighted scores, and coefficients of the population."""

import numpy as np
import pytest

from experiments import survey


def test_weighted_errors_without_noise_are_the_sandwich():
    error, found, own = survey.one(0, 4.0, n_rows=10_000, epsilon=1000.0)
    assert np.mean(found / own) == pytest.approx(1.0, abs=0.07)
    assert (np.abs(error) < 4.0 * own).all()
    _, ignored, _ = survey.one(0, None, n_rows=10_000, epsilon=1000.0)
    assert np.mean(ignored / own) < 0.9


@pytest.mark.slow
def test_weights_make_intervals_cover_the_population():
    runs = [[survey.one(seed, bound) for seed in range(20)] for bound in (None, 4.0)]
    errors = [np.array([error / se for error, se, _ in one]) for one in runs]
    ignored, weighted = ((np.abs(one) < survey.Z).mean() for one in errors)
    assert weighted >= 0.88
    assert ignored < 0.5
