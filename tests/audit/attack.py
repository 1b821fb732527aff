"""An attack: many runs on two neighbours, guesses, and bounds on the error rates."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np

from dpglm.audit.report import error_bounds
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run

CONFIDENCE = 0.998
"""That both bounds on error rates hold."""


@dataclasses.dataclass(frozen=True)
class View:
    """The visible outputs of a run: all noisy mean gradients, and the returned parameter."""

    gradients: np.ndarray
    w: np.ndarray


def mu_at_least(guesses: np.ndarray, guesses_other: np.ndarray) -> float:
    """Lower confidence bound on mu from guesses "first data set" on both of two data sets."""
    return error_bounds(guesses, guesses_other, CONFIDENCE).mu()


def delta_at_least(guesses: np.ndarray, guesses_other: np.ndarray, epsilon: float) -> float:
    """Lower confidence bound on delta at ``epsilon``, in either direction."""
    return error_bounds(guesses, guesses_other, CONFIDENCE).delta(epsilon)


def epsilon_at_least(guesses: np.ndarray, guesses_other: np.ndarray) -> float:
    """Lower confidence bound on a pure epsilon, in either direction."""
    return error_bounds(guesses, guesses_other, CONFIDENCE).epsilon(0.0)


def one_row(
    spec: DataSpec, row: np.ndarray, target: float, *, present: bool = True, others: float = 0.0
) -> Rows:
    """One row of interest among rows that contribute nothing, or ``others`` in every column."""
    X = np.full((spec.n_rows, spec.n_features), others)
    X[0] = row
    y = np.full(spec.n_rows, target, dtype=int if spec.n_outputs > 1 else float)
    weights = np.ones(spec.n_rows)
    weights[0] = float(present)
    return prepare_rows(X.astype(spec.dtype), y, spec, weights=weights)


def views(plan: Plan, rows: Rows, seeds: range) -> View:
    """Run the plan once for each seed; everything released, stacked."""
    gradients, returned = [], []
    original = Oracle.noisy_gradient

    def listening(self: Oracle, *args: object, **kwargs: object) -> np.ndarray:
        g = original(self, *args, **kwargs)  # type: ignore[arg-type]
        gradients.append(g)
        return g

    with mock.patch.object(Oracle, "noisy_gradient", listening):
        returned = [run(plan, rows, SeededNoise(seed)).w for seed in seeds]
    shape = (len(returned), plan.n_steps, *plan.data.coefficient_shape)
    return View(np.reshape(gradients, shape), np.array(returned))


Adder = Callable[..., np.ndarray]


@contextlib.contextmanager
def released_sums() -> Iterator[list[tuple[np.ndarray, float]]]:
    """Let releases pass without noise, and list each exact sum with the noise it was due."""
    seen: list[tuple[np.ndarray, float]] = []

    def silent(value: np.ndarray, std: float, k: int, source: object) -> np.ndarray:
        seen.append((np.array(value), std))
        return np.array(value)

    with mock.patch.object(additive, "add_gaussian", silent):
        yield seen


@contextlib.contextmanager
def planted_noise(make: Callable[[Adder], Adder]) -> Iterator[None]:
    """Replace the way in which noise is added, as a bug would."""
    with mock.patch.object(additive, "add_gaussian", make(additive.add_gaussian)):
        yield


@contextlib.contextmanager
def scripted_releases(seed: int, size: float) -> Iterator[list[tuple[np.ndarray, float]]]:
    """Release the same random vectors whatever the data, and list each exact sum and its noise.

    Runs on two neighbours then pass through the same iterates, so that their sums can be
    compared step by step.
    """
    rng = np.random.default_rng(seed)
    seen: list[tuple[np.ndarray, float]] = []

    def scripted(value: np.ndarray, std: float, k: int, source: object) -> np.ndarray:
        seen.append((np.array(value), std))
        return size * rng.normal(size=value.shape)

    with mock.patch.object(additive, "add_gaussian", scripted):
        yield seen
