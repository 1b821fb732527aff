"""The guarantee in plain words: the promise, its cost, the public facts, and the limits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from dpglm._json import at, check_writable, plain_json
from dpglm._validation import check_one_of
from dpglm._words import plain_number, rounded_up
from dpglm.data.rows import DataSpec
from dpglm.data.split import EVALUATION
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.budget import Adjacency, Unit, weak_delta, weak_epsilon
from dpglm.privacy.events import DisjointParts, RandomlyRepeated, canonical, describe_event
from dpglm.privacy.releases import AnyRelease
from dpglm.solvers.base import FitStage
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate, CertifiedPart


# Public facts.

LABELS = "labels"
"""Name of the fact with the labels of failure and success, for regressors of proportions."""
WHERE = "where"
"""Name of the fact that a private condition selected the rows."""
WHERE_IN_WORDS = "a private condition; the number of rows that meet it stays private"
Provenance = Literal["declared", "implied", "by relation", "private", "from the data"]


@final
@dataclass(frozen=True)
class PublicFact:
    """A value that the guarantee treats as public.

    Parameters
    ----------
    name : str
        Name of the fact, such as ``"row_norm"``.
    value : JSON value, NumPy scalar or array
        Kept as plain JSON values; infinities and NaN as their names.
    provenance : {"declared", "implied", "by relation", "private", "from the data"}
        ``"declared"``: given by the caller. ``"implied"``: follows from declared facts.
        ``"by relation"``: equal for all neighbouring data sets, unless a private condition selected
        the rows. ``"private"``: learned by another private release, which ``value`` names.
        ``"from the data"``: taken from the rows without protection, which is a leak.

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
    """Mark the declared fact with this name and value as implied by the others."""
    own = PublicFact(name, value, "declared")
    implied = PublicFact(name, value, "implied")
    return tuple(implied if fact == own else fact for fact in facts)


def schema_facts(schema: Schema) -> tuple[PublicFact, ...]:
    """Return the schema as a declared fact, and the bounds that were found privately."""
    document = {"provenance": schema.provenance} | schema.to_dict()
    found = (
        PublicFact(f"bounds of {name}", {"low": low, "high": high} | vars(paid), "private")
        for name, (low, high, paid) in schema.paid_bounds.items()
    )
    return (PublicFact("schema", document, "declared"), *found)


