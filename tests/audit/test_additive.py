"""Attacks on additive models: under the claim and near it; planted bugs are caught."""

import pytest

from experiments.audits import additive
from experiments.audits.case import REPLACE_ONE
from tests.audit.test_descriptions import lines

FITS = [case for case in additive.CASES if case not in additive.MAPS]


@pytest.mark.parametrize("case", lines(FITS))
def test_fits_stay_under_their_claim(case):
    line = case.measure(120, 0.99, seed=1)
    assert not line.refuted
    assert line.share > (0.1 if case.relation is REPLACE_ONE else 0.3)


def test_features_depend_on_their_own_row_alone():
    assert not any(case.measure(0, 0.99).refuted for case in additive.MAPS)


@pytest.mark.parametrize("case", lines(additive.BUGS[::-1]))
def test_planted_bugs_are_caught(case):
    assert case.measure(100, 0.99, seed=1).refuted
