"""Every event and every mechanism, as the laws try them: a new one is a row here."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Laplace,
    LastIterate,
    Parallel,
    PerturbedObjective,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    RandomlyRepeated,
    Repeated,
    SplitByCoins,
)
from dpglm.privacy.noise import additive
from dpglm.privacy.noise.additive import (
    GaussianLinearTerm,
    GaussianNoise,
    L2LinearTerm,
    L2Noise,
    LocalGaussianNoise,
    ProjectedGaussianNoise,
)
from dpglm.privacy.releases import Mechanism, Release
from dpglm.privacy.selection import choices as selections
from dpglm.privacy.selection.choices import (
    AboveThreshold,
    ExponentialMechanism,
    ExponentialMechanismOverRuns,
    GeneralizedExponentialMechanism,
    PermuteAndFlip,
)
from dpglm.privacy.selection.repetitions import NegativeBinomialNumber, PoissonNumber

__all__ = ["CASES", "EVENTS", "Asked", "Case", "Way", "of_sum"]

# One row per event: how to make it from a noise multiplier.
EVENTS = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "poisson": lambda s: PoissonSampled(0.2, Gaussian(s)),
    "last iterate": lambda s: LastIterate(s, 0.8, 10),
    "composed": lambda s: Composed((Gaussian(2.0 * s), PoissonSampled(0.1, Gaussian(s)))),
    "pure": lambda s: Pure(1.0 / s),
    "bounded range": lambda s: BoundedRange(1.0 / s),
    "objective": lambda s: PerturbedObjective(s, 0.01),
    "projected": lambda s: ProjectedGaussian(s, 200),
    "poisson projected": lambda s: PoissonSampled(0.2, ProjectedGaussian(s, 200)),
    "best of several": lambda s: RandomlyRepeated(
        (Gaussian(5.0 * s),), NegativeBinomialNumber(0.3)
    ),
    "best of poisson": lambda s: RandomlyRepeated((Pure(0.3 / s),), PoissonNumber(2.0)),
    "parallel": lambda s: Parallel((Repeated(Laplace(s), 2), Gaussian(s))),
    "split by coins": lambda s: SplitByCoins((Repeated(Laplace(s), 2), Gaussian(s))),
    "parallel gaussian": lambda s: Parallel((Repeated(Gaussian(s), 2), LastIterate(s, 0.9, 3))),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """One release: the exact value, its declaration, and the answer."""

    exact: np.ndarray
    declared: Release
    also: tuple[Any, ...]
    """Further declarations to the curator; public, so the same on neighbours."""
    made_for: Any
    """How far two neighbours may be apart, by the noise that was drawn."""
    answer: Any


@dataclasses.dataclass(frozen=True)
class Way:
    """How one mechanism gets a value, its bound, and how values move."""

    read: Callable[..., tuple[np.ndarray, tuple[Any, ...]]]
    module: ModuleType
    draws: str
    """The function of the module that draws."""
    made_for: Callable[..., Any]
    """A sensitivity, from the declarations and the function's arguments."""
    move: Callable[[Asked, Asked], float]
    """Move between neighbours, over its bound."""
    adds: bool = False
    """Whether answers are values with noise."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism, a value for it, and its expected cost and noise."""

    mechanism: Mechanism
    value: object
    event: Event
    multiplier: float
    """Scale of the noise over the sensitivity."""
    way: Way | None
    """None if noise enters a computation with a result that adds protection."""
    std: float = 1.0
    """Standard deviation of a coordinate of noise for three of them, over the scale."""


