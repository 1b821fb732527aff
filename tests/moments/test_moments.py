"""Models from released moments: exact answers without noise, and honest ones with it."""

import dataclasses
import json
import math

import numpy as np
import pytest

import dpglm
from dpglm.certificate.verify import verify
from dpglm.ledger import PrivacyLedger
from dpglm.moments import moments as module
from dpglm.moments.regression import NoisyMoments
from dpglm.privacy import ApproximateDP, GaussianDP

N = 4000
LEVELS = np.array(["a", "b", "c"])
SCHEMA = {
    "columns": {
        "x": {"type": "numeric", "low": -3, "high": 3},
        "z": {"type": "numeric", "low": -4, "high": 4},
        "g": {"type": "categorical", "categories": ["a", "b", "c"]},
    },
    "target": {"name": "y", "type": "numeric", "low": -20, "high": 20},
    "provenance": "made up",
}


def made(seed=0, n=N):
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(size=n), -3, 3)
    z = np.clip(0.5 * x + rng.normal(size=n), -4, 4)
    g = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    y = 1.0 + 0.8 * x - 0.5 * z + 0.6 * (g == 1) - 0.4 * (g == 2) + rng.normal(size=n)
    return {"x": x, "z": z, "g": LEVELS[g], "y": y}


TABLE = made()
TERMS = ["I(x**2)", "x:g", "bs(z, df=6)"]


@pytest.fixture(scope="module")
def exact():
    """Moments with negligible noise and without down-weighted rows."""
    return dpglm.release_moments(
        TABLE, SCHEMA, terms=TERMS, weighting="none", budget=GaussianDP(1e7), random_state=0
    )


def least_squares(*columns, y=TABLE["y"]):
    X = np.column_stack([np.ones(N), *columns])
    inverse = np.linalg.inv(X.T @ X)
    beta = inverse @ X.T @ y
    variance = np.mean((y - X @ beta) ** 2)
    return beta, np.sqrt(variance * np.diag(inverse)), 1.0 - variance / np.var(y)


