"""private_scorer: each call pays, and nothing is scored that no ledger pays for."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate

from dpglm import LinearSVC
from dpglm.evaluation import METRICS, private_scorer
from dpglm.exceptions import BudgetExceededError
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import ApproximateDP
from tests.oracle.watching import watching


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger.create(
        tmp_path / "people.ledger", data="people", budget=ApproximateDP(3.0, 1e-4)
    )


@pytest.fixture(scope="module")
def rows(binary):
    y, scores, _ = binary
    return np.log(scores / (1.0 - scores))[:, np.newaxis], y


def test_every_split_and_metric_is_an_entry(ledger, rows):
    scoring = {
        name: private_scorer(name, epsilon=0.5, delta=1e-6, ledger=ledger)
        for name in ("auc", "neg_log_loss")
    }
    found = cross_validate(LogisticRegression(), *rows, cv=2, scoring=scoring)
    assert len(ledger.contents().entries) == 4
    assert (found["test_auc"] > 0.7).all()
    assert (found["test_neg_log_loss"] < 0.0).all()


def test_a_search_stops_where_the_ledger_does(ledger, rows):
    scorer = private_scorer("accuracy", epsilon=2.5, delta=1e-4, ledger=ledger)
    search = GridSearchCV(
        LogisticRegression(), {"C": [0.1, 1.0]}, cv=2, scoring=scorer, error_score="raise"
    )
    with pytest.raises(BudgetExceededError):
        search.fit(*rows)
    assert len(ledger.contents().entries) == 1


def test_hidden_costs_are_refused(rows):
    with pytest.raises(ValueError, match="ledger must be a PrivacyLedger or its path, got None"):
        private_scorer("auc", epsilon=0.5, ledger=None)


@pytest.mark.parametrize(
    ("metric", "model"),
    [
        ("r2", LogisticRegression()),
        ("auc", LinearRegression()),
        ("neg_brier", LinearSVC(epsilon=9.0, row_norm=9.0, classes=["ill", "well"])),
    ],
)
def test_unavailable_metric_is_refused_before_spending(ledger, rows, metric, model):
    X, y = rows
    target = X.ravel() if isinstance(model, LinearRegression) else y
    scorer = private_scorer(metric, epsilon=0.5, ledger=ledger, target_bounds=(-9.0, 9.0))
    model.fit(X, target)
    with watching() as watcher, pytest.raises(ValueError, match="metric must be one of"):
        scorer(model, X, target)
    assert not hasattr(watcher, "declared")
    assert not ledger.contents().entries


def test_errors_of_numbers_are_negative(ledger, numbers):
    y, predictions = numbers
    X = predictions[:, np.newaxis]
    scorer = private_scorer("neg_mae", epsilon=1.0, ledger=ledger, target_bounds=(0.0, 5.0))
    assert -1.0 < scorer(LinearRegression().fit(X, y), X, y) < 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "roc_auc"}, "metric must be one of"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"adjacency": "add_remove"}, "adjacency must be one of"),
        ({"threshold": math.inf}, "threshold must be"),
    ],
)
def test_wrong_arguments_are_named(ledger, change, message):
    with pytest.raises(ValueError, match=message):
        private_scorer(**{"metric": "auc", "epsilon": 1.0, "ledger": ledger} | change)


def test_scorer_names_are_documented():
    names = {one.scorer for one in METRICS if one.scorer is not None}
    assert all(f'"{name}"' in private_scorer.__doc__ for name in names)
