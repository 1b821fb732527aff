"""Private search: scikit-learn's surface, one budget, public facts, and verification."""

import dataclasses
import json
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import loguniform
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression as PublicLogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dpglm import (
    ElasticNet,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NoisyGD,
    PoissonRegressor,
    PrivateGridSearchCV,
    PrivateRandomizedSearchCV,
    PublicInformationWarning,
    Ridge,
)
from dpglm.certificate import Certificate, verify
from dpglm.privacy import Parallel, RandomlyRepeated
from dpglm.report import load_model, save_model
from dpglm.solvers import Constant
from tests.forgeries import changed, everywhere, forged, put

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, size=(600, 3))
Y = np.where(X @ [3.0, -2.0, 0.5] + 0.2 * RNG.normal(size=600) > 0.0, "yes", "no")
TARGET = X @ [1.0, -2.0, 0.5]
MODEL = LogisticRegression(classes=["no", "yes"], feature_bounds=(-1.0, 1.0))
RIDGE = Ridge(target_bounds=(-4.0, 4.0), feature_bounds=(-1.0, 1.0))
GRID = {"C": [1e-6, 1.0]}
METHODS = ("repeated", "held_out")
# Which candidates are tried is random: where quality is asserted, noise is the same each time.
SEEDED = clone(MODEL).set_params(random_state=1)
every_method = pytest.mark.parametrize("method", METHODS)


@every_method
def test_it_behaves_like_a_classifier_of_scikit_learn(method):
    search = PrivateGridSearchCV(SEEDED, GRID, epsilon=30.0, method=method)
    assert is_classifier(search)
    assert not is_regressor(search)
    with pytest.raises(NotFittedError):
        search.predict(X)
    assert search.fit(X, Y) is search
    assert search.classes_.tolist() == ["no", "yes"]
    assert search.n_features_in_ == 3
    assert search.score(X, Y) > 0.9
    best = search.best_estimator_
    assert (search.predict(X) == best.predict(X)).all()
    assert (search.predict_proba(X) == best.predict_proba(X)).all()
    assert (search.decision_function(X) == best.decision_function(X)).all()
    again = pickle.loads(pickle.dumps(search))
    assert (again.predict(X) == search.predict(X)).all()
    copy = clone(search)
    assert copy.get_params()["estimator__feature_bounds"] == (-1.0, 1.0)
    assert copy.set_params(epsilon=2.0, estimator__C=5.0).estimator.C == 5.0
    assert not hasattr(copy, "best_estimator_")


@every_method
def test_it_behaves_like_a_regressor_of_scikit_learn(method):
    search = PrivateGridSearchCV(
        clone(RIDGE).set_params(random_state=1),
        {"alpha": [1.0, 1e6]},
        epsilon=30.0,
        method=method,
    )
    assert is_regressor(search)
    assert not hasattr(search, "predict_proba")
    assert not hasattr(search, "decision_function")
    assert search.fit(X, TARGET).score(X, TARGET) > 0.8
    assert search.best_params_ == {"alpha": 1.0}
    assert verify(search.privacy_).ok


@every_method
def test_the_better_candidate_is_found_and_kept(method):
    grid = [{"C": [1e-7]}, {"C": [1.0], "solver": [NoisyGD(n_steps=20), "newton"]}]
    search = PrivateGridSearchCV(SEEDED, grid, epsilon=30.0, method=method)
    search.fit(X, Y)
    assert len(search.candidates_) == 3
    assert search.best_params_ == search.candidates_[search.best_index_]
    assert search.best_params_["C"] == 1.0
    assert search.best_estimator_.get_params()["solver"] == search.best_params_["solver"]
    assert search.best_estimator_.C == 1.0
    assert len(search.candidate_privacy_) == 3


def test_uncharged_scores_are_nowhere():
    search = PrivateGridSearchCV(MODEL, GRID).fit(X, Y)
    assert not any(hasattr(search, name) for name in ("cv_results_", "best_score_", "n_tries_"))
    state = search.solution_
    assert state.history == ()
    assert search.best_estimator_.n_iter_ == state.plan.method.trainings[0].plan.n_steps


