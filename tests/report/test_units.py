"""Effects are stated in the units of the user's table, wherever they are shown."""

import re

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from dpglm import LinearRegression, LogisticRegression, PoissonRegressor, PrivatePipeline
from dpglm.preprocessing import Center, SchemaEncoder
from dpglm.report import plots
from dpglm.report.html import report_page
from dpglm.report.page import coefficient_table
from dpglm.tables.schema import Schema

SLOPE, EFFECT, BASE = 0.05, 0.8, -2.0
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 16, "high": 90},
            "sex": {"type": "categorical", "categories": ["female", "male"]},
        },
        "target": {"name": "y", "type": "numeric", "low": -10, "high": 30},
        "provenance": "made up",
    }
).with_reference("first")
NAMES = ("age", "sex=male vs female")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 20_000
    age, male = rng.uniform(16, 90, n), rng.random(n) < 0.4
    return {
        "age": age,
        "sex": np.where(male, "male", "female"),
        "y": BASE + SLOPE * age + EFFECT * male + rng.normal(size=n) / 4,
    }


@pytest.fixture(scope="module")
def model(table):
    steps = [SchemaEncoder(SCHEMA), LinearRegression(target_bounds=(-10, 30))]
    return PrivatePipeline(steps, epsilon=100.0, random_state=0).fit(table, table["y"])


def states_the_truth(shown):
    assert shown.features == NAMES
    np.testing.assert_allclose(shown.values[0], [SLOPE, EFFECT], rtol=0.1)
    np.testing.assert_allclose(shown.intercepts, [BASE], rtol=0.1)
    assert shown.of_table


def test_effects_of_a_pipeline_are_per_unit_of_the_table(model):
    states_the_truth(coefficient_table(model))
    # The encoder's scale stays at hand.
    np.testing.assert_allclose(model.coef_, [37 * SLOPE, EFFECT], rtol=0.1)
    mapped = model.table_units().coefficients([*model.coef_, model.intercept_])
    np.testing.assert_allclose(mapped[:2], [SLOPE, EFFECT], rtol=0.1)


def test_effects_with_private_steps_between(table):
    steps = [SchemaEncoder(SCHEMA), Center(), LinearRegression(target_bounds=(-10, 30))]
    fitted = PrivatePipeline(steps, epsilon=100.0, random_state=0).fit(table, table["y"])
    states_the_truth(coefficient_table(fitted))


def test_effects_of_a_pipeline_of_scikit_learn(table):
    estimator = LinearRegression(
        epsilon=100.0,
        random_state=0,
        target_bounds=(-10, 30),
        row_norm=SchemaEncoder(SCHEMA).fit(table).row_norm_,
    )
    fitted = make_pipeline(SchemaEncoder(SCHEMA), estimator).fit(table, table["y"])
    states_the_truth(coefficient_table(fitted))


def test_effects_of_an_estimator_that_was_given_encoded_rows(table):
    estimator = LinearRegression(
        epsilon=100.0, random_state=0, target_bounds=(-10, 30), row_norm=SCHEMA.row_norm
    )
    fitted = estimator.fit(SCHEMA.encode(table), table["y"])
    states_the_truth(coefficient_table(fitted, schema=SCHEMA))
    assert not coefficient_table(fitted).of_table
    with pytest.raises(ValueError, match="schema must have 2 features, as the model has, got 3"):
        coefficient_table(fitted, schema=SCHEMA_OF_THREE)


SCHEMA_OF_THREE = Schema.from_dict(
    SCHEMA.to_dict() | {"columns": {name: SCHEMA.to_dict()["columns"]["age"] for name in "abc"}}
)


def test_the_page_and_the_picture(model):
    pytest.importorskip("jinja2")
    page = report_page(model)
    assert "Per unit of the columns of the table" in page
    (shown,) = re.findall(r'<td class="feature">age</td><td class="n"[^>]*>([-\d.]+)</td>', page)
    assert float(shown) == pytest.approx(SLOPE, rel=0.05)
    (axes,) = plots.coefficients(model).axes
    assert {one.get_text() for one in axes.get_yticklabels()} == {
        "age, per 10",
        "sex=male vs female",
    }
    points = {x for line in axes.lines for x in np.atleast_1d(line.get_xdata()).tolist()}
    assert min(abs(point - 10 * SLOPE) for point in points) < 0.03


BOUNDS = {0: (0, 4), 1: (-1, 3)}


class TestUnitsOfEstimators:
    """``units_`` is the map from ``solution_.w`` to ``coef_`` and ``intercept_``."""

    @pytest.mark.parametrize(
        "estimator",
        [
            LinearRegression(target_bounds=(-3, 9), feature_bounds=BOUNDS),
            LinearRegression(target_bounds=(-3, 9), row_norm=3.0, fit_intercept=False),
            PoissonRegressor(target_bounds=(0, 8), feature_bounds=BOUNDS),
            LogisticRegression(classes=[0, 1, 2], feature_bounds=BOUNDS),
        ],
    )
    def test_they_lead_from_the_solution_to_the_model(self, estimator):
        rng = np.random.default_rng(3)
        X, y = rng.uniform([0, -1], [4, 3], size=(2000, 2)), rng.integers(0, 3, 2000)
        fitted = estimator.fit(X, y)
        spec = fitted.solution_.plan.data
        own = fitted.units_.coefficients(fitted.solution_.w.reshape(spec.n_columns, -1))
        np.testing.assert_array_equal(np.atleast_2d(fitted.coef_), own[:-1].T)
        np.testing.assert_array_equal(np.atleast_1d(fitted.intercept_), own[-1])
