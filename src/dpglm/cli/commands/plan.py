"""`dpglm plan`: the releases, cost and expected accuracy of a fit, before any row is read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import click

from dpglm._progress import shown
from dpglm.cli.console import InputError, note, print_pairs, print_sections, say
from dpglm.cli.fitting import ModelOptions, planned
from dpglm.cli.options import (
    COUNT,
    Protected,
    command,
    defaults,
    estimator_class,
    make_estimator,
    option,
)

if TYPE_CHECKING:
    from dpglm.solvers.base import Plan


@command(
    "Show the releases and cost of a fit; needs no data.",
    "dpglm plan --schema schema.json --n-rows 30000 --epsilon 0.5",
    "dpglm plan --n-rows 5000 --n-features 20 --n-classes 3",
)
def plan(
    described: ModelOptions,
    protected: Annotated[Protected, defaults(epsilon=1.0, n_rows=...)],
    n_features: Annotated[
        int | None, option("Number of features, without --schema.", type=COUNT)
    ] = None,
    n_classes: Annotated[
        int | None,
        option("Number of classes, without --schema.  [default: 2]", type=click.IntRange(min=2)),
    ] = None,
) -> None:
    """Show the releases, cost and expected accuracy of a fit, without any data.

    `dpglm fit` carries out exactly this plan. With --n-features instead of --schema, features are
    taken to lie in [-1, 1] and a numeric target in [0, 1]; one column with k categories counts as
    k features.
    """
    n_rows = protected.n_rows
    assert n_rows is not None
    if protected.n_groups is None and (protected.groups or protected.max_rows_per_group):
        raise InputError("--n-groups must be given if all rows of a group are protected together")
    described.check()
    given = protected.keywords
    if protected.adjacency != "add_remove":
        del given["n_rows"]
    facts: dict[str, Any] = {} if described.exposure is None else {"offset": True}
    if described.schema_file is None:
        of_columns = ("reference", "formula", "additive", "target", "exposure", "trials")
        for name in of_columns:
            if getattr(described, name):
                raise InputError(f"--{name} needs --schema, which describes the columns")
        made, n_features, n_classes = _from_sizes(n_features, n_classes, described, given)
    else:
        if n_features is not None or n_classes is not None:
            raise InputError("--schema already states how many features and classes there are")
        schema = described.schema()
        made = described.make(schema, **given)
        n_features, n_classes = len(schema.feature_names), schema.target.n_classes
    with shown():
        if described.additive:
            decided = made.plan(n_rows, **facts)
            note(f"Curves: {made.resolve(n_rows)}")
        else:
            decided = planned(made, n_rows, n_features, n_classes, **facts)
    _print(decided, type(made).__name__)


def _from_sizes(
    n_features: int | None, n_classes: int | None, described: ModelOptions, given: dict[str, Any]
) -> tuple[Any, int, int | None]:
    """Make the estimator for a table of known size and unknown columns."""
    from sklearn.base import is_classifier

    if n_features is None:
        raise InputError("--n-features or --schema must be given")
    name = described.estimator or "logistic"
    neutral = estimator_class(name)()
    given["row_norm"] = math.sqrt(n_features)
    if is_classifier(neutral):
        n_classes = n_classes or 2
    elif n_classes is not None:
        raise InputError(f"--n-classes is for classifiers, and --estimator {name} fits numbers")
    else:
        # A gamma regression admits no zero.
        least = 0.0 if neutral._loss(1.0).target.admits(0.0) else 1e-3
        given["target_bounds"] = (least, 1.0)
    made = make_estimator(name, described.settings, described.inference, **given)
    return made, n_features, n_classes


def _print(plan: Plan, estimator: str) -> None:
    from dpglm._words import rounded_up
    from dpglm.certificate.statement import SCOPE
    from dpglm.guidance.expectation import guidance
    from dpglm.privacy.events import describe_event

    spent = plan.privacy()
    data = plan.data
    of_groups = "" if data.groups is None else f" of {data.groups.n_groups} groups"
    sizes = f"{data.n_rows} rows{of_groups}, {data.n_features} features"
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
    print_sections([*guidance(plan).sections(), ("Limits of certificates", (SCOPE,))])
