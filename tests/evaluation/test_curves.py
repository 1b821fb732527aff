"""Curves from counts in cells, against scikit-learn's from scores."""

import dataclasses

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dpglm.data.collection import MatrixRows, Preparation
from dpglm.data.rows import DataSpec
from dpglm.evaluation import BinaryTask, evaluate_predictions, plan_evaluation
from dpglm.evaluation.estimates import (
    MergedCells,
    area_under_roc,
    keys_of,
    largest_gap,
    n_cells_for,
    n_fine_for,
    order_variance,
    precision_recall_points,
    refined_column,
    roc_points,
    scores_of,
)
from dpglm.oracle.counts import Cells
from dpglm.privacy import Adjacency, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.solvers.base import calibrated
from dpglm.solvers.composite.tabulation import KEY_UNIT, Tabulation
from dpglm.solvers.run import run


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
    # Without the order within cells the error is larger.
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


def found(scores, y, probabilities=True, mu=1e4, n_fine=320, thresholds=(), n_cells=8):
    """Search the cells of scores, by their exact counts but for a little noise."""
    data = DataSpec(len(y), 2, row_norm=1e12)
    column = refined_column(
        0, 1, n_fine, n_cells, probabilities=probabilities, thresholds=thresholds
    )
    tables = (Cells((0, 1), (2, column.merged_size)),)
    relation = Adjacency.ZERO_OUT
    plan = calibrated(
        lambda noise: Tabulation(data, relation, tables, noise, (column,)),
        data,
        GaussianDP(mu),
        relation,
    )
    X = np.column_stack([y, KEY_UNIT * keys_of(scores, probabilities)])
    rows = MatrixRows(X, np.zeros(len(y))).prepared(Preparation(data, None, np.asarray))
    released = run(plan, rows, SeededNoise(0)).w
    (cells,) = plan.method.found(released)
    table = released[-tables[0].size :].reshape(tables[0].sizes)
    return MergedCells(cells, probabilities, cells.shares), table / tables[0].weight


@pytest.mark.parametrize("probabilities", [True, False])
def test_keys_have_the_order_of_scores(probabilities):
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-600.0, 0.0 if probabilities else 600.0, 2000))
    near = 0.5 + 1e-9 * rng.normal(size=50)
    scores = np.r_[0.0, 5e-324, sizes, near, 1.0 - sizes if probabilities else -sizes, 0.5, 1.0]
    scores = np.sort(scores)
    keys = keys_of(scores, probabilities)
    assert (np.diff(keys) >= 0).all()
    # Scores that differ in 12 digits, of a probability those of the nearer of 0 and 1, differ.
    size = np.minimum(scores, 1.0 - scores) if probabilities else np.abs(scores)
    apart = np.diff(scores) > 3e-12 * np.maximum(size[1:], size[:-1]) + 1e-300
    assert (np.diff(keys)[apart] > 0).all()
    back = scores_of(keys, probabilities)
    assert back == pytest.approx(scores, rel=1e-11, abs=1e-300)
    assert keys_of(np.array([-0.0]), False) == keys_of(np.array([0.0]), False)


def test_thresholds_are_ends_of_cells():
    y, scores = generated(20_000)
    thresholds = (0.1, 0.5, 0.73)
    cells, _ = found(scores, y, thresholds=thresholds)
    assert np.isclose(cells.ends[:, np.newaxis], thresholds, rtol=1e-11).any(axis=0).all()
    bounds = cells.found.grid.bounds
    below, at = cells.found.grid.places(keys_of(np.array([np.nextafter(0.5, 0.0), 0.5]), True))
    assert bounds[below + 1] == bounds[at] == keys_of(np.array([0.5]), True)[0]


