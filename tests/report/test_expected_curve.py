"""Accuracy against epsilon on generated rows: a law of the shape asked for, and bounded cost."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn import linear_model

from dpglm import GaussianDP, LinearSVC, LogisticRegression, PoissonRegressor, Ridge
from dpglm.data.spec import DataSpec
from dpglm.guidance import guidance
from dpglm.guidance.expectation import signal_to_noise
from dpglm.problem import Target
from dpglm.report import expected_curve
from dpglm.report.expected_curve import GeneratedRows, _stand_in, _stretched, default_epsilons
from dpglm.solvers import NoisyGD

REAL = {"target_low": -1.0, "target_high": 1.0}


def draw(target, seed=0, **spec):
    options = {"n_rows": 3000, "n_features": 20, "row_norm": 2.0, "intercept": 2.0}
    data = DataSpec(**{**options, **spec})
    rng = np.random.default_rng(seed)
    law = GeneratedRows.draw(data, target, rng)
    return law, *law.sample(data.n_rows, rng)


def best_score(law):
    """Score of the coefficients that decide the targets."""
    w = np.linalg.solve(law.directions, law.coefficients)
    return law.score(np.vstack([w, -law.mean @ w / law.data.intercept]))


class TestGeneratedRows:
    def test_are_half_as_long_as_allowed_with_a_common_part(self):
        _, X, _ = draw(Target.BINARY)
        assert np.sqrt((X**2).sum(axis=1).mean()) == pytest.approx(1.0, rel=0.03)
        assert (X.mean(axis=0) ** 2).sum() == pytest.approx(0.5, rel=0.05)
        variances = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1]
        assert variances[0] / variances[9] == pytest.approx(10.0, rel=0.2)

    def test_signal_has_the_strength_that_is_stated(self):
        areas = [best_score(draw(Target.BINARY, seed)[0]) for seed in range(3)]
        assert np.mean(areas) == pytest.approx(0.9, abs=0.02)
        law, _, y = draw(Target.REAL, **REAL)
        assert np.corrcoef(
            law.X_test @ np.linalg.solve(law.directions, law.coefficients)[:, 0], law.y_test
        )[0, 1] ** 2 == pytest.approx(0.5, abs=0.05)
        assert 0.3 < y.std() < 0.45

    def test_targets_are_of_their_kind_and_within_bounds(self):
        assert set(draw(Target.BINARY)[2].tolist()) == {-1, 1}
        assert set(draw(Target.CLASS, n_outputs=4)[2].tolist()) == {0, 1, 2, 3}
        counts = draw(Target.COUNT, target_low=0.0, target_high=1.0)[2]
        assert (counts.min() > 0.0, counts.max() <= 1.0) == (True, True)
        assert np.abs(draw(Target.REAL, **REAL)[2]).max() <= 1.0

    def test_keep_declared_bounds_and_types(self):
        X = draw(Target.BINARY, dtype="float32", entry_bound=0.1)[1]
        assert (X.dtype, np.abs(X).max()) == (np.float32, np.float32(0.1))

    @pytest.mark.parametrize(
        ("target", "spec", "constant"),
        [
            (Target.BINARY, {}, 0.5),
            (Target.REAL, REAL, 0.0),
            (Target.CLASS, {"n_outputs": 3}, None),
        ],
    )
    def test_a_constant_answer_scores_as_said(self, target, spec, constant):
        law = draw(target, **spec)[0]
        w = np.zeros(law.data.coefficient_shape)
        if target is Target.CLASS:
            w[-1, np.bincount(law.y_test).argmax()] = 1.0
            constant = law.constant_score
        assert law.constant_score == constant
        assert law.score(w) == pytest.approx(constant, abs=0.01)


class TestCurve:
    def test_more_epsilon_is_better_and_the_ends_are_what_they_should_be(self):
        plan = LogisticRegression(row_norm=2.0, delta=1e-5).plan(2000, 10)
        curve = expected_curve(plan, [1e-4, 0.3, 30.0], random_state=1)
        low, middle, high = curve.scores.mean(axis=1)
        assert low < middle < high + 0.01
        assert abs(low - curve.without_features) < 0.3
        assert high == pytest.approx(curve.without_noise, abs=0.01)
        assert 0.85 < curve.without_noise < 0.93

    def test_without_noise_it_is_as_good_as_scikit_learn(self):
        plan = LogisticRegression(row_norm=2.0).plan(1000, 10)
        law, X, y = draw(Target.BINARY, seed=4, n_rows=1000, n_features=10)
        assert law.data == plan.data
        peer = linear_model.LogisticRegression().fit(X, y)
        peers = law.score(np.append(peer.coef_, peer.intercept_ / plan.data.intercept))
        curve = expected_curve(plan, [1.0], n_runs=1, random_state=4)
        assert curve.without_noise == pytest.approx(peers, abs=0.003)

    def test_a_seed_makes_it_reproducible_and_none_does_not(self):
        plan = LogisticRegression(row_norm=2.0).plan(300, 3)
        one, same = (expected_curve(plan, [1.0], random_state=5).scores for _ in range(2))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, expected_curve(plan, [1.0]).scores)

    @pytest.mark.parametrize(
        "plan",
        [
            LinearSVC(row_norm=1.0).plan(300, 3, 3),
            LogisticRegression(row_norm=1.0).plan(300, 3, sparse=True),
            LogisticRegression(row_norm=1.0, delta=0.0).plan(300, 3, dtype="float32"),
            LogisticRegression(row_norm=1.0, budget=GaussianDP(0.3)).plan(300, 3),
            LogisticRegression(row_norm=1.0, adjacency="add_remove", n_rows=300).plan(300, 3),
            Ridge(feature_bounds=(0, 1), target_bounds=(0, 5), fit_intercept=False).plan(300, 3),
            PoissonRegressor(row_norm=1.0, target_bounds=(0, 5)).plan(300, 3),
        ],
        ids=["svc", "sparse", "pure", "gdp", "add_remove", "ridge", "poisson"],
    )
    def test_every_kind_of_plan_has_one(self, plan):
        curve = expected_curve(plan, n_runs=1, random_state=0)
        assert curve.scores.shape == (5, 1)
        assert np.isfinite(curve.scores).all()
        assert curve.chosen in curve.epsilons

    def test_another_solver_is_used_where_it_is_given(self):
        plan = LogisticRegression(row_norm=2.0).plan(500, 5)
        default = expected_curve(plan, [0.5], random_state=0)
        other = expected_curve(plan, [0.5], solver=NoisyGD(n_steps=3), random_state=0)
        assert not np.array_equal(default.scores, other.scores)
        assert default.without_noise == other.without_noise

    def test_needs_no_warnings_and_no_private_rows(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            expected_curve(LogisticRegression(row_norm=2.0).plan(20, 5), [0.01], random_state=0)

    @pytest.mark.parametrize(
        ("epsilons", "options", "says"),
        [
            ([], {}, "epsilons must be different numbers above 0"),
            ([1.0, 1.0], {}, "epsilons must be different"),
            ([0.0], {}, "epsilons must be"),
            ([1.0], {"n_runs": 0}, "n_runs must be"),
        ],
    )
    def test_wrong_parameters_are_named(self, epsilons, options, says):
        plan = LogisticRegression(row_norm=2.0).plan(20, 5)
        with pytest.raises(ValueError, match=says):
            expected_curve(plan, epsilons, **options)


class TestSize:
    @pytest.mark.parametrize(
        ("n_rows", "n_features", "n_classes"),
        [(10**6, 20, 2), (60_000, 784, 10), (5000, 10_000, 2), (10**6, 300, 100)],
    )
    @pytest.mark.parametrize("delta", [1e-8, 0.0])
    def test_large_plans_are_stood_in_for_at_equal_signal(
        self, n_rows, n_features, n_classes, delta
    ):
        model = LogisticRegression(row_norm=1.0, delta=delta, epsilon=0.1)
        plan = model.plan(n_rows, n_features, n_classes)
        data, stretch = _stand_in(plan)
        assert data.n_rows * data.n_coefficients <= 2e8
        assert data.n_rows * data.n_columns <= 2_000_000
        smaller = SimpleNamespace(
            problem=plan.problem,
            data=data,
            budget=_stretched(plan.budget, stretch),
            adjacency=plan.adjacency,
            method=plan.method,
        )
        assert signal_to_noise(smaller) == pytest.approx(signal_to_noise(plan), rel=1e-3)

    def test_small_plans_are_tried_as_they_are(self):
        plan = LogisticRegression(row_norm=1.0).plan(4000, 50)
        assert _stand_in(plan) == (plan.data, 1.0)
        assert _stretched(plan.budget, 1.0) is plan.budget

    def test_the_remarks_say_so(self):
        plan = LogisticRegression(row_norm=1.0).plan(200_000, 40)
        curve = expected_curve(plan, [1.0], n_runs=1, random_state=0)
        assert "200000 rows, 40 columns" in curve.remarks[0]
        assert "To be quick, tried with" in curve.remarks[1]
        assert curve.scores[0, 0] == pytest.approx(curve.without_noise, abs=0.01)


def test_the_rule_of_thumb_agrees_with_the_curve():
    """The verdicts' shares of what is possible, on a shape of moderate size."""
    for epsilon, least, most in ((0.02, -0.3, 0.35), (0.4, 0.45, 1.0), (5.0, 0.75, 1.05)):
        plan = LogisticRegression(row_norm=1.0, delta=1e-6, epsilon=epsilon).plan(1500, 30)
        curve = expected_curve(plan, [epsilon], n_runs=6, random_state=3)
        share = (curve.scores.mean() - 0.5) / (curve.without_noise - 0.5)
        assert least < share < most, guidance(plan)


def test_the_picture_says_that_rows_are_generated():
    pytest.importorskip("matplotlib")
    curve = expected_curve(LogisticRegression(row_norm=1.0).plan(200, 3), random_state=0)
    figure = curve.figure()
    text = " ".join(one.get_text() for one in figure.texts)
    assert "generated rows" in text
    assert "Not your data" in text
    assert default_epsilons(LogisticRegression(row_norm=1.0).plan(200, 3)) == [
        0.03,
        0.1,
        0.3,
        1.0,
        3.0,
    ]
