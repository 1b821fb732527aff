"""Plans: stages, parts, and shares of the budget, compared with independent computations."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, gdp
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.events import BoundedRange, Composed, Gaussian, LastIterate, Parallel, Pure
from dpglm.problem import (
    L1,
    L2,
    ElasticNetPenalty,
    L2Ball,
    Logistic,
    Poisson,
    Problem,
    Savage,
    Squared,
)
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.selection.search import default_bounds
from dpglm.solvers import Constant, NoisyGD

DATA = DataSpec(10_000, 20, row_norm=2.0, intercept=2.0)
LOGISTIC = Problem(Logistic(), L2(1e-3))
BUDGET = ApproximateDP(1.0, 1e-5)
GD = NoisyGD(n_steps=50)
RELATIONS = [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE]
SOLVERS = {
    "best": BestIterate(n_steps=50),
    "grid": NormGridSearch(GD, bounds=(1.0, 2.0, 4.0)),
    "boosting": ConfidenceBoosting(GD, n_models=3),
    "grid of boosting": NormGridSearch(ConfidenceBoosting(GD, n_models=2), bounds=(1.0, 8.0)),
    "sampled": ConfidenceBoosting(NoisyGD(n_steps=20, sampling_rate=0.3), n_models=2),
}


def terms(event):
    return dict(event.terms)


def parts(plan):
    ((parallel, count),) = plan.event.terms
    assert isinstance(parallel, Parallel)
    assert count == 1
    return parallel.events


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.1, 8.0])
def test_plans_are_within_budget_and_spend_it(name, adjacency, epsilon):
    budget = ApproximateDP(epsilon, 1e-5)
    plan = SOLVERS[name].plan(LOGISTIC, budget, DATA, adjacency)
    assert within_budget(plan.event, adjacency, budget)
    assert plan.privacy()["epsilon"] >= 0.99 * epsilon


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_trainings_on_the_same_rows_share_one_mu_exactly(adjacency):
    plan = SOLVERS["grid"].plan(LOGISTIC, BUDGET, DATA, adjacency)
    choice, trained = sorted(parts(plan), key=lambda e: isinstance(e, BoundedRange), reverse=True)
    ((gaussian, count),) = trained.terms
    assert count == 3 * 50
    mu = math.sqrt(count) / gaussian.noise_multiplier
    assert mu == pytest.approx(gdp.mu(1.0, 1e-5), rel=1e-9)
    assert mu <= gdp.mu(1.0, 1e-5)
    # The choice has the whole budget too, as it reads other rows.
    assert choice.epsilon == pytest.approx(1.0, rel=1e-3)
    bounds = [one.plan.problem.constraint for one in plan.method.trainings]
    assert bounds == [L2Ball(1.0), L2Ball(2.0), L2Ball(4.0)]


def test_models_on_disjoint_rows_have_the_whole_budget_each():
    plan = SOLVERS["boosting"].plan(LOGISTIC, BUDGET, DATA)
    alone = GD.plan(LOGISTIC, BUDGET, dataclasses.replace(DATA, n_rows=2667))
    assert plan.method.part_sizes == (2667, 2667, 2666, 2000)
    assert len(parts(plan)) == 4
    assert sum(isinstance(event, Pure) for event in parts(plan)) == 1
    assert plan.method.trainings[0].plan.event == alone.event
    # With sequential composition the same noise would be over budget.
    in_sequence = Composed(parts(plan))
    assert not within_budget(in_sequence, Adjacency.ZERO_OUT, BUDGET)


def test_trainings_that_are_not_gaussian_share_epsilon_and_delta():
    plan = SOLVERS["grid of boosting"].plan(LOGISTIC, BUDGET, DATA)
    for training in plan.method.trainings:
        assert training.plan.budget.epsilon == 0.5
        assert 0.4999e-5 < training.plan.budget.delta <= 0.5e-5
    # And a single one has all.
    alone = NormGridSearch(ConfidenceBoosting(GD), bounds=(1.0,)).plan(LOGISTIC, BUDGET, DATA)
    assert alone.method.trainings[0].plan.budget == BUDGET


def test_last_iterates_stay_cheap_and_their_steps_stay_secret():
    plain = NoisyGD(n_steps=300, step_size=0.1, momentum=0.0, schedule=Constant(), clip=1.0)
    problem = Problem(Logistic(), L2(0.1), penalize_intercept=True)
    for solver in (NormGridSearch(plain, bounds=(1.0, 2.0)), ConfidenceBoosting(plain, n_models=2)):
        plan = solver.plan(problem, BUDGET, DATA)
        assert not plan.method.releases_iterates
        inner = [event for part in parts(plan) for event, _ in part.terms]
        assert any(isinstance(event, LastIterate) for event in inner)
        assert plan.method.mechanisms != plan.event


def exact_delta(epsilon, mu, choice):
    """Gaussian releases with this mu and randomized response, which no pure choice exceeds."""
    weight = math.exp(choice) / (1.0 + math.exp(choice))
    total = 0.0
    for chance, loss in ((weight, choice), (1.0 - weight, -choice)):
        left = epsilon - loss
        # delta(-e) = 1 - exp(-e) (1 - delta(e)), from the two halves of one formula.
        if left >= 0.0:
            total += chance * gdp.delta(left, mu)
        else:
            total += chance * (1.0 - math.exp(left) * (1.0 - gdp.delta(-left, mu)))
    return total


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("share", "excess"), [(0.01, 1.005), (0.1, 1.005), (0.7, 1.01)])
def test_steps_and_choice_are_calibrated_together(adjacency, share, excess):
    solver = BestIterate(n_steps=50, choice_share=share)
    plan = solver.plan(LOGISTIC, BUDGET, DATA, adjacency)
    assert terms(plan.event)[Pure(share)] == 1
    sigma = plan.method.descent.noise_multiplier
    assert terms(plan.event)[Gaussian(sigma)] == 50
    mu = math.sqrt(50) / sigma
    assert exact_delta(1.0, mu, share) <= 1e-5 * (1.0 + 1e-6)
    assert exact_delta(1.0, mu * excess, share) > 1e-5


@pytest.mark.parametrize("name", SOLVERS)
def test_noise_falls_as_epsilon_grows_and_grows_for_replace_one(name):
    def noise(epsilon, adjacency=Adjacency.ZERO_OUT):
        plan = SOLVERS[name].plan(LOGISTIC, ApproximateDP(epsilon, 1e-5), DATA, adjacency)
        return np.array([one.scale.std for one in plan.method.releases])

    assert (noise(1.0) < noise(0.5)).all()
    replaced = SOLVERS[name].plan(LOGISTIC, BUDGET, DATA, Adjacency.REPLACE_ONE).method.releases
    # Losses that are never negative move by no more than one of them.
    factors = np.array([one.diameter for one in replaced])
    assert (noise(1.0, Adjacency.REPLACE_ONE) >= 0.95 * factors * noise(1.0)).all()


@pytest.mark.parametrize("name", ["grid", "boosting"])
def test_parts_need_a_public_number_of_rows(name):
    with pytest.raises(ValueError, match="adjacency must be 'zero_out' or 'replace_one'"):
        SOLVERS[name].plan(LOGISTIC, BUDGET, DATA, Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_budget_in_another_currency_is_refused(name):
    with pytest.raises(ValueError, match=r"budget must be given as \(epsilon, delta\)"):
        SOLVERS[name].plan(LOGISTIC, GaussianDP(1.0), DATA)


@pytest.mark.parametrize(
    ("solver", "problem", "message"),
    [
        (BestIterate(), Problem(Logistic(), L1(0.1)), "regularizer must be NoPenalty"),
        (BestIterate(), Problem(Logistic(), ElasticNetPenalty(0.1, 0.5)), "regularizer must be"),
        (BestIterate(), Problem(Logistic(), constraint=L2Ball(1.0)), "constraint must be"),
        (NormGridSearch(), Problem(Logistic(), constraint=L2Ball(1.0)), "constraint must be"),
        (NormGridSearch(), Problem(Poisson()), "loss must be nonnegative"),
        (ConfidenceBoosting(), Problem(Poisson()), "loss must be nonnegative"),
    ],
)
def test_problems_that_do_not_fit_are_refused(solver, problem, message):
    data = dataclasses.replace(DATA, target_low=0.0, target_high=1.0)
    with pytest.raises(ValueError, match=message):
        solver.plan(problem, BUDGET, data)


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_few_rows_are_enough_or_refused(n_rows):
    data = dataclasses.replace(DATA, n_rows=n_rows)
    if n_rows < 3:
        with pytest.raises(ValueError, match="n_rows must be at least 3"):
            ConfidenceBoosting(GD, n_models=2).plan(LOGISTIC, BUDGET, data)
    else:
        ConfidenceBoosting(GD, n_models=2).plan(LOGISTIC, BUDGET, data)
    assert 2 <= BestIterate().plan(LOGISTIC, BUDGET, data).n_steps <= 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BestIterate(n_steps=0), "n_steps must be an integer of at least 1, got 0"),
        (lambda: BestIterate(step_size=0.0), "step_size must be a finite number above 0, got 0"),
        (lambda: BestIterate(clip=-1.0), "clip must be"),
        (lambda: BestIterate(choice_share=1.0), "choice_share must be .* below 1, got 1"),
        (lambda: BestIterate(choice_share=0.0), "choice_share must be"),
        (lambda: NormGridSearch("noisy_gd"), "solver must be a Solver, got 'noisy_gd'"),
        (lambda: NormGridSearch(bounds=()), "bounds must be one or more"),
        (lambda: NormGridSearch(bounds=(2.0, 1.0)), "bounds must be .* ascending"),
        (lambda: NormGridSearch(bounds=(0.0, 1.0)), "bounds must be"),
        (lambda: NormGridSearch(choice_fraction=1.0), "choice_fraction must be"),
        (lambda: NormGridSearch(loss_bound=0.0), "loss_bound must be"),
        (lambda: NormGridSearch(failure=0.0), "failure must be"),
        (lambda: ConfidenceBoosting(None), "solver must be a Solver, got None"),
        (lambda: ConfidenceBoosting(n_models=0), "n_models must be"),
        (lambda: ConfidenceBoosting(choice_fraction=0.0), "choice_fraction must be"),
        (lambda: ConfidenceBoosting(loss_bound=math.inf), "loss_bound must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "made",
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrappers_take_the_rows_that_their_solver_takes():
    class Fine(type(GD)):  # type: ignore[misc]
        def needs_float64(self, problem, budget):
            return True

    problem, budget = Problem(Savage()), ApproximateDP(1.0, 1e-5)
    assert not NormGridSearch(GD).needs_float64(problem, budget)
    for wrapper in (NormGridSearch, ConfidenceBoosting):
        assert wrapper(Fine()).needs_float64(problem, budget)
        assert ConfidenceBoosting(wrapper(Fine())).needs_float64(problem, budget)


def test_default_steps_follow_theorem_and_budget():
    problem = Problem(Savage(), L2(0.01))
    plan = BestIterate().plan(problem, ApproximateDP(0.1, 1e-5), DATA)
    beta = Savage().smoothness * DATA.augmented_row_norm**2 + 0.01
    assert plan.method.descent.step_sizes[0] == pytest.approx(1.0 / beta)
    assert len(set(plan.method.descent.step_sizes)) == 1
    small, large = (
        BestIterate().plan(problem, ApproximateDP(1.0, 1e-5), dataclasses.replace(DATA, n_rows=n))
        for n in (100, 10**6)
    )
    assert 1 < small.n_steps < 100
    assert large.n_steps == 401


def test_cost_and_noise_are_reported():
    steady = NoisyGD(n_steps=50, step_size=0.1)
    boosting = ConfidenceBoosting(steady, n_models=3).plan(LOGISTIC, BUDGET, DATA).method
    assert boosting.gradient_evaluations == 50 * 8000 + 3 * 2000
    grid = SOLVERS["grid"].plan(LOGISTIC, BUDGET, DATA).method
    assert grid.gradient_evaluations == 3 * 50 * 8000 + 3 * 2000
    best = SOLVERS["best"].plan(LOGISTIC, BUDGET, DATA).method
    assert best.gradient_evaluations == (50 + 51) * 10_000
    assert (boosting.n_steps, grid.n_steps, best.n_steps) == (151, 151, 51)
    # Fewer rows for each model, and therefore more noise.
    alone = steady.plan(LOGISTIC, BUDGET, DATA)
    assert boosting.coefficient_noise == pytest.approx(
        alone.coefficient_noise * 10_000 / 2666, rel=0.01
    )


def test_default_bounds_follow_the_scale_of_targets_and_rows():
    data = DataSpec(100, 3, row_norm=5.0, target_low=0.0, target_high=20.0)
    assert default_bounds(Squared(), data) == (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    plan = NormGridSearch(GD).plan(Problem(Squared()), BUDGET, data)
    assert len(plan.method.trainings) == 6
