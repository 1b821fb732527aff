"""Compositions of privacy events, their JSON form and canonical form."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from dpglm._codec import decode
from dpglm._validation import check_integer, check_kind
from dpglm._words import plain_number
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events.base import MOST, BasicEvent, Event, GaussianMechanism
from dpglm.privacy.selection.repetitions import Repetitions


@final
@dataclass(frozen=True)
class Repeated(Event):
    """The same event several times, each with fresh noise, adaptively.

    Parameters
    ----------
    event : Event
        The repeated event.
    count : int
        Number of repetitions, from 0 (no release) to 2^53.
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        check_kind("event", self.event, Event, "an Event")
        object.__setattr__(self, "count", check_integer("count", self.count, least=0, most=MOST))

    @functools.cached_property
    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        # a b a b ... is not written out: composition does not depend on order.
        return tuple((event, count * self.count) for event, count in self.event.terms if self.count)


@final
@dataclass(frozen=True)
class Composed(Event):
    """Several events, adaptively: each may depend on earlier results.

    Parameters
    ----------
    events : tuple of Event
        The events; may be empty.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            if not isinstance(event, Event):
                raise ValueError(f"events must all be Event, got {event!r}")

    @functools.cached_property
    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        return tuple(term for event in self.events for term in event.terms)


def canonical(event: Event) -> Event:
    """Return the canonical form of an event, in which equal claims are equal.

    Parameters
    ----------
    event : Event
        Any nesting of events.

    Returns
    -------
    Event
        A basic event, one ``Repeated`` basic event, or a ``Composed`` of these in the order in
        which each distinct basic event first appears, with equal events merged. Sampling at rate 1
        is removed. ``Composed(())`` without releases.

    Notes
    -----
    Privacy: adaptive composition of events with fixed parameters does not depend on their order, so
    events with the same canonical form make the same claim.

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian
    >>> step = Gaussian(2.0)
    >>> canonical(Composed((step, Composed((step,)), Repeated(step, 3))))
    Repeated(event=Gaussian(noise_multiplier=2.0), count=5)
    """
    counts: dict[BasicEvent, int] = {}
    for basic, count in event.terms:
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
        The JSON object, with key ``"type"`` and exactly that type's own keys; a ValueError names an
        unknown type, a missing or unknown key, or an invalid value.

    Examples
    --------
    >>> event_from_dict({"type": "gaussian", "noise_multiplier": 0.1})
    Gaussian(noise_multiplier=0.1)
    """
    event: Event = decode(Event, mapping)  # type: ignore[type-abstract]
    return event


def describe_event(event: Event) -> tuple[str, ...]:
    """Return a sentence on each kind of release."""
    return tuple(basic.words(count) for basic, count in canonical(event).terms)


def ordered(event: Event) -> Event:
    """Canonical form with its terms in an order that does not depend on how they were listed."""
    return joined(sorted(canonical(event).terms, key=repr))


# Events on disjoint parts of the rows.


