"""evaluate: how good a model is on held-out private rows, on one budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_bool, check_list, check_one_of, check_two, in_one_line
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.statement import LABELS
from dpglm.data.collection import Collection, as_collection
from dpglm.data.groups import LimitedGroups, public_size
from dpglm.evaluation.binary import BinaryTask
from dpglm.evaluation.classes import ClassesTask
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.planning import EvaluationPlan, plan_evaluation
from dpglm.evaluation.regression import RegressionTask
from dpglm.evaluation.task import Task
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget, stated_budget
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.given import Where

# What a model says of rows, and which task that is.


def task_of(
    model: Any, thresholds: Sequence[float] | None = None, target_bounds: Any = None
) -> Task:
    """Return the task of a fitted model, from what it says of itself.

    Parameters
    ----------
    model : object
        With ``classes_`` and ``predict_proba`` or ``decision_function``, or with ``predict``.
    thresholds : tuple of float
        Of two classes: scores at which decisions are of interest.
    target_bounds : pair of float, optional
        Of numbers: public bounds on the targets; by default the model's own parameter.

    Returns
    -------
    Task

    Raises
    ------
    ValueError
        If a classifier has no scores, or there are no bounds on the targets.
    """
    classes = getattr(model, "classes_", None)
    given = None if thresholds is None else tuple(thresholds)
    if (labels := _labels(model)) is not None:
        return BinaryTask(labels, given)
    if classes is None:
        bounds = getattr(model, "target_bounds", None) if target_bounds is None else target_bounds
        if bounds is None or np.shape(bounds) != (2,):
            raise ValueError(
                "target_bounds must be a pair of public bounds on the targets for a model of "
                f"numbers, got {in_one_line(bounds)}"
            )
        return RegressionTask(float(bounds[0]), float(bounds[1]))
    if len(classes) == 2:
        return BinaryTask(tuple(classes), given, has_probabilities(model))
    if not has_probabilities(model):
        raise ValueError(
            f"model must have predict_proba to be evaluated on {len(classes)} classes, and "
            f"{type(model).__name__} has not: give dpglm.evaluate_predictions scores in [0, 1], "
            "such as scipy.special.softmax(model.decision_function(X), axis=1), whose log loss "
            "says little"
        )
    return ClassesTask(tuple(classes))


def predictions_of(
    model: Any, X: Any, offset: Any = None, exposure: Any = None
) -> NDArray[np.float64]:
    """Return a model's scores of classes, or its predictions of numbers. Private.

    Parameters
    ----------
    model : object
        As for ``task_of``.
    X : array_like, table or collection
        Rows, of any kind that the model predicts. Those on a cluster are predicted there, and the
        scores come back.
    offset, exposure : array_like of shape (n,) or float, optional
        As for ``predict`` of a regressor of dpglm.

    Returns
    -------
    ndarray of shape (n,) or (n, n_classes)
        Of two classes the second's probability, or the decision value where there is none.
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
    """Refuse rows without the offsets that a model of dpglm was fitted with."""
    certificate = _certificate(model)
    if certificate is None or certificate.problem.loss.offset_bound == 0.0:
        return
    has_own = isinstance(X, Collection) and X.has_offset
    if offset is None and exposure is None and not has_own:
        raise ValueError(
            "exposure or offset must be given, as the model was fitted with one, got neither: "
            "those of the rows, or exposure=1.0 (offset=0.0) for means at that"
        )


def has_probabilities(model: Any) -> bool:
    """Whether a classifier, fitted or not, has probabilities."""
    # Of model files, whose class has the method whether the loss has probabilities or not.
    return bool(
        getattr(model, "has_probabilities", callable(getattr(model, "predict_proba", None)))
    )


def _certificate(model: Any) -> Certificate | None:
    """Return that of a fitted model of dpglm, or of a model file."""
    found = getattr(model, "privacy_", getattr(model, "certificate", None))
    return found if isinstance(found, Certificate) else None


def _labels(model: Any) -> tuple[Any, Any] | None:
    """Return failure and success as targets name them, of a model whose means are probabilities."""
    certificate = _certificate(model)
    fact = None if certificate is None else certificate.fact(LABELS)
    return None if fact is None else (fact.value[0], fact.value[1])


