"""`dpglm demo`: a private model of public data, compared with one without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import click
import numpy as np

from dpglm._progress import stage
from dpglm._progress_shown import shown
from dpglm.cli.console import (
    guarded,
    print_pairs,
    print_sections,
    print_table,
    say,
)
from dpglm.cli.fitting import fit_with_progress, require_report, write_release
from dpglm.cli.options import examples, force_option, output_folder
from dpglm.cli.outputs import all_or_none
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["demo"]

_FOLDER = Path("dpglm-demo")
_PICTURE = "accuracy_against_epsilon.png"
_OUT = output_folder("model.json", "certificate.json", "report.html", _PICTURE)
_EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_RUNS = 3


@click.command(
    short_help="Train a private model on public data and show what it costs.",
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
    """Train a private logistic regression on Adult and compare it with one that is not private.

    Adult (48842 persons of the 1994 US census survey; does a person earn over 50000 dollars a
    year?) is shipped with dpglm together with its schema. The demo treats its training rows as
    private, fits, and measures on the test rows; it takes about half a minute.
    """
    from dpglm.estimators import LogisticRegression

    require_report()
    folder = out or _FOLDER
    targets = list(_OUT.files(folder))
    with all_or_none(targets, force=force or out is None) as drafts:
        schema, train, test = _adult()
        say(
            f"Adult (census income): {len(train.y)} rows to learn from, {len(test.y)} to test on, "
            f"{len(schema.columns)} columns."
        )
        parameters = {
            "delta": delta,
            "row_norm": schema.row_norm,
            **schema.target.estimator_parameters(),
        }
        model = LogisticRegression(epsilon=epsilon, **parameters)
        fit_with_progress(model, train.X, train.y, schema)
        private = _score(model, test)
        reference = _score(_without_privacy(train), test)
        constant = _Score(float(np.mean(test.y == _largest_class(train))), 0.5)
        curve = _curve(train, test, epsilon, private.accuracy, parameters)
        figure = _figure(curve, reference, constant, epsilon)
        figure.savefig(drafts[folder / _PICTURE])
        write_release(
            model,
            schema,
            drafts,
            model=folder / "model.json",
            report=folder,
            title="Adult: who earns more than 50000 dollars a year?",
            scores={
                f"Accuracy on {len(test.y)} public test rows": private.accuracy,
                "Area under the ROC curve on them": private.auc,
                "Accuracy without privacy (scikit-learn)": reference.accuracy,
                "Accuracy of always answering the larger class": constant.accuracy,
            },
            figures={_CAPTION: figure},
        )
    say()
    print_table(
        ("On the test rows", "accuracy", "AUC"),
        [
            ("Always the larger class", *constant.texts),
            (f"Private logistic regression, epsilon {epsilon:g}", *private.texts),
            ("Without privacy (scikit-learn)", *reference.texts),
        ],
    )
    say()
    print_sections(
        (heading, sentences)
        for heading, sentences in model.privacy_.sections()
        if heading != "What is not covered"
    )
    print_pairs(
        f"Wrote to {folder}",
        {
            "model.json": "the model, for dpglm predict",
            "certificate.json": "the claim with all that it rests on, for dpglm verify",
            "report.html": "all about the model; open it in a browser",
            _PICTURE: _CAPTION,
        },
    )
    say()
    say(f"Next: dpglm verify {folder / 'certificate.json'}")


_CAPTION = (
    "Accuracy at other epsilons. The further fits behind this picture are not part of the claim: "
    "Adult is public; on private rows each of them would cost its own epsilon on top."
)


@final
@dataclass(frozen=True, eq=False)
class _Rows:
    X: NDArray[Any]
    y: NDArray[Any]


@final
@dataclass(frozen=True)
class _Score:
    accuracy: float
    auc: float

    @property
    def texts(self) -> tuple[str, str]:
        return f"{100 * self.accuracy:.1f} %", f"{self.auc:.3f}"


def _adult() -> tuple[Schema, _Rows, _Rows]:
    from dpglm.datasets import load_adult

    adult = load_adult()
    schema = Schema.from_dict(adult.schema)
    X, y = schema.encode(adult.data), schema.encode_target(adult.target)
    return schema, _Rows(X[adult.train], y[adult.train]), _Rows(X[adult.test], y[adult.test])


def _score(model: Any, rows: _Rows) -> _Score:
    from sklearn.metrics import roc_auc_score

    scores = model.decision_function(rows.X)
    return _Score(
        float(np.mean(model.predict(rows.X) == rows.y)),
        float(roc_auc_score(rows.y == model.classes_[1], scores)),
    )


def _without_privacy(rows: _Rows) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with shown(), stage("Fit without privacy", 1) as advance:
            model = LogisticRegression(max_iter=1000).fit(rows.X, rows.y)
            advance(1)
        return model


def _largest_class(rows: _Rows) -> Any:
    classes, counts = np.unique(rows.y, return_counts=True)
    return classes[counts.argmax()]


def _curve(
    train: _Rows, test: _Rows, chosen: float, accuracy: float, parameters: dict[str, Any]
) -> dict[float, Sequence[float]]:
    """Accuracies of several runs at several epsilons; the first at ``chosen`` is the demo's."""
    from dpglm.estimators import LogisticRegression

    # Single precision costs a percent more noise and half the time.
    X, tests = train.X.astype(np.float32), _Rows(test.X.astype(np.float32), test.y)
    epsilons = sorted({*_EPSILONS, chosen})
    curve: dict[float, Sequence[float]] = {}
    with shown(), stage("Fits for the picture", len(epsilons) * _RUNS - 1) as advance:
        for epsilon in epsilons:
            accuracies = [accuracy] if epsilon == chosen else []
            while len(accuracies) < _RUNS:
                model = LogisticRegression(epsilon=epsilon, **parameters).fit(X, train.y)
                accuracies.append(_score(model, tests).accuracy)
                advance(1)
            curve[epsilon] = accuracies
    return curve


def _figure(
    curve: dict[float, Sequence[float]], reference: _Score, constant: _Score, epsilon: float
) -> Any:
    from dpglm.report.plots import accuracy_against_epsilon

    return accuracy_against_epsilon(
        list(curve),
        list(curve.values()),
        without_privacy=reference.accuracy,
        without_features=constant.accuracy,
        chosen=epsilon,
        metric="Accuracy on the test rows of Adult",
    )
