"""The best of a random number of tries: bounds against mechanisms that can be computed."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chisquare, norm

from dpglm._codec import decode, encode
from dpglm.certificate.recompute import recompute
from dpglm.privacy import (
    Adjacency,
    ApproximateDP,
    BoundedRange,
    Composed,
    Gaussian,
    Laplace,
    NegativeBinomialNumber,
    Parallel,
    PoissonNumber,
    PoissonSampled,
    Pure,
    RandomlyRepeated,
    RenyiAccountant,
    Repeated,
    RepetitionAccountant,
    accountant_for,
    calibrate,
    canonical,
    event_from_dict,
    gdp,
    within_budget,
)
from dpglm.privacy.events import describe_event
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.selection.repetitions import Repetitions, uniform

ZERO_OUT = Adjacency.ZERO_OUT
LAWS = (
    NegativeBinomialNumber(0.1),
    NegativeBinomialNumber(0.02),
    NegativeBinomialNumber(0.3, 3),
    PoissonNumber(1.0),
    PoissonNumber(6.0),
)
every_law = pytest.mark.parametrize("law", LAWS, ids=repr)


def chances(law, most=3000):
    """Probabilities of 0, 1, 2, ... tries, straight from the definitions."""
    k = np.arange(most)
    if isinstance(law, PoissonNumber):
        return np.exp(k * math.log(law.rate) - law.rate - gammaln(k + 1))
    p = np.exp(gammaln(k + law.shape) - gammaln(k + 1) + k * math.log1p(-law.success))
    p[0] = 0.0
    return p / p.sum()


def best_of(q, law):
    """Law of the best of several draws from q (the last entry is best), and of none at all."""
    generating = np.polynomial.polynomial.Polynomial(chances(law))
    at = generating(np.minimum(np.concatenate([[0.0], np.cumsum(q)]), 1.0))
    return np.concatenate([at[:1], np.diff(at)])


def hockey_stick(p, q, epsilon):
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((p, q), (q, p)))


def pairs():
    """Pairs of output distributions: random ones, and those that bounds are tight for."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        p = rng.dirichlet(np.full(5, 0.7))
        yield p, rng.permutation(p)
        tilted = p * np.exp(rng.uniform(-0.3, 0.3, size=5))
        yield p, tilted / tilted.sum()
    # Something that never happens on the other side is best.
    yield np.array([0.999, 0.001]), np.array([1.0, 0.0])
    # A rare result is likelier where better ones are rarer: pure differential privacy.
    rise = math.exp(0.2)
    less = 1.0 / (1.0 + rise)
    yield (
        np.array([1.0 - less - 1e-6, 1e-6, less]),
        np.array([1.0 - less * rise - 1e-6 / rise, 1e-6 / rise, less * rise]),
    )
    edges = np.linspace(-6.0, 6.0, 300)
    plain, moved = np.diff(norm.cdf(edges)), np.diff(norm.cdf(edges - 0.3))
    yield plain / plain.sum(), moved / moved.sum()


@functools.cache
def best_pairs(law):
    """Return the pairs, each with the laws of the best of several draws."""
    return [(p, q, best_of(p, law), best_of(q, law)) for p, q in pairs()]


def excesses(law, bound):
    """True delta over its bound for every pair and many epsilons."""
    for p, q, best_p, best_q in best_pairs(law):
        delta = lambda e, p=p, q=q: hockey_stick(p, q, e)  # noqa: E731
        for epsilon in (0.1, 0.3, 0.5, 0.8, 1.2, 2.0):
            yield hockey_stick(best_p, best_q, epsilon) - bound(law, delta, epsilon)


def claimed(law, delta, epsilon):
    ratio = law.log_ratio(delta)
    return law.mean * delta(epsilon - ratio) if epsilon >= ratio else 1.0


@every_law
def test_the_bound_holds_for_mechanisms_that_can_be_computed(law):
    assert max(excesses(law, claimed)) <= 1e-12


def without_ratio(law, delta, epsilon):
    return law.mean * delta(epsilon)


def without_mean(law, delta, epsilon):
    return claimed(law, delta, epsilon) / law.mean


def with_one_power_less(law, delta, epsilon):
    ratio = law.log_ratio(delta) * law.shape / (law.shape + 1)
    return law.mean * delta(epsilon - ratio) if epsilon >= ratio else 1.0


