"""PrivateTransformer: a map paid for by itself, run and certified as a fit is."""

from __future__ import annotations

import dataclasses
import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpglm import LogisticRegression, PrivateTransformer, PublicInformationWarning
from dpglm.certificate import Certificate, verify
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle.counts import noisy_mean
from dpglm.preprocessing import Center, ClipToQuantile, RandomProjection, Scale, Whiten
from dpglm.preprocessing import centering as center_module
from dpglm.privacy import GaussianDP, ZeroConcentratedDP, gdp
from dpglm.privacy.releases import Curator
from tests.audit.attack import scripted_releases

N = 500


def rows(n=N, d=3, seed=0):
    return np.random.default_rng(seed).uniform(0.0, 2.0, size=(n, d))


def transformer(*steps, **settings):
    return PrivateTransformer(list(steps or (Center(),)), **{"row_norm": 4.0, **settings})


# What is spent


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
@pytest.mark.parametrize("steps", [(Center(),), (Center(), Scale(), Whiten())], ids=len)
def test_the_whole_budget_is_spent_and_no_more(steps, adjacency, epsilon):
    made = transformer(*steps, epsilon=epsilon, delta=1e-5, adjacency=adjacency, n_rows=N)
    certificate = made.fit(rows()).privacy_
    assert epsilon * (1 - 1e-6) <= certificate.epsilon <= epsilon
    assert verify(certificate).ok
    mu_squared = sum(one.count / one.noise_multiplier**2 for one in certificate.releases)
    assert gdp.epsilon(1e-5, np.sqrt(mu_squared)) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("budget", [GaussianDP(0.3), ZeroConcentratedDP(0.045)], ids=repr)
def test_budgets_in_other_currencies(budget):
    certificate = transformer(budget=budget).fit(rows()).privacy_
    (release,) = certificate.releases
    assert release.noise_multiplier == pytest.approx(1 / 0.3, rel=1e-8)
    assert verify(certificate).ok


def test_steps_that_choose_at_random_spend_nearly_all_too():
    certificate = transformer(ClipToQuantile(), epsilon=1.0).fit(rows()).privacy_
    assert 0.95 < certificate.epsilon <= 1.0
    assert verify(certificate).ok


def test_shares():
    def shares(*steps, **settings):
        certificate = transformer(*steps, **settings).fit(rows()).privacy_
        return [one.share for one in certificate.spending()], certificate.epsilon

    by_rule, _ = shares(Center(), Scale())
    assert sum(by_rule) == pytest.approx(1.0)
    spec = transformer().plan(N, 3).data
    mu = gdp.mu(1.0, 1e-5)
    center = Center().plan(spec, 0.1, transformer().plan(N, 3).adjacency)
    wanted = [Center().share(spec, mu), Scale().share(center.output, mu)]
    assert by_rule[0] / by_rule[1] == pytest.approx(wanted[0] / wanted[1])
    by_hand, epsilon = shares(Center(), Scale(), shares={"scale": 0.75})
    assert by_hand == pytest.approx([0.25, 0.75])
    assert epsilon == pytest.approx(1.0)
    # What nobody was given is not spent.
    partly, epsilon = shares(Center(), shares={"center": 0.25})
    assert partly == [1.0]
    assert epsilon == pytest.approx(gdp.epsilon(1e-5, 0.5 * mu), rel=1e-6)
    free, epsilon = shares(RandomProjection(2), Center())
    assert free == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(
    "shares",
    [{"nobody": 0.1}, {"center": 0.0}, {"center": 1.1}, {"center": 1.0}, [0.5, 0.5]],
    ids=str,
)
def test_shares_that_mean_nothing_are_refused(shares):
    with pytest.raises(ValueError, match="shares must"):
        transformer(Center(), Scale(), shares=shares).plan(N, 3)


def test_nothing_is_spent_where_nothing_is_asked():
    made = transformer(RandomProjection(2)).fit(rows())
    assert made.privacy_.epsilon == 0.0
    assert verify(made.privacy_).ok
    assert made.transform(rows()).shape == (N, 2)


# The run keeps to its plan


def test_fit_executes_the_plan():
    for dtype in ("float64", "float32"):
        made = transformer(Center(), Scale())
        plan = made.plan(N, 3, dtype=dtype)
        assert made.fit(rows().astype(dtype)).solution_.plan == plan
        assert made.privacy_.mechanisms == plan.method.mechanisms


