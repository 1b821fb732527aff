"""The losses that descent with clipped row gradients minimises, and losses of rows with offsets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._calls import checked
from dpglm._validation import check_kind, check_real, like, namespace
from dpglm.problem.links import FloatArray, Link, LogLink, as_float, limited_exp
from dpglm.problem.loss import ConvexScalarLoss, Loss, Target


@dataclass(frozen=True)
class _OfLoss(ConvexScalarLoss):
    """A loss made of another convex loss of one output."""

    loss: ConvexScalarLoss

    def __post_init__(self) -> None:
        check_kind("loss", self.loss, ConvexScalarLoss, "a convex loss of one output")

    @property
    def target(self) -> Target:
        return self.loss.target

    @property
    def link(self) -> Link | None:
        return self.loss.link


@final
@dataclass(frozen=True)
class ClippedLoss(_OfLoss):
    """The convex loss with the slope of ``loss`` clipped to ``[-c, c]``.

    It is ``loss`` where its slope is within the clip, and continues along the tangent elsewhere, as
    Huber's loss continues the squared loss. ``smoothness`` is that of ``loss`` where its slope is
    within the clip.

    Parameters
    ----------
    loss : ConvexScalarLoss
        Any convex loss of one output. For softmax with three or more classes clipped gradients are
        not the gradients of any function ([1]_, Theorem 5.3).
    clip_slope : float
        The clip c, positive. A row of norm ``|x|`` with a gradient clipped to norm C has
        ``c = C / |x|``; for rows of different norms see `clipped_value`.

    Notes
    -----
    Privacy: every row gradient ``slope x`` has norm at most ``clip_slope * |x|``. The loss is
    convex and smooth, as amplification by iteration requires.

    References
    ----------
    .. [1] S. Song, T. Steinke, O. Thakkar, A. Thakurta, "Evading the Curse of Dimensionality in
       Unconstrained Private GLMs", AISTATS 2021, Lemma 5.1, Corollary 5.2, Theorem 5.3.

    Examples
    --------
    >>> from dpglm.problem.losses import Squared
    >>> clipped = ClippedLoss(Squared(), clip_slope=2.0)
    >>> clipped.value([1.0, 10.0], [0.0, 0.0]).tolist()
    [0.5, 18.0]
    """

    clip_slope: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_real("clip_slope", self.clip_slope, above=0.0)
        vars(self).update(offset_bound=self.loss.offset_bound)

    @property
    def nonnegative(self) -> bool:
        return self.loss.nonnegative

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return self.loss.slope_inverse(slope, y)

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        return self.loss._inputs(z, y)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return clipped_value(self.loss, z, y, self.clip_slope)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return clipped_slope(self.loss, z, y, self.clip_slope)

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        curvature = self.loss.curvature(z, y)
        curvature *= np.abs(self.loss.slope(z, y)) <= self.clip_slope
        return curvature

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return min(self.clip_slope, self.loss.slope_bound_on(z_bound, y_low, y_high))

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.smoothness_below(self.clip_slope, z_bound, y_low, y_high)

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        # The caller takes the minimum of this and the bound of this loss's own clip.
        return self.loss.smoothness_below(limit, z_bound, y_low, y_high)


@checked
def clipped_slope(
    loss: ConvexScalarLoss, z: ArrayLike, y: ArrayLike, clip_slope: ArrayLike
) -> FloatArray:
    """Clip the slope of each row to ``[-clip_slope, clip_slope]``.

    Parameters
    ----------
    loss : ConvexScalarLoss
        Any convex loss of one output.
    z, y : array_like of float, shape (n,)
        Predictions and targets.
    clip_slope : float or array_like of float, shape (n,)
        Clip of each row, positive; inf (a row of zeros) leaves the slope as it is.
    """
    g = loss.slope(z, y)
    c = like(g, clip_slope, g.dtype)
    namespace(g).clip(g, -c, c, out=g)
    return g


@checked
def clipped_value(
    loss: ConvexScalarLoss, z: ArrayLike, y: ArrayLike, clip_slope: ArrayLike
) -> FloatArray:
    """Evaluate each row's clipped loss, with a clip of its own.

    The mean over rows, with ``clip_slope = C / |x_i|``, is the objective that gradient descent with
    row gradients clipped to norm C minimises (Song et al. 2021, Lemma 5.1).

    Parameters
    ----------
    loss, z, y, clip_slope
        As in ``clipped_slope``.
    """
    value, slope = loss.value(z, y), loss.slope(z, y)
    c = np.broadcast_to(np.asarray(clip_slope, dtype=slope.dtype), slope.shape)
    clipped = np.abs(slope) > c
    z_out, y_out = np.asarray(z, dtype=slope.dtype)[clipped], np.asarray(y, slope.dtype)[clipped]
    s = np.copysign(c[clipped], slope[clipped])
    touch = loss.slope_inverse(s, y_out)
    value[clipped] = loss.value(touch, y_out) + s * (z_out - touch)
    return value


# A loss with offsets: known terms of the scores, such as logarithms of exposures.


@final
@dataclass(frozen=True)
class WithOffset(_OfLoss):
    """The loss of the score plus the row's offset: ``loss(z + o, y)``.

    Parameters
    ----------
    loss : ConvexScalarLoss
        Any convex loss of one output.
    bound : float, optional
        Bound on the offsets' magnitude, at least 0; none by default.

    Notes
    -----
    Targets have shape (n, 2): target and offset of each row. Targets of shape (n,) are without one.
    ``variance`` takes means that include the offset. ``nonnegative`` is False, as its users need
    the loss at the score 0, which depends on the offset.

    Privacy: constants hold for all offsets within the bound, with z the score without its offset. A
    proof that needs a bound on predictions adds ``bound``. Solvers that clip need none.

    Examples
    --------
    >>> from dpglm.problem import Poisson
    >>> WithOffset(Poisson()).slope([0.0], [[3.0, math.log(2.0)]]).round(12).tolist()
    [-1.0]
    >>> WithOffset(Poisson(), bound=1.0).smoothness_on(2.0, 0.0, 1.0) == math.exp(3.0)
    True
    """

    bound: float = math.inf

    nonnegative = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bound != math.inf:
            check_real("bound", self.bound, least=0.0)
        vars(self).update(offset_bound=self.bound)

    @property
    def without_offset(self) -> Loss:
        return self.loss

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
        # Finite, so that a target of zero stays zero.
        return targets * limited_exp(-offsets)

    def variance(self, mean: FloatArray) -> FloatArray | None:
        return self.loss.variance(mean)

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        targets, offsets = _split(y)
        result: FloatArray = self.loss.slope_inverse(slope, targets) - offsets
        return result

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        targets, offsets = _split(y)
        return self.loss.value(z + offsets, targets)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        targets, offsets = _split(y)
        return self.loss.slope(z + offsets, targets)

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        targets, offsets = _split(y)
        return self.loss.curvature(z + offsets, targets)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.slope_bound_on(z_bound + self.bound, y_low, y_high)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.smoothness_on(z_bound + self.bound, y_low, y_high)

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.smoothness_below(limit, z_bound + self.bound, y_low, y_high)

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
