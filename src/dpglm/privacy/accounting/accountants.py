"""All accountants, the choice of one for an event, and the cost of an event."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

from dpglm.privacy.accounting.accountant import Accountant as Accountant
from dpglm.privacy.accounting.accountant import Curve, gaussian_mu
from dpglm.privacy.accounting.accountant import GaussianAccountant as GaussianAccountant
from dpglm.privacy.accounting.fourier import FourierAccountant as FourierAccountant
from dpglm.privacy.accounting.mixture import MixtureAccountant as MixtureAccountant
from dpglm.privacy.accounting.renyi import RenyiAccountant as RenyiAccountant
from dpglm.privacy.budget import Adjacency, PrivacyBudget
from dpglm.privacy.events import (
    Event,
    GaussianMechanism,
    MechanismEvent,
    RandomlyRepeated,
    canonical,
)
from dpglm.privacy.events.compositions import branches


@final
@dataclass(frozen=True)
class TightestAccountant(Accountant):
    """The least bound of several accountants.

    Parameters
    ----------
    accountants : tuple of Accountant
        At least one.

    Notes
    -----
    Privacy: each bound holds, so the least does.
    """

    accountants: tuple[Accountant, ...]

    @property
    def name(self) -> str:
        return " or ".join(one.name for one in self.accountants)

    @property
    def version(self) -> str:
        return " or ".join(one.version for one in self.accountants)

    def _knows(self, basic: Event) -> bool:
        return all(one._knows(basic) for one in self.accountants)

    def _plain_curve(self, event: Event, adjacency: Adjacency) -> Curve:
        curves = [one._plain_curve(event, adjacency) for one in self.accountants]
        return lambda epsilon: min(one(epsilon) for one in curves)


@final
@dataclass(frozen=True)
class PartwiseAccountant(Accountant):
    """For disjoint parts of the rows, to each part its own accountant."""

    accountants: tuple[Accountant, ...]

    @property
    def name(self) -> str:
        return " and ".join(dict.fromkeys(one.name for one in self.accountants))

    @property
    def version(self) -> str:
        return " and ".join(dict.fromkeys(one.version for one in self.accountants))

    def _knows(self, basic: Event) -> bool:
        return any(one._knows(basic) for one in self.accountants)

    def _curve(self, event: Event, adjacency: Adjacency) -> Curve:
        return accountant_for(event, adjacency).curve(event, adjacency)

    def _pure_epsilon(self, event: Event, adjacency: Adjacency) -> float:
        return accountant_for(event, adjacency).epsilon(event, adjacency, 0.0)


@final
@dataclass(frozen=True)
class RepetitionAccountant(Accountant):
    """The best of a random number of tries, from the tightest bounds on a single one.

    Notes
    -----
    Privacy: with m expected tries, r the ``log_ratio`` of their law and delta(e) the bound for one
    try, the best result is ``(e + r, m delta(e))``-DP. Supports a single ``RandomlyRepeated``;
    compositions need ``RenyiAccountant``.

    References
    ----------
    ``docs/proofs/random-repetition.md``; compare Papernot and Steinke, ICLR 2022, Theorems 2
    and 6, and Koskela, Redberg and Wang, ICML 2024.
    """

    name = "repetition"

    def supports(self, event: Event, adjacency: Adjacency) -> bool:
        # Not one of several: `_knows` alone would allow compositions.
        return self._knows(canonical(event))

    def _knows(self, basic: Event) -> bool:
        return isinstance(basic, RandomlyRepeated)

    def _curve(self, event: Event, adjacency: Adjacency) -> Curve:
        assert isinstance(event, RandomlyRepeated)
        of_try = _curve_of_try(event, adjacency)
        ratio, mean = event.repetitions.log_ratio(of_try), event.repetitions.mean * (1.0 + 1e-12)
        return lambda epsilon: min(1.0, mean * of_try(epsilon - ratio)) if epsilon >= ratio else 1.0

    def _pure_epsilon(self, event: Event, adjacency: Adjacency) -> float:
        assert isinstance(event, RandomlyRepeated)
        dearest = max(
            accountant_for(one, adjacency).epsilon(one, adjacency, 0.0) for one in event.events
        )
        if math.isinf(dearest):
            return dearest
        return dearest + event.repetitions.log_ratio(_curve_of_try(event, adjacency))


def _curve_of_try(event: RandomlyRepeated, adjacency: Adjacency) -> Curve:
    """Bound the dearest of the events that a single try can be."""
    curves = [accountant_for(one, adjacency).curve(one, adjacency) for one in event.events]
    return functools.cache(lambda epsilon: max(one(epsilon) for one in curves))


def accountant_for(event: Event, adjacency: Adjacency) -> Accountant:
    """Return the best accountant for an event; a ValueError if none supports it.

    It is the first that does of ``GaussianAccountant``, ``MixtureAccountant``,
    ``RepetitionAccountant``, the tighter one of ``FourierAccountant`` and ``RenyiAccountant`` (for
    exponential mechanisms and Gaussian releases), ``FourierAccountant``, and ``RenyiAccountant``
    for compositions of random repetitions.

    Parameters
    ----------
    event, adjacency
        See ``Accountant.supports``.
    """
    found = branches(event, adjacency)
    if found != (canonical(event),):
        parts = tuple(accountant_for(one, adjacency) for one in found)
        return parts[0] if len(set(parts)) == 1 else PartwiseAccountant(parts)
    if gaussian_mu(found[0]) is not None:
        return GaussianAccountant()
    fourier = FourierAccountant()
    choices: list[Accountant] = [MixtureAccountant(), RepetitionAccountant()]
    # Other events leave Renyi divergences nothing to win.
    others = [one for one, _ in found[0].terms if not isinstance(one, GaussianMechanism)]
    if all(isinstance(one, MechanismEvent) and one.is_dominated_loosely for one in others):
        choices.append(TightestAccountant((fourier, RenyiAccountant())))
    choices += [fourier, RenyiAccountant()]
    for accountant in choices:
        if accountant.supports(event, adjacency):
            return accountant
    raise ValueError(f"event must be one that an accountant supports, got {canonical(event)!r}")


# The cost of an event, and whether it is within a budget.


def within_budget(event: Event, adjacency: Adjacency, budget: PrivacyBudget) -> bool:
    """Whether an accountant proves that the cost of an event is within a budget.

    Parameters
    ----------
    event, adjacency
        See ``Accountant.supports``.
    budget : PrivacyBudget
        The budget. Only Gaussian events can be compared with mu-GDP or zCDP; others, and disjoint
        parts of the rows under add/remove, are a ValueError.
    """
    # Branch by branch in canonical form, exactly as calibration did.
    for one in branches(event, adjacency):
        mu = gaussian_mu(one)
        if mu is not None:
            fits = budget.allows_mu(mu)
        else:
            limit = budget.as_approximate_dp()
            accountant = accountant_for(one, adjacency)
            fits = delta_of(accountant, one, adjacency, limit.epsilon) <= limit.delta
        if not fits:
            return False
    return True


@functools.lru_cache(maxsize=1024)
def delta_of(accountant: Accountant, event: Event, adjacency: Adjacency, epsilon: float) -> float:
    """Return an accountant's delta, cached: a plan repeats the last query of the search."""
    return accountant.delta(event, adjacency, epsilon)
