"""Attacks on the best of a random number of tries, and bugs that they refute."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy.special import ndtri

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle import choices
from dpglm.privacy import (
    Adjacency,
    ApproximateDP,
    Gaussian,
    NegativeBinomialNumber,
    PoissonNumber,
    RandomlyRepeated,
    accountant_for,
    gdp,
)
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.problem import Logistic, Problem
from dpglm.selection import search as search_module
from dpglm.selection.search import Candidate, HeldOutSearch, RepeatedSearch
from dpglm.solvers import Constant, NoisyGD, run
from dpglm.solvers.base import Outcome
from tests.audit.attack import delta_at_least
from tests.slowly import first_quickly

ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
EPSILON, DELTA = 0.5, 0.05
MU, RUNS = 0.4, 20_000


def largest_of(law, mean, rng):
    """The largest of K normal numbers, K from NumPy; nothing where there is none."""
    if isinstance(law, PoissonNumber):
        tries = rng.poisson(law.rate, RUNS)
    else:
        tries = np.zeros(RUNS, dtype=int)
        while not tries.all():
            again = rng.negative_binomial(law.shape, law.success, RUNS)
            tries = np.where(tries == 0, again, tries)
    # The largest of k numbers has the distribution function F^k.
    with np.errstate(divide="ignore"):
        at = rng.random(RUNS) ** (1.0 / tries)
    return np.where(tries > 0, ndtri(at) + mean, -np.inf)


@pytest.mark.parametrize(
    "law",
    [NegativeBinomialNumber(0.02), NegativeBinomialNumber(0.05, 2), PoissonNumber(30.0)],
    ids=repr,
)
def test_best_of_gaussian_tries_leaks_between_one_try_and_claim(law):
    rng = np.random.default_rng(2)
    moved, still = largest_of(law, MU, rng), largest_of(law, 0.0, rng)
    threshold = np.median(still) + 0.5
    found = delta_at_least(moved > threshold, still > threshold, EPSILON)
    event = RandomlyRepeated((Gaussian(1.0 / MU),), law)
    assert found <= accountant_for(event, ZERO_OUT).delta(event, ZERO_OUT, EPSILON)
    # Planted bug: the cost of repetition forgotten.
    assert found > gdp.delta(EPSILON, MU)


# A search in which one row decides which of two models is better.
DATA = DataSpec(n_rows=5, n_features=1)
MODELS = (np.array([1e9]), np.array([-1e9]))


def searching(adjacency=ZERO_OUT, share=0.9):
    solver = NoisyGD(n_steps=1, step_size=1.0, schedule=Constant(), clip=1.0, momentum=0.0)
    candidates = (Candidate({}, solver, lambda spec: Problem(Logistic())),) * 2
    search = RepeatedSearch(candidates, NegativeBinomialNumber(0.1), share)
    return search.plan(Problem(Logistic()), ApproximateDP(EPSILON, DELTA), DATA, adjacency)


def neighbours(adjacency):
    X = np.array([[1.0], [1.0], [-1.0], [1.0], [-1.0]])
    for target, weight in ((1.0, 1.0), (-1.0, 1.0 if adjacency is REPLACE_ONE else 0.0)):
        y = np.array([target, 1.0, 1.0, -1.0, -1.0])
        yield prepare_rows(X, y, DATA, weights=np.array([weight, 1.0, 1.0, 1.0, 1.0]))


def found_delta(plan, runs=300):
    """How much likelier the model that the row likes is to be returned with it."""
    numbers = []

    def no_steps(method, state, oracle):
        # As if the gradients had been released; the models are those that tell most.
        oracle.curator._records.append(method.mechanisms)
        return state

    def known_model(method, state):
        return Outcome(MODELS[numbers[-1]])

    original = search_module.uniform

    def listening(noise, size):
        numbers.append(original(noise, size))
        return numbers[-1]

    with (
        mock.patch.object(search_module, "take_steps", no_steps),
        mock.patch.object(search_module, "finished", known_model),
        mock.patch.object(search_module, "uniform", listening),
    ):
        likes = [
            np.array([run(plan, rows, SeededNoise(first + k)).w[0] > 0.0 for k in range(runs)])
            for first, rows in zip((0, runs), neighbours(plan.adjacency), strict=True)
        ]
    return delta_at_least(*likes, EPSILON)


@pytest.mark.parametrize("adjacency", first_quickly(ZERO_OUT, REPLACE_ONE))
def test_a_row_that_decides_is_as_private_as_claimed(adjacency):
    assert found_delta(searching(adjacency)) <= DELTA


@pytest.mark.parametrize("adjacency", first_quickly(ZERO_OUT, REPLACE_ONE))
def test_scores_without_noise_are_refuted(adjacency):
    with mock.patch.object(additive, "add_gaussian", lambda value, *_: np.array(value)):
        assert found_delta(searching(adjacency)) > DELTA


def test_tries_that_release_something_else_stop_the_run():
    original = search_module.take_steps

    def twice(method, state, oracle):
        original(method, state, oracle)
        return original(method, state, oracle)

    rows = next(neighbours(ZERO_OUT))
    with (
        mock.patch.object(search_module, "take_steps", twice),
        pytest.raises(PlanMismatchError, match="planned tries"),
    ):
        run(searching(), rows, SeededNoise(1))


def test_rows_that_train_do_not_choose():
    solver = NoisyGD(n_steps=1)
    candidates = (Candidate({}, solver, lambda spec: Problem(Logistic())),) * 2
    search = HeldOutSearch(candidates, 0.4)
    plan = search.plan(Problem(Logistic()), ApproximateDP(EPSILON, DELTA), DATA)
    seen = []
    original = choices.choose_least_loss

    def listening(oracle, *args):
        seen.append(oracle.rows.n_rows)
        return original(oracle, *args)

    with mock.patch.object(choices, "choose_least_loss", listening):
        run(plan, next(neighbours(ZERO_OUT)), SeededNoise(1))
    assert plan.method.part_sizes == (3, 2)
    assert seen == [2]
