"""One certificate of a whole study: those of its parts, and what they cost together."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, final

from dpglm._codec import Form, Format
from dpglm._json import in_file, load
from dpglm._validation import check_count, check_one_of, check_real
from dpglm._words import card, plain_number, rounded_up, visible
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.checker.recompute import Recomputation, check_cost, recompute
from dpglm.certificate.statement import (
    PublicFact,
    Spending,
    costing,
    facts_in_words,
    meaning_in_words,
    not_covered,
    relation_in_words,
    spending_in_words,
)
from dpglm.certificate.verify import Check, Verification, check_claim, guarded, verify
from dpglm.exceptions import PlanMismatchError, TooCostlyError
from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.store import write_json
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.accounting.calibrate import within_budget
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.budget import PrivacyBudget, weak
from dpglm.privacy.events import Event, describe_event
from dpglm.solvers.base import Stage
from dpglm.study.division import Split
from dpglm.study.parts import EVALUATION, EXPLORATION, MODEL
from dpglm.study.planning import StudyPlan, sizes_in_words, whole_event

_NAMES = (EXPLORATION, MODEL, EVALUATION)
_Certificate: TypeAlias = Annotated[Certificate, Form(Certificate.to_dict, Certificate.from_dict)]


@final
@dataclass(frozen=True)
class StudyCertificate:
    """What a study released, what all of it costs together, and what was treated as public.

    Parameters
    ----------
    parts : mapping from str to Certificate
        The certificate of each part, by its name: each can be checked by itself.
    split : Split or None
        How the rows were divided between learning and evaluating, where they were.
    n_rows : int
        Public number of rows of the table.
    budget : PrivacyBudget
        What the caller allowed for everything together.
    epsilon, delta : float
        What everything costs together.
    accountant, accountant_version : str
        What computed epsilon.
    ledger : LedgerReference or None
        Where a budget ledger recorded the study before anything was released.

    Notes
    -----
    Privacy: like each part's certificate, it contains nothing that was computed from private rows,
    but for facts whose provenance says so. ``dpglm verify`` and ``verify_study`` check it.
    """

    parts: Mapping[str, _Certificate]
    split: Split | None
    n_rows: int
    budget: PrivacyBudget
    epsilon: float
    delta: float
    accountant: str
    accountant_version: str
    ledger: LedgerReference | None = None

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, least=0.0)
        check_real("delta", self.delta, least=0.0, below=1.0)
        check_count("n_rows", self.n_rows)
        if not self.parts:
            raise ValueError("parts must be at least one, got none")
        for name in self.parts:
            check_one_of("parts", name, _NAMES)
        if len({(one.adjacency, one.data.unit) for one in self.parts.values()}) > 1:
            raise ValueError("parts must all be under one relation, of one unit")
        if (EVALUATION in self.parts) != (self.split is not None):
            raise ValueError("split must be given where there is an evaluation, and only there")
        if self.split is not None and self.split.persons is None and self.unit is Unit.GROUP:
            raise ValueError("split must be by person where persons are protected")

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of every number here."""
        return next(iter(self.parts.values())).adjacency

    @property
    def unit(self) -> Unit:
        """What the relation is about: a row, or all rows of a group."""
        return next(iter(self.parts.values())).data.unit

    @property
    def n_units(self) -> int:
        """Public number of rows, or of groups where these are protected."""
        if self.unit is Unit.ROW:
            return self.n_rows
        sizes = {name: one.data.n_units for name, one in self.parts.items()}
        return sizes.get(EXPLORATION) or sum(sizes.values())

    @property
    def relation(self) -> str:
        """What the relation protects, in words."""
        return relation_in_words(self.adjacency, self.unit)

    @property
    def event(self) -> Event:
        """What everything together costs, as it is accounted for."""
        events = {name: one.event for name, one in self.parts.items()}
        return whole_event(events, self.split, self.adjacency)

    @property
    def noise_is_private(self) -> bool:
        """Whether no part's noise can be reproduced."""
        return all(one.noise_is_private for one in self.parts.values())

    @property
    def is_private(self) -> bool:
        """Whether the claim holds: False if some noise can be reproduced."""
        return self.noise_is_private

    @property
    def public_facts(self) -> tuple[PublicFact, ...]:
        """What was treated as public by any part, each fact once."""
        every = (fact for one in self.parts.values() for fact in one.public_facts)
        found: list[PublicFact] = []
        for fact in every:
            if fact not in found:
                found.append(fact)
        return tuple(found)

    def rows_in_words(self, name: str) -> str:
        """Say which rows a part is about."""
        if self.split is None or name == EXPLORATION:
            return "all rows"
        share = self.split.test_share if name == EVALUATION else 1.0 - self.split.test_share
        whole = "rows" if self.split.persons is None else "persons"
        return f"{plain_number(100.0 * share, 3)} % of the {whole}, at random"

    def caveats(self) -> tuple[str, ...]:
        """Say what weakens the claim; empty if nothing does."""
        own = weak(self.epsilon, self.delta, self.n_units)
        said = [f"WEAK GUARANTEE: {one}" for one in own]
        for one in self.parts.values():
            said += one.caveats()
        return tuple(dict.fromkeys(said))

    def spending(self) -> tuple[Spending, ...]:
        """Say what each part spent.

        Shares are of the budget's mu squared: where rows are divided, the model and its evaluation
        share nothing, and each of them pays what the exploration leaves.
        """
        stages = [Stage(name, one.releases, one.event) for name, one in self.parts.items()]
        found = [costing(one, self.adjacency, self.delta) for one in stages]
        whole = self.budget.gdp_mu() ** 2
        return tuple(
            dataclasses.replace(one, share=None if one.mu is None else one.mu**2 / whole)
            for one in found
        )

    def sections(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the guarantee in plain words, as headings with their sentences."""
        sizes = sizes_in_words(self.n_rows, self.n_units, self.unit)
        claim = (
            f"A study of {sizes} ({', '.join(self.parts)}) with differential privacy: "
            f"epsilon = {rounded_up(self.epsilon)}, delta = {rounded_up(self.delta)}, relation "
            f"'{self.adjacency.value}'."
        )
        known = "nobody can reproduce it" if self.noise_is_private else "can be reproduced"
        source = " and ".join(dict.fromkeys(one.noise_source for one in self.parts.values()))
        origin = (
            f"Noise source: {source} ({known}). Epsilon computed by: {self.accountant} "
            f"({self.accountant_version})."
        )
        released = (
            *(f"{sentence}." for sentence in describe_event(self.event)),
            origin,
            *(() if self.ledger is None else (self.ledger.describe(),)),
        )
        spent = (
            f"{spending_in_words(one)}; about {self.rows_in_words(one.stage)}."
            for one in self.spending()
        )
        meaning = meaning_in_words(self.epsilon)
        parts = (
            ("Warning", self.caveats()),
            ("What is promised", (claim, self.adjacency.describe(self.unit), meaning)),
            ("What was released", released),
            ("Who spent what", tuple(spent)),
            ("What was treated as public", facts_in_words(self.public_facts)),
            ("What is not covered", not_covered(self.unit)),
        )
        return tuple((heading, sentences) for heading, sentences in parts if sentences)

    def statement(self) -> str:
        """Return the guarantee in plain words, as text of several paragraphs."""
        return "\n\n".join(
            "\n".join([heading, *(f"  - {sentence}" for sentence in sentences)])
            for heading, sentences in self.sections()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values from which ``from_dict`` makes an equal certificate."""
        return FORMAT.write(self)

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> StudyCertificate:
        """Read back what ``to_dict`` returned; a ValueError names what is wrong."""
        return FORMAT.read(document)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate as a JSON file, whole or not at all."""
        write_json(path, self.to_dict())

    @staticmethod
    def from_json(path: str | os.PathLike[str]) -> StudyCertificate:
        """Read a certificate that ``to_json`` wrote; a ValueError names file and field."""
        with in_file(path):
            return FORMAT.read(load(path))

    def __str__(self) -> str:
        spent = f"epsilon {rounded_up(self.epsilon)}, delta {rounded_up(self.delta)}"
        said = f"Privacy of a study: {spent}, {self.adjacency.value} ({self.relation})"
        return "\n".join(map(visible, [said, *self.caveats()]))

    def _repr_html_(self) -> str:
        return card(
            "Privacy of a study",
            [
                ("epsilon", rounded_up(self.epsilon)),
                ("delta", rounded_up(self.delta)),
                ("relation", f"{self.adjacency.value}: {self.relation}"),
            ],
            warnings=self.caveats(),
            sections=[one for one in self.sections() if one[0] != "Warning"],
        )


FORMAT = Format("dpglm study certificate", 1, StudyCertificate)
"""The format of certificates of studies."""


def certify_study(
    plan: StudyPlan, parts: Mapping[str, Certificate], entry: LedgerReference | None
) -> StudyCertificate:
    """Write the certificate of a study from those of its parts.

    Privacy: epsilon is that of what the parts have recorded, at most what was allowed.
    """
    accountant = accountant_for(plan.event, plan.adjacency)
    found = StudyCertificate(
        dict(parts),
        plan.split,
        plan.n_rows,
        plan.budget,
        plan.epsilon,
        plan.delta,
        accountant.name,
        accountant.version,
        entry,
    )
    if found.event != plan.event:
        raise PlanMismatchError(f"planned to release {plan.event}, but released {found.event}")
    return found


# Checking a study's certificate: every part, how they compose, and what they cost together.


def verify_study(certificate: StudyCertificate) -> Verification:
    """Check that a study's claim follows from what its certificate records.

    Parameters
    ----------
    certificate : StudyCertificate
        As read from a file; nothing in it is trusted.

    Returns
    -------
    Verification
        Never raises for a certificate that could be read.

    Notes
    -----
    Privacy: each part is checked as ``dpglm.certificate.verify`` does; then the parts' events are
    composed as the split says, the whole is accounted for anew, and compared with claim and budget.
    That no row was in two parts cannot be seen from any file.
    """
    checks: list[Check] = []
    too_costly = None
    for name, part in certificate.parts.items():
        found = verify(part)
        checks += [dataclasses.replace(one, name=f"{name}: {one.name}") for one in found.checks]
        too_costly = too_costly or found.too_costly
    recomputed: tuple[Recomputation, ...] = ()
    try:
        check_cost(certificate.event)
        recomputed = tuple(
            recompute(
                certificate.event, certificate.adjacency, certificate.epsilon, certificate.delta
            )
        )
        checks += [check_claim(certificate.epsilon, certificate.delta, one) for one in recomputed]
    except TooCostlyError as error:
        too_costly = f"too costly to check ({error})"
        checks.append(Check("whole: claim, recomputed", False, too_costly))
    except (ArithmeticError, MemoryError, ValueError) as error:
        trouble = f"the recorded events cannot be accounted for together ({error})"
        checks.append(Check("whole: claim, recomputed", False, trouble))
    else:
        if not recomputed:
            checks.append(Check("whole: claim, recomputed", False, "no accountant knows the event"))
    if too_costly is None:
        checks += [
            guarded(f"whole: {name}", functools.partial(check, certificate))
            for name, check in _CHECKS.items()
        ]
    caveats, is_private = certificate.caveats(), certificate.noise_is_private
    return Verification(tuple(checks), recomputed, caveats, too_costly, is_private)


def _check_budget(certificate: StudyCertificate) -> str | None:
    event, adjacency, budget = certificate.event, certificate.adjacency, certificate.budget
    if not within_budget(event, adjacency, budget):
        return f"{event!r} was released, which {budget!r} does not allow"
    return None


def _check_delta(certificate: StudyCertificate) -> str | None:
    allowed = certificate.budget.to_dict()
    for name in ("epsilon", "delta"):
        found = getattr(certificate, name)
        if name in allowed and not found <= allowed[name] * (1.0 + 1e-6):
            return f"{name} is {found!r}, but only {allowed[name]!r} was allowed"
    return None


def _check_rows(certificate: StudyCertificate) -> str | None:
    """Check that every part was planned for the rows, and persons, that the split gives it."""
    for name, one in certificate.parts.items():
        for what, whole, found in (
            ("rows", certificate.n_rows, one.data.n_rows),
            ("persons", certificate.n_units, one.data.n_units),
        ):
            planned = whole
            if certificate.split is not None and name != EXPLORATION:
                learning, evaluating = certificate.split.sizes(whole)
                planned = evaluating if name == EVALUATION else learning
            if found != planned:
                return f"the {name} was planned for {found} {what}, not for {planned}"
    return None


def _check_ledger(certificate: StudyCertificate) -> str | None:
    charged = [name for name, one in certificate.parts.items() if one.ledger is not None]
    if charged:
        return f"{charged[0]} was charged to a ledger by itself, beside the whole"
    return None


_CHECKS: dict[str, Callable[[StudyCertificate], str | None]] = {
    "everything is within the budget": _check_budget,
    "claim is within the budget": _check_delta,
    "parts have the rows of the split": _check_rows,
    "paid for once": _check_ledger,
}
