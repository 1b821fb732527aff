"""A scorer for scikit-learn, each call of which is a private evaluation that a ledger pays for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, final

from numpy.typing import ArrayLike

from dpglm._validation import check_one_of, check_real
from dpglm.evaluation.binary import BinaryTask
from dpglm.evaluation.classes import ClassesTask
from dpglm.evaluation.evaluate import evaluate, task_of
from dpglm.evaluation.regression import RegressionTask
from dpglm.evaluation.task import Task
from dpglm.ledger.ledger import PrivacyLedger, as_ledger

__all__ = ["PrivateScorer", "private_scorer"]

_OF_PROBABILITIES = ("neg_log_loss", "neg_brier", "d2")
_OF_DECISIONS = ("accuracy", "balanced_accuracy", "recall", "specificity", "precision", "f1")
_METRICS: dict[type[Task], tuple[str, ...]] = {
    BinaryTask: ("auc", "ks", "lift", *_OF_DECISIONS, *_OF_PROBABILITIES),
    ClassesTask: ("accuracy", "balanced_accuracy", "auc", *_OF_PROBABILITIES),
    RegressionTask: ("r2", "d2", "neg_mse", "neg_rmse", "neg_mae"),
}


@final
@dataclass(frozen=True)
class PrivateScorer:
    """Scores models on private rows; made by ``private_scorer``.

    Parameters
    ----------
    metric, epsilon, delta, ledger, adjacency, target_bounds, threshold
        As for ``private_scorer``.
    """

    metric: str
    epsilon: float
    delta: float | Literal["auto"]
    ledger: PrivacyLedger
    adjacency: str
    target_bounds: tuple[float, float] | None
    threshold: float | None

    def __call__(self, estimator: Any, X: Any, y: ArrayLike) -> float:
        """Evaluate a fitted model on rows, pay for it, and return the metric.

        Parameters
        ----------
        estimator : object
            As ``model`` for ``evaluate``.
        X : array_like, table or collection
            Rows that it was not fitted on.
        y : array_like of shape (n,)
            Their targets.

        Returns
        -------
        float
            Larger is better.

        Raises
        ------
        ValueError
            If the model has no such metric, or its rows are wrong; nothing is released or spent.
        LedgerError
            If the ledger refuses; nothing is released or spent then.
        """
        thresholds = None if self.threshold is None else (self.threshold,)
        task = task_of(estimator, thresholds, self.target_bounds)
        known = _METRICS[type(task)]
        if isinstance(task, BinaryTask) and not task.probabilities:
            known = tuple(name for name in known if name not in _OF_PROBABILITIES)
        check_one_of("metric", self.metric, known)
        found = evaluate(
            estimator,
            X,
            y,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            target_bounds=self.target_bounds,
            thresholds=thresholds,
            ledger=self.ledger,
        )
        name = self.metric.removeprefix("neg_")
        estimate = found.number(name, self.threshold).estimate
        return estimate if name == self.metric else -estimate


def private_scorer(
    metric: str,
    *,
    epsilon: float,
    ledger: PrivacyLedger | str | os.PathLike[str],
    delta: float | Literal["auto"] = "auto",
    adjacency: Literal["zero_out", "replace_one"] = "zero_out",
    target_bounds: tuple[float, float] | None = None,
    threshold: float | None = None,
) -> PrivateScorer:
    """Make a scorer for scikit-learn's ``scoring=`` that a ledger pays for.

    Parameters
    ----------
    metric : str
        Two classes: "auc", "ks", "lift", "accuracy", "balanced_accuracy", "recall", "specificity",
        "precision", "f1", and of probabilities "neg_log_loss", "neg_brier", "d2". More: "accuracy",
        "balanced_accuracy", "auc", "neg_log_loss", "neg_brier", "d2". Numbers: "r2", "d2",
        "neg_mse", "neg_rmse", "neg_mae".
    epsilon : float
        Privacy budget of each call.
    ledger : PrivacyLedger or path-like
        Ledger of the data set. Every call is an entry; without a ledger nobody would see that
        several splits, models or metrics cost as many times as much.
    delta : float or "auto", default="auto"
        Privacy budget of each call, as for ``evaluate``.
    adjacency : {"zero_out", "replace_one"}, default="zero_out"
        Neighbouring relation. The number of rows of a split is public under both.
    target_bounds : pair of float, optional
        Public bounds on numbers to predict; by default those of the model.
    threshold : float, optional
        Of decisions between two classes; by default 0.5 for probabilities, and 0 for decision
        values.

    Returns
    -------
    PrivateScorer
        To be called with a fitted model, rows and targets.

    Raises
    ------
    ValueError
        If there is no ledger, or another argument is wrong.

    Notes
    -----
    Where scikit-learn calls it with the rows that a model was fitted on, as for
    ``return_train_score=True``, they pay again. A search that prefers the best of several noisy
    scores is private, too, as all of them are paid for; ``PrivateGridSearchCV`` does so for less.
    Fits of private models are not paid for by the scorer: give the models a ledger of their own.
    ``cross_val_score`` catches errors of scorers, and a ledger's refusal becomes a missing score
    with a warning; ``error_score="raise"`` ends the search instead.

    Privacy: each call is an ``evaluate``, whose cost the ledger records before anything is
    released. Only the metric is returned; what else was released is lost.

    Examples
    --------
    >>> import tempfile
    >>> import dpglm
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from dpglm.evaluation import private_scorer
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = dpglm.PrivacyLedger.create(
    ...     f"{folder.name}/rows.ledger", data="rows", budget=dpglm.ApproximateDP(2.0, 1e-5)
    ... )
    >>> X, y = make_classification(2000, random_state=0)
    >>> scorer = private_scorer("auc", epsilon=0.5, delta=1e-6, ledger=ledger)
    >>> scores = cross_val_score(LogisticRegression(), X, y, cv=3, scoring=scorer)
    >>> bool(scores.mean() > 0.9), len(ledger.contents().entries)
    (True, 3)
    >>> folder.cleanup()
    """
    every = tuple(dict.fromkeys(name for names in _METRICS.values() for name in names))
    check_one_of("metric", metric, every)
    check_real("epsilon", epsilon, above=0.0)
    check_one_of("adjacency", adjacency, ("zero_out", "replace_one"))
    if threshold is not None:
        check_real("threshold", threshold)
    account = as_ledger(ledger)
    if account is None:
        raise ValueError(
            "ledger must be a PrivacyLedger or its path, got None: each call of a scorer spends "
            "epsilon, and only a ledger adds them up"
        )
    return PrivateScorer(metric, epsilon, delta, account, adjacency, target_bounds, threshold)