def _in_memory(values: Any) -> NDArray[np.float64]:
    found = values.compute() if callable(getattr(values, "compute", None)) else values
    return np.asarray(found, dtype=np.float64)


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    offset: Any = None,
    exposure: Any = None,
    epsilon: float = 1.0,
    delta: float | Literal["auto"] = "auto",
    budget: PrivacyBudget | None = None,
    adjacency: str = "zero_out",
    n_rows: int | None = None,
    target_bounds: tuple[float, float] | None = None,
    thresholds: Sequence[float] | None = None,
    by: ArrayLike | None = None,
    levels: Sequence[Any] = (),
    groups: ArrayLike | None = None,
    max_rows_per_group: int | None = None,
    n_groups: int | None = None,
    where: ArrayLike | None = None,
    level: float = 0.95,
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
    random_state: int | NoiseSource | None = None,
) -> Evaluation:
    """Evaluate a model on private rows that it was not fitted on.

    Parameters
    ----------
    model : object
        Fitted, by dpglm or not: with ``classes_`` and ``predict_proba`` (two classes:
        ``decision_function`` will do), or with ``predict`` of numbers. It must be public already,
        or else its own privacy must be paid for elsewhere.
    X : array_like, table or collection
        Held-out rows, of any kind that the model predicts.
    y : array_like of shape (n,)
        Their targets.
    offset, exposure : array_like of shape (n,) or float, optional
        As for ``predict``; to be given for a model that was fitted with one.
    epsilon : float, default=1.0
        Privacy budget epsilon, above 0.
    delta : float or "auto", default="auto"
        Privacy budget delta, in (0, 1); "auto" as for estimators
        (``dpglm.privacy.default_delta``).
    budget : PrivacyBudget, optional
        Replaces ``epsilon`` and ``delta``.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation, see ``dpglm.privacy.Adjacency``.
    n_rows : int, optional
        Public number of rows; needed for "add_remove" only, where a rough figure will do.
    target_bounds : pair of float, optional
        Public bounds on numbers to predict; by default those of the model.
    thresholds : sequence of float, optional
        Scores at which decisions between two classes are of interest: there they are exact but for
        noise, elsewhere taken at the nearest end of a cell. By default 0.5 for probabilities, which
        need one in (0, 1), and 0 for decision values, which may have any.
    by : array_like of shape (n,), optional
        Attribute of each row by which rows are evaluated as well, at no further cost.
    levels : sequence, optional
        Its public levels; rows of other levels are one of their own.
    groups : array_like of shape (n,), optional
        Whose each row is, as of an estimator's ``fit``: then all rows of a group are protected
        together.
    max_rows_per_group : int, optional
        How many rows of a group are used at most; of groups with more, so many are drawn at random.
        Needed with ``groups``: noise is made for so many rows, and no group is scaled down, so that
        counts stay right.
    n_groups : int, optional
        Public number of groups; needed for "add_remove" only.
    where : array_like of bool of shape (n,), optional
        Which rows count, by a private condition; all others add nothing, and are neither predicted
        nor looked at. How many count stays private, and is estimated.
    level : float, default=0.95
        Level of intervals, in (0, 1).
    ledger : PrivacyLedger or path-like, optional
        Ledger of the data set, which is charged before anything is released.
    random_state : int or NoiseSource, optional
        None: noise from the operating system. An integer makes the evaluation reproducible and NOT
        private, and ``privacy_`` says so.

    Returns
    -------
    Evaluation

    Raises
    ------
    ValueError
        If an argument, or a target or a prediction, is wrong; nothing is released or spent then.
    LedgerError
        If the ledger refuses; nothing is released or spent then.

    Notes
    -----
    Two classes: with an eighth of the squared budget, counts of rows in cells of scores, which are
    made finer in eight rounds where rows are, and merged into a few of nearly equal mass; then
    counts of negative and positive rows in these, and sums of log losses (each at most 8), squared
    errors and predictions. From the counts follow ROC curve, AUC, precision, recall, calibration
    and the rest. Only the order of scores matters to the AUC, whatever their scale: scores that
    agree in 12 digits count as equal, and its intervals hold every order of scores that the rounds
    could not tell apart. Several classes: confusion, ranks of
    the right class, such counts for each class, and sums of losses. Numbers: sums of residuals,
    their sizes and squares, of targets and their squares, all within ``target_bounds``, and counts
    of residuals in cells.

    Privacy: one Gaussian release (numbers) or ten (classes) under ``adjacency``. A row is in one
    cell of each table, so that its weighted contributions to all tables of a release have an L2
    norm of at most 1.
    ``privacy_`` says what was spent on these rows, not on those that the model was fitted on.

    References
    ----------
    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver
    operating characteristic curves", Biometrics 1988 (the sampling variance, here of cells).

    Examples
    --------
    >>> import numpy as np
    >>> import dpglm
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> married = np.asarray(adult.data["marital-status"]) == "Married-civ-spouse"
    >>> found = dpglm.evaluate_predictions(
    ...     adult.target, 0.1 + 0.5 * married, classes=["<=50K", ">50K"], epsilon=0.5
    ... )
    >>> bool(0.75 < found.auc < 0.77)
    True
    """
    check_offset_given(model, X, offset, exposure)
    chosen = None if where is None else Where.of(where, y)
    if chosen is not None:
        if as_collection(X) is not None:
            raise ValueError("where must be None for rows that are not in memory")
        X, y, offset, exposure, by = map(chosen.rows, (X, y, offset, exposure, by))
    return _evaluated(
        task_of(
            model,
            None if thresholds is None else check_list("thresholds", thresholds),
            target_bounds,
        ),
        lambda: predictions_of(model, X, offset, exposure),
        y,
        epsilon=epsilon,
        delta=delta,
        budget=budget,
        adjacency=adjacency,
        n_rows=n_rows,
        by=by,
        levels=levels,
        groups=groups,
        max_rows_per_group=max_rows_per_group,
        n_groups=n_groups,
        where=chosen,
        level=level,
        ledger=ledger,
        random_state=random_state,
    )