def size_facts(
    data: DataSpec, adjacency: Adjacency, *, chosen: bool = False
) -> tuple[PublicFact, ...]:
    """Return the public numbers of rows, and of groups and their rows where there are groups.

    ``chosen`` says that a private condition selected the rows.
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


# Cautions: weaknesses of a claim.

SCOPE = (
    "This certificate covers only the releases that it lists. Another step that learned from the "
    "same rows (a scaler, an imputer, a choice of columns, another fit) is not covered, and cannot "
    "be detected from a certificate."
)
"""The limit of every certificate."""


def cautions(certificate: Certificate) -> tuple[str, ...]:
    """Return a sentence for each rule of ``CAUTIONS`` that applies."""
    found = (rule(certificate) for rule in CAUTIONS.values())
    return tuple(sentence for sentence in found if sentence is not None)


def _seeded(certificate: Certificate) -> str | None:
    """Warn of noise that can be computed, and then subtracted: it must be secret random bits.

    Garfinkel and Leclerc, "Randomness concerns when deploying differential privacy", WPES 2020.
    """
    if certificate.noise_is_private:
        return None
    return (
        f"NOT PRIVATE: the noise came from a seeded generator ({certificate.noise_source}). "
        "Anyone who learns or guesses the seed can subtract it. Use noise from the operating "
        "system (random_state=None)."
    )


def _leaked(certificate: Certificate) -> str | None:
    """Warn of facts taken from the rows without noise: one row may change them with certainty."""
    names = [fact.name for fact in certificate.public_facts if fact.provenance == "from the data"]
    if not names:
        return None
    return (
        f"WEAKER THAN STATED, because of values taken from the private data: {', '.join(names)}. "
        "The guarantee does not cover what they reveal. Declare them from public knowledge."
    )


def _weak_epsilon(certificate: Certificate) -> str | None:
    """Warn of an epsilon above 10: a guess that is right with 1 % may become right with 99 %.

    Ponomareva et al., "How to DP-fy ML", JAIR 77 (2023): up to 1 is strong, up to 10 reasonable.
    """
    return _weak(weak_epsilon(certificate.epsilon))


def _weak_delta(certificate: Certificate) -> str | None:
    """Warn of a delta of 1/n or 0.01: it allows publishing a row at random.

    Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, section 2.3.
    """
    return _weak(weak_delta(certificate.delta, max(_units(certificate))))


def _weak(sentence: str | None) -> str | None:
    return None if sentence is None else f"WEAK GUARANTEE: {sentence}"


def _units(certificate: Certificate) -> Iterator[int]:
    """List the numbers of rows, or of groups, in the record."""
    yield certificate.protection.n_units
    for part in certificate.parts.values():
        yield part.data.n_units
    if certificate.unit is Unit.ROW:
        found = [fact.value for fact in certificate.public_facts if fact.name == "n_rows"]
        yield from (value for value in found if type(value) is int and value > 0)


CAUTIONS: dict[str, Callable[[Certificate], str | None]] = {
    "seeded noise": _seeded,
    "facts from the data": _leaked,
    "weak epsilon": _weak_epsilon,
    "large delta": _weak_delta,
}
"""The rules, in the order of their sentences; none raises for a certificate that could be read."""


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

    Privacy: the epsilons of the stages add up to more than the whole, because composition is
    better than that; the squared mus of Gaussian stages add up exactly.

    >>> from dpglm.estimators import LogisticRegression
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0).fit([[0.5], [1.0]], [0, 1])
    >>> [(one.stage, round(one.mu, 3), one.share) for one in spending(model.privacy_)]
    [('model', 0.268, 1.0)]
    """
    if len(certificate.parts) > 1:
        return _spending_of_parts(certificate)
    try:
        plan = certificate.rebuild()
    except ValueError as error:
        raise ValueError(f"the record does not state the cost of each stage ({error})") from error
    stages = list(_leaves(plan.method.stages))
    if len(stages) < 2:
        name = stages[0].name if stages else "model"
        only = FitStage(name, certificate.releases, certificate.event)
        found = [costing(only, certificate.adjacency, certificate.delta, certificate.epsilon)]
    else:
        found = [costing(one, certificate.adjacency, certificate.delta) for one in stages]
    # Squares do not add up for disjoint rows, nor for repetitions, where the costliest counts.
    apart = len(stages) > 1 and isinstance(canonical(plan.event), DisjointParts | RandomlyRepeated)
    if apart or any(one.mu is None for one in found):
        return tuple(found)
    total = math.fsum(one.mu**2 for one in found if one.mu is not None)
    return tuple(
        dataclasses.replace(one, share=one.mu**2 / total if one.mu else 0.0) for one in found
    )


