"""Terms of an additive model: an effect of one column, or of two together."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm.tables.additive.axes import Axis, Places

__all__ = ["Term", "as_dense"]


@final
@dataclass(frozen=True, eq=False)
class Term:
    """An effect of one or two columns: which features carry it, and their values at any point.

    Parameters
    ----------
    axes : tuple of Axis
        One for each column.
    features : slice
        Where the term's features stand among those of the model.

    Notes
    -----
    Privacy: made of public facts alone.
    """

    axes: tuple[Axis, ...]
    features: slice

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(axis.name for axis in self.axes)

    @property
    def name(self) -> str:
        """The columns in words."""
        return " x ".join(self.columns)

    @property
    def norm(self) -> float:
        """Bound on the L2 norm of the term's features in any row."""
        return math.prod(axis.norm for axis in self.axes)

    @property
    def labels(self) -> tuple[str, ...]:
        """Name the values that the effect has: at knots, for levels, and where two of them meet."""
        return tuple(
            ", ".join(parts) for parts in itertools.product(*(a.labels for a in self.axes))
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        if self.root is None:
            return self.labels
        return tuple(f"{self.name}[{i}]" for i in range(self.features.stop - self.features.start))

    @functools.cached_property
    def root(self) -> Any:
        """Map from coefficients to the effect's values, of shape (n_values, n_features).

        Dense or sparse; None for the identity.
        """
        roots: list[Any] = [axis.root for axis in self.axes]
        if all(root is None for root in roots):
            return None
        if all(root is not None for root in roots):
            return functools.reduce(np.kron, roots)
        for i, axis in enumerate(self.axes):
            roots[i] = sparse.eye_array(len(axis.labels)) if roots[i] is None else roots[i]
        return sparse.csr_array(functools.reduce(sparse.kron, roots))

    def basis(self, *points: ArrayLike) -> NDArray[np.float64]:
        """Return the features' values at points, so that the effect is ``basis @ coefficients``.

        ``points`` are cells, one array of shape (n,) for each column; the result has the shape
        ``(n, n_features of the term)``.
        """
        if len(points) != len(self.axes):
            raise ValueError(
                f"points must be given for each of the columns {list(self.columns)}, got "
                f"{len(points)}"
            )
        places = [axis.places(one) for axis, one in zip(self.axes, points, strict=True)]
        return as_dense(self.at(*places))

    def at(self, *places: Places) -> Any:
        """Return the features of rows, given where these lie among each axis's values.

        Sparse where levels are so many that it is worth it.
        """
        parts = [axis.features(one) for axis, one in zip(self.axes, places, strict=True)]
        return functools.reduce(_products, parts)


def as_dense(features: Any) -> NDArray[np.float64]:
    """Return features of rows, which may be sparse, as a dense array."""
    dense: NDArray[np.float64] = features.toarray() if _is_sparse(features) else features
    return dense


def _is_sparse(features: Any) -> bool:
    return sparse.issparse(features)


def _products(first: Any, second: Any) -> Any:
    """Return all products of a row of the one and the same row of the other."""
    if not (_is_sparse(first) or _is_sparse(second)):
        return (first[:, :, np.newaxis] * second[:, np.newaxis, :]).reshape(len(first), -1)
    # Transposed, they are Khatri-Rao products of columns.
    one, other = sparse.csc_array(first), sparse.csc_array(second)
    wide = sparse.kron(one, np.ones((1, other.shape[1])), format="csr")
    return wide.multiply(sparse.kron(np.ones((1, one.shape[1])), other, format="csr")).tocsr()
