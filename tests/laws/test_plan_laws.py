"""Every plan is within its budget and can be executed, whatever the rows are."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm import PrivacyLedger
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import counts
from dpglm.preprocessing import Center, ClipToQuantile, Scale
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.events import Composed, Event
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.privacy.selection.repetitions import NegativeBinomialNumber
from dpglm.problem import L2, ElasticNetPenalty, L1Ball, Logistic, Problem, Softmax, Squared
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.selection import method as shares_module
from dpglm.selection.search import Candidate, HeldOutSearch, RepeatedSearch
from dpglm.solvers import (
    D2P2,
    FrankWolfe,
    Method,
    Newton,
    NoisyGD,
    ObjectivePerturbation,
    OutputPerturbation,
    Preprocessed,
    Solver,
    pure_gd,
    run,
)
from dpglm.solvers import base as base_module
from tests.laws.asked import FEW, Setting, settings_and_rows
from tests.laws.budgets import examples
from tests.slowly import first_quickly

pytestmark = pytest.mark.one_in(3)

LOGISTIC = Problem(Logistic())
DATA = DataSpec(n_rows=2000, n_features=5, intercept=1.0)
BUDGET = ApproximateDP(1.0, 1e-5)
SAMPLED = NoisyGD(n_steps=20, sampling_rate=0.05, momentum=0.0)
PARTS: tuple[Solver, ...] = (
    FEW,
    SAMPLED,
    pure_gd(n_steps=3),
    FrankWolfe(n_steps=5),
    ObjectivePerturbation(),
    OutputPerturbation(),
)


def search(*solvers):
    return tuple(Candidate({"j": j}, one, lambda data: LOGISTIC) for j, one in enumerate(solvers))


@dataclass(frozen=True)
class TwoFits(Solver):
    """A third-party solver: two fits on the same rows, each with a share of epsilon."""

    first: Solver
    second: Solver
    share: float = 0.5

    def decide(self, facts):
        each = ApproximateDP(self.share * facts.budget.epsilon, self.share * facts.budget.delta)
        part = dataclasses.replace(facts, budget=each)
        methods = (one.decide(part).method for one in (self.first, self.second))
        return facts.plan(Both(facts.problem, *methods))


@dataclass(frozen=True)
class Both(Method[Any]):
    problem: Problem
    first: Method[Any]
    second: Method[Any]

    n_steps = 0
    gradient_evaluations = coefficient_noise = 0.0

    @property
    def releases(self):
        return (*self.first.releases, *self.second.releases)

    @property
    def event(self) -> Event:
        return Composed((self.first.event, self.second.event))

    def init(self, seed):
        return None

    def step(self, state, oracle):
        raise AssertionError

    def finish(self, state):
        raise AssertionError


COMPOSITES = {
    "held out": lambda a, b: HeldOutSearch(search(a, b, a), 0.2),
    "repeated": lambda a, b: RepeatedSearch(search(a, b), NegativeBinomialNumber(0.5), 0.1),
    "grid": lambda a, b: NormGridSearch(a, bounds=(1.0, 2.0)),
    "boosting": lambda a, b: ConfidenceBoosting(a, n_models=2),
    "boosting of held out": lambda a, b: ConfidenceBoosting(
        HeldOutSearch(search(a, b), 0.2), n_models=2
    ),
    "held out of boosting": lambda a, b: HeldOutSearch(
        search(ConfidenceBoosting(a, n_models=2), b), 0.2
    ),
    "best iterate": lambda a, b: BestIterate(n_steps=3),
    "preprocessed": lambda a, b: Preprocessed([Center(), Scale()], a),
    "preprocessed by choices": lambda a, b: Preprocessed([ClipToQuantile()], a),
    "pipeline in a search": lambda a, b: HeldOutSearch(
        search(Preprocessed([ClipToQuantile()], a), b), 0.2
    ),
    "stranger": TwoFits,
}


# The whole is within the budget.


@examples(15)
@given(
    composite=st.sampled_from(list(COMPOSITES)),
    first=st.sampled_from(PARTS),
    second=st.sampled_from(PARTS),
    adjacency=st.sampled_from(list(Adjacency)[::-1]),
    epsilon=st.sampled_from([1.0, 4.0, 0.1, 8.0]),
)
def test_every_composite_is_within_its_budget_as_a_whole(
    composite, first, second, adjacency, epsilon
):
    budget = ApproximateDP(epsilon, 1e-5)
    try:
        plan = COMPOSITES[composite](first, second).plan(LOGISTIC, budget, DATA, adjacency)
    except ValueError:
        # One that does not fit is refused; that of a third party may exceed the budget.
        return
    assert within_budget(plan.event, adjacency, budget)
    assert plan.privacy()["epsilon"] <= epsilon * (1.0 + 1e-12)


@pytest.mark.parametrize("epsilon", first_quickly(1.0, 4.0, 8.0))
def test_mixed_search_fits_budget_under_replace_one(epsilon):
    # It asked for 1.0 and stated 1.249, for 4.0 and stated 5.454, for 8.0 and stated 14.99.
    solver = HeldOutSearch(search(NoisyGD(sampling_rate=0.05), pure_gd(), FrankWolfe()), 0.2)
    budget = ApproximateDP(epsilon, 1e-5)
    plan = solver.plan(LOGISTIC, budget, DATA, Adjacency.REPLACE_ONE)
    assert within_budget(plan.event, Adjacency.REPLACE_ONE, budget)
    assert 0.95 * epsilon <= plan.privacy()["epsilon"] <= epsilon


def test_shares_that_are_never_added_up_are_refused_by_the_plan():
    solver = HeldOutSearch(search(NoisyGD(sampling_rate=0.05), pure_gd(), FrankWolfe()), 0.2)
    unasked = mock.patch.multiple(
        shares_module,
        within_budget=lambda *args: True,
        shared_budget=lambda budget, count, gaussian: budget,
    )
    with unasked, pytest.raises(ValueError, match="budget must be at least what all releases"):
        solver.plan(LOGISTIC, BUDGET, DATA, Adjacency.REPLACE_ONE)
    # The old rule, without a check.
    with unasked, mock.patch.object(base_module, "within_budget", return_value=True):
        plan = solver.plan(LOGISTIC, BUDGET, DATA, Adjacency.REPLACE_ONE)
    assert plan.privacy()["epsilon"] > 1.2


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("solver", PARTS, ids=lambda solver: type(solver).__name__)
def test_third_party_solver_over_budget_gets_no_plan(solver, adjacency):
    twice = TwoFits(solver, FEW, share=1.0)
    with pytest.raises(ValueError, match="budget must be at least what all releases"):
        twice.plan(LOGISTIC, BUDGET, DATA, adjacency)
    assert TwoFits(solver, FEW, share=0.4).plan(LOGISTIC, BUDGET, DATA, adjacency)


def test_a_plan_that_is_changed_is_asked_again():
    plan = FEW.plan(LOGISTIC, BUDGET, DATA)
    weaker = plan.method.with_multiplier(plan.method.noise_multiplier * 0.99)
    for change in ({"method": weaker}, {"budget": ApproximateDP(0.99, 1e-5)}):
        with pytest.raises(ValueError, match="budget must be at least"):
            dataclasses.replace(plan, **change)
    # Calibrated exactly, and to the last bit.
    assert dataclasses.replace(plan) == plan


# The releases of a plan can be executed.


def asked(setting: Setting) -> None:
    """Fail if a plan could be made and was not executed to its end."""
    try:
        plan = setting.plan()
    except ValueError:
        return
    solution = run(plan, setting.rows(), SeededNoise(setting.seed))
    assert np.isfinite(solution.w).all()
    assert solution.w.shape == plan.data.coefficient_shape


@pytest.mark.filterwarnings("ignore:steps overflowed:RuntimeWarning")
@examples(60)
@given(setting=settings_and_rows())
def test_planned_releases_can_be_executed_for_all_rows(setting):
    asked(setting)


def test_calibration_may_try_scales_beyond_all_grids():
    # Plans are refused, not the trials of a calibration.
    data = DataSpec(n_rows=100, n_features=3, n_outputs=5, intercept=1.0)
    for mu in (1e-3, 1e-2):
        assert NoisyGD().plan(Problem(Softmax()), GaussianDP(mu), data).method.noise_std > 0.0


def facts(n_rows=40, **changes):
    return {"n_rows": n_rows, "n_features": 3, "intercept": 1.0, **changes}


def spent_by(solver, problem, budget, spec, adjacency, rows=None):
    """How many entries a ledger has after a fit that was refused, or a fit that was not."""
    with tempfile.TemporaryDirectory() as folder:
        whole = ApproximateDP(1e6, 0.99)
        ledger = PrivacyLedger.create(
            Path(folder) / "rows.ledger",
            data="rows",
            budget=whole,
            filter="basic",
            adjacency=adjacency,
        )
        try:
            plan = solver.plan(problem, budget, DataSpec(**spec), adjacency)
        except ValueError:
            return 0, None
        rng = np.random.default_rng(0)
        n = plan.data.n_rows if rows is None else rows
        X = rng.normal(size=(n, plan.data.n_features))
        low, high = plan.data.target_low, plan.data.target_high
        y = np.full(n, high) if math.isfinite(low) else rng.choice([-1.0, 1.0], n)
        w = run(plan, prepare_rows(X, y, plan.data), SystemNoise(), ledger=ledger).w
        return len(ledger.contents().entries), w


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    "ends", [(0.0, 0.0), (5.0, 5.0), (0.0, 1e-200), (-1e90, -1e90), (0.0, 5e-324)]
)
@pytest.mark.parametrize("solver", [OutputPerturbation(), ObjectivePerturbation(), FrankWolfe()])
def test_degenerate_bounds_of_targets_are_refused_or_fitted(solver, ends, adjacency):
    spec = facts(target_low=ends[0], target_high=ends[1])
    entries, w = spent_by(solver, Problem(Squared()), BUDGET, spec, adjacency)
    assert entries == 0 if w is None else entries == 1 and np.isfinite(w).all()


@pytest.mark.parametrize("delta", [1e-5, 1e-9, 0.0])
@pytest.mark.parametrize(
    "solver",
    [
        D2P2(n_steps=3),
        pytest.param(D2P2(), marks=pytest.mark.slow),
        pure_gd(),
        FEW,
        OutputPerturbation(),
        ObjectivePerturbation(),
    ],
)
def test_noise_that_no_grid_holds_is_refused_in_the_plan(solver, delta):
    # Epsilon 1e-6 and 3,000 columns: found out by the run, after the ledger.
    spec = facts(n_rows=100, n_features=3000)
    entries, w = spent_by(solver, LOGISTIC, ApproximateDP(1e-6, delta), spec, Adjacency.ZERO_OUT)
    assert entries == 0 if w is None else entries == 1 and np.isfinite(w).all()


@pytest.mark.parametrize("n", [1, 3_200, 3_201, 3_300, 40_000])
@pytest.mark.parametrize(
    ("solver", "delta"),
    [
        (OutputPerturbation(), 1e-5),
        (ObjectivePerturbation(), 1e-5),
        (ObjectivePerturbation(), 0.0),
    ],
)
def test_no_private_number_of_rows_is_refused(solver, delta, n):
    # 3,200 rows could be told from 3,300 by an error.
    entries, w = spent_by(
        solver, LOGISTIC, ApproximateDP(1.0, delta), facts(200), Adjacency.ADD_REMOVE, n
    )
    assert entries == 1
    assert np.isfinite(w).all()


def test_rows_count_fully_if_about_as_many_as_declared():
    counted = counts.CountedRows(16 * 200, 20.0 * 4.0)
    for n, noise, full in ((200, 0.0, True), (3_200, 3_190.0, True), (10**6, 0.0, False)):
        oracle = mock.Mock()
        oracle.noisy_sum.return_value = np.array([n + noise])
        share = counted.share(oracle)
        assert (share == 1.0) is full
        assert 0.0 < share * n <= counted.most


@given(n=st.integers(1, 2**31 - 1), most=st.integers(1, 2**31))
def test_share_that_falls_with_rows_keeps_row_bound(n, most):
    share, next_share = (counts.shrinking_share(m, most) for m in (n, n + 1))
    assert 0.0 < next_share <= share <= 1.0
    assert share * n <= most
    assert next_share + n * (share - next_share) <= 1.0


def test_share_with_a_jump_would_be_refuted():
    late, later = (min(1.0, 100 / n) for n in (100, 101))
    assert later + 100 * (late - later) > 1.9


# Planted violations of the law above.

HARD = Setting(
    D2P2(), LOGISTIC, ApproximateDP(1e-6, 1e-9), facts(100, n_features=3000),
    Adjacency.ZERO_OUT, 100, "usual", 0,
)  # fmt: skip
MANY = Setting(
    ObjectivePerturbation(), LOGISTIC, BUDGET, facts(2), Adjacency.ADD_REMOVE, 500, "usual", 0
)


def test_a_grid_that_is_only_looked_at_in_the_run_is_caught():
    asked(HARD)
    with (
        mock.patch("dpglm.solvers.base.check_can_be_asked", return_value=None),
        pytest.raises(ValueError, match="std must be a finite number above 0, got inf"),
    ):
        asked(HARD)


def test_a_refusal_that_depends_on_the_rows_is_caught():
    asked(MANY)

    def refusing(self, oracle):
        if oracle.rows.n_rows > 16 * 2:
            raise ValueError("n_rows must be at least 1/16 of the true number of rows")
        return 1.0

    with (
        mock.patch.object(counts.CountedRows, "share", refusing),
        pytest.raises(ValueError, match="true number"),
    ):
        asked(MANY)


def test_non_finite_coefficients_are_never_returned():
    far = Setting(
        NoisyGD(n_steps=3, step_size=1e300), Problem(Logistic(), L2(0.1)), BUDGET,
        facts(row_norm=1e15, intercept=1e15), Adjacency.ZERO_OUT, 40, "tiny", 1,
    )  # fmt: skip
    with pytest.warns(RuntimeWarning, match="steps overflowed"):
        asked(far)
    with (
        mock.patch("dpglm.solvers.run.finished", lambda method, state: method.finish(state)),
        pytest.raises(AssertionError),
    ):
        asked(far)


@pytest.mark.parametrize("solver", [NoisyGD(n_steps=2, shrink=True), Newton(), pure_gd(n_steps=2)])
def test_penalties_without_noise_do_not_end_a_charged_fit(solver):
    few = facts(2, intercept=0.0)
    for penalty in (L2(1e300), ElasticNetPenalty(1e300, 0.5)):
        problem = Problem(Logistic(), penalty)
        asked(Setting(solver, problem, BUDGET, few, Adjacency.ZERO_OUT, 2, "usual", 1))


def test_choices_between_huge_scores_are_refused_in_the_plan():
    # The slope of a penalty of 1e300 is part of the rounding of each score.
    huge = Problem(Logistic(), L2(1e300))
    with pytest.raises(ValueError, match="noise scale of the release 'vertex of the L1 ball'"):
        FrankWolfe(n_steps=3).plan(huge, BUDGET, DataSpec(**facts(3)))


@pytest.mark.filterwarnings("ignore:steps overflowed:RuntimeWarning")
@pytest.mark.parametrize("step_size", [1e160, 1e300])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(), Squared()], ids=str)
def test_newton_steps_that_overflow_do_not_end_a_charged_fit(loss, step_size):
    newton, budget, known = Newton(n_steps=3, step_size=step_size), BUDGET, facts()
    if loss == Softmax():
        known = facts(n_outputs=3)
    elif loss == Squared():
        # A budget for which the mean of the residuals is released.
        budget = GaussianDP(100.0)
        known = facts(target_low=-1.0, target_high=1.0, intercept=1.0)
    far = Setting(newton, Problem(loss), budget, known, Adjacency.ZERO_OUT, 40, "usual", 1)
    released = {one.quantity for one in far.plan().method.releases}
    assert ("clipped slopes" in released) == (loss == Squared())
    asked(far)


def test_overflow_does_not_end_a_charged_fit():
    problem = Problem(Squared(), constraint=L1Ball(1.0))
    far = Setting(
        FEW, problem, GaussianDP(0.5), facts(target_low=-1e15, target_high=1e15),
        Adjacency.ZERO_OUT, 40, "huge", 1,
    )  # fmt: skip
    with np.errstate(all="raise"):
        asked(far)
