"""One self-contained HTML page about a private evaluation (extra ``report``)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpglm._words import plain_number
from dpglm.certificate.verify import verify
from dpglm.evaluation.binary import BinaryResult
from dpglm.evaluation.classes import ClassesResult
from dpglm.evaluation.evaluation import (
    Evaluation,
    Result,
    named,
    numbers_of,
    of_rows,
    population,
    written,
)
from dpglm.evaluation.picture import PICTURES, draw_panel
from dpglm.evaluation.regression import RegressionResult
from dpglm.exploration.results import Number
from dpglm.ledger.store import write_text
from dpglm.pictures.drawing import as_data_uri
from dpglm.report.page import page_of

__all__ = ["evaluation_page", "shown_evaluation", "write_evaluation"]

_MOST_CLASSES = 20
_FIRST = {
    BinaryResult: ("auc", "accuracy", "log_loss"),
    ClassesResult: ("accuracy", "auc", "log_loss"),
    RegressionResult: ("r2", "rmse", "mae"),
}
_PANELS = {
    BinaryResult: ("roc", "calibration", "thresholds"),
    ClassesResult: ("classes",),
    RegressionResult: ("residuals",),
}
_SHORT = {"mae": "MAE", "rmse": "RMSE"}
_OF_GROUPS = {
    BinaryResult: ("prevalence", "selected", "accuracy", "recall", "specificity", "auc"),
    ClassesResult: ("accuracy", "balanced_accuracy", "auc", "log_loss"),
    RegressionResult: ("bias", "mae", "rmse", "r2"),
}


def evaluation_page(
    evaluation: Evaluation, *, title: str = "How good the model is", by: str = "group"
) -> str:
    """Return a page with what an evaluation says, and what it cost.

    Parameters
    ----------
    evaluation : Evaluation
        What ``dpglm.evaluate`` returned.
    title : str, optional
        Heading.
    by : str, default="group"
        What its groups of rows are called together, such as the name of a column.

    Returns
    -------
    str
        HTML with all pictures inside; it refers to nothing outside itself.

    Raises
    ------
    ImportError
        If Jinja2 or Matplotlib is not installed (``pip install 'dpglm[report]'``).

    Notes
    -----
    Privacy: the page shows what was released, and public facts.
    """
    certificate = evaluation.privacy_
    return page_of(
        "evaluation.html.j2",
        certificate,
        verify(certificate),
        title=title,
        evaluated=shown_evaluation(evaluation, by),
    )


def write_evaluation(evaluation: Evaluation, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the page of ``evaluation_page`` to a file, whole or not at all.

    Parameters
    ----------
    evaluation : Evaluation
        What ``dpglm.evaluate`` returned.
    path : path-like
        The file.
    **options
        As for ``evaluation_page``.

    Raises
    ------
    ImportError
        If Jinja2 or Matplotlib is not installed (``pip install 'dpglm[report]'``).
    OSError
        If the file cannot be written.
    """
    write_text(path, evaluation_page(evaluation, **options))


def shown_evaluation(evaluation: Evaluation, by: str = "group") -> dict[str, Any]:
    """Return what the sections of a page about an evaluation show.

    Parameters
    ----------
    evaluation : Evaluation
        What ``dpglm.evaluate`` returned.
    by : str, default="group"
        What its groups of rows are called together, such as the name of a column.

    Returns
    -------
    dict
        The argument of the macro ``evaluated`` in ``templates/performance.html.j2``.

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[report]'``).
    """
    rows, thresholds = evaluation.all_rows, evaluation.plan.thresholds
    numbers = numbers_of(rows, thresholds)
    first = [name for one in _FIRST[type(rows)] for name in numbers if name.split(" at ")[0] == one]
    return {
        "level": f"{100.0 * evaluation.plan.level:g} %",
        "n_rows": _count(rows.rows),
        "tiles": [
            (named(name), written(numbers[name]), population(numbers[name])) for name in first
        ],
        "numbers": [
            (named(name), written(one), of_rows(one), population(one))
            for name, one in numbers.items()
        ],
        "shaded": not isinstance(rows, ClassesResult),
        "panels": [
            (*PICTURES[one][:2], as_data_uri(draw_panel(one, rows))) for one in _panels(rows)
        ],
        "confusion": _confusion(rows, thresholds),
        "tables": [*_of_classes(rows), *_by_group(evaluation, by)],
    }


