"""What commands do with the files they are given; no output replaces an input."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import click

from dpglm._paths import file_identity, is_below

__all__ = ["CommandPath", "NamedPath", "Use", "named_paths", "refuse_taken", "refuse_twice_named"]


class Use(enum.Enum):
    """What a command does with a path: leaves it, changes it in place, or writes it at the end."""

    READ = "is read"
    KEPT = "is kept"
    WRITTEN = "is written"


def _itself(path: Path) -> Iterable[Path]:
    return (path,)


@final
class CommandPath(click.Path):
    """The type of every option and argument that names a file or folder.

    ``files`` lists what a path stands for, such as the files beside a ledger; ``closed``: nothing
    may be written below a folder.
    """

    def __init__(
        self,
        use: Use,
        files: Callable[[Path], Iterable[Path]] = _itself,
        *,
        closed: bool = False,
        **checks: Any,
    ) -> None:
        super().__init__(path_type=Path, **checks)
        self.use, self.files, self.closed = use, files, closed


@final
@dataclass(frozen=True)
class NamedPath:
    """A path as it was given, with the option that names it."""

    option: str
    path: Path
    kind: CommandPath

    def __str__(self) -> str:
        return f"{self.option} {self.path}"

    @cached_property
    def files(self) -> dict[Hashable, Path]:
        """The files that the path stands for, by identity."""
        return {file_identity(one): one for one in self.kind.files(self.path)}

    @property
    def is_closed(self) -> bool:
        """Whether nothing may be written below the path."""
        return self.kind.closed and self.path.is_dir()

    def holds(self, target: Path, use: Use) -> bool:
        """Whether a file, put to some use, is one of these or lies among them."""
        inside = self.is_closed and use is Use.WRITTEN and is_below(target, self.path)
        return inside or file_identity(target) in self.files


def named_paths(context: click.Context | None) -> Iterator[NamedPath]:
    """List the paths that were given to a command."""
    if context is None:
        return
    for one in context.command.params:
        if isinstance(one.type, CommandPath):
            given = context.params.get(one.name or "")
            name = one.opts[-1] if isinstance(one, click.Option) else one.human_readable_name
            for path in given if isinstance(given, tuple) else (given,):
                # With allow_dash, "-" is no file but a standard stream.
                if path is not None and not (one.type.allow_dash and str(path) == "-"):
                    yield NamedPath(name, path, one.type)


def refuse_twice_named(context: click.Context) -> None:
    """Refuse a command of which two paths are one file, unless both are only read."""
    for one, other in itertools.combinations(named_paths(context), 2):
        uses = {one.kind.use, other.kind.use}
        if uses == {Use.READ}:
            continue
        # The one that would do harm is the one to be named.
        kept, changed = sorted((one, other), key=lambda named: list(Use).index(named.kind.use))
        for path in changed.files.values():
            if not kept.holds(path, changed.kind.use):
                continue
            if uses == {Use.WRITTEN}:
                raise ValueError(
                    f"{path} is named for two outputs, {kept.option} and {changed.option}: give "
                    "each its own name"
                )
            raise ValueError(_refusal(str(changed), kept))


def refuse_taken(context: click.Context | None, targets: Iterable[Path]) -> None:
    """Refuse to write what a command reads or keeps."""
    taken = [one for one in named_paths(context) if one.kind.use is not Use.WRITTEN]
    for target, one in itertools.product(targets, taken):
        if one.holds(target, Use.WRITTEN):
            raise ValueError(_refusal(str(target), one))


def _refusal(target: str, taken: NamedPath) -> str:
    apart = "outside of" if taken.is_closed else "another file than"
    return (
        f"{target} must be {apart} {taken}, which {taken.kind.use.value} and never replaced, not "
        "even with --force: choose another name"
    )
