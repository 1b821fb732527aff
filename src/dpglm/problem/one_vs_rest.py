"""A binary loss for each of K classes against the rest, as one loss of K outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from numpy.typing import ArrayLike, NDArray

from dpglm._arrays import namespace
from dpglm.problem._functions import FloatArray
from dpglm.problem.class_losses import class_inputs
from dpglm.problem.links import BinaryLink, OneVsRestLink
from dpglm.problem.loss import Loss, Target

__all__ = ["OneVsRest"]


@final
@dataclass(frozen=True)
class OneVsRest(Loss):
    """Sum over classes of a binary loss with target +1 for the row's class and -1 for others.

    Parameters
    ----------
    loss : Loss
        A loss with target ``BINARY``.
    n_classes : int
        Number K of classes, at least 2.

    Notes
    -----
    Privacy: a row's K slopes form one vector that is clipped as a whole, so all K models
    together are one release a step, with a slope bound of sqrt(K) times the binary one's (for
    a finite ``z_bound`` that is an upper bound, as it is used for every class).

    Examples
    --------
    >>> from dpglm.problem.hinge_losses import Hinge
    >>> OneVsRest(Hinge(), 3).slope([[0.0, 0.0, 2.0]], [0]).tolist()
    [[-1.0, 1.0, 1.0]]
    """

    loss: Loss
    n_classes: int

    target = Target.CLASS

    def __post_init__(self) -> None:
        if self.loss.target is not Target.BINARY:
            raise ValueError(f"loss must have binary targets, got {self.loss!r}")
        if self.n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {self.n_classes!r}")

    @property
    def convex(self) -> bool:
        return self.loss.convex

    @property
    def nonnegative(self) -> bool:
        return self.loss.nonnegative

    @property
    def link(self) -> OneVsRestLink | None:
        link = self.loss.link
        return OneVsRestLink(link) if isinstance(link, BinaryLink) else None

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        total: FloatArray = self._by_class(self.loss.value, z, y).sum(axis=1)
        return total

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return self._by_class(self.loss.slope, z, y)

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return self._by_class(self.loss.curvature, z, y)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return math.sqrt(self.n_classes) * self.loss.slope_bound_on(z_bound, -1.0, 1.0)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.smoothness_on(z_bound, -1.0, 1.0)

    def _by_class(self, function: Any, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        xp = namespace(z)
        signs = xp.full_like(z, -1.0)
        signs[xp.arange(len(y), device=y.device), y] = 1.0
        values: FloatArray = function(z.ravel(), signs.ravel()).reshape(z.shape)
        return values

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        return class_inputs(z, y, self.n_classes)
