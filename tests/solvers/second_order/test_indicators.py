"""Second moments of indicators obey equations, which noise in them does not."""

import math
import warnings

import numpy as np
import pytest

import dpglm
from dpglm import LinearRegression, LogisticRegression
from dpglm.data.rows import DataSpec
from dpglm.preprocessing import SchemaEncoder
from dpglm.privacy import ApproximateDP
from dpglm.problem import Logistic, Problem
from dpglm.solvers import NewtonRaphson
from dpglm.solvers.second_order import newton_raphson_method, sufficient_statistics_method
from dpglm.solvers.second_order.posterior import noisy_hessian
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    prior_of_columns,
    with_products_of_indicators,
)
from dpglm.tables.schema import Schema

INTERCEPT = 0.5
FACTORS = ((1, 7, 1.0 / 6.0), (7, 27, 0.05))


def rows(rng, n=3000):
    """A number, factors of 6 and 20 levels next to a reference, and the constant."""
    parts = [rng.uniform(-1.0, 1.0, size=(n, 1))]
    for start, stop, center in FACTORS:
        level = rng.integers(stop - start + 1, size=(n, 1))
        parts.append((level == np.arange(stop - start)) - center)
    return np.hstack([*parts, np.full((n, 1), INTERCEPT)])


def noise_of(rng, size, deviation):
    drawn = rng.normal(size=(size, size))
    return deviation * (drawn + drawn.T) / 2.0


def setting(seed):
    """Weighted second moments in coordinates that are far from the columns' own."""
    rng = np.random.default_rng(seed)
    X = rows(rng)
    root = np.linalg.cholesky(X.T @ X / len(X) + 0.01 * np.eye(X.shape[1]))
    basis = Basis(np.linalg.inv(root).T, root.T)
    z = X @ basis.vectors
    return rng, basis, (z * rng.uniform(0.1, 0.25, size=(len(z), 1))).T @ z / len(z)


def test_projection_keeps_true_moments_and_is_the_nearest_point():
    rng, basis, truth = setting(0)
    kept, _ = with_products_of_indicators(truth, basis, FACTORS, INTERCEPT)
    np.testing.assert_allclose(kept, truth, atol=1e-9)
    noise = noise_of(rng, len(truth), 0.03)
    found, shares = with_products_of_indicators(truth + noise, basis, FACTORS, INTERCEPT)
    again, _ = with_products_of_indicators(found, basis, FACTORS, INTERCEPT)
    np.testing.assert_allclose(again, found, atol=0.03 * np.abs(noise).max())
    # What is removed is orthogonal to what is left, so the error cannot grow.
    removed, left = truth + noise - found, found - truth
    assert abs(np.sum(removed * left)) < 0.01 * np.sum(noise**2)
    # The equations number k (k + 1) / 2 for k indicators.
    size = len(truth)
    count = sum((b - a) * (b - a + 1) for a, b, _ in FACTORS) / (size * (size + 1.0))
    assert shares.mean() == pytest.approx(1.0 - count, abs=0.03)
    assert (shares[0] == 1.0).all()
    assert np.sum(left**2) / np.sum(noise**2) == pytest.approx(1.0 - count, abs=0.1)


def test_products_of_levels_vanish_in_the_columns_own_coordinates():
    rng, basis, truth = setting(1)
    seen = truth + noise_of(rng, len(truth), 0.03)
    found, _ = with_products_of_indicators(seen, basis, FACTORS, INTERCEPT)
    back = np.eye(len(truth))
    for start, stop, center in FACTORS:
        back[start:stop, -1] = center / INTERCEPT
    into = back @ basis.inverse.T
    own, before = into @ found @ into.T, into @ seen @ into.T
    for start, stop, _ in FACTORS:
        block = own[start:stop, start:stop]
        scale = np.abs(before[start:stop, start:stop]).max()
        off = block - np.diag(np.diag(block))
        assert np.abs(off).max() < 0.03 * scale
        gap = np.diag(block) - own[start:stop, -1] / INTERCEPT
        assert np.abs(gap).max() < 0.03 * scale


def test_errors_of_the_projected_hessian_are_reported():
    """Planted: noise in levels removed twice."""
    noise, ratios, planted = 0.03, [], []
    for seed in range(40):
        rng, basis, truth = setting(seed)
        seen = truth + noise_of(rng, len(truth), noise)
        found, shares = with_products_of_indicators(seen, basis, FACTORS, INTERCEPT)
        for kept, into in ((shares, ratios), (shares * shares.mean(axis=1), planted)):
            hessian = noisy_hessian(found, noise, kept)
            into.append(np.sum((hessian.mean - truth) ** 2) / hessian.variances.sum())
    assert 0.35 < np.mean(ratios) < 0.8
    assert np.mean(planted) > 0.9


