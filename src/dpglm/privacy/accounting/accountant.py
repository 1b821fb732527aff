"""Accountants: from events to (epsilon, delta); exact accounting of Gaussian events."""

from __future__ import annotations

import abc
import functools
import importlib.metadata
import math
from typing import final

from dpglm.privacy.accounting.reduction import (
    NO_PROFILE,
    Profile,
    Reduced,
    grouped_delta,
    grouped_epsilon,
    implied_delta,
    implied_epsilon,
    pure_group,
    reduce_event,
)
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Event, GaussianMechanism, canonical
from dpglm.privacy.events.compositions import branches, leaves, needs_public_n


class Accountant(abc.ABC):
    """Computes upper bounds on the privacy loss of an event; stateless.

    Notes
    -----
    Privacy: every number returned is on the safe side. An accountant never guesses: asked
    about an event it does not support it raises ``ValueError``. A row is in one part of each
    event on disjoint parts: bounds are computed for every choice of parts, and the largest is
    returned.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Short name for reports."""

    @property
    def version(self) -> str:
        """The library that computes, and its version."""
        return own_version()

    def supports(self, event: Event, adjacency: Adjacency) -> bool:
        """Whether this accountant can bound the event under the relation.

        Parameters
        ----------
        event : Event
            The event.
        adjacency : Adjacency
            The relation of its noise multipliers.

        Returns
        -------
        bool
            Never True for disjoint parts that an added row may change, under add/remove.
        """
        if adjacency is Adjacency.ADD_REMOVE and needs_public_n(event):
            return False
        return all(self._knows(basic) for basic in leaves(event))

    def delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        """Bound delta from above.

        Parameters
        ----------
        event : Event
            The event.
        adjacency : Adjacency
            The relation of its noise multipliers.
        epsilon : float
            At least 0, finite.

        Returns
        -------
        float
            In [0, 1]: the event is (epsilon, this)-DP under ``adjacency``.

        Raises
        ------
        ValueError
            If epsilon is out of range, or the event is not supported.
        """
        if not 0.0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be finite and at least 0, got {epsilon!r}")
        return max(
            self._least_delta(one, adjacency, epsilon) for one in self._branches(event, adjacency)
        )

    def epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        """Bound epsilon from above.

        Parameters
        ----------
        event : Event
            The event.
        adjacency : Adjacency
            The relation of its noise multipliers.
        delta : float
            In [0, 1).

        Returns
        -------
        float
            At least 0: the event is (this, delta)-DP under ``adjacency``; ``inf`` if no finite
            epsilon is known.

        Raises
        ------
        ValueError
            If delta is out of range, or the event is not supported.
        """
        if not 0.0 <= delta < 1.0:
            raise ValueError(f"delta must be in [0, 1), got {delta!r}")
        return max(
            self._least_epsilon(one, adjacency, delta) for one in self._branches(event, adjacency)
        )

    def _least_delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        bound = self._delta(event, adjacency, epsilon)
        groups = pure_group(event, adjacency)
        if groups is None:
            return bound
        rest, pure = groups
        of_pure = _best_for(pure, adjacency)
        return min(
            bound,
            grouped_delta(
                lambda share: self._delta(rest, adjacency, share),
                lambda share: of_pure.delta(pure, adjacency, share),
                of_pure.epsilon(pure, adjacency, 0.0),
                epsilon,
            ),
        )

    def _least_epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        bound = self._epsilon(event, adjacency, delta)
        groups = pure_group(event, adjacency)
        if groups is None or delta == 0.0:
            return bound
        rest, pure = groups
        of_pure = _best_for(pure, adjacency)
        return min(
            bound,
            grouped_epsilon(
                lambda share: self._epsilon(rest, adjacency, share),
                lambda share: of_pure.epsilon(pure, adjacency, share),
                delta,
            ),
        )

    def _branches(self, event: Event, adjacency: Adjacency) -> tuple[Event, ...]:
        check_parallel_parts(event, adjacency)
        if not self.supports(event, adjacency):
            raise ValueError(
                f"event must be one that the {self.name} accountant supports under "
                f"{adjacency.value}, got {canonical(event)!r}"
            )
        return branches(event)

    @abc.abstractmethod
    def _knows(self, basic: Event) -> bool:
        """Whether this accountant can bound compositions with this basic event in them."""

    def _profile(self, reduced: Reduced) -> Profile:
        """Bound the mechanisms of an event; by default no further than their Gaussian mu does."""
        return NO_PROFILE

    def _delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        """Bound delta of a supported event without parallel parts."""
        reduced = reduce_event(event, adjacency)
        return implied_delta(reduced, lambda: self._profile(reduced), epsilon)

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        """Bound epsilon of a supported event without parallel parts."""
        reduced = reduce_event(event, adjacency)
        return implied_epsilon(reduced, lambda: self._profile(reduced), delta)


def _best_for(event: Event, adjacency: Adjacency) -> Accountant:
    # Here, as the choice knows all accountants.
    from dpglm.privacy.accounting.accountants import accountant_for

    return accountant_for(event, adjacency)


def check_parallel_parts(event: Event, adjacency: Adjacency) -> None:
    """Raise ValueError for parallel parts under a relation that does not know them."""
    if adjacency is Adjacency.ADD_REMOVE and needs_public_n(event):
        raise ValueError(
            "adjacency must be zero_out or replace_one for events on disjoint parts of the rows of "
            f"fixed sizes (the number of rows must be public), got {adjacency.value}"
        )


# Looking it up takes milliseconds.
@functools.cache
def own_version() -> str:
    """Name this library and its version."""
    try:
        return f"dpglm {importlib.metadata.version('dpglm')}"
    except importlib.metadata.PackageNotFoundError:
        return "dpglm (not installed)"


@final
class GaussianAccountant(Accountant):
    """Exact accounting of Gaussian releases and last iterates.

    Notes
    -----
    Privacy: under adaptive composition the mu of mu-GDP mechanisms add in squares, and for
    Gaussian releases the result is exact (no other accountant can be tighter).

    References
    ----------
    Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022, Corollary 2.

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian, Repeated
    >>> event = Repeated(Gaussian(37.306), 100)
    >>> round(GaussianAccountant().epsilon(event, Adjacency.ZERO_OUT, 1e-5), 4)
    1.0
    """

    name = "gaussian"

    def mu(self, event: Event, adjacency: Adjacency) -> float:
        """Return the mu, rounded up, for which the event is mu-GDP under the relation."""
        return max(reduce_event(one, adjacency).mu for one in self._branches(event, adjacency))

    def _knows(self, basic: Event) -> bool:
        return isinstance(basic, GaussianMechanism)
