"""`dpglm describe`, `evaluate`, `moments` and `ate`: private numbers about tables."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dpglm.cli import options
from dpglm.cli import rows as reading
from dpglm.cli.console import CommandError
from dpglm.cli.files import publish_numbers
from dpglm.cli.options import Account, CsvForm, Protected, command
from dpglm.tables.cells import as_cells
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.databases import Address
from dpglm.tables.files import named_errors, read_table, storage_types
from dpglm.tables.given import Where
from dpglm.tables.schema import Schema
from dpglm.tables.targets import ClassTarget, CountTarget, NoTarget, NumericTarget, TargetColumn

if TYPE_CHECKING:
    from dpglm.report.model_file import LinearModel

REPORT_FOLDER = options.output_folder("certificate.json", "description.html", "description.json")


@command(
    "Describe a table privately.",
    "dpglm describe people.csv --schema schema.json --epsilon 0.2 --report look",
    "dpglm describe people.parquet --schema schema.json --epsilon 0.2 --correlations \\",
    "    --two-way region,income --two-way age,income --report look",
    "dpglm describe people.csv --schema schema.json --epsilon 0.1 --column age \\",
    "    --bounds 0.005,0.995 --bounded-schema narrower.json --ledger people.ledger",
)
def describe(
    data: Annotated[Path | Address, options.INPUT_DATA],
    schema_file: Annotated[Path, options.INPUT_FILE],
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
    bounded_schema: Annotated[Path | None, options.OUTPUT_FILE] = None,
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
    from dpglm.tabulate import check_quantiles

    ends: list[tuple[float, float]] = []

    def make(ledger: Any) -> Any:
        if (bounds is None) != (bounded_schema is None):
            raise CommandError("--bounds and --bounded-schema must be given together")
        if bounds is not None:
            if by is not None:
                raise CommandError(
                    f"--bounds {bounds}: needs a description of all rows, so no --by"
                )
            given = options.numbers("--bounds", bounds, "0.005,0.995")
            ends.append(check_quantiles("--bounds", given))
        schema = form.of(_schema(schema_file, protected))
        found = None
        if where:
            conditions = reading.read_conditions(where, storage_types(data, schema.csv))
            names = list(dict.fromkeys(name for name, *_ in conditions))
            found, _ = reading.selected(conditions, schema.read_file(data, names), schema)
        return described(
            data,
            schema,
            where=found and found.counts,
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
        raise CommandError(f"--two-way {text}: give two, with a comma between them")
    return first.strip(), second.strip()


def _bins(text: str) -> tuple[str, int]:
    name, equals, count = text.rpartition("=")
    if not equals or not count.isdigit():
        raise CommandError(f"--bins {text}: give COLUMN=NUMBER, such as age=10")
    return name, int(count)


EVALUATION_FOLDER = options.output_folder("certificate.json", "evaluation.html", "evaluation.json")


@command(
    "Evaluate a model on private rows.",
    "dpglm evaluate held_out.csv --model model.json --epsilon 0.5 --report performance",
    "dpglm evaluate held_out.csv --model model.json --epsilon 0.5 --by sex \\",
    "    --threshold 0.2 --threshold 0.5 --ledger people.ledger --report performance",
)
def evaluate(
    data: Annotated[Path | Address, options.INPUT_TABLE],
    model: Annotated[Path, options.INPUT_FILE],
    protected: Protected,
    form: CsvForm,
    exposure: str | None = None,
    offset: str | None = None,
    trials: str | None = None,
    target: str | None = None,
    thresholds: tuple[float, ...] = (),
    by: str | None = None,
    account: Account = Account(),  # noqa: B008
    report: Annotated[Path | None, EVALUATION_FOLDER] = None,
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
    thresholds : --threshold
        With two classes: rows with at least this score are predicted positive. By default 0.5 for
        probabilities and 0 for decision values.
    by : COLUMN
        Evaluate the rows of each category of this column of the schema, too, at no further cost.
    report : FOLDER
        Folder for certificate.json, evaluation.html and evaluation.json.
    """
    from dpglm.evaluation import evaluate as evaluated
    from dpglm.report.evaluation_page import write_evaluation
    from dpglm.report.model_file import load_model

    loaded = load_model(model)
    dialect = form.dialect(None if loaded.schema is None else loaded.schema.csv)
    answer = _target(loaded, target)
    _check_trials(loaded, answer, trials)
    known = () if loaded.schema is None else loaded.schema.columns
    listed = [one.name for one in known if isinstance(one, CategoricalColumn)]
    if by is not None and by not in listed:
        raise CommandError(
            f"--by {by}: must be a categorical column of the model's schema, one of "
            f"{', '.join(listed) or 'none'}"
        )
    offsets = reading.offset_of(loaded, exposure, offset, storage_types(data, dialect))
    own, of_offsets = reading.columns_of(loaded), reading.columns_in(offsets)
    protected.check_groups((*own, answer.name, *of_offsets), is_limited=True)

    def make(ledger: Any) -> Any:
        conditions = reading.read_conditions(where, storage_types(data, dialect))
        needed = [*own, answer.name, by, trials, protected.groups, *of_offsets]
        needed += [name for name, *_ in conditions]
        in_numbers = [*reading.numbers_of(loaded), trials, *of_offsets]
        in_numbers += [answer.name] if answer.n_classes is None else []
        table = read_table(
            data,
            list(dict.fromkeys(one for one in needed if one is not None)),
            dialect,
            [one for one in in_numbers if one is not None],
        )
        counted, table = reading.selected(conditions, table, loaded.schema, protected.groups)
        with named_errors(data), Where.numbering(counted):
            y, _ = reading.encoded_target(answer, table, trials)
            used = own if by is None else [*own, by]
            rows = reading.features_of(loaded, {name: table[name] for name in used})
            groups = protected.groups
            ids = None if groups is None else as_cells(table[groups], groups)
            given = reading.values_of(offsets, table) | {"where": counted}
        return evaluated(
            loaded,
            rows,
            y,
            **given,
            thresholds=thresholds or None,
            by=by,
            groups=ids,
            **protected.keywords,
            ledger=ledger,
        )

    publish_numbers(make, "evaluation", write_evaluation, report, account.opened(), force=force)


