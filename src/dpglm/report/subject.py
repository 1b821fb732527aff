"""The subject of a page or picture: a private estimator, alone or ending a pipeline."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpglm._words import rounded_up
from dpglm.tables.schema import Schema
from dpglm.tables.units import LinearUnits

__all__ = ["Subject", "subject"]


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
