"""Files that appear together at the end, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from dpglm._paths import file_identity
from dpglm.cli.paths import refuse_taken

__all__ = ["all_or_none"]


@contextlib.contextmanager
def all_or_none(targets: Sequence[Path], *, force: bool) -> Iterator[Mapping[Path, Path]]:
    """Publish files together: yield for each target a draft to be written.

    Drafts lie in hidden folders beside their targets; missing folders are made. When the block
    ends, all are moved into place; if it fails, or a move does, everything is as before. Refused
    first: targets that exist (unless ``force``), are folders, are named twice, or are budget
    ledgers or files that the running command reads or keeps (whatever ``force`` says).
    """
    _check(targets, force)
    made: list[Path] = []
    stages: dict[Path, Path] = {}
    published = False
    try:
        for folder in dict.fromkeys(target.parent for target in targets):
            made += _make_folder(folder)
            stages[folder] = Path(tempfile.mkdtemp(prefix=".dpglm-", dir=folder))
        drafts = {target: stages[target.parent] / target.name for target in targets}
        yield drafts
        _check(targets, force)
        _publish(drafts)
        published = True
    finally:
        for stage in stages.values():
            shutil.rmtree(stage, ignore_errors=True)
        if not published:
            for folder in reversed(made):
                # It may have been filled by another program meanwhile.
                with contextlib.suppress(OSError):
                    folder.rmdir()


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


def _publish(drafts: Mapping[Path, Path]) -> None:
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
