"""Only a successful fit changes an estimator."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pickle
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.preprocessing import Normalizer

import dpglm.estimators
from dpglm import (
    AdditiveClassifier,
    AdditiveRegressor,
    GaussianDP,
    LogisticRegression,
    NoisyGD,
    PrivacyLedger,
    PrivateGridSearchCV,
    PrivatePipeline,
    PrivateRandomizedSearchCV,
    Ridge,
    RobustClassifier,
)
from dpglm import (
    _calls as _all_or_nothing,
)
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.exceptions import BudgetExceededError
from dpglm.preprocessing import (
    Center,
    SchemaEncoder,
    SplineEncoder,
)
from dpglm.report.model_file import save_model

N, D = 60, 9
STEPS = NoisyGD(n_steps=3)
pd = pytest.importorskip("pandas")


def schema():
    return {
        "columns": {f"c{i}": {"type": "numeric", "low": -1, "high": 1} for i in range(D)},
        "target": {"name": "y", "type": "binary", "classes": [0, 1]},
        "provenance": "made up",
    }


def bounds():
    return [[-1.0] * D, [1.0] * D]


def logistic(**options):
    return LogisticRegression(
        **{"solver": STEPS, "feature_bounds": bounds(), "classes": [0, 1], **options}
    )


def linear(kind):
    own = {"target_bounds": [0.25, 1.0]} if is_regressor(kind()) else {"classes": [0, 1]}
    return kind(solver=STEPS, feature_bounds=bounds(), **own)


PUBLIC = [getattr(dpglm.estimators, name) for name in dpglm.estimators.__all__]
LINEAR_MODELS = [
    kind
    for kind in PUBLIC
    if isinstance(kind, type)
    and issubclass(kind, PrivateLinearModel)
    and kind not in (LogisticRegression, RobustClassifier)
]


def cases():
    """Make an estimator of every class, with parameters that can be changed in place."""
    return {
        "LogisticRegression": logistic(class_weight={0: 0.5}),
        "softmax": logistic(classes=[0, 1, 2]),
        "one against the rest": logistic(classes=[0, 1, 2], multi_class="ovr"),
        "RobustClassifier": RobustClassifier(solver=STEPS, row_norm=2.0, classes=[0, 1]),
        **{kind.__name__: linear(kind) for kind in LINEAR_MODELS},
        "PrivatePipeline": PrivatePipeline([SchemaEncoder(schema()), Center(), logistic()]),
        # Seeded, as the number of its trainings is random.
        "PrivateGridSearchCV": PrivateGridSearchCV(logistic(random_state=0), {"C": [0.5, 1.0]}),
        "PrivateRandomizedSearchCV": PrivateRandomizedSearchCV(
            PrivatePipeline([Normalizer(), logistic()]),
            {"logisticregression__C": [0.5, 1.0]},
            n_iter=2,
            method="held_out",
        ),
        "AdditiveClassifier": AdditiveClassifier(schema(), solver=STEPS),
        "AdditiveRegressor": AdditiveRegressor(
            schema() | {"target": {"name": "y", "type": "numeric", "low": 0, "high": 1}},
            solver=STEPS,
        ),
        "SchemaEncoder": SchemaEncoder(schema()),
        "SplineEncoder": SplineEncoder(schema()),
    }


every_case = pytest.mark.parametrize("name", cases())
quietly = pytest.mark.filterwarnings("ignore::dpglm.exceptions.LowSignalWarning")
pytestmark = [quietly, pytest.mark.one_in(2)]


def data(name=""):
    X = np.random.default_rng(0).uniform(-1, 1, size=(N, D))
    y = (X[:, 0] > 0).astype(int)
    # Gamma targets are above 0.
    return pd.DataFrame(X, columns=[f"c{i}" for i in range(D)]), y + (name == "GammaRegressor")


METHODS = ("predict", "decision_function", "predict_proba", "transform")


def outputs(fitted, X, path):
    """All that a fitted estimator says: about rows, of itself, and in a file."""
    said = {}
    for method in METHODS:
        # As in scikit-learn: unavailable methods are not attributes.
        if getattr(fitted, method, None) is not None:
            said[method] = np.asarray(getattr(fitted, method)(X)).tolist()
    if getattr(fitted, "get_feature_names_out", None) is not None:
        said["names"] = fitted.get_feature_names_out().tolist()
    if getattr(fitted, "privacy_", None) is not None:
        said["certificate"] = fitted.privacy_.to_dict()
        said["plan"] = repr(fitted.solution_.plan)
    if "predict" in said and "Search" not in type(fitted).__name__:
        save_model(fitted, path)
        said["file"] = path.read_bytes()
    return said


def test_every_estimator_has_a_case():
    modules = [importlib.import_module(f"dpglm.{one}") for one in ("estimators", "preprocessing")]
    public = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    public += [getattr(dpglm.estimators, name) for name in dpglm.estimators.__all__]
    with_fit = {one.__name__ for one in public if issubclass(one, BaseEstimator)}
    assert with_fit <= set(cases())


def snapshot(estimator):
    """The contents of an estimator, to the last byte, and the identity of its objects."""
    return {name: id(value) for name, value in vars(estimator).items()}, pickle.dumps(
        {name: value for name, value in vars(estimator).items() if name != "ledger"}
    )


class StopError(BaseException):
    """Not an Exception, as KeyboardInterrupt."""


@contextlib.contextmanager
def interruption(at):
    """Raise in the call of this number among those of the library; count them all."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        # Errors raised while a generator is closed are lost.
        generates = frame.f_code.co_flags & inspect.CO_GENERATOR
        if frame.f_globals.get("__name__", "").startswith("dpglm.") and not generates:
            count += 1
            if count == at:
                raise StopError
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


