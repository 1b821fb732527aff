"""Predictions of fitted models, and the task of evaluating them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import in_one_line
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.statement import LABELS
from dpglm.data.collection import Collection
from dpglm.evaluation.binary import BinaryTask
from dpglm.evaluation.classes import ClassesTask
from dpglm.evaluation.regression import RegressionTask
from dpglm.evaluation.task import EvaluationTask


def task_of(
    model: Any, thresholds: Sequence[float] | None = None, target_bounds: Any = None
) -> EvaluationTask:
    """Return the task for the predictions of a fitted model.

    Parameters
    ----------
    model : object
        With ``classes_`` and ``predict_proba`` or ``decision_function``, or with ``predict``.
    thresholds : sequence of float, optional
        Thresholds of decisions between two classes.
    target_bounds : pair of float, optional
        Public bounds on numeric targets; by default those of the model.

    Returns
    -------
    EvaluationTask

    Raises
    ------
    ValueError
        If a classifier does not have scores, or numeric targets do not have bounds.
    """
    classes = getattr(model, "classes_", None)
    given = None if thresholds is None else tuple(thresholds)
    if (labels := _labels(model)) is not None:
        return BinaryTask(labels, given)
    if classes is None:
        bounds = getattr(model, "target_bounds", None) if target_bounds is None else target_bounds
        if bounds is None or np.shape(bounds) != (2,):
            raise ValueError(
                "target_bounds must be a pair of public bounds on the targets of a regressor, got "
                f"{in_one_line(bounds)}"
            )
        return RegressionTask(float(bounds[0]), float(bounds[1]))
    if len(classes) == 2:
        return BinaryTask(tuple(classes), given, has_probabilities(model))
    if not has_probabilities(model):
        raise ValueError(
            f"model must have predict_proba to be evaluated on {len(classes)} classes, and "
            f"{type(model).__name__} does not: give dpglm.evaluate_predictions scores in [0, 1], "
            "such as scipy.special.softmax(model.decision_function(X), axis=1); ignore their "
            "log loss"
        )
    return ClassesTask(tuple(classes))


def predictions_of(
    model: Any, X: Any, offset: Any = None, exposure: Any = None
) -> NDArray[np.float64]:
    """Return the scores of a classifier or the predictions of a regressor. Private.

    Parameters
    ----------
    model : object
        A fitted model, as in ``task_of``.
    X : array_like, table or collection
        Rows of any kind that the model predicts. Rows on a cluster are predicted there.
    offset, exposure : array_like of shape (n,) or float, optional
        Arguments of ``predict`` of a regressor of dpglm.

    Returns
    -------
    ndarray of shape (n,) or (n, n_classes)
        For two classes the probability of the second one, or decision values without
        probabilities.
    """
    classes = getattr(model, "classes_", None)
    given = {"offset": offset, "exposure": exposure}
    given = {name: one for name, one in given.items() if one is not None}
    if classes is None:
        if not hasattr(model, "predict"):
            raise ValueError(f"model must have predict, got {in_one_line(model)}")
        predicted = _in_memory(model.predict(X, **given))
        return predicted if _labels(model) is None else np.clip(predicted, 0.0, 1.0)
    if given:
        raise ValueError("offset and exposure must be None for a classifier")
    if has_probabilities(model):
        scores = _in_memory(model.predict_proba(X))
        return np.clip(scores[:, 1] if len(classes) == 2 else scores, 0.0, 1.0)
    return _in_memory(model.decision_function(X))


def check_offset_given(model: Any, X: Any, offset: Any, exposure: Any) -> None:
    """Refuse rows without offsets for a model that was fitted with offsets."""
    certificate = certificate_of(model)
    if certificate is None or certificate.problem.loss.offset_bound == 0.0:
        return
    has_own = isinstance(X, Collection) and X.has_offset
    if offset is None and exposure is None and not has_own:
        raise ValueError(
            "exposure or offset must be given, as in the fit of the model, got neither: give those "
            "of the rows, or exposure=1.0 (offset=0.0)"
        )


def has_probabilities(model: Any) -> bool:
    """Return whether a classifier, fitted or not, has probabilities."""
    # Model files have the method whether their loss has probabilities or not.
    return bool(
        getattr(model, "has_probabilities", callable(getattr(model, "predict_proba", None)))
    )


def certificate_of(model: Any) -> Certificate | None:
    """Return the certificate of a fitted model of dpglm or of a model file."""
    found = getattr(model, "privacy_", getattr(model, "certificate", None))
    return found if isinstance(found, Certificate) else None


def _labels(model: Any) -> tuple[Any, Any] | None:
    """Return the two labels of a regressor of labels, which predicts probabilities."""
    certificate = certificate_of(model)
    fact = None if certificate is None else certificate.fact(LABELS)
    return None if fact is None else (fact.value[0], fact.value[1])


def _in_memory(values: Any) -> NDArray[np.float64]:
    found = values.compute() if callable(getattr(values, "compute", None)) else values
    return np.asarray(found, dtype=np.float64)
