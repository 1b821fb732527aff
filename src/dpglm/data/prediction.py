"""Predictions of a linear model for blocks of rows, computed where the rows are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._arrays import as_host, like, namespace
from dpglm.data.prepare import ColumnScaling
from dpglm.tables.given import as_offset
from dpglm.tables.offsets import offset_of

__all__ = ["ClassLabels", "Output", "RowPrediction", "scores", "with_offset"]

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
        xp = namespace(X)
        if xp is not np:
            X = xp.asarray(X, dtype=xp.float64)
            X = X if self.scaling is None else self.scaling.clip(X)
            z = as_host(X @ like(X, self.coef.T))
        else:
            X = X if self.scaling is None else self.scaling.clip_matrix(X)
            z = np.asarray(X @ self.coef.T)
        z = np.minimum(z + self.intercept, self.largest_score) + offset
        return self.output(z.ravel() if z.ndim == 2 and z.shape[1] == 1 else z)


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


@final
@dataclass(frozen=True, eq=False)
class ClassLabels:
    """The label with the highest score, among the sorted ``classes``."""

    classes: NDArray[Any]

    def __call__(self, z: NDArray[np.float64]) -> NDArray[Any]:
        """Return labels; of two classes the second where the score is positive."""
        indices = (z > 0.0).astype(np.intp) if z.ndim == 1 else z.argmax(axis=1)
        labels: NDArray[Any] = self.classes[indices]
        return labels
