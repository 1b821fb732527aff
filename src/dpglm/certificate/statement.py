"""The guarantee in plain words: the promise, its cost, what was public, what is not covered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpglm._words import plain_number, rounded_up
from dpglm.certificate.cautions import SCOPE
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Event, describe_event

__all__ = [
    "provenance_in_words",
    "relation_in_words",
    "sections",
    "value_in_words",
]

_LONGEST_VALUE = 100

_PROVENANCE = {
    "declared": "declared by the caller",
    "by relation": "public by the relation itself",
    "from the data": "TAKEN FROM THE PRIVATE DATA",
}

_RELATION = {
    Adjacency.ZERO_OUT: "hides what any one row contributes",
    Adjacency.ADD_REMOVE: "hides whether any one row is there",
    Adjacency.REPLACE_ONE: "hides what any one row contains",
}

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
    "A person with several rows: with k rows, epsilon grows to k times its value, delta by more.",
    _COMPOSITION,
)


def provenance_in_words(provenance: str) -> str:
    """Say where a public fact came from."""
    return _PROVENANCE[provenance]


def relation_in_words(adjacency: Adjacency) -> str:
    """Say in a few words what the relation protects."""
    return _RELATION[adjacency]


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


def sections(
    *,
    estimator: str,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    event: Event,
    accountant: str,
    noise_source: str,
    spending: Sequence[str],
    theorems: Sequence[str],
    facts: Sequence[tuple[str, Any, str]],
    caveats: Sequence[str],
    record: str | None = None,
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the guarantee as headings with their sentences."""
    factor = plain_number(math.exp(min(epsilon, 700.0)), 3)
    bound = f"epsilon = {rounded_up(epsilon)}, delta = {rounded_up(delta)}"
    meaning = (
        "Whatever one looks for in the result, that change alters its probability by a factor of "
        f"at most e^epsilon = {factor}, and by delta beyond that."
    )
    promise = (
        f"{estimator} was fitted with differential privacy: {bound}, relation '{adjacency.value}'.",
        adjacency.describe(),
        meaning,
    )
    cost = (
        *(f"{sentence}." for sentence in describe_event(event)),
        f"Noise source: {noise_source}. Epsilon computed by: {accountant}.",
        *(() if record is None else (record,)),
    )
    public = tuple(
        f"{name} = {value_in_words(value)}: {provenance_in_words(provenance)}"
        for name, value, provenance in facts
    )
    parts = (
        ("Warning", tuple(caveats)),
        ("What is promised", promise),
        ("What was released", cost),
        ("Who spent what", tuple(f"{sentence}." for sentence in spending)),
        ("What is proved of the error", tuple(theorems)),
        ("What was treated as public", public or ("Nothing about the rows.",)),
        ("What is not covered", _NOT_COVERED),
    )
    return tuple((heading, sentences) for heading, sentences in parts if sentences)
