"""`dpglm demo`: a whole study of public data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

from dpglm._progress import shown
from dpglm.cli.commands.study import print_performance, print_promise, print_written
from dpglm.cli.console import print_table, say
from dpglm.cli.files import require_report, reserved
from dpglm.cli.options import Force, command, option, output_folder

if TYPE_CHECKING:
    from dpglm.estimators import AdditiveClassifier
    from dpglm.study import Study, StudyResult

FOLDER = Path("dpglm-demo")
_LEDGER = "ledger.json"
OUT = output_folder(
    "report.html",
    "certificate.json",
    "model.json",
    "exploration.json",
    "evaluation.json",
    _LEDGER,
)
QUESTION = "Who earns more than 50000 dollars a year?"
# A survey weight, a duplicate of education-num, and a column of 42 mostly rare countries.
_LEFTOUT = ("fnlwgt", "education", "native-country")
_MOST = 5


@final
@dataclass(frozen=True)
class DemoComparison:
    """A table to print, and figures for the report by their captions."""

    table: list[tuple[str, ...]]
    figures: Mapping[str, Any] = field(default_factory=dict)


@command(
    "Carry out a whole private study of public data.",
    "dpglm demo",
    "dpglm demo --epsilon 0.1 --out small-epsilon",
)
def demo(
    epsilon: Annotated[float, option("Privacy budget epsilon.")] = 1.0,
    delta: Annotated[float, option("Failure probability delta.")] = 1e-5,
    out: Annotated[
        Path | None,
        option(
            f"Folder for the results.  [default: {FOLDER}, replacing those of an earlier demo]",
            type=OUT,
            metavar="FOLDER",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Explore Adult, fit an additive model and evaluate it on held-out rows, on one budget.

    Adult (48842 people of the 1994 US census survey: does a person earn over 50000 dollars a
    year?) is shipped with dpglm together with its schema. The demo treats all rows as private:
    everything together costs --epsilon. It takes about ten seconds.
    """
    study_adult(epsilon, delta, out, force=force)


def study_adult(
    epsilon: float,
    delta: float,
    out: Path | None,
    *,
    force: bool,
    compare: Callable[[StudyResult], DemoComparison] | None = None,
) -> None:
    """Carry out the study, print its findings and write its files.

    ``compare`` makes a comparison with models that are not private, for public rows only.
    """
    from dpglm.datasets import load_adult
    from dpglm.study.writing import write_study

    require_report()
    folder = out or FOLDER
    targets = list(OUT.files(folder))
    with reserved(targets, force=force or out is None) as outputs:
        adult = load_adult()
        schema = {**adult.schema, "columns": without_some(adult.schema["columns"])}
        table = {**without_some(adult.data), "income": adult.target}
        study = _declared(schema, epsilon, delta, len(adult.target))
        say(f"Adult (census income): {len(adult.target)} rows, {len(schema['columns'])} columns.")
        result = _run(study, table, outputs.drafts[folder / _LEDGER])
        compared = None if compare is None else compare(result)
        figures = None if compared is None else compared.figures
        write_study(result, outputs.drafts[targets[0]].parent, figures)
        outputs.publish()
    say()
    if compared is None:
        print_performance(result.evaluation)
    else:
        print_table((QUESTION, "accuracy", "AUC"), compared.table)
    say()
    _print_effects(result.model)
    say()
    print_promise(result)
    print_written(targets, {_LEDGER: "the spending on Adult, for dpglm ledger verify"})


def without_some(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that the study uses."""
    return {name: one for name, one in columns.items() if name not in _LEFTOUT}


def _declared(schema: Mapping[str, Any], epsilon: float, delta: float, n_rows: int) -> Study:
    """Declare the study, with standard errors where budget and rows suffice for them."""
    from dpglm.study import Study

    explored = Study(
        schema, epsilon, delta, n_rows=n_rows, title=f"Adult: {QUESTION.lower()}"
    ).explore(two_way=[("sex", "income")])
    # With few knots, bands are narrow enough to show the shape of a curve.
    full = explored.fit("additive", inference=True, segments=8).evaluate(by="sex")
    try:
        full.plan()
    except ValueError:
        return explored.fit("additive").evaluate(by="sex")
    return full


def _run(study: Study, table: Mapping[str, Any], export: Path) -> StudyResult:
    """Run the study on a new ledger, which is exported."""
    from dpglm.ledger import PrivacyLedger
    from dpglm.ledger.store import write_json

    budget = study.plan().protection.budget
    ledger = PrivacyLedger.create(export.with_suffix(".sqlite"), data="Adult", budget=budget)
    with shown():
        result = study.run(table, ledger=ledger)
    write_json(export, ledger.contents().to_dict())
    return result


def _print_effects(model: AdditiveClassifier) -> None:
    """Print which columns matter most."""
    shapes = model.shapes_.by_importance[:_MOST]
    print_table(
        ("Strongest effects", "lowest log-odds", "highest"),
        [(one.term, f"{one.values.min():.2f}", f"{one.values.max():.2f}") for one in shapes],
    )
