"""From the user's matrix to prepared rows: clip to public bounds, scale, bound norms."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._validation import like, namespace, rounded_up
from dpglm.data.compiled import kernels
from dpglm.data.memory import ArrayRows
from dpglm.data.rows import Block, DataSpec, Floats, FloatType, Rows, map_blocks
from dpglm.tables.encoding import ColumnScaling, LinearUnits

# Backends for the objects of other packages; each is loaded when it is first needed.
#
# The folder of ``dpglm.data`` with the name of another package reads the objects of that package.
# Its ``collection_of`` (X, y, weights) returns a Collection, or None for a matrix in memory; its
# ``rows_of`` is the class of rows that keeps dense matrices where they are.


@functools.cache
def backend(package: str) -> Mapping[str, Any]:
    """Return the names of the folder or module of a package; none without one."""
    name = f"{__package__}.{package}"
    if importlib.util.find_spec(name) is None:
        return {}
    return vars(importlib.import_module(name))


Matrix: TypeAlias = "Floats | sparse.csr_array"

# Copied to float64 at a time: of tensors, and of NumPy's arrays, which should stay in cache.
_CHUNK_ENTRIES = (1 << 26, 1 << 18)


def column_units(spec: DataSpec, scaling: ColumnScaling | None) -> LinearUnits:
    """Return the map from coefficients of prepared columns to those of the user's columns."""
    center, scale = np.zeros(spec.n_features), np.ones(spec.n_features)
    if scaling is not None:
        center = scaling.center(centered=spec.centers_columns)
        scale = scaling.scale(centered=spec.centers_columns)
    return LinearUnits.of_columns(center, scale, intercept=spec.intercept)


def largest_norm(X: Matrix) -> float:
    """Largest row norm of the data: private, unless the caller declares it public."""
    norms = _norms(X)
    return float(norms.max()) if norms.size else 0.0


def prepare_rows(
    X: Matrix,
    y: NDArray[Any],
    spec: DataSpec,
    scaling: ColumnScaling | None = None,
    weights: Floats | None = None,
) -> Rows:
    """Make rows satisfy the bounds of ``spec``; ``X`` is copied only if need be.

    Columns are scaled first. Targets, in the loss's convention, must be finite and within the
    bounds of ``spec``; weights are clipped to [0, ``spec.weight_bound``]. The rows stay where
    ``X`` is.

    Privacy: every repair depends on its own row only: columns are clipped, then a row longer than
    ``spec.row_norm`` is scaled down to it. Norms are computed in float64 and rounded up. Scaling
    one row keeps the memory order, so that the sums over all other rows are computed in the same
    way.
    """
    if not namespace(y).all(namespace(y).isfinite(y)):
        raise ValueError("y must be finite, but y contains NaN or infinity")
    if sparse.issparse(X):
        # Compiled sums do not check column numbers.
        X.check_format(full_check=True)
        X = X if scaling is None else scaling.apply_sparse(X)
        norms, is_new = _norms(X), False
    elif isinstance(X, np.ndarray):
        given = _in_order(X)
        X, norms = _scaled(given, scaling, spec.centers_columns)
        is_new = X is not given
    else:
        is_new = scaling is not None
        X = X if scaling is None else scaling.apply(X, centered=spec.centers_columns)
        norms = _norms(X)
    X, norms = _within(X, norms, spec.row_norm, in_place=is_new)
    return _stored(X, y, norms, spec, weights)


