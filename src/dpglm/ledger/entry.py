"""What a ledger records: its terms, and one entry for each spend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

from dpglm.exceptions import LedgerError
from dpglm.ledger.filters import PrivacyFilter, filter_from_dict
from dpglm.ledger.store import Record
from dpglm.privacy.events import Event, event_from_dict
from dpglm.privacy.unit import Adjacency

__all__ = ["LedgerEntry", "LedgerReference", "LedgerTerms"]

_FORMAT, _VERSION = "dpglm ledger", 1


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

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Read back the ledger's first record.

        Raises
        ------
        LedgerError
            If it is not that of a ledger.
        """
        document = record.document
        kind = (document.pop("format", None), document.pop("version", None))
        if kind != (_FORMAT, _VERSION):
            raise LedgerError(
                f"format and version must be {_FORMAT!r} and {_VERSION}, got {kind[0]!r} and "
                f"{kind[1]!r}"
            )
        try:
            document["rule"] = filter_from_dict(document.pop("filter"))
            document["adjacency"] = Adjacency(document["adjacency"])
            return cls(**document)
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"the first record is not that of a ledger: {error}") from error


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

    def to_dict(self) -> dict[str, Any]:
        """Return the record, without the digest."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["digest"]
        return {**fields, "event": self.event.to_dict(), "charge": dict(self.charge)}

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Read back a record."""
        values = record.document
        values["event"] = event_from_dict(values["event"])
        return cls(**values, digest=record.digest)


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
        kinds = {"data": str, "ledger": str, "number": int, "entry": str, "digest": str}
        if (
            not isinstance(document, Mapping)
            or set(document) != set(kinds)
            or not all(isinstance(document[name], kind) for name, kind in kinds.items())
        ):
            raise ValueError(
                f"a ledger's entry must have the keys {list(kinds)}, all strings but the number, "
                f"got {document!r}"
            )
        return cls(**document)

    def describe(self) -> str:
        """One plain-English sentence saying where the fit is recorded."""
        return (
            f"Recorded before anything was released: entry {self.number} of the ledger for "
            f"{self.data!r}, digest {self.digest}."
        )
