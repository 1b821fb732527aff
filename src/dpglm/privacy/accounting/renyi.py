"""Accounting by Renyi divergences, the tightest way known for many exponential mechanisms."""

from __future__ import annotations

import functools
import importlib.metadata
import math
from collections.abc import Callable
from typing import TypeAlias, final

import numpy as np

from dpglm._validation import check_integer, check_real
from dpglm.privacy.accounting import accountant
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import (
    Composed,
    Event,
    MechanismEvent,
    RandomlyRepeated,
    Repeated,
    canonical,
)
from dpglm.privacy.events.base import Array
from dpglm.privacy.events.compositions import branches, has_parts, leaves

# Orders minus 1 on a logarithmic grid, which is refined around the best one.
_LOWEST, _HIGHEST, _COARSE, _FINE = 1e-6, 1e10, 400, 60
_ROUNDING = 1.0 + 1e-11


@final
class RenyiAccountant(accountant.Accountant):
    """Accounting by Renyi differential privacy of every real order above 1.

    Notes
    -----
    Privacy: Renyi divergences of order a add up under adaptive composition. A release with
    divergence at most R(a) for removing and adding a row has ``log delta(e) <= (a - 1) (R(a) - e +
    log(1 - 1/a)) - log(a)`` for each a, and the minimum over many a is taken. Supports every event
    except Poisson samples. It is tighter than other accountants for many exponential mechanisms
    only (``BoundedRange``, ``a epsilon^2 / 8``), and is the only one that composes random
    repetitions with other events. The best of a random number of tries with mean m and
    ``log_ratio`` r has a divergence of at most ``R(a) + r + log(m) / (a - 1)``; the probability of
    no try is added to the moment.

    References
    ----------
    Mironov, "Renyi differential privacy", CSF 2017, Propositions 1, 6 and 7. Canonne, Kamath
    and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.
    Bun and Steinke, "Concentrated differential privacy", TCC 2016, Proposition 3.3. Cesar and
    Rogers, "Bounding, concentrating, and truncating", ALT 2021. Papernot and Steinke, ICLR
    2022, Lemma 7.

    Examples
    --------
    >>> from dpglm.privacy.events import BoundedRange, Repeated
    >>> choices = Repeated(BoundedRange(0.1), 200)
    >>> round(RenyiAccountant().epsilon(choices, Adjacency.ZERO_OUT, 1e-6), 3)
    3.542
    """

    name = "renyi"

    @property
    def version(self) -> str:
        return f"{accountant.own_version()}, numpy {importlib.metadata.version('numpy')}"

    def _knows(self, basic: Event) -> bool:
        if isinstance(basic, RandomlyRepeated):
            return not any(map(has_parts, basic.events)) and all(
                self._knows(inner) for one in basic.events for inner in leaves(one)
            )
        if not isinstance(basic, MechanismEvent):
            return False
        return basic.divergence(np.ones(1), Adjacency.ZERO_OUT) is not None

    def divergence(self, event: Event, adjacency: Adjacency, order: float) -> float:
        """Bound the divergence of an order above 1, for removing and for adding a row.

        It is ``inf`` without a bound; an event that is not supported is a ValueError.
        """
        excess = np.array([check_real("order", order, above=1.0) - 1.0])
        return max(
            float(_reduced(one, adjacency)[1](excess)[0])
            for one in self._branches(event, adjacency)
        )

    def _plain_curve(self, event: Event, adjacency: Adjacency) -> accountant.Curve:
        reduced, divergence, has_tries = _reduced(event, adjacency)
        curve = functools.partial(_delta, divergence)
        return curve if has_tries else accountant.implied_curve(reduced, lambda: curve)

    def _pure_epsilon(self, event: Event, adjacency: Adjacency) -> float:
        reduced, _, has_tries = _reduced(event, adjacency)
        return math.inf if has_tries else reduced.pure_epsilon


def renyi_divergence(event: Event, adjacency: Adjacency, order: int) -> float:
    """Bound the Renyi divergence between the laws of an event's output on neighbours.

    The order is at least 2; the bound holds for removing and adding a row, is rounded up, and is
    ``inf`` if there is none. Poisson samples under replace-one, and of other than Gaussian
    releases, raise ValueError.

    Privacy: divergences add up under adaptive composition.
    """
    check_integer("order", order, least=2)
    bounds = []
    for branch in branches(event, adjacency):
        total, others = 0.0, []
        for basic, count in branch.terms:
            if not isinstance(basic, MechanismEvent):
                others.append(Repeated(basic, count))
                continue
            found = basic.divergence_of_order(order, adjacency)
            if found is None:
                raise ValueError(
                    "event must be a Gaussian release where it is Poisson-sampled, and the "
                    f"relation zero_out or add_remove, for a Renyi divergence; got {basic!r} under "
                    f"{adjacency.value}"
                )
            total += count * found
        rest = Composed(tuple(others))
        bounds.append(total + RenyiAccountant().divergence(rest, adjacency, order))
    return max(bounds) * _ROUNDING


Divergence: TypeAlias = Callable[[Array], Array]
"""A bound on Renyi divergences of orders ``1 + excess``, given the excess."""


def _reduced(event: Event, adjacency: Adjacency) -> tuple[accountant.Reduced, Divergence, bool]:
    """Reduce an event but for random repetitions; bound the divergences of all; say if any is."""
    plain: list[Event] = []
    repeated: list[tuple[Divergence, int]] = []
    for basic, count in canonical(event).terms:
        if isinstance(basic, RandomlyRepeated):
            repeated.append((_of_tries(basic, adjacency), count))
        else:
            plain.append(Repeated(basic, count))
    reduced = accountant.reduce_event(Composed(tuple(plain)), adjacency)

    def divergence(excess: Array) -> Array:
        total = 0.5 * (1.0 + excess) * reduced.mu**2
        for one, count in reduced.others:
            found = one.divergence(excess, reduced.adjacency)
            total = total + (math.inf if found is None else count * found)
        for of_tries, count in repeated:
            total = total + count * of_tries(excess)
        return np.asarray(total)

    return reduced, divergence, bool(repeated)


def _of_tries(event: RandomlyRepeated, adjacency: Adjacency) -> Divergence:
    """Bound the divergences of the best of a random number of tries."""
    singles = [_reduced(one, adjacency)[1] for one in event.events]
    repetitions = event.repetitions

    @functools.cache
    def log_ratio() -> float:
        return repetitions.log_ratio(lambda epsilon: max(_delta(one, epsilon) for one in singles))

    def divergence(excess: Array) -> Array:
        dearest = np.max([one(excess) for one in singles], axis=0)
        moment = math.log(repetitions.mean) + excess * (dearest + log_ratio())
        with np.errstate(divide="ignore"):
            moment = np.logaddexp(moment, np.log(repetitions.none))
        return np.asarray(moment / excess)

    return divergence


def _delta(divergence: Divergence, epsilon: float) -> float:
    """Bound delta by the best of many orders; any order is valid."""

    def log_deltas(logs: Array) -> Array:
        excess = np.exp(logs)
        moved = divergence(excess) + np.log(excess) - np.log1p(excess)
        return np.asarray(excess * (moved - epsilon) - np.log1p(excess))

    logs = np.linspace(math.log(_LOWEST), math.log(_HIGHEST), _COARSE)
    for _ in range(2):
        best = int(np.argmin(log_deltas(logs)))
        logs = np.linspace(logs[max(best - 1, 0)], logs[min(best + 1, logs.size - 1)], _FINE)
    return math.exp(min(0.0, float(np.min(log_deltas(logs)))))
