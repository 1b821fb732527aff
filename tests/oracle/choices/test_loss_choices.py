"""Choices by loss: bounded scores on worst-case rows, and exactly the probabilities claimed."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import chisquare

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.choices import (
    choose_least_generalized,
    choose_least_loss,
    generalized_choice_release,
    least_loss_release,
)
from dpglm.oracle.gradients import Oracle, clipped_loss_sums, loss_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import BoundedRange, Pure
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.releases import Curator
from dpglm.privacy.selection import choices as selections
from dpglm.privacy.selection.choices import generalized_scores
from dpglm.problem import Hinge, Logistic, OneVsRest, Savage, Softmax, Squared
from tests.oracle.watching import move_allowed, watching

LOSSES = [
    (Logistic(), 1),
    (Squared(), 1),
    (Savage(), 1),
    (Softmax(), 3),
    (OneVsRest(Hinge(), 3), 3),
]
LAYOUTS = ["C", "F", "csr"]
ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


def targets_for(rng, loss, n, n_outputs):
    if n_outputs > 1:
        return rng.integers(0, n_outputs, n)
    return rng.choice([-1.0, 1.0], n) if loss.target.value == "binary" else rng.uniform(0, 1, n)


def make_rows(X, y, *, layout="C", dtype="float64", n_outputs=1, row_norm=1.0, weights=None):
    spec = DataSpec(
        n_rows=len(X),
        n_features=X.shape[1],
        n_outputs=n_outputs,
        row_norm=row_norm,
        intercept=row_norm,
        dtype=dtype,
        sparse=layout == "csr",
        weight_bound=2.0 if weights is not None else 1.0,
        target_low=0.0,
        target_high=1.0,
    )
    matrix = X.astype(dtype)
    stored = sparse.csr_array(matrix) if layout == "csr" else np.asarray(matrix, order=layout)
    return prepare_rows(stored, y, spec, weights=weights)


def oracle_for(rows, loss, seed=0, adjacency=ZERO_OUT):
    return Oracle(rows, loss, Curator(adjacency, SeededNoise(seed)))


def choose_least(oracle, candidates, bound, epsilon):
    """Declare the choice and make it."""
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    declared = least_loss_release(spec, adjacency, bound, epsilon)
    return choose_least_loss(oracle, declared, candidates, bound)


def choose_generalized(oracle, candidates, bounds, public_loss, epsilon, failure):
    """Declare the choice and make it."""
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    declared = generalized_choice_release(spec, adjacency, bounds, epsilon, failure)
    none = [0.0] * len(bounds)
    return choose_least_generalized(oracle, declared, candidates, bounds, public_loss, none)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=lambda p: type(p).__name__)
def test_sums_equal_the_definition(layout, dtype, loss, n_outputs):
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, (700, 4))
    y = targets_for(rng, loss, 700, n_outputs)
    weights = rng.uniform(0, 2, 700)
    rows = make_rows(X, y, layout=layout, dtype=dtype, n_outputs=n_outputs, weights=weights)
    candidates = [5.0 * rng.normal(size=rows.spec.coefficient_shape) for _ in range(3)]
    bounds = [0.5, 1.0, 100.0]
    got = clipped_loss_sums(rows, loss.value, candidates, bounds)
    augmented = np.column_stack([X, np.ones(700)])
    expected = [
        float(weights @ np.clip(loss.value(augmented @ w, y), 0.0, bound))
        for w, bound in zip(candidates, bounds, strict=True)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-4 if dtype == "float32" else 1e-11)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_losses_that_overflow_count_as_the_bound(dtype):
    rows = make_rows(np.full((4, 2), 0.5), np.zeros(4), dtype=dtype)
    huge = np.array([1e200, 1e200, 1e200]) if dtype == "float64" else np.full(3, 1e38)
    opposed = np.array([huge[0], -huge[0], 0.0])
    for w in (huge, np.full(3, np.inf), np.array([np.inf, -np.inf, 0.0]), np.full(3, np.nan)):
        assert clipped_loss_sums(rows, Squared().value, [w], [3.0]).tolist() == [12.0]
    assert clipped_loss_sums(rows, Squared().value, [opposed], [3.0]).tolist() == [0.0]


def every(names, *cases):
    """Parameters with ids of their own."""
    ids = ["-".join(map(str, case)) for case in cases]
    return pytest.mark.parametrize(names, cases, ids=ids)


NEIGHBOURS = every(
    "layout, dtype, loss, n_outputs, relation",
    ("C", "float64", Logistic(), 1, ZERO_OUT),
    ("C", "float32", Logistic(), 1, REPLACE_ONE),
    ("F", "float32", Squared(), 1, ZERO_OUT),
    ("csr", "float64", Squared(), 1, REPLACE_ONE),
    ("csr", "float32", Softmax(), 3, ZERO_OUT),
    ("C", "float64", Softmax(), 3, REPLACE_ONE),
    ("F", "float64", OneVsRest(Hinge(), 3), 3, REPLACE_ONE),
)
"""Backends, precisions, losses and relations, each at least twice."""


def neighbours(loss, n_outputs, n, row_norm, layout, dtype, huge, relation):
    """Rows that differ in one, which is as bad as it can be."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3)) * row_norm
    y = targets_for(rng, loss, n, n_outputs)
    weights = np.full(n, 2.0)
    options = {"layout": layout, "dtype": dtype, "n_outputs": n_outputs, "row_norm": row_norm}
    X[n // 2] = huge
    first = make_rows(X, y, weights=weights, **options)
    other, other_weights = X.copy(), weights.copy()
    if relation is REPLACE_ONE:
        other[n // 2] = -huge
    else:
        other_weights[n // 2] = 0.0
    return first, make_rows(other, y, weights=other_weights, **options)


@NEIGHBOURS
def test_worst_neighbours_stay_within_declared_bounds(layout, dtype, loss, n_outputs, relation):
    rng = np.random.default_rng(4)
    for row_norm, n, huge in itertools.product((0.01, 1.0, 100.0), (1, 300), (1e6, -1e30)):
        a, b = neighbours(loss, n_outputs, n, row_norm, layout, dtype, huge, relation)
        for size, bound in itertools.product((0.0, 1.0, 1e8), (1e-3, 2.0, 1e6)):
            shape = a.spec.coefficient_shape
            candidates = [rng.normal(size=shape) * size / row_norm for _ in range(3)]
            moves = clipped_loss_sums(a, loss.value, candidates, [bound] * 3)
            moves -= clipped_loss_sums(b, loss.value, candidates, [bound] * 3)
            with watching(0) as told:
                choose_least(oracle_for(a, loss, adjacency=relation), candidates, bound, 1.0)
            sensitivity = relation.sum_sensitivity(move_allowed(told.declared))
            # Permute-and-flip asks for half of the length of an interval with all moves.
            assert max(moves.max(), 0.0) - min(moves.min(), 0.0) <= 2.0 * sensitivity
            with watching(0) as told:
                bounds = [bound, 2 * bound, 3 * bound]
                oracle = oracle_for(a, loss, adjacency=relation)
                choose_generalized(oracle, candidates, bounds, 1.0, 1.0, 0.1)
            moves = clipped_loss_sums(a, loss.value, candidates, bounds)
            moves -= clipped_loss_sums(b, loss.value, candidates, bounds)
            declared = told.value[1]
            assert declared[0] == 0.0
            assert declared.max() == move_allowed(told.declared)
            assert (np.abs(moves) <= [relation.sum_sensitivity(d) for d in declared[1:]]).all()


def test_bounds_are_attained_and_a_missing_clip_is_detected():
    X = np.array([[1.0], [0.0]])
    present = make_rows(X, np.ones(2), weights=np.array([2.0, 1.0]))
    absent = make_rows(X, np.ones(2), weights=np.array([0.0, 1.0]))
    replaced = make_rows(-X, np.ones(2), weights=np.array([2.0, 1.0]))
    good, bad = np.array([1e6, 0.0]), np.array([-1e6, 0.0])
    candidates, largest = [good, bad], 2.0 * 3.0
    half = 0.5 * largest + loss_rounding(present.spec, largest)

    def interval(a, b, bound):
        moves = clipped_loss_sums(a, Logistic().value, candidates, [bound] * 2)
        moves -= clipped_loss_sums(b, Logistic().value, candidates, [bound] * 2)
        return np.ptp(moves)

    for other, relation in ((absent, ZERO_OUT), (replaced, REPLACE_ONE)):
        attained = interval(present, other, 3.0) / 2.0
        assert 0.999 * relation.sum_sensitivity(half) < attained <= relation.sum_sensitivity(half)
        unclipped = interval(present, other, math.inf) / 2.0
        assert unclipped > 1e5 * relation.sum_sensitivity(half)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rounding_is_small_and_covers_sums_in_another_order(layout):
    rng = np.random.default_rng(5)
    n = 30_000
    X, y = rng.uniform(-0.5, 0.5, (n, 2)), np.ones(n)
    rows = make_rows(X, y, layout=layout)
    shuffled = make_rows(X[rng.permutation(n)], y, layout=layout)
    w = np.array([0.3, -2.0, 1.0])
    one, other = (clipped_loss_sums(r, Logistic().value, [w], [1.0])[0] for r in (rows, shuffled))
    assert abs(one - other) <= loss_rounding(rows.spec, 1.0) * (n / 4096)
    assert loss_rounding(DataSpec(10**6, 100, sparse=layout == "csr"), 1.0) < 1e-6


RUNS = 4000
SCORES = np.array([0.2, 0.0, 0.5])
"""Losses of one row at three candidates, made by targets of a squared loss."""


def chosen_often(choose):
    """Frequencies over many runs; rows of zeros, with the losses of their intercept."""
    rows = make_rows(np.zeros((1, 1)), np.zeros(1))
    candidates = [np.array([0.0, math.sqrt(2.0 * score)]) for score in SCORES]
    picks = [choose(oracle_for(rows, Squared(), seed), candidates) for seed in range(RUNS)]
    return np.bincount(picks, minlength=3)


def permute_and_flip_law(scores, sensitivity, epsilon):
    """By the definition: flip coins in every order of the candidates."""
    p = np.exp(-epsilon * (scores - scores.min()) / (2.0 * sensitivity))
    law = np.zeros(len(p))
    orders = list(itertools.permutations(range(len(p))))
    for order in orders:
        left = 1.0
        for candidate in order:
            law[candidate] += left * p[candidate] / len(orders)
            left *= 1.0 - p[candidate]
    return law


def p_value(counts, law):
    return float(chisquare(counts, RUNS * law / law.sum()).pvalue)


def test_the_least_loss_is_chosen_with_the_probability_claimed():
    counts = chosen_often(lambda o, c: choose_least(o, c, bound=0.6, epsilon=2.0))
    assert p_value(counts, permute_and_flip_law(SCORES, 0.3, 2.0)) > 1e-4
    # Noise for twice the epsilon, or half of the range forgotten, would be seen.
    assert p_value(counts, permute_and_flip_law(SCORES, 0.3, 4.0)) < 1e-9
    assert p_value(counts, permute_and_flip_law(SCORES, 0.6, 2.0)) < 1e-9


def test_generalized_choice_has_the_claimed_probability():
    def choose(oracle, candidates):
        return choose_generalized(oracle, candidates[1:], [0.1, 0.6], 0.2, 3.0, 0.5)

    counts = chosen_often(choose)
    scores = np.array([0.2, 0.0, 0.5])
    comparable = generalized_scores(scores, [0.0, 0.1, 0.6], 3.0, 0.5)
    assert p_value(counts, np.exp(-3.0 * comparable / 2.0)) > 1e-4
    assert p_value(counts, np.exp(-3.0 * comparable)) < 1e-9


def test_noise_forgotten_in_the_choice_is_seen():
    with mock.patch.object(selections, "permute_and_flip", lambda s, *_: int(np.argmin(s))):
        counts = chosen_often(lambda o, c: choose_least(o, c, bound=0.6, epsilon=2.0))
    assert counts.tolist() == [0, RUNS, 0]
    assert permute_and_flip_law(SCORES, 0.3, 2.0)[1] < 0.7


def test_choices_are_recorded_before_they_are_made():
    rows = make_rows(np.zeros((2, 1)), np.zeros(2))
    oracle = oracle_for(rows, Squared())
    broken = mock.patch.object(selections, "permute_and_flip", side_effect=RuntimeError)
    with broken, pytest.raises(RuntimeError):
        choose_least(oracle, [np.zeros(2)] * 2, 1.0, 0.5)
    assert oracle.curator.event == Pure(0.5)
    oracle = oracle_for(rows, Squared())
    choose_generalized(oracle, [np.zeros(2)], [1.0], 1.0, 0.5, 0.1)
    assert oracle.curator.event == BoundedRange(0.5)
