"""A noisy count of rows, where their number is private, and the share with which each counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Rows
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import MOST_ROWS
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Event
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Release, SumRelease

__all__ = ["CountedRows", "shrinking_share"]

# Standard deviations that noise exceeds with a probability below any float: Phi(-40) < 1e-349.
_FARTHEST = 40.0
# Covers the rounding of shares.
_LESS = 1.0 - 2.0**-18


@final
@dataclass(frozen=True)
class CountedRows:
    """A noisy number of rows, and the weight (the share) with which each row then counts.

    Up to ``usual`` rows count in full; ``noise_multiplier`` is the standard deviation of the
    noise.

    Privacy: ``Gaussian(noise_multiplier)``, for a relation under which the number of rows is
    private: one row changes it by 1. The share is post-processing of the noisy number and at most
    1, so a row weighted by it contributes no more than one that counts in full.
    """

    usual: int
    noise_multiplier: float

    @property
    def event(self) -> Event:
        """What the number costs."""
        return self.release.event

    @property
    def most(self) -> int:
        """Bound on the number of rows times their share.

        It fails only if the noise is below -40 standard deviations. With at most ``usual`` rows
        the share is 1 unless the noise is above 40 standard deviations.
        """
        wanted = self.usual + 2.0 * _FARTHEST * self.noise_multiplier
        return min(math.ceil(wanted), MOST_ROWS)

    @property
    def release(self) -> SumRelease:
        """The release of the number."""
        return Release(
            "number of rows",
            GaussianNoise(self.noise_multiplier),
            Adjacency.ADD_REMOVE,
            1.0,
            magnitude=2.0 * MOST_ROWS,
        )

    def share(self, oracle: Oracle) -> float:
        """Release the number of rows and return each row's share, at most 1."""

        def kernel(rows: Rows) -> NDArray[np.float64]:
            return np.array([float(min(rows.n_rows, MOST_ROWS))])

        noisy = float(oracle.noisy_sum(self.release, kernel, 1.0)[0])
        largest = noisy + _FARTHEST * self.noise_multiplier
        return min(1.0, _LESS * self.most / max(largest, 1.0))


def shrinking_share(n_rows: int, most: int) -> float:
    """Share of each row that falls with the true (private) number of rows, for pure privacy.

    It is ``1 - n / (4 most)`` up to ``2 most`` rows and ``most / n`` beyond, less a relative
    ``2^-18``.

    Privacy: let G be a sum over n rows of vectors no longer than C, c the share for n rows and c'
    that for n + 1. One row more moves ``c G`` to ``c' (G + g)``, by at most ``c' C + (c - c') n
    C``. Up to 2 most rows that is ``(1 - 1 / (4 most)) C``, beyond ``2 most C / (n + 1)``, so at
    most C throughout. Rounding of shares adds at most ``2^-52 n C`` times the share, which is
    below ``2^-20 C`` for ``most`` up to ``MOST_ROWS``; the ``2^-18`` covers it.
    """
    exact = 1.0 - n_rows / (4.0 * most) if n_rows <= 2 * most else most / n_rows
    return _LESS * exact
