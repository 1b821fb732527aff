"""Fitting with a progress bar, and the files that a fit publishes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

import click

from dpglm._progress import shown
from dpglm.cli.console import InputError
from dpglm.cli.options import (
    check_intercept,
    check_trials,
    encoded_parameters,
    estimator_for,
    make_estimator,
    set_up,
)
from dpglm.tables.cells import as_numbers
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpglm.report.model_file import LinearModel
    from dpglm.solvers.base import Plan, StepInfo


# Options of additive models, and the estimators that they ask for.

F = TypeVar("F", bound=Callable[..., Any])
_DIRECTIONS: Mapping[str, int] = MappingProxyType({"+1": 1, "1": 1, "-1": -1})
# The data, and what other options decide.
_DECIDED = frozenset({"schema", "interactions", "monotone"})


def additive_options(command: F) -> F:
    """Add --additive, --interaction and --monotone."""
    for option in (
        click.option(
            "--monotone",
            "monotone",
            multiple=True,
            metavar="COLUMN=+1|-1",
            help="With --additive: a numeric column in which the score must not fall (+1), or not "
            "rise (-1). May be repeated.",
        ),
        click.option(
            "--interaction",
            "interactions",
            multiple=True,
            metavar="COLUMN:COLUMN",
            help="With --additive: two columns whose effect together is added to their own. May be "
            "repeated.",
        ),
        click.option(
            "--additive",
            is_flag=True,
            help="Fit a curve for each numeric column and a level for each category; how fine "
            "follows from rows and budget.",
        ),
    ):
        command = option(command)
    return command


def asked_for_curves(
    additive: bool,
    interactions: Sequence[str],
    monotone: Sequence[str],
    **excluded: object,
) -> bool:
    """Return ``additive``; refuse options that need it without it, and ``excluded`` ones with it.

    Excluded options, by name, are those that are true.
    """
    for option, values in (("--interaction", interactions), ("--monotone", monotone)):
        if values and not additive:
            raise InputError(f"{option} {values[0]}: needs --additive")
    for name, value in excluded.items():
        if additive and value:
            raise InputError(
                f"--{name} cannot be had with --additive, which makes curves of all columns of the "
                "schema, and takes the model from the target: another loss is --set loss=NAME"
            )
    return additive


def make_additive(
    schema: Schema,
    interactions: Sequence[str],
    monotone: Sequence[str],
    settings: Sequence[str],
    inference: str | None = None,
    **parameters: Any,
) -> Any:
    """Make the additive model of a schema's target."""
    from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor

    kind = AdditiveRegressor if schema.target.n_classes is None else AdditiveClassifier
    return set_up(
        kind(schema),
        settings,
        inference,
        not_settable=_DECIDED,
        labels=schema.target.estimator_parameters().get("classes"),
        interactions=[_pair(one, schema) for one in interactions],
        monotone=dict(_direction(one) for one in monotone) or None,
        **parameters,
    )


def _pair(text: str, schema: Schema) -> tuple[str, str]:
    """Split a pair of columns, whose names may hold colons themselves."""
    pairs = [(text[:i], text[i + 1 :]) for i, letter in enumerate(text) if letter == ":"]
    known = [pair for pair in pairs if set(pair) <= set(schema.column_names)]
    if len(known) != 1:
        raise InputError(
            f"--interaction {text}: must be COLUMN:COLUMN, two columns of the schema, "
            f"{', '.join(schema.column_names)}"
        )
    return known[0]


def _direction(text: str) -> tuple[str, int]:
    name, _, direction = text.rpartition("=")
    if direction not in _DIRECTIONS or not name:
        raise InputError(f"--monotone {text}: must be COLUMN=+1 or COLUMN=-1")
    return name, _DIRECTIONS[direction]


# Exposures and offsets of rows: the options that name them, and those that a model needs.


def offset_options(command: F) -> F:
    """Add --exposure and --offset, of rows that a model is to predict."""
    for option in (
        click.option(
            "--offset",
            metavar="COLUMN|NUMBER",
            help="Known terms of the scores, of a model that was fitted with offsets.",
        ),
        click.option(
            "--exposure",
            metavar="COLUMN|NUMBER",
            help="The column of exposures, of a model that was fitted with them, or one number for "
            "all rows, such as 1. By default the column that the model file names.",
        ),
    ):
        command = option(command)
    return command


def exposure_options(command: F) -> F:
    """Add --exposure and --exposure-bounds, of rows that a model is fitted to."""
    for option in (
        click.option(
            "--exposure-bounds",
            metavar="LOW,HIGH",
            help="Public bounds on exposures, which are clipped to them; with --inference they are "
            "needed.",
        ),
        click.option(
            "--exposure",
            metavar="COLUMN",
            help="A column of times, persons or the like, above 0, to which means of counts and "
            "amounts are proportional; as private as its rows, and not in the schema.",
        ),
    ):
        command = option(command)
    return command


def check_exposure(
    exposure: str | None, bounds: str | None, inference: str | None, schema: Schema
) -> None:
    """Refuse an exposure that no model of the target takes, or whose bounds are needed."""
    if exposure is None:
        return
    if schema.target.n_classes is not None:
        raise InputError("--exposure is for counts and amounts, and the target is neither")
    if exposure in (*schema.column_names, schema.target.name):
        raise InputError(f"--exposure {exposure}: the schema has this column for something else")
    if inference is not None and bounds is None:
        raise InputError(
            "--inference needs --exposure-bounds LOW,HIGH, public bounds on the exposures, about "
            "whose middle the fit starts"
        )


