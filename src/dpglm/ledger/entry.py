"""The records of a ledger: its terms, and an entry for each charge."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeAlias, final

from dpglm._codec import Form, Format, decode, encode, number
from dpglm._validation import check_real
from dpglm._words import card, named_numbers, visible
from dpglm.exceptions import LedgerError
from dpglm.ledger.filters import Charge, GaussianFilter, PrivacyFilter
from dpglm.ledger.store import Record, check_chain
from dpglm.privacy.budget import Adjacency, Unit
from dpglm.privacy.events import Composed, Event, canonical

Amount: TypeAlias = Annotated[
    float, Form(number, lambda value: check_real("amount", number(value), least=0.0, most=1e100))
]
"""A number with a finite square."""


@contextlib.contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Raise a LedgerError for each ValueError in a block."""
    try:
        yield
    except ValueError as error:
        raise LedgerError(f"{what}: {error}") from error


@final
@dataclass(frozen=True)
class LedgerTerms:
    """The terms of a ledger, fixed when it is created.

    Parameters
    ----------
    data : str
        Name of the data set.
    fingerprint : str or None
        Public fingerprint of its version.
    adjacency : Adjacency
        Neighbouring relation of every entry.
    filter : PrivacyFilter
        The budget, and the rule that adds up charges.
    id : str
        Random id.
    created : str
        Time of creation, in UTC.
    unit : Unit
        The protected unit of every entry: a row, or a group of rows.
    """

    data: str
    fingerprint: str | None
    adjacency: Adjacency
    filter: PrivacyFilter
    id: str
    created: str
    unit: Unit = Unit.ROW

    @property
    def relation(self) -> str:
        """The relation in a word or two."""
        return self.adjacency.value + ("" if self.unit is Unit.ROW else ", of groups")

    def to_dict(self) -> dict[str, Any]:
        """Return the first record of the ledger."""
        fields = _TERMS.write(self)
        if self.unit is Unit.ROW:
            del fields["unit"]
        return fields

    @property
    def takes_parts(self) -> bool:
        """Whether neighbouring tables differ in one part only, so that parts compose in parallel.

        An erased, added or removed row has one value of the public attribute. A row that replaces
        another may have a different value, and a group may have rows in several parts.
        """
        return self.adjacency is not Adjacency.REPLACE_ONE and self.unit is Unit.ROW

    def by_part(self, spent: Sequence[LedgerEntry | Spend]) -> dict[str | None, list[Charge]]:
        """Return the charges to the rows of each part; None stands for parts without a name yet.

        Charges in other quantities than the filter's are a LedgerError. Proof in
        ``docs/proofs/filters.md``.
        """
        quantities = set(self.filter.left([]))
        for place, one in enumerate(spent, start=1):
            if set(one.charge) != quantities:
                raise LedgerError(
                    f"entry {place} must be charged in {sorted(quantities)}, got "
                    f"{sorted(one.charge)}"
                )
        named = sorted({part for one in spent for part in one.parts or ()})
        return {
            part: [
                one.charge
                for one in spent
                if one.parts is None or part in one.parts or not self.takes_parts
            ]
            for part in (None, *named)
        }

    def reference(self, entry: LedgerEntry) -> LedgerReference:
        """Return the reference to an entry, for a certificate."""
        return LedgerReference(self.data, self.id, entry.number, entry.id, entry.digest)

    @staticmethod
    def from_record(record: Record) -> LedgerTerms:
        """Read the first record of a ledger; a LedgerError if it is invalid."""
        with _refusals("the first record is not that of a ledger"):
            return _TERMS.read({"unit": Unit.ROW.value, **record.record})


_TERMS = Format("dpglm ledger", 1, LedgerTerms)


