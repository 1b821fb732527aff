"""Signals that stop a command, and what it says of money spent when it ends early."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from dpglm._words import named_numbers

if TYPE_CHECKING:
    from dpglm.ledger import LedgerEntry, PrivacyLedger
    from dpglm.privacy.events import Event
    from dpglm.solvers.base import Plan, StepInfo

__all__ = ["SpendingWatch", "Stopped", "listen", "uninterrupted"]

_SIGNALS = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@final
class Stopped(KeyboardInterrupt):
    """A signal has asked the command to stop."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def listen() -> None:
    """Let SIGTERM and SIGHUP stop the command as SIGINT does, unless they are ignored."""
    owner = os.getpid()

    def stop(number: int, _: Any) -> None:
        if os.getpid() != owner:
            # A worker process has nothing to clean up.
            os._exit(128 + number)
        raise Stopped(number)

    for one in _SIGNALS:
        # nohup has SIGHUP ignored.
        if one is not signal.SIGINT and signal.getsignal(one) == signal.SIG_DFL:
            signal.signal(one, stop)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back signals that stop a command until the block ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {one: signal.signal(one, lambda number, _: held.append(number)) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)
        if held:
            signal.raise_signal(held[0])


@final
class SpendingWatch:
    """Follows a command, to say at any moment what it leaves behind if it ends early.

    Money spent is read from the ledger, as the end may come between its record and the first
    step. A command prints no value computed from rows before it has ended, so all else is in
    files.
    """

    def __init__(
        self,
        ledger: PrivacyLedger | None = None,
        *,
        checkpoint: Path | None = None,
        resumes: str = "",
    ) -> None:
        self._checkpoint, self._resumes = checkpoint, resumes
        self._plan: Plan | None = None
        self._steps = 0
        self._written: list[Path] = []
        self.opened(ledger)

    def opened(self, ledger: PrivacyLedger | None) -> None:
        """Note the ledger, and its entries before anything is spent."""
        self._ledger = ledger
        known = () if ledger is None else ledger.contents().entries
        self._known = frozenset(entry.id for entry in known)

    def begins(self, plan: Plan) -> None:
        """Note that from now on releases may happen."""
        self._plan = plan

    def stepped(self, info: StepInfo) -> None:
        """Note a step."""
        self._steps = info.step

    def wrote(self, files: list[Path]) -> None:
        """Note where results are."""
        self._written = files

    @property
    def event(self) -> Event | None:
        """The event that the command pays for, if it is known."""
        return None if self._plan is None else self._plan.event

    def interrupted(self) -> str:
        """Return the message of a command that was interrupted."""
        if self._written:
            return f"Interrupted after the result was complete; it is written: {self._named()}"
        if self._resumes == "FILE" and self._plan is None:
            return "Interrupted before anything was released: nothing was spent or written."
        return "\n".join([self._progress(), *self._spent(), self._way_on()])

    def failed(self) -> str:
        """Return what a command that failed has spent and written; empty if nothing."""
        if self._written:
            said = (
                f"The result is released and paid for. It is in {self._named()}. Do not run the "
                "command again, as that would pay again."
            )
            return "\n".join([said, *(() if self._ledger is None else self._spent())])
        if self._ledger is None or self._new_entries() == []:
            return ""
        return "\n".join([*self._spent(), self._way_on()])

    def _named(self) -> str:
        return ", ".join(map(str, self._written))

    def _spent(self) -> list[str]:
        if self._ledger is None:
            return ["No ledger was given, so nothing was recorded as spent."]
        name, new = self._ledger.path, self._new_entries()
        if isinstance(new, Exception):
            return [f"What was spent cannot be read: {new}. See `dpglm ledger show {name}`."]
        if not new:
            return [f"Nothing more was spent: the ledger {name} has no new entry."]
        return [
            f"Spent: entry {entry.number} of the ledger {name}, {named_numbers(entry.charge)}; it "
            "stays."
            for entry in new
        ]

    def _new_entries(self) -> list[LedgerEntry] | Exception:
        """List entries recorded since, which may be this command's; or say why it cannot be."""
        from dpglm.privacy.events import canonical

        if self._ledger is None:
            return []
        try:
            entries = self._ledger.contents().entries
        except (ValueError, OSError) as error:
            return error
        event = self.event
        new = [one for one in entries if one.id not in self._known]
        return [one for one in new if event is None or one.event == canonical(event)]

    def _progress(self) -> str:
        if self._plan is None:
            return (
                "Interrupted: no results were written, and nothing that was computed from rows was "
                "shown."
            )
        releases = sum(release.count for release in self._plan.method.releases)
        # The checkpoint may hold one more.
        taken = f"after at least {self._steps} of" if self._steps else "in a fit of"
        return (
            f"Interrupted {taken} {self._plan.n_steps} steps, which make {releases} releases "
            "together. No model was written, and nothing that was computed from the rows was shown."
        )

    def _way_on(self) -> str:
        if self._checkpoint is not None and self._checkpoint.exists():
            return (
                f"To go on: the same command continues from {self._checkpoint}, which holds what "
                "was released so far, and spends nothing twice."
            )
        again = "" if self._ledger is None else ", and is charged again if it was charged"
        cure = (
            f" With --checkpoint {self._resumes}, one that is interrupted can go on."
            if self._resumes
            else ""
        )
        return f"The same command starts anew{again}.{cure}"
