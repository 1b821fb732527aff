"""The interface to scikit-learn of transformers that learn nothing from data."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from dpglm._fitting import all_or_nothing
from dpglm._validation import check_integer, check_real
from dpglm.data.projection import Embedding, GaussianEmbedding, embedded_spec
from dpglm.data.spec import LARGEST, SMALLEST, DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.preprocessing.base import PlannedStep, Preprocessor
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.tables.given import refuse_types

S = TypeVar("S")


class PublicTransformer(TransformerMixin, BaseEstimator, abc.ABC, Generic[S]):
    """Maps each row by itself with public settings, so it need not be fitted."""

    def _settings(self) -> S:
        """Return the settings of ``fit``, or before it those that were given."""
        return vars(self).get("settings_") or self._checked()

    @abc.abstractmethod
    def _checked(self) -> S:
        """Check the settings that were given."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True


# RandomFourierFeatures: a data-independent approximation of a Gaussian kernel.

_BLOCK_ENTRIES = 1 << 20
# In length scales. Angles of longer rows would have no accuracy in float32, and could overflow.
_LARGEST_ENTRY = 1e6
# A part of the largest length of rows with columns in [-1, 1]; docs/pipelines.md has the figures.
_DEFAULT_WIDTH = 0.25


@final
@dataclass(frozen=True)
class _Settings:
    n_directions: int
    length_scale: float | None
    seed: int


