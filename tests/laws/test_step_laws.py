"""Requirements on every preprocessing step: one row for each step."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from dpglm._codec import decode, encode
from dpglm.data.rows import DataSpec
from dpglm.preprocessing import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    RandomProjection,
    Scale,
    Whiten,
)
from dpglm.preprocessing.base import PlannedStep
from dpglm.privacy import Adjacency, ApproximateDP, gdp
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.events import Composed, Repeated, canonical
from tests.preprocessing.support import LAYOUTS, dense, make_rows, oracle_of
from tests.slowly import together

STEPS = {
    "center": Center(),
    "center, lengthened": Center(row_norm=0.5, lengthen=True),
    "clip to quantile": ClipToQuantile(),
    "clip to quantile, unbounded": ClipToQuantile(0.5, unbounded=True),
    "instance-optimal center": InstanceOptimalCenter(),
    "random projection": RandomProjection(2),
    "scale": Scale(),
    "scale in part": Scale(exponent=0.2, row_norm=2.0),
    "whiten": Whiten(),
    "whiten in part": Whiten(exponent=0.25, row_norm=3.0),
}
DATA = DataSpec(n_rows=500, n_features=3, row_norm=4.0, intercept=4.0)


def spent_by(planned):
    return canonical(Composed(tuple(Repeated(one.event, one.count) for one in planned.releases)))


@together("name", STEPS)
@together("adjacency", list(Adjacency))
@together("mu", [0.01, 0.3, 3.0])
def test_releases_are_mu_gdp(name, adjacency, mu):
    planned = STEPS[name].plan(DATA, mu, adjacency)
    if not planned.releases:
        return
    event = spent_by(planned)
    for epsilon in (0.1 * mu, mu, 3.0 * mu):
        allowed = gdp.delta(epsilon, mu)
        if allowed > 1e-12:
            found = accountant_for(event, adjacency).delta(event, adjacency, epsilon)
            assert found <= allowed * (1.0 + 1e-6) + 1e-11
    # And not much less is spent.
    half = gdp.delta(0.1 * mu, 0.5 * mu)
    assert accountant_for(event, adjacency).delta(event, adjacency, 0.1 * mu) > half


@together("name", STEPS)
@together(("layout", "dtype"), LAYOUTS)
@together("adjacency", list(Adjacency))
def test_run_equals_plan(name, layout, dtype, adjacency):
    X = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 0.1, 2.0] + [1.0, 0.0, 0.0]
    rows = make_rows(X, layout=layout, dtype=dtype, row_norm=4.0, intercept=4.0)
    if not adjacency.n_is_public and (layout, dtype) == ("C", "float32"):
        if name.split(",")[0] not in ("clip to quantile", "random projection"):
            with pytest.raises(ValueError, match="dtype must be 'float64'"):
                _ = STEPS[name].plan(rows.spec, 0.3, adjacency).releases
        return
    planned = STEPS[name].plan(rows.spec, 0.3, adjacency)
    oracle = oracle_of(rows, adjacency)
    learned = planned.learn(oracle, seed=1)
    assert oracle.curator.event == spent_by(planned)
    mapped = learned.apply(rows, planned.output, not adjacency.n_is_public)
    assert mapped.spec == planned.output
    assert (np.linalg.norm(dense(mapped), axis=1) <= planned.output.row_norm * (1 + 1e-6)).all()
    assert np.abs(dense(mapped)).max() > 0.01 * planned.output.row_norm


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("mu", [1e-6, 1e-3, 10.0])
def test_maps_are_sound_for_all_noise_scales_and_rows(name, mu):
    rng = np.random.default_rng(0)
    kinds = [np.zeros((50, 3)), np.full((50, 3), 1e30), rng.normal(size=(50, 3)) * 1e-12]
    for X in (*kinds, np.where(np.arange(50)[:, None] == 7, 1e30, kinds[2]), np.eye(3)[:1]):
        rows = make_rows(X, row_norm=4.0, intercept=4.0, n_rows=50)
        planned = STEPS[name].plan(rows.spec, mu, Adjacency.ADD_REMOVE)
        learned = planned.learn(oracle_of(rows, Adjacency.ADD_REMOVE), seed=1)
        assert np.isfinite(learned.center).all()
        assert np.isfinite(learned.matrix).all()
        assert np.abs(learned.matrix).max() > 0.0
        mapped = dense(learned.apply(rows, planned.output, True))
        assert (np.linalg.norm(mapped, axis=1) <= planned.output.row_norm * (1 + 1e-12)).all()
        w = np.ones(planned.output.coefficient_shape)
        assert np.isfinite(learned.pull_back(w, rows.spec, planned.output)).all()


@pytest.mark.parametrize("name", STEPS)
def test_noise_falls_with_the_budget_and_grows_for_replace_one(name):
    def noise(mu, adjacency=Adjacency.ZERO_OUT):
        return [one.scale.std for one in STEPS[name].plan(DATA, mu, adjacency).releases]

    for less, more in ((0.01, 0.1), (0.1, 1.0)):
        assert all(a < b for a, b in zip(noise(more), noise(less), strict=True))
    factors = [one.diameter for one in STEPS[name].plan(DATA, 0.3, Adjacency.REPLACE_ONE).releases]
    more = noise(0.3, Adjacency.REPLACE_ONE)
    expected = [factor * one for factor, one in zip(factors, noise(0.3), strict=True)]
    assert more == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", STEPS)
def test_shares_are_sensible_and_fall_with_rows(name):
    shares = [
        STEPS[name].share(dataclasses.replace(DATA, n_rows=n), mu)
        for mu in (1e-3, 0.3, 5.0)
        for n in (1, 100, 10**4, 10**6)
    ]
    assert all(0.0 <= share < 0.5 for share in shares)
    assert all(shares[i] >= shares[i + 1] for i in range(3))


@pytest.mark.parametrize("name", STEPS)
def test_planned_steps_are_data(name):
    planned = STEPS[name].plan(DATA, 0.3, Adjacency.REPLACE_ONE)
    assert decode(PlannedStep, json.loads(json.dumps(encode(planned, PlannedStep)))) == planned
    assert planned.name
    assert planned.noise_growth > 0.0


@pytest.mark.parametrize("name", STEPS)
def test_facts_that_a_step_does_not_change_stay(name):
    data = dataclasses.replace(DATA, weight_bound=2.0, target_low=0.0, target_high=1.0, n_outputs=3)
    after = STEPS[name].plan(data, 0.3, Adjacency.ZERO_OUT).output
    for fact in ("n_rows", "n_outputs", "weight_bound", "target_low", "target_high", "dtype"):
        assert getattr(after, fact) == getattr(data, fact)
    assert after.intercept == after.row_norm
    assert not after.sparse


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Center(row_norm=0.0), "row_norm must be"),
        (lambda: ClipToQuantile(quantile=1.0), "quantile must be"),
        (lambda: InstanceOptimalCenter(row_norm=-1.0), "row_norm must be"),
        (lambda: RandomProjection(0), "dimension must be"),
        (lambda: RandomProjection(2, embedding="x"), "embedding must be"),
        (lambda: Scale(row_norm=math.inf), "row_norm must be"),
        (lambda: Scale(exponent=0.6), "exponent must be"),
        (lambda: Whiten(exponent=0.0), "exponent must be"),
        (lambda: Whiten(exponent=0.7), "exponent must be"),
        (lambda: Whiten(row_norm=math.nan), "row_norm must be"),
    ],
)
def test_settings_are_validated(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_rows_that_do_not_fit_are_refused():
    plain = dataclasses.replace(DATA, intercept=0.0)
    wide = dataclasses.replace(DATA, n_features=2101)
    for step in (Center(), InstanceOptimalCenter()):
        with pytest.raises(ValueError, match="fit_intercept must be True"):
            step.plan(plain, 0.3, Adjacency.ZERO_OUT)
    for step, most in ((Whiten(), 2100), (InstanceOptimalCenter(), 1000)):
        with pytest.raises(ValueError, match=f"n_features must be at most {most}"):
            step.plan(wide, 0.3, Adjacency.ZERO_OUT)


def test_a_budget_that_is_not_all_of_it_is_caught():
    """The rule for bounded range does not hold for all pure mechanisms: it would overspend."""
    planned = ClipToQuantile(unbounded=True).plan(DATA, 0.3, Adjacency.ZERO_OUT)
    (declared,) = planned.releases
    choice = declared.mechanism
    twice = dataclasses.replace(choice, epsilon=2.0 * choice.epsilon)
    event = dataclasses.replace(declared, mechanism=twice).event
    found = accountant_for(event, Adjacency.ZERO_OUT).delta(event, Adjacency.ZERO_OUT, 0.1)
    assert found > gdp.delta(0.1, 0.3)
    assert ApproximateDP(1.0, 1e-5).gdp_mu() < 0.3