@functools.singledispatch
def derived_rows(
    rows: Rows,
    function: Callable[[Block], Any],
    spec: DataSpec,
    overwrite: bool = False,
) -> Rows:
    """Replace rows by a function of each, keeping targets and weights, block by block.

    ``function`` maps a block, of NumPy arrays or of tensors, to new rows of shape ``(rows,
    spec.n_features)`` in memory of their own; each must depend on its own row alone. With
    ``overwrite`` the new rows may take the memory of ``rows``, which must not be used afterwards.
    The result is dense, where ``rows`` are, and within the bounds of ``spec``.
    """

    def derive(block: Block) -> Any:
        part = function(block)
        part = namespace(part).asarray(part, dtype=getattr(namespace(part), spec.dtype))
        shortened = _within(part, _norms(part), spec.row_norm, in_place=True)
        return *shortened, block.targets, block.weights

    X, start = np.empty((0, spec.n_features), spec.dtype), 0
    facts: list[list[Any]] = []
    for part, *of_part in rows.map_native(derive):
        if not start:
            xp, shape = namespace(part), (rows.n_rows, spec.n_features)
            if overwrite and isinstance(rows, ArrayRows):
                X = rows.room_for(shape, part.dtype)
            else:
                X = xp.empty(shape, dtype=part.dtype, device=part.device)
        X[start : start + len(part)] = part
        start += len(part)
        facts.append(of_part)
    norms, y, weights = zip(*facts, strict=True) if facts else ([X[:, 0]], [X[:, 0]], [None])
    concat = namespace(X).concat
    every = None if weights[0] is None else concat(weights)
    return rows.alike(_stored(X, concat(y), concat(norms), spec, every))


