"""`dpglm fit`: a private model from a table and its schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpglm.cli.console import (
    InputError,
    guarded,
    note,
    print_sections,
    say,
    spending,
)
from dpglm.cli.files import SpendingWatch, read_rows, reserved
from dpglm.cli.fitting import (
    PUBLIC_ROWS,
    GivenGroups,
    additive_options,
    asked_for_curves,
    check_public_rows,
    declared,
    exposure_options,
    fit_with_progress,
    group_options,
    planned,
    require_report,
    write_release,
)
from dpglm.cli.options import (
    CHECKPOINT,
    FORMULA,
    INFERENCE,
    INPUT_DATA,
    INPUT_FILE,
    INPUT_FOLDER,
    LEDGER,
    OUTPUT_FILE,
    REFERENCE,
    TRIALS,
    budget_options,
    coded_schema,
    estimator_options,
    examples,
    force_option,
    output_folder,
)

if TYPE_CHECKING:
    from dpglm.ledger import PrivacyLedger

__all__ = ["fit"]

REPORT_FOLDER = output_folder("certificate.json", "report.html")


@click.command(
    short_help="Fit a private model to a table.",
    epilog=examples(
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
    ),
)
@click.argument("data", type=INPUT_DATA)
@click.option("--target", metavar="COLUMN", help="The column to predict, as the schema names it.")
@click.option("--schema", "schema_file", type=INPUT_FILE, required=True, help="The public facts.")
@REFERENCE
@FORMULA
@additive_options
@exposure_options
@TRIALS
@group_options
@budget_options()
@PUBLIC_ROWS
@estimator_options(None)
@INFERENCE
@click.option(
    "--ledger",
    type=LEDGER,
    help="The ledger of this data set, where the fit is recorded and paid for before it releases "
    "anything.",
)
@click.option(
    "--label",
    metavar="TEXT",
    help="What to call this analysis in the ledger, such as 'income by region'.",
)
@click.option(
    "--stream",
    is_flag=True,
    help="Read Parquet row by row at each step instead of into memory; large files (256 MiB) and "
    "folders always are.",
)
@click.option(
    "--cache",
    type=INPUT_FOLDER,
    metavar="FOLDER",
    help="Where a streamed fit may keep a copy of the encoded rows while it lasts, to be faster.",
)
@click.option(
    "--checkpoint",
    type=CHECKPOINT,
    help="Keep the state here after each step; if the fit is interrupted, the same command goes on "
    "from there and spends nothing twice.",
)
@click.option("--model", type=OUTPUT_FILE, required=True, help="Where to write the model (JSON).")
@click.option(
    "--report",
    type=REPORT_FOLDER,
    metavar="FOLDER",
    help="Where to write certificate.json and report.html.",
)
@force_option
@guarded
def fit(
    data: Path,
    target: str | None,
    schema_file: Path,
    references: tuple[str, ...],
    formula: str | None,
    additive: bool,
    interactions: tuple[str, ...],
    monotone: tuple[str, ...],
    exposure: str | None,
    trials: str | None,
    exposure_bounds: str | None,
    groups: str | None,
    max_rows_per_group: int | None,
    public_groups: int | None,
    public_rows: int | None,
    estimator: str | None,
    settings: tuple[str, ...],
    inference: str | None,
    ledger: Path | None,
    label: str | None,
    stream: bool,
    cache: Path | None,
    checkpoint: Path | None,
    model: Path,
    report: Path | None,
    force: bool,
    **budget: Any,
) -> None:
    """Fit a model to the private table DATA and write what may be published.

    DATA is a CSV or Parquet file, or a folder of Parquet files, which may be larger than memory.
    Nothing that is read or kept is ever replaced, and nothing is written into a folder of rows.

    The model is differentially private: with epsilon 1, no row changes the probability of any
    outcome by more than a factor of e = 2.7 (and by delta); with --groups, no person with all rows
    does. Every number that this rests on is in the certificate, and `dpglm verify` recomputes it.
    The noise comes from the operating system, so
    two fits differ; each fit of the same rows costs epsilon again.

    `dpglm schema` makes the form for the schema. No accuracy is shown: computed on the private
    rows it would be one more release. Measure it on rows that were set aside: `dpglm
    evaluate`.

    Error messages are for you, the holder of the rows: they show a value that does not match the
    schema. An error before anything is spent leaves no file. One after that says what was spent,
    where the model is or how to go on, and has exit code 3; so does Ctrl-C, with exit code 130.
    """
    from dpglm.guidance.expectation import guidance
    from dpglm.report.subject import coefficient_table
    from dpglm.solvers.auto import Auto

    watch = spending(SpendingWatch(checkpoint=checkpoint, resumes="FILE"))
    excluded = {"estimator": estimator, "reference": references, "formula": formula}
    curves = asked_for_curves(additive, interactions, monotone, **excluded)
    schema = coded_schema(schema_file, references, formula)
    whose = GivenGroups(groups, max_rows_per_group, public_groups)
    whose.check_apart((*schema.column_names, schema.target.name, exposure, trials))
    check_public_rows(budget["adjacency"], public_rows)
    whose.check_public(budget["adjacency"], public_rows)
    if checkpoint is not None and not checkpoint.parent.is_dir():
        raise InputError(f"--checkpoint {checkpoint}: must lie in a folder that exists")
    account = _ledger(ledger, label)
    watch.opened(account)
    given = budget | {"n_rows": public_rows, "ledger": account}
    given |= {"n_groups": public_groups, "max_rows_per_group": max_rows_per_group}
    fitted = declared(
        schema,
        curves=curves,
        interactions=interactions,
        monotone=monotone,
        target=target,
        exposure=exposure,
        exposure_bounds=exposure_bounds,
        trials=trials,
        estimator=estimator,
        settings=settings,
        inference=inference,
        given=given,
    )
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
            encode=not curves,
        )
        if rows.is_streamed and fitted.solver == "auto":
            fitted.set_params(solver=Auto(may_copy=False))
        elif cache is not None and not rows.is_streamed:
            note(f"--cache {cache} is not used: the rows are not streamed, but fit into memory")
        facts = {} if exposure is None else {"offset": True}
        used = None
        if rows.groups is not None:
            n_groups, used = rows.used(max_rows_per_group)
            fitted.set_params(n_groups=public_groups or n_groups)
        if curves:
            n_rows = rows.X.shape[0] if rows.is_streamed else schema.count(rows.X)
            n_rows = public_rows or used or n_rows
            if max_rows_per_group is not None:
                fitted.set_params(n_rows=n_rows)
            plan = fitted.plan(n_rows, **facts)
            note(f"Curves: {fitted.resolve(n_rows)}")
        else:
            n_rows, n_features = used or rows.X.shape[0], rows.X.shape[1]
            kind, classes = str(rows.X.dtype), schema.target.n_classes
            plan = planned(fitted, public_rows or n_rows, n_features, classes, kind, **facts)
        # What the relation makes public needs no declaration.
        fitted.set_params(n_groups=public_groups)
        for caution in guidance(plan).cautions:
            note(f"Warning: {caution}")
        watch.begins(plan)
        fit_with_progress(
            fitted,
            rows.X,
            rows.y,
            schema,
            checkpoint,
            watch.stepped,
            **rows.given,
        )
        own = fitted.schema_ if curves else schema
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
    used_columns = {*schema.column_names, schema.target.name, exposure, trials, groups}
    unused = set(rows.columns) - {"", *used_columns}
    if unused:
        where = "schema" if schema.formula is None else "formula"
        note(f"Not in the {where}, hence not used: {', '.join(sorted(unused))}")


def _ledger(path: Path | None, label: str | None) -> PrivacyLedger | None:
    if path is None:
        if label is not None:
            raise InputError(f"--label {label}: needs --ledger, whose entry it names")
        return None
    from dpglm.ledger import PrivacyLedger

    return PrivacyLedger(path, label=label)
