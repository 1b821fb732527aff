"""Progress of long work: named stages with public counts, reported to a listener."""

from __future__ import annotations

import contextlib
import html
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, final

T = TypeVar("T")
_TENTHS = 10


@final
@dataclass(frozen=True)
class ProgressStage:
    """Progress of a stage: ``done`` of ``total``, which is None if unknown.

    Privacy: names and counts are public and do not depend on rows: steps of a plan, runs of an
    audit, tenths of a pass over rows. When they are shown depends on the rows, and so may
    the number of passes of a step.
    """

    name: str
    done: int
    total: int | None
    depth: int = 0
    is_over: bool = False


Listener: TypeAlias = Callable[[ProgressStage], None]


@final
@dataclass
class _Telling:
    """A listener, and the open stages."""

    listener: Listener
    open: list[object] = field(default_factory=list)
    failed: bool = False

    def tell(self, one: ProgressStage) -> None:
        """Call the listener unless it has failed, as its errors must not end a charged run."""
        if self.failed:
            return
        self.failed = True
        with contextlib.suppress(Exception):
            self.listener(one)
            self.failed = False


_TELLING: ContextVar[_Telling | None] = ContextVar("dpglm_progress", default=None)


def is_listening() -> bool:
    """Whether there is a listener."""
    return _TELLING.get() is not None


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a listener with each stage of this block that begins, advances or ends.

    After an exception, which is dropped, it is not called again.
    """
    token = _TELLING.set(_Telling(listener))
    try:
        yield
    finally:
        _TELLING.reset(token)


@contextlib.contextmanager
def stage(
    name: str, total: int | None = None, *, least_depth: int = 0
) -> Iterator[Callable[[int], None]]:
    """Report the progress of a block; yield a function to call with each advance.

    Name and total are public. A ``least_depth`` of 1 marks a part of a larger stage, reported or
    not.
    """
    telling = _TELLING.get()
    if telling is None:
        yield lambda by: None
        return
    mark, depth, done = object(), max(least_depth, len(telling.open)), 0
    telling.open.append(mark)

    def advance(by: int) -> None:
        nonlocal done
        done += by
        if by:
            telling.tell(ProgressStage(name, done, total, depth))

    telling.tell(ProgressStage(name, 0, total, depth))
    try:
        yield advance
    finally:
        telling.open.remove(mark)
        telling.tell(ProgressStage(name, done, total, depth, is_over=True))


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Report nothing of this block, as the number of its stages is secret."""
    token = _TELLING.set(None)
    try:
        yield
    finally:
        _TELLING.reset(token)