def of_sum(total: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(total), ()


def _of_messages(messages: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(messages[0]), (messages[1],)


def _of_bounded_scores(scores: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(scores[0]), (np.array(scores[1]).tolist(),)


def _of_runs(runs: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    # Ends of runs, so that functions of the candidate can be compared where either changes.
    scores, lengths = runs
    ends = np.cumsum(lengths).astype(float)
    return np.array([ends, scores]), (float(ends[-1]),)


def _of_counts(counts: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(counts, dtype=float), ()


def _by_scale(declared: Release, also: Any, value: Any, scale: float, *_: Any) -> float:
    return scale / declared.noise_multiplier


def _by_bound(declared: Release, also: Any, scores: Any, bound: float, *_: Any) -> float:
    return bound


def _length(a: Asked, b: Asked) -> float:
    return float(np.linalg.norm(a.exact - b.exact)) / a.made_for


def _projected(a: Asked, b: Asked) -> float:
    # Norms after a random projection to this many columns have a law with this tail.
    return _length(a, b) / (1.0 + 7.0 / math.sqrt(a.declared.mechanism.dimension))


def _spread(a: Asked, b: Asked) -> float:
    return float(np.ptp(a.exact - b.exact)) / (2.0 * a.made_for)


def _each(a: Asked, b: Asked) -> float:
    moves, allowed = abs(a.exact - b.exact), np.broadcast_to(a.made_for, a.exact.shape)
    if (moves[allowed == 0.0] > 0.0).any():
        return math.inf
    return float(np.max(moves / np.where(allowed > 0.0, allowed, 1.0)))


def _in_runs(a: Asked, b: Asked) -> float:
    candidates = np.union1d(a.exact[0], b.exact[0])
    scores = [one.exact[1][np.searchsorted(one.exact[0], candidates)] for one in (a, b)]
    return float(np.ptp(scores[0] - scores[1])) / (2.0 * a.made_for)


SUM, SCORES = np.array([0.5, -1.0, 2.0]), np.array([0.5, 0.0, 2.0])
# One row per class that draws.
_ROWS = [
    Case(
        GaussianNoise(2.0),
        SUM,
        Gaussian(2.0),
        2.0,
        Way(of_sum, additive, "add_gaussian", _by_scale, _length, adds=True),
    ),
    Case(
        ProjectedGaussianNoise(2.0, 3),
        SUM,
        ProjectedGaussian(2.0, 3),
        2.0,
        Way(of_sum, additive, "add_gaussian", _by_scale, _projected, adds=True),
    ),
    Case(
        L2Noise(0.25),
        SUM,
        Pure(0.25),
        4.0,
        Way(of_sum, additive, "add_l2_noise", _by_scale, _length, adds=True),
        # In m dimensions a radius of law Gamma(m, s): its mean square is m (m + 1) s^2.
        std=math.sqrt(3 * 4 / 3),
    ),
    Case(
        LocalGaussianNoise(2.0, 5),
        (SUM, 4),
        Gaussian(2.0),
        2.0,
        Way(
            _of_messages,
            additive,
            "add_gaussian",
            lambda declared, also, value, std, *_: (
                std / (declared.noise_multiplier * math.sqrt(also[0]))
            ),
            _length,
            adds=True,
        ),
    ),
    Case(
        PermuteAndFlip(0.5),
        SCORES,
        Pure(0.5),
        2.0,
        Way(of_sum, selections, "permute_and_flip", _by_bound, _spread),
    ),
    Case(
        ExponentialMechanism(0.5),
        SCORES,
        BoundedRange(0.5),
        4.0,
        Way(of_sum, selections, "exponential_mechanism", _by_bound, _spread),
    ),
    Case(
        GeneralizedExponentialMechanism(0.5, 0.1),
        (SCORES, np.array([0.0, 1.0, 1.5])),
        BoundedRange(0.5),
        4.0,
        Way(
            _of_bounded_scores,
            selections,
            "generalized_exponential_mechanism",
            lambda declared, also, scores, bounds, *_: np.array(bounds, dtype=float),
            _each,
        ),
    ),
    Case(
        ExponentialMechanismOverRuns(0.5),
        (SCORES, np.array([1, 10**6, 3])),
        BoundedRange(0.5),
        4.0,
        Way(
            _of_runs,
            selections,
            "exponential_mechanism_in_runs",
            lambda declared, also, scores, lengths, bound, *_: bound,
            _in_runs,
        ),
    ),
    Case(
        AboveThreshold(0.5, 7),
        np.array([1, 4, 9]),
        Pure(0.5),
        2.0,
        Way(
            _of_counts,
            selections,
            "first_above",
            lambda declared, also, counts, threshold, each, *_: declared.mechanism.epsilon / each,
            _each,
        ),
    ),
    Case(GaussianLinearTerm(2.0, 0.5), (3,), PerturbedObjective(2.0, 0.5), 2.0, None),
    Case(
        L2LinearTerm(2.0, 0.5), (3,), Pure(0.5 + math.log(1.5)), 2.0, None, std=math.sqrt(3 * 4 / 3)
    ),
]
CASES = {type(case.mechanism): case for case in _ROWS}


def mechanisms_of_dpglm(base: type = Mechanism) -> set[type]:
    """Every class of the library that can be drawn from."""
    below = [one for one in base.__subclasses__() if one.__module__.startswith("dpglm.")]
    own = {one for one in below if not inspect.isabstract(one)}
    return own.union(*map(mechanisms_of_dpglm, below))
