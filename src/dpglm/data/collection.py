"""Rows as a user gives them: a matrix in memory, files, a device or a cluster."""

from __future__ import annotations

import abc
import hashlib
import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm._validation import as_host, like, namespace
from dpglm.data.compiled.kernels import row_by_row_product
from dpglm.data.groups import GroupedRows, Groups
from dpglm.data.memory import ArrayRows
from dpglm.data.prepare import Matrix, backend, largest_norm, prepare_rows
from dpglm.data.rows import DataSpec, FloatType, Rows, threads_over
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.encoding import ColumnScaling
from dpglm.tables.given import as_floats, as_offset
from dpglm.tables.named import OffsetColumn, offset_of
from dpglm.tables.schema import Schema

# Predictions of a linear model for blocks of rows, computed where the rows are.

Output: TypeAlias = Callable[[NDArray[np.float64]], NDArray[Any]]
"""A function of linear scores of shape (n,) or (n, n_classes), applied row by row."""


@final
@dataclass(frozen=True, eq=False)
class RowPrediction:
    """A linear model as a function of features, which can be sent to a worker.

    ``coef`` has shape (n_features,) or (n_outputs, n_features); columns are clipped as ``scaling``
    says; ``output`` turns scores of shape (n,) or (n, n_outputs), offsets aside at most
    ``largest_score``, into predictions.
    """

    coef: NDArray[np.float64]
    intercept: Any
    scaling: ColumnScaling | None
    output: Output
    largest_score: float = math.inf

    def __call__(self, X: Any, offset: ArrayLike = 0.0) -> NDArray[Any]:
        """Predict; scores are computed on the device of X and copied to the host."""
        xp, coef = namespace(X), np.atleast_2d(self.coef).T
        if xp is not np:
            X, coef = xp.asarray(X, dtype=xp.float64), like(X, coef)
        X = X if self.scaling is None else self.scaling.clip_matrix(X)
        # SciPy multiplies sparse rows one after the other.
        is_sparse: bool = sparse.issparse(X)
        z = X @ coef if is_sparse else row_by_row_product(X, coef)
        z = np.minimum((z if xp is np else as_host(z)) + self.intercept, self.largest_score)
        return self.output((z.ravel() if z.shape[1] == 1 else z) + offset)


def with_offset(output: Output, offset: Any, exposure: Any) -> Output:
    """Return an output at the scores plus offsets: a number, or one for each row in memory."""
    if offset is None and exposure is None:
        return output
    given = offset_of(offset, exposure)

    def answer(z: NDArray[np.float64]) -> NDArray[Any]:
        return output(z + as_offset(given, len(z)))

    return answer


