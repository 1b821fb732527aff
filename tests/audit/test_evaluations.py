"""Attacks on evaluations: under the claim and near it; planted bugs are caught."""

import dataclasses

import pytest

from experiments.audits import evaluations
from experiments.audits.case import REPLACE_ONE

# The task with the smallest plan: others search for their cells.
QUICK = next(case for case in evaluations.CASES if case.variant == "RegressionTask")
BUG = dataclasses.replace(QUICK, bug="half the noise", planted_bug="half_noise")


def lines(first, others):
    """The first case is quick, all others are slow."""
    slow = [pytest.param(case, marks=pytest.mark.slow, id=case.label) for case in others]
    return [pytest.param(first, id=first.label), *slow]


@pytest.mark.parametrize(
    "case", lines(QUICK, [case for case in evaluations.CASES if case is not QUICK])
)
def test_evaluations_stay_under_their_claim(case):
    line = case.measure(150, 0.99, seed=1)
    assert not line.refuted
    assert line.share > (0.2 if case.relation is REPLACE_ONE else 0.4)


@pytest.mark.parametrize("case", lines(BUG, evaluations.BUGS))
def test_planted_bugs_are_caught(case):
    assert case.measure(100, 0.99, seed=1).refuted
