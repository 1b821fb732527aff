"""Commands from Python functions, and the options that several of them share."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import click

from dpglm._registry import ESTIMATORS
from dpglm.cli.console import CommandError, CommandPath, Use, guarded
from dpglm.tables.databases import Address
from dpglm.tables.files import Dialect

# A command is a function: names, defaults, types and choices of its options are those of its
# parameters, and their help is in its docstring, after flags and placeholder where these are not
# the usual ones. A parameter without help is an argument, and one that is a dataclass stands for a
# group of options, its fields, with other defaults where a dict annotates it (``...``: required).

_SHARED = """Options with the same help in several commands.

Parameters
----------
schema_file
    Schema of the table.
epsilon
    Privacy budget epsilon: smaller is more private, and 1 is typical.
delta : FLOAT|auto
    Failure probability delta; 'auto' is well below 1/rows.
adjacency
    Privacy relation: protects a row's contribution, its presence, or its content.
settings : --set NAME=VALUE
    Parameter of the estimator, as in Python, such as C=0.5, loss=hinge or penalize_intercept=true:
    a number, text, true, false, none, or a JSON object.
trials : COLUMN
    Column with the number of trials of each row; the target counts successes (--estimator
    binomial). Not in the schema.
exposure : COLUMN|NUMBER
    Column of exposures, for a model that was fitted with them, or one number for all rows, such as
    1. By default the column that the model file names.
offset : COLUMN|NUMBER
    Offsets of the scores, for a model that was fitted with them.
where : CONDITION
    Count only rows where a column of DATA equals a value (=), differs from it (!=), or lies below
    or above it (<, <=, >, >=); 'COLUMN!=' for rows without a missing value. The number of such rows
    stays private. All conditions must hold.
force
    Replace output files that exist.
"""


def command(
    short_help: str, *lines: str, group: click.Group | None = None, name: str | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function; ``lines`` are examples for the end of its help."""

    def decorate(function: Callable[..., None]) -> click.Command:
        hints = typing.get_type_hints(function)
        groups: dict[str, Any] = {
            name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)
        }

        @functools.wraps(function)
        def run(**given: Any) -> None:
            for name, kind in groups.items():
                fields = [field.name for field in dataclasses.fields(kind)]
                given[name] = kind(**{field: given.pop(field) for field in fields})
            function(**given)

        made = click.Command(
            name or function.__name__,
            callback=guarded(run),
            params=list(_parameters(function, {})),
            help=_documented(function.__doc__)[0],
            short_help=short_help,
            epilog=examples(*lines),
        )
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def _documented(doc: str | None) -> tuple[str, dict[str, tuple[list[str], str]]]:
    """Split a docstring into its text, and the words and the help of each parameter by name."""
    text, _, listed = inspect.cleandoc(doc or "").partition("\n\nParameters\n----------\n")
    found = {}
    for entry in re.split(r"\n(?=\S)", listed):
        head, *lines = entry.splitlines() or [""]
        name, _, words = head.partition(" : ")
        found[name] = words.split(), " ".join(map(str.strip, lines))
    return text, found


def _parameters(owner: Any, changed: Mapping[str, Any]) -> Iterator[click.Parameter]:
    """Yield the options and arguments of a function or a group, with ``changed`` defaults."""
    known = _documented(_SHARED)[1] | _documented(owner.__doc__)[1]
    hints = typing.get_type_hints(owner, include_extras=True)
    for name, one in inspect.signature(owner).parameters.items():
        is_annotated = typing.get_origin(hints[name]) is Annotated
        kind, *added = typing.get_args(hints[name]) if is_annotated else (hints[name],)
        if dataclasses.is_dataclass(kind):
            yield from _parameters(kind, added[0] if added else {})
        else:
            default = changed.get(name, one.default)
            yield _parameter(name, kind, default, added[0] if added else None, known.get(name))


