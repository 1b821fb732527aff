"""PrivacyLedger: all charges to the budget of a data set, in one file."""

from __future__ import annotations

import dataclasses
import datetime
import getpass
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from dpglm._calls import checked
from dpglm._codec import line
from dpglm._json import at
from dpglm._validation import check_kind, check_one_of, check_path, check_real
from dpglm._words import card, named_numbers
from dpglm.exceptions import BudgetExceededError, LedgerError
from dpglm.ledger.entry import (
    LedgerContents,
    LedgerEntry,
    LedgerReference,
    LedgerTerms,
    Spend,
    left_in_words,
)
from dpglm.ledger.filters import make_filter
from dpglm.ledger.store import append, create_file, read, read_first, read_only, writing
from dpglm.privacy.accounting.accountant import own_version
from dpglm.privacy.budget import Adjacency, PrivacyBudget, Unit
from dpglm.privacy.events import Event, canonical
from dpglm.tables.cells import normal

__all__ = ["PrivacyLedger", "as_ledger"]


@final
@checked
@dataclass(frozen=True)
class PrivacyLedger:
    """The record of all charges to the budget of one data set, in one SQLite file.

    Parameters
    ----------
    path : path-like
        The file, created by ``create`` or ``dpglm ledger create``. Use a local disk: some network
        file systems do not support SQLite's locks.
    data : str, optional
        Name of the data set; if given, the ledger of another one is refused.
    fingerprint : str, optional
        Public fingerprint of its version; if given, the ledger of another one is refused.
    who : str, optional
        User name in entries; default: user and machine. It is not verified.
    label : str, optional
        Name of the analysis in entries, such as "income by region"; one line.
    parts : str or sequence of str, optional
        Parts of the table, such as months of arrival, with all rows that the fits use. A fit is
        charged to the rows of its parts only. By default it is charged to all rows.

    Raises
    ------
    ValueError
        If the label is not text of one line, or the ledger's relation or unit does not allow parts.
    LedgerError
        If the file is not a ledger, or belongs to another data set.

    Notes
    -----
    Nothing is held open between calls, so that a ledger can be used from threads and after a
    fork, copied and pickled.

    Privacy: ``spend`` returns after its record is on the disk, or raises. A record is permanent,
    whether or not anything was released. All recorded events together are within the ledger's
    budget under its relation, even if each event was chosen after looking at earlier results.
    With ``parts``, every row must belong to one part, by a public attribute, and fits must use rows
    of their parts only; the ledger cannot check this.
    ``docs/proofs/filters.md`` has the proof and the limits.

    Examples
    --------
    >>> import tempfile
    >>> from dpglm import ApproximateDP, PrivacyLedger
    >>> from dpglm.privacy import Gaussian
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = PrivacyLedger.create(
    ...     f"{folder.name}/people.ledger", data="people", budget=ApproximateDP(1.0, 1e-6)
    ... )
    >>> entry = ledger.spend(Gaussian(10.0), "zero_out", what="mean income")
    >>> entry.number, round(ledger.contents().spent()["epsilon"], 3)
    (1, 0.397)
    >>> ledger.spend(Gaussian(1.0), "zero_out", what="another")
    Traceback (most recent call last):
    ...
    dpglm.exceptions.BudgetExceededError: ...
    >>> ledger.verify()
    ()
    >>> folder.cleanup()
    """

    path: str | os.PathLike[str]
    data: str | None = None
    fingerprint: str | None = None
    who: str | None = None
    label: str | None = None
    parts: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.parts is not None:
            given = [self.parts] if isinstance(self.parts, str) else list(self.parts)
            # In one spelling, since two parts with the same rows would be charged once each.
            parts = sorted({normal(_text("parts", one)) for one in given})
            if not parts:
                raise ValueError("parts must name at least one part, got none: None is all rows")
            object.__setattr__(self, "parts", tuple(parts))
        if self.label is not None:
            _text("label", self.label)
        object.__setattr__(self, "path", check_path("path", self.path).absolute())
        if not Path(self.path).is_file():
            raise LedgerError(
                "path must be a ledger, created by PrivacyLedger.create or `dpglm ledger create`, "
                f"got {str(self.path)!r}, which is not a file"
            )
        terms = self.terms()
        if self.parts is not None and not terms.takes_parts:
            raise ValueError(
                "parts must be None for a ledger of groups or of the relation replace_one, where "
                f"neighbouring tables can differ in several parts, got {self.parts!r}"
            )

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        data: str,
        budget: PrivacyBudget,
        adjacency: str = "zero_out",
        filter: str = "gaussian",
        order: int | None = None,
        fingerprint: str | None = None,
        unit: str = "row",
    ) -> Self:
        """Create a ledger.

        Parameters
        ----------
        path : path-like
            Path of the new file.
        data : str
            Name of the data set, public.
        budget : PrivacyBudget
            Total budget of all fits. It cannot be changed.
        adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
            Neighbouring relation of all fits. It cannot be changed.
        filter : {"gaussian", "renyi", "basic"}, default="gaussian"
            Rule that adds up charges: ``GaussianFilter``, ``RenyiFilter`` or ``BasicFilter``. It
            cannot be changed.
        order : int, optional
            Order of a Renyi filter; default: see ``make_filter``.
        fingerprint : str, optional
            Fingerprint of the data set's version. It must be public; a plain hash of a few private
            rows is not.
        unit : {"row", "group"}, default="row"
            Protected unit of all fits: a row, or a group, such as a person, with all its rows. It
            cannot be changed.

        Raises
        ------
        LedgerError
            If the file exists, or cannot be written.
        """
        check_one_of("adjacency", adjacency, list(Adjacency))
        check_one_of("unit", unit, list(Unit))
        check_kind("budget", budget, PrivacyBudget, "a PrivacyBudget")
        rule = make_filter(filter, budget, order)
        mark = None if fingerprint is None else _text("fingerprint", fingerprint)
        name, own_id, relation = _text("data", data), secrets.token_hex(16), Adjacency(adjacency)
        terms = LedgerTerms(name, mark, relation, rule, own_id, _now(), Unit(unit))
        create_file(check_path("path", path), terms.to_dict())
        return cls(path, data, fingerprint)

    def terms(self) -> LedgerTerms:
        """Read the terms; a LedgerError if the file is not a ledger of this data set."""
        with read_only(Path(self.path)) as connection:
            terms = LedgerTerms.from_record(read_first(connection))
        for name in ("data", "fingerprint"):
            wanted, found = getattr(self, name), getattr(terms, name)
            if wanted is not None and wanted != found:
                raise LedgerError(
                    f"{name} must match the ledger {str(self.path)!r}, {found!r}, got {wanted!r}"
                )
        return terms

    def contents(self) -> LedgerContents:
        """Read all records; a LedgerError if one is missing or was changed."""
        with read_only(Path(self.path)) as connection:
            return LedgerContents.from_records(read(connection))

    def spend(
        self,
        event: Event,
        adjacency: str,
        *,
        what: str,
        delta: float | None = None,
        key: str | None = None,
        unit: str = "row",
    ) -> LedgerEntry:
        """Charge an event to the budget; release only after this has returned.

        Parameters
        ----------
        event : Event
            The event.
        adjacency : {"zero_out", "add_remove", "replace_one"}
            Relation of the event's noise multipliers; must be the ledger's.
        what : str
            Purpose, in words.
        delta : float, optional
            Part of the ledger's delta to reserve; used by basic filters only.
        key : str, optional
            Id of the entry; default: random. If an entry with this id and event exists, it is
            returned and nothing is charged. Work that may be resumed keeps its key, so that it is
            charged once.
        unit : {"row", "group"}, default="row"
            Protected unit of the event; must be the ledger's.

        Returns
        -------
        LedgerEntry
            The entry, written to disk.

        Raises
        ------
        BudgetExceededError
            If the budget is exceeded; nothing is recorded.
        LedgerError
            If the ledger cannot be written or is damaged, or the key's entry has another event.
        ValueError
            If a parameter is invalid, or the ledger's filter does not support the event.

        Notes
        -----
        Privacy: the charge is added up, compared with the budget and recorded in one exclusive
        transaction.
        """
        _text("what", what)
        if delta is not None:
            delta = check_real("delta", delta, least=0.0, below=1.0)
        check_kind("event", event, Event, "an Event")
        own_id = secrets.token_hex(16) if key is None else _text("key", key)
        if self.who is not None:
            who = _text("who", self.who)
        else:
            try:
                user = getpass.getuser()
            except (KeyError, OSError):
                user = str(os.getuid())
            who = f"{user}@{socket.gethostname()}"
        terms = self.terms()
        if check_one_of("adjacency", adjacency, list(Adjacency)) != terms.adjacency:
            raise ValueError(
                f"adjacency must match the ledger for {terms.data!r}, "
                f"{terms.adjacency.value!r}, got {str(adjacency)!r}"
            )
        if check_one_of("unit", unit, list(Unit)) != terms.unit:
            raise ValueError(
                f"the protected unit must match the ledger for {terms.data!r}, "
                f"{terms.unit.value}, got {unit!s}. A fit with groups requires a ledger created "
                "with unit='group'"
            )
        # Terms never change, so computing the charge needs no lock.
        charge = terms.filter.charge(event, terms.adjacency, delta)
        with writing(Path(self.path)) as connection:
            first, *records = read(connection)
            if LedgerTerms.from_record(first) != terms:
                raise LedgerError(f"the ledger {str(self.path)!r} was replaced by another one")
            spent = list(map(Spend.from_record, records))
            for record, one in zip(records, spent, strict=True):
                if one.id == own_id:
                    entry = LedgerEntry.from_record(record)
                    if entry.event != canonical(event):
                        raise LedgerError(
                            f"key must be new, or belong to {canonical(event)!r}, got {own_id!r}, "
                            f"which belongs to {entry.event!r}"
                        )
                    if entry.parts != self.parts:
                        raise LedgerError(
                            f"parts must be {entry.parts!r}, as in the entry {own_id!r} of the fit "
                            f"that is resumed, got {self.parts!r}"
                        )
                    return entry
            known = terms.by_part(spent)
            for part in known if self.parts is None else self.parts:
                before = known.get(part, known[None])
                if not terms.filter.allows([*before, charge]):
                    rule, of_part = terms.filter, "" if part is None else f", part {part!r}"
                    raise BudgetExceededError(
                        f"epsilon must fit into the remaining budget of the ledger for "
                        f"{terms.data!r}{of_part}, {left_in_words(rule, rule.left(before))}, of "
                        f"{rule.budget!r}; this costs {named_numbers(charge)}. Nothing was charged "
                        "or released. Choose a smaller epsilon"
                    )
            entry = LedgerEntry(
                number=len(records) + 1,
                id=own_id,
                time=_now(),
                who=who,
                what=what,
                event=canonical(event),
                delta=delta,
                charge=charge,
                version=own_version(),
                digest="",
                label=self.label,
                parts=None if self.parts is None else tuple(self.parts),
            )
            digest = append(connection, entry.to_dict()).digest
        return dataclasses.replace(entry, digest=digest)

    def _repr_html_(self) -> str:
        try:
            return self.contents()._repr_html_()
        except LedgerError as error:
            return card(f"Privacy ledger {self.path}", [], warnings=[str(error)])

    def export(self) -> dict[str, Any]:
        """Return the contents as JSON values, see ``LedgerContents.from_dict``."""
        return self.contents().to_dict()

    def verify(self, references: Iterable[LedgerReference] = ()) -> tuple[str, ...]:
        """Recompute all charges; return errors, and references without an entry."""
        try:
            return self.contents().problems(references)
        except LedgerError as error:
            return (str(error),)


def as_ledger(ledger: PrivacyLedger | str | os.PathLike[str] | None) -> PrivacyLedger | None:
    """Return the ledger that the parameter ``ledger`` names."""
    if ledger is None or isinstance(ledger, PrivacyLedger):
        return ledger
    if not isinstance(ledger, str | os.PathLike):
        raise ValueError(f"ledger must be a PrivacyLedger, a path or None, got {ledger!r}")
    return PrivacyLedger(ledger)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be text, not empty, got {value!r}")
    with at(name):
        return line(value)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
