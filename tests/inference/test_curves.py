"""Curves against a reference value, and their simultaneous bands."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import BSpline

from tests.inference.test_comparisons import dpglm_seed, fitted, table  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.exceptions.LowSignalWarning")


def test_straight_line_is_a_multiple_of_its_coefficient():
    inference = fitted().inference_
    found = inference.curve("age", 50, values=[20, 50, 60], simultaneous=False)
    params, ends = inference.params[1], inference.conf_int()[1]
    assert found.effects == pytest.approx(np.exp(params * np.array([-30.0, 0.0, 10.0])))
    assert [found.low[2], found.high[2]] == pytest.approx(np.exp(10.0 * ends))
    assert (found.low[1], found.high[1]) == (1.0, 1.0)
    plain = inference.curve("age", 50, values=[60], exponentiate=False, simultaneous=False)
    assert plain.effects == pytest.approx([10.0 * params])
    assert plain.effect == "difference of the score"


def test_interaction_is_taken_at_declared_values():
    inference = fitted().inference_
    found = inference.curve("age", 50, values=[60], at={"sex": "m"}, exponentiate=False)
    assert found.effects == pytest.approx([10.0 * (inference.params[1] + inference.params[5])])
    assert found.at == {"sex": "m"}
    assert inference.curve("age").at == {"sex": "f"}
    assert inference.curve("dose").at == {}


def test_spline_agrees_with_its_own_basis():
    inference = fitted("ill ~ bs(age, df=5) + C(dose)").inference_
    x = np.array([20.0, 33.0, 61.0, 80.0])
    knots = np.r_[[20.0] * 4, np.linspace(20, 80, 4)[1:-1], [80.0] * 4]
    basis = BSpline.design_matrix(np.r_[x, 45.0], knots, 3).toarray()[:, 1:]
    rows = basis[:-1] - basis[-1]
    found = inference.curve("age", 45, values=x.tolist(), exponentiate=False, simultaneous=False)
    assert found.effects == pytest.approx(rows @ inference.params[1:6], abs=1e-9)
    errors = np.sqrt(np.diag(rows @ inference.covariance[1:6, 1:6] @ rows.T))
    assert 0.5 * (found.high - found.low) == pytest.approx(1.959964 * errors, rel=1e-5)


def test_simultaneous_band_covers_the_whole_curve():
    inference = fitted("ill ~ bs(age, df=5) + C(dose)").inference_
    root = np.linalg.cholesky(inference.covariance[1:6, 1:6])
    knots = np.r_[[20.0] * 4, np.linspace(20, 80, 4)[1:-1], [80.0] * 4]
    x = np.linspace(20, 80, 101)
    basis = BSpline.design_matrix(np.r_[x, 45.0], knots, 3).toarray()[:, 1:]
    draws = (basis[:-1] - basis[-1]) @ root @ np.random.default_rng(0).normal(size=(5, 2000))
    shares = []
    for simultaneous in (True, False):
        found = inference.curve("age", 45, exponentiate=False, simultaneous=simultaneous)
        half = 0.5 * (found.high - found.low)[:, np.newaxis]
        shares.append(float((np.abs(draws) <= half + 1e-12).all(axis=0).mean()))
    assert 0.935 < shares[0] < 0.965
    # A pointwise band is too narrow for the whole curve: the planted error is found.
    assert shares[1] < 0.92


def test_categories_have_all_levels():
    found = fitted().inference_.curve("dose")
    assert found.values == ("low", "mid", "high")
    assert found.effects == pytest.approx([1.0, *np.exp(fitted().inference_.params[[3, 4]])])


@pytest.mark.parametrize(
    "options",
    [{"column": "none"}, {"column": "age", "reference": 100}, {"column": "age", "values": [10]},
     {"column": "age", "at": {"age": 3}}, {"column": "age", "at": {"sex": "x"}},
     {"column": "age", "level": 1.0}, {"column": "dose", "reference": "none"},
     {"column": "age", "values": 1}, {"column": "age", "simultaneous": 3}],
)  # fmt: skip
def test_wrong_arguments_are_named(options):
    with pytest.raises(ValueError, match=r"must (be|have)|not in the schema"):
        fitted().inference_.curve(**options)


def test_curves_are_drawn():
    for column in ("age", "dose"):
        figure = fitted().inference_.curve(column).plot()
        assert figure.axes[0].get_ylabel() == "odds ratio"


def test_shapes_of_a_formula_add_up_to_its_scores():
    model = fitted("ill ~ bs(age, df=5) * sex + C(dose)")
    shapes = model.shapes_
    assert list(shapes) == ["age", "sex", "dose", "age x sex"]
    rows = {"age": np.array([20.0, 50.0, 80.0]), "sex": np.array(["f", "m", "m"]),
            "dose": np.array(["low", "high", "mid"])}  # fmt: skip
    scores = model.decision_function(rows)
    added = np.full(3, shapes.intercept[0])
    for place in range(3):
        for term, names in (("age", ["age"]), ("sex", ["sex"]), ("dose", ["dose"]),
                            ("age x sex", ["age", "sex"])):  # fmt: skip
            one = shapes[term]
            at = tuple(one.points[i].index(rows[name][place]) for i, name in enumerate(names))
            added[place] += one.values[(0, *at)]
    assert added == pytest.approx(scores, abs=1e-9)
    assert shapes["age"].band is not None
