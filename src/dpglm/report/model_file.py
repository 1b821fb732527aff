"""Model files: a released linear model with its certificate, as JSON that runs no code."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpglm._calls import checked
from dpglm._codec import Form, Format, Text, Vector, items, mapping, number
from dpglm._json import canonical_json, in_file, load, shown
from dpglm._validation import check_path
from dpglm.certificate.certificate import Certificate, model_digest
from dpglm.data.collection import Output, RowPrediction, best_labels, scores, with_offset
from dpglm.export import export
from dpglm.inference.estimates import Estimates
from dpglm.inference.inference import Inference, LinearScores, checked_features
from dpglm.ledger.store import write_json
from dpglm.problem import BinaryLink, ClassLink, Link
from dpglm.shapes import Errors, ReleasedModel
from dpglm.shapes.collection import (
    CURVES,
    HasShapes,
    errors_of,
    errors_of_estimates,
    feature_means,
    released_model,
)
from dpglm.tables.encoding import column_scaling
from dpglm.tables.named import OffsetColumn, OffsetKind
from dpglm.tables.schema import Schema, SchemaDocument


def check_shapes(model: LinearModel) -> None:
    """Check that coefficients, intercept, labels, names, schema and link are consistent."""
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
    if model.noise is not None and model.noise.center.shape != np.atleast_2d(coef).shape:
        raise ValueError(f"there is noise of {model.noise.center.shape} coefficients")
    if model.means is not None and model.means.shape != coef.shape[-1:]:
        raise ValueError(f"there are means of {model.means.shape} features")
    if model.schema is not None and model.schema.feature_names != names:
        raise ValueError("feature_names are not those of the schema")


def disagreements(model: LinearModel) -> Iterator[str]:
    """Yield how a model differs from its certificate."""
    certificate, estimates, names = model.certificate, model.estimates, model.feature_names
    if model_digest(model.coef_, model.intercept_) != certificate.model_digest:
        yield "the coefficients are not those that its certificate was written for"
    if estimates is not None:
        first = int(estimates.has_intercept)
        coef, intercept = estimates.params[first:], estimates.params[:first]
        same = np.array_equal(coef, model.coef_.ravel())
        if not same or not np.array_equal(intercept, np.atleast_1d(model.intercept_)[:first]):
            yield "estimates are not about the coefficients of the model"
        if names is not None and estimates.names[first:] != names:
            yield "estimates are not about the features of the model"
    # A search is named ``Search(Class)``.
    if model.estimator != certificate.estimator.rpartition("(")[2].removesuffix(")"):
        yield f"estimator is {model.estimator!r}, but its certificate's {certificate.estimator!r}"
    if certificate.loss != " ".join(repr(certificate.problem.loss).split()):
        yield f"the loss of its certificate is {certificate.loss}, but the plan has another one"
    labels = None if model.classes_ is None else model.classes_.tolist()
    schema = None if model.schema is None else model.schema.to_dict()
    if labels is not None or certificate.fact("classes") is not None:
        yield from _differs("classes", labels, certificate)
    if certificate.fact("schema") is not None:
        yield from _differs("schema", schema, certificate)
    elif schema is None:
        yield from _differs("feature_names", None if names is None else list(names), certificate)


def _differs(name: str, own: Any, certificate: Certificate) -> Iterator[str]:
    fact = certificate.fact(name)
    if canonical_json({"": own}) != canonical_json({"": None if fact is None else fact.value}):
        yield f"{name} of the model are not those that its certificate names as public facts"


def _write_labels(classes: NDArray[Any]) -> list[Any]:
    labels: list[Any] = classes.tolist()
    if not all(isinstance(label, str | bool | int | float) for label in labels):
        raise ValueError(f"classes must be strings or numbers to be written, got {labels!r}")
    return labels


def _read_label(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float):
        raise ValueError(f"must be text, a number or true or false, got {shown(value)}")
    return value


def _read_numbers(value: Any) -> NDArray[np.float64]:
    """Read a number, an array of numbers, or arrays of equal length."""
    if not isinstance(value, list):
        return np.array(number(value))
    rows = items(_read_numbers)(value)
    if len({row.shape for row in rows}) > 1:
        raise ValueError("must have rows of equal length")
    return np.array(rows, dtype=np.float64)


_Labels: TypeAlias = Annotated[
    NDArray[Any], Form(_write_labels, lambda value: np.asarray(items(_read_label)(value)))
]
_Numbers: TypeAlias = Annotated[NDArray[np.float64], Form(np.ndarray.tolist, _read_numbers)]
_Certificate: TypeAlias = Annotated[Certificate, Form(Certificate.to_dict, Certificate.from_dict)]


# Larger matrices would make a model file of many megabytes.
_MOST_WITH_NOISE = 300


@final
@dataclass(frozen=True, eq=False)
class LinearModel(HasShapes):
    """A linear model as it was released.

    Parameters
    ----------
    estimator : str
        Class of the fitted estimator.
    coef_, intercept_ : ndarray
        Coefficients and intercept in the shape of the estimator.
    classes_ : ndarray of shape (n_classes,) or None
        Labels of a classifier; None for a regressor.
    feature_names : tuple of str or None
        Names of the features, if they are known.
    schema : Schema or None
        Encoding of a table as features.
    certificate : Certificate
        The privacy claim.
    estimates : Estimates or None
        Coefficients with their covariance, for fits with inference.
    noise : Errors or None
        Errors of the coefficients, or those due to privacy noise, for other fits where known.
    means : ndarray of shape (n_features,) or None
        Released means of the features, with a schema.

    Notes
    -----
    With a schema, ``X`` is a table with its columns (a mapping, a DataFrame, or an array in the
    order of the schema). Otherwise it is a matrix of features, as in ``fit``. Features are clipped
    to the ``feature_bounds`` of the fit.
    """

    estimator: str
    coef_: _Numbers
    intercept_: _Numbers
    classes_: _Labels | None
    feature_names: tuple[Text, ...] | None
    schema: SchemaDocument | None
    certificate: _Certificate
    estimates: Estimates | None = None
    noise: Errors | None = None
    means: Vector | None = None

    @property
    def privacy_(self) -> Certificate:
        """The certificate, under the name that fitted estimators have."""
        return self.certificate

    @property
    def inference_(self) -> Inference:
        """The ``inference``, under the name that fitted estimators have."""
        found = self.inference
        if found is None:
            raise AttributeError("inference_ requires a fit with inference=True")
        return found

    @property
    def feature_names_in_(self) -> tuple[str, ...] | None:
        """Names of the features of a model without a schema, if known."""
        return self.feature_names

    def export(self, to: str) -> Any:
        """Write the predictions as SQL, Python or ONNX; see ``LogisticRegression.export``.

        Parameters
        ----------
        to : {"sql", "python", "onnx"}
            The language.

        Returns
        -------
        str or onnx.ModelProto
        """
        return export(self, to, self.schema)

    def _released(self) -> ReleasedModel:
        known = self.noise
        if self.estimates is not None:
            is_additive = self.certificate.fact(CURVES) is not None
            known = errors_of_estimates(self.estimates, of_smoothing=is_additive)
        return released_model(self, self.schema, known)

    @property
    def inference(self) -> Inference | None:
        """Standard errors, intervals and tests of a fit with inference.

        With a schema they are in the units of its table.
        """
        if self.estimates is None:
            return None
        scores = LinearScores(self._clipped_features, self.estimates)
        found = Inference(self.estimates, self.certificate, scores)
        return found if self.schema is None else found.in_units(self.schema.units)

    @property
    def link(self) -> Link | None:
        """Link of the loss, which maps linear scores to means or probabilities."""
        return self.certificate.problem.loss.link

    @property
    def offset_column(self) -> OffsetColumn | None:
        """Kind and column of the offsets of the fit; None without offsets."""
        for kind in get_args(OffsetKind):
            fact = self.certificate.fact(kind)
            if fact is not None:
                return OffsetColumn(kind, fact.value if isinstance(fact.value, str) else None)
        return None

    @property
    def n_features(self) -> int:
        """Number of features after encoding."""
        return int(self.coef_.shape[-1])

    @property
    def has_probabilities(self) -> bool:
        """Whether the model has ``predict_proba``."""
        return self.classes_ is not None and isinstance(self.link, ClassLink)

    @property
    def target_bounds(self) -> tuple[float, float] | None:
        """Public bounds on the targets of the fit, if there were any."""
        fact = self.certificate.fact("target_bounds")
        if fact is None or self.classes_ is not None:
            return None
        low, high = fact.value
        return float(low), float(high)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Predict linear scores of classes: shape (n,) for two classes, else (n, n_classes)."""
        if self.classes_ is None:
            raise ValueError(f"{self.estimator} is a regressor and has predict only")
        return self._predicted(X, scores)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Predict class probabilities of shape (n, n_classes), if the loss models them."""
        return self._predicted(X, self._class_link().probabilities)

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Predict log probabilities, finite even if probabilities underflow to 0."""
        return self._predicted(X, self._class_link().log_probabilities)

    def _class_link(self) -> ClassLink:
        if not isinstance(self.link, ClassLink):
            raise ValueError(f"{self.estimator} does not model probabilities")
        return self.link

    def predict(self, X: Any, *, offset: Any = None, exposure: Any = None) -> NDArray[Any]:
        """Predict labels or means of the target, of shape (n,); offsets as in ``fit``."""
        if self.classes_ is not None:
            if offset is not None or exposure is not None:
                raise ValueError("offset and exposure must be None for a classifier")
            return self._predicted(X, functools.partial(best_labels, self.classes_))
        if self.link is None:
            raise ValueError(f"{self.estimator} cannot predict without a link")
        return self._predicted(X, with_offset(self.link.inverse, offset, exposure))

    def _predicted(self, X: Any, output: Output) -> NDArray[Any]:
        most = self.certificate.largest_score
        predict = RowPrediction(self.coef_, self.intercept_, None, output, most)
        return predict(self._clipped_features(X))

    def _clipped_features(self, X: Any) -> Any:
        if self.schema is not None:
            X = self.schema.encode(X)
        bounds = self.certificate.fact("feature_bounds")
        scaling = None if bounds is None else column_scaling(tuple(bounds.value), self.n_features)
        return checked_features(self.n_features, self.feature_names, scaling, X)


