"""What commands print, and how: results to standard output, all else to standard error."""

from __future__ import annotations

import contextlib
import functools
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from dpglm.cli.paths import refuse_twice_named

__all__ = [
    "InputError",
    "guarded",
    "note",
    "output",
    "print_pairs",
    "print_sections",
    "print_table",
    "progress_bar",
]

P = ParamSpec("P")
R = TypeVar("R")
_LINES_OF_A_LOG = 4
_WIDEST = 100


@final
class InputError(click.ClickException):
    """Something that the user gave cannot be used; ends the program with exit code 2."""

    exit_code = 2


def output() -> Console:
    """Return the console for results."""
    return Console(highlight=False, markup=False, soft_wrap=True)


def print_sections(sections: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Print headings with their sentences, each sentence with a dash."""
    console = output()
    for heading, sentences in sections:
        console.print(Text(heading, style="bold"))
        for sentence in sentences:
            _print_hanging(console, "  - ", sentence)
        console.print()


def print_pairs(heading: str, pairs: Mapping[str, str]) -> None:
    """Print names with their values in two columns."""
    console = output()
    console.print(Text(heading, style="bold"))
    width = max(map(len, pairs))
    for name, value in pairs.items():
        _print_hanging(console, f"  {name:<{width}}  ", value)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns; all but the first are aligned to the right."""
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    console = output()
    for number, row in enumerate(table):
        first, *rest = (
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        console.print(Text("  " + "  ".join([first, *rest]), style="" if number else "bold"))


def _print_hanging(console: Console, lead: str, text: str) -> None:
    """Print text with a lead, its further lines indented as far."""
    width = min(console.width, _WIDEST)
    blank = " " * len(lead)
    wrapped = textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=blank, break_on_hyphens=False
    )
    console.print(Text("\n".join(wrapped)))


def note(text: str) -> None:
    """Print a remark that is not a result."""
    click.echo(text, err=True)


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Run a command whose paths are apart, and say what is wrong in one message, exit code 2.

    Parameters
    ----------
    command : callable
        The command, which is not begun if two of its paths are one file (``refuse_twice_named``).
        ValueError, OSError and ImportError (a missing extra) are such errors;
        anything else is a defect and is shown in full.

    Returns
    -------
    callable
        The same command; its warnings go to standard error as sentences.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            try:
                refuse_twice_named(click.get_current_context())
                return command(*args, **kwargs)
            except BrokenPipeError:
                raise
            except (ValueError, OSError, ImportError) as error:
                raise InputError(str(error)) from error

    return run


@contextlib.contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[], None]]:
    """Show how far some work has come.

    Parameters
    ----------
    label : str
        What is being done.
    total : int
        Number of its steps.

    Yields
    ------
    callable
        To be called after each step. On a terminal it moves a bar; in a log it writes a line
        after each quarter.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _log_lines(label, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(label, total=total)
        yield lambda: progress.update(task, advance=1)


def _log_lines(label: str, total: int) -> Callable[[], None]:
    done = 0

    def advance() -> None:
        nonlocal done
        before, done = done, done + 1
        if before * _LINES_OF_A_LOG // total < done * _LINES_OF_A_LOG // total:
            note(f"{label}: {done} of {total}")

    return advance


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    note(f"Warning: {message}")
