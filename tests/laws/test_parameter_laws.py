"""Every plan of an estimator or study can be run, for any parameter, scale and key."""

from __future__ import annotations

import inspect
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone, is_regressor

from dpglm import (
    AdditiveClassifier,
    AdditiveRegressor,
    BinomialRegressor,
    GammaRegressor,
    LogisticRegression,
    NegativeBinomialRegressor,
    PoissonRegressor,
    TweedieRegressor,
)
from dpglm.problem import L2, Box, L2Ball
from dpglm.solvers import SOLVERS
from dpglm.solvers.second_order import newton_raphson_method
from dpglm.study import Study
from tests.estimators.additive.tables import schema as schema_of
from tests.estimators.additive.tables import table as rows_of
from tests.fits import admitted_bounds
from tests.laws.budgets import examples
from tests.laws.test_option_laws import ESTIMATORS, WITH_OFFSETS
from tests.study.support import SCHEMA, table

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

N, D = 60, 3
HUGE = 10**400
VALUES: tuple[Any, ...] = (
    *(object(), "zz", "1", b"x", "sex", "age", "age + sex", "newton", "noisy_gd"),
    *(-1, 0, 1, 2, N, HUGE, 0.5, 1e-300, 1e300, math.nan, math.inf, -0.0, np.float64(2.0), 1 + 2j),
    *(True, False, None, lambda info: None),
    *([], [0, 1], (0, 1), (1,), [1, 1], [0.5, 0.1], ["a", "b"], ["age"], [["age", "sex"]]),
    *([["age", "zz"]], {"zz": 1}, {"age": 1}, {"sex": 1}, {0: 1}, {0: 0.0, 1: 0.0}, {1: 1e300}),
)
COST = {"name": "cost", "type": "numeric", "low": -5, "high": 5}
ADDITIVE = (AdditiveClassifier(schema_of()), AdditiveRegressor(schema_of(COST)))
# A path may be one of a ledger or a schema that is not there yet.
PATHS = ("ledger", "schema")
OPTIONS = [
    (made, name)
    for made in (*ESTIMATORS, *ADDITIVE)
    for name in made.get_params(deep=False)
    if name not in PATHS
]


def declared(estimator: Any) -> dict[str, Any]:
    """Public facts with which an estimator can be planned."""
    if isinstance(estimator, AdditiveClassifier | AdditiveRegressor):
        return {}
    if is_regressor(estimator):
        return {"row_norm": 1.5, "target_bounds": admitted_bounds(estimator, (0.0, 5.0))}
    return {"row_norm": 1.5, "classes": [0, 1]}


def planned(model: Any, n: int = N, d: int = D, **options: Any) -> bool:
    """Return whether there is a plan; otherwise the error is a ValueError."""
    try:
        if isinstance(model, AdditiveClassifier | AdditiveRegressor):
            model.plan(n)
        else:
            model.plan(n, d, **options)
    except ValueError:
        return False
    return True


def fitted(model: Any, n: int = N) -> None:
    """Fit rows that are as the parameters say."""
    rng = np.random.default_rng(0)
    groups = None if model.n_groups is None else np.arange(n) % model.n_groups
    if isinstance(model, AdditiveClassifier | AdditiveRegressor):
        model.fit(rows_of(n), groups=groups)
        return
    X = rng.uniform(-1.0, 1.0, size=(n, D))
    if is_regressor(model) and getattr(model, "classes", None) is None:
        low, high = admitted_bounds(model, (0.0, 5.0))
        y = rng.choice([low, high], n)
    else:
        y = np.resize([0, 1] if model.classes is None else model.classes, n)
    model.fit(X, y, groups=groups)


@examples(150)
@given(option=st.sampled_from(OPTIONS), value=st.sampled_from(VALUES))
def test_planned_estimators_can_be_fitted(option, value):
    made, name = option
    if name == "classes" and made in ADDITIVE:
        # Labels are those of the schema.
        return
    model = clone(made).set_params(**declared(made)).set_params(**{name: value})
    if planned(model):
        fitted(model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("random_state", "zz"),
        ("random_state", -1),
        ("ledger", 3),
        ("n_rows", N + 1),
        ("n_rows", "zz"),
        ("n_groups", 2**60),
        ("classes", 2),
        ("classes", [1, 1]),
        ("classes", [0, 1, 2]),
        ("weight_bound", 0.0),
    ],
)
def test_plan_checks_equal_fit_checks(name, value):
    model = LogisticRegression(row_norm=1.0, classes=[0, 1]).set_params(**{name: value})
    with pytest.raises(ValueError, match=name):
        model.plan(N, D, n_classes=2)