@every_case
def test_a_fit_that_is_interrupted_anywhere_changes_nothing(name, tmp_path):
    X, y = data(name)
    model = cases()[name].fit(X, y)
    # In this order: a certificate keeps the plan that it was asked for.
    said, held = outputs(model, X, tmp_path / "model.json"), snapshot(model)
    # Other columns and other labels, that a refused fit must leave no trace of.
    others, labels = X.iloc[:, ::-1].copy(), y[::-1]
    if "chema" not in repr(model):
        others.columns = [f"other{i}" for i in range(D)]
    for _ in range(2):
        # The second one finds plans in caches, as those after it do.
        with interruption(None) as counted:
            clone(model).fit(others, labels)
    for at in np.unique(np.linspace(1, 0.9 * counted(), 12).astype(int)):
        with pytest.raises(StopError), interruption(at):
            model.fit(others, labels)
        assert snapshot(model) == held
    assert outputs(model, X, tmp_path / "model.json") == said


REFUSALS = {
    "no number": lambda X, y: (X.assign(c3=np.where(y, np.nan, 0.0)), y),
    "rows without targets": lambda X, y: (X, y[1:]),
    "no rows": lambda X, y: (X.iloc[:0], y[:0]),
    "unknown labels": lambda X, y: (X, np.where(y, "unknown", "labels")),
}


TAKES_ALL = ("SchemaEncoder", "SplineEncoder")


@every_case
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_fit_that_is_refused_changes_nothing(name, refusal, tmp_path):
    X, y = data(name)
    model = cases()[name].fit(X, y)
    said, held = outputs(model, X, tmp_path / "model.json"), snapshot(model)
    bad, labels = REFUSALS[refusal](X[X.columns[::-1]], y)
    if name in TAKES_ALL:
        pytest.skip("looks at no such thing")
    with pytest.raises(ValueError, match=r"\w"):
        model.fit(bad, labels)
    assert snapshot(model) == held
    assert outputs(model, X, tmp_path / "model.json") == said


@pytest.mark.parametrize("name", [name for name in cases() if name not in TAKES_ALL])
def test_a_fit_that_a_ledger_refuses_changes_nothing(name, tmp_path):
    X, y = data(name)
    model = cases()[name].fit(X, y)
    # Of a kind that takes no search, and has not enough for anything else.
    poor = PrivacyLedger.create(tmp_path / "ledger.db", data="people", budget=GaussianDP(1e-3))
    model.set_params(ledger=poor)
    said, held = outputs(model, X, tmp_path / "model.json"), snapshot(model)
    with pytest.raises(ValueError, match=r"ledger"):
        model.fit(X, y[::-1])
    assert snapshot(model) == held
    assert outputs(model, X, tmp_path / "model.json") == said
    assert poor.contents().entries == ()


