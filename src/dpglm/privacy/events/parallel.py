"""Events on disjoint parts of the rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, final

from dpglm.privacy.events.base import BasicEvent, Event
from dpglm.privacy.events.compositions import Composed, describe_event, ordered

__all__ = ["DisjointParts", "Parallel", "SplitByCoins"]


@dataclass(frozen=True)
class DisjointParts(BasicEvent):
    """Events on disjoint parts of the rows: a row pays for what is released about its part."""

    n_may_be_private: ClassVar[bool]
    """Whether one row more leaves all others in the parts where they were."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        events = tuple(self.events)
        for event in events:
            if not isinstance(event, Event):
                raise ValueError(f"events must all be Event, got {event!r}")
        if not events:
            raise ValueError("events must be at least one event, got none")
        object.__setattr__(self, "events", tuple(sorted(map(ordered, events), key=repr)))

    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        released = tuple(event for event in self.events if event.terms())
        if len(released) < 2:
            return Composed(released).terms()
        return ((type(self)(released), 1),)

    def words(self, count: int) -> str:
        found, first = [], 1
        # Equal parts stand next to each other.
        for part, equal in itertools.groupby(self.events):
            last = first + len(list(equal)) - 1
            which = f"part {first}" if first == last else f"each of parts {first} to {last}"
            found.append(f"{which}: {' and '.join(describe_event(part)) or 'nothing'}")
            first = last + 1
        often = "" if count == 1 else f"{count} times, "
        parts = "; ".join(found)
        return f"{often}about disjoint parts of the rows, each row being in one: {parts}"


@final
@dataclass(frozen=True)
class Parallel(DisjointParts):
    """Events on disjoint parts of the rows, the parts fixed without looking at the data.

    Parameters
    ----------
    events : tuple of Event
        What is released about each part, at least one. Stored in canonical form and sorted, so
        that equal collections of parts are equal events.

    Notes
    -----
    Privacy: a row is in one part only, so what is released about the other parts does not
    depend on it, and the event costs as much as the dearest of its parts. In a composition
    each ``Parallel`` may split the rows differently: the cost is that of the dearest choice
    of one part from each. Accountants refuse it under add/remove, where the part that a row
    goes to may depend on how many rows there are: see ``SplitByCoins``.

    References
    ----------
    McSherry, "Privacy integrated queries", SIGMOD 2009, Theorem 4.

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian, Pure, Repeated
    >>> halves = Parallel((Gaussian(2.0), Pure(0.5)))
    >>> halves == Parallel((Pure(0.5), Repeated(Gaussian(2.0), 1)))
    True
    """

    n_may_be_private = False


@final
@dataclass(frozen=True)
class SplitByCoins(DisjointParts):
    """Events on disjoint parts of the rows, each row sent to its part by a coin of its own.

    Parameters
    ----------
    events : tuple of Event
        What is released about each part, at least one; stored as in ``Parallel``.

    Notes
    -----
    Privacy: the coins of different rows (of different persons, where these are the unit) are
    independent of each other and of the data, so that one row more or less leaves every other row
    in its part. Given the coins, neighbours differ in one part only, under any relation: the
    event costs as much as the dearest of its parts. A split into parts of fixed sizes is
    ``Parallel``.

    References
    ----------
    ``docs/proofs/splits.md``, Theorem 2.

    Examples
    --------
    >>> from dpglm.privacy import Adjacency, GaussianAccountant
    >>> from dpglm.privacy.events import Gaussian
    >>> split = SplitByCoins((Gaussian(4.0), Gaussian(2.0)))
    >>> round(GaussianAccountant().mu(split, Adjacency.ADD_REMOVE), 12)
    0.5
    """

    n_may_be_private = True
