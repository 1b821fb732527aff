"""The guarantee in plain words: the promise, its cost, what was public, what is not covered."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from dpglm._json import at, check_writable, plain_json
from dpglm._validation import check_one_of
from dpglm._words import plain_number, rounded_up
from dpglm.data.spec import DataSpec
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.budget import weak_delta, weak_epsilon
from dpglm.privacy.events import DisjointParts, Event, RandomlyRepeated, canonical, describe_event
from dpglm.privacy.releases import AnyRelease
from dpglm.solvers.base import Stage
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate


# Public facts: what a guarantee treats as known to everyone, and where it came from.

LABELS = "labels"
"""Name of the fact that names failure and success, where a regressor predicts proportions."""
WHERE = "where"
"""Name of the fact that a private condition chose which rows count."""
WHERE_IN_WORDS = "a private condition; how many rows meet it stays private"
Provenance = Literal["declared", "implied", "by relation", "private", "from the data"]


@final
@dataclass(frozen=True)
class PublicFact:
    """Something that the guarantee treats as known to everyone.

    Parameters
    ----------
    name : str
        Name of the fact, such as ``"row_norm"``.
    value : JSON value, NumPy scalar or array
        Kept as plain JSON values; infinities and NaN as their names.
    provenance : {"declared", "implied", "by relation", "private", "from the data"}
        Given by the caller; what follows from such facts; shared by all neighbouring data sets, so
        that it reveals nothing about a row, unless a private condition chose the rows; learned
        from private rows by a release that was paid for, which ``value`` names; or taken from them
        for convenience, which is a leak.

    Examples
    --------
    >>> import numpy as np
    >>> PublicFact("classes", np.array([0, 1]), "declared").value
    [0, 1]
    """

    name: str
    value: Any
    provenance: Provenance

    def __post_init__(self) -> None:
        check_one_of("provenance", self.provenance, get_args(Provenance))
        object.__setattr__(self, "value", plain_json(self.value))
        with at(self.name):
            check_writable(self.value)


def with_implied(facts: Iterable[PublicFact], name: str, value: Any) -> tuple[PublicFact, ...]:
    """Return facts, the declared one of a name as implied by the others where it has this value."""
    own = PublicFact(name, value, "declared")
    implied = PublicFact(name, value, "implied")
    return tuple(implied if fact == own else fact for fact in facts)


def schema_facts(schema: Schema) -> tuple[PublicFact, ...]:
    """Return the declared facts about the table that was encoded, and bounds that were paid for."""
    document = {"provenance": schema.provenance} | schema.to_dict()
    bought = (
        PublicFact(
            f"bounds of {name}",
            {"low": low, "high": high} | vars(paid),
            "private",
        )
        for name, (low, high, paid) in schema.paid_bounds.items()
    )
    return (PublicFact("schema", document, "declared"), *bought)


def size_facts(
    data: DataSpec, adjacency: Adjacency, *, chosen: bool = False
) -> tuple[PublicFact, ...]:
    """Return the public numbers of rows and, where these are in groups, of groups and their rows.

    Those that the relation leaves private were declared. With ``chosen`` rows of the table count
    by a private condition.
    """
    where = (PublicFact(WHERE, WHERE_IN_WORDS, "declared"),) * chosen

    def counted(name: str, value: int, is_public: bool) -> PublicFact:
        return PublicFact(name, value, "by relation" if is_public else "declared")

    rows = counted("n_rows", data.n_rows, adjacency.rows_are_public(data.unit))
    if data.groups is None:
        return (rows, *where)
    return (
        rows,
        *where,
        counted("n_groups", data.groups.n_groups, adjacency.n_is_public),
        PublicFact("max_rows_per_group", int(data.groups.rows), "declared"),
    )


# What weakens a claim: rules about certificates, each with its reason.

SCOPE = (
    "This certificate covers the releases that it lists, and nothing else. If another step "
    "learned from the same rows (a scaler, an imputer, a choice of columns, another fit), that is "
    "not covered, and no certificate can know of it."
)
"""What no certificate can know."""


@final
@dataclass(frozen=True)
class Caution:
    """A rule about certificates; ``says`` returns a sentence where it applies, else None.

    It never raises for a certificate that could be read.
    """

    name: str
    reason: str
    says: Callable[[Certificate], str | None]


def cautions(certificate: Certificate) -> tuple[str, ...]:
    """Return a sentence for each rule of ``CAUTIONS`` that weakens a certificate's claim."""
    said = (rule.says(certificate) for rule in CAUTIONS)
    return tuple(sentence for sentence in said if sentence is not None)


