"""The subject of a page or picture: a private estimator, alone or ending a pipeline."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpglm._words import rounded_up
from dpglm.data.prepare import column_scaling, column_units
from dpglm.guidance.coefficients import CoefficientTable
from dpglm.inference.inference import Inference
from dpglm.solvers.uncertainty import NoiseCovariance
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.schema import Schema


@final
@dataclass(frozen=True)
class Subject:
    """A fitted private estimator, the names of its columns, and cautions about the steps before it.

    ``units`` maps its coefficients to the units of the user's table, where these are others, and
    ``title`` is what the whole is called. There is a caution for each step that may have learned
    from the rows, and for what the certificate cannot know.
    """

    estimator: Any
    feature_names: tuple[str, ...] | None = None
    cautions: tuple[str, ...] = ()
    units: LinearUnits | None = None
    title: str | None = None


def subject(estimator: Any) -> Subject:
    """Find the private estimator of a linear model, private pipeline or search, or Pipeline."""
    return _readers().get(type(estimator), _alone)(estimator)


@functools.cache
def _readers() -> Mapping[type, Callable[[Any], Subject]]:
    # Here, as estimators know certificates.
    from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor
    from dpglm.estimators.composed.pipeline import PrivatePipeline
    from dpglm.estimators.composed.search import PrivateGridSearchCV, PrivateRandomizedSearchCV

    return MappingProxyType(
        {
            AdditiveClassifier: _of_a_table,
            AdditiveRegressor: _of_a_table,
            PrivatePipeline: _in_private_pipeline,
            PrivateGridSearchCV: _found,
            PrivateRandomizedSearchCV: _found,
            Pipeline: _in_pipeline,
        }
    )


def _alone(estimator: Any) -> Subject:
    from dpglm.estimators.linear._base import PrivateLinearModel

    if not isinstance(estimator, PrivateLinearModel):
        raise ValueError(
            "estimator must be a fitted linear model of dpglm, a PrivatePipeline or private search "
            f"of one, or a Pipeline that ends with one, got {type(estimator).__name__}"
        )
    check_is_fitted(estimator, "privacy_")
    table = estimator.privacy_.fact("schema")
    return Subject(estimator, units=None if table is None else Schema.from_dict(table.value).units)


def _in_private_pipeline(pipeline: Any) -> Subject:
    check_is_fitted(pipeline)
    names = pipeline.coefficient_names()
    return Subject(
        pipeline.estimator_,
        None if names is None else tuple(map(str, names)),
        units=pipeline.table_units(),
    )


def _of_a_table(model: Any) -> Subject:
    check_is_fitted(model)
    return dataclasses.replace(subject(model.estimator_), title=type(model).__name__)


def _found(search: Any) -> Subject:
    check_is_fitted(search, "best_estimator_")
    return subject(search.best_estimator_)


def _in_pipeline(pipeline: Pipeline) -> Subject:
    from dpglm.estimators.composed._composed import names_after, units_after

    *before, (_, last) = pipeline.steps
    found = subject(last)
    said = (_said(name, step) for name, step in before)
    cautions = (*(one for one in said if one is not None), *found.cautions)
    steps = [(name, step) for name, step in before if step is not None and step != "passthrough"]
    if found.feature_names is None and steps:
        names = names_after(steps)
        found = dataclasses.replace(
            found,
            feature_names=None if names is None else tuple(map(str, names)),
            units=units_after(steps),
        )
    return dataclasses.replace(found, cautions=cautions)


def _said(name: str, step: Any) -> str | None:
    """Return a caution about a step unless it is known not to learn from the rows."""
    from dpglm.estimators.composed._fixed import check_fixed, counts_entries
    from dpglm.estimators.composed.transformer import PrivateTransformer

    if step is None or step == "passthrough":
        return None
    if isinstance(step, PrivateTransformer):
        certificate = step.privacy_
        return (
            f"MORE WAS SPENT: the step {name!r} learned from the same rows, privately, for "
            f"epsilon {rounded_up(certificate.epsilon)} and delta {rounded_up(certificate.delta)} "
            "of its own, which come on top. A PrivatePipeline has one certificate for the whole."
        )
    try:
        check_fixed(name, step)
    except ValueError:
        return (
            f"NOT COVERED: the step {name!r} ({type(step).__name__}) before the model learned from "
            "the same rows, or may have, and no budget was spent on it. The guarantee covers the "
            "model's own fit only. In a PrivatePipeline, every step learns nothing or pays."
        )
    if counts_entries(step):
        return (
            f"NOT COVERED: the step {name!r} ({type(step).__name__}) asked how many entries of all "
            "rows are not zero, to choose between dense and sparse. Give it sparse_threshold=0, or "
            "put it into a PrivatePipeline, which asks nothing."
        )
    return None


# The coefficients of a fitted estimator beside the noise that is expected in them.

TARGET = "target"
"""Name of a regressor's output."""


