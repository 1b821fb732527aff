"""Progress of long work: named stages with two public counts, reported to a listener."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, final

__all__ = ["Listener", "Stage", "is_listening", "listening", "silent", "stage", "tenths"]

T = TypeVar("T")
_TENTHS = 10


@final
@dataclass(frozen=True)
class Stage:
    """How far a stage of some work has come: ``done`` of ``total``, which is None if it is unknown.

    Privacy: names and counts are public, decided before a row is seen: steps of a plan, runs of an
    audit, tenths of a pass over rows whose number may be private. When they are shown depends on
    the rows, as time does, and so may how often a step passes over them.
    """

    name: str
    done: int
    total: int | None
    depth: int = 0
    is_over: bool = False


Listener: TypeAlias = Callable[[Stage], None]


@final
@dataclass
class _Telling:
    """A listener, and the open stages."""

    listener: Listener
    open: list[object] = field(default_factory=list)
    failed: bool = False

    def tell(self, one: Stage) -> None:
        """Call the listener, unless it has failed: showing progress must not end a paid run."""
        if self.failed:
            return
        self.failed = True
        with contextlib.suppress(Exception):
            self.listener(one)
            self.failed = False


_TELLING: ContextVar[_Telling | None] = ContextVar("dpglm_progress", default=None)


def is_listening() -> bool:
    """Whether progress is reported to anybody."""
    return _TELLING.get() is not None


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a listener with each stage of this block that begins, advances or ends.

    What it raises is dropped, and it is not called again.
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
    """Report the progress of a piece of work; yields a function to be called with each advance.

    Name and total are public. A ``least_depth`` of 1 marks a part of something larger, also where
    nobody reports that.
    """
    telling = _TELLING.get()
    if telling is None:
        yield _ignore
        return
    mark, depth, done = object(), max(least_depth, len(telling.open)), 0
    telling.open.append(mark)

    def advance(by: int) -> None:
        nonlocal done
        done += by
        if by:
            telling.tell(Stage(name, done, total, depth))

    telling.tell(Stage(name, 0, total, depth))
    try:
        yield advance
    finally:
        telling.open.remove(mark)
        telling.tell(Stage(name, done, total, depth, is_over=True))


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Report nothing of this block: how often it does something is secret."""
    token = _TELLING.set(None)
    try:
        yield
    finally:
        _TELLING.reset(token)


def tenths(
    name: str, items: Iterable[T], size: Callable[[T], int], total: int
) -> Generator[T, None, None]:
    """Yield items, and report each tenth of them by size.

    ``total``, the sum of sizes, may be private: whatever it is, the same ten tenths are reported.
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


def _ignore(by: int) -> None:
    """Report nothing."""
