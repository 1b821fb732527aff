"""`dpglm demo`: a whole study of public data, compared with a model without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import click
import numpy as np

from dpglm._progress import shown, stage
from dpglm.cli.commands.study import print_promise, print_written
from dpglm.cli.console import guarded, print_table, say
from dpglm.cli.files import reserved
from dpglm.cli.fitting import require_report
from dpglm.cli.options import examples, force_option, output_folder
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpglm.estimators import AdditiveClassifier
    from dpglm.evaluation import Evaluation
    from dpglm.study import Study, StudyResult


# What privacy costs on public data: the demo's model without privacy, and at other epsilons.

CAPTION = (
    "What privacy costs: accuracy at other epsilons, on test rows that are taken to be public. The "
    "further fits behind this picture are not part of the claim: on private rows each of them "
    "would cost its own epsilon on top."
)
_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0)
_RUNS = 2


@final
@dataclass(frozen=True)
class Score:
    """How good a model of two classes is."""

    accuracy: float
    auc: float

    @property
    def texts(self) -> tuple[str, str]:
        """Both in words."""
        return f"{100 * self.accuracy:.1f} %", f"{self.auc:.3f}"


@final
@dataclass(frozen=True, eq=False)
class PublicRows:
    """A table of public rows with a target of two classes, some of them to test on."""

    table: Mapping[str, NDArray[Any]]
    target: str
    train: NDArray[np.intp]
    test: NDArray[np.intp]

    def score(self, model: Any) -> Score:
        """Score a fitted model on the test rows."""
        rows = self._part(self.test)
        return self._scored(model.classes_, model.decision_function(rows))

    def constant(self) -> Score:
        """Score what always answers the larger class of the training rows."""
        classes, counts = np.unique(self.table[self.target][self.train], return_counts=True)
        right = self.table[self.target][self.test] == classes[counts.argmax()]
        return Score(float(np.mean(right)), 0.5)

    def without_privacy(self, schema: Schema) -> Score:
        """Score scikit-learn's logistic regression of the features that a schema makes."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        train, test = (schema.encode(self._part(rows)) for rows in (self.train, self.test))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            with shown(), stage("Fit without privacy", 1) as advance:
                model = LogisticRegression(max_iter=300)
                model.fit(train, self.table[self.target][self.train])
                advance(1)
        return self._scored(model.classes_, model.decision_function(test))

    def curve(self, make: Any, chosen: float) -> Mapping[float, Sequence[float]]:
        """Return accuracies of several fits of ``make(epsilon)`` at several epsilons."""
        epsilons = sorted({*_EPSILONS, chosen})
        train = self._part(self.train)
        found: dict[float, list[float]] = {}
        with shown(), stage("Fits for the picture", len(epsilons) * _RUNS) as advance:
            for epsilon in epsilons:
                found[epsilon] = []
                for _ in range(_RUNS):
                    found[epsilon].append(self.score(make(epsilon).fit(train)).accuracy)
                    advance(1)
        return found

    def _part(self, rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        return {name: cells[rows] for name, cells in self.table.items()}

    def _scored(self, classes: NDArray[Any], scores: NDArray[np.float64]) -> Score:
        from sklearn.metrics import roc_auc_score

        positive = self.table[self.target][self.test] == classes[1]
        right = (scores > 0.0) == positive
        return Score(float(np.mean(right)), float(roc_auc_score(positive, scores)))


def figure_of_costs(rows: PublicRows, make: Any, without: Score, chosen: float) -> dict[str, Any]:
    """Draw the accuracy of private models at several epsilons; returned with its caption."""
    from dpglm.report.page import NARROW
    from dpglm.report.plots import accuracy_against_epsilon

    curve = rows.curve(make, chosen)
    figures = (
        accuracy_against_epsilon(
            list(curve),
            list(curve.values()),
            without_privacy=without.accuracy,
            without_features=rows.constant().accuracy,
            chosen=chosen,
            metric="Accuracy on the test rows",
            width=width,
        )
        for width in (7.2, NARROW)
    )
    return {CAPTION: tuple(figures)}


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
