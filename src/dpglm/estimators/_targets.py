"""From the user's targets to those of a loss, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoundedTargets", "ClassFactors", "ClassTargets"]

_SHOWN = 5


@final
@dataclass(frozen=True, eq=False)
class ClassTargets:
    """Labels become class indices; of two classes, -1 and +1.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        All labels, sorted.
    """

    classes: NDArray[Any]

    def __call__(self, y: NDArray[Any]) -> NDArray[Any]:
        """Map labels; one that is not listed is a ValueError."""
        indices = _indices(self.classes, y)
        return indices if len(self.classes) > 2 else 2 * indices - 1


@final
@dataclass(frozen=True, eq=False)
class ClassFactors:
    """Labels become the weights of their classes.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        All labels, sorted.
    factors : ndarray of shape (n_classes,)
        Weight of each.
    """

    classes: NDArray[Any]
    factors: NDArray[np.float64]

    def __call__(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Map labels; one that is not listed is a ValueError."""
        return self.factors[_indices(self.classes, y)]


@final
@dataclass(frozen=True)
class BoundedTargets:
    """Numbers are clipped to public bounds, shifted and scaled.

    Parameters
    ----------
    bounds : pair of float
        Bounds in the user's units.
    center, scale : float
        What is subtracted, and divided by afterwards.
    scaled_bounds : pair of float
        Bounds of the result, which rounding must not leave.
    """

    bounds: tuple[float, float]
    center: float
    scale: float
    scaled_bounds: tuple[float, float]

    def __call__(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Map numbers."""
        try:
            numbers = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"y must hold numbers, got the type {np.asarray(y).dtype}") from None
        scaled = (np.clip(numbers, *self.bounds) - self.center) / self.scale
        return np.clip(scaled, *self.scaled_bounds)


def _indices(classes: NDArray[Any], y: NDArray[Any]) -> NDArray[np.intp]:
    try:
        indices = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    except TypeError:
        raise ValueError(f"y has labels of another type than classes={classes.tolist()}") from None
    if not (classes[indices] == y).all():
        unknown = sorted(set(y.tolist()) - set(classes.tolist()))
        raise ValueError(
            f"y has labels that are not in classes={classes.tolist()}: {unknown[:_SHOWN]}"
        )
    return indices
