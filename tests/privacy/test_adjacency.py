"""The neighbouring relations and their factor 2."""

import math

import pytest

from dpglm.privacy.budget import Adjacency


@pytest.mark.parametrize(
    ("adjacency", "factor", "n_is_public"),
    [("zero_out", 1.0, True), ("add_remove", 1.0, False), ("replace_one", 2.0, True)],
)
def test_sensitivity_and_public_n(adjacency, factor, n_is_public):
    relation = Adjacency(adjacency)
    assert relation.sum_sensitivity(0.3) == factor * 0.3
    assert relation.sum_sensitivity(0.0) == 0.0
    assert relation.n_is_public is n_is_public


@pytest.mark.parametrize("adjacency", Adjacency)
def test_sensitivity_is_that_of_the_worst_neighbour(adjacency):
    bound = 1.7
    rows = [-bound, 0.2, bound]
    changes = {
        Adjacency.ZERO_OUT: [row - 0.0 for row in rows],
        Adjacency.ADD_REMOVE: [*rows, bound],
        Adjacency.REPLACE_ONE: [old - new for old in rows for new in (-bound, bound)],
    }[adjacency]
    assert max(abs(change) for change in changes) == adjacency.sum_sensitivity(bound)


@pytest.mark.parametrize("bound", [-1.0, math.nan, math.inf, "1", True, None])
def test_bad_bound_is_refused(bound):
    with pytest.raises(ValueError, match="contribution_bound"):
        Adjacency.ZERO_OUT.sum_sensitivity(bound)


def test_every_relation_states_its_protection():
    sentences = {relation.describe() for relation in Adjacency}
    assert len(sentences) == len(Adjacency)
    assert all(sentence.endswith(".") and "row" in sentence for sentence in sentences)
    assert "private" in Adjacency.ADD_REMOVE.describe()
