"""Releases of a fit, and how far one row moves each of them before noise is added.

A fit on one data set is listened to. A fit on its neighbour then gets the very answers that the
first one got, noise and choices included, and the same rows enter its samples. So both ask the
same questions, and each question can be compared with its declared bound.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.releases import Curator, Release
from tests.laws.mechanisms import CASES, Asked


class _EnoughError(Exception):
    """A run is not listened to any longer."""


@dataclasses.dataclass
class Transcript:
    """All that one fit asked, in order."""

    asked: list[Asked] = dataclasses.field(default_factory=list)
    secret: bool = False
    """Whether noise entered a computation with a result that adds protection."""


@contextlib.contextmanager
def listening(
    earlier: Transcript | None = None,
    *,
    most: int = 10**9,
    missing: int | None = None,
    n: int = 0,
    reach: float = 1.0,
    own_noise: bool = False,
) -> Iterator[Transcript]:
    """Record the releases, up to a limit; answer from ``earlier``, if it is given.

    Samples are the same in every run, but for the row at ``missing`` among ``n``, which is in all
    of them, and which a run that has one row less lacks; of a part of the rows, all are in them.
    Noisy sums are multiplied by ``reach``, so that iterates go where slopes saturate or overflow.
    Unless a run has its ``own_noise``, that of answers is drawn elsewhere, so that all else that
    is random is the same in all runs.
    """
    seen = Transcript()
    answers = None if own_noise else SeededNoise(11)
    samples = iter(range(10**9))
    honest = Curator._drawn

    def ask(self: Curator, declared: Release, value: Any) -> Any:
        way = CASES[type(declared.mechanism)].way
        if way is None:
            seen.secret = True
            return honest(self, declared, value)
        position = len(seen.asked)
        if position == most:
            raise _EnoughError
        exact, also = way.read(value)
        own = self.noise
        self.noise = own if answers is None else answers
        drawn, last = getattr(way.module, way.draws), []

        def draw(*args: Any, **more: Any) -> Any:
            last[:] = args
            return drawn(*args, **more)

        try:
            with mock.patch.object(way.module, way.draws, draw):
                answer = honest(self, declared, value)
        finally:
            self.noise = own
        if earlier is not None and position < len(earlier.asked):
            answer = earlier.asked[position].answer
        elif way.adds:
            answer = reach * answer
        made_for = way.made_for(declared, also, *last)
        seen.asked.append(Asked(exact, declared, also, made_for, answer))
        return answer

    def entered(self: Curator, size: int, probability: float) -> np.ndarray:
        if size not in (n, n - 1):
            # A part of the rows, with who knows which row where.
            return np.ones(size, dtype=bool)
        mask = np.random.default_rng(next(samples)).random(n) < probability
        if missing is not None:
            mask[missing] = True
            mask = mask if size == n else np.delete(mask, missing)
        return mask

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Curator, "_drawn", ask))
        if n:
            stack.enter_context(mock.patch.object(Curator, "sample", entered))
        stack.enter_context(contextlib.suppress(_EnoughError))
        yield seen


def excess(one: Transcript, other: Transcript) -> float:
    """Largest move of a release, over its bound; infinity if questions differ."""
    if len(one.asked) != len(other.asked) or one.secret != other.secret:
        return math.inf
    worst = 0.0
    for a, b in zip(one.asked, other.asked, strict=True):
        public = a.declared == b.declared and a.also == b.also
        if not public or not np.array_equal(a.made_for, b.made_for):
            return math.inf
        if not (np.isfinite(a.exact).all() and np.isfinite(b.exact).all()):
            return math.inf
        way = CASES[type(a.declared.mechanism)].way
        if way.adds:
            for asked in (a, b):
                length = float(np.linalg.norm(asked.exact))
                worst = max(worst, length / asked.declared.magnitude)
        if not one.secret:
            worst = max(worst, way.move(a, b))
    return worst
