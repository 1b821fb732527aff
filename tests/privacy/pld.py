"""dp-accounting's privacy loss distributions as an accountant: the independent check of ours."""

from __future__ import annotations

import functools
import math
from typing import final

from dpglm.certificate.checker.divergences import HockeySticks
from dpglm.privacy.accounting.accountant import Accountant
from dpglm.privacy.accounting.reduction import least_epsilon
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

    def _delta(self, event, adjacency, epsilon):
        if not event.terms():
            return 0.0
        return HockeySticks(event, adjacency, self._fineness).delta(epsilon)

    def _epsilon(self, event, adjacency, delta):
        if not event.terms():
            return 0.0
        delta_at = functools.partial(self._delta, event, adjacency)
        if delta_at(0.0) <= delta:
            return 0.0
        return least_epsilon(delta_at, delta, (0.0, 1.0), 1e6) if delta > 0.0 else math.inf