def _parameter(
    name: str, kind: Any, default: Any, type: Any, said: tuple[list[str], str] | None
) -> click.Parameter:
    """Return the option of a parameter, or the argument if it lacks help."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = next(one for one in typing.get_args(kind) if one is not types.NoneType)
    is_list = typing.get_origin(kind) is tuple
    kind = typing.get_args(kind)[0] if is_list else kind
    if type is None:
        choices = typing.get_origin(kind) is Literal
        type = click.Choice(typing.get_args(kind)) if choices else kind
    is_required = default in (inspect.Parameter.empty, ...)
    if said is None:
        assert is_required or default is None, f"the docstring lacks help for {name}"
        return click.Argument([name], type=type, required=is_required)
    words, text = said
    flags = [one for one in words if one.startswith("-")]
    more: dict[str, Any] = {"metavar": next((one for one in words if one not in flags), None)}
    if is_list:
        more |= {"multiple": True, "required": is_required}
        text += " Repeatable."
    elif kind is bool:
        more["is_flag"] = True
    elif is_required:
        more["required"] = True
    else:
        more |= {"default": default, "show_default": default is not None}
    usual = "--" + name.removesuffix("_file").replace("_", "-")
    return click.Option([*(flags or [usual]), name], type=type, help=text, **more)


def examples(*lines: str) -> str:
    """Return examples for the end of a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


# Kinds of values.


def _data_files(path: Path | Address) -> Iterable[Path]:
    from dpglm.data.stream.batches import parquet_files

    if isinstance(path, Address):
        return path.files
    return [path, *parquet_files(path)]


def _files_by(module: str) -> Callable[[Path], Iterable[Path]]:
    """Return ``files_of`` of a module, which is imported when it is called."""

    def listed(path: Path) -> list[Path]:
        return [path, *importlib.import_module(f"dpglm.{module}").files_of(path)]

    return listed


def output_folder(*names: str) -> CommandPath:
    """Return the type of an option that names a folder for files of these names."""
    return CommandPath(Use.WRITTEN, lambda folder: [folder / name for name in names])


INPUT_FILE = CommandPath(Use.READ, exists=True, dir_okay=False)
INPUT_DATA = CommandPath(Use.READ, _data_files, closed=True, databases=True, exists=True)
INPUT_TABLE = CommandPath(Use.READ, _data_files, databases=True, exists=True, dir_okay=False)
INPUT_FOLDER = CommandPath(Use.READ, exists=True, file_okay=False)
_LEDGER_FILES = _files_by("ledger.store")
INPUT_LEDGER = CommandPath(Use.READ, _LEDGER_FILES, exists=True, dir_okay=False)
LEDGER = CommandPath(Use.KEPT, _LEDGER_FILES, exists=True, dir_okay=False)
CHECKPOINT = CommandPath(Use.KEPT, _files_by("solvers.checkpoint"), dir_okay=False)
# It is secret, so that nothing for publication is written there.
STUDY_CHECKPOINT = CommandPath(Use.KEPT, _files_by("study.running"), closed=True)
OUTPUT_FILE = CommandPath(Use.WRITTEN)
STREAM = Path("-")
"""Standard input or output, in place of a file."""
INPUT_STREAM = CommandPath(
    Use.READ, _data_files, databases=True, exists=True, dir_okay=False, allow_dash=True
)
OUTPUT_STREAM = CommandPath(Use.WRITTEN, allow_dash=True)
COUNT = click.IntRange(min=1)
TWO_OR_MORE = click.IntRange(min=2)


if TYPE_CHECKING:
    from dpglm.ledger import PrivacyLedger
    from dpglm.tables.schema import Schema

    _Choice = click.Choice[str]
else:  # not generic in earlier versions
    _Choice = click.Choice


def _delta(text: Any) -> float | str:
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number nor 'auto'") from None


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


Delta = Annotated[float | str, _delta]
Adjacency = Literal["zero_out", "add_remove", "replace_one"]
EstimatorName = Annotated[str | None, _EstimatorName()]


@final
@dataclass(frozen=True)
class Account:
    """The ledger of a command, and the parts of the table that it charges.

    Parameters
    ----------
    ledger
        Ledger of this data set. The cost is recorded there before anything is released.
    part : NAME
        Part of the table, such as the month of arrival, with all rows of DATA. Only rows of this
        part are charged in the ledger.
    label : TEXT
        Name of this analysis in the ledger, such as 'income by region'.
    """

    ledger: Annotated[Path | None, LEDGER] = None
    part: tuple[str, ...] = ()
    label: str | None = None

    def opened(self) -> PrivacyLedger | None:
        """Open the ledger, if there is one."""
        if self.ledger is None:
            for flag, value in (("--label", self.label), ("--part", ", ".join(self.part))):
                if value:
                    raise CommandError(f"{flag} {value}: needs --ledger")
            return None
        from dpglm.ledger import PrivacyLedger

        return PrivacyLedger(self.ledger, label=self.label, parts=self.part or None)


