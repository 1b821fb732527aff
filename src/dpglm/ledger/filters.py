"""Privacy filters: rules that limit events which are chosen adaptively."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, TypeAlias, final

from scipy.special import log_expit, ndtri_exp

from dpglm._codec import Form, decode, encode
from dpglm._validation import check_integer, check_one_of, check_real
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountant import check_parallel_parts
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.accounting.renyi import renyi_divergence
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget, budget_from_dict
from dpglm.privacy.events import Composed, Event, Mechanism, Repeated
from dpglm.privacy.events.compositions import branches

# The Gaussian release that dominates an event.

_ROUNDING = 1.0 + 1e-12


def dominating_mu(event: Event, adjacency: Adjacency) -> float:
    """Return a mu, rounded up, for which an event is mu-GDP.

    Exact where all is Gaussian; else the root of the sum of squares, an epsilon-DP part counted
    with ``2 Phi^-1(exp(epsilon) / (1 + exp(epsilon)))``. Of parts on disjoint rows, the largest.

    >>> from dpglm.privacy.events import Pure
    >>> round(dominating_mu(Pure(0.1), Adjacency.ZERO_OUT), 5)
    0.12531
    """
    check_parallel_parts(event, adjacency)
    return max(_mu(one, adjacency) for one in branches(event))


def _mu(event: Event, adjacency: Adjacency) -> float:
    """Bound the mu of a composition without parallel parts."""
    squares: list[float] = []
    gaussian: list[Event] = []
    for basic, count in event.terms():
        epsilon = basic.pure_epsilon if isinstance(basic, Mechanism) else None
        if epsilon is not None:
            squares.append(count * _mu_of_pure(float(epsilon)) ** 2)
        else:
            gaussian.append(Repeated(basic, count))
    rest, accountant = Composed(tuple(gaussian)), GaussianAccountant()
    if not accountant.supports(rest, adjacency):
        raise ValueError(
            "event must be Gaussian or epsilon-DP throughout for a ledger that adds up mu^2; a "
            f"ledger with filter 'renyi' or 'basic' takes others; got {rest!r}"
        )
    if not squares:
        return accountant.mu(rest, adjacency)
    return math.sqrt(math.fsum([*squares, accountant.mu(rest, adjacency) ** 2])) * _ROUNDING


def _mu_of_pure(epsilon: float) -> float:
    # ndtri_exp loses digits, but none that matter, where its argument is close to log(1/2).
    return -2.0 * float(ndtri_exp(log_expit(-epsilon))) * _ROUNDING + 1e-14


# What is spent at a time that results choose: brackets of a budget.

USUAL_DELTA = 1e-6
"""The delta of statements for budgets that have none."""


@final
@dataclass(frozen=True)
class Bracket:
    """A limit, ``most / 2^(k - 1)``, and its share ``6 / (pi k)^2`` of delta; shares sum to 1."""

    limit: float
    share: float


def brackets(spent: float, most: float) -> tuple[Bracket, ...]:
    """List the limits that cover what was spent, any of which may be stated.

    Privacy: *if whatever stays within the k-th limit is (e_k, d_k)-DP, chosen adaptively, then
    what was shown up to any moment, chosen by looking at it, satisfies
    ``P(S) <= E_Q(exp(e_k) 1_S) + sum d_k`` for every set S of outcomes, k being a bracket that
    covers what was spent, chosen by the outcome.* Proof: let the outcomes of S that choose
    bracket k be ``S_k``. They are outcomes of the interaction that a filter with the k-th limit
    ends, so ``P(S_k) <= exp(e_k) Q(S_k) + d_k``; add over k. Limits and shares are fixed before
    anything is spent.

    Rogers, Roth, Ullman and Vadhan, "Privacy odometers and filters: pay-as-you-go composition",
    NeurIPS 2016, Definition 3.3. Whitehouse, Ramdas, Rogers and Wu, "Fully-adaptive composition
    in differential privacy", ICML 2023, for tighter ones.

    >>> [one.limit for one in brackets(0.3, 1.0)]
    [1.0, 0.5]
    """
    halvings = max(0, math.floor(math.log2(most / spent)))
    while halvings > 0 and math.ldexp(most, -halvings) < spent:
        halvings -= 1
    return tuple(
        Bracket(max(spent, math.ldexp(most, -k)), 6.0 / (math.pi * (k + 1)) ** 2)
        for k in range(halvings + 1)
    )


Charge: TypeAlias = Mapping[str, float]
"""What one event costs, in the filter's own quantities."""
_TypedBudget: TypeAlias = Annotated[ApproximateDP, Form(PrivacyBudget.to_dict, budget_from_dict)]
"""Written with its type, as the budgets of all filters are."""
_MOST_ORDERS = 10_000


