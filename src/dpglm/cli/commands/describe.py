"""`dpglm describe`: a first look at a private table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dpglm.cli.console import InputError, guarded, note, say, spending
from dpglm.cli.files import SpendingWatch, keep_unprinted, reserved
from dpglm.cli.fitting import PUBLIC_ROWS, GivenGroups, group_options
from dpglm.cli.options import (
    INPUT_DATA,
    INPUT_FILE,
    LEDGER,
    OUTPUT_FILE,
    budget_options,
    examples,
    force_option,
    output_folder,
)

__all__ = ["describe"]

REPORT_FOLDER = output_folder("certificate.json", "description.html", "description.json")


@click.command(
    short_help="Describe a table privately.",
    epilog=examples(
        "dpglm describe people.csv --schema schema.json --epsilon 0.2 --report look",
        "dpglm describe people.parquet --schema schema.json --epsilon 0.2 --correlations \\",
        "    --two-way region,income --two-way age,income --report look",
        "dpglm describe people.csv --schema schema.json --epsilon 0.1 --column age \\",
        "    --bounds 0.005,0.995 --bounded-schema narrower.json --ledger people.ledger",
    ),
)
@click.argument("data", type=INPUT_DATA)
@click.option("--schema", "schema_file", type=INPUT_FILE, required=True, help="The public facts.")
@group_options
@budget_options()
@PUBLIC_ROWS
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="COLUMN",
    help="A column to describe; by default all. Fewer are more precise. May be repeated.",
)
@click.option(
    "--two-way",
    multiple=True,
    metavar="COLUMN,COLUMN",
    help="Two columns whose joint counts are wanted. May be repeated.",
)
@click.option(
    "--correlations",
    is_flag=True,
    help="Correlations of all numeric columns and a target of two classes.",
)
@click.option("--by", metavar="COLUMN", help="Describe the rows of each level of this column.")
@click.option(
    "--bins",
    multiple=True,
    metavar="COLUMN=NUMBER",
    help="The most bins of a numeric column; by default as many as noise allows. May be repeated.",
)
@click.option(
    "--ledger",
    type=LEDGER,
    help="The ledger of this data set, where the description is paid for before it is made.",
)
@click.option(
    "--report",
    type=REPORT_FOLDER,
    metavar="FOLDER",
    help="Where to write certificate.json, description.html and description.json.",
)
@click.option(
    "--bounds",
    metavar="LOW,HIGH",
    help="Quantiles, such as 0.005,0.995, that become the bounds of numeric columns in the file of "
    "--bounded-schema.",
)
@click.option(
    "--bounded-schema",
    type=OUTPUT_FILE,
    help="Where to write the schema with the bounds that the description paid for.",
)
@force_option
@guarded
def describe(
    data: Path,
    schema_file: Path,
    groups: str | None,
    max_rows_per_group: int | None,
    public_groups: int | None,
    public_rows: int | None,
    columns: tuple[str, ...],
    two_way: tuple[str, ...],
    correlations: bool,
    by: str | None,
    bins: tuple[str, ...],
    ledger: Path | None,
    report: Path | None,
    bounds: str | None,
    bounded_schema: Path | None,
    force: bool,
    **budget: Any,
) -> None:
    """Describe the private table DATA: counts, histograms, quantiles, means, pairs of columns.

    DATA is a CSV or Parquet file, or a folder of Parquet files. All numbers come from one noisy
    release, within the budget that you give; each is shown with an interval for what the noise may
    have done to it. What is printed and written may be published.

    An error before anything is spent leaves no file. One after that says what was spent and where
    the numbers are, and has exit code 3.
    """
    from dpglm.exploration import describe as described
    from dpglm.ledger import PrivacyLedger
    from dpglm.ledger.store import write_json
    from dpglm.tables.schema import Schema

    written = [] if bounded_schema is None else [bounded_schema]
    if report is not None:
        from dpglm._registry import require

        require("jinja2", "report")
        written += REPORT_FOLDER.files(report)
    account = None if ledger is None else PrivacyLedger(ledger)
    watch = spending(SpendingWatch(account))
    with reserved(written, force=force) as outputs:
        if (bounds is None) != (bounded_schema is None):
            raise InputError("--bounds and --bounded-schema belong together: give both, or neither")
        if by is not None and bounds is not None:
            raise InputError(f"--bounds {bounds}: needs a description of all rows, so no --by")
        ends = None if bounds is None else _quantiles(bounds)
        schema = Schema.from_json(schema_file)
        whose = GivenGroups(groups, max_rows_per_group, public_groups)
        whose.check_limited()
        whose.check_apart((*schema.column_names, schema.target.name))
        found = described(
            data,
            schema,
            n_rows=public_rows,
            columns=columns or None,
            two_way=[_two("--two-way", pair) for pair in two_way],
            correlations=correlations,
            by=by,
            bins=dict(_bins(one) for one in bins),
            groups=groups,
            max_rows_per_group=max_rows_per_group,
            n_groups=public_groups,
            ledger=account,
            **budget,
        )

        def write(drafts: Mapping[Path, Path]) -> None:
            if bounded_schema is not None and ends is not None:
                write_json(drafts[bounded_schema], found.schema(bounds=ends).to_dict())
            if report is not None:
                from dpglm.report.description_page import write_description

                write_json(drafts[report / "description.json"], found.to_dict())
                found.privacy_.to_json(drafts[report / "certificate.json"])
                write_description(found, drafts[report / "description.html"])

        outputs.write(write, watch.wrote)
    say(found.summary())
    if report is None:
        watch.wrote(keep_unprinted("description.json", found.to_dict()))
    for caution in found.privacy_.caveats():
        note(f"Warning: {caution}")
    for path in written:
        say(f"Wrote {path}")


def _two(option: str, text: str) -> tuple[str, str]:
    parts: Sequence[str] = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InputError(f"{option} {text}: give two, with a comma between them")
    return parts[0], parts[1]


def _bins(text: str) -> tuple[str, int]:
    name, equals, count = text.rpartition("=")
    if not equals or not count.isdigit():
        raise InputError(f"--bins {text}: give COLUMN=NUMBER, such as age=10")
    return name, int(count)


def _quantiles(text: str) -> tuple[float, float]:
    from dpglm.tabulate.numbers import check_quantiles

    try:
        ends = [float(end) for end in _two("--bounds", text)]
    except ValueError:
        raise InputError(f"--bounds {text}: give two numbers, such as 0.005,0.995") from None
    return check_quantiles("--bounds", ends)
