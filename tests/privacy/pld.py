"""dp-accounting's privacy loss distributions as an accountant: the independent check of ours."""

from __future__ import annotations

from typing import final

from dpglm.certificate.divergences import HockeySticks
from dpglm.privacy.accounting.accountant import Accountant, least_epsilon
from dpglm.privacy.events import MechanismEvent

__all__ = ["PLD"]


@final
class PLD(Accountant):
    """Connects the dots of every mechanism's delta, and composes with dp-accounting.

    Shares no formula with other accountants but the event and the detour of replace-one.
    """

    def __init__(self, fineness=1):
        self._fineness = fineness

    @property
    def name(self):
        return "pld"

    @property
    def version(self):
        return "dp-accounting"

    def _knows(self, basic):
        return isinstance(basic, MechanismEvent)

    def _curve(self, event, adjacency):
        if not event.terms:
            return lambda epsilon: 0.0
        return HockeySticks(event, adjacency, self._fineness).delta

    def _pure_epsilon(self, event, adjacency):
        return least_epsilon(self._curve(event, adjacency), 0.0)
