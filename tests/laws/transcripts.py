"""What a fit asks of its rows, and how far one row moves each answer before noise is added.

A fit on one data set is listened to. A fit on its neighbour then gets the very answers that the
first one got, noise and choices included, and the same rows enter its samples. So both ask the
same questions, and what they asked can be compared question by question with what was declared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from dpglm.privacy.curator import Curator
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.privacy.noise.additive import (
    GaussianNoise,
    L2Noise,
    LocalGaussianNoise,
    ProjectedGaussianNoise,
)
from dpglm.privacy.noise.linear_terms import GaussianLinearTerm, L2LinearTerm
from dpglm.privacy.releases import Mechanism, Release
from dpglm.privacy.selection import mechanisms as selections
from dpglm.privacy.selection.mechanisms import (
    AboveThreshold,
    ExponentialMechanism,
    ExponentialMechanismOverRuns,
    GeneralizedExponentialMechanism,
    PermuteAndFlip,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """One release: the exact value, what was declared of it, and what was answered."""

    exact: np.ndarray
    declared: Release
    also: tuple[Any, ...]
    """What else the curator was told; public, so the same on neighbours."""
    made_for: Any
    """How far two neighbours may be apart, by the noise that was drawn."""
    answer: Any


class _EnoughError(Exception):
    """A run is not listened to any longer."""


def _of_sum(total: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(total), ()


def _of_messages(messages: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(messages.total), (messages.senders,)


def _of_bounded_scores(scores: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(scores.scores), (np.array(scores.contribution_bounds).tolist(),)


def _of_runs(runs: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    # Ends of runs, so that functions of the candidate can be compared where either changes.
    ends = np.cumsum(runs.lengths).astype(float)
    return np.array([ends, runs.scores]), (float(ends[-1]),)


def _of_counts(counts: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(counts, dtype=float), ()


@dataclasses.dataclass(frozen=True)
class _Way:
    """How one mechanism is told a value, and what its noise is then made for."""

    read: Callable[..., tuple[np.ndarray, tuple[Any, ...]]]
    module: ModuleType
    draws: str
    """The function of the module that draws."""
    made_for: Callable[..., Any]
    """From what was declared, what else was told, and the function's arguments: a sensitivity."""


def _by_scale(declared: Release, also: Any, value: Any, scale: float, *_: Any) -> float:
    return scale / declared.noise_multiplier


def _by_bound(declared: Release, also: Any, scores: Any, bound: float, *_: Any) -> float:
    return bound


_WAYS = {
    GaussianNoise: _Way(_of_sum, additive, "add_gaussian", _by_scale),
    ProjectedGaussianNoise: _Way(_of_sum, additive, "add_gaussian", _by_scale),
    L2Noise: _Way(_of_sum, additive, "add_l2_noise", _by_scale),
    LocalGaussianNoise: _Way(
        _of_messages,
        additive,
        "add_gaussian",
        lambda declared, also, value, std, *_: (
            std / (declared.noise_multiplier * math.sqrt(also[0]))
        ),
    ),
    PermuteAndFlip: _Way(_of_sum, selections, "permute_and_flip", _by_bound),
    ExponentialMechanism: _Way(_of_sum, selections, "exponential_mechanism", _by_bound),
    GeneralizedExponentialMechanism: _Way(
        _of_bounded_scores,
        selections,
        "generalized_exponential_mechanism",
        lambda declared, also, scores, bounds, *_: np.array(bounds, dtype=float),
    ),
    ExponentialMechanismOverRuns: _Way(
        _of_runs,
        selections,
        "exponential_mechanism_in_runs",
        lambda declared, also, scores, lengths, bound, *_: bound,
    ),
    AboveThreshold: _Way(
        _of_counts,
        selections,
        "first_above",
        lambda declared, also, counts, threshold, each, *_: declared.mechanism.epsilon / each,
    ),
}
_SECRET = (GaussianLinearTerm, L2LinearTerm)
EVERY_WAY = {*_WAYS, *_SECRET}
ADDITIVE = (GaussianNoise, ProjectedGaussianNoise, L2Noise, LocalGaussianNoise)


def mechanisms_of_dpglm(base: type = Mechanism) -> set[type]:
    """Every class of the library that can be drawn from."""
    below = [one for one in base.__subclasses__() if one.__module__.startswith("dpglm.")]
    own = {one for one in below if not inspect.isabstract(one)}
    return own.union(*map(mechanisms_of_dpglm, below))


