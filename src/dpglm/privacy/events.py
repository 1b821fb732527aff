"""What a mechanism releases, as data: privacy events, their JSON form and canonical form."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from dpglm._validation import check_integer, check_real

__all__ = [
    "Composed",
    "Event",
    "Gaussian",
    "Laplace",
    "LastIterate",
    "PoissonSampled",
    "Repeated",
    "canonical",
    "event_from_dict",
]


class Event(abc.ABC):
    """One thing a mechanism releases, described by what its privacy depends on.

    Notes
    -----
    Privacy: noise multipliers are noise scale divided by SENSITIVITY under the declared
    adjacency, so an event by itself is not a claim; an accountant given an event and an
    adjacency makes one. Events are immutable, compare by value and hash.
    """

    @abc.abstractmethod
    def terms(self) -> tuple[tuple[Event, int], ...]:
        """List the basic events and how often each happens, unmerged.

        Returns
        -------
        tuple of (Event, int)
            Only basic events (neither ``Composed`` nor ``Repeated``), counts at least 1.
        """

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; ``event_from_dict`` gives back an equal event, bit for bit."""


@final
@dataclass(frozen=True)
class Gaussian(Event):
    """Release of a vector plus spherical Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation divided by L2 sensitivity; finite, above 0.

    Examples
    --------
    >>> Gaussian(2.0).to_dict()
    {'type': 'gaussian', 'noise_multiplier': 2.0}
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _set(
            self,
            "noise_multiplier",
            check_real("noise_multiplier", self.noise_multiplier, above=0.0),
        )

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)

    def to_dict(self) -> dict[str, Any]:
        return {"type": "gaussian", "noise_multiplier": self.noise_multiplier}


@final
@dataclass(frozen=True)
class Laplace(Event):
    """Release of a vector plus independent Laplace noise.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale ``b`` (not its standard deviation) divided by L1 sensitivity; finite,
        above 0. Pure differential privacy with epsilon ``1 / noise_multiplier``.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _set(
            self,
            "noise_multiplier",
            check_real("noise_multiplier", self.noise_multiplier, above=0.0),
        )

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)

    def to_dict(self) -> dict[str, Any]:
        return {"type": "laplace", "noise_multiplier": self.noise_multiplier}


@final
@dataclass(frozen=True)
class PoissonSampled(Event):
    """A release computed on a fresh Poisson sample of the rows.

    Parameters
    ----------
    sampling_rate : float
        Probability that a row is in the sample, in (0, 1].
    event : Gaussian
        What is released about the sample.

    Notes
    -----
    Privacy: each row enters independently of all others and of every earlier sample, and
    nothing released depends on the realised size of the sample. Shuffled or fixed-size
    batches are not this event. The noise multiplier is relative to the sensitivity of the
    full sum under the declared adjacency (``2 C`` under replace-one).
    """

    sampling_rate: float
    event: Gaussian

    def __post_init__(self) -> None:
        rate = check_real("sampling_rate", self.sampling_rate, above=0.0, most=1.0)
        if not isinstance(self.event, Gaussian):
            raise ValueError(f"event must be a Gaussian event, got {self.event!r}")
        _set(self, "sampling_rate", rate)

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)

    def to_dict(self) -> dict[str, Any]:
        return {
            "type": "poisson_sampled",
            "sampling_rate": self.sampling_rate,
            "event": self.event.to_dict(),
        }


