"""`dpglm describe`: a first look at a private table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from dpglm.cli.conditions import Condition, Where, selected
from dpglm.cli.console import InputError
from dpglm.cli.files import publish_numbers
from dpglm.cli.options import (
    INPUT_DATA,
    INPUT_FILE,
    OUTPUT_FILE,
    Account,
    CsvForm,
    Force,
    Protected,
    argument,
    command,
    numbers,
    option,
    output_folder,
)
from dpglm.tables.databases import Address

REPORT_FOLDER = output_folder("certificate.json", "description.html", "description.json")


@command(
    "Describe a table privately.",
    "dpglm describe people.csv --schema schema.json --epsilon 0.2 --report look",
    "dpglm describe people.parquet --schema schema.json --epsilon 0.2 --correlations \\",
    "    --two-way region,income --two-way age,income --report look",
    "dpglm describe people.csv --schema schema.json --epsilon 0.1 --column age \\",
    "    --bounds 0.005,0.995 --bounded-schema narrower.json --ledger people.ledger",
)
def describe(
    data: Annotated[Path | Address, argument(INPUT_DATA)],
    schema_file: Annotated[Path, option("--schema", "Schema of the table.", type=INPUT_FILE)],
    protected: Protected,
    form: CsvForm,
    columns: Annotated[
        tuple[str, ...],
        option(
            "--column",
            "Column to describe; by default all. Fewer columns are more precise.",
            metavar="COLUMN",
        ),
    ] = (),
    two_way: Annotated[
        tuple[str, ...], option("Two columns to count together.", metavar="COLUMN,COLUMN")
    ] = (),
    correlations: Annotated[
        bool, option("Correlations of all numeric columns and a target with two classes.")
    ] = False,
    by: Annotated[
        str | None,
        option("Describe the rows of each category of this column.", metavar="COLUMN"),
    ] = None,
    bins: Annotated[
        tuple[str, ...],
        option(
            "Maximum number of bins of a numeric column; by default as many as the noise allows.",
            metavar="COLUMN=NUMBER",
        ),
    ] = (),
    account: Account = Account(),  # noqa: B008
    report: Annotated[
        Path | None,
        option(
            "Folder for certificate.json, description.html and description.json.",
            type=REPORT_FOLDER,
            metavar="FOLDER",
        ),
    ] = None,
    bounds: Annotated[
        str | None,
        option(
            "Quantiles, such as 0.005,0.995, that become the bounds of numeric columns in "
            "--bounded-schema.",
            metavar="LOW,HIGH",
        ),
    ] = None,
    bounded_schema: Annotated[
        Path | None,
        option("Schema to write, with the private quantiles as bounds.", type=OUTPUT_FILE),
    ] = None,
    where: Where = (),
    force: Force = False,
) -> None:
    """Describe the private table DATA: counts, histograms, quantiles, means, pairs of columns.

    DATA is a CSV or Parquet file, a folder of Parquet files, or the address of a table in a
    database. All numbers come from one noisy release, within the budget that you give. Each has an
    interval that reflects the noise.
    Output and files may be published.

    An error before anything is spent leaves no file. After that, the message states the spending
    and where the numbers are, and the exit code is 3.
    """
    from dpglm.exploration import describe as described
    from dpglm.report.description_page import write_description
    from dpglm.tables.files import storage_types
    from dpglm.tables.schema import Schema
    from dpglm.tabulate import check_quantiles

    ends: list[tuple[float, float]] = []

    def make(account: Any) -> Any:
        if (bounds is None) != (bounded_schema is None):
            raise InputError("--bounds and --bounded-schema must be given together")
        if bounds is not None:
            if by is not None:
                raise InputError(f"--bounds {bounds}: needs a description of all rows, so no --by")
            given = numbers("--bounds", bounds, "0.005,0.995")
            ends.append(check_quantiles("--bounds", given))
        schema = form.of(Schema.from_json(schema_file))
        protected.check_groups((*schema.column_names, schema.target.name), is_limited=True)
        counts = None
        if where:
            conditions = [Condition.read(one, storage_types(data, schema.csv)) for one in where]
            names = list(dict.fromkeys(one.column for one in conditions))
            counts, _ = selected(conditions, schema.read_file(data, names))
        return described(
            data,
            schema,
            where=counts,
            columns=columns or None,
            two_way=[_two("--two-way", pair) for pair in two_way],
            correlations=correlations,
            by=by,
            bins=dict(_bins(one) for one in bins),
            groups=protected.groups,
            **protected.keywords,
            ledger=account,
        )

    others = {}
    if bounded_schema is not None:
        others[bounded_schema] = lambda found: found.schema(bounds=ends[0]).to_dict()
    publish_numbers(
        make, "description", write_description, report, account.opened(), force=force, others=others
    )


def _two(flag: str, text: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InputError(f"{flag} {text}: give two, with a comma between them")
    return parts[0], parts[1]


def _bins(text: str) -> tuple[str, int]:
    name, equals, count = text.rpartition("=")
    if not equals or not count.isdigit():
        raise InputError(f"--bins {text}: give COLUMN=NUMBER, such as age=10")
    return name, int(count)
