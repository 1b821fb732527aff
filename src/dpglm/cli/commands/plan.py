"""`dpglm plan`: what a fit would release, and its expected accuracy, before any row is seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpglm._progress import shown
from dpglm.cli.console import (
    InputError,
    guarded,
    note,
    print_pairs,
    print_sections,
    say,
)
from dpglm.cli.files import all_or_none
from dpglm.cli.fitting import (
    additive_options,
    asked_for_curves,
    declared,
    exposure_options,
    group_options,
    planned,
    rows_option,
)
from dpglm.cli.options import (
    FORMULA,
    INFERENCE,
    INPUT_FILE,
    OUTPUT_FILE,
    REFERENCE,
    TRIALS,
    budget_options,
    coded_schema,
    estimator_class,
    estimator_options,
    examples,
    force_option,
    make_estimator,
)

if TYPE_CHECKING:
    from dpglm.solvers.base import Plan

__all__ = ["plan"]

_PICTURES = (".png", ".svg", ".pdf")
_RUNS = 3


@click.command(
    short_help="Say what a fit would release and cost; needs no data.",
    epilog=examples(
        "dpglm plan --schema schema.json --rows 30000 --epsilon 0.5",
        "dpglm plan --rows 5000 --columns 20 --classes 3",
        "dpglm plan --rows 5000 --columns 20 --estimator ridge --plot expected.png",
    ),
)
@rows_option(required=True, help="Number of rows (public).")
@click.option("--target", metavar="COLUMN", help="The column to predict, as the schema names it.")
@click.option("--schema", "schema_file", type=INPUT_FILE, help="The public facts of the table.")
@REFERENCE
@FORMULA
@additive_options
@click.option("--columns", type=click.IntRange(min=1), help="Number of features, if no --schema.")
@click.option(
    "--classes", type=click.IntRange(min=2), help="Number of classes, if no --schema.  [default: 2]"
)
@exposure_options
@TRIALS
@group_options
@budget_options(epsilon=1.0)
@estimator_options(None)
@INFERENCE
@click.option(
    "--plot",
    type=OUTPUT_FILE,
    help="Draw accuracy against epsilon, fitted to generated rows of this shape (.png, .svg, "
    ".pdf); takes seconds to a minute.",
)
@force_option
@guarded
def plan(
    public_rows: int,
    target: str | None,
    schema_file: Path | None,
    references: tuple[str, ...],
    formula: str | None,
    additive: bool,
    interactions: tuple[str, ...],
    monotone: tuple[str, ...],
    columns: int | None,
    classes: int | None,
    exposure: str | None,
    exposure_bounds: str | None,
    trials: str | None,
    groups: str | None,
    max_rows_per_group: int | None,
    public_groups: int | None,
    estimator: str | None,
    settings: tuple[str, ...],
    inference: str | None,
    plot: Path | None,
    force: bool,
    **budget: Any,
) -> None:
    """Say what a fit would release, what it would cost and what to expect, without any data.

    `dpglm fit` carries out exactly this plan. With --columns instead of --schema, features are
    taken to lie in [-1, 1] and a numeric target in [0, 1]; one column with k categories is k
    features.
    """
    _check_picture(plot)
    rows = public_rows
    if schema_file is None and (references or formula is not None):
        raise InputError("--reference and --formula need --schema, whose columns they name")
    if public_groups is None and (groups or max_rows_per_group):
        raise InputError(
            "--public-groups must say how many groups there are, if all rows of a group are "
            "protected together"
        )
    if plot is not None and public_groups is not None:
        raise InputError(
            f"--plot {plot}: cannot be had with groups, as nothing tells how alike the rows of a "
            "group are"
        )
    excluded = {"estimator": estimator, "reference": references, "formula": formula}
    curves = asked_for_curves(additive, interactions, monotone, **excluded)
    given = budget | {"n_rows": rows if budget["adjacency"] == "add_remove" else None}
    given |= {"n_groups": public_groups, "max_rows_per_group": max_rows_per_group}
    facts: dict[str, Any] = {} if exposure is None else {"offset": True}
    if schema_file is None:
        if curves:
            raise InputError("--additive needs --schema, which says all about the columns")
        for option, value in (("target", target), ("exposure", exposure), ("trials", trials)):
            if value is not None:
                raise InputError(f"--{option} {value}: needs --schema, whose target it is about")
        name, parameters, n_features, n_classes = _from_sizes(columns, classes, estimator)
        made = make_estimator(name, settings, inference, **given, **parameters)
    else:
        if columns is not None or classes is not None:
            raise InputError("--schema already says how many columns and classes there are")
        schema = coded_schema(schema_file, references, formula)
        made = declared(
            schema,
            curves=curves,
            interactions=interactions,
            monotone=monotone,
            target=target,
            exposure=exposure,
            exposure_bounds=exposure_bounds,
            trials=trials,
            estimator=estimator,
            settings=settings,
            inference=inference,
            given=given,
        )
        n_features, n_classes = len(schema.feature_names), schema.target.n_classes
    with shown():
        decided = (
            made.plan(rows, **facts)
            if curves
            else planned(made, rows, n_features, n_classes, **facts)
        )
    if curves:
        note(f"Curves: {made.resolve(rows)}")
    with all_or_none([] if plot is None else [plot], force=force) as drafts:
        _tell(decided, type(made).__name__)
        remarks = {target: _draw(decided, draft) for target, draft in drafts.items()}
    print_sections((f"Wrote {target}", said) for target, said in remarks.items())


def _from_sizes(
    columns: int | None, classes: int | None, estimator: str | None
) -> tuple[str, dict[str, Any], int, int | None]:
    from sklearn.base import is_classifier

    if columns is None:
        raise InputError("--columns or --schema must say how many features there are")
    name = estimator or "logistic"
    parameters: dict[str, Any] = {"row_norm": math.sqrt(columns)}
    if is_classifier(estimator_class(name)()):
        return name, parameters, columns, classes or 2
    if classes is not None:
        raise InputError(f"--classes has no meaning for --estimator {name}, which fits numbers")
    # A gamma regression admits no zero.
    admits_zero = estimator_class(name)()._loss(1.0).target.admits(0.0)
    return name, parameters | {"target_bounds": (0.0 if admits_zero else 1e-3, 1.0)}, columns, None


def _tell(plan: Plan, estimator: str) -> None:
    from dpglm._words import rounded_up
    from dpglm.certificate.statement import SCOPE
    from dpglm.guidance.expectation import guidance
    from dpglm.privacy.events import describe_event

    spent = plan.privacy()
    data = plan.data
    whose = "" if data.groups is None else f" of {data.groups.n_groups} groups"
    sizes = f"{data.n_rows} rows{whose}, {data.n_features} features"
    sizes += f", {data.n_outputs} classes" if data.n_outputs > 1 else ""
    print_pairs(
        f"Plan for {estimator}: {sizes}",
        {
            "Privacy": f"epsilon {rounded_up(spent['epsilon'])}, delta {spent['delta']:g}, "
            f"relation {plan.adjacency.value}",
            "Releases": "; ".join(describe_event(plan.event)),
            "Steps": str(plan.n_steps),
            "Noise": "; ".join(
                f"{one.mechanism.in_words} ({one.quantity})" for one in plan.method.releases
            ),
        },
    )
    say()
    print_sections([*guidance(plan).sections(), ("What no certificate can know", (SCOPE,))])


def _check_picture(plot: Path | None) -> None:
    from dpglm._registry import require

    if plot is None:
        return
    if plot.suffix not in _PICTURES:
        raise InputError(f"--plot {plot}: must end in {', '.join(_PICTURES)}")
    require("matplotlib", "plot")


def _draw(plan: Plan, draft: Path) -> Sequence[str]:
    """Draw a plan's curve; return the remarks on it."""
    from dpglm.report.expected_curve import default_epsilons, expected_curve

    epsilons = default_epsilons(plan)
    with shown():
        # With a seed, the same plan gives the same picture.
        curve = expected_curve(plan, epsilons, n_runs=_RUNS, random_state=0)
    curve.figure().savefig(draft)
    return curve.remarks
