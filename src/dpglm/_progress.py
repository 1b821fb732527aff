"""How far long work has come: stages with a name and two public counts, told to whoever listens."""

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
    """How far a stage of some work has come.

    Parameters
    ----------
    name : str
        What is done.
    done : int
        How much of it is done, from 0 to ``total``.
    total : int or None
        How much there is; None where nobody knows.
    depth : int
        In how many other stages it lies.
    is_over : bool
        Whether it has ended.

    Notes
    -----
    Privacy: names and counts are public, decided before a row is seen: steps of a plan, runs of an
    audit, tenths of a pass over rows whose number may be private. When they are told depends on
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
    """Somebody who listens, and the stages that are open."""

    listener: Listener
    open: list[object] = field(default_factory=list)
    failed: bool = False

    def tell(self, one: Stage) -> None:
        """Tell, unless that has failed: what shows progress must not end what was paid for."""
        if self.failed:
            return
        self.failed = True
        with contextlib.suppress(Exception):
            self.listener(one)
            self.failed = False


_TELLING: ContextVar[_Telling | None] = ContextVar("dpglm_progress", default=None)


def is_listening() -> bool:
    """Whether somebody is told."""
    return _TELLING.get() is not None


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell somebody about the stages of everything that runs in this block.

    Parameters
    ----------
    listener : callable
        Takes a ``Stage`` whenever one begins, goes on or ends. What it raises is dropped, and it is
        told no more.
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
    """Tell how far a piece of work has come.

    Parameters
    ----------
    name : str
        What is done; public.
    total : int, optional
        How much there is to do; public.
    least_depth : int
        1 for what is a part of something larger, also where nobody tells of that.

    Yields
    ------
    callable
        To be called with how much more is done.
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
    """Tell nobody of what runs in this block: how often it does something is secret."""
    token = _TELLING.set(None)
    try:
        yield
    finally:
        _TELLING.reset(token)


def tenths(
    name: str, items: Iterable[T], size: Callable[[T], int], total: int
) -> Generator[T, None, None]:
    """Pass items on, and tell of each tenth of them, by size.

    Parameters
    ----------
    name : str
        What is done with them; public.
    items : iterable
        What is passed on.
    size : callable
        Takes an item.
    total : int
        The sum of the sizes, which may be private: whatever it is, the same ten tenths are told.

    Yields
    ------
    item
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
    """Nobody listens."""