def _scaled(
    X: Floats, scaling: ColumnScaling | None, centered: bool
) -> tuple[Floats, NDArray[np.float64]]:
    """Return NumPy's rows after the scaling, in a new array if there is one, and their norms."""
    step = max(1, _CHUNK_ENTRIES[True] // X.shape[1])
    chunks = [slice(start, start + step) for start in range(0, len(X), step)]
    scaled, norms, limits = X, np.empty(len(X)), None
    if scaling is not None:
        scaled = np.empty_like(X)
        middle, scale = scaling.center(centered=centered), scaling.scale(centered=centered)
        # Compiled code does not check shapes.
        every = scaling.low, scaling.high, middle, scale
        limits = [np.broadcast_to(one, X.shape[1:]) for one in every]

    def prepare(rows: slice) -> None:
        compiled = kernels.prepare(X[rows], limits, scaled[rows])
        if compiled is None and scaling is not None:
            scaled[rows] = scaling.apply(X[rows], centered=centered)
        norms[rows] = _dense_norms(scaled[rows], compiled)

    for _ in map_blocks(prepare, chunks):
        pass
    return scaled, norms


def _within(X: Matrix, norms: Any, row_norm: float, in_place: bool = False) -> tuple[Matrix, Any]:
    """Scale down rows with norms above a bound; return all rows and their norms.

    Rows with norms that are not finite become zeros, so that nothing rests on scaled columns.
    """
    xp = namespace(X)
    too_long = ~(norms <= row_norm)
    if not too_long.any():
        return X, norms
    limits = xp.finfo(X.dtype)
    # A relative margin, so that rounding cannot leave a row longer than the bound.
    margin = 1.0 - 4.0 * float(limits.eps)
    factors = xp.where(too_long, margin * row_norm / xp.where(too_long, norms, 1.0), 1.0)
    # Factors below the normal range round by more than that: such rows become zeros.
    factors[~(factors >= float(limits.tiny))] = 0.0
    factors = xp.asarray(factors, dtype=X.dtype)
    if in_place:
        X *= factors[:, None]
        X[factors == 0.0] = 0.0
    else:
        X = _scale_rows(X, factors)
    return X, xp.minimum(_norms(X), row_norm)


def _stored(X: Matrix, y: Any, norms: Any, spec: DataSpec, weights: Any) -> Rows:
    """Store arrays that satisfy ``spec`` but for their types, weights and intercept column."""
    xp = namespace(norms)
    # Squares neither overflow nor underflow: norms are between 1e-149 and LARGEST.
    lengths = xp.sqrt(norms * norms + spec.intercept**2) * (1.0 + 8.0 * np.finfo(np.float64).eps)
    lengths = rounded_up(lengths, X.dtype)
    if weights is None and spec.weight_bound < 1.0:
        weights = xp.ones_like(norms)
    if weights is not None:
        heaviest = _rounded_down(spec.weight_bound, spec.dtype)
        weights = like(norms, xp.clip(like(norms, weights), 0.0, heaviest), X.dtype)
    if spec.n_outputs == 1 and X.dtype == xp.float32:
        # Targets and offsets beyond the range of the type would become infinite.
        largest = float(xp.finfo(X.dtype).max)
        y = xp.clip(like(norms, y, xp.float64), -largest, largest)
    y = like(norms, y, X.dtype if spec.n_outputs == 1 else None)
    # Other packages' matrices stay where they are.
    rows_of = backend(type(X).__module__.partition(".")[0]).get("rows_of", ArrayRows)
    rows: Rows = rows_of(X, y, lengths, spec, weights)
    return rows


def _in_order(X: Any) -> Any:
    """Return dense rows in C or Fortran order."""
    if X.shape[1] == 1:
        # One column is in both orders, with strides of either.
        return np.ascontiguousarray(X[:, 0]).reshape(-1, 1)
    ordered = X.flags.c_contiguous or X.flags.f_contiguous
    return X if ordered and X.flags.aligned else X.copy(order="C")


def _rounded_down(value: float, dtype: FloatType) -> float:
    """Largest number of a type that is not above a value."""
    coarse = np.dtype(dtype).type
    nearest = coarse(value)
    return float(nearest if float(nearest) <= value else np.nextafter(nearest, coarse(0.0)))


def _norms(X: Matrix) -> NDArray[np.float64]:
    """L2 norms of rows in float64, each computed from its own row alone."""
    if sparse.issparse(X):
        values = sparse.csr_array((X.data.astype(np.float64), X.indices, X.indptr), shape=X.shape)

        def lengths(some: sparse.csr_array) -> NDArray[np.float64]:
            squares: NDArray[np.float64] = np.asarray(some.multiply(some).sum(axis=1)).ravel()
            return np.sqrt(squares)

        return _safe_norms(lambda rows: values[rows], lengths)
    xp = namespace(X)
    norms: NDArray[np.float64] = xp.empty(X.shape[0], dtype=xp.float64, device=X.device)
    step = max(1, _CHUNK_ENTRIES[xp is np] // X.shape[1])
    for start in range(0, X.shape[0], step):
        norms[start : start + step] = _dense_norms(X[start : start + step])
    return norms


def _dense_norms(X: Floats, known: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """L2 norms of few rows; ``known`` are those that compiled code computed."""
    # An array of one row is in both orders, so all are added up in C order.
    xp = namespace(X)
    X = np.ascontiguousarray(X) if xp is np else X
    known = kernels.prepare(X, None, X) if known is None else known

    def take(rows: slice) -> Any:
        return xp.asarray(X[rows], dtype=xp.float64)

    return _safe_norms(take, row_lengths, known)


def _safe_norms(
    take: Callable[[slice], Any],
    norms_of: Callable[[Any], NDArray[np.float64]],
    known: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Norms of rows, recomputed from scaled values where squares overflow."""
    with np.errstate(over="ignore", under="ignore"):
        norms = norms_of(take(slice(None))) if known is None else known
    xp = namespace(norms)
    for row in xp.nonzero(norms > 1e150)[0].tolist():
        values = take(slice(row, row + 1))
        top = float(abs(values).max())
        # A norm that overflows is infinite, and its row becomes zero.
        with np.errstate(over="ignore", under="ignore"):
            norms[row] = top * norms_of(values / top)[0]
    # Squares of values below this underflow, but such values are no longer than this either.
    longer: NDArray[np.float64] = xp.maximum(norms, 1e-149)
    return longer


def row_lengths(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """L2 norms of rows, of an array or a tensor, each from its own row alone. Private."""
    xp = namespace(X)
    norms: NDArray[np.float64] = xp.sqrt(xp.einsum("ij,ij->i", X, X))
    return norms


def _scale_rows(X: Matrix, factors: Floats) -> Matrix:
    if sparse.issparse(X):
        factors = np.repeat(factors, np.diff(X.indptr))
        data = np.where(factors > 0.0, X.data * factors, X.dtype.type(0.0))
        return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
    scaled = X * factors[:, None]
    scaled[factors == 0.0] = 0.0
    return scaled
