"""Predictions and contributions are functions of their row alone, to the bit.

Where rows may be added or removed, a release about one row must not change with the number or the
position of the others: no sensitivity includes that.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import dask.array as da
import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn import linear_model

from dpglm import (
    AdditiveClassifier,
    AdditiveRegressor,
    GeneralizedLinearClassifier,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    evaluate,
    evaluate_predictions,
    from_formula,
)
from dpglm.data import collection
from dpglm.data import torch as tensors
from dpglm.data.compiled import kernels
from dpglm.evaluation import BinaryTask, ClassesTask, RegressionTask, predictions_of
from dpglm.oracle.clipping import AutomaticClipping, FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum, clipped_slopes
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy import Adjacency
from dpglm.problem import (
    Hinge,
    OneVsRest,
    Poisson,
    Savage,
    Softmax,
    Sparsemax,
    Squared,
)
from dpglm.solvers import NoisyGD
from tests.oracle.test_clipped_sum import make_rows, make_targets

N, D, K = 203, 21, 11
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (N, D))
TABLE = {
    "age": RNG.uniform(20.0, 80.0, N),
    "income": RNG.uniform(0.0, 9.0, N),
    "sex": np.where(RNG.random(N) < 0.5, "f", "m"),
    "ward": np.array([f"w{i}" for i in RNG.integers(0, 40, N)]),
    "y": RNG.random(N),
}
TABLE["sick"] = RNG.random(N) < TABLE["age"] / 80.0
COLUMNS = {
    "age": {"type": "numeric", "low": 20, "high": 80},
    "income": {"type": "numeric", "low": 0, "high": 9},
    "sex": {"type": "categorical", "categories": ["f", "m"]},
    "ward": {"type": "categorical", "categories": [f"w{i}" for i in range(40)]},
}
TARGET = {"name": "y", "type": "numeric", "low": 0, "high": 1}
FACTS = {"columns": COLUMNS, "target": TARGET, "provenance": "made up"}
KNOWN = {"row_norm": 5.0, "epsilon": 2000.0, "random_state": 0}


def subsets() -> Iterator[np.ndarray]:
    """Places of rows: one alone, some, all but a few, other orders, and several copies."""
    rng = np.random.default_rng(1)
    for row in (0, 7, 8, N - 1):
        yield np.array([row])
    for first, last in ((0, 2), (1, 9), (3, N), (0, N - 1), (64, 129)):
        yield np.arange(first, last)
    yield np.arange(N)[::-1]
    yield rng.permutation(N)[:100]
    yield np.repeat(np.arange(N), 3)


def assert_rows_are_alone(take, predict):
    """Assert that a row's prediction has the same bits among any others."""
    whole = predict(take(np.arange(N)))
    assert len(whole) == N
    assert len(np.unique(whole)) > 2
    for places in subsets():
        found = predict(take(places))
        np.testing.assert_array_equal(found, whole[places])


def quietly(model, *rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*rows)


STORED = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "sparse": sparse.csr_array,
    "tensor": lambda X: torch.as_tensor(np.array(X)),
    "dask": lambda X: da.from_array(X, chunks=(50, D)),
}
SEVERAL = {"classes": list(range(K)), "solver": NoisyGD(3), **KNOWN}
OF_ARRAYS = {
    "two classes": LogisticRegression(classes=[0, 1], **KNOWN),
    "softmax": LogisticRegression(**SEVERAL),
    "one against the rest": GeneralizedLinearClassifier(loss="logistic", **SEVERAL),
    "numbers": LinearRegression(target_bounds=(0, 1), **KNOWN),
    "counts": PoissonRegressor(target_bounds=(0, 1), **KNOWN),
    "clipped columns": LogisticRegression(
        classes=[0, 1], feature_bounds=(-0.5, 0.5), epsilon=2000.0, random_state=0
    ),
}


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_predictions_of_arrays_depend_on_their_row_alone(name):
    classes = getattr(OF_ARRAYS[name], "classes", None)
    y = TABLE["y"] if classes is None else np.arange(N) % len(classes)
    model = quietly(OF_ARRAYS[name], X, y)
    for store in STORED.values():
        assert_rows_are_alone(
            lambda places, store=store: store(X[places]), lambda rows: predictions_of(model, rows)
        )


def test_scores_of_an_evaluation_depend_on_their_row_alone():
    rng = np.random.default_rng(4)
    y, scores = np.arange(N) % K, rng.dirichlet(np.ones(K), N)
    # As models return them.
    scores = np.asfortranarray(scores)
    for task, labels, predictions in (
        (ClassesTask(tuple(range(K))), y, scores),
        (BinaryTask((0, 1)), y % 2, scores[:, 0]),
        (RegressionTask(0.0, 1.0), TABLE["y"], scores[:, 0]),
    ):
        assert_rows_are_alone(
            lambda places, labels=labels, predictions=predictions: (
                labels[places],
                np.asfortranarray(predictions[places]),
            ),
            lambda rows, task=task: task.encode(*rows),
        )


def of_tables():
    sick = {**FACTS, "target": {"name": "sick", "type": "binary", "classes": [False, True]}}
    given = {"epsilon": 2000.0, "random_state": 0}
    yield from_formula("y ~ bs(age, df=6) * C(sex) + income", FACTS, **given)
    wide = "y ~ ns(age, df=5) + I(income**2) + np.log(income + 1):C(sex)"
    yield from_formula(wide, FACTS, **given)
    yield from_formula("sick ~ age + income + (1 | ward)", sick, **given)
    yield AdditiveRegressor(FACTS, **given)
    yield AdditiveClassifier(sick, **given)


