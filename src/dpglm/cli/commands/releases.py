"""`dpglm describe`, `moments`, `regress` and `monitor`: numbers about tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from dpglm.cli.console import InputError, note, say
from dpglm.cli.files import all_or_none, publish_numbers, require_report
from dpglm.cli.options import (
    INPUT_DATA,
    INPUT_FILE,
    OUTPUT_FILE,
    Account,
    CsvForm,
    Protected,
    command,
    numbers,
    output_folder,
)
from dpglm.cli.rows import Condition, selected
from dpglm.tables.databases import Address
from dpglm.tables.schema import Schema

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
    data: Annotated[Path | Address, INPUT_DATA],
    schema_file: Annotated[Path, INPUT_FILE],
    protected: Protected,
    form: CsvForm,
    columns: tuple[str, ...] = (),
    two_way: tuple[str, ...] = (),
    correlations: bool = False,
    by: str | None = None,
    bins: tuple[str, ...] = (),
    account: Account = Account(),  # noqa: B008
    report: Annotated[Path | None, REPORT_FOLDER] = None,
    bounds: str | None = None,
    bounded_schema: Annotated[Path | None, OUTPUT_FILE] = None,
    where: tuple[str, ...] = (),
    force: bool = False,
) -> None:
    """Describe the private table DATA: counts, histograms, quantiles, means, pairs of columns.

    DATA is a CSV or Parquet file, a folder of Parquet files, or the address of a table in a
    database. All numbers come from one noisy release, within the budget that you give. Each has an
    interval that reflects the noise.
    Output and files may be published.

    An error before anything is spent leaves no file. After that, the message states the spending
    and where the numbers are, and the exit code is 3.

    Parameters
    ----------
    columns : --column COLUMN
        Column to describe; by default all. Fewer columns are more precise.
    two_way : COLUMN,COLUMN
        Two columns to count together.
    correlations
        Correlations of all numeric columns and a target with two classes.
    by : COLUMN
        Describe the rows of each category of this column.
    bins : COLUMN=NUMBER
        Maximum number of bins of a numeric column; by default as many as the noise allows.
    report : FOLDER
        Folder for certificate.json, description.html and description.json.
    bounds : LOW,HIGH
        Quantiles, such as 0.005,0.995, that become the bounds of numeric columns in
        --bounded-schema.
    bounded_schema
        Schema to write, with the private quantiles as bounds.
    """
    from dpglm.exploration import describe as described
    from dpglm.report.description_page import write_description
    from dpglm.tables.files import storage_types
    from dpglm.tabulate import check_quantiles

    ends: list[tuple[float, float]] = []

    def make(ledger: Any) -> Any:
        if (bounds is None) != (bounded_schema is None):
            raise InputError("--bounds and --bounded-schema must be given together")
        if bounds is not None:
            if by is not None:
                raise InputError(f"--bounds {bounds}: needs a description of all rows, so no --by")
            given = numbers("--bounds", bounds, "0.005,0.995")
            ends.append(check_quantiles("--bounds", given))
        schema = form.of(_schema(schema_file, protected))
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
            two_way=list(map(_pair, two_way)),
            correlations=correlations,
            by=by,
            bins=dict(map(_bins, bins)),
            groups=protected.groups,
            **protected.keywords,
            ledger=ledger,
        )

    others = {}
    if bounded_schema is not None:
        others[bounded_schema] = lambda found: found.schema(bounds=ends[0]).to_dict()
    publish_numbers(
        make, "description", write_description, report, account.opened(), force=force, others=others
    )


def _schema(path: Path, protected: Protected) -> Schema:
    """Read a schema for a release that requires a limit on the rows of each group."""
    schema = Schema.from_json(path)
    protected.check_groups((*schema.column_names, schema.target.name), is_limited=True)
    return schema


def _pair(text: str) -> tuple[str, str]:
    first, comma, second = text.partition(",")
    if not comma or "," in second or not first.strip() or not second.strip():
        raise InputError(f"--two-way {text}: give two, with a comma between them")
    return first.strip(), second.strip()


def _bins(text: str) -> tuple[str, int]:
    name, equals, count = text.rpartition("=")
    if not equals or not count.isdigit():
        raise InputError(f"--bins {text}: give COLUMN=NUMBER, such as age=10")
    return name, int(count)


@command(
    "Release second moments of a table.",
    "dpglm moments people.csv --schema schema.json --epsilon 1 -o moments.json",
    "dpglm moments people.parquet --schema schema.json --epsilon 1 --term 'bs(age, df=5)' \\",
    "    --column age --column sex --column income -o moments.json",
)
def moments(
    data: Annotated[Path | Address, INPUT_DATA],
    schema_file: Annotated[Path, INPUT_FILE],
    protected: Protected,
    output: Annotated[Path, OUTPUT_FILE],
    columns: tuple[str, ...] = (),
    terms: tuple[str, ...] = (),
    weighting: Literal["auto", "none"] = "auto",
    account: Account = Account(),  # noqa: B008
    force: bool = False,
) -> None:
    """Release the second moments of the private table DATA, within the budget that you give.

    `dpglm regress` fits any linear model of the released columns and terms from the file, without
    the table and at no further cost.

    Parameters
    ----------
    output : -o --output
        File for the moments and certificate.
    columns : --column COLUMN
        Column to release; by default all.
    terms : --term TERM
        Further term of formulas, such as 'bs(age, df=5)' or 'age:sex'.
    weighting
        'none': all rows count fully, with more noise.
    """
    from dpglm.moments import release_moments

    def make(ledger: Any) -> Any:
        return release_moments(
            data,
            _schema(schema_file, protected),
            columns=columns or None,
            terms=terms,
            weighting=weighting,
            groups=protected.groups,
            **protected.keywords,
            ledger=ledger,
        )

    others = {output: lambda found: found.to_dict()}
    publish_numbers(make, "moments", None, None, account.opened(), force=force, others=others)


@command(
    "Estimate the average effect of a treatment.",
    "dpglm ate people.csv --schema schema.json --treatment drug --outcome pressure \\",
    "    --adjust age --adjust sex --epsilon 1 -o effect.json",
)
def ate(
    data: Annotated[Path | Address, INPUT_DATA],
    schema_file: Annotated[Path, INPUT_FILE],
    protected: Protected,
    output: Annotated[Path, OUTPUT_FILE],
    treatment: str,
    outcome: str,
    adjust: tuple[str, ...],
    overlap: float = 0.1,
    account: Account = Account(),  # noqa: B008
    force: bool = False,
) -> None:
    """Estimate the average effect of a treatment in the table DATA, within the budget you give.

    The estimate is doubly robust, from models of the treatment and of the outcome in two halves of
    the rows.

    Parameters
    ----------
    output : -o --output
        File for the effect and certificate.
    treatment : COLUMN
        Column with two categories; the second one is the treatment.
    outcome : COLUMN
        A number, or two categories; the second one counts as 1.
    adjust : COLUMN
        Confounder.
    overlap
        Propensities are clipped to [overlap, 1 - overlap].
    """
    from dpglm.effects import ate as estimated

    def make(ledger: Any) -> Any:
        return estimated(
            data,
            treatment=treatment,
            outcome=outcome,
            adjust=adjust,
            schema=_schema(schema_file, protected),
            overlap=overlap,
            groups=protected.groups,
            **protected.keywords,
            ledger=ledger,
        )

    others = {output: lambda found: found.to_dict()}
    publish_numbers(make, "effect", None, None, account.opened(), force=force, others=others)


@command(
    "Fit a linear model from released moments.",
    'dpglm regress moments.json "income ~ age + sex"',
    'dpglm regress moments.json "income ~ bs(age, df=5) + sex" --penalty terms',
)
def regress(
    file: Annotated[Path, INPUT_FILE], formula: str, penalty: str = "0", level: float = 0.95
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
        raise InputError(f"--penalty {penalty}: give a number, 'auto' or 'terms'") from None
    say(str(load_moments(file).regress(formula, penalty=chosen).summary(level)))


@command(
    "Compare new private results with stored ones.",
    "dpglm monitor october november",
    "dpglm monitor october/evaluation.json november/evaluation.json --page drift.html",
)
def monitor(
    before: Annotated[Path, INPUT_DATA],
    after: Annotated[Path, INPUT_DATA],
    page: Annotated[Path | None, OUTPUT_FILE] = None,
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
