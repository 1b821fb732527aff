"""The audit that anyone can run: under right claims, close to them, and above wrong ones."""

from __future__ import annotations

import dataclasses
import functools
import json
import pickle

import numpy as np
import pytest

from dpglm import LogisticRegression, Ridge
from dpglm.audit import Claim, Neighbours, audit, worst_neighbours
from dpglm.audit.games import Recording, Replay, pays_for_all, play
from dpglm.audit.guessing import choose_guess
from dpglm.audit.neighbours import Table, captured, estimator_neighbours
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, gdp
from dpglm.privacy.noise import SeededNoise, SystemNoise, add_gaussian
from dpglm.problem import L2, Logistic, Problem, Softmax
from dpglm.solvers import (
    Constant,
    FrankWolfe,
    NoisyGD,
    ObjectivePerturbation,
    run,
)
from dpglm.solvers.base import Plan
from tests.planted import PLANTED, planted
from tests.slowly import first_quickly

MU = 2.0
DATA = DataSpec(n_rows=3, n_features=2, intercept=1.0)
CLASSES = dataclasses.replace(DATA, n_outputs=3)
ONE_STEP = NoisyGD(n_steps=1, clip=0.25, step_size=1e-3, momentum=0.0)
GAUSSIAN_CLAIM = Claim(gdp.epsilon(1e-5, MU), 1e-5, MU)
FEW = {"runs": 40, "pilot_runs": 12, "seed": 0}


def plan_of(solver=ONE_STEP, adjacency=Adjacency.ZERO_OUT, data=DATA, budget=None) -> Plan:
    problem = Problem(Logistic() if data.n_outputs == 1 else Softmax())
    return solver.plan(problem, budget or GaussianDP(MU), data, adjacency)


@pytest.mark.parametrize("adjacency", first_quickly(*Adjacency), ids=str)
def test_gradient_descent_with_all_iterates_attains_claim(adjacency):
    plan = plan_of(dataclasses.replace(ONE_STEP, n_steps=2, momentum=0.9), adjacency)
    report = audit(plan, neighbours=worst_neighbours(plan)[:1], runs=250, pilot_runs=30, seed=2)
    assert not report.refuted
    assert 0.7 <= report.ratio <= 1.0
    assert report.ratio == pytest.approx(report.mu / MU)
    assert 0.0 < report.epsilon < report.epsilon_of_mu <= report.claim.epsilon
    assert report.release == "all"


def bug_case(name):
    adjacency = Adjacency.REPLACE_ONE if name == "wrong_relation" else Adjacency.ZERO_OUT
    return plan_of(adjacency=adjacency, data=CLASSES if name.endswith("classes") else DATA)


# Slightly too little noise takes more runs to detect than a value without noise.
RUNS = {"forgotten_event": 250, "half_noise": 120, "wrong_relation": 120}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_refuted(name):
    plan = bug_case(name)
    with planted(name):
        pairs = worst_neighbours(plan)
    pair = pairs[-1 if name == "intercept_without_noise" else 0]
    options = FEW | {"runs": RUNS.get(name, 40)}
    with planted(name):
        report = audit(plan, neighbours=[pair], **options)
    assert report.refuted
    assert report.ratio > 1.0
    assert "REFUTED" in str(report)


def test_without_a_bug_nothing_is_refuted():
    assert not audit(plan_of(data=CLASSES), **FEW).refuted


def test_a_planted_bug_is_gone_afterwards():
    plan = plan_of()
    rows = worst_neighbours(plan)[0].first
    before = run(plan, rows, SeededNoise(0)).w
    for name in PLANTED:
        with planted(name):
            pass
        assert np.array_equal(run(plan, rows, SeededNoise(0)).w, before)
    with pytest.raises(ValueError, match="name must be one of"):
        planted("unheard of")


# Claims that are not Gaussian are compared as trade-off curves.


@pytest.mark.parametrize(
    "solver",
    [
        NoisyGD(n_steps=1, clip=0.25, sampling_rate=0.5, step_size=1e-3),
        FrankWolfe(n_steps=3, slope_clip=0.25),
    ],
    ids=["Poisson", "choices"],
)
def test_other_claims_hold_and_are_approached(solver):
    plan = plan_of(solver, budget=ApproximateDP(8.0, 1e-3))
    pair = worst_neighbours(plan)[:1]
    report = audit(plan, neighbours=pair, runs=150, pilot_runs=30, seed=1)
    assert report.claim.mu is None
    assert not report.refuted
    assert 0.3 <= report.ratio <= 1.0


