"""Private radii and medians: near the true ones, and neighbours no further apart than paid for."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.data.rows import LARGEST
from dpglm.oracle.choices import (
    CELLS,
    UNBOUNDED_RADII,
    cells_along,
    choose_quantile,
    distances,
    noisy_medians,
    noisy_radius,
    noisy_unbounded_radius,
    radii,
    rank_release,
    unbounded_radius_release,
)
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import BoundedRange, Pure
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.releases import Curator
from tests.oracle.watching import watching
from tests.preprocessing.support import LAYOUTS, make_rows, oracle_of, worst_pairs

RNG = np.random.default_rng(0)
ORIGIN = np.zeros(3)


def scores_of(cells, n_cells, rank):
    """The score of every cell, run by run as the oracle hands them over."""
    curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
    declared = rank_release("cell", Adjacency.ZERO_OUT, 1.0)
    with watching(0) as told:
        choose_quantile(curator, declared, np.asarray(cells, np.int64), n_cells, rank)
    assert (told.declared.contribution_bound, told.declared.rounding) == (1.0, 0.0)
    return np.repeat(*told.value)


def radius(oracle, largest, quantile, epsilon):
    """Declare the choice of a radius around the origin and make it."""
    declared = rank_release("radius", oracle.curator.adjacency, epsilon)
    return noisy_radius(oracle, declared, ORIGIN, largest, quantile)


def unbounded_radius(oracle, quantile, epsilon):
    """Declare the choice of a radius around the origin and make it."""
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    declared = unbounded_radius_release(spec, adjacency, quantile, epsilon)
    return noisy_unbounded_radius(oracle, declared, ORIGIN)


def medians(oracle, basis, epsilon):
    """Declare the choice of medians and make it."""
    return noisy_medians(oracle, rank_release("median", oracle.curator.adjacency, epsilon), basis)


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_distances_of_the_rank_from_a_cell(seed):
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 12, size=rng.integers(0, 15))
    for rank in (0, 3, 20):
        expected = [max((cells < k).sum() - rank, rank - (cells <= k).sum(), 0) for k in range(12)]
        np.testing.assert_array_equal(scores_of(cells, 12, rank), expected)


@pytest.mark.parametrize("change", ["more", "less", "other"])
def test_one_row_moves_every_score_by_at_most_one(change):
    moves = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        cells = rng.integers(0, 9, size=8)
        other = {
            "more": np.append(cells, rng.integers(9)),
            "less": cells[1:],
            "other": np.append(cells[1:], rng.integers(9)),
        }[change]
        moves.append(scores_of(cells, 9, 4) - scores_of(other, 9, 4))
    # Both ways, so that half of it would not do.
    assert (np.min(moves), np.max(moves)) == (-1.0, 1.0)


def test_a_score_that_counts_twice_is_caught():
    # As from ranks of all pairs, or weights of 2: more than the bound that is declared.
    moved = scores_of([1, 1, 4, 4], 9, 2) - scores_of([4, 4, 4, 4], 9, 2)
    assert np.abs(moved).max() > 1.0


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("row_norm", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_radii_are_near_the_quantile(layout, dtype, row_norm, quantile):
    X = RNG.normal(size=(3000, 3)) * row_norm / 50.0
    rows = make_rows(X, layout=layout, dtype=dtype, row_norm=row_norm)
    oracle = oracle_of(rows)
    lengths = np.linalg.norm(X, axis=1)
    low, high = np.quantile(lengths, [quantile - 0.05, quantile + 0.05])
    found = [radius(oracle, row_norm, quantile, 0.5) for _ in range(5)]
    assert all(0.99 * low <= one <= 1.01 * high for one in found)
    assert set(found) <= set(radii(row_norm))
    found = [unbounded_radius(oracle, quantile, 0.5) for _ in range(5)]
    assert all(0.97 * low <= one <= 1.05 * high for one in found)
    assert set(found) <= set(UNBOUNDED_RADII)
    assert oracle.curator.event.terms == ((BoundedRange(0.5), 5), (Pure(0.5), 5))


def test_rows_that_are_all_alike_have_one_radius():
    rows = make_rows(np.tile([0.3, 0.0, 0.4], (500, 1)))
    assert radius(oracle_of(rows), 1.0, 0.9, 1.0) == pytest.approx(0.5, rel=0.01)
    assert unbounded_radius(oracle_of(rows), 0.9, 1.0) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("n_rows", [0, 1])
def test_few_rows(n_rows):
    rows = make_rows(np.ones((n_rows, 3)), n_rows=7)
    assert radius(oracle_of(rows), 1.0, 0.9, 1.0) in radii(1.0)
    assert unbounded_radius(oracle_of(rows), 0.9, 1.0) in UNBOUNDED_RADII
    assert medians(oracle_of(rows), np.eye(3), 1.0).shape == (3,)


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
def test_medians_along_directions(layout, dtype):
    X = RNG.normal(size=(3000, 3)) * [0.1, 1.0, 1e-7] + [5.0, 0.0, -2.0]
    rows = make_rows(X, layout=layout, dtype=dtype, row_norm=20.0)
    basis = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    for adjacency in Adjacency:
        if not adjacency.n_is_public and (layout, dtype) == ("C", "float32"):
            continue
        oracle = oracle_of(rows, adjacency)
        found = medians(oracle, basis, 0.5)
        low, high = np.quantile(X @ basis, [0.42, 0.58], axis=0)
        assert ((low - 1e-5 <= found) & (found <= high + 1e-5)).all()
        assert oracle.curator.event.terms == ((BoundedRange(0.5), 3),)


def test_medians_resolve_a_tiny_cloud_far_away():
    X = RNG.normal(size=(3000, 2)) * 1e-9 + [1.0, 0.0]
    found = medians(oracle_of(make_rows(X, row_norm=2.0)), np.eye(2), 0.5)
    np.testing.assert_allclose(found, [1.0, 0.0], atol=1e-9)


def test_many_directions_are_asked_in_groups():
    X = RNG.normal(size=(400, 150)) * 0.01 + np.linspace(-0.05, 0.05, 150)
    found = medians(oracle_of(make_rows(X)), np.eye(150), 5.0)
    assert np.abs(found - np.median(X, axis=0)).max() < 0.01


@pytest.mark.parametrize("row_norm", [1e-3, 1e6])
def test_a_huge_row_is_one_row(row_norm):
    for one, other, _ in worst_pairs(300, 3, row_norm):
        cells = [
            np.searchsorted(radii(2 * row_norm)[:-1], distances(oracle_of(rows), ORIGIN))
            for rows in (make_rows(X, row_norm=row_norm) for X in (one, other))
        ]
        moved = scores_of(cells[0], CELLS, 150) - scores_of(cells[1], CELLS, 150)
        assert np.abs(moved).max() <= 1.0


def test_added_row_leaves_cells_of_others_unchanged():
    X = RNG.normal(size=(301, 40))
    basis = np.linalg.qr(RNG.normal(size=(40, 40)))[0]
    cells = [
        cells_along(oracle_of(make_rows(one, row_norm=9.0), Adjacency.ADD_REMOVE), basis, 2.0**-37)
        for one in (X, X[1:])
    ]
    np.testing.assert_array_equal(cells[0][:, 1:], cells[1])


@pytest.mark.parametrize("layout", ["C", "F", "csr"])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_distances_do_not_depend_on_where_a_row_stands(layout, d):
    X = RNG.normal(size=(301, d))
    full, fewer = (
        distances(oracle_of(make_rows(one, layout=layout, row_norm=50.0)), np.full(d, 0.1))
        for one in (X, X[3:])
    )
    np.testing.assert_array_equal(full[3:], fewer)


def test_unbounded_radii_reach_from_the_least_to_the_greatest():
    assert UNBOUNDED_RADII[-1] >= 2.0 * LARGEST * (1 - 1e-12)
    assert np.diff(np.log(UNBOUNDED_RADII)).max() < 0.021
