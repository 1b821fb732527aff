"""What a ledger records: its terms, and one entry for each spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeAlias, final

from dpglm._codec import Form, Format, decode, encode, number
from dpglm._validation import check_real
from dpglm.exceptions import LedgerError
from dpglm.ledger.filters import PrivacyFilter
from dpglm.ledger.store import Record
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.events import Event

__all__ = ["LedgerEntry", "LedgerReference", "LedgerTerms", "Spend"]

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
