"""Calibration: never over budget, close to it, less noise for more epsilon."""

import functools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import (
    GaussianAccountant,
    MixtureAccountant,
    delta_of,
    within_budget,
)
from dpglm.privacy.accounting.calibrate import calibrate, spent
from dpglm.privacy.accounting.fourier import FourierAccountant
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP, ZeroConcentratedDP
from dpglm.privacy.events import (
    Composed,
    Gaussian,
    Laplace,
    LastIterate,
    PerturbedObjective,
    PoissonSampled,
    ProjectedGaussian,
    Repeated,
)
from tests.privacy.pld import PLD

EXACT = {
    "repeated": lambda s: Repeated(Gaussian(s), 137),
    "last iterate": lambda s: LastIterate(s, 0.97, 500),
    "with a fixed part": lambda s: Composed((Gaussian(1e6), Repeated(Gaussian(2.0 * s), 3))),
}
SAMPLED = {
    "poisson": lambda s: Repeated(PoissonSampled(0.02, Gaussian(s)), 100),
    "mixed": lambda s: Composed(
        (Gaussian(4.0 * s), Repeated(PoissonSampled(0.1, Gaussian(s)), 20), LastIterate(s, 0.5, 9))
    ),
    "laplace": lambda s: Repeated(Laplace(s), 20),
    "objective": lambda s: Composed((PerturbedObjective(s, 0.01), Gaussian(8.0 * s))),
}


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=20, deadline=None)
@given(
    epsilon=st.floats(1e-3, 100.0),
    delta=st.floats(1e-18, 0.1),
    adjacency=st.sampled_from(Adjacency),
)
def test_exact_calibration_is_tight_and_never_over(name, epsilon, delta, adjacency):
    make_event, budget = EXACT[name], ApproximateDP(epsilon, delta)
    multiplier = calibrate(make_event, budget, adjacency)
    event = make_event(multiplier)
    assert within_budget(event, adjacency, budget)
    assert spent(event, adjacency, budget)["epsilon"] <= epsilon
    assert gdp.delta(epsilon, GaussianAccountant().mu(event, adjacency)) <= delta
    assert not within_budget(make_event(multiplier * (1.0 - 1e-6)), adjacency, budget)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-6), (4.0, 1e-5)])
def test_sampled_calibration_is_tight_and_never_over(name, epsilon, delta, adjacency):
    make_event, budget = SAMPLED[name], ApproximateDP(epsilon, delta)
    multiplier = calibrate(make_event, budget, adjacency)
    event = make_event(multiplier)
    assert spent(event, adjacency, budget)["epsilon"] <= epsilon
    assert FourierAccountant().epsilon(event, adjacency, delta) <= epsilon * (1.0 + 1e-3)
    assert not within_budget(make_event(multiplier * 0.995), adjacency, budget)


# The result for q = 0.001 and T = 100000, found by many slow calls.
FORMER = {
    (0.01, 1e-5, Adjacency.ZERO_OUT): 77.56492,
    (1.0, 1e-5, Adjacency.ADD_REMOVE): 1.369927,
    (1.0, 1e-9, Adjacency.REPLACE_ONE): 1.791629,
    (8.0, 1e-5, Adjacency.REPLACE_ONE): 0.365543,
}


@pytest.mark.parametrize(("epsilon", "delta", "adjacency"), FORMER)
def test_many_rare_samples_take_no_more_noise_than_before(epsilon, delta, adjacency):
    make_event = lambda s: Repeated(PoissonSampled(0.001, Gaussian(s)), 100_000)  # noqa: E731
    multiplier = calibrate(make_event, ApproximateDP(epsilon, delta), adjacency)
    event = make_event(multiplier)
    assert multiplier <= 1.001 * FORMER[epsilon, delta, adjacency]
    assert PLD(2).epsilon(event, adjacency, delta) <= 1.001 * epsilon
    # Not optimistic: the other accountant, which is never below the truth, needs this much too.
    too_little = make_event(0.99 * multiplier)
    assert PLD(2).epsilon(too_little, adjacency, delta) > epsilon


def evaluations(monkeypatch, make_event, adjacency):
    """Count how often each accountant computes a delta in one calibration."""
    counts = Counter()

    def counted(accountant, compute):
        def wrapper(self, *arguments):
            counts[accountant, getattr(self, "cell_fraction", None)] += 1
            return compute(self, *arguments)

        return wrapper

    for kind in (FourierAccountant, MixtureAccountant):
        monkeypatch.setattr(kind, "delta", counted(kind, kind.delta))
    for epsilon in (0.01, 1.0, 8.0):
        counts.clear()
        delta_of.cache_clear()
        calibrate(make_event, ApproximateDP(epsilon, 1e-5), adjacency)
        yield dict(counts)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