@every_method
@pytest.mark.parametrize(
    ("solver", "adjacency"),
    [
        ("auto", "zero_out"),
        ("auto", "replace_one"),
        ("noisy_gd", "zero_out"),
        ("output_perturbation", "replace_one"),
        ("pure_gd", "zero_out"),
    ],
)
def test_the_whole_search_is_planned_certified_and_verified(method, solver, adjacency):
    model = clone(MODEL).set_params(adjacency=adjacency, solver=solver)
    search = PrivateGridSearchCV(model, {"C": [0.01, 1.0]}, epsilon=2.0, method=method)
    plan = search.plan(600, 3)
    search.fit(X, Y)
    assert search.solution_.plan.event == plan.event
    # The problem is that of the chosen candidate.
    chosen = plan.method.trainings[search.best_index_].plan.problem
    assert search.solution_.plan.method == dataclasses.replace(plan.method, problem=chosen)
    kind = RandomlyRepeated if method == "repeated" else Parallel
    assert isinstance(plan.event, kind)
    # Of shares that are not Gaussian some is lost.
    assert (0.4 if solver == "pure_gd" else 1.98) < search.privacy_.epsilon <= 2.0
    assert search.privacy_ is search.best_estimator_.privacy_
    assert search.privacy_.estimator == "PrivateGridSearchCV(LogisticRegression)"
    certificate = Certificate.from_dict(search.privacy_.to_dict())
    assert verify(certificate).ok, verify(certificate).summary()
    assert "candidate 1" in certificate.statement()
    # Shares of a sum are about stages one after the other.
    assert "of mu^2" not in certificate.statement()


def test_pure_differential_privacy_is_for_rows_held_out():
    model = clone(MODEL).set_params(solver="pure_gd")
    search = PrivateGridSearchCV(model, {"C": [0.1, 1.0]}, delta=0.0, method="held_out")
    certificate = search.fit(X, Y).privacy_
    assert certificate.delta == 0.0
    assert 0.99 < certificate.epsilon <= 1.0
    assert verify(certificate).ok


def test_last_iterate_cost_depends_on_candidate():
    solver = NoisyGD(100, step_size=1.0, schedule=Constant(), clip=1.0, momentum=0.0)
    model = LogisticRegression(
        classes=["no", "yes"], row_norm=1.0, fit_intercept=False, solver=solver
    )
    for method in METHODS:
        search = PrivateGridSearchCV(model, {"C": [1e-3, 1e-2]}, method=method).fit(X, Y)
        assert "LastIterate" in repr(search.privacy_.event)
        assert verify(search.privacy_).ok
        # Planted bug: a contraction that only the stronger penalty has.
        document = json.loads(json.dumps(search.privacy_.to_dict()))
        everywhere("strength", 1e-6)(document)
        assert not verify(Certificate.from_dict(document)).ok


# Others take some seconds to be accounted for.
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "solver",
    ["accelerated_mirror_descent", "johnson_lindenstrauss", "local_sgd", "newton", "pure_gd"],
)
def test_many_solvers_can_be_candidates(method, solver):
    search = PrivateGridSearchCV(MODEL, {"solver": [solver]}, method=method)
    assert search.plan(600, 3).privacy()["epsilon"] <= 1.0


def test_solvers_state_the_reason_of_a_refusal():
    search = PrivateGridSearchCV(MODEL, {"solver": ["auto", "sufficient_statistics"]})
    with pytest.raises(ValueError, match="loss must be Squared"):
        search.fit(X, Y)


def test_claims_that_forget_the_search_are_found_by_verify():
    certificate = PrivateGridSearchCV(MODEL, GRID).fit(X, Y).privacy_
    assert verify(certificate).ok
    event = certificate.event
    assert isinstance(event, RandomlyRepeated)
    for one in (
        dataclasses.replace(certificate, epsilon=0.9 * certificate.epsilon),
        # Planted bugs: as if there had been one try; as if the best needed fewer of them.
        changed(certificate, event=event.events[0], epsilon=1.0),
        changed(
            certificate,
            event=RandomlyRepeated(
                event.events, dataclasses.replace(event.repetitions, success=0.9)
            ),
        ),
    ):
        assert not verify(one).ok
    for forge in (
        put("plan.method.score_noise_multiplier", 1.0),
        put("plan.method.score_noise_multiplier", 1e3),
        put("plan.method.trainings.0.plan.data.n_rows", 10),
        put("plan.method.trainings.0.plan.method.data.n_rows", 10),
        put("plan.method.repetitions.success", 0.9),
        put("plan.method.trainings", lambda trainings: trainings[1:]),
    ):
        assert not verify(forged(certificate, forge)).ok


