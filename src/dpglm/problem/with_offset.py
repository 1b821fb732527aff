"""A loss whose rows have offsets: known terms of their scores, such as logarithms of exposures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from numpy.typing import ArrayLike, NDArray

from dpglm._arrays import like, namespace
from dpglm._validation import check_real
from dpglm.problem._functions import FloatArray, as_float, limited_exp
from dpglm.problem.links import Link, LogLink
from dpglm.problem.loss import ConvexScalarLoss, Loss, Target

__all__ = ["WithOffset"]


@final
@dataclass(frozen=True)
class WithOffset(ConvexScalarLoss):
    """The loss of the score plus the row's offset: ``loss(z + o, y)``.

    Parameters
    ----------
    loss : ConvexScalarLoss
        Any convex loss of one output.
    bound : float, optional
        Bound on the offsets' magnitude, at least 0; none by default.

    Raises
    ------
    ValueError
        If ``loss`` is not convex or has more than one output, or ``bound`` is negative.

    Notes
    -----
    Targets have the shape (n, 2): target and offset of each row. Where they have the shape (n,),
    offsets are zero. ``variance`` is that at means with the offset in them.

    ``nonnegative`` is never declared, as what rests on it is the loss at the score 0, which here
    depends on the offset.

    Privacy: constants hold for all offsets within the bound, as z is the score without its offset:
    where a proof needs a bound on predictions, ``bound`` adds to it, and without one such a bound
    does not exist. Solvers that clip need none.

    Examples
    --------
    >>> from dpglm.problem import Poisson
    >>> WithOffset(Poisson()).slope([0.0], [[3.0, math.log(2.0)]]).round(12).tolist()
    [-1.0]
    >>> WithOffset(Poisson(), bound=1.0).smoothness_on(2.0, 0.0, 1.0) == math.exp(3.0)
    True
    """

    loss: ConvexScalarLoss
    bound: float = math.inf

    nonnegative = False

    def __post_init__(self) -> None:
        if not isinstance(self.loss, ConvexScalarLoss):
            raise ValueError(f"loss must be a convex loss of one output, got {self.loss!r}")
        if self.bound != math.inf:
            check_real("bound", self.bound, least=0.0)

    @property
    def offset_bound(self) -> float:
        return self.bound

    @property
    def without_offset(self) -> Loss:
        return self.loss

    @property
    def target(self) -> Target:
        return self.loss.target

    @property
    def link(self) -> Link | None:
        return self.loss.link

    @property
    def dispersion(self) -> float | None:
        return self.loss.dispersion

    @property
    def canonical(self) -> bool:
        return self.loss.canonical

    def targets_without_offset(self, y: NDArray[Any]) -> NDArray[Any]:
        targets, offsets = _split(y)
        if not isinstance(self.link, LogLink):
            return targets
        # Finite, so that a target of zero stays one.
        rates: NDArray[Any] = targets * limited_exp(-offsets)
        return rates

    def variance(self, mean: FloatArray) -> FloatArray | None:
        return self.loss.variance(mean)

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        targets, offsets = _split(y)
        z: FloatArray = self.loss.slope_inverse(slope, targets) - offsets
        return z

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        targets, offsets = _split(y)
        return self.loss.value(z + offsets, targets)

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        targets, offsets = _split(y)
        return self.loss.slope(z + offsets, targets)

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        targets, offsets = _split(y)
        return self.loss.curvature(z + offsets, targets)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.slope_bound_on(z_bound + self.bound, y_low, y_high)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.smoothness_on(z_bound + self.bound, y_low, y_high)

    def _smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        return self.loss.smoothness_below(slope_limit, z_bound + self.bound, y_low, y_high)

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        z = as_float(z)
        targets: NDArray[Any] = like(z, y)
        if z.ndim != 1 or targets.shape not in ((len(z),), (len(z), 2)):
            raise ValueError(
                f"z must have shape (n,) and y shape (n,) or (n, 2), got z of shape {z.shape} and "
                f"y of {targets.shape}"
            )
        return z, like(z, targets, z.dtype)


def _split(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return targets and offsets."""
    return (y, namespace(y).zeros_like(y)) if y.ndim == 1 else (y[:, 0], y[:, 1])
