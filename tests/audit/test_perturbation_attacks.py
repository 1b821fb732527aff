"""Attacks on released minimisers: never above the claim, close to it, and deadly for bugs."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np

from dpglm.data.rows import DataSpec
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianLinearTerm
from dpglm.problem import Logistic, OneVsRest, Problem, Squared
from dpglm.solvers import ObjectivePerturbation, OutputPerturbation, run
from tests.audit.attack import delta_at_least, mu_at_least, one_row
from tests.planted import unclipped

MU, RUNS, FEW = 2.0, 400, 200
HUGE = np.array([1e6, 0.0])
DATA = DataSpec(n_rows=3, n_features=2, target_low=-40.0, target_high=40.0)


def returned(plan, rows, seeds):
    return np.array([run(plan, rows, SeededNoise(seed)).w for seed in seeds])


def neighbours(plan, target=40.0):
    """A row with a constant clipped slope at every reachable parameter, and its neighbour."""
    first = one_row(plan.data, HUGE, target)
    if plan.adjacency is Adjacency.REPLACE_ONE:
        return first, one_row(plan.data, -HUGE, target)
    if plan.adjacency is Adjacency.ADD_REMOVE:
        return first, first.take(np.array([1, 2]))
    return first, one_row(plan.data, HUGE, target, present=False)


def guesses(plan, runs, middle):
    """Guess the data set from the first coefficient."""
    one, other = neighbours(plan)
    a = returned(plan, one, range(runs))[:, 0] > middle
    b = returned(plan, other, range(runs, 2 * runs))[:, 0] > middle
    return a, b


# Output perturbation: one Gaussian, with a claim that can be reached.


def output_plan(adjacency=Adjacency.ZERO_OUT):
    solver = OutputPerturbation(clip=0.5, strength=0.2)
    return solver.plan(Problem(Squared()), GaussianDP(MU), DATA, adjacency)


def output_attack(plan, runs):
    is_pair = plan.adjacency is Adjacency.REPLACE_ONE
    middle = 0.0 if is_pair else 0.5 * plan.method.objective.movement
    return mu_at_least(*guesses(plan, runs, middle))


def test_no_clipping_is_refuted():
    plan = output_plan()
    with unclipped():
        assert output_attack(plan, FEW) > MU


def test_a_strength_that_is_claimed_but_not_added_is_refuted():
    plan = output_plan()
    weak = dataclasses.replace(plan.method.objective, added=0.3 * plan.method.objective.added)
    build = type(weak).build

    def building(self, *arguments, **options):
        return build(weak, *arguments, **options)

    with mock.patch.object(type(weak), "build", building):
        assert output_attack(plan, FEW) > MU


# Objective perturbation: the claim is an upper bound; attacks stay under it.

BUDGET, EPSILON = ApproximateDP(2.0, 1e-2), 0.1


def objective_plan(adjacency=Adjacency.ZERO_OUT, loss=None, data=DATA, **settings):
    solver = ObjectivePerturbation(**{"clip": 0.5, "strength": 30.0, **settings})
    return solver.plan(Problem(loss or Squared()), BUDGET, data, adjacency)


def claim(plan):
    accountant = accountant_for(plan.event, plan.adjacency)
    return accountant.delta(plan.event, plan.adjacency, EPSILON)


def difference_attack(plan, runs):
    one = one_row(plan.data, np.array([1.0, 0.0]), 1)
    other = one_row(plan.data, np.array([1.0, 0.0]), 1, present=False)
    shown = [returned(plan, rows, range(runs)) for rows in (one, other)]
    apart = [np.abs(w[:, 0, 1] - w[:, 0, 2]) for w in shown]
    middle = 0.2 * plan.method.objective.movement
    return delta_at_least(apart[0] > middle, apart[1] > middle, EPSILON)


def test_one_linear_term_for_all_classes_is_refuted():
    data = DataSpec(n_rows=3, n_features=2, n_outputs=3)
    plan = objective_plan(loss=OneVsRest(Logistic(), 3), data=data)
    assert difference_attack(plan, FEW) <= claim(plan)
    kept = []
    draw = GaussianLinearTerm.draw

    def drawing(self, release, shape, source):
        # A source serves one run; the list keeps it alive, so that no other has its identity.
        kept.append((source, draw(self, release, shape, source)))
        return next(secret for used, secret in kept if used is source)

    with mock.patch.object(GaussianLinearTerm, "draw", drawing):
        assert difference_attack(plan, FEW) > claim(plan)