def evaluate_predictions(
    y: ArrayLike,
    predictions: ArrayLike,
    *,
    classes: Sequence[Any] | None = None,
    probabilities: bool = True,
    target_bounds: tuple[float, float] | None = None,
    thresholds: Sequence[float] | None = None,
    epsilon: float = 1.0,
    delta: float | Literal["auto"] = "auto",
    budget: PrivacyBudget | None = None,
    adjacency: str = "zero_out",
    n_rows: int | None = None,
    by: ArrayLike | None = None,
    levels: Sequence[Any] = (),
    groups: ArrayLike | None = None,
    max_rows_per_group: int | None = None,
    n_groups: int | None = None,
    where: ArrayLike | None = None,
    level: float = 0.95,
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
    random_state: int | NoiseSource | None = None,
) -> Evaluation:
    """Evaluate predictions, wherever they come from, on private targets.

    Parameters
    ----------
    y : array_like of shape (n,)
        Targets.
    predictions : array_like of shape (n,) or (n, n_classes)
        Of two classes the second's probability, or another score; of more, the probability of
        each; or numbers. Each row's must depend on that row alone.
    classes : sequence, optional
        Public classes, in the order of the columns of probabilities; None for numbers.
    probabilities : bool, default=True
        Whether the scores of two classes are probabilities. False: they are any finite numbers,
        such as decision values, larger ones for the second class; no calibration or loss is shown.
    target_bounds : pair of float, optional
        Public bounds on numbers.
    thresholds, epsilon, delta, budget, adjacency, n_rows, by, levels
        As for ``evaluate``.
    groups, max_rows_per_group, n_groups, where, level, ledger, random_state
        As for ``evaluate``.

    Returns
    -------
    Evaluation

    Raises
    ------
    ValueError
        If an argument is wrong; nothing is released or spent then.
    LedgerError
        If the ledger refuses; nothing is released or spent then.

    Notes
    -----
    Privacy: as for ``evaluate``.
    """
    task: Task
    if classes is not None:
        classes = check_list("classes", classes)
    given = None if thresholds is None else check_list("thresholds", thresholds)
    if classes is None:
        if target_bounds is None:
            raise ValueError("classes or target_bounds must be given, got neither")
        task = RegressionTask(*check_two("target_bounds", target_bounds))
    elif len(classes) == 2:
        task = BinaryTask(tuple(classes), given, check_bool("probabilities", probabilities))
    else:
        task = ClassesTask(tuple(classes))
    return _evaluated(
        task,
        lambda: predictions,
        y,
        epsilon=epsilon,
        delta=delta,
        budget=budget,
        adjacency=adjacency,
        n_rows=n_rows,
        by=by,
        levels=levels,
        groups=groups,
        max_rows_per_group=max_rows_per_group,
        n_groups=n_groups,
        where=where,
        level=level,
        ledger=ledger,
        random_state=random_state,
    )


def _evaluated(
    task: Task,
    predictions: Callable[[], ArrayLike],
    y: ArrayLike,
    *,
    epsilon: float,
    delta: float | Literal["auto"],
    budget: PrivacyBudget | None,
    adjacency: str,
    n_rows: int | None,
    by: ArrayLike | None,
    levels: Sequence[Any],
    groups: ArrayLike | None,
    max_rows_per_group: int | None,
    n_groups: int | None,
    where: ArrayLike | Where | None,
    level: float,
    ledger: PrivacyLedger | str | os.PathLike[str] | None,
    random_state: int | NoiseSource | None,
) -> Evaluation:
    relation = Adjacency(check_one_of("adjacency", adjacency, tuple(Adjacency)))
    found = np.asarray(y)
    if found.ndim != 1 or not (len(found) or where is not None):
        raise ValueError(f"y must have shape (n,) with n at least 1, got {found.shape}")
    size = len(where.counts) if isinstance(where, Where) else len(found)
    if by is not None and not len(levels):
        raise ValueError("levels must list the public levels of by, got none")
    limited = LimitedGroups.of(groups, max_rows_per_group, size)
    rows, bound = public_size(limited, size, relation, given=n_rows, given_groups=n_groups)
    n_units = rows if bound is None else bound.n_groups
    spent = stated_budget(epsilon, delta, budget, n_units)
    plan: EvaluationPlan = plan_evaluation(
        task,
        rows,
        spent,
        adjacency=adjacency,
        levels=levels,
        level=level,
        groups=bound,
        chosen=where is not None,
    )
    return plan.run(
        found,
        predictions(),
        by=by,
        groups=groups,
        where=where,
        ledger=ledger,
        random_state=random_state,
    )
