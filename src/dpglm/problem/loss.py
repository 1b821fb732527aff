"""A loss: a function of a prediction z and a target y, with declared constants."""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import like
from dpglm.problem.links import FloatArray, Link, as_float


class Target(enum.StrEnum):
    """The kind of target that a loss accepts.

    Attributes
    ----------
    BINARY
        -1 or +1.
    CLASS
        An integer class index 0, ..., K - 1.
    REAL
        Any finite number.
    COUNT
        Any finite number of at least 0.
    POSITIVE
        Any finite number above 0.
    PROPORTION
        A number from 0 to 1.
    bounds : tuple of float
        Infimum and supremum of the targets that such losses accept.
    words : str
        Description of the targets, for messages.
    is_number : bool
        Whether targets are numbers, and not labels.

    Examples
    --------
    >>> Target.BINARY.admits([-1, 0, 1]).tolist()
    [True, False, True]
    >>> Target.COUNT.bounds
    (0.0, inf)
    """

    BINARY = "binary", (-1.0, 1.0), "-1 or 1", lambda y: np.abs(y) == 1
    CLASS = (
        "class",
        (0.0, math.inf),
        "indices of classes",
        lambda y: np.isfinite(y) & (y >= 0) & (y == np.floor(y)),
    )
    REAL = "real", (-math.inf, math.inf), "finite numbers", np.isfinite
    COUNT = (
        "count",
        (0.0, math.inf),
        "numbers of at least 0",
        lambda y: np.isfinite(y) & (y >= 0),
    )
    POSITIVE = (
        "positive",
        (0.0, math.inf),
        "numbers above 0",
        lambda y: np.isfinite(y) & (y > 0),
    )
    PROPORTION = "proportion", (0.0, 1.0), "numbers from 0 to 1", lambda y: (y >= 0) & (y <= 1)

    bounds: tuple[float, float]
    words: str
    is_number: bool
    _check: Callable[[NDArray[Any]], NDArray[np.bool_]]

    def __new__(
        cls,
        value: str,
        bounds: tuple[float, float],
        words: str,
        check: Callable[[NDArray[Any]], NDArray[np.bool_]],
    ) -> Self:
        made = str.__new__(cls, value)
        made._value_, made.bounds, made.words, made._check = value, bounds, words, check
        made.is_number = value not in ("binary", "class")
        return made

    def admits(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Check each target.

        Privacy: ``slope_bound`` and other constants hold for admitted targets only, so every row is
        checked once before they are used. The losses do not repeat the check.
        """
        return self._check(np.asarray(y))


class Loss(abc.ABC):
    """A pointwise loss ``l(z, y)`` with its derivatives in z and its declared constants.

    Everything is vectorised over rows. Losses with one output take ``z`` and ``y`` of shape (n,);
    other shapes are refused, because (n,) against (n, 1) would silently become n x n. Results have
    the dtype of ``z`` (float32 or float64; anything else becomes float64). No method changes its
    arguments. ``slope`` also takes and returns torch tensors (``dpglm._validation.namespace``).

    A new loss defines ``target``, ``link``, ``convex``, ``nonnegative`` and the underscored
    methods, which may rely on checked arguments.

    Notes
    -----
    Privacy: the gradient in w of row i is ``slope(z_i, y_i) x_i``, so its L2 norm is at most
    ``slope_bound * |x_i|`` for targets that ``target`` admits, up to rounding (a few units in the
    last place).
    """

    offset_bound: float = 0.0
    """Bound on the magnitude of rows' offsets, which add to the score; 0 without offsets.

    Privacy: a proof that needs a bound on scores, or on their rounding, must add it.
    """

    @property
    @abc.abstractmethod
    def target(self) -> Target:
        """The kind of target."""

    @property
    @abc.abstractmethod
    def link(self) -> Link | None:
        """The map from scores to means or probabilities; None if scores only rank the classes."""

    @property
    @abc.abstractmethod
    def convex(self) -> bool:
        """Whether the loss is convex in z for every admitted y."""

    @property
    @abc.abstractmethod
    def nonnegative(self) -> bool:
        """Whether the loss is at least 0 for every z and every admitted y."""

    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Return the loss of each row, of shape (n,); ValueError if the shapes do not match.

        Parameters
        ----------
        z : array_like of float, shape (n,) or (n, K)
            Predictions.
        y : array_like, shape (n,)
            Targets of the kind ``target``.
        """
        return self._value(*self._inputs(np.asarray(z), np.asarray(y)))

    def slope(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Return the derivative of the loss in z, of its shape; at a kink one subgradient.

        Arguments and errors are those of ``value``. The caller may overwrite the result.
        """
        return self._slope(*self._inputs(z, y))

    def curvature(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Return the second derivative in z, of its shape; at a kink of the slope one limit.

        Arguments and errors are those of ``value``. For K outputs it is the diagonal of the
        Hessian.
        """
        return self._curvature(*self._inputs(np.asarray(z), np.asarray(y)))

    def for_scaled_targets(self, scale: float) -> Loss | None:
        """Return the loss with the same minimisers for standardized targets, divided by ``scale``.

        Its slope is a multiple of this one's, at standardized targets and the scores that
        ``link.original_scores`` maps to ``z``. None if targets must stay as they are.
        """
        return None

    def variance(self, mean: FloatArray) -> FloatArray | None:
        """Return the variance of targets with these means at a dispersion of 1.

        For binary targets it is that of the indicator of +1. None if the loss is not the deviance
        of an exponential family.
        """
        return None

    @property
    def dispersion(self) -> float | None:
        """Ratio of the targets' variance to ``variance``: 1 for labels and counts.

        None if it is a free parameter, as with squared loss, or there is no ``variance``.
        """
        return None

    @property
    def constants(self) -> Mapping[str, float]:
        """The numbers that choose this loss within its family, by the names that estimators use.

        By default the fields of the dataclass that are numbers, without ``dispersion``.
        """
        fields = getattr(self, "__dataclass_fields__", {})
        values = {name: getattr(self, name) for name in fields if name != "dispersion"}
        return {name: value for name, value in values.items() if type(value) in (int, float)}

    @property
    def canonical(self) -> bool:
        """Whether the link is the family's canonical one: the slope is ``mean - target``.

        The curvature is then ``variance`` at the mean, for every target.
        """
        return False

    @property
    def of_codes(self) -> bool:
        """Whether the loss compares scores with codes of the classes, as least squares does."""
        return False

    def targets_without_offset(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return targets of shape (n,), roughly as they would be if offsets were zero."""
        return y

    @property
    def without_offset(self) -> Loss:
        """The loss of a row with an offset of zero, for settings that no proof rests on."""
        return self

    @property
    def slope_bound(self) -> float:
        """Supremum of the slope's L2 norm over all z and all admitted y; possibly inf."""
        return self.slope_bound_on(math.inf, *self.target.bounds)

    @property
    def smoothness(self) -> float:
        """Supremum of the Hessian's operator norm over all z and all admitted y; possibly inf."""
        return self.smoothness_on(math.inf, *self.target.bounds)

    def slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        """Return the supremum of the slope's L2 norm for bounded predictions and targets.

        Parameters
        ----------
        z_bound : float
            Bound on the L2 norm of a row's prediction, at least 0; inf is allowed.
        y_low, y_high : float
            Range of the targets, within ``target.bounds``; infinite ends are allowed. Binary and
            class losses do not depend on it.
        """
        self._check_range(z_bound, y_low, y_high)
        return self._slope_bound_on(z_bound, y_low, y_high)

    def smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        """Return the supremum of the Hessian's operator norm for bounded predictions and targets.

        Arguments and errors are those of ``slope_bound_on``. It is a Lipschitz constant of the
        slope, and inf if the slope jumps.
        """
        self._check_range(z_bound, y_low, y_high)
        return self._smoothness_on(z_bound, y_low, y_high)

    @abc.abstractmethod
    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray: ...

    @abc.abstractmethod
    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray: ...

    @abc.abstractmethod
    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray: ...

    @abc.abstractmethod
    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float: ...

    @abc.abstractmethod
    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float: ...

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        z = as_float(z)
        targets: NDArray[Any] = like(z, y)
        if z.ndim != 1 or targets.shape != z.shape:
            raise ValueError(
                f"z and y must both have shape (n,), got z of shape {z.shape} and y of "
                f"{targets.shape}"
            )
        return z, like(z, targets, z.dtype)

    def _check_range(self, z_bound: float, y_low: float, y_high: float) -> None:
        if not z_bound >= 0:
            raise ValueError(f"z_bound must be at least 0, got {z_bound!r}")
        low, high = self.target.bounds
        if not (low <= y_low <= y_high <= high and y_low < math.inf and y_high > -math.inf):
            raise ValueError(
                f"y_low and y_high must satisfy {low} <= y_low <= y_high <= {high}, "
                f"got {y_low!r} and {y_high!r}"
            )


class ConvexScalarLoss(Loss):
    """A convex loss of one output: its slope grows with z, so it can be inverted and clipped."""

    convex = True

    @abc.abstractmethod
    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        """Find a point z where ``slope`` is a subgradient, for targets ``y``, both of shape (n,).

        Slopes are strictly between the infimum and the supremum at that y. Clipping needs slopes
        within the clip, which every loss here has (song2021, Lemma 5.1 does not say so).
        """

    def smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        """Return the supremum of the curvature where ``|slope| <= slope_limit``, above 0.

        This is the smoothness of the clipped loss; it can be finite where ``smoothness_on`` is not,
        which is the default. The other arguments and errors are those of ``smoothness_on``.
        """
        if not slope_limit > 0:
            raise ValueError(f"slope_limit must be greater than 0, got {slope_limit!r}")
        self._check_range(z_bound, y_low, y_high)
        return min(
            self._smoothness_on(z_bound, y_low, y_high),
            self._smoothness_below(slope_limit, z_bound, y_low, y_high),
        )

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        return math.inf
