"""Compositions of privacy events, their JSON form and canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dpglm._codec import decode
from dpglm.privacy.events.base import BasicEvent, Event, check_count

__all__ = ["Composed", "Repeated", "canonical", "describe_event", "event_from_dict", "ordered"]


@final
@dataclass(frozen=True)
class Repeated(Event):
    """The same event several times, each with fresh noise, adaptively.

    Parameters
    ----------
    event : Event
        What happens each time.
    count : int
        How often, from 0 (nothing is released) to 2^53.
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise ValueError(f"event must be an Event, got {self.event!r}")
        object.__setattr__(self, "count", check_count("count", self.count, least=0))

    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        if self.count == 0:
            return ()
        # a b a b ... is not written out: the privacy of a composition has no order.
        return tuple((event, count * self.count) for event, count in self.event.terms())


@final
@dataclass(frozen=True)
class Composed(Event):
    """Several events, adaptively: each may depend on what the earlier ones released.

    Parameters
    ----------
    events : tuple of Event
        What happens; empty if nothing is released.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        events = tuple(self.events)
        for event in events:
            if not isinstance(event, Event):
                raise ValueError(f"events must all be Event, got {event!r}")
        object.__setattr__(self, "events", events)

    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        return tuple(term for event in self.events for term in event.terms())


def canonical(event: Event) -> Event:
    """Flatten and merge an event, so that "planned == happened" is one comparison.

    Parameters
    ----------
    event : Event
        Any nesting of events.

    Returns
    -------
    Event
        A basic event, one ``Repeated`` basic event, or a ``Composed`` of these in the order
        in which each distinct basic event first appears; equal events are merged wherever
        they stand. Sampling at rate 1 is no sampling. ``Composed(())`` if nothing happens.

    Notes
    -----
    Privacy: adaptive composition of events with fixed parameters does not depend on their
    order, so two events with the same canonical form make the same claim.

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian
    >>> step = Gaussian(2.0)
    >>> canonical(Composed((step, Composed((step,)), Repeated(step, 3))))
    Repeated(event=Gaussian(noise_multiplier=2.0), count=5)
    """
    counts: dict[BasicEvent, int] = {}
    for term, count in event.terms():
        basic = term.simplified()
        counts[basic] = counts.get(basic, 0) + count
    parts = tuple(
        basic if count == 1 else Repeated(basic, count) for basic, count in counts.items()
    )
    return parts[0] if len(parts) == 1 else Composed(parts)


def event_from_dict(mapping: Mapping[str, Any]) -> Event:
    """Read back what ``Event.to_dict`` wrote.

    Parameters
    ----------
    mapping : mapping
        The JSON object, with key ``"type"`` and exactly that type's own keys.

    Returns
    -------
    Event
        Equal to the event that was written.

    Raises
    ------
    ValueError
        If the type is unknown, a key is missing or unknown, or a value is not allowed.

    Examples
    --------
    >>> event_from_dict({"type": "gaussian", "noise_multiplier": 0.1})
    Gaussian(noise_multiplier=0.1)
    """
    event: Event = decode(Event, mapping)  # type: ignore[type-abstract]
    return event


def describe_event(event: Event) -> tuple[str, ...]:
    """Say what was released, one sentence for each kind of release; nothing for no release.

    >>> from dpglm.privacy.events import Gaussian
    >>> describe_event(Repeated(Gaussian(37.306), 100))
    ('100 sums over all rows, each with Gaussian noise of 37.31 times what one row can change',)
    """
    return tuple(basic.words(count) for basic, count in canonical(event).terms())


def ordered(event: Event) -> Event:
    """Canonical form with its terms in an order that does not depend on how they were listed."""
    terms = sorted(canonical(event).terms(), key=repr)
    return canonical(Composed(tuple(Repeated(basic, count) for basic, count in terms)))
