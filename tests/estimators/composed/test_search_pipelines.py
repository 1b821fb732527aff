"""Search over private pipelines: every try is a whole pipeline, and one budget pays for all."""

from __future__ import annotations

import math
import pickle
from unittest import mock

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, PolynomialFeatures

from dpglm import (
    ApproximateDP,
    LinearRegression,
    LogisticRegression,
    NoisyGD,
    PlanMismatchError,
    PrivacyLedger,
    PrivateGridSearchCV,
    PrivatePipeline,
    PrivateRandomizedSearchCV,
    PublicInformationWarning,
)
from dpglm.certificate import verify
from dpglm.estimators.composed.search import _PrivateSearch
from dpglm.preprocessing import Center, ClipToQuantile, Scale, Whiten
from dpglm.preprocessing import steps as center_module
from dpglm.privacy import Adjacency, accountant_for, gdp
from dpglm.privacy.events import Composed, Gaussian, Parallel, Pure, RandomlyRepeated, canonical
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.report import load_model, save_model
from dpglm.selection import NormGridSearch
from tests.forgeries import changed, forged, put
from tests.laws.transcripts import excess, listening
from tests.planted import unclipped

N, DELTA = 400, 1e-5
FEW = NoisyGD(n_steps=5, step_size=1.0)
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, size=(N, 3)) + 3.0
Y = (X[:, 0] > X[:, 1]).astype(int)
LAST = LogisticRegression(classes=[0, 1], solver=FEW)
PIPELINE = PrivatePipeline([("center", Center()), clone(LAST).set_params(row_norm=7.0)])
MIXED = PrivatePipeline([Normalizer(), ("center", Center()), ("scale", "passthrough"), LAST])
GRID = [
    {"center__row_norm": [1.0, 2.0], "logisticregression__C": [0.1, 1.0]},
    {"center": ["passthrough", Whiten()]},
    {"shares": [{"center": 0.3}]},
]
DATA = PIPELINE.plan(N, 3).data
every_method = pytest.mark.parametrize("method", ["repeated", "held_out"])
relations = pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])


def searching(grid=GRID, pipeline=PIPELINE, **options):
    return PrivateGridSearchCV(pipeline, grid, **{"delta": DELTA, **options})


def mu_squared(certificate, candidate):
    """The cost of one training, from the definition, for Gaussian releases."""
    return sum(
        one.count / one.noise_multiplier**2
        for one in certificate.releases
        if one.quantity.startswith(f"candidate {candidate}: ")
    )


# Budget


@relations
@pytest.mark.parametrize("epsilon", [0.1, 4.0])
def test_a_try_is_a_whole_pipeline_and_its_score(adjacency, epsilon):
    pipeline = clone(PIPELINE).set_params(adjacency=adjacency)
    search = searching(pipeline=pipeline, epsilon=epsilon).fit(X, Y)
    certificate = search.privacy_
    score = certificate.releases[-1].noise_multiplier ** -2
    tries = [mu_squared(certificate, 1 + k) + score for k in range(len(search.candidates_))]
    np.testing.assert_allclose(tries, tries[0], rtol=1e-9)
    # A try that is mu-GDP: the number of tries has this law, whatever the candidates.
    law = certificate.event.repetitions
    assert law == search.plan(N, 3).method.repetitions
    one = RandomlyRepeated((Gaussian(1.0 / math.sqrt(max(tries))),), law)
    relation = Adjacency(adjacency)
    expected = accountant_for(one, relation).epsilon(one, relation, DELTA)
    assert certificate.epsilon == pytest.approx(expected, rel=1e-9)
    assert 0.999 * epsilon < certificate.epsilon <= epsilon
    assert verify(certificate).ok


@relations
@pytest.mark.parametrize("epsilon", [0.1, 4.0])
def test_all_pipelines_on_the_same_rows_add_up(adjacency, epsilon):
    pipeline = clone(PIPELINE).set_params(adjacency=adjacency)
    search = searching(pipeline=pipeline, epsilon=epsilon, method="held_out").fit(X, Y)
    certificate = search.privacy_
    total = sum(mu_squared(certificate, 1 + k) for k in range(len(search.candidates_)))
    assert gdp.epsilon(DELTA, math.sqrt(total)) == pytest.approx(epsilon, rel=1e-9)
    assert isinstance(certificate.event, Parallel)
    (choice,) = [one for one in certificate.event.events if isinstance(one, Pure)]
    # Randomized response is the worst that a choice can be.
    worst = (math.exp(choice.epsilon) - math.exp(epsilon)) / (1.0 + math.exp(choice.epsilon))
    assert worst <= DELTA
    assert choice.epsilon > 0.99 * epsilon
    assert 0.999 * epsilon < certificate.epsilon <= epsilon
    assert verify(certificate).ok


