"""Declarations to a curator, recorded in place of an answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.source import Observer
from dpglm.privacy.releases import AnyRelease

__all__ = ["Watching", "move_allowed", "watching"]


class Watching(Observer):
    """Gives the same answer whatever is asked, and keeps the last question."""

    name = "watching"

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.declared: AnyRelease
        self.value: Any

    def begins(self, plan: Any, rows: Any) -> None:
        raise AssertionError("nothing is run here")

    def words(self, count: int) -> np.ndarray:
        raise AssertionError("nothing is drawn here")

    def answer(self, declared: AnyRelease, value: Any) -> Any:
        self.declared, self.value = declared, value
        return value if self.reply is None else self.reply

    def sample(self, n_rows: int, sampling_rate: float) -> np.ndarray:
        raise AssertionError("nothing is sampled here")


@contextlib.contextmanager
def watching(reply: Any = None) -> Iterator[Watching]:
    """Answer every question with ``reply``, or else with the exact value, without noise."""
    watcher = Watching(reply)
    with mock.patch.object(SeededNoise, "observer", watcher):
        yield watcher


def move_allowed(declared: AnyRelease) -> float:
    """Return the largest move by one erased row; the relation's factor comes on top."""
    return declared.contribution_bound + declared.rounding
