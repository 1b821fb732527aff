"""`dpglm fit`: a private model from a table and its schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dpglm.cli.conditions import Where
from dpglm.cli.console import InputError, note, print_sections, say, spending
from dpglm.cli.files import SpendingWatch, read_rows, require_report, reserved
from dpglm.cli.fitting import (
    ModelOptions,
    fit_with_progress,
    planned,
    write_release,
)
from dpglm.cli.options import (
    CHECKPOINT,
    INPUT_DATA,
    INPUT_FOLDER,
    OUTPUT_FILE,
    Account,
    CsvForm,
    Force,
    Protected,
    argument,
    command,
    defaults,
    option,
    output_folder,
)
from dpglm.tables.databases import Address

if TYPE_CHECKING:
    pass

REPORT_FOLDER = output_folder("certificate.json", "report.html")


@command(
    "Fit a private model to a table.",
    "dpglm fit people.csv --schema schema.json --epsilon 1 --model model.json --report report",
    "dpglm fit people.csv --schema schema.json --epsilon 0.5 --delta 1e-6 \\",
    "    --estimator svm --set loss=hinge --set C=10 --model model.json",
    "dpglm fit people.csv --schema schema.json --epsilon 1 --reference region=north \\",
    "    --formula 'income ~ age + I(age**2) + C(sex) * C(region)' --model model.json",
    "dpglm fit people.csv --schema schema.json --epsilon 1 --additive \\",
    "    --interaction age:region --monotone age=+1 --model model.json --report report",
    "dpglm fit people.csv --schema schema.json --epsilon 0.5 --delta 1e-6 \\",
    "    --ledger people.ledger --label 'income by region' --model model.json",
    "dpglm fit visits.csv --schema schema.json --epsilon 1 --groups patient --model model.json",
    "dpglm fit 'duckdb:bank.duckdb?table=loans' --schema schema.json --epsilon 1 \\",
    "    --model model.json",
)
def fit(
    data: Annotated[Path | Address, argument(INPUT_DATA)],
    described: Annotated[ModelOptions, defaults(schema_file=...)],
    protected: Protected,
    form: CsvForm,
    model: Annotated[Path, option("Model file to write (JSON).", type=OUTPUT_FILE)],
    report: Annotated[
        Path | None,
        option(
            "Folder for certificate.json and report.html.", type=REPORT_FOLDER, metavar="FOLDER"
        ),
    ] = None,
    account: Account = Account(),  # noqa: B008
    label: Annotated[
        str | None,
        option("Name of this analysis in the ledger, such as 'income by region'.", metavar="TEXT"),
    ] = None,
    stream: Annotated[
        bool,
        option(
            "Read Parquet block by block at each step instead of into memory. Large files (256 "
            "MiB), folders and databases are always streamed."
        ),
    ] = False,
    cache: Annotated[
        Path | None,
        option(
            "Folder for a temporary copy of the encoded rows, which makes streaming faster.",
            type=INPUT_FOLDER,
            metavar="FOLDER",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        option(
            "File for the state after each step. After an interruption the same command continues "
            "from there and spends nothing twice.",
            type=CHECKPOINT,
        ),
    ] = None,
    where: Where = (),
    force: Force = False,
) -> None:
    """Fit a model to the private table DATA and write publishable results.

    DATA is a CSV or Parquet file, a folder of Parquet files, or the address of a table in a
    database: duckdb:FILE?table=NAME, sqlite:FILE?query=SQL or
    postgresql://HOST/DATABASE?table=NAME. Folders and databases may be larger than memory.
    Inputs are never replaced, and nothing is written into a folder of rows.

    The model is differentially private: with epsilon 1, no row makes any outcome more than e = 2.7
    times as likely, up to an additional probability of delta; with --groups, all rows of a person
    together do not. The certificate contains every number that this depends on, and `dpglm verify`
    recomputes it. The noise comes from the operating system, so two fits differ; each fit of the
    same rows costs epsilon again.

    `dpglm schema` makes a form for the schema. No accuracy is shown, because it would be a further
    release of the private rows: `dpglm evaluate` measures it on rows that were set aside.

    Error messages are for you, the holder of the rows: they show a value that does not match the
    schema. An error before anything is spent leaves no file. After that, the message states the
    spending and where the model is or how to continue; the exit code is 3, or 130 after Ctrl-C.
    """
    from dpglm.guidance.expectation import guidance
    from dpglm.report.subject import coefficient_table
    from dpglm.solvers.auto import Auto

    watch = spending(SpendingWatch(checkpoint=checkpoint, resumes="FILE"))
    described.check()
    schema = form.of(described.schema())
    exposure, trials, groups = described.exposure, described.trials, protected.groups
    used_columns = [*schema.column_names, schema.target.name, exposure, trials]
    protected.check_groups(used_columns, is_limited=False)
    protected.check_public_sizes()
    if checkpoint is not None and not checkpoint.parent.is_dir():
        raise InputError(f"--checkpoint {checkpoint}: must lie in a folder that exists")
    ledger = account.opened(label)
    watch.opened(ledger)
    fitted = described.make(schema, **protected.keywords, ledger=ledger)
    written = [model]
    if report is not None:
        require_report()
        written += REPORT_FOLDER.files(report)
    with reserved(written, force=force) as outputs:
        rows = read_rows(
            data,
            schema,
            exposure=exposure,
            trials=trials,
            groups=groups,
            stream=stream,
            cache=cache,
            encode=not described.additive,
            where=where,
        )
        if rows.is_streamed and fitted.solver == "auto":
            fitted.set_params(solver=Auto(may_copy=False))
        elif cache is not None and not rows.is_streamed:
            note(f"--cache {cache} is not used, as the rows are read into memory")
        facts: dict[str, Any] = {} if exposure is None else {"offset": True}
        used = None
        if rows.groups is not None:
            n_groups, used = rows.used(protected.max_rows_per_group)
            fitted.set_params(n_groups=protected.n_groups or n_groups)
        if described.additive:
            n_rows = rows.X.shape[0] if rows.is_streamed else schema.count(rows.X)
            n_rows = protected.n_rows or used or n_rows
            if protected.max_rows_per_group is not None:
                fitted.set_params(n_rows=n_rows)
            plan = fitted.plan(n_rows, **facts)
            note(f"Curves: {fitted.resolve(n_rows)}")
        else:
            n_rows, n_features = protected.n_rows or used or rows.X.shape[0], rows.X.shape[1]
            facts["dtype"] = str(rows.X.dtype)
            plan = planned(fitted, n_rows, n_features, schema.target.n_classes, **facts)
        # A number that the relation makes public need not be declared.
        fitted.set_params(n_groups=protected.n_groups)
        for caution in guidance(plan).cautions:
            note(f"Warning: {caution}")
        watch.begins(plan)
        fit_with_progress(fitted, rows.X, rows.y, schema, checkpoint, watch.stepped, **rows.given)
        own = fitted.schema_ if described.additive else schema
        outputs.write(
            lambda drafts: write_release(fitted, own, drafts, model=model, report=report),
            watch.wrote,
        )
    print_sections(fitted.privacy_.sections())
    table = coefficient_table(fitted)
    print_sections(guidance(plan, table).sections())
    if table.inference is not None:
        say(f"{table.inference}\n")
    for path in written:
        say(f"Wrote {path}")
    unused = set(rows.columns) - {"", groups, *used_columns}
    if unused:
        place = "schema" if schema.formula is None else "formula"
        note(f"Not in the {place}, and therefore not used: {', '.join(sorted(unused))}")
