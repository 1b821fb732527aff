"""`dpglm predict`: predictions of a model file for the rows of a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from dpglm.cli.console import note
from dpglm.cli.files import all_or_none, columns_of, dialect_of, features_of, numbers_of
from dpglm.cli.fitting import Exposure, GivenOffset, Offset
from dpglm.cli.options import (
    INPUT_STREAM,
    OUTPUT_STREAM,
    STREAM,
    CsvForm,
    Force,
    Model,
    argument,
    command,
    option,
)
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
    data: Annotated[Path | Address, argument(INPUT_STREAM)],
    model: Model,
    form: CsvForm,
    output: Annotated[
        Path,
        option(
            "-o",
            "--output",
            "Table to write: .csv or .parquet, or - for CSV on standard output.",
            type=OUTPUT_STREAM,
        ),
    ],
    exposure: Exposure = None,
    offset: Offset = None,
    keep: Annotated[
        tuple[str, ...],
        option(
            "Column of DATA to copy next to the predictions, such as an identifier.",
            metavar="COLUMN",
        ),
    ] = (),
    force: Force = False,
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
    """
    from dpglm.report.model_file import load_model

    to_stream = output == STREAM
    if not to_stream:
        table_format(output)
    source = PipedTable(sys.stdin.buffer.read()) if data == STREAM else data
    loaded = load_model(model)
    dialect = dialect_of(loaded, form)
    own = columns_of(loaded)
    made = [_PREDICTION, *_probability_names(loaded)]
    for name in keep:
        if name in made:
            raise ValueError(
                f"--keep {name}: must name another column than those of the predictions, "
                f"{', '.join(sorted(made))}"
            )
    offsets = GivenOffset.of(loaded, exposure, offset, storage_types(source, dialect))
    with all_or_none([] if to_stream else [output], force=force) as drafts:
        names = list(dict.fromkeys([*own, *keep, *offsets.columns]))
        numbers = [*numbers_of(loaded), *offsets.columns]
        table = read_table(source, names, dialect, numbers)
        with named_errors(source):
            rows = features_of(loaded, {name: table[name] for name in own})
            columns = {name: table[name] for name in keep}
            columns[_PREDICTION] = loaded.predict(rows, **offsets.values(table))
            if loaded.has_probabilities:
                probabilities = loaded.predict_proba(rows)
                columns |= zip(made[1:], probabilities.T, strict=True)
        with named_errors(output):
            for draft in drafts.values():
                write_table(columns, draft)
            if to_stream:
                click.echo(csv_text(columns), nl=False)
                return
    note(f"Wrote {len(columns[_PREDICTION])} predictions to {output}")


def _probability_names(model: LinearModel) -> list[str]:
    if model.classes_ is None or not model.has_probabilities:
        return []
    return [f"probability of {label}" for label in model.classes_.tolist()]