def _target(model: LinearModel, name: str | None) -> TargetColumn:
    """Return the target column: the schema's, or one made from the model's classes or bounds."""
    known = None if model.schema is None else model.schema.target
    if known is not None and not isinstance(known, NoTarget) and name in (None, known.name):
        return known
    if name is None:
        raise CommandError("--target COLUMN must be given: the model file does not name the target")
    if model.classes_ is not None:
        return ClassTarget(name, tuple(model.classes_.tolist()))
    if model.target_bounds is None:
        raise CommandError(f"--target {name}: the model file has no bounds on the target")
    return NumericTarget(name, *model.target_bounds)


def _check_trials(model: LinearModel, target: TargetColumn, trials: str | None) -> None:
    """Refuse successes without their trials, and trials of other targets."""
    from dpglm.problem import Target

    of_shares = model.certificate.problem.loss.target is Target.PROPORTION
    counts = isinstance(target, CountTarget)
    if of_shares and counts and trials is None:
        raise CommandError(
            f"--trials COLUMN must be given: the model predicts shares of successes, and "
            f"{target.name!r} counts these"
        )
    if trials is not None and not (of_shares and counts):
        raise CommandError(f"--trials {trials}: the model was fitted without them")


@command(
    "Release second moments of a table.",
    "dpglm moments people.csv --schema schema.json --epsilon 1 -o moments.json",
    "dpglm moments people.parquet --schema schema.json --epsilon 1 --term 'bs(age, df=5)' \\",
    "    --column age --column sex --column income -o moments.json",
)
def moments(
    data: Annotated[Path | Address, options.INPUT_DATA],
    schema_file: Annotated[Path, options.INPUT_FILE],
    protected: Protected,
    output: Annotated[Path, options.OUTPUT_FILE],
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

    make = functools.partial(
        release_moments,
        data,
        _schema(schema_file, protected),
        columns=columns or None,
        terms=terms,
        weighting=weighting,
    )
    _publish(make, "moments", protected, output, account, force=force)


@command(
    "Estimate the average effect of a treatment.",
    "dpglm ate people.csv --schema schema.json --treatment drug --outcome pressure \\",
    "    --adjust age --adjust sex --epsilon 1 -o effect.json",
)
def ate(
    data: Annotated[Path | Address, options.INPUT_DATA],
    schema_file: Annotated[Path, options.INPUT_FILE],
    protected: Protected,
    output: Annotated[Path, options.OUTPUT_FILE],
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

    make = functools.partial(
        estimated,
        data,
        treatment=treatment,
        outcome=outcome,
        adjust=adjust,
        schema=_schema(schema_file, protected),
        overlap=overlap,
    )
    _publish(make, "effect", protected, output, account, force=force)


def _publish(
    release: Any, kind: str, protected: Protected, output: Path, account: Account, *, force: bool
) -> None:
    """Make a release that is written to one file and printed."""
    make = functools.partial(release, groups=protected.groups, **protected.keywords)
    others = {output: lambda found: found.to_dict()}
    publish_numbers(make, kind, None, None, account.opened(), force=force, others=others)
