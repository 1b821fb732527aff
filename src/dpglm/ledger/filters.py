"""Privacy filters: budgets for events that are chosen adaptively."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, TypeAlias, final

from scipy.special import log_expit, ndtri_exp

from dpglm._codec import Form, decode, encode
from dpglm._validation import check_integer, check_kind, check_one_of, check_real
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.accounting.renyi import renyi_divergence
from dpglm.privacy.budget import Adjacency, ApproximateDP, PrivacyBudget, budget_from_dict
from dpglm.privacy.events import Composed, Event, MechanismEvent, Repeated
from dpglm.privacy.events.compositions import branches

_ROUNDING = 1.0 + 1e-12


# The odometer: brackets of a budget, for stopping times chosen from the results.

USUAL_DELTA = 1e-6
"""Delta of statements for budgets without one."""


def brackets(spent: float, most: float) -> list[tuple[float, float]]:
    """Return brackets that cover the total ``spent``: limits, and their shares of delta.

    A limit is ``most / 2^(k - 1)``, its share ``6 / (pi k)^2``; all shares sum to 1. Any of the
    brackets gives a valid bound.

    Privacy: *suppose every adaptive interaction within the k-th limit is (e_k, d_k)-DP. Then the
    results up to any stopping time, which may depend on them, satisfy
    ``P(S) <= E_Q(exp(e_k) 1_S) + sum d_k`` for every set S of outcomes, where k is a bracket that
    covers the total and may depend on the outcome.* Proof: let ``S_k`` be the outcomes in S that
    choose bracket k. They are outcomes of an interaction that stops at the k-th limit, so
    ``P(S_k) <= exp(e_k) Q(S_k) + d_k``; add over k. Limits and shares are fixed in advance.

    Rogers, Roth, Ullman and Vadhan, "Privacy odometers and filters: pay-as-you-go composition",
    NeurIPS 2016, Definition 3.3. Whitehouse, Ramdas, Rogers and Wu, "Fully-adaptive composition
    in differential privacy", ICML 2023, for tighter ones.
    """
    halvings = max(0, math.floor(math.log2(most / spent)))
    while halvings > 0 and math.ldexp(most, -halvings) < spent:
        halvings -= 1
    return [
        (max(spent, math.ldexp(most, -k)), 6.0 / (math.pi * (k + 1)) ** 2)
        for k in range(halvings + 1)
    ]


Charge: TypeAlias = Mapping[str, float]
"""Cost of an event, in the quantities of a filter."""
_TypedBudget: TypeAlias = Annotated[ApproximateDP, Form(PrivacyBudget.to_dict, budget_from_dict)]
"""Written with its type, as all budgets of filters."""
_MAX_ORDER = 10_000


class PrivacyFilter(abc.ABC):
    """A rule that adds up the costs of events, and limits the total.

    Notes
    -----
    Privacy: all admitted events together are within the filter's budget, even if each event and
    its parameters were chosen after looking at earlier results (``docs/proofs/filters.md``).
    Composition of privacy-loss distributions, valid for events fixed in advance, lacks this
    property.
    """

    budget: PrivacyBudget

    @abc.abstractmethod
    def charge(self, event: Event, adjacency: Adjacency, delta: float | None) -> dict[str, float]:
        """Return the cost of an event, rounded up; a ValueError if it is not supported.

        ``delta`` is the part of the budget's delta for the event, for filters that add up deltas.
        """

    @abc.abstractmethod
    def allows(self, charges: Sequence[Charge]) -> bool:
        """Whether the total of these charges is within the budget."""

    @abc.abstractmethod
    def spent(self, charges: Sequence[Charge]) -> dict[str, float]:
        """Return the total of these charges, in the budget's currency.

        Privacy: valid for a stopping time that does not depend on the results; otherwise see
        ``spent_at_any_time``.
        """

    @abc.abstractmethod
    def spent_at_any_time(self, charges: Sequence[Charge]) -> dict[str, float]:
        """Bound the total at a stopping time that may depend on the results.

        Delta is the budget's, or 1e-6 for budgets without one. Privacy: an odometer. The returned
        epsilon e, which depends on the outcome, satisfies ``P(S) <= E_Q(exp(e) 1_S) + delta`` for
        every set S of outcomes.
        """

    @abc.abstractmethod
    def left(self, charges: Sequence[Charge]) -> dict[str, float]:
        """Return the remaining budget, in the quantities of the filter."""

    @final
    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for ``filter_from_dict``."""
        document: dict[str, Any] = encode(self, PrivacyFilter)
        return document


