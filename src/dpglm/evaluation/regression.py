"""Numbers: sums of residuals, their squares and sizes, and histograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array, check_real
from dpglm.evaluation.task import NUMBERS, EvaluationTask, Metric, Result, finite, mean_of, metric
from dpglm.oracle.counts import Cells
from dpglm.solvers.composite.tabulation import FoundCells, Refined
from dpglm.tabulate import Noisy, Number, NumberScale, Parts, ReleasedTables

# Residuals of either sign in cells of half octaves, up to the range of the targets.
_OCTAVES, _PER_OCTAVE = 8, 2
_SIDE = 2.0 ** (np.arange(-_OCTAVES * _PER_OCTAVE, 0) / _PER_OCTAVE)
_ENDS = np.array([-1.0, *-_SIDE[::-1], 0.0, *_SIDE, 1.0])
_MIDDLES = 0.5 * (_ENDS[1:] + _ENDS[:-1])
_N_CELLS = len(_MIDDLES)

_LARGEST = 1e50

# Targets in cells of equal width.
_TARGETS = 32
# Tables with their shares of the squared budget: sums of residuals, their sizes and squares, of
# targets and their squares, and counts of residuals and targets.
_SHARES = {
    "residuals": 0.15,
    "error": 0.1,
    "size": 0.1,
    "square": 0.25,
    "target": 0.1,
    "target_square": 0.2,
    "targets": 0.1,
}


@final
@dataclass(frozen=True)
class RegressionTask(EvaluationTask):
    """Predictions of numbers.

    Parameters
    ----------
    low, high : float
        Public bounds on the targets, up to 1e50 in magnitude and at least 1e-50 apart, so that
        fourth powers are numbers. Targets and predictions beyond them are clipped.
    """

    low: float
    high: float
    classes = ()
    pictures = ("residuals",)
    shares = _SHARES
    width = 8

    def __post_init__(self) -> None:
        check_real("target_bounds", self.low, least=-_LARGEST, most=_LARGEST)
        check_real("target_bounds", self.high, above=self.low, most=_LARGEST)
        if self.span < 1.0 / _LARGEST:
            raise ValueError(
                f"target_bounds must be at least {1.0 / _LARGEST:g} apart, got {self.low!r} and "
                f"{self.high!r}: give targets in other units"
            )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return METRICS

    @property
    def means(self) -> tuple[tuple[str, float, str], ...]:
        wide = self.span
        return (
            ("mean error", wide, "error"),
            ("mean absolute error", 0.5 * wide, "size"),
            ("mean squared error", 0.5 * wide**2, "square"),
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"target_bounds": [self.low, self.high]}

    def cells(self, n_levels: int, refined: Sequence[Refined]) -> Iterable[Cells]:
        return (
            Cells((0, 1), (n_levels, _N_CELLS)),
            *(Cells((0,), (n_levels,), values=(place,)) for place in range(3, 8)),
            Cells((0, 2), (n_levels, _TARGETS)),
        )

    def encode(self, y: NDArray[Any], predictions: Array) -> Array:
        numbers = []
        for name, given in (("y", y), ("predictions", predictions)):
            found = finite(name, given)
            numbers.append((np.clip(found, self.low, self.high) - self.low) / self.span)
        target, guess = numbers
        residual = target - guess
        centred = 2.0 * target - 1.0
        return np.column_stack(
            [
                np.clip(np.searchsorted(_ENDS, residual, side="right") - 1, 0, _N_CELLS - 1),
                np.minimum(target * _TARGETS, _TARGETS - 1.0) // 1.0,
                residual,
                2.0 * np.abs(residual) - 1.0,
                2.0 * residual**2 - 1.0,
                centred,
                2.0 * centred**2 - 1.0,
            ]
        )

    @property
    def span(self) -> float:
        """Width of the bounds."""
        return self.high - self.low

    def results(
        self, released: ReleasedTables[str], found: Sequence[FoundCells], n_levels: int, z: float
    ) -> tuple[RegressionResult, ...]:
        every = released.levels(n_levels)
        return tuple(RegressionResult(self, rows.noisy(*_SHARES), z) for rows in every)


@final
@dataclass(frozen=True, eq=False, repr=False)
class RegressionResult(Result):
    """Metrics of predicted numbers.

    Parameters
    ----------
    task : RegressionTask
        Bounds on the targets.
    noisy : Noisy
        ``counts`` of residuals in cells; sums over rows of residuals (as shares of the range), and,
        rescaled to [-1, 1], of their sizes and squares, of targets and their squares; and counts
        of ``targets`` in cells.
    z : float
        Half width of intervals in standard deviations.
    """

    task: RegressionTask
    noisy: Noisy
    z: float

    @property
    def span(self) -> float:
        """Width of the target bounds."""
        return self.task.span

    @property
    def rows(self) -> Number:
        return self.noisy.total(self.z)

    def residual_quantile(self, q: float) -> Number:
        """Return a quantile of target minus prediction.

        Parameters
        ----------
        q : float
            In (0, 1).
        """
        q = check_real("q", q, above=0.0, below=1.0)
        rows = self.noisy.n_rows
        shares = np.clip(np.cumsum(self.noisy.counts) / rows, 0.0, 1.0)
        upto = np.concatenate([[0.0], np.maximum.accumulate(shares)])
        noise = float(self.noisy.noise["counts"]) * math.sqrt(q * (1.0 - q) * _N_CELLS) / rows

        def at(rank: float) -> float:
            place, part = _cell_of(upto, rank)
            return self.span * float(_ENDS[place] + part * (_ENDS[place + 1] - _ENDS[place]))

        both = self.z * math.hypot(noise, math.sqrt(q * (1.0 - q) / rows))
        half = self.z * noise
        return Number(at(q), at(q - half), at(q + half), at(q - both), at(q + both))

    def bias(self) -> Number:
        """Return the mean of target minus prediction."""
        return self._mean(
            lambda values: self.span * _mean_of(values, "error"),
            _MIDDLES,
            NumberScale(-self.span, self.span),
        )

    def mae(self) -> Number:
        """Return the mean absolute error."""
        return self._mean(self._mae, np.abs(_MIDDLES), NumberScale(0.0, self.span))

    def mse(self) -> Number:
        """Return the mean squared error."""
        return self._mean(self._mse, self.span * _MIDDLES**2, NumberScale(0.0, self.span**2))

    def rmse(self) -> Number:
        """Return the root mean squared error."""
        return Number(*(math.sqrt(one or 0.0) for one in vars(self.mse()).values()))

    def r2(self) -> Number:
        """Return the share of the variance of the targets that is explained."""

        def explained(values: Parts) -> float:
            square = 0.5 * (1.0 + _mean_of(values, "target_square"))
            variance = 0.25 * self.span**2 * (square - _mean_of(values, "target") ** 2)
            # Nothing can be explained of targets that cannot be distinguished from a constant.
            return 1.0 - self._mse(values) / max(variance, 1e-12 * self.span**2)

        # The variance of a ratio of mean squares for nearly normal residuals and targets is
        # 4 R2 (1 - R2)^2 / n (Olkin and Finn, Psychological Bulletin 1995).
        found = min(max(explained(self.noisy.values), 0.0), 1.0)
        mean, variance, _ = self._moments(_MIDDLES**2)
        # The variance of squared residuals over their squared mean.
        relative = max(variance / mean**2, 0.0) if mean > 0.0 else 2.0
        sampled = (1.0 - found) ** 2 * max(relative + 1.0, 4.0 * found) / self.noisy.n_rows
        return self.noisy.number(explained, self.z, NumberScale(high=1.0), sampled=sampled)

    def d2(self) -> Number:
        """Return the share of the absolute errors of the median target that is explained.

        The median and the mean distance from it follow from the counts of targets, which are placed
        in the middle of their cells, but evenly over the cell of the median.
        """
        middles = self.span * (np.arange(_TARGETS) + 0.5) / _TARGETS
        width = self.span / _TARGETS

        def median(values: Parts) -> tuple[int, float, Array]:
            # Clipping at zero would accumulate the noise of empty cells far from the median.
            shares = values["targets"] / max(float(values["targets"].sum()), 1.0)
            upto = np.maximum.accumulate(np.clip([0.0, *np.cumsum(shares)], 0.0, 1.0))
            place, part = _cell_of(upto, 0.5)
            return place, min(max(part, 0.0), 1.0), shares

        def distance(values: Parts) -> float:
            place, part, shares = median(values)
            away = np.abs(middles - (middles[place] + (part - 0.5) * width))
            away[place] = 0.5 * width * (part**2 + (1.0 - part) ** 2)
            return float(shares @ away)

        def explained(values: Parts) -> float:
            return 1.0 - self._mae(values) / max(distance(values), 1e-12 * self.span)

        most = max(distance(self.noisy.values), 1e-12)
        place, _, shares = median(self.noisy.values)
        # An upper bound: the covariance of errors and distances is left out.
        _, errors, rows = self._moments(self.span * np.abs(_MIDDLES))
        away = np.abs(middles - middles[place])
        distances = float(shares @ away**2) - float(shares @ away) ** 2
        ratio = self._mae(self.noisy.values) / most
        sampled = max(errors, 0.0) + ratio**2 * max(distances, 0.0)
        return self.noisy.number(
            explained,
            self.z,
            NumberScale(high=1.0),
            sampled=sampled / most**2 / rows,
            approximation=abs(ratio * float(shares[place])) * width / (12.0 * most),
        )

    def _mae(self, values: Parts) -> float:
        return mean_of(values, "size", self.span)

    def _mse(self, values: Parts) -> float:
        return mean_of(values, "square", self.span**2)

    def _moments(self, typical: Array) -> tuple[float, float, float]:
        """Return mean and variance of numbers with these values in the cells, and the rows."""
        counts = np.maximum(self.noisy.counts, 0.0)
        rows = max(float(counts.sum()), 1.0)
        mean = float(counts @ typical) / rows
        return mean, float(counts @ typical**2) / rows - mean**2, rows

    def _mean(
        self, function: Callable[[Parts], float], typical: Array, scale: NumberScale
    ) -> Number:
        """Return a mean over rows with these values in the cells, as shares of the range."""
        _, variance, rows = self._moments(self.span * typical)
        return self.noisy.number(function, self.z, scale, sampled=variance / rows)


def _mean_of(values: Parts, name: str) -> float:
    return float(values[name]) / max(float(values["counts"].sum()), 1.0)


def _cell_of(upto: Array, rank: float) -> tuple[int, float]:
    """Return the cell that contains a rank, and the part of its rows below the rank."""
    rank = min(max(rank, 0.0), 1.0)
    place = min(max(int(np.searchsorted(upto, rank)), 1), len(upto) - 1) - 1
    inside = float(upto[place + 1] - upto[place])
    return place, (rank - float(upto[place])) / inside if inside > 0.0 else 0.5


_SHOWN = {"headline": True, "by_level": True}
METRICS = (
    metric(NUMBERS, RegressionResult.r2, "R\N{SUPERSCRIPT TWO}", better=1, **_SHOWN),
    metric(NUMBERS, RegressionResult.mse, "mean squared error", better=-1),
    metric(NUMBERS, RegressionResult.rmse, "root mean squared error", better=-1, **_SHOWN),
    metric(NUMBERS, RegressionResult.mae, "mean absolute error", better=-1, **_SHOWN),
    metric(NUMBERS, RegressionResult.d2, "D\N{SUPERSCRIPT TWO}", better=1),
    metric(NUMBERS, RegressionResult.bias, "mean error", by_level=True),
)
"""Metrics of predicted numbers."""
