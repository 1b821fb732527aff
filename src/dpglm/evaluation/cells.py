"""Where scores are counted: keys in the order of the scores, and what is known of merged cells."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpglm.solvers.composite.score_tables import FoundCells, Refined

__all__ = [
    "LARGEST_LOSS",
    "LEAST_FINE",
    "LOG_ODDS",
    "MergedCells",
    "keys_of",
    "n_cells_for",
    "n_fine_for",
    "refined_column",
    "scores_of",
]

Floats: TypeAlias = NDArray[np.float64]
Keys: TypeAlias = NDArray[np.int64]

LARGEST_LOSS = 8.0
"""Log losses of rows are counted up to this, as of a probability of 0.0003."""
LOG_ODDS = 10.0
"""Log odds of scores count up to this in calibration, as of a probability of 0.00005."""
LEAST_FINE, _MOST_FINE, _FINE = 160, 1280, 8.0
_FEWEST, _MOST, _CELLS = 4, 16, 1.3
# Cells in each round of the search: of one column, and of all columns together.
_SEARCHED, _ALL_SEARCHED, _LEAST_SEARCHED = 1024, 16_384, 128
# Bits of a float64's significand that a key leaves out: keys hold 12 digits of a score.
_LEFT_OUT = 12
# Keys of the scores from one power of 2 to the next.
_OCTAVE = 2 ** (52 - _LEFT_OUT)
# Ends of the first round's cells: probabilities, and magnitudes of decision values.
_LEAST_PROBABILITY, _LEAST_VALUE, _LARGEST_VALUE = 2.0**-32, 2.0**-20, 2.0**20
# A fine cell with this many times its equal share holds scores that are one or very near.
_OVER_FULL = 4.0
# Positions within a cell are from -1 to 1, in the mean at most this; steps that find a tilt, and
# the most that there is.
_FARTHEST, _TILTS, _MOST_BENT, _LEAST_SPREAD = 0.9, 8, 20.0, 0.01


def _bits(values: Floats) -> Keys:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64) >> _LEFT_OUT


def _floats(bits: Keys) -> Floats:
    return (np.asarray(bits, dtype=np.int64) << _LEFT_OUT).view(np.float64)


_MIDDLE = int(_bits(np.array([0.5]))[0])


def keys_of(scores: Floats, probabilities: bool) -> Keys:
    """Return whole numbers in the order of the scores; equal scores have equal keys.

    They are floating-point numbers as the machine orders them, without their last 12 bits: scores
    that agree in 12 digits are one. Probabilities have those of the nearer of 0 and 1.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if probabilities:
        low = scores <= 0.5
        nearer = _bits(np.where(low, scores, 1.0 - scores)) - _MIDDLE
        return np.where(low, nearer, -nearer)
    size = _bits(np.abs(scores))
    return np.where(scores < 0.0, -size, size)


def scores_of(keys: Keys, probabilities: bool) -> Floats:
    """Return the scores that keys stand for; those beyond all scores are the largest ones."""
    keys = np.asarray(keys, dtype=np.int64)
    if probabilities:
        nearer = _floats(np.maximum(_MIDDLE - np.abs(keys), 0))
        return np.where(keys <= 0, nearer, 1.0 - nearer)
    return np.copysign(_floats(np.minimum(np.abs(keys), _largest(False))), keys)


def _largest(probabilities: bool) -> int:
    if probabilities:
        return _MIDDLE
    return int(_bits(np.array([np.finfo(np.float64).max]))[0])


def n_fine_for(n_rows: int, mu: float) -> int:
    """Return the number of fine cells, from the number of rows and the budget (mu-GDP).

    As fine as noise allows: that in a number of rows below a score has a standard deviation of
    about sqrt(F) / mu of F fine cells.
    """
    return int(min(max(n_rows * mu / _FINE, LEAST_FINE), _MOST_FINE))


def n_cells_for(n_rows: int, mu: float) -> int:
    """Return the number of merged cells, from the number of rows and the budget (mu-GDP).

    The area under the curve has an error of order B^-4 of B cells, and noise of variance B / (n
    mu)^2: their squares' sum is least at B of order (n mu)^(2/9); measured
    (``experiments.evaluation --develop``), 1.3 (n mu)^(1/4) serves from n mu = 100 to 15,000.
    """
    return int(min(max(round(_CELLS * (n_rows * mu) ** 0.25), _FEWEST), _MOST))


