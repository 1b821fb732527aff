"""A fit with little signal warns once, before it reads a row."""

import warnings

import numpy as np
import pytest

from dpglm import (
    LogisticRegression,
    LowSignalWarning,
    PrivateGridSearchCV,
    PrivatePipeline,
    Ridge,
)
from dpglm.preprocessing import Center

CLASSES = {"classes": [0, 1], "row_norm": 3.0}


def rows(n_rows, n_features=40):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, size=(n_rows, n_features))
    return X, (X[:, 0] > 0.0).astype(int)


def caught(model, n_rows):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(*rows(n_rows))
    return [one for one in found if one.category is LowSignalWarning]


def test_names_the_numbers_the_cures_and_the_line_of_the_fit():
    (found,) = caught(LogisticRegression(epsilon=0.1, **CLASSES), 100)
    text = str(found.message)
    assert text.startswith("100 rows and epsilon 0.1 for 41 coefficients.")
    assert "do not fit" in text
    assert "about 6000 rows instead of 100; or" in text
    assert found.filename == __file__


def test_is_not_raised_where_something_can_be_learned():
    assert caught(LogisticRegression(epsilon=1.0, **CLASSES), 3000) == []


def test_depends_on_public_facts_only():
    """Two data sets of one shape get the same message, although one is without signal."""
    X, y = rows(100)
    said = []
    for one, target in ((X, y), (np.zeros_like(X), np.arange(100) % 2)):
        with pytest.warns(LowSignalWarning) as found:
            LogisticRegression(epsilon=0.1, **CLASSES).fit(one, target)
        said.append([str(one.message) for one in found if one.category is LowSignalWarning])
    assert said[0] == said[1]


def test_as_an_error_it_comes_before_anything_is_released():
    model = LogisticRegression(epsilon=0.1, **CLASSES)
    steps = []
    model.set_params(callback=steps.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LowSignalWarning)
        with pytest.raises(LowSignalWarning):
            model.fit(*rows(100))
    assert steps == []
    assert not hasattr(model, "solution_")


@pytest.mark.parametrize(
    "model",
    [
        Ridge(epsilon=0.1, row_norm=3.0, target_bounds=(0, 1)),
        PrivatePipeline([Center(), LogisticRegression(**CLASSES)], epsilon=0.1),
        PrivateGridSearchCV(LogisticRegression(**CLASSES), {"C": [0.1, 1.0]}, epsilon=0.1),
    ],
    ids=["regressor", "pipeline", "search"],
)
def test_comes_once_however_much_is_fitted(model):
    assert len(caught(model, 100)) == 1
