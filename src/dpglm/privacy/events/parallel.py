"""Events on disjoint parts of the rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import final

from dpglm.privacy.events.base import BasicEvent, Event
from dpglm.privacy.events.compositions import Composed, describe_event, ordered

__all__ = ["Parallel"]


@final
@dataclass(frozen=True)
class Parallel(BasicEvent):
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
    goes to may depend on how many rows there are.

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
        return ((Parallel(released), 1),)

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