def test_more_rows_or_budget_give_more_cells_within_limits():
    sizes = [n_cells_for(16_000, mu) for mu in (1e-6, 0.01, 0.1, 0.3, 1.0, 1e3)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (4, 16)
    assert (n_fine_for(10, 0.1), n_fine_for(10**9, 1.0)) == (160, 1280)


@pytest.mark.parametrize("scale", [1.0, 0.01, 1e-9])
def test_merged_cells_have_equal_mass_and_begin_at_cuts(scale):
    y, scores = generated(50_000)
    scores = 0.3 + scale * (scores - 0.3)
    cells, counts = found(scores, y, thresholds=(0.3,), n_fine=640)
    mass = (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0)[cells.there]
    assert mass.max() < 1.25 / 8
    assert np.isclose(cells.ends, 0.3, rtol=1e-11).any()
    assert (np.diff(cells.found.lookup) >= 0).all()


@pytest.mark.parametrize("counts", [0.0, -5.0])
def test_hopeless_noise_still_gives_cells(counts):
    column = refined_column(0, 1, 160, 8, probabilities=True, thresholds=(0.5,))
    grid = column.first
    for last in (False, True):
        grid = column.next(grid, np.full(column.searched.size, counts), 100.0, 50, last)
        assert (np.diff(grid.bounds) > 0).all()
        assert len(grid.expected) <= (column.fine if last else column.searched).sizes[-1]
        assert grid.expected.sum() == pytest.approx(1.0)
    lookup = column.lookup(grid, np.full((2, len(grid.expected)), counts), 100.0)
    assert (np.diff(lookup) >= 0).all()
    assert 0 <= lookup.min() <= lookup.max() < column.merged_size


@pytest.mark.parametrize("seed", range(20))
def test_no_grid_exceeds_its_table_whatever_the_counts(seed):
    rng = np.random.default_rng(seed)
    column = refined_column(0, 1, 160, 5, probabilities=bool(seed % 2), n_columns=100)
    grid, n_rows = column.first, 10_000
    for done in range(8):
        counts = rng.choice([0.0, 50.0, 1e4], column.searched.size, p=[0.5, 0.3, 0.2])
        counts += rng.normal(0.0, 5.0, counts.size)
        grid = column.next(grid, counts, 5.0, n_rows, last=done == 7)
        most = (column.fine if done == 7 else column.searched).sizes[-1]
        assert len(grid.expected) <= most
        assert (np.diff(grid.bounds) > 0).all()
        assert np.isin(column.lasting, grid.bounds).all()
    counts = rng.choice([0.0, 1e4], (2, len(grid.expected)), p=[0.7, 0.3])
    assert column.lookup(grid, counts, 5.0).max() < column.merged_size


def test_orders_within_cells_vary_as_said():
    rng = np.random.default_rng(0)
    negatives, positives = np.array([300.0, 200, 40]), np.array([50.0, 150, 260])
    y = np.repeat([0, 0, 0, 1, 1, 1], np.r_[negatives, positives].astype(int))
    cells = np.repeat([0, 1, 2] * 2, np.r_[negatives, positives].astype(int))
    areas = [roc_auc_score(y, cells + rng.uniform(size=len(y))) for _ in range(150)]
    assert np.var(areas) == pytest.approx(order_variance(negatives, positives), rel=0.3)
    assert order_variance(negatives, positives, 0.0) == 0.0


def test_scores_that_many_share_are_known_to_be_one():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=20_000)
    levels = np.array([0.2, 0.55, 0.9])[rng.choice(3, 20_000, p=[0.4, 0.5, 0.1])]
    cells, counts = found(levels, y)
    rows = counts.sum(axis=0)[cells.there] > 100.0
    assert rows.sum() == 3
    assert cells.spread[rows] == pytest.approx(np.zeros(3), abs=1e-3)
    assert cells.unknown[rows].tolist() == [0.0] * 3
    assert cells.ends[rows] == pytest.approx([0.2, 0.55, 0.9], rel=1e-11)
    smooth, _ = found(generated(20_000)[1], y)
    assert smooth.spread == pytest.approx(np.ones(len(smooth.there)), abs=0.02)
    assert smooth.unknown.max() < 0.02


def test_indistinguishable_scores_may_have_any_order():
    """Three scores that agree in ten digits, when a plan has one round of the search only."""
    rng = np.random.default_rng(0)
    scores = 0.3 + 1e-9 * rng.choice(3, 20_000)
    y = (rng.uniform(size=20_000) < np.where(scores > 0.3, 0.7, 0.2)).astype(int)
    plan = plan_evaluation(BinaryTask((0, 1)), len(y), GaussianDP(1.0))
    method = dataclasses.replace(plan.plan.method, n_rounds=1)
    short = dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, method=method))
    exact = roc_auc_score(y, scores)
    wide = short.run(y, scores).number("auc")
    assert wide.low <= exact <= wide.high
    assert wide.high - wide.low > 0.5
    narrow = plan.run(y, scores).number("auc")
    assert narrow.low <= exact <= narrow.high
    assert narrow.high - narrow.low < 0.01


def test_two_scores_have_their_area():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=4000)
    scores = np.where(rng.uniform(size=4000) < 0.8, y, 1 - y) * 0.5 + 0.2
    given = {"classes": [0, 1], "budget": GaussianDP(1.0), "random_state": 0}
    found = evaluate_predictions(y, scores, **given).number("auc")
    assert found.estimate == pytest.approx(roc_auc_score(y, scores), abs=3e-3)
    assert found.high - found.low < 6e-3