@dataclasses.dataclass
class Transcript:
    """All that one fit asked, in order."""

    asked: list[Asked] = dataclasses.field(default_factory=list)
    secret: bool = False
    """Whether noise entered a computation, whose result then hides the rows by more than noise."""


@contextlib.contextmanager
def listening(
    earlier: Transcript | None = None,
    *,
    most: int = 10**9,
    missing: int | None = None,
    n: int = 0,
    reach: float = 1.0,
    own_noise: bool = False,
) -> Iterator[Transcript]:
    """Write down what is asked, at most so often; answer what ``earlier`` says, if it is given.

    Samples are the same in every run, but for the row at ``missing`` among ``n``, which is in all
    of them, and which a run that has one row less lacks; of a part of the rows, all are in them.
    Noisy sums are multiplied by ``reach``, so that iterates go where slopes saturate or overflow.
    Unless a run has its ``own_noise``, that of answers is drawn elsewhere, so that all else that
    is random is the same in all runs.
    """
    seen = Transcript()
    answers = None if own_noise else SeededNoise(11)
    samples = iter(range(10**9))
    honest = Curator.release

    def ask(self: Curator, declared: Release, value: Any) -> Any:
        if isinstance(declared.mechanism, _SECRET):
            seen.secret = True
            return honest(self, declared, value)
        position, way = len(seen.asked), _WAYS[type(declared.mechanism)]
        if position == most:
            raise _EnoughError
        exact, also = way.read(value.value)
        own = self._noise
        self._noise = own if answers is None else answers
        draw = mock.Mock(side_effect=getattr(way.module, way.draws))
        try:
            with mock.patch.object(way.module, way.draws, draw):
                answer = honest(self, declared, value)
        finally:
            self._noise = own
        if earlier is not None and position < len(earlier.asked):
            answer = earlier.asked[position].answer
        elif isinstance(declared.mechanism, ADDITIVE):
            answer = reach * answer
        made_for = way.made_for(declared, also, *draw.call_args.args)
        seen.asked.append(Asked(exact, declared, also, made_for, answer))
        return answer

    def entered(self: Curator, size: int, probability: float) -> np.ndarray:
        if size not in (n, n - 1):
            # A part of the rows, with who knows which row where.
            return np.ones(size, dtype=bool)
        mask = np.random.default_rng(next(samples)).random(n) < probability
        if missing is not None:
            mask[missing] = True
            mask = mask if size == n else np.delete(mask, missing)
        return mask

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Curator, "release", ask))
        if n:
            stack.enter_context(mock.patch.object(Curator, "sample", entered))
        stack.enter_context(contextlib.suppress(_EnoughError))
        yield seen


def excess(one: Transcript, other: Transcript) -> float:
    """Largest move of anything asked, over what it may be; infinity where questions differ."""
    if len(one.asked) != len(other.asked) or one.secret != other.secret:
        return math.inf
    worst = 0.0
    for a, b in zip(one.asked, other.asked, strict=True):
        public = a.declared == b.declared and a.also == b.also
        if not public or not np.array_equal(a.made_for, b.made_for):
            return math.inf
        if not (np.isfinite(a.exact).all() and np.isfinite(b.exact).all()):
            return math.inf
        kind = type(a.declared.mechanism)
        if kind in ADDITIVE:
            for asked in (a, b):
                length = float(np.linalg.norm(asked.exact))
                worst = max(worst, length / asked.declared.magnitude)
        if not one.secret:
            worst = max(worst, _MOVES[kind](a, b))
    return worst


def _length(a: Asked, b: Asked) -> float:
    moved = float(np.linalg.norm(a.exact - b.exact))
    if isinstance(a.declared.mechanism, ProjectedGaussianNoise):
        # Seen through a random matrix of so many columns, lengths have a law, with this tail.
        moved /= 1.0 + 7.0 / math.sqrt(a.declared.mechanism.dimension)
    return moved / a.made_for


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


_MOVES: dict[type, Callable[[Asked, Asked], float]] = {
    **dict.fromkeys(ADDITIVE, _length),
    **dict.fromkeys((PermuteAndFlip, ExponentialMechanism), _spread),
    **dict.fromkeys((GeneralizedExponentialMechanism, AboveThreshold), _each),
    ExponentialMechanismOverRuns: _in_runs,
}
