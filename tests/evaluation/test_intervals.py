"""Intervals that are inverted tests cover at small budgets, where the delta method does not."""

import json
import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benchmarks.evaluation import Population, hard, measured
from dpglm.evaluation import ClassesTask, evaluate_predictions
from dpglm.evaluation.estimates import gap_increases, largest_gap
from dpglm.evaluation.task import ratio_number, solved
from dpglm.tabulate import Noisy, NumberScale

NAMES = ("weak", "underconfident", "overconfident", "2 % positive")


def hard_one(name):
    return next(one for one in hard() if one.name == name)


def test_solved_inverts_a_test_of_the_mean():
    found = solved(lambda one: (0.3 - one, 0.01, 0.04), np.linspace(-9, 9, 7), 2.0, NumberScale())
    ends = vars(found).values()
    assert list(ends) == pytest.approx([0.3, 0.1, 0.5, -0.1, 0.7])


def test_solved_without_information_has_no_ends():
    found = solved(lambda one: (0.3 - one, 100.0, 0.0), np.linspace(-9, 9, 7), 2.0, NumberScale())
    assert (found.low, found.high) == (-math.inf, math.inf)
    # Only the range of the scale ends an interval that no test ends.
    share = NumberScale(0.0, 1.0)
    found = solved(lambda one: (7.0 - one, 100.0, 0.01), np.linspace(0, 1, 9), 2.0, share)
    assert (found.estimate, found.low, found.high) == (1.0, 0.0, 1.0)
    assert found.population_low == pytest.approx(0.8)


def test_ratio_covers_with_a_denominator_within_noise():
    rng = np.random.default_rng(0)
    exact, scale, hits = np.array([30.0, 10.0]), NumberScale(0.0, 4.0), []
    for _ in range(200):
        counts = exact + rng.normal(0.0, 6.0, 2)
        noisy = Noisy({"counts": counts}, {"counts": 6.0}, known_sum=False)
        one = ratio_number(
            noisy,
            lambda values: float(values["counts"][0]),
            lambda values: float(values["counts"][1]),
            1.96,
            scale,
        )
        delta = noisy.number(lambda v: float(v["counts"][0] / v["counts"][1]), 1.96, scale)
        hits.append([one.low <= 3.0 <= one.high, delta.low <= 3.0 <= delta.high])
    covered, by_delta = np.mean(hits, axis=0)
    assert covered > 0.92
    assert by_delta < 0.9


def test_gap_increases_within_cells_of_a_smooth_curve():
    ends = np.arange(1, 5) / 4
    negatives, positives = np.diff(np.sqrt(ends), prepend=0.0), np.diff(ends**2, prepend=0.0)
    within = gap_increases(negatives, positives)
    fine = np.linspace(0.0, 1.0, 10_001)
    exact = (np.sqrt(fine) - fine**2).max()
    gaps = np.cumsum(negatives - positives)
    assert largest_gap(negatives, positives) < exact - 0.01
    assert (np.maximum(np.append(0.0, gaps[:-1]), gaps) + within).max() == pytest.approx(
        exact, abs=0.01
    )


@pytest.mark.parametrize(("n_rows", "epsilon"), [(1_000, 0.3), (2_000, 1.0)])
def test_tested_intervals_cover_at_small_budgets(n_rows, epsilon):
    line = measured(hard_one("underconfident"), n_rows, epsilon, 6)
    for covered in (line.covered, line.covered_rows):
        assert min(covered.values()) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n_rows", "epsilon"), [(1_000, 0.3), (4_000, 0.1), (2_000, 1.0)])
def test_tested_intervals_cover(name, n_rows, epsilon):
    line = measured(hard_one(name), n_rows, epsilon, 80)
    for covered in (line.covered, line.covered_rows):
        assert min(covered.values()) > 0.87


def test_calibration_that_noise_hides_has_no_end():
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.005, 0.05, 500)
    y = (rng.random(500) < scores).astype(int)
    found = evaluate_predictions(y, scores, classes=[0, 1], epsilon=0.1)
    intercept = found.number("calibration_intercept")
    assert intercept.population_low == -math.inf
    assert found.number("calibration_slope").population_high == math.inf
    plain = found.to_dict()["all_rows"]["calibration_slope"]
    assert plain["population_high"] is None
    assert json.dumps(plain, allow_nan=False)
    assert "inf]" in found.summary()


def test_auc_of_classes_covers_the_rows_at_small_budgets():
    """Errors of the order within cells are alike in all classes, and do not average out."""
    rng = np.random.default_rng(1)
    weights = np.exp(1.5 * rng.normal(size=(10_000, 4)) + np.array([1.0, 0.0, 0.0, -1.0]))
    shares = weights / weights.sum(axis=1, keepdims=True)
    drawn = (shares.cumsum(axis=1) > rng.uniform(size=(10_000, 1))).argmax(axis=1)

    def exact(found, y):
        return {"auc": float(np.mean([roc_auc_score(y == k, found[:, k]) for k in range(4)]))}

    line = measured(Population("four", ClassesTask(range(4)), shares, drawn, exact), 500, 0.3, 6)
    assert min(line.covered["auc"], line.covered_rows["auc"]) > 0.8
