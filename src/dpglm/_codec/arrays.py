"""Vectors and matrices as JSON and back."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm._codec.values import Form, items, number

__all__ = ["Matrix", "Vector"]


def _vector(value: object) -> NDArray[np.float64]:
    return np.array(items(number)(value), dtype=np.float64)


def _matrix(value: object) -> NDArray[np.float64]:
    rows = items(_vector)(value)
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise ValueError("must be a matrix, with rows of one length")
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


Vector: TypeAlias = Annotated[NDArray[np.float64], Form(np.ndarray.tolist, _vector)]
Matrix: TypeAlias = Annotated[NDArray[np.float64], Form(np.ndarray.tolist, _matrix)]