def refined_column(
    label: int,
    column: int,
    n_fine: int,
    n_cells: int,
    *,
    probabilities: bool,
    thresholds: Sequence[float] = (),
    n_columns: int = 1,
    position: int | None = None,
) -> Refined:
    """Return how the cells of a column of keys are found, one of ``n_columns``."""
    if probabilities:
        nearest, farthest = 0, -int(keys_of(np.array([_LEAST_PROBABILITY]), True)[0])
        usual = (0, 4 * _OCTAVE)
    else:
        ends = keys_of(np.array([_LEAST_VALUE, 1.0, _LARGEST_VALUE]), False)
        nearest, middle, farthest = ends.tolist()
        usual = (middle, 8 * _OCTAVE)
    searched = max(min(_SEARCHED, _ALL_SEARCHED // n_columns), _LEAST_SEARCHED)
    cuts = np.unique(keys_of(np.array(thresholds, np.float64), probabilities)).tolist()
    span = (nearest, farthest, _largest(probabilities))
    return Refined(label, column, n_fine, n_cells, searched, span, usual, tuple(cuts), position)


@final
@dataclass(frozen=True, eq=False)
class MergedCells:
    """Merged cells of scores, and what the fine cells say of each; public.

    Parameters
    ----------
    found : FoundCells
        The fine cells.
    probabilities : bool
        Whether scores are probabilities.
    shares : ndarray
        Shares of the rows in the fine cells.
    """

    found: FoundCells
    probabilities: bool
    shares: Floats

    @classmethod
    def of(cls, found: FoundCells, probabilities: bool) -> Self:
        """Make those of a column, with the shares that its counts say."""
        return cls(found, probabilities, found.shares)

    def tilted(self, positions: Floats) -> Self:
        """Return them with shares whose mean positions within merged cells are given ones.

        Shares are multiplied by exponentials of positions: the least change in relative entropy.
        """
        middles, wanted = self.found.middles, np.clip(positions, -_FARTHEST, _FARTHEST)
        bend = np.zeros(len(self.there))
        for _ in range(_TILTS):
            moved = self._bent(bend, middles)
            mean = moved.mean(middles)
            spread = moved.mean((middles - mean[self.place]) ** 2)
            step = (wanted - mean) / np.maximum(spread, _LEAST_SPREAD)
            bend = np.clip(bend + np.clip(step, -2.0, 2.0), -_MOST_BENT, _MOST_BENT)
        return self._bent(bend, middles)

    def _bent(self, bend: Floats, middles: Floats) -> Self:
        shares = self.found.shares * np.exp(bend[self.place] * middles)
        whole = np.bincount(self.place, self.found.shares) / np.bincount(self.place, shares)
        return dataclasses.replace(self, shares=shares * whole[self.place])

    @property
    def there(self) -> NDArray[np.intp]:
        """Merged cells that fine cells are in; no row is in others."""
        return self.found.there

    @property
    def place(self) -> NDArray[np.intp]:
        """Place of each fine cell's merged cell among those that are there."""
        return self.found.place

    @functools.cached_property
    def ends(self) -> Floats:
        """Score at which each merged cell begins; the first at the least that there is."""
        first = np.searchsorted(self.place, np.arange(len(self.there)))
        ends = scores_of(self.found.grid.bounds[first], self.probabilities)
        ends[0] = 0.0 if self.probabilities else -np.inf
        return ends

    @functools.cached_property
    def scores(self) -> Floats:
        """Score in the middle of each fine cell."""
        lows, highs = self.found.grid.bounds[:-1], self.found.grid.bounds[1:] - 1
        return scores_of(lows + (highs - lows) // 2, self.probabilities)

    @functools.cached_property
    def log_odds(self) -> Floats:
        """Log odds of the scores, within ``LOG_ODDS``."""
        return np.clip(logit(self.scores), -LOG_ODDS, LOG_ODDS)

    def mean(self, values: Floats) -> Floats:
        """Return the mean over each merged cell's rows of a number for each fine cell."""
        weights = self.shares
        return np.bincount(self.place, weights * values) / np.bincount(self.place, weights)

    @functools.cached_property
    def _parts(self) -> Floats:
        """Part of its merged cell's rows, in the mean of both classes, in each fine cell."""
        totals = np.maximum(self.found.counts.sum(axis=1, keepdims=True), 1.0)
        clear = np.where(self.found.clear, np.maximum(self.found.counts, 0.0), 0.0)
        masses = (clear / totals).sum(axis=0)
        whole = np.bincount(self.place, (self.found.counts / totals).sum(axis=0))
        whole = np.maximum(np.maximum(whole, np.bincount(self.place, masses)), 1e-9)
        parts: Floats = masses / whole[self.place]
        return parts

    @functools.cached_property
    def _over_full(self) -> NDArray[np.bool_]:
        """Fine cells whose scores are one, or so near that the search could not tell them apart."""
        least = _OVER_FULL * self.found.counts.sum() / len(self.place)
        found: NDArray[np.bool_] = self.found.clear & (self.found.counts.sum(axis=0) > least)
        return found

    @functools.cached_property
    def spread(self) -> Floats:
        """How spread a merged cell's scores are: 0 if they are one, 1 if they all differ.

        That is 1 - sum a^3, where parts a of the cell's rows are in one over-full fine cell.
        """
        shared = np.where(self._over_full, self._parts, 0.0) ** 3
        return np.asarray(np.maximum(1.0 - np.bincount(self.place, shared), 0.0), np.float64)

    @functools.cached_property
    def unknown(self) -> Floats:
        """Share of a merged cell's pairs whose order is not known: sum a^2, unless scores are one.

        The over-full fine cells that hold more than one key have any order, or none.
        """
        loose = np.where(self._over_full & ~self.found.grid.single, self._parts, 0.0) ** 2
        return np.asarray(np.minimum(np.bincount(self.place, loose), 1.0), np.float64)
