"""Tables of scores in cells of nearly equal mass, which a first release finds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.tabulated import Cells, noisy_tables, table_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem, Squared
from dpglm.solvers.base import Method, Plan, Stage, StepInfo
from dpglm.solvers.parts.planning import calibrated

__all__ = ["FIRST_SHARE", "Refined", "ScoreTables", "plan_score_tables"]

Floats: TypeAlias = NDArray[np.float64]

# Rows are counted, so that no loss is ever asked.
_PROBLEM = Problem(Squared())

FIRST_SHARE = 0.1
"""Share of the squared budget that finds cells; chosen by ``experiments.evaluation``."""
# Classes with fewer rows than this many standard deviations of their noisy number are not told
# apart when cells are sought.
_CLEAR = 4.0


@final
@dataclass(frozen=True)
class Refined:
    """A column of fine cells that are merged into a few, of nearly equal mass in two classes.

    Parameters
    ----------
    label : int
        Column with the class of the row, 0 or 1.
    column : int
        Column with its fine cell.
    size : int
        Number of fine cells.
    n_cells : int
        Number of cells wanted.
    cuts : tuple of int
        Fine cells, increasing, at which a cell begins whatever the rows are.
    """

    label: int
    column: int
    size: int
    n_cells: int
    cuts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("label", 0), ("column", 0), ("size", 1), ("n_cells", 1)):
            check_integer(name, getattr(self, name), least=least)

    @property
    def merged_size(self) -> int:
        """Most cells that there can be."""
        return self.n_cells + len(self.cuts)

    @property
    def cells(self) -> Cells:
        """The fine cells, by class."""
        return Cells((self.label, self.column), (2, self.size))

    def lookup(self, counts: Floats, noise_std: float) -> NDArray[np.intp]:
        """Return the cell of each fine cell, from their noisy counts, (2, size); public.

        A cell takes an equal part of the mean of both classes' distributions. Where a class cannot
        be told from noise, that of all rows stands for both.
        """
        totals = counts.sum(axis=1)
        if (totals > _CLEAR * noise_std * math.sqrt(self.size)).all():
            mass = (counts / totals[:, np.newaxis]).sum(axis=0)
        else:
            mass = counts.sum(axis=0)
        upto = np.maximum.accumulate(np.maximum(np.cumsum(mass), 0.0))
        # Without any mass fine cells count alike.
        upto = upto / upto[-1] if upto[-1] > 0.0 else np.arange(1, self.size + 1) / self.size
        place = np.minimum(np.ceil(upto * self.n_cells - 1e-9).astype(np.intp), self.n_cells)
        place = np.maximum(place - 1, 0)
        cells: NDArray[np.intp] = place + np.searchsorted(
            self.cuts, np.arange(self.size), side="right"
        )
        return cells


@final
@dataclass(frozen=True)
class ScoresState:
    """What was released so far."""

    fine: Floats | None = None
    tables: Floats | None = None


@final
@dataclass(frozen=True)
class ScoreTables(Method[ScoresState]):
    """Counts and sums of rows in tables whose cells of scores the rows themselves decide.

    What it returns are the fine cells of every refined column, then the cells of all tables, one
    after the other, weights and noise included.

    Privacy: a Gaussian release of all fine cells together, by which columns of scores are then
    recoded row by row, and one of all tables together.
    """

    data: DataSpec
    adjacency: Adjacency
    refined: tuple[Refined, ...]
    tables: tuple[Cells, ...]
    noise_multiplier: float
    first_share: float = FIRST_SHARE

    algorithm = "tables of scores"

    fits = False
    n_steps = 2
    gradient_evaluations = 0.0

    def __post_init__(self) -> None:
        check_real("first_share", self.first_share, above=0.0, below=1.0)
        used = [one for table in self.tables for one in (*table.columns, *table.values)]
        used += [one for fine in self.refined for one in (fine.label, fine.column)]
        if not self.tables or not self.refined or max(used) >= self.data.n_features:
            raise ValueError(
                "refined and tables must each be at least one, of columns below "
                f"{self.data.n_features}, got {self.refined!r} and {self.tables!r}"
            )

    @functools.cached_property
    def _fine(self) -> tuple[Cells, ...]:
        return tuple(one.cells for one in self.refined)

    @functools.cached_property
    def releases(self) -> tuple[AnyRelease, ...]:
        return self._declared

    @functools.cached_property
    def _declared(self) -> tuple[SumRelease, SumRelease]:
        def declared(share: float, tables: tuple[Cells, ...]) -> SumRelease:
            noise = GaussianNoise(self.noise_multiplier / math.sqrt(share))
            return table_release(self.data, self.adjacency, noise, tables)

        return (
            declared(self.first_share, self._fine),
            declared(1.0 - self.first_share, self.tables),
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(
            Stage(name, (release,), release.event)
            for name, release in zip(("cells", "tables"), self._declared, strict=True)
        )

    @property
    def fine_noise(self) -> float:
        """Standard deviation of the noise in each fine cell."""
        return self._declared[0].noise_std

    @property
    def coefficient_noise(self) -> float:
        return self._declared[1].noise_std

    def init(self, seed: int) -> ScoresState:
        return ScoresState()

    def step(self, state: ScoresState, oracle: Oracle) -> tuple[ScoresState, StepInfo]:
        first, second = self._declared
        if state.fine is None:
            found = noisy_tables(oracle, first, self._fine)
            return ScoresState(found), StepInfo(1, math.nan)
        lookups = self.lookups(state.fine)

        def recoded(X: Floats) -> Floats:
            X = X.copy()
            for one, lookup in zip(self.refined, lookups, strict=True):
                fine = np.clip(np.rint(X[:, one.column]), 0, one.size - 1)
                X[:, one.column] = lookup[fine.astype(np.intp)]
            return X

        found = noisy_tables(oracle, second, self.tables, recoded)
        return ScoresState(state.fine, found), StepInfo(2, math.nan)

    def finish(self, state: ScoresState) -> Floats:
        assert state.fine is not None
        assert state.tables is not None
        return np.concatenate([state.fine, state.tables])

    def fine_counts(self, released: Floats) -> tuple[Floats, ...]:
        """Return the noisy counts of fine cells, by class: an array (2, size) for each column."""
        sizes = [2 * one.size for one in self.refined]
        return tuple(part.reshape(2, -1) for part in _parts(released, sizes))

    def lookups(self, released: Floats) -> tuple[NDArray[np.intp], ...]:
        """Return the cell of each fine cell, for each refined column."""
        counts = self.fine_counts(released)
        return tuple(
            one.lookup(fine, self.fine_noise)
            for one, fine in zip(self.refined, counts, strict=True)
        )

    def table_values(self, released: Floats) -> tuple[Floats, ...]:
        """Return the noisy tables, weights taken out, each in its shape."""
        start = sum(2 * one.size for one in self.refined)
        parts = _parts(released[start:], [table.size for table in self.tables])
        return tuple(
            part.reshape(table.sizes) / table.weight
            for part, table in zip(parts, self.tables, strict=True)
        )


def _parts(values: Floats, sizes: list[int]) -> Iterator[Floats]:
    for start, stop in itertools.pairwise(itertools.accumulate(sizes, initial=0)):
        yield values[start:stop]


def plan_score_tables(
    data: DataSpec,
    budget: PrivacyBudget,
    adjacency: Adjacency,
    refined: tuple[Refined, ...],
    tables: tuple[Cells, ...],
) -> Plan:
    """Plan tables with the least noise within a budget that allows Gaussian noise."""
    return calibrated(
        lambda noise: ScoreTables(data, adjacency, refined, tables, noise),
        _PROBLEM,
        budget,
        data,
        adjacency,
    )
