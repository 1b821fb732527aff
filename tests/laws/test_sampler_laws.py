"""The sampler that ran is the one accounted for, in every solver that samples."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest

from dpglm.data.memory import ArrayRows
from dpglm.data.prepare import prepare_rows
from dpglm.privacy import ApproximateDP
from dpglm.privacy.events import PoissonSampled, canonical
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.releases import Bounded, Curator, Release
from dpglm.solvers import run
from tests.laws.test_solver_laws import SOLVERS, first_problem, make_data

N, RATE = 150, 0.2
SIGMAS = 5.0
"""Bound on each statistic, which is nearly normal; seeds are fixed, so results repeat."""


def has(solver, setting):
    return any(field.name == setting for field in dataclasses.fields(solver))


# One solver of each kind that has a rate to set; defaults may be to take all rows.
NAMES = list(
    {
        type(case.solver): name
        for name, case in reversed(SOLVERS.items())
        if has(case.solver, "sampling_rate")
    }.values()
)


@functools.cache
def plan_of(name):
    problem = first_problem(name)
    X, y, spec = make_data(problem, n=N)
    solver = dataclasses.replace(SOLVERS[name].solver, sampling_rate=RATE)
    if has(solver, "n_steps"):
        solver = dataclasses.replace(solver, n_steps=150)
    plan = solver.plan(problem, ApproximateDP(1.0, 1e-5), spec)
    return plan, prepare_rows(X, y, spec)


def sampled_releases(plan):
    """How many of the releases that are accounted for are about samples of the rate."""
    events = canonical(plan.method.mechanisms).terms
    sampled = [(one, count) for one, count in events if isinstance(one, PoissonSampled)]
    assert {one.sampling_rate for one, _ in sampled} == {RATE}
    return sum(count for _, count in sampled)


@contextlib.contextmanager
def batches() -> Iterator[list[tuple[np.ndarray, float]]]:
    """List each batch that a release was about, as a mask, with the rate it was declared with."""
    seen: list[tuple[np.ndarray, float]] = []
    taken: list[np.ndarray] = []
    take, release = ArrayRows.take, Curator.release

    def taking(self: ArrayRows, indices: np.ndarray) -> ArrayRows:
        taken.append(np.array(indices))
        return take(self, indices)

    def releasing(self: Curator, declared: Release, value: Bounded) -> np.ndarray:
        if declared.sampling_rate < 1.0:
            (batch,) = taken
            mask = np.bincount(batch, minlength=N)
            seen.append((mask, declared.sampling_rate))
        assert declared.sampling_rate < 1.0 or not taken
        taken.clear()
        return release(self, declared, value)

    with (
        mock.patch.object(ArrayRows, "take", taking),
        mock.patch.object(Curator, "release", releasing),
    ):
        yield seen


def doubts(masks: np.ndarray, rate: float) -> dict[str, float]:
    """By how many standard deviations each statistic of a Poisson sample is off."""
    steps, n = masks.shape
    variance = rate * (1.0 - rate)
    centred = masks - rate
    sizes = masks.sum(axis=1)

    def off(products: np.ndarray) -> float:
        return abs(float(products.sum())) / (variance * math.sqrt(products.size))

    # Fourth central moment of a binomial, for the spread of the sample variance.
    fourth = n * variance * (1.0 + 3.0 * (n - 2) * variance)
    spread = math.sqrt((fourth - (n * variance) ** 2) / steps)
    return {
        "rows enter at the rate": abs(centred.mean()) / math.sqrt(variance / masks.size),
        "so does each": float(abs(centred.mean(axis=0)).max()) / math.sqrt(variance / steps),
        "rows are independent": off(centred[:, :-1] * centred[:, 1:]),
        "far rows are independent": off(centred[:, : n // 2] * centred[:, -(n // 2) :]),
        "steps are independent": off(centred[:-1] * centred[1:]),
        "sizes vary": abs(float(((sizes - n * rate) ** 2).mean()) - n * variance) / spread,
    }


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_samples_of_the_accounted_rate(name):
    plan, rows = plan_of(name)
    with batches() as seen:
        run(plan, rows, SeededNoise(3))
    assert len(seen) == sampled_releases(plan)
    masks = np.array([mask for mask, _ in seen])
    assert masks.max() == 1
    assert {rate for _, rate in seen} == {RATE}
    assert max(doubts(masks, RATE).values()) < SIGMAS


def shuffled(size, rate, rng):
    """Batches of one size, as a shuffled pass over the rows has them."""
    return rng.permutation(size) < round(rate * size)


def in_groups(size, rate, rng):
    """Neighbouring rows enter together."""
    return np.repeat(rng.random(size // 2) < rate, 2)


BUGS = {
    "shuffled": shuffled,
    "in groups": in_groups,
    "another rate": lambda size, rate, rng: rng.random(size) < 1.1 * rate,
    "favoured rows": lambda size, rate, rng: rng.random(size) < rate * np.linspace(0.2, 1.8, size),
    "one batch for all": lambda size, rate, rng: np.random.default_rng(0).random(size) < rate,
    "never empty": lambda size, rate, rng: (rng.random(size) < rate) | (np.arange(size) == 7),
}


@pytest.mark.parametrize("bug", BUGS)
def test_other_samplers_are_caught(bug):
    rng = np.random.default_rng(5)
    masks = np.array([BUGS[bug](N, 0.1, rng) for _ in range(400)])
    assert max(doubts(masks, 0.1).values()) > SIGMAS
    honest = rng.random((400, N)) < 0.1
    assert max(doubts(honest, 0.1).values()) < SIGMAS


@pytest.mark.parametrize("name", NAMES)
def test_empty_batches_are_released_like_any_other(name):
    plan, rows = plan_of(name)
    honest = Curator.release
    released = []

    def nobody(self, size, probability):
        return np.zeros(size, dtype=bool)

    def releasing(self, declared, value):
        if declared.sampling_rate < 1.0:
            assert not value.value.any()
            released.append(value)
        return honest(self, declared, value)

    with (
        mock.patch.object(Curator, "sample", nobody),
        mock.patch.object(Curator, "release", releasing),
    ):
        solution = run(plan, rows, SeededNoise(0))
    assert np.isfinite(solution.w).all()
    assert len(released) == sampled_releases(plan)