def coefficient_table(
    estimator: Any, feature_names: Sequence[str] | None = None, schema: Schema | None = None
) -> CoefficientTable:
    """Collect an estimator's effects, in the user's units, and the noise expected in them.

    The units are those of the table that ``schema`` encoded, by default the schema of the pipeline
    or of the certificate; without one, those of the columns that the estimator was given. Names
    of features are, by default, those of the effects, of the pipeline's columns, or of the
    estimator's, else ``x0``, ...
    """
    about = subject(estimator)
    estimator = about.estimator
    table_units = about.units if schema is None else schema.units
    values = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    intercepts = np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64))
    n_features = values.shape[1]
    units = LinearUnits.identity(n_features) if table_units is None else table_units
    if units.matrix.shape[1] != n_features + 1:
        raise ValueError(
            f"schema must have {n_features} features, as the model has, got "
            f"{units.matrix.shape[1] - 1}"
        )
    n_effects = units.matrix.shape[0] - 1
    if feature_names is None:
        feature_names = units.names or about.feature_names
    if feature_names is None:
        default = [f"x{column}" for column in range(n_features)]
        feature_names = getattr(estimator, "feature_names_in_", default)
    names = tuple(str(name) for name in feature_names)
    if len(names) != n_effects:
        raise ValueError(f"feature_names must have {n_effects} names, got {len(names)}")
    effects = units.coefficients(np.vstack([values.T, intercepts]))
    return CoefficientTable(
        features=names,
        outputs=_output_names(estimator, len(values)),
        values=np.ascontiguousarray(effects[:-1].T),
        noise=_noise(estimator, units),
        reach=_reach(estimator, units),
        of_table=table_units is not None,
        intercepts=effects[-1],
        inference=_inference(estimator, table_units, names),
    )


def _noise(estimator: Any, units: LinearUnits) -> NDArray[np.float64] | None:
    """Return standard deviations of the noise in effects and intercept, where it is known."""
    known: NoiseCovariance | None = vars(estimator).get("_noise_covariance")
    return None if known is None else known.in_units(units).deviations.T


def _inference(estimator: Any, units: LinearUnits | None, names: Sequence[str]) -> Inference | None:
    """Return an estimator's intervals in the units of a table, if there is one."""
    own: Inference | None = getattr(estimator, "inference_", None)
    if own is None:
        return None
    # The certificate may have learned of the table since the fit.
    own = dataclasses.replace(own.of_features, certificate=estimator.privacy_)
    if units is None:
        return dataclasses.replace(own, estimates=own.estimates.renamed(names))
    return own.in_units(units, names)


def _reach(estimator: Any, units: LinearUnits) -> NDArray[np.float64]:
    """Half the width of the declared bounds of each effect's column; 1 where there are none."""
    if units.matrix.shape[0] != units.matrix.shape[1]:
        # Values of curves are as large as they are, and no slopes.
        return np.ones(units.matrix.shape[0] - 1)
    data, bounds = estimator.solution_.plan.data, estimator.privacy_.fact("feature_bounds")
    scaling = None if bounds is None else column_scaling(bounds.value, data.n_features)
    slopes = units.after(column_units(data, scaling)).matrix.diagonal()[: data.n_features]
    reach: NDArray[np.float64] = 1.0 / np.abs(slopes)
    return reach


def _output_names(estimator: Any, n_outputs: int) -> tuple[str, ...]:
    labels = getattr(estimator, "classes_", None)
    if labels is None:
        return (TARGET,)
    # One score for two classes speaks for the second.
    return tuple(str(label) for label in labels[-n_outputs:].tolist())