def test_search_budget_is_shared_among_tries():
    def multiplier(**options):
        search = PrivateGridSearchCV(MODEL, GRID, **options)
        return search.plan(600, 3).method.trainings[0].plan.event.terms[0][0].noise_multiplier

    alone = MODEL.plan(600, 3).event.terms[0][0].noise_multiplier
    few, many = multiplier(repetitions=2.0), multiplier(repetitions=20.0)
    assert alone < few < many < 2.0 * alone
    assert multiplier(repetitions=6.0) == multiplier()
    held_out = multiplier(method="held_out")
    assert held_out > 1.3 * alone
    assert multiplier(epsilon=2.0) < few


@pytest.mark.parametrize(
    ("estimator", "options", "word"),
    [
        (MODEL, {"epsilon": -1.0}, "epsilon"),
        (MODEL, {"delta": 2.0}, "delta"),
        (MODEL, {"delta": 0.0}, "delta"),
        (MODEL, {"method": "cross_validation"}, "method"),
        (MODEL, {"method": "held_out", "choice_fraction": 1.0}, "choice_fraction"),
        (MODEL, {"repetitions": 1.0}, "repetitions"),
        (MODEL, {"param_grid": {"C": [1.0, -1.0]}}, "C must"),
        (MODEL, {"param_grid": {"solver": ["none"]}}, "solver"),
        (MODEL, {"param_grid": {"penalty": ["l1"]}}, "penalty"),
        (MODEL, {"param_grid": {"epsilon": [1.0, 2.0]}}, "epsilon"),
        (MODEL, {"param_grid": {"row_norm": [1.0, 2.0]}}, "row_norm"),
        (MODEL, {"param_grid": {"fit_intercept": [True, False]}}, "fit_intercept"),
        (MODEL, {"param_grid": {"random_state": [1]}}, "random_state"),
        (MODEL, {"param_grid": []}, "candidate"),
        (clone(MODEL).set_params(epsilon=2.0), {}, "epsilon must be set"),
        (clone(MODEL).set_params(delta=1e-6), {}, "delta must be set"),
        (clone(MODEL).set_params(adjacency="add_remove", n_rows=600), {}, "adjacency"),
        (PublicLogisticRegression(), {}, "estimator"),
    ],
)
def test_invalid_settings_are_named_before_reading_rows(estimator, options, word):
    search = PrivateGridSearchCV(estimator, GRID).set_params(**options)
    with pytest.raises(ValueError, match=word):
        search.fit(X, Y)
    assert not hasattr(search, "privacy_")


