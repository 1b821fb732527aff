"""The counter-example of Sun et al. (2023): its bars are met, and its picture can be drawn."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from dpglm.papers import dpsgd_f_theoretical
from experiments import sun2023_counter_example as example
from experiments.curves import Curve

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_preprocessing_finds_the_clusters_and_nothing_else_does():
    with_it = example.accuracies(dpsgd_f_theoretical(), example.DISTANCE, 4)
    without = example.accuracies(example.SOLVERS[example.WITHOUT], example.DISTANCE, 4)
    assert np.mean(with_it) >= example.LEAST_WITH
    assert np.mean(without) <= example.MOST_WITHOUT


@pytest.mark.slow
def test_near_zero_everything_finds_them():
    for solver in example.SOLVERS.values():
        assert np.mean(example.accuracies(solver, 2.0**-9, 2)) > 0.95


def test_a_single_noisy_mean_is_not_enough_far_away():
    practical = example.accuracies(example.SOLVERS[example.PRACTICAL], example.DISTANCE, 4)
    assert np.mean(practical) <= example.MOST_WITHOUT


def test_labels_are_balanced_and_swapping_gains_nothing():
    for flip in (False, True):
        X, y = example.clusters(7.0, flip)
        assert y.mean() == 0.0
        np.testing.assert_array_equal(X[:, 1] * y, -1.0 if flip else 1.0)


def test_it_can_be_drawn():
    pytest.importorskip("matplotlib")
    x = np.array([0.25, 1.0, 4.0])
    curves = [Curve(name, x, np.full((3, 2), 0.5)) for name in example.SOLVERS]
    (axes,) = example.draw(curves).axes
    assert [line.get_label() for line in axes.lines] == list(example.SOLVERS)


def test_the_numbers_in_the_docs_meet_the_bars():
    with (DOCS / "figures" / "sun2023_counter_example.csv").open() as file:
        shown = {
            row["curve"]: float(row["mean"])
            for row in csv.DictReader(file)
            if float(row["x"]) == example.DISTANCE
        }
    assert shown[example.THEORETICAL] >= example.LEAST_WITH
    assert shown[example.WITHOUT] <= example.MOST_WITHOUT
