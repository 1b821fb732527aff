"""What may watch a curator: audits and laws, which see private values by design."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dpglm.privacy.releases import Release

__all__ = ["Observer"]

V = TypeVar("V")
R = TypeVar("R")


class Observer(abc.ABC):
    """Answers in the place of a curator's mechanisms, and sees what they would be told.

    Given by a noise source (``NoiseSource.observer``), so that a fit that is watched names that
    source in its certificate, as one whose noise is not private.

    Notes
    -----
    Privacy: an observer sees private values, so nothing that it keeps may be published.
    """

    @abc.abstractmethod
    def answer(self, declared: Release[V, R], value: V) -> R:
        """Answer a release.

        Parameters
        ----------
        declared : Release
            What was declared of it.
        value
            The private value.

        Returns
        -------
        object
            As ``declared.mechanism.draw`` returns.
        """

    @abc.abstractmethod
    def sample(self, n_rows: int, sampling_rate: float) -> NDArray[np.bool_]:
        """Draw a Poisson sample, or say which one is taken."""