@final
@dataclass(frozen=True)
class LedgerEntry:
    """A charge to the ledger.

    Parameters
    ----------
    number : int
        Position in the ledger, from 1.
    id : str
        Random id, or the key of a run that can be resumed.
    time : str
        Time of the record, in UTC.
    who : str
        The user.
    what : str
        The purpose.
    event : Event
        The event that was charged.
    delta : float or None
        Part of the ledger's delta that was reserved for it.
    charge : mapping from str to float
        Its cost in the quantities of the filter.
    version : str
        Version of the library that computed the cost.
    digest : str
        SHA-256 of this entry and all earlier ones.
    label : str, optional
        Name of the analysis.
    parts : tuple of str, optional
        Parts of the table with the rows in use; None for all rows.
    """

    number: int
    id: str
    time: str
    who: str
    what: str
    event: Event
    delta: Amount | None
    charge: Mapping[str, Amount]
    version: str
    digest: str
    label: str | None = None
    parts: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record: without the digest, and without an empty label or parts."""
        fields: dict[str, Any] = encode(self)
        del fields["digest"]
        for name in ("label", "parts"):
            if fields[name] is None:
                del fields[name]
        return fields

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Read an entry; a LedgerError if the record is invalid."""
        fields = record.record
        with _refusals("an entry is not that of a ledger"):
            if "digest" in fields:
                raise ValueError("digest must not be part of the record")
            optional = {"label": None, "parts": None}
            return decode(cls, {**optional, **fields, "digest": record.digest})


@final
@dataclass(frozen=True)
class LedgerReference:
    """A certificate's reference to the ledger entry of a fit.

    Parameters
    ----------
    data : str
        Name of the data set.
    ledger : str
        Id of the ledger.
    number : int
        Position of the entry.
    entry : str
        Id of the entry.
    digest : str
        SHA-256 of the entry and all earlier ones.
    """

    data: str
    ledger: str
    number: int
    entry: str
    digest: str

    def describe(self) -> str:
        """Return a sentence on the entry."""
        return (
            f"Recorded before the first release: entry {self.number} of the ledger for "
            f"{self.data!r}, digest {self.digest}."
        )


