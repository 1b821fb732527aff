"""Natural and restricted cubic splines on declared knots."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from dpglm.tables.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 20, "high": 80},
            "sex": {"type": "categorical", "categories": ["f", "m"]},
        },
        "provenance": "made up for tests",
    }
)


def design(formula: str, x: np.ndarray) -> tuple[Schema, np.ndarray]:
    """Return the columns of a formula in the units of its coefficients."""
    schema = SCHEMA.with_formula(formula)
    encoded = schema.encode({"age": x, "sex": np.array(["f"] * len(x), dtype=object)})
    units = schema.units.matrix.toarray()
    # encoded @ w + w0 = columns @ coef + intercept for all w.
    with_one = np.column_stack([encoded, np.ones(len(x))])
    return schema, np.linalg.lstsq(units.T, with_one.T, rcond=None)[0].T


def test_ns_has_the_value_one_at_its_own_knot():
    knots = np.array([20.0, 35.0, 50.0, 65.0, 80.0])
    schema, columns = design("~ ns(age, df=4)", knots)
    assert schema.feature_names == tuple(f"ns(age, df=4)[{one:g}]" for one in knots[1:])
    np.testing.assert_allclose(columns[:, :-1], np.eye(5)[:, 1:], atol=1e-9)
    x = np.linspace(20, 80, 301)
    expected = CubicSpline(knots, np.eye(5)[:, 1:], bc_type="natural")(x)
    np.testing.assert_allclose(design("~ ns(age, df=4)", x)[1][:, :-1], expected, atol=1e-9)


@pytest.mark.parametrize("knots", [[35, 50, 60, 70], [30, 40, 77], [21, 25, 29, 60, 79]])
def test_rcs_spans_harrells_basis(knots):
    x, t = np.linspace(20, 80, 400), np.array(knots, dtype=float)

    def cubed(u: np.ndarray) -> np.ndarray:
        return np.maximum(u, 0.0) ** 3

    last, before = t[-1], t[-2]
    bent = [
        cubed(x - one)
        - cubed(x - before) * (last - one) / (last - before)
        + cubed(x - last) * (before - one) / (last - before)
        for one in t[:-2]
    ]
    columns = design(f"~ rcs(age, knots={knots})", x)[1]
    harrell = np.column_stack([np.ones(400), x, *bent])
    assert columns.shape == harrell.shape
    gaps = harrell - columns @ np.linalg.lstsq(columns, harrell, rcond=None)[0]
    assert np.abs(gaps).max() < 1e-9 * np.abs(harrell).max()


def test_rcs_places_knots_within_the_declared_range():
    schema, _ = design("~ rcs(age, 5)", np.array([20.0]))
    assert schema.feature_names[-1] == "rcs(age, 5)[77]"
    x = np.array([77.0, 78.0, 79.0, 80.0])
    steps = np.diff(design("~ rcs(age, 5)", x)[1], axis=0)
    np.testing.assert_allclose(steps[0], steps[2], atol=1e-9)


@pytest.mark.parametrize(
    "formula",
    ["~ ns(age, df=1)", "~ ns(age, df=7)", "~ ns(age, knots=[20.1, 20.2])", "~ rcs(age, 3)",
     "~ rcs(age, knots=[40, 41, 42])", "~ ns(age, df=3) * sex", "~ 0 + ns(np.log(age), df=4)"],
)  # fmt: skip
def test_rows_stay_within_the_declared_norm(formula):
    schema = SCHEMA.with_formula(formula)
    rng = np.random.default_rng(0)
    x = np.r_[np.linspace(20, 80, 2001), 20.0 + 10.0 ** rng.uniform(-9, 1.7, 500), -1e9, 1e300]
    sex = np.array(["f", "m"], dtype=object)[np.arange(len(x)) % 2]
    norms = np.linalg.norm(schema.encode({"age": x, "sex": sex}), axis=1)
    assert norms.max() <= schema.row_norm * (1.0 + 1e-12)
    # The bound is not loose, which would cost accuracy.
    assert norms.max() >= 0.9 * schema.row_norm


@pytest.mark.parametrize(
    ("formula", "says"),
    [("~ ns(age)", "needs df= or knots="), ("~ ns(age, df=0)", "df from 1 to 100"),
     ("~ ns(age, knots=[80])", "within the declared range"), ("~ rcs(age, 2)", "from 3 to 100"),
     ("~ rcs(age, knots=[30, 40])", "from 3 to 100"), ("~ rcs(sex)", "categorical"),
     ("~ ns(age, 3, 4, 5)", "takes one number"),
     ("~ ns(age, df=True)", "df from 1"), ("~ rcs(age, knots=[50, 40, 30])", "increase")],
)  # fmt: skip
def test_wrong_knots_are_refused(formula, says):
    with pytest.raises(ValueError, match=says):
        SCHEMA.with_formula(formula)