@every_case
def test_a_refit_leaves_nothing_of_the_fit_before(name):
    X, y = data(name)
    first, second = cases()[name], cases()[name]
    seeded = {"epsilon": 3.0, "random_state": 0, "estimator__random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in (first, second):
            model.set_params(**{"solver": "auto"} if "solver" in model.get_params() else {})
        second.fit(X, y[::-1])
        for model in (first, second):
            model.set_params(**{k: v for k, v in seeded.items() if k in model.get_params()})
            model.fit(X, y)
    held = [{**vars(model), "_family": None} for model in (first, second)]
    assert held[0].keys() == held[1].keys()
    for attribute in held[0]:
        one, other = (pickle.dumps(model[attribute]) for model in held)
        assert one == other, attribute


def test_an_estimator_that_was_not_fitted_stays_so():
    X, y = data()
    for name, model in cases().items():
        held = snapshot(model)
        with pytest.raises(StopError), interruption(5):
            model.fit(X, y)
        assert snapshot(model) == held, name


def test_labels_of_refused_rows_are_not_published(tmp_path):
    # The old coefficients predicted with the new labels.
    X, y = data()
    model = logistic(classes=["no", "yes"], feature_bounds=(-1, 1)).fit(X, np.where(y, "yes", "no"))
    before = model.predict(X)
    poor = PrivacyLedger.create(tmp_path / "ledger.db", data="people", budget=GaussianDP(1e-3))
    model.set_params(ledger=poor, classes=["healthy", "ill"])
    with pytest.raises(BudgetExceededError):
        model.fit(X.iloc[:, :5], np.where(y, "ill", "healthy"))
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.n_features_in_ == D
    np.testing.assert_array_equal(model.predict(X), before)
    save_model(model, tmp_path / "model.json")
    assert "healthy" not in (tmp_path / "model.json").read_text()


def test_keyboard_interrupt_in_a_callback_changes_nothing():
    X, y = data()
    model = logistic().fit(X, y)
    held = snapshot(model)

    def stop(info):
        raise KeyboardInterrupt

    callback, model.callback = model.callback, stop
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, 1 - y)
    model.callback = callback
    assert snapshot(model) == held


class Careless(Ridge):
    """Planted: sets fitted attributes during the fit."""

    def fit(self, X, y=None, sample_weight=None, *, checkpoint=None):
        return Ridge.fit.__wrapped__(self, X, y, sample_weight, checkpoint=checkpoint)

    __init__ = Ridge.__init__


def test_a_fit_that_installs_as_it_goes_is_found_out():
    X, y = data()
    model = Careless(solver=STEPS, row_norm=2.0, target_bounds=(0.0, 1.0)).fit(X, y)
    held = snapshot(model)
    for _ in range(3):
        # The third one finds plans in caches, and earlier fits on record, as the one after it.
        with interruption(None) as counted:
            clone(model).fit(X.iloc[:, :4], y)
    with pytest.raises(StopError), interruption(int(0.9 * counted())):
        model.fit(X.iloc[:, :4], y)
    assert snapshot(model) != held


def mutate(value):
    """Change a parameter in place, as deep as it goes."""
    if isinstance(value, dict):
        for key in list(value):
            mutate(value[key])
            value[key] = 0.125
        value["another"] = 0.5
    elif isinstance(value, list):
        for part in value:
            mutate(part)
        value[:] = [7.0] * len(value)
    elif isinstance(value, np.ndarray):
        value[...] = 0.25
    elif isinstance(value, tuple):
        for part in value:
            mutate(part)
    elif isinstance(value, BaseEstimator):
        for part in value.get_params(deep=False).values():
            mutate(part)


@every_case
def test_parameters_changed_after_a_fit_change_nothing(name, tmp_path):
    X, y = data(name)
    model = cases()[name].fit(X, y)
    said = outputs(model, X, tmp_path / "model.json")
    parameters = model.get_params(deep=False)
    for value in parameters.values():
        mutate(value)
    assert outputs(model, X, tmp_path / "model.json") == said
    for parameter in parameters:
        setattr(model, parameter, object())
        assert outputs(model, X, tmp_path / "model.json") == said, parameter


class Keeping(BaseEstimator):
    """Keeps the object that it was given."""

    def __init__(self, factors):
        self.factors = factors

    @_all_or_nothing.all_or_nothing
    def fit(self, X, y=None):
        self.factors_ = self.factors
        return self

    def transform(self, X):
        return X * self.factors_


@pytest.mark.parametrize("is_planted", [False, True])
def test_parameters_that_are_shared_with_the_fit_are_found_out(is_planted, monkeypatch, tmp_path):
    if is_planted:  # The draft has the user's own objects.
        monkeypatch.setattr(_all_or_nothing.copy, "deepcopy", lambda value, memo=None: value)
    X, y = data()
    model = Keeping([1.0] * D).fit(X, y)
    said = outputs(model, X, tmp_path / "model.json")
    mutate(model.factors)
    assert (outputs(model, X, tmp_path / "model.json") != said) == is_planted


def test_bounds_changed_in_place_do_not_change_predictions():
    X, y = data()
    given = bounds()
    model = logistic(feature_bounds=given).fit(X, y)
    before = model.decision_function(X)
    given[0][0] = given[1][0] = 5.0
    model.set_params(multi_class="ovr", C=9.0)
    np.testing.assert_array_equal(model.decision_function(X), before)
    assert model.feature_bounds_.tolist() == bounds()


def test_uncopyable_object_is_named():
    X, y = data()
    with pytest.raises(ValueError, match="regularizer must be an object that can be copied"):
        logistic(regularizer=(one for one in ())).fit(X, y)
