"""Second moments of all columns of a table: standardised columns, a cap on rows, one matrix."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_one_of, check_real
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import LinearView, check_data, n_symmetric
from dpglm.oracle.table_moments import (
    ROW_LENGTHS,
    column_sum,
    noisy_columns,
    noisy_lengths,
    noisy_moments,
    table_moment_sum,
)
from dpglm.oracle.targets import N_SHELLS, Shells
from dpglm.privacy import Adjacency, PrivacyBudget
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.solvers.base import FitStage, Method, Outcome, Plan, StepInfo, calibrated
from dpglm.solvers.second_order.posterior import NoisyMatrix, column_moments, whitened

Floats: TypeAlias = NDArray[np.float64]
State: TypeAlias = tuple[Floats, ...]

# Shares of the squared budget for the sums of columns, the first moments, and the counts of long
# rows. They only decide coordinates and the cap, on which errors depend to second order.
_COLUMNS_SHARE, _FIRST_SHARE, _LENGTHS_SHARE = 0.05, 0.1, 0.02
# Shells of squared lengths begin at the typical one, and their ends grow by this factor.
_RATIO = 2.0**0.25


@final
@dataclass(frozen=True)
class ColumnBlock:
    """Columns of a term: ``numbers``, ``levels`` of a category, or ``products`` with levels.

    Numbers are centred and scaled one by one. Products have one scale together. Levels are
    indicators, at most one for each row, and stay as they are.
    """

    size: int
    kind: Literal["numbers", "levels", "products"]

    def __post_init__(self) -> None:
        check_integer("size", self.size, least=1)
        check_one_of("kind", self.kind, ("numbers", "levels", "products"))

    @property
    def typical(self) -> int:
        """Mean square of the block's columns together, once they are scaled."""
        return self.size if self.kind == "numbers" else 1


@final
@dataclass(frozen=True, eq=False)
class ReleasedMoments:
    """Second moments ``sum f u u^T`` of rows in public coordinates, a constant 1 last; public.

    ``u = vectors^T (x, 1)`` for an encoded row x, and f is the weight of a row.
    """

    matrix: Floats
    noise: float  # In the diagonal; 1 / sqrt(2) of it elsewhere.
    vectors: Floats
    long_rows: float  # Share of the rows with a weight below 1.
    long_noise: float


