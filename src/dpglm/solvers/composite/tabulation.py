"""Tables of counts and sums instead of a model, in cells that are given or searched for."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real
from dpglm.data.rows import DataSpec
from dpglm.oracle.counts import Cells, noisy_tables, table_sum
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.solvers.base import FitStage, Method, Outcome, StepInfo, composed
from dpglm.solvers.uncertainty import Floats

KEY_UNIT = 2.0**-20
"""Columns hold keys times this, so that rows have moderate norms; a power of two is exact."""
N_ROUNDS = 8
"""Rounds of the search: each divides heavy cells by their share times the number of cells."""
# Shares of the squared budget: all rounds of the search, and counts of fine cells.
_SEARCH_SHARE, _FINE_SHARE = 0.06, 0.06
# Counts above this many standard deviations are certain not to be of an empty cell.
_CLEAR = 4.0
# Least estimated part of the expected rows in a half, for all counts.
_LEAST_PART = 0.02
# Standard deviation of a half's rows from the expected ones, relative to these, and the factor that
# marks a cell of nearly equal scores.
_UNSURE, _SURPRISE = 0.3, 4.0
_TINY = 1e-300
# Cells that are divided into at least this many parts keep their ends.
_HEAVY_PARTS = 6.0
# A fine cell with this part of a merged cell's mass stays alone.
_HEAVY = 0.5


@final
@dataclass(frozen=True, eq=False)
class Grid:
    """Cells of whole numbers, and the expected share of the rows in each; public."""

    bounds: NDArray[np.int64]  # Ends of the cells, increasing; a cell begins at its lower end.
    expected: Floats  # Adds up to 1.

    @property
    def single(self) -> NDArray[np.bool_]:
        """Cells of one key, with equal scores."""
        return np.asarray(np.diff(self.bounds) == 1)

    def places(self, keys: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the cell of each key."""
        return np.searchsorted(self.bounds[1:-1], keys, side="right")

    def believed(self, counts: Floats, noise_std: float, n_rows: float) -> Floats:
        """Return estimated shares of the rows from noisy counts and the expected shares.

        Cells with significantly more rows than expected, or with one key, get their counts. The
        other rows are divided between two halves of the other cells, and so on down to single
        cells. A count within noise of its expectation changes a division little.
        """
        heavy = self.single | (counts > _SURPRISE * n_rows * self.expected)
        heavy &= counts > _CLEAR * noise_std
        counts, own = np.where(heavy, 0.0, counts), np.where(heavy, counts, 0.0)
        depth = max(math.ceil(math.log2(len(counts))), 1)
        pad = 2**depth - len(counts)
        parts = np.stack([~heavy * self.expected, counts, ~heavy])
        levels = [np.pad(parts, ((0, 0), (0, pad)))]
        for _ in range(depth - 1):
            levels.append(levels[-1][:, ::2] + levels[-1][:, 1::2])
        rows = np.array([max(n_rows - float(own.sum()), 0.0)])
        for level in reversed(levels):
            prior, seen, size = level.reshape(3, -1, 2).transpose(0, 2, 1)
            left = rows * prior[0] / np.maximum(prior[0] + prior[1], _TINY)
            part = size[0] / np.maximum(size[0] + size[1], 1.0)
            change = seen[0] + part * (rows - (seen[0] + seen[1])) - left
            variance = noise_std**2 * part * size[1]
            signal = (_UNSURE * np.minimum(left, rows - left)) ** 2
            signal = np.maximum(signal, change**2 - 9.0 * variance) + _TINY
            moved = left + change * signal / (signal + variance)
            left = np.clip(moved, _LEAST_PART * left, rows - _LEAST_PART * (rows - left))
            rows = np.stack([left, rows - left], axis=1).ravel()
        shares: Floats = np.maximum(own + rows[: len(counts)], _TINY)
        shares /= shares.sum()
        return shares

    def finer(
        self, shares: Floats, known: NDArray[np.bool_], size: int, lasting: NDArray[np.int64]
    ) -> Grid:
        """Return ``size`` cells of equal shares if keys allow it, and one for each lasting end.

        Within a cell rows are taken to be uniform. Cells of one key need no more cells, and those
        that are ``known`` to hold rows are kept.
        """
        known = known & self.single
        kept = np.argsort(known * shares)[::-1][: min(int(known.sum()), size // 8)]
        open_shares = np.where(self.single, 0.0, shares)
        if open_shares.sum() <= 0.0:
            open_shares = shares
        open_shares = open_shares / open_shares.sum()
        # The last part of a heavy cell ends with it.
        kept = np.union1d(kept, np.flatnonzero(open_shares > _HEAVY_PARTS / size))
        required = [*lasting, *self.bounds[kept], *self.bounds[kept + 1], *self.bounds[[0, -1]]]
        upto = np.concatenate([[0.0], np.cumsum(open_shares)])
        # Inner ends, besides the required ones.
        wanted = max(size - 2 * len(kept), 2)
        levels = np.arange(1, wanted) / wanted
        cell = np.clip(np.searchsorted(upto, levels, side="right") - 1, 0, len(shares) - 1)
        part = (levels - upto[cell]) / np.maximum(upto[cell + 1] - upto[cell], 1e-300)
        width = np.diff(self.bounds)[cell]
        offset = np.minimum(np.floor(part * width), width - 1).astype(np.int64)
        bounds = np.union1d(np.array(required, np.int64), self.bounds[cell] + offset)
        # The share of the rows below each end, uniform within a cell.
        cell, upto = self.places(bounds), np.concatenate([[0.0], np.cumsum(shares)])
        part = (bounds - self.bounds[cell]) / np.diff(self.bounds)[cell]
        return Grid(bounds, np.diff(upto[cell] + part * shares[cell]))


@final
@dataclass(frozen=True)
class Refined:
    """A column of keys with cells that are searched, then merged into a few for two classes.

    Keys are whole numbers in the order of the scores, below ``2**52`` in magnitude. ``span`` has
    magnitudes of keys: the nearest to 0 and the farthest end of the first round's cells, which are
    even in keys, and the largest key. ``position`` is the column for the row's place within its
    merged cell, from -1 to 1: the estimated share of the cell's rows below it.
    """

    label: int  # Column with the class of the row, 0 or 1.
    column: int  # Column with its key, times ``KEY_UNIT``.
    size: int  # Number of fine cells, for cells of equal mass; cuts begin further ones.
    n_cells: int  # Number of merged cells of equal mass.
    n_searched: int  # Number of cells in each round of the search.
    span: tuple[int, int, int]
    usual: tuple[int, int]  # Usual magnitude of keys, and the usual distance from it.
    cuts: tuple[int, ...] = ()  # Keys, increasing, where a cell always begins.
    position: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("label", 0), ("column", 0), ("size", 2), ("n_cells", 1)):
            check_integer(name, getattr(self, name), least=least)
        check_integer("n_searched", self.n_searched, least=4)
        nearest, farthest, largest = self.span
        if not 0 <= nearest < farthest <= largest < 2**52:
            raise ValueError(f"span must increase from 0 to below 2**52, got {self.span!r}")
        check_integer("usual", self.usual[1], least=1)

    @property
    def merged_size(self) -> int:
        """Largest number of merged cells: equal ones, those at cuts, and heavy ones."""
        return 5 * self.n_cells + len(self.cuts)

    @property
    def searched(self) -> Cells:
        """The cells of a round of the search."""
        return Cells((self.column,), (self.n_searched + len(self.lasting) + 2,))

    @property
    def fine(self) -> Cells:
        """The fine cells, by class."""
        return Cells((self.label, self.column), (2, self.size + len(self.lasting) + 2))

    @functools.cached_property
    def lasting(self) -> NDArray[np.int64]:
        """Keys where a cell begins in every round: those of cuts, and even ones."""
        middle, width = self.usual
        side = middle + width // 4 * np.arange(-16, 17)
        side = side[(side >= self.span[0]) & (side < self.span[1])]
        return np.unique([*-side, *side, *self.cuts]).astype(np.int64)

    @property
    def first(self) -> Grid:
        """Cells of the first round."""
        nearest, farthest, largest = self.span
        side = np.linspace(nearest, farthest, self.n_searched // 2).astype(np.int64)
        bounds = np.unique([-largest, *-side, *side, *self.lasting, largest + 1]).astype(np.int64)
        middle, width = self.usual
        far = (np.abs(bounds[:-1] + np.diff(bounds) // 2) - middle) / width
        expected = 1.0 / (1.0 + far**4)
        return Grid(bounds, expected / expected.sum())

    def next(self, grid: Grid, counts: Floats, noise_std: float, n_rows: int, last: bool) -> Grid:
        """Return the cells of the next round, or the fine cells, from a round's noisy counts."""
        counts = counts[: len(grid.expected)]
        shares = grid.believed(counts, noise_std, n_rows)
        size = self.size if last else self.n_searched
        return grid.finer(shares, counts > _CLEAR * noise_std, size, self.lasting)

    def lookup(self, grid: Grid, counts: Floats, noise_std: float) -> NDArray[np.intp]:
        """Return the merged cell of each fine cell, from noisy counts, (2, n_fine); public.

        A cell takes an equal part of the mean of both classes' distributions. If a class is within
        noise of zero, the distribution of all rows replaces both. A fine cell with at least half of
        that mass stays alone.
        """
        totals = counts.sum(axis=1)
        if (totals > _CLEAR * noise_std * math.sqrt(counts.shape[1])).all():
            mass = (counts / totals[:, np.newaxis]).mean(axis=0)
        else:
            mass = counts.sum(axis=0) / max(float(counts.sum()), 1.0)
        clear = counts.sum(axis=0) > _CLEAR * math.sqrt(2.0) * noise_std
        heavy = np.flatnonzero(clear & (mass > _HEAVY / self.n_cells))
        heavy = heavy[np.argsort(mass[heavy])[::-1][: 2 * self.n_cells]]
        mass[heavy] = 0.0
        places = np.arange(len(mass))
        upto = np.maximum.accumulate(np.maximum(np.cumsum(mass), 0.0))
        n_even = max(math.ceil(self.n_cells * min(upto[-1], 1.0)), 1)
        # Without any mass fine cells count alike.
        upto = upto / upto[-1] if upto[-1] > 0.0 else (places + 1) / len(places)
        even = np.clip(np.ceil(upto * n_even - 1e-9).astype(np.intp), 1, n_even) - 1
        begins = np.unique([*grid.places(np.array(self.cuts, np.int64)), *heavy, *(heavy + 1)])
        return np.asarray(even + np.searchsorted(begins, places, side="right"))


@final
@dataclass(frozen=True)
class Tabulation(Method[tuple[Floats, ...]]):
    """Counts of rows in the cells of several tables, and sums of their numbers there.

    The cells of ``refined`` columns depend on data. The result holds the counts of each round of
    their search, those of the fine cells, then the cells of all tables in sequence, weights and
    noise included.

    Privacy: one Gaussian release of all tables together. For refined columns there are others
    before it: in each of ``n_rounds`` the counts of all of them together, then those of their fine
    cells. A release's cells follow from those before it, and rows are recoded by them, each by
    itself.
    """

    data: DataSpec
    adjacency: Adjacency
    tables: tuple[Cells, ...]
    noise_multiplier: float
    refined: tuple[Refined, ...] = ()
    n_rounds: int = N_ROUNDS
    search_share: float = _SEARCH_SHARE
    fine_share: float = _FINE_SHARE

    problem = None
    gradient_evaluations = 0.0

    def __post_init__(self) -> None:
        check_integer("n_rounds", self.n_rounds, least=1)
        check_real("search_share", self.search_share, above=0.0, below=1.0)
        check_real("fine_share", self.fine_share, above=0.0, below=1.0 - self.search_share)
        used = [one for table in self.tables for one in (*table.columns, *table.values)]
        used += [
            one for fine in self.refined for one in (fine.label, fine.column, fine.position or 0)
        ]
        if not self.tables or max(used, default=0) >= self.data.n_features:
            raise ValueError(
                f"tables must be at least one, and as refined of columns below "
                f"{self.data.n_features}, got {self.tables!r} and {self.refined!r}"
            )

    @property
    def algorithm(self) -> str:
        return "tables of scores" if self.refined else "tabulation"

    @property
    def n_steps(self) -> int:
        return self.n_rounds + 2 if self.refined else 1

    @functools.cached_property
    def _asked(self) -> Mapping[str, tuple[Cells, ...]]:
        """Tables of each kind of release, in order."""
        if not self.refined:
            return {"tables": self.tables}
        return {
            "search": tuple(one.searched for one in self.refined),
            "cells": tuple(one.fine for one in self.refined),
            "tables": self.tables,
        }

    @functools.cached_property
    def _declared(self) -> Mapping[str, SumRelease]:
        shares = {"search": self.search_share, "cells": self.fine_share}
        shares["tables"] = 1.0 - sum(shares.values()) if self.refined else 1.0

        def declared(name: str, count: int) -> SumRelease:
            noise = GaussianNoise(self.noise_multiplier * math.sqrt(count / shares[name]))
            tables = table_sum(self._asked[name])
            return tables.release(self.data, self.adjacency, noise, count=count)

        return {
            name: declared(name, self.n_rounds if name == "search" else 1) for name in self._asked
        }

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return tuple(self._declared.values())

    @property
    def stages(self) -> tuple[FitStage, ...]:
        return tuple(
            FitStage(name, (one,), composed((one,))) for name, one in self._declared.items()
        )

    @property
    def fine_noise(self) -> float:
        """Standard deviation of the noise in each fine cell."""
        return self._declared["cells"].noise_std

    @property
    def coefficient_noise(self) -> float:
        return self._declared["tables"].noise_std

    def init(self, seed: int) -> tuple[Floats, ...]:
        return ()

    def step(
        self, state: tuple[Floats, ...], oracle: Oracle
    ) -> tuple[tuple[Floats, ...], StepInfo]:
        done = len(state)
        name = list(self._asked)[max(done - self.n_rounds + 1, 0) if self.refined else 0]
        recoded = self._recoding(state) if self.refined else None
        released = noisy_tables(oracle, self._declared[name], self._asked[name], recoded)
        return (*state, released), StepInfo(done + 1, math.nan)

    def _recoding(self, released: Sequence[Floats]) -> Callable[[Floats], Floats]:
        """Return the map from keys of rows to the cells that the releases so far give."""
        grids, found = self._grids(released[: self.n_rounds]), None
        if len(released) > self.n_rounds:
            found = self._found(grids, released[-1])

        def recoded(X: Floats) -> Floats:
            X = X.copy()
            for place, (one, grid) in enumerate(zip(self.refined, grids, strict=True)):
                largest = one.span[2]
                keys = np.rint(np.clip(X[:, one.column] / KEY_UNIT, -largest, largest))
                keys = keys.astype(np.int64)
                X[:, one.column] = grid.places(keys)
                if found is not None:
                    X[:, one.column] = found[place].lookup[grid.places(keys)]
                    if one.position is not None:
                        X[:, one.position] = found[place].positions(keys)
            return X

        return recoded

    def finish(self, state: tuple[Floats, ...]) -> Outcome:
        return Outcome(np.concatenate(state))

    def _grids(self, searched: Sequence[Floats]) -> tuple[Grid, ...]:
        """Return the cells of each refined column after some rounds, from their counts."""
        grids = tuple(one.first for one in self.refined)
        noise, n_rows = self._declared["search"].noise_std, self.data.n_rows
        for done, counts in enumerate(searched, start=1):
            parts = _parts(counts, [one.size for one in self._asked["search"]])
            grids = tuple(
                one.next(grid, part, noise, n_rows, last=done == self.n_rounds)
                for one, grid, part in zip(self.refined, grids, parts, strict=True)
            )
        return grids

    def _found(self, grids: Sequence[Grid], counts: Floats) -> tuple[FoundCells, ...]:
        """Return the fine cells, their counts, and their merging, for each refined column."""
        parts = _parts(counts, [one.size for one in self._asked["cells"]])
        fine = [
            part.reshape(2, -1)[:, : len(grid.expected)]
            for grid, part in zip(grids, parts, strict=True)
        ]
        return tuple(
            FoundCells(grid, part, one.lookup(grid, part, self.fine_noise), self.fine_noise)
            for one, grid, part in zip(self.refined, grids, fine, strict=True)
        )

    def found(self, released: Floats) -> tuple[FoundCells, ...]:
        """Return the result of the search, for each refined column."""
        searched, *others = (sum(one.size for one in tables) for tables in self._asked.values())
        *counts, fine, _ = _parts(released, [searched] * self.n_rounds + others)
        return self._found(self._grids(counts), fine)


@final
@dataclass(frozen=True, eq=False)
class FoundCells:
    """Fine cells of a column, their noisy counts by class, and the merged cell of each; public."""

    grid: Grid
    counts: Floats
    lookup: NDArray[np.intp]
    noise_std: float

    @functools.cached_property
    def shares(self) -> Floats:
        """Shares of the rows in the fine cells."""
        pooled, noise = self.counts.sum(axis=0), math.sqrt(2.0) * self.noise_std
        return self.grid.believed(pooled, noise, max(float(pooled.sum()), 1.0))

    @functools.cached_property
    def there(self) -> NDArray[np.intp]:
        """Merged cells that contain fine cells; the others are empty."""
        return np.unique(self.lookup)

    @functools.cached_property
    def place(self) -> NDArray[np.intp]:
        """Place of each fine cell's merged cell among those that exist."""
        return np.searchsorted(self.there, self.lookup)

    @functools.cached_property
    def _within(self) -> tuple[Floats, Floats]:
        """Start of each fine cell within its merged cell, as a share, and its own share."""
        whole = np.bincount(self.lookup, self.shares)[self.lookup]
        starts = np.searchsorted(self.lookup, self.lookup)
        below = np.concatenate([[0.0], np.cumsum(self.shares)])[:-1]
        return (below - below[starts]) / whole, self.shares / whole

    @property
    def middles(self) -> Floats:
        """Position of the middle of each fine cell within its merged cell, from -1 to 1."""
        begins, shares = self._within
        return 2.0 * begins + shares - 1.0

    def positions(self, keys: NDArray[np.int64]) -> Floats:
        """Return the position of keys within their merged cells, from -1 to 1."""
        place = self.grid.places(keys)
        begins, shares = self._within
        part = (keys - self.grid.bounds[place] + 0.5) / np.diff(self.grid.bounds)[place]
        return np.clip(2.0 * (begins[place] + part * shares[place]) - 1.0, -1.0, 1.0)

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Fine cells that certainly hold rows."""
        found: NDArray[np.bool_] = (
            self.counts.sum(axis=0) > _CLEAR * math.sqrt(2.0) * self.noise_std
        )
        return found


def _parts(values: Floats, sizes: list[int]) -> Iterator[Floats]:
    for start, stop in itertools.pairwise(itertools.accumulate(sizes, initial=0)):
        yield values[start:stop]
