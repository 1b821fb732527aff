"""Compositions of privacy events, their JSON form and canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dpglm._codec import decode
from dpglm.privacy.events.basic import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    LastIterate,
    ObjectivePerturbation,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    check_count,
)
from dpglm.privacy.selection.repetitions import Repetitions

__all__ = [
    "BoundedRange",
    "Composed",
    "Event",
    "Gaussian",
    "Laplace",
    "LastIterate",
    "ObjectivePerturbation",
    "Parallel",
    "PoissonSampled",
    "ProjectedGaussian",
    "Pure",
    "RandomlyRepeated",
    "Repeated",
    "canonical",
    "event_from_dict",
]


@final
@dataclass(frozen=True)
class Parallel(Event):
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
        object.__setattr__(self, "events", tuple(sorted(map(_sorted, events), key=repr)))

    def terms(self) -> tuple[tuple[Event, int], ...]:
        released = tuple(event for event in self.events if event.terms())
        if len(released) < 2:
            return Composed(released).terms()
        return ((Parallel(released), 1),)


@final
@dataclass(frozen=True)
class RandomlyRepeated(Event):
    """The best result of a random, secret number of independent tries; nothing else is released.

    Parameters
    ----------
    events : tuple of Event
        Each try is one of these, at least one; which, is public or drawn without looking at
        the data, and belongs to its result. Stored in canonical form, sorted, equal ones once.
    repetitions : Repetitions
        Law of the number of tries, which is drawn without looking at the data.

    Notes
    -----
    Privacy: "best" by any order of results that is fixed before, such as a noisy score that is
    part of the result. Neither the number of tries nor any other result is released. If a try
    is ``(e, delta(e))``-DP for every e, the best of all is ``(e + r, m delta(e))``-DP, with
    m the mean of the law and r its ``log_ratio``; the proof is in
    ``docs/proofs/random-repetition.md``.

    References
    ----------
    Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022,
    Theorems 2 and 6. Liu and Talwar, STOC 2019. Koskela, Redberg and Wang, "Privacy profiles
    for private selection", ICML 2024.

    Examples
    --------
    >>> from dpglm.privacy.selection.repetitions import NegativeBinomial
    >>> best = RandomlyRepeated((Gaussian(4.0), Gaussian(4.0)), NegativeBinomial(0.1))
    >>> best.events
    (Gaussian(noise_multiplier=4.0),)
    """

    events: tuple[Event, ...]
    repetitions: Repetitions

    def __post_init__(self) -> None:
        events = tuple(dict.fromkeys(Parallel(self.events).events))
        object.__setattr__(self, "events", events)
        if not isinstance(self.repetitions, Repetitions):
            raise ValueError(f"repetitions must be Repetitions, got {self.repetitions!r}")

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


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

    def terms(self) -> tuple[tuple[Event, int], ...]:
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

    def terms(self) -> tuple[tuple[Event, int], ...]:
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
    >>> step = Gaussian(2.0)
    >>> canonical(Composed((step, Composed((step,)), Repeated(step, 3))))
    Repeated(event=Gaussian(noise_multiplier=2.0), count=5)
    """
    counts: dict[Event, int] = {}
    for term, count in event.terms():
        basic = _without_full_sampling(term)
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
    # As an abstract class it stands for those below it.
    return decode(Event, mapping)  # type: ignore[type-abstract]


def _without_full_sampling(event: Event) -> Event:
    if isinstance(event, PoissonSampled) and event.sampling_rate == 1.0:
        return event.event
    return event


def _sorted(event: Event) -> Event:
    """Canonical form with its terms in an order that does not depend on how they were listed."""
    terms = sorted(canonical(event).terms(), key=repr)
    return canonical(Composed(tuple(Repeated(basic, count) for basic, count in terms)))