def _seeded(certificate: Certificate) -> str | None:
    if certificate.noise_is_private:
        return None
    return (
        f"NOT PRIVATE: the noise came from a seeded generator ({certificate.noise_source}). "
        "Whoever learns or guesses the seed can subtract it. The guarantee would hold with noise "
        "from the operating system (random_state=None)."
    )


def _leaked(certificate: Certificate) -> str | None:
    names = [fact.name for fact in certificate.public_facts if fact.provenance == "from the data"]
    if not names:
        return None
    return (
        f"WEAKER THAN STATED, because of what came from the private data: {', '.join(names)}. The "
        "guarantee holds only if that reveals nothing about any one row; declare it from public "
        "knowledge instead."
    )


def _weak_epsilon(certificate: Certificate) -> str | None:
    return _weak(weak_epsilon(certificate.epsilon))


def _weak_delta(certificate: Certificate) -> str | None:
    return _weak(weak_delta(certificate.delta, max(_rows(certificate), default=None)))


def _weak(sentence: str | None) -> str | None:
    return None if sentence is None else f"WEAK GUARANTEE: {sentence}"


def _rows(certificate: Certificate) -> Iterator[int]:
    """List what the plan and the public facts give as the number of rows, or of groups."""
    if certificate.data.groups is not None:
        yield certificate.data.n_units
        return
    found = [fact.value for fact in certificate.public_facts if fact.name == "n_rows"]
    yield certificate.data.n_rows
    yield from (value for value in found if type(value) is int and value > 0)


CAUTIONS = (
    Caution(
        "seeded noise",
        "Noise that can be computed can be subtracted: the guarantee rests on random bits that "
        "nobody knows (Garfinkel and Leclerc, 'Randomness concerns when deploying differential "
        "privacy', WPES 2020).",
        _seeded,
    ),
    Caution(
        "facts from the data",
        "Bounds, classes and weights taken from the rows are released without noise: one row may "
        "change them with certainty.",
        _leaked,
    ),
    Caution(
        "weak epsilon",
        "Above 10 the formal guarantee alone says next to nothing: a guess that is right with "
        "probability 1 % may become right with more than 99 % (Ponomareva et al., 'How to DP-fy "
        "ML', JAIR 77 (2023): up to 1 is strong, up to 10 reasonable, above 10 "
        "weak).",
        _weak_epsilon,
    ),
    Caution(
        "large delta",
        "To publish one of n rows, picked at random, is (0, 1/n)-differentially private under "
        "zero_out and replace_one; to publish each row with probability delta is "
        "(0, delta)-differentially private (Dwork and Roth, 'The algorithmic foundations of "
        "differential privacy', 2014, section 2.3). Few rows make 1/n large, so a hundredth is "
        "the limit for them.",
        _weak_delta,
    ),
)
"""The rules, in the order of their sentences."""


# What each stage of a fit released, and what that costs by itself.

_ONLY_STAGE = "model"


@final
@dataclass(frozen=True)
class Spending:
    """What one stage of a fit spent.

    Parameters
    ----------
    stage : str
        Name of the stage, with its part of the rows where these were divided.
    releases : tuple of Release
        What it released; empty for a stage without releases.
    epsilon : float
        What that costs by itself, at the delta of the whole fit.
    mu : float or None
        Its mu as Gaussian DP. If not all of it is Gaussian: that of the Gaussian release which
        costs the same epsilon at that delta; None where delta is 0.
    is_gaussian : bool
        Whether all of it is Gaussian, so that ``mu`` says everything.
    share : float or None
        Its share of the stages' mu squared, which add up; None where stages are about disjoint
        parts of the rows (they do not add up: a row pays in its part only), or mu is None.
    """

    stage: str
    releases: tuple[AnyRelease, ...]
    epsilon: float
    mu: float | None
    is_gaussian: bool
    share: float | None