def test_claim_follows_from_its_parts():
    gaussian = Claim(gdp.epsilon(1e-5, 1.0), 1e-5, 1.0)
    assert gaussian.mu_at(0.3) == pytest.approx(1.0)
    pure = Claim(1.0, 0.0)
    assert pure.least_missed(0.1) == pytest.approx(1.0 - 0.1 * np.e)
    assert pure.least_missed(0.9) == pytest.approx(0.1 / np.e)
    assert Claim(1.0, 0.5).least_missed(0.4) == pytest.approx((0.5 - 0.4) / np.e)
    tighter = Claim(8.0, 0.0, None, ((0.0, 0.2),))
    assert tighter.least_missed(0.3) == pytest.approx(0.5)


# The attacker's view.


def test_where_only_the_model_is_paid_for_only_the_model_is_seen():
    strong = Problem(Logistic(), L2(1.0))
    last = NoisyGD(n_steps=5, clip=0.25, step_size=0.8, schedule=Constant(), momentum=0.0)
    plan = last.plan(strong, GaussianDP(MU), dataclasses.replace(DATA, intercept=0.0))
    assert not plan.method.releases_iterates
    assert audit(plan, neighbours=worst_neighbours(plan)[:1], **FEW).release == "model"
    perturbed = plan_of(ObjectivePerturbation(), budget=ApproximateDP(2.0, 1e-2))
    assert not pays_for_all(perturbed)
    assert pays_for_all(plan_of())


def test_the_model_alone_shows_less_and_bugs_still():
    plan = plan_of(dataclasses.replace(ONE_STEP, n_steps=2))
    options = {"neighbours": worst_neighbours(plan)[:1], "release": "model"} | FEW
    assert not audit(plan, **options).refuted
    with planted("fixed_seed"):
        assert audit(plan, **options).refuted


def observed(plan, first, seed, place=0):
    pair, noise = worst_neighbours(plan)[place], SeededNoise(seed)
    return play(plan, pair, noise, first=first, sees_all=True)


@pytest.mark.parametrize("first", [True, False])
def test_the_likelihood_ratio_is_that_of_the_noise(first):
    plan = plan_of()
    seen = observed(plan, first, 3)
    (release,) = plan.method.releases
    values, log_ratio = seen
    g = values[: DATA.n_columns]
    # The huge row's gradient: full length along the row and the intercept.
    moved = -0.25 * np.array([1.0, 0.0, 1.0]) / np.sqrt(2.0)
    expected = moved @ (g - 0.5 * moved) / release.scale.std**2
    assert log_ratio == pytest.approx(expected, rel=1e-6)


def test_model_from_unreleased_values_is_detected():
    plan = plan_of()
    assert abs(observed(plan, True, 0)[1]) < 100.0
    with planted("unnoised_step_size"):
        assert observed(plan, True, 0)[1] == 1e6
        assert observed(plan, False, 0)[1] == -1e6


def test_replays_on_the_same_rows_repeat_the_run():
    plan = plan_of(FrankWolfe(n_steps=3, slope_clip=0.25), budget=ApproximateDP(2.0, 1e-3))
    rows = worst_neighbours(plan)[0].first
    recording = Recording(SystemNoise())
    w = run(plan, rows, recording).w
    laws, again = recording.laws(plan, rows)
    assert np.array_equal(w, again)
    assert [
        law.log_density(one.value) for law, one in zip(laws, recording.releases, strict=True)
    ] == [one.law.log_density(one.value) for one in recording.releases]


def test_fits_that_are_not_listened_to_go_on_as_always():
    plan = plan_of()
    rows = worst_neighbours(plan)[0].first
    alone = run(plan, rows, SeededNoise(5)).w
    recording = Recording(SeededNoise(5))
    assert np.array_equal(run(plan, rows, recording).w, alone)
    assert np.array_equal(run(plan, rows, SeededNoise(5)).w, alone)
    assert len(recording.releases) == 1
    assert np.array_equal(run(plan, rows, Replay(recording)).w, alone)


def test_games_can_be_sent_to_other_processes():
    plan = plan_of()
    sent = functools.partial(play, plan, worst_neighbours(plan)[0], first=True, sees_all=True)
    again = pickle.loads(pickle.dumps(sent))(SeededNoise(3))
    assert again[1] == observed(plan, True, 3)[1]


# The choice of a guess.


def refutations(mu, repetitions=25, runs=100, confidence=0.8):
    """How many audits of N(mu, 1) against N(0, 1) refute the claim MU, at little confidence."""
    rng = np.random.default_rng(1)

    def seen(mean, size):
        return [(np.array([x]), None) for x in rng.normal(mean, 1.0, size)]

    refuted = 0
    for _ in range(repetitions):
        guess = choose_guess(seen(mu, 40), seen(0.0, 40), GAUSSIAN_CLAIM, confidence, runs)
        bounds = guess.bounds(seen(mu, runs), seen(0.0, runs), confidence)
        refuted += any(GAUSSIAN_CLAIM.least_missed(one.false) > one.missed for one in bounds)
    return refuted


