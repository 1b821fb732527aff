"""Maps from the user's targets to those of a loss, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_one_of
from dpglm.data.collection import TargetMap
from dpglm.data.spec import DataSpec
from dpglm.problem import LOSSES, Loss, Problem, Target
from dpglm.tables.cells import LARGEST_WHOLE
from dpglm.tables.given import as_floats, as_offset, check_not_missing, is_text, spelled_as

_SHOWN = 5


@final
@dataclass(frozen=True, eq=False)
class ClassTargets:
    """Map labels to class indices, or to -1 and +1 for two classes."""

    classes: NDArray[Any]

    def __call__(self, y: NDArray[Any]) -> NDArray[Any]:
        indices = _indices(self.classes, y)
        return indices if len(self.classes) > 2 else 2 * indices - 1


@final
@dataclass(frozen=True, eq=False)
class ClassFactors:
    """Map labels to the weights of their classes."""

    classes: NDArray[Any]
    factors: NDArray[np.float64]

    def __call__(self, y: NDArray[Any]) -> NDArray[np.float64]:
        return self.factors[_indices(self.classes, y)]


@final
@dataclass(frozen=True)
class OffsetRange:
    """Public bounds on offsets, and the center that is subtracted and returns in the intercept."""

    low: float
    high: float
    center: float

    @property
    def largest(self) -> float:
        """Bound on the magnitude of centred offsets, with a margin for rounding."""
        return max(self.high - self.center, self.center - self.low) * (1.0 + 1e-6)


@final
@dataclass(frozen=True)
class TargetNumbers:
    """Map targets to numbers; two labels, if given, to 0 and 1."""

    labels: tuple[Any, Any] | None = None

    def __call__(self, y: NDArray[Any]) -> NDArray[np.float64]:
        if self.labels is None:
            return check_not_missing(as_floats("y", y))
        first, second = self.labels
        y = check_labels(np.asarray(self.labels), y)
        is_second: NDArray[np.bool_] = np.asarray(y == second)
        if not (is_second | (y == first)).all():
            unknown = sorted(set(y.tolist()) - set(self.labels))
            raise ValueError(
                f"y has labels that are not in classes={list(self.labels)}: {unknown[:_SHOWN]}"
            )
        return is_second.astype(np.float64)


@final
@dataclass(frozen=True)
class BoundedTargets:
    """Clip targets to public bounds, subtract ``center`` and divide by ``scale``.

    Rounding does not leave ``scaled_bounds``. Numbers beyond the bounds raise an error if
    ``strict``, like proportions; so do numbers that the loss cannot take, such as negative
    counts. A second column holds offsets, which are clipped to ``offsets`` and centred.
    """

    bounds: tuple[float, float]
    center: float
    scale: float
    scaled_bounds: tuple[float, float]
    kind: Target = Target.REAL
    strict: bool = False
    numbers: TargetNumbers = TargetNumbers()
    offsets: OffsetRange = OffsetRange(-math.inf, math.inf, 0.0)

    def __call__(self, y: NDArray[Any]) -> NDArray[np.float64]:
        if y.ndim == 2:
            offset = np.clip(as_offset(y[:, 1], len(y)), self.offsets.low, self.offsets.high)
            return np.column_stack([self(y[:, 0]), offset - self.offsets.center])
        numbers = self.numbers(y)
        if self.strict and len(numbers):
            low, high = self.bounds
            if numbers.min() < low or numbers.max() > high:
                raise ValueError(
                    f"y must be numbers from {low:g} to {high:g}. For counts of successes give the "
                    "proportions y / trials and sample_weight=trials; for other labels classes="
                )
        # The loss decides whether the bound itself is allowed.
        below = ~self.kind.admits(np.minimum(numbers, self.kind.bounds[1]))
        if below.any():
            row = int(below.argmax())
            raise ValueError(
                f"y must be {self.kind.words}, got {numbers[row]:g} in row {row + 1} of those read"
            )
        scaled = (np.clip(numbers, *self.bounds) - self.center) / self.scale
        clipped: NDArray[np.float64] = np.clip(scaled, *self.scaled_bounds)
        return clipped


@final
@dataclass(frozen=True)
class FitTask:
    """The encoding of targets, and the problem to solve.

    ``weights`` maps targets to a factor of the row's weight, at most ``heaviest``.
    """

    targets: TargetMap
    problem: Callable[[DataSpec], Problem]
    n_outputs: int = 1
    target_range: tuple[float, float] = (-math.inf, math.inf)
    weights: TargetMap | None = None
    heaviest: float = 1.0


def as_bounds(name: str, bounds: Any) -> tuple[float, float]:
    """Read a pair of finite numbers."""
    try:
        # Text is not a number.
        low, high = (math.nan if isinstance(one, str | bytes) else float(one) for one in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(
            f"{name} must be a pair of finite numbers (low, high) with low <= high, got {bounds!r}"
        )
    return low, high


def stated_loss(
    loss: Any, names: Callable[[Loss], bool], targets: Collection[Target], kind: str
) -> Loss:
    """Read a parameter ``loss``: a loss, or the name of one that satisfies ``names``."""
    known = [name for name, one in LOSSES.items() if names(one)]
    if isinstance(loss, str):
        loss = LOSSES[check_one_of("loss", loss, known)]
    if not isinstance(loss, Loss) or loss.target not in targets:
        raise ValueError(f"loss must be one of {known} or a Loss of {kind}, got {loss!r}")
    return loss


def check_labels(classes: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Check that no label is missing or of another type; return them as the classes spell them."""
    y = check_not_missing(y)
    if len(y) and (is_text(y) is None or is_text(y) != is_text(classes)):
        raise ValueError(f"y has labels of another type than classes={classes.tolist()}")
    kinds = {y.dtype.kind, classes.dtype.kind}
    if kinds <= set("iuf") and len(kinds) > 1 and np.abs(classes).max() > LARGEST_WHOLE:
        raise ValueError(
            f"y must hold labels of the type {classes.dtype}, got {y.dtype}: numbers beyond 2^53 "
            "do not compare exactly"
        )
    return spelled_as(y, classes.tolist())


def _indices(classes: NDArray[Any], y: NDArray[Any]) -> NDArray[np.intp]:
    y = check_labels(classes, y)
    indices = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not (classes[indices] == y).all():
        unknown = sorted(set(y.tolist()) - set(classes.tolist()))
        raise ValueError(
            f"y has labels that are not in classes={classes.tolist()}: {unknown[:_SHOWN]}"
        )
    return indices
