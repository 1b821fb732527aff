"""The coefficients of a fitted estimator beside the noise that is expected in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpglm.data.prepare import column_scaling
from dpglm.guidance.coefficients import CoefficientTable
from dpglm.problem import Target
from dpglm.report.subject import subject

__all__ = ["TARGET", "coefficient_table"]

TARGET = "target"
"""Name of a regressor's output."""


def coefficient_table(
    estimator: Any, feature_names: Sequence[str] | None = None
) -> CoefficientTable:
    """Collect an estimator's coefficients and the noise expected in them.

    Names of features are, by default, those the pipeline makes or the estimator saw, else ``x0``,
    ...
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
