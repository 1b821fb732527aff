"""A scorer for scikit-learn: each call is a private evaluation that is charged to a ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, final

from numpy.typing import ArrayLike

from dpglm._validation import check_one_of, check_real
from dpglm.evaluation import binary, classes, regression
from dpglm.evaluation.evaluate import evaluate
from dpglm.evaluation.planning import task_of
from dpglm.ledger.ledger import PrivacyLedger, as_ledger

METRICS = (*binary.METRICS, *classes.METRICS, *regression.METRICS)
"""All metrics."""


@final
@dataclass(frozen=True)
class PrivateScorer:
    """Scores models on private rows; made by ``private_scorer``.

    Parameters
    ----------
    metric, epsilon, delta, ledger, adjacency, target_bounds, threshold
        See ``private_scorer``.
    """

    metric: str
    epsilon: float
    delta: float | Literal["auto"]
    ledger: PrivacyLedger
    adjacency: str
    target_bounds: tuple[float, float] | None
    threshold: float | None

    def __call__(self, estimator: Any, X: Any, y: ArrayLike) -> float:
        """Evaluate a fitted model, charge the ledger, and return the metric.

        Parameters
        ----------
        estimator : object
            A fitted model, as in ``evaluate``.
        X : array_like, table or collection
            Held-out rows.
        y : array_like of shape (n,)
            Targets of these rows.

        Returns
        -------
        float
            Larger is better.

        Raises
        ------
        ValueError
            If the model does not have the metric, or rows are invalid; nothing is spent then.
        LedgerError
            If the ledger refuses the charge; nothing is spent then.
        """
        thresholds = None if self.threshold is None else (self.threshold,)
        task = task_of(estimator, thresholds, self.target_bounds)
        known = {one.scorer: one for one in task.metrics if one.scorer is not None}
        check_one_of("metric", self.metric, tuple(known))
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
        metric = known[self.metric]
        return metric.better * found.number(metric.name, self.threshold).estimate


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
    """Make a scorer for scikit-learn's ``scoring=`` that charges a ledger for each call.

    Parameters
    ----------
    metric : str
        One of METRICS_BY_TASK.
    epsilon : float
        Privacy budget of each call.
    ledger : PrivacyLedger or path-like
        Ledger of the data set; every call adds an entry. It is required because several splits,
        models or metrics multiply the cost.
    delta : float or "auto", default="auto"
        Privacy budget of each call, as in ``evaluate``.
    adjacency : {"zero_out", "replace_one"}, default="zero_out"
        Neighbouring relation; under both the number of rows of a split is public.
    target_bounds : pair of float, optional
        Public bounds on numeric targets; by default those of the model.
    threshold : float, optional
        Threshold of decisions between two classes; by default 0.5 for probabilities, and 0 for
        decision values.

    Returns
    -------
    PrivateScorer
        A callable for a fitted model, rows and targets.

    Raises
    ------
    ValueError
        If ``ledger`` is None or an argument is invalid.

    Notes
    -----
    A call with the rows of the fit, as with ``return_train_score=True``, is charged too. A search
    that picks the best of several noisy scores is private because all of them are charged;
    ``PrivateGridSearchCV`` costs less. The scorer does not charge fits of private models: give the
    models their own ledger. ``cross_val_score`` catches errors of scorers, so that a refusal by the
    ledger becomes a missing score with a warning; ``error_score="raise"`` stops the search instead.

    Privacy: each call is an ``evaluate``, and the ledger records its cost before anything is
    released. Only the metric is returned.

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
    known = dict.fromkeys(one.scorer for one in METRICS if one.scorer is not None)
    check_one_of("metric", metric, tuple(known))
    check_real("epsilon", epsilon, above=0.0)
    check_one_of("adjacency", adjacency, ("zero_out", "replace_one"))
    if threshold is not None:
        check_real("threshold", threshold)
    account = as_ledger(ledger)
    if account is None:
        raise ValueError(
            "ledger must be a PrivacyLedger or its path, got None: each call of the scorer spends "
            "epsilon, and the ledger adds the calls up"
        )
    return PrivateScorer(metric, epsilon, delta, account, adjacency, target_bounds, threshold)


def _by_task() -> str:
    """List the scorers of each task, for the documentation."""
    found: dict[str, list[str]] = {}
    for one in METRICS:
        if one.scorer is not None:
            found.setdefault(one.of, []).append(f'"{one.scorer}"')
    return "; ".join(f"{', '.join(names)} ({task})" for task, names in found.items())


private_scorer.__doc__ = str(private_scorer.__doc__).replace("METRICS_BY_TASK", _by_task())
