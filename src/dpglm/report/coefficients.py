"""Coefficients side by side with the noise that is expected in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.prepare import column_scaling
from dpglm.problem import Target
from dpglm.report.subject import subject

__all__ = ["TARGET", "CoefficientTable", "coefficient_table"]

TARGET = "target"
"""Name of a regressor's output."""


@final
@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Released coefficients, and what of them may be noise.

    Parameters
    ----------
    features : tuple of str
        Name of each feature.
    outputs : tuple of str
        Name of each output: the class, or the target.
    values : ndarray of shape (n_outputs, n_features)
        Coefficients in the user's units.
    noise : ndarray of shape (n_features,)
        Expected standard deviation of the noise in each, an upper estimate.
    reach : ndarray of shape (n_features,)
        How much one unit of prepared data is in the user's units: half the width of a
        feature's declared bounds, 1 where there are none. Values times reach are comparable.
    has_reach : bool
        Whether bounds were declared.
    intercepts : ndarray of shape (n_outputs,)
        Intercepts in the user's units.
    intercept_noise : float
        Expected standard deviation of the noise in each of them, an upper estimate.
    """

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    values: NDArray[np.float64]
    noise: NDArray[np.float64]
    reach: NDArray[np.float64]
    has_reach: bool
    intercepts: NDArray[np.float64]
    intercept_noise: float

    def above_noise(self, deviations: float = 2.0) -> NDArray[np.bool_]:
        """Say which coefficients are further from zero than that many standard deviations."""
        result: NDArray[np.bool_] = np.abs(self.values) > deviations * self.noise
        return result

    def largest(self, output: int, most: int) -> NDArray[np.intp]:
        """Positions of an output's largest coefficients by comparable size, largest first."""
        size = np.abs(self.values[output] * self.reach)
        return np.argsort(-size, kind="stable")[:most]


def coefficient_table(
    estimator: Any, feature_names: Sequence[str] | None = None
) -> CoefficientTable:
    """Collect an estimator's coefficients and the noise expected in them.

    Parameters
    ----------
    estimator : fitted estimator of dpglm, or pipeline
        See ``dpglm.report.subject.subject``.
    feature_names : sequence of str, optional
        Default: the names the pipeline makes or the estimator saw, else ``x0``, ``x1``, ...

    Returns
    -------
    CoefficientTable

    Raises
    ------
    ValueError
        If there are more or fewer names than features, or there is no private estimator.

    Notes
    -----
    Privacy: the noise is that of the plan, a function of public facts only. It is an upper
    estimate, since the curvature of the data damps noise that was added early.
    """
    about = subject(estimator)
    estimator = about.estimator
    values = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    n_features = values.shape[1]
    if feature_names is None:
        feature_names = about.feature_names
    if feature_names is None:
        default = [f"x{column}" for column in range(n_features)]
        feature_names = getattr(estimator, "feature_names_in_", default)
    names = tuple(str(name) for name in feature_names)
    if len(names) != n_features:
        raise ValueError(f"feature_names must have {n_features} names, got {len(names)}")
    plan, certificate = estimator.solution_.plan, estimator.privacy_
    reach, center = np.ones(n_features), np.zeros(n_features)
    bounds = certificate.fact("feature_bounds")
    if bounds is not None:
        scaling = column_scaling(bounds.value, n_features)
        reach = scaling.sparse_scale if plan.data.sparse else scaling.scale
        center = center if plan.data.sparse else scaling.center
    targets, unit = certificate.fact("target_bounds"), 1.0
    if plan.problem.loss.target is Target.REAL and targets is not None:
        # Real targets are fitted on [-1, 1].
        unit = 0.5 * (targets.value[1] - targets.value[0]) or 1.0
    by_column = np.broadcast_to(estimator.solution_.coefficient_noise, (plan.data.n_columns,))
    noise = unit * by_column[:n_features]
    # Columns are centred before the fit, so their coefficients' noise enters the intercept.
    shifts = np.append(noise * center / reach, unit * by_column[-1] * plan.data.intercept)
    return CoefficientTable(
        features=names,
        outputs=_output_names(estimator, len(values)),
        values=values,
        noise=noise / reach,
        reach=reach,
        has_reach=bounds is not None,
        intercepts=np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)),
        intercept_noise=float(np.linalg.norm(shifts)),
    )


def _output_names(estimator: Any, n_outputs: int) -> tuple[str, ...]:
    labels = getattr(estimator, "classes_", None)
    if labels is None:
        return (TARGET,)
    # One score for two classes speaks for the second.
    return tuple(str(label) for label in labels[-n_outputs:].tolist())
