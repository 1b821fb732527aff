"""Fits that add up unseen, and scores of training rows, are warned of once, with the total."""

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline

from dpglm import (
    AdditiveClassifier,
    ApproximateDP,
    GaussianDP,
    LinearSVC,
    LogisticRegression,
    PrivacyLedger,
    PrivateGridSearchCV,
    PrivatePipeline,
    UnpaidReleaseWarning,
)
from dpglm.estimators import _private as _family
from dpglm.estimators._private import Family
from dpglm.preprocessing import Center
from dpglm.privacy.budget import Unit
from dpglm.privacy.noise import SeededNoise
from dpglm.tables.schema import Schema
from tests.fits import make_rows

pytestmark = pytest.mark.filterwarnings("error::dpglm.exceptions.UnpaidReleaseWarning")
X, Y = make_rows()
OTHER_X, OTHER_Y = X[: len(X) // 2] + 0.1, Y[: len(X) // 2]


def model(**settings):
    given = {"classes": [0, 1], "row_norm": 2.0, "budget": GaussianDP(0.3)}
    return LogisticRegression(**given | settings)


def heard(act):
    """Return the warnings about unpaid releases that an action causes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnpaidReleaseWarning)
        act()
    return [str(one.message) for one in caught if one.category is UnpaidReleaseWarning]


def composed():
    yield "model", model()
    yield "pipeline", PrivatePipeline([Center(), model(budget=None)], budget=GaussianDP(0.3))
    yield "of scikit-learn", make_pipeline("passthrough", model())


@pytest.mark.parametrize(("name", "estimator"), list(composed()))
def test_validation_by_scikit_learn_warns_once_with_the_total(name, estimator):
    (said,) = heard(lambda: cross_val_score(estimator, X, Y, cv=3))
    assert said.startswith("2 fits without a ledger")
    assert "protects one row" in said
    # The root of 2 and of 10, times .3: exact for Gaussian releases.
    totals = re.findall(r"mu=([\d.]*\d)", said)
    assert totals == ["0.4243", "0.9487", "0.3"]


def test_a_grid_search_of_scikit_learn_warns():
    search = GridSearchCV(model(), {"C": [0.1, 1.0]}, cv=3)
    (said,) = heard(lambda: search.fit(X, Y))
    assert "PrivateGridSearchCV" in said


def test_budgets_of_other_kinds_are_added_up():
    (said,) = heard(lambda: cross_val_score(model(budget=ApproximateDP(1.0, 0.0)), X, Y, cv=3))
    assert "epsilon=2, delta=0 so far" in said
    kinds = {"solver": "objective_perturbation", "budget": ApproximateDP(1.0, 1e-5)}
    (said,) = heard(lambda: cross_val_score(model(**kinds), X, Y, cv=3))
    assert 1.0 < float(re.search(r"epsilon=([\d.]+)", said)[1]) < 2.0


def refits():
    schema = Schema.from_dict(
        {
            "columns": {"a": {"type": "numeric", "low": -1, "high": 1}},
            "target": {"name": "y", "type": "binary", "classes": [0, 1]},
            "provenance": "made up",
        }
    )
    search = PrivateGridSearchCV(model(budget=None), {"C": [0.1, 1.0]}, method="held_out")
    additive = AdditiveClassifier(schema=schema, segments=2)
    for name, one, given in (
        ("model", model(), (X, Y)),
        ("pipeline", PrivatePipeline([model(budget=None)]), (X, Y)),
        ("search", search, (X, Y)),
        ("additive", additive, ({"a": X[:, 0], "y": Y},)),
    ):
        yield pytest.param(one, given, id=name)


@pytest.mark.parametrize(("estimator", "given"), list(refits()))
def test_refits_of_an_object_and_of_its_copies_warn_once(estimator, given):
    first = clone(estimator)
    first.fit(*given)
    with pytest.raises(UnpaidReleaseWarning):
        # As an error it refuses the fit, now and later.
        first.fit(*given)
    for again in (first, clone(first), copy.deepcopy(first)):
        with pytest.raises(UnpaidReleaseWarning):
            again.fit(*given)
    assert len(heard(lambda: clone(estimator).fit(*given))) == 1
    assert heard(lambda: first.fit(*given)) == []


def test_fits_with_a_ledger_or_seeded_noise_objects_are_silent(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger", data="made up", budget=GaussianDP(2.0))
    paying, seeded = model(ledger=ledger), model(random_state=SeededNoise(0))
    for one in (paying, seeded):
        cross_val_score(one, X, Y, cv=3)
        one.fit(X, Y).fit(X, Y)
    seeded.score(X, Y)
    # New objects on other rows add nothing.
    model().fit(X, Y).score(OTHER_X, OTHER_Y)
    model().fit(OTHER_X, OTHER_Y).score(X, Y)


def test_unrelated_fits_of_the_same_rows_warn_once():
    first, second = model(), LinearSVC(classes=[0, 1], row_norm=2.0, budget=GaussianDP(0.3))
    assert heard(lambda: first.fit(X, Y)) == []
    (said,) = heard(lambda: second.fit(X.copy(), Y))
    assert "mu=0.4243 so far" in said
    assert heard(lambda: model().fit(X, Y)) == []


def test_warning_names_the_protected_unit():
    ids = np.arange(len(X)) // 2
    one = model()
    said = heard(lambda: [one.fit(X, Y, groups=ids) for _ in range(2)])
    assert ["protects one group" in text for text in said] == [True]


def test_record_of_rows_is_bounded(monkeypatch):
    monkeypatch.setattr(_family, "_MOST_MARKS", 3)
    for shift in range(5):
        model().fit(X[:50] + shift / 100, Y[:50])
    assert len(_family._FITS) == 3


def test_a_fit_that_goes_on_is_one_fit(tmp_path):
    one = model(solver="noisy_gd")
    one.fit(X, Y, checkpoint=tmp_path / "kept")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", UnpaidReleaseWarning)
        one.fit(X, Y, checkpoint=tmp_path / "kept")


def test_scores_of_training_rows_warn_once_whoever_pays(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger", data="made up", budget=GaussianDP(2.0))
    for one in (model(), model(ledger=ledger)):
        one.fit(X, Y)
        one.score(OTHER_X, OTHER_Y)
        (said,) = heard(lambda one=one: one.score(X.copy(), Y.tolist()))
        assert ("mu=0.3 so far" in said) == (one.ledger is None)
        assert heard(lambda one=one: one.score(X, Y)) == []


@pytest.mark.parametrize("convert", [sparse.csr_array, np.asarray])
def test_rows_are_recognised_as_they_are_stored(convert):
    one = model().fit(convert(X), Y)
    with pytest.raises(UnpaidReleaseWarning, match=r"dpglm\.evaluate"):
        one.score(convert(X), Y)
    pipeline = PrivatePipeline([Center(), model(budget=None)]).fit(convert(X), Y)
    with pytest.raises(UnpaidReleaseWarning):
        pipeline.score(convert(X), Y)


class TestTheNote:
    def test_nothing_of_it_leaves_the_process(self):
        one = model().fit(X, Y)
        (mark,) = one._family._marks
        kept = pickle.dumps(one)
        assert mark not in kept
        assert pickle.loads(kept)._family is pickle.loads(kept)._family is not one._family
        assert pickle.dumps(Family()) == pickle.dumps(one._family)
        assert "_family" not in one.get_params()

    def test_workers_warn_of_their_fits(self):
        sent = pickle.dumps(model())
        said = heard(lambda: [pickle.loads(sent).fit(X, Y) for _ in range(3)])
        assert len(said) <= 1
        assert pickle.loads(sent)._family._said == {"fits"}

    def test_it_does_not_grow_for_ever(self):
        one = model()
        heard(lambda: [one.fit(X, Y) for _ in range(4)])
        assert len(one._family._plans) == 2
        (said,) = heard(lambda: one.score(X, Y))
        assert "at least mu=0.4243 so far" in said

    def test_mark_replaces_its_rows(self):
        """It has a key of the process, so that rows cannot be tested against it."""
        from dpglm.data import collection

        rows = collection.MatrixRows(X)
        first = rows.mark()
        assert rows.mark() == first != collection.MatrixRows(OTHER_X).mark()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(collection, "_KEY", b"another")
            assert rows.mark() != first


class TestGroupsThroughScikitLearn:
    IDS = np.arange(len(X)) // 2

    def test_routed_groups_are_protected(self):
        with config_context(enable_metadata_routing=True), warnings.catch_warnings():
            warnings.simplefilter("ignore", UnpaidReleaseWarning)
            one = model().set_fit_request(groups=True)
            found = cross_validate(
                one, X, Y, params={"groups": self.IDS}, cv=GroupKFold(3), return_estimator=True
            )
        assert {fit.privacy_.data.unit for fit in found["estimator"]} == {Unit.GROUP}

    def test_unrouted_groups_are_named_in_the_warning(self):
        said = heard(lambda: cross_validate(model(), X, Y, groups=self.IDS, cv=GroupKFold(3)))
        (text,) = said
        assert "protects one row" in text
        assert "set_fit_request(groups=True)" in text
