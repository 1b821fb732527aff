"""scikit-learn's meta-estimators never make several fits, or seeded ones, without a warning."""

import contextlib
import inspect
import warnings
from unittest import mock

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.utils import all_estimators

import dpglm
from dpglm.estimators import _private as _family
from dpglm.estimators.linear import _base
from dpglm.exceptions import SeededNoiseWarning, UnpaidReleaseWarning
from dpglm.privacy.noise import SeededNoise
from tests.fits import admitted_bounds

RNG = np.random.default_rng(3)
X = RNG.uniform(-1.0, 1.0, size=(120, 3))
LABELS = (X @ [2.0, -1.0, 1.0] > 0.0).astype(int)
NUMBERS = np.clip(0.5 + 0.2 * X[:, 0], 0.25, 1.0)

CHILDREN = ("estimator", "regressor", "base_estimator", "estimators")
MORE = {
    "GridSearchCV": {"param_grid": {"fit_intercept": [True, False]}, "cv": 2},
    "RandomizedSearchCV": {
        "param_distributions": {"fit_intercept": [True, False]},
        "n_iter": 2,
        "cv": 2,
    },
    "RANSACRegressor": {"min_samples": 60, "max_trials": 3},
    "SequentialFeatureSelector": {"n_features_to_select": 1, "cv": 2},
}


def linear_estimators():
    """Yield every linear estimator of the library with its public facts, by name."""
    for name in dpglm.estimators.__all__:
        kind = getattr(dpglm, name)
        if not issubclass(kind, _base.PrivateLinearModel) or inspect.isabstract(kind):
            continue
        one = kind(row_norm=2.0)
        if is_classifier(one):
            one.set_params(classes=[0, 1])
        else:
            one.set_params(target_bounds=admitted_bounds(one, (0.25, 1.0)))
        yield name, one


def meta_estimators():
    """Yield every meta-estimator of scikit-learn: its class and the parameter for models."""
    for name, kind in all_estimators():
        parameters = inspect.signature(kind).parameters
        child = next((one for one in CHILDREN if one in parameters), None)
        if child is not None and kind.__module__.startswith("sklearn."):
            yield name, kind, child


def built(name, kind, child, model):
    """Return a meta-estimator over a model, or over two copies of it."""
    # New objects, since the record of fits is kept by copies.
    model, other = (type(model)(**model.get_params()) for _ in range(2))
    many = [("a", model), ("b", other)]
    return kind(**{child: many if child == "estimators" else model}, **MORE.get(name, {}))


@contextlib.contextmanager
def runs():
    """List the noise of every run without a ledger."""
    seen, honest = [], _base.run

    def run(plan, rows, noise, hearer=None, ledger=None, checkpoint=None):
        seen.append(noise)
        return honest(plan, rows, noise, hearer, ledger, checkpoint)

    fresh = type(_family._FITS)()
    with mock.patch.object(_base, "run", run), mock.patch.object(_family, "_FITS", fresh):
        yield seen


def watched_fit(name, kind, child, model):
    """Fit; return the noise of every run, and the categories of all warnings."""
    targets = LABELS if is_classifier(model) else NUMBERS
    if name.startswith(("MultiOutput", "ClassifierChain", "RegressorChain")):
        targets = np.column_stack([targets, targets[::-1]])
    with runs() as seen, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            built(name, kind, child, model).fit(X, targets)
    return seen, {one.category for one in caught}


def unwarned(seen, categories):
    """Return the fits that lack their warning."""
    found = []
    if any(not one.is_private for one in seen) and SeededNoiseWarning not in categories:
        found.append("seeded noise")
    if len(seen) > 1 and UnpaidReleaseWarning not in categories:
        found.append(f"{len(seen)} fits")
    return found


METAS = list(meta_estimators())
META = {name: (name, kind, child) for name, kind, child in METAS}
MODELS = list(linear_estimators())
PAIRS = [pytest.param(*meta, one, id=f"{meta[0]}-{of}") for of, one in MODELS for meta in METAS]


@pytest.mark.one_in(17)
@pytest.mark.parametrize(("name", "kind", "child", "model"), PAIRS)
def test_meta_estimator_warns_of_unsafe_fits(name, kind, child, model):
    assert unwarned(*watched_fit(name, kind, child, model)) == []


class TestTheLaw:
    def test_ensembles_are_among_the_cases(self):
        assert len(METAS) >= 20
        assert {"AdaBoostClassifier", "BaggingClassifier", "VotingRegressor"} <= set(META)

    @pytest.mark.parametrize("name", ["AdaBoostClassifier", "BaggingClassifier"])
    def test_pitfall_31_ensembles_seed_their_members(self, name):
        model = dpglm.LogisticRegression(row_norm=2.0, classes=[0, 1])
        seen, categories = watched_fit(*META[name], model)
        assert len(seen) > 1
        assert not any(one.is_private for one in seen)
        assert {SeededNoiseWarning, UnpaidReleaseWarning} <= categories

    def test_pitfall_31_law_catches_a_missing_seed_warning(self):
        model = dpglm.LogisticRegression(row_norm=2.0, classes=[0, 1])
        with mock.patch("dpglm.estimators._private.warn_of_seed"):
            fit = watched_fit(*META["BaggingClassifier"], model)
        assert unwarned(*fit) == ["seeded noise"]

    def test_law_catches_members_that_are_not_counted(self):
        model = dpglm.LogisticRegression(row_norm=2.0, classes=[0, 1])
        with mock.patch.object(_family.Family, "fits"):
            (found,) = unwarned(*watched_fit(*META["VotingClassifier"], model))
        assert found.endswith(" fits")


@pytest.mark.filterwarnings("error::dpglm.exceptions.SeededNoiseWarning")
class TestSeededNoise:
    def test_integer_seed_warns_at_the_call(self):
        with pytest.warns(SeededNoiseWarning, match="NOT private") as caught:
            dpglm.LogisticRegression(row_norm=2.0, classes=[0, 1], random_state=0).fit(X, LABELS)
        assert [one.filename for one in caught] == [__file__]

    def test_seeded_noise_object_is_silent(self):
        model = dpglm.LogisticRegression(row_norm=2.0, classes=[0, 1], random_state=SeededNoise(0))
        assert not model.fit(X, LABELS).privacy_.is_private

    def test_other_doors_warn(self):
        schema = dpglm.tables.schema.Schema.from_dict(
            {
                "columns": {"a": {"type": "numeric", "low": -1, "high": 1}},
                "target": {"name": "y", "type": "binary", "classes": [0, 1]},
                "provenance": "generated",
            }
        )
        table = {"a": X[:, 0], "y": LABELS}
        model = dpglm.LogisticRegression(row_norm=2.0, classes=[0, 1]).fit(X, LABELS)
        study = dpglm.Study(schema, epsilon=1.0).explore()
        doors = (
            lambda: dpglm.describe(table, schema, epsilon=1.0, random_state=1),
            lambda: dpglm.evaluate(model, X, LABELS, epsilon=1.0, random_state=1),
            lambda: study.run(table, random_state=1),
            lambda: dpglm.AdditiveClassifier(schema=schema, random_state=1).fit(table),
            lambda: dpglm.PrivatePipeline([model], epsilon=1.0, random_state=1).fit(X, LABELS),
        )
        for door in doors:
            with pytest.warns(SeededNoiseWarning):
                door()
