"""Options that several commands share, and the estimators that they name."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, final

import click

from dpglm._registry import ESTIMATORS
from dpglm.cli.console import CommandPath, InputError, Use
from dpglm.tables.schema import Schema
from dpglm.tables.targets import CountTarget, TargetColumn

# Values of settings, read from text as the annotation of the parameter says.

_READ_AS: Mapping[str, bool] = MappingProxyType({"true": True, "false": False})


def _none(text: str) -> None:
    if text.strip().lower() not in ("none", "null"):
        raise ValueError


def _truth(text: str) -> bool:
    try:
        return _READ_AS[text.strip().lower()]
    except KeyError:
        raise ValueError from None


def _whole(text: str) -> int:
    if "_" in text:
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    try:
        return _whole(text)
    except ValueError:
        value = float(text)
        if "_" in text or math.isnan(value):
            raise ValueError from None
        return value


def _mapping(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError
    return value


def _text(text: str) -> str:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, str) else text


@final
@dataclass(frozen=True)
class _Reader:
    """Reads one kind of value."""

    read: Callable[[str], Any]
    words: str


# In this order: what one of them takes is not text.
_READERS: Mapping[Any, _Reader] = MappingProxyType(
    {
        types.NoneType: _Reader(_none, "none"),
        bool: _Reader(_truth, "true or false"),
        int: _Reader(_whole, "a whole number"),
        float: _Reader(_number, "a number"),
        Mapping: _Reader(_mapping, 'a JSON object such as {"yes": 2}'),
        str: _Reader(_text, "text"),
    }
)


@final
@dataclass(frozen=True)
class Setting:
    """A parameter that can be set by text."""

    name: str
    readers: tuple[_Reader, ...]

    def value(self, text: str) -> Any:
        """Read a value: None, a bool, a number, a dict or text."""
        for reader in self.readers:
            try:
                return reader.read(text)
            except ValueError:
                continue
        allowed = " or ".join(reader.words for reader in self.readers)
        raise ValueError(f"{self.name} must be {allowed}, got {text!r}")


def settings_of(annotations: Mapping[str, Any]) -> dict[str, Setting]:
    """List the parameters, of types as ``typing.get_type_hints`` gives them, that text can set."""
    found = {name: Setting(name, _readers(kind)) for name, kind in annotations.items()}
    nothing = _READERS[types.NoneType]
    return {name: one for name, one in sorted(found.items()) if set(one.readers) - {nothing}}


def _readers(kind: Any) -> tuple[_Reader, ...]:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return (_choice(typing.get_args(kind)),)
    if origin in (types.UnionType, typing.Union):
        parts = [one for part in typing.get_args(kind) for one in _readers(part)]
        known = list(_READERS.values())
        return tuple(sorted(parts, key=lambda one: known.index(one) if one in known else 0))
    reader = _READERS.get(origin or kind)
    return () if reader is None else (reader,)


def _choice(allowed: tuple[Any, ...]) -> _Reader:
    def read(text: str) -> Any:
        if _text(text) not in allowed:
            raise ValueError
        return _text(text)

    return _Reader(read, " or ".join(map(repr, allowed)))


if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:  # not generic before click 8.2
    _Choice = click.Choice
F = TypeVar("F", bound=Callable[..., Any])


def _data_files(path: Path) -> Iterable[Path]:
    from dpglm.data.stream.parquet import parquet_files

    return [path, *parquet_files(path)]


def _ledger_files(path: Path) -> Iterable[Path]:
    from dpglm.ledger.store import files_of

    return files_of(path)


def _study_files(path: Path) -> Iterable[Path]:
    from dpglm.study.running import files_of

    return [path, *files_of(path)]


def _checkpoint_files(path: Path) -> Iterable[Path]:
    from dpglm.solvers.checkpoint import files_of

    return files_of(path)


INPUT_FILE = CommandPath(Use.READ, exists=True, dir_okay=False)
INPUT_DATA = CommandPath(Use.READ, _data_files, closed=True, exists=True)
INPUT_FOLDER = CommandPath(Use.READ, exists=True, file_okay=False)
INPUT_LEDGER = CommandPath(Use.READ, _ledger_files, exists=True, dir_okay=False)
LEDGER = CommandPath(Use.KEPT, _ledger_files, exists=True, dir_okay=False)
CHECKPOINT = CommandPath(Use.KEPT, _checkpoint_files, dir_okay=False)
# It is secret, so that nothing for publication is written there.
STUDY_CHECKPOINT = CommandPath(Use.KEPT, _study_files, closed=True)
OUTPUT_FILE = CommandPath(Use.WRITTEN)
STREAM = Path("-")
"""Standard input or output, in the place of a file."""
INPUT_STREAM = CommandPath(Use.READ, exists=True, dir_okay=False, allow_dash=True)
OUTPUT_STREAM = CommandPath(Use.WRITTEN, allow_dash=True)
_ADJACENCIES = ("zero_out", "add_remove", "replace_one")
# Other options decide these, or they take Python objects.
_NOT_SETTABLE = frozenset(
    {
        "adjacency",
        "budget",
        "callback",
        "classes",
        "constraint",
        "delta",
        "epsilon",
        "feature_bounds",
        "inference",
        "ledger",
        "max_rows_per_group",
        "n_groups",
        "n_rows",
        "offset_bounds",
        "regularizer",
        "row_norm",
        "solver",
        "target_bounds",
        "verbose",
    }
)


def output_folder(*names: str) -> CommandPath:
    """Return the type of an option that names a folder for files of these names."""
    return CommandPath(Use.WRITTEN, lambda folder: [folder / name for name in names])


def _delta(_: click.Context, __: click.Parameter, value: str) -> float | str:
    try:
        return value if value == "auto" else float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor 'auto'") from None


def examples(*lines: str) -> str:
    """Return examples for the end of a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _several(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def budget_options(
    *,
    epsilon: float | None = None,
    delta: str | None = "auto",
    of_epsilon: str = "How much one row may matter. 1 is a usual choice; smaller is more private.",
    of_delta: str = "Probability with which epsilon may not hold. 'auto': far below 1/rows.",
) -> Callable[[F], F]:
    """Add --epsilon, --delta and --adjacency; what has no default must be given."""
    return _several(
        click.option("--epsilon", type=float, **_default(epsilon), help=of_epsilon),
        click.option(
            "--delta",
            callback=_delta,
            metavar="FLOAT" if delta is None else f"FLOAT|{delta}",
            **_default(delta),
            help=of_delta,
        ),
        click.option(
            "--adjacency",
            type=click.Choice(_ADJACENCIES),
            default="zero_out",
            show_default=True,
            help="What is hidden: a row's contribution, its presence, or its content.",
        ),
    )


def _default(value: Any) -> dict[str, Any]:
    # A default of None would count as given.
    return {"required": True} if value is None else {"default": value, "show_default": True}


def estimator_options(default: str | None) -> Callable[[F], F]:
    """Add --estimator and --set."""
    return _several(
        click.option(
            "--estimator",
            type=_EstimatorName(),
            default=default,
            show_default="by the target's type" if default is None else True,
            help="What to fit.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting of the estimator as in Python, such as C=0.5, loss=hinge or "
            "penalize_intercept=true: a number, text, true, false, none, or a JSON object. May be "
            "repeated.",
        ),
    )


REFERENCE = click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="COLUMN=CATEGORY|first",
    help="The category of a column to which the others are compared, or 'first': the first one of "
    "every column. May be repeated.",
)
FORMULA = click.option(
    "--formula",
    metavar="TEXT",
    help="Which columns to use and how, such as 'income ~ age + C(sex) + bs(hours, df=5)'.",
)


