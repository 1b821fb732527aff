"""What a ledger records: its terms, and one entry for each spend."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, final

from dpglm._codec import decode
from dpglm._json import (
    at,
    check_kind,
    choice,
    integer,
    line,
    mapping_of,
    nullable,
    number,
    object_with,
)
from dpglm._validation import check_real
from dpglm.exceptions import LedgerError
from dpglm.ledger.filters import PrivacyFilter, filter_from_dict
from dpglm.ledger.store import Record
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Event, event_from_dict

__all__ = ["LedgerEntry", "LedgerReference", "LedgerTerms", "spent_by"]

_FORMAT, _VERSION = "dpglm ledger", 1
_LARGEST = 1e100


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
    rule : PrivacyFilter
        How spends add up, with the budget.
    id : str
        Random; tells ledgers of one name apart.
    created : str
        When, in UTC.
    """

    data: str
    fingerprint: str | None
    adjacency: Adjacency
    rule: PrivacyFilter
    id: str
    created: str

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger's first record."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "data": self.data,
            "fingerprint": self.fingerprint,
            "adjacency": self.adjacency.value,
            "filter": self.rule.to_dict(),
            "id": self.id,
            "created": self.created,
        }

    def reference(self, entry: LedgerEntry) -> LedgerReference:
        """Say where an entry stands, for a certificate."""
        return LedgerReference(self.data, self.id, entry.number, entry.id, entry.digest)

    def check_charges(self, charges: Iterable[Mapping[str, float]]) -> None:
        """Check that charges are in the quantities that the filter adds up.

        Raises
        ------
        LedgerError
            If one is not.
        """
        quantities = set(self.rule.left([]))
        for place, charge in enumerate(charges, start=1):
            if set(charge) != quantities:
                raise LedgerError(
                    f"entry {place} must be charged in {sorted(quantities)}, got {sorted(charge)}"
                )

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Read back the ledger's first record.

        Raises
        ------
        LedgerError
            If it is not that of a ledger.
        """
        try:
            fields = _TERMS(check_kind(record.document, _FORMAT, _VERSION))
        except ValueError as error:
            raise LedgerError(f"the first record is not that of a ledger: {error}") from error
        del fields["format"], fields["version"]
        return cls(rule=fields.pop("filter"), **fields)


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
    delta: float | None
    charge: Mapping[str, float]
    version: str
    digest: str
    label: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record, without the digest; without the label, if there is none."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["digest"]
        if self.label is None:
            del fields["label"]
        return {**fields, "event": self.event.to_dict(), "charge": dict(self.charge)}

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Read back a record.

        Raises
        ------
        LedgerError
            If it is not that of an entry.
        """
        try:
            # Entries that nobody named have no label, as in ledgers from before there were any.
            return cls(**_ENTRY({"label": None, **record.document}), digest=record.digest)
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

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read back what ``dataclasses.asdict`` wrote.

        Raises
        ------
        ValueError
            If a key is missing or unknown, or a value is not of its kind.
        """
        return decode(cls, document)

    def describe(self) -> str:
        """One plain-English sentence saying where the fit is recorded."""
        return (
            f"Recorded before anything was released: entry {self.number} of the ledger for "
            f"{self.data!r}, digest {self.digest}."
        )


def spent_by(record: Record) -> tuple[str, dict[str, float]]:
    """Read id and charge of an entry, and nothing else of it.

    Raises
    ------
    LedgerError
        If it is not that of an entry.
    """
    document = record.document
    try:
        with at("id"):
            own_id = line(document.get("id"))
        with at("charge"):
            return own_id, _CHARGE(document.get("charge"))
    except ValueError as error:
        raise LedgerError(f"an entry is not that of a ledger: {error}") from error


def _amount(value: Any) -> float:
    """Read a charge, whose square is a number too."""
    return check_real("charge", number(value), least=0.0, most=_LARGEST)


_CHARGE = mapping_of(_amount)
_TERMS = object_with(
    {
        "format": line,
        "version": integer,
        "data": line,
        "fingerprint": nullable(line),
        "adjacency": choice(Adjacency),
        "filter": filter_from_dict,
        "id": line,
        "created": line,
    }
)
_ENTRY = object_with(
    {
        "number": integer,
        "id": line,
        "time": line,
        "who": line,
        "what": line,
        "event": event_from_dict,
        "delta": nullable(number),
        "charge": _CHARGE,
        "version": line,
        "label": nullable(line),
    }
)
