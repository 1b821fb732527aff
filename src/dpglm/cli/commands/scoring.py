"""`dpglm predict`, `evaluate` and `export`: uses of a model file."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import numpy as np

from dpglm.cli.console import InputError, note
from dpglm.cli.files import all_or_none, publish_numbers
from dpglm.cli.options import (
    INPUT_FILE,
    INPUT_STREAM,
    INPUT_TABLE,
    OUTPUT_STREAM,
    STREAM,
    Account,
    CsvForm,
    Protected,
    command,
    numbers,
    output_folder,
)
from dpglm.cli.rows import (
    Condition,
    columns_in,
    columns_of,
    dialect_of,
    encoded_target,
    features_of,
    numbers_of,
    offset_of,
    selected,
    values_of,
)
from dpglm.tables.cells import Vocabulary, as_cells
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.databases import Address
from dpglm.tables.files import (
    PipedTable,
    csv_text,
    named_errors,
    read_table,
    storage_types,
    table_format,
    write_table,
)
from dpglm.tables.targets import ClassTarget, CountTarget, NoTarget, NumericTarget, TargetColumn

if TYPE_CHECKING:
    from dpglm.report.model_file import LinearModel

_PREDICTION = "prediction"


@command(
    "Predict the rows of a table.",
    "dpglm predict new.csv --model model.json -o predictions.csv",
    "dpglm predict new.csv --model model.json --keep id --keep region -o predictions.csv",
    "dpglm predict new.parquet --model model.json -o predictions.parquet",
    "dpglm predict new.csv --model claims.json --exposure years -o predictions.csv",
    "zcat new.csv.gz | dpglm predict - --model model.json -o - | head",
)
def predict(
    data: Annotated[Path | Address, INPUT_STREAM],
    model: Annotated[Path, INPUT_FILE],
    form: CsvForm,
    output: Annotated[Path, OUTPUT_STREAM],
    exposure: str | None = None,
    offset: str | None = None,
    keep: tuple[str, ...] = (),
    force: bool = False,
) -> None:
    """Predict the target for each row of DATA, which needs the model's columns but no target.

    DATA is a CSV or Parquet file, the address of a table in a database, or - for CSV on standard
    input.

    A model of exposures (`dpglm fit --exposure`) needs those of the rows, too: from the column of
    the fit, or another column, or one number for all.

    Writes one row for each row of DATA, in the same order: the columns to keep, the column
    "prediction" and, for a classifier that models them, the probability of each class.

    The model was published privately, but a prediction is computed from its row: it is as private
    as that row.

    Parameters
    ----------
    model
        Model file, written by `dpglm fit`.
    output : -o --output
        Table to write: .csv or .parquet, or - for CSV on standard output.
    keep : COLUMN
        Column of DATA to copy next to the predictions, such as an identifier.
    """
    from dpglm.report.model_file import load_model

    to_stream = output == STREAM
    if not to_stream:
        table_format(output)
    source = PipedTable(sys.stdin.buffer.read()) if data == STREAM else data
    loaded = load_model(model)
    dialect = dialect_of(loaded, form)
    own = columns_of(loaded)
    labels = loaded.classes_.tolist() if loaded.classes_ is not None else []
    labels = labels if loaded.has_probabilities else []
    made = [_PREDICTION, *(f"probability of {label}" for label in labels)]
    for name in keep:
        if name in made:
            raise ValueError(
                f"--keep {name}: must name another column than those of the predictions, "
                f"{', '.join(sorted(made))}"
            )
    offsets = offset_of(loaded, exposure, offset, storage_types(source, dialect))
    with all_or_none([] if to_stream else [output], force=force) as drafts:
        names = list(dict.fromkeys([*own, *keep, *columns_in(offsets)]))
        numbers = [*numbers_of(loaded), *columns_in(offsets)]
        table = read_table(source, names, dialect, numbers)
        with named_errors(source):
            rows = features_of(loaded, {name: table[name] for name in own})
            columns = {name: table[name] for name in keep}
            columns[_PREDICTION] = loaded.predict(rows, **values_of(offsets, table))
            if labels:
                columns |= zip(made[1:], loaded.predict_proba(rows).T, strict=True)
        with named_errors(output):
            for draft in drafts.values():
                write_table(columns, draft)
            if to_stream:
                click.echo(csv_text(columns), nl=False)
                return
    note(f"Wrote {len(columns[_PREDICTION])} predictions to {output}")


REPORT_FOLDER = output_folder("certificate.json", "evaluation.html", "evaluation.json")


@command(
    "Evaluate a model on private rows.",
    "dpglm evaluate held_out.csv --model model.json --epsilon 0.5 --report performance",
    "dpglm evaluate held_out.csv --model model.json --epsilon 0.5 --by sex \\",
    "    --threshold 0.2 --threshold 0.5 --ledger people.ledger --report performance",
)
def evaluate(
    data: Annotated[Path | Address, INPUT_TABLE],
    model: Annotated[Path, INPUT_FILE],
    protected: Protected,
    form: CsvForm,
    exposure: str | None = None,
    offset: str | None = None,
    trials: str | None = None,
    target: str | None = None,
    target_bounds: str | None = None,
    thresholds: tuple[float, ...] = (),
    by: str | None = None,
    levels: tuple[str, ...] = (),
    account: Account = Account(),  # noqa: B008
    report: Annotated[Path | None, REPORT_FOLDER] = None,
    where: tuple[str, ...] = (),
    force: bool = False,
) -> None:
    """Evaluate a model on the private table DATA, with rows that it was not fitted on.

    DATA is a CSV or Parquet file, or the address of a table in a database, with the columns of the
    model, its target and, if it was fitted with exposures, those. All numbers come from noisy
    releases within the budget that you give. Each has an interval for these rows and one for the
    population that they were sampled from. Output and files may be published.

    An error before anything is spent leaves no file. After that, the message states the spending
    and where the numbers are, and the exit code is 3.

    Parameters
    ----------
    model
        Model file, written by `dpglm fit`.
    target : COLUMN
        Column that is predicted; by default the schema's target.
    target_bounds : LOW,HIGH
        Public bounds on a numeric target; by default those of the fit.
    thresholds : --threshold
        With two classes: rows with at least this score are predicted positive. By default 0.5 for
        probabilities and 0 for decision values.
    by : COLUMN
        Evaluate the rows of each category of this column, too, at no further cost.
    levels : --level VALUE
        Public category of the column of --by; by default those in the model's schema.
    report : FOLDER
        Folder for certificate.json, evaluation.html and evaluation.json.
    """
    from dpglm.evaluation import evaluate as evaluated
    from dpglm.report.evaluation_page import write_evaluation
    from dpglm.report.model_file import load_model

    if levels and by is None:
        raise InputError("--level needs --by, the column of the categories")
    bounds = target_bounds and numbers("--target-bounds", target_bounds, "0,100")
    loaded = load_model(model)
    dialect = dialect_of(loaded, form)
    answer = _target(loaded, target, bounds or None)
    _check_trials(loaded, answer, trials)
    listed = None if by is None else _vocabulary(loaded, by, levels)
    offsets = offset_of(loaded, exposure, offset, storage_types(data, dialect))
    own, of_offsets = columns_of(loaded), columns_in(offsets)
    protected.check_groups((*own, answer.name, *of_offsets), is_limited=True)
    others = [name for name in (answer.name, by, trials) if name is not None]

    def make(account: Any) -> Any:
        needed = [*own, *others, *protected.columns, *of_offsets]
        in_numbers = numbers_of(loaded) + [one for one in (trials, *of_offsets) if one]
        in_numbers += [answer.name] if answer.n_classes is None else []
        conditions = [Condition.read(one, storage_types(data, dialect)) for one in where]
        needed += [one.column for one in conditions]
        table = read_table(data, list(dict.fromkeys(needed)), dialect, in_numbers)
        counts = None
        if conditions:
            counts, table = selected(conditions, table, protected.groups, loaded.schema)
        with named_errors(data):
            y, _ = encoded_target(answer, table, trials)
            rows = features_of(loaded, {name: table[name] for name in own})
            places = None
            if by is not None and listed is not None:
                # None for other categories.
                none = len(listed.entries)
                found = listed.positions(table[by], f"column {by!r}", "", other=none)
                places = np.array([*listed.entries, None], dtype=object)[found]
            groups = protected.groups
            ids = None if groups is None else as_cells(table[groups], groups)
            given = values_of(offsets, table)
        return evaluated(
            loaded,
            rows,
            y,
            **given,
            target_bounds=bounds or None,
            thresholds=thresholds or None,
            by=places,
            levels=() if listed is None else listed.entries,
            groups=ids,
            where=counts,
            **protected.keywords,
            ledger=account,
        )

    write_page = functools.partial(write_evaluation, by=by)
    publish_numbers(make, "evaluation", write_page, report, account.opened(), force=force)


def _target(
    model: LinearModel, name: str | None, bounds: tuple[float, float] | None
) -> TargetColumn:
    """Return the target column: the schema's, or one made from the model's classes or bounds."""
    known = None if model.schema is None else model.schema.target
    if known is not None and not isinstance(known, NoTarget) and name in (None, known.name):
        return known
    if name is None:
        raise InputError("--target COLUMN must be given: the model file does not name the target")
    if model.classes_ is not None:
        return ClassTarget(name, tuple(model.classes_.tolist()))
    ends = model.target_bounds if bounds is None else bounds
    if ends is None:
        raise InputError("--target-bounds LOW,HIGH must be given: the model file has none")
    return NumericTarget(name, *ends)


def _check_trials(model: LinearModel, target: TargetColumn, trials: str | None) -> None:
    """Refuse successes without their trials, and trials of other targets."""
    from dpglm.problem import Target

    of_shares = model.certificate.problem.loss.target is Target.PROPORTION
    counts = isinstance(target, CountTarget)
    if of_shares and counts and trials is None:
        raise InputError(
            f"--trials COLUMN must be given: the model predicts shares of successes, and "
            f"{target.name!r} counts these"
        )
    if trials is not None and not (of_shares and counts):
        raise InputError(f"--trials {trials}: the model was fitted without them")


def _vocabulary(model: LinearModel, by: str, levels: Sequence[str]) -> Vocabulary:
    """Return the public categories of a column: those that are given, or those of the schema."""
    columns = () if model.schema is None else model.schema.columns
    listed = {one.name: one.categories for one in columns if isinstance(one, CategoricalColumn)}
    if not levels and by not in listed:
        raise InputError(
            f"--by {by}: give at least two public categories of this column with --level; the "
            f"model's schema has those of {', '.join(listed) or 'no column'}"
        )
    if not levels:
        return Vocabulary(tuple(listed[by]))
    try:
        return Vocabulary(tuple(map(float, levels)))
    except ValueError:
        return Vocabulary(tuple(levels))


@command(
    "Write a model as SQL, Python or ONNX.",
    "dpglm export model.json --to sql",
    "dpglm export model.json --to python -o score.py",
    "dpglm export model.json --to onnx -o model.onnx",
)
def export(
    model: Annotated[Path, INPUT_FILE],
    to: Literal["sql", "python", "onnx"],
    output: Annotated[Path, OUTPUT_STREAM] = STREAM,
    force: bool = False,
) -> None:
    """Write the predictions of MODEL, so that rows can be scored where they are.

    SQL is an expression of the columns of the table, for SELECT. Python is a function
    `predict(row)` without imports. ONNX is a file for ONNX runtimes; it needs the package onnx.

    The result is the probability of the second of two classes, the probability of each of more
    classes, or the mean of the target at an exposure of 1. A row that `dpglm predict` refuses is
    NULL in SQL, a ValueError in Python and NaN in ONNX.

    Parameters
    ----------
    to
        Language to write.
    output : -o --output
        File to write, or - for standard output (SQL and Python only).
    """
    from dpglm.report.model_file import load_model

    if to == "onnx" and output == STREAM:
        raise ValueError("--output must name a file for ONNX, got standard output")
    made = load_model(model).export(to)
    written = made.SerializeToString() if to == "onnx" else f"{made.rstrip()}\n".encode()
    if output == STREAM:
        click.echo(written, nl=False)
        return
    with all_or_none([output], force=force) as drafts:
        drafts[output].write_bytes(written)
    note(f"Wrote {output}")
