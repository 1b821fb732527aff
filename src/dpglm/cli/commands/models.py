"""`dpglm schema`, `plan` and `fit`: from a form for the public facts to a private model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import click

from dpglm._calls import shown
from dpglm._codec import encode
from dpglm.cli import options
from dpglm.cli.console import CommandError, note, plain, print_pairs, print_sections, say, spending
from dpglm.cli.files import SpendingWatch, all_or_none, require_report, reserved
from dpglm.cli.fitting import ModelOptions, fit_with_progress, write_release
from dpglm.cli.options import Account, CsvForm, Protected, command
from dpglm.cli.rows import read_rows
from dpglm.tables.databases import Address
from dpglm.tables.files import Dialect, StorageType, separator_cure, storage_types
from dpglm.tables.schema import HELP_KEY

_HELP = [
    "Write down public knowledge: from a law, a questionnaire, documentation, common sense.",
    "Do not take it from the rows: that would not be protected.",
    "The type of a column may stay null if it follows from the other entries.",
    "A number: type 'numeric' (in double quotes), with low and high; values outside are clipped.",
    "If values can be missing, add missing: the number that replaces them.",
    "A category: type 'categorical', with all categories; an empty text among them stands for a",
    "missing value. If you add other: CATEGORY, unlisted values count as that category; if you add",
    "reference: CATEGORY, the effects of the other categories are differences from it.",
    "A date: low and high as dates, such as 2015-01-31; add parts: {month: cyclic, weekday:",
    "categorical} (with double quotes) if the season or the day of the week matters.",
    "A column that the model must not use (a name, an identifier, free text): delete its line.",
    "A column of person ids: delete its line, too; name it with fit --groups COLUMN.",
    "The target: type 'binary' or 'classes', with the classes; or 'numeric', with low and high; or",
    "'count', with high.",
    "The provenance: state where these facts come from. It becomes part of the certificate.",
    "Entries that stay null or [] are ignored, and so is this text.",
]

_COLUMN: Mapping[StorageType, dict[str, Any]] = MappingProxyType(
    {
        StorageType.NUMBER: {"type": "numeric", "low": None, "high": None},
        StorageType.TEXT: {"type": "categorical", "categories": []},
        StorageType.BOOLEAN: {"type": "categorical", "categories": [False, True]},
        StorageType.DATE: {"type": "date", "low": None, "high": None},
        StorageType.DURATION: {"type": "duration", "low": None, "high": None, "unit": "days"},
        StorageType.UNKNOWN: {"type": None, "low": None, "high": None, "categories": []},
    }
)
# A number may be a class label, so its type does not determine the kind of target.
_ANY_TARGET: dict[str, Any] = {"type": None, "classes": [], "low": None, "high": None}
_TARGET: Mapping[StorageType, dict[str, Any]] = MappingProxyType(
    {
        StorageType.NUMBER: _ANY_TARGET,
        StorageType.TEXT: {"type": "classes", "classes": []},
        StorageType.BOOLEAN: {"type": "binary", "classes": [False, True]},
        **dict.fromkeys((StorageType.DATE, StorageType.DURATION, StorageType.UNKNOWN), _ANY_TARGET),
    }
)


@command(
    "Write a form for the public facts about a table.",
    "dpglm schema people.csv --target income -o schema.json",
    "dpglm schema people.parquet --target income",
    "dpglm schema 'duckdb:bank.duckdb?table=loans' --target late",
)
def schema(
    data: Annotated[Path | Address, options.INPUT_TABLE],
    target: str,
    form: CsvForm,
    output: Annotated[Path | None, options.OUTPUT_FILE] = None,
    force: bool = False,
) -> None:
    """Write a form for the public facts about the table DATA, to be filled in by hand.

    A private fit needs the range of every number and the list of every category up front, from
    public knowledge: taken from the rows, they would reveal extremes. So this command reads names
    and storage types of the columns only, never a value. (CSV files do not state which columns are
    numbers; there you fill in the type as well.)

    Edit the file, which has instructions. Then print the cost of a fit, which also checks that the
    form is complete: dpglm plan --schema schema.json --n-rows 30000

    Parameters
    ----------
    target : COLUMN
        Column to predict.
    output : -o --output
        File to write.  [default: print it]
    """
    dialect = form.dialect(None)
    types = storage_types(data, dialect)
    if target not in types:
        raise CommandError(
            f"--target {target}: not a column of {data}; choose among {', '.join(types)}"
            f"{separator_cure(list(types))}"
        )
    made = template(types, target, dialect)
    # One line for each column and each line of help.
    parts = {key: _json(value) for key, value in made.items()}
    parts[HELP_KEY] = "[\n" + ",\n".join(f"    {_json(one)}" for one in made[HELP_KEY]) + "\n  ]"
    columns = (f"    {_json(name)}: {_json(entry)}" for name, entry in made["columns"].items())
    parts["columns"] = "{\n" + ",\n".join(columns) + "\n  }"
    lines = ",\n".join(f"  {_json(key)}: {value}" for key, value in parts.items())
    text = f"{{\n{lines}\n}}\n"
    if output is None:
        # An escaped character stands for itself in JSON, too.
        click.echo(plain(text), nl=False)
        return
    with all_or_none([output], force=force) as drafts:
        drafts[output].write_text(text, encoding="utf-8")
    note(f"Wrote {output}. Fill it in from public knowledge; the file says how.")


def template(
    types: Mapping[str, StorageType], target: str, dialect: Dialect | None = None
) -> dict[str, Any]:
    """Return an incomplete schema: names and storage types only."""
    return {
        HELP_KEY: _HELP,
        "columns": {name: _COLUMN[kind] for name, kind in types.items() if name and name != target},
        "target": {"name": target} | _TARGET[types[target]],
        "provenance": "",
        **({} if dialect is None else {"csv": encode(dialect)}),
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@command(
    "Show the releases and cost of a fit; needs no data.",
    "dpglm plan --schema schema.json --n-rows 30000 --epsilon 0.5",
)
def plan(
    described: Annotated[ModelOptions, {"schema_file": ...}],
    protected: Annotated[Protected, {"epsilon": 1.0, "n_rows": ...}],
) -> None:
    """Show the releases, cost and expected accuracy of a fit, without any data.

    `dpglm fit` carries out exactly this plan.
    """
    from dpglm._words import rounded_up
    from dpglm.certificate.statement import SCOPE
    from dpglm.guidance import guidance
    from dpglm.privacy.events import describe_event

    n_rows = protected.n_rows
    assert n_rows is not None
    if protected.n_groups is None and (protected.groups or protected.max_rows_per_group):
        raise CommandError("--n-groups must be given if all rows of a group are protected together")
    described.check()
    given = protected.keywords
    if protected.adjacency != "add_remove":
        del given["n_rows"]
    schema = described.schema()
    made = described.make(schema, **given)
    with shown():
        decided = described.plan(made, schema, n_rows)
    spent, data = decided.privacy(), decided.data
    of_groups = "" if data.groups is None else f" of {data.groups.n_groups} groups"
    sizes = f"{data.n_rows} rows{of_groups}, {data.n_features} features"
    sizes += f", {data.n_outputs} classes" if data.n_outputs > 1 else ""
    # Where the accounting rests on more than the releases, as on hidden iterates.
    is_plain = decided.event == decided.method.mechanisms
    accounted = {} if is_plain else {"Accounting": "; ".join(describe_event(decided.event))}
    print_pairs(
        f"Plan for {type(made).__name__}: {sizes}",
        {
            "Privacy": f"epsilon {rounded_up(spent['epsilon'])}, delta {spent['delta']:g}, "
            f"relation {decided.adjacency.value}",
            "Steps": str(decided.n_steps),
            "Releases": "; ".join(map(_in_words, decided.method.releases)),
        }
        | accounted,
    )
    say()
    print_sections([*guidance(decided).sections(), ("Limits of certificates", (SCOPE,))])


def _in_words(release: Any) -> str:
    rate = release.sampling_rate
    sampled = f", each on a sample of {100.0 * rate:.3g} % of the rows" if rate < 1.0 else ""
    return f"{release.count} with {release.mechanism.in_words} ({release.quantity}){sampled}"


REPORT_FOLDER = options.output_folder("certificate.json", "report.html")


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
    data: Annotated[Path | Address, options.INPUT_DATA],
    described: Annotated[ModelOptions, {"schema_file": ...}],
    protected: Protected,
    form: CsvForm,
    model: Annotated[Path, options.OUTPUT_FILE],
    report: Annotated[Path | None, REPORT_FOLDER] = None,
    account: Account = Account(),  # noqa: B008
    stream: bool = False,
    cache: Annotated[Path | None, options.INPUT_FOLDER] = None,
    checkpoint: Annotated[Path | None, options.CHECKPOINT] = None,
    where: tuple[str, ...] = (),
    force: bool = False,
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

    Parameters
    ----------
    model
        Model file to write (JSON).
    report : FOLDER
        Folder for certificate.json and report.html.
    stream
        Read Parquet block by block at each step instead of into memory. Large files (256 MiB),
        folders and databases are always streamed.
    cache : FOLDER
        Folder for a temporary copy of the encoded rows, which makes streaming faster.
    checkpoint
        File for the state after each step. After an interruption the same command continues from
        there and spends nothing twice.
    """
    from dpglm.data.groups import Groups
    from dpglm.guidance import guidance
    from dpglm.report.page import coefficient_table
    from dpglm.solvers.auto import Auto

    watch = spending(SpendingWatch(checkpoint=checkpoint, resumes="FILE"))
    described.check()
    schema = form.of(described.schema())
    exposure, trials, groups = described.exposure, described.trials, protected.groups
    used_columns = [*schema.column_names, schema.target.name, exposure, trials]
    protected.check_groups(used_columns, is_limited=False)
    protected.check_public_sizes()
    if checkpoint is not None and not checkpoint.parent.is_dir():
        raise CommandError(f"--checkpoint {checkpoint}: must lie in a folder that exists")
    ledger = account.opened()
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
        used = None
        if rows.groups is not None:
            # Private numbers of groups, and of their rows that are used.
            whose = Groups.of(rows.groups, len(rows.groups))
            used = whose.n_used(protected.max_rows_per_group)
            fitted.set_params(n_groups=protected.n_groups or whose.n_groups)
        is_table = described.additive and not rows.is_streamed
        n_rows = schema.count(rows.X) if is_table else rows.X.shape[0]
        n_rows = len(rows.given["where"].counts) if "where" in rows.given else n_rows
        n_rows = protected.n_rows or used or n_rows
        if described.additive and protected.max_rows_per_group is not None:
            fitted.set_params(n_rows=n_rows)
        facts = {} if described.additive else {"dtype": str(rows.X.dtype)}
        plan = described.plan(fitted, schema, n_rows, **facts)
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
