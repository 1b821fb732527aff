"""The model that options describe, settings by text, and fits with a progress bar."""

from __future__ import annotations

import json
import math
import types
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, final

from dpglm._calls import shown
from dpglm._registry import ESTIMATORS
from dpglm.cli.console import CommandError, note
from dpglm.cli.options import INPUT_FILE, EstimatorName, numbers
from dpglm.tables.schema import Schema
from dpglm.tables.targets import CountTarget

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
                raise CommandError(f"--reference {text}: must be COLUMN=CATEGORY, or 'first'")
            schema = schema.with_reference({name: category} if equals else category)
        return schema.with_formula(self.formula)

    def check(self) -> None:
        """Refuse options of additive models without --additive, and those that exclude it."""
        for flag, values in (("--interaction", self.interaction), ("--monotone", self.monotone)):
            if values and not self.additive:
                raise CommandError(f"{flag} {values[0]}: needs --additive")
        excluded = ("estimator", "reference", "formula", "trials")
        for name in excluded if self.additive else ():
            if getattr(self, name):
                raise CommandError(
                    f"--{name} cannot be combined with --additive, which makes curves of all "
                    "columns of the schema and takes the model from the target. For another loss "
                    "use --set loss=NAME"
                )

    def make(self, schema: Schema, **parameters: Any) -> Any:
        """Make the estimator for a schema, with parameters that other options decide."""
        from dpglm.estimators.linear._base import of_schema

        if self.target is not None and self.target != schema.target.name:
            raise CommandError(
                f"--target {self.target}: the schema's target is {schema.target.name!r}; name that "
                "column, or change the schema"
            )
        parameters |= self._offset_bounds(schema)
        if self.additive:
            return self._additive(schema, parameters)
        known, name = schema.target.estimator_parameters(), self.estimator
        if name is None:
            name = schema.target.default_estimator if self.trials is None else "binomial"
        elif not _takes(name, known):
            able = (one for one in ESTIMATORS if _takes(one, known))
            raise CommandError(
                f"--estimator {name} cannot predict the target {schema.target.name!r} as the "
                f"schema describes it: choose among {', '.join(able)}"
            )
        is_binomial = estimator_class(name).__name__ == "BinomialRegressor"
        counts = is_binomial and isinstance(schema.target, CountTarget)
        self._check_trials(name, schema, counts=counts)
        if counts:
            # There are no more trials than the bound on successes.
            known = {"weight_bound": known["target_bounds"][1]}
        if not schema.encoding.has_intercept:
            known["fit_intercept"] = False
        parameters |= {"row_norm": schema.row_norm, **known}
        made = make_estimator(name, self.settings, self.inference, **parameters)
        made.set_params(**of_schema(made, made.solver, schema))
        if made.fit_intercept and not schema.encoding.has_intercept:
            raise CommandError(f"--set fit_intercept=true: the formula {schema.formula!r} has none")
        if schema.encoding.has_intercept and not made.fit_intercept:
            raise CommandError(
                "--set fit_intercept=false: the columns are centred, which needs an intercept. For "
                "a model without one write '0 +' into the formula, as in --formula '0 + .', which "
                "has all columns"
            )
        return made

    def plan(self, estimator: Any, schema: Schema, n_rows: int, **facts: Any) -> Plan:
        """Return the plan that an estimator will execute; note the curves of an additive one."""
        from sklearn.base import is_classifier

        facts |= {} if self.exposure is None else {"offset": True}
        if self.additive:
            plan: Plan = estimator.plan(n_rows, **facts)
            note(f"Curves: {estimator.resolve(n_rows)}")
            return plan
        if is_classifier(estimator):
            facts["n_classes"] = schema.target.n_classes
        plan = estimator.plan(n_rows, len(schema.feature_names), **facts)
        return plan

    def _additive(self, schema: Schema, parameters: Mapping[str, Any]) -> Any:
        from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor

        kind = AdditiveRegressor if schema.target.n_classes is None else AdditiveClassifier
        return make_estimator(
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
                raise CommandError(f"--exposure-bounds {bounds}: needs --exposure, the column")
            return {}
        if schema.target.n_classes is not None:
            raise CommandError("--exposure is for counts and amounts, and the target is neither")
        if exposure in (*schema.column_names, schema.target.name):
            raise CommandError(f"--exposure {exposure}: the schema uses this column already")
        if bounds is None:
            if self.inference is not None:
                raise CommandError(
                    "--inference needs --exposure-bounds LOW,HIGH, public bounds on the exposures"
                )
            return {}
        low, high = numbers("--exposure-bounds", bounds, "0.1,10")
        if not 0.0 < low <= high < math.inf:
            raise CommandError(
                f"--exposure-bounds {bounds}: give two numbers above 0, such as 0.1,10"
            )
        return {"offset_bounds": (math.log(low), math.log(high))}

    def _check_trials(self, estimator: str, schema: Schema, *, counts: bool) -> None:
        """Refuse trials unless the model ``counts`` successes, and successes without trials."""
        if counts and self.trials is None:
            raise CommandError(
                f"--estimator {estimator}: the target {schema.target.name!r} counts successes: "
                "name the column with their trials with --trials COLUMN"
            )
        if self.trials is not None and not counts:
            raise CommandError(
                f"--trials {self.trials}: is for --estimator binomial and a target of the type "
                '"count", with the largest number of trials as "high"'
            )
        if self.trials in (*schema.column_names, schema.target.name):
            raise CommandError(f"--trials {self.trials}: the schema uses this column already")


def _pair(text: str, schema: Schema) -> tuple[str, str]:
    """Split a pair of columns; their names may contain colons."""
    pairs = [(text[:i], text[i + 1 :]) for i, letter in enumerate(text) if letter == ":"]
    known = [pair for pair in pairs if set(pair) <= set(schema.column_names)]
    if len(known) != 1:
        raise CommandError(
            f"--interaction {text}: must be COLUMN:COLUMN, two columns of the schema, "
            f"{', '.join(schema.column_names)}"
        )
    return known[0]


def _direction(text: str) -> tuple[str, int]:
    name, _, direction = text.rpartition("=")
    if direction not in ("+1", "1", "-1") or not name:
        raise CommandError(f"--monotone {text}: must be COLUMN=+1 or COLUMN=-1")
    return name, int(direction)


def _takes(estimator: str, parameters: Mapping[str, Any]) -> bool:
    return set(parameters) <= set(estimator_class(estimator)().get_params())


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
    from dpglm.certificate.certificate import schema_facts, with_implied
    from dpglm.solvers.checkpoint import CheckpointFile

    # Rows in memory do not name the schema that encoded them.
    kept = None if checkpoint is None else CheckpointFile(checkpoint, {"table": schema})
    estimator.set_params(callback=callback)
    try:
        with shown(), warnings.catch_warnings():
            # The printed table lists these coefficients by name; rows in memory have no names.
            for begin in ("The rows carry little information", "Cannot be estimated at this"):
                warnings.filterwarnings("ignore", begin)
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
    estimator: Any, schema: Schema, drafts: Mapping[Path, Path], *, model: Path, report: Path | None
) -> None:
    """Write model file, certificate and page to their drafts."""
    from dpglm.report.model_file import save_model

    save_model(estimator, drafts[model], schema)
    if report is not None:
        from dpglm.report.html import write_report

        estimator.privacy_.to_json(drafts[report / "certificate.json"])
        write_report(estimator, drafts[report / "report.html"])


