"""The check of scores and targets of losses for classes."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from dpglm._arrays import like, namespace
from dpglm.problem._functions import FloatArray, as_float

__all__ = ["class_inputs"]


def class_inputs(
    z: ArrayLike, y: ArrayLike, n_classes: int | None = None
) -> tuple[FloatArray, NDArray[Any]]:
    """Return scores of shape (n, K) and class indices 0, ..., K - 1; by default any K >= 2."""
    z = as_float(z)
    classes: NDArray[Any] = like(z, y)
    expected = "K >= 2" if n_classes is None else f"K = {n_classes}"
    fits = z.ndim == 2 and classes.shape == z.shape[:1]
    if not fits or not (z.shape[1] >= 2 if n_classes is None else z.shape[1] == n_classes):
        raise ValueError(
            f"z must have shape (n, K) with {expected} and y shape (n,), "
            f"got z of shape {z.shape} and y of {classes.shape}"
        )
    if not namespace(classes).isdtype(classes.dtype, "integral"):
        raise ValueError(f"y must hold integer class indices, got dtype {classes.dtype}")
    if len(classes) and not (classes.min() >= 0 and classes.max() < z.shape[1]):
        raise ValueError(
            f"y must lie in 0, ..., {z.shape[1] - 1}, got values from {classes.min()} to "
            f"{classes.max()}"
        )
    return z, classes
