"""Bugs that libraries have had, planted on purpose: attacks and laws must detect them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final
from unittest import mock

import numpy as np

from dpglm.data import prepare
from dpglm.data.memory import ArrayRows
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle import gradients, scores
from dpglm.oracle.clipping import Clipping, FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import NoiseSource, SeededNoise, additive
from dpglm.privacy.noise.additive import GaussianLinearTerm, L2LinearTerm, SecretNoise
from dpglm.privacy.releases import Release
from dpglm.privacy.selection import choices as selections
from dpglm.solvers import Plan
from dpglm.solvers.second_order.posterior import NoisyMatrix

__all__ = [
    "PLANTED",
    "PlantedBug",
    "kept_noise",
    "not_shortened",
    "planted",
    "pythonic",
    "unchecked",
    "unclipped",
]

Function = Callable[..., Any]


@final
@dataclass(frozen=True)
class PlantedBug:
    """A bug, and a context manager that plants it."""

    name: str
    summary: str
    plant: Callable[[], AbstractContextManager[Any]]


def planted(name: str | None) -> AbstractContextManager[Any]:
    """Plant a bug by name for the duration of a block, in all threads; None for no bug."""
    if name is None:
        return contextlib.nullcontext()
    if name not in PLANTED:
        raise ValueError(f"name must be one of {sorted(PLANTED)}, got {name!r}")
    return PLANTED[name].plant()


@contextlib.contextmanager
def _in_mechanisms(**changes: Callable[[Function], Function]) -> Iterator[None]:
    """Replace functions that mechanisms draw with; a change maps the old to the new one."""
    with contextlib.ExitStack() as stack:
        for name, change in changes.items():
            module = selections if name in _CHOICES else additive
            changed = change(getattr(module, name))
            stack.enter_context(mock.patch.object(module, name, changed))
        yield


def _with_scale(factor: float) -> Callable[[Function], Function]:
    """Noise of another scale."""
    return lambda add: lambda value, scale, k, source: add(value, factor * scale, k, source)


def _with_epsilon(position: int, factor: float) -> Callable[[Function], Function]:
    """Return a choice that costs more than is recorded; its epsilon is at ``position``."""

    def change(choose: Function) -> Function:
        def changed(*arguments: Any) -> Any:
            given = list(arguments)
            given[position] = factor * given[position]
            return choose(*given)

        return changed

    return change


_CHOICES = {
    "exponential_mechanism": 2,
    "exponential_mechanism_in_runs": 3,
    "first_above": 2,
    "generalized_exponential_mechanism": 2,
    "permute_and_flip": 2,
}


def _weaker(scale: float, epsilon: float) -> AbstractContextManager[None]:
    noise = {name: _with_scale(scale) for name in ("add_gaussian", "add_l2_noise")}
    choices = {name: _with_epsilon(at, epsilon) for name, at in _CHOICES.items()}
    return _in_mechanisms(**noise, **choices)


@contextlib.contextmanager
def _changed_secret(change: Function) -> Iterator[None]:
    """Change the noise that enters a perturbed objective."""
    with contextlib.ExitStack() as stack:
        for kind in (GaussianLinearTerm, L2LinearTerm):
            changed = _secretly(kind.draw, change)
            stack.enter_context(mock.patch.object(kind, "draw", changed))
        yield


def _secretly(original: Function, change: Function) -> Function:
    def draw(*arguments: Any) -> SecretNoise:
        secret = original(*arguments)
        return SecretNoise(change(secret.value), secret.rounding)

    return draw


@contextlib.contextmanager
def _half_noise() -> Iterator[None]:
    with _weaker(0.5, 2.0), _changed_secret(lambda value: 0.5 * value):
        yield


@contextlib.contextmanager
def _forgotten_event() -> Iterator[None]:
    # The mean of two releases has the noise of one over sqrt(2); the sum of two choices' scores
    # is chosen by with twice the epsilon.
    with _weaker(0.5**0.5, 2.0), _changed_secret(lambda value: 0.5**0.5 * value):
        yield


@contextlib.contextmanager
def _no_clipping() -> Iterator[None]:
    def scale(self: Clipping, slopes: Any, row_norms: Any) -> Any:
        return slopes

    within = prepare._within

    def lax(X: Any, norms: Any, row_norm: float, in_place: bool = False) -> Any:
        return within(X, norms / 30.0, row_norm, in_place)

    # Rows keep thirty times the allowed norm; far more would be refused by the noise's checks.
    with (
        mock.patch.object(Clipping, "scale", scale),
        mock.patch.object(gradients, "compiled_rule", return_value=None),
        mock.patch.object(prepare, "_within", lax),
    ):
        yield


@contextlib.contextmanager
def _wrong_relation() -> Iterator[None]:
    # A plan that was made before has cached its scales.
    anew = property(lambda release: release.mechanism.scale(release))
    with (
        mock.patch.object(Adjacency, "sum_sensitivity", lambda self, bound, *_: bound),
        mock.patch.object(Release, "scale", anew),
    ):
        yield


def _fixed_seed() -> AbstractContextManager[None]:
    def seeded(original: Function) -> Function:
        return lambda *arguments: original(*arguments[:-1], SeededNoise(1))

    names = ("add_gaussian", "add_l2_noise", *_CHOICES)
    return _in_mechanisms(**dict.fromkeys(names, seeded))


def _unnoised_step_size() -> AbstractContextManager[Any]:
    original = Oracle.noisy_gradient

    def planted_gradient(self: Oracle, declared: Any, w: Any, clipping: Clipping) -> Any:
        exact = clipped_gradient_sum(self.rows, self.loss, clipping, w)
        length = float(np.linalg.norm(exact)) / clipping.bound
        return original(self, declared, w, clipping) / (1.0 + length)

    return mock.patch.object(Oracle, "noisy_gradient", planted_gradient)


def _intercept_without_noise() -> AbstractContextManager[None]:
    def but_the_last(add: Function) -> Function:
        def changed(value: Any, std: float, k: int, source: NoiseSource) -> Any:
            noisy = add(value, std, k, source)
            noisy[-1] = value[-1]
            return noisy

        return changed

    return _in_mechanisms(add_gaussian=but_the_last, add_l2_noise=but_the_last)


@contextlib.contextmanager
def _reused_across_classes() -> Iterator[None]:
    def reused(add: Function) -> Function:
        def changed(value: Any, std: float, k: int, source: NoiseSource) -> Any:
            return value + _first_column(add(np.zeros_like(value), std, k, source))

        return changed

    noise = _in_mechanisms(add_gaussian=reused, add_l2_noise=reused)
    with noise, _changed_secret(lambda value: np.zeros_like(value) + _first_column(value)):
        yield


def _first_column(value: Any) -> Any:
    return value[:, :1] if value.ndim == 2 else value


_BUGS = (
    PlantedBug("half_noise", "Half of the noise that is claimed.", _half_noise),
    PlantedBug("no_clipping", "Rows and gradients are not clipped.", _no_clipping),
    PlantedBug(
        "wrong_relation",
        "Under replace-one, noise for a row that is erased: a factor 2 is missing.",
        _wrong_relation,
    ),
    PlantedBug("fixed_seed", "The noise has a fixed seed.", _fixed_seed),
    PlantedBug(
        "forgotten_event", "Every value is released twice and recorded once.", _forgotten_event
    ),
    PlantedBug(
        "unnoised_step_size",
        "Steps are divided by the exact norm of the gradient.",
        _unnoised_step_size,
    ),
    PlantedBug("intercept_without_noise", "The intercept gets no noise.", _intercept_without_noise),
    PlantedBug(
        "noise_reused_across_classes",
        "All classes get the same noise; needs three or more of them.",
        _reused_across_classes,
    ),
)
PLANTED: Mapping[str, PlantedBug] = MappingProxyType({bug.name: bug for bug in _BUGS})


@contextlib.contextmanager
def pythonic() -> Iterator[None]:
    """Sums in NumPy only, so that planted Python code is used."""
    with (
        mock.patch.object(gradients, "compiled_rule", return_value=None),
        mock.patch.object(scores._AtPoint, "_compiled_sum", return_value=None),
    ):
        yield


@contextlib.contextmanager
def unclipped(factor: float = 1.0) -> Iterator[None]:
    """Slopes times ``factor``, never clipped."""

    def scale(self: FlatClipping, slopes: Any, row_norms: Any) -> Any:
        return factor * slopes

    with pythonic(), mock.patch.object(FlatClipping, "scale", scale):
        yield


def not_shortened(rows: Rows, transform: Any, spec: DataSpec) -> ArrayRows:
    """Embedded rows as they are, with the norms that rows had before."""
    blocks = list(rows.blocks())
    X = np.concatenate([block.features() @ transform for block in blocks])
    norms = np.concatenate([block.norms for block in blocks])
    targets = np.concatenate([block.targets for block in blocks])
    weights = [block.weights for block in blocks if block.weights is not None]
    return ArrayRows(X, targets, norms, spec, np.concatenate(weights) if weights else None)


def unchecked(plan: Plan, **changes: Any) -> Plan:
    """Change a plan without its checks: for bugs only."""
    changed = copy.copy(plan)
    for name, value in changes.items():
        object.__setattr__(changed, name, value)
    return changed


def kept_noise(seen: Any, noise: float, *_: Any) -> NoisyMatrix:
    """Return a noisy Hessian as it is, with eigenvalues raised to a small positive number."""
    values, directions = np.linalg.eigh(seen)
    deviations = np.full(seen.shape, noise / np.sqrt(2.0))
    np.fill_diagonal(deviations, noise)
    mean = (directions * np.maximum(values, 1e-3 * values.mean())) @ directions.T
    return NoisyMatrix(mean, deviations**2)