# Settings by text; annotations of the parameters give their types.

# Other options decide these, or they take Python objects.
_NOT_SETTABLE = frozenset(
    (
        *("adjacency", "budget", "callback", "classes", "constraint", "delta", "epsilon"),
        *("feature_bounds", "inference", "ledger", "max_rows_per_group", "n_groups", "n_rows"),
        *("offset_bounds", "regularizer", "row_norm", "solver", "target_bounds", "verbose"),
    )
)
# In this order: text that reads as one of them is not read as the next.
_WORDS: Mapping[Any, str] = MappingProxyType(
    {
        types.NoneType: "none",
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        Mapping: 'a JSON object such as {"yes": 2}',
        str: "text",
    }
)


def _read(text: str, kind: Any) -> Any:
    """Read text as a value of a type, or one of a tuple of texts; a ValueError if it is not one."""
    word = text.strip().lower()
    if kind is types.NoneType and word in ("none", "null"):
        return None
    if kind is bool and word in ("true", "false"):
        return word == "true"
    if kind is int and "_" not in text:
        return int(text)
    if kind is float and "_" not in text:
        number = float(text)
        is_whole = text.strip().lstrip("+-").isdecimal()
        if not math.isnan(number):
            return int(text) if is_whole else number
    if kind is Mapping and isinstance(found := json.loads(text), dict):
        return found
    if kind is str or isinstance(kind, tuple):
        quoted = text[:1] == '"' and text[-1:] == '"' and len(text) > 1
        given = json.loads(text) if quoted else text
        if not isinstance(kind, tuple) or given in kind:
            return given
    raise ValueError


