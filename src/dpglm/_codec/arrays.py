"""Vectors and square matrices as JSON and back."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm._codec.values import Form, items, number

__all__ = ["SquareMatrix", "Vector"]


def _vector(value: object) -> NDArray[np.float64]:
    return np.array(items(number)(value), dtype=np.float64)


def _matrix(value: object) -> NDArray[np.float64]:
    rows = items(_vector)(value)
    if any(len(row) != len(rows) for row in rows):
        raise ValueError("must be a square matrix")
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(rows))


Vector: TypeAlias = Annotated[NDArray[np.float64], Form(np.ndarray.tolist, _vector)]
SquareMatrix: TypeAlias = Annotated[NDArray[np.float64], Form(np.ndarray.tolist, _matrix)]