WARDS = [f"w{one:02d}" for one in range(50)]
NUMBER = {"type": "numeric", "low": -1, "high": 1}
COLUMNS = {"dose": NUMBER, "age": NUMBER, "ward": {"type": "categorical", "categories": WARDS}}
TARGETS = {
    "logistic": {"name": "y", "type": "binary", "classes": ["no", "yes"]},
    "linear": {"name": "y", "type": "numeric", "low": -8, "high": 8},
}
MODELS = {
    "logistic": LogisticRegression(C=np.inf, inference=True),
    "linear": LinearRegression(inference=True),
}
FORMULA = "y ~ dose + age + C(ward)"


def schema(kind):
    return Schema.from_dict({"columns": COLUMNS, "provenance": "made up", "target": TARGETS[kind]})


def table(rng, kind, n=20_000):
    """Rows of wards with sizes in proportion to 1, 1/2, 1/3, and so on; true coefficients."""
    shares, effects = 1.0 / np.arange(1, 51), np.random.default_rng(5).normal(0.0, 0.5, 50)
    ward, (dose, age) = rng.choice(50, n, p=shares / shares.sum()), rng.uniform(-1, 1, size=(2, n))
    score = dose - 0.5 * age + effects[ward] - 0.5
    columns = {"dose": dose, "age": age, "ward": np.array(WARDS)[ward]}
    if kind == "linear":
        columns["y"] = score + rng.normal(size=n)
    else:
        columns["y"] = np.where(score + rng.logistic(size=n) > 0.0, "yes", "no")
    return columns, np.array([1.0, -0.5, *(effects[1:] - effects[0])])


def test_formulas_declare_their_indicators():
    columns, _ = table(np.random.default_rng(0), "logistic", n=500)
    encoder = SchemaEncoder(schema("logistic"), formula=FORMULA).fit(columns)
    ((start, stop, center),) = encoder.schema_.encoding.indicators
    own = np.asarray(encoder.transform(columns))[:, start:stop] + center
    np.testing.assert_allclose(own * own, own, atol=1e-12)
    assert own.sum(axis=1).max() <= 1.0 + 1e-12
    assert stop - start == 49
    # Without a reference, indicators are as they are.
    assert schema("logistic").encoding.indicators == ((2, 52, 0.0),)


def test_shares_are_those_of_noise_in_squares_and_products_with_the_constant():
    """Planted: all noise is left in the products, and none in the squares."""
    rng, basis, truth = setting(0)
    left, drawn = np.zeros_like(truth), np.zeros_like(truth)
    for _ in range(20):
        noise = noise_of(rng, len(truth), 1.0)
        found, shares = with_products_of_indicators(truth + noise, basis, FACTORS, INTERCEPT)
        left, drawn = left + (found - truth) ** 2, drawn + noise**2
    for of_levels in (np.diag, lambda matrix: matrix[-1]):
        one, stated = (of_levels(matrix)[1:-1].mean() for matrix in (left / drawn, shares))
        assert stated == pytest.approx(one, abs=0.45)