def _panels(rows: Result) -> Sequence[str]:
    panels = _PANELS.get(type(rows), ())
    if isinstance(rows, BinaryResult) and not rows.probabilities:
        return [one for one in panels if one != "calibration"]
    return panels


def _both(number: Number) -> tuple[str, str]:
    return written(number), population(number)


def _count(rows: Number) -> str:
    if rows.high == rows.low:
        return plain_number(rows.estimate)
    return f"{rows.estimate:.0f} ({of_rows(rows)})"


def _confusion(rows: Result, thresholds: Sequence[float]) -> dict[str, Any] | None:
    if isinstance(rows, RegressionResult):
        return None
    if len(rows.classes) > _MOST_CLASSES:
        return None
    if isinstance(rows, BinaryResult):
        threshold = _threshold(rows, thresholds)
        at, matrix = f" at threshold {threshold:g}", rows.confusion_matrix(threshold)
    else:
        at, matrix = "", rows.confusion_matrix
    # Counts of no rows are noise, which may be below zero.
    shares = np.clip(matrix, 0.0, None) / np.maximum(matrix.sum(axis=1, keepdims=True), 1.0)
    return {
        "at": at,
        "labels": [str(one) for one in rows.classes],
        "rows": [
            (
                str(label),
                [
                    (f"{100.0 * share:.1f} %", f"{0.55 * min(share, 1.0):.3f}", f"{count:.0f}")
                    for share, count in zip(of_class, counts, strict=True)
                ],
            )
            for label, of_class, counts in zip(rows.classes, shares, matrix, strict=True)
        ],
    }


def _threshold(rows: Result, thresholds: Sequence[float]) -> float:
    usual = rows.usual_threshold if isinstance(rows, BinaryResult) else 0.5
    return usual if usual in thresholds or not thresholds else thresholds[0]


def _of_classes(rows: Result) -> Iterator[dict[str, Any]]:
    if isinstance(rows, ClassesResult):
        shown = rows.classes[:_MOST_CLASSES]
        found = {str(label): rows.of_class(label) for label in shown}
        more = len(rows.classes) - len(shown)
        yield {
            "title": "Each class",
            "about": "Each against all others, with intervals for the population."
            + (f" And {more} classes more." if more else ""),
            "headings": [named(name) for name in next(iter(found.values()))],
            "rows": [(label, [_both(one) for one in of.values()]) for label, of in found.items()],
        }


def _by_group(evaluation: Evaluation, by: str) -> Iterator[dict[str, Any]]:
    # Of what cannot be told from no rows there are numbers of noise only.
    groups = {
        "others" if label is None else str(label): one
        for label, one in evaluation.groups.items()
        if one.rows.low > 0.0
    }
    if not groups:
        return
    threshold = _threshold(evaluation.all_rows, evaluation.plan.thresholds)
    names = _OF_GROUPS[type(evaluation.all_rows)]
    table = []
    for label, one in {**groups, "all": evaluation.all_rows}.items():
        found = numbers_of(one, (threshold,))
        at = {name.partition(" at ")[0]: number for name, number in found.items()}
        table.append((label, [(_count(one.rows), ""), *(_both(at[name]) for name in names)]))
    decided = f" Decisions at threshold {threshold:g}." if evaluation.plan.thresholds else ""
    left_out = len(evaluation.groups) - len(groups)
    yield {
        "title": f"By {by}",
        "about": "With intervals for the population; all groups together cost what one does, as "
        f"each row is in one of them.{decided}"
        + (" Not shown: groups whose rows cannot be told from none." if left_out else ""),
        "headings": ["rows", *(_SHORT.get(name, named(name)) for name in names)],
        "rows": table,
    }
