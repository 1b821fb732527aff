"""Convex losses of several classes: softmax, squared codes, sparsemax; the check of their input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._calls import checked
from dpglm._validation import like, namespace
from dpglm.problem.links import (
    BinaryLink,
    FloatArray,
    OneVsRestLink,
    SoftmaxLink,
    as_float,
    over_classes,
    softmax_by_class,
)
from dpglm.problem.loss import Loss, Target


@final
@dataclass(frozen=True)
class Softmax(Loss):
    """Multinomial logistic loss ``log sum_k exp(z_k) - z_y`` for z of shape (n, K), K >= 2.

    Slope bound sqrt(2) (the limit where all the mass is on one wrong class), smoothness 1/2.
    Targets are integers 0, ..., K - 1. The constants hold for every K; ``slope_bound_on`` is the
    upper bound ``min(sqrt(2), 1 + z_bound / 2)``.

    Notes
    -----
    Privacy: the row gradient, a K x d matrix, has Frobenius norm up to ``sqrt(2) |x|``, not
    ``|x|``. Rescaled to a clip norm it is, for K >= 3, not the gradient of any function (Song et
    al. 2021, Theorem 5.3), so results that need a convex objective do not hold for a softmax that
    is really clipped.

    Examples
    --------
    >>> Softmax().slope([[0.0, 0.0]], [1]).tolist()
    [[0.5, -0.5]]
    """

    target = Target.CLASS
    link = SoftmaxLink()
    convex = True
    nonnegative = True
    dispersion = 1.0
    canonical = True

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        s = np.array(z.T, order="C")
        s -= s.max(axis=0)
        own = s[y, np.arange(y.size)]
        np.exp(s, out=s)
        result: FloatArray = np.log(over_classes(s)) - own
        return result

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        p = softmax_by_class(z)
        p[y, namespace(z).arange(len(y), device=y.device)] -= 1
        return p.T

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        p = softmax_by_class(z)
        p -= p * p
        return p.T

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return min(math.sqrt(2), 1 + z_bound / 2)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 0.5

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        return class_inputs(z, y)


@final
@dataclass(frozen=True)
class Sparsemax(Loss):
    """``(|z - e_y|^2 - |z - p|^2) / 2``, p the point of the simplex next to z, of shape (n, K).

    The slope is ``p - e_y``, where ``e_y`` is the code of the class: 1 at the class y and 0
    elsewhere. If the scores, shifted to a sum of 1, lie in the simplex, then the loss is that of
    least squares on the codes. Elsewhere it is smaller.

    Notes
    -----
    Slope bound sqrt(2), the diameter of the simplex; smoothness 1, as projections do not expand
    distances; ``slope_bound_on`` is the upper bound ``min(sqrt(2), 1 + z_bound)``, for every K.

    Privacy: as with ``Softmax``, clipped gradients are those of no function for K >= 3.

    References
    ----------
    Martins and Astudillo, "From softmax to sparsemax", ICML 2016, section 3. Blondel, Martins and
    Niculae, "Learning with Fenchel-Young losses", JMLR 21 (2020).

    Examples
    --------
    >>> Sparsemax().slope([[0.0, 0.0], [3.0, 1.0]], [1, 0]).tolist()
    [[0.5, -0.5], [0.0, 0.0]]
    """

    target = Target.CLASS
    link = None
    convex = True
    nonnegative = True
    of_codes = True

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        s, p = _projected(z)
        rows = np.arange(y.size)
        # (z - p) p is the level, as z - p is that wherever p is not 0; p - e_y sums to zero.
        level = over_classes((s - p) * p)
        beyond = level - (s - p)[y, rows]
        p[y, rows] -= 1
        result: FloatArray = 0.5 * over_classes(p * p) + np.maximum(beyond, 0)
        return result

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        _, p = _projected(z)
        p[y, namespace(z).arange(len(y), device=y.device)] -= 1
        return p.T

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        _, p = _projected(z)
        inside: FloatArray = (p > 0).astype(z.dtype)
        inside *= 1 - 1 / inside.sum(axis=0)
        return inside.T

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return min(math.sqrt(2), 1 + z_bound)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1.0

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        return class_inputs(z, y)


def _projected(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return scores, shifted to a maximum of 0, and their projection on the simplex, by class.

    Both are new arrays of shape (K, n). Each round leaves out scores below the level that makes the
    others sum to 1 (Michelot 1986), at most K times; a row that is done stays as it is,
    whatever the others are.
    """
    xp = namespace(z)
    # Class-major, as in ``softmax_by_class``.
    s: FloatArray = np.array(z.T, order="C") if xp is np else xp.asarray(z, copy=True).T
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        s -= xp.max(s, axis=0)
        # No score so far below the largest one has a share, so sums are of small numbers.
        near = xp.maximum(s, xp.full_like(s, -1.0))
        level, found = xp.full_like(s[0], -1.0), xp.zeros_like(s[0])
        while True:
            above = xp.asarray(near > level, dtype=s.dtype)
            counts = xp.sum(above, axis=0)
            if xp.all(counts == found):
                break
            # Never lower because of rounding: sets only shrink.
            found = counts
            level = xp.maximum(level, (over_classes(near * above) - 1) / counts)
        return s, xp.maximum(near - level, xp.zeros_like(near))


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


# A binary loss for each of K classes against the rest, as one loss of K outputs.


@checked
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
    >>> from dpglm.problem.losses import Hinge
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
