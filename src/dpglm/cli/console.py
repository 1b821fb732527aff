"""Printing: results to standard output, all else to standard error."""

from __future__ import annotations

import functools
import os
import re
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, ParamSpec, TypeVar, final

import click
from rich.console import Console
from rich.text import Text

from dpglm.cli.paths import refuse_twice_named
from dpglm.exceptions import PlanMismatchError

__all__ = [
    "InputError",
    "Interrupted",
    "guarded",
    "note",
    "plain",
    "print_pairs",
    "print_sections",
    "print_table",
    "say",
    "when_interrupted",
]

P = ParamSpec("P")
R = TypeVar("R")
_WIDEST = 100
_INTERRUPTED = "dpglm.interrupted"
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@final
class InputError(click.ClickException):
    """Invalid input; ends the program with exit code 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))


@final
class Interrupted(click.ClickException):
    """The user pressed Ctrl-C; ends the program as shells expect."""

    exit_code = 130

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message without the word "Error"."""
        click.echo(plain(self.message), file=file, err=True)


@final
class Defect(click.ClickException):
    """An unexpected exception; shown in full, with an exit code that is no verdict."""

    exit_code = 2


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


def when_interrupted(say: Callable[[], str]) -> None:
    """Set what returns the message if the running command is interrupted."""
    click.get_current_context().meta[_INTERRUPTED] = say


def _any_interruption() -> str:
    return "Interrupted. A file that was to be written is there whole, or as it was before."


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Run a command with errors as messages: exit code 2, or 130 for Ctrl-C.

    It is not begun if two of its paths are one file. ValueError, OSError, PlanMismatchError,
    ImportError and MemoryError are messages; any other exception is a defect and is shown in full.
    Its warnings go to standard error as sentences.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        context = click.get_current_context()
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            try:
                refuse_twice_named(context)
                return command(*args, **kwargs)
            except KeyboardInterrupt:
                raise Interrupted(context.meta.get(_INTERRUPTED, _any_interruption)()) from None
            except (click.ClickException, click.Abort, click.exceptions.Exit):
                raise
            except (BrokenPipeError, SystemExit):
                # The reader of a pipe has gone (rich raises SystemExit): this is no verdict either.
                raise SystemExit(2) from None
            except MemoryError as error:
                raise InputError(f"not enough memory {error}".rstrip()) from error
            except OSError as error:
                raise InputError(_of_system(error)) from error
            except (ValueError, ImportError, PlanMismatchError) as error:
                raise InputError(str(error)) from error
            except Exception as error:
                message = f"this is a defect of dpglm:\n{traceback.format_exc()}"
                raise Defect(plain(message)) from error

    return run


def _of_system(error: OSError) -> str:
    """Return a message with the file and the problem."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    note(f"Warning: {message}")
