"""The certificate of a fit or a study: every number on which the privacy claim rests."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, final, get_args

import numpy as np
from numpy.typing import ArrayLike

from dpglm._calls import checked
from dpglm._codec import Format, decode
from dpglm._json import at, check_writable, in_file, load, plain_json
from dpglm._validation import check_one_of, check_real
from dpglm._words import card, rounded_up, visible
from dpglm.certificate.methods import methods, record
from dpglm.certificate.statement import (
    cautions,
    relation_in_words,
    sections,
    spending,
)
from dpglm.data.rows import DataSpec, Protection
from dpglm.data.split import MODEL, Split, composed_event, rows_in_words, side_of
from dpglm.exceptions import TooCostlyError
from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.store import write_json
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.budget import Adjacency, PrivacyBudget, Unit
from dpglm.privacy.events import Composed, Event
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.releases import AnyRelease
from dpglm.problem import LogLink, Problem
from dpglm.solvers.base import Plan
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.schema import Schema

T = TypeVar("T")

_MAX_PLANS, _MAX_VALUES = 500, 1_000_000

# Values that a part reads from its plan, and keeps.
_READ = ("_plan", "adjacency", "budget", "data", "problem")
_LIBRARIES = ("dpglm", "numpy", "scikit-learn", "scipy")
_NAME = re.compile(r"[a-z][a-z_]{0,29}", re.ASCII)


def check_part(name: str) -> None:
    """Refuse names of parts that are not a word, as names of files and in sentences."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"parts must be named by lower-case letters and '_', got {name[:60]!r}")


# Public facts.

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


# Parts, and the certificate of all of them.


