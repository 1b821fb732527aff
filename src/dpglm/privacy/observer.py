"""What may watch a curator: audits and laws, which see private values by design."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dpglm.privacy.releases import Release

__all__ = ["Observer"]

V = TypeVar("V")
R = TypeVar("R")


class Observer(abc.ABC):
    """Answers in place of a curator's mechanisms, and sees the private values that they would.

    Given by a noise source (``NoiseSource.observer``), so that a fit under observation names that
    source in its certificate, as one whose noise is not private.

    Privacy: nothing that an observer keeps may be published.
    """

    @abc.abstractmethod
    def begins(self, plan: Any, rows: Any) -> None:
        """Take note of a plan, and the prepared rows on which it is about to run."""

    @abc.abstractmethod
    def answer(self, declared: Release[V, R], value: V) -> R:
        """Answer a release about a private value in place of ``declared.mechanism.draw``."""

    @abc.abstractmethod
    def sample(self, n_rows: int, sampling_rate: float) -> NDArray[np.bool_]:
        """Draw or choose a Poisson sample, a mask of shape (n_rows,)."""
