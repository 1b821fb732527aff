"""The guarantee in plain words: the promise, its cost, the public facts, and the limits."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from dpglm._words import plain_number, rounded_up, weak
from dpglm.data.split import EVALUATION
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.budget import Adjacency, Unit
from dpglm.privacy.events import DisjointParts, RandomlyRepeated, canonical, describe_event
from dpglm.privacy.releases import AnyRelease
from dpglm.solvers.base import FitStage

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate, PublicFact


LABELS = "labels"
"""Name of the fact with the labels of failure and success, for regressors of proportions."""
WHERE = "where"
"""Name of the fact that a private condition selected the rows."""
WHERE_IN_WORDS = "a private condition; the number of rows that meet it stays private"


# Cautions: weaknesses of a claim.

SCOPE = (
    "This certificate covers only the releases that it lists. Another step that learned from the "
    "same rows (a scaler, an imputer, a choice of columns, another fit) is not covered, and cannot "
    "be detected from a certificate."
)
"""The limit of every certificate."""


def cautions(certificate: Certificate) -> tuple[str, ...]:
    """Return a sentence for each weakness of the claim; often empty.

    Weaknesses are seeded noise, facts taken from the data, an epsilon above 10, and a delta of at
    least 1/n or 0.01. This works for every certificate that could be read.

    Garfinkel and Leclerc, "Randomness concerns when deploying differential privacy", WPES 2020, for
    noise that can be computed.
    """
    found = []
    if not certificate.noise_is_private:
        found.append(
            f"NOT PRIVATE: the noise came from a seeded generator ({certificate.noise_source}). "
            "Anyone who learns or guesses the seed can subtract it. Use noise from the operating "
            "system (random_state=None)."
        )
    leaked = leaked_names(certificate)
    if leaked:
        found.append(
            "WEAKER THAN STATED, because of values taken from the private data: "
            f"{', '.join(leaked)}. The guarantee does not cover what they reveal. Declare them "
            "from public knowledge."
        )
    # The largest number of rows, or of groups, in the record.
    units = [certificate.protection.n_units]
    units += [part.data.n_units for part in certificate.parts.values()]
    if certificate.unit is Unit.ROW:
        said = [fact.value for fact in certificate.public_facts if fact.name == "n_rows"]
        units += [value for value in said if type(value) is int and value > 0]
    too_weak = weak(certificate.epsilon, certificate.delta, max(units))
    return (*found, *(f"WEAK GUARANTEE: {sentence}" for sentence in too_weak))


def leaked_names(certificate: Certificate) -> list[str]:
    """Return the facts taken from the rows without noise, which one row may change for sure."""
    return [one.name for one in certificate.public_facts if one.provenance == "from the data"]


# The cost of each stage.


@final
@dataclass(frozen=True)
class Spending:
    """The cost of one stage of a fit, or of one part of a study.

    Parameters
    ----------
    stage : str
        Name of the stage.
    releases : tuple of Release
        Its releases; may be empty.
    epsilon : float
        Its cost alone, at the delta of the whole.
    mu : float or None
        Its mu as Gaussian DP. For a stage that is not Gaussian, the mu of a Gaussian release with
        the same epsilon; None where delta is 0.
    is_gaussian : bool
        Whether all its releases are Gaussian, so that ``mu`` describes them exactly.
    share : float or None
        Its share of mu squared: of the stages' sum for a fit, of the budget for a study. None for
        stages on disjoint rows, and where mu is None.
    """

    stage: str
    releases: tuple[AnyRelease, ...]
    epsilon: float
    mu: float | None
    is_gaussian: bool
    share: float | None


def spending(certificate: Certificate) -> tuple[Spending, ...]:
    """Return the cost of each stage of a fit, or of each part of a study.

    A record that contradicts itself is a ValueError.

    Privacy: the epsilons of the stages add up to more than the whole, because composition is
    better than that; the squared mus of Gaussian stages add up exactly.
    """
    adjacency, delta, of_whole = certificate.adjacency, certificate.delta, None
    if len(certificate.parts) > 1:
        parts = certificate.parts.items()
        stages = [FitStage(name, part.releases, part.event) for name, part in parts]
        total = certificate.budget.gdp_mu() ** 2
        found = [costing(one, adjacency, delta) for one in stages]
    else:
        try:
            plan = certificate.rebuild()
        except ValueError as error:
            raise ValueError(
                f"the record does not state the cost of each stage ({error})"
            ) from error
        stages = list(_leaves(plan.method.stages))
        if len(stages) < 2:
            name = stages[0].name if stages else "model"
            stages = [FitStage(name, certificate.releases, certificate.event)]
            of_whole = certificate.epsilon
        found = [costing(one, adjacency, delta, of_whole) for one in stages]
        # Squares do not add up for disjoint rows, nor for repetitions, where the costliest counts.
        apart = isinstance(canonical(plan.event), DisjointParts | RandomlyRepeated)
        if (len(stages) > 1 and apart) or any(one.mu is None for one in found):
            return tuple(found)
        total = math.fsum(one.mu**2 for one in found if one.mu is not None)
    return tuple(
        one
        if one.mu is None
        else dataclasses.replace(one, share=one.mu**2 / total if one.mu else 0.0)
        for one in found
    )


def _leaves(stages: Iterable[FitStage], lead: str = "") -> Iterator[FitStage]:
    """List the leaves of nested stages, with full names; stages on disjoint rows are one leaf."""
    for one in stages:
        part = "" if one.part is None else f", part {one.part + 1}"
        name = f"{lead}: {one.name}" if lead else f"{one.name}{part}"
        if one.stages and all(inner.part is None for inner in one.stages):
            yield from _leaves(one.stages, name)
        else:
            yield dataclasses.replace(one, name=name)


def costing(
    stage: FitStage, adjacency: Adjacency, delta: float, epsilon: float | None = None
) -> Spending:
    """Return the cost of a stage alone, without its share."""
    if epsilon is None:
        accountant = accountant_for(stage.event, adjacency)
        silent = not canonical(stage.event).terms
        epsilon = 0.0 if silent else accountant.epsilon(stage.event, adjacency, delta)
    exact = GaussianAccountant()
    mu, is_gaussian = None, exact.supports(stage.event, adjacency)
    if epsilon == 0.0:
        mu, is_gaussian = 0.0, True
    elif is_gaussian:
        mu = exact.mu(stage.event, adjacency)
    elif delta > 0.0 and math.isfinite(epsilon):
        mu = gdp.mu(epsilon, delta)
    return Spending(stage.name, stage.releases, epsilon, mu, is_gaussian, None)


def spending_in_words(one: Spending) -> str:
    """Return a sentence on the cost of a stage."""
    if not one.releases:
        return f"{one.stage}: no release"
    times = ["" if each.count == 1 else f"{each.count} times, " for each in one.releases]
    released = ", ".join(
        f"{each.quantity} ({often}{each.mechanism.in_words})"
        for each, often in zip(one.releases, times, strict=True)
    )
    parts = [f"{one.stage}: {released}", f"epsilon = {rounded_up(one.epsilon)} alone"]
    if one.mu is not None:
        like = "" if one.is_gaussian else " (of a Gaussian release with that epsilon)"
        share = "" if one.share is None else f", {plain_number(100.0 * one.share, 3)} % of mu^2"
        parts.append(f"mu = {plain_number(one.mu)}{like}{share}")
    return "; ".join(parts)


# The statement.

_LONGEST_VALUE = 100
PROVENANCE = {
    "declared": "declared by the caller",
    "implied": "implied by the other public facts",
    "by relation": "public under the relation, unless a private condition selected the rows",
    "private": "learned by another private release, at extra cost",
    "from the data": "TAKEN FROM THE PRIVATE DATA",
}
"""The provenance of a public fact, in words."""
PROTECTED = {
    Adjacency.ZERO_OUT: "contribution",
    Adjacency.ADD_REMOVE: "presence",
    Adjacency.REPLACE_ONE: "contents",
}
"""The protected part of a row or a group, by relation."""


def relation_in_words(adjacency: Adjacency, unit: Unit) -> str:
    """Return the protection of a relation, in words."""
    present = adjacency is Adjacency.ADD_REMOVE and unit is Unit.GROUP
    whose = "any one group (person)" if present else unit.all_rows
    return f"protects the {PROTECTED[adjacency]} of {whose}"


_LIMITS = (
    SCOPE,
    "The public facts listed above may become known to anyone who sees the results.",
    (
        "Facts about people in general: the results may reveal something about someone who is "
        "not among the rows."
    ),
)
_COMPOSITION = (
    "Other results computed from the same rows, such as other fits, tuning or statistics: their "
    "cost is extra."
)


def sections(certificate: Certificate) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the guarantee in plain words, as headings with their sentences."""
    unit, parts = certificate.unit, certificate.parts.values()
    verb = "fitted" if any(one.loss is not None for one in parts) else "made"
    about = certificate.title
    if len(parts) > 1:
        verb = "carried out"
        about = f"A study of {certificate.protection.sizes} ({', '.join(certificate.parts)})"
    claim = (
        f"{about} was {verb} with differential privacy: epsilon = "
        f"{rounded_up(certificate.epsilon)}, delta = {rounded_up(certificate.delta)}, relation "
        f"'{certificate.adjacency.value}'."
    )
    known = "cannot" if certificate.noise_is_private else "can"
    origin = (
        f"Noise source: {certificate.noise_source} ({known} be reproduced). Epsilon computed by: "
        f"{certificate.accountant} ({certificate.accountant_version})."
    )
    ledger = certificate.ledger
    released = (*_released(certificate), origin, *(() if ledger is None else (ledger.describe(),)))
    facts = tuple(
        f"{name} = {value_in_words(fact.value)}: {PROVENANCE[fact.provenance]}"
        for name, fact in named_facts(certificate)
    )
    several = (
        f"A person with several {unit.value}s: for k {unit.value}s, epsilon grows k-fold, and "
        "delta by more."
    )
    factor = plain_number(math.exp(min(certificate.epsilon, 700.0)), 3)
    meaning = (
        f"That change makes no outcome more than e^epsilon = {factor} times as likely, up to an "
        "additional probability of delta."
    )
    theorems: dict[str, None] = {}
    for part in parts:
        with contextlib.suppress(ValueError):
            theorems |= dict.fromkeys(part.rebuild().theorems)
    try:
        costs = tuple(
            f"{spending_in_words(one)}."
            if len(parts) == 1
            else f"{spending_in_words(one)}; uses {certificate.rows_in_words(one.stage)}."
            for one in spending(certificate)
        )
    except ValueError as error:
        costs = (str(error),)
    found = (
        ("Warning", cautions(certificate)),
        ("Guarantee", (claim, certificate.adjacency.describe(unit), meaning)),
        ("Releases", released),
        ("Budget by stage", costs),
        ("Theorems", tuple(theorems)),
        ("Public facts", facts or ("None.",)),
        ("Not covered", (*_LIMITS, several, _COMPOSITION)),
    )
    return tuple((heading, sentences) for heading, sentences in found if sentences)


