"""Fitting with a progress bar, and the files that a fit publishes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpglm._progress_shown import shown
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpglm.solvers.base import Plan, StepInfo

__all__ = ["fit_with_progress", "planned", "require_report", "write_release"]


def planned(
    estimator: Any, n_rows: int, n_features: int, n_classes: int | None, dtype: str = "float64"
) -> Plan:
    """Return the plan that an estimator will execute.

    Parameters
    ----------
    estimator : estimator of dpglm
        With its public bounds.
    n_rows, n_features : int
        Size of the data; ``n_rows`` is public.
    n_classes : int or None
        Number of classes; None for a regressor.
    dtype : {"float64", "float32"}, default="float64"
        Type of the rows.

    Returns
    -------
    Plan
    """
    classes = {} if n_classes is None else {"n_classes": n_classes}
    plan: Plan = estimator.plan(n_rows, n_features, dtype=dtype, **classes)
    return plan


def fit_with_progress(
    estimator: Any,
    X: Any,
    y: NDArray[Any] | None,
    schema: Schema,
    checkpoint: Path | None = None,
    heard: Callable[[StepInfo], None] = lambda info: None,
) -> None:
    """Fit an estimator, show how far it is, and put the schema among its public facts.

    Parameters
    ----------
    estimator : estimator of dpglm
        To be fitted in place.
    X, y : ndarray, or Collection and None
        Encoded rows and targets.
    schema : Schema
        What encoded them.
    checkpoint : Path, optional
        File that keeps the state; a fit that it holds goes on.
    heard : callable, optional
        Called after each step that is shown.
    """
    from dpglm.certificate.certificate import PublicFact
    from dpglm.solvers.checkpoint import CheckpointFile

    # Rows in memory do not say what encoded them.
    kept = None if checkpoint is None else CheckpointFile(checkpoint, {"table": schema})
    estimator.set_params(callback=heard)
    try:
        with shown():
            estimator.fit(X, y, checkpoint=kept)
    finally:
        estimator.set_params(callback=None)
    fact = PublicFact("schema", {"provenance": schema.provenance} | schema.to_dict(), "declared")
    estimator.privacy_ = dataclasses.replace(
        estimator.privacy_, public_facts=(*estimator.privacy_.public_facts, fact)
    )


def require_report() -> None:
    """Check that the packages which a report needs are installed.

    Raises
    ------
    ImportError
        If one is not; the message says how to install it.
    """
    from dpglm.report._extras import require

    require("jinja2", "report")
    require("matplotlib", "plot")


def write_release(
    estimator: Any,
    schema: Schema,
    drafts: Mapping[Path, Path],
    *,
    model: Path,
    report: Path | None,
    **page: Any,
) -> None:
    """Write the files of a release.

    Parameters
    ----------
    estimator : fitted estimator
        What is released.
    schema : Schema
        What encoded its rows.
    drafts : mapping of Path to Path
        Where to write meanwhile, see ``all_or_none``.
    model : Path
        The model file.
    report : Path or None
        The folder of ``certificate.json`` and ``report.html``; None for neither.
    **page
        Options of ``dpglm.report.html.write_report``.
    """
    from dpglm.report.model_file import save_model

    save_model(estimator, drafts[model], schema)
    if report is not None:
        from dpglm.report.html import write_report

        estimator.privacy_.to_json(drafts[report / "certificate.json"])
        write_report(
            estimator, drafts[report / "report.html"], feature_names=schema.feature_names, **page
        )