def test_right_claims_are_refuted_no_more_often_than_promised():
    assert refutations(MU) <= 5
    assert refutations(2.0 * MU) >= 20


# Functions.


def gaussian_release(scale):
    def release(x):
        return add_gaussian([x], scale, -24, SystemNoise())

    return release


ZERO_OR_ONE = [Neighbours("a one or a zero", 1.0, 0.0)]


def test_any_function_with_a_claim_can_be_attacked():
    options = {"claim": GAUSSIAN_CLAIM, "neighbours": ZERO_OR_ONE, "runs": 1000}
    right = audit(gaussian_release(1.0 / MU), **options)
    assert not right.refuted
    assert 0.7 <= right.ratio <= 1.0
    assert audit(gaussian_release(0.7 / MU), **options).refuted


def test_noise_that_differs_gives_the_data_away_too():
    def release(x):
        return np.array([SystemNoise().uniform() * (1.0 + 9.0 * x)])

    report = audit(release, claim=GAUSSIAN_CLAIM, neighbours=ZERO_OR_ONE, runs=100)
    assert report.mu > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"claim": GAUSSIAN_CLAIM}, "neighbours must be given"),
        ({"neighbours": ZERO_OR_ONE}, "claim must be given"),
        ({"runs": 5}, "runs must be"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"release": "some"}, "release must be"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        audit(gaussian_release(1.0), **options)
    with pytest.raises(ValueError, match="target must be"):
        audit(3)


# Estimators.


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE], ids=str)
def test_an_estimator_is_attacked_on_rows_that_it_prepared(adjacency):
    model = LogisticRegression(
        epsilon=8.0, adjacency=adjacency, feature_bounds=(-3.0, 1.0), solver=ONE_STEP
    )
    plan, pairs, noise = estimator_neighbours(model, 3, 2, 2)
    assert noise == SystemNoise()
    assert plan.adjacency is adjacency
    for pair in pairs:
        (block,) = pair.first.blocks()
        assert (block.norms <= plan.data.augmented_row_norm * 1.001).all()
        assert pair.second.n_rows == (2 if adjacency is Adjacency.ADD_REMOVE else 3)
    assert not audit(model, **FEW).refuted


@pytest.mark.parametrize(
    "model",
    [
        Ridge(epsilon=4.0, row_norm=1.0, fit_intercept=False, solver="sufficient_statistics"),
        LogisticRegression(epsilon=4.0, row_norm=1.0, classes=["a", "b", "c"], solver=ONE_STEP),
    ],
    ids=lambda model: type(model).__name__,
)
def test_all_kinds_of_estimators_can_be_attacked(model):
    assert not audit(model, **FEW).refuted


def test_rows_that_an_estimator_does_not_shorten_are_refuted():
    model = LogisticRegression(epsilon=8.0, row_norm=1.0, solver=ONE_STEP)
    with planted("no_clipping"):
        assert audit(model, **FEW).refuted


def test_a_plan_that_depends_on_private_rows_is_refused():
    # Without a declared bound the longest row is it: a huge one, or one of zeros.
    with pytest.raises(ValueError, match="must not depend on private rows"):
        audit(LogisticRegression(epsilon=8.0, solver=ONE_STEP), **FEW)


def test_an_estimator_with_a_seed_is_refused():
    model = LogisticRegression(epsilon=8.0, row_norm=1.0, solver=ONE_STEP, random_state=0)
    with pytest.raises(ValueError, match="random_state must be None for an audit"):
        audit(model, **FEW)


def test_nothing_is_released_while_an_estimator_prepares():
    model = LogisticRegression(epsilon=8.0, row_norm=1.0, classes=[0, 1], solver=ONE_STEP)
    plan, rows = captured(model, Table(np.ones((4, 2)), np.array([0, 1, 0, 1]), np.ones(4)))
    assert rows.n_rows == 4
    assert plan.data.n_rows == 4
    assert not hasattr(model, "coef_")


def test_a_report_can_be_kept(tmp_path):
    plan = plan_of()
    report = audit(plan, neighbours=worst_neighbours(plan)[:1], **FEW)
    document = json.loads(report.to_json(tmp_path / "report.json"))
    assert json.loads((tmp_path / "report.json").read_text()) == document
    assert document["claim"]["mu"] == pytest.approx(MU)
    assert document["refuted"] is False
    assert document["runs"] == 40
    assert "not a proof" in str(report)
    assert "seeded" in str(report)