def coded_schema(path: Path, references: Sequence[str], formula: str | None) -> Schema:
    """Read a schema, with what --reference and --formula say."""
    schema = Schema.from_json(path)
    for text in references:
        name, equals, category = text.rpartition("=")
        if not equals and text != "first":
            raise InputError(f"--reference {text}: must be COLUMN=CATEGORY, or 'first'")
        schema = schema.with_reference({name: category} if equals else category)
    return schema.with_formula(formula)


TRIALS = click.option(
    "--trials",
    metavar="COLUMN",
    help="A column of whole numbers of trials, of which the target counts the successes, for a "
    "model of their share (--estimator binomial). Not in the schema.",
)


def check_trials(trials: str | None, estimator: str, schema: Schema) -> None:
    """Refuse trials that no model takes, and successes without their trials."""
    counts = _counts_successes(estimator, schema.target)
    if trials is None:
        if counts:
            raise InputError(
                f"--estimator {estimator}: the target {schema.target.name!r} counts successes: say "
                "--trials COLUMN, of how many"
            )
        return
    if not counts:
        raise InputError(
            f'--trials {trials}: is for --estimator binomial and a target of the type "count", '
            'whose "high" is the largest number of trials'
        )
    if trials in (*schema.column_names, schema.target.name):
        raise InputError(f"--trials {trials}: the schema has this column for something else")


def _counts_successes(estimator: str, target: TargetColumn) -> bool:
    """Whether the target counts the successes whose share the estimator models."""
    is_binomial = estimator_class(estimator).__name__ == "BinomialRegressor"
    return is_binomial and isinstance(target, CountTarget)


