"""Tests of terms, contrasts and pairs against independent formulas, and simultaneous coverage."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import dpglm
from dpglm.inference.comparisons import NamedEstimates, corrected
from dpglm.inference.estimates import Estimates
from dpglm.inference.inference import Inference, LinearScores
from dpglm.tables.encoding import NamedTerm

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.exceptions.LowSignalWarning")

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 20, "high": 80},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
        "dose": {"type": "categorical", "categories": ["low", "mid", "high"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "made up for tests",
}
FORMULA = "ill ~ age * sex + C(dose)"
NAMES = ("intercept", "age", "sex[T.m]", "C(dose)[T.mid]", "C(dose)[T.high]", "age:sex[T.m]")


@functools.cache
def table(n: int = 8000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    cells = {
        "age": rng.uniform(20.0, 80.0, n),
        "sex": rng.choice(["f", "m"], n),
        "dose": rng.choice(["low", "mid", "high"], n),
    }
    score = (
        0.04 * (cells["age"] - 50) + 0.5 * (cells["sex"] == "m") + 0.8 * (cells["dose"] == "high")
    )
    return cells | {"ill": np.where(score + rng.logistic(size=n) > 0.4, "yes", "no")}


@functools.cache
def fitted(formula: str = FORMULA, seed: int = 1) -> Any:
    model = dpglm.from_formula(
        formula, SCHEMA, epsilon=8.0, delta=1e-6, inference=True, random_state=dpglm_seed(seed)
    )
    return model.fit(table())


def dpglm_seed(seed: int) -> Any:
    from dpglm.privacy.noise import SeededNoise

    return SeededNoise(seed)


def with_estimates(
    params: np.ndarray, covariance: np.ndarray, freedom: float = math.inf
) -> Inference:
    """Return the inference of the fit with other estimates."""
    own = fitted().inference_
    size = len(params)
    estimates = Estimates(
        own.names, params, covariance, np.zeros((size, size)), np.eye(size), True, freedom
    )
    scores = LinearScores(own.scores.features, estimates)
    return Inference(estimates, own.certificate, scores, True)


def test_terms_are_those_of_the_formula():
    assert fitted().inference_.names == NAMES
    assert fitted().inference_.terms == ("age", "sex", "C(dose)", "age:sex")


def test_text_means_the_same_as_rows():
    inference = fitted().inference_
    rows = np.eye(len(NAMES))
    pairs = {
        "C(dose)": (rows[[3, 4]], 0.0),
        "age": (rows[1], 0.0),
        "`C(dose)[T.mid]` = C(dose)[T.high]": (rows[3] - rows[4], 0.0),
        "2 * age - 0.08 = 0": (rows[1], 0.04),
        "sex[T.m] / 2 + 1 = -age": (rows[2] / 2 + rows[1], -1.0),
        "age = 0.1, C(dose)": (rows[[1, 3, 4]], [0.1, 0.0, 0.0]),
        "C(dose)[T.mid] = C(dose)[T.high] = 0.5": (
            np.array([rows[3] - rows[4], rows[4]]),
            [0.0, 0.5],
        ),
        "age:sex - age": (rows[5] - rows[1], 0.0),
    }
    for text, (R, r) in pairs.items():
        found, expected = inference.wald_test(text), inference.wald_test(R, r)
        assert found == expected, text
    joint = inference.wald_test(["age = 0.1", "C(dose)"])
    assert joint == inference.wald_test(rows[[1, 3, 4]], [0.1, 0.0, 0.0])


@pytest.mark.parametrize(
    "text",
    ["C(dose) + age", "nothing = 1", "age * age", "age ** 2 = 1", "age =", "age = 1e999", "()",
     "__import__('os')", "age = sex[T.m] = 1 < 2", "1 / age"],
)  # fmt: skip
def test_text_that_is_not_linear_is_refused(text):
    with pytest.raises(ValueError, match=r"hypothesis|coefficients|number|restrict"):
        fitted().inference_.wald_test(text)


def test_names_that_contain_others_are_told_apart():
    named = NamedEstimates(
        ("a", "a:b", "ab", "b"), {one: NamedTerm(one, (one,), ()) for one in ("a", "b")}
    )
    rows, values = named.hypothesis("a:b - ab + 2*a = b")
    np.testing.assert_array_equal(rows, [[2.0, 1.0, -1.0, -1.0]])
    assert values.tolist() == [0.0]


def test_anova_agrees_with_chi_square_and_f():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(6, 6))
    params, covariance = rng.normal(size=6), root @ root.T
    places = {"age": [1], "sex": [2], "C(dose)": [3, 4], "age:sex": [5]}
    for freedom in (math.inf, 17.0):
        found = with_estimates(params, covariance, freedom).anova()
        assert list(found) == list(places)
        for term, own in places.items():
            part = params[own] @ np.linalg.inv(covariance[np.ix_(own, own)]) @ params[own]
            law = stats.chi2(len(own)) if math.isinf(freedom) else stats.f(len(own), freedom)
            part = part if math.isinf(freedom) else part / len(own)
            assert found[term].df == len(own)
            assert found[term].statistic == pytest.approx(part, rel=1e-9)
            assert found[term].p_value == pytest.approx(law.sf(part), rel=1e-9)
    assert "chi2" in str(fitted().inference_.anova())


def test_contrasts_agree_with_quadratic_forms():
    rng = np.random.default_rng(4)
    root = rng.normal(size=(6, 6))
    params, covariance = rng.normal(size=6), root @ root.T
    inference = with_estimates(params, covariance, 20.0)
    row = np.array([0.0, 0.0, 0.0, -1.0, 1.0, 0.0])
    ways = ({"C(dose)": [0, -1, 1]}, {"C(dose)": {"high": 1, "mid": -1}},
            "C(dose)[T.high] - C(dose)[T.mid]")  # fmt: skip
    for weights in ways:
        found = inference.contrast(weights)
        error = math.sqrt(row @ covariance @ row)
        assert found.estimates == pytest.approx([row @ params])
        assert found.standard_errors == pytest.approx([error])
        assert found.p_values == pytest.approx([2 * stats.t(20).sf(abs(row @ params) / error)])
        half = stats.t(20).ppf(0.975) * error
        assert found.intervals[0] == pytest.approx([row @ params - half, row @ params + half])
    mixed = inference.contrast({"age": 10, "C(dose)": [-1, 0.5, 0.5]})
    expected = np.array([0.0, 10.0, 0.0, 0.5, 0.5, 0.0])
    assert mixed.estimates == pytest.approx([expected @ params])


@pytest.mark.parametrize(
    "weights",
    [{"C(dose)": [1, 0, 0]}, {"C(dose)": [1, -1]}, {"C(dose)": {"none": 1, "low": -1}},
     {"nothing": 1}, {}, 3, [], {"C(dose)": "ab"}, {"age": [1, 2]}, {"age": None},
     {"C(dose)": [math.nan, 0, 0]}, "age = 1"],
)  # fmt: skip
def test_contrast_that_is_not_identified_is_refused(weights):
    with pytest.raises(ValueError, match=r"must (be|have)"):
        fitted().inference_.contrast(weights)


def test_pairs_are_all_differences_of_levels():
    inference = fitted().inference_
    found = inference.pairwise("C(dose)", correction="none")
    assert found.names == ("mid - low", "high - low", "high - mid")
    levels = np.array([0.0, *inference.estimates.params[[3, 4]]])
    expected = [levels[j] - levels[i] for i, j in itertools.combinations(range(3), 2)]
    assert found.estimates == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"categorical one, of \['sex', 'C\(dose\)'\]"):
        inference.pairwise("age")


def test_corrections_agree_with_their_definitions():
    p = np.array([0.01, 0.04, 0.03, 0.2])
    z, root = stats.norm.isf(p / 2), np.eye(4)
    adjusted, critical = corrected("bonferroni", z, p, root, math.inf, 0.95)
    assert adjusted == pytest.approx([0.04, 0.16, 0.12, 0.8])
    assert critical == pytest.approx(stats.norm.ppf(1 - 0.05 / 8))
    adjusted, _ = corrected("holm", z, p, root, math.inf, 0.95)
    assert adjusted == pytest.approx([0.04, 0.09, 0.09, 0.2])
    # Independent errors: Šidák's correction is exact.
    adjusted, critical = corrected("simultaneous", z, p, root, math.inf, 0.95)
    assert adjusted == pytest.approx(1 - (1 - p) ** 4, abs=0.01)
    assert critical == pytest.approx(stats.norm.ppf(0.5 + 0.5 * 0.95**0.25), abs=0.03)
    # One error in all of them: no correction.
    _, critical = corrected("simultaneous", z, p, np.ones((4, 1)), 7.0, 0.95)
    assert critical == pytest.approx(stats.t(7).ppf(0.975), abs=0.05)


def coverage(inference: Inference, covariance: np.ndarray, correction: str) -> float:
    """Return how often all intervals of pairs cover the truth, for estimates of that covariance."""
    rng = np.random.default_rng(5)
    truth = np.array([0.1, 0.0, 0.2, 0.3, -0.2, 0.0])
    draws = rng.multivariate_normal(truth, covariance, size=1500)
    levels = np.array([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, -1, 1, 0]], dtype=float)
    found = inference.pairwise("C(dose)", correction=correction)
    half = 0.5 * (found.intervals[:, 1] - found.intervals[:, 0])
    return float((np.abs((draws - truth) @ levels.T) <= half).all(axis=1).mean())


def test_simultaneous_intervals_cover_together():
    inference = fitted().inference_
    covariance = inference.covariance
    assert 0.935 < coverage(inference, covariance, "simultaneous") < 0.965
    assert coverage(inference, covariance, "bonferroni") > 0.945
    # Intervals without a correction are too short: the planted error is found.
    assert coverage(inference, covariance, "none") < 0.92


@pytest.mark.slow
def test_simultaneous_pairs_cover_over_private_fits():
    truth, inside = np.array([0.0, 0.8, 0.8]), []
    for seed in range(120):
        rng = np.random.default_rng(1000 + seed)
        n = 4000
        cells = {"age": rng.uniform(20, 80, n), "sex": rng.choice(["f", "m"], n),
                 "dose": rng.choice(["low", "mid", "high"], n)}  # fmt: skip
        score = 0.03 * (cells["age"] - 50) + 0.8 * (cells["dose"] == "high")
        cells["ill"] = np.where(score + rng.logistic(size=n) > 0.0, "yes", "no")
        model = dpglm.from_formula("ill ~ age + C(dose)", SCHEMA, epsilon=2.0, delta=1e-5,
                                   inference=True, random_state=dpglm_seed(seed))  # fmt: skip
        ends = model.fit(cells).inference_.pairwise("C(dose)").intervals
        inside.append(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).all())
    assert 0.89 <= np.mean(inside) <= 1.0


def test_inestimable_values_are_marked():
    inference = fitted().inference_
    size = len(NAMES)
    prior = np.eye(size)
    own = inference.estimates
    covariance = np.diag([0.01, 0.01, 0.01, 0.9, 0.01, 0.01])
    estimates = Estimates(own.names, own.params, covariance, np.zeros((size, size)), np.eye(size),
                          True, prior=prior)  # fmt: skip
    found = Inference(estimates, inference.certificate, inference.scores, True)
    pairs = found.pairwise("C(dose)")
    assert pairs.of_prior == ("mid - low", "high - mid")
    assert "prior's" in str(pairs)


def test_interactions_are_named_next_to_main_effects():
    text = " ".join(str(fitted().inference_.contrast({"sex": [-1, 1]})).split())
    assert "Effects at the reference or at zero of 'age'" in text
    assert "at zero of" not in str(fitted().inference_.pairwise("C(dose)"))


def test_models_without_a_schema_have_a_term_for_each_name():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 2))
    y = X[:, 0] + rng.logistic(size=4000) > 0
    model = dpglm.LogisticRegression(
        inference=True, classes=[False, True], feature_bounds=(-1, 1), epsilon=8.0
    ).fit(X, y)
    assert model.inference_.terms == ("x0", "x1")
    assert list(model.inference_.anova()) == ["x0", "x1"]
    assert model.inference_.wald_test("x0 = x1").df == 1
    with pytest.raises(ValueError, match="schema"):
        model.inference_.curve("x0")


def test_additive_models_have_terms_of_columns():
    model = dpglm.AdditiveClassifier(SCHEMA, epsilon=8.0, delta=1e-6, inference=True).fit(table())
    assert model.inference_.terms == ("age", "sex", "dose")
    found = model.inference_.anova()
    assert found["dose"].df == 2
    assert found["age"].df > 2
    assert model.inference_.pairwise("dose").names == ("mid - low", "high - low", "high - mid")


def test_pairs_do_not_depend_on_the_coding():
    whole = dpglm.from_formula(
        "ill ~ C(dose, Treatment(reference='mid')) + age", SCHEMA, epsilon=8.0, delta=1e-6,
        inference=True, random_state=dpglm_seed(1),
    ).fit(table()).inference_  # fmt: skip
    term = whole.terms[0]
    found = whole.pairwise(term)
    levels = dict(zip(("low", "mid", "high"), (whole.params[1], 0.0, whole.params[2]), strict=True))
    assert found.estimates[1] == pytest.approx(levels["high"] - levels["low"])
