"""What a ledger records: its terms, and one entry for each spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeAlias, final

from dpglm._codec import Form, Format, decode, encode, number
from dpglm._json import canonical_json
from dpglm._validation import check_real
from dpglm._words import card, named_numbers, visible
from dpglm.exceptions import LedgerError
from dpglm.ledger.filters import Charge, GaussianFilter, PrivacyFilter
from dpglm.ledger.store import Record, check_chain
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.events import Composed, Event, canonical

Amount: TypeAlias = Annotated[
    float, Form(number, lambda value: check_real("amount", number(value), least=0.0, most=1e100))
]
"""A number whose square is a number too."""


@final
@dataclass(frozen=True)
class LedgerTerms:
    """What is fixed when a ledger is made.

    Parameters
    ----------
    data : str
        Name of the data set.
    fingerprint : str or None
        Public mark of its version.
    adjacency : Adjacency
        The relation of everything in the ledger.
    filter : PrivacyFilter
        How spends add up, with the budget.
    id : str
        Random; tells ledgers of one name apart.
    created : str
        When, in UTC.
    unit : Unit
        What everything in the ledger protects: each row, or each group of rows.
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
        """The relation in a word or two: of rows unless it says otherwise."""
        return self.adjacency.value + ("" if self.unit is Unit.ROW else ", of groups")

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger's first record, without the unit if that is a row."""
        fields = _TERMS.write(self)
        if self.unit is Unit.ROW:
            del fields["unit"]
        return fields

    def reference(self, entry: LedgerEntry) -> LedgerReference:
        """Return the reference to an entry that a certificate holds."""
        return LedgerReference(self.data, self.id, entry.number, entry.id, entry.digest)

    def check_charges(self, charges: Iterable[Mapping[str, float]]) -> None:
        """Check that charges are in the quantities that the filter adds up; else a LedgerError."""
        quantities = set(self.filter.left([]))
        for place, charge in enumerate(charges, start=1):
            if set(charge) != quantities:
                raise LedgerError(
                    f"entry {place} must be charged in {sorted(quantities)}, got {sorted(charge)}"
                )

    @staticmethod
    def from_record(record: Record) -> LedgerTerms:
        """Read back the ledger's first record; a LedgerError if it is not one."""
        try:
            return _TERMS.read({"unit": Unit.ROW.value, **record.document})
        except ValueError as error:
            raise LedgerError(f"the first record is not that of a ledger: {error}") from error


_TERMS = Format("dpglm ledger", 1, LedgerTerms)


@final
@dataclass(frozen=True)
class LedgerEntry:
    """One spend.

    Parameters
    ----------
    number : int
        Place in the ledger, from 1.
    id : str
        Random, or the key under which it was recorded.
    time : str
        When it was recorded, in UTC.
    who : str
        Who spent.
    what : str
        On what.
    event : Event
        What may be released once this is recorded.
    delta : float or None
        The part of the ledger's delta that was meant for it.
    charge : mapping from str to float
        What the ledger's filter charged.
    version : str
        Version of the library that priced it.
    digest : str
        SHA-256 of this entry and all before.
    label : str, optional
        What the analysis is called.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the record, without the digest; without the label, if there is none."""
        fields: dict[str, Any] = encode(self)
        del fields["digest"]
        if self.label is None:
            del fields["label"]
        return fields

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Read back a record; a LedgerError if it is not that of an entry."""
        fields = record.document
        try:
            if "digest" in fields:
                raise ValueError("digest must not be in the record that it is made of")
            return decode(cls, {"label": None, **fields, "digest": record.digest})
        except ValueError as error:
            raise LedgerError(f"an entry is not that of a ledger: {error}") from error


@final
@dataclass(frozen=True)
class LedgerReference:
    """Where a fit is recorded, as its certificate says.

    Parameters
    ----------
    data : str
        Name of the data set.
    ledger : str
        The ledger's id.
    number : int
        The entry's place.
    entry : str
        The entry's id.
    digest : str
        Its digest, which stands for all entries up to it.
    """

    data: str
    ledger: str
    number: int
    entry: str
    digest: str

    def describe(self) -> str:
        """Return a sentence on where the fit is recorded."""
        return (
            f"Recorded before anything was released: entry {self.number} of the ledger for "
            f"{self.data!r}, digest {self.digest}."
        )


@final
@dataclass(frozen=True)
class Spend:
    """Id and charge of an entry, read without the rest of it."""

    id: str
    charge: Mapping[str, Amount]

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Read the two from an entry's record."""
        fields = record.document
        try:
            return decode(cls, {name: fields.get(name) for name in ("id", "charge")})
        except ValueError as error:
            raise LedgerError(f"an entry is not that of a ledger: {error}") from error


# Everything in a ledger: totals, export and verification.

# A recomputed price may differ in its last digits between machines and versions.
_SAME_PRICE = 1e-6
_MOST_SHOWN = 20


@final
@dataclass(frozen=True)
class _ExportedRecord:
    record: Mapping[str, Any]
    digest: str


@final
@dataclass(frozen=True)
class _Export:
    records: tuple[_ExportedRecord, ...]


_FORMAT = Format("dpglm ledger export", 1, _Export)


