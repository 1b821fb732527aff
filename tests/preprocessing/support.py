"""Rows that tests of preprocessing steps share, and neighbours that differ as much as they may."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic

LAYOUTS = [("C", "float64"), ("C", "float32"), ("F", "float64"), ("csr", "float32")]


def make_rows(
    X: np.ndarray,
    *,
    layout: str = "C",
    dtype: str = "float64",
    row_norm: float = 1.0,
    intercept: float = 1.0,
    n_rows: int | None = None,
    weights: np.ndarray | None = None,
    weight_bound: float = 1.0,
) -> Rows:
    """Prepared rows with targets +-1; ``n_rows`` may differ from their number."""
    spec = DataSpec(
        n_rows=len(X) if n_rows is None else n_rows,
        n_features=X.shape[1],
        row_norm=row_norm,
        intercept=intercept,
        dtype=dtype,  # type: ignore[arg-type]
        sparse=layout == "csr",
        weight_bound=weight_bound,
    )
    matrix = X.astype(dtype)
    stored = sparse.csr_array(matrix) if layout == "csr" else np.asarray(matrix, order=layout)  # type: ignore[call-overload]
    y = np.where(np.arange(len(X)) % 2 == 0, 1.0, -1.0)
    return prepare_rows(stored, y, spec, weights=weights)


def oracle_of(rows: Rows, adjacency: Adjacency = Adjacency.ZERO_OUT, seed: int = 0) -> Oracle:
    """Whom to ask about the rows."""
    return Oracle(rows, Logistic(), Curator(adjacency, SeededNoise(seed)))


def dense(rows: Rows) -> np.ndarray:
    """All rows without the intercept column, in float64."""
    parts = [block.features().astype(float) for block in rows.blocks()]
    return np.concatenate([np.empty((0, rows.spec.n_features)), *parts])


def worst_pairs(
    n: int, d: int, row_norm: float, erased: np.ndarray | float = 0.0
) -> list[tuple[np.ndarray, np.ndarray, str]]:
    """Neighbours that differ in row 17: by relation, with huge, tiny and opposite rows.

    An erased row contributes nothing to a sum, like a row ``erased``.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d)) * row_norm
    pairs = []
    for huge in (1e6, -1e6, 1e30, 1e-30):
        one, other, zero = X.copy(), X.copy(), X.copy()
        one[17], other[17], zero[17] = huge * row_norm, -huge * row_norm, erased
        one[17, 1:] = 0.0
        other[17, 1:] = 0.0
        pairs += [
            (one, other, "replace_one"),
            (one, zero, "zero_out"),
            (one, np.delete(X, 17, axis=0), "add_remove"),
        ]
    return pairs
