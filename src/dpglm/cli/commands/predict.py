"""`dpglm predict`: predictions of a model file for the rows of a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpglm.cli.console import guarded, note
from dpglm.cli.files import all_or_none, columns_of, features_of
from dpglm.cli.fitting import GivenOffset, offset_options
from dpglm.cli.options import (
    INPUT_FILE,
    INPUT_STREAM,
    OUTPUT_STREAM,
    STREAM,
    examples,
    force_option,
)
from dpglm.tables.files import (
    PipedTable,
    csv_text,
    named_errors,
    read_table,
    storage_types,
    table_format,
    write_table,
)

if TYPE_CHECKING:
    from dpglm.report.model_file import LinearModel

__all__ = ["predict"]


@click.command(
    short_help="Predict the rows of a table.",
    epilog=examples(
        "dpglm predict new.csv --model model.json -o predictions.csv",
        "dpglm predict new.csv --model model.json --keep id --keep region -o predictions.csv",
        "dpglm predict new.parquet --model model.json -o predictions.parquet",
        "dpglm predict new.csv --model claims.json --exposure years -o predictions.csv",
        "zcat new.csv.gz | dpglm predict - --model model.json -o - | head",
    ),
)
@click.argument("data", type=INPUT_STREAM)
@click.option("--model", type=INPUT_FILE, required=True, help="What `dpglm fit` wrote.")
@click.option(
    "-o",
    "--output",
    type=OUTPUT_STREAM,
    required=True,
    help="Where to write: .csv or .parquet, or - for CSV on standard output.",
)
@offset_options
@click.option(
    "--keep",
    multiple=True,
    metavar="COLUMN",
    help="A column of DATA to write beside the predictions, as it is there, such as an "
    "identifier. May be repeated.",
)
@force_option
@guarded
def predict(
    data: Path,
    model: Path,
    output: Path,
    exposure: str | None,
    offset: str | None,
    keep: tuple[str, ...],
    force: bool,
) -> None:
    """Predict the target for each row of DATA, which needs the model's columns but no target.

    DATA is a CSV or Parquet file, or - for CSV on standard input.

    A model of exposures (`dpglm fit --exposure`) needs those of the rows, too: from the column of
    the fit, or another, or one number for all.

    Writes one row for each of DATA's, in the same order: the columns to keep, the column
    "prediction" and, for a classifier that models them, the probability of each class.

    The model was published privately, but a prediction is computed from the row it is for: it is
    as private as that row.
    """
    from dpglm.report.model_file import load_model

    to_stream = output == STREAM
    if not to_stream:
        table_format(output)
    source = PipedTable(sys.stdin.buffer.read()) if data == STREAM else data
    loaded = load_model(model)
    own = columns_of(loaded)
    _check_apart(keep, loaded)
    known = GivenOffset.of(loaded, exposure, offset, storage_types(source))
    with all_or_none([] if to_stream else [output], force=force) as drafts:
        table = read_table(source, list(dict.fromkeys([*own, *keep, *known.columns])))
        with named_errors(source):
            rows = features_of(loaded, {name: table[name] for name in own})
            columns = {name: table[name] for name in keep}
            columns[_PREDICTION] = loaded.predict(rows, **known.values(table))
            if loaded.has_probabilities:
                probabilities = loaded.predict_proba(rows)
                columns |= zip(_probability_names(loaded), probabilities.T, strict=True)
        with named_errors(output):
            for draft in drafts.values():
                write_table(columns, draft)
            if to_stream:
                click.echo(csv_text(columns), nl=False)
                return
    note(f"Wrote {len(columns[_PREDICTION])} predictions to {output}")


_PREDICTION = "prediction"


def _probability_names(model: LinearModel) -> list[str]:
    if model.classes_ is None or not model.has_probabilities:
        return []
    return [f"probability of {label}" for label in model.classes_.tolist()]


def _check_apart(keep: Sequence[str], model: LinearModel) -> None:
    taken = {_PREDICTION, *_probability_names(model)}
    for name in keep:
        if name in taken:
            raise ValueError(
                f"--keep {name}: must name another column than those of the predictions, "
                f"{', '.join(sorted(taken))}"
            )
