"""The model that options describe, its exposures, and fits with a progress bar."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, final

from dpglm._progress import shown
from dpglm.cli.console import InputError
from dpglm.cli.options import (
    INPUT_FILE,
    EstimatorName,
    estimator_class,
    make_estimator,
    numbers,
    set_up,
)
from dpglm.tables.cells import as_numbers
from dpglm.tables.schema import Schema
from dpglm.tables.targets import CountTarget, TargetColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpglm.report.model_file import LinearModel
    from dpglm.solvers.base import Plan, StepInfo


@final
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model to fit: the options that `fit` and `plan` share.

    Parameters
    ----------
    target : COLUMN
        Column to predict, as named in the schema.
    reference : COLUMN=CATEGORY|first
        Category of a column with which the others are compared; 'first' for the first category of
        every column.
    formula : TEXT
        Model formula, such as 'income ~ age + C(sex) + bs(hours, df=5)'.
    additive
        Fit a smooth curve for each numeric column and an effect for each category. Their resolution
        follows from the number of rows and the budget.
    interaction : COLUMN:COLUMN
        With --additive: two columns that interact.
    monotone : COLUMN=+1|-1
        With --additive: a numeric column in which the score must not fall (+1) or must not rise
        (-1).
    exposure : COLUMN
        Column of exposures above 0, such as times or numbers of people, to which means of counts
        and amounts are proportional. It is private, and not in the schema.
    exposure_bounds : LOW,HIGH
        Public bounds; exposures are clipped to them. Required with --inference.
    estimator
        Model to fit.  [default: by the target's type]
    inference
        Release standard errors, confidence intervals and tests, too, within the same budget.
        'model' assumes that the model is right, 'robust' does not.
    """

    schema_file: Annotated[Path | None, INPUT_FILE] = None
    target: str | None = None
    reference: tuple[str, ...] = ()
    formula: str | None = None
    additive: bool = False
    interaction: tuple[str, ...] = ()
    monotone: tuple[str, ...] = ()
    exposure: str | None = None
    exposure_bounds: str | None = None
    trials: str | None = None
    estimator: EstimatorName = None
    settings: tuple[str, ...] = ()
    inference: Literal["model", "robust"] | None = None

    def schema(self) -> Schema:
        """Read the schema, with references and formula."""
        assert self.schema_file is not None
        schema = Schema.from_json(self.schema_file)
        for text in self.reference:
            name, equals, category = text.rpartition("=")
            if not equals and text != "first":
                raise InputError(f"--reference {text}: must be COLUMN=CATEGORY, or 'first'")
            schema = schema.with_reference({name: category} if equals else category)
        return schema.with_formula(self.formula)

    def check(self) -> None:
        """Refuse options of additive models without --additive, and those that exclude it."""
        for flag, values in (("--interaction", self.interaction), ("--monotone", self.monotone)):
            if values and not self.additive:
                raise InputError(f"{flag} {values[0]}: needs --additive")
        excluded = ("estimator", "reference", "formula", "trials")
        for name in excluded if self.additive else ():
            if getattr(self, name):
                raise InputError(
                    f"--{name} cannot be combined with --additive, which makes curves of all "
                    "columns of the schema and takes the model from the target. For another loss "
                    "use --set loss=NAME"
                )

    def make(self, schema: Schema, **parameters: Any) -> Any:
        """Make the estimator for a schema, with parameters that other options decide."""
        if self.target is not None and self.target != schema.target.name:
            raise InputError(
                f"--target {self.target}: the schema's target is {schema.target.name!r}; name that "
                "column, or change the schema"
            )
        parameters |= self._offset_bounds(schema)
        if self.additive:
            return self._additive(schema, parameters)
        named = self.estimator or (None if self.trials is None else "binomial")
        name = _estimator_for(schema.target, named)
        self._check_trials(name, schema)
        known = schema.target.estimator_parameters()
        if _counts_successes(name, schema.target):
            # There are no more trials than the bound on successes.
            known = {"weight_bound": known["target_bounds"][1]}
        if not schema.has_intercept:
            known["fit_intercept"] = False
        parameters |= {"row_norm": schema.row_norm, **known}
        made = make_estimator(name, self.settings, self.inference, **parameters)
        if made.fit_intercept and not schema.has_intercept:
            raise InputError(f"--set fit_intercept=true: the formula {schema.formula!r} has none")
        if schema.has_intercept and not made.fit_intercept:
            raise InputError(
                "--set fit_intercept=false: the columns are centred, which needs an intercept. For "
                "a model without one write '0 +' into the formula, as in --formula '0 + .', which "
                "has all columns"
            )
        return made

    def _additive(self, schema: Schema, parameters: Mapping[str, Any]) -> Any:
        from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor

        kind = AdditiveRegressor if schema.target.n_classes is None else AdditiveClassifier
        return set_up(
            kind(schema),
            self.settings,
            self.inference,
            decided=("schema", "interactions", "monotone"),
            labels=schema.target.estimator_parameters().get("classes"),
            interactions=[_pair(one, schema) for one in self.interaction],
            monotone=dict(_direction(one) for one in self.monotone) or None,
            **parameters,
        )

    def _offset_bounds(self, schema: Schema) -> dict[str, Any]:
        """Return the bounds on logarithms of exposures; refuse exposures that cannot be used."""
        exposure, bounds = self.exposure, self.exposure_bounds
        if exposure is None:
            if bounds is not None:
                raise InputError(f"--exposure-bounds {bounds}: needs --exposure, the column")
            return {}
        if schema.target.n_classes is not None:
            raise InputError("--exposure is for counts and amounts, and the target is neither")
        if exposure in (*schema.column_names, schema.target.name):
            raise InputError(f"--exposure {exposure}: the schema uses this column already")
        if bounds is None:
            if self.inference is not None:
                raise InputError(
                    "--inference needs --exposure-bounds LOW,HIGH, public bounds on the exposures"
                )
            return {}
        low, high = numbers("--exposure-bounds", bounds, "0.1,10")
        if not 0.0 < low <= high < math.inf:
            raise InputError(
                f"--exposure-bounds {bounds}: give two numbers above 0, such as 0.1,10"
            )
        return {"offset_bounds": (math.log(low), math.log(high))}

    def _check_trials(self, estimator: str, schema: Schema) -> None:
        """Refuse trials of a model that does not use them, and successes without their trials."""
        counts = _counts_successes(estimator, schema.target)
        if counts and self.trials is None:
            raise InputError(
                f"--estimator {estimator}: the target {schema.target.name!r} counts successes: "
                "name the column with their trials with --trials COLUMN"
            )
        if self.trials is not None and not counts:
            raise InputError(
                f"--trials {self.trials}: is for --estimator binomial and a target of the type "
                '"count", with the largest number of trials as "high"'
            )
        if self.trials in (*schema.column_names, schema.target.name):
            raise InputError(f"--trials {self.trials}: the schema uses this column already")