def _spending_of_parts(certificate: Certificate) -> tuple[Spending, ...]:
    whole = certificate.budget.gdp_mu() ** 2
    found = []
    for name, part in certificate.parts.items():
        stage = FitStage(name, part.releases, part.event)
        one = costing(stage, certificate.adjacency, certificate.delta)
        share = None if one.mu is None else one.mu**2 / whole
        found.append(dataclasses.replace(one, share=share))
    return tuple(found)


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
        silent = not canonical(stage.event).terms()
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
    """Return a sentence on the cost of a stage.

    >>> from dpglm.privacy.noise.additive import GaussianNoise
    >>> from dpglm.privacy.releases import Release
    >>> release = Release("row sum", GaussianNoise(20.0), Adjacency.ZERO_OUT, 1.0, 5)
    >>> print(spending_in_words(Spending("center", (release,), 0.1675, 0.05, True, 0.035)))
    center: row sum (standard deviation 20 x sensitivity); epsilon = 0.1675 alone; mu = 0.05,
    3.5 % of mu^2
    """
    released = ", ".join(_in_words(release) for release in one.releases)
    if not released:
        return f"{one.stage}: no release"
    parts = [f"{one.stage}: {released}", f"epsilon = {rounded_up(one.epsilon)} alone"]
    if one.mu is not None:
        like = "" if one.is_gaussian else " (of a Gaussian release with that epsilon)"
        share = "" if one.share is None else f", {plain_number(100.0 * one.share, 3)} % of mu^2"
        parts.append(f"mu = {plain_number(one.mu)}{like}{share}")
    return "; ".join(parts)


def _in_words(release: AnyRelease) -> str:
    times = "" if release.count == 1 else f"{release.count} times, "
    return f"{release.quantity} ({times}{release.mechanism.in_words})"


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
    """Return the protection of a relation, in words.

    >>> relation_in_words(Adjacency.ZERO_OUT, Unit.GROUP)
    'protects the contribution of all rows of any one group (person)'
    """
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


def meaning_in_words(epsilon: float) -> str:
    """Return the meaning of an epsilon."""
    factor = plain_number(math.exp(min(epsilon, 700.0)), 3)
    return (
        f"That change makes no outcome more than e^epsilon = {factor} times as likely, up to an "
        "additional probability of delta."
    )


def sections(certificate: Certificate) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the guarantee as headings with their sentences."""
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
    meaning = meaning_in_words(certificate.epsilon)
    found = (
        ("Warning", certificate.caveats()),
        ("Guarantee", (claim, certificate.adjacency.describe(unit), meaning)),
        ("Releases", released),
        ("Budget by stage", _spending(certificate)),
        ("Theorems", tuple(dict.fromkeys(said for one in parts for said in _theorems(one)))),
        ("Public facts", facts or ("None.",)),
        ("Not covered", (*_LIMITS, several, _COMPOSITION)),
    )
    return tuple((heading, sentences) for heading, sentences in found if sentences)


def _spending(certificate: Certificate) -> tuple[str, ...]:
    try:
        found = certificate.spending()
    except ValueError as error:
        return (str(error),)
    if len(certificate.parts) == 1:
        return tuple(f"{spending_in_words(one)}." for one in found)
    return tuple(
        f"{spending_in_words(one)}; uses {certificate.rows_in_words(one.stage)}." for one in found
    )


def _theorems(part: CertifiedPart) -> tuple[str, ...]:
    try:
        return part.rebuild().theorems
    except ValueError:
        return ()


def value_in_words(value: Any) -> str:
    """Return a fact's value as text, shortened.

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


def _released(certificate: Certificate) -> Iterator[str]:
    """Describe the releases; those of several parts begin with the name of the part."""
    if len(certificate.parts) == 1:
        yield from (f"{sentence}." for sentence in describe_event(certificate.event))
        return
    for name, part in certificate.parts.items():
        yield from (f"{name}: {sentence}." for sentence in describe_event(part.event))
    if certificate.split is not None:
        pair = "Model and evaluation" if EVALUATION in certificate.parts else "Models of a and of b"
        yield f"{pair} use disjoint rows, so each row pays for one of them only."


def named_facts(certificate: Certificate) -> Iterator[tuple[str, PublicFact]]:
    """List the public facts with their names, and with their parts where parts differ."""
    facts = certificate.public_facts
    names = [fact.name for fact in facts]
    for fact in facts:
        parts = [part for part, one in certificate.parts.items() if fact in one.public_facts]
        is_unique = names.count(fact.name) == 1
        yield fact.name if is_unique else f"{fact.name} ({', '.join(parts)})", fact
