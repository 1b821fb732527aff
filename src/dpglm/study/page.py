"""One page about a whole study (extras ``report`` and ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpglm.estimators.composed.pipeline import parts_of
from dpglm.report.description_page import shown_description
from dpglm.report.evaluation_page import shown_evaluation
from dpglm.report.html import model_view
from dpglm.report.page import page_of, shown_figures
from dpglm.report.subject import coefficient_table
from dpglm.study.parts import PlannedEvaluation
from dpglm.study.running import StudyResult

__all__ = ["study_page"]


def study_page(result: StudyResult, *, figures: Mapping[str, Any] | None = None) -> str:
    """Return one page that shows everything a study has found, and what it cost.

    Parameters
    ----------
    result : StudyResult
        What ``Study.run`` returned.
    figures : mapping from str to Matplotlib figure, or to two, optional
        Further pictures, each with what it shows in words; a pair is for wide and for narrow
        screens. The guarantee does not cover them.

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
    Privacy: the page shows what was released, public facts, and what the caller passes in
    ``figures``.
    """
    certificate, looked = result.privacy_, result.exploration
    return page_of(
        "study.html.j2",
        certificate,
        result.verify(),
        title=result.plan.title or "A private study",
        result=result,
        described=None if looked is None else shown_description(looked),
        model=None if result.model is None else _model(result.model),
        evaluated=None if result.evaluation is None else _evaluated(result),
        figures=shown_figures(figures or {}),
    )


def _evaluated(result: StudyResult) -> dict[str, Any]:
    planned = result.plan.evaluation
    by = planned.by if isinstance(planned, PlannedEvaluation) else None
    return shown_evaluation(result.evaluation, *(() if by is None else (by.name,)))


def _model(fitted: Any) -> dict[str, Any]:
    return model_view(parts_of(fitted).model, coefficient_table(fitted))
