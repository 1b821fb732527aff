"""Released tables by name, and functions of them with intervals by the delta method."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.counts import Cells
from dpglm.solvers.base import Plan
from dpglm.tabulate.numbers import SHARE, Number, NumberScale, number

Floats: TypeAlias = NDArray[np.float64]
Parts: TypeAlias = Mapping[str, Floats]
"""Released values by name."""
Key = TypeVar("Key", bound=Hashable)


def by_class(values: Parts) -> tuple[Floats, Floats]:
    """Return the counts of the rows of the first and of the second class."""
    first, second = values["counts"]
    return first, second


def public_rows(plan: Plan, chosen: bool) -> int | None:
    """Return the number of rows that count if it is public; ``chosen`` makes it private."""
    public = plan.adjacency.rows_are_public(plan.data.unit) and not chosen
    return plan.data.n_rows if public else None


@final
@dataclass(frozen=True, eq=False)
class ReleasedTables(Generic[Key]):
    """Released tables by key, without their weights.

    Parameters
    ----------
    tables : mapping from key to ndarray
        Noisy counts or sums; the first axis is the level of the rows.
    noise : mapping from key to float
        Standard deviation of the noise in each cell of a table.
    n_rows : int or None
        Number of rows, if it is public.
    clustering : float
        Bound on the increase of sampling variances by similar rows of a person. For sums of k equal
        rows it is k: the variance of a sum of k numbers is at most k times the sum of their
        variances.
    """

    tables: Mapping[Key, Floats]
    noise: Mapping[Key, float]
    n_rows: int | None
    clustering: float

    @classmethod
    def of(
        cls,
        plan: Plan,
        cells: Mapping[Key, Cells],
        released: Floats,
        *,
        chosen: bool = False,
        has_levels: bool = True,
    ) -> ReleasedTables[Key]:
        """Read a released vector that ends with these tables.

        Without ``has_levels`` an axis of levels with length 1 is added.
        """
        sizes = [one.size for one in cells.values()]
        stops = list(itertools.accumulate(sizes, initial=len(released) - sum(sizes)))
        first = () if has_levels else (1,)
        tables = {
            key: released[start:stop].reshape(*first, *one.sizes) / one.weight
            for (key, one), (start, stop) in zip(
                cells.items(), itertools.pairwise(stops), strict=True
            )
        }
        noise = {key: plan.coefficient_noise / one.weight for key, one in cells.items()}
        return cls(tables, noise, public_rows(plan, chosen), plan.data.reach(1))

    def levels(self, n_levels: int) -> Iterator[ReleasedTables[Key]]:
        """Yield the tables of each level, if there are several, then those of all rows."""
        if n_levels > 1:
            for level in range(n_levels):
                tables = {key: one[level] for key, one in self.tables.items()}
                yield dataclasses.replace(self, tables=tables, n_rows=None)
        noise = {key: math.sqrt(n_levels) * one for key, one in self.noise.items()}
        tables = {key: one.sum(axis=0) for key, one in self.tables.items()}
        yield dataclasses.replace(self, tables=tables, noise=noise)

    def noisy(self, counts: Key, *others: Key) -> Noisy:
        """Return some tables, the first one with counts of all rows, for the delta method."""
        names = {"counts": counts} | {str(key): key for key in others}
        return Noisy.of(
            {name: self.tables[key] for name, key in names.items()},
            {name: self.noise[key] for name, key in names.items()},
            self.n_rows,
            self.clustering,
        )


@final
@dataclass(frozen=True, eq=False)
class Noisy:
    """Counts and other values with independent noise, and functions of them with intervals.

    Parameters
    ----------
    values : mapping from str to ndarray
        Noisy values; ``"counts"`` contains numbers of rows that add up to all rows. Their variance
        over samples of random size is the count. For numbers that do not change if all
        values double, that is the variance for a fixed size.
    noise : mapping from str to float or ndarray
        Standard deviations of the noise.
    known_sum : bool
        Whether the number of all rows is public, and counts have been moved to it by equal parts.
    clustering : float
        Bound on the increase of sampling variances by similar rows of a person.
    """

    values: Parts
    noise: Mapping[str, float | Floats]
    known_sum: bool
    clustering: float = 1.0

    @classmethod
    def of(
        cls,
        values: Parts,
        noise: Mapping[str, float | Floats],
        n_rows: int | None,
        clustering: float = 1.0,
    ) -> Noisy:
        """Move counts to their sum, where it is public."""
        counts = values["counts"]
        if n_rows is not None:
            counts = counts + (n_rows - counts.sum()) / counts.size
        return cls({**values, "counts": counts}, noise, n_rows is not None, clustering)

    def with_values(self, name: str, values: Floats, noise: float | Floats) -> Noisy:
        """Return these values and further ones."""
        return dataclasses.replace(
            self, values={**self.values, name: values}, noise={**self.noise, name: noise}
        )

    @property
    def counts(self) -> Floats:
        """Noisy counts of rows."""
        return self.values["counts"]

    @property
    def by_class(self) -> tuple[Floats, Floats]:
        """Noisy counts of the rows of the first and of the second class."""
        return by_class(self.values)

    @property
    def n_rows(self) -> float:
        """Noisy number of all rows, at least 1."""
        return max(float(self.counts.sum()), 1.0)

    def total(self, z: float) -> Number:
        """Return the number of all rows."""
        std = 0.0 if self.known_sum else float(self.noise["counts"])
        return number(float(self.counts.sum()), std**2 * self.counts.size, z, NumberScale(low=0.0))

    def number(
        self,
        function: Callable[[Parts], float],
        z: float,
        scale: NumberScale = SHARE,
        sampled: float | None = None,
        approximation: float = 0.0,
        unseen: float = 0.0,
    ) -> Number:
        """Return a smooth function of the values with its intervals.

        Parameters
        ----------
        function : callable
            From values by name to a float.
        z : float
            Half width of intervals in standard deviations.
        scale : NumberScale
            Range of the number.
        sampled : float, optional
            Sampling variance, where it does not follow from the counts.
        approximation : float
            Size of the error of the function itself.
        unseen : float
            Variance of the part that depends on the rows but not on their counts. It widens the
            interval for these rows; the population interval already includes it.
        """
        center = float(function(self.values))
        slopes = self._slopes(function)
        counts = slopes["counts"]
        # Noise that changes the sum of counts was removed.
        noisy = {**slopes, "counts": counts - counts.mean()} if self.known_sum else slopes
        variance = math.fsum(
            float(((one * self.noise[name]) ** 2).sum()) for name, one in noisy.items()
        )
        variance += approximation**2
        if sampled is None:
            sampled = float((counts**2 * np.maximum(self.counts, 0.0)).sum())
        sampled, unseen = self.clustering * sampled, self.clustering * unseen
        if not math.isfinite(center + variance + sampled):
            return Number(math.nan, scale.low, scale.high, scale.low, scale.high)
        sampled = max(sampled - unseen, 0.0)
        return number(center, variance + unseen, z, scale, sampling_variance=sampled)

    def _slopes(self, function: Callable[[Parts], float]) -> Parts:
        """Return derivatives by central differences."""
        largest = max(float(np.abs(one).max(initial=0.0)) for one in self.values.values())
        slopes = {}
        for name, one in self.values.items():
            moved = np.array(one, np.float64)
            values = {**self.values, name: moved}
            found = np.empty(moved.shape)
            for place in np.ndindex(moved.shape):
                before = float(moved[place])
                step = 1e-5 * max(abs(before), 1.0 + largest)
                moved[place] = before + step
                up = function(values)
                moved[place] = before - step
                found[place] = (up - function(values)) / (2.0 * step)
                moved[place] = before
            slopes[name] = found
        return slopes