@final
@dataclass(frozen=True)
class LedgerContents:
    """Everything in a ledger at one moment.

    Parameters
    ----------
    terms : LedgerTerms
        What was fixed when the ledger was made.
    entries : tuple of LedgerEntry
        All spends, in order.
    records : tuple of Record
        The same as they are stored.
    """

    terms: LedgerTerms
    entries: tuple[LedgerEntry, ...]
    records: tuple[Record, ...]

    @classmethod
    def from_records(cls, records: Sequence[Record]) -> Self:
        """Read records, the terms first; a LedgerError if they are no ledger."""
        if not records:
            raise LedgerError("a ledger must have a first record, got none")
        terms = LedgerTerms.from_record(records[0])
        return cls(terms, tuple(map(LedgerEntry.from_record, records[1:])), tuple(records))

    @property
    def event(self) -> Event:
        """Everything that was recorded, composed."""
        return canonical(Composed(tuple(entry.event for entry in self.entries)))

    @property
    def charges(self) -> list[Charge]:
        """What each entry was charged; LedgerError if the filter adds up something else."""
        charges = [entry.charge for entry in self.entries]
        self.terms.check_charges(charges)
        return charges

    def spent(self) -> dict[str, float]:
        """Return what was spent, in the budget's currency, by a stopping time fixed in advance.

        Privacy: no odometer. At a time that results have chosen, the true loss may be larger:
        ``spent_at_any_time`` bounds it.
        """
        return self.terms.filter.spent(self.charges)

    def spent_at_any_time(self) -> dict[str, float]:
        """Bound what was spent, as (epsilon, delta), at a time that results may have chosen."""
        return self.terms.filter.spent_at_any_time(self.charges)

    def left(self) -> dict[str, float]:
        """Return what may still be spent, in the filter's own quantities, such as mu."""
        return self.terms.filter.left(self.charges)

    def _facts(self) -> tuple[tuple[str, object], ...]:
        return (
            ("budget", self.terms.filter.budget),
            ("spent, stopping time fixed in advance", named_numbers(self.spent())),
            ("spent, at any stopping time", named_numbers(self.spent_at_any_time())),
            ("left", left_in_words(self.terms.filter, self.charges)),
            ("relation", self.terms.relation),
            ("entries", len(self.entries)),
        )

    def _lines(self) -> list[str]:
        latest = self.entries[-_MOST_SHOWN:]
        left_out = len(self.entries) - len(latest)
        lines = [f"({left_out} before these)"] if left_out else []
        return lines + [
            f"{one.number}. {one.what} ({one.who}, {one.time[:19]}): {named_numbers(one.charge)}"
            for one in latest
        ]

    def __str__(self) -> str:
        facts = (f"  {name}: {value}" for name, value in self._facts())
        entries = (f"    {line}" for line in self._lines())
        lines = (f"Privacy ledger for {self.terms.data}", *facts, *entries)
        return "\n".join(map(visible, lines))

    def _repr_html_(self) -> str:
        lines = self._lines()
        return card(
            f"Privacy ledger for {self.terms.data}",
            self._facts(),
            sections=[("Entries", lines)] if lines else [],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values from which ``from_dict`` makes equal contents."""
        records = (_ExportedRecord(one.document, one.digest) for one in self.records)
        return _FORMAT.write(_Export(tuple(records)))

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read back what ``to_dict`` returned; a LedgerError if it was changed, or is no export."""
        try:
            listed = _FORMAT.read(document).records
            records = [Record(canonical_json(one.record), one.digest) for one in listed]
        except ValueError as error:
            raise LedgerError(f"this is no export of a ledger: {error}") from error
        check_chain(records)
        return cls.from_records(records)

    def problems(self, references: Iterable[LedgerReference] = ()) -> tuple[str, ...]:
        """Recompute everything; return what is wrong, and which references have no entry here."""
        found: list[str | None] = []
        for place, entry in enumerate(self.entries, start=1):
            if entry.number != place:
                found.append(f"entry {place} says that it is number {entry.number}")
            found.append(self._problem_of_price(entry))
        if len({entry.id for entry in self.entries}) < len(self.entries):
            found.append("several entries have the same id")
        # Charges that are no charges cannot be added up.
        if not any(found) and not self.terms.filter.allows(self.charges):
            found.append(f"more was spent than the budget of {self.terms.filter.budget!r}")
        found += [self._problem_of_reference(reference) for reference in references]
        return tuple(problem for problem in found if problem is not None)

    def _problem_of_price(self, entry: LedgerEntry) -> str | None:
        terms = self.terms
        try:
            price = terms.filter.charge(entry.event, terms.adjacency, entry.delta)
        except (ArithmeticError, ValueError) as error:
            return f"entry {entry.number} has no price: {error}"
        if set(price) == set(entry.charge) and all(
            entry.charge[name] >= value * (1.0 - _SAME_PRICE) for name, value in price.items()
        ):
            return None
        return f"entry {entry.number} was charged {dict(entry.charge)}, but costs {price}"

    def _problem_of_reference(self, reference: LedgerReference) -> str | None:
        if reference.ledger != self.terms.id:
            return (
                f"entry {reference.entry} is of another ledger, {reference.ledger}, for "
                f"{reference.data!r}"
            )
        if any(self.terms.reference(entry) == reference for entry in self.entries):
            return None
        return f"entry {reference.number} with id {reference.entry} is not here, or was changed"


def left_in_words(rule: PrivacyFilter, charges: Sequence[Charge]) -> str:
    """Say what may still be charged; of a mu also what a single fit can ask for, about."""
    left = rule.left(charges)
    said = named_numbers(left)
    if not isinstance(rule, GaussianFilter) or not left["mu"] > 0.0:
        return said
    once = rule.budget.statement_for_mu(left["mu"])
    if once == left:
        return said
    return f"{said} (in one fit about {', '.join(f'{k} {v:.2g}' for k, v in once.items())})"