@pytest.mark.parametrize("model", list(of_tables()), ids=lambda one: type(one).__name__)
def test_predictions_of_tables_depend_on_their_row_alone(model):
    quietly(model, TABLE)
    assert_rows_are_alone(
        lambda places: {name: cells[places] for name, cells in TABLE.items()},
        lambda rows: predictions_of(model, rows),
    )


def by_blas(X, matrix):
    return np.column_stack([X @ one for one in np.ascontiguousarray(matrix.T)])


def test_law_finds_predictions_by_a_blas(monkeypatch):
    model = quietly(OF_ARRAYS["softmax"], X, np.arange(N) % K)
    monkeypatch.setattr(collection, "row_by_row_product", by_blas)
    with pytest.raises(AssertionError):
        assert_rows_are_alone(lambda places: X[places], lambda rows: predictions_of(model, rows))


LOSSES = [
    (Squared(), 1),
    (Poisson(), 1),
    (Savage(), 1),
    (Softmax(), K),
    (Sparsemax(), K),
    (OneVsRest(Hinge(), K), K),
]


@pytest.mark.parametrize("layout", ["C", "F", "csr", "tensor"])
@pytest.mark.parametrize(("loss", "outputs"), LOSSES, ids=lambda one: type(one).__name__)
def test_contributions_depend_on_their_row_alone(layout, loss, outputs):
    rng = np.random.default_rng(2)
    rows = make_rows(X, make_targets(rng, loss, N, outputs), layout=layout, n_outputs=outputs)
    w = rng.normal(size=rows.spec.coefficient_shape)
    for clipping in (FlatClipping(30.0), AutomaticClipping(0.4)):

        def slopes(rows, clipping=clipping):
            return np.concatenate([clipped_slopes(one, loss, clipping, w) for one in rows.blocks()])

        assert_rows_are_alone(rows.take, slopes)


@pytest.fixture
def without_compiled_code(monkeypatch):
    monkeypatch.setattr(kernels, "_library", None)


def test_rows_are_alone_without_compiled_code(without_compiled_code):
    test_contributions_depend_on_their_row_alone("F", Softmax(), K)
    test_predictions_of_arrays_depend_on_their_row_alone("two classes")


def largest_move(n: int) -> float:
    """Largest move of a sum by one row removed, in units of its declared sensitivity.

    All rows are equal, and their scores are at the jump of the hinge loss, up to rounding.
    """
    rng, found = np.random.default_rng(3), 0.0
    for _ in range(n):
        x, w = rng.uniform(-0.2, 0.2, (2, D))
        w *= 1.0 / (x @ w)
        every = make_rows(np.tile(x, (75, 1)), np.ones(75), intercept=0.0)
        bound = 0.1 + sum_rounding(every.spec, Adjacency.ADD_REMOVE, 0.1)
        sums = [
            clipped_gradient_sum(every.take(np.arange(size)), Hinge(), FlatClipping(0.1), w)
            for size in range(64, 76)
        ]
        moves = np.linalg.norm(np.diff(sums, axis=0), axis=1)
        found = max(found, moves.max() / bound)
    return found


def test_one_row_moves_a_sum_at_a_jump_by_its_own_part(monkeypatch):
    assert 0.9 < largest_move(60) <= 1.0
    # The attack refutes the bound for products by a BLAS.
    monkeypatch.setattr(kernels, "row_by_row_product", by_blas)
    assert largest_move(60) > 1.9


@pytest.mark.parametrize("model", ["own", "foreign", "array"])
def test_certificates_state_what_code_of_others_must_ensure(model):
    y = np.arange(N) % 2
    own = quietly(OF_ARRAYS["two classes"], X, y)
    foreign = linear_model.LogisticRegression().fit(X, y)
    private = {"adjacency": "add_remove", "n_rows": N, "random_state": 0}
    for given, shifts in (
        ({"random_state": 0}, False),
        (private, True),
        ({"where": y == 1, "random_state": 0}, True),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if model == "array":
                p = foreign.predict_proba(X)[:, 1]
                found = evaluate_predictions(y, p, classes=[0, 1], **given)
            else:
                found = evaluate(own if model == "own" else foreign, X, y, **given)
        fact = found.privacy_.fact("predictions")
        assert (fact is not None) == (shifts and model != "own")


def test_one_row_in_fortran_order_is_summed_like_others():
    """An array of one row has both orders."""
    rng, loss, clipping = np.random.default_rng(5), Squared(), FlatClipping(30.0)
    w = rng.normal(size=D + 1)
    for row in X[:20]:
        alone, twice = (
            make_rows(np.tile(row, (n, 1)), np.ones(n), layout="F").on_host() for n in (1, 2)
        )
        (block,), (blocks,) = alone.blocks(), twice.blocks()
        np.testing.assert_array_equal(np.tile(block.predict(w), 2), blocks.predict(w))
        one, two = (clipped_gradient_sum(rows, loss, clipping, w) for rows in (alone, twice))
        np.testing.assert_array_equal(2.0 * one, two)


def test_fits_of_tensors_add_up_on_the_host_where_rows_shift(monkeypatch):
    """A GPU stands for any device: its products may round a row by its position."""
    made = []
    original = tensors._TensorBlock.__init__

    def counted(block, *arguments):
        made.append(block)
        original(block, *arguments)

    monkeypatch.setattr(tensors._TensorBlock, "__init__", counted)
    monkeypatch.setattr(tensors, "_is_host", lambda device: False)
    monkeypatch.setattr(tensors, "check_exact", lambda device: None)
    rows, y = torch.as_tensor(X), np.arange(N) % 2
    for adjacency, places in (("zero_out", True), ("add_remove", False)):
        given = {"adjacency": adjacency, "n_rows": None if places else N, **KNOWN}
        model = LogisticRegression(classes=[0, 1], solver=NoisyGD(2), **given)
        made.clear()
        quietly(model, rows, y)
        assert bool(made) == places
