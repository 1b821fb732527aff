"""Which row one looks at: a composition with parallel parts as a choice of plain ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from dpglm.privacy.events.base import BasicEvent, Event, GaussianMechanism
from dpglm.privacy.events.compositions import Composed, Repeated, canonical
from dpglm.privacy.events.parallel import DisjointParts

__all__ = ["branches", "has_parts", "leaves", "needs_public_n"]

_MOST_BRANCHES = 64

_Counts = dict[BasicEvent, int]


def branches(event: Event) -> tuple[Event, ...]:
    """List what can have been released about one row: one part of each parallel event.

    All are in canonical form and without parallel parts, at least one. Left out are those that cost
    no more than another one. Raises ValueError if there are more than 64.

    Privacy: which part a row belongs to is fixed without looking at data, so an attacker who
    asks about a row asks about one branch, and delta of the event is the largest delta of a
    branch. The other parts' outputs depend on the row only through what is released about its
    own part: adaptive composition covers that. A branch is left out if another has the same
    events or more of each, and at least its Gaussian mu.

    >>> from dpglm.privacy.events import Gaussian, Parallel
    >>> halves = Parallel((Gaussian(2.0), Gaussian(1.0)))
    >>> branches(Composed((halves, Gaussian(3.0))))[0].terms()
    ((Gaussian(noise_multiplier=3.0), 1), (Gaussian(noise_multiplier=1.0), 1))
    """
    return tuple(
        canonical(Composed(tuple(Repeated(basic, count) for basic, count in one.items())))
        for one in _expand(event)
    )


def leaves(event: Event) -> frozenset[BasicEvent]:
    """Collect every kind of basic event that happens anywhere, parallel parts included."""
    found: set[BasicEvent] = set()
    for basic, _ in canonical(event).terms():
        if isinstance(basic, DisjointParts):
            found.update(*(leaves(part) for part in basic.events))
        else:
            found.add(basic)
    return frozenset(found)


def has_parts(event: Event) -> bool:
    """Whether some of the event is about disjoint parts of the rows."""
    return any(isinstance(basic, DisjointParts) for basic, _ in canonical(event).terms())


def needs_public_n(event: Event) -> bool:
    """Whether some of the event rests on parts that one row more may change, at any depth."""
    return any(
        isinstance(basic, DisjointParts)
        and (not basic.n_may_be_private or any(map(needs_public_n, basic.events)))
        for basic, _ in canonical(event).terms()
    )


def _expand(event: Event) -> list[_Counts]:
    plain: _Counts = {}
    parallel: list[tuple[DisjointParts, int]] = []
    for basic, count in canonical(event).terms():
        if isinstance(basic, DisjointParts):
            parallel.append((basic, count))
        else:
            plain[basic] = count
    found = [plain]
    for split, count in parallel:
        choices = _choices(split, count)
        if len(found) * len(choices) > _MOST_BRANCHES:
            raise ValueError(_TOO_MANY.format(canonical(event)))
        found = _undominated(_added((one, choice)) for one in found for choice in choices)
    return found


def _choices(split: DisjointParts, count: int) -> list[_Counts]:
    parts = _undominated(one for part in split.events for one in _expand(part))
    # Each of the `count` times the rows may be split in another way.
    if math.comb(count + len(parts) - 1, count) > _MOST_BRANCHES:
        raise ValueError(_TOO_MANY.format(split))
    return [_added(times) for times in itertools.combinations_with_replacement(parts, count)]


def _added(several: Iterable[_Counts]) -> _Counts:
    total: _Counts = {}
    for one in several:
        for basic, count in one.items():
            total[basic] = total.get(basic, 0) + count
    return total


def _undominated(candidates: Iterable[_Counts]) -> list[_Counts]:
    kept: list[_Counts] = []
    for new in candidates:
        if not any(_dominates(old, new) for old in kept):
            kept = [old for old in kept if not _dominates(new, old)]
            kept.append(new)
    return kept


def _dominates(more: _Counts, less: _Counts) -> bool:
    mu_squared, others = _split(more)
    smaller, fewer = _split(less)
    # Equal sums may differ in the last digits; the margin keeps both.
    enough = mu_squared >= smaller * (1.0 + 1e-12) or more == less
    return enough and all(others.get(basic, 0) >= count for basic, count in fewer.items())


def _split(counts: _Counts) -> tuple[float, _Counts]:
    squares = [
        count * basic.mu**2
        for basic, count in counts.items()
        if isinstance(basic, GaussianMechanism)
    ]
    others = {one: count for one, count in counts.items() if not isinstance(one, GaussianMechanism)}
    return math.fsum(squares), others


_TOO_MANY = "event must leave at most 64 choices of one part from each parallel event, got {!r}"