def value_in_words(value: Any) -> str:
    """Return a fact's value as text, shortened.

    >>> value_in_words([0.0, 1.5]), value_in_words("yes"), value_in_words(32561)
    ('0, 1.5', 'yes', '32561')
    >>> value_in_words([[-1.0] * 50, [1.0] * 50])
    '[-1 (50 times)], [1 (50 times)]'
    """
    text = _words(value, brackets=False)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE].rstrip(' ,')} ..."


def _words(value: Any, *, brackets: bool = True) -> str:
    if isinstance(value, list) and len(value) > 3 and all(one == value[0] for one in value):
        text = f"{_words(value[0])} ({len(value)} times)"
    elif isinstance(value, list):
        text = ", ".join(map(_words, value))
    elif isinstance(value, dict):
        text = ", ".join(f"{key}: {_words(entry)}" for key, entry in value.items())
    elif isinstance(value, float):
        return plain_number(value, 6)
    else:
        return "yes" if value is True else "no" if value is False else str(value)
    return f"[{text}]" if brackets else text


def _released(certificate: Certificate) -> Iterator[str]:
    """Describe the releases; those of several parts begin with the name of the part."""
    if len(certificate.parts) == 1:
        yield from (f"{sentence}." for sentence in describe_event(certificate.event))
        return
    for name, part in certificate.parts.items():
        yield from (f"{name}: {sentence}." for sentence in describe_event(part.event))
    if certificate.split is not None:
        pair = "Model and evaluation" if EVALUATION in certificate.parts else "Models of a and of b"
        yield f"{pair} use disjoint rows, so each row is charged for one of them only."


def named_facts(certificate: Certificate) -> Iterator[tuple[str, PublicFact]]:
    """List the public facts with their names, and with their parts where parts differ."""
    facts = certificate.public_facts
    names = [fact.name for fact in facts]
    for fact in facts:
        parts = [part for part, one in certificate.parts.items() if fact in one.public_facts]
        is_unique = names.count(fact.name) == 1
        yield fact.name if is_unique else f"{fact.name} ({', '.join(parts)})", fact
