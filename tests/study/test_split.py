"""Rows to learn from and rows to evaluate on: disjoint, random, and paid for in parallel."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpglm.privacy import Adjacency, Gaussian, GaussianAccountant, Parallel, SplitByCoins, gdp
from dpglm.privacy.noise import SeededNoise
from dpglm.study import Split, Study

ZERO_OUT, ADD_REMOVE, REPLACE_ONE = Adjacency


@pytest.mark.parametrize("adjacency", [ZERO_OUT, REPLACE_ONE])
def test_public_n_gives_fixed_sizes(adjacency):
    split = Split(0.25)
    masks = [split.draw(40, adjacency, SeededNoise(seed)) for seed in range(200)]
    assert {int(mask.sum()) for mask in masks} == {10} == {split.sizes(40)[1]}
    # Every row is as likely: 200 draws of probability 1/4.
    counts = np.sum(masks, axis=0)
    assert np.abs(counts - 50).max() < 4.5 * math.sqrt(200 * 0.25 * 0.75)


def test_private_n_gives_independent_coins():
    masks = np.array([Split(0.25).draw(40, ADD_REMOVE, SeededNoise(s)) for s in range(400)])
    sizes = masks.sum(axis=1)
    # Planted bug: fixed sizes, with variance 0.
    assert sizes.var() == pytest.approx(40 * 0.25 * 0.75, rel=0.3)
    assert sizes.mean() == pytest.approx(10.0, abs=0.6)


def test_a_person_is_in_one_part():
    persons = np.array(list("aabbbcdddd") * 4)
    for seed in range(50):
        try:
            mask = Split(0.5, persons="id").draw(40, ZERO_OUT, SeededNoise(seed), persons)
        except ValueError:
            continue  # both parts must have rows
        assert all(len(set(mask[persons == one])) == 1 for one in "abcd")
    with pytest.raises(ValueError, match="persons"):
        Split(persons="id").draw(40, ZERO_OUT, SeededNoise(0))


def test_two_draws_differ():
    split = Split()
    one, other = (split.draw(1000, ZERO_OUT, SeededNoise(seed)) for seed in (0, 1))
    assert (one != other).any()


def test_events():
    train, test = Gaussian(2.0), Gaussian(4.0)
    assert Split().event(train, test, ZERO_OUT) == Parallel((train, test))
    assert Split().event(train, test, ADD_REMOVE) == SplitByCoins((train, test))
    by_person = Split(persons="id")
    assert by_person.event(train, test, ADD_REMOVE) == SplitByCoins((train, test))
    for adjacency in (ZERO_OUT, REPLACE_ONE):
        with pytest.raises(ValueError, match="add_remove"):
            by_person.event(train, test, adjacency)
    for adjacency in Adjacency:
        event = Split().event(train, test, adjacency)
        assert GaussianAccountant().mu(event, adjacency) == pytest.approx(0.5)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan])
def test_shares_out_of_range_are_refused(share):
    with pytest.raises(ValueError, match="test_share"):
        Split(share)


def test_empty_parts_are_refused():
    with pytest.raises(ValueError, match="n_rows"):
        Split(0.01).sizes(20)
    # Where the number of rows is private, a refusal would depend on it.
    assert not Split(0.001).draw(3, ADD_REMOVE, SeededNoise(0)).any()
    assert len(Split(0.5).draw(0, ADD_REMOVE, SeededNoise(0))) == 0


def least_delta(shifts, epsilon, sigma):
    """Delta of a half-plane of noisy (sum to learn from, sum to evaluate on), D against D'.

    ``shifts`` lists the changes from D to D': probabilities, and changes of the two sums.
    """
    direction = np.array([-2.0, 1.0]) / math.sqrt(5.0)
    thresholds = np.linspace(-8.0, 8.0, 4001)
    under_d = ndtr(-thresholds)
    moved = sum(
        probability * ndtr(-(thresholds - np.dot(direction, change) / sigma))
        for probability, change in shifts
    )
    return float(np.max(moved - math.exp(epsilon) * under_d))


def test_fixed_sizes_fail_where_n_is_private():
    # 99 rows of D contribute 1, the one more of D' contributes -1; 90 are learned from.
    sigma, q = 2.0, 0.9
    delta = 1e-3
    epsilon = gdp.epsilon(delta, 1.0 / sigma)
    fixed = [(q, (-2.0, 1.0)), (1.0 - q, (0.0, -1.0))]
    coins = [(q, (-1.0, 0.0)), (1.0 - q, (0.0, -1.0))]
    assert least_delta(fixed, epsilon, sigma) > 20.0 * delta
    assert least_delta(coins, epsilon, sigma) <= delta


TARGETS = {
    "number": {"name": "y", "type": "numeric", "low": 0, "high": 9},
    "binary": {"name": "y", "type": "binary", "classes": ["a", "b"]},
    "classes": {"name": "y", "type": "classes", "classes": ["a", "b", "c"]},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("target", TARGETS)
def test_empty_sides_are_answered_where_rows_are_private(n, target):
    """A refusal would tell neighbours apart: the sides of one row are empty or not."""
    x = {"type": "numeric", "low": 0, "high": 1}
    schema = {"columns": {"x": x}, "target": TARGETS[target], "provenance": "made up"}
    y = np.arange(n, dtype=float) if target == "number" else np.array(["a", "b"])[:n]
    table = {"x": np.full(n, 0.5), "y": y, "id": np.arange(n)}
    given = {"adjacency": "add_remove", "n_rows": 900}
    people = {"groups": "id", "n_groups": 900, "max_rows_per_group": 1}
    for seed in range(3):
        result = Study(schema, **given).explore().fit().evaluate().run(table, random_state=seed)
        assert result.verify().ok
    of_people = Study(schema, **given, **people).fit().evaluate(persons="id")
    assert of_people.run(table, random_state=0).verify().ok
    with pytest.raises(ValueError, match="n_rows"):
        Study(schema).fit().evaluate().run({name: one[:0] for name, one in table.items()})