@final
@dataclass(frozen=True)
class GivenOffset:
    """What a model that was fitted with offsets takes them from: a column, or a number."""

    kind: str | None = None
    source: str | float | None = None

    @classmethod
    def of(
        cls,
        model: LinearModel,
        exposure: str | None,
        offset: str | None,
        present: Collection[str],
    ) -> Self:
        """Read the options for a model and the columns of a table; refuse what does not fit."""
        fitted = model.offset_column
        given = [
            (kind, text) for kind, text in (("exposure", exposure), ("offset", offset)) if text
        ]
        if len(given) > 1:
            raise InputError("--exposure and --offset must not both be given")
        if fitted is None:
            if given:
                raise InputError(f"--{given[0][0]} {given[0][1]}: the model was fitted without one")
            return cls()
        kind, text = given[0] if given else (fitted.kind, fitted.name)
        cure = (
            f"name it with --{kind} COLUMN, or give --exposure 1 for means at an exposure of 1"
            if fitted.kind == "exposure"
            else f"name it with --{kind} COLUMN, or give --offset 0"
        )
        if text is None:
            raise InputError(
                f"the model was fitted with an {kind}, and its file does not say in which column: "
                f"{cure}"
            )
        number = _number_or_none(text) if given else None
        if number is None and text not in present:
            raise InputError(f"the data lack the column {text!r} of the model's {kind}: {cure}")
        return cls(kind, text if number is None else number)

    @property
    def columns(self) -> list[str]:
        """The column, if there is one."""
        return [self.source] if isinstance(self.source, str) else []

    def values(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``predict`` is given."""
        if self.kind is None:
            return {}
        if isinstance(self.source, str):
            return {self.kind: as_numbers(table[self.source], f"column {self.source!r}")}
        return {self.kind: self.source}


def exposure_bounds(text: str | None, exposure: str | None) -> dict[str, Any]:
    """Read --exposure-bounds as the estimator's parameter."""
    if text is None:
        return {}
    if exposure is None:
        raise InputError(f"--exposure-bounds {text}: needs --exposure, the column")
    try:
        low, high = map(float, text.split(","))
        if not 0.0 < low <= high < math.inf:
            raise ValueError
    except ValueError:
        raise InputError(
            f"--exposure-bounds {text}: give two numbers above 0, such as 0.1,10"
        ) from None
    return {"offset_bounds": (math.log(low), math.log(high))}


def _number_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# Options that say how many rows there are, whose each is, and how many of each are used.


def rows_option(**more: Any) -> Callable[[F], F]:
    """Add --rows, also called --public-rows."""
    return click.option(
        "--rows", "--public-rows", "public_rows", type=click.IntRange(min=1), **more
    )


PUBLIC_ROWS = rows_option(
    help="A rough public number of rows; for --adjacency add_remove, where the true one is secret."
)


def group_options(command: F) -> F:
    """Add --groups, --max-rows-per-group and --public-groups."""
    for option in (
        click.option(
            "--public-groups",
            type=click.IntRange(min=1),
            help="A rough public number of groups; for --adjacency add_remove, where the true one "
            "is secret.",
        ),
        click.option(
            "--max-rows-per-group",
            type=click.IntRange(min=1),
            help="How many rows of a group are used at most; of groups with more, so many are "
            "drawn.",
        ),
        click.option(
            "--groups",
            metavar="COLUMN",
            help="A column that says whose each row is, such as a person's number: all rows of a "
            "group are protected together. Not in the schema.",
        ),
    ):
        command = option(command)
    return command


@final
@dataclass(frozen=True)
class GivenGroups:
    """What was given of groups: their column, the limit on their rows, and their public number."""

    column: str | None
    most: int | None
    public: int | None

    def __post_init__(self) -> None:
        for option, value in (
            ("--max-rows-per-group", self.most),
            ("--public-groups", self.public),
        ):
            if value is not None and self.column is None:
                raise InputError(
                    f"{option} {value}: needs --groups, the column that says whose each row is"
                )

    @property
    def columns(self) -> list[str]:
        """The column, if there is one."""
        return [] if self.column is None else [self.column]

    def check_apart(self, taken: Collection[str | None]) -> None:
        """Refuse a column that is used for something else already."""
        if self.column is not None and self.column in taken:
            raise InputError(f"--groups {self.column}: this column is used for something else")

    def check_limited(self) -> None:
        """Refuse groups without a limit on their rows."""
        if self.column is not None and self.most is None:
            raise InputError(
                f"--groups {self.column}: needs --max-rows-per-group, as noise is made for so many "
                "rows of each"
            )

    def check_public(self, adjacency: str, public_rows: int | None) -> None:
        """Refuse a relation that keeps a number secret for which no public one was given."""
        if self.column is None:
            return
        if adjacency == "add_remove" and self.public is None:
            raise InputError(
                "--adjacency add_remove keeps the number of groups secret: say roughly how many "
                "there are, from public knowledge, with --public-groups"
            )
        if adjacency == "replace_one" and public_rows is None:
            raise InputError(
                "--adjacency replace_one keeps the number of rows in groups secret: say roughly "
                "how many there are, from public knowledge, with --rows"
            )


bounds_of_offsets = exposure_bounds


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
    from dpglm.certificate.statement import schema_facts, with_implied
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
        estimator.privacy_ = estimator.privacy_.with_part(public_facts=facts)


def require_report() -> None:
    """Check that the packages which a report needs are installed."""
    from dpglm._registry import require

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
