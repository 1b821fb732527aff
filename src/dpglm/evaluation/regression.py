"""Numbers: sums of residuals, their squares and sizes, and a histogram of residuals."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.data.spec import DataSpec
from dpglm.evaluation.estimates import Noisy
from dpglm.evaluation.task import Released, Task, finite, known, weighted
from dpglm.exploration.results import Number, Scale
from dpglm.oracle.counts import Cells
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.tabulation import Tabulation, plan_tabulation

__all__ = ["RegressionResult", "RegressionTask"]

Floats: TypeAlias = NDArray[np.float64]

# Residuals of either sign in cells of half octaves, up to the range of the targets.
_OCTAVES, _PER_OCTAVE = 8, 2
_SIDE = 2.0 ** (np.arange(-_OCTAVES * _PER_OCTAVE, 0) / _PER_OCTAVE)
_ENDS = np.array([-1.0, *-_SIDE[::-1], 0.0, *_SIDE, 1.0])
_MIDDLES = 0.5 * (_ENDS[1:] + _ENDS[:-1])
_N_CELLS = len(_MIDDLES)

_LARGEST = 1e50

# Targets in cells of equal width.
_TARGETS = 32
_COUNT_SHARE, _TARGET_SHARE = 0.15, 0.1
# Of residuals, their sizes and squares, targets and their squares.
_SUM_SHARES = (0.1, 0.1, 0.25, 0.1, 0.2)


@final
@dataclass(frozen=True)
class RegressionTask(Task):
    """Predictions of numbers.

    Parameters
    ----------
    low, high : float
        Public bounds on the targets, up to 1e50 in magnitude and at least 1e-50 apart, so that
        fourth powers are numbers. Targets and predictions beyond them are clipped.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        check_real("target_bounds", self.low, least=-_LARGEST, most=_LARGEST)
        check_real("target_bounds", self.high, above=self.low, most=_LARGEST)
        if self._range < 1.0 / _LARGEST:
            raise ValueError(
                f"target_bounds must be at least {1.0 / _LARGEST:g} apart, got {self.low!r} and "
                f"{self.high!r}: give targets in other units"
            )

    @property
    def means(self) -> tuple[tuple[str, float, int], ...]:
        wide = self._range
        return (
            ("mean error", wide, 1),
            ("mean absolute error", 0.5 * wide, 2),
            ("mean squared error", 0.5 * wide**2, 3),
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"target_bounds": [self.low, self.high]}

    def plan(
        self, data: DataSpec, n_levels: int, budget: PrivacyBudget, adjacency: Adjacency
    ) -> Plan:
        groups = (n_levels,)
        tables = (
            weighted(Cells((0, 1), (n_levels, _N_CELLS)), _COUNT_SHARE),
            *(
                weighted(Cells((0,), groups, values=(place,)), share)
                for place, share in enumerate(_SUM_SHARES, start=3)
            ),
            weighted(Cells((0, 2), (n_levels, _TARGETS)), _TARGET_SHARE),
        )
        data = known(data, 8, max(_N_CELLS, _TARGETS, n_levels))
        return plan_tabulation(data, budget, adjacency, tables)

    def encode(self, y: NDArray[Any], predictions: Floats) -> Floats:
        numbers = []
        for name, given in (("y", y), ("predictions", predictions)):
            found = finite(name, given)
            numbers.append((np.clip(found, self.low, self.high) - self.low) / self._range)
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
    def _range(self) -> float:
        return self.high - self.low

    def results(self, released: Released) -> tuple[RegressionResult, ...]:
        method = released.plan.method
        assert isinstance(method, Tabulation)
        noise = [method.coefficient_noise / table.weight for table in method.tables]
        sizes = np.cumsum([table.size for table in method.tables])[:-1]
        tables = [
            part.reshape(table.sizes) / table.weight
            for part, table in zip(np.split(released.values, sizes), method.tables, strict=True)
        ]

        def result(chosen: slice, total: int | None) -> RegressionResult:
            counts = tables[0][chosen].sum(axis=0)
            targets = tables[-1][chosen].sum(axis=0)
            sums = [one[chosen].sum() for one in tables[1:-1]]
            scale = math.sqrt(len(range(released.n_levels)[chosen]))
            spread = scale * np.repeat(noise, [counts.size, *[1] * len(sums), targets.size])
            values = np.array([*counts, *sums, *targets])
            noisy = Noisy.of(values, spread, slice(0, counts.size), total, released.clustering)
            return RegressionResult(self.low, self.high, noisy, released.z)

        groups = [result(slice(g, g + 1), None) for g in range(released.n_levels)]
        everything = result(slice(None), released.n_rows)
        return (everything,) if released.n_levels == 1 else (*groups, everything)


