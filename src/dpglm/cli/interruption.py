"""The message of an interrupted fit: what was spent, and how to resume."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, final

from dpglm._words import named_numbers

if TYPE_CHECKING:
    from dpglm.ledger import LedgerEntry, PrivacyLedger
    from dpglm.privacy.events import Event
    from dpglm.solvers.base import Plan, StepInfo

__all__ = ["FitWatch", "LedgerWatch"]


@final
class LedgerWatch:
    """What was in a ledger before a command began, to say what was spent there since."""

    def __init__(self, ledger: PrivacyLedger | None = None) -> None:
        self.ledger = ledger
        known = () if ledger is None else ledger.contents().entries
        self._known = frozenset(entry.id for entry in known)

    def lines(self, event: Event | None = None) -> list[str]:
        """Say what was spent since, on an event or on anything."""
        if self.ledger is None:
            return ["No ledger was given, so nothing was recorded as spent."]
        name = self.ledger.path
        try:
            new = self._new_entries(self.ledger, event)
        except (ValueError, OSError) as error:
            return [f"What was spent cannot be read: {error}. See `dpglm ledger show {name}`."]
        if not new:
            return [f"Nothing more was spent: the ledger {name} has no new entry."]
        return [
            f"Spent: entry {entry.number} of the ledger {name}, {named_numbers(entry.charge)}; it "
            "stays."
            for entry in new
        ]

    def _new_entries(self, ledger: PrivacyLedger, event: Event | None) -> list[LedgerEntry]:
        """List entries recorded since, which may be this command's."""
        from dpglm.privacy.events import canonical

        new = [one for one in ledger.contents().entries if one.id not in self._known]
        return [one for one in new if event is None or one.event == canonical(event)]


@final
@dataclass
class FitWatch:
    """Follows a fit, to say at any moment what an interruption leaves behind.

    What was spent is read from the ledger, as an interruption may come between its record and the
    first step. A command shows no value computed from rows before it has ended, so the rest of a
    run is in files.
    """

    checkpoint: Path | None
    _ledger: LedgerWatch = field(default_factory=LedgerWatch)
    _plan: Plan | None = None
    _steps: int = 0
    _written: list[Path] = field(default_factory=list)

    def opened(self, ledger: PrivacyLedger | None) -> None:
        """Note the ledger, and what is in it before anything is spent."""
        self._ledger = LedgerWatch(ledger)

    def begins(self, plan: Plan) -> None:
        """Note that from now on releases may happen."""
        self._plan = plan

    def stepped(self, info: StepInfo) -> None:
        """Note a step."""
        self._steps = info.step

    def wrote(self, files: list[Path]) -> None:
        """Note that all files are in place."""
        self._written = files

    def message(self) -> str:
        """Return what was spent and how to resume, a line for each."""
        if self._written:
            written = ", ".join(map(str, self._written))
            return f"Interrupted after the fit was complete; it is written: {written}"
        if self._plan is None:
            return "Interrupted before anything was released: nothing was spent or written."
        spent = self._ledger.lines(self._plan.event)
        return "\n".join([self._progress(self._plan), *spent, self._way_on()])

    def _progress(self, plan: Plan) -> str:
        releases = sum(release.count for release in plan.method.releases)
        # The checkpoint may hold one more.
        taken = f"after at least {self._steps} of" if self._steps else "in a fit of"
        return (
            f"Interrupted {taken} {plan.n_steps} steps, which make {releases} releases together. "
            "No model was written, and nothing that was computed from the rows was shown."
        )

    def _way_on(self) -> str:
        if self.checkpoint is not None and self.checkpoint.exists():
            return (
                f"To go on: the same command continues from {self.checkpoint}, which holds what "
                "was released so far, and spends nothing twice."
            )
        again = "" if self._ledger.ledger is None else ", and is charged again if it was charged"
        return (
            f"The same command starts anew{again}. With --checkpoint FILE, one that is "
            "interrupted can go on."
        )