Kinds: TypeAlias = tuple[Any, ...]
"""Types, or tuples of texts, that text can be read as."""


def setting(name: str, kinds: Kinds, text: str) -> Any:
    """Read the value of a parameter: None, a bool, a number, a dict or text."""
    for kind in kinds:
        try:
            return _read(text, kind)
        except ValueError:
            continue
    words = (
        " or ".join(map(repr, one)) if isinstance(one, tuple) else _WORDS[one] for one in kinds
    )
    raise ValueError(f"{name} must be {' or '.join(words)}, got {text!r}")


def settings_of(annotations: Mapping[str, Any]) -> dict[str, Kinds]:
    """List the parameters, of types as ``typing.get_type_hints`` gives them, that text can set."""
    found = {name: _kinds(kind) for name, kind in sorted(annotations.items())}
    return {name: one for name, one in found.items() if {*one} - {types.NoneType}}


def _kinds(hint: Any) -> Kinds:
    """Return the types of an annotation that text can be read as."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return (typing.get_args(hint),)
    if origin in (types.UnionType, typing.Union):
        parts = [one for part in typing.get_args(hint) for one in _kinds(part)]
        order = list(_WORDS)
        return tuple(sorted(parts, key=lambda one: order.index(one) if one in order else 0))
    kind = origin or hint
    return (kind,) if kind in _WORDS else ()


def read_settings(
    flag: str, settings: Sequence[str], allowed: Mapping[str, Kinds]
) -> dict[str, Any]:
    """Read the settings ``NAME=VALUE`` of an option such as ``--set``, as values by name."""
    values = {}
    for one in settings:
        key, equals, text = one.partition("=")
        if not equals or key not in allowed:
            raise ValueError(
                f"{flag} {one}: must be NAME=VALUE with a name among "
                f"{', '.join(allowed) or 'none: it takes no settings'}"
            )
        try:
            values[key] = setting(key, allowed[key], text)
        except ValueError as error:
            raise ValueError(f"{flag} {one}: {error}") from None
    return values


def estimator_class(name: str) -> Any:
    """Return the class of an estimator by its short name or its own."""
    from dpglm import estimators

    return getattr(estimators, ESTIMATORS.get(name, name))


def make_estimator(
    estimator: Any,
    settings: Sequence[str],
    inference: str | None = None,
    *,
    labels: Sequence[Any] | None = None,
    decided: Sequence[str] = (),
    **parameters: Any,
) -> Any:
    """Give an estimator, or one by name, the settings of --set and those of other options.

    ``labels`` are the classes, and ``decided`` names further parameters that --set cannot change.
    """
    made = estimator_class(estimator)() if isinstance(estimator, str) else estimator
    allowed = settings_of(typing.get_type_hints(type(made).__init__))
    for key in {*_NOT_SETTABLE, *decided}:
        allowed.pop(key, None)
    given = read_settings("--set", settings, allowed)
    if given.get("class_weight"):
        # Keys in JSON are always text.
        every = parameters.get("classes", labels) or ()
        known = {text: one for one in every for text in (str(one), json.dumps(one))}
        weights = given["class_weight"].items()
        given["class_weight"] = {known.get(key, key): weight for key, weight in weights}
    asked = {None: False, "model": True}.get(inference, inference)
    return made.set_params(**parameters | given | {"inference": asked})
