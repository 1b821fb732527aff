"""`dpglm study`: describe, fit and evaluate on one budget, as a file declares."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from dpglm._progress import shown
from dpglm._words import rounded_up
from dpglm.cli.console import (
    InputError,
    note,
    print_pairs,
    print_sections,
    print_table,
    say,
    spending,
)
from dpglm.cli.files import SpendingWatch, require_report, reserved
from dpglm.cli.options import (
    COUNT,
    INPUT_FILE,
    INPUT_TABLE,
    STUDY_CHECKPOINT,
    Account,
    Force,
    argument,
    command,
    option,
    output_folder,
)
from dpglm.tables.databases import Address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpglm.evaluation import Evaluation
    from dpglm.study import StudyPlan, StudyResult

_OUT = output_folder(
    "report.html", "certificate.json", "model.json", "exploration.json", "evaluation.json"
)


@command(
    "Describe, fit and evaluate on one budget.",
    "dpglm study study.toml --n-rows 48842                # what to expect; needs no data",
    "dpglm study study.toml people.parquet --out results",
    "dpglm study study.toml people.parquet --out results --ledger people.ledger \\",
    "    --checkpoint begun",
)
def study(
    study_file: Annotated[Path, argument(INPUT_FILE, metavar="STUDY")],
    data: Annotated[Path | Address | None, argument(INPUT_TABLE)] = None,
    n_rows: Annotated[
        int | None, option("Public number of rows, for a plan without DATA.", type=COUNT)
    ] = None,
    out: Annotated[
        Path | None, option("Folder for the results.", type=_OUT, metavar="FOLDER")
    ] = None,
    account: Account = Account(),  # noqa: B008
    checkpoint: Annotated[
        Path | None,
        option(
            "Folder for earlier releases and the choice of held-out rows. After an "
            "interruption the same command continues from there and spends nothing twice. Not for "
            "publication.",
            type=STUDY_CHECKPOINT,
            metavar="FOLDER",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Carry out STUDY on the private table DATA, and write publishable results.

    STUDY is a TOML file with the budget, the schema's file, and what to explore, fit and evaluate;
    docs/study.md has an example. DATA is a CSV or Parquet file, or the
    address of a table in a database. Without DATA, the plan is printed:
    the cost and the expected precision of each part.

    All rows are explored. The model is fitted to a random part of them and evaluated on the rest.
    Everything together costs the epsilon in STUDY. An error before anything is spent leaves no
    file. After that, the message states the spending and where the results are or how to
    continue, and the exit code is 3.
    """
    from dpglm.study.reading import read_study
    from dpglm.study.writing import files_of_study, write_study

    declared = read_study(study_file)
    if data is None:
        _print_plan(declared.plan(n_rows))
        return
    if n_rows is not None:
        raise InputError("--n-rows is for a plan without DATA")
    if out is None:
        raise InputError("--out FOLDER must be given with DATA")
    require_report()
    ledger = account.opened()
    watch = spending(SpendingWatch(ledger, checkpoint=checkpoint, resumes="FOLDER"))
    targets = [out / name for name in files_of_study(declared.parts)]
    with reserved(targets, force=force) as outputs:
        with shown():
            result = declared.run(data, ledger=ledger, checkpoint=checkpoint)
        # Drafts have their targets' names, in one folder.
        outputs.write(lambda drafts: write_study(result, drafts[targets[0]].parent), watch.wrote)
    if result.evaluation is not None:
        print_performance(result.evaluation)
        say()
    print_promise(result)
    print_written(targets)


def print_promise(result: StudyResult) -> None:
    """Print the guarantee of a study, its spending, and that it is verified."""
    print_sections(
        (heading, sentences)
        for heading, sentences in result.privacy_.sections()
        if heading in ("Warning", "Guarantee")
    )
    certificate = result.privacy_
    print_table(
        ("Budget by part", "rows", "epsilon alone", "share of mu^2"),
        [
            (
                one.stage,
                certificate.rows_in_words(one.stage),
                rounded_up(one.epsilon),
                "-" if one.share is None else f"{100.0 * one.share:.3g} %",
            )
            for one in certificate.spending()
        ],
    )
    say()
    if certificate.split is not None:
        say("No row is used for both fitting and evaluation: each is charged for one of the two.")
    say(result.verify().verdict)
    say()


def print_performance(evaluation: Evaluation) -> None:
    """Print the performance of a model, with intervals for the population."""
    from dpglm.tabulate import population_estimate, population_interval

    print_table(
        ("On the rows held out", "estimate", f"{100.0 * evaluation.level:g} % interval"),
        [
            (one.label, population_estimate(one.number), population_interval(one.number))
            for one in evaluation.all_rows.shown()
        ],
    )


def print_written(targets: Sequence[Path], more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print the contents of a study's files; ``more`` describes other files."""
    from dpglm.study.writing import FILES

    folder = targets[0].parent
    described = {**FILES, **more}
    print_pairs(f"Wrote to {folder}", {one.name: described[one.name] for one in targets})
    say()
    say(f"Next: dpglm verify {folder / 'certificate.json'}")


def _print_plan(plan: StudyPlan) -> None:
    cost = f"epsilon {rounded_up(plan.epsilon)} at delta {rounded_up(plan.delta)}"
    stated = plan.protection
    say(f"A study of {stated.sizes}: {cost}, {stated.adjacency.value}", style="bold")
    print_table(
        ("Cost of each part", "rows", "epsilon alone"),
        [(name, str(rows), rounded_up(epsilon)) for name, rows, epsilon in plan.costs()],
    )
    say()
    expected = [f"{one.part}: {one.quantity}: {one.precision}" for one in plan.expected()]
    print_sections([("Expectation", expected)])
    for caution in plan.cautions():
        note(f"Warning: {caution}")
