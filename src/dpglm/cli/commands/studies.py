"""`dpglm study` and `demo`: describe, fit and evaluate on one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from dpglm._calls import shown
from dpglm._words import rounded_up
from dpglm.cli import options
from dpglm.cli.console import CommandError, print_pairs, print_sections, print_table, say, spending
from dpglm.cli.files import SpendingWatch, require_report, reserved
from dpglm.cli.options import Account, command
from dpglm.tables.databases import Address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpglm.evaluation import Evaluation
    from dpglm.study import StudyResult

_FILES = ("report.html", "certificate.json", "model.json", "exploration.json", "evaluation.json")
_OUT = options.output_folder(*_FILES, "effects.json")


@command(
    "Describe, fit and evaluate on one budget.",
    "dpglm study study.toml --n-rows 48842                # what to expect; needs no data",
    "dpglm study study.toml people.parquet --out results",
    "dpglm study study.toml people.parquet --out results --ledger people.ledger \\",
    "    --checkpoint begun",
)
def study(
    study: Annotated[Path, options.INPUT_FILE],
    data: Annotated[Path | Address | None, options.INPUT_TABLE] = None,
    n_rows: Annotated[int | None, options.COUNT] = None,
    out: Annotated[Path | None, _OUT] = None,
    account: Account = Account(),  # noqa: B008
    checkpoint: Annotated[Path | None, options.STUDY_CHECKPOINT] = None,
    force: bool = False,
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

    Parameters
    ----------
    n_rows
        Public number of rows, for a plan without DATA.
    out : FOLDER
        Folder for the results.
    checkpoint : FOLDER
        Folder for earlier releases and the choice of held-out rows. After an interruption the same
        command continues from there and spends nothing twice. Not for publication.
    """
    from dpglm.study.reading import read_study
    from dpglm.study.writing import files_of_study, write_study

    declared = read_study(study)
    if data is None:
        say(str(declared.plan(n_rows)))
        return
    if n_rows is not None:
        raise CommandError("--n-rows is for a plan without DATA")
    if out is None:
        raise CommandError("--out FOLDER must be given with DATA")
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
    print_ending(result, targets)


def print_ending(
    result: StudyResult, targets: Sequence[Path], more: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Print a study's guarantee, spending, verdict and files; ``more`` describes other files."""
    from dpglm.study.writing import FILES

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
    folder, described = targets[0].parent, {**FILES, **more}
    print_pairs(f"Wrote to {folder}", {one.name: described[one.name] for one in targets})
    say()
    say(f"Next: dpglm verify {folder / 'certificate.json'}")


def print_performance(evaluation: Evaluation) -> None:
    """Print the performance of a model, with intervals for the population."""
    from dpglm.tabulate import for_population

    print_table(
        ("On the rows held out", "estimate", f"{100.0 * evaluation.level:g} % interval"),
        [(one.label, *for_population(one.number)) for one in evaluation.all_rows.shown()],
    )


FOLDER = Path("dpglm-demo")
_LEDGER = "ledger.json"
OUT = options.output_folder(*_FILES, _LEDGER)
QUESTION = "Who earns more than 50000 dollars a year?"
# A survey weight, a duplicate of education-num, and a column of 42 mostly rare countries.
_LEFTOUT = ("fnlwgt", "education", "native-country")
_MOST = 5


Comparison: TypeAlias = tuple[list[tuple[str, ...]], Mapping[str, Any]]
"""A table to print, and figures for the report by their captions."""


@command(
    "Carry out a whole private study of public data.",
    "dpglm demo",
    "dpglm demo --epsilon 0.1 --out small-epsilon",
)
def demo(
    epsilon: float = 1.0,
    delta: float = 1e-5,
    out: Annotated[Path | None, OUT] = None,
    force: bool = False,
) -> None:
    """Explore Adult, fit an additive model and evaluate it on held-out rows, on one budget.

    Adult (48842 people of the 1994 US census survey: does a person earn over 50000 dollars a
    year?) is shipped with dpglm together with its schema. The demo treats all rows as private:
    everything together costs --epsilon. It takes about ten seconds.

    Parameters
    ----------
    epsilon
        Privacy budget epsilon.
    delta
        Failure probability delta.
    out : FOLDER
        Folder for the results.  [default: dpglm-demo, replacing those of an earlier demo]
    """
    study_adult(epsilon, delta, out, force=force)


def study_adult(
    epsilon: float,
    delta: float,
    out: Path | None,
    *,
    force: bool,
    compare: Callable[[StudyResult], Comparison] | None = None,
) -> None:
    """Carry out the study, print its findings and write its files.

    ``compare`` makes a comparison with models that are not private, for public rows only.
    """
    from dpglm.datasets import load_adult
    from dpglm.ledger import PrivacyLedger
    from dpglm.ledger.store import write_json
    from dpglm.study import Study
    from dpglm.study.writing import write_study

    require_report()
    folder = out or FOLDER
    targets = list(OUT.files(folder))
    with reserved(targets, force=force or out is None) as outputs:
        adult = load_adult()
        schema = {**adult.schema, "columns": without_some(adult.schema["columns"])}
        table = {**without_some(adult.data), "income": adult.target}
        title, n_rows = f"Adult: {QUESTION.lower()}", len(adult.target)
        study = Study(schema, epsilon, delta, n_rows=n_rows, title=title)
        study = study.explore(two_way=[("sex", "income")])
        study = study.fit("additive", inference=True).evaluate(by="sex")
        say(f"Adult (census income): {n_rows} rows, {len(schema['columns'])} columns.")
        export, budget = outputs.drafts[folder / _LEDGER], study.plan().protection.budget
        ledger = PrivacyLedger.create(export.with_suffix(".sqlite"), data="Adult", budget=budget)
        with shown():
            result = study.run(table, ledger=ledger)
        write_json(export, ledger.contents().to_dict())
        compared = None if compare is None else compare(result)
        figures = None if compared is None else compared[1]
        write_study(result, outputs.drafts[targets[0]].parent, figures)
        outputs.publish()
    say()
    if compared is None:
        print_performance(result.evaluation)
    else:
        print_table((QUESTION, "accuracy", "AUC"), compared[0])
    say()
    print_table(
        ("Strongest effects", "lowest log-odds", "highest"),
        [
            (one.term, f"{one.values.min():.2f}", f"{one.values.max():.2f}")
            for one in result.model.shapes_.by_importance[:_MOST]
        ],
    )
    say()
    print_ending(result, targets, {_LEDGER: "the spending on Adult, for dpglm ledger verify"})


def without_some(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that the study uses."""
    return {name: one for name, one in columns.items() if name not in _LEFTOUT}
