"""The guarantee in plain words: the promise, its cost, what was public, what is not covered."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dpglm._words import plain_number, rounded_up
from dpglm.certificate.cautions import SCOPE
from dpglm.certificate.facts import PublicFact
from dpglm.certificate.spending import spending_in_words
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.events import describe_event

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate

__all__ = [
    "PROVENANCE",
    "facts_in_words",
    "meaning_in_words",
    "not_covered",
    "relation_in_words",
    "sections",
    "value_in_words",
]

_LONGEST_VALUE = 100

PROVENANCE = {
    "declared": "declared by the caller",
    "implied": "follows from the other public facts",
    "by relation": "public by the relation, unless a private condition chose the rows",
    "private": "learned from private rows by another release, whose cost comes on top",
    "from the data": "TAKEN FROM THE PRIVATE DATA",
}
"""Where a public fact came from, in words."""

_RELATION = {
    Unit.ROW: {
        Adjacency.ZERO_OUT: "hides what any one row contributes",
        Adjacency.ADD_REMOVE: "hides whether any one row is there",
        Adjacency.REPLACE_ONE: "hides what any one row contains",
    },
    Unit.GROUP: {
        Adjacency.ZERO_OUT: "hides what all rows of any one group (person) contribute",
        Adjacency.ADD_REMOVE: "hides whether any one group (person) is there",
        Adjacency.REPLACE_ONE: "hides what all rows of any one group (person) contain",
    },
}


def relation_in_words(adjacency: Adjacency, unit: Unit) -> str:
    """Say what a relation protects.

    >>> relation_in_words(Adjacency.ZERO_OUT, Unit.GROUP)
    'hides what all rows of any one group (person) contribute'
    """
    return _RELATION[unit][adjacency]


_GENERAL = (
    "What is true of people in general: what the model has learned can tell something about a "
    "person whose row was never used."
)
_COMPOSITION = (
    "Anything else computed from the same rows, such as other fits, tuning or statistics: its "
    "cost comes on top."
)
_NOT_COVERED = (
    SCOPE,
    "The public facts listed above: whoever sees the model may know them.",
    _GENERAL,
)
_SEVERAL = {
    Unit.ROW: (
        "A person with several rows: with k rows, epsilon grows to k times its value, delta by "
        "more."
    ),
    Unit.GROUP: (
        "A person in several groups: in k groups, epsilon grows to k times its value, delta by "
        "more."
    ),
}


def not_covered(unit: Unit) -> tuple[str, ...]:
    """Say what no certificate covers."""
    return (*_NOT_COVERED, _SEVERAL[unit], _COMPOSITION)


def value_in_words(value: Any) -> str:
    """Write a fact's value, shortened where it is long.

    >>> value_in_words([0.0, 1.5]), value_in_words("yes"), value_in_words(32561)
    ('0, 1.5', 'yes', '32561')
    >>> value_in_words([[-1.0] * 50, [1.0] * 50])
    '[-1 (50 times)], [1 (50 times)]'
    """
    text = _words(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE].rstrip(' ,')} ..."


def _words(value: Any) -> str:
    if isinstance(value, list):
        return _list_in_words(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_bracketed(entry)}" for key, entry in value.items())
    if isinstance(value, float):
        return plain_number(value, 6)
    return "yes" if value is True else "no" if value is False else str(value)


def _list_in_words(values: list[Any]) -> str:
    if len(values) > 3 and all(entry == values[0] for entry in values):
        return f"{_bracketed(values[0])} ({len(values)} times)"
    return ", ".join(_bracketed(entry) for entry in values)


def _bracketed(value: Any) -> str:
    return f"[{_words(value)}]" if isinstance(value, list | dict) else _words(value)


def meaning_in_words(epsilon: float) -> str:
    """Say what an epsilon promises."""
    factor = plain_number(math.exp(min(epsilon, 700.0)), 3)
    return (
        "Whatever one looks for in the result, that change alters its probability by a factor of "
        f"at most e^epsilon = {factor}, and by delta beyond that."
    )


def facts_in_words(facts: Iterable[PublicFact]) -> tuple[str, ...]:
    """List public facts, each with where it came from."""
    said = tuple(
        f"{fact.name} = {value_in_words(fact.value)}: {PROVENANCE[fact.provenance]}"
        for fact in facts
    )
    return said or ("Nothing about the rows.",)


def sections(certificate: Certificate) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the guarantee as headings with their sentences."""
    ledger, unit = certificate.ledger, certificate.data.unit
    fitted = "fitted" if certificate.fits else "made"
    claim = (
        f"{certificate.estimator} was {fitted} with differential privacy: epsilon = "
        f"{rounded_up(certificate.epsilon)}, delta = {rounded_up(certificate.delta)}, relation "
        f"'{certificate.adjacency.value}'."
    )
    meaning = meaning_in_words(certificate.epsilon)
    known = "nobody can reproduce it" if certificate.noise_is_private else "can be reproduced"
    origin = (
        f"Noise source: {certificate.noise_source} ({known}). Epsilon computed by: "
        f"{certificate.accountant} ({certificate.accountant_version})."
    )
    cost = (
        *(f"{sentence}." for sentence in describe_event(certificate.event)),
        origin,
        *(() if ledger is None else (ledger.describe(),)),
    )
    public = facts_in_words(certificate.public_facts)
    parts = (
        ("Warning", certificate.caveats()),
        ("What is promised", (claim, certificate.adjacency.describe(unit), meaning)),
        ("What was released", cost),
        ("Who spent what", tuple(f"{sentence}." for sentence in _spending(certificate))),
        ("Which theorem the settings follow", _theorems(certificate)),
        ("What was treated as public", public),
        ("What is not covered", not_covered(unit)),
    )
    return tuple((heading, sentences) for heading, sentences in parts if sentences)


def _spending(certificate: Certificate) -> tuple[str, ...]:
    try:
        return tuple(map(spending_in_words, certificate.spending()))
    except ValueError as error:
        return (str(error),)


def _theorems(certificate: Certificate) -> tuple[str, ...]:
    try:
        return certificate.rebuild().theorems
    except ValueError:
        return ()
