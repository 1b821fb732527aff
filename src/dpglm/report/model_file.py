"""Model files: a released linear model with its certificate, as JSON that runs no code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array, check_is_fitted

from dpglm._validation import check_one_of
from dpglm.data.prepare import column_scaling
from dpglm.data.schema import Schema
from dpglm.data.user_matrix import finite_matrix
from dpglm.problem import Logistic, Loss, OneVsRest, Poisson, Softmax, Target, class_shares
from dpglm.report._files import read_json, write_json
from dpglm.report.certificate import Certificate, model_digest

__all__ = ["LinearModel", "Link", "load_model", "save_model"]

_FORMAT = "dpglm model"
_VERSION = 1

Link: TypeAlias = Literal["identity", "exp", "logistic", "ovr", "softmax"]
"""What turns linear predictions into means or probabilities; ``"identity"`` leaves them."""

_LINK_OF_LOSS: Mapping[type[Loss], Callable[[Any], Link]] = MappingProxyType(
    {
        Logistic: lambda loss: "logistic",
        Softmax: lambda loss: "softmax",
        Poisson: lambda loss: "exp",
        OneVsRest: lambda loss: "ovr" if type(loss.loss) is Logistic else "identity",
    }
)
_MEAN: Mapping[str, Callable[[NDArray[np.float64]], Any]] = MappingProxyType(
    {
        "identity": lambda z: z,
        "exp": Poisson().predict,
        "logistic": lambda z: np.column_stack([Logistic().predict(-z), Logistic().predict(z)]),
        "ovr": class_shares,
        "softmax": Softmax().predict,
    }
)
_PROBABILISTIC = ("logistic", "ovr", "softmax")
_FIELDS = (
    "estimator",
    "classes",
    "link",
    "feature_names",
    "coef",
    "intercept",
    "schema",
    "certificate",
)


@final
@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear model as it was released.

    Parameters
    ----------
    estimator : str
        Class that fitted it.
    coef_, intercept_ : ndarray
        As the estimator had them.
    classes_ : ndarray of shape (n_classes,) or None
        Labels of a classifier; None for a regressor.
    link : {"identity", "exp", "logistic", "ovr", "softmax"}
        What turns linear predictions into means or probabilities.
    feature_names : tuple of str or None
        Names of the features, where they are known.
    schema : Schema or None
        How a table's columns become features.
    certificate : Certificate
        The privacy claim.

    Notes
    -----
    With a schema, ``X`` is always a table with the schema's columns (a mapping, a DataFrame, or
    an array in the schema's order), which is encoded first. Without one it is a matrix of
    features, as for the estimator. Features are clipped to the ``feature_bounds`` of the fit,
    if it had any, as the estimator's are.
    """

    estimator: str
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    classes_: NDArray[Any] | None
    link: Link
    feature_names: tuple[str, ...] | None
    schema: Schema | None
    certificate: Certificate

    @property
    def n_features(self) -> int:
        """Number of features after encoding."""
        return int(self.coef_.shape[-1])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Predict the linear scores of a classifier.

        Parameters
        ----------
        X : table or matrix
            See the class.

        Returns
        -------
        ndarray of shape (n,) for two classes, (n, n_classes) for more

        Raises
        ------
        ValueError
            If the model is a regressor, or ``X`` does not match it.
        """
        if self.classes_ is None:
            raise ValueError(f"{self.estimator} is a regressor: it has predict only")
        return self._scores(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict class probabilities.

        Parameters
        ----------
        X : table or matrix
            See the class.

        Returns
        -------
        ndarray of shape (n, n_classes)

        Raises
        ------
        ValueError
            If the model gives none, or ``X`` does not match it.
        """
        if self.link not in _PROBABILISTIC:
            raise ValueError(f"{self.estimator} does not model probabilities")
        return np.asarray(_MEAN[self.link](self._scores(X)), dtype=np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict labels, or means of the target.

        Parameters
        ----------
        X : table or matrix
            See the class.

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        ValueError
            If ``X`` does not match the model.
        """
        z = self._scores(X)
        if self.classes_ is None:
            return np.asarray(_MEAN[self.link](z))
        indices = (z > 0.0).astype(np.intp) if z.ndim == 1 else z.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[indices]
        return labels

    def _scores(self, X: Any) -> NDArray[np.float64]:
        features = self._features(X)
        bounds = self.certificate.fact("feature_bounds")
        if bounds is not None:
            features = column_scaling(tuple(bounds.value), self.n_features).clip_matrix(features)
        z: NDArray[np.float64] = features @ self.coef_.T + self.intercept_
        return z.ravel() if z.ndim == 2 and z.shape[1] == 1 else z

    def _features(self, X: Any) -> Any:
        if self.schema is not None:
            return self.schema.encode(X)
        given = getattr(X, "columns", None)
        if given is not None and self.feature_names is not None:
            names = tuple(str(name) for name in given)
            if names != self.feature_names:
                raise ValueError(
                    f"X must have the columns {list(self.feature_names)} in this order, got "
                    f"{list(names)}"
                )
        X, _ = finite_matrix(X, lambda **options: (check_array(X, **options), None))
        if X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns, got {X.shape[1]}")
        return X


def save_model(estimator: Any, path: str | os.PathLike[str], schema: Schema | None = None) -> None:
    """Write a fitted estimator as a model file, whole or not at all.

    Parameters
    ----------
    estimator : fitted estimator of dpglm, or PrivatePipeline
        Not a pipeline of scikit-learn: its last step, with the schema of its first.
    path : path-like
        The file; JSON.
    schema : Schema, optional
        How the columns of the user's table became the features that were fitted. By default that
        of the pipeline.

    Raises
    ------
    ValueError
        If it is a pipeline of scikit-learn, the schema has another number of features, the
        labels cannot be written as JSON, or the pipeline has transformers that a model file
        cannot hold.
    OSError
        If the file cannot be written.

    Notes
    -----
    Privacy: the file holds released coefficients, public facts and the certificate; the training
    rows are not in it, nor is anything else that was computed from them.
    """
    # Here, as estimators know certificates.
    from dpglm.estimators.pipeline import PrivatePipeline

    if type(estimator) is Pipeline:
        raise ValueError(
            "estimator must be a linear model of dpglm or a PrivatePipeline, as a model file holds "
            "no other steps and its certificate pays for none, got a Pipeline of scikit-learn"
        )
    check_is_fitted(estimator, "privacy_")
    if isinstance(estimator, PrivatePipeline):
        estimator, own = estimator.linear_model()
        schema = own if schema is None else schema
    loss = estimator.solution_.plan.problem.loss
    names = getattr(estimator, "feature_names_in_", None)
    if schema is not None:
        names = schema.feature_names
        if len(names) != estimator.coef_.shape[-1]:
            raise ValueError(
                f"schema must have {estimator.coef_.shape[-1]} features, as the model has, got "
                f"{len(names)}"
            )
    is_classifier = loss.target in (Target.BINARY, Target.CLASS)
    write_json(
        path,
        {
            "format": _FORMAT,
            "version": _VERSION,
            "estimator": type(estimator).__name__,
            "classes": _labels(estimator.classes_) if is_classifier else None,
            "link": _LINK_OF_LOSS.get(type(loss), lambda loss: "identity")(loss),
            "feature_names": None if names is None else [str(name) for name in names],
            "coef": np.asarray(estimator.coef_, dtype=np.float64).tolist(),
            "intercept": np.asarray(estimator.intercept_, dtype=np.float64).tolist(),
            "schema": None if schema is None else schema.to_dict(),
            "certificate": estimator.privacy_.to_dict(),
        },
    )


def load_model(path: str | os.PathLike[str]) -> LinearModel:
    """Read a model file.

    Parameters
    ----------
    path : path-like
        What ``save_model`` wrote.

    Returns
    -------
    LinearModel

    Raises
    ------
    ValueError
        If the file is not a model file, a part of it is missing or wrong, or the coefficients
        are not those that the certificate was written for.
    OSError
        If it cannot be read.
    """
    document = read_json(path, _FORMAT, _VERSION)
    where = repr(os.fspath(path))
    odd = sorted(set(document) ^ {"format", "version", *_FIELDS})
    if odd:
        raise ValueError(f"{where} has missing or unknown keys: {odd}")
    check_one_of("link", document["link"], tuple(_MEAN))
    coef = _numbers("coef", document["coef"])
    intercept = _numbers("intercept", document["intercept"])
    classes = None if document["classes"] is None else np.asarray(document["classes"])
    names, schema = document["feature_names"], document["schema"]
    certificate = Certificate.from_dict(document["certificate"])
    if coef.shape[:-1] != intercept.shape or coef.ndim not in (1, 2):
        raise ValueError(
            f"coef and intercept of {where} do not fit: shapes {coef.shape}, {intercept.shape}"
        )
    if classes is not None and (len(classes), coef.shape[0]) not in _class_shapes(coef):
        raise ValueError(f"{where} has {len(classes)} classes, but coef of shape {coef.shape}")
    if model_digest(coef, intercept) != certificate.model_digest:
        raise ValueError(
            f"the coefficients in {where} are not those that its certificate was written for"
        )
    return LinearModel(
        estimator=str(document["estimator"]),
        coef_=coef,
        intercept_=intercept,
        classes_=classes,
        link=document["link"],
        feature_names=None if names is None else tuple(names),
        schema=None if schema is None else Schema.from_dict(schema),
        certificate=certificate,
    )


def _class_shapes(coef: NDArray[np.float64]) -> set[tuple[int, int]]:
    """Pairs of (classes, rows of coef) that belong together."""
    return {(2, 1), (coef.shape[0], coef.shape[0])} if coef.ndim == 2 else set()


def _numbers(name: str, value: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers, got {value!r}") from None


def _labels(classes: NDArray[Any]) -> list[Any]:
    labels: list[Any] = classes.tolist()
    if not all(isinstance(label, str | bool | int | float) for label in labels):
        raise ValueError(f"classes must be strings or numbers to be written, got {labels!r}")
    return labels