def test_candidates_have_the_events_of_their_pipelines():
    search = searching()
    plans = [one.plan for one in search.plan(N, 3).method.trainings]
    for parameters, plan in zip(search._parameters(), plans, strict=True):
        alone = clone(PIPELINE).set_params(**parameters, budget=plan.budget).plan(N, 3)
        assert plan.event == alone.event
        assert plan.method == alone.method
    # "passthrough" leaves more to the model than any preprocessing does.
    noise = [plan.method.releases[-1].noise_multiplier for plan in plans]
    assert min(noise) == noise[4]
    assert max(noise) == noise[6]


@every_method
def test_candidates_with_unlike_events_stay_within_budget(method):
    grid = [{"scale": [Scale(), ClipToQuantile()]}, {"center": ["passthrough"]}]
    search = searching(grid, MIXED, epsilon=2.0, method=method).fit(X, Y)
    certificate = search.privacy_
    assert 1.98 < certificate.epsilon <= 2.0
    assert verify(certificate).ok
    events = [one.plan.event for one in search.solution_.plan.method.trainings]
    assert len(set(map(repr, events))) == 3
    relation = Adjacency.ZERO_OUT
    if method == "held_out":
        wholes = [Composed(tuple(events))]
    else:
        score = Gaussian(certificate.releases[-1].noise_multiplier)
        law = certificate.event.repetitions
        wholes = [RandomlyRepeated((Composed((one, score)),), law) for one in events]
    spent = [
        accountant_for(e, relation).epsilon(e, relation, DELTA) for e in map(canonical, wholes)
    ]
    assert max(spent) <= 2.0
    assert min(spent) > (0.8 if method == "held_out" else 1.85)


@every_method
def test_tables_list_charges(method):
    certificate = searching(GRID[:2], method=method).fit(X, Y).privacy_
    stages = [one.stage for one in certificate.spending()]
    part, last = (", part 1", ", part 2") if method == "held_out" else ("", "")
    of_four = [f"candidate {k}{part}: {s}" for k in range(1, 5) for s in ("center", "model")]
    of_two = [f"candidate 5{part}", f"candidate 6{part}: whiten", f"candidate 6{part}: model"]
    assert stages == [*of_four, *of_two, f"choice{last}"]
    assert all(one.share is None and one.epsilon > 0.0 for one in certificate.spending())
    assert f"candidate 1{part}: center: row sum" in certificate.statement()
    assert certificate.estimator == "PrivateGridSearchCV(LogisticRegression)"


@every_method
def test_preprocessing_that_is_left_out_of_the_account_is_found(method):
    certificate = searching(GRID[1:2], method=method).fit(X, Y).privacy_
    (moment,) = [one for one in certificate.releases if "candidate 2: whiten" in one.quantity]
    others = tuple(one for one in certificate.releases if one is not moment)
    assert not verify(changed(certificate, releases=others)).ok
    forge = put("plan.method.trainings", lambda trainings: [trainings[0], *trainings[:-1]])
    assert not verify(forged(certificate, forge)).ok


@every_method
def test_ledger_entry_is_written_before_any_release(tmp_path, method):
    ledger = PrivacyLedger.create(
        tmp_path / "rows.ledger", data="rows", budget=ApproximateDP(9.0, 1e-4), filter="basic"
    )
    seen, plain = [], Curator.release

    def spying(self, *arguments):
        seen.append(len(ledger.contents().entries))
        return plain(self, *arguments)

    with mock.patch.object(Curator, "release", spying):
        search = searching(method=method, ledger=ledger).fit(X, Y)
    assert set(seen) == {1}
    (entry,) = ledger.contents().entries
    assert entry.event == search.privacy_.event == search.plan(N, 3).event
    assert ledger.verify([search.privacy_.ledger]) == ()


# Rows


