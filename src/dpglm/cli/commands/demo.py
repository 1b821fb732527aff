"""`dpglm demo`: a whole study of public data, compared with a model without privacy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpglm._progress_shown import shown
from dpglm.cli.commands.study import print_promise, print_written
from dpglm.cli.comparison import PublicRows, figure_of_costs
from dpglm.cli.console import guarded, print_table, say
from dpglm.cli.fitting import require_report
from dpglm.cli.options import examples, force_option, output_folder
from dpglm.cli.outputs import reserved

if TYPE_CHECKING:
    from dpglm.estimators import AdditiveClassifier
    from dpglm.evaluation import Evaluation
    from dpglm.study import Study, StudyResult

__all__ = ["demo"]

_FOLDER = Path("dpglm-demo")
_LEDGER = "ledger.json"
_OUT = output_folder(
    "report.html",
    "certificate.json",
    "model.json",
    "exploration.json",
    "evaluation.json",
    _LEDGER,
)
_QUESTION = "Who earns more than 50000 dollars a year?"
# A weight of the survey; what education-num says, too; and 42 countries, most of them rare.
_LEFT_OUT = ("fnlwgt", "education", "native-country")
_MOST = 5


@click.command(
    short_help="Do a whole private study of public data.",
    epilog=examples(
        "dpglm demo",
        "dpglm demo --epsilon 0.1 --out small-epsilon",
    ),
)
@click.option(
    "--epsilon", type=float, default=1.0, show_default=True, help="How much one row may matter."
)
@click.option(
    "--delta", type=float, default=1e-5, show_default=True, help="How often that may not hold."
)
@click.option(
    "--out",
    type=_OUT,
    metavar="FOLDER",
    help=f"Where to write.  [default: {_FOLDER}, replacing what an earlier demo wrote]",
)
@force_option
@guarded
def demo(epsilon: float, delta: float, out: Path | None, force: bool) -> None:
    """Look at Adult, fit an additive model and evaluate it on rows held out, on one budget.

    Adult (48842 persons of the 1994 US census survey; does a person earn over 50000 dollars a
    year?) is shipped with dpglm together with its schema. The demo treats all rows as private:
    what it finds costs --epsilon together. As Adult is public, it also fits without privacy and at
    other epsilons, to show what privacy costs. It takes about half a minute.
    """
    from dpglm.datasets import load_adult
    from dpglm.estimators import AdditiveClassifier
    from dpglm.study.writing import write_study

    require_report()
    folder = out or _FOLDER
    targets = list(_OUT.files(folder))
    with reserved(targets, force=force or out is None) as outputs:
        drafts = outputs.drafts
        adult = load_adult()
        schema = {**adult.schema, "columns": _without(adult.schema["columns"])}
        rows = PublicRows(
            {**_without(adult.data), "income": adult.target}, "income", adult.train, adult.test
        )
        study = _declared(schema, epsilon, delta, len(adult.target))
        say(f"Adult (census income): {len(adult.target)} rows, {len(schema['columns'])} columns.")
        result = _run(study, rows.table, drafts[folder / _LEDGER])
        without = rows.without_privacy(result.model.schema_)
        figures = figure_of_costs(
            rows,
            lambda other: AdditiveClassifier(schema, epsilon=other, delta=delta),
            without,
            epsilon,
        )
        write_study(result, drafts[targets[0]].parent, figures)
        outputs.publish()
    say()
    print_table(
        (_QUESTION, "accuracy", "AUC"),
        [
            ("Always the larger class", *rows.constant().texts),
            (
                f"Private model, epsilon {epsilon:g}, on rows held out",
                *_held_out(result.evaluation),
            ),
            ("Without privacy (scikit-learn), on test rows", *without.texts),
        ],
    )
    say()
    _print_effects(result.model)
    say()
    print_promise(result)
    print_written(targets, {_LEDGER: "what was spent on Adult, for dpglm ledger verify"})


def _without(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in columns.items() if name not in _LEFT_OUT}


def _declared(schema: Mapping[str, Any], epsilon: float, delta: float, n_rows: int) -> Study:
    """Declare the study, with standard errors where budget and rows suffice for them."""
    from dpglm.study import Study

    looked = Study(
        schema, epsilon, delta, n_rows=n_rows, title=f"Adult: {_QUESTION.lower()}"
    ).explore(two_way=[("sex", "income")])
    # Few knots, so that bands are narrow enough to see a curve.
    full = looked.fit("additive", inference=True, segments=8).evaluate(by="sex")
    try:
        full.plan()
    except ValueError:
        return looked.fit("additive").evaluate(by="sex")
    return full


def _run(study: Study, table: Mapping[str, Any], export: Path) -> StudyResult:
    """Run the study on a new ledger, which is exported."""
    from dpglm.ledger import PrivacyLedger
    from dpglm.ledger.files import write_json

    budget = study.plan().budget
    ledger = PrivacyLedger.create(export.with_suffix(".sqlite"), data="Adult", budget=budget)
    with shown():
        result = study.run(table, ledger=ledger)
    write_json(export, ledger.contents().to_dict())
    return result


def _print_effects(model: AdditiveClassifier) -> None:
    """Print which columns matter most."""
    shapes = model.shapes_.by_importance[:_MOST]
    print_table(
        ("What matters most", "lowest log-odds", "highest"),
        [(one.term, f"{one.values.min():.2f}", f"{one.values.max():.2f}") for one in shapes],
    )


def _held_out(evaluation: Evaluation) -> tuple[str, str]:
    """Return accuracy and AUC with their intervals for the population."""
    accuracy, auc = (evaluation.number(name) for name in ("accuracy", "auc"))
    ends = [(one.population_low or 0.0, one.population_high or 0.0) for one in (accuracy, auc)]
    return (
        f"{100.0 * accuracy.estimate:.1f} % [{100.0 * ends[0][0]:.1f}, {100.0 * ends[0][1]:.1f}]",
        f"{auc.estimate:.3f} [{ends[1][0]:.3f}, {ends[1][1]:.3f}]",
    )
