"""Booleans are checked wherever a user can give them: "False" is a text."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import typing

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

from docs._site import api_pages
from dpglm import (
    AdditiveClassifier,
    AdditiveRegressor,
    LogisticRegression,
    NoisyGD,
    PrivacyLedger,
    Ridge,
)
from dpglm._validation import check_bools
from dpglm.data.rows import DataSpec
from dpglm.datasets import load_adult, load_california_housing
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.privacy.budget import ApproximateDP
from tests.fits import admitted_targets

MODULES = ("solvers", "preprocessing", "problem", "selection", "data.rows", "estimators")
NEITHER = ("no", "False", "true", 0, 1, 0.0, None, [], [True], np.array([True]))
needed = {
    "n_rows": 10,
    "n_features": 2,
    "quantile": 0.5,
    "center": np.zeros(2),
    "matrix": np.ones(2),
}


def public():
    for name in MODULES:
        module = importlib.import_module(f"dpglm.{name}")
        for exported in api_pages.public_names(module):
            yield getattr(module, exported)


def settings():
    """Classes of settings with fields that are true or false, and these fields."""
    for kind in public():
        # Estimators check theirs in fit, as scikit-learn wants it: see below.
        if isinstance(kind, type) and issubclass(kind, BaseEstimator):
            continue
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            for field in dataclasses.fields(kind):
                if field.init and field.type == "bool":
                    yield kind, field.name


def made(kind, **given):
    options = {
        field.name: needed[field.name]
        for field in dataclasses.fields(kind)
        if field.name in needed and field.name not in given
    }
    if "loss" in {field.name for field in dataclasses.fields(kind)}:
        options["loss"] = importlib.import_module("dpglm.problem").Logistic()
    return kind(**options, **given)


def is_refused(kind, name, value):
    try:
        made(kind, **{name: value})
    except ValueError as error:
        return f"{name} must be True or False, got {value!r}" in str(error)
    return False


CASES = [
    (kind, name)
    for kind, name in settings()
    # Objects that solvers make for themselves.
    if not kind.__name__.startswith("Planned")
]


def test_there_are_such_settings():
    names = {(kind.__name__, name) for kind, name in CASES}
    assert {("NoisyGD", "shrink"), ("Center", "lengthen"), ("DataSpec", "sparse")} <= names
    assert len(names) >= 10


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_settings_are_checked(kind, name):
    assert all(is_refused(kind, name, value) for value in NEITHER)
    for value in (True, False, np.True_, np.False_):
        assert getattr(made(kind, **{name: value}), name) is bool(value)


@dataclasses.dataclass(frozen=True)
class Unchecked:
    """Planted: unchecked settings."""

    shrink: bool = False


@dataclasses.dataclass(frozen=True)
class Checked:
    shrink: bool = False

    def __post_init__(self) -> None:
        check_bools(self)


def test_settings_that_are_not_checked_are_found_out():
    assert not is_refused(Unchecked, "shrink", "no")
    assert is_refused(Checked, "shrink", "no")


ESTIMATORS = [
    kind for kind in public() if isinstance(kind, type) and issubclass(kind, BaseEstimator)
]


def flags(kind):
    """Parameters of an estimator that are true or false."""
    hints = typing.get_type_hints(kind.__init__)
    return [name for name, hint in hints.items() if hint is bool]


def declared(kind):
    own = {"classes": [0, 1]} if "classes" in kind().get_params() else {"target_bounds": (0.25, 1)}
    return kind(solver=NoisyGD(n_steps=2), row_norm=2.0, **own)


LINEAR = [kind for kind in ESTIMATORS if "fit_intercept" in inspect.signature(kind).parameters]


def test_all_flags_of_estimators_are_tried():
    assert {kind for kind in ESTIMATORS if issubclass(kind, PrivateLinearModel)} == set(LINEAR)
    for kind in ESTIMATORS:
        if "steps" in inspect.signature(kind).parameters:
            continue
        expected = {"fit_intercept", "penalize_intercept"} if kind in LINEAR else set()
        if kind in (AdditiveClassifier, AdditiveRegressor):
            expected = {"inference"}
        assert set(flags(kind)) == expected


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.LowSignalWarning")
@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("name", ["fit_intercept", "penalize_intercept", "verbose"])
def test_parameters_are_checked_before_anything_is_spent(kind, name, tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "a.db", data="x", budget=ApproximateDP(1.0, 1e-5))
    X = np.random.default_rng(0).uniform(-1, 1, size=(50, 2))
    model = declared(kind).set_params(ledger=ledger)
    y = admitted_targets(model, (X[:, 0] > 0).astype(int))
    for value in NEITHER:
        if name == "verbose" and isinstance(value, int):
            continue
        model.set_params(**{name: value})
        for attempt in (lambda: model.fit(X, y), lambda: model.plan(50, 2)):
            with pytest.raises(ValueError, match=f"{name} must be"):
                attempt()
    assert ledger.contents().entries == ()
    assert "coef_" not in vars(model)
    free = clone(model).set_params(ledger=None)
    fitted = free.set_params(**{name: np.False_}).fit(X, y)
    pickle.loads(pickle.dumps(fitted))


@pytest.mark.parametrize("value", NEITHER, ids=str)
def test_inference_of_additive_models_is_a_bool(value, tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "a.db", data="x", budget=ApproximateDP(1.0, 1e-5))
    number = {"type": "numeric", "low": 0, "high": 1}
    schema = {"columns": {"age": number}, "provenance": "made up"}
    model = AdditiveClassifier(schema, classes=[0, 1], inference=value, ledger=ledger)
    with pytest.raises(ValueError, match="inference must be"):
        model.fit({"age": np.linspace(0.0, 1.0, 50)}, np.arange(50) % 2)
    assert ledger.contents().entries == ()


def test_text_does_not_fit_an_intercept():
    X = np.random.default_rng(0).uniform(-1, 1, size=(50, 2))
    with pytest.raises(ValueError, match="fit_intercept must be True or False, got 'no'"):
        Ridge(row_norm=2.0, target_bounds=(-1, 1), fit_intercept="no").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="sparse must be True or False, got 'yes'"):
        LogisticRegression(row_norm=1.0).plan(100, 2, sparse="yes")
    with pytest.raises(ValueError, match="sparse must be True or False, got 1"):
        DataSpec(n_rows=1, n_features=1, sparse=1)


@pytest.mark.parametrize("load", [load_adult, load_california_housing])
def test_data_sets_are_loaded_as_was_said(load):
    with pytest.raises(ValueError, match="as_frame must be True or False, got 'no'"):
        load(as_frame="no")
