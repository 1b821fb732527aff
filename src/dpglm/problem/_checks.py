"""Checks of public constants, shared by losses, regularizers and constraints."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from dpglm._arrays import namespace

__all__ = ["check_class_indices", "require_dimension", "require_nonnegative", "require_positive"]


def require_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is finite and greater than 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and greater than 0, got {value!r}")


def require_nonnegative(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is finite and at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value!r}")


def require_dimension(dimension: int) -> None:
    """Raise ValueError unless ``dimension`` is at least 1."""
    if dimension < 1:
        raise ValueError(f"dimension must be an integer of at least 1, got {dimension!r}")


def check_class_indices(y: NDArray[Any], n_classes: int) -> None:
    """Raise ValueError unless ``y`` holds integers in 0, ..., n_classes - 1."""
    if not namespace(y).isdtype(y.dtype, "integral"):
        raise ValueError(f"y must hold integer class indices, got dtype {y.dtype}")
    if len(y) and not (y.min() >= 0 and y.max() < n_classes):
        raise ValueError(
            f"y must lie in 0, ..., {n_classes - 1}, got values from {y.min()} to {y.max()}"
        )