@dataclass(frozen=True)
class DisjointParts(BasicEvent):
    """Events on disjoint parts of the rows: each row is charged for its part only."""

    n_may_be_private: ClassVar[bool]
    """Whether one row more leaves all others in the parts where they were."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        events = Composed(self.events).events
        if not events:
            raise ValueError("events must be at least one event, got none")
        object.__setattr__(self, "events", tuple(sorted(map(ordered, events), key=repr)))

    @functools.cached_property
    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        released = tuple(event for event in self.events if event.terms)
        if len(released) < 2:
            return Composed(released).terms
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
        return f"{often}on disjoint parts of the rows, with 'all rows' those of the part: {parts}"


@final
@dataclass(frozen=True)
class Parallel(DisjointParts):
    """Events on disjoint parts of the rows, where the parts do not depend on the data.

    Parameters
    ----------
    events : tuple of Event
        The event on each part, at least one. Stored in canonical form and sorted, so that equal
        collections of parts are equal events.

    Notes
    -----
    Privacy: a row is in one part only, and releases on other parts do not depend on it, so the
    event costs as much as its most expensive part. In a composition each ``Parallel`` may split the
    rows differently: the cost is that of the most expensive choice of one part from each.
    Accountants refuse it under add/remove, where the part of a row may depend on the number of
    rows: see ``SplitByCoins``.

    References
    ----------
    McSherry, "Privacy integrated queries", SIGMOD 2009, Theorem 4.
    """

    n_may_be_private = False


@final
@dataclass(frozen=True)
class SplitByCoins(DisjointParts):
    """Events on disjoint parts of the rows, where each row is assigned by an independent coin.

    Parameters
    ----------
    events : tuple of Event
        The event on each part, at least one; stored as in ``Parallel``.

    Notes
    -----
    Privacy: the coins of different rows (or of different protected persons) are independent of each
    other and of the data, so adding or removing a row leaves every other row in its part. Given the
    coins, neighbours differ in one part only, under any relation: the event costs as much as its
    most expensive part. A split into parts of fixed sizes is ``Parallel``.

    References
    ----------
    ``docs/proofs/splits.md``, Theorem 2.
    """

    n_may_be_private = True


# Branches: a composition with parallel parts as a choice of plain compositions.

_MOST_BRANCHES = 64


def branches(event: Event, adjacency: Adjacency | None = None) -> tuple[Event, ...]:
    """Return the compositions that a single row can be part of: one part of each parallel event.

    They are in canonical form and without parallel parts, at least one; those that cost no more
    than another one are omitted. Raises ValueError for more than 64, and for parts that an added
    row may change under an ``adjacency`` that adds rows.

    Privacy: the part of a row does not depend on data, so a single row is part of one branch, and
    delta of the event is the largest delta of a branch. The outputs of other parts depend on the
    row only through the releases on its own part, which adaptive composition covers. A branch is
    omitted if another has the same events with at least the same counts, and at least its Gaussian
    mu.
    """
    if adjacency is Adjacency.ADD_REMOVE and needs_public_n(event):
        raise ValueError(
            "adjacency must be zero_out or replace_one for events on disjoint parts of the rows of "
            f"fixed sizes (the number of rows must be public), got {adjacency.value}"
        )
    whole = canonical(event)
    terms = whole.terms
    plain = [term for term in terms if not isinstance(term[0], DisjointParts)]
    if len(plain) == len(terms):
        return (whole,)
    found: tuple[Event, ...] = (joined(plain),)
    for split, count in terms:
        if not isinstance(split, DisjointParts):
            continue
        parts = _undominated(one for part in split.events for one in branches(part))
        if len(parts) == 1:  # However often: a count may be large.
            parts, count = (Repeated(parts[0], count),), 1
        # Each of the `count` times the rows may be split in another way.
        n_choices = math.comb(count + len(parts) - 1, count)
        if n_choices > _MOST_BRANCHES or len(found) * n_choices > _MOST_BRANCHES:
            raise ValueError(
                "event must leave at most 64 choices of one part from each parallel event, got "
                f"{whole!r}"
            )
        choices = list(itertools.combinations_with_replacement(parts, count))
        found = _undominated(
            canonical(Composed((one, *choice))) for one in found for choice in choices
        )
    return found


def joined(terms: Iterable[tuple[BasicEvent, int]]) -> Event:
    """Return the composition of basic events with their counts, in canonical form."""
    return canonical(Composed(tuple(Repeated(basic, count) for basic, count in terms)))


def leaves(event: Event) -> frozenset[BasicEvent]:
    """Collect every kind of basic event that happens anywhere, parallel parts included."""
    found: set[BasicEvent] = set()
    for basic, _ in canonical(event).terms:
        if isinstance(basic, DisjointParts):
            found.update(*(leaves(part) for part in basic.events))
        else:
            found.add(basic)
    return frozenset(found)


def has_parts(event: Event) -> bool:
    """Whether some of the event is about disjoint parts of the rows."""
    return any(isinstance(basic, DisjointParts) for basic, _ in canonical(event).terms)


def needs_public_n(event: Event) -> bool:
    """Whether some of the event rests on parts that one row more may change, at any depth."""
    return any(
        isinstance(basic, DisjointParts)
        and (not basic.n_may_be_private or any(map(needs_public_n, basic.events)))
        for basic, _ in canonical(event).terms
    )


def _undominated(candidates: Iterable[Event]) -> tuple[Event, ...]:
    kept: list[Event] = []
    for new in candidates:
        if not any(_dominates(old, new) for old in kept):
            kept = [old for old in kept if not _dominates(new, old)]
            kept.append(new)
    return tuple(kept)


def _dominates(more: Event, less: Event) -> bool:
    (mu_squared, others), (smaller, fewer) = map(_split, (more, less))
    # Equal sums may differ in the last digits; the margin keeps both.
    enough = mu_squared >= smaller * (1.0 + 1e-12) or set(more.terms) == set(less.terms)
    return enough and all(others.get(basic, 0) >= count for basic, count in fewer.items())


def _split(branch: Event) -> tuple[float, dict[BasicEvent, int]]:
    """Return the square of all Gaussian mu together, and the counts of other events."""
    squares, others = [], {}
    for basic, count in branch.terms:
        if isinstance(basic, GaussianMechanism):
            squares.append(count * basic.mu**2)
        else:
            others[basic] = count
    return math.fsum(squares), others


# The best of a random number of tries.


@final
@dataclass(frozen=True)
class RandomlyRepeated(BasicEvent):
    """The best result of a random, secret number of independent tries; nothing else is released.

    Parameters
    ----------
    events : tuple of Event
        The possible events of a try, at least one. The choice is public or drawn independently of
        the data, and is part of the result. Stored in canonical form, sorted, without duplicates.
    repetitions : Repetitions
        Law of the number of tries, which is drawn independently of the data.

    Notes
    -----
    Privacy: "best" is by an order of results that is fixed in advance, such as a noisy score in the
    result. Neither the number of tries nor any other result is released. If a try is ``(e,
    delta(e))``-DP for every e, the best result is ``(e + r, m delta(e))``-DP, with m the mean of
    the law and r its ``log_ratio``; the proof is in ``docs/proofs/random-repetition.md``.

    References
    ----------
    Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022,
    Theorems 2 and 6. Liu and Talwar, STOC 2019. Koskela, Redberg and Wang, "Privacy profiles
    for private selection", ICML 2024.
    """

    events: tuple[Event, ...]
    repetitions: Repetitions

    def __post_init__(self) -> None:
        events = tuple(dict.fromkeys(Parallel(self.events).events))
        object.__setattr__(self, "events", events)
        check_kind("repetitions", self.repetitions, Repetitions, "Repetitions")

    def words(self, count: int) -> str:
        tried = " or ".join(" and ".join(describe_event(one)) or "nothing" for one in self.events)
        lead = "The best" if count == 1 else f"{count} times the best"
        return (
            f"{lead} of a random, secret number of tries "
            f"({plain_number(self.repetitions.mean)} on average), each try being: {tried}"
        )
