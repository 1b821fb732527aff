"""What privacy costs on public data: the demo's model without privacy, and at other epsilons."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpglm._progress import stage
from dpglm._progress_shown import shown
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CAPTION", "PublicRows", "Score", "figure_of_costs"]

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
