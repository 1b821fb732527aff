"""Fitting with a progress bar, and the files that a fit publishes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpglm._progress_shown import shown
from dpglm.cli.additive import make_additive
from dpglm.cli.console import InputError
from dpglm.cli.exposures import check_exposure
from dpglm.cli.exposures import exposure_bounds as bounds_of_offsets
from dpglm.cli.options import (
    check_intercept,
    check_trials,
    encoded_parameters,
    estimator_for,
    make_estimator,
)
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpglm.solvers.base import Plan, StepInfo

__all__ = [
    "check_public_rows",
    "declared",
    "fit_with_progress",
    "planned",
    "require_report",
    "write_release",
]


def planned(
    estimator: Any,
    n_rows: int,
    n_features: int,
    n_classes: int | None,
    dtype: str = "float64",
    **facts: Any,
) -> Plan:
    """Return the plan that an estimator will execute; a regressor has no ``n_classes``."""
    from sklearn.base import is_classifier

    own = {"n_classes": n_classes} if is_classifier(estimator) else {}
    plan: Plan = estimator.plan(n_rows, n_features, dtype=dtype, **own, **facts)
    return plan


def declared(
    schema: Schema,
    *,
    curves: bool,
    interactions: Sequence[str],
    monotone: Sequence[str],
    target: str | None,
    exposure: str | None,
    exposure_bounds: str | None,
    trials: str | None,
    estimator: str | None,
    settings: Sequence[str],
    inference: str | None,
    given: dict[str, Any],
) -> Any:
    """Make the estimator that the options of a fit, or of its plan, ask for."""
    if target is not None and target != schema.target.name:
        raise InputError(
            f"--target {target}: the schema's target is {schema.target.name!r}; name that column, "
            "or change the schema"
        )
    check_exposure(exposure, exposure_bounds, inference, schema)
    given = given | bounds_of_offsets(exposure_bounds, exposure)
    if curves:
        if trials is not None:
            raise InputError(f"--trials {trials}: is not for --additive")
        return make_additive(schema, interactions, monotone, settings, inference, **given)
    if trials is not None and estimator is None:
        estimator = "binomial"
    name = estimator_for(schema.target, estimator)
    check_trials(trials, name, schema)
    encoded = encoded_parameters(schema, name)
    made = make_estimator(name, settings, inference, **given, **encoded)
    check_intercept(made, schema)
    return made


def check_public_rows(adjacency: str, public_rows: int | None) -> None:
    """Refuse a relation that keeps the number of rows secret if no public one was given."""
    if adjacency == "add_remove" and public_rows is None:
        raise InputError(
            "--adjacency add_remove keeps the number of rows secret: say roughly how many there "
            "are, from public knowledge, with --rows"
        )


def fit_with_progress(
    estimator: Any,
    X: Any,
    y: NDArray[Any] | None,
    schema: Schema,
    checkpoint: Path | None = None,
    heard: Callable[[StepInfo], None] = lambda info: None,
    **given: Any,
) -> None:
    """Fit an estimator, show its progress, and add the schema to its public facts.

    ``y`` is None where X holds the targets too; ``heard`` is called after each step that may be
    shown; ``given`` is for ``fit``.
    """
    from dpglm.certificate.facts import schema_facts, with_implied
    from dpglm.solvers.checkpoint import CheckpointFile

    # Rows in memory do not say what encoded them.
    kept = None if checkpoint is None else CheckpointFile(checkpoint, {"table": schema})
    estimator.set_params(callback=heard)
    try:
        with shown():
            estimator.fit(X, y, checkpoint=kept, **given)
    finally:
        estimator.set_params(callback=None)
    known = estimator.privacy_.public_facts
    facts = with_implied(known, "row_norm", schema.row_norm)
    # Streamed rows and additive models name their columns themselves.
    if estimator.privacy_.fact("schema") is None:
        facts += schema_facts(schema)
    if facts != known:
        estimator.privacy_ = dataclasses.replace(estimator.privacy_, public_facts=facts)


def require_report() -> None:
    """Check that the packages which a report needs are installed."""
    from dpglm._extras import require

    require("jinja2", "report")
    require("matplotlib", "plot")


def write_release(
    estimator: Any,
    schema: Schema,
    drafts: Mapping[Path, Path],
    *,
    model: Path,
    report: Path | None,
) -> None:
    """Write model file, certificate and page to their drafts."""
    from dpglm.report.model_file import save_model

    save_model(estimator, drafts[model], schema)
    if report is not None:
        from dpglm.report.html import write_report

        estimator.privacy_.to_json(drafts[report / "certificate.json"])
        write_report(estimator, drafts[report / "report.html"])