@pytest.mark.parametrize("wrong", [without_ratio, without_mean, with_one_power_less])
@pytest.mark.parametrize("law", LAWS[:2], ids=repr)
def test_smaller_bounds_are_refuted(law, wrong):
    assert max(excesses(law, wrong)) > 1e-9


@pytest.mark.parametrize("wrong", [without_ratio, without_mean])
def test_smaller_bounds_for_poisson_numbers_are_refuted(wrong):
    assert max(excesses(PoissonNumber(6.0), wrong)) > 1e-9


def test_pure_differential_privacy_is_nearly_tight():
    p, q = next(itertools.islice(pairs(), 41, None))
    law = NegativeBinomialNumber(1e-3)
    ratios = np.log(best_of(p, law)[1:] / best_of(q, law)[1:])
    bound = RepetitionAccountant().epsilon(RandomlyRepeated((Pure(0.2),), law), ZERO_OUT, 0.0)
    assert 0.95 * bound < np.abs(ratios).max() <= bound
    # Liu and Talwar 2019: three times as much.
    assert bound == pytest.approx(0.6, rel=0.01)


@every_law
def test_the_mean_is_that_of_the_law(law):
    p = chances(law)
    assert law.mean == pytest.approx(float(p @ np.arange(p.size)))
    assert law.none == pytest.approx(float(p[0]))


@every_law
def test_draws_follow_the_law(law):
    noise = SeededNoise(3)
    drawn = np.bincount([law.draw(noise) for _ in range(1500)], minlength=3000)
    expected = 1500 * chances(law, drawn.size)
    edges = np.searchsorted(np.cumsum(expected), np.linspace(0.0, 1499.0, 9)[1:-1])
    edges = np.unique(edges) + 1
    seen = [part.sum() for part in np.split(drawn, edges)]
    due = np.array([part.sum() for part in np.split(expected, edges)])
    due *= 1500.0 / due.sum()
    keep = due > 5
    if keep.all():
        assert chisquare(seen, due).pvalue > 1e-4
    other = chances(NegativeBinomialNumber(0.5), drawn.size) * 1500
    due = np.array([part.sum() for part in np.split(other, edges)]) + 1e-3
    assert chisquare(seen, due * 1500 / due.sum()).pvalue < 1e-6


def test_uniform_choices_are_uniform():
    noise = SeededNoise(4)
    seen = np.bincount([uniform(noise, 5) for _ in range(1000)])
    assert seen.size == 5
    assert chisquare(seen).pvalue > 1e-4


def papernot_and_steinke(mu, law, delta):
    """Theorem 2 for a mu-GDP mechanism, the best Renyi orders by search."""
    orders = 1.0 + np.geomspace(1e-2, 1e4, 2000)
    power = law.shape + 1
    penalty = np.min(power * ((orders - 1.0) * mu**2 / 2 - math.log(law.success) / orders))
    total = orders * mu**2 / 2 + penalty + math.log(law.mean) / (orders - 1.0)
    logs = np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)
    return float(np.min(total + logs))


@pytest.mark.parametrize("mu", [0.05, 0.2, 0.7])
@pytest.mark.parametrize("law", LAWS[:3], ids=repr)
def test_claim_is_between_a_single_try_and_the_published_bound(law, mu):
    event = RandomlyRepeated((Gaussian(1.0 / mu),), law)
    tight = accountant_for(event, ZERO_OUT)
    assert tight == RepetitionAccountant()
    found = tight.epsilon(event, ZERO_OUT, 1e-5)
    renyi = RenyiAccountant().epsilon(event, ZERO_OUT, 1e-5)
    assert gdp.epsilon(1e-5, mu) < found < renyi < papernot_and_steinke(mu, law, 1e-5)
    assert tight.delta(event, ZERO_OUT, found) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(
    "single",
    [
        Gaussian(8.0),
        Composed((Pure(0.1), Gaussian(8.0))),
        Repeated(Laplace(20.0), 3),
        Parallel((Gaussian(8.0), Pure(0.3))),
        PoissonSampled(0.1, Gaussian(2.0)),
    ],
    ids=["gaussian", "composed", "laplace", "parallel", "sampled"],
)
def test_claims_are_recomputed_independently(single):
    event = RandomlyRepeated((single, Gaussian(9.0)), NegativeBinomialNumber(0.1))
    epsilon = accountant_for(event, ZERO_OUT).epsilon(event, ZERO_OUT, 1e-5)
    (found,) = recompute(event, ZERO_OUT, epsilon, 1e-5)
    assert found.delta <= 1e-5 * (1.0 + found.tolerance)
    assert found.epsilon == pytest.approx(epsilon, rel=1e-3)
    # Planted bug: the repetition forgotten.
    cheap = max(accountant_for(one, ZERO_OUT).epsilon(one, ZERO_OUT, 1e-5) for one in event.events)
    (found,) = recompute(event, ZERO_OUT, cheap, 1e-5)
    assert found.delta > 1e-5 * (1.0 + found.tolerance)


