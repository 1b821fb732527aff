"""Attacks on fits of persons: under the claim and near it; persons taken for several are caught."""

import pytest

from dpglm.estimators import _private
from dpglm.privacy.noise import SeededNoise
from experiments.audits import groups

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _the_same_noise_each_time(monkeypatch):
    source = SeededNoise(1)
    monkeypatch.setattr(_private, "noise_source", lambda given: source)


@pytest.mark.parametrize("case", groups.CASES, ids=lambda case: case.label)
def test_fits_of_persons_stay_under_their_claim(case):
    line = case.measure(200, 0.99, seed=1)
    assert not line.refuted
    assert line.share > 0.15


@pytest.mark.parametrize("case", groups.BUGS, ids=lambda case: case.label)
def test_planted_bugs_are_caught(case):
    assert case.measure(200, 0.99, seed=1).refuted
