"""`dpglm predict`, `export`, `regress` and `monitor`: uses of released files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from dpglm.cli import options
from dpglm.cli.console import CommandError, note, say
from dpglm.cli.files import all_or_none, require_report
from dpglm.cli.options import CsvForm, command
from dpglm.cli.rows import columns_in, columns_of, features_of, numbers_of, offset_of, values_of
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
    data: Annotated[Path | Address, options.INPUT_STREAM],
    model: Annotated[Path, options.INPUT_FILE],
    form: CsvForm,
    output: Annotated[Path, options.OUTPUT_STREAM],
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

    to_stream = output == options.STREAM
    if not to_stream:
        table_format(output)
    source = PipedTable(sys.stdin.buffer.read()) if data == options.STREAM else data
    loaded = load_model(model)
    dialect = form.dialect(None if loaded.schema is None else loaded.schema.csv)
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


@command(
    "Write a model as SQL, Python or ONNX.",
    "dpglm export model.json --to sql",
    "dpglm export model.json --to python -o score.py",
    "dpglm export model.json --to onnx -o model.onnx",
)
def export(
    model: Annotated[Path, options.INPUT_FILE],
    to: Literal["sql", "python", "onnx"],
    output: Annotated[Path, options.OUTPUT_STREAM] = options.STREAM,
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

    if to == "onnx" and output == options.STREAM:
        raise ValueError("--output must name a file for ONNX, got standard output")
    made = load_model(model).export(to)
    written = made.SerializeToString() if to == "onnx" else f"{made.rstrip()}\n".encode()
    if output == options.STREAM:
        click.echo(written, nl=False)
        return
    with all_or_none([output], force=force) as drafts:
        drafts[output].write_bytes(written)
    note(f"Wrote {output}")


@command(
    "Fit a linear model from released moments.",
    'dpglm regress moments.json "income ~ age + sex"',
    'dpglm regress moments.json "income ~ bs(age, df=5) + sex" --penalty terms',
)
def regress(
    file: Annotated[Path, options.INPUT_FILE], formula: str, penalty: str = "0", level: float = 0.95
) -> None:
    """Fit FORMULA by least squares from the moments in FILE, at no privacy cost.

    Parameters
    ----------
    penalty : PENALTY
        A ridge penalty, 'auto' or 'terms': by marginal likelihood.
    level
        Confidence level of the intervals.
    """
    from dpglm.moments import load_moments

    try:
        chosen: Any = penalty if penalty in ("auto", "terms") else float(penalty)
    except ValueError:
        raise CommandError(f"--penalty {penalty}: give a number, 'auto' or 'terms'") from None
    say(str(load_moments(file).regress(formula, penalty=chosen).summary(level)))


@command(
    "Compare new private results with stored ones.",
    "dpglm monitor october november",
    "dpglm monitor october/evaluation.json november/evaluation.json --page drift.html",
)
def monitor(
    before: Annotated[Path, options.INPUT_DATA],
    after: Annotated[Path, options.INPUT_DATA],
    page: Annotated[Path | None, options.OUTPUT_FILE] = None,
    force: bool = False,
) -> None:
    """Compare the private results AFTER with BEFORE, at no privacy cost.

    Both are folders that `dpglm describe --report` or `dpglm evaluate --report` wrote, or their
    JSON files, about different rows. Prints the population stability index of each column, and the
    change of calibration and performance. Intervals include the noise of both results.

    Parameters
    ----------
    page
        HTML page to write.
    """
    from dpglm.report.monitoring import compare

    found = compare(before, after)
    if page is not None:
        require_report()
        with all_or_none([page], force=force) as drafts:
            found.to_html(drafts[page])
        note(f"Wrote {page}")
    say(found.summary())
