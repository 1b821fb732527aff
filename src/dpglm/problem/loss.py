"""What a loss is: a function of a prediction z and a target y, with declared constants."""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import like
from dpglm.problem.links import FloatArray, Link, as_float

__all__ = ["ConvexScalarLoss", "Loss", "Target"]


class Target(enum.StrEnum):
    """What a loss accepts as its target.

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

    Examples
    --------
    >>> Target.BINARY.admits([-1, 0, 1]).tolist()
    [True, False, True]
    >>> Target.COUNT.bounds
    (0.0, inf)
    """

    BINARY = "binary"
    CLASS = "class"
    REAL = "real"
    COUNT = "count"
    POSITIVE = "positive"
    PROPORTION = "proportion"

    @property
    def bounds(self) -> tuple[float, float]:
        """Infimum and supremum of the targets that any such loss accepts."""
        return _BOUNDS[self]

    @property
    def words(self) -> str:
        """What targets must be."""
        return _WORDS[self]

    @property
    def is_number(self) -> bool:
        """Whether targets are numbers, and not labels."""
        return self not in (Target.BINARY, Target.CLASS)

    def admits(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Say of each target whether the loss admits it.

        Parameters
        ----------
        y : array_like, any shape
            Numeric targets.

        Returns
        -------
        ndarray of bool, shape of y

        Notes
        -----
        Privacy: ``slope_bound`` and its kin hold for admitted targets only, so this is to be
        checked once for every row before any bound is relied on. The losses do not repeat it.
        """
        return _ADMITS[self](np.asarray(y))


_BOUNDS = MappingProxyType(
    {
        Target.BINARY: (-1.0, 1.0),
        Target.CLASS: (0.0, math.inf),
        Target.REAL: (-math.inf, math.inf),
        Target.COUNT: (0.0, math.inf),
        Target.POSITIVE: (0.0, math.inf),
        Target.PROPORTION: (0.0, 1.0),
    }
)

_WORDS = MappingProxyType(
    {
        Target.BINARY: "-1 or 1",
        Target.CLASS: "indices of classes",
        Target.REAL: "finite numbers",
        Target.COUNT: "numbers of at least 0",
        Target.POSITIVE: "numbers above 0",
        Target.PROPORTION: "numbers from 0 to 1",
    }
)

_ADMITS: MappingProxyType[Target, Callable[[NDArray[Any]], NDArray[np.bool_]]] = MappingProxyType(
    {
        Target.BINARY: lambda y: np.abs(y) == 1,
        Target.CLASS: lambda y: np.isfinite(y) & (y >= 0) & (y == np.floor(y)),
        Target.REAL: np.isfinite,
        Target.COUNT: lambda y: np.isfinite(y) & (y >= 0),
        Target.POSITIVE: lambda y: np.isfinite(y) & (y > 0),
        Target.PROPORTION: lambda y: (y >= 0) & (y <= 1),
    }
)


class Loss(abc.ABC):
    """A pointwise loss ``l(z, y)`` with its derivatives in z and the constants it declares.

    Everything is vectorised over rows. Scalar-output losses take ``z`` and ``y`` of shape
    (n,); other shapes are refused, because (n,) against (n, 1) would silently become n x n.
    The results have the dtype of ``z`` (float32 or float64; anything else becomes float64).
    No method changes its arguments.

    ``slope`` also takes tensors of torch, and returns one where they are. Its formula is written
    once, with the functions of ``dpglm._validation.namespace``.

    A new loss defines ``target``, ``link``, ``convex``, ``nonnegative`` and the
    underscored methods, which may rely on checked arguments.

    Notes
    -----
    Privacy: the gradient in w of row i is ``slope(z_i, y_i) x_i``, so its L2 norm is at most
    ``slope_bound * |x_i|``. That holds for targets that ``target`` admits, up to rounding
    (a few units in the last place of the dtype).
    """

    @property
    @abc.abstractmethod
    def target(self) -> Target:
        """The kind of target."""

    @property
    @abc.abstractmethod
    def link(self) -> Link | None:
        """Turns scores into means or probabilities; None if they only rank the classes."""

    @property
    @abc.abstractmethod
    def convex(self) -> bool:
        """Whether the loss is convex in z for every admitted y."""

    @property
    @abc.abstractmethod
    def nonnegative(self) -> bool:
        """Whether the loss is at least 0 for every z and every admitted y."""

    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Loss of each row.

        Parameters
        ----------
        z : array_like of float, shape (n,) or (n, K)
            Predictions.
        y : array_like, shape (n,)
            Targets, as ``target`` says.

        Returns
        -------
        ndarray of float, shape (n,)

        Raises
        ------
        ValueError
            If the shapes do not match.
        """
        return self._value(*self._inputs(np.asarray(z), np.asarray(y)))

    def slope(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Differentiate the loss in z (at a kink: give one subgradient).

        Parameters
        ----------
        z, y : array_like
            As for ``value``.

        Returns
        -------
        ndarray of float, shape of z
            A new array, which the caller may overwrite.

        Raises
        ------
        ValueError
            If the shapes do not match.
        """
        return self._slope(*self._inputs(z, y))

    def curvature(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Differentiate the loss twice in z (at a kink of the slope: give one of the two limits).

        Parameters
        ----------
        z, y : array_like
            As for ``value``.

        Returns
        -------
        ndarray of float, shape of z
            For K outputs the diagonal of the Hessian.

        Raises
        ------
        ValueError
            If the shapes do not match.
        """
        return self._curvature(*self._inputs(np.asarray(z), np.asarray(y)))

    def for_scaled_targets(self, scale: float) -> Loss | None:
        """Return the loss that has the same minimisers where targets are standardized.

        Parameters
        ----------
        scale : float
            What targets are divided by, after the shift that ``link.standardization`` allows.

        Returns
        -------
        Loss or None
            A loss ``l'`` whose slope is a multiple of this one's at the standardized targets and
            the scores that ``link.original_scores`` maps to ``z``; None if there is none, so that
            targets must be left as they are.
        """
        return None

    def variance(self, mean: FloatArray) -> FloatArray | None:
        """Return the variance of targets with these means, where the loss is a likelihood.

        Parameters
        ----------
        mean : ndarray of float, any shape
            Means of the target, within the range of ``link.inverse``.

        Returns
        -------
        ndarray of float, shape of mean, or None
            The variance function of the exponential family: that of a dispersion of one. For
            binary targets that of the indicator of +1, whose mean is its probability. None if
            the loss is not the deviance of such a family. The variance itself is ``dispersion``
            times this.
        """
        return None

    @property
    def dispersion(self) -> float | None:
        """By what the variance of a target exceeds ``variance``: 1 for labels and for counts.

        None where the loss does not say: the dispersion is then a free parameter, as for squared
        loss, or there is no ``variance``.
        """
        return None

    @property
    def constants(self) -> Mapping[str, float]:
        """The numbers that choose this loss of its family, by the names that estimators call them.

        By default the fields of the dataclass that are numbers, without a ``dispersion``.
        """
        fields = getattr(self, "__dataclass_fields__", {})
        values = {name: getattr(self, name) for name in fields if name != "dispersion"}
        return {name: value for name, value in values.items() if type(value) in (int, float)}

    @property
    def canonical(self) -> bool:
        """Whether the link is the family's canonical one: the slope is ``mean - target``.

        The curvature is then ``variance`` at the mean, whatever the target is.
        """
        return False

    @property
    def of_codes(self) -> bool:
        """Whether the loss compares scores with codes of the classes, as least squares does."""
        return False

    @property
    def offset_bound(self) -> float:
        """Bound on the magnitude of rows' offsets, which add to the score: 0 where there are none.

        Privacy: what rests on a bound on scores, or on their rounding, has to add it.
        """
        return 0.0

    def targets_without_offset(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return targets of shape (n,) as they would be if offsets were zero, roughly."""
        return y

    @property
    def without_offset(self) -> Loss:
        """The loss of a row whose offset is zero: this one, unless rows have offsets.

        Settings that no proof rests on are chosen by it.
        """
        return self

    @property
    def slope_bound(self) -> float:
        """Supremum of the slope's L2 norm over all z and all admitted y (inf if there is none)."""
        return self.slope_bound_on(math.inf, *self.target.bounds)

    @property
    def smoothness(self) -> float:
        """Supremum of the Hessian's operator norm over all z and admitted y (inf if none)."""
        return self.smoothness_on(math.inf, *self.target.bounds)

    def slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        """Supremum of the slope's L2 norm over ``|z| <= z_bound`` and ``y_low <= y <= y_high``.

        Parameters
        ----------
        z_bound : float
            Bound on the L2 norm of a row's prediction, at least 0; inf is allowed.
        y_low, y_high : float
            Range of the targets, within ``target.bounds``; infinite ends are allowed.
            Binary and class losses do not depend on it.

        Returns
        -------
        float
            Possibly inf.

        Raises
        ------
        ValueError
            If ``z_bound`` is negative or the range is empty or not admitted.
        """
        self._check_range(z_bound, y_low, y_high)
        return self._slope_bound_on(z_bound, y_low, y_high)

    def smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        """Supremum of the Hessian's operator norm over the range that ``slope_bound_on`` takes.

        Parameters
        ----------
        z_bound, y_low, y_high : float
            As for ``slope_bound_on``.

        Returns
        -------
        float
            A Lipschitz constant of the slope; inf if the slope jumps.

        Raises
        ------
        ValueError
            If ``z_bound`` is negative or the range is empty or not admitted.
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
        """Find a point z at which ``slope`` is a subgradient.

        Parameters
        ----------
        slope : ndarray of float, shape (n,)
            Values strictly between the infimum and the supremum of the slope at that y. (A
            loss whose slope is never within a clip could not be clipped: Lemma 5.1 of song2021
            is silent on it. It is none of the losses here.)
        y : ndarray of float, shape (n,)
            Targets, as ``target`` says.

        Returns
        -------
        ndarray of float, shape (n,)
        """

    def smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        """Supremum of the curvature where moreover ``|slope| <= slope_limit``.

        This is the smoothness of the loss whose slope is clipped there; it can be finite, or
        much smaller, where ``smoothness_on`` is not. Unless a loss overrides it, this is the
        upper bound ``smoothness_on``.

        Parameters
        ----------
        slope_limit : float
            Positive; inf is allowed.
        z_bound, y_low, y_high : float
            As in ``smoothness_on``.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If ``slope_limit`` is not positive, or as in ``smoothness_on``.
        """
        if not slope_limit > 0:
            raise ValueError(f"slope_limit must be greater than 0, got {slope_limit!r}")
        self._check_range(z_bound, y_low, y_high)
        return min(
            self._smoothness_on(z_bound, y_low, y_high),
            self._smoothness_below(slope_limit, z_bound, y_low, y_high),
        )

    def _smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        return math.inf