def test_a_release_that_was_not_planned_is_refused(monkeypatch):
    # Pitfall 14, planted: two means from one slice of the budget, charged once.
    def twice(oracle, declared):
        return (noisy_mean(oracle, declared) + noisy_mean(oracle, declared)) / 2

    monkeypatch.setattr(center_module, "noisy_mean", twice)
    made = transformer()
    with pytest.raises(PlanMismatchError):
        made.fit(rows())
    with pytest.raises(NotFittedError):
        made.transform(rows())


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
@pytest.mark.parametrize("steps", [(Center(),), (Center(), Center())], ids=len)
@pytest.mark.parametrize("bounds", [{}, {"feature_bounds": (0.0, 2.0), "row_norm": None}], ids=str)
def test_one_huge_row_stays_within_the_noise_s_sensitivity(adjacency, steps, bounds):
    X, huge = rows(40), np.array([1e6, -1e6, 0.3])
    neighbours = []
    for row in (huge, -huge if adjacency == "replace_one" else None):
        data = X.copy()
        data[7] = 0.0 if row is None else row
        if row is None and adjacency == "add_remove":
            data = np.delete(data, 7, axis=0)
        made = transformer(*steps, adjacency=adjacency, n_rows=40, **bounds)
        with scripted_releases(seed=1, size=1.0) as seen, np.errstate(over="ignore"):
            made.fit(data)
        neighbours.append(seen)
    multipliers = [one.noise_multiplier for one in made.solution_.plan.method.releases]
    distances = [
        float(np.linalg.norm(a - b)) / (std / multiplier)
        for (a, std), (b, _), multiplier in zip(*neighbours, multipliers, strict=True)
    ]
    assert len(distances) == len(steps)
    # Near enough to the bound that noise for a third of it would be found out. (Where bounds are
    # not centred at 0, a row of zeros is no row that contributes nothing.)
    assert 0.3 < max(distances) <= 1.0 or (adjacency == "zero_out" and bounds)


@pytest.mark.parametrize("spoil", [np.nan, np.inf, "text", "one dimension"])
def test_nothing_is_released_on_bad_input(spoil, monkeypatch):
    monkeypatch.setattr(Curator, "release", None)
    X = rows().astype(object) if spoil == "text" else rows()
    if spoil == "one dimension":
        X = X[:, 0]
    else:
        X[3, 1] = spoil
    with pytest.raises(ValueError, match=r"NaN|infinity|convert|1D"):
        transformer().fit(X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"adjacency": "both"}, "adjacency"),
        ({"row_norm": -1.0}, "row_norm"),
        ({"n_rows": 7}, "n_rows"),
        ({"random_state": np.random.RandomState(0)}, "random_state"),
        ({"feature_bounds": (1.0, 0.0)}, "feature_bounds"),
        ({"steps": []}, "steps"),
        ({"steps": [StandardScaler()]}, "Preprocessors"),
        ({"steps": [Center(), LogisticRegression()]}, "Preprocessors"),
    ],
    ids=lambda value: str(value)[:30].partition(" at ")[0],
)
def test_wrong_settings_are_refused_before_anything_is_released(settings, message, monkeypatch):
    monkeypatch.setattr(Curator, "release", None)
    with pytest.raises(ValueError, match=message):
        transformer().set_params(**settings).fit(rows())


def test_public_facts():
    X = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = transformer().fit(X)
    found = {fact.name: fact.provenance for fact in made.privacy_.public_facts}
    assert found == {"row_norm": "declared", "n_rows": "by relation"}
    with pytest.warns(PublicInformationWarning) as caught:
        leaky = PrivateTransformer([Center()], adjacency="add_remove").fit(X)
    assert [str(one.message).split()[0] for one in caught] == ["n_rows", "row_norm"]
    assert caught[0].filename == __file__
    assert leaky.privacy_.caveats()
    with pytest.raises(ValueError, match="row_norm or feature_bounds"):
        PrivateTransformer([Center()]).plan(N, 3)


# What it does to rows


def test_rows_are_mapped_exactly():
    X = rows()
    made = transformer(Center(), Scale(), epsilon=8.0).fit(X)
    by_hand = X
    for learned in made.maps_:
        by_hand = (by_hand - learned.center) * learned.matrix
    np.testing.assert_allclose(made.transform(X), by_hand)
    # Rows of any length, which fitting would have scaled down.
    far = np.array([[1e6, 0.0, 0.0]])
    moved = made.transform(far) - made.transform(np.zeros((1, 3)))
    factor = np.prod([learned.matrix[0] for learned in made.maps_])
    np.testing.assert_allclose(moved, [[1e6 * factor, 0.0, 0.0]], atol=1e-6)
    assert made.row_norm_ == made.solution_.plan.method.model.data.row_norm


def test_bounded_columns_are_clipped_and_scaled_first():
    made = transformer(row_norm=None, feature_bounds=(0.0, 2.0), epsilon=50.0).fit(rows(5000))
    assert np.abs(made.maps_[0].center).max() < 0.1
    np.testing.assert_allclose(
        made.transform([[9.0, 1.0, -9.0]]), [[1.0, 0.0, -1.0]] - made.maps_[0].center
    )
    assert made.row_norm_ == pytest.approx(np.sqrt(3))