@final
@dataclass(frozen=True)
class GaussianFilter(PrivacyFilter):
    """Adds up squares of mu: exact for Gaussian events.

    Parameters
    ----------
    budget : PrivacyBudget
        The total budget, with a delta above 0.

    Notes
    -----
    Privacy: an epsilon-DP event is charged as the Gaussian release that dominates it,
    ``mu = 2 Phi^-1(exp(epsilon) / (1 + exp(epsilon)))``, about ``1.25 epsilon``; squares add up,
    and for disjoint rows the largest mu counts. Events that no Gaussian release dominates, such as
    those on Poisson samples, are not supported.

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
        check_kind("budget", self.budget, PrivacyBudget, "a PrivacyBudget")
        self.budget.gdp_mu()  # raises for a delta of 0

    def charge(self, event: Event, adjacency: Adjacency, delta: float | None) -> dict[str, float]:
        found, accountant = [], GaussianAccountant()
        for branch in branches(event, adjacency):
            squares: list[float] = []
            gaussian: list[Event] = []
            for basic, count in branch.terms:
                epsilon = basic.pure_epsilon if isinstance(basic, MechanismEvent) else None
                if epsilon is None:
                    gaussian.append(Repeated(basic, count))
                    continue
                # Near log(1/2) ndtri_exp loses digits; 1e-14 covers them.
                mu = -2.0 * float(ndtri_exp(log_expit(-float(epsilon)))) * _ROUNDING + 1e-14
                squares.append(count * mu**2)
            rest = Composed(tuple(gaussian))
            if not accountant.supports(rest, adjacency):
                raise ValueError(
                    "event must be Gaussian or epsilon-DP for a ledger with filter 'gaussian', got "
                    f"{rest!r}. Create the ledger with filter 'renyi' or 'basic' for other events"
                )
            of_rest = accountant.mu(rest, adjacency)
            if squares:
                of_rest = math.sqrt(math.fsum([*squares, of_rest**2])) * _ROUNDING
            found.append(of_rest)
        return {"mu": max(found)}

    def allows(self, charges: Sequence[Charge]) -> bool:
        return self.budget.allows_mu(_total_mu(charges))

    def spent(self, charges: Sequence[Charge]) -> dict[str, float]:
        return self.budget.statement_for_mu(_total_mu(charges))

    def spent_at_any_time(self, charges: Sequence[Charge]) -> dict[str, float]:
        delta = vars(self.budget).get("delta", USUAL_DELTA)
        total = _total_mu(charges)
        if total == 0.0:
            return {"epsilon": 0.0, "delta": delta}
        epsilon = min(
            gdp.epsilon(share * delta, math.sqrt(limit) * _ROUNDING)
            for limit, share in brackets(total**2, self.budget.gdp_mu() ** 2)
        )
        return {"epsilon": epsilon, "delta": delta}

    def left(self, charges: Sequence[Charge]) -> dict[str, float]:
        largest, total = self.budget.gdp_mu(), _total_mu(charges)
        return {"mu": math.sqrt(max(0.0, (largest - total) * (largest + total))) / _ROUNDING}


@final
@dataclass(frozen=True)
class RenyiFilter(PrivacyFilter):
    """Adds up Renyi divergences of one order; supports nearly all events.

    Parameters
    ----------
    budget : ApproximateDP
        The total budget, with a delta above 0.
    order : int
        Order of the divergence, at least 2. ``make_filter`` chooses the one that is best for
        Gaussian noise; smaller orders suit sparse samples with little noise.

    References
    ----------
    Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021. Canonne,
    Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
    Proposition 12.
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
            limit - math.log(share) / (self.order - 1.0)
            for limit, share in brackets(total, self.limit)
        )
        epsilon = max(0.0, (least + at_no_divergence) * _ROUNDING)
        return {"epsilon": epsilon, "delta": self.budget.delta}

    def left(self, charges: Sequence[Charge]) -> dict[str, float]:
        return {"divergence": _difference(self.limit, charges, "divergence")}


