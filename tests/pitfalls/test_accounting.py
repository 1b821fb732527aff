"""Pitfalls of accounting: charges, their time, relation and formula."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from scipy import integrate
from scipy.special import log_ndtr

from dpglm import NoisyGD, PrivacyLedger, PrivateGridSearchCV
from dpglm.certificate.recompute import recompute
from dpglm.data.rows import DataSpec
from dpglm.exceptions import BudgetExceededError, TooCostlyError
from dpglm.ledger.filters import make_filter
from dpglm.oracle import gradients
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import RowSum
from dpglm.privacy.accounting import fourier
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.accounting.convolution import Mixture
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.events import (
    Composed,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    base,
)
from dpglm.privacy.noise import additive
from dpglm.privacy.releases import Bounded
from dpglm.privacy.selection import choices as selections
from dpglm.problem import Logistic, Problem
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.solvers import base as planning
from tests.laws.transcripts import listening
from tests.pitfalls.support import PLANNED, SHORT, caught, model, small, unasked
from tests.privacy.pld import PLD


def normal(x, mean, std):
    return np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


def gaussian_delta(mu, epsilon):
    """The delta of mu-GDP, in closed form."""
    return math.exp(log_ndtr(-epsilon / mu + mu / 2)) - math.exp(
        epsilon + log_ndtr(-epsilon / mu - mu / 2)
    )


# 9. Noise that grows with epsilon, or shrinks with the batch.


def noise_falls_as_epsilon_grows(rate):
    solver = NoisyGD(n_steps=5, step_size=0.1, clip=0.5, sampling_rate=rate)
    spec = DataSpec(n_rows=10, n_features=2)
    stds = [
        solver.plan(Problem(Logistic()), ApproximateDP(e, 1e-5), spec).method.noise_std
        for e in (0.1, 1.0, 10.0)
    ]
    assert stds[0] > stds[1] > stds[2]


def a_sum_has_noise_for_a_whole_row(rate):
    X, y = small()
    fitted = model(solver=dataclasses.replace(SHORT, sampling_rate=rate), epsilon=20.0)
    with listening() as seen:
        fitted.fit(X, y)
    assert all(0.5 <= one.made_for < 0.501 for one in seen.asked)
    release = fitted.privacy_.releases[0]
    assert release.scale.std >= 0.5 * release.noise_multiplier


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_pitfall_09_noise_falls_as_epsilon_grows(rate):
    honest = planning.calibrate

    def upside_down(*args, **options):
        return 1.0 / honest(*args, **options)

    bug = unasked(mock.patch.object(planning, "calibrate", upside_down))
    caught(bug, noise_falls_as_epsilon_grows, rate)


def test_pitfall_09_sensitivity_is_not_divided_by_the_batch_size():
    honest = RowSum.release

    def declared(self, *args, **options):
        return honest(dataclasses.replace(self, bound=self.bound / 6.0), *args, **options)

    def asked(value, bound, rate):
        return Bounded(value, bound / 6.0, rate)

    @contextlib.contextmanager
    def bug():
        # In both places, as the curator compares them.
        with (
            mock.patch.object(RowSum, "release", declared),
            mock.patch.object(gradients, "Bounded", asked),
        ):
            yield

    caught(bug(), a_sum_has_noise_for_a_whole_row, 0.3)


# 12. Replace-one treated as add/remove.


def replace_one_has_twice_the_sensitivity():
    X, y = small()
    scales = {}
    for adjacency in ("zero_out", "replace_one"):
        fitted = model(adjacency=adjacency).fit(X, y)
        scales[adjacency] = fitted.privacy_.releases[0].scale.std
    assert scales["replace_one"] == pytest.approx(2.0 * scales["zero_out"], rel=1e-5)


def samples_cost_what_one_exact_pair_costs_under_replace_one():
    q, sigma, epsilon = 0.5, 0.7, 1.0
    event = PoissonSampled(q, Gaussian(sigma))
    accountant = accountant_for(event, Adjacency.REPLACE_ONE)
    s = 2.0 * sigma
    x = np.linspace(-20.0, 20.0, 400_001)

    def density(shift):
        return (1 - q) * normal(x, 0.0, s) + q * normal(x, shift, s)

    gap = np.maximum(density(1.0) - math.exp(epsilon) * density(-1.0), 0.0)
    exact = integrate.trapezoid(gap, x)
    assert exact > 1e-3
    assert accountant.delta(event, Adjacency.REPLACE_ONE, epsilon) >= exact


def test_pitfall_12_replace_one_has_twice_the_sensitivity():
    bug = mock.patch.object(Adjacency, "sum_sensitivity", lambda self, bound, *_: bound)
    caught(bug, replace_one_has_twice_the_sensitivity)


def test_pitfall_12_accountant_separates_replace_one():
    kind = type(accountant_for(PoissonSampled(0.5, Gaussian(0.7)), Adjacency.REPLACE_ONE))
    honest = kind.delta

    def as_if_removed(self, event, adjacency, epsilon):
        # The same noise, about a row that leaves and none that comes.
        larger = PoissonSampled(event.sampling_rate, Gaussian(2.0 * event.event.noise_multiplier))
        return honest(self, larger, Adjacency.ADD_REMOVE, epsilon)

    bug = mock.patch.object(kind, "delta", as_if_removed)
    caught(bug, samples_cost_what_one_exact_pair_costs_under_replace_one)


# 13. Accountants that forget counts, or break at the ends.


def counts_are_counted(event, adjacency):
    deltas = []
    for count in (1, 4):
        repeated, listed = Repeated(event, count), Composed((event,) * count)
        accountant = accountant_for(repeated, adjacency)
        found = accountant.delta(repeated, adjacency, 0.3)
        assert found == pytest.approx(accountant.delta(listed, adjacency, 0.3), rel=1e-6, abs=1e-12)
        deltas.append(found)
    assert deltas[1] > deltas[0]


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    "event", [Gaussian(3.0), Laplace(5.0), PoissonSampled(0.2, Gaussian(2.0))], ids=repr
)
def test_pitfall_13_a_count_is_never_forgotten(event, adjacency):
    kind = type(accountant_for(Repeated(event, 4), adjacency))
    honest = kind.delta

    def once(self, claimed, adjacency, epsilon):
        return honest(self, event, adjacency, epsilon)

    caught(mock.patch.object(kind, "delta", once), counts_are_counted, event, adjacency)


def budgets_hold_at_the_ends(epsilon, delta):
    mu = ApproximateDP(epsilon, delta).gdp_mu()
    assert 0.0 < mu < math.inf
    assert gaussian_delta(mu, epsilon) <= delta * (1 + 1e-6) + 1e-18
    assert accountant_for(Gaussian(1 / mu), Adjacency.ZERO_OUT).epsilon(
        Gaussian(1 / mu), Adjacency.ZERO_OUT, delta
    ) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-18, 1e-5, 0.1])
@pytest.mark.parametrize("epsilon", [0.001, 0.01, 1.0, 100.0])
def test_pitfall_13_exact_accounting_holds_at_the_ends(epsilon, delta):
    # Half the noise; the textbook formula, which is for epsilon below 1, breaks at 100.
    honest = ApproximateDP.gdp_mu
    bug = mock.patch.object(ApproximateDP, "gdp_mu", lambda self: 2.0 * honest(self))
    caught(bug, budgets_hold_at_the_ends, epsilon, delta)
    if epsilon == 100.0:
        textbook = epsilon / math.sqrt(2.0 * math.log(1.25 / delta))
        bug = mock.patch.object(ApproximateDP, "gdp_mu", return_value=textbook)
        caught(bug, budgets_hold_at_the_ends, epsilon, delta)


# 15. Budget charged only after the fit; budget read and written without a lock. Killed processes:
# tests/ledger.


def a_crash_is_paid_for_and_returns_nothing(folder):
    X, y = small()
    path = folder / f"{len(list(folder.iterdir()))}.ledger"
    ledger = PrivacyLedger.create(path, data="rows", budget=GaussianDP(9.0))
    calls = []

    def crash(info):
        calls.append(info)
        raise KeyboardInterrupt

    fitted = model(callback=crash, ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X, y)
    assert len(calls) == 1
    assert not hasattr(fitted, "coef_")
    assert not hasattr(fitted, "solution_")
    assert len(ledger.contents().entries) == 1


def test_pitfall_15_a_crash_after_a_release_is_paid_for(tmp_path):
    runs = importlib.import_module("dpglm.solvers.run")
    bug = mock.patch.object(runs, "record_plan", return_value=None)
    caught(bug, a_crash_is_paid_for_and_returns_nothing, tmp_path)


def two_cannot_spend_what_is_there_for_one(folder):
    path = folder / f"{len(list(folder.iterdir()))}.ledger"
    PrivacyLedger.create(path, data="rows", budget=GaussianDP(1.0))

    def spend(_):
        try:
            PrivacyLedger(path).spend(Gaussian(1.2), "zero_out", what="a fit")
        except BudgetExceededError:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(spend, range(8))) == 1


def test_pitfall_15_no_two_spend_the_same_budget(tmp_path):
    # Without a lock all decide by the state that the first one read.
    ledger = importlib.import_module("dpglm.ledger.ledger")
    honest, seen = ledger.read, {}

    def stale(connection):
        return seen.setdefault("records", honest(connection))

    caught(
        mock.patch.object(ledger, "read", stale), two_cannot_spend_what_is_there_for_one, tmp_path
    )


# 17. Private selection that reports the winner's true score.


SELECTING = [
    BestIterate(n_steps=2),
    NormGridSearch(SHORT, bounds=(1.0, 2.0)),
    ConfidenceBoosting(SHORT, n_models=2),
]
CHOICES = ("permute_and_flip", "generalized_exponential_mechanism")


@contextlib.contextmanager
def answered_alike():
    """Noise and choices that happen to be the same whatever the data."""
    with contextlib.ExitStack() as stack:
        same = mock.patch.object(
            additive, "add_gaussian", lambda value, *_: np.full_like(value, 0.1)
        )
        stack.enter_context(same)
        for choice in CHOICES:
            stack.enter_context(mock.patch.object(selections, choice, return_value=1))
        yield


def what_is_shown_is_what_was_answered(solver):
    X, y = small()
    shown = []
    for data in (X, -2.0 * X):
        with answered_alike():
            fitted = model(solver=solver, random_state=0).fit(data, y)
        history, report = fitted.solution_.history, fitted.privacy_.to_dict()
        shown.append((fitted.coef_.tolist(), repr(history), repr(report)))
    assert shown[0] == shown[1]


@pytest.mark.parametrize("solver", SELECTING, ids=lambda solver: type(solver).__name__)
def test_pitfall_17_the_score_of_the_winner_is_not_shown(solver):
    # A leak would be the norm, or the mean loss, of the choice, as a diagnostic.
    method = type(solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), PLANNED).method)
    honest = method.step

    def telling(self, state, oracle):
        new, info = honest(self, state, oracle)
        if new.chosen is None:
            return new, info
        score = clipped_gradient_sum(oracle.rows, Logistic(), FlatClipping(1.0), new.chosen)
        return new, dataclasses.replace(info, gradient_norm=float(np.linalg.norm(score)))

    caught(mock.patch.object(method, "step", telling), what_is_shown_is_what_was_answered, solver)


def a_search_shows_no_score(method):
    X, y = small()
    shown = []
    for data in (X, -2.0 * X):
        with answered_alike():
            search = PrivateGridSearchCV(model(random_state=0), {"C": [0.1, 1.0]}, method=method)
            search.fit(data, y)
        found = {name: value for name, value in vars(search).items() if name.endswith("_")}
        solution, best = search.solution_, found.pop("best_estimator_")
        released = best.coef_.tolist(), solution.history, solution.coefficient_noise
        shown.append(repr((found, released)))
    assert shown[0] == shown[1]


@pytest.mark.parametrize("method", ["repeated", "held_out"])
def test_pitfall_17_a_search_shows_no_score(method):
    honest = PrivateGridSearchCV.fit

    def telling(self, X, y):
        self.score_of_best_ = float(honest(self, X, y).decision_function(X).mean())
        return self

    caught(mock.patch.object(PrivateGridSearchCV, "fit", telling), a_search_shows_no_score, method)


# 20. Approximations that report an epsilon below the true one.


def a_sampled_step_costs_what_it_exactly_does():
    q, sigma, epsilon = 0.1, 0.8, 1.0
    event = PoissonSampled(q, Gaussian(sigma))
    x = np.linspace(-20.0, 20.0, 400_001)
    mixture = (1 - q) * normal(x, 0.0, sigma) + q * normal(x, 1.0, sigma)
    exact = integrate.trapezoid(
        np.maximum(mixture - math.exp(epsilon) * normal(x, 0.0, sigma), 0.0), x
    )
    accountant = accountant_for(event, Adjacency.ADD_REMOVE)
    assert exact <= accountant.delta(event, Adjacency.ADD_REMOVE, epsilon) <= exact * 1.05


def test_pitfall_20_sampled_epsilon_is_above_exact_lower_bound():
    kind = type(accountant_for(PoissonSampled(0.1, Gaussian(0.8)), Adjacency.ADD_REMOVE))

    def central_limit(self, event, adjacency, epsilon):
        sigma = event.event.noise_multiplier
        mu = event.sampling_rate * math.sqrt(math.exp(sigma**-2) - 1.0)
        return gaussian_delta(mu, epsilon)

    caught(
        mock.patch.object(kind, "delta", central_limit), a_sampled_step_costs_what_it_exactly_does
    )


# 26. A multiplier with an underflowing square costs nothing on paper.


def noise_is_never_free():
    for multiplier in (1e40, 1e162, 1e300):
        try:
            event = Gaussian(multiplier)
        except ValueError:
            continue
        assert accountant_for(event, Adjacency.ZERO_OUT).epsilon(event, Adjacency.ZERO_OUT, 0.0) > 0


def test_pitfall_26_noise_without_end_is_refused_and_not_free():
    caught(mock.patch.object(base, "LARGEST", math.inf), noise_is_never_free)


# 29. A checker that refuses honest claims, or that a claim can kill.


def honest_claims_hold():
    # Claimed by another accountant than the one that checks, which has seen nothing yet.
    fourier._orders.cache_clear()
    rare = Repeated(PoissonSampled(1e-5, Gaussian(0.6)), 100)
    claimed = PLD(2).epsilon(rare, Adjacency.ZERO_OUT, 1e-7)
    for one in recompute(rare, Adjacency.ZERO_OUT, claimed, 1e-7):
        assert one.delta <= 1e-7 * (1.0 + one.tolerance)


def costly_claims_are_not_begun():
    deadly = Repeated(PoissonSampled(1e-6, Gaussian(0.1)), 10**6)
    try:
        next(iter(recompute(deadly, Adjacency.ZERO_OUT, 1.0, 1e-6)))
    except TooCostlyError:
        return
    pytest.fail("a grid of a hundred million points was made")


def test_pitfall_29_honest_claims_hold_and_costly_are_declined():
    def whole(law, count, width, *others):
        return [(law, width)]

    caught(mock.patch.object(fourier, "split", whole), honest_claims_hold)
    boundless = mock.patch.object(Mixture, "plus", lambda self, lattices, window: self)
    caught(boundless, costly_claims_are_not_begun)


# 30. "Spent so far", read at a moment chosen from outputs.


def a_bound_is_shown_that_holds_whenever_one_looks():
    rule = make_filter("gaussian", ApproximateDP(8.0, 1e-3))
    squares = rule.budget.gdp_mu() ** 2 * np.geomspace(1e-4, 1.0, 100)
    shown = np.array([rule.spent_at_any_time([{"mu": math.sqrt(s)}])["epsilon"] for s in squares])
    # Stop when the loss is large: the mean excess over the stated epsilon.
    rng, steps = np.random.default_rng(5), np.diff(squares, prepend=0.0)
    normal_steps = rng.standard_normal((20_000, steps.size))
    losses = np.cumsum(0.5 * steps + np.sqrt(steps) * normal_steps, axis=1)
    passed = losses > shown + 0.4 * np.sqrt(squares)
    stop = np.where(passed.any(axis=1), passed.argmax(axis=1), steps.size - 1)
    beyond = losses[np.arange(len(losses)), stop] - shown[stop]
    assert np.mean(-np.expm1(-np.maximum(beyond, 0.0))) <= 1e-3


def test_pitfall_30_bound_holds_at_any_stopping_time():
    kind = type(make_filter("gaussian", ApproximateDP(8.0, 1e-3)))
    bug = mock.patch.object(kind, "spent_at_any_time", kind.spent)
    caught(bug, a_bound_is_shown_that_holds_whenever_one_looks)
