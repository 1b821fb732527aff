"""From the user's targets to those of a loss, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.collection import TargetMap
from dpglm.data.spec import DataSpec
from dpglm.problem import Problem
from dpglm.tables.given import as_floats, check_not_missing, is_text

__all__ = ["BoundedTargets", "ClassFactors", "ClassTargets", "Task", "check_labels"]

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
        numbers = check_not_missing(as_floats("y", y))
        scaled = (np.clip(numbers, *self.bounds) - self.center) / self.scale
        clipped: NDArray[np.float64] = np.clip(scaled, *self.scaled_bounds)
        return clipped


@final
@dataclass(frozen=True)
class Task:
    """A learning task: how targets are encoded, and the problem that is solved.

    Parameters
    ----------
    targets : callable
        Maps the user's targets to those of the loss.
    problem : callable
        States the problem for public facts of the data.
    n_outputs : int, default=1
        Number of scores of a row.
    target_range : pair of float, default=(-inf, inf)
        Range of the loss's targets.
    weights : callable, optional
        Maps the user's targets to a factor of each row's weight.
    heaviest : float, default=1.0
        Bound on these factors.
    """

    targets: TargetMap
    problem: Callable[[DataSpec], Problem]
    n_outputs: int = 1
    target_range: tuple[float, float] = (-math.inf, math.inf)
    weights: TargetMap | None = None
    heaviest: float = 1.0


def check_labels(classes: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Check that labels can be compared with classes.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        All labels.
    y : ndarray of shape (n,)
        Labels of some rows.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    ValueError
        If some are missing or infinite, or text where the classes are numbers or the other way
        round.
    """
    y = check_not_missing(y)
    if len(y) and (is_text(y) is None or is_text(y) != is_text(classes)):
        raise ValueError(f"y has labels of another type than classes={classes.tolist()}")
    return y


def _indices(classes: NDArray[Any], y: NDArray[Any]) -> NDArray[np.intp]:
    y = check_labels(classes, y)
    indices = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not (classes[indices] == y).all():
        unknown = sorted(set(y.tolist()) - set(classes.tolist()))
        raise ValueError(
            f"y has labels that are not in classes={classes.tolist()}: {unknown[:_SHOWN]}"
        )
    return indices
