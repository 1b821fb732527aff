"""Privacy filters: charges, and no gain from adaptive choices."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from dpglm.ledger import BasicFilter, GaussianFilter, RenyiFilter, filter_from_dict, make_filter
from dpglm.privacy import (
    Adjacency,
    ApproximateDP,
    BoundedRange,
    Composed,
    Gaussian,
    GaussianAccountant,
    GaussianDP,
    Laplace,
    LastIterate,
    Parallel,
    PerturbedObjective,
    PoissonSampled,
    Pure,
    RenyiAccountant,
    Repeated,
    ZeroConcentratedDP,
    accountant_for,
    calibrate,
    spent,
    within_budget,
)
from dpglm.privacy.accounting.renyi import renyi_divergence

ZERO_OUT = Adjacency.ZERO_OUT
BUDGET = ApproximateDP(1.0, 1e-6)
FILTERS = [make_filter(name, BUDGET) for name in ("gaussian", "renyi", "basic")]


def kind(rule):
    return type(rule).__name__


def charge(rule, event, adjacency=ZERO_OUT, delta=None):
    return rule.charge(event, adjacency, delta)


class TestGaussian:
    EVENTS = (Repeated(Gaussian(30.0), 7), LastIterate(9.0, 0.9, 40), Gaussian(11.0))

    @pytest.mark.parametrize("adjacency", Adjacency)
    @pytest.mark.parametrize("budget", [BUDGET, GaussianDP(0.5), ZeroConcentratedDP(0.1)], ids=repr)
    def test_total_equals_accountant_of_the_composition(self, adjacency, budget):
        rule = GaussianFilter(budget)
        charges = [charge(rule, event, adjacency) for event in self.EVENTS]
        whole = spent(Composed(self.EVENTS), adjacency, budget)
        for name, value in rule.spent(charges).items():
            assert value == pytest.approx(whole[name], rel=1e-12)

    def test_fit_of_the_whole_budget_is_accepted_and_is_the_last(self):
        for epsilon in np.geomspace(0.01, 30.0, 23):
            budget = ApproximateDP(float(epsilon), 1e-6)
            rule = GaussianFilter(budget)
            full = charge(rule, Gaussian(calibrate(Gaussian, budget, ZERO_OUT)))
            assert rule.allows([full])
            assert not rule.allows([full, charge(rule, Gaussian(1e4))])

    def test_remaining_budget_can_be_spent(self):
        rule = GaussianFilter(BUDGET)
        before = [charge(rule, Gaussian(8.0))]
        left = rule.left(before)["mu"]
        assert rule.allows([*before, {"mu": left}])
        assert not rule.allows([*before, {"mu": left * (1.0 + 1e-6)}])

    def test_disjoint_parts_cost_the_dearest(self):
        parts = Parallel((Gaussian(9.0), Gaussian(7.0)))
        assert charge(GaussianFilter(BUDGET), parts) == charge(
            GaussianFilter(BUDGET), Gaussian(7.0)
        )

    @pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 5.0, 40.0])
    def test_pure_event_is_dominated_by_its_gaussian(self, epsilon):
        mu = charge(GaussianFilter(BUDGET), Pure(epsilon))["mu"]
        at = np.linspace(0.0, epsilon, 50)
        pure = [hockey_stick_of_pure(epsilon, one) for one in at]
        assert (hockey_stick_of_gaussian(mu, at) >= np.array(pure) - 1e-15).all()
        # At total variation, epsilon 0, the two touch.
        assert hockey_stick_of_gaussian(mu, 0.0) == pytest.approx(pure[0], rel=1e-9, abs=1e-13)
        if epsilon < 40.0:
            assert hockey_stick_of_gaussian(0.999 * mu, 0.0) < pure[0]

    def test_pure_and_gaussian_parts_add_up(self):
        rule = GaussianFilter(BUDGET)
        both = charge(rule, Composed((Gaussian(10.0), Laplace(20.0), BoundedRange(0.05))))["mu"]
        parts = charge(rule, Gaussian(10.0))["mu"], charge(rule, Pure(0.05))["mu"]
        assert both == pytest.approx(math.sqrt(parts[0] ** 2 + 2.0 * parts[1] ** 2), rel=1e-9)

    def test_others_have_no_price(self):
        with pytest.raises(ValueError, match="filter 'renyi' or 'basic' for other events"):
            charge(GaussianFilter(BUDGET), PoissonSampled(0.1, Gaussian(1.0)))


class TestRenyi:
    def test_the_limit_is_the_budget(self):
        rule = make_filter("renyi", BUDGET)
        assert rule.allows([{"divergence": rule.limit}])
        assert not rule.allows([{"divergence": rule.limit}, {"divergence": 1e-9}])
        assert rule.spent([{"divergence": rule.limit}])["epsilon"] == pytest.approx(1.0, rel=1e-12)
        assert rule.spent([]) == {"epsilon": 0.0, "delta": 1e-6}

    def test_the_default_order_lets_through_the_most_gaussian_noise(self):
        def mu_squared(order):
            return 2.0 * RenyiFilter(BUDGET, order).limit / order

        best = make_filter("renyi", BUDGET).order
        assert mu_squared(best) >= max(mu_squared(best - 1), mu_squared(best + 1))
        # Loss of one Rényi order against the exact accounting of Gaussian noise.
        assert 0.85 < mu_squared(best) / BUDGET.gdp_mu() ** 2 < 1.0

    @pytest.mark.parametrize("order", [2, 7, 30, 300])
    @pytest.mark.parametrize(
        ("rate", "sigma"), [(0.01, 1.0), (1e-6, 5.0), (0.5, 0.3), (0.999, 2.0), (1.0, 2.0)]
    )
    def test_sample_cost_equals_dp_accounting(self, order, rate, sigma):
        accounting = pytest.importorskip("dp_accounting")
        theirs = accounting.rdp.RdpAccountant([order])
        theirs.compose(accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(sigma)))
        ours = renyi_divergence(PoissonSampled(rate, Gaussian(sigma)), ZERO_OUT, order)
        assert ours == pytest.approx(float(theirs._rdp[0]), rel=1e-4)

    def test_sample_of_nearly_all_rows_costs_as_all_rows(self):
        sampled = renyi_divergence(PoissonSampled(1.0 - 1e-12, Gaussian(3.0)), ZERO_OUT, 20)
        assert sampled == pytest.approx(renyi_divergence(Gaussian(3.0), ZERO_OUT, 20), rel=1e-9)
        assert renyi_divergence(Gaussian(3.0), ZERO_OUT, 20) == pytest.approx(20 / 18, rel=1e-9)

    @pytest.mark.parametrize("adjacency", Adjacency)
    @pytest.mark.parametrize(
        "event",
        [
            Gaussian(12.0),
            Repeated(Pure(0.03), 20),
            BoundedRange(0.2),
            PerturbedObjective(9.0, 0.1),
        ],
        ids=repr,
    )
    def test_bound_dominates_accountants(self, event, adjacency):
        rule = make_filter("renyi", BUDGET)
        epsilon = rule.spent([charge(rule, event, adjacency)])["epsilon"]
        assert epsilon >= RenyiAccountant().epsilon(event, adjacency, 1e-6) * (1.0 - 1e-9)
        assert epsilon >= accountant_for(event, adjacency).epsilon(event, adjacency, 1e-6) * 0.999

    def test_event_without_divergence_is_not_priced(self):
        with pytest.raises(ValueError, match="relation zero_out or add_remove"):
            charge(FILTERS[1], PoissonSampled(0.1, Gaussian(1.0)), Adjacency.REPLACE_ONE)


class TestBasic:
    def test_charges_the_tightest_epsilon(self):
        sgd = Repeated(PoissonSampled(0.01, Gaussian(2.0)), 100)
        price = charge(BasicFilter(BUDGET), sgd, delta=1e-7)
        assert price == {
            "epsilon": accountant_for(sgd, ZERO_OUT).epsilon(sgd, ZERO_OUT, 1e-7),
            "delta": 1e-7,
        }

    def test_both_sums_are_held(self):
        rule = BasicFilter(BUDGET)
        assert rule.allows([{"epsilon": 0.5, "delta": 5e-7}] * 2)
        assert not rule.allows([{"epsilon": 0.5, "delta": 6e-7}] * 2)
        assert not rule.allows([{"epsilon": 0.51, "delta": 1e-7}] * 2)
        assert rule.left([{"epsilon": 0.75, "delta": 2e-7}]) == {"epsilon": 0.25, "delta": 8e-7}

    def test_numbers_count_as_they_are_written(self):
        tenth = charge(BasicFilter(BUDGET), Pure(0.1), delta=0.0)
        assert BasicFilter(BUDGET).allows([tenth] * 10)
        assert not BasicFilter(BUDGET).allows([tenth] * 11)

    def test_gaussian_noise_needs_a_delta(self):
        with pytest.raises(ValueError, match="delta must be above 0, the event's part"):
            charge(BasicFilter(BUDGET), Gaussian(1.0))


def hockey_stick_of_pure(epsilon, at):
    """Expected value of ``(1 - exp(at - loss))_+`` of randomised response."""
    losses, shares = (epsilon, -epsilon), (expit(epsilon), expit(-epsilon))
    return sum(
        share * max(0.0, -math.expm1(at - loss)) for loss, share in zip(losses, shares, strict=True)
    )


def hockey_stick_of_gaussian(mu, at):
    return norm.cdf(mu / 2.0 - at / mu) - np.exp(at) * norm.cdf(-mu / 2.0 - at / mu)


def adaptive_delta(budget, first, gaussian_mu, pure_epsilon):
    """Delta of randomised response, then whichever of two events its outcome makes look best."""
    total = 0.0
    for loss, share in ((first, expit(first)), (-first, expit(-first))):
        left = budget.epsilon - loss
        total += share * max(
            hockey_stick_of_gaussian(gaussian_mu, left), hockey_stick_of_pure(pure_epsilon, left)
        )
    return total


def largest(fits):
    """The largest number that fits, where 0 does and 100 does not."""
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class TestAdaptiveChoice:
    """A data set's owner answers a first question; the second depends on the answer."""

    LARGE = ApproximateDP(0.715, 0.187)

    def test_summed_loss_distributions_are_not_a_filter(self):
        budget, first, gaussian_mu, pure_epsilon = self.LARGE, 0.3, 0.954, 1.0
        for second in (Gaussian(1.0 / gaussian_mu), Pure(pure_epsilon)):
            assert within_budget(Composed((Pure(first), second)), ZERO_OUT, budget)
        # Each is within the budget, but not the choice between them.
        delta = adaptive_delta(budget, first, gaussian_mu, pure_epsilon)
        assert delta > 1.2 * budget.delta

    @pytest.mark.parametrize("name", ["gaussian", "renyi", "basic"])
    @pytest.mark.parametrize("share", [0.1, 0.5])
    @pytest.mark.parametrize("budget", [LARGE, BUDGET], ids=repr)
    def test_filters_hold(self, name, share, budget):
        rule = make_filter(name, budget)

        def fits(*events):
            deltas = [0.0 if isinstance(event, Pure) else budget.delta for event in events]
            pairs = zip(events, deltas, strict=True)
            return rule.allows([charge(rule, event, delta=delta) for event, delta in pairs])

        first = share * largest(lambda epsilon: fits(Pure(epsilon)))
        gaussian_mu = largest(lambda mu: fits(Pure(first), Gaussian(1.0 / mu)))
        pure_epsilon = largest(lambda epsilon: fits(Pure(first), Pure(epsilon)))
        assert min(first, gaussian_mu, pure_epsilon) > 1e-3
        delta = adaptive_delta(budget, first, gaussian_mu, pure_epsilon)
        assert delta <= budget.delta * (1.0 + 1e-9)