def tenths(
    name: str, items: Iterable[T], size: Callable[[T], int], total: int
) -> Generator[T, None, None]:
    """Yield items and report each tenth of them by size.

    Privacy: ``total``, the sum of sizes, may be private; ten tenths are reported for any total.
    """
    with stage(name, _TENTHS, least_depth=1) as advance:
        seen = told = 0
        for item in items:
            yield item
            seen += size(item)
            reached = min(_TENTHS, _TENTHS * seen // max(total, 1))
            for _ in range(reached - told):
                advance(1)
            told = reached


# Progress as bars in a terminal or a notebook, or as lines in a log.

Clock: TypeAlias = Callable[[], float]
_LINES_OF_A_LOG = 4
_PATIENCE = 1.0
"""Seconds after which a nested stage gets its own bar."""
_SPEED = {"speed_estimate_period": 3600.0}
"""Window of rich's estimate in seconds, as a step may take longer than the default 30."""
_PAUSE = 0.1
"""Seconds between updates of a bar."""


def is_watched() -> bool:
    """Whether bars can be drawn: in a notebook, or a terminal with rich."""
    return _in_notebook() or _on_terminal()


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Show the progress of this block; no effect within another such block.

    In a terminal with rich installed, and in a notebook, transient bars with the remaining time;
    else a line on standard error after each quarter of the outermost stages.
    """
    if is_listening():
        yield
        return
    with contextlib.ExitStack() as closing:
        closing.enter_context(listening(closing.enter_context(_listener())))
        yield


@contextlib.contextmanager
def _listener() -> Iterator[Listener]:
    if _in_notebook():
        display = importlib.import_module("IPython.display")

        def output(text: str) -> Callable[[str], None]:
            handle = display.display(display.HTML(text), display_id=True)
            return lambda new: handle.update(display.HTML(new))

        yield NotebookBars(output)
    elif _on_terminal():
        bars = _rich_bars()
        with bars:
            yield Bars(bars)
    else:
        yield Lines(_write_line)


@final
@dataclass
class Lines:
    """Writes a line after each quarter of an outermost stage."""

    write: Callable[[str], None]
    _quarters: int = 0

    def __call__(self, one: ProgressStage) -> None:
        """Take note of a stage."""
        if one.depth or one.is_over or not one.total:
            return
        before, self._quarters = self._quarters, one.done * _LINES_OF_A_LOG // one.total
        if self._quarters > before:
            self.write(f"{one.name}: {one.done} of {one.total}")


@final
@dataclass
class _Watched:
    """An open stage, with the times of its begin and its last update."""

    began: float
    drawn: float = -1e300
    bar: Any = None

    def is_due(self, one: ProgressStage, now: float) -> bool:
        """Whether it should be drawn now."""
        is_long = one.depth == 0 or self.bar is not None or now - self.began >= _PATIENCE
        return is_long and (now - self.drawn >= _PAUSE or one.done == one.total)


@final
@dataclass
class Bars:
    """Draws bars with rich."""

    bars: Any
    clock: Clock = time.monotonic
    _open: dict[int, _Watched] = field(default_factory=dict)

    def __call__(self, one: ProgressStage) -> None:
        """Take note of a stage."""
        now = self.clock()
        if one.is_over:
            watched = self._open.pop(one.depth, None)
            if watched is not None and watched.bar is not None:
                self.bars.remove_task(watched.bar)
            return
        watched = self._open.setdefault(one.depth, _Watched(now))
        if not watched.is_due(one, now):
            return
        if watched.bar is None:
            watched.bar = self.bars.add_task(
                "  " * one.depth + one.name, total=one.total, left="left" if one.total else ""
            )
        self.bars.update(watched.bar, completed=one.done)
        watched.drawn = now


@final
@dataclass
class NotebookBars:
    """Draws bars as HTML in a single output, which is empty at the end.

    ``display`` shows HTML and returns a function that replaces it.
    """

    display: Callable[[str], Callable[[str], None]]
    clock: Clock = time.monotonic
    _open: dict[int, _Watched] = field(default_factory=dict)
    _texts: dict[int, str] = field(default_factory=dict)
    _replace: Callable[[str], None] | None = None

    def __call__(self, one: ProgressStage) -> None:
        """Take note of a stage."""
        now = self.clock()
        if one.is_over:
            self._open.pop(one.depth, None)
            if self._texts.pop(one.depth, None) is not None:
                self._show()
            return
        watched = self._open.setdefault(one.depth, _Watched(now))
        if watched.is_due(one, now):
            watched.bar, watched.drawn = True, now
            self._texts[one.depth] = _bar(one, now - watched.began)
            self._show()

    def _show(self) -> None:
        text = "".join(self._texts[depth] for depth in sorted(self._texts))
        if self._replace is None:
            self._replace = self.display(text)
        else:
            self._replace(text)


def _bar(one: ProgressStage, seconds: float) -> str:
    name = html.escape(one.name)
    if one.total is None:
        return f"<div>{name} <progress></progress></div>"
    bar = f'<progress value="{one.done}" max="{one.total}"></progress>'
    left = ""
    if 0 < one.done < one.total:
        left = f", {_duration(seconds * (one.total - one.done) / one.done)} left"
    return f"<div>{name} {bar} {one.done} of {one.total}{left}</div>"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _in_notebook() -> bool:
    """Whether this runs in a notebook; IPython is not imported for the test."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _on_terminal() -> bool:
    if sys.stderr is None or not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        return False
    console = _console()
    return bool(console.is_terminal and not console.is_dumb_terminal)


def _console() -> Any:
    return importlib.import_module("rich.console").Console(stderr=True)


def _rich_bars() -> Any:
    rich = importlib.import_module("rich.progress")
    return rich.Progress(*_columns(), console=_console(), transient=True, **_SPEED)


def _columns() -> tuple[Any, ...]:
    """Return the columns of a bar: name, bar, counts and the remaining time."""
    rich = importlib.import_module("rich.progress")
    return (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[left]}"),
    )


def _write_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
