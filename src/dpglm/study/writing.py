"""The files of a study: page, certificate, model, and the numbers of its parts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpglm.ledger.store import write_json, write_text
from dpglm.report.model_file import save_model
from dpglm.study.page import study_page
from dpglm.study.parts import EVALUATION, EXPLORATION, MODEL
from dpglm.study.running import StudyResult

__all__ = ["FILES", "files_of_study", "write_study"]

FILES: Mapping[str, str] = {
    "report.html": "everything on one page; open it in a browser",
    "certificate.json": "the claim with all that it rests on, for dpglm verify",
    "model.json": "the model, for dpglm predict",
    "exploration.json": "the numbers of the exploration",
    "evaluation.json": "the numbers of the evaluation",
}
"""Every file that a study may write, and what is in it."""


def files_of_study(parts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the files of a study.

    Parameters
    ----------
    parts : mapping from str
        By the names of its parts.

    Returns
    -------
    tuple of str
    """
    absent = {f"{name}.json" for name in (EXPLORATION, MODEL, EVALUATION) if name not in parts}
    return tuple(name for name in FILES if name not in absent)


def write_study(
    result: StudyResult, folder: str | os.PathLike[str], figures: Mapping[str, Any] | None = None
) -> None:
    """Write all that a study has found into a folder, which is made if there is none.

    Parameters
    ----------
    result : StudyResult
        What ``Study.run`` returned.
    folder : path-like
        Where. Files of these names are replaced: ``report.html`` with everything,
        ``certificate.json``, ``model.json``, ``exploration.json`` and ``evaluation.json``.
    figures : mapping from str to Matplotlib figure, or to two, optional
        As for ``study_page``.

    Raises
    ------
    ImportError
        If Jinja2 or Matplotlib is not installed (``pip install 'dpglm[report]'``).
    OSError
        If a file cannot be written.

    Notes
    -----
    Privacy: all of it may be published.
    """
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    # If the disk is full, what was paid for comes first.
    if result.model is not None:
        save_model(result.model, where / "model.json")
    for name in (EXPLORATION, EVALUATION):
        part = getattr(result, name)
        if part is not None:
            write_json(where / f"{name}.json", part.to_dict())
    result.privacy_.to_json(where / "certificate.json")
    write_text(where / "report.html", study_page(result, figures=figures))