@relations
@every_method
def test_one_huge_row_moves_nothing_by_more_than_was_declared(method, adjacency):
    pipeline = clone(PIPELINE).set_params(adjacency=adjacency, random_state=3)

    def moved():
        seen = None
        for sign in (1.0, -1.0):
            rows, weights = X.copy(), np.ones(N)
            rows[7] = sign * np.array([1e6, -1e6, 0.3])
            if sign < 0.0 and adjacency == "zero_out":
                # Nothing in the sums of rows, and in those of the model.
                rows[7] = weights[7] = 0.0
            model = clone(pipeline).set_params(logisticregression__weight_bound=1.0)
            with listening(seen, reach=10.0) as heard, np.errstate(over="ignore"):
                searching(pipeline=model, method=method).fit(rows, Y, weights)
            earlier, seen = seen, heard
        return excess(earlier, seen)

    assert 0.5 < moved() <= 1.0
    with unclipped():
        assert moved() > 1.0


def test_rows_that_choose_have_no_part_in_the_preprocessing():
    step = type(PIPELINE.named_steps.center.plan(DATA, 1.0, Adjacency.ZERO_OUT))
    taught, plain = [], step.learn

    def listening_to(self, oracle, seed):
        taught.append(oracle.rows.n_rows)
        return plain(self, oracle, seed)

    with mock.patch.object(step, "learn", listening_to):
        search = searching(GRID[0], method="held_out", choice_fraction=0.25).fit(X, Y)
    assert taught == [300] * 4
    assert search.solution_.plan.method.part_sizes == (300, 100)


@every_method
def test_every_try_starts_from_the_rows_as_they_were(method):
    # Steps may work in the memory of rows that they have mapped, never in that of all tries.
    steps = [("center", Center()), ("whiten", Whiten()), PIPELINE.steps[-1]]
    pipeline = PrivatePipeline(steps, random_state=1)
    with listening() as seen:
        searching({"logisticregression__C": [1.0, 2.0, 3.0]}, pipeline, method=method).fit(X, Y)
    sums = [one.exact for one in seen.asked if one.declared.quantity == "row sum"]
    assert len(sums) > 1
    assert len({one.tobytes() for one in sums}) == 1


@every_method
def test_maps_that_tries_share_stop_the_run(method):
    # The planted bug: all tries use the map of the first one, which is charged once.
    step = type(PIPELINE.named_steps.center.plan(DATA, 1.0, Adjacency.ZERO_OUT))
    plain, kept = step.learn, []

    def once(self, oracle, seed):
        kept.append(plain(self, oracle, seed) if not kept else kept[0])
        return kept[-1]

    pipeline = clone(PIPELINE).set_params(random_state=3)
    grid = {"logisticregression__C": [1.0, 2.0]}
    search = searching(grid, pipeline, method=method, repetitions=50.0)
    with mock.patch.object(step, "learn", once), pytest.raises(PlanMismatchError, match="planned"):
        search.fit(X, Y)


def shows_what_was_released(method):
    released, plain = [], Curator.release

    def keeping(self, declared, value):
        answer = plain(self, declared, value)
        if isinstance(declared.mechanism, GaussianNoise):
            released.append(answer)
        return answer

    with mock.patch.object(Curator, "release", keeping):
        while not released:  # a random number of tries may be none
            search = searching(method=method).fit(X, Y)
    held = pickle.dumps(search)
    assert len(released) > 5
    return any(one.tobytes() in held for one in released)


@every_method
def test_nothing_that_a_try_learned_can_be_reached(method, monkeypatch):
    assert not shows_what_was_released(method)
    honest = center_module.noisy_mean
    kept = []

    def telling(oracle, declared):
        mean = honest(oracle, declared)
        kept.append(mean)
        return mean

    monkeypatch.setattr(center_module, "noisy_mean", telling)
    settle = _PrivateSearch._settle

    def attaching(self, fitted, parameters):
        settle(self, fitted, parameters)
        fitted.means_ = kept

    # The planted bug: means of all tries stay with the winner.
    monkeypatch.setattr(_PrivateSearch, "_settle", attaching)
    while not kept:  # a random number of tries may be none
        search = searching(method=method).fit(X, Y)
    assert any(one.tobytes() in pickle.dumps(search) for one in kept)


