"""Choices of a coordinate: no score moves further than declared, and the law is the one claimed."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import chisquare

from dpglm.data.maps import viewed
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import choices as coordinates
from dpglm.oracle.choices import choose_coordinate, coordinate_release, entry_bound, largest_entry
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import BoundedRange
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.releases import Curator
from dpglm.privacy.selection import choices as selections
from dpglm.problem import Logistic, Poisson, Softmax, Squared
from tests.oracle.watching import move_allowed, watching
from tests.slowly import first_quickly

ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
RUNS = 4000


def make_rows(X, y, *, layout="C", dtype="float64", n_outputs=1, weights=None, **facts):
    spec = DataSpec(
        n_rows=len(X),
        n_features=X.shape[1],
        n_outputs=n_outputs,
        dtype=dtype,
        sparse=layout == "csr",
        weight_bound=1.0 if weights is None else 2.0,
        target_low=0.0,
        target_high=1.0,
        **facts,
    )
    matrix = X.astype(dtype)
    stored = sparse.csr_array(matrix) if layout == "csr" else np.asarray(matrix, order=layout)
    return prepare_rows(stored, y, spec, weights=weights).clip_entries(entry_bound(spec))


def choose(oracle, w, slope_clip, offset, offset_bound, epsilon):
    """Declare the choice and make it."""
    declared = coordinate_release(
        oracle.rows.spec, oracle.curator.adjacency, slope_clip, offset_bound, epsilon
    )
    return choose_coordinate(oracle, declared, w, slope_clip, offset, offset_bound)


def score_bound(data, adjacency, slope_clip, offset_bound):
    """How far erasing one row may move a score, as declared."""
    return move_allowed(coordinate_release(data, adjacency, slope_clip, offset_bound, 1.0))


def asked(rows, loss, w, slope_clip, offset, offset_bound, adjacency=ZERO_OUT):
    """The scores, and the bound that the curator is told."""
    oracle = Oracle(rows, loss, Curator(adjacency, SeededNoise(0)))
    with watching(0) as told:
        choose(oracle, w, slope_clip, offset, offset_bound, 1.0)
    return told.value, move_allowed(told.declared)


def targets_for(rng, loss, n, n_outputs):
    if n_outputs > 1:
        return rng.integers(0, n_outputs, n)
    return rng.choice([-1.0, 1.0], n) if loss.target.value == "binary" else rng.uniform(0, 1, n)


CASES = [
    pytest.param(*case, id="-".join(map(str, case)))
    for case in (
        ("C", "float64", Logistic(), 1, ZERO_OUT),
        ("C", "float32", Squared(), 1, REPLACE_ONE),
        ("F", "float32", Poisson(), 1, ZERO_OUT),
        ("csr", "float32", Logistic(), 1, REPLACE_ONE),
        ("csr", "float64", Softmax(), 3, ZERO_OUT),
        ("C", "float32", Softmax(), 3, REPLACE_ONE),
    )
]


@pytest.mark.parametrize(("layout", "dtype", "loss", "n_outputs", "relation"), CASES)
def test_scores_equal_the_definition(layout, dtype, loss, n_outputs, relation):
    rng = np.random.default_rng(1)
    X, weights = rng.uniform(-1, 1, (700, 4)), rng.uniform(0, 2, 700)
    y = targets_for(rng, loss, 700, n_outputs)
    facts = {"row_norm": 2.0, "intercept": 0.5, "entry_bound": 0.6}
    rows = make_rows(
        X, y, layout=layout, dtype=dtype, n_outputs=n_outputs, weights=weights, **facts
    )
    w = rng.normal(size=rows.spec.coefficient_shape)
    offset = rng.normal(size=w.shape)
    scores, _ = asked(rows, loss, w, 0.3, offset, 10.0, relation)
    augmented = np.column_stack([np.clip(X, -0.6, 0.6), np.full(700, 0.5)])
    slopes = np.clip(loss.slope(augmented @ w, y), -0.3, 0.3)
    gradient = augmented.T @ (slopes.T * weights).T + offset
    expected = np.concatenate([gradient.ravel(), -gradient.ravel()])
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(scores, expected, rtol=tolerance, atol=tolerance)


def neighbours(loss, n_outputs, n, layout, dtype, huge, relation, facts):
    """Rows that differ in one, which is as bad as it can be."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3)) * facts["row_norm"]
    y = targets_for(rng, loss, n, n_outputs)
    weights = np.full(n, 2.0)
    options = {"layout": layout, "dtype": dtype, "n_outputs": n_outputs, **facts}
    X[n // 2] = huge
    first = make_rows(X, y, weights=weights, **options)
    other, other_weights = X.copy(), weights.copy()
    if relation is REPLACE_ONE:
        other[n // 2] = -np.asarray(huge)
    else:
        other_weights[n // 2] = 0.0
    return first, make_rows(other, y, weights=other_weights, **options)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("layout", "dtype", "loss", "n_outputs", "relation"), CASES)
def test_worst_neighbours_stay_within_declared_bounds(layout, dtype, loss, n_outputs, relation):
    rng = np.random.default_rng(4)
    huges = ([1e6, 0.0, 0.0], [1e30, -1e30, 1e30])
    for row_norm, n, huge in itertools.product((0.01, 1.0, 100.0), (1, 300), huges):
        for intercept, entry in ((0.0, np.inf), (3.0 * row_norm, 0.1 * row_norm)):
            facts = {"row_norm": row_norm, "intercept": intercept, "entry_bound": entry}
            a, b = neighbours(loss, n_outputs, n, layout, dtype, huge, relation, facts)
            shape = a.spec.coefficient_shape
            for size, offset_bound in itertools.product((0.0, 1.0, 1e8), (0.0, 1.0, 1e12)):
                w = rng.normal(size=shape) * size / row_norm
                offset = rng.normal(size=shape) * 1e9
                scores, bound = asked(a, loss, w, 0.3, offset, offset_bound, relation)
                others, same = asked(b, loss, w, 0.3, offset, offset_bound, relation)
                assert bound == same
                assert np.isfinite(scores).all()
                assert np.abs(scores - others).max() <= relation.sum_sensitivity(bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slopes_that_overflow_move_no_score_too_far(dtype):
    X = np.full((4, 2), 0.5)
    rows = make_rows(X, np.zeros(4), dtype=dtype)
    fewer = make_rows(X, np.zeros(4), dtype=dtype, weights=np.array([0.0, 1.0, 1.0, 1.0]))
    for w in (np.full(2, 1e200), np.full(2, np.inf), np.array([np.inf, -np.inf]), [np.nan, 0.0]):
        scores, bound = asked(rows, Poisson(), np.array(w), 0.3, np.zeros(2), 0.0)
        others, _ = asked(fewer, Poisson(), np.array(w), 0.3, np.zeros(2), 0.0)
        assert np.isfinite(scores).all()
        assert np.abs(scores - others).max() <= bound


def test_add_remove_with_a_row_more():
    rng = np.random.default_rng(0)
    rows = make_rows(rng.normal(size=(50, 3)), rng.choice([-1.0, 1.0], 50), intercept=1.0)
    fewer = rows.take(np.arange(49))
    w, offset, relation = rng.normal(size=4), rng.normal(size=4), Adjacency.ADD_REMOVE
    scores, bound = asked(rows, Logistic(), w, 0.3, offset, 5.0, relation)
    others, same = asked(fewer, Logistic(), w, 0.3, offset, 5.0, relation)
    assert bound == same
    assert np.abs(scores - others).max() <= relation.sum_sensitivity(bound)


def move(huge=(1e6, 0.0), relation=REPLACE_ONE, **facts):
    """How far the worst score moves, over the sensitivity that the choice is made with."""
    X = np.array([huge, [0.0, 0.0]])
    absent = None if relation is REPLACE_ONE else np.array([0.0, 1.0])
    first = make_rows(X, np.array([1.0, 1.0]), weights=np.ones(2), **facts)
    if relation is REPLACE_ONE:
        second = make_rows(-X, np.array([1.0, 1.0]), weights=np.ones(2), **facts)
    else:
        second = make_rows(X, np.array([1.0, 1.0]), weights=absent, **facts)
    w = np.zeros(first.spec.coefficient_shape)
    scores, bound = asked(first, Logistic(), w, 0.25, w, 0.0, relation)
    others, _ = asked(second, Logistic(), w, 0.25, w, 0.0, relation)
    return 2.0 * np.abs(scores - others).max() / relation.sum_sensitivity(bound)


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE_ONE], ids=str)
def test_the_bound_is_attained_and_planted_bugs_are_seen(relation):
    # Weights of 1 under a bound of 2: exactly half of the sensitivity, times 2.
    facts = {"row_norm": 5.0, "entry_bound": 0.5}
    assert 0.999 < move(relation=relation, **facts) <= 1.0
    unclipped = SimpleNamespace(clip=lambda values, low, high, out=None: values)
    with mock.patch.object(coordinates, "namespace", return_value=unclipped):
        assert move(relation=relation, **facts) > 1.5
    with mock.patch.object(coordinates, "largest_entry", lambda data: 0.1 * data.entry_bound):
        assert move(relation=relation, **facts) > 5.0


def test_a_factor_two_forgotten_for_replace_one_is_seen():
    facts = {"row_norm": 5.0, "entry_bound": 0.5}
    with mock.patch.object(Adjacency, "sum_sensitivity", lambda self, bound, *_: bound):
        assert move(**facts) > 1.5


def test_an_intercept_column_larger_than_the_entries_is_seen():
    facts = {"row_norm": 5.0, "entry_bound": 0.5, "intercept": 2.0, "relation": ZERO_OUT}
    assert 0.999 < move(**facts) <= 1.0
    # The bound of the other columns taken for all.
    with mock.patch.object(coordinates, "largest_entry", entry_bound):
        assert move(**facts) > 3.0


def test_largest_entries_are_those_of_the_rows_that_are_asked():
    data = DataSpec(10, 3, row_norm=2.0, intercept=4.0)
    assert (entry_bound(data), largest_entry(data)) == (2.0, 4.0)
    data = DataSpec(10, 3, row_norm=2.0, intercept=4.0, entry_bound=0.5)
    assert (entry_bound(data), largest_entry(data)) == (0.5, 4.0)
    rows = make_rows(np.ones((3, 2)), np.ones(3), entry_bound=0.5, intercept=4.0)
    assert largest_entry(viewed(rows, 0.125).spec) == 0.5


def test_rounding_of_a_large_offset_is_inside_the_bound():
    # Below 2^54 only even numbers are floats, so sums one apart end up two apart.
    X, y, offset = np.ones((3, 1)), np.full(3, 0.5), np.array([2.0**54])
    moves = []
    for others in (0.0, 1.0, 2.0):
        weights = [np.array([others, 0.0, last]) for last in (0.0, 2.0)]
        pair = [make_rows(X, y, weights=each) for each in weights]
        (scores, bound), (near, _) = (
            asked(rows, Squared(), np.zeros(1), 0.5, offset, 2.0**54) for rows in pair
        )
        moves.append(np.abs(scores - near).max())
        assert moves[-1] <= bound
    assert max(moves) == 2.0 > 1.9 * score_bound(pair[0].spec, ZERO_OUT, 0.5, 0.0)


def one_row_oracle(seed, relation=ZERO_OUT):
    rows = make_rows(np.array([[0.6, -0.2]]), np.array([1.0]), entry_bound=1.0)
    return Oracle(rows, Logistic(), Curator(relation, SeededNoise(seed)))


def frequencies(epsilon, relation):
    counts = np.zeros(4, int)
    for seed in range(RUNS):
        oracle = one_row_oracle(seed, relation)
        index, sign = choose(oracle, np.zeros(2), 0.5, np.zeros(2), 0.0, epsilon)
        counts[index + (0 if sign > 0 else 2)] += 1
    return counts


def law(epsilon, sensitivity):
    """Probabilities of the exponential mechanism, from its definition."""
    gradient = -0.5 * np.array([0.6, -0.2])
    p = np.exp(-epsilon * np.concatenate([gradient, -gradient]) / (2.0 * sensitivity))
    return p / p.sum()


@pytest.mark.parametrize("relation", first_quickly(ZERO_OUT, REPLACE_ONE), ids=str)
def test_coordinates_are_chosen_with_the_probability_claimed(relation):
    counts = frequencies(3.0, relation)
    true = relation.sum_sensitivity(0.5)
    # The p-values of planted errors: a sensitivity halved or doubled, a sign turned.
    assert chisquare(counts, RUNS * law(3.0, true)).pvalue > 1e-4
    assert chisquare(counts, RUNS * law(3.0, 0.5 * true)).pvalue < 1e-9
    assert chisquare(counts, RUNS * law(3.0, 2.0 * true)).pvalue < 1e-9
    assert chisquare(counts, RUNS * np.roll(law(3.0, true), 2)).pvalue < 1e-9


def test_the_direction_is_the_one_in_which_the_loss_falls():
    # A row of (0.6, -0.2) with target +1 wants its first coefficient larger.
    index, sign = choose(one_row_oracle(0), np.zeros(2), 0.5, np.zeros(2), 0.0, 1e4)
    assert (index, sign) == (0, 1.0)
    offset = np.array([0.0, -10.0])
    index, sign = choose(one_row_oracle(0), np.zeros(2), 0.5, offset, 10.0, 1e4)
    assert (index, sign) == (1, 1.0)


def test_the_choice_is_recorded_before_it_is_made():
    oracle = one_row_oracle(0)
    broken = mock.patch.object(selections, "exponential_mechanism", side_effect=RuntimeError)
    with broken, pytest.raises(RuntimeError):
        choose(oracle, np.zeros(2), 0.5, np.zeros(2), 0.0, 0.7)
    assert oracle.curator.event == BoundedRange(0.7)


def test_rounding_is_small():
    data = DataSpec(50_000, 1000)
    assert score_bound(data, ZERO_OUT, 1.0, 1e3) < 1.0 + 1e-6
    assert score_bound(data, Adjacency.ADD_REMOVE, 1.0, 1e3) < 1.03