class TestAll:
    @pytest.mark.parametrize("rule", FILTERS, ids=kind)
    def test_comes_back_from_json(self, rule):
        assert filter_from_dict(rule.to_dict()) == rule

    @pytest.mark.parametrize("rule", FILTERS, ids=kind)
    def test_nothing_costs_nothing(self, rule):
        nothing = charge(rule, Composed(()))
        assert set(nothing.values()) <= {0.0}
        assert rule.allows([nothing])
        assert rule.spent([nothing])["epsilon"] == 0.0

    @pytest.mark.parametrize("rule", FILTERS, ids=kind)
    def test_parallel_parts_need_a_public_number_of_rows(self, rule):
        halves = Parallel((Gaussian(9.0), Gaussian(7.0)))
        with pytest.raises(ValueError, match="adjacency must be"):
            charge(rule, halves, Adjacency.ADD_REMOVE, 1e-7)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: make_filter("rdp", BUDGET), "filter must be one of"),
            (lambda: make_filter("gaussian", ApproximateDP(1.0, 0.0)), "delta must be above 0"),
            (lambda: make_filter("renyi", ApproximateDP(1.0, 0.0)), "delta above 0 .* renyi"),
            (lambda: make_filter("renyi", GaussianDP(1.0)), "ApproximateDP.* renyi filter"),
            (lambda: make_filter("renyi", BUDGET, 3), "order must be large enough"),
            (lambda: make_filter("renyi", BUDGET, 2.5), "order must be an integer"),
            (lambda: make_filter("basic", GaussianDP(1.0)), "ApproximateDP.* basic filter"),
            (lambda: make_filter("basic", BUDGET, 8), "order must be None for a basic filter"),
            (lambda: GaussianFilter(1.0), "budget must be a PrivacyBudget"),
            (lambda: filter_from_dict({"type": "pld"}), "type must be one of .*'renyi'"),
            (lambda: filter_from_dict([]), "must be an object"),
            (lambda: filter_from_dict({"type": "basic"}), "must have the keys"),
            (lambda: renyi_divergence(Gaussian(1.0), ZERO_OUT, 1), "order must be an integer"),
        ],
    )
    def test_bad_input_is_named(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    def test_the_accountant_and_the_filter_agree_on_mu(self):
        event = Composed((Gaussian(3.0), Gaussian(4.0)))
        assert charge(FILTERS[0], event)["mu"] == GaussianAccountant().mu(event, ZERO_OUT)
