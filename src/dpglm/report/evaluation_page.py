"""HTML page about a private evaluation (extra ``report``)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dpglm._calls import checked
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.picture import PICTURES, draw_panel
from dpglm.evaluation.task import Result
from dpglm.ledger.store import write_text
from dpglm.pictures import as_data_uri
from dpglm.report.page import page_of
from dpglm.tabulate import estimate_of, for_population, rows_interval, with_interval

__all__ = ["evaluation_page", "write_evaluation"]

_MOST_CLASSES = 20


@checked
def evaluation_page(
    evaluation: Evaluation, *, title: str = "Evaluation of the model", by: str | None = None
) -> str:
    """Return a page about an evaluation and its cost.

    Parameters
    ----------
    evaluation : Evaluation
        Result of ``dpglm.evaluate``.
    title : str, optional
        Heading.
    by : str, optional
        Name of the attribute of ``by_level``; by default ``evaluation.by``.

    Returns
    -------
    str
        Self-contained HTML.

    Notes
    -----
    Privacy: the page shows released values and public facts.
    """
    return page_of(
        "evaluation.html.j2",
        evaluation.privacy_,
        title=title,
        evaluated=shown_evaluation(evaluation, by),
    )


@checked
def write_evaluation(evaluation: Evaluation, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the page of ``evaluation_page`` to a file, whole or not at all.

    Parameters
    ----------
    evaluation : Evaluation
        Result of ``dpglm.evaluate``.
    path : path-like
        The file; an OSError is raised if it cannot be written.
    **options
        Options of ``evaluation_page``.
    """
    write_text(path, evaluation_page(evaluation, **options))


def shown_evaluation(evaluation: Evaluation, by: str | None = None) -> dict[str, Any]:
    """Return the argument of the macro ``evaluated`` in ``templates/performance.html.j2``."""
    rows = evaluation.all_rows
    shown = list(rows.shown())
    pictures = [(PICTURES[name], draw_panel(name, rows)) for name in rows.task.pictures]
    return {
        "level": f"{100.0 * evaluation.level:g} %",
        "n_rows": with_interval(rows.rows),
        "tiles": [(one.label, *for_population(one.number)) for one in shown if one.metric.headline],
        "numbers": [
            (one.label, estimate, rows_interval(one.number), ends)
            for one in shown
            for estimate, ends in [for_population(one.number)]
        ],
        "shaded": all(picture.has_intervals for picture, _ in pictures),
        "panels": [
            (picture.title, picture.text, as_data_uri(drawn)) for picture, drawn in pictures
        ],
        "confusion": _confusion(rows),
        "tables": _tables(evaluation, by or evaluation.by),
    }


def _confusion(rows: Result) -> dict[str, Any] | None:
    classes = rows.classes
    if not 0 < len(classes) <= _MOST_CLASSES:
        return None
    threshold = rows.task.main_threshold
    matrix = rows.confusion_matrix(threshold)
    # Noisy counts may be negative.
    counts = np.clip(matrix, 0.0, None)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return {
        "at": "" if threshold is None else f" at threshold {threshold:g}",
        "labels": [str(one) for one in classes],
        "rows": [
            (
                str(label),
                [
                    (f"{100.0 * share:.1f} %", f"{0.55 * min(share, 1.0):.3f}", f"{count:.0f}")
                    for share, count in zip(of_class, counts, strict=True)
                ],
            )
            for label, of_class, counts in zip(classes, shares, matrix, strict=True)
        ],
    }


def _tables(evaluation: Evaluation, by: str) -> list[dict[str, Any]]:
    """Return the tables of the classes, and of the levels of an attribute."""
    everyone = evaluation.all_rows
    tables: list[dict[str, Any]] = []
    of_classes = everyone.by_class(_MOST_CLASSES)
    if of_classes:
        more = len(everyone.classes) - len(of_classes)
        about = "Each class against all others, with population intervals."
        tables.append(
            {
                "title": "Each class",
                "about": about + (f" {more} more classes are not shown." if more else ""),
                "headings": list(next(iter(of_classes.values()))),
                "rows": [
                    (str(label), [*map(for_population, of.values())])
                    for label, of in of_classes.items()
                ],
            }
        )
    levels = evaluation.likely_levels
    if not levels:
        return tables
    threshold = everyone.task.main_threshold
    headings, table = [], []
    for label, rows in {**levels, "all": everyone}.items():
        thresholds = () if threshold is None else (threshold,)
        found = [one for one in rows.shown(thresholds) if one.metric.by_level]
        headings = ["rows", *(one.metric.label for one in found)]
        count = estimate_of(rows.rows), rows_interval(rows.rows)
        table.append((label, [count, *(for_population(one.number) for one in found)]))
    decided = "" if threshold is None else f" Decisions use threshold {threshold:g}."
    hidden = " Levels that may be empty are not shown."
    about = (
        "With population intervals. All levels together cost as much as one, because each row has "
        f"one level.{decided}{hidden if len(evaluation.by_level) > len(levels) else ''}"
    )
    tables.append({"title": f"By {by}", "about": about, "headings": headings, "rows": table})
    return tables