@final
@dataclass(frozen=True)
class Spend:
    """Id, charge and parts of an entry."""

    id: str
    charge: Mapping[str, Amount]
    parts: tuple[str, ...] | None

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Read these fields from the record of an entry."""
        with _refusals("an entry is not that of a ledger"):
            fields = {name: record.record.get(name) for name in ("id", "charge", "parts")}
            return decode(cls, fields)


# The whole ledger: totals, export and verification.

# Recomputed charges may differ in their last digits between machines and versions.
_TOLERANCE = 1e-6
_MAX_SHOWN = 20


@final
@dataclass(frozen=True)
class _Export:
    records: tuple[Record, ...]


_FORMAT = Format("dpglm ledger export", 1, _Export)


@final
@dataclass(frozen=True)
class LedgerContents:
    """The contents of a ledger at one moment.

    Parameters
    ----------
    terms : LedgerTerms
        The terms of the ledger.
    entries : tuple of LedgerEntry
        All entries, in order.
    records : tuple of Record
        Terms and entries as they are stored.
    """

    terms: LedgerTerms
    entries: tuple[LedgerEntry, ...]
    records: tuple[Record, ...]

    @classmethod
    def from_records(cls, records: Sequence[Record]) -> Self:
        """Read records, the terms first; a LedgerError if one is invalid."""
        if not records:
            raise LedgerError("a ledger must have a first record, got none")
        terms = LedgerTerms.from_record(records[0])
        return cls(terms, tuple(map(LedgerEntry.from_record, records[1:])), tuple(records))

    @property
    def event(self) -> Event:
        """All events, composed."""
        return canonical(Composed(tuple(entry.event for entry in self.entries)))

    @property
    def by_part(self) -> dict[str | None, list[Charge]]:
        """The charges to each part; see ``LedgerTerms.by_part``."""
        return self.terms.by_part(self.entries)

    def spent(self) -> dict[str, float]:
        """Return the total charge, in the budget's currency: the largest over parts of the table.

        This is the amount that is compared with the budget.

        Privacy: not an odometer. If the analysis stops at a time chosen from its results, use the
        bound of ``spent_at_any_time``.
        """
        return _largest(map(self.terms.filter.spent, self.by_part.values()))

    def spent_at_any_time(self) -> dict[str, float]:
        """Bound the total as (epsilon, delta), valid also at a time chosen from the results."""
        return _largest(map(self.terms.filter.spent_at_any_time, self.by_part.values()))

    def left(self) -> dict[str, float]:
        """Return the remaining budget of all rows, in the quantities of the filter, such as mu."""
        return _largest(map(self.terms.filter.left, self.by_part.values()), min)

    def spent_by_part(self) -> dict[str, dict[str, float]]:
        """Return the total charge to the rows of each named part, in the budget's currency."""
        spent = self.terms.filter.spent
        return {part: spent(one) for part, one in self.by_part.items() if part is not None}

    def facts(self) -> tuple[tuple[str, object], ...]:
        """Return names and values of facts about the spending."""
        return (
            ("budget", self.terms.filter.budget),
            ("charged", named_numbers(self.spent())),
            ("bound if you stop early because of results", named_numbers(self.spent_at_any_time())),
            ("left", left_in_words(self.terms.filter, self.left())),
            *((f"part {part}", named_numbers(one)) for part, one in self.spent_by_part().items()),
            ("relation", self.terms.relation),
            ("entries", len(self.entries)),
        )

    def _lines(self) -> list[str]:
        left_out = len(self.entries) - _MAX_SHOWN
        return [f"({left_out} earlier ones)"] * (left_out > 0) + [
            f"{one.number}. {one.what} ({one.who}, {one.time[:19]}): {named_numbers(one.charge)}"
            for one in self.entries[-_MAX_SHOWN:]
        ]

    def __str__(self) -> str:
        facts = (f"  {name}: {value}" for name, value in self.facts())
        entries = (f"    {line}" for line in self._lines())
        lines = (f"Privacy ledger for {self.terms.data}", *facts, *entries)
        return "\n".join(map(visible, lines))

    def _repr_html_(self) -> str:
        lines = self._lines()
        return card(
            f"Privacy ledger for {self.terms.data}",
            self.facts(),
            sections=[("Entries", lines)] if lines else [],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for ``from_dict``."""
        return _FORMAT.write(_Export(self.records))

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read what ``to_dict`` returned; a LedgerError if it is invalid or was changed."""
        with _refusals("this is not an export of a ledger"):
            records = _FORMAT.read(document).records
        check_chain(records)
        return cls.from_records(records)

    def problems(self, references: Iterable[LedgerReference] = ()) -> tuple[str, ...]:
        """Recompute all charges; return errors, and references without an entry."""
        found, terms = [], self.terms
        for place, entry in enumerate(self.entries, start=1):
            if entry.number != place:
                found.append(f"entry {place} has the number {entry.number}")
            try:
                price = terms.filter.charge(entry.event, terms.adjacency, entry.delta)
            except (ArithmeticError, ValueError) as error:
                found.append(f"the charge of entry {entry.number} cannot be computed: {error}")
                continue
            if set(price) != set(entry.charge) or any(
                entry.charge[name] < value * (1.0 - _TOLERANCE) for name, value in price.items()
            ):
                found.append(
                    f"entry {entry.number} was charged {dict(entry.charge)}, but costs {price}"
                )
        if len({entry.id for entry in self.entries}) < len(self.entries):
            found.append("several entries have the same id")
        # Invalid charges cannot be added up.
        if not found and not all(map(terms.filter.allows, self.by_part.values())):
            found.append(f"the charges exceed the budget {terms.filter.budget!r}")
        known = set(map(terms.reference, self.entries))
        for one in references:
            if one.ledger != terms.id:
                found.append(
                    f"entry {one.entry} belongs to another ledger, {one.ledger}, for {one.data!r}"
                )
            elif one not in known:
                found.append(f"entry {one.number} with id {one.entry} is missing, or was changed")
        return tuple(found)


def _largest(
    charges: Iterable[dict[str, float]], pick: Callable[..., float] = max
) -> dict[str, float]:
    found = list(charges)
    return {name: pick(one[name] for one in found) for name in found[0]}


def left_in_words(rule: PrivacyFilter, left: dict[str, float]) -> str:
    """Return the remaining budget in words; for mu also the budget of a single fit, about."""
    said = named_numbers(left)
    if not isinstance(rule, GaussianFilter) or not left["mu"] > 0.0:
        return said
    once = rule.budget.statement_for_mu(left["mu"])
    if once == left:
        return said
    return f"{said} (in one fit about {', '.join(f'{k} {v:.2g}' for k, v in once.items())})"
