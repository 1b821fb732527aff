"""The page and the files of a study (extras ``report`` and ``plot``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpglm._calls import checked
from dpglm.data.split import EFFECTS, EVALUATION, EXPLORATION, MODEL
from dpglm.estimators.composed._composed import parts_of
from dpglm.ledger.store import write_json, write_text
from dpglm.report.description_page import shown_description
from dpglm.report.evaluation_page import shown_evaluation
from dpglm.report.html import model_view
from dpglm.report.model_file import save_model
from dpglm.report.page import coefficient_table, page_of, shown_figures
from dpglm.study.running import StudyResult

__all__ = ["FILES", "files_of_study", "study_page", "write_study"]

FILES: Mapping[str, str] = {
    "report.html": "everything on one page; open it in a browser",
    "certificate.json": "the privacy claim and its record, for dpglm verify",
    "model.json": "the model, for dpglm predict",
    "exploration.json": "the numbers of the exploration",
    "effects.json": "the standardised means",
    "evaluation.json": "the numbers of the evaluation",
}
"""Every file that a study may write, with a description."""


@checked
def study_page(
    result: StudyResult, *, figures: Mapping[str, Any] | None = None, common_scale: bool = False
) -> str:
    """Return one page with all results of a study, and their cost.

    Parameters
    ----------
    result : StudyResult
        The result of ``Study.run``.
    figures : mapping from str to Matplotlib figure, or to a pair, optional
        Further pictures by their captions; a pair is for wide and for narrow screens. The guarantee
        does not cover them.
    common_scale : bool, default=False
        Whether all panels of curves have the same scale; otherwise each its own.

    Returns
    -------
    str
        A self-contained HTML page.

    Notes
    -----
    Privacy: the page shows released values, public facts, and ``figures``.
    """
    explored, model, evaluated = result.exploration, result.model, result.evaluation
    column = None if evaluated is None else evaluated.part.column
    by = None if column is None else column.name
    shown_model = None
    if model is not None:
        shown_model = model_view(
            parts_of(model).model, coefficient_table(model), common_scale=common_scale
        )
    return page_of(
        "study.html.j2",
        result.privacy_,
        title=result.plan.title or "A private study",
        result=result,
        described=None if explored is None else shown_description(explored),
        model=shown_model,
        effects=[] if result.effects is None else result.effects.tables,
        evaluated=None if evaluated is None else shown_evaluation(evaluated, by),
        figures=shown_figures(figures or {}),
    )


@checked
def files_of_study(parts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the files of a study.

    Parameters
    ----------
    parts : mapping from str
        The parts by name.
    """
    absent = {
        f"{name}.json" for name in (EXPLORATION, MODEL, EFFECTS, EVALUATION) if name not in parts
    }
    return tuple(name for name in FILES if name not in absent)


@checked
def write_study(
    result: StudyResult,
    folder: str | os.PathLike[str],
    figures: Mapping[str, Any] | None = None,
    *,
    common_scale: bool = False,
) -> None:
    """Write all results of a study to a folder.

    Parameters
    ----------
    result : StudyResult
        The result of ``Study.run``.
    folder : path-like
        The folder, which is created if missing. Existing ``report.html``, ``certificate.json``,
        ``model.json``, ``exploration.json``, ``effects.json`` and ``evaluation.json`` are replaced.
    figures, common_scale
        See ``study_page``.

    Raises
    ------
    OSError
        If a file cannot be written.

    Notes
    -----
    Privacy: all files may be published.
    """
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    # If the disk is full, the released values come first.
    if result.model is not None:
        save_model(result.model, where / "model.json")
    for name in (EXPLORATION, EFFECTS, EVALUATION):
        part = getattr(result, name)
        if part is not None:
            write_json(where / f"{name}.json", part.to_dict())
    result.privacy_.to_json(where / "certificate.json")
    write_text(
        where / "report.html", study_page(result, figures=figures, common_scale=common_scale)
    )
