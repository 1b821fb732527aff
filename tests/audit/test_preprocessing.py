"""Attacks on preprocessing steps: under the claim, near it where that can be, deadly for bugs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from dpglm.oracle import counts as means_module
from dpglm.oracle import targets as magnitudes
from dpglm.oracle.choices import (
    noisy_radius,
    noisy_unbounded_radius,
    radii,
    rank_release,
    unbounded_radius_release,
)
from dpglm.preprocessing import Center, InstanceOptimalCenter, Scale
from dpglm.privacy import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.selection import choices as rank_choices
from dpglm.privacy.selection.choices import first_above
from tests.audit.attack import delta_at_least, mu_at_least
from tests.preprocessing.support import make_rows, oracle_of

MU = 2.0
RUNS, FEW = 700, 200
ABSENT = np.zeros((4, 2))
PRESENT = np.array([[1e6, 0.0], *np.zeros((3, 2))])


def mean_attack(runs, adjacency=Adjacency.ZERO_OUT, other=ABSENT):
    """Look at the released mean along the row that is there, or is not."""
    rows = [make_rows(X, row_norm=3.0, intercept=3.0) for X in (PRESENT, other)]
    planned = Center().plan(rows[0].spec, MU, adjacency)
    shown = [
        np.array(
            [
                means_module.noisy_mean(oracle_of(one, adjacency, seed), planned.releases[-1])
                for seed in range(start, start + runs)
            ]
        )[:, 0]
        for one, start in zip(rows, (0, runs), strict=True)
    ]
    middle = (3.0 + (-3.0 if other is not ABSENT else 0.0)) / 2.0 / 4.0
    return mu_at_least(*(one > middle for one in shown))


def test_a_mean_is_as_private_as_claimed_and_no_more():
    assert 0.7 * MU <= mean_attack(RUNS) <= MU


def test_a_mean_under_replacement_too():
    opposite = -PRESENT
    assert 0.7 * MU <= mean_attack(RUNS, Adjacency.REPLACE_ONE, opposite) <= MU
    # Noise for an erased row is too little for a replaced one.
    assert mean_attack(FEW, Adjacency.ZERO_OUT, opposite) > MU


def around_attack(runs):
    """A row at a radius from the point, seen in the released sum."""
    rows = [make_rows(X, row_norm=3.0, intercept=3.0) for X in (PRESENT, ABSENT)]
    planned = InstanceOptimalCenter().plan(rows[0].spec, MU, Adjacency.ZERO_OUT)
    guesses = [
        np.array(
            [
                means_module.noisy_clipped_mean(
                    oracle_of(one, seed=seed), planned.releases[-1], np.zeros(2), 0.2
                )[0]
                > 0.5 * 0.2 / 4.0
                for seed in range(start, start + runs)
            ]
        )
        for one, start in zip(rows, (0, runs), strict=True)
    ]
    return mu_at_least(*guesses), 1.0 / planned.releases[-1].noise_multiplier


def test_mean_around_a_point_attains_claim():
    found, claimed = around_attack(2 * RUNS)
    assert 0.7 * claimed <= found <= claimed


def test_rows_that_are_not_moved_to_the_radius_are_refuted():
    with mock.patch.object(means_module, "row_lengths", lambda z: np.ones(len(z)) * 1e-3):
        found, claimed = around_attack(FEW)
    assert found > claimed


def counts_attack(runs, root=math.sqrt):
    rows = [
        make_rows(X, row_norm=3.0)
        for X in (np.array([[1.0, 2.0], *np.zeros((3, 2))]), np.zeros((4, 2)))
    ]
    # The bound is the root of the number of columns.
    with mock.patch.object(magnitudes, "math", SimpleNamespace(sqrt=root)):
        planned = Scale().plan(rows[0].spec, MU, Adjacency.ZERO_OUT)
        shown = [
            np.array(
                [
                    magnitudes.noisy_magnitudes(oracle_of(one, seed=s), planned.releases[0])
                    for s in range(start, start + runs)
                ]
            )
            for one, start in zip(rows, (0, runs), strict=True)
        ]
    # 1/3 and 2/3 of the row norm, each in a level of its own column.
    return mu_at_least(*(one[:, 0, 1] + one[:, 1, 0] > 1.0 for one in shown))


def test_counts_are_as_private_as_claimed_and_no_more():
    assert 0.7 * MU <= counts_attack(RUNS) <= MU


def test_counts_of_all_columns_for_the_price_of_one_are_refuted():
    assert counts_attack(FEW, lambda d: 1.0) > MU


EPSILON = 1.0


def radius_attack(runs, ask, make):
    """A row that decides on which side of a gap the radius is."""
    low, high = np.tile([0.5, 0.0], (5, 1)), np.tile([0.9, 0.0], (5, 1))
    spread = np.concatenate([low, high])
    rows = [make_rows(X, n_rows=10) for X in make(spread)]
    return [
        np.array([ask(oracle_of(one, seed=seed)) > 0.89 for seed in range(start, start + runs)])
        for one, start in zip(rows, (0, runs), strict=True)
    ]


def asking(epsilon):
    return rank_release("radius", Adjacency.ZERO_OUT, epsilon)


def unbounded_radius(oracle, quantile, epsilon):
    declared = unbounded_radius_release(
        oracle.rows.spec, oracle.curator.adjacency, quantile, epsilon
    )
    return noisy_unbounded_radius(oracle, declared, np.zeros(2))


def erased(spread):
    return spread[1:], spread


def swapped(spread):
    other = spread.copy()
    other[0] = spread[-1]
    return other, spread


@pytest.mark.parametrize("make", [erased, swapped])
def test_a_radius_is_as_private_as_claimed(make):
    def ask(oracle):
        return noisy_radius(oracle, asking(EPSILON), np.zeros(2), 1.0, 0.5)

    guesses = radius_attack(RUNS, ask, make)
    assert delta_at_least(*guesses, EPSILON) == 0.0


def test_an_unbounded_radius_is_as_private_as_claimed():
    def ask(oracle):
        return unbounded_radius(oracle, 0.4, EPSILON)

    assert delta_at_least(*radius_attack(RUNS, ask, erased), EPSILON) == 0.0


def test_a_choice_with_eight_times_the_epsilon_is_refuted():
    def ask(oracle):
        return noisy_radius(oracle, asking(8.0 * EPSILON), np.zeros(2), 1.0, 0.5)

    assert delta_at_least(*radius_attack(RUNS, ask, erased), EPSILON) > 0.0


def test_unbounded_radius_without_threshold_noise_is_refuted():
    def ask(oracle):
        return unbounded_radius(oracle, 0.5, 8.0 * EPSILON)

    with mock.patch.object(rank_choices, "rounded_laplace", return_value=0):
        assert delta_at_least(*radius_attack(RUNS, ask, erased), EPSILON) > 0.0


def test_radii_that_show_the_rows_themselves_are_refuted():
    """As with an interval's ends in place of public candidates: one look tells."""
    rows = make_rows(np.tile([0.123456789, 0.0], (50, 1)))
    found = noisy_radius(oracle_of(rows), asking(100.0), np.zeros(2), 1.0, 0.5)
    assert found in radii(1.0)
    assert found != 0.123456789


def test_the_first_above_comes_near_its_claim():
    source = SeededNoise(0)
    guesses = [
        np.array([first_above(counts, 5, EPSILON, source) == 0 for _ in range(4000)])
        for counts in ([4, 20], [3, 20])
    ]
    rates = [one.mean() for one in guesses]
    assert 0.5 * EPSILON < np.log(rates[0] / rates[1]) < 1.1 * EPSILON
    assert delta_at_least(*guesses, EPSILON) == 0.0
