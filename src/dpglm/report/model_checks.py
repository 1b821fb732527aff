"""Whether a linear model is the one that its certificate was written for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpglm._json import canonical_json
from dpglm.certificate.certificate import Certificate, model_digest
from dpglm.inference.estimates import Estimates
from dpglm.problem import BinaryLink, ClassLink

if TYPE_CHECKING:
    from dpglm.report.model_file import LinearModel

__all__ = ["check_shapes", "disagreements"]


def check_shapes(model: LinearModel) -> None:
    """Check that coefficients, intercept, labels, names, schema and link fit together."""
    coef, intercept, classes = model.coef_, model.intercept_, model.classes_
    if coef.shape[:-1] != intercept.shape or coef.ndim not in (1, 2) or not coef.size:
        raise ValueError(f"coef and intercept do not fit: shapes {coef.shape}, {intercept.shape}")
    n_outputs = coef.shape[0] if coef.ndim == 2 else None
    if classes is None:
        is_number = model.certificate.problem.loss.target.is_number
        if n_outputs is not None or model.link is None or not is_number:
            raise ValueError(f"a model without classes has coef of shape {coef.shape}")
    elif n_outputs is None or len(classes) != (2 if n_outputs == 1 else n_outputs):
        raise ValueError(f"there are {len(classes)} classes, but coef has the shape {coef.shape}")
    elif len(set(classes.tolist())) < len(classes):
        raise ValueError(f"classes must list each label once, got {classes.tolist()!r}")
    elif isinstance(model.link, ClassLink) and isinstance(model.link, BinaryLink) != (
        n_outputs == 1
    ):
        raise ValueError(f"link {model.link!r} does not fit {len(classes)} classes")
    names = model.feature_names
    if names is not None and len(names) != model.n_features:
        raise ValueError(f"there are {len(names)} feature_names for {model.n_features} features")
    estimates = model.estimates
    if estimates is not None and len(estimates.names) != model.n_features + estimates.has_intercept:
        raise ValueError(
            f"there are estimates of {list(estimates.names)!r} for {model.n_features} features"
        )
    if model.schema is not None and model.schema.feature_names != names:
        raise ValueError("feature_names are not those of the schema")


def disagreements(model: LinearModel) -> tuple[str, ...]:
    """Say where a model is not the one of its certificate; empty if it is."""
    return tuple(_disagreements(model, model.certificate))


def _disagreements(model: LinearModel, certificate: Certificate) -> Iterator[str]:
    if model_digest(model.coef_, model.intercept_) != certificate.model_digest:
        yield "the coefficients are not those that its certificate was written for"
    if model.estimates is not None:
        yield from _other_estimates(model, model.estimates)
    if model.estimator != _class_fitted(certificate.estimator):
        yield f"estimator is {model.estimator!r}, but its certificate's {certificate.estimator!r}"
    if certificate.loss != " ".join(repr(certificate.problem.loss).split()):
        yield f"the loss of its certificate is {certificate.loss}, but another was planned"
    labels = None if model.classes_ is None else model.classes_.tolist()
    names = None if model.feature_names is None else list(model.feature_names)
    schema = None if model.schema is None else model.schema.to_dict()
    if labels is not None or certificate.fact("classes") is not None:
        yield from _differs("classes", labels, certificate)
    if certificate.fact("schema") is not None:
        yield from _differs("schema", schema, certificate)
    elif schema is None:
        yield from _differs("feature_names", names, certificate)


def _other_estimates(model: LinearModel, estimates: Estimates) -> Iterator[str]:
    first = int(estimates.has_intercept)
    coef, intercept = estimates.params[first:], estimates.params[:first]
    if not np.array_equal(coef, model.coef_.ravel()) or not np.array_equal(
        intercept, np.atleast_1d(model.intercept_)[:first]
    ):
        yield "estimates are not about the coefficients of the model"
    names = model.feature_names
    if names is not None and estimates.names[first:] != names:
        yield "estimates are not about the features of the model"


def _class_fitted(estimator: str) -> str:
    """Return the class of a fit that may have been a search: ``Search(Class)``."""
    return estimator.rpartition("(")[2].removesuffix(")")


def _differs(name: str, own: Any, certificate: Certificate) -> Iterator[str]:
    fact = certificate.fact(name)
    if canonical_json({"": own}) != canonical_json({"": None if fact is None else fact.value}):
        yield f"{name} of the model are not those that its certificate names as public facts"
