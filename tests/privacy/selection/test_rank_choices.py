"""Choices on a line: exact laws, and neighbours that differ by no more than is paid for."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chisquare

from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.privacy.selection import choices as rank_choices
from dpglm.privacy.selection.choices import (
    _probabilities,
    exponential_mechanism_in_runs,
    first_above,
)


def law_above(counts, threshold, epsilon):
    """Chances of each position, worked out from the law of the noise on the threshold."""
    found = np.zeros(len(counts))
    scale = 1.0 / min(epsilon, 1.0)
    for z in range(-math.ceil(30 * scale), math.ceil(30 * scale) + 1):
        half = math.exp(-0.5 / scale)
        tail = 0.5 * math.exp(-(abs(z) - 0.5) / scale) * (1.0 - half * half)
        chance = 1.0 - half if z == 0 else tail
        heads = np.exp(-epsilon * np.maximum(threshold + z - np.asarray(counts), 0))
        stays = np.concatenate([[1.0], np.cumprod(1.0 - heads)])
        found += chance * stays[:-1] * heads
        found[-1] += chance * stays[-1]
    return found


def test_runs_have_the_law_of_the_candidates_one_by_one():
    scores, lengths = [1.0, 0.0, 2.5, 0.3], [30, 1, 5, 2]
    p = np.repeat(_probabilities(scores, 0.5, 1.3), lengths)
    source = SeededNoise(1)
    drawn = [exponential_mechanism_in_runs(scores, lengths, 0.5, 1.3, source) for _ in range(4000)]
    found = np.bincount(drawn, minlength=38)
    assert chisquare(found, 4000 * p / p.sum()).pvalue > 1e-3
    # The law is not that of runs taken as one candidate each.
    assert chisquare(found + 1e-9, 4000 * np.full(38, 1 / 38) + 1e-9).pvalue < 1e-9


def test_runs_of_any_length_and_weight():
    source = SystemNoise()
    lengths = [2**50, 1, 2**50]
    # The one good candidate outweighs all others, or it does not.
    sure, never = (
        [exponential_mechanism_in_runs([900.0, 0.0, 900.0], lengths, 0.5, e, source) == 2**50]
        for e in (1.0, 1e-4)
    )
    assert (all(sure), any(never)) == (True, False)
    assert exponential_mechanism_in_runs([3.0], [1], 1.0, 1.0, source) == 0
    drawn = [exponential_mechanism_in_runs([3.0], [2**52], 1.0, 1.0, source) for _ in range(200)]
    assert np.mean(drawn) / 2**52 == pytest.approx(0.5, abs=0.1)
    many = np.ones(200_001, np.int64)
    score = np.abs(np.arange(200_001) - 1000.0)
    assert abs(exponential_mechanism_in_runs(score, many, 0.5, 1.0, source) - 1000) < 40


@pytest.mark.parametrize(
    ("scores", "lengths", "match"),
    [
        ([0.0, 1.0], [1], "lengths must be 2 integers"),
        ([0.0], [0], "lengths must be 1 integers"),
        ([0.0], [1.5], "lengths must be 1 integers"),
        ([0.0, 0.0], [2**52, 1], "lengths must be at most"),
        ([math.nan], [1], "scores must be finite"),
    ],
)
def test_bad_runs_are_refused(scores, lengths, match):
    with pytest.raises(ValueError, match=match):
        exponential_mechanism_in_runs(scores, lengths, 1.0, 1.0, SystemNoise())


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_first_above_has_the_law_that_the_proof_is_about(epsilon):
    counts, source = [0, 3, 3, 5, 9], SeededNoise(2)
    drawn = [first_above(counts, 5, epsilon, source) for _ in range(4000)]
    found = np.bincount(drawn, minlength=5)
    law = law_above(counts, 5, epsilon)
    assert law.sum() == pytest.approx(1.0)
    assert chisquare(found, 4000 * law).pvalue > 1e-3


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_one_row_more_changes_no_chance_by_more_than_epsilon(epsilon):
    worst = 0.0
    for values in itertools.combinations_with_replacement(range(4), 4):
        counts = np.array([sum(v <= k for v in values) for k in range(4)])
        for extra in range(4):
            more = counts + (np.arange(4) >= extra)
            ratio = np.log(law_above(counts, 2, epsilon) / law_above(more, 2, epsilon))
            worst = max(worst, float(np.abs(ratio).max()))
    assert 0.9 * epsilon < worst <= epsilon * (1.0 + 1e-9)


def test_unnested_sets_are_refused_and_double_counts_detected():
    with pytest.raises(ValueError, match="never fall"):
        first_above([3, 2], 1, 1.0, SystemNoise())
    # Rows that count twice.
    two = np.log(law_above([1, 1, 1], 2, 1.0) / law_above([3, 3, 3], 2, 1.0))
    assert np.abs(two).max() > 1.5


def test_a_threshold_without_noise_is_caught():
    source = SeededNoise(3)
    with mock.patch.object(rank_choices, "rounded_laplace", return_value=0):
        here, there = (
            [first_above([0, below, 100], 50, 1.0, source) for _ in range(3000)]
            for below in (49, 50)
        )
    # Without it a set that is large enough is never passed over.
    passed = [np.mean(np.array(one) == 2) for one in (here, there)]
    assert passed[1] == 0.0 < passed[0]


@pytest.mark.parametrize(
    "arguments", [([], 1, 1.0), ([1.5], 1, 1.0), ([1], -1, 1.0), ([1], 1, 0.0)]
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        first_above(*arguments, SystemNoise())
