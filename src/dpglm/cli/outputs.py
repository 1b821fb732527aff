"""Files that are reserved before a command spends anything, and appear together at the end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

import click

from dpglm._paths import file_identity
from dpglm.cli.console import finished, lost_output, note
from dpglm.cli.interruption import uninterrupted
from dpglm.cli.paths import refuse_taken

__all__ = ["Outputs", "all_or_none", "reserved"]

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
        self._targets, self._force = targets, force
        self._stages = dict.fromkeys(stages.values())
        self.drafts = {target: stages[target.parent] / target.name for target in targets}

    def reserve(self) -> None:
        """Fill the disk with as much as the files may need, synced."""
        for draft in self.drafts.values():
            with open(_room_of(draft), "wb") as file:
                # Zeros might be stored as nothing.
                file.write(os.urandom(_ROOM))
                file.flush()
                os.fsync(file.fileno())

    def publish(self) -> None:
        """Move all drafts to their places, or none."""
        self._publish(self.drafts)

    def write(self, writer: Writer, wrote: Callable[[list[Path]], None]) -> None:
        """Write and publish results that are paid for; tell ``wrote`` where they are.

        ``writer`` is given the drafts, and writes the most important one first. If it fails, or
        the targets cannot be had any more, what it did write is published, or kept elsewhere, and
        the error is raised after that.
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

    def _publish(self, drafts: Mapping[Path, Path]) -> None:
        _check([*drafts], self._force)
        with uninterrupted():
            _move(drafts)
        if drafts:
            finished()

    def _rescue(self, writer: Writer, wrote: Callable[[list[Path]], None], *, again: bool) -> None:
        """Keep what was written, where it belongs or in a new folder."""
        with uninterrupted():
            whole = {target: draft for target, draft in self.drafts.items() if draft.is_file()}
            if whole:
                with contextlib.suppress(OSError, ValueError):
                    self._publish(whole)
                    wrote([*whole])
                    return
            if again and self._targets:
                wrote(self._elsewhere(writer))

    def _elsewhere(self, writer: Writer) -> list[Path]:
        for place in (self._targets[0].parent, Path(tempfile.gettempdir())):
            with contextlib.suppress(OSError):
                folder = Path(tempfile.mkdtemp(prefix="dpglm-rescued-", dir=place))
                kept = {one: folder / one.parent.name / one.name for one in self._targets}
                with contextlib.suppress(Exception):
                    for one in kept.values():
                        one.parent.mkdir(exist_ok=True)
                    writer(kept)
                found = [one for one in kept.values() if one.is_file()]
                if found:
                    return found
                shutil.rmtree(folder, ignore_errors=True)
        return []


def keep_unprinted(name: str, document: Mapping[str, Any]) -> list[Path]:
    """Write a paid result to a new file if it could not be printed; return where it is."""
    from dpglm.ledger.files import write_json

    lost = lost_output()
    kept: list[Path] = []
    for place in (Path(), Path(tempfile.gettempdir())):
        if lost is not None and not kept:
            with contextlib.suppress(OSError):
                kept = [Path(tempfile.mkdtemp(prefix="dpglm-rescued-", dir=place)) / name]
                write_json(kept[0], document)
                note(f"Not all could be printed: the result is in {kept[0]}")
    finished()
    return kept


def _room_of(draft: Path) -> Path:
    return draft.with_name(f".room.{draft.name}")


@contextlib.contextmanager
def reserved(targets: Sequence[Path], *, force: bool, room: bool = True) -> Iterator[Outputs]:
    """Reserve files until the block ends; missing folders are made.

    Refused: targets that exist (unless ``force``), are folders, are named twice, are to be written
    by another command that is running, or are budget ledgers or files that this command reads or
    keeps (whatever ``force`` says). With ``room``, the disk must have some for them. What was not
    published in the block leaves everything as before.
    """
    _check(targets, force)
    made: list[Path] = []
    with contextlib.ExitStack() as claims:
        try:
            stages: dict[Path, Path] = {}
            for folder, target in {_claim_of(one): one for one in targets}.items():
                with uninterrupted():
                    made += _make_folder(target.parent)
                    claims.enter_context(_claimed(folder, target))
                    stages.setdefault(target.parent, folder)
            outputs = Outputs(targets, stages, force)
            if room:
                outputs.reserve()
            # Another command may have ended meanwhile.
            _check(targets, force)
            yield outputs
        finally:
            with uninterrupted():
                claims.close()
                for folder in reversed(made):
                    # It holds what was published, or files of another program.
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


def _claim_of(target: Path) -> Path:
    """Return the hidden folder beside a target that keeps other commands away from it."""
    # Names that the disk may take for one.
    name = unicodedata.normalize("NFC", target.name).casefold()
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return target.parent / f".dpglm-{digest}"


@contextlib.contextmanager
def _claimed(folder: Path, target: Path) -> Iterator[None]:
    """Make such a folder, hold its lock, and remove it with all that is in it."""
    descriptor = _locked(folder, target)
    try:
        # What a killed command left.
        for old in folder.iterdir():
            old.unlink()
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _locked(folder: Path, target: Path) -> int | None:
    """Make a folder and lock it until the descriptor is closed; None where there are no locks."""
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
    folders = {file_identity(one) for target in targets for one in _folders(target)}
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
            raise ValueError(f"{target} is no regular file: give the name of one, or a new name")
        refuse_ledger(target)
        if not force and (os.path.lexists(target) or os.path.exists(os.path.realpath(target))):
            raise ValueError(f"{target} exists already: choose another name, or add --force")
        if file_identity(target) in map(file_identity, targets[:i]):
            raise ValueError(f"{target} is named for two outputs: give each its own name")


def _folders(target: Path) -> Sequence[Path]:
    return Path(os.path.realpath(target)).parents


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder; return those that were made, outermost first."""
    lacking = [one for one in (folder, *folder.parents) if not one.exists()][::-1]
    folder.mkdir(parents=True, exist_ok=True)
    return lacking


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
