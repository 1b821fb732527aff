"""Files that a command writes, and its message about spending when it ends early."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, final

import click

from dpglm._json import file_identity
from dpglm._words import named_numbers
from dpglm.cli.console import finished, lost_output, note, refuse_taken, say, spending

if TYPE_CHECKING:
    from dpglm.ledger import LedgerEntry, PrivacyLedger
    from dpglm.solvers.base import Plan, StepInfo


_SIGNALS = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def listen() -> None:
    """Let SIGTERM and SIGHUP stop the command as SIGINT does, unless they are ignored."""
    owner = os.getpid()

    def stop(number: int, _: Any) -> None:
        if os.getpid() != owner:
            # A worker process has nothing to clean up.
            os._exit(128 + number)
        raise KeyboardInterrupt(128 + number)

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
    """Follows a command, to report spending and results if it ends early.

    Spending is read from the ledger, as the end may come between its record and the first step.
    A command prints no value computed from rows before it has ended. ``resumes`` is the placeholder
    of --checkpoint, if the command has this option.
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

    def interrupted(self) -> str:
        """Return the message of a command that was interrupted."""
        if self._written:
            named = ", ".join(map(str, self._written))
            return f"Interrupted after the result was complete; it is written: {named}"
        if self._plan is not None:
            releases = sum(release.count for release in self._plan.method.releases)
            # The checkpoint may hold one more.
            taken = f"after at least {self._steps} of" if self._steps else "in a fit of"
            said = (
                f"Interrupted {taken} {self._plan.n_steps} steps, which make {releases} releases "
                "together. No model was written, and nothing that was computed from the rows was "
                "shown."
            )
        elif self._resumes == "FILE":
            return "Interrupted before anything was released: nothing was spent or written."
        else:
            said = (
                "Interrupted: no results were written, and nothing that was computed from rows was "
                "shown."
            )
        return "\n".join([said, *self._spent(), self._way_on()])

    def failed(self) -> str:
        """Return the message of a command that failed; empty if it spent and wrote nothing."""
        if self._written:
            named = ", ".join(map(str, self._written))
            said = (
                f"The result is released and charged. It is in {named}. Do not run the command "
                "again: the repetition would be charged again."
            )
            return "\n".join([said, *(() if self._ledger is None else self._spent())])
        if self._ledger is None or self._new_entries() == []:
            return ""
        return "\n".join([*self._spent(), self._way_on()])

    def _spent(self) -> list[str]:
        if self._ledger is None:
            return ["No ledger was given, so nothing was recorded as spent."]
        name, new = self._ledger.path, self._new_entries()
        if isinstance(new, Exception):
            return [f"The ledger cannot be read: {new}. See `dpglm ledger show {name}`."]
        if not new:
            return [f"Nothing more was spent: the ledger {name} did not get a new entry."]
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
        new = [one for one in entries if one.id not in self._known]
        if self._plan is None:
            return new
        event = canonical(self._plan.event)
        return [one for one in new if one.event == event]

    def _way_on(self) -> str:
        if self._checkpoint is not None and self._checkpoint.exists():
            return (
                f"To go on: the same command continues from {self._checkpoint}, which holds what "
                "was released so far, and spends nothing twice."
            )
        again = "" if self._ledger is None else ", and is charged again if it was charged"
        cure = f" With --checkpoint {self._resumes}, one that is interrupted can go on."
        return f"The same command starts anew{again}.{cure if self._resumes else ''}"


# Files that are reserved before a command spends anything, and appear together at the end.

Writer: TypeAlias = Callable[[Mapping[Path, Path]], None]
_ROOM = 1 << 21
"""Bytes that are reserved for each file."""


