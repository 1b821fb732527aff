"""The demo study of Adult, compared with models without privacy: ``make demo``.

On public rows the cost of privacy can be measured: a fit without privacy, and private fits at other
epsilons. On private rows each of these fits would be a further release.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from dpglm import datasets
from dpglm._calls import shown, stage
from dpglm.cli.commands.studies import OUT, Comparison, study_adult, without_some
from dpglm.cli.options import command
from dpglm.estimators import AdditiveClassifier
from dpglm.evaluation import Evaluation
from dpglm.exceptions import UnpaidReleaseWarning
from dpglm.report.page import NARROW
from dpglm.study import StudyResult
from dpglm.tables.schema import Schema
from examples.epsilons import accuracy_against_epsilon

_CAPTION = (
    "Cost of privacy: accuracy at other epsilons, on test rows that are treated as public. The "
    "further fits behind this picture are not part of the claim: on private rows, each of them "
    "would cost its own epsilon on top."
)
_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0)
_RUNS = 2


@final
@dataclass(frozen=True)
class Performance:
    """Accuracy and AUC of a classifier."""

    accuracy: float
    auc: float

    @property
    def texts(self) -> tuple[str, str]:
        """Both as text."""
        return f"{100 * self.accuracy:.1f} %", f"{self.auc:.3f}"


@final
@dataclass(frozen=True, eq=False)
class PublicRows:
    """Public rows with a target of two classes, some of them for testing."""

    table: Mapping[str, NDArray[Any]]
    target: str
    train: NDArray[np.intp]
    test: NDArray[np.intp]

    def constant(self) -> Performance:
        """Score the larger class of the training rows as a constant prediction."""
        classes, counts = np.unique(self.table[self.target][self.train], return_counts=True)
        right = self.table[self.target][self.test] == classes[counts.argmax()]
        return Performance(float(np.mean(right)), 0.5)

    def without_privacy(self, schema: Schema) -> Performance:
        """Score scikit-learn's logistic regression of the features that a schema makes."""
        train, test = (schema.encode(self.part(rows)) for rows in (self.train, self.test))
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
        train, test = self.part(self.train), self.part(self.test)
        found: dict[float, list[float]] = {epsilon: [] for epsilon in epsilons}
        progress = stage("Fits for the picture", len(epsilons) * _RUNS)
        with warnings.catch_warnings(), shown(), progress as advance:
            # The rows are public, so that repeated fits need no budget.
            warnings.simplefilter("ignore", UnpaidReleaseWarning)
            for epsilon in epsilons * _RUNS:
                model = make(epsilon).fit(train)
                scored = self._scored(model.classes_, model.decision_function(test))
                found[epsilon].append(scored.accuracy)
                advance(1)
        return found

    def part(self, rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Return some rows."""
        return {name: cells[rows] for name, cells in self.table.items()}

    def _scored(self, classes: NDArray[Any], scores: NDArray[np.float64]) -> Performance:
        positive = self.table[self.target][self.test] == classes[1]
        right = (scores > 0.0) == positive
        return Performance(float(np.mean(right)), float(roc_auc_score(positive, scores)))


def _compared(result: StudyResult, epsilon: float, delta: float) -> Comparison:
    """Compare the study's model with others, on Adult's public test rows."""
    adult = datasets.load_adult()
    table = {**without_some(adult.data), "income": adult.target}
    rows = PublicRows(table, "income", adult.train, adult.test)
    schema = result.model.schema_
    without = rows.without_privacy(schema)
    declared = {**adult.schema, "columns": without_some(adult.schema["columns"])}
    curve = rows.curve(
        lambda other: AdditiveClassifier(declared, epsilon=other, delta=delta), epsilon
    )
    figures = tuple(
        accuracy_against_epsilon(
            list(curve),
            list(curve.values()),
            without_privacy=without.accuracy,
            without_features=rows.constant().accuracy,
            chosen=epsilon,
            metric="Accuracy on the test rows",
            width=width,
        )
        for width in (7.2, NARROW)
    )
    held_out = _held_out(result.evaluation)
    lines = [
        ("Always the larger class", *rows.constant().texts),
        (f"Private model, epsilon {epsilon:g}, on rows held out", *held_out),
        ("Without privacy (scikit-learn), on test rows", *without.texts),
    ]
    return lines, {_CAPTION: figures}


def _held_out(evaluation: Evaluation) -> tuple[str, str]:
    """Return accuracy and AUC with their intervals for the population."""
    accuracy, auc = (evaluation.number(name) for name in ("accuracy", "auc"))
    ends = [(one.population_low or 0.0, one.population_high or 0.0) for one in (accuracy, auc)]
    return (
        f"{100.0 * accuracy.estimate:.1f} % [{100.0 * ends[0][0]:.1f}, {100.0 * ends[0][1]:.1f}]",
        f"{auc.estimate:.3f} [{ends[1][0]:.3f}, {ends[1][1]:.3f}]",
    )


@command("Carry out the demo study and compare it with models without privacy.", "make demo")
def main(
    epsilon: float = 1.0,
    delta: float = 1e-5,
    out: Annotated[Path | None, OUT] = None,
    force: bool = False,
) -> None:
    """Carry out `dpglm demo`, and compare with models without privacy (half a minute).

    Parameters
    ----------
    epsilon
        Privacy budget epsilon.
    delta
        Failure probability delta.
    out : FOLDER
        Folder for the results.  [default: dpglm-demo]
    """

    def compare(result: StudyResult) -> Comparison:
        return _compared(result, epsilon, delta)

    study_adult(epsilon, delta, out, force=force, compare=compare)


if __name__ == "__main__":
    main(prog_name="make demo")