def test_a_search_asks_on_a_fine_grid_three_times_at_most(monkeypatch, adjacency):
    make_event = lambda s: Repeated(PoissonSampled(0.001, Gaussian(s)), 100_000)  # noqa: E731
    for counts in evaluations(monkeypatch, make_event, adjacency):
        assert 1 <= counts[FourierAccountant, 0.02] <= 3
        assert counts[FourierAccountant, 0.25] <= 9


def test_noise_levels_are_composed_at_most_three_times(monkeypatch):
    def make_event(s):
        step = lambda level: PoissonSampled(0.01, ProjectedGaussian(s * 0.8**level, 20))  # noqa: E731
        return Composed(tuple(Repeated(step(level), 100) for level in range(4)))

    for counts in evaluations(monkeypatch, make_event, Adjacency.REPLACE_ONE):
        assert 1 <= counts[FourierAccountant, 0.02] <= 3
        assert counts[FourierAccountant, 0.25] <= 9


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
def test_exact_searches_take_few_integrals(monkeypatch, adjacency):
    make_event = lambda s: Repeated(ProjectedGaussian(s, 8), 100)  # noqa: E731
    for counts in evaluations(monkeypatch, make_event, adjacency):
        assert counts.keys() == {(MixtureAccountant, None)}
        assert counts[MixtureAccountant, None] <= 16


def test_renyi_accounting_never_needs_less_noise():
    from dp_accounting import dp_event, rdp

    multiplier = calibrate(
        lambda s: Repeated(PoissonSampled(0.001, Gaussian(s)), 100_000),
        ApproximateDP(1.0, 1e-5),
        Adjacency.ADD_REMOVE,
    )
    sampled = dp_event.PoissonSampledDpEvent(0.001, dp_event.GaussianDpEvent(multiplier))
    accountant = rdp.RdpAccountant().compose(sampled, 100_000)
    assert 1.0 < accountant.get_epsilon(1e-5) < 1.3


@functools.cache
def sampled_multiplier(epsilon, delta):
    return calibrate(SAMPLED["poisson"], ApproximateDP(epsilon, delta), Adjacency.ZERO_OUT)


@pytest.mark.parametrize(
    "planted",
    [
        lambda s: Repeated(PoissonSampled(0.02, Gaussian(0.5 * s)), 100),
        lambda s: Repeated(PoissonSampled(0.04, Gaussian(s)), 100),
        lambda s: Repeated(PoissonSampled(0.02, Gaussian(s)), 400),
        lambda s: Composed((Repeated(PoissonSampled(0.02, Gaussian(s)), 100), Gaussian(s))),
    ],
    ids=["half the noise", "twice the rate", "forgotten count", "forgotten event"],
)
def test_planted_bugs_are_over_budget_by_far(planted):
    budget = ApproximateDP(1.0, 1e-6)
    multiplier = sampled_multiplier(1.0, 1e-6)
    assert not within_budget(planted(multiplier), Adjacency.ZERO_OUT, budget)
    for accountant in (PLD(), FourierAccountant()):
        assert accountant.epsilon(planted(multiplier), Adjacency.ZERO_OUT, 1e-6) > 1.5


@pytest.mark.parametrize(
    "planted",
    [
        lambda s: Repeated(Gaussian(0.5 * s), 137),
        lambda s: Repeated(Gaussian(s), 4 * 137),
        lambda s: Composed((Repeated(Gaussian(s), 137), Gaussian(0.1 * s))),
    ],
    ids=["half the noise", "forgotten count", "forgotten event"],
)
def test_planted_bugs_are_over_budget_when_exact(planted):
    for budget in (ApproximateDP(1.0, 1e-6), GaussianDP(0.2), ZeroConcentratedDP(0.02)):
        multiplier = calibrate(EXACT["repeated"], budget, Adjacency.REPLACE_ONE)
        assert not within_budget(planted(multiplier), Adjacency.REPLACE_ONE, budget)