def scores(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return linear scores as they are."""
    return z


def best_labels(classes: NDArray[Any], z: NDArray[np.float64]) -> NDArray[Any]:
    """Return the class with the highest score; of two the second where the score is positive."""
    indices = (z > 0.0).astype(np.intp) if z.ndim == 1 else z.argmax(axis=1)
    labels: NDArray[Any] = classes[indices]
    return labels


T = TypeVar("T")
NO_TARGETS = "y must be given, got None: rows without targets can only be predicted"
TargetMap: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""From the user's targets of some rows to those of the loss, row by row; can be pickled."""


@final
@dataclass(frozen=True, eq=False)
class Preparation:
    """How rows of a collection are prepared.

    ``targets`` maps the user's targets to the loss's convention, ``weights`` to a factor on each
    row's weight (class weights); the dtype of ``spec`` may be finer than the stored one.
    """

    spec: DataSpec
    scaling: ColumnScaling | None
    targets: TargetMap
    weights: TargetMap | None = None

    def rows(
        self,
        X: Matrix,
        y: NDArray[Any],
        weights: Any,
        where: NDArray[np.bool_] | None = None,
    ) -> Rows:
        """Prepare rows with targets, and weights of their own or None.

        Where ``where`` is False a row has the weight 0, and its target is not looked at.
        """
        every = y
        y = y if where is None else y[where]
        targets, factors = self.targets(y), None if self.weights is None else self.weights(y)
        if where is not None:
            spec = self.spec
            some = 0.0 if spec.n_outputs > 1 else np.clip(1.0, spec.target_low, spec.target_high)
            targets = _at(where, targets, [some, 0.0][: every.ndim])
            factors = _at(where, np.ones(len(y)) if factors is None else factors, [0.0])
        if factors is not None:
            weights = factors if weights is None else factors * weights
        return prepare_rows(X, targets, self.spec, self.scaling, weights)


def _at(where: NDArray[np.bool_], values: NDArray[Any], others: list[Any]) -> NDArray[Any]:
    """Put values at places, and the same numbers at all others."""
    found = np.empty((len(where), *values.shape[1:]), values.dtype)
    found[...] = others if values.ndim > 1 else others[0]
    found[where] = values
    return found


class Collection(abc.ABC):
    """Rows with their targets and weights: streamed from files, on a device, or on a cluster.

    No bound is read off such rows: an estimator asks for every bound to be declared.
    """

    copies_cheaply: ClassVar[bool] = False
    """Whether a solver may make copies of all rows in memory."""
    is_numpy: ClassVar[bool] = True
    """Whether sums over rows are NumPy's, or compiled for its arrays."""
    is_sparse: bool = False
    """Whether prepared rows will be stored as CSR."""
    feature_names: tuple[str, ...] | None = None
    """Names of the features, where they have any."""
    schema: Schema | None = None
    """The schema that encoded a table's columns as these features, if known."""
    target_name: str | None = None
    """Name of the column that holds the targets, where it is known."""
    offset_column: OffsetColumn = OffsetColumn("offset")
    """Argument name of the offsets, and the name of their column, if known."""

    is_weighted: bool = False
    """Whether rows have weights of their own."""
    has_offset: bool = False
    """Whether rows have offsets: targets then have two columns, targets and offsets."""
    n_groups: int | None = None
    """The true number of groups of rows; None for rows that are not in groups."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and features; the number of rows is the true one, private under ``add_remove``."""

    @property
    @abc.abstractmethod
    def dtype(self) -> FloatType:
        """Type of the stored rows."""

    def with_offset(self, offset: Any) -> Collection:
        """Return these rows with offsets."""
        raise ValueError(f"offset must be None for rows in {type(self).__name__}")

    @property
    def group_ids(self) -> Any:
        """The group of each row, where rows come with their groups."""
        return None

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> Collection:
        """Return rows in groups, at most ``most`` of each, to be protected by group.

        ``ids`` names the group of each row. ``ValueError`` if it does not, or rows of this kind
        cannot be summed by groups.
        """
        raise ValueError(f"groups must be None for rows in {type(self).__name__}")

    def longest_row(self) -> float:
        """Norm of the longest row of a matrix in memory, for estimators without a bound."""
        raise ValueError(
            "row_norm or feature_bounds must be declared for rows that are not one matrix in "
            "memory, got neither"
        )

    @abc.abstractmethod
    def prepared(self, how: Preparation) -> Rows:
        """Prepare all rows as ``prepare_rows`` does; nothing is released here.

        ``ValueError`` if a value is not a finite number, or a target is not allowed; all rows are
        checked first.
        """

    def mark(self) -> bytes | None:
        """Return a fingerprint of a matrix in memory, for comparisons in this process; else None.

        Privacy: a function of private rows, to be compared, and never released or saved.
        """
        return None

    @abc.abstractmethod
    def apply(self, function: Callable[..., NDArray[Any]]) -> Any:
        """Apply a function, row by row, to the features of each row, where these are.

        Offsets of the rows, if any, are its second argument.
        The function can be pickled, and returns an array on the host with one entry or row for
        each row. The results are of the rows' kind: an array of Dask is computed when it is asked
        for, and numbers about a tensor are where that is.
        """

    @abc.abstractmethod
    def parts(self, function: Callable[[Any, Any, Any], T]) -> Iterable[T]:
        """Return a function's results for features, targets and weights of each part, in order.

        The function can be pickled; weights may be None. ``ValueError`` if targets are missing,
        or a value is not a finite number.
        """


def as_collection(X: Any, y: Any = None, weights: Any = None) -> Collection | None:
    """Return the arguments of a fit or a prediction as a collection; None for a matrix in memory.

    A ``Collection`` has its own targets and weights, so ``y`` and ``weights`` must be None for it.
    """
    if isinstance(X, Collection):
        if y is not None or weights is not None:
            raise ValueError(
                f"y and sample_weight must be None for {type(X).__name__}, which has its own"
            )
        return X
    package, kind = type(X).__module__.partition(".")[0], type(X).__name__
    make = backend(package).get("collection_of")
    if (package, kind) == ("numpy", "memmap"):
        # Of NumPy's arrays these alone are not in memory.
        make = backend("stream.stored")["mapped_rows"]
    return None if make is None else make(X, y, weights)


# Rows that tell matrices apart.
_MARKED = 64
_KEY = secrets.token_bytes(32)

_NONE: NDArray[Any] = np.empty(0)


@final
class MatrixRows(Collection):
    """One validated matrix in memory, dense or CSR, with its targets and weights.

    ``starts`` says where each group of rows starts, if they are in groups (``GroupedRows``), and
    ``where`` which rows count, if not all.
    """

    copies_cheaply = True
    dtype: FloatType = "float64"
    shape: tuple[int, int] = (0, 0)

    def __init__(
        self,
        X: Matrix,
        y: NDArray[Any] = _NONE,
        weights: NDArray[np.float64] | None = None,
        starts: NDArray[np.intp] | None = None,
        where: NDArray[np.bool_] | None = None,
    ) -> None:
        self._X, self._y, self._weights = X, y, weights
        self.dtype, self.is_sparse = cast(FloatType, X.dtype.name), bool(sparse.issparse(X))
        self._starts, self._where = starts, where
        self.is_weighted, self.has_offset = weights is not None, y.ndim == 2
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.n_groups = None if starts is None else len(starts) - 1

    def spread(self, where: NDArray[np.bool_] | None) -> MatrixRows:
        """Put these rows at the places where they count, among rows of zeros with the weight 0."""
        if where is None:
            return self
        rows = np.flatnonzero(where)

        def put(values: Any) -> NDArray[Any]:
            found = np.zeros((len(where), *values.shape[1:]), values.dtype)
            found[rows] = values
            return found

        if sparse.issparse(self._X):
            sizes = put(np.diff(self._X.indptr))
            ends = np.concatenate([np.zeros(1, sizes.dtype), np.cumsum(sizes, dtype=sizes.dtype)])
            shape = (len(where), self.shape[1])
            X: Matrix = sparse.csr_array((self._X.data, self._X.indices, ends), shape=shape)
        else:
            X = put(self._X)
        weights = None if self._weights is None else put(self._weights)
        return MatrixRows(X, put(self._y), weights, where=where)

    def with_offset(self, offset: Any) -> MatrixRows:
        y = np.column_stack([as_floats("y", self._y), as_offset(offset, len(self._y))])
        return MatrixRows(self._X, y, self._weights)

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> MatrixRows:
        places, starts = Groups.of(ids, len(self._y)).arranged(most, noise)
        X, y, weights, where = self._X, self._y, self._weights, self._where
        if places is not None:
            X, y = X[places], y[places]
            weights = None if weights is None else weights[places]
            where = None if where is None else where[places]
        return MatrixRows(X, y, weights, starts, where)

    def longest_row(self) -> float:
        return largest_norm(self._X)

    def mark(self) -> bytes:
        n_rows = self.shape[0]
        chosen = np.linspace(0, n_rows - 1, min(_MARKED, n_rows)).astype(np.intp)
        rows = self._X[chosen]
        whole = np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows)
        digest = hashlib.blake2b(whole.tobytes(), key=_KEY, digest_size=16)
        digest.update(repr((self.shape, self._X.dtype)).encode())
        return digest.digest()

    def prepared(self, how: Preparation) -> Rows:
        X = self._X.astype(how.spec.dtype, copy=False)
        X = sparse.csr_array(X) if sparse.issparse(X) else X
        with threads_over(math.prod(X.shape)):
            rows = how.rows(X, self._y, self._weights, self._where)
        if self._starts is None:
            return rows
        assert isinstance(rows, ArrayRows)
        return GroupedRows(rows, self._starts)

    def apply(self, function: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
        return function(self._X)

    def parts(self, function: Callable[[Any, Any, Any], T]) -> list[T]:
        return [function(self._X, self._y, self._weights)]
