"""Fits that protect all rows of a group together, on estimators, pipelines and transformers."""

import functools
import warnings

import numpy as np
import pytest
from scipy import sparse

import dpglm
from dpglm import (
    LinearRegression,
    LogisticRegression,
    PrivatePipeline,
    PublicInformationWarning,
)
from dpglm.certificate import Certificate, verify
from dpglm.ledger import PrivacyLedger
from dpglm.preprocessing import Center
from dpglm.privacy import ApproximateDP, Unit, default_delta
from dpglm.solvers import NoisyGD

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.LowSignalWarning")
PERSONS, EACH = 300, 4


def people(seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(PERSONS) + 1000, EACH))
    X = rng.uniform(-1.0, 1.0, (len(ids), 3))
    y = (rng.random(len(ids)) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.0]))).astype(int)
    return X, y, ids


def model(**parameters):
    facts = {"epsilon": 5.0, "classes": [0, 1], "feature_bounds": (-1, 1), "random_state": 0}
    return LogisticRegression(**facts | parameters)


def test_fit_states_that_it_protects_people():
    X, y, ids = people()
    found = model(random_state=None).fit(X, y, groups=ids)
    certificate = found.privacy_
    assert certificate.data.unit is Unit.GROUP
    assert {one.unit for one in certificate.releases} == {Unit.GROUP}
    assert "all rows of any one group (person)" in certificate.statement()
    assert "all rows of any one group (person)" in certificate._repr_html_()
    assert "with k rows" not in certificate.statement()
    assert certificate.fact("n_groups").value == PERSONS
    assert certificate.delta == default_delta(PERSONS)
    assert verify(certificate).ok
    assert Certificate.from_dict(certificate.to_dict()) == certificate


def test_the_plan_is_made_before_there_are_rows():
    X, y, ids = people()
    plan = model(n_groups=PERSONS).plan(len(X), 3)
    assert model().fit(X, y, groups=ids).solution_.plan == plan
    limited = model(max_rows_per_group=2)
    assert limited.set_params(n_groups=PERSONS).plan(600, 3) == (
        limited.fit(X, y, groups=ids).solution_.plan
    )


def test_the_order_of_rows_does_not_matter():
    X, y, ids = people()
    other = np.random.default_rng(1).permutation(len(X))
    one, two = (
        model().fit(X[rows], y[rows], groups=ids[rows]) for rows in (np.arange(len(X)), other)
    )
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-6)


def test_groups_of_one_row_cost_as_rows():
    X, y, _ = people()
    rows = model(solver=NoisyGD(n_steps=5)).fit(X, y)
    groups = model(solver=NoisyGD(n_steps=5)).fit(X, y, groups=np.arange(len(X)))
    assert rows.solution_.plan.event == groups.solution_.plan.event
    np.testing.assert_allclose(rows.coef_, groups.coef_, rtol=1e-6)


def test_text_names_persons_too():
    X, y, ids = people()
    names = np.array([f"person {one}" for one in ids], dtype=object)
    one, two = (model().fit(X, y, groups=groups) for groups in (ids, names))
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "groups", "message"),
    [
        ({"max_rows_per_group": 2}, None, "groups must be given with max_rows_per_group=2"),
        ({"n_groups": 300}, None, "groups must be given with n_groups=300"),
        ({"max_rows_per_group": 0}, "ids", "max_rows_per_group must be"),
        ({"n_groups": 7}, "ids", "n_groups must be the number of groups, 300"),
        ({}, [1, 2], r"groups must have shape \(1200,\)"),
        ({"solver": "output_perturbation"}, "ids", "groups must be None"),
        ({"epsilon": 1.0, "delta": 0.0, "solver": "objective_perturbation"}, "ids", "groups"),
        ({"solver": "local_sgd"}, "ids", "groups must be None for 'local_sgd'"),
    ],
)
def test_unprotectable_fit_is_refused_before_spending(parameters, groups, message, tmp_path):
    X, y, ids = people()
    ledger = PrivacyLedger.create(
        tmp_path / "rows.ledger", data="rows", budget=ApproximateDP(9, 0.1)
    )
    with pytest.raises(ValueError, match=message):
        model(ledger=ledger, **parameters).fit(X, y, groups=ids if groups == "ids" else groups)
    assert ledger.contents().entries == ()


def test_without_a_delta_gradients_get_l2_noise():
    X, y, ids = people()
    found = model(delta=0.0).fit(X, y, groups=ids)
    assert found.privacy_.delta == 0.0
    assert verify(found.privacy_).ok or not found.privacy_.is_private


@pytest.mark.parametrize(
    ("adjacency", "private"),
    [("zero_out", []), ("replace_one", ["n_rows"]), ("add_remove", ["n_rows", "n_groups"])],
)
def test_private_numbers_of_units_must_be_declared(adjacency, private):
    X, y, ids = people()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = model(adjacency=adjacency).fit(X, y, groups=ids)
    said = [str(one.message) for one in caught if one.category is PublicInformationWarning]
    assert [text.partition(" ")[0] for text in said] == private
    declared = {name: {"n_rows": 1000, "n_groups": 250}[name] for name in private}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicInformationWarning)
        found = model(adjacency=adjacency, **declared).fit(X, y, groups=ids)
    assert found.privacy_.fact("n_rows").value == (1000 if private else 1200)


