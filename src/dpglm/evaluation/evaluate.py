"""Evaluate models and predictions on held-out private rows, and score them for scikit-learn."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpglm._validation import check_bool, check_list, check_one_of, check_real, check_two
from dpglm.certificate.execution import PartInput, Stated
from dpglm.data.collection import Collection, as_collection
from dpglm.data.split import MODEL
from dpglm.evaluation import binary, classes, regression
from dpglm.evaluation.binary import BinaryTask
from dpglm.evaluation.classes import ClassesTask
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.planning import EvaluationPart, certificate_of, predictions_of, task_of
from dpglm.evaluation.regression import RegressionTask
from dpglm.evaluation.task import EvaluationTask
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.given import Where
from dpglm.tables.named import by_name


def _arrays(
    model: Any, X: Any, y: Any, by: Any, groups: Any, levels: Sequence[Any], chosen: Where | None
) -> tuple[Any, Any, Any, Any, Sequence[Any]]:
    """Return X, y, by, groups and levels with columns of ``X`` for names, for the chosen rows."""
    schema = None if (certificate := certificate_of(model)) is None else certificate.schema
    target = schema.target if schema is not None and schema.has_target else None
    if y is None:
        if target is None:
            raise ValueError("y must be given: the model does not contain the name of a target")
        y = target.name
    if isinstance(groups, str):
        groups = _column(X, "groups", groups)
    if chosen is not None:
        X, y, by = (one if isinstance(one, str) else chosen.rows(one) for one in (X, y, by))
    if isinstance(y, str):
        cells = _column(X, "y", y)
        y = target.encode(cells) if target is not None and target.name == y else cells
    if isinstance(by, str):
        known = () if schema is None or len(levels) else schema.columns
        listed = [one for one in known if one.name == by and isinstance(one, CategoricalColumn)]
        by = _column(X, "by", by)
        for column in listed:
            levels = column.categories
            by = np.array([*levels], dtype=object)[column.read(by)]
    return X, y, by, groups, levels


def _column(table: Any, argument: str, name: str) -> Any:
    """Return a column of a table by its name."""
    named = by_name(table, f"X must have columns by name for {argument}={name!r}")
    if isinstance(named, np.ndarray) or name not in named:
        raise ValueError(f"{argument} must be an array or name a column of X, got {name!r}")
    return named[name]


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike | str | None = None,
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
    by: ArrayLike | str | None = None,
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
        A fitted model of dpglm or another library: with ``classes_`` and ``predict_proba`` (for two
        classes ``decision_function`` suffices), or with ``predict`` of numbers. Its own privacy is
        not covered: it must be public or charged elsewhere.
    X : array_like, table or collection
        Held-out rows of any kind that the model predicts.
    y : array_like of shape (n,) or str, optional
        Targets, or the name of their column in the table ``X``. By default the target of the
        schema that the model was fitted with.
    offset, exposure : array_like of shape (n,) or float, optional
        Arguments of ``predict``, required for a model that was fitted with them.
    epsilon, delta, budget, adjacency, n_rows, level, ledger, random_state
        See ``dpglm.describe``, also for errors.
    target_bounds : pair of float, optional
        Public bounds on numeric targets; by default those of the model.
    thresholds : sequence of float, optional
        Thresholds of decisions between two classes. Metrics at them are exact up to noise; other
        thresholds are moved to the nearest end of a cell. By default 0.5 for probabilities, which
        allow values in (0, 1), and 0 for decision values.
    by : array_like of shape (n,) or str, optional
        Attribute of the rows, or the name of its column in ``X``. Rows of each of its levels are
        evaluated too, at no further cost.
    levels : sequence, optional
        Public levels of ``by``; rows with other values form a level of their own. By default those
        of the column in the schema of the model.
    groups, max_rows_per_group, n_groups
        See ``dpglm.describe``; ids of rows, or the name of their column in ``X``. No group is
        scaled down, so that counts stay unbiased.
    where : array_like of bool of shape (n,), optional
        Private condition: only rows with True count. The others are not predicted or read. The
        number of rows that count stays private, and is estimated.

    Notes
    -----
    For two classes, 12 % of mu squared determines cells of scores. Eight rounds of counts refine
    cells with many rows, and a ninth merges them into a few cells with nearly equal counts. The
    tenth release has the negative and positive rows in each cell, and sums of log losses (each
    clipped to 8), squared errors and predictions. All metrics are computed from it. The AUC depends
    on the order of scores only: scores that agree in 12 digits are equal, and its intervals allow
    for every order of the scores in a cell. For several classes, the tenth release has a confusion
    matrix, ranks of the true class, such counts for each class, and sums of losses. For numbers,
    the only release has sums of residuals, of their sizes and squares, and of targets and their
    squares, clipped to ``target_bounds``, and counts of residuals and targets in cells.

    Privacy: one Gaussian release (numbers) or ten (classes) under ``adjacency``. A row is in one
    cell of each table, so that its weighted contributions to all tables of a release have an L2
    norm of at most 1. ``privacy_`` covers these rows, and not those of the fit of the model. Under
    ``add_remove``, and with ``where``, no bit of a prediction may depend on other rows. Models of
    dpglm ensure this. For other models you declare it: in many libraries, rounding depends on the
    position of a row.

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
    certificate = certificate_of(model)
    has_own = isinstance(X, Collection) and X.has_offset
    is_known = offset is not None or exposure is not None or has_own
    if certificate is not None and certificate.problem.loss.offset_bound != 0.0 and not is_known:
        raise ValueError(
            "exposure or offset must be given, as in the fit of the model, got neither: give those "
            "of the rows, or exposure=1.0 (offset=0.0)"
        )
    chosen = None if where is None else Where.of(where, X if y is None or isinstance(y, str) else y)
    if chosen is not None:
        if as_collection(X) is not None:
            raise ValueError("where must be None for rows that are not in memory")
        offset, exposure = map(chosen.rows, (offset, exposure))
    name = by if isinstance(by, str) else None
    given = None if thresholds is None else check_list("thresholds", thresholds)
    with Where.numbering(chosen):
        X, y, by, groups, levels = _arrays(model, X, y, by, groups, levels, chosen)
        found = _evaluated(
            task_of(model, given, target_bounds),
            lambda: predictions_of(model, X, offset, exposure),
            y,
            by,
            levels,
            level,
            PartInput((), groups, chosen, ledger, random_state, earlier={MODEL: model}),
            Stated(epsilon, delta, budget, adjacency, n_rows, max_rows_per_group, n_groups),
        )
    return found if name is None else dataclasses.replace(found, by=name)


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
    """Evaluate given predictions on private targets.

    Parameters
    ----------
    y : array_like of shape (n,)
        Targets.
    predictions : array_like of shape (n,) or (n, n_classes)
        For two classes, the probability or another score of the second one; for several classes,
        the probability of each; or numbers. The prediction of a row must depend on that row alone.
    classes : sequence, optional
        Public classes, in the order of the columns of probabilities; None for numbers.
    probabilities : bool, default=True
        Whether scores of two classes are probabilities. Otherwise they are any finite numbers, such
        as decision values, and calibration and losses are not evaluated.
    target_bounds : pair of float, optional
        Public bounds on numeric targets.
    thresholds, epsilon, delta, budget, adjacency, n_rows, by, levels
        See ``evaluate``; ``by`` is an array.
    groups, max_rows_per_group, n_groups, where, level, ledger, random_state
        See ``evaluate``; ``groups`` is an array.

    Notes
    -----
    Privacy and errors: see ``evaluate``.
    """
    task: EvaluationTask
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
        by,
        levels,
        level,
        PartInput((), groups, where, ledger, random_state),
        Stated(epsilon, delta, budget, adjacency, n_rows, max_rows_per_group, n_groups),
    )


def _evaluated(
    task: EvaluationTask,
    predictions: Callable[[], ArrayLike],
    y: ArrayLike,
    by: ArrayLike | None,
    levels: Sequence[Any],
    level: float,
    given: PartInput,
    stated: Stated,
) -> Evaluation:
    """Plan and run an evaluation of arrays."""
    targets, where = np.asarray(y), given.where
    if targets.ndim != 1:
        raise ValueError(f"y must have shape (n,), got {targets.shape}")
    if by is not None and not len(levels):
        raise ValueError("levels must list the public levels of by, got none")
    n_rows = len(where.counts) if isinstance(where, Where) else len(targets)
    part = EvaluationPart(task, levels, level)
    plan = part.plan(stated.protection(n_rows, given.groups))
    return part.run(plan, dataclasses.replace(given, rows=(targets, predictions(), by)))


METRICS = (*binary.METRICS, *classes.METRICS, *regression.METRICS)
"""All metrics."""


def _scorers() -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.scorer for one in METRICS if one.scorer is not None))


def _scored(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    metric: str,
    threshold: float | None,
    target_bounds: tuple[float, float] | None,
    **stated: Any,
) -> float:
    """Evaluate a fitted model on held-out rows, and return the metric; larger is better."""
    thresholds = None if threshold is None else (threshold,)
    task = task_of(estimator, thresholds, target_bounds)
    known = {one.scorer: one for one in task.metrics if one.scorer is not None}
    own = known[check_one_of("metric", metric, tuple(known))]
    found = evaluate(estimator, X, y, target_bounds=target_bounds, thresholds=thresholds, **stated)
    return own.better * found.number(own.name, threshold).estimate


def private_scorer(
    metric: str,
    *,
    epsilon: float,
    ledger: PrivacyLedger | str | os.PathLike[str],
    delta: float | Literal["auto"] = "auto",
    adjacency: Literal["zero_out", "replace_one"] = "zero_out",
    target_bounds: tuple[float, float] | None = None,
    threshold: float | None = None,
) -> Callable[[Any, Any, ArrayLike], float]:
    """Make a scorer for scikit-learn's ``scoring=`` that charges a ledger for each call.

    Parameters
    ----------
    metric : str
        One of SCORERS.
        docs/evaluation.md lists the metrics of each task.
    epsilon, delta, target_bounds
        Budget of each call, and bounds, as in ``evaluate``.
    ledger : PrivacyLedger or path-like
        Ledger of the data set; every call adds an entry. It is required because several splits,
        models or metrics multiply the cost.
    adjacency : {"zero_out", "replace_one"}, default="zero_out"
        Neighbouring relation; under both the number of rows of a split is public.
    threshold : float, optional
        Threshold of decisions between two classes; by default 0.5 for probabilities, and 0 for
        decision values.

    Returns
    -------
    callable
        A function of a fitted model, rows and targets, which can be pickled. Larger results are
        better. Its errors are those of ``evaluate``, and a ValueError for another metric.

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
    check_one_of("metric", metric, _scorers())
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
    return functools.partial(
        _scored,
        metric=metric,
        threshold=threshold,
        target_bounds=target_bounds,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        ledger=account,
    )


_NAMES = ", ".join(f'"{name}"' for name in _scorers())
private_scorer.__doc__ = str(private_scorer.__doc__).replace("SCORERS", _NAMES)