def encoded_parameters(schema: Schema, estimator: str) -> dict[str, Any]:
    """Return what an estimator has to be told about the rows that a schema encodes.

    Where the target counts successes there are no more trials than its bound.
    """
    told = schema.target.estimator_parameters()
    if _counts_successes(estimator, schema.target):
        _, most = told["target_bounds"]
        told = {"weight_bound": most}
    parameters = {"row_norm": schema.row_norm, **told}
    return parameters if schema.has_intercept else parameters | {"fit_intercept": False}


def check_intercept(estimator: Any, schema: Schema) -> None:
    """Refuse a setting that contradicts what the schema's columns are made for."""
    if estimator.fit_intercept and not schema.has_intercept:
        raise InputError(f"--set fit_intercept=true: the formula {schema.formula!r} has none")
    if schema.has_intercept and not estimator.fit_intercept:
        raise InputError(
            "--set fit_intercept=false: the columns are centred, which an intercept makes up for; "
            "for a model without one write '0 +' into the formula, as in --formula '0 + .', which "
            "has all columns"
        )


INFERENCE = click.option(
    "--inference",
    type=click.Choice(["model", "robust"]),
    help="Also release what standard errors, confidence intervals and tests need, within the same "
    "budget. 'model' assumes that the model is right, 'robust' does not.",
)
force_option = click.option("--force", is_flag=True, help="Replace files that exist.")


def estimator_class(name: str) -> Any:
    """Return the class of an estimator by its short name or its own."""
    from dpglm import estimators

    return getattr(estimators, ESTIMATORS.get(name, name))


def estimator_for(target: TargetColumn, name: str | None) -> str:
    """Return the named estimator, or the target's default; refuse one that cannot predict it."""
    needed = set(target.estimator_parameters())

    def is_able(one: str) -> bool:
        return needed <= set(estimator_class(one)().get_params())

    if name is not None and not is_able(name):
        raise InputError(
            f"--estimator {name} cannot predict the target {target.name!r} as the schema "
            f"describes it: choose among {', '.join(filter(is_able, ESTIMATORS))}"
        )
    return name or target.default_estimator


@final
class _EstimatorName(_Choice):
    """A short name, or the name of a class, which is looked up only if it is given."""

    def __init__(self) -> None:
        super().__init__(list(ESTIMATORS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in ESTIMATORS:
            from dpglm import estimators
            from dpglm.estimators.linear._base import PrivateLinearModel

            kind = getattr(estimators, str(value), None)
            if isinstance(kind, type) and issubclass(kind, PrivateLinearModel):
                return str(value)
        return str(super().convert(value, param, ctx))


def make_estimator(
    name: str, settings: Sequence[str], inference: str | None = None, **parameters: Any
) -> Any:
    """Make an estimator with the settings of --set and parameters that other options decide."""
    made = estimator_class(name)()
    return set_up(made, settings, inference, labels=parameters.get("classes"), **parameters)


def set_up(
    estimator: Any,
    settings: Sequence[str],
    inference: str | None,
    *,
    labels: Sequence[Any] | None,
    not_settable: Collection[str] = (),
    **parameters: Any,
) -> Any:
    """Give an estimator the settings of --set and parameters that other options decide."""
    allowed = {
        key: one
        for key, one in settings_of(typing.get_type_hints(type(estimator).__init__)).items()
        if key not in _NOT_SETTABLE and key not in not_settable
    }
    given = read_settings("--set", settings, allowed)
    if "class_weight" in given:
        given["class_weight"] = _by_label(given["class_weight"], labels)
    asked = {None: False, "model": True}.get(inference, inference)
    return estimator.set_params(**parameters | given | {"inference": asked})


def read_settings(
    option: str, settings: Sequence[str], allowed: Mapping[str, Setting]
) -> dict[str, Any]:
    """Read the settings ``NAME=VALUE`` of an option such as ``--set``, as values by name."""
    values = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or key not in allowed:
            raise ValueError(
                f"{option} {setting}: must be NAME=VALUE with a name among "
                f"{', '.join(allowed) or 'none, as there are no settings'}"
            )
        try:
            values[key] = allowed[key].value(text)
        except ValueError as error:
            raise ValueError(f"{option} {setting}: {error}") from None
    return values


def _by_label(weights: Mapping[str, Any] | None, classes: Sequence[Any] | None) -> Any:
    """Return weights by the schema's labels: keys in JSON are always text."""
    labels = {text: label for label in classes or () for text in (str(label), json.dumps(label))}
    return weights and {labels.get(key, key): weight for key, weight in weights.items()}