@final
class Outputs:
    """Files that a command is to write: places that no other command has, and room for them.

    ``drafts`` has for each target a draft to be written; those of one folder lie together, under
    the targets' names.
    """

    def __init__(self, targets: Sequence[Path], stages: Mapping[Path, Path], force: bool) -> None:
        self._force = force
        self.drafts = {target: stages[target.parent] / target.name for target in targets}

    def publish(self, drafts: Mapping[Path, Path] | None = None) -> None:
        """Move all drafts to their places, or none."""
        drafts = self.drafts if drafts is None else drafts
        _check([*drafts], self._force)
        with uninterrupted():
            _move(drafts)
        if drafts:
            finished()

    def write(self, writer: Writer, wrote: Callable[[list[Path]], None]) -> None:
        """Write and publish results that are charged; tell ``wrote`` where they are.

        ``writer`` is given the drafts, and writes the most important one first. If it fails, or
        the targets are not available any more, complete drafts are published, or kept elsewhere,
        and the error is raised after that.
        """
        for draft in self.drafts.values():
            _room_of(draft).unlink(missing_ok=True)
        try:
            writer(self.drafts)
        except BaseException as error:
            if isinstance(error, OSError):
                named = {str(draft): str(target) for target, draft in self.drafts.items()}
                error.filename = named.get(str(error.filename), error.filename)
            self._rescue(writer, wrote, again=isinstance(error, Exception))
            raise
        with uninterrupted():
            try:
                self.publish()
            except Exception:
                self._rescue(writer, wrote, again=True)
                raise
            wrote([*self.drafts])

    def _rescue(self, writer: Writer, wrote: Callable[[list[Path]], None], *, again: bool) -> None:
        """Keep complete drafts in their places, or else write results to a new folder."""
        with uninterrupted():
            whole = {target: draft for target, draft in self.drafts.items() if draft.is_file()}
            if whole:
                with contextlib.suppress(OSError, ValueError):
                    self.publish(whole)
                    wrote([*whole])
                    return
            if not again or not self.drafts:
                return
            for place in (next(iter(self.drafts)).parent, Path(tempfile.gettempdir())):
                with contextlib.suppress(OSError):
                    folder = Path(tempfile.mkdtemp(prefix="dpglm-rescued-", dir=place))
                    kept = {one: folder / one.parent.name / one.name for one in self.drafts}
                    with contextlib.suppress(Exception):
                        for one in kept.values():
                            one.parent.mkdir(exist_ok=True)
                        writer(kept)
                    found = [one for one in kept.values() if one.is_file()]
                    if found:
                        wrote(found)
                        return
                    shutil.rmtree(folder, ignore_errors=True)


def require_report() -> None:
    """Check that the packages which a report needs are installed."""
    from dpglm._registry import require

    require("jinja2", "report")
    require("matplotlib", "plot")


def publish_numbers(
    make: Callable[..., Any],
    kind: str,
    write_page: Callable[[Any, Path], None] | None,
    report: Path | None,
    ledger: PrivacyLedger | None,
    *,
    force: bool,
    others: Mapping[Path, Callable[[Any], Mapping[str, Any]]] = MappingProxyType({}),
) -> None:
    """Make a description or an evaluation, charged to ``ledger``, then write and print it.

    ``others`` maps further JSON files to their contents.
    """
    from dpglm.ledger.store import write_json

    written = [*others]
    if report is not None:
        require_report()
        written += [report / one for one in ("certificate.json", f"{kind}.html", f"{kind}.json")]
    watch = spending(SpendingWatch(ledger))
    with reserved(written, force=force) as outputs:
        found = make(ledger=ledger)

        def write(drafts: Mapping[Path, Path]) -> None:
            for path, document in others.items():
                write_json(drafts[path], document(found))
            if report is not None and write_page is not None:
                write_json(drafts[report / f"{kind}.json"], found.to_dict())
                found.privacy_.to_json(drafts[report / "certificate.json"])
                write_page(found, drafts[report / f"{kind}.html"])

        outputs.write(write, watch.wrote)
    say(found.summary())
    if report is None:
        # A charged result that could not be printed goes to a new file.
        kept: list[Path] = []
        for place in (Path(), Path(tempfile.gettempdir())):
            if lost_output() is not None and not kept:
                with contextlib.suppress(OSError):
                    folder = tempfile.mkdtemp(prefix="dpglm-rescued-", dir=place)
                    kept = [Path(folder) / f"{kind}.json"]
                    write_json(kept[0], found.to_dict())
                    note(f"Not everything could be printed: the result is in {kept[0]}")
        finished()
        watch.wrote(kept)
    for caution in found.privacy_.caveats():
        note(f"Warning: {caution}")
    for path in written:
        say(f"Wrote {path}")


def _room_of(draft: Path) -> Path:
    return draft.with_name(f".room.{draft.name}")


