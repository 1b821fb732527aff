"""`dpglm predict`: what a model file says about the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from dpglm.cli.console import guarded, note
from dpglm.cli.options import INPUT_FILE, OUTPUT_FILE, examples, force_option
from dpglm.cli.outputs import all_or_none
from dpglm.data.cells import as_numbers
from dpglm.data.tables import named_errors, read_table, table_format, write_table

__all__ = ["predict"]

_PROBABILISTIC = ("logistic", "softmax")


@click.command(
    short_help="Predict the rows of a table.",
    epilog=examples(
        "dpglm predict new.csv --model model.json -o predictions.csv",
        "dpglm predict new.parquet --model model.json -o predictions.parquet",
    ),
)
@click.argument("data", type=INPUT_FILE)
@click.option("--model", type=INPUT_FILE, required=True, help="What `dpglm fit` wrote.")
@click.option(
    "-o", "--output", type=OUTPUT_FILE, required=True, help="Where to write: .csv or .parquet."
)
@force_option
@guarded
def predict(data: Path, model: Path, output: Path, force: bool) -> None:
    """Predict the target for each row of DATA, which needs the model's columns but no target.

    Writes one row for each of DATA's, in the same order: the column "prediction" and, for a
    classifier that models them, the probability of each class.

    The model was published privately, but a prediction is computed from the row it is for: it is
    as private as that row.
    """
    from dpglm.report.model_file import load_model

    table_format(output)
    loaded = load_model(model)
    with all_or_none([output], force=force) as drafts:
        rows = _features(loaded, data)
        with named_errors(data):
            columns = {"prediction": loaded.predict(rows)}
        if loaded.classes_ is not None and loaded.link in _PROBABILISTIC:
            probabilities = loaded.predict_proba(rows)
            for label, values in zip(loaded.classes_.tolist(), probabilities.T, strict=True):
                columns[f"probability of {label}"] = values
        write_table(columns, drafts[output])
    note(f"Wrote {len(columns['prediction'])} predictions to {output}")


def _features(model: Any, data: Path) -> Any:
    if model.schema is not None:
        return read_table(data, model.schema.column_names)
    if model.feature_names is None:
        raise ValueError(
            "the model file does not name the columns that the model needs: in Python, fit a "
            "DataFrame or save the model with its schema"
        )
    table = read_table(data, model.feature_names)
    return np.column_stack([as_numbers(table[name], f"column {name!r}") for name in table])
