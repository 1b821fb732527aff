"""What a fit asks of its rows, and how far one row moves each answer before noise is added.

A fit on one data set is listened to. A fit on its neighbour then gets the very answers that the
first one got, noise and choices included, and the same rows enter its samples. So both ask the
same questions, and what they asked can be compared question by question with what was declared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from dpglm.privacy import curator as mechanisms
from dpglm.privacy.curator import Curator
from dpglm.privacy.noise import SeededNoise


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """One release: the exact value, what was declared of it, and what was answered."""

    kind: str
    exact: np.ndarray
    declared: tuple[Any, ...]
    """All else that the curator was told; public, so the same on neighbours."""
    made_for: Any
    """How far two neighbours may be apart, by the noise that was drawn."""
    answer: Any


class _EnoughError(Exception):
    """A run is not listened to any longer."""


def _of_sum(total: Any, *declared: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    facts = (total.contribution_bound, total.rounding, total.magnitude, total.sampling_rate)
    return np.array(total.value), (*facts, *declared)


def _of_scores(scores: Any, bound: Any, *declared: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(scores), (np.array(bound).tolist(), *declared)


def _of_runs(scores: Any, lengths: Any, *declared: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    # Ends of runs, so that functions of the candidate can be compared where either changes.
    ends = np.cumsum(lengths).astype(float)
    return np.array([ends, scores]), (float(ends[-1]), *declared)


def _of_counts(counts: Any, *declared: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    return np.array(counts, dtype=float), declared


@dataclasses.dataclass(frozen=True)
class _Way:
    """One way to release something: what it is told, and what its noise is then made for."""

    read: Callable[..., tuple[np.ndarray, tuple[Any, ...]]]
    mechanism: str
    """The function of ``dpglm.privacy.curator`` that draws."""
    made_for: Callable[..., Any]
    """From the arguments of that function, and what was declared, to the sensitivity."""


_MULTIPLIER, _SENDERS = 4, 5
_WAYS = {
    "release_gaussian": _Way(
        _of_sum, "add_gaussian", lambda told, value, std, *_: std / told[_MULTIPLIER]
    ),
    "release_l2": _Way(
        _of_sum, "add_l2_noise", lambda told, value, scale, *_: scale * told[_MULTIPLIER]
    ),
    "release_local": _Way(
        _of_sum,
        "add_gaussian",
        lambda told, value, std, *_: std / (told[_MULTIPLIER] * math.sqrt(told[_SENDERS])),
    ),
    "choose_least": _Way(_of_scores, "permute_and_flip", lambda told, scores, bound, *_: bound),
    "choose_exponentially": _Way(
        _of_scores, "exponential_mechanism", lambda told, scores, bound, *_: bound
    ),
    "choose_generalized": _Way(
        _of_scores,
        "generalized_exponential_mechanism",
        lambda told, scores, bounds, *_: np.array(bounds, dtype=float),
    ),
    "choose_in_runs": _Way(
        _of_runs, "exponential_mechanism_in_runs", lambda told, scores, lengths, bound, *_: bound
    ),
    "choose_first_above": _Way(
        _of_counts, "first_above", lambda told, counts, threshold, each, *_: told[1] / each
    ),
}
_SECRET = "objective_noise"
EVERY_WAY = {*_WAYS, _SECRET}


@dataclasses.dataclass
class Transcript:
    """All that one fit asked, in order."""

    asked: list[Asked] = dataclasses.field(default_factory=list)
    secret: bool = False
    """Whether noise entered a computation, whose result then hides the rows by more than noise."""


def sampling_modules() -> list[ModuleType]:
    """Where rows are sampled."""
    oracle = [module for name, module in sys.modules.items() if name.startswith("dpglm.oracle.")]
    return [module for module in oracle if hasattr(module, "bernoulli")]


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

    def wrapped(kind: str, way: _Way) -> Callable[..., Any]:
        original = getattr(Curator, kind)

        def ask(self: Curator, *args: Any, **options: Any) -> Any:
            position = len(seen.asked)
            if position == most:
                raise _EnoughError
            exact, told = way.read(*args, *options.values())
            own = self._noise
            self._noise = own if answers is None else answers
            draw = mock.Mock(side_effect=getattr(mechanisms, way.mechanism))
            try:
                with mock.patch.object(mechanisms, way.mechanism, draw):
                    answer = original(self, *args, **options)
            finally:
                self._noise = own
            if earlier is not None and position < len(earlier.asked):
                answer = earlier.asked[position].answer
            elif kind.startswith("release"):
                answer = reach * answer
            made_for = way.made_for(told, *draw.call_args.args)
            seen.asked.append(Asked(kind, exact, told, made_for, answer))
            return answer

        return ask

    def secretly(self: Curator, *args: Any) -> Any:
        seen.secret = True
        return honest(self, *args)

    def entered(source: Any, size: int, probability: float) -> np.ndarray:
        if size not in (n, n - 1):
            # A part of the rows, with who knows which row where.
            return np.ones(size, dtype=bool)
        mask = np.random.default_rng(next(samples)).random(n) < probability
        if missing is not None:
            mask[missing] = True
            mask = mask if size == n else np.delete(mask, missing)
        return mask

    honest = getattr(Curator, _SECRET)
    with contextlib.ExitStack() as stack:
        for kind, way in _WAYS.items():
            stack.enter_context(mock.patch.object(Curator, kind, wrapped(kind, way)))
        stack.enter_context(mock.patch.object(Curator, _SECRET, secretly))
        for module in sampling_modules() if n else ():
            stack.enter_context(mock.patch.object(module, "bernoulli", entered))
        stack.enter_context(contextlib.suppress(_EnoughError))
        yield seen


def excess(one: Transcript, other: Transcript) -> float:
    """Largest move of anything asked, over what it may be; infinity where questions differ."""
    if len(one.asked) != len(other.asked) or one.secret != other.secret:
        return math.inf
    worst = 0.0
    for a, b in zip(one.asked, other.asked, strict=True):
        public = a.kind == b.kind and a.declared == b.declared
        if not public or not np.array_equal(a.made_for, b.made_for):
            return math.inf
        if not (np.isfinite(a.exact).all() and np.isfinite(b.exact).all()):
            return math.inf
        if a.kind.startswith("release"):
            for asked in (a, b):
                worst = max(worst, float(np.linalg.norm(asked.exact)) / asked.declared[2])
        if not one.secret:
            worst = max(worst, _MOVES[a.kind](a, b))
    return worst


def _length(a: Asked, b: Asked) -> float:
    moved = float(np.linalg.norm(a.exact - b.exact))
    if a.kind == "release_gaussian" and len(a.declared) > 5:
        # Seen through a random matrix of so many columns, lengths have a law, with this tail.
        moved /= 1.0 + 7.0 / math.sqrt(a.declared[5])
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


_MOVES: dict[str, Callable[[Asked, Asked], float]] = {
    **dict.fromkeys(("release_gaussian", "release_l2", "release_local"), _length),
    **dict.fromkeys(("choose_least", "choose_exponentially"), _spread),
    **dict.fromkeys(("choose_generalized", "choose_first_above"), _each),
    "choose_in_runs": _in_runs,
}
