"""Private steps that centre, scale or whiten rows, and their random projection."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._validation import check_integer, check_kind, check_real
from dpglm.data.maps import Embedding, GaussianEmbedding, RowMap, embedded_spec
from dpglm.data.rows import SMALLEST, DataSpec
from dpglm.oracle import choices
from dpglm.oracle.counts import noisy_clipped_mean, noisy_mean, row_sum, rows_in_radii
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import (
    MOST_COLUMNS,
    MOST_WHITENED,
    check_data,
    constant_column,
    noisy_second_moments,
    second_moment_sum,
    spectrum,
)
from dpglm.oracle.targets import LEVELS, magnitude_sum, noisy_magnitudes
from dpglm.preprocessing.base import (
    PlannedStep,
    Preprocessor,
    bounded_range_epsilon,
    dense_spec,
    pure_epsilon,
    share_for_error,
)
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease

# Of a mean, and of ranks and counts, relative to the number of rows.
_WANTED_ERROR = 0.02


@final
@dataclass(frozen=True)
class Center(Preprocessor):
    """Subtract a private mean of the rows.

    Parameters
    ----------
    row_norm : float, optional
        Row norm after centring, above 0; longer rows are scaled down to it for training. By
        default the row norm before, although a centred row can have twice that norm.
    lengthen : bool, default=False
        Whether shorter rows are scaled up to the row norm.
    intercept : float, default=1.0
        Factor of the intercept column, in (0, 1]. A smaller one reduces the norm of every gradient
        and increases the effect of a penalty on the intercept.

    Notes
    -----
    Coefficients are those of unscaled rows, with the mean moved into the intercept:
    ``b = b' - <w, mean>``.

    Privacy: one Gaussian release of the sum of rows.

    References
    ----------
    Sun et al. 2023, Algorithm 3 (DPSGD-F in its practical form).

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=3, intercept=1.0)
    >>> step = Center().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> [(one.quantity, one.noise_multiplier) for one in step.releases]
    [('row sum', 10.0)]
    """

    row_norm: float | None = None
    lengthen: bool = False
    intercept: float = 1.0

    name = "center"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_real("intercept", self.intercept, least=SMALLEST, most=1.0)

    def share(self, data: DataSpec, mu: float) -> float:
        error = math.sqrt(data.n_features) / (data.n_rows * mu)
        return share_for_error(error, _WANTED_ERROR)

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        check_intercept(data)
        return (row_sum(data).release(data, adjacency, GaussianNoise(1.0 / mu)),)

    def output(self, data: DataSpec) -> DataSpec:
        after = super().output(data)
        return dataclasses.replace(after, intercept=self.intercept * after.intercept)

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        data = planned.data
        mean = nearest_mean(noisy_mean(oracle, *planned.releases), data)
        return RowMap(mean, np.ones(data.n_features), self.lengthen)


def check_intercept(data: DataSpec) -> None:
    """Refuse rows without an intercept column, into which the mean could move."""
    if not data.intercept:
        raise ValueError("fit_intercept must be True for centring: the mean moves into it")


def nearest_mean(point: NDArray[np.float64], data: DataSpec) -> NDArray[np.float64]:
    """Project a point to the ball that contains all means of rows."""
    return point * min(1.0, data.row_norm / max(float(np.linalg.norm(point)), 1e-300))


# Private centring with an error that scales with the spread of the rows, not with their norm.

_MEDIANS, _RADIUS, _MEAN = 0.5, 0.1, 0.4
_WITHIN = 0.95
# Rank error of a median, times its epsilon, for 2^40 cells.
_RANKS = 55.0
_WANTED_RANK_ERROR = 0.1


@final
@dataclass(frozen=True)
class InstanceOptimalCenter(Preprocessor):
    """Subtract a private mean that is computed around private medians.

    Parameters
    ----------
    row_norm : float, optional
        See ``Center``.

    Notes
    -----
    The center is a vector of private medians along the directions of a random basis. A private
    radius around it contains 95 % of the rows; other rows are moved to that distance, and Gaussian
    noise is added to the mean. With radius r, row norm R, n rows, d columns (at most 1000) and
    budget mu, the error is about ``2 r sqrt(d) / (n mu)``, compared with ``R sqrt(d) / (n mu)`` for
    ``Center``. It is better for rows that are far from zero relative to their spread and ``n mu``
    above about ``60 sqrt(d)``.

    Privacy: a choice by the exponential mechanism for each direction, another for the radius, and
    one Gaussian release, to which a row contributes at most 1 in units of the radius for any
    medians and radius. The basis is made of public random bits.

    References
    ----------
    Huang, Liang and Yi, "Instance-optimal mean estimation under differential privacy", NeurIPS
    2021, Theorem 3.3 as cited by Sun et al. 2023, Lemma 3; with medians in place of ranges.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=3, intercept=1.0)
    >>> step = InstanceOptimalCenter().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> [(one.quantity, one.count) for one in step.releases]
    [('median along a direction', 3), ('radius around medians', 1), ('row sum in radii', 1)]
    """

    row_norm: float | None = None

    name = "instance-optimal center"

    def share(self, data: DataSpec, mu: float) -> float:
        each = bounded_range_epsilon(mu * math.sqrt(_MEDIANS / data.n_features))
        error = _RANKS / (each * data.n_rows)
        return share_for_error(error, _WANTED_RANK_ERROR, least=0.05, most=0.4)

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        check_intercept(data)
        d = data.n_features
        if d > MOST_COLUMNS:
            raise ValueError(
                f"n_features must be at most {MOST_COLUMNS} for medians along directions, got "
                f"{d}: use Center"
            )
        of_median = bounded_range_epsilon(mu * math.sqrt(_MEDIANS / d))
        of_radius = bounded_range_epsilon(mu * math.sqrt(_RADIUS))
        noise = GaussianNoise(1.0 / (mu * math.sqrt(_MEAN)))
        return (
            choices.rank_release("median along a direction", adjacency, of_median, d),
            choices.rank_release("radius around medians", adjacency, of_radius),
            rows_in_radii(data).release(data, adjacency, noise),
        )

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        data, (of_medians, of_radius, of_mean) = planned.data, planned.releases
        basis = random_basis(data.n_features, seed)
        medians = choices.noisy_medians(oracle, of_medians, basis)
        center = nearest_mean(basis @ medians, data)
        radius = choices.noisy_radius(oracle, of_radius, center, 2.0 * data.row_norm, _WITHIN)
        mean = noisy_clipped_mean(oracle, of_mean, center, radius)
        return RowMap(nearest_mean(mean, data), np.ones(data.n_features))


def random_basis(size: int, seed: int) -> NDArray[np.float64]:
    """Draw a uniformly distributed orthonormal basis from public random bits."""
    drawn, upper = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))
    return drawn * np.sign(np.diag(upper))


_QUANTILE, _LEAST_QUANTILE = 0.9, 0.5
_LOG_CANDIDATES = 10.0
# Budget share for quantile=None; any fixed share leaves out O(log n / epsilon) rows.
_SHARE_OF_ALL = 0.1


@final
@dataclass(frozen=True)
class ClipToQuantile(Preprocessor):
    """Divide centred rows by a private quantile of their norms, and clip them to norm 1.

    Parameters
    ----------
    quantile : float or None, default=0.9
        Share of the rows within the radius, in (0, 1). None leaves out ``2 log(k n^2) / epsilon``
        rows, for k radii, n rows and a choice at ``epsilon``, but at most half of them: the choice
        misses more with probability at most ``1 / n^2``.
    unbounded : bool, default=False
        Whether the radius may be any number from 1e-15 to 1e15, for a row norm that is a generous
        guess. By default it is at least 1e-12 of the row norm.

    Notes
    -----
    Privacy: one choice of a radius by the number of rows within each: by the exponential mechanism
    on 4096 radii 0.7 % apart, or, unbounded, of the first radius with enough rows.

    References
    ----------
    Sun et al. 2023, Algorithm 2 and Lemma 4. Smith, STOC 2011, Algorithm 2. Durfee, NeurIPS 2023.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=3, row_norm=50.0)
    >>> step = ClipToQuantile().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> step.releases[0].quantity, step.output.row_norm
    ('radius of rows', 1.0)
    """

    quantile: float | None = _QUANTILE
    unbounded: bool = False

    name = "clip to quantile"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantile is not None:
            check_real("quantile", self.quantile, above=0.0, below=1.0)

    def share(self, data: DataSpec, mu: float) -> float:
        if self.quantile is None:
            return _SHARE_OF_ALL
        error = 2.0 * _LOG_CANDIDATES / (bounded_range_epsilon(mu) * data.n_rows)
        return share_for_error(error, _WANTED_ERROR, least=0.002)

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        if not self.unbounded:
            return (choices.rank_release("radius of rows", adjacency, bounded_range_epsilon(mu)),)
        quantile, epsilon = self._quantile(data, mu), pure_epsilon(mu)
        return (choices.unbounded_radius_release(data, adjacency, quantile, epsilon),)

    def _quantile(self, data: DataSpec, mu: float) -> float:
        """Return the quantile, or the largest that the choice reaches up to its error."""
        if self.quantile is not None:
            return self.quantile
        epsilon = pure_epsilon(mu) if self.unbounded else bounded_range_epsilon(mu)
        radii = choices.UNBOUNDED_RADII.size if self.unbounded else choices.CELLS
        missed = 2.0 * math.log(radii * float(data.n_rows) ** 2) / epsilon
        return max(_LEAST_QUANTILE, 1.0 - missed / data.n_rows)

    def output(self, data: DataSpec) -> DataSpec:
        return dense_spec(data, 1.0)

    def noise_growth(self, data: DataSpec) -> float:
        return 1.0 / data.row_norm

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        data, (declared,) = planned.data, planned.releases
        origin = np.zeros(data.n_features)
        if self.unbounded:
            radius = choices.noisy_unbounded_radius(oracle, declared, origin)
        else:
            quantile = self._quantile(data, planned.mu)
            radius = choices.noisy_radius(oracle, declared, origin, data.row_norm, quantile)
        return RowMap(origin, np.full(data.n_features, 1.0 / radius))


# The row norm over the root mean square of row norms.
_HEADROOM = 1.5
# Smaller counts, in standard deviations of the noise, are ignored.
_SIGNIFICANT = 4.0
# Mean of x^2 between 1/2 and 1.
_MEAN_SQUARE = 7.0 / 12.0


@dataclass(frozen=True)
class _Stretch(Preprocessor):
    """A step that divides columns or directions by a power of their mean square."""

    exponent: float = 0.5
    row_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_real("exponent", self.exponent, above=0.0, most=0.5)

    def noise_growth(self, data: DataSpec) -> float:
        return self.output(data).row_norm / data.row_norm


@final
@dataclass(frozen=True)
class Scale(_Stretch):
    """Divide each column by a private estimate of its root mean square.

    Parameters
    ----------
    exponent : float, default=0.5
        Columns with the mean square s are divided by ``s ** exponent``; in (0, 0.5]. Values below
        0.5 equalise columns in part.
    row_norm : float, optional
        Row norm after scaling, above 0, about 1.5 times the root mean square of row norms; longer
        rows are scaled down to it for training. By default the row norm before.

    Notes
    -----
    The release counts the entries of each column between successive powers of two, down to
    ``2^-40`` of the row norm, since noise in second moments would dominate small columns. Counts
    below the noise level are ignored. A column without significant counts gets the largest mean
    square below the noise level. Centre rows first if column means are large. Do not scale columns
    that public bounds have already brought to one scale: rare ones would become large.

    Privacy: one Gaussian release of counts.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=4, row_norm=50.0)
    >>> step = Scale().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> [(one.quantity, one.contribution_bound) for one in step.releases], step.output.row_norm
    ([('counts of magnitudes', 2.0)], 50.0)
    """

    name = "scale"

    def share(self, data: DataSpec, mu: float) -> float:
        error = _SIGNIFICANT * math.sqrt(data.n_features) / (data.n_rows * mu)
        return share_for_error(error, _WANTED_ERROR)

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        return (magnitude_sum(data).release(data, adjacency, GaussianNoise(1.0 / mu)),)

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        data, (declared,) = planned.data, planned.releases
        # The mean square of each column, above 0, from noisy counts of magnitudes.
        counts, least = noisy_magnitudes(oracle, declared), _SIGNIFICANT * declared.noise_std
        shares = np.where(counts > least, np.minimum(counts / data.n_rows, 1.0), 0.0)
        seen = shares @ (_MEAN_SQUARE * 0.25 ** np.arange(LEVELS))
        unseen = min(least / data.n_rows, 1.0)
        squares = data.row_norm**2 * np.where(seen > 0.0, seen, unseen)
        factors = squares**-self.exponent
        # Rows then have a mean squared norm of about 1.
        unit = math.sqrt(float(np.sum(factors**2 * squares)))
        factors *= planned.output.row_norm / (_HEADROOM * unit)
        return RowMap(np.zeros(data.n_features), factors)


# Chosen on validation rows of MNIST's training set; docs/defaults.md.
_SHARE = 0.05


@final
@dataclass(frozen=True)
class Whiten(_Stretch):
    """Rotate and scale rows by a private second moment, towards equal spread in all directions.

    Parameters
    ----------
    exponent : float, default=0.5
        Directions in which rows have the mean square s are divided by ``s ** exponent``; in
        (0, 0.5]. Values below 0.5 equalise directions in part.
    row_norm : float, optional
        Approximate root mean square of row norms afterwards, above 0; longer rows are scaled down
        to it for training. By default the row norm before.

    Notes
    -----
    Mean squares below the noise level are raised to it, which limits the stretch of any direction.
    At most 2100 columns, including the intercept. Centre rows first, since a mean takes up a
    direction.

    Privacy: one Gaussian release of second moments of rows scaled to one norm, in coordinates that
    keep norms (``dpglm.oracle.moments.pack_symmetric``).

    References
    ----------
    Ganesh, Haghifam, Steinke and Thakurta, NeurIPS 2023, section 4, for the least eigenvalue.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=3, row_norm=50.0)
    >>> step = Whiten().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> [(one.quantity, one.coordinates) for one in step.releases], step.output.row_norm
    ([('normalised second-moment sum', 10)], 50.0)
    """

    name = "whiten"

    def share(self, data: DataSpec, mu: float) -> float:
        return _SHARE

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        check_data(data, adjacency, MOST_WHITENED)
        return (second_moment_sum(data).release(data, adjacency, GaussianNoise(1.0 / mu)),)

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        data, (declared,) = planned.data, planned.releases
        moments = noisy_second_moments(oracle, declared, constant_column(data))
        d = data.n_features
        values, directions, seen = spectrum(moments, declared.noise_std, data, d)
        factors = values**-self.exponent
        least = 0.01 * float(np.sum(factors**2 * values))
        unit = math.sqrt(max(float(np.sum(factors**2 * seen)), least))
        stretched = directions * (factors * (planned.output.row_norm / unit))
        # Rotated back to the columns, so that rows with equal spread change little.
        return RowMap(np.zeros(d), stretched @ directions.T)


@final
@dataclass(frozen=True)
class RandomProjection(Preprocessor):
    """Multiply rows by a public random matrix that approximately keeps inner products.

    Parameters
    ----------
    dimension : int
        Number of columns afterwards, at least 1.
    embedding : Embedding, default=GaussianEmbedding()
        Distribution of the matrix.

    Notes
    -----
    Rows longer than the row norm are scaled down to it. For sparse rows with very many columns use
    ``JohnsonLindenstrauss``: this step makes blocks of 4096 rows dense.

    Privacy: nothing is released. The matrix is made of public random bits, and each row is mapped
    by itself.

    References
    ----------
    Arora et al. 2022, Algorithm 2.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=300, row_norm=2.0)
    >>> RandomProjection(20).plan(data, 0.0, Adjacency.ZERO_OUT).output.n_features
    20
    """

    dimension: int
    embedding: Embedding = field(default_factory=GaussianEmbedding)

    name = "random projection"

    def __post_init__(self) -> None:
        check_integer("dimension", self.dimension, least=1)
        check_kind("embedding", self.embedding, Embedding, "an Embedding")

    def share(self, data: DataSpec, mu: float) -> float:
        return 0.0

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        return ()

    def output(self, data: DataSpec) -> DataSpec:
        return embedded_spec(data, self.dimension, data.dtype)

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        size = planned.data.n_features
        drawn = self.embedding.draw(size, self.dimension, seed)
        matrix = drawn.toarray() if sparse.issparse(drawn) else drawn
        return RowMap(np.zeros(size), matrix)