@final
@dataclass(frozen=True)
class LastIterate(Event):
    """Noisy contractive iteration of which only the last iterate is released.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation of one step divided by that step's sensitivity (both of the
        mean gradient, or both of the sum); finite, above 0.
    contraction : float
        Lipschitz constant ``c`` of one noiseless step, in [0, 1]. For an ``m``-strongly
        convex and ``M``-smooth objective and step size ``eta <= 2/M`` it is
        ``max(|1 - eta m|, |1 - eta M|)``.
    steps : int
        Number of steps, at least 1.

    Notes
    -----
    Privacy: the steps are ``w <- Proj(w - eta (mean gradient + noise))``: full batch, no
    momentum, no averaging, at most one projection or prox after the step. Nothing else
    about the run may be released, least of all an earlier iterate.

    References
    ----------
    Bok, Su and Altschuler, "Shifted interpolation for differential privacy", ICML 2024,
    arXiv 2403.00278, Theorem 4.1.
    """

    noise_multiplier: float
    contraction: float
    steps: int

    def __post_init__(self) -> None:
        _set(
            self,
            "noise_multiplier",
            check_real("noise_multiplier", self.noise_multiplier, above=0.0),
        )
        contraction = check_real("contraction", self.contraction, least=0.0, most=1.0)
        _set(self, "contraction", contraction)
        _set(self, "steps", check_integer("steps", self.steps, least=1))

    @property
    def mu(self) -> float:
        """The release is mu-GDP with this mu: the smaller of amplification and composition.

        Notes
        -----
        With ``c = exp(-a)``, ``(1-c^t)/(1+c^t) * (1+c)/(1-c) = tanh(t a/2) / tanh(a/2)``,
        which keeps full precision for c near 1 and for any t.

        Examples
        --------
        >>> LastIterate(2.0, contraction=0.0, steps=100).mu
        0.5
        >>> LastIterate(2.0, contraction=1.0, steps=100).mu
        5.0
        """
        composition = float(self.steps)
        if self.contraction == 1.0:
            return math.sqrt(composition) / self.noise_multiplier
        rate = math.inf if self.contraction == 0.0 else -math.log(self.contraction)
        amplified = math.tanh(0.5 * self.steps * rate) / math.tanh(0.5 * rate)
        return math.sqrt(min(composition, amplified)) / self.noise_multiplier

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)

    def to_dict(self) -> dict[str, Any]:
        return {
            "type": "last_iterate",
            "noise_multiplier": self.noise_multiplier,
            "contraction": self.contraction,
            "steps": self.steps,
        }


@final
@dataclass(frozen=True)
class Repeated(Event):
    """The same event several times, each with fresh noise, adaptively.

    Parameters
    ----------
    event : Event
        What happens each time.
    count : int
        How often, at least 0 (0: nothing is released).
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise ValueError(f"event must be an Event, got {self.event!r}")
        _set(self, "count", check_integer("count", self.count, least=0))

    def terms(self) -> tuple[tuple[Event, int], ...]:
        if self.count == 0:
            return ()
        # a b a b ... is not written out: the privacy of a composition has no order.
        return tuple((event, count * self.count) for event, count in self.event.terms())

    def to_dict(self) -> dict[str, Any]:
        return {"type": "repeated", "event": self.event.to_dict(), "count": self.count}


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
        _set(self, "events", events)

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return tuple(term for event in self.events for term in event.terms())

    def to_dict(self) -> dict[str, Any]:
        return {"type": "composed", "events": [event.to_dict() for event in self.events]}


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
    if not isinstance(mapping, Mapping):
        raise ValueError(f"an event must be a JSON object, got {mapping!r}")
    kind = mapping.get("type")
    if not isinstance(kind, str) or kind not in _READERS:
        raise ValueError(f"event type must be one of {sorted(_READERS)}, got {kind!r}")
    fields, build = _READERS[kind]
    if set(mapping) != {"type", *fields}:
        raise ValueError(
            f"a {kind!r} event must have the keys {['type', *fields]}, got {sorted(mapping)}"
        )
    return build(*(mapping[field] for field in fields))


def _without_full_sampling(event: Event) -> Event:
    if isinstance(event, PoissonSampled) and event.sampling_rate == 1.0:
        return event.event
    return event


def _read_poisson_sampled(sampling_rate: float, event: Mapping[str, Any]) -> PoissonSampled:
    inner = event_from_dict(event)
    if not isinstance(inner, Gaussian):
        raise ValueError(f"event must be a Gaussian event, got {inner!r}")
    return PoissonSampled(sampling_rate, inner)


def _read_repeated(event: Mapping[str, Any], count: int) -> Repeated:
    return Repeated(event_from_dict(event), count)


def _read_composed(events: Sequence[Mapping[str, Any]]) -> Composed:
    if not isinstance(events, list | tuple):
        raise ValueError(f"events must be a list of events, got {events!r}")
    return Composed(tuple(event_from_dict(event) for event in events))


_READERS: dict[str, tuple[tuple[str, ...], Callable[..., Event]]] = {
    "gaussian": (("noise_multiplier",), Gaussian),
    "laplace": (("noise_multiplier",), Laplace),
    "poisson_sampled": (("sampling_rate", "event"), _read_poisson_sampled),
    "last_iterate": (("noise_multiplier", "contraction", "steps"), LastIterate),
    "repeated": (("event", "count"), _read_repeated),
    "composed": (("events",), _read_composed),
}


def _set(event: Event, name: str, value: object) -> None:
    """Store a checked value on a frozen dataclass while it is being built."""
    object.__setattr__(event, name, value)