@final
@dataclass(frozen=True)
class CertifiedPart:
    """The record of one part of a study; a fit has a single part.

    Parameters
    ----------
    estimator : str
        Class of the fitted model, or of the result.
    loss : str or None
        Loss of the fitted model; None if no model was fitted.
    plan : mapping
        The plan that was executed, as JSON (``Plan.document``). ``rebuild`` makes it anew.
    event : Event
        The event that was accounted for.
    mechanisms : Event
        The releases that the run recorded. ``event`` costs at least as much as their published
        outputs.
    releases : tuple of Release
        Each kind of release, with the bound on the contribution of one row and the noise.
    noise_scales : tuple of float
        The noise scale of each release, as drawn.
    public_facts : tuple of PublicFact
        Everything that was treated as public.
    model_digest : str
        ``model_digest`` of the released values.
    """

    estimator: str
    loss: str | None
    plan: Mapping[str, Any]
    event: Event
    mechanisms: Event
    releases: tuple[AnyRelease, ...]
    noise_scales: tuple[float, ...]
    public_facts: tuple[PublicFact, ...]
    model_digest: str

    @functools.cached_property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of the plan."""
        return self._planned("adjacency", Adjacency)

    @functools.cached_property
    def budget(self) -> PrivacyBudget:
        """The budget of the plan."""
        return self._planned("budget", PrivacyBudget)  # type: ignore[type-abstract]

    @functools.cached_property
    def data(self) -> DataSpec:
        """The public facts about the rows that the plan was made from."""
        return self._planned("data", DataSpec)

    @functools.cached_property
    def problem(self) -> Problem:
        """The problem that was solved; a ValueError if its classes have not been imported."""
        with at("plan"), at("method"):
            method = self.plan.get("method")
            if not isinstance(method, Mapping):
                raise ValueError("must be an object")
            return decode(Problem, method.get("problem"))

    def _planned(self, name: str, kind: type[T]) -> T:
        with at("plan"), at(name):
            return decode(kind, self.plan.get(name))

    @functools.cached_property
    def _plan(self) -> Plan:
        # Importing these registers every class of this library that a plan may name.
        import dpglm.preprocessing
        import dpglm.selection
        import dpglm.solvers  # noqa: F401

        check_size(self.plan)
        with at("plan"):
            return Plan.from_document(self.plan)

    def rebuild(self) -> Plan:
        """Make the plan anew, with all checks of planning.

        Raises ValueError if the plan is invalid or a class has not been imported, and
        TooCostlyError for more than 500 plans or a million values.
        """
        return self._plan

    def fact(self, name: str) -> PublicFact | None:
        """Return the public fact of that name, or None."""
        return next((fact for fact in self.public_facts if fact.name == name), None)


@checked
@final
@dataclass(frozen=True)
class Certificate:
    """The releases of a fit or a study, their cost, and the public facts.

    Parameters
    ----------
    parts : mapping from str to CertifiedPart
        Record of each part, by its name: ``"exploration"``, ``"model"`` or ``"evaluation"``. A
        fit, a description and an evaluation have one part.
    protection : Protection
        The neighbouring relation, the total budget and the public sizes.
    epsilon, delta : float
        Cost of all parts together: epsilon at that delta.
    accountant, accountant_version : str
        The accountant that computed epsilon.
    noise_source : str
        Name of the noise source.
    noise_is_private : bool
        Whether the noise cannot be reproduced.
    versions : mapping from str to str
        Versions of the libraries that ran.
    split : Split, optional
        The split of the rows between model and evaluation, for a study with both.
    ledger : LedgerReference, optional
        The ledger entry that recorded the run before its first release.

    Notes
    -----
    Attributes of the only part, such as ``plan`` and ``model_digest``, are available on the
    certificate of a single fit.

    Privacy: a certificate contains nothing computed from private rows, except facts with the
    provenance ``"from the data"``, so it may be published with the results.
    ``dpglm.certificate.verify`` finds claims that do not follow from the record. A consistent
    forgery cannot be detected from a file.
    """

    parts: Mapping[str, CertifiedPart]
    protection: Protection
    epsilon: float
    delta: float
    accountant: str
    accountant_version: str
    noise_source: str
    noise_is_private: bool
    versions: Mapping[str, str]
    split: Split | None = None
    ledger: LedgerReference | None = None

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, least=0.0)
        check_real("delta", self.delta, least=0.0, below=1.0)
        object.__setattr__(self, "versions", dict(self.versions))
        if not self.parts:
            raise ValueError("parts must be at least one, got none")
        for name in self.parts:
            check_part(name)
        divided = len(self.parts) > 1 and 1 in map(side_of, self.parts)
        if divided != (self.split is not None):
            raise ValueError("split must be given for a study with an evaluation, and only then")
        if self.split is not None and self.split.persons is None and self.unit is Unit.GROUP:
            raise ValueError("split must be by person where persons are protected")

    @property
    def part(self) -> CertifiedPart:
        """The only part; a ValueError for a study with several."""
        if len(self.parts) > 1:
            raise ValueError(f"name one of the parts {', '.join(self.parts)} of the study")
        return next(iter(self.parts.values()))

    def with_part(self, **changes: Any) -> Certificate:
        """Return the certificate of a single fit with other values in its part."""
        (name,) = self.parts
        part = dataclasses.replace(self.part, **changes)
        if part.plan is self.part.plan:
            vars(part).update({name: one for name, one in vars(self.part).items() if name in _READ})
        return dataclasses.replace(self, parts={name: part})

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation."""
        return self.protection.adjacency

    @property
    def budget(self) -> PrivacyBudget:
        """The total budget."""
        return self.protection.budget

    @property
    def unit(self) -> Unit:
        """The protected unit: a row, or a group with all its rows."""
        return self.protection.unit

    @property
    def estimator(self) -> str:
        """Class of the only part's estimator."""
        return self.part.estimator

    @property
    def loss(self) -> str | None:
        """Loss of the only part; None if no model was fitted."""
        return self.part.loss

    @property
    def plan(self) -> Mapping[str, Any]:
        """Plan of the only part, as JSON."""
        return self.part.plan

    @property
    def data(self) -> DataSpec:
        """Public facts about the rows of the only part."""
        return self.part.data

    @property
    def problem(self) -> Problem:
        """The problem of the only part."""
        return self.part.problem

    @property
    def model_digest(self) -> str:
        """Digest of the values released by the only part."""
        return self.part.model_digest

    def rebuild(self) -> Plan:
        """Make the plan of the only part anew, as ``CertifiedPart.rebuild``."""
        return self.part.rebuild()

    @property
    def event(self) -> Event:
        """The event of all parts together."""
        events = {name: one.event for name, one in self.parts.items()}
        return composed_event(events, self.split, self.adjacency)

    @property
    def mechanisms(self) -> Event:
        """The releases of all parts, as recorded."""
        every = tuple(one.mechanisms for one in self.parts.values())
        return every[0] if len(every) == 1 else Composed(every)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        """Each kind of release, of all parts."""
        return tuple(release for one in self.parts.values() for release in one.releases)

    @property
    def noise_scales(self) -> tuple[float, ...]:
        """The noise scale of each release, of all parts."""
        return tuple(scale for one in self.parts.values() for scale in one.noise_scales)

    @property
    def public_facts(self) -> tuple[PublicFact, ...]:
        """Everything that was treated as public; each fact once."""
        found: list[PublicFact] = []
        for one in self.parts.values():
            found += [fact for fact in one.public_facts if fact not in found]
        return tuple(found)

    @property
    def is_private(self) -> bool:
        """Whether the claim holds: False if the noise can be reproduced."""
        return self.noise_is_private

    @property
    def relation(self) -> str:
        """The protection of the relation, in words."""
        return relation_in_words(self.adjacency, self.unit)

    @property
    def title(self) -> str:
        """The estimator, or "a study"."""
        return self.estimator if len(self.parts) == 1 else "a study"

    @property
    def cost(self) -> str:
        """Epsilon and delta in words, rounded up."""
        return f"epsilon {rounded_up(self.epsilon)}, delta {rounded_up(self.delta)}"

    methods = methods
    record = record
    caveats = cautions
    spending = spending
    sections = sections

    def rows_in_words(self, part: str) -> str:
        """Describe the rows that a part uses."""
        return rows_in_words(part, self.split)

    def fact(self, name: str) -> PublicFact | None:
        """Return the first public fact of that name, or None."""
        return next((fact for fact in self.public_facts if fact.name == name), None)

    @property
    def schema(self) -> Schema | None:
        """The schema among the public facts; None for a fit without one."""
        return None if (fact := self.fact("schema")) is None else Schema.from_dict(fact.value)

    @property
    def largest_score(self) -> float:
        """The score above which an exponential mean would exceed the target bounds of the fit.

        Infinite for other means, and where targets grow with offsets.
        """
        loss, bounds = self.problem.loss, self.fact("target_bounds")
        if bounds is None or not isinstance(loss.link, LogLink) or loss.without_offset != loss:
            return math.inf
        high = float(bounds.value[1])
        return math.log(high) if high > 0.0 else math.inf

    def statement(self) -> str:
        """Return the guarantee in plain words, as text of several paragraphs."""
        return "\n\n".join(
            "\n".join([heading, *(f"  - {sentence}" for sentence in sentences)])
            for heading, sentences in self.sections()
        )

    def __str__(self) -> str:
        first = f"Privacy of {self.title}: {self.cost}, {self.adjacency.value} ({self.relation})"
        return "\n".join(map(visible, [first, *self.caveats()]))

    def _repr_html_(self) -> str:
        return card(
            f"Privacy of {self.title}",
            [
                ("epsilon", rounded_up(self.epsilon)),
                ("delta", rounded_up(self.delta)),
                ("relation", f"{self.adjacency.value}: {self.relation}"),
                ("noise", self.noise_source),
            ],
            warnings=self.caveats(),
            sections=[one for one in self.sections() if one[0] != "Warning"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for ``from_dict``."""
        return FORMAT.write(self)

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Certificate:
        """Read what ``to_dict`` returned; a ValueError names the invalid key or value.

        Consistency is checked by ``dpglm.certificate.verify``.
        """
        found = FORMAT.read(document)
        for name, part in found.parts.items():
            with at("parts"), at(name):
                _ = part.adjacency, part.budget, part.data
        return found

    @checked
    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a JSON file, atomically."""
        write_json(path, self.to_dict())

    @staticmethod
    @checked
    def from_json(path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate that ``to_json`` wrote; a ValueError names file and field."""
        with in_file(path):
            return Certificate.from_dict(load(path))


FORMAT = Format("dpglm certificate", 6, Certificate, {3: "0.1", 4: "0.1", 5: "0.1"})
"""The format of certificates."""


@checked
def certify(
    estimator_name: str,
    solution: Solution,
    noise: NoiseSource,
    facts: tuple[PublicFact, ...],
    coef: ArrayLike,
    intercept: ArrayLike,
    name: str = MODEL,
) -> Certificate:
    """Return the certificate of a run.

    Parameters
    ----------
    estimator_name : str
        Class of the estimator.
    solution : Solution
        The result of ``dpglm.solvers.run``.
    noise : NoiseSource
        The noise source of the run.
    facts : tuple of PublicFact
        The public facts, with their provenance.
    coef, intercept : array_like
        The released coefficients; their digest ties the certificate to them.
    name : {"exploration", "model", "evaluation"}, default="model"
        Name of the part.

    Notes
    -----
    Privacy: ``epsilon`` is the cost of the event, at most the budget. For a budget in another
    currency it is given at ``default_delta`` of the public number of rows, or of groups.
    """
    plan = solution.plan
    part = CertifiedPart(
        estimator=estimator_name,
        loss=loss_in_words(plan),
        plan=plan.document,
        event=plan.method.event,
        mechanisms=plan.method.mechanisms,
        releases=plan.method.releases,
        noise_scales=tuple(one.scale.std for one in plan.method.releases),
        public_facts=facts,
        model_digest=model_digest(coef, intercept),
    )
    # The plan at hand need not be read back.
    vars(part).update(_plan=plan, adjacency=plan.adjacency, budget=plan.budget, data=plan.data)
    if plan.method.problem is not None:
        vars(part).update(problem=plan.method.problem)
    return certify_study({name: part}, plan.protection, noise, None, solution.ledger_entry)


def certify_study(
    parts: Mapping[str, CertifiedPart],
    protection: Protection,
    noise: NoiseSource,
    split: Split | None,
    ledger: LedgerReference | None,
) -> Certificate:
    """Account for the parts of a study together."""
    adjacency, delta = protection.adjacency, protection.delta
    first, *others = events = {name: one.event for name, one in parts.items()}
    event = composed_event(events, split, adjacency) if others else events[first]
    accountant = accountant_for(event, adjacency)
    return Certificate(
        parts=parts,
        protection=protection,
        epsilon=accountant.epsilon(event, adjacency, delta),
        delta=delta,
        accountant=accountant.name,
        accountant_version=accountant.version,
        noise_source=noise.name,
        noise_is_private=noise.is_private,
        versions=library_versions(*noise.libraries),
        split=split,
        ledger=ledger,
    )


def loss_in_words(plan: Plan) -> str | None:
    """Return the loss that a plan minimises, in one line; None if it fits no model."""
    problem = plan.method.problem
    return None if problem is None else " ".join(repr(problem.loss).split())


def check_size(document: Any) -> None:
    """Refuse a document with more than 500 plans or a million values."""
    plans, values, left = 0, 0, [document]
    while left:
        one = left.pop()
        values += 1
        if isinstance(one, Mapping):
            plans += "method" in one
            left += one.values()
        elif isinstance(one, list):
            left += one
        if plans > _MAX_PLANS or values > _MAX_VALUES:
            raise TooCostlyError(
                f"a plan with more than {_MAX_PLANS} plans or {_MAX_VALUES} values is not rebuilt"
            )


@checked
def model_digest(coef: ArrayLike, intercept: ArrayLike) -> str:
    """Return the SHA-256 digest of shapes and float64 bytes of coefficients and intercept.

    Parameters
    ----------
    coef, intercept : array_like
        Any shapes.
    """
    digest = hashlib.sha256()
    for values in (coef, intercept):
        array = np.asarray(values, dtype="<f8")
        digest.update(repr(array.shape).encode())
        digest.update(array.tobytes(order="C"))
    return digest.hexdigest()


def library_versions(*others: str) -> dict[str, str]:
    """Return the versions of Python, of the libraries that every fit uses, and of others."""
    versions = {name: _version(name) for name in (*_LIBRARIES, *others)}
    return {"python": platform.python_version(), **versions}


# A look-up takes milliseconds.
@functools.cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