@final
@dataclass(frozen=True)
class BasicFilter(PrivacyFilter):
    """Adds up epsilons and deltas: supports all events, and is best for a few large ones.

    Parameters
    ----------
    budget : ApproximateDP
        The total budget; with a delta of 0 for pure events only.

    Notes
    -----
    Privacy: each event is charged with its own (epsilon, delta), where epsilon is computed by an
    accountant.

    References
    ----------
    Rogers, Roth, Ullman and Vadhan, "Privacy odometers and filters: pay-as-you-go composition",
    NeurIPS 2016.
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
                "delta must be above 0, the event's part of the ledger's delta: epsilon is "
                f"infinite at a delta of {share!r}"
            )
        return {"epsilon": epsilon, "delta": share}

    def allows(self, charges: Sequence[Charge]) -> bool:
        return all(_sum(charges, name) <= _exact(limit) for name, limit in self._limits())

    def spent(self, charges: Sequence[Charge]) -> dict[str, float]:
        return {name: float(_sum(charges, name)) for name, _ in self._limits()}

    def spent_at_any_time(self, charges: Sequence[Charge]) -> dict[str, float]:
        # The sum of epsilons bounds the loss at every time, up to the sum of all deltas, which is
        # at most the budget's (proof in docs/proofs/filters.md, with epsilon a function of S).
        return {"epsilon": self.spent(charges)["epsilon"], "delta": self.budget.delta}

    def left(self, charges: Sequence[Charge]) -> dict[str, float]:
        return {name: _difference(limit, charges, name) for name, limit in self._limits()}

    def _limits(self) -> tuple[tuple[str, float], ...]:
        return (("epsilon", self.budget.epsilon), ("delta", self.budget.delta))


_FILTERS: dict[str, Callable[..., PrivacyFilter]] = {
    kind.type_name: kind for kind in (GaussianFilter, RenyiFilter, BasicFilter)
}


def make_filter(name: str, budget: PrivacyBudget, order: int | None = None) -> PrivacyFilter:
    """Return a filter by name.

    Parameters
    ----------
    name : {"gaussian", "renyi", "basic"}
        ``GaussianFilter``, ``RenyiFilter`` or ``BasicFilter``.
    budget : PrivacyBudget
        The total budget.
    order : int, optional
        Order of a "renyi" filter; default: the best one for Gaussian noise.

    Examples
    --------
    >>> make_filter("renyi", ApproximateDP(1.0, 1e-6)).to_dict()["order"]
    22
    """
    check_one_of("filter", name, list(_FILTERS))
    if order is not None and name != "renyi":
        raise ValueError(f"order must be None for a {name} filter, got {order!r}")
    if name == "renyi" and order is None and isinstance(budget, ApproximateDP) and budget.delta:
        limits = ((_largest_divergence(budget, a) / a, a) for a in range(2, _MAX_ORDER))
        order = max(limits)[1]
    return _FILTERS[name](budget, order) if name == "renyi" else _FILTERS[name](budget)


def filter_from_dict(mapping: Any) -> PrivacyFilter:
    """Read what ``PrivacyFilter.to_dict`` wrote.

    Parameters
    ----------
    mapping : mapping
        The JSON object; a ValueError names an unknown type, a missing or unknown key, or an invalid
        value.
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
    """Return the decimal value of a float, so that ten times 0.1 is 1."""
    return Fraction(repr(float(number)))


def _sum(charges: Sequence[Charge], name: str) -> Fraction:
    return sum((_exact(charge[name]) for charge in charges), Fraction(0))


def _difference(limit: float, charges: Sequence[Charge], name: str) -> float:
    return max(0.0, float(_exact(limit) - _sum(charges, name)))