def spending(certificate: Certificate) -> tuple[Spending, ...]:
    """List what each stage of a fit spent, from its certificate alone.

    Privacy: epsilons by themselves add up to more than the whole, whose stages compose better
    than that; of Gaussian stages the squares of mu add up exactly.

    >>> from dpglm.estimators import LogisticRegression
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0).fit([[0.5], [1.0]], [0, 1])
    >>> [(one.stage, round(one.mu, 3), one.share) for one in spending(model.privacy_)]
    [('model', 0.268, 1.0)]
    """
    try:
        plan = certificate.rebuild()
    except ValueError as error:
        raise ValueError(f"the record does not say who spent what ({error})") from error
    stages = list(_leaves(plan.method.stages))
    if len(stages) < 2:
        name = stages[0].name if stages else _ONLY_STAGE
        only = Stage(name, certificate.releases, certificate.event)
        found = [costing(only, certificate.adjacency, certificate.delta, certificate.epsilon)]
    else:
        found = [costing(one, certificate.adjacency, certificate.delta) for one in stages]
    # A row pays in one part only, and of tries the costliest counts: squares do not add up.
    apart = len(stages) > 1 and isinstance(canonical(plan.event), DisjointParts | RandomlyRepeated)
    if apart or any(one.mu is None for one in found):
        return tuple(found)
    total = math.fsum(one.mu**2 for one in found if one.mu is not None)
    return tuple(
        dataclasses.replace(one, share=one.mu**2 / total if one.mu else 0.0) for one in found
    )


def _leaves(stages: Iterable[Stage], lead: str = "") -> Iterator[Stage]:
    """List the leaves of nested stages, with full names; stages in parts are one leaf."""
    for one in stages:
        part = "" if one.part is None else f", part {one.part + 1}"
        name = f"{lead}: {one.name}" if lead else f"{one.name}{part}"
        if one.stages and all(inner.part is None for inner in one.stages):
            yield from _leaves(one.stages, name)
        else:
            yield dataclasses.replace(one, name=name)


def _epsilon(event: Event, adjacency: Adjacency, delta: float) -> float:
    if not canonical(event).terms():
        return 0.0
    return accountant_for(event, adjacency).epsilon(event, adjacency, delta)


def costing(
    stage: Stage, adjacency: Adjacency, delta: float, epsilon: float | None = None
) -> Spending:
    """Say what a stage spends by itself, without its share; epsilon is computed if not known."""
    if epsilon is None:
        epsilon = _epsilon(stage.event, adjacency, delta)
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
    """Return a sentence on what a stage spent.

    >>> from dpglm.privacy.noise.additive import GaussianNoise
    >>> from dpglm.privacy.releases import Release
    >>> release = Release("row sum", GaussianNoise(20.0), Adjacency.ZERO_OUT, 1.0, 5)
    >>> print(spending_in_words(Spending("center", (release,), 0.1675, 0.05, True, 0.035)))
    center: row sum (standard deviation 20 x sensitivity); epsilon = 0.1675 by itself; mu = 0.05,
    3.5 % of mu^2
    """
    released = ", ".join(_in_words(release) for release in one.releases)
    if not released:
        return f"{one.stage}: asked the rows nothing"
    parts = [f"{one.stage}: {released}", f"epsilon = {rounded_up(one.epsilon)} by itself"]
    if one.mu is not None:
        like = "" if one.is_gaussian else " (of a Gaussian release with that epsilon)"
        share = "" if one.share is None else f", {plain_number(100.0 * one.share, 3)} % of mu^2"
        parts.append(f"mu = {plain_number(one.mu)}{like}{share}")
    return "; ".join(parts)


def _in_words(release: AnyRelease) -> str:
    times = "" if release.count == 1 else f"{release.count} times, "
    return f"{release.quantity} ({times}{release.mechanism.in_words})"


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