@contextlib.contextmanager
def reserved(targets: Sequence[Path], *, force: bool, room: bool = True) -> Iterator[Outputs]:
    """Reserve files until the block ends; missing folders are made.

    Refused: targets that exist (unless ``force``), are folders, are named twice, are to be written
    by another command that is running, or are budget ledgers or files that this command reads or
    keeps (whatever ``force`` says). With ``room``, the disk must have room for them. If nothing is
    published in the block, everything is as before.
    """
    _check(targets, force)
    made: list[Path] = []
    with contextlib.ExitStack() as claims:
        try:
            stages: dict[Path, Path] = {}
            claimed: dict[Path, Path] = {}
            for target in targets:
                # Names that the disk may take for one.
                name = unicodedata.normalize("NFC", target.name).casefold()
                digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
                claimed[target.parent / f".dpglm-{digest[:16]}"] = target
            for hidden, target in claimed.items():
                with uninterrupted():
                    around = (target.parent, *target.parent.parents)
                    made += [one for one in around if not one.exists()][::-1]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    claims.enter_context(_claimed(hidden, target))
                    stages.setdefault(target.parent, hidden)
            outputs = Outputs(targets, stages, force)
            filler = os.urandom(_ROOM if room else 0)  # Zeros might be stored as nothing.
            for draft in outputs.drafts.values() if room else ():
                with open(_room_of(draft), "wb") as file:
                    file.write(filler)
                    file.flush()
                    os.fsync(file.fileno())
            # Another command may have ended meanwhile.
            _check(targets, force)
            yield outputs
        finally:
            with uninterrupted():
                claims.close()
                for folder in reversed(made):
                    # It contains published files, or files of another program.
                    with contextlib.suppress(OSError):
                        folder.rmdir()


@contextlib.contextmanager
def all_or_none(targets: Sequence[Path], *, force: bool) -> Iterator[Mapping[Path, Path]]:
    """Publish files together: yield for each target a draft to be written.

    When the block ends, all are moved into place; if it fails, or a move does, everything is as
    before. For files that cost nothing; see ``reserved``, which refuses the same targets.
    """
    with reserved(targets, force=force, room=False) as outputs:
        yield outputs.drafts
        outputs.publish()


@contextlib.contextmanager
def _claimed(folder: Path, target: Path) -> Iterator[None]:
    """Make a folder that keeps other commands away from a target; remove it with its contents."""
    descriptor = _locked(folder, target)
    try:
        # Left by a killed command.
        for old in folder.iterdir():
            old.unlink()
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _locked(folder: Path, target: Path) -> int | None:
    """Make a folder and lock it until the descriptor is closed; None without locks."""
    try:
        import fcntl
    except ImportError:
        folder.mkdir(exist_ok=True)
        return None
    while True:
        folder.mkdir(exist_ok=True)
        # The command that made it may be removing it.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                raise ValueError(
                    f"{target} is being written by another command that is running: wait for it, "
                    "or choose another name"
                ) from None
            os.close(descriptor)


def _check(targets: Sequence[Path], force: bool) -> None:
    from dpglm.ledger.store import refuse_ledger

    refuse_taken(click.get_current_context(silent=True), targets)
    above = [one for target in targets for one in Path(os.path.realpath(target)).parents]
    folders = set(map(file_identity, above))
    for target in targets:
        if not target.is_dir() and file_identity(target) in folders:
            raise ValueError(
                f"{target} is named for two outputs, a file and a folder: give each its own name"
            )
    for i, target in enumerate(targets):
        blocking = [one for one in target.parents if one.exists() and not one.is_dir()]
        if blocking:
            raise ValueError(f"{blocking[0]} is a file: give the name of a folder")
        if target.is_dir():
            raise ValueError(f"{target} is a folder: give the name of a file")
        if target.exists() and not target.is_file():
            raise ValueError(f"{target} is not a regular file: give the name of one, or a new name")
        refuse_ledger(target)
        if not force and (os.path.lexists(target) or os.path.exists(os.path.realpath(target))):
            raise ValueError(f"{target} exists already: choose another name, or add --force")
        if file_identity(target) in map(file_identity, targets[:i]):
            raise ValueError(f"{target} is named for two outputs: give each its own name")


def _move(drafts: Mapping[Path, Path]) -> None:
    moved: list[tuple[Path, Path | None]] = []
    try:
        for target, draft in drafts.items():
            old = draft.with_name(f"{draft.name}.old") if target.exists() else None
            if old is not None:
                os.replace(target, old)
            moved.append((target, old))
            os.replace(draft, target)
    except BaseException:
        for target, old in reversed(moved):
            target.unlink(missing_ok=True)
            if old is not None:
                os.replace(old, target)
        raise
