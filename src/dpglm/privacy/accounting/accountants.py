"""All accountants, and the choice of one for an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from dpglm.privacy.accounting.accountant import Accountant as Accountant
from dpglm.privacy.accounting.accountant import GaussianAccountant as GaussianAccountant
from dpglm.privacy.accounting.accountant import check_parallel_parts
from dpglm.privacy.accounting.fourier import FourierAccountant as FourierAccountant
from dpglm.privacy.accounting.mixture import MixtureAccountant as MixtureAccountant
from dpglm.privacy.accounting.renyi import RenyiAccountant as RenyiAccountant
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    Event,
    GaussianMechanism,
    MechanismEvent,
    RandomlyRepeated,
    canonical,
)
from dpglm.privacy.events.compositions import branches, has_parts, leaves


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

    def _delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        return min(one._delta(event, adjacency, epsilon) for one in self.accountants)

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        return min(one._epsilon(event, adjacency, delta) for one in self.accountants)


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

    def _delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        return accountant_for(event, adjacency).delta(event, adjacency, epsilon)

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        return accountant_for(event, adjacency).epsilon(event, adjacency, delta)


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

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian
    >>> from dpglm.privacy.selection.repetitions import NegativeBinomialNumber
    >>> best = RandomlyRepeated((Gaussian(10.0),), NegativeBinomialNumber(0.1))
    >>> round(RepetitionAccountant().epsilon(best, Adjacency.ZERO_OUT, 1e-5), 4)
    0.5771
    """

    name = "repetition"

    def supports(self, event: Event, adjacency: Adjacency) -> bool:
        # Not one of several: `_knows` alone would allow compositions.
        return self._knows(canonical(event))

    def _knows(self, basic: Event) -> bool:
        return isinstance(basic, RandomlyRepeated)

    def _delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        assert isinstance(event, RandomlyRepeated)
        beyond = epsilon - self._log_ratio(event, adjacency)
        if beyond < 0.0:
            return 1.0
        one = _largest(event, lambda a, e: a.delta(e, adjacency, beyond), adjacency)
        return min(1.0, event.repetitions.mean * one * (1.0 + 1e-12))

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        assert isinstance(event, RandomlyRepeated)
        share = delta / event.repetitions.mean * (1.0 - 1e-12)
        one = _largest(event, lambda a, e: a.epsilon(e, adjacency, share), adjacency)
        return one + self._log_ratio(event, adjacency)

    def _log_ratio(self, event: RandomlyRepeated, adjacency: Adjacency) -> float:
        return event.repetitions.log_ratio(
            lambda epsilon: _largest(event, lambda a, e: a.delta(e, adjacency, epsilon), adjacency)
        )


def _largest(
    event: RandomlyRepeated, bound: Callable[[Accountant, Event], float], adjacency: Adjacency
) -> float:
    """Bound the dearest of the events that a single try can be."""
    return max(bound(accountant_for(one, adjacency), one) for one in event.events)


def accountant_for(event: Event, adjacency: Adjacency) -> Accountant:
    """Return the best accountant for an event.

    Parameters
    ----------
    event : Event
        The event.
    adjacency : Adjacency
        The relation of its noise multipliers.

    Returns
    -------
    Accountant
        The first that supports the event of ``GaussianAccountant``, ``MixtureAccountant``,
        ``RepetitionAccountant``, the tighter one of ``FourierAccountant`` and ``RenyiAccountant``
        (for exponential mechanisms and Gaussian releases), ``FourierAccountant``, and
        ``RenyiAccountant`` for compositions of random repetitions.

    Raises
    ------
    ValueError
        If no accountant supports the event.
    """
    check_parallel_parts(event, adjacency)
    if has_parts(event):
        parts = tuple(accountant_for(one, adjacency) for one in branches(event))
        return parts[0] if len(set(parts)) == 1 else PartwiseAccountant(parts)
    fourier = FourierAccountant()
    choices: list[Accountant] = [GaussianAccountant(), MixtureAccountant(), RepetitionAccountant()]
    # Other events leave Renyi divergences nothing to win.
    others = [one for one in leaves(event) if not isinstance(one, GaussianMechanism)]
    if all(isinstance(one, MechanismEvent) and one.is_dominated_loosely for one in others):
        choices.append(TightestAccountant((fourier, RenyiAccountant())))
    choices += [fourier, RenyiAccountant()]
    for accountant in choices:
        if accountant.supports(event, adjacency):
            return accountant
    raise ValueError(f"event must be one that an accountant supports, got {canonical(event)!r}")