def test_containers_and_types():
    X = rows()
    made = transformer(random_state=0).fit(X)
    expected = made.transform(X)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = clone(made).set_output(transform="pandas").fit(frame)
    assert named.transform(frame).columns.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(named.transform(frame), expected)
    from_sparse = clone(made).fit(sparse.csr_array(X))
    np.testing.assert_array_equal(from_sparse.transform(sparse.csr_array(X)), expected)
    assert made.transform(X.astype(np.float32)).dtype == np.float32
    mixing = transformer(Whiten()).fit(X)
    assert mixing.get_feature_names_out().tolist() == [f"privatetransformer{i}" for i in range(3)]
    assert made.get_feature_names_out(["u", "v", "w"]).tolist() == ["u", "v", "w"]


def test_a_transformer_and_an_estimator():
    rng = np.random.default_rng(0)
    X = rng.uniform([0.0, 0.0, 3.0], [1.0, 1.0, 4.0], size=(5000, 3))
    y = X[:, 0] > X[:, 1]
    center = PrivateTransformer([Center()], epsilon=0.3, row_norm=5.0)
    estimator = LogisticRegression(epsilon=0.7, classes=[False, True], row_norm=5.0)
    model = make_pipeline(center, estimator).fit(X, y)
    assert model.score(X, y) > 0.9
    assert [step.privacy_.budget.epsilon for _, step in model.steps] == [0.3, 0.7]


def test_clone_pickle_and_parameters():
    made = transformer(Center(), ("last", Scale()))
    assert made.get_params()["last__row_norm"] == Scale().row_norm
    made.set_params(last__row_norm=2.0, center=Center(lengthen=True), epsilon=0.2)
    assert made.steps == [("center", Center(lengthen=True)), ("last", Scale(row_norm=2.0))]
    copy = clone(made)
    assert copy.get_params()["last"] == Scale(row_norm=2.0)
    assert list(copy.named_steps) == ["center", "last"]
    again = pickle.loads(pickle.dumps(made.fit(rows())))
    np.testing.assert_array_equal(again.transform(rows()), made.transform(rows()))
    assert again.privacy_ == made.privacy_
    with pytest.raises(NotFittedError):
        copy.transform(rows())


def test_two_private_fits_differ_and_seeded_ones_agree():
    first, second = (transformer().fit(rows()) for _ in range(2))
    assert not np.array_equal(first.maps_[0].center, second.maps_[0].center)
    assert first.privacy_.is_private
    seeded = [transformer(random_state=4).fit(rows()) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].maps_[0].center, seeded[1].maps_[0].center)
    assert not seeded[0].privacy_.is_private
    assert seeded[0].privacy_.model_digest == seeded[1].privacy_.model_digest
    assert first.privacy_.model_digest != second.privacy_.model_digest


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.PublicInformationWarning")
@parametrize_with_checks([PrivateTransformer([Center()])])
def test_check_estimator(estimator, check):
    check(estimator)


# Its certificate


@pytest.mark.parametrize(
    "forge",
    [
        lambda record: record.update(epsilon=0.5),
        lambda record: record.update(noise_scales=[1.0]),
        lambda record: record["plan"]["method"]["steps"][0].update(noise_multiplier=99.0),
        lambda record: record.update(public_facts=record["public_facts"][:1]),
        lambda record: record.update(loss="Logistic()"),
        lambda record: record["plan"]["problem"].update(loss={"type": "logistic"}),
        lambda record: record["plan"].pop("problem"),
        lambda record: record.update(model_digest="made up"),
    ],
    ids=["epsilon", "noise", "plan", "facts", "loss", "target", "problem", "digest"],
)
def test_forged_certificates_are_found_out(forge):
    certificate = transformer().fit(rows()).privacy_
    record = json.loads(json.dumps(certificate.to_dict()))
    assert Certificate.from_dict(record) == certificate
    assert verify(Certificate.from_dict(record)).ok
    forge(record)
    assert not verify(Certificate.from_dict(record)).ok


def test_no_model_passes_as_a_transformer_to_hide_its_facts():
    X = rows()
    model = LogisticRegression(classes=[0, 1], row_norm=4.0).fit(X, (X[:, 0] > 1).astype(int))
    record = json.loads(json.dumps(model.privacy_.to_dict()))
    record["public_facts"] = [f for f in record["public_facts"] if f["name"] != "classes"]
    assert not verify(Certificate.from_dict(record)).ok
    record["loss"] = "none"
    assert not verify(Certificate.from_dict(record)).ok
    record["plan"]["method"] = {"type": "no_model_method", "data": record["plan"]["data"]}
    assert not verify(Certificate.from_dict(record)).ok


def test_it_says_what_it_is():
    certificate = transformer().fit(rows()).privacy_
    assert certificate.estimator == "PrivateTransformer"
    assert certificate.loss == "none"
    assert [one["type"] for one in certificate.plan["method"]["steps"]] == ["planned_center"]
    assert "center: row sum" in certificate.statement()
    assert dataclasses.asdict(certificate)["epsilon"] <= 1.0
