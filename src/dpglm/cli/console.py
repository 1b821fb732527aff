"""Printing: results to standard output, all else to standard error."""

from __future__ import annotations

import enum
import errno
import functools
import io
import itertools
import os
import re
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, final

import click
from rich.console import Console
from rich.text import Text

from dpglm._json import file_identity, is_below
from dpglm.exceptions import PlanMismatchError
from dpglm.tables.databases import Address

if TYPE_CHECKING:
    from dpglm.cli.files import SpendingWatch


# Uses of the files that a command is given; no output replaces an input.


class Use(enum.Enum):
    """The use of a path: read, changed in place, or written at the end."""

    READ = "is read"
    KEPT = "is kept"
    WRITTEN = "is written"


@final
class CommandPath(click.Path):
    """The type of every option and argument that names a file or folder.

    ``files`` lists the files that a path stands for, such as a ledger and its journal; ``closed``:
    nothing may be written below a folder; ``databases``: the address of a table is a path, too.
    """

    def __init__(
        self,
        use: Use,
        files: Callable[[Any], Iterable[Path]] = lambda path: (path,),
        *,
        closed: bool = False,
        databases: bool = False,
        **checks: Any,
    ) -> None:
        super().__init__(path_type=Path, **checks)
        self.use, self.files, self.closed, self.databases = use, files, closed, databases

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a path, or the address of a table in a database."""
        if self.databases:
            try:
                address = Address.of(value)
            except ValueError as error:
                self.fail(str(error), param, ctx)
            if address is not None:
                return address
        return super().convert(value, param, ctx)

    def covers(self, path: Any, target: Path, use: Use) -> bool:
        """Whether a file, put to some use, is one of those of a path or lies among them."""
        inside = use is Use.WRITTEN and self.is_closed(path) and is_below(target, path)
        return inside or file_identity(target) in map(file_identity, self.files(path))

    def is_closed(self, path: Any) -> bool:
        """Whether nothing may be written below a path."""
        return self.closed and Path(path).is_dir()


Named: TypeAlias = tuple[str, Any, CommandPath]
"""The option that names a path, the path as it was given, and its type."""


def named_paths(context: click.Context | None) -> Iterator[Named]:
    """List the paths that were given to a command."""
    if context is None:
        return
    for one in context.command.params:
        if isinstance(one.type, CommandPath):
            given = context.params.get(one.name or "")
            name = one.opts[-1] if isinstance(one, click.Option) else one.human_readable_name
            for path in given if isinstance(given, tuple) else (given,):
                # With allow_dash, "-" is a standard stream.
                if path is not None and not (one.type.allow_dash and str(path) == "-"):
                    yield name, path, one.type


def refuse_twice_named(context: click.Context) -> None:
    """Refuse two paths to one file, unless both are only read."""
    order = list(Use)
    for pair in itertools.combinations(named_paths(context), 2):
        kept, (option, path, kind) = sorted(pair, key=lambda named: order.index(named[2].use))
        both = [one for one in kind.files(path) if kept[2].covers(kept[1], one, kind.use)]
        if kind.use is Use.READ or not both:
            continue
        if kept[2].use is Use.WRITTEN:
            raise ValueError(
                f"{both[0]} is named for two outputs, {kept[0]} and {option}: give each its own "
                "name"
            )
        raise ValueError(_refusal(f"{option} {path}", kept))


def refuse_taken(context: click.Context | None, targets: Iterable[Path]) -> None:
    """Refuse to write a file that the command reads or keeps."""
    taken = [one for one in named_paths(context) if one[2].use is not Use.WRITTEN]
    for target, one in itertools.product(targets, taken):
        if one[2].covers(one[1], target, Use.WRITTEN):
            raise ValueError(_refusal(str(target), one))


def _refusal(target: str, taken: Named) -> str:
    option, path, kind = taken
    apart = "outside of" if kind.is_closed(path) else "another file than"
    return (
        f"{target} must be {apart} {option} {path}, which {kind.use.value} and never replaced, not "
        "even with --force: choose another name"
    )


P = ParamSpec("P")
R = TypeVar("R")
_WIDEST = 100
_WATCH, _FINISHED = "dpglm.watch", "dpglm.finished"
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@final
class CommandError(click.ClickException):
    """Ends the program: invalid input with exit code 2, an error after spending with 3.

    Larger codes are for Ctrl-C and other signals, as shells expect; the message lacks "Error".
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(plain(message))
        vars(self)["exit_code"] = exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        if self.exit_code <= 3:
            super().show(file)
        else:
            click.echo(self.message, file=file, err=True)


def interrupted(message: str, stop: KeyboardInterrupt) -> CommandError:
    """Return the end of a program by Ctrl-C, or by a signal that ``files.listen`` noted."""
    return CommandError(message, *(stop.args or (130,)))


def plain(text: str) -> str:
    r"""Return text that cannot steer a terminal.

    Control characters but tabs and line feeds, marks that change the direction of text, and lone
    surrogates are written as JSON escapes.

    >>> plain("\x1b[2Jwiped")
    '\\u001b[2Jwiped'
    """
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str = "", *, style: str = "") -> None:
    """Print a result: a line, or several."""
    _console().print(Text(plain(text), style=style))


def _console() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=True)