@final
@dataclass(frozen=True)
class SecondMoments(Method[State]):
    """Noisy second moments of encoded columns, from which linear models follow.

    Sums of columns and of their squares give centers and scales. With ``long_rows`` above 0, first
    moments give coordinates in which numbers are uncorrelated, and counts of rows by length there
    give the cap: at most that share of the rows is longer, besides noise, and counts less. With 0
    all rows count fully.

    Privacy: Gaussian releases, see ``dpglm.oracle.table_moments``. Coordinates and the cap are
    computed from earlier ones.
    """

    data: DataSpec
    adjacency: Adjacency
    blocks: tuple[ColumnBlock, ...]
    noise_multiplier: float
    long_rows: float = 0.0

    algorithm = "second moments"
    problem = None

    gradient_evaluations = 0.0

    def __post_init__(self) -> None:
        check_real("long_rows", self.long_rows, least=0.0, below=1.0)
        if sum(one.size for one in self.blocks) != self.data.n_features:
            raise ValueError(
                f"blocks must have {self.data.n_features} columns together, got {self.blocks!r}"
            )
        if self.data.intercept == 0.0:
            raise ValueError("data must have an intercept column for second moments")
        check_data(self.data, self.adjacency)

    @functools.cached_property
    def _declared(self) -> dict[str, SumRelease]:
        """The releases by name, in order."""
        sums = {"columns": column_sum(self.data), "moments": table_moment_sum(self.data)}
        shares = {"columns": _COLUMNS_SHARE}
        if self.long_rows > 0.0:
            sums |= {"first moments": sums["moments"], "lengths": ROW_LENGTHS}
            shares |= {"first moments": _FIRST_SHARE, "lengths": _LENGTHS_SHARE}
        shares["moments"] = 1.0 - sum(shares.values())
        noise = self.noise_multiplier
        return {
            name: sums[name].release(
                self.data, self.adjacency, GaussianNoise(noise / math.sqrt(share))
            )
            for name, share in shares.items()
        }

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return tuple(self._declared.values())

    @property
    def stages(self) -> tuple[FitStage, ...]:
        return tuple(FitStage(name, (one,), one.event) for name, one in self._declared.items())

    @property
    def n_steps(self) -> int:
        return len(self._declared)

    @property
    def coefficient_noise(self) -> float:
        noise = self._declared["moments"].noise_std * (self._typical + 1.0) / math.sqrt(2.0)
        return noise / self.data.n_rows

    @property
    def _typical(self) -> float:
        return float(sum(one.typical for one in self.blocks))

    def init(self, seed: int) -> State:
        return ()

    def step(self, state: State, oracle: Oracle) -> tuple[State, StepInfo]:
        name = list(self._declared)[len(state)]
        declared = self._declared[name]
        if name == "columns":
            found = noisy_columns(oracle, declared)
        elif name == "lengths":
            found = noisy_lengths(oracle, declared, self._view(state), self._shells)
        else:
            matrix, _ = noisy_moments(oracle, declared, self._view(state))
            found = matrix[np.triu_indices(len(matrix))]
        return (*state, found), StepInfo(len(state) + 1, math.nan)

    def finish(self, state: State) -> Outcome:
        return Outcome(np.concatenate(state))

    def moments(self, released: Floats) -> ReleasedMoments:
        """Return the released moments, from the values of an outcome."""
        d, packed = self.data.n_features, n_symmetric(self.data.n_columns)
        sizes = {
            "columns": 2 * d + 1,
            "first moments": packed,
            "lengths": N_SHELLS,
            "moments": packed,
        }
        ends = itertools.accumulate((sizes[name] for name in self._declared), initial=0)
        state = tuple(released[a:b] for a, b in itertools.pairwise(ends))
        view = self._view(state[:-1])
        vectors = view.vectors.copy()
        vectors[d] *= self.data.intercept
        vectors[d, d] = 1.0
        share, noise = self._long(state, view.cap) if self.long_rows > 0.0 else (0.0, 0.0)
        return ReleasedMoments(
            _unpacked(state[-1], d + 1),
            view.longest * self._declared["moments"].noise_std,
            vectors,
            share,
            noise,
        )

    def _units(self, sums: Floats) -> tuple[Floats, Floats]:
        """Return the center and the scale of each column, from the noisy sums."""
        d, noise = self.data.n_features, self._declared["columns"].noise_std
        weight = max(float(sums[-1]), noise)
        means, squares = np.clip(sums[:d] / weight, -1.0, 1.0), sums[d:-1] / weight
        least = min(noise / weight, 1.0)
        center, scale = np.zeros(d), np.ones(d)
        start = 0
        for block in self.blocks:
            own = slice(start, start + block.size)
            if block.kind == "numbers":
                center[own] = means[own]
                variances = np.clip(squares[own] - means[own] ** 2, least, 1.0)
                scale[own] = np.sqrt(variances)
            elif block.kind == "products":
                scale[own] = math.sqrt(min(max(float(squares[own].sum()), least), 1.0))
            start += block.size
        return center, scale

    def _view(self, state: State) -> LinearView:
        """Return the coordinates and the cap for the release after ``state``."""
        center, scale = self._units(state[0])
        d = len(center)
        inner, cap = np.diag(1.0 / scale), self._longest(state[0])
        if self.long_rows > 0.0:
            # First moments and lengths: rows longer than a typical one count less.
            cap = min(cap, self._typical)
            if len(state) > 1:
                inner = inner @ self._uncorrelated(state)
            if len(state) > 2:
                cap = self._cap(state)
        vectors = np.zeros((d + 1, d + 1))
        vectors[:d, :d] = inner
        vectors[d, :d] = -center @ inner / self.data.intercept
        return LinearView(vectors, cap, 1.0, 0.0, np.zeros(d + 1), 1.0)

    def _uncorrelated(self, state: State) -> Floats:
        """Return coordinates in which numbers are uncorrelated, as far as moments exceed noise."""
        size = self.data.n_columns
        matrix = _unpacked(state[1], size)
        noise = self._declared["first moments"].noise_std * self._view(state[:1]).longest
        weight = max(float(matrix[-1, -1]), noise)
        numbers = np.concatenate([np.full(one.size, one.kind == "numbers") for one in self.blocks])
        vectors = np.eye(size - 1)
        own = np.flatnonzero(numbers)
        if len(own) > 1:
            among = np.append(own, size - 1)
            seen = column_moments(matrix[np.ix_(among, among)], noise)
            centered = NoisyMatrix(
                seen.mean[:-1, :-1] / weight, seen.variances[:-1, :-1] / weight**2
            )
            vectors[np.ix_(own, own)] = whitened(centered, noise / weight)[0]
        return vectors

    @property
    def _shells(self) -> Shells:
        return Shells(self._typical, _RATIO)

    def _cap(self, state: State) -> float:
        """Return the least squared length that few rows exceed, from the released counts."""
        tails = np.cumsum(state[2][::-1])[::-1]
        noise = self._declared["lengths"].noise_std * np.sqrt(np.arange(N_SHELLS, 0.0, -1.0))
        few = tails <= self.long_rows * max(float(state[0][-1]), 1.0) + noise
        return self._shells.start(int(few.argmax()) if few.any() else N_SHELLS)

    def _longest(self, sums: Floats) -> float:
        """Bound ``|z'|^2`` of any row, from the bound on encoded rows."""
        center, scale = self._units(sums)
        total, start = 0.0, 0
        for block in self.blocks:
            own = slice(start, start + block.size)
            if block.kind == "numbers":
                total += float((((1.0 + np.abs(center[own])) / scale[own]) ** 2).sum())
            else:
                total += float(scale[own][0] ** -2.0)
            start += block.size
        return total

    def _long(self, state: State, cap: float) -> tuple[float, float]:
        """Return the share of rows longer than the cap, and its noise."""
        first = round(math.log(cap / self._shells.first) / math.log(_RATIO))
        counts = state[2][first:]
        weight = max(float(state[0][-1]), 1.0)
        noise = self._declared["lengths"].noise_std * math.sqrt(len(counts))
        return max(float(counts.sum()), 0.0) / weight, noise / weight


def _unpacked(values: Floats, size: int) -> Floats:
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = values
    return np.triu(matrix, 1).T + matrix


def plan_moments(
    data: DataSpec,
    budget: PrivacyBudget,
    adjacency: Adjacency,
    blocks: tuple[ColumnBlock, ...],
    long_rows: float,
) -> Plan:
    """Plan second moments with the least noise within a budget that allows Gaussian noise."""
    return calibrated(
        lambda noise: SecondMoments(data, adjacency, blocks, noise, long_rows),
        data,
        budget,
        adjacency,
    )