@final
@dataclass(frozen=True, kw_only=True)
class CsvForm:
    """The form of a CSV file; by default that of the schema.

    Parameters
    ----------
    separator : CHARACTER
        Character between the cells of a CSV file, or 'tab'.
    decimal : .|,
        Decimal point of numbers in a CSV file.
    thousands : CHARACTER
        Separator of thousands in a CSV file, such as '.'.
    encoding : NAME
        Encoding of a CSV file, such as latin-1.
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None

    def dialect(self, usual: Dialect | None) -> Dialect | None:
        """Return the dialect of the schema, or None, with these options."""
        given = {name: one for name, one in vars(self).items() if one is not None}
        if given.get("separator") in ("tab", "\\t"):
            given["separator"] = "\t"
        return dataclasses.replace(usual or Dialect(), **given) if given else usual

    def of(self, schema: Schema) -> Schema:
        """Return a schema with these options."""
        dialect = self.dialect(schema.csv)
        return schema if dialect == schema.csv else dataclasses.replace(schema, csv=dialect)


@final
@dataclass(frozen=True, kw_only=True)
class Protected:
    """The privacy budget, the relation, and the public sizes.

    Parameters
    ----------
    n_rows
        Public number of rows; an estimate will do. Required where the exact number is private: with
        --adjacency add_remove, and with --groups and replace_one.
    groups : COLUMN
        Column with person (group) ids: all rows of a group are protected together. Not in the
        schema.
    max_rows_per_group
        Maximum rows per group; larger groups are subsampled.
    n_groups
        Public number of groups; an estimate will do. Required with --groups and --adjacency
        add_remove, where the exact number is private.
    """

    epsilon: float
    delta: Delta = "auto"
    adjacency: Adjacency = "zero_out"
    n_rows: Annotated[int | None, COUNT] = None
    groups: str | None = None
    max_rows_per_group: Annotated[int | None, COUNT] = None
    n_groups: Annotated[int | None, COUNT] = None

    @property
    def keywords(self) -> dict[str, Any]:
        """The keywords of `fit`, `describe` and `evaluate` in Python, without the rows' groups."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "groups"
        }

    def check_groups(self, taken: Iterable[str | None], *, is_limited: bool) -> None:
        """Refuse incomplete options, and a column that is ``taken``.

        ``is_limited``: a limit on the rows of each group is required.
        """
        if self.groups is None:
            for name in ("max_rows_per_group", "n_groups"):
                if getattr(self, name) is not None:
                    flag = "--" + name.replace("_", "-")
                    raise CommandError(
                        f"{flag} {getattr(self, name)}: needs --groups, the column with group ids"
                    )
            return
        if is_limited and self.max_rows_per_group is None:
            raise CommandError(
                f"--groups {self.groups}: needs --max-rows-per-group, which sets the noise scale"
            )
        if self.groups in taken:
            raise CommandError(
                f"--groups {self.groups}: must not be a column of the model or the schema; remove "
                "it from the schema"
            )

    def check_public_sizes(self) -> None:
        """Require public sizes where the relation keeps the exact ones private."""
        lacking = []
        if self.n_rows is None and self.adjacency == "add_remove":
            lacking.append(("rows", "--n-rows"))
        if self.groups is not None:
            if self.n_groups is None and self.adjacency == "add_remove":
                lacking.append(("groups", "--n-groups"))
            if self.n_rows is None and self.adjacency == "replace_one":
                lacking.append(("rows in groups", "--n-rows"))
        for what, flag in lacking:
            raise CommandError(
                f"--adjacency {self.adjacency} keeps the number of {what} private: give a public "
                f"estimate with {flag}"
            )


def numbers(flag: str, text: str, example: str) -> tuple[float, float]:
    """Read the two numbers of an option such as ``--bounds 0,1``."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise CommandError(f"{flag} {text}: give two numbers, such as {example}") from None
    return low, high