@pytest.mark.parametrize("make_event", [*EXACT.values(), *SAMPLED.values()])
def test_noise_falls_as_epsilon_or_delta_grows(make_event):
    def noise(epsilon, delta):
        return calibrate(make_event, ApproximateDP(epsilon, delta), Adjacency.ZERO_OUT)

    multipliers = [noise(0.2, 1e-6), noise(1.0, 1e-6), noise(6.0, 1e-4)]
    assert multipliers == sorted(multipliers, reverse=True)
    assert multipliers[0] > 3.0 * multipliers[-1]


def test_mu_and_rho_budgets_have_closed_forms():
    ten = lambda s: Repeated(Gaussian(s), 100)  # noqa: E731
    assert calibrate(ten, GaussianDP(0.5), Adjacency.ZERO_OUT) == pytest.approx(20.0, rel=1e-9)
    assert calibrate(ten, ZeroConcentratedDP(0.5), Adjacency.ZERO_OUT) == pytest.approx(10.0)
    assert spent(ten(20.0), Adjacency.ZERO_OUT, GaussianDP(1.0))["mu"] == pytest.approx(0.5)
    assert spent(ten(10.0), Adjacency.ZERO_OUT, ZeroConcentratedDP(1.0))["rho"] == pytest.approx(
        0.5
    )


def test_pure_budgets_for_laplace_noise():
    make_event, budget = SAMPLED["laplace"], ApproximateDP(2.0, 0.0)
    multiplier = calibrate(make_event, budget, Adjacency.ZERO_OUT)
    assert multiplier == pytest.approx(10.0, rel=1e-9)
    assert spent(make_event(multiplier), Adjacency.ZERO_OUT, budget)["epsilon"] <= 2.0


def test_spent_names_the_accountant_and_its_library():
    budget = ApproximateDP(1.0, 1e-6)
    exact = spent(EXACT["repeated"](50.0), Adjacency.ZERO_OUT, budget)
    assert exact["accountant"] == "gaussian"
    assert exact["version"].startswith("dpglm")
    sampled = spent(SAMPLED["poisson"](5.0), Adjacency.ZERO_OUT, budget)
    assert sampled["accountant"] == "fourier"
    assert "numpy" in sampled["version"]
    assert set(sampled) == {"epsilon", "delta", "accountant", "version"}


def test_nothing_released_is_within_every_budget():
    for budget in (ApproximateDP(1e-3, 0.0), GaussianDP(1e-3), ZeroConcentratedDP(1e-9)):
        assert within_budget(Composed(()), Adjacency.ADD_REMOVE, budget)


@pytest.mark.parametrize(
    ("make_event", "budget", "message"),
    [
        (EXACT["repeated"], ApproximateDP(1.0, 0.0), "delta must be above 0 for Gaussian noise"),
        (SAMPLED["poisson"], ApproximateDP(1.0, 0.0), "delta must be above 0 for Gaussian noise"),
        (SAMPLED["poisson"], GaussianDP(1.0), r"\(epsilon, delta\)"),
        (SAMPLED["laplace"], ZeroConcentratedDP(1.0), r"\(epsilon, delta\)"),
        (
            lambda s: Composed((Gaussian(1.0), Gaussian(s))),
            ApproximateDP(0.1, 1e-6),
            "cannot be met",
        ),
        (
            lambda s: Composed((PoissonSampled(0.5, Gaussian(0.5)), Gaussian(s))),
            ApproximateDP(0.1, 1e-6),
            "cannot be met",
        ),
        (lambda s: Gaussian(100.0), ApproximateDP(1.0, 1e-6), "without any noise"),
    ],
)
def test_impossible_cases_are_refused(make_event, budget, message):
    with pytest.raises(ValueError, match=message):
        calibrate(make_event, budget, Adjacency.ZERO_OUT)


def test_unfit_budget_is_refused_by_every_question():
    event = SAMPLED["poisson"](1.0)
    for ask in (within_budget, spent):
        with pytest.raises(ValueError, match=r"\(epsilon, delta\)"):
            ask(event, Adjacency.ZERO_OUT, GaussianDP(1.0))


def test_published_figure():
    # 100 full-batch steps at (1, 1e-5); an RDP accountant would say 40.45.
    multiplier = calibrate(
        lambda s: Repeated(Gaussian(s), 100), ApproximateDP(1.0, 1e-5), Adjacency.ZERO_OUT
    )
    assert multiplier == pytest.approx(37.306, abs=1e-3)
    assert math.isclose(multiplier, 10.0 / gdp.mu(1.0, 1e-5), rel_tol=1e-9)