def print_sections(sections: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Print headings with their sentences, each sentence with a dash."""
    for heading, sentences in sections:
        say(heading, style="bold")
        for sentence in sentences:
            _print_hanging("  - ", sentence)
        say()


def print_pairs(heading: str, pairs: Mapping[str, str]) -> None:
    """Print names with their values in two columns."""
    say(heading, style="bold")
    width = max(map(len, pairs))
    for name, value in pairs.items():
        _print_hanging(f"  {name:<{width}}  ", value)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns; all but the first are aligned to the right."""
    table = [[" ".join(cell.splitlines()) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for number, row in enumerate(table):
        first, *rest = (
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        say("  " + "  ".join([first, *rest]), style="" if number else "bold")


def _print_hanging(lead: str, text: str) -> None:
    """Print text with a lead, its further lines indented as far."""
    width = min(_console().width, _WIDEST)
    blank = " " * len(lead)
    wrapped = textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=blank, break_on_hyphens=False
    )
    say("\n".join(wrapped))


def note(text: str) -> None:
    """Print a remark that is not a result."""
    click.echo(plain(text), err=True)


def spending(watch: SpendingWatch) -> SpendingWatch:
    """Let a watch report the spending if the running command ends early; return it."""
    click.get_current_context().meta[_WATCH] = watch
    return watch


def finished() -> None:
    """Note that the command has finished its task: failing to print is not an error any more."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_FINISHED] = True


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Run a command with errors as messages: exit code 2, 3 after spending, 130 for Ctrl-C.

    It is not begun if two of its paths are one file. ValueError, OSError, PlanMismatchError,
    ImportError and MemoryError are messages; any other exception is a defect and is shown in full.
    Its warnings go to standard error as sentences. Output that cannot be printed is an error only
    if nothing else has come of the command.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        context = click.get_current_context()
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: note(f"Warning: {message}")
            try:
                refuse_twice_named(context)
                result = command(*args, **kwargs)
                _check_printed(context)
                return result
            except click.exceptions.Exit:
                _check_printed(context)
                raise
            except KeyboardInterrupt as stop:
                watch = context.meta.get(_WATCH)
                said = _ANY_INTERRUPTION if watch is None else watch.interrupted()
                raise interrupted(said, stop) from None
            except click.Abort:
                raise
            except Exception as error:
                watch = context.meta.get(_WATCH)
                spent = "" if watch is None else watch.failed()
                if spent:
                    raise CommandError(f"{_message(error)}\n{spent}", 3) from error
                if isinstance(error, click.ClickException):
                    raise
                raise CommandError(_message(error)) from error

    return run


_ANY_INTERRUPTION = (
    "Interrupted. A file that was to be written is there whole, or as it was before."
)


def _message(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, MemoryError):
        return f"not enough memory {error}".rstrip()
    if isinstance(error, OSError):
        return _of_system(error)
    if isinstance(error, ValueError | ImportError | PlanMismatchError):
        return str(error)
    return f"this is a defect of dpglm:\n{''.join(traceback.format_exception(error))}"


def _check_printed(context: click.Context) -> None:
    """Raise an error if output was lost and nothing else has come of the command."""
    lost = lost_output()
    if lost is None:
        return
    if not context.meta.get(_FINISHED):
        if lost.errno == errno.EPIPE:
            # The reader of a pipe has gone, and wants no message.
            raise SystemExit(2)
        raise CommandError(f"standard output: {_of_system(lost)}")
    if lost.errno != errno.EPIPE:
        note(f"Warning: standard output: {_of_system(lost)}; all files were written")


@final
class _Unfailing(io.BufferedIOBase):
    """Writes bytes until the first failure, which it notes, and drops all others."""

    def __init__(self, text: Any) -> None:
        # Without a buffer (python -u) it is raw already; a stream that is dropped closes its own.
        buffer, self._text = getattr(text, "buffer", None), text
        self._stream: Any = getattr(buffer, "raw", buffer)
        self.lost: OSError | None = None
        if self._stream is None:
            self.lost = OSError(errno.EBADF, os.strerror(errno.EBADF))

    def write(self, data: Any) -> int:
        """Write all of it, or note why it cannot be."""
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while self.lost is None and left:
                left = left[self._stream.write(left) or 0 :]
        except (OSError, ValueError) as error:
            self.lost = error if isinstance(error, OSError) else OSError(errno.EBADF, str(error))
        return size

    def writable(self) -> bool:
        """Return True, whatever happens to the stream."""
        return True

    def isatty(self) -> bool:
        """Whether this is a terminal."""
        return self._stream is not None and bool(self._stream.isatty())

    def fileno(self) -> int:
        """Return the stream's number."""
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return int(self._stream.fileno())


def unfailing_streams() -> None:
    """Make printing safe: encodings, closed pipes and full disks raise no errors."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        encoding = "utf-8" if stream is None else stream.encoding
        unfailing: Any = _Unfailing(stream)
        whole = io.TextIOWrapper(
            unfailing, encoding, "backslashreplace", line_buffering=True, write_through=True
        )
        setattr(sys, name, whole)


def lost_output() -> OSError | None:
    """Return why standard output could not be printed; None if it could."""
    found = getattr(getattr(sys.stdout, "buffer", None), "lost", None)
    return found if isinstance(found, OSError) else None


def _of_system(error: OSError) -> str:
    """Return a message with the file and the problem."""
    if error.filename is None or error.strerror is None:
        return error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"