def test_a_plan_has_the_declared_number_of_classes():
    model = LogisticRegression(row_norm=1.0, classes=["a", "b", "c"])
    assert model.plan(N, D) == model.plan(N, D, n_classes=3)


@pytest.mark.parametrize("options", [{"weight_bound": 2.0}, {"class_weight": {0: 2.0}}])
def test_weights_without_a_model_of_them_have_no_plan(options):
    model = LogisticRegression(row_norm=1.0, classes=[0, 1], inference=True, **options)
    with pytest.raises(ValueError, match="requires labels without weights"):
        model.plan(20_000, D)


@pytest.mark.parametrize("monotone", [{"nose": 1}, {"sex": 1}, {"age": 2}, ["age"]])
def test_a_plan_reads_monotone_columns(monotone):
    model = AdditiveClassifier(schema_of(), monotone=monotone)
    for wanted in (model.plan, model.resolve):
        with pytest.raises(ValueError, match="monotone must"):
            wanted(500)
    study = Study(schema_of())
    with pytest.raises(ValueError, match="monotone must"):
        study.fit("additive", monotone=monotone).plan(500)


# Every key of a study.


def keys(callee: Any, *without: str) -> list[str]:
    names = inspect.signature(callee).parameters
    return [name for name in names if name not in ("self", "settings", *without)]


KEYS = [
    *(("study", name) for name in keys(Study, "schema", "parts", "split")),
    *(("explore", name) for name in keys(Study.explore)),
    *(("fit", name) for name in keys(Study.fit)),
    *(("evaluate", name) for name in keys(Study.evaluate)),
    *(("additive", name) for name in keys(AdditiveClassifier, "schema")),
    *(("logistic_regression", name) for name in keys(LogisticRegression)),
]


def studied(part: str, name: str, value: Any) -> Study:
    given = {name: value}
    if part == "study":
        return Study(SCHEMA, **given).explore().fit().evaluate()
    if part == "explore":
        return Study(SCHEMA).explore(**given)
    if part == "fit":
        return Study(SCHEMA).fit(**given)
    if part == "evaluate":
        return Study(SCHEMA).fit().evaluate(**given)
    return Study(SCHEMA).fit(part, **given)


@examples(60)
@given(key=st.sampled_from(KEYS), value=st.sampled_from(VALUES))
def test_planned_studies_can_be_run(key, value):
    try:
        study = studied(*key, value)
        study.plan(None if study.n_rows else N)
    except (ValueError, TypeError):
        return
    study.run(table(N if study.n_rows is None else study.n_rows))


@pytest.mark.parametrize("part", ["explore", "evaluate"])
def test_a_study_with_the_least_level_has_a_plan(part):
    assert studied(part, "level", 1e-300).plan(2000).epsilon <= 1.0


# Extreme scales within the admitted range.

SCALES = (1e-15, 1e-12, 1e-10, 1e-9, 1e-6, 1.0, 1e6, 1e15)
STRENGTHS = (0.0, 1e-300, 1e-12, 1.0, 1e12, 1e300)
ENDS = (
    *((0.0, 5.0), (0.0, 1e-12), (0.0, 1e-99), (0.0, 1e12), (1.0, 1.0), (0.0, 0.0)),
    *((-1e100, 1e100), (0.0, 1e100), (1e-12, 1e-9), (1e50, 1e100), (0.0, 1e-300), (0.0, 1e300)),
)