def test_a_source_of_noise_is_never_copied():
    class Counting(NoiseSource):
        """A generator with a state of its own: a copy would repeat its noise."""

        name, is_private = "counting", True

        def __init__(self):
            self.bits = np.random.PCG64(5)

        def words(self, count):
            return np.asarray(self.bits.random_raw(count), dtype=np.uint64)

    for subject, names in ((PIPELINE, "logisticregression__C"), (PIPELINE.steps[-1], "C")):
        search = searching({names: [1.0]}, clone(subject).set_params(random_state=Counting()))
        one, other = (search.fit(X, Y).solution_.w for _ in range(2))
        assert (one != other).any()


# scikit-learn


@every_method
def test_it_predicts_as_the_best_pipeline_does(tmp_path, method):
    pipeline = clone(MIXED).set_params(random_state=1)
    grid = {"center": [Center(), "passthrough"], "logisticregression__C": [1.0, 1e-7]}
    search = searching(grid, pipeline, epsilon=30.0, method=method)
    assert is_classifier(search)
    assert search.fit(X, Y) is search
    best = search.best_estimator_
    assert type(best) is PrivatePipeline
    assert search.best_params_ == search.candidates_[search.best_index_]
    assert search.best_params_["logisticregression__C"] == 1.0
    expected = {**clone(pipeline).set_params(**search.best_params_).get_params()}
    found = best.get_params()
    for name in (*search.best_params_, "normalizer__norm", "scale", "shares", "adjacency"):
        assert found[name] == expected[name], name
    assert best.estimator_.C == 1.0
    assert found["epsilon"] == 30.0
    assert search.score(X, Y) == best.score(X, Y) > 0.7
    assert (search.predict(X) == best.predict(X)).all()
    assert (search.predict_proba(X) == best.predict_proba(X)).all()
    assert (search.decision_function(X) == best.decision_function(X)).all()
    assert search.classes_.tolist() == [0, 1]
    assert search.n_features_in_ == 3
    assert search.privacy_ is best.privacy_ is best.estimator_.privacy_
    assert [name for name, _ in best.transformers_] == ["normalizer"]
    assert search.privacy_.fact("transformers").value == ["Normalizer()"]
    assert (pickle.loads(pickle.dumps(search)).predict(X) == search.predict(X)).all()
    with pytest.raises(ValueError, match="a model file cannot hold"):
        best.linear_model()
    plain = searching(GRID, epsilon=30.0, method=method).fit(X, Y)
    save_model(plain.best_estimator_, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert (loaded.predict(X) == plain.predict(X)).all()
    assert verify(loaded.certificate).ok


def test_parameters_and_copies():
    search = searching()
    assert search.get_params()["estimator__center__row_norm"] is None
    assert clone(search).get_params()["param_grid"] == GRID
    changed = clone(search).set_params(estimator__center__row_norm=2.0, epsilon=0.5)
    assert changed.estimator.named_steps.center.row_norm == 2.0
    assert search.estimator.named_steps.center.row_norm is None
    before = repr(search.get_params())
    search.fit(X, Y)
    assert repr(search.get_params()) == before
    assert not hasattr(search.estimator, "estimator_")


@every_method
def test_the_preprocessing_that_helps_is_found(method):
    rng = np.random.default_rng(1)
    far = rng.normal(size=(4000, 3)) + 100.0
    y = (far[:, 0] > far[:, 1]).astype(int)
    last = LogisticRegression(classes=[0, 1], row_norm=200.0, solver=NoisyGD())
    pipeline = PrivatePipeline([("center", "passthrough"), last], random_state=2)
    grid = {"center": ["passthrough", Center(row_norm=4.0)]}
    search = searching(grid, pipeline, epsilon=4.0, method=method).fit(far, y)
    assert search.best_params_ == {"center": Center(row_norm=4.0)}
    assert search.score(far, y) > 0.9
    assert search.best_estimator_.coef_.shape == (1, 3)


def test_noise_in_coefficients_is_that_of_the_pipeline_that_won():
    for solver, is_known in (("newton", True), ("noisy_gd", False)):
        pipeline = clone(PIPELINE).set_params(random_state=4, logisticregression__solver=solver)
        for method in ("repeated", "held_out"):
            grid = {"center": [Whiten()]}
            search = searching(grid, pipeline, epsilon=9.0, method=method).fit(X, Y)
            noise = search.solution_.coefficient_noise
            assert (noise is not None) == is_known
            assert noise is None or noise.shape == (4,)


def test_random_search_regressors_and_searches_inside():
    target = X @ [1.0, -1.0, 0.5]
    pipeline = PrivatePipeline([Center(), LinearRegression(row_norm=7.0)], random_state=1)
    names = {"center__row_norm": [1.0, 2.0, 3.0], "linearregression__solver": ["noisy_gd"]}
    options = {"n_iter": 2, "random_state": 1, "epsilon": 30.0}
    with pytest.warns(PublicInformationWarning, match="target_bounds"):
        search = PrivateRandomizedSearchCV(pipeline, names, **options).fit(X, target)
    assert len(search.candidates_) == 2
    assert not hasattr(search, "predict_proba")
    assert verify(search.privacy_).ok
    inner = NormGridSearch(FEW, bounds=(1.0, 2.0))
    solvers = {"logisticregression__solver": [inner, FEW]}
    nested = searching(solvers, epsilon=30.0, method="held_out")
    outer = make_pipeline(FunctionTransformer(), nested).fit(X, Y)
    assert verify(outer[-1].privacy_).ok
    assert outer.predict(X).shape == (N,)


# Refusals


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"nobody": [1]}, "set 'nobody', .* got 1; they may set center, center__intercept"),
        ({"center__size": [1]}, "set 'center__size', .* got 1; .* center__row_norm"),
        ({"center": ["passthrough"], "center__row_norm": [1.0]}, "'center__row_norm', .* got 1.0"),
        ({"normalizer__norm": ["l1"]}, "'normalizer__norm', which is the same .* got 'l1'"),
        ({"normalizer": ["passthrough"]}, "'normalizer', .* got 'passthrough'"),
        ({"center": [PolynomialFeatures()]}, r"fixed transformers \['normalizer'\], and private"),
        ({"center": [1.0]}, "step 'center', 1.0, would learn"),
        ({"center__row_norm": [-1.0]}, "row_norm must be .* got -1.0"),
        ({"logisticregression__C": [-1.0]}, "C must be .* got -1.0"),
        (
            {"logisticregression__row_norm": [1.0, 2.0]},
            "'logisticregression__row_norm', .* got 1.0",
        ),
        ({"logisticregression__epsilon": [2.0]}, "'logisticregression__epsilon', .* got 2.0"),
        ({"logisticregression": [LogisticRegression()]}, "'logisticregression', .* may set"),
        ({"steps": [[Center(), LAST]]}, "'steps', which is the same"),
        ({"epsilon": [2.0]}, "'epsilon', which is the same .* got 2.0"),
        ({"adjacency": ["replace_one"]}, "'adjacency', which is the same"),
        ({"random_state": [1]}, "'random_state', which is the same"),
        ({"shares": [{"scale": 0.1}]}, "shares must be a mapping from names of private steps"),
        ({"shares": [{"center": 2.0}]}, "shares must be .* got 2.0"),
        ([], "at least one candidate"),
    ],
)
def test_invalid_candidates_are_refused_before_spending(tmp_path, grid, message):
    ledger = PrivacyLedger.create(
        tmp_path / "rows.ledger", data="rows", budget=ApproximateDP(9.0, 1e-4), filter="basic"
    )
    search = searching(grid, MIXED, ledger=ledger)
    with listening() as seen, pytest.raises(ValueError, match=message):
        search.fit(X, Y)
    assert not seen.asked
    assert ledger.contents().entries == ()
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 2.0}, "epsilon must be set on the search"),
        ({"budget": ApproximateDP(1.0, 1e-6)}, "budget must be set on the search"),
        ({"logisticregression__delta": 1e-7}, "delta must be set on the pipeline"),
        ({"adjacency": "add_remove", "n_rows": N}, "adjacency must be"),
        ({"steps": []}, "steps must be a list"),
        ({"steps": [Center()]}, "steps must end with a linear model"),
        ({"steps": [searching(), LAST]}, "would learn from private rows"),
    ],
)
@every_method
def test_pipelines_that_cannot_be_searched_are_refused(method, changes, message):
    pipeline = clone(PIPELINE).set_params(**changes)
    with listening() as seen, pytest.raises(ValueError, match=message):
        searching({}, pipeline, method=method).fit(X, Y)
    assert not seen.asked
