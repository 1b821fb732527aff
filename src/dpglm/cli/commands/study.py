"""`dpglm study`: look, fit and evaluate on one budget, as a file declares."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from dpglm._progress import shown
from dpglm._words import rounded_up
from dpglm.cli.console import (
    InputError,
    guarded,
    note,
    print_pairs,
    print_sections,
    print_table,
    say,
    spending,
)
from dpglm.cli.files import SpendingWatch, reserved
from dpglm.cli.fitting import require_report
from dpglm.cli.options import (
    INPUT_FILE,
    LEDGER,
    STUDY_CHECKPOINT,
    examples,
    force_option,
    output_folder,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpglm.evaluation import Evaluation
    from dpglm.study import StudyPlan, StudyResult

__all__ = ["print_promise", "print_written", "study"]

_OUT = output_folder(
    "report.html", "certificate.json", "model.json", "exploration.json", "evaluation.json"
)


@click.command(
    short_help="Look, fit and evaluate on one budget.",
    epilog=examples(
        "dpglm study study.toml --rows 48842                  # what to expect; needs no data",
        "dpglm study study.toml people.parquet --out results",
        "dpglm study study.toml people.parquet --out results --ledger people.ledger \\",
        "    --checkpoint begun",
    ),
)
@click.argument("study_file", metavar="STUDY", type=INPUT_FILE)
@click.argument("data", type=INPUT_FILE, required=False)
@click.option(
    "--rows", type=click.IntRange(min=1), help="A public number of rows, for a plan without DATA."
)
@click.option("--out", type=_OUT, metavar="FOLDER", help="Where to write the results.")
@click.option(
    "--ledger",
    type=LEDGER,
    help="The ledger of this data set, where the study is recorded and paid for before it releases "
    "anything.",
)
@click.option(
    "--checkpoint",
    type=STUDY_CHECKPOINT,
    metavar="FOLDER",
    help="Keep here what was released so far, and which rows are held out; if the study is "
    "interrupted, the same command goes on from there and spends nothing twice. Not for "
    "publication.",
)
@force_option
@guarded
def study(
    study_file: Path,
    data: Path | None,
    rows: int | None,
    out: Path | None,
    ledger: Path | None,
    checkpoint: Path | None,
    force: bool,
) -> None:
    """Do what STUDY declares with the private table DATA, and write what may be published.

    STUDY is a TOML file with the budget, the schema's file, and what is to be explored, fitted and
    evaluated; docs/study.md has an example. DATA is a CSV or Parquet file. Without DATA, the plan
    is printed: what each part will cost, and how precise it will be.

    All rows are explored. The model is fitted to some of them, drawn at random, and evaluated on
    the others. Everything together costs the epsilon that STUDY names. An error before anything
    is spent leaves no file. One after that says what was spent, and where results are or how to go
    on, and has exit code 3.
    """
    from dpglm.ledger import PrivacyLedger
    from dpglm.study.reading import read_study
    from dpglm.study.writing import files_of_study, write_study

    declared = read_study(study_file)
    if data is None:
        _print_plan(declared.plan(rows))
        return
    if rows is not None:
        raise InputError("--rows is for a plan without DATA, whose number of rows is its own")
    if out is None:
        raise InputError("--out FOLDER must say where to write the results")
    require_report()
    account = None if ledger is None else PrivacyLedger(ledger)
    watch = spending(SpendingWatch(account, checkpoint=checkpoint, resumes="FOLDER"))
    targets = [out / name for name in files_of_study(declared.parts)]
    with reserved(targets, force=force) as outputs:
        with shown():
            result = declared.run(data, ledger=account, checkpoint=checkpoint)
        # Drafts have their targets' names, in one folder.
        outputs.write(lambda drafts: write_study(result, drafts[targets[0]].parent), watch.wrote)
    print_findings(result)
    print_written(targets)


def print_findings(result: StudyResult) -> None:
    """Print how good a study's model is, what is promised, and who spent what."""
    if result.evaluation is not None:
        print_performance(result.evaluation)
        say()
    print_promise(result)


def print_promise(result: StudyResult) -> None:
    """Print what is promised of a study, who spent what, and that it is verified."""
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
        say("No row is both learned from and held out: each pays for one of the two.")
    say(result.verify().verdict)
    say()


def print_performance(evaluation: Evaluation) -> None:
    """Print how good a model is, with intervals for the population."""
    from dpglm.tabulate.numbers import population_estimate, population_interval

    print_table(
        ("On the rows held out", "estimate", f"{100.0 * evaluation.plan.level:g} % interval"),
        [
            (one.label, population_estimate(one.number), population_interval(one.number))
            for one in evaluation.all_rows.shown()
        ],
    )


def print_written(targets: Sequence[Path], more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print what the files of a study hold; ``more`` says it of files of other names."""
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
    said = [f"{one.part}: {one.quantity}: {one.precision}" for one in plan.expected()]
    print_sections([("What to expect", said)])
    for caution in plan.cautions():
        note(f"Warning: {caution}")
