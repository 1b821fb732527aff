"""`dpglm export`: a model file as SQL, Python or ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import click

from dpglm.cli.console import note
from dpglm.cli.files import all_or_none
from dpglm.cli.options import INPUT_FILE, OUTPUT_STREAM, STREAM, Force, argument, command, option


@command(
    "Write a model as SQL, Python or ONNX.",
    "dpglm export model.json --to sql",
    "dpglm export model.json --to python -o score.py",
    "dpglm export model.json --to onnx -o model.onnx",
)
def export(
    model: Annotated[Path, argument(INPUT_FILE)],
    to: Annotated[Literal["sql", "python", "onnx"], option("Language to write.")],
    output: Annotated[
        Path,
        option(
            "-o",
            "--output",
            "File to write, or - for standard output (SQL and Python only).",
            type=OUTPUT_STREAM,
        ),
    ] = STREAM,
    force: Force = False,
) -> None:
    """Write the predictions of MODEL, so that rows can be scored where they are.

    SQL is an expression of the columns of the table, for SELECT. Python is a function
    `predict(row)` without imports. ONNX is a file for ONNX runtimes; it needs the package onnx.

    The result is the probability of the second of two classes, the probability of each of more
    classes, or the mean of the target at an exposure of 1. A row that `dpglm predict` refuses is
    NULL in SQL, a ValueError in Python and NaN in ONNX.
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
