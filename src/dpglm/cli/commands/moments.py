"""`dpglm moments` and `dpglm regress`: one release, and the linear models that follow from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click

from dpglm.cli.console import InputError, say
from dpglm.cli.files import publish_numbers
from dpglm.cli.options import (
    INPUT_DATA,
    INPUT_FILE,
    OUTPUT_FILE,
    Account,
    Force,
    Protected,
    argument,
    command,
    option,
)
from dpglm.tables.databases import Address

_TERM = "Further term of formulas, such as 'bs(age, df=5)' or 'age:sex'."


@command(
    "Release second moments of a table.",
    "dpglm moments people.csv --schema schema.json --epsilon 1 -o moments.json",
    "dpglm moments people.parquet --schema schema.json --epsilon 1 --term 'bs(age, df=5)' \\",
    "    --column age --column sex --column income -o moments.json",
)
def moments(
    data: Annotated[Path | Address, argument(INPUT_DATA)],
    schema_file: Annotated[Path, option("--schema", "Schema of the table.", type=INPUT_FILE)],
    protected: Protected,
    output: Annotated[
        Path, option("-o", "--output", "File for the moments and certificate.", type=OUTPUT_FILE)
    ],
    columns: Annotated[
        tuple[str, ...],
        option("--column", "Column to release; by default all.", metavar="COLUMN"),
    ] = (),
    terms: Annotated[tuple[str, ...], option("--term", _TERM, metavar="TERM")] = (),
    weighting: Annotated[
        str,
        option(
            "'none': all rows count fully, with more noise.", type=click.Choice(["auto", "none"])
        ),
    ] = "auto",
    account: Account = Account(),  # noqa: B008
    force: Force = False,
) -> None:
    """Release the second moments of the private table DATA, within the budget that you give.

    `dpglm regress` fits any linear model of the released columns and terms from the file, without
    the table and at no further cost.
    """
    from dpglm.moments import release_moments
    from dpglm.tables.schema import Schema

    def make(ledger: Any) -> Any:
        schema = Schema.from_json(schema_file)
        protected.check_groups((*schema.column_names, schema.target.name), is_limited=True)
        return release_moments(
            data,
            schema,
            columns=columns or None,
            terms=terms,
            weighting="none" if weighting == "none" else "auto",
            groups=protected.groups,
            **protected.keywords,
            ledger=ledger,
        )

    others = {output: lambda found: found.to_dict()}
    publish_numbers(make, "moments", None, None, account.opened(), force=force, others=others)


@command(
    "Fit a linear model from released moments.",
    'dpglm regress moments.json "income ~ age + sex"',
    'dpglm regress moments.json "income ~ bs(age, df=5) + sex" --penalty terms',
)
def regress(
    file: Annotated[Path, argument(INPUT_FILE)],
    formula: Annotated[str, argument(None)],
    penalty: Annotated[
        str,
        option("A ridge penalty, 'auto' or 'terms': by marginal likelihood.", metavar="PENALTY"),
    ] = "0",
    level: Annotated[float, option("Confidence level of the intervals.")] = 0.95,
) -> None:
    """Fit FORMULA by least squares from the moments in FILE, at no privacy cost."""
    from dpglm.moments import load_moments

    chosen: Any = penalty if penalty in ("auto", "terms") else _number(penalty)
    say(str(load_moments(file).regress(formula, penalty=chosen).summary(level)))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--penalty {text}: give a number, 'auto' or 'terms'") from None