@final
class RandomFourierFeatures(ClassNamePrefixFeaturesOutMixin, PublicTransformer[_Settings]):
    """Cosines and sines of random projections: inner products are near a Gaussian kernel.

    A row ``x`` becomes ``(cos(w_j x), sin(w_j x)) / sqrt(J)`` for J random directions ``w_j``,
    which makes 2 J features. The inner product of two mapped rows is close to
    ``exp(-|x - z|^2 / (2 length_scale^2))``, so a linear model of mapped rows is a smooth,
    nonlinear model of the rows.

    Parameters
    ----------
    n_directions : int, default=100
        Number J of directions, at least 1.
    length_scale : float, optional
        Distance over which the model may change, 1e-15 to 1e15, in the units of the rows. By
        default a quarter of the square root of the number of columns, which suits columns in
        [-1, 1]. Never take it from the private rows.
    seed : int, default=0
        Public seed of the directions, at least 0.

    Attributes
    ----------
    row_norm_ : float
        Bound on the L2 norm of every mapped row, for an estimator's ``row_norm``: 1.
    n_features_in_ : int
        Number of columns seen by ``fit``.
    settings_ : object
        The parameters that were fitted.

    Notes
    -----
    Privacy: the directions are drawn from the public seed, and each row is mapped by itself, so
    nothing is spent and neighbouring tables become neighbouring matrices. Every entry is within
    ``1 / sqrt(J)`` of zero, and every mapped row has length 1 but for rounding, since
    ``cos^2 + sin^2 = 1``.

    The directions are orthogonal in groups as large as the number of columns, with the lengths of
    independent Gaussian vectors. The kernel is then met with less variance than by independent
    directions. Entries of rows beyond a million length scales are clipped.

    References
    ----------
    Rahimi, A. and Recht, B. (2007). Random features for large-scale kernel machines. NIPS 20.
    Yu, F. X., Suresh, A. T., Choromanski, K., Holtmann-Rice, D. and Kumar, S. (2016). Orthogonal
    random features. NIPS 29.

    Examples
    --------
    >>> rows = np.array([[0.0, 0.0], [0.3, 0.4]])
    >>> mapped = RandomFourierFeatures(5_000, length_scale=1.0).fit_transform(rows)
    >>> (mapped @ mapped.T).round(2)
    array([[1.  , 0.88],
           [0.88, 1.  ]])
    >>> float(np.exp(-(0.5**2) / 2).round(2))
    0.88
    """

    def __init__(
        self, n_directions: int = 100, *, length_scale: float | None = None, seed: int = 0
    ) -> None:
        self.n_directions = n_directions
        self.length_scale = length_scale
        self.seed = seed

    @all_or_nothing
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Check the settings and count the columns.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows; their values do not matter.
        y : object
            Not used.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a setting is out of range, or ``X`` is no matrix of finite numbers.
        """
        self.settings_ = self._checked()
        refuse_types(X)
        validate_data(self, X, dtype=(np.float64, np.float32))
        self.row_norm_ = 1.0
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Map rows, each by itself.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n, 2 * n_directions)
            In float32 if ``X`` is, else in float64.

        Raises
        ------
        ValueError
            If a setting is out of range, or ``X`` is no matrix of finite numbers.
        """
        settings = self._settings()
        refuse_types(X)
        rows = validate_data(self, X, reset=False, dtype=(np.float64, np.float32), order="C")
        n_rows, n_features = rows.shape
        length_scale = settings.length_scale or _DEFAULT_WIDTH * math.sqrt(n_features)
        count = settings.n_directions
        directions = _directions(n_features, count, settings.seed).astype(rows.dtype)
        mapped = np.empty((n_rows, 2, count), rows.dtype)
        step = max(1, _BLOCK_ENTRIES // max(n_features, count))
        for start in range(0, n_rows, step):
            with np.errstate(over="ignore"):
                block = rows[start : start + step] / length_scale
            np.clip(block, -_LARGEST_ENTRY, _LARGEST_ENTRY, out=block)
            # A stack of products, one for each row: a product of whole matrices may round a row
            # by its place among the others.
            angles = np.matmul(block[:, np.newaxis], directions)[:, 0]
            np.cos(angles, out=mapped[start : start + step, 0])
            np.sin(angles, out=mapped[start : start + step, 1])
        mapped /= math.sqrt(count)
        return mapped.reshape(n_rows, 2 * count)

    @property
    def _n_features_out(self) -> int:
        return 2 * self._settings().n_directions

    def _checked(self) -> _Settings:
        scale = self.length_scale
        return _Settings(
            check_integer("n_directions", self.n_directions, least=1),
            None
            if scale is None
            else check_real("length_scale", scale, least=SMALLEST, most=LARGEST),
            check_integer("seed", self.seed, least=0),
        )


def _directions(n_features: int, count: int, seed: int) -> NDArray[np.float64]:
    """Draw the columns of a matrix: orthogonal in groups, each distributed as N(0, I)."""
    rng = np.random.default_rng(seed)
    groups = []
    while count > 0:
        size = min(count, n_features)
        q, r = np.linalg.qr(rng.standard_normal((n_features, size)))
        # With these signs q is uniform among the matrices with orthonormal columns.
        q *= np.sign(np.diagonal(r))
        groups.append(q * np.sqrt(rng.chisquare(n_features, size)))
        count -= size
    return np.concatenate(groups, axis=1)


# Random projection of rows to fewer columns; it costs no privacy.


@final
@dataclass(frozen=True)
class RandomProjection(Preprocessor):
    """Multiply rows by a public random matrix that nearly keeps inner products.

    Parameters
    ----------
    dimension : int
        Number of columns afterwards, at least 1.
    embedding : Embedding, default=GaussianEmbedding()
        Law of the matrix.

    Notes
    -----
    Rows that become longer than the row norm are scaled down to it. For sparse rows with very
    many columns use ``JohnsonLindenstrauss``: here blocks of 4096 rows are made dense on the way.

    Privacy: nothing is released. The matrix is made of public random bits, and no row depends on
    another.

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

    def __post_init__(self) -> None:
        check_integer("dimension", self.dimension, least=1)
        if not isinstance(self.embedding, Embedding):
            raise ValueError(f"embedding must be an Embedding, got {self.embedding!r}")

    def share(self, data: DataSpec, mu: float) -> float:
        return 0.0

    def plan(self, data: DataSpec, mu: float, adjacency: Adjacency) -> PlannedRandomProjection:
        return PlannedRandomProjection(data, self.dimension, self.embedding)


@final
@dataclass(frozen=True)
class PlannedRandomProjection(PlannedStep):
    """Random projection of rows with public facts."""

    data: DataSpec
    dimension: int
    embedding: Embedding

    name = "random projection"
    releases = ()

    @property
    def output(self) -> DataSpec:
        return embedded_spec(self.data, self.dimension, self.data.dtype)

    def learn(self, oracle: Oracle, seed: int) -> RowMap:
        drawn = self.embedding.draw(self.data.n_features, self.dimension, seed)
        matrix = drawn.toarray() if sparse.issparse(drawn) else drawn
        return RowMap(np.zeros(self.data.n_features), matrix)
