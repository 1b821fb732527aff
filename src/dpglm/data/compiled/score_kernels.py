"""Compiled sums of scores over rows in a public basis; everything in double precision."""

from __future__ import annotations

import ctypes
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.compiled.kernels import check_shapes, function, pointer, size_t

__all__ = ["ScoreRule", "ScoreSum", "score_sum"]

_MOST_COLUMNS = 128
"""As in ``_score_kernels.h``; with more of them a BLAS is as fast."""
_PANEL = 4
"""As there."""
_SUMS = {"scores": 0, "curvature": 1, "squares": 2, "variance": 3}

ScoreSum: TypeAlias = Literal["scores", "curvature", "squares", "variance"]
"""What is added up: f s z, or z z^T times f h, (f s)^2, or f^2 h."""


@final
class ScoreRule(ctypes.Structure):
    """How a row in the basis becomes its contribution: ``Scores`` says what the numbers mean."""

    _fields_ = (
        ("loss", ctypes.c_int64),
        ("sums", ctypes.c_int64),
        ("slope", ctypes.c_double),
        ("curvature", ctypes.c_double),
        ("clip", ctypes.c_double),
        ("square", ctypes.c_double),
        ("margin", ctypes.c_double),
    )


def score_sum(
    of: ScoreSum,
    limits: tuple[float, float, float, float, float],
    X: Any,
    basis: NDArray[np.float64],
    intercept: float,
    v: NDArray[np.float64],
    targets: Any,
    weights: Any,
) -> NDArray[np.float64] | None:
    """Sum over rows of logistic scores, or of products of rows in the basis.

    ``limits`` are the largest slope and curvature, those of ``f |z|`` and ``f |z|^2``, and the
    margin of the norm.
    None is returned where no compiled code takes such arrays. Of a matrix only the diagonal and
    what is above it counts.
    """
    if not isinstance(X, np.ndarray) or X.dtype not in (np.float32, np.float64):
        return None
    columns, size = X.shape[1], basis.shape[1]
    add_up = function("score_sum", X)
    if (
        add_up is None
        or max(columns, size) > _MOST_COLUMNS
        or any(s % X.itemsize for s in X.strides)
    ):
        return None
    check_shapes(len(X), size, v, targets, weights)
    padded = -(-size // _PANEL) * _PANEL
    panels = np.zeros((padded // _PANEL, columns, _PANEL))
    filled = np.zeros((len(basis), padded))
    filled[:, :size] = basis
    panels[...] = filled[:columns].reshape(columns, -1, _PANEL).transpose(1, 0, 2)
    level = intercept * filled[columns] if intercept else np.zeros(padded)
    along = np.zeros(padded)
    along[:size] = v
    facts = [
        None if values is None else np.ascontiguousarray(values, X.dtype)
        for values in (targets, weights)
    ]
    total = np.zeros(padded if of == "scores" else (padded, padded))
    add_up(
        ctypes.byref(ScoreRule(0, _SUMS[of], *limits)),
        pointer(X),
        *(size_t(stride // X.itemsize) for stride in X.strides),
        size_t(len(X)),
        size_t(columns),
        size_t(padded),
        *map(pointer, (panels, level, along, *facts, total)),
    )
    return total[:size] if of == "scores" else total[:size, :size]
