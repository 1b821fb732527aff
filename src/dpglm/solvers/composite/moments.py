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
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.linear import (
    N_ENTRY_SIZES,
    N_SHELLS,
    ROW_LENGTHS,
    SIZE_RATIO,
    LinearView,
    Shells,
    noisy_lengths,
    noisy_moments,
    noisy_sizes,
    size_sum,
    table_moment_sum,
)
from dpglm.oracle.moments import check_data, n_symmetric, symmetric
from dpglm.oracle.targets import column_sum, noisy_columns
from dpglm.privacy import Adjacency, PrivacyBudget
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.solvers.base import FitStage, Method, Outcome, Plan, StepInfo, calibrated, present
from dpglm.solvers.second_order.posterior import NoisyMatrix, column_moments, whitened
from dpglm.solvers.uncertainty import Floats

State: TypeAlias = tuple[Floats, ...]
_Coordinates: TypeAlias = tuple[Floats, Floats, float, float]

# Shares of the squared budget for the sums of columns, the first moments, and the counts of large
# entries and long rows. They only decide coordinates and the cap, on which errors depend to second
# order.
_COLUMNS_SHARE, _FIRST_SHARE, _SIZES_SHARE, _LENGTHS_SHARE = 0.05, 0.1, 0.03, 0.02
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
    """Noisy second moments of encoded columns: all that linear models need.

    Sums of columns and of their squares give centers and scales, and first moments coordinates in
    which numbers are uncorrelated. With ``long_rows`` above 0, counts of rows by length give a cap:
    at most that share of the rows is longer, besides noise, and counts less. With 0 all rows count
    fully.

    Privacy: Gaussian releases, see ``dpglm.oracle.linear``. Coordinates and the cap are
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
        second = table_moment_sum(self.data)
        sums = {"columns": column_sum(self.data), "first moments": second}
        shares = {"columns": _COLUMNS_SHARE, "first moments": _FIRST_SHARE}
        if self.long_rows > 0.0:
            if self._numbers.any():
                sums["sizes"], shares["sizes"] = size_sum(int(self._numbers.sum())), _SIZES_SHARE
            sums["lengths"], shares["lengths"] = ROW_LENGTHS, _LENGTHS_SHARE
        sums["moments"], shares["moments"] = second, 1.0 - sum(shares.values())
        return {
            name: one.release(
                self.data,
                self.adjacency,
                GaussianNoise(self.noise_multiplier / math.sqrt(shares[name])),
            )
            for name, one in sums.items()
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
        # Columns are taken to have the standard deviation 1 and a range of 3 on either side.
        numbers = sum(one.size for one in self.blocks if one.kind == "numbers")
        longest = 3.0 * numbers + len(self.blocks) + 1.0
        return longest * self._declared["moments"].noise_std * math.sqrt(4.5) / self.data.n_rows

    def init(self, seed: int) -> State:
        return ()

    def step(self, state: State, oracle: Oracle) -> tuple[State, StepInfo]:
        name = list(self._declared)[len(state)]
        declared = self._declared[name]
        if name == "columns":
            found = noisy_columns(oracle, declared)
        elif name == "sizes":
            own = np.flatnonzero(self._numbers)
            # Coordinates with a standard deviation of 1.
            found = noisy_sizes(oracle, declared, self._view(state, scaled=False), own).ravel()
        elif name == "lengths":
            found = noisy_lengths(oracle, declared, self._view(state), self._shells(state))
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
            "sizes": int(self._numbers.sum()) * N_ENTRY_SIZES,
            "lengths": N_SHELLS,
            "moments": packed,
        }
        ends = itertools.accumulate((sizes[name] for name in self._declared), initial=0)
        state = tuple(released[a:b] for a, b in itertools.pairwise(ends))
        view = self._view(state[:-1])
        vectors = view.vectors.copy()
        vectors[d] *= self.data.intercept
        vectors[d, d] = 1.0
        share = noise = 0.0
        if self.long_rows > 0.0:
            # The share of rows longer than the cap.
            lengths, release = present(self._released(state, "lengths")), self._declared["lengths"]
            first = round(math.log(view.cap / self._shells(state).first) / math.log(_RATIO))
            counts, weight = lengths[first:], max(float(state[0][-1]), 1.0)
            share = max(float(counts.sum()), 0.0) / weight
            noise = release.noise_std * math.sqrt(len(counts)) / weight
        return ReleasedMoments(
            symmetric(state[-1], d + 1),
            view.longest * self._declared["moments"].noise_std,
            vectors,
            share,
            noise,
        )

    @functools.cached_property
    def _numbers(self) -> NDArray[np.bool_]:
        """Whether each column is a number."""
        return np.concatenate([np.full(one.size, one.kind == "numbers") for one in self.blocks])

    def _released(self, state: State, name: str) -> Floats | None:
        """Return the values of an earlier release, if there is one."""
        place = list(self._declared).index(name) if name in self._declared else len(state)
        return state[place] if place < len(state) else None

    def _coordinates(self, state: State, *, scaled: bool = True) -> _Coordinates:
        """Return coordinates ``inner^T (x - center)`` for the release after ``state``.

        The center, the inner matrix, and the mean and a bound of squared lengths of rows in them.
        A row's squared length bounds the noise in all entries, so a coordinate of standard
        deviation s and range r (of nearly all rows) gets the factor ``(r s)^(-1/2)``. With factors
        a the noise of entry ij relative to ``s_i s_j`` is in proportion to ``sum (a r)^2 / (a_i a_j
        s_i s_j)``, and these factors minimise the sum of its squares.
        """
        d, noise = self.data.n_features, self._declared["columns"].noise_std
        weight = max(float(state[0][-1]), noise)
        means, squares = np.clip(state[0][:d] / weight, -1.0, 1.0), state[0][d:-1] / weight
        least = min(noise / weight, 1.0)
        center, inner = np.zeros(d), np.eye(d)
        typical, longest, start = 0.0, 0.0, 0
        for block in self.blocks:
            own = np.arange(start, start + block.size)
            start += block.size
            deviation = 1.0
            if block.kind == "numbers":
                center[own] = means[own]
                variances = np.clip(squares[own] - means[own] ** 2, least, 1.0)
                inner[own, own] = 1.0 / np.sqrt(variances)
                continue
            if block.kind == "products":
                deviation = math.sqrt(min(max(float(squares[own].sum()), least), 1.0))
                inner[own, own] = deviation**-0.5
            typical, longest = typical + deviation, longest + 1.0 / deviation
        own = np.flatnonzero(self._numbers)
        if len(state) > 1 and len(own) > 1:
            _, first, _, _ = self._coordinates(state[:1])
            inner[:, own] = first[:, own] @ self._uncorrelated(state, own)
        bound = (1.0 + np.abs(center)) @ np.abs(inner[:, own])
        reach = np.minimum(bound, self._reach(state)) if scaled else np.ones(len(own))
        inner[:, own] /= np.sqrt(reach)
        typical += float((1.0 / reach).sum())
        return center, inner, typical, longest + float((bound**2 / reach).sum())

    def _reach(self, state: State) -> Floats:
        """Return the least size that few entries of a coordinate exceed, from released counts."""
        counts = self._released(state, "sizes")
        if counts is None:
            return np.full(int(self._numbers.sum()), math.inf)
        tails = np.cumsum(counts.reshape(-1, N_ENTRY_SIZES)[:, ::-1], axis=1)[:, ::-1]
        noise = self._declared["sizes"].noise_std * np.sqrt(np.arange(N_ENTRY_SIZES, 0.0, -1.0))
        few = tails <= self.long_rows * max(float(state[0][-1]), 1.0) + noise
        places = np.where(few.any(axis=1), few.argmax(axis=1), N_ENTRY_SIZES)
        return np.asarray(SIZE_RATIO**places)

    def _uncorrelated(self, state: State, own: NDArray[np.intp]) -> Floats:
        """Return a map of numbers to uncorrelated ones, as far as moments exceed their noise."""
        size = self.data.n_columns
        matrix = symmetric(state[1], size)
        noise = self._declared["first moments"].noise_std * self._view(state[:1]).longest
        weight = max(float(matrix[-1, -1]), noise)
        among = np.append(own, size - 1)
        seen = column_moments(matrix[np.ix_(among, among)], noise)
        centered = NoisyMatrix(seen.mean[:-1, :-1] / weight, seen.variances[:-1, :-1] / weight**2)
        return whitened(centered, noise / weight)[0]

    def _view(self, state: State, *, scaled: bool = True) -> LinearView:
        """Return the coordinates and the cap for the release after ``state``."""
        center, inner, typical, cap = self._coordinates(state, scaled=scaled)
        counts = self._released(state, "lengths")
        if counts is not None:
            # The least squared length that few rows exceed.
            tails = np.cumsum(counts[::-1])[::-1]
            noise = self._declared["lengths"].noise_std * np.sqrt(np.arange(N_SHELLS, 0.0, -1.0))
            few = tails <= self.long_rows * max(float(state[0][-1]), 1.0) + noise
            place = int(few.argmax()) if few.any() else N_SHELLS
            cap = min(cap, Shells(typical, _RATIO).start(place))
        elif len(state) == 1:
            # Rows of unusual length do not matter for coordinates.
            cap = min(cap, typical)
        d = len(center)
        vectors = np.zeros((d + 1, d + 1))
        vectors[:d, :d] = inner
        vectors[d, :d] = -center @ inner / self.data.intercept
        return LinearView(vectors, cap, 1.0, 0.0, np.zeros(d + 1), 1.0)

    def _shells(self, state: State) -> Shells:
        """Return shells of squared lengths."""
        return Shells(self._coordinates(state)[2], _RATIO)


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