IS_B, IS_C = TABLE["g"] == "b", TABLE["g"] == "c"
FORMULAS = {
    "y ~ x + z + C(g)": (TABLE["x"], TABLE["z"], IS_B, IS_C),
    "y ~ x + I(x**2)": (TABLE["x"], TABLE["x"] ** 2),
    "y ~ x * g": (TABLE["x"], IS_B, IS_C, TABLE["x"] * IS_B, TABLE["x"] * IS_C),
    "y ~ I(2 * x - 1)": (2.0 * TABLE["x"] - 1.0,),
    "y ~ I((x - 1)**2) + x": (TABLE["x"], (TABLE["x"] - 1.0) ** 2),
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_regress_without_noise_equals_least_squares(exact, formula):
    model = exact.regress(formula)
    beta, errors, r_squared = least_squares(*FORMULAS[formula])
    order = np.argsort(beta)
    assert np.allclose(np.sort(model.inference_.params), beta[order], rtol=1e-3, atol=1e-3)
    found = model.inference_.standard_errors[np.argsort(model.inference_.params)]
    assert np.allclose(found, errors[order], rtol=1e-2)
    assert model.r_squared == pytest.approx(r_squared, abs=1e-3)


def test_regress_takes_any_released_column_as_target(exact):
    model = exact.regress("z ~ x + y")
    beta, errors, _ = least_squares(TABLE["x"], TABLE["y"], y=TABLE["z"])
    assert np.allclose(model.inference_.params, beta, rtol=1e-3, atol=1e-3)
    assert np.allclose(model.inference_.standard_errors, errors, rtol=1e-2)


def test_predict_of_table_is_the_linear_model(exact):
    beta, _, _ = least_squares(TABLE["x"], IS_B, IS_C)
    few = {name: TABLE[name][:5] for name in ("x", "g")}
    wanted = np.column_stack([np.ones(5), few["x"], few["g"] == "b", few["g"] == "c"]) @ beta
    assert np.allclose(exact.regress("y ~ x + g").predict(few), wanted, atol=1e-2)


def test_term_outside_the_span_is_named(exact):
    with pytest.raises(ValueError, match=r"'np.exp\(x\)' is not a combination of the released"):
        exact.regress("y ~ np.exp(x)")
    with pytest.raises(ValueError, match="x:z"):
        exact.regress("y ~ x:z")


@pytest.mark.parametrize("formula", ["y", "y ~ x ~ z", "g ~ x", "y ~ y + x", 3, "~ x"])
def test_formula_without_one_target_is_refused(exact, formula):
    with pytest.raises(ValueError, match="formula"):
        exact.regress(formula)


def test_two_stage_removes_confounding():
    rng = np.random.default_rng(1)
    hidden, instrument = rng.normal(size=(2, N))
    x = np.clip(0.8 * instrument + hidden + 0.3 * rng.normal(size=N), -4, 4)
    table = {"x": x, "z": instrument, "g": TABLE["g"], "y": 0.7 * x + 2.0 * hidden}
    schema = {**SCHEMA, "columns": {**SCHEMA["columns"], "x": SCHEMA["columns"]["z"]}}
    found = dpglm.release_moments(
        table, schema, weighting="none", budget=GaussianDP(1e7), random_state=0
    )
    plain = found.regress("y ~ x").inference_
    staged = found.two_stage("y ~ x", "~ z").inference_
    assert plain.params[1] > 1.2
    assert staged.params[1] == pytest.approx(0.7, abs=4.0 * staged.standard_errors[1])
    # The classical variance of the estimate.
    centred = instrument - instrument.mean()
    wanted = 2.0 / math.sqrt(N) * np.std(instrument) / abs(np.mean(centred * x))
    assert staged.standard_errors[1] == pytest.approx(wanted, rel=0.1)
    with pytest.raises(ValueError, match="instruments must have at least 4 columns"):
        found.two_stage("y ~ x + g", "~ z")


def test_correlations_and_partial_correlations(exact):
    r = np.corrcoef(TABLE["x"], TABLE["y"])[0, 1]
    found = exact.correlation("x", "y")
    assert found.estimate == pytest.approx(r, abs=1e-3)
    assert found.standard_error == pytest.approx((1 - r * r) / math.sqrt(N), rel=1e-2)
    held = np.column_stack([np.ones(N), TABLE["z"], IS_B, IS_C])
    left = [v - held @ np.linalg.lstsq(held, v, rcond=None)[0] for v in (TABLE["x"], TABLE["y"])]
    partial = exact.correlation("x", "y", ["z", "g"])
    assert partial.estimate == pytest.approx(np.corrcoef(*left)[0, 1], abs=1e-3)
    assert partial.low < partial.estimate < partial.high
    assert set(exact.correlations()) == {("x", "z"), ("x", "y"), ("z", "y")}


def test_components_are_those_of_the_correlation_matrix(exact):
    found = exact.components(["x", "z", "y"])
    first = ", ".join(f"{a} {b:+.3f}" for a, b in zip("xzy", found.loadings[0], strict=True))
    heading, line, *others = str(found).splitlines()
    assert (heading, len(others)) == ("share of the variance (standard error): loadings", 2)
    assert line == f"{found.shares[0]:.4f} ({found.standard_errors[0]:.4f}): {first}"
    matrix = np.corrcoef([TABLE["x"], TABLE["z"], TABLE["y"]])
    values, directions = np.linalg.eigh(matrix)
    assert np.allclose(found.shares, values[::-1] / 3.0, atol=1e-3)
    assert np.allclose(np.abs(found.loadings[0]), np.abs(directions[:, -1]), atol=1e-2)


def test_variance_inflation_of_two_columns(exact):
    r = np.corrcoef(TABLE["x"], TABLE["z"])[0, 1]
    found = exact.variance_inflation("y ~ x + z")
    assert found["x"] == pytest.approx(1.0 / (1.0 - r * r), rel=1e-3)


def test_ridge_penalty_is_that_of_standardised_columns(exact):
    centred = np.column_stack([TABLE["x"], TABLE["z"]])
    centred = (centred - centred.mean(axis=0)) / centred.std(axis=0)
    inside = centred.T @ centred + 500.0 * np.eye(2)
    wanted = np.linalg.solve(inside, centred.T @ (TABLE["y"] - TABLE["y"].mean()))
    found = exact.regress("y ~ x + z", penalty=500.0).inference_.params[1:]
    assert np.allclose(found * [TABLE["x"].std(), TABLE["z"].std()], wanted, rtol=0.02)


def test_penalty_of_terms_shrinks_noise_and_keeps_curves(exact):
    smooth = exact.regress("y ~ bs(z, df=6) + x + g", penalty="terms")
    assert set(smooth.scales) == {"bs(z, df=6)", "g"}
    low, high = smooth.scales["g"][1:]
    assert 0.0 < low < smooth.scales["g"][0] < high
    plain = exact.regress("y ~ bs(z, df=6) + x + g")
    assert (
        smooth.inference_.standard_errors[1:7].sum() < plain.inference_.standard_errors[1:7].sum()
    )


def test_compare_tests_the_terms_that_are_added(exact):
    found = exact.compare("y ~ x", "y ~ x + z + g")
    assert found.added == ("z", "g[T.b]", "g[T.c]")
    assert found.test.df == 3
    assert found.test.p_value < 1e-6
    assert found.r_squared[0] < found.r_squared[1]
    with pytest.raises(ValueError, match="smaller must be a model of the same target"):
        exact.compare("y ~ z", "y ~ x")


@pytest.mark.parametrize("method", ["stepwise", "exhaustive"])
def test_select_drops_terms_without_effect(exact, method):
    found = exact.select("y ~ x + z + g + I(x**2)", method=method)
    assert set(found.model.inference_.names) == {"intercept", "x", "z", "g[T.b]", "g[T.c]"}
    assert found.n_possible == 15
    assert found.critical_value > 2.5
    ends, single = found.conf_int(), found.model.inference_.conf_int()
    assert (ends[:, 0] < single[:, 0]).all()


def test_dates_and_missing_values_are_columns(tmp_path):
    rng = np.random.default_rng(0)
    days, gap = rng.integers(0, 700, N), rng.random(N) < 0.2
    opened = np.datetime64("2020-01-01") + days
    sunday = (days + 2) % 7 == 6  # 2020-01-01 was a Wednesday.
    y = 0.01 * days + 2.0 * sunday + 1.5 * gap + rng.normal(size=N)
    table = {"opened": opened, "x": np.where(gap, np.nan, rng.uniform(-3, 3, N)), "y": y}
    date = {"type": "date", "low": "2020-01-01", "high": "2021-12-31"}
    schema = SCHEMA | {
        "columns": {
            "opened": date | {"parts": {"weekday": "categorical"}},
            "x": {"low": -3, "high": 3, "missing": {"value": 0, "indicator": True}},
        }
    }
    found = dpglm.release_moments(
        table, schema, weighting="none", budget=GaussianDP(1e7), random_state=0
    )
    found.save(tmp_path / "moments.json")
    dummies = [(days + 2) % 7 == day for day in range(1, 7)]
    expected, errors, _ = least_squares(days, *dummies, gap, np.nan_to_num(table["x"]), y=y)
    for moments in (found, module.load_moments(tmp_path / "moments.json")):
        fit = moments.regress("y ~ opened + opened_weekday + x_missing + x")
        assert fit.inference_.params[1:] == pytest.approx(expected[1:], abs=2e-3)
        assert fit.inference_.standard_errors[1:] == pytest.approx(errors[1:], rel=0.01)
        predicted = expected[0] + np.column_stack([days, *dummies, gap]) @ expected[1:-1]
        predicted += np.nan_to_num(table["x"]) * expected[-1]
        assert fit.predict(table) == pytest.approx(predicted, abs=2e-2)


def test_saved_moments_give_the_same_answers(exact, tmp_path):
    path = tmp_path / "moments.json"
    exact.save(path)
    again = dpglm.load_moments(path)
    formula = "y ~ x + z"
    assert np.array_equal(
        again.regress(formula).inference_.params, exact.regress(formula).inference_.params
    )
    document = json.loads(path.read_text())
    document["values"][0] += 1.0
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="values must be those that the certificate is about"):
        dpglm.load_moments(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("schema", "columns", "x", "high"), 30),
        (("columns",), ["x", "z", "g"]),
        (("terms",), []),
    ],
)
def test_moments_of_another_schema_are_refused(exact, tmp_path, place, value):
    path = tmp_path / "moments.json"
    exact.save(path)
    document = json.loads(path.read_text())
    *above, last = place
    node = document
    for name in above:
        node = node[name]
    node[last] = value
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="schema, columns and terms must be those of the cert"):
        dpglm.load_moments(path)


