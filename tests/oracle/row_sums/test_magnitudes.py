"""Counts of magnitudes: whole numbers, one for each entry, on every backend."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpglm.oracle.targets import LEVELS, magnitude_sum, noisy_magnitudes
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian
from dpglm.privacy.noise.additive import GaussianNoise
from tests.audit.attack import released_sums
from tests.preprocessing.support import LAYOUTS, dense, make_rows, oracle_of, worst_pairs


def declared_for(rows, adjacency=Adjacency.ZERO_OUT, multiplier=1.0):
    return magnitude_sum(rows.spec).release(rows.spec, adjacency, GaussianNoise(multiplier))


def ask(oracle, multiplier):
    """Declare a release and make it."""
    declared = declared_for(oracle.rows, oracle.curator.adjacency, multiplier)
    return noisy_magnitudes(oracle, declared)


def counts_of(rows, adjacency=Adjacency.ZERO_OUT):
    with released_sums() as seen:
        found = ask(oracle_of(rows, adjacency), 1.0)
    return found, seen[0][1]


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("row_norm", [1e-3, 1.0, 1e6])
def test_counts_are_those_of_the_definition(layout, dtype, row_norm):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3)) * [0.3, 1e-4, 1e-14] * (rng.random((700, 3)) < 0.7) * row_norm
    rows = make_rows(X, layout=layout, dtype=dtype, row_norm=row_norm)
    found, _ = counts_of(rows)
    kept = np.abs(dense(rows)) / row_norm
    for level in range(1, LEVELS):
        inside = (kept >= 2.0 ** -(level + 1)) & (kept < 2.0**-level)
        # An entry that is a rounding away from a power of two may be on either side.
        assert np.abs(found[:, level] - inside.sum(axis=0)).max() <= 1
    assert found.sum() == pytest.approx((kept > 2.0**-LEVELS).sum(), abs=1)


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("row_norm", [1e-3, 1.0, 1e6])
def test_one_row_moves_the_counts_by_no_more_than_declared(layout, dtype, row_norm):
    for one, other, relation in worst_pairs(300, 3, row_norm):
        adjacency = Adjacency(relation)
        if not adjacency.n_is_public and (layout, dtype) == ("C", "float32"):
            continue
        options = {"layout": layout, "dtype": dtype, "row_norm": row_norm, "n_rows": 300}
        (a, std), (b, _) = (counts_of(make_rows(X, **options), adjacency) for X in (one, other))
        assert np.linalg.norm(a - b) <= std


def test_worst_case_row_attains_bound():
    X = np.tile([0.5, 0.25, 0.125], (20, 1))
    (a, std), (b, _) = counts_of(make_rows(X)), counts_of(make_rows(X[1:], n_rows=20))
    moved = np.linalg.norm(a - b)
    bound = declared_for(make_rows(X)).contribution_bound
    assert moved == math.sqrt(3.0) == bound <= std < 1.001 * math.sqrt(3)
    # As if a row had one entry: the effect of a forgotten factor.
    assert moved > 1.7 * declared_for(make_rows(X[:, :1])).contribution_bound


def test_one_release_and_noise_as_large_as_declared():
    oracle = oracle_of(make_rows(np.zeros((50, 2))))
    drawn = ask(oracle, 3.0)
    assert oracle.curator.event.terms == ((Gaussian(3.0), 1),)
    drawn = np.array([drawn, *(ask(oracle, 3.0) for _ in range(60))])
    assert drawn.std() == pytest.approx(3.0 * math.sqrt(2.0), rel=0.04)