def test_intervals_of_few_levels_with_strong_effects_cover():
    """Planted: noise in squares does not count, and coverage is 0.88."""
    levels, effects = [f"l{k}" for k in range(5)], np.array([0.0, 1.5, -1.5, 1.5, -1.5])
    known = Schema.from_dict(
        {
            "columns": {"g": {"type": "categorical", "categories": levels}},
            "provenance": "made up",
            "target": {"name": "y", "type": "numeric", "low": -4, "high": 4},
        }
    )
    errors, sizes = [], np.geomspace(1.0, 0.1, 5)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        g = rng.choice(5, 2000, p=sizes / sizes.sum())
        y = effects[g] + rng.normal(0.0, 0.5, 2000)
        model = dpglm.from_formula("y ~ C(g)", known, MODELS["linear"], epsilon=0.3, delta=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.set_params(random_state=seed).fit({"g": np.array(levels)[g], "y": y})
        found = model.inference_
        errors.append((found.params[1:] - effects[1:]) / found.standard_errors[1:])
    assert np.mean(np.abs(errors) < 1.96) > 0.92
    assert np.sqrt(np.mean(np.square(errors))) < 1.12


def test_rows_that_are_shortened_or_scaled_have_no_indicators():
    known = schema("logistic")
    for facts in ({}, {"row_norm": known.row_norm}):
        assert LogisticRegression(**facts)._indicators(known) == known.encoding.indicators
    for facts in ({"row_norm": 0.9 * known.row_norm}, {"feature_bounds": (-1.0, 1.0)}):
        assert LogisticRegression(**facts)._indicators(known) == ()
    assert LogisticRegression()._indicators(None) == ()


@pytest.mark.parametrize(("kind", "epsilon"), [("logistic", 0.4), ("linear", 1.0)])
def test_standard_errors_of_levels_gain_from_the_equations(kind, epsilon, monkeypatch):
    """Planted: a Hessian as it was released."""

    def errors():
        found = []
        for seed in range(4):
            columns, truth = table(np.random.default_rng(seed), kind)
            model = dpglm.from_formula(FORMULA, schema(kind), MODELS[kind], epsilon=epsilon)
            model.set_params(random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                own = model.fit(columns).inference_
            found.append([own.params[1:] - truth, own.standard_errors[1:]])
        return np.array(found)

    found = errors()
    over_reported = math.sqrt(np.mean((found[:, 0] / found[:, 1]) ** 2))
    assert {"logistic": 0.7, "linear": 0.85}[kind] < over_reported < 1.15
    for module in (newton_raphson_method, sufficient_statistics_method):
        monkeypatch.setattr(
            module,
            "with_products_of_indicators",
            lambda matrix, *_: (matrix, np.ones_like(matrix)),
        )
    planted = errors()
    shorter = np.median(found[:, 1], axis=0) / np.median(planted[:, 1], axis=0)
    assert np.median(shorter) < {"logistic": 0.95, "linear": 0.7}[kind]
    assert shorter[:3].max() < {"logistic": 0.9, "linear": 0.95}[kind]


def test_ranges_must_increase_within_the_columns():
    problem, data = Problem(Logistic()), DataSpec(10_000, 5, intercept=1.0)
    for wrong in (((0, 0, 0.5),), ((0, 3, 0.5), (2, 4, 0.5)), ((3, 6, 0.5),)):
        solver = NewtonRaphson(inference="model", indicators=wrong)
        with pytest.raises(ValueError, match="indicators must be increasing ranges within the 5"):
            solver.plan(problem, ApproximateDP(1.0, 1e-5), data)


@pytest.mark.parametrize("wrong", [((1.5, 2, 0.5),), ((1, 2),), ((1, 2, "half"),)])
def test_ranges_have_two_places_and_a_number(wrong):
    with pytest.raises(ValueError, match="indicators must be"):
        NewtonRaphson(indicators=wrong)


@pytest.mark.parametrize("center", [0.0, 0.2])
def test_prior_of_a_factor_does_not_depend_on_its_reference(center):
    """All differences of two levels have the same prior; without a reference, levels have."""
    size = 7
    data = DataSpec(1000, size, row_norm=1.0, intercept=INTERCEPT)
    same, levels = Basis(np.eye(size + 1), np.eye(size + 1)), ((1, 6, center),)
    of_columns = np.full(size, 0.1), np.full(size, 0.2), 1e-6
    found, _ = prior_of_columns(same, *of_columns, None, (2.5,) * size, data, levels)
    for prior in (found.declared, found.usual):
        differences = np.eye(size)[2:6] - np.eye(size)[1]
        variances = np.einsum("ij,jk,ik->i", differences, prior[:size, :size], differences)
        np.testing.assert_allclose(np.diag(prior)[:size], 2.5**2)
        np.testing.assert_allclose(variances, 2.5**2 * (1.0 if center else 2.0))
        assert prior[0, 1:size] == pytest.approx(0.0)
        assert prior[6, :6] == pytest.approx(0.0)


def test_strong_effects_against_a_rare_reference_are_covered(monkeypatch):
    """Planted: independent effects, so that the prior of their mean is too narrow."""
    levels, shares = [f"l{k}" for k in range(8)], np.array([0.0064] + [0.9936 / 7] * 7)
    column = {"type": "categorical", "categories": levels}
    known = Schema.from_dict(
        {"columns": {"g": column}, "provenance": "made up", "target": TARGETS["logistic"]}
    )

    def coverage():
        covered = []
        for seed in range(30):
            rng = np.random.default_rng(seed)
            effects, g = rng.normal(0.0, 1.5, 8), rng.choice(8, 10_000, p=shares)
            score = effects[g] - effects.mean() + rng.logistic(size=len(g))
            columns = {"g": np.array(levels)[g], "y": np.where(score > 0.0, "yes", "no")}
            model = dpglm.from_formula("y ~ C(g)", known, MODELS["logistic"], epsilon=1.0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                own = model.set_params(random_state=seed).fit(columns).inference_
            low, high = own.conf_int()[1:].T
            true = effects[1:] - effects[0]
            covered.append((low <= true) & (true <= high))
        return np.mean(covered)

    found = coverage()
    sound = newton_raphson_method.prior_of_columns
    monkeypatch.setattr(newton_raphson_method, "prior_of_columns", lambda *args: sound(*args[:-1]))
    planted = coverage()
    assert found > 0.88
    assert planted < 0.82
