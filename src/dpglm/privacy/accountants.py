"""All accountants, and the choice of one for an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpglm.privacy.accountant import Accountant, check_parallel_parts
from dpglm.privacy.branches import branches, has_parallel_parts, leaves
from dpglm.privacy.events import BoundedRange, Event, Gaussian, LastIterate, canonical
from dpglm.privacy.fourier import FourierAccountant
from dpglm.privacy.gaussian import GaussianAccountant
from dpglm.privacy.mixtures import MixtureAccountant
from dpglm.privacy.pld import PLDAccountant
from dpglm.privacy.rdp import RenyiAccountant
from dpglm.privacy.unit import Adjacency

__all__ = [
    "Accountant",
    "FourierAccountant",
    "GaussianAccountant",
    "MixtureAccountant",
    "PLDAccountant",
    "RenyiAccountant",
    "TightestAccountant",
    "accountant_for",
]


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
    """For disjoint parts of the rows, to each part its own accountant.

    Parameters
    ----------
    accountants : tuple of Accountant
        Those of the parts, at least one.
    """

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
        return accountant_for(event, adjacency)._delta(event, adjacency, epsilon)

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        return accountant_for(event, adjacency)._epsilon(event, adjacency, delta)


def accountant_for(event: Event, adjacency: Adjacency) -> Accountant:
    """Choose the exact accountant where it applies, the numerical one elsewhere.

    Parameters
    ----------
    event : Event
        What is released.
    adjacency : Adjacency
        The relation to which the event's noise multipliers refer.

    Returns
    -------
    Accountant
        The first that supports the event of ``GaussianAccountant``, ``MixtureAccountant``,
        ``PLDAccountant``, the tighter one of ``FourierAccountant`` and ``RenyiAccountant`` (for
        exponential mechanisms and Gaussian releases), and ``FourierAccountant``.

    Raises
    ------
    ValueError
        If no accountant supports the event.
    """
    check_parallel_parts(event, adjacency)
    if has_parallel_parts(event):
        parts = tuple(accountant_for(one, adjacency) for one in branches(event))
        return parts[0] if len(set(parts)) == 1 else PartwiseAccountant(parts)
    fourier = FourierAccountant()
    choices: list[Accountant] = [GaussianAccountant(), MixtureAccountant(), PLDAccountant()]
    kinds = {type(basic) for basic in leaves(event)}
    # Other events leave Renyi divergences nothing to win.
    if BoundedRange in kinds and kinds <= {BoundedRange, Gaussian, LastIterate}:
        choices.append(TightestAccountant((fourier, RenyiAccountant())))
    choices.append(fourier)
    for accountant in choices:
        if accountant.supports(event, adjacency):
            return accountant
    raise ValueError(f"event must be one that an accountant supports, got {canonical(event)!r}")