FORMAT = Format("dpglm model", 5, LinearModel, {2: "0.1", 3: "0.1", 4: "0.1"})
"""The format of model files; the key "digest" seals the rest."""


@checked
def save_model(estimator: Any, path: str | os.PathLike[str], schema: Schema | None = None) -> None:
    """Write a fitted estimator as a model file, whole or not at all.

    Parameters
    ----------
    estimator : fitted estimator of dpglm, additive model or PrivatePipeline
        For a pipeline of scikit-learn give its last step, with the schema of its first step.
    path : path-like
        The JSON file.
    schema : Schema, optional
        Encoding of the table as features; by default that of the pipeline, or of the certificate.

    Raises
    ------
    ValueError
        If the schema does not match the fit, labels cannot be written as JSON, or a model file
        cannot represent a transformer of the pipeline.
    OSError
        If the file cannot be written.

    Notes
    -----
    Privacy: the file contains released coefficients with the covariance of their noise, public
    facts and the certificate only.
    """
    # Here, as estimators know certificates.
    from dpglm.estimators.composed._composed import ComposedModel

    if type(estimator) is Pipeline or not hasattr(estimator, "fit"):
        raise ValueError(
            "estimator must be a linear model of dpglm or a PrivatePipeline, as a model file does "
            f"not contain other steps, got a {type(estimator).__name__}"
        )
    check_is_fitted(estimator, "privacy_")
    if isinstance(estimator, ComposedModel):
        estimator, own = estimator.linear_model()
        schema = own if schema is None else schema
    schema = estimator.privacy_.schema if schema is None else schema
    names = getattr(estimator, "feature_names_in_", None)
    if schema is not None:
        names = schema.feature_names
        if len(names) != estimator.coef_.shape[-1]:
            raise ValueError(
                f"schema must have {estimator.coef_.shape[-1]} features, as the model has, got "
                f"{len(names)}"
            )
    inference = getattr(estimator, "inference_", None)
    estimates = noise = None
    if inference is not None:
        estimates = inference.of_features.estimates
        estimates = estimates if names is None else estimates.renamed(names)
    elif schema is not None and (known := errors_of(estimator)) is not None:
        is_small = len(known.covariance) <= _MOST_WITH_NOISE
        noise = known if is_small and np.isfinite(known.covariance).all() else None
    model = LinearModel(
        estimator=type(estimator).__name__,
        coef_=np.asarray(estimator.coef_, dtype=np.float64),
        intercept_=np.asarray(estimator.intercept_, dtype=np.float64),
        classes_=getattr(estimator, "classes_", None),
        feature_names=None if names is None else tuple(str(name) for name in names),
        schema=schema,
        certificate=estimator.privacy_,
        estimates=estimates,
        noise=noise,
        means=None if schema is None else feature_means(estimator),
    )
    document = FORMAT.write(model)
    for name in ("noise", "means"):
        if document[name] is None:
            del document[name]
    if found := [*disagreements(model)]:
        raise ValueError(f"the model cannot be written: {'; '.join(found)}")
    write_json(path, document | {"digest": _digest(document)})


def load_model(path: str | os.PathLike[str]) -> LinearModel:
    """Read a model file.

    Parameters
    ----------
    path : path-like
        File that ``save_model`` wrote.

    Raises
    ------
    ValueError
        If the file is not a valid model file, was changed after it was written, does not match its
        certificate, or has a loss that has not been imported.
    OSError
        If it cannot be read.
    """
    with in_file(check_path("path", path)):
        model, found = read_model(load(path))
        if found:
            raise ValueError("; ".join(found))
        return model


def read_model(document: Any) -> tuple[LinearModel, tuple[str, ...]]:
    """Return a model, and how it differs from its certificate or its digest."""
    content = mapping(document)
    digest = content.pop("digest", None)
    model = FORMAT.read({"noise": None, "means": None, **content})
    check_shapes(model)
    found = [*disagreements(model)]
    if digest != _digest(content):
        found.append("the file was changed after it was written: its digest differs")
    return model, tuple(found)


def _digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document, whatever its layout."""
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()
