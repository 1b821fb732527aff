"""Shapes of fitted models of tables: inspect, export, plot and edit them."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.inference.estimates import Estimates
from dpglm.inference.inference import Inference
from dpglm.inference.summary import is_shrunk
from dpglm.problem import Link
from dpglm.problem.links import IdentityLink, LogitLink, LogLink
from dpglm.shapes import Errors, ReleasedModel, Shapes, shapes_of
from dpglm.solvers.uncertainty import NoiseCovariance
from dpglm.tables.schema import Schema

CURVES = "curves"
"""Name of the public fact with the resolution of curves."""
EDITS = "edited_shapes"
"""Name of the public fact with the edited shapes."""
MONOTONE = "monotone"
"""Name of the public fact with the directions of monotone curves."""

_SCORES: Mapping[type[Link], str] = MappingProxyType(
    {LogitLink: "log-odds of {}", LogLink: "logarithm of the mean of {}", IdentityLink: "{}"}
)


class HasShapes(abc.ABC):
    """Base of models with additive effects of the columns of a table, fitted or read."""

    @abc.abstractmethod
    def _released(self) -> ReleasedModel:
        """Return the released coefficients; a ValueError without a schema."""

    @property
    def shapes_(self) -> Shapes:
        """Contribution of each column or pair to the score, with simultaneous 95 % bands."""
        try:
            return self.shapes()
        except ValueError as error:
            # As in scikit-learn: unavailable attributes do not exist.
            raise AttributeError(str(error)) from error

    def shapes(self, *, level: float = 0.95, simultaneous: bool = True) -> Shapes:
        """Return the contribution of each column or declared pair to the score.

        Parameters
        ----------
        level : float, default=0.95
            Coverage probability of a band, in (0, 1).
        simultaneous : bool, default=True
            Whether a band covers a whole curve, or all levels, with that probability; else each
            single point.

        Notes
        -----
        With ``inference``, and for additive models, bands include sampling error and privacy noise;
        otherwise privacy noise only, or there are none if the noise is unknown to the solver. The
        features must come from a schema without a formula.

        Privacy: post-processing of the releases in ``privacy_``.
        """
        return shapes_of(self._released(), level=level, simultaneous=simultaneous)

    def shapes_table(self) -> Any:
        """Return all shapes as a pandas table of points: knots and levels.

        ``shapes_.table()`` returns the same without pandas; ``shapes_.to_csv`` writes it.
        """
        import pandas as pd

        return pd.DataFrame(self.shapes_.table())

    def plot_shapes(
        self, most: int | None = None, *, common_scale: bool = False, **options: Any
    ) -> Any:
        """Plot the shapes: a panel for each column or pair.

        Parameters
        ----------
        most : int, optional
            Maximum number of panels, largest standard deviation first; by default 12.
        common_scale : bool, default=False
            Whether all panels have the same scale; otherwise each its own.
        **options
            Options of ``shapes``.

        Raises
        ------
        ImportError
            If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
        """
        return self.shapes(**options).plot(most, common_scale=common_scale)


def released_model(estimator: Any, schema: Schema | None, errors: Errors | None) -> ReleasedModel:
    """Return the released part of a fitted linear model of a schema's features."""
    if schema is None:
        raise ValueError("shapes require a model with a schema encoder as its first step")
    certificate, classes = estimator.privacy_, getattr(estimator, "classes_", None)
    coef = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    name = schema.target.name if schema.has_target else "target"
    # With two classes the score is that of the second.
    outputs = (name,) if classes is None else tuple(map(str, classes[-len(coef) :].tolist()))
    edits, directions = certificate.fact(EDITS), certificate.fact(MONOTONE)
    words = _SCORES.get(type(certificate.problem.loss.link), "score of {}")
    unit = schema.target.unit
    named = outputs[0] if unit is None else f"{outputs[0]} ({unit})"
    return ReleasedModel(
        schema,
        coef,
        np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)),
        outputs,
        words.format(named if len(outputs) == 1 else "each class"),
        errors,
        {} if directions is None else dict(directions.value),
        is_shrunk(certificate),
        {} if edits is None else dict(edits.value),
    )


def errors_of(estimator: Any) -> Errors | None:
    """Return the known errors of a fitted model's coefficients: all of them, or those of noise."""
    known = vars(estimator)
    before = known.get("_unprojected")
    center = np.atleast_2d(np.asarray(estimator.coef_ if before is None else before, np.float64))
    errors: NDArray[np.float64] | None = known.get("_error_covariance")
    if errors is not None:
        return Errors(center, errors, np.ones(1), True, of_smoothing=True)
    inference: Inference | None = known.get("inference_")
    if inference is not None:
        return errors_of_estimates(inference.of_features.estimates)
    noise: NoiseCovariance | None = known.get("_noise_covariance")
    if noise is None:
        return None
    return Errors(center, noise.columns[:-1, :-1], noise.outputs, False)


def errors_of_estimates(found: Estimates, *, of_smoothing: bool = False) -> Errors:
    """Return the errors of a fit with inference; those of additive models include smoothing."""
    first = int(found.has_intercept)
    center, covariance = found.params[np.newaxis, first:], found.covariance[first:, first:]
    return Errors(center, covariance, np.ones(1), True, found.degrees_of_freedom, of_smoothing)
