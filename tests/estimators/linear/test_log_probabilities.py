"""predict_log_proba is there wherever predict_proba is, and finite where that underflows."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import Normalizer

from dpglm import (
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PrivateGridSearchCV,
    PrivatePipeline,
    RobustClassifier,
)
from dpglm.data.stream.stored import MappedRows
from dpglm.problem import LogitLink, OneVsRestLink, SoftmaxLink, TangentLink
from dpglm.report import load_model, save_model
from dpglm.solvers import NoisyGD

N = 90


def rows(n_classes=2):
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(N, 3))
    return X, np.arange(N) % n_classes


def classifier(n_classes=2, **settings):
    return LogisticRegression(
        classes=list(range(n_classes)), row_norm=2.0, solver=NoisyGD(n_steps=3), **settings
    )


def robust():
    return RobustClassifier(classes=[0, 1], row_norm=2.0, solver=NoisyGD(n_steps=3))


MODELS = {
    "binary": (lambda: classifier(), 2),
    "softmax": (lambda: classifier(3), 3),
    "ovr": (lambda: classifier(3, multi_class="ovr"), 3),
    "savage": (
        lambda: RobustClassifier(classes=[0, 1], row_norm=2.0, solver=NoisyGD(n_steps=3)),
        2,
    ),
    "pipeline": (lambda: PrivatePipeline([Normalizer(), classifier()]), 2),
    "search": (
        lambda: PrivateGridSearchCV(classifier(), {"C": [0.1, 1.0]}, method="held_out"),
        2,
    ),
}


@pytest.mark.parametrize(("make", "n_classes"), MODELS.values(), ids=MODELS)
def test_it_is_the_logarithm_in_every_model(make, n_classes, tmp_path):
    X, y = rows(n_classes)
    model = make().fit(X, y)
    logs = model.predict_log_proba(X)
    assert logs.shape == (N, n_classes)
    np.testing.assert_allclose(np.exp(logs), model.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize("name", ["binary", "softmax", "ovr", "savage"])
def test_it_is_there_in_files_and_for_collections(name, tmp_path):
    make, n_classes = MODELS[name]
    X, y = rows(n_classes)
    model = make().fit(X, y)
    logs = model.predict_log_proba(X)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict_log_proba(X), logs)
    np.testing.assert_array_equal(model.predict_log_proba(MappedRows(X)), logs)
    np.testing.assert_allclose(np.asarray(model.predict_log_proba(torch.tensor(X))), logs)
    lazy = model.predict_log_proba(da.from_array(X, chunks=(40, 3)))
    assert type(lazy) is da.Array
    np.testing.assert_allclose(lazy.compute(), logs)


def test_models_without_probabilities_lack_logarithms(tmp_path):
    X, y = rows()
    for one in (LinearSVC(), LinearSVC(loss="hinge"), LinearSVC(loss="none"), LinearRegression()):
        assert hasattr(one, "predict_proba") == hasattr(one, "predict_log_proba") is False
    assert not hasattr(PrivatePipeline([LinearRegression()]), "predict_log_proba")
    assert not hasattr(PrivateGridSearchCV(LinearSVC(), {}), "predict_log_proba")
    save_model(LinearSVC(classes=[0, 1], row_norm=2.0).fit(X, y), tmp_path / "model.json")
    with pytest.raises(ValueError, match="LinearSVC does not model probabilities"):
        load_model(tmp_path / "model.json").predict_log_proba(X)


LINKS = [SoftmaxLink(), OneVsRestLink(LogitLink())]
SCORES = arrays(float, (3, 4), elements=st.floats(-1e4, 1e4))


@pytest.mark.parametrize("link", LINKS, ids=repr)
@given(z=SCORES)
def test_logarithms_are_finite_and_those_of_the_probabilities(link, z):
    found = link.log_probabilities(z)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.logaddexp.reduce(found, axis=1), 0.0, atol=1e-9)
    expected = link.probabilities(z)
    # Where no class's own probability is a number above 0, shares are those of the largest.
    usual = z.max(axis=1) > -700.0
    np.testing.assert_allclose(np.exp(found[usual]), expected[usual], rtol=1e-9, atol=1e-300)


@given(z=arrays(float, 5, elements=st.floats(-1e4, 1e4)))
def test_two_classes_likewise(z):
    found = LogitLink().log_probabilities(z)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.exp(found), LogitLink().probabilities(z), rtol=1e-9, atol=1e-300)


def test_log_probability_is_finite_if_probability_underflows():
    # The planted bug: the logarithm of an underflowed value.
    z = np.array([800.0])
    with np.errstate(divide="ignore"):
        assert not np.isfinite(np.log(LogitLink().probabilities(z))).all()
    assert LogitLink().log_probabilities(z).tolist() == [[-800.0, 0.0]]


def test_tangent_link_excludes_with_probability_0_and_sums_to_1():
    z = np.array([[5.0, -5.0, 0.1], [-5.0, -3.0, -4.0]])
    shares = OneVsRestLink(TangentLink()).probabilities(z)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert shares[0, 1] == 0.0
    assert shares[1].tolist() == [0.0, 1.0, 0.0]
    logs = OneVsRestLink(TangentLink()).log_probabilities(z)
    np.testing.assert_allclose(np.exp(logs), shares, rtol=1e-12)