def test_groups_are_refused_with_an_alternative():
    search = PrivateGridSearchCV(MODEL, GRID)
    with pytest.raises(ValueError, match=r"groups must be None .* groups= to the estimator's own"):
        search.fit(X, Y, groups=np.arange(len(X)) // 2)
    assert not hasattr(search, "privacy_")


def test_candidates_are_checked_before_the_data():
    search = PrivateGridSearchCV(MODEL, {"C": [1.0, -1.0]})
    with pytest.raises(ValueError, match="C must"):
        search.fit(None, None)


@every_method
def test_undeclared_facts_come_from_data_with_a_warning(method):
    search = PrivateGridSearchCV(LinearRegression(), {"solver": ["noisy_gd"]}, method=method)
    with pytest.warns(PublicInformationWarning) as caught:
        search.fit(X, TARGET)
    assert {str(one.message).split()[0] for one in caught} == {"target_bounds", "row_norm"}
    fact = search.privacy_.fact("target_bounds")
    assert fact.provenance == "from the data"
    assert fact.value == [TARGET.min(), TARGET.max()]
    # The same penalty as with declared bounds.
    bounds = (float(TARGET.min()), float(TARGET.max()))
    lasso = ElasticNet(feature_bounds=(-1.0, 1.0), alpha=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PublicInformationWarning)
        taken = PrivateGridSearchCV(lasso, {"l1_ratio": [0.7]}, method=method).fit(X, TARGET)
    declared = clone(lasso).set_params(target_bounds=bounds)
    given = PrivateGridSearchCV(declared, {"l1_ratio": [0.7]}, method=method).fit(X, TARGET)
    assert (
        taken.solution_.plan.method.trainings[0].plan.problem
        == given.solution_.plan.method.trainings[0].plan.problem
    )


@every_method
def test_a_seed_makes_it_reproducible_and_not_private(method):
    model = clone(SEEDED)
    one, other = (PrivateGridSearchCV(model, GRID, method=method).fit(X, Y) for _ in range(2))
    assert (one.best_estimator_.coef_ == other.best_estimator_.coef_).all()
    assert not one.privacy_.is_private
    fresh = [PrivateGridSearchCV(MODEL, GRID, method=method).fit(X, Y) for _ in range(2)]
    assert (fresh[0].best_estimator_.coef_ != fresh[1].best_estimator_.coef_).any()
    assert fresh[0].privacy_.is_private


@every_method
@pytest.mark.parametrize("convert", [np.float32, sparse.csr_array])
def test_other_matrices_and_weights(method, convert):
    matrix = X.astype(np.float32) if convert is np.float32 else sparse.csr_array(X)
    model = clone(SEEDED).set_params(weight_bound=2.0)
    search = PrivateGridSearchCV(model, GRID, epsilon=30.0, method=method)
    search.fit(matrix, Y, sample_weight=np.full(600, 1.5))
    assert search.score(matrix, Y) > 0.85
    assert verify(search.privacy_).ok


@every_method
def test_many_classes_losses_and_counts(method):
    three = np.digitize(TARGET, [-0.7, 0.7])
    model = LogisticRegression(classes=[0, 1, 2], feature_bounds=(-1.0, 1.0), solver="noisy_gd")
    grid = {"multi_class": ["multinomial", "ovr"]}
    search = PrivateGridSearchCV(model, grid, epsilon=50.0, method=method).fit(X, three)
    assert search.score(X, three) > 0.6
    chosen = "Softmax" if search.best_params_["multi_class"] == "multinomial" else "OneVsRest"
    assert search.privacy_.loss.startswith(chosen)
    assert verify(search.privacy_).ok
    svc = LinearSVC(classes=["no", "yes"], feature_bounds=(-1.0, 1.0))
    grid = {"loss": ["squared_hinge", "smoothed_hinge"]}
    assert PrivateGridSearchCV(svc, grid, epsilon=30.0, method=method).fit(X, Y).score(X, Y) > 0.9
    counts = np.random.default_rng(1).poisson(np.exp(TARGET / 2.0))
    poisson = PoissonRegressor(target_bounds=(0, 10), feature_bounds=(-1.0, 1.0))
    search = PrivateGridSearchCV(poisson, {"alpha": [0.0, 10.0]}, epsilon=30.0, method=method)
    assert search.fit(X, counts).predict(X).min() > 0.0


def test_a_saved_model_predicts_the_same(tmp_path):
    search = PrivateGridSearchCV(MODEL, GRID, epsilon=30.0).fit(X, Y)
    save_model(search.best_estimator_, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert (loaded.predict(X) == search.predict(X)).all()
    assert np.allclose(loaded.predict_proba(X), search.predict_proba(X))
    assert verify(loaded.certificate).ok


def test_it_is_the_last_step_of_a_pipeline():
    search = PrivateGridSearchCV(MODEL, {"C": [0.1, 1.0]}, epsilon=30.0)
    assert make_pipeline(FunctionTransformer(), search).fit(X, Y).score(X, Y) > 0.85


def test_random_search_draws_candidates_in_public():
    options = {"n_iter": 3, "random_state": 5, "epsilon": 30.0}
    search = PrivateRandomizedSearchCV(MODEL, {"C": loguniform(1e-1, 1e3)}, **options)
    plan = search.plan(600, 3)
    assert search.fit(X, Y).score(X, Y) > 0.8
    assert len(search.candidates_) == 3
    assert search.solution_.plan.event == plan.event
    assert search.privacy_.is_private
    assert search.privacy_.estimator == "PrivateRandomizedSearchCV(LogisticRegression)"
    assert verify(search.privacy_).ok
    with pytest.raises(ValueError, match="n_iter"):
        clone(search).set_params(n_iter=0).fit(X, Y)
