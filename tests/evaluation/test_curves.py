"""Curves from counts in cells, against scikit-learn's from scores."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dpglm.evaluation import evaluate_predictions
from dpglm.evaluation.cells import fine_cells, n_cells_for, n_fine_for, score_edges, within_cells
from dpglm.evaluation.curves import (
    area_under_roc,
    largest_gap,
    order_variance,
    precision_recall_points,
    roc_points,
)
from dpglm.privacy import GaussianDP
from dpglm.solvers.composite.score_tables import Refined


def counted(y, cells, size):
    return (np.bincount(cells[y == k], minlength=size).astype(float) for k in (0, 1))


def generated(n=200_000, spread=1.5):
    rng = np.random.default_rng(0)
    scores = 1.0 / (1.0 + np.exp(1.0 - spread * rng.normal(size=n)))
    return (rng.uniform(size=n) < scores).astype(int), scores


@pytest.mark.parametrize("spread", [0.4, 1.5, 4.0])
def test_eight_cells_of_equal_mass_have_the_area_of_the_scores(spread):
    y, scores = generated(spread=spread)
    cells = np.searchsorted(np.quantile(scores, np.arange(1, 8) / 8), scores)
    negatives, positives = counted(y, cells, 8)
    exact = roc_auc_score(y, scores)
    assert area_under_roc(negatives, positives) == pytest.approx(exact, abs=1.5e-3)
    # Without what the order within cells is worth the error is larger.
    assert abs(area_under_roc(negatives, positives, 0.0) - exact) > 2.5e-3


def test_scores_that_are_equal_within_cells_count_by_half():
    y, scores = generated()
    levels = np.searchsorted(np.quantile(scores, [0.2, 0.5, 0.9]), scores)
    negatives, positives = counted(y, levels, 4)
    exact = roc_auc_score(y, levels)
    assert area_under_roc(negatives, positives, 0.0) == pytest.approx(exact, abs=1e-12)


def test_order_does_not_matter_to_a_score_without_order():
    negatives, positives = np.full(6, 100.0), np.full(6, 7.0)
    assert area_under_roc(negatives, positives) == pytest.approx(0.5)
    assert largest_gap(negatives, positives) == pytest.approx(0.0)


def test_the_better_the_higher():
    down, up = np.array([50.0, 30, 20, 0]), np.array([0.0, 20, 30, 50])
    assert area_under_roc(down, up) > 0.9
    assert area_under_roc(up, down) < 0.1
    assert largest_gap(down, up) == pytest.approx(0.6)


def test_cells_without_rows_change_nothing():
    down, up = np.array([50.0, 30, 20, 5]), np.array([1.0, 20, 30, 50])
    padded = (np.insert(one, [0, 2, 4], 0.0) for one in (down, up))
    assert area_under_roc(*padded) == pytest.approx(area_under_roc(down, up), abs=1e-12)


def test_curves_run_from_nothing_to_all():
    false, true = roc_points(np.array([5.0, 3, 2]), np.array([1.0, -0.5, 9.0]))
    assert (false[0], true[0], false[-1], true[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert (np.diff(false) >= 0.0).all()
    assert (np.diff(true) >= 0.0).all()
    precision, recall = precision_recall_points(np.array([8.0, 2.0]), np.array([5.0, 5.0]))
    assert precision.tolist() == pytest.approx([1.0, 5 / 7, 0.5])
    assert recall.tolist() == pytest.approx([0.0, 0.5, 1.0])


def test_thresholds_are_ends_of_cells():
    edges = score_edges(160, (0.1, 0.5, 0.73))
    assert {0.1, 0.5, 0.73} <= set(edges)
    assert len(edges) == 161
    assert list(edges) == sorted(edges)
    place = edges.index(0.5)
    cells = fine_cells(np.array([np.nextafter(0.5, 0.0), 0.5]), edges)
    assert cells.tolist() == [place, place + 1]
    assert fine_cells(np.array([0.0, 1.0]), edges).tolist() == [0, len(edges)]


def test_more_rows_or_budget_give_more_cells_within_limits():
    sizes = [n_cells_for(16_000, mu) for mu in (1e-6, 0.01, 0.1, 0.3, 1.0, 1e3)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (4, 16)
    assert (n_fine_for(10, 0.1), n_fine_for(10**9, 1.0)) == (160, 1280)


def test_merged_cells_have_equal_mass_and_begin_at_cuts():
    y, scores = generated()
    edges = score_edges(320, (0.5,))
    cut = edges.index(0.5) + 1
    refined = Refined(0, 1, len(edges) + 1, 8, (cut,))
    counts = np.stack(list(counted(y, fine_cells(scores, edges), refined.size)))
    lookup = refined.lookup(counts, 1.0)
    assert (np.diff(lookup) >= 0).all()
    assert lookup.max() < refined.merged_size
    assert lookup[cut] > lookup[cut - 1]
    mass = np.bincount(lookup, (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0))
    assert mass.max() < 1.2 / 8


@pytest.mark.parametrize("counts", [np.zeros((2, 40)), np.full((2, 40), -5.0)])
def test_hopeless_noise_still_gives_cells(counts):
    lookup = Refined(0, 1, 40, 8).lookup(counts, 100.0)
    assert (np.diff(lookup) >= 0).all()
    assert 0 <= lookup.min() <= lookup.max() < 8


def test_orders_within_cells_vary_as_said():
    rng = np.random.default_rng(0)
    negatives, positives = np.array([300.0, 200, 40]), np.array([50.0, 150, 260])
    y = np.repeat([0, 0, 0, 1, 1, 1], np.r_[negatives, positives].astype(int))
    cells = np.repeat([0, 1, 2] * 2, np.r_[negatives, positives].astype(int))
    areas = [roc_auc_score(y, cells + rng.uniform(size=len(y))) for _ in range(150)]
    assert np.var(areas) == pytest.approx(order_variance(negatives, positives), rel=0.3)
    assert order_variance(negatives, positives, 0.0) == 0.0


def test_scores_that_many_share_are_told_from_scores_that_differ():
    edges = score_edges(160)
    centres = np.arange(161)
    smooth = 1e4 * np.exp(-0.5 * ((centres - 80) / 4.0) ** 2)[:160]
    atoms = np.zeros(160)
    atoms[[62, 90, 91 + 20]] = [4000.0, 5000.0, 1000.0]
    lookup = Refined(0, 1, 160, 4).lookup(np.stack([smooth, smooth]), 1.0)
    there = np.unique(lookup)
    found = []
    for counts in (smooth, atoms):
        _, spread = within_cells(lookup, there, np.stack([counts, counts]), 1.0, edges)
        found.append(spread[np.bincount(lookup, counts) > 0.0])
    assert found[0] == pytest.approx(np.ones(4), abs=0.01)
    # One score in the first cell, two of five and one parts in the last.
    assert found[1] == pytest.approx([0.0, 1.0 - (5**3 + 1) / 6**3], abs=1e-3)


def test_two_scores_have_their_area():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=4000)
    scores = np.where(rng.uniform(size=4000) < 0.8, y, 1 - y) * 0.5 + 0.2
    given = {"classes": [0, 1], "budget": GaussianDP(1.0), "random_state": 0}
    found = evaluate_predictions(y, scores, **given).number("auc")
    assert found.estimate == pytest.approx(roc_auc_score(y, scores), abs=3e-3)
    assert found.high - found.low < 6e-3
