"""Attacks on evaluations: under the claim and near it; planted bugs are caught."""

import pytest

from experiments.audits import evaluations
from experiments.audits.case import REPLACE_ONE


def lines(cases, quick):
    """Leave all but some to the slow tests."""
    return [
        pytest.param(case, marks=[] if case in quick else [pytest.mark.slow], id=case.label)
        for case in cases
    ]


# One for each kind of task: what relations differ in is a factor.
@pytest.mark.parametrize("case", lines(evaluations.CASES, evaluations.CASES[:3]))
def test_evaluations_stay_under_their_claim(case):
    line = case.measure(150, 0.99, seed=1)
    assert not line.refuted
    assert line.share > (0.2 if case.relation is REPLACE_ONE else 0.4)


@pytest.mark.parametrize("case", lines(evaluations.BUGS, evaluations.BUGS[:2]))
def test_planted_bugs_are_caught(case):
    assert case.measure(100, 0.99, seed=1).refuted
