"""Attacks on descriptions: under the claim and near it; planted bugs are caught."""

import pytest

from experiments.audits import descriptions
from experiments.audits.case import REPLACE_ONE


def lines(cases):
    """Leave all but the first to the slow tests."""
    return [
        pytest.param(case, marks=[pytest.mark.slow] if place else [], id=case.label)
        for place, case in enumerate(cases)
    ]


@pytest.mark.parametrize("case", lines(descriptions.CASES))
def test_descriptions_stay_under_their_claim(case):
    line = case.measure(150, 0.99, seed=1)
    assert not line.refuted
    assert line.share > (0.15 if case.relation is REPLACE_ONE else 0.4)


@pytest.mark.parametrize("case", lines(descriptions.BUGS[::-1]))
def test_planted_bugs_are_caught(case):
    assert case.measure(200, 0.99, seed=1).refuted