def bias_of_weights(n=200_000):
    """Return the change of estimates by weights, in standard errors, for skewed residuals."""
    rng = np.random.default_rng(0)
    x, z = rng.exponential(2.0, (2, n)).clip(0, 20)
    table = {"x": x, "z": z, "y": (0.5 * x + rng.exponential(2.0, n)).clip(0, 40)}
    column = {"type": "numeric", "low": 0, "high": 20}
    schema = {
        "columns": {"x": column, "z": column},
        "target": {"name": "y", "type": "numeric", "low": 0, "high": 40},
        "provenance": "made up",
    }
    found = [
        dpglm.release_moments(
            table, schema, weighting=weighting, budget=GaussianDP(100.0), random_state=0
        ).regress("y ~ x")
        for weighting in ("auto", "none")
    ]
    few, every = (one.inference_ for one in found)
    return float(np.abs((few.params - every.params) / every.standard_errors).max())


def test_weights_bias_less_than_sampling_error(monkeypatch):
    assert bias_of_weights() < 0.3
    monkeypatch.setattr(module, "_LONG_OVER_ROOT", math.inf)
    assert bias_of_weights() > 0.5


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
@pytest.mark.parametrize("weighting", ["auto", "none"])
def test_cost_of_release_is_the_budget(adjacency, weighting):
    size = {"n_rows": N} if adjacency == "add_remove" else {}
    found = dpglm.release_moments(
        TABLE,
        SCHEMA,
        adjacency=adjacency,
        weighting=weighting,
        budget=GaussianDP(0.5),
        random_state=0,
        **size,
    )
    made = found.privacy_
    # Independently: the squares of sensitivity over noise of all releases add up.
    spent = math.fsum(
        (one.sensitivity / scale) ** 2
        for one, scale in zip(made.part.releases, made.part.noise_scales, strict=True)
    )
    assert 0.24 < spent <= 0.25 * (1.0 + 1e-9)
    assert verify(made).ok