def test_rows_beyond_the_limit_are_left_out():
    X, y, ids = people()
    found = model(max_rows_per_group=1).fit(X, y, groups=ids)
    assert found.privacy_.data.n_rows == found.privacy_.data.n_units == PERSONS
    assert found.privacy_.fact("max_rows_per_group").value == 1


def test_sparse_rows_data_frames_and_tensors():
    X, y, ids = people()
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    wanted = model().fit(X, y, groups=ids).coef_
    found = model().fit(frame, y, groups=pandas.Series(ids))
    np.testing.assert_allclose(found.coef_, wanted, rtol=1e-9)
    found = model().fit(torch.tensor(X), torch.tensor(y), groups=torch.tensor(ids))
    np.testing.assert_allclose(found.coef_, wanted, rtol=1e-6)
    found = model().fit(sparse.csr_array(X), y, groups=ids)
    np.testing.assert_allclose(found.coef_, wanted, rtol=1e-6)


def test_pipelines():
    X, y, ids = people()
    inner = LogisticRegression(classes=[0, 1], feature_bounds=(-1, 1), solver=NoisyGD(n_steps=5))
    whole = PrivatePipeline([Center(), inner], epsilon=5.0, max_rows_per_group=3, random_state=0)
    whole.fit(X, y, groups=ids)
    assert {one.unit for one in whole.privacy_.releases} == {Unit.GROUP}
    assert whole.privacy_.data.n_units == PERSONS


def test_a_formula_takes_groups():
    pytest.importorskip("formulaic")
    X, y, ids = people()
    schema = {
        "columns": {name: {"type": "numeric", "low": -1, "high": 1} for name in "ab"},
        "target": {"name": "y", "type": "binary", "classes": ["0", "1"]},
        "provenance": "drawn so",
    }
    formula = dpglm.from_formula("y ~ a + b", schema, epsilon=5.0, random_state=0)
    table = {"a": X[:, 0], "b": X[:, 1], "y": y.astype(str)}
    assert formula.fit(table, groups=ids).privacy_.data.n_units == PERSONS


def test_a_checkpoint_of_other_groups_is_refused(tmp_path):
    X, y, ids = people()
    facts = {"solver": NoisyGD(n_steps=3), "random_state": None}
    first = model(**facts).fit(X, y, groups=ids, checkpoint=tmp_path / "fit")
    with pytest.warns(UserWarning, match="complete"):
        again = model(**facts).fit(X, y, groups=ids, checkpoint=tmp_path / "fit")
    np.testing.assert_array_equal(first.coef_, again.coef_)
    with pytest.raises(dpglm.PlanMismatchError):
        model(**facts).fit(X, y, groups=ids // 2, checkpoint=tmp_path / "fit")


def test_ledgers_of_rows_and_groups_refuse_each_other(tmp_path):
    X, y, ids = people()
    for unit, groups in (("row", ids), ("group", None)):
        ledger = PrivacyLedger.create(
            tmp_path / unit, data="visits", budget=ApproximateDP(9.0, 0.1), unit=unit
        )
        with pytest.raises(ValueError, match="the protected unit must match the ledger"):
            model(ledger=ledger, random_state=None).fit(X, y, groups=groups)
        model(ledger=ledger, random_state=None).fit(X, y, groups=ids if groups is None else None)
        assert len(ledger.contents().entries) == 1
        assert ("of groups" in ledger.contents()._repr_html_()) is (unit == "group")


def regression(**parameters):
    facts = {"epsilon": 5.0, "feature_bounds": (-1, 1), "target_bounds": (0, 1), "random_state": 0}
    return LinearRegression(**facts | parameters)


@pytest.mark.parametrize("covariance", [True, "robust"])
@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_intervals_of_people_with_repeated_rows(kind, covariance):
    """The covariance of rows that repeat each other is right only where groups are summed."""
    X, y, _ = people()
    repeated = [np.repeat(values, 20, axis=0) for values in (X, y, np.arange(len(X)))]
    make = regression if kind == "linear" else functools.partial(model, C=np.inf)
    X_of_rows, y_of_rows, ids = repeated
    found = make(epsilon=100.0, inference=covariance).fit(X_of_rows, y_of_rows, groups=ids)
    once = make(epsilon=1e4, inference=True).fit(X, y)
    ratio = found.inference_.standard_errors / once.inference_.standard_errors
    if covariance == "robust":
        assert 0.8 < ratio.min() < ratio.max() < 1.6
        assert "cluster-robust" in str(found.inference_)
    else:
        assert ratio.min() < 0.6
    text = " ".join(str(found.inference_).split())
    assert "Groups are assumed to be independent" in text
    assert "Rows are assumed to be independent" not in text


def test_robust_intervals_need_many_groups():
    X, y, ids = people()
    for make in (regression, model):
        with pytest.raises(ValueError, match="groups must be at least 40 for inference='robust'"):
            make(epsilon=1e3, inference="robust").fit(X, y, groups=ids % 30)