@final
@dataclass(frozen=True, eq=False, repr=False)
class RegressionResult:
    """How near predictions are, as far as the released sums say.

    Parameters
    ----------
    low, high : float
        Bounds on the targets.
    noisy : Noisy
        Counts of residuals in cells; then sums over rows, on a scale of the bounds from -1 to 1, of
        residuals (here: of shares of the range), sizes, squares, targets and their squares; then
        counts of targets in cells.
    z : float
        Half width of intervals in standard deviations.
    """

    low: float
    high: float
    noisy: Noisy
    z: float

    @property
    def _range(self) -> float:
        return self.high - self.low

    @property
    def measures(self) -> Mapping[str, Callable[[], Number]]:
        """What can be asked, by name."""
        wide, middles = self._range, self._range * _MIDDLES
        return {
            "r2": self._r2,
            "mse": functools.partial(self._of, self._mse, middles**2, Scale(0.0, wide**2)),
            "rmse": self._rmse,
            "mae": functools.partial(self._of, self._mae, np.abs(middles), Scale(0.0, wide)),
            "d2": self._d2,
            "bias": functools.partial(self._of, self._bias, middles, Scale(-wide, wide)),
        }

    @property
    def rows(self) -> Number:
        """Number of rows; an interval for a population is none of its."""
        return self.noisy.total(_N_CELLS, self.z)

    def residual_quantile(self, q: float) -> Number:
        """Return a quantile of target minus prediction.

        Parameters
        ----------
        q : float
            In (0, 1).
        """
        q = check_real("q", q, above=0.0, below=1.0)
        counts = self.noisy.values[:_N_CELLS]
        rows = max(counts.sum(), 1.0)
        shares = np.maximum.accumulate(np.clip(np.cumsum(counts) / rows, 0.0, 1.0))
        upto = np.concatenate([[0.0], shares])
        noise = self.noisy.noise[0] * math.sqrt(q * (1.0 - q) * _N_CELLS) / rows

        def at(rank: float) -> float:
            rank = min(max(rank, 0.0), 1.0)
            place = min(max(int(np.searchsorted(upto, rank, side="left")), 1), _N_CELLS)
            inside = upto[place] - upto[place - 1]
            part = (rank - upto[place - 1]) / inside if inside > 0.0 else 0.5
            return float(
                self._range * (_ENDS[place - 1] + part * (_ENDS[place] - _ENDS[place - 1]))
            )

        both = self.z * math.hypot(noise, math.sqrt(q * (1.0 - q) / rows))
        reach = self.z * noise
        return Number(at(q), at(q - reach), at(q + reach), at(q - both), at(q + both))

    def _mean(self, values: Floats, place: int) -> float:
        return float(values[_N_CELLS + place]) / max(float(values[:_N_CELLS].sum()), 1.0)

    def _bias(self, values: Floats) -> float:
        return self._range * self._mean(values, 0)

    def _mae(self, values: Floats) -> float:
        return 0.5 * self._range * (1.0 + self._mean(values, 1))

    def _mse(self, values: Floats) -> float:
        return 0.5 * self._range**2 * (1.0 + self._mean(values, 2))

    def _variance(self, values: Floats) -> float:
        square = 0.5 * (1.0 + self._mean(values, 4))
        return 0.25 * self._range**2 * (square - self._mean(values, 3) ** 2)

    def _r2(self) -> Number:
        def share(values: Floats) -> float:
            # Of targets that cannot be told from a constant nothing can be explained.
            return 1.0 - self._mse(values) / max(self._variance(values), 1e-12 * self._range**2)

        # That of a ratio of means of squares, as of residuals and targets that are nearly normal
        # (Olkin and Finn, Psychological Bulletin 1995): 4 R2 (1 - R2)^2 / n.
        rows = max(float(self.noisy.values[:_N_CELLS].sum()), 1.0)
        found = min(max(share(self.noisy.values), 0.0), 1.0)
        residuals = self._fourth()
        sampled = (1.0 - found) ** 2 * max(residuals + 1.0, 4.0 * found) / rows
        return self.noisy.number(share, self.z, Scale(high=1.0), sampled=sampled)

    def _d2(self) -> Number:
        """Return the share of the absolute errors of the targets' median that is explained.

        The median and the mean distance from it are those of the counts of targets, which are taken
        to be at the middles of their cells, but for those of the median's cell: even in it.
        """
        middles = self._range * (np.arange(_TARGETS) + 0.5) / _TARGETS
        width = self._range / _TARGETS

        def median(values: Floats) -> tuple[float, int, Floats]:
            # Not kept above zero, which would put the noise of empty cells at the far ends.
            shares = values[-_TARGETS:] / max(float(values[-_TARGETS:].sum()), 1.0)
            upto = np.maximum.accumulate(np.clip([0.0, *np.cumsum(shares)], 0.0, 1.0))
            place = min(max(int(np.searchsorted(upto, 0.5)), 1), _TARGETS) - 1
            inside = float(upto[place + 1] - upto[place])
            part = (0.5 - float(upto[place])) / inside if inside > 0.0 else 0.5
            return min(max(part, 0.0), 1.0), place, shares

        def distance(values: Floats) -> float:
            part, place, shares = median(values)
            away = np.abs(middles - (middles[place] + (part - 0.5) * width))
            away[place] = 0.5 * width * (part**2 + (1.0 - part) ** 2)
            return float(shares @ away)

        def explained(values: Floats) -> float:
            return 1.0 - self._mae(values) / max(distance(values), 1e-12 * self._range)

        found, most = self._mae(self.noisy.values), max(distance(self.noisy.values), 1e-12)
        _, place, shares = median(self.noisy.values)
        # What is left out: errors vary with distances, most of all as one.
        counts = np.maximum(self.noisy.values[:_N_CELLS], 0.0)
        rows = max(float(counts.sum()), 1.0)
        sizes = self._range * np.abs(_MIDDLES)
        errors = float(counts @ sizes**2) / rows - (float(counts @ sizes) / rows) ** 2
        away = np.abs(middles - middles[place])
        distances = float(shares @ away**2) - float(shares @ away) ** 2
        ratio = found / most
        sampled = (max(errors, 0.0) + ratio**2 * max(distances, 0.0)) / most**2 / rows
        return self.noisy.number(
            explained,
            self.z,
            Scale(high=1.0),
            sampled=sampled,
            approximation=abs(ratio * float(shares[place])) * width / (12.0 * most),
        )

    def _fourth(self) -> float:
        """Return the variance of squared residuals over their squared mean, from the cells."""
        counts = np.maximum(self.noisy.values[:_N_CELLS], 0.0)
        squares = _MIDDLES**2
        mean = float(counts @ squares) / max(counts.sum(), 1.0)
        fourth = float(counts @ squares**2) / max(counts.sum(), 1.0)
        return max(fourth / mean**2 - 1.0, 0.0) if mean > 0.0 else 2.0

    def _rmse(self) -> Number:
        square = self._of(self._mse, (self._range * _MIDDLES) ** 2, Scale(0.0, self._range**2))
        ends = (
            square.low,
            square.high,
            square.population_low or 0.0,
            square.population_high or 0.0,
        )
        return Number(math.sqrt(square.estimate), *map(math.sqrt, ends))

    def _of(self, function: Callable[[Floats], float], typical: Floats, scale: Scale) -> Number:
        """Return a mean over rows, of which ``typical`` are the values in the cells."""
        counts = np.maximum(self.noisy.values[:_N_CELLS], 0.0)
        rows = max(counts.sum(), 1.0)
        variance = float(counts @ typical**2) / rows - (float(counts @ typical) / rows) ** 2
        return self.noisy.number(function, self.z, scale, sampled=variance / rows)