def test_the_dearest_try_counts():
    law = NegativeBinomialNumber(0.2)
    cheap, dear = Gaussian(9.0), Gaussian(3.0)
    found = [
        RepetitionAccountant().epsilon(RandomlyRepeated(events, law), ZERO_OUT, 1e-5)
        for events in ((dear,), (cheap, dear), (cheap,))
    ]
    assert found[0] == found[1] > found[2]


def test_calibration_is_within_the_budget_and_wastes_little():
    budget = ApproximateDP(1.0, 1e-5)

    def make(sigma):
        return RandomlyRepeated((Gaussian(sigma),), NegativeBinomialNumber(0.05))

    sigma = calibrate(make, budget, ZERO_OUT)
    assert within_budget(make(sigma), ZERO_OUT, budget)
    assert not within_budget(make(sigma / 1.002), ZERO_OUT, budget)
    pure = calibrate(
        lambda s: RandomlyRepeated((Pure(1.0 / s),), NegativeBinomialNumber(0.05)),
        ApproximateDP(1.0, 0.0),
        ZERO_OUT,
    )
    assert 1.0 / 3.0 < 1.0 / pure < 0.4


@every_law
def test_events_survive_json_and_have_one_form(law):
    event = RandomlyRepeated((BoundedRange(0.1), Repeated(Gaussian(2.0), 3)), law)
    assert event_from_dict(event.to_dict()) == event
    assert event == RandomlyRepeated((Composed((Repeated(Gaussian(2.0), 3),)), Pure(0.1)), law) or (
        event == RandomlyRepeated((Composed((Repeated(Gaussian(2.0), 3),)), BoundedRange(0.1)), law)
    )
    assert canonical(Composed((event, event))) == Repeated(event, 2)
    assert decode(Repetitions, encode(law, Repetitions)) == law
    assert "secret number of tries" in describe_event(event)[0]


def test_compositions_are_for_renyi_divergences():
    event = RandomlyRepeated((Gaussian(10.0),), NegativeBinomialNumber(0.1))
    both = Composed((event, Gaussian(10.0)))
    assert not RepetitionAccountant().supports(both, ZERO_OUT)
    found = accountant_for(both, ZERO_OUT)
    assert isinstance(found, RenyiAccountant)
    single = RepetitionAccountant().epsilon(event, ZERO_OUT, 1e-5)
    assert single < found.epsilon(both, ZERO_OUT, 1e-5) < 2.0 * single
    assert math.isinf(found.epsilon(both, ZERO_OUT, 0.0))


def test_parallel_parts_of_a_try_need_a_public_number_of_rows():
    event = RandomlyRepeated((Parallel((Gaussian(2.0), Pure(1.0))),), NegativeBinomialNumber(0.1))
    assert accountant_for(event, ZERO_OUT).epsilon(event, ZERO_OUT, 1e-5) > 0.0
    with pytest.raises(ValueError, match="disjoint parts"):
        RepetitionAccountant().epsilon(event, Adjacency.ADD_REMOVE, 1e-5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: NegativeBinomialNumber(0.0), "success"),
        (lambda: NegativeBinomialNumber(1.0), "success"),
        (lambda: NegativeBinomialNumber(0.5, 0), "shape"),
        (lambda: PoissonNumber(0.5), "rate"),
        (lambda: RandomlyRepeated((), NegativeBinomialNumber(0.5)), "events"),
        (lambda: RandomlyRepeated((Gaussian(1.0),), 3), "repetitions"),
        (lambda: decode(Repetitions, {"type": "always"}), "type must be one of"),
        (
            lambda: decode(Repetitions, {"type": "poisson", "mean": 2.0}),
            "type .poisson. must have the keys",
        ),
    ],
)
def test_invalid_values_are_named(make, name):
    with pytest.raises(ValueError, match=name):
        make()