def _pair(text: str, schema: Schema) -> tuple[str, str]:
    """Split a pair of columns; their names may contain colons."""
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
    if direction not in ("+1", "1", "-1") or not name:
        raise InputError(f"--monotone {text}: must be COLUMN=+1 or COLUMN=-1")
    return name, int(direction)


def _counts_successes(estimator: str, target: TargetColumn) -> bool:
    """Whether the target counts successes and the estimator models their share."""
    is_binomial = estimator_class(estimator).__name__ == "BinomialRegressor"
    return is_binomial and isinstance(target, CountTarget)


def _estimator_for(target: TargetColumn, name: str | None) -> str:
    """Return the named estimator, or the target's default; refuse one that cannot predict it."""
    from dpglm._registry import ESTIMATORS

    needed = set(target.estimator_parameters())

    def is_able(one: str) -> bool:
        return needed <= set(estimator_class(one)().get_params())

    if name is not None and not is_able(name):
        raise InputError(
            f"--estimator {name} cannot predict the target {target.name!r} as the schema "
            f"describes it: choose among {', '.join(filter(is_able, ESTIMATORS))}"
        )
    return name or target.default_estimator


# Offsets of rows to predict or evaluate.


@final
@dataclass(frozen=True)
class GivenOffset:
    """The exposures or offsets that a model was fitted with: a column, or a number."""

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
        """Read the options for a model and the columns of a table; refuse wrong ones."""
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
        cure = f"name it with --{kind} COLUMN, or give " + (
            "--exposure 1 for means at an exposure of 1"
            if fitted.kind == "exposure"
            else "--offset 0"
        )
        if text is None:
            raise InputError(
                f"the model was fitted with an {kind}, and its file does not name the column: "
                f"{cure}"
            )
        if given:
            try:
                return cls(kind, float(text))
            except ValueError:
                pass
        if text not in present:
            raise InputError(f"the data lack the column {text!r} of the model's {kind}: {cure}")
        return cls(kind, text)

    @property
    def columns(self) -> list[str]:
        """The column, if there is one."""
        return [self.source] if isinstance(self.source, str) else []

    def values(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword of ``predict``."""
        if self.kind is None:
            return {}
        if isinstance(self.source, str):
            return {self.kind: as_numbers(table[self.source], f"column {self.source!r}")}
        return {self.kind: self.source}


def planned(
    estimator: Any, n_rows: int, n_features: int, n_classes: int | None, **facts: Any
) -> Plan:
    """Return the plan that an estimator will execute; a regressor has no ``n_classes``."""
    from sklearn.base import is_classifier

    own = {"n_classes": n_classes} if is_classifier(estimator) else {}
    plan: Plan = estimator.plan(n_rows, n_features, **own, **facts)
    return plan


def fit_with_progress(
    estimator: Any,
    X: Any,
    y: NDArray[Any] | None,
    schema: Schema,
    checkpoint: Path | None,
    callback: Callable[[StepInfo], None],
    **given: Any,
) -> None:
    """Fit an estimator, show its progress, and add the schema to its public facts.

    ``y`` is None where X contains the targets; ``given`` is for ``fit``.
    """
    from dpglm.certificate.statement import schema_facts, with_implied
    from dpglm.solvers.checkpoint import CheckpointFile

    # Rows in memory do not name the schema that encoded them.
    kept = None if checkpoint is None else CheckpointFile(checkpoint, {"table": schema})
    estimator.set_params(callback=callback)
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
