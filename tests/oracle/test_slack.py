"""Numbers in the slack of contributions: bounds on worst-case neighbours, noise, attacks."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpglm.data.groups import GroupedRows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, GroupBound
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import within_slack
from dpglm.privacy import ApproximateDP
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, Poisson, Problem, Squared
from dpglm.solvers import NewtonRaphson, SufficientStatistics
from experiments.audits import slack
from experiments.audits.slack import N_BINS, norm_histogram, norm_sum
from tests.oracle.watching import watching

WEIGHT = 2.0
ZERO_OUT, ADD_REMOVE, REPLACE_ONE = Adjacency


def released(units, adjacency, *, grouped=False, planted=False):
    """Return the release, and the exact sum of rows ``(x, weight)`` in units."""
    rows = [row for unit in units for row in unit]
    groups = GroupBound(len(units), 2.0) if grouped else None
    spec = DataSpec(len(rows), 3, row_norm=4.0, weight_bound=WEIGHT, groups=groups)
    X, weights = np.array([x for x, _ in rows]), np.array([w for _, w in rows])
    kept = prepare_rows(X, np.zeros(len(rows)), spec, weights=weights)
    if grouped:
        kept = GroupedRows(kept, np.cumsum([0, *map(len, units)]))
    declared = norm_sum(spec).release(spec, adjacency, GaussianNoise(1.0))
    oracle = Oracle(kept, None, Curator(adjacency, SeededNoise(0), kept.unit))
    with watching() as seen:
        norm_sum(spec).noisy(oracle, declared, norm_histogram(spec, planted=planted))
    return declared, np.array(seen.value)


def distance(one, other, adjacency=ZERO_OUT, **options):
    """Distance of two sums that differ in one unit, over the sensitivity."""
    same = [([0.3, -0.2, 0.4], 0.7)]
    declared, first = released([one, same], adjacency, **options)
    _, second = released([other, same], adjacency, **options)
    return float(np.linalg.norm(first - second)) / declared.sensitivity


def some_row(rng):
    direction = rng.normal(size=3) * (rng.random(3) < 0.7)
    length = rng.choice([0.0, 1e-200, 1e-9, 0.25, 1.0 - 2.0**-53, 1.0, 1.0 + 2.0**-52, 4.0])
    norm = np.linalg.norm(direction) or 1.0
    return direction / norm * length, rng.choice([0.0, WEIGHT, rng.uniform(0.0, WEIGHT)])


ERASED = [(np.zeros(3), 0.0)]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_unit_is_within_declared_distance(adjacency, grouped):
    rng = np.random.default_rng(0)
    for _ in range(150):
        one, other = ([some_row(rng) for _ in range(rng.integers(1, 6))] for _ in range(2))
        one, other = (unit if grouped else unit[:1] for unit in (one, other))
        other = other if adjacency is REPLACE_ONE else ERASED
        assert distance(one, other, adjacency, grouped=grouped) <= 1.0


@pytest.mark.parametrize("length", [0.0, 0.3, 1.0])
def test_every_row_attains_declared_sensitivity(length):
    row, opposite = ([([sign * length, 0.0, 0.0], WEIGHT)] for sign in (1.0, -1.0))
    assert 0.999 < distance(row, ERASED) <= 1.0
    if length == 1.0:
        assert 0.999 < distance(row, opposite, REPLACE_ONE) <= 1.0


def test_erased_row_that_leaves_its_slack_is_caught():
    """The planted bug: a zero of weight 0 has all of its bound as slack."""
    moved = distance([([1.0, 0.0, 0.0], 1.0)], ERASED, planted=True)
    assert WEIGHT * moved == pytest.approx(math.sqrt(2.0), rel=1e-3)


def test_slack_of_groups_beyond_their_bound_is_caught(monkeypatch):
    rows = [([1.0, 0.0, 0.0], WEIGHT)] * 5
    assert distance(rows, ERASED, grouped=True) <= 1.0
    # Planted: bounds of groups hold whatever they contribute, as they are clipped as a whole.
    monkeypatch.setattr("dpglm.data.groups.clipped", lambda sums, bound, step=None: sums.sum(0))
    assert distance(rows, ERASED, grouped=True) > 1.0


def test_slack_is_within_exact_arithmetic():
    rng = np.random.default_rng(1)
    for _ in range(300):
        g = rng.normal(size=rng.integers(1, 40))
        g *= rng.choice([0.2, 0.999999, 1.0 - 2.0**-50, 1.0]) / np.linalg.norm(g)
        more = rng.uniform(size=rng.integers(1, 40)) * 10.0 ** rng.integers(-9, 3)
        s = within_slack(np.array([g @ g]), more[None])[0]
        total = sum(Fraction(float(one)) ** 2 for one in (*g, *s))
        assert total <= max(1, sum(Fraction(float(one)) ** 2 for one in g) + Fraction(1, 2**900))
        assert (s <= more).all()


@pytest.mark.parametrize("squares", [np.nan, np.inf, 1.0, 2.0])
def test_contribution_beyond_its_bound_has_no_slack(squares):
    assert np.linalg.norm(within_slack(np.array([squares]), np.ones((1, 4)))) < 1e-299


def test_norms_are_counted_at_once():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 3)) * 0.3
    declared, total = released([[(x, 1.0)] for x in X], ZERO_OUT)
    lengths = np.minimum(np.linalg.norm(X, axis=1), 1.0)
    slack = np.sqrt(1.0 - lengths**2)
    expected = np.histogram(lengths, np.linspace(0.0, 1.0, N_BINS + 1), weights=slack)[0]
    assert declared.coordinates == 3 + N_BINS
    np.testing.assert_allclose(total[3:], expected, rtol=1e-6)


def _delta(epsilon, mu):
    """Balle and Wang (2018), Theorem 8, with forty digits."""
    with mpmath.workdps(40):
        a, b = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
        return mpmath.ncdf(a) - mpmath.exp(epsilon) * mpmath.ncdf(b)


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Squared()])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_whole_budget_is_for_other_releases(loss, adjacency):
    """With the limits of rows a fit has one more number for each, and no event for them."""
    data = DataSpec(20_000, 5, intercept=1.0, target_low=0.0, target_high=9.0)
    squared = isinstance(loss, Squared)
    solver = (
        SufficientStatistics(inference="model") if squared else NewtonRaphson(inference="model")
    )
    plan = solver.plan(Problem(loss), ApproximateDP(1.0, 1e-5), data, adjacency)
    releases = plan.method.releases
    most = [math.sqrt(one.count) * one.sensitivity / one.noise_std for one in releases]
    mu = mpmath.sqrt(sum(mpmath.mpf(one) ** 2 for one in most))
    assert float(_delta(1.0, mu)) == pytest.approx(1e-5, rel=1e-3)
    (score,) = (one for one in releases if one.coordinates in (6 + 8, 21 + 6 + 1 + 8))
    assert score.count == 1
    assert not any("counts of long rows" in one.quantity for one in releases)


def test_attack_stays_below_claim_and_finds_planted_slack():
    (honest,) = (case for case in slack.CASES if case.relation is ZERO_OUT)
    (bug,) = slack.BUGS
    line, caught = (case.measure(400, 0.998, seed=1) for case in (honest, bug))
    assert 0.6 < line.share < 1.0
    assert not line.refuted
    assert caught.refuted
