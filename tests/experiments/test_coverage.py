"""Confidence intervals have their nominal coverage, and planted errors are detected."""

import dataclasses
import functools
import json
import math

import numpy as np
import pytest

from dpglm.solvers.second_order import sufficient_statistics_method as least_squares_module
from experiments.coverage import Result, bootstrap, cases, forgets_noise, library, measure
from experiments.families import FAMILIES, RARE, Case, target_of

RUNS = 60
SMALL = Case("logistic", 3000, 3, 0.5)
SUMS = Case("linear", 2000, 3, 0.5, intercept=8.0)
SKEWED = Case("linear, exponential errors", 10_000, 3, 3.0)
COUNTS = Case("poisson", 6000, 3, 10.0, wrong=True, robust=True)


@pytest.mark.parametrize(
    "case",
    [
        SMALL,
        dataclasses.replace(SMALL, family="poisson", epsilon=1.0),
        dataclasses.replace(SMALL, family="linear", epsilon=1.0),
        dataclasses.replace(SMALL, family="linear", epsilon=3.0, robust=True, wrong=True),
        COUNTS,
        SKEWED,
        Case("linear", 500, 3, 1.0),
        Case("linear", 1000, 10, 1.0),
        Case("logistic", 5000, 5, 0.3, columns="narrow"),
        Case("poisson", 5000, 5, 0.3, columns="narrow"),
    ],
    ids=[
        *("logistic", "poisson", "linear", "unequal variances", "too many counts", "skewed"),
        *("few rows", "few rows for the columns"),
        *("narrow column", "counts with a narrow column"),
    ],
)
def test_intervals_cover(case):
    result = measure(case, RUNS)
    assert result.faults() == []
    assert result.length > 1.0


@pytest.mark.parametrize(
    ("case", "longest"),
    [(Case("logistic", 5000, 20, 0.3), 12.0), (Case("logistic", 500, 5, 1.0), 7.0)],
)
def test_little_budget_does_not_lengthen_intervals_without_need(case, longest):
    """Of a Hessian that is mostly noise, lengths were 16.3 and 9.1."""
    result = measure(case, 40)
    assert result.covered.mean() > 0.95
    assert result.length < longest


@pytest.mark.slow
@pytest.mark.parametrize("family", ["complementary log-log", "linear"])
def test_intervals_cover_with_a_rare_reference_level(family):
    result = measure(Case(family, 20_000, 17, 1.0, columns="reference"), 40)
    assert result.finite.min() == 1.0
    assert not [fault for fault in result.faults() if "worst" in fault]
    assert result.covered.mean() > 0.94


@pytest.mark.parametrize(
    ("case", "fit"),
    [
        (SMALL, library(forgets_noise)),
        (dataclasses.replace(SMALL, family="linear"), library(forgets_noise)),
        (dataclasses.replace(COUNTS, robust=False), library()),
    ],
    ids=["noise forgotten", "noise forgotten by least squares", "model assumed"],
)
def test_planted_errors_are_found(case, fit):
    faults = measure(case, RUNS, fit).faults()
    assert any("mean coverage" in fault for fault in faults)


def test_residuals_that_are_cut_at_three_deviations_are_found(monkeypatch):
    monkeypatch.setattr(
        least_squares_module, "first_empty", lambda shells, counts, noise: 3.0 * shells.first
    )
    monkeypatch.setattr(least_squares_module, "_SMALL", 0.0)
    result = measure(SKEWED, RUNS)
    assert result.covered[0] < 0.8
    assert any("mean coverage" in fault for fault in result.faults())


@pytest.mark.parametrize("forgets", [False, True])
def test_noise_in_the_hessian_that_is_forgotten_is_found(forgets):
    fit = functools.partial(bootstrap, noise_in_products=not forgets)
    assert bool(measure(SUMS, 400, fit).faults()) == forgets


def result(covered, length=1.0, most=math.inf, finite=1.0, if_finite=None):
    ones = np.ones(4)
    case = dataclasses.replace(SMALL, most=most)
    shares = covered if if_finite is None else if_finite
    return Result(
        case,
        np.array(covered),
        np.full(4, finite),
        np.array(shares),
        length * ones,
        *[ones] * 3,
        400,
        0.0,
    )


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (result([0.95, 0.94, 0.96, 0.95]), 0),
        (result([0.90, 0.89, 0.91, 0.90]), 2),
        (result([1.0, 1.0, 1.0, 1.0]), 1),
        (result([0.99, 0.99, 0.99, 0.86]), 2),
        (result([0.95, 0.95, 0.95, 0.96], finite=0.2, if_finite=[0.95, 0.95, 0.95, 0.7]), 1),
        (result([0.95, 0.95, 0.95, 0.96], finite=0.01, if_finite=[0.95, 0.95, 0.95, 0.7]), 0),
        (result([0.95] * 4, length=1.4, most=1.3), 1),
    ],
)
def test_deviation_beyond_chance_is_a_fault(found, faults):
    assert len(found.faults()) == faults


def test_records_make_the_same_lines():
    found = result([0.95, 0.94, 0.96, 0.95], length=1.234567)
    record = json.loads(json.dumps(found.record))
    assert Result.of(found.case, record).line == found.line


def test_the_target_of_a_wrong_model_is_not_its_truth():
    wrong = dataclasses.replace(SMALL, wrong=True)
    assert np.abs(target_of(wrong) - wrong.truth).max() > 0.05
    assert (target_of(SMALL) == SMALL.truth).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_without_privacy_are_derivatives_of_information(name):
    """The expected score's derivative is Fisher's information, by finite differences."""
    family, z, h = FAMILIES[name], np.linspace(-1.5, 1.5, 7), 1e-5
    mean, up, down = (family.mean(one) for one in (z, z + h, z - h))
    factors, weights = family.weights(mean)
    np.testing.assert_allclose(factors * (up - down) / (2 * h), weights, rtol=1e-6)


def test_every_family_relation_and_design_has_a_line():
    found = cases()
    assert {one.family for one in found} == set(FAMILIES)
    assert {one.adjacency for one in found} == {"zero_out", "add_remove", "replace_one"}
    assert {one.columns for one in found} == {
        *("even", "correlated", "skewed", "reference", "levels", "narrow"),
        *RARE,
    }
    assert len({one.label for one in found}) == len(found)