def test_rows_that_count_less_are_few():
    table = made(seed=3, n=40_000)
    found = dpglm.release_moments(table, SCHEMA, random_state=1)
    released = found.released
    assert released.long_rows <= 0.01 + 4.0 * released.long_noise
    everyone = dpglm.release_moments(table, SCHEMA, weighting="none", random_state=1)
    assert everyone.weighting == ""
    assert (
        found.regress("y ~ x + z").inference_.standard_errors[1]
        < (everyone.regress("y ~ x + z").inference_.standard_errors[1])
    )


def coverage(runs, spoil=lambda moments: None):
    """Return the share of intervals of six coefficients that cover the truth."""
    covered = []
    for run in range(runs):
        found = dpglm.release_moments(
            made(seed=100 + run, n=3000), SCHEMA, epsilon=0.5, random_state=run
        )
        spoil(found)
        ends = found.regress("y ~ x + z + g").inference_.conf_int()
        truth = np.array([1.0, 0.8, -0.5, 0.6, -0.4])
        covered.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    return float(np.mean(covered))


def test_intervals_cover_and_a_forgotten_noise_does_not():
    assert 0.9 <= coverage(30) <= 1.0

    def forget(found):
        space, known = found._space, found._space.moments
        moments = NoisyMoments(known.matrix, 1e-6 * known.variances)
        found.__dict__["_space"] = dataclasses.replace(space, moments=moments)

    assert coverage(30, forget) < 0.85


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("columns", ["q"]),
        ("columns", "x"),
        ("terms", "x"),
        ("terms", [3]),
        ("formula", ["scale(x)"]),
        ("weighting", "some"),
        ("epsilon", 0.0),
        ("adjacency", "none"),
    ],
)
def test_argument_is_checked_before_anything_is_spent(tmp_path, argument, value):
    path = tmp_path / "ledger.db"
    ledger = PrivacyLedger.create(path, data="made up", budget=ApproximateDP(1.0, 1e-5))
    name = "terms" if argument == "formula" else argument
    with pytest.raises(ValueError, match=argument):
        dpglm.release_moments(TABLE, SCHEMA, ledger=ledger, **{"delta": 1e-6, name: value})
    assert not ledger.contents().entries


def test_people_are_protected_with_all_their_rows():
    ids = np.repeat(np.arange(N // 4), 4)
    found = dpglm.release_moments(
        TABLE, SCHEMA, groups=ids, max_rows_per_group=4, epsilon=4.0, random_state=0
    )
    plain = found.regress("y ~ x").inference_
    wide = found.regress("y ~ x", design_effect=4.0).inference_
    assert (wide.standard_errors > plain.standard_errors).all()
    assert "Rows of a person are assumed to be independent" in str(plain)