class PrivacyFilter(abc.ABC):
    """A rule that adds up the costs of events and limits them.

    Notes
    -----
    Privacy: if every event that was let through is charged, then all together are within the
    filter's budget, even if each of them, with its parameters, was chosen after looking at the
    results of those before. ``docs/ledger.md`` has the proofs. Sums of privacy-loss
    distributions, which are right for events that are fixed in advance, have no such property.
    """

    budget: PrivacyBudget

    @abc.abstractmethod
    def charge(self, event: Event, adjacency: Adjacency, delta: float | None) -> dict[str, float]:
        """Price an event, rounded up; a ValueError if the filter has no price for it.

        ``delta`` is the part of the budget's delta that is meant for the event, for filters that
        add up deltas.
        """

    @abc.abstractmethod
    def allows(self, charges: Sequence[Charge]) -> bool:
        """Whether events with these charges are within the budget together."""

    @abc.abstractmethod
    def spent(self, charges: Sequence[Charge]) -> dict[str, float]:
        """Return what events with these charges spend together, in the budget's currency.

        Privacy: for a set of events that is ended without looking at their results. At a time that
        results have chosen, the true loss may be larger: see ``spent_at_any_time``.
        """

    @abc.abstractmethod
    def spent_at_any_time(self, charges: Sequence[Charge]) -> dict[str, float]:
        """Bound what was spent up to a time that results may have chosen, as epsilon and delta.

        Delta is the budget's, or 1e-6 for budgets that have none. Privacy: with the epsilon e that
        is returned at the time of stopping, which depends on the outcome, ``P(S) <= E_Q(exp(e) 1_S)
        + delta`` for every set S of outcomes: an odometer.
        """

    @abc.abstractmethod
    def left(self, charges: Sequence[Charge]) -> dict[str, float]:
        """Return what may still be charged, in the filter's own quantities."""

    @final
    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values from which ``filter_from_dict`` makes an equal filter."""
        document: dict[str, Any] = encode(self, PrivacyFilter)
        return document


@final
@dataclass(frozen=True)
class GaussianFilter(PrivacyFilter):
    """Adds up squares of mu: exact for events that are Gaussian throughout.

    Parameters
    ----------
    budget : PrivacyBudget
        What all events together may spend; a delta of 0 is no budget for Gaussian noise.

    Notes
    -----
    Privacy: an epsilon-DP event is charged as the Gaussian release that dominates it,
    ``mu = 2 Phi^-1(exp(epsilon) / (1 + exp(epsilon)))``, about ``1.25 epsilon``. Events that no
    Gaussian release dominates, such as those on Poisson samples, have no price.

    References
    ----------
    Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022,
    arXiv 2210.17520. Koskela, Tobaben and Honkela, "Individual privacy accounting with Gaussian
    differential privacy", ICLR 2023.

    Examples
    --------
    >>> from dpglm.privacy import Gaussian, GaussianDP
    >>> rule = GaussianFilter(GaussianDP(1.0))
    >>> half = rule.charge(Gaussian(2.0), Adjacency.ZERO_OUT, None)
    >>> round(half["mu"], 9), rule.left([half] * 3)["mu"] < 0.5
    (0.5, True)
    """

    type_name: ClassVar[str] = "gaussian"

    budget: PrivacyBudget

    def __post_init__(self) -> None:
        if not isinstance(self.budget, PrivacyBudget):
            raise ValueError(f"budget must be a PrivacyBudget, got {self.budget!r}")
        self.budget.gdp_mu()  # raises for a delta of 0

    def charge(self, event: Event, adjacency: Adjacency, delta: float | None) -> dict[str, float]:
        return {"mu": dominating_mu(event, adjacency)}

    def allows(self, charges: Sequence[Charge]) -> bool:
        return self.budget.allows_mu(_total_mu(charges))

    def spent(self, charges: Sequence[Charge]) -> dict[str, float]:
        return self.budget.statement_for_mu(_total_mu(charges))

    def spent_at_any_time(self, charges: Sequence[Charge]) -> dict[str, float]:
        delta = self.budget.to_dict().get("delta", USUAL_DELTA)
        total = _total_mu(charges)
        if total == 0.0:
            return {"epsilon": 0.0, "delta": delta}
        epsilon = min(
            gdp.epsilon(one.share * delta, math.sqrt(one.limit) * _ROUNDING)
            for one in brackets(total**2, self.budget.gdp_mu() ** 2)
        )
        return {"epsilon": epsilon, "delta": delta}

    def left(self, charges: Sequence[Charge]) -> dict[str, float]:
        largest, total = self.budget.gdp_mu(), _total_mu(charges)
        return {"mu": math.sqrt(max(0.0, (largest - total) * (largest + total))) / _ROUNDING}


@final
@dataclass(frozen=True)
class RenyiFilter(PrivacyFilter):
    """Adds up Renyi divergences of one order, fixed in advance; for nearly all events.

    Parameters
    ----------
    budget : ApproximateDP
        What all events together may spend, with a delta above 0.
    order : int
        Order of the divergence, at least 2. ``make_filter`` takes the one that lets through the
        most Gaussian noise; smaller ones suit sparse samples with little noise.

    References
    ----------
    Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021. Canonne,
    Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
    Proposition 12.

    Examples
    --------
    >>> from dpglm.privacy import Gaussian
    >>> rule = RenyiFilter(ApproximateDP(1.0, 1e-6), order=22)
    >>> round(rule.charge(Gaussian(20.0), Adjacency.ZERO_OUT, None)["divergence"], 6)
    0.0275
    """

    type_name: ClassVar[str] = "renyi"

    budget: _TypedBudget
    order: int

    def __post_init__(self) -> None:
        if _checked(self.budget, "renyi").delta == 0.0:
            raise ValueError(
                f"budget must have a delta above 0 for a renyi filter, got {self.budget!r}"
            )
        check_integer("order", self.order, least=2)
        if self.limit <= 0.0:
            raise ValueError(
                f"order must be large enough for {self.budget!r} to allow any divergence, got "
                f"{self.order!r}"
            )

    @property
    def limit(self) -> float:
        """The largest divergence that implies the budget."""
        return _largest_divergence(self.budget, self.order)

    def charge(self, event: Event, adjacency: Adjacency, delta: float | None) -> dict[str, float]:
        divergence = renyi_divergence(event, adjacency, self.order)
        if math.isinf(divergence):
            raise ValueError(
                f"event must have a finite divergence of order {self.order}, got {event!r}"
            )
        return {"divergence": divergence}

    def allows(self, charges: Sequence[Charge]) -> bool:
        return _sum(charges, "divergence") <= _exact(self.limit)

    def spent(self, charges: Sequence[Charge]) -> dict[str, float]:
        total = float(_sum(charges, "divergence"))
        at_no_divergence = self.budget.epsilon - self.limit
        epsilon = max(0.0, total + at_no_divergence) if total > 0.0 else 0.0
        return {"epsilon": epsilon, "delta": self.budget.delta}

    def spent_at_any_time(self, charges: Sequence[Charge]) -> dict[str, float]:
        total = float(_sum(charges, "divergence"))
        if total == 0.0:
            return {"epsilon": 0.0, "delta": self.budget.delta}
        at_no_divergence = self.budget.epsilon - self.limit
        least = min(
            one.limit - math.log(one.share) / (self.order - 1.0)
            for one in brackets(total, self.limit)
        )
        epsilon = max(0.0, (least + at_no_divergence) * _ROUNDING)
        return {"epsilon": epsilon, "delta": self.budget.delta}

    def left(self, charges: Sequence[Charge]) -> dict[str, float]:
        return {"divergence": _difference(self.limit, charges, "divergence")}


@final
@dataclass(frozen=True)
class BasicFilter(PrivacyFilter):
    """Adds up epsilons and deltas: for all events, and best for a few large ones.

    Parameters
    ----------
    budget : ApproximateDP
        What all events together may spend; with a delta of 0, pure events only.

    Notes
    -----
    Privacy: each event reserves an (epsilon, delta) of its own, its epsilon the least that an
    accountant shows for that event by itself.

    References
    ----------
    Rogers, Roth, Ullman and Vadhan, "Privacy odometers and filters: pay-as-you-go composition",
    NeurIPS 2016.

    Examples
    --------
    >>> from dpglm.privacy import Pure
    >>> rule = BasicFilter(ApproximateDP(1.0, 0.0))
    >>> tenth = rule.charge(Pure(0.1), Adjacency.ZERO_OUT, None)
    >>> tenth, rule.allows([tenth] * 10), rule.allows([tenth] * 11)
    ({'epsilon': 0.1, 'delta': 0.0}, True, False)
    """

    type_name: ClassVar[str] = "basic"

    budget: _TypedBudget

    def __post_init__(self) -> None:
        _checked(self.budget, "basic")

    def charge(self, event: Event, adjacency: Adjacency, delta: float | None) -> dict[str, float]:
        share = 0.0 if delta is None else check_real("delta", delta, least=0.0, below=1.0)
        epsilon = accountant_for(event, adjacency).epsilon(event, adjacency, share)
        if math.isinf(epsilon):
            raise ValueError(
                "delta must be what this event may use of the ledger's delta, above 0, as it has "
                f"no finite epsilon at a delta of {share!r}"
            )
        return {"epsilon": epsilon, "delta": share}

    def allows(self, charges: Sequence[Charge]) -> bool:
        return all(_sum(charges, name) <= _exact(limit) for name, limit in self._limits())

    def spent(self, charges: Sequence[Charge]) -> dict[str, float]:
        return {name: float(_sum(charges, name)) for name, _ in self._limits()}

    def spent_at_any_time(self, charges: Sequence[Charge]) -> dict[str, float]:
        # Sums of epsilons bound the loss at every moment, but for the sum of all deltas, which
        # is at most the budget's (the proof in docs/ledger.md, with epsilon a function of S).
        return {"epsilon": self.spent(charges)["epsilon"], "delta": self.budget.delta}

    def left(self, charges: Sequence[Charge]) -> dict[str, float]:
        return {name: _difference(limit, charges, name) for name, limit in self._limits()}

    def _limits(self) -> tuple[tuple[str, float], ...]:
        return (("epsilon", self.budget.epsilon), ("delta", self.budget.delta))


_FILTERS: dict[str, Callable[..., PrivacyFilter]] = {
    kind.type_name: kind for kind in (GaussianFilter, RenyiFilter, BasicFilter)
}


def make_filter(name: str, budget: PrivacyBudget, order: int | None = None) -> PrivacyFilter:
    """Make a filter by name.

    Parameters
    ----------
    name : {"gaussian", "renyi", "basic"}
        ``GaussianFilter``, ``RenyiFilter`` or ``BasicFilter``.
    budget : PrivacyBudget
        What all events together may spend.
    order : int, optional
        For "renyi": the order; default, the one that lets through the most Gaussian noise.

    Returns
    -------
    PrivacyFilter

    Raises
    ------
    ValueError
        If the name is unknown, the budget is not of the filter's kind, or an order is given to a
        filter that has none.

    Examples
    --------
    >>> make_filter("renyi", ApproximateDP(1.0, 1e-6)).to_dict()["order"]
    22
    """
    check_one_of("filter", name, list(_FILTERS))
    if order is not None and name != "renyi":
        raise ValueError(f"order must be None for a {name} filter, got {order!r}")
    if name == "renyi" and order is None and isinstance(budget, ApproximateDP) and budget.delta:
        limits = ((_largest_divergence(budget, a) / a, a) for a in range(2, _MOST_ORDERS))
        order = max(limits)[1]
    return _FILTERS[name](budget, order) if name == "renyi" else _FILTERS[name](budget)


def filter_from_dict(mapping: Any) -> PrivacyFilter:
    """Read back what ``PrivacyFilter.to_dict`` wrote.

    Parameters
    ----------
    mapping : mapping
        The JSON object.

    Returns
    -------
    PrivacyFilter
        Equal to the one that was written.

    Raises
    ------
    ValueError
        If the type is unknown, a key is missing or unknown, or a value is not allowed.
    """
    return decode(PrivacyFilter, mapping)  # type: ignore[type-abstract]


def _checked(budget: object, name: str) -> ApproximateDP:
    if not isinstance(budget, ApproximateDP):
        raise ValueError(
            f"budget must be ApproximateDP, (epsilon, delta), for a {name} filter, got {budget!r}"
        )
    return budget


def _total_mu(charges: Sequence[Charge]) -> float:
    return math.sqrt(math.fsum(charge["mu"] ** 2 for charge in charges))


def _largest_divergence(budget: ApproximateDP, order: int) -> float:
    logarithms = math.log(budget.delta) + math.log(order)
    return budget.epsilon - math.log1p(-1.0 / order) + logarithms / (order - 1.0)


def _exact(number: float) -> Fraction:
    """Read a number as it is written: ten times 0.1 is 1."""
    return Fraction(repr(float(number)))


def _sum(charges: Sequence[Charge], name: str) -> Fraction:
    return sum((_exact(charge[name]) for charge in charges), Fraction(0))


def _difference(limit: float, charges: Sequence[Charge], name: str) -> float:
    return max(0.0, float(_exact(limit) - _sum(charges, name)))