@st.composite
def fits(draw: Any) -> tuple[Any, dict[str, Any], int, int]:
    """Draw a model, arguments of its fit, and the size of its rows."""
    model = clone(draw(st.sampled_from(ESTIMATORS)))
    names, n = model.get_params(), draw(st.sampled_from((1, 2, 3, 40, 300)))
    d, rng = draw(st.sampled_from((1, 3, 30))), np.random.default_rng(draw(st.integers(0, 999)))
    options: dict[str, Any] = {
        "row_norm": draw(st.sampled_from(SCALES)),
        "epsilon": draw(st.sampled_from((1.0, 1e-3, 8.0, 1e3))),
        "solver": draw(st.sampled_from(("auto", "newton_raphson", "newton", *SOLVERS))),
        "weight_bound": draw(st.sampled_from((None, None, 1e-9, 1e9))),
        "adjacency": draw(st.sampled_from(("zero_out", "replace_one", "add_remove"))),
        "fit_intercept": draw(st.booleans()),
        "constraint": draw(st.sampled_from((None, None, L2Ball(1e-12), Box(-1.0, 1.0)))),
        "regularizer": draw(st.sampled_from((None, None, L2(1e-12), L2(1e12)))),
    }
    if "inference" in names:
        options["inference"] = draw(st.sampled_from((False, True, "robust")))
    for name in ("alpha", "C"):
        if name in names:
            options[name] = draw(st.sampled_from((names[name], *STRENGTHS)))
    if options["adjacency"] == "add_remove":
        options["n_rows"] = n
    X = (
        rng.normal(size=(n, d))
        * options["row_norm"]
        * draw(st.sampled_from((0.0, 1e-3, 1.0, 10.0)))
    )
    given: dict[str, Any] = {"X": X}
    if is_regressor(model):
        low, high = options["target_bounds"] = admitted_bounds(model, draw(st.sampled_from(ENDS)))
        given["y"] = rng.choice([low, high], n)
        if isinstance(model, WITH_OFFSETS) and draw(st.booleans()):
            options["offset_bounds"] = draw(st.sampled_from((None, (-1.0, 2.0), (1e5, 1e6))))
            given["offset"] = np.full(n, draw(st.sampled_from((0.0, 1e3, 1e300, -1e300))))
    else:
        options["classes"] = draw(st.sampled_from(([0, 1], [0, 1, 2])))
        given["y"] = rng.choice(options["classes"], n)
    if options["weight_bound"] is not None:
        given["sample_weight"] = rng.uniform(0.1, 2.0, n) * options["weight_bound"]
    return model.set_params(**options), given, n, d


@examples(60)
@given(fit=fits())
def test_plans_at_extreme_scales_are_fitted_to_the_end(fit):
    model, given_to, n, d = fit
    options = {"offset": True} if "offset" in given_to else {}
    if not planned(model, n, d, **options):
        return
    model.fit(**given_to)
    assert np.isfinite(model.coef_).all()
    assert str(model.privacy_)
    if vars(model).get("inference"):
        assert str(model.inference_)


LIKELIHOODS = (
    LogisticRegression(classes=[0, 1]),
    PoissonRegressor(target_bounds=(0.0, 5.0)),
    GammaRegressor(target_bounds=(0.5, 5.0)),
    TweedieRegressor(target_bounds=(0.0, 5.0)),
    NegativeBinomialRegressor(dispersion=0.5, target_bounds=(0.0, 5.0)),
    BinomialRegressor(link="cloglog"),
)


PENALIZED = TweedieRegressor(target_bounds=(0.0, 5.0), alpha=1e12)


def short_rows(made: Any, row_norm: float, seed: int, **options: Any) -> Any:
    """Fit rows that are tiny next to the intercept."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, D)) * row_norm
    y = rng.integers(0, 2, 300)
    if isinstance(made, GammaRegressor):
        y = y + 1
    model = clone(made).set_params(row_norm=row_norm, solver="newton_raphson", **options)
    return model.set_params(random_state=seed).fit(X, y)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("row_norm", [1e-9, 1e-10, 1e-11, 1e-12])
@pytest.mark.parametrize("made", LIKELIHOODS, ids=lambda made: type(made).__name__)
def test_short_rows_raise_nothing_after_the_charge(made, row_norm):
    for seed in range(5):
        for inference in (False, True, "robust"):
            epsilon = 100.0 if inference else 1.0
            model = short_rows(made, row_norm, seed, inference=inference, epsilon=epsilon)
            assert np.isfinite(model.coef_).all()


def test_an_inverse_that_raises_is_caught():
    def fit_all():
        for seed in range(4):
            short_rows(PENALIZED, 1e-10, seed, epsilon=100.0)

    fit_all()
    with (
        mock.patch.object(newton_raphson_method, "inverted", np.linalg.inv),
        pytest.raises(np.linalg.LinAlgError),
    ):
        fit_all()


def test_hidden_curvature_keeps_the_prior():
    inference = short_rows(PENALIZED, 1e-10, 0, inference="robust", epsilon=100.0).inference_
    assert "intercept" in inference.of_prior
    assert np.isfinite(inference.standard_errors).all()
