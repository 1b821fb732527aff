"""Everything in a ledger: totals, export and verification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

from dpglm._codec import Format
from dpglm._html import card, visible
from dpglm._json import canonical_json
from dpglm._words import named_numbers
from dpglm.exceptions import LedgerError
from dpglm.ledger.entry import LedgerEntry, LedgerReference, LedgerTerms
from dpglm.ledger.filters import Charge, GaussianFilter, PrivacyFilter
from dpglm.ledger.store import Record, check_chain
from dpglm.privacy.events import Composed, Event, canonical

__all__ = ["LedgerContents", "left_in_words"]

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
