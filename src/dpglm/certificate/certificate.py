"""The certificate of a fit: every number that its privacy rests on, for anyone to check."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from dpglm._codec import Format, decode
from dpglm._json import at, in_file, load
from dpglm._validation import check_real
from dpglm._words import card, rounded_up, visible
from dpglm.certificate.statement import (
    PublicFact,
    Spending,
    cautions,
    relation_in_words,
    sections,
    spending,
)
from dpglm.data.spec import DataSpec
from dpglm.exceptions import TooCostlyError
from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.store import write_json
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget, default_delta
from dpglm.privacy.events import Event
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.releases import AnyRelease
from dpglm.problem import LogLink, Problem
from dpglm.solvers.base import Plan, Solution

__all__ = [
    "FORMAT",
    "NO_LOSS",
    "Certificate",
    "PublicFact",
    "certify",
    "check_size",
    "library_versions",
    "loss_in_words",
    "model_digest",
]

T = TypeVar("T")

_MOST_PLANS, _MOST_VALUES = 500, 1_000_000
NO_LOSS = "none"
"""Loss of a fit that learned a map of rows, and no model."""

_LIBRARIES = ("dpglm", "numpy", "scikit-learn", "scipy")


@final
@dataclass(frozen=True)
class Certificate:
    """What a fit released, what that costs, and what was treated as public.

    Parameters
    ----------
    estimator, loss : str
        What was fitted.
    plan : mapping
        The plan that was executed, as JSON (``Plan.document``): ``rebuild`` makes it anew. It is
        readable without its classes.
    epsilon, delta : float
        What ``event`` costs under the plan's relation: epsilon at that delta.
    event : Event
        What was accounted for.
    mechanisms : Event
        What the run released, as it recorded it; ``event`` costs at least as much as the
        published part of it.
    accountant, accountant_version : str
        What computed epsilon.
    noise_source : str
        Where the noise came from.
    noise_is_private : bool
        Whether the noise cannot be reproduced.
    releases : tuple of Release
        Each kind of release, with the bound on the contribution of one row and the noise.
    noise_scales : tuple of float
        Scale of the noise in each of these, as it was drawn.
    public_facts : tuple of PublicFact
        Everything that was treated as public.
    versions : mapping from str to str
        Versions of the libraries that ran.
    model_digest : str
        ``model_digest`` of the coefficients that were released.
    ledger : LedgerReference, optional
        Where a budget ledger recorded the fit before it released anything; None without one.

    Notes
    -----
    Privacy: a certificate contains nothing that was computed from private rows, except facts
    whose provenance is ``"from the data"``, so it may be published with the model. A consistent
    forgery cannot be told from it; ``dpglm.certificate.verify`` finds claims that do not follow
    from what is recorded.
    """

    estimator: str
    loss: str
    plan: Mapping[str, Any]
    epsilon: float
    delta: float
    event: Event
    mechanisms: Event
    accountant: str
    accountant_version: str
    noise_source: str
    noise_is_private: bool
    releases: tuple[AnyRelease, ...]
    noise_scales: tuple[float, ...]
    public_facts: tuple[PublicFact, ...]
    versions: Mapping[str, str]
    model_digest: str
    ledger: LedgerReference | None = None

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, least=0.0)
        check_real("delta", self.delta, least=0.0, below=1.0)
        object.__setattr__(self, "versions", dict(self.versions))
        # Invalid facts raise here.
        _ = self.adjacency, self.budget, self.data

    @functools.cached_property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of every number here."""
        return self._planned("adjacency", Adjacency)

    @functools.cached_property
    def budget(self) -> PrivacyBudget:
        """What the caller allowed."""
        return self._planned("budget", PrivacyBudget)  # type: ignore[type-abstract]

    @functools.cached_property
    def data(self) -> DataSpec:
        """The public facts about the rows that the plan was made from."""
        return self._planned("data", DataSpec)

    @functools.cached_property
    def problem(self) -> Problem:
        """What was minimised; a ValueError if its classes have not been imported."""
        return self._planned("problem", Problem)

    def _planned(self, name: str, kind: type[T]) -> T:
        with at("plan"), at(name):
            return decode(kind, self.plan.get(name))

    @functools.cached_property
    def _plan(self) -> Plan:
        # All that a plan may name is known once these are imported, and nothing else is.
        import dpglm.preprocessing
        import dpglm.selection
        import dpglm.solvers  # noqa: F401

        check_size(self.plan)
        with at("plan"):
            return Plan.from_document(self.plan)

    def rebuild(self) -> Plan:
        """Make the plan anew, which checks everything that planning checks, its cost above all.

        A ValueError says why there is no such plan; classes from outside this library must have
        been imported. A TooCostlyError refuses more than 500 plans or a million values, which would
        take minutes.
        """
        return self._plan

    @property
    def is_private(self) -> bool:
        """Whether the claim holds: False if the noise can be reproduced."""
        return self.noise_is_private

    @property
    def relation(self) -> str:
        """What the relation protects, in words: one row's part, or that of a whole group."""
        return relation_in_words(self.adjacency, self.data.unit)

    @property
    def fits(self) -> bool:
        """Whether a model was fitted."""
        return self.loss != NO_LOSS

    def fact(self, name: str) -> PublicFact | None:
        """Return the public fact of that name, or None."""
        return next((fact for fact in self.public_facts if fact.name == name), None)

    @property
    def largest_score(self) -> float:
        """Score from which on a mean that is its exponential would exceed all targets of the fit.

        Infinite for other means, and where targets grow with offsets.
        """
        loss, bounds = self.problem.loss, self.fact("target_bounds")
        if bounds is None or not isinstance(loss.link, LogLink) or loss.without_offset != loss:
            return math.inf
        high = float(bounds.value[1])
        return math.log(high) if high > 0.0 else math.inf

    def caveats(self) -> tuple[str, ...]:
        """Say what weakens the claim; empty if no rule of ``CAUTIONS`` applies.

        The rules, with their reasons: seeded noise, facts taken from the data, an epsilon above 10,
        a delta of at least 1/n or 0.01.
        """
        return cautions(self)

    def spending(self) -> tuple[Spending, ...]:
        """Say what each stage of the fit spent; a ValueError if the record contradicts itself."""
        return spending(self)

    def sections(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the guarantee in plain words, as headings with their sentences."""
        return sections(self)

    def statement(self) -> str:
        """Return the guarantee in plain words, as text of several paragraphs."""
        return "\n\n".join(
            "\n".join([heading, *(f"  - {sentence}" for sentence in sentences)])
            for heading, sentences in self.sections()
        )

    def __str__(self) -> str:
        spent = f"epsilon {rounded_up(self.epsilon)}, delta {rounded_up(self.delta)}"
        said = f"Privacy of {self.estimator}: {spent}, {self.adjacency.value} ({self.relation})"
        return "\n".join(map(visible, [said, *self.caveats()]))

    def _repr_html_(self) -> str:
        return card(
            f"Privacy of {self.estimator}",
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
        """Return plain JSON values from which ``from_dict`` makes an equal certificate."""
        return FORMAT.write(self)

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Certificate:
        """Read back what ``to_dict`` returned; a ValueError names the key or value that is wrong.

        Whether the values belong together is for ``dpglm.certificate.verify`` to say.
        """
        return FORMAT.read(document)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate as a JSON file, whole or not at all."""
        write_json(path, self.to_dict())

    @staticmethod
    def from_json(path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate that ``to_json`` wrote; a ValueError names file and field."""
        with in_file(path):
            return FORMAT.read(load(path))


FORMAT = Format("dpglm certificate", 4, Certificate, {3: "0.1"})
"""The format of certificates."""


def certify(
    estimator_name: str,
    solution: Solution,
    noise: NoiseSource,
    facts: tuple[PublicFact, ...],
    coef: ArrayLike,
    intercept: ArrayLike,
) -> Certificate:
    """Write the certificate of a run.

    Parameters
    ----------
    estimator_name : str
        Class of the estimator.
    solution : Solution
        What ``dpglm.solvers.run`` returned.
    noise : NoiseSource
        The source that the run drew from.
    facts : tuple of PublicFact
        What was treated as public, and where it came from.
    coef, intercept : array_like
        The coefficients that the user gets; their digest ties the certificate to them.

    Returns
    -------
    Certificate

    Notes
    -----
    Privacy: ``epsilon`` is what the event really costs, which is at most what was allowed. For
    a budget in another currency it is given at ``default_delta`` of the public number of
    rows, or of groups.
    """
    plan = solution.plan
    accountant = accountant_for(plan.event, plan.adjacency)
    delta = plan.budget.to_dict().get("delta", default_delta(plan.data.n_units))
    certificate = Certificate(
        estimator=estimator_name,
        loss=loss_in_words(plan),
        plan=plan.document,
        epsilon=accountant.epsilon(plan.event, plan.adjacency, delta),
        delta=delta,
        event=plan.event,
        mechanisms=plan.method.mechanisms,
        accountant=accountant.name,
        accountant_version=accountant.version,
        noise_source=noise.name,
        noise_is_private=noise.is_private,
        releases=plan.method.releases,
        noise_scales=tuple(one.noise_scale for one in plan.method.releases),
        public_facts=facts,
        versions=library_versions(*noise.libraries),
        model_digest=model_digest(coef, intercept),
        ledger=solution.ledger_entry,
    )
    # What was just planned need not be made anew.
    vars(certificate)["_plan"] = plan
    return certificate


def loss_in_words(plan: Plan) -> str:
    """Return the loss that a plan minimises, in one line."""
    return " ".join(repr(plan.problem.loss).split()) if plan.method.fits else NO_LOSS


def check_size(document: Any) -> None:
    """Refuse a document of more than 500 plans or a million values, before anything is computed."""
    plans, values, left = 0, 0, [document]
    while left:
        one = left.pop()
        values += 1
        if isinstance(one, Mapping):
            plans += "method" in one
            left += one.values()
        elif isinstance(one, list):
            left += one
        if plans > _MOST_PLANS or values > _MOST_VALUES:
            raise TooCostlyError(
                f"a plan of more than {_MOST_PLANS} plans or {_MOST_VALUES} values is not made "
                "again"
            )


def model_digest(coef: ArrayLike, intercept: ArrayLike) -> str:
    """SHA-256 of a model: shapes and little-endian float64 bytes of coefficients and intercept.

    Parameters
    ----------
    coef, intercept : array_like
        Any shapes.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> model_digest([1.0, 2.0], 0.0)[:8] == model_digest([[1.0, 2.0]], 0.0)[:8]
    False
    """
    digest = hashlib.sha256()
    for values in (coef, intercept):
        array = np.asarray(values, dtype="<f8")
        digest.update(repr(array.shape).encode())
        digest.update(array.tobytes(order="C"))
    return digest.hexdigest()


def library_versions(*others: str) -> dict[str, str]:
    """Return the versions of Python and of the libraries that a fit rests on, and of others."""
    versions = {name: _version(name) for name in (*_LIBRARIES, *others)}
    return {"python": platform.python_version(), **versions}


# Looking one up takes milliseconds.
@functools.cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
