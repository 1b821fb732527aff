"""Run libraries in turn, one call at a time, and keep the time of each call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from benchmarks.peers.problems import Problem, scores
from benchmarks.step_cost.protocol import Worker, Workload

__all__ = ["Measurement", "Pace", "load", "measure_fits", "measure_steps", "save"]

REFERENCE = "dpglm"
NOT_CLIPPED = ("dpglm, noise added", "noise", "one product", "two products", "scikit-learn")
"""Steps with a result other than the clipped sum."""
TOLERANCE = 1e-3
EPSILON = 1.0


@final
@dataclass(frozen=True)
class Pace:
    """How often a call is repeated."""

    rounds: int = 15
    most_seconds: float = 4.0
    """Most seconds for the calls of one method, if there are several."""
    warm_below: float = 0.1
    """Two calls in a row come before the one that counts, unless a call takes longer than this."""
    quiet: float = 0.3
    """Seconds before these: threads of another library's BLAS spin for a while after a product."""

    def rounds_for(self, seconds: float) -> int:
        """Choose the number of rounds from the time of a call."""
        return min(self.rounds, max(1, int(self.most_seconds / seconds)))


@final
@dataclass(frozen=True)
class Measurement:
    """Times of one method on one case, round by round."""

    part: str
    """"step", "noise", "n", "d" or "K" (the growing size), or "fit"."""
    case: Mapping[str, Any]
    """The workload, or the problem."""
    method: str
    seconds: Sequence[float]
    """The same position in two methods' is the same round."""
    peak_bytes: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    def ratios(self, other: Measurement) -> np.ndarray:
        """Quartiles and median of this method's seconds over another's, round by round."""
        common = min(len(self.seconds), len(other.seconds))
        return np.quantile(
            np.divide(self.seconds[:common], other.seconds[:common]), [0.25, 0.5, 0.75]
        )


def measure_steps(
    workers: Mapping[str, Worker],
    part: str,
    workload: Workload,
    methods: Mapping[str, str],
    pace: Pace,
) -> list[Measurement]:
    """Time methods (name: library) on one workload, each in its library's process, in turn.

    Raises
    ------
    RuntimeError
        If a clipped sum is not that of dpglm.
    """
    try:
        first = _opened(workers, workload, methods)
        _compare(first)
        watched = {
            method: workers[library].ask("watched_call", method, pace.quiet)
            for method, library in methods.items()
        }
        seconds: dict[str, list[float]] = {method: [] for method in methods}
        for position in range(pace.rounds):
            for method, library in methods.items():
                usual = watched[method][0]
                if position >= pace.rounds_for(usual):
                    continue
                if pace.rounds_for(usual) > 1:
                    warm_calls = 2 if usual < pace.warm_below else 0
                    usual = workers[library].ask("call", method, warm_calls, pace.quiet)
                seconds[method].append(usual)
    finally:
        for library in set(methods.values()):
            workers[library].ask("close")
    case = asdict(workload)
    return [Measurement(part, case, one, seconds[one], watched[one][1]) for one in methods]


def _opened(
    workers: Mapping[str, Worker], workload: Workload, methods: Mapping[str, str]
) -> dict[str, Any]:
    """Prepare all methods, libraries side by side; return the first results."""
    left: dict[str, list[str]] = {library: [] for library in methods.values()}
    for method, library in methods.items():
        left[library].append(method)
    found: dict[str, Any] = {}
    while any(left.values()):
        asked = {library: names.pop(0) for library, names in left.items() if names}
        for library, method in asked.items():
            workers[library].send("open", method, workload)
        for library, method in asked.items():
            found[method] = workers[library].receive()
    return found


def _compare(first: Mapping[str, Any]) -> None:
    expected = first.get(REFERENCE)
    for method, value in first.items():
        if expected is None or method in NOT_CLIPPED:
            continue
        difference = np.linalg.norm(np.reshape(value, expected.shape) - expected)
        if not difference <= TOLERANCE * np.linalg.norm(expected):
            raise RuntimeError(f"{method} computes another sum than {REFERENCE}")


def measure_fits(
    workers: Mapping[str, Worker],
    problem: Problem,
    methods: Mapping[str, str],
    pace: Pace,
) -> Iterator[Measurement]:
    """Time whole fits (name: library) in turn; the slower ones less often."""
    for library in set(methods.values()):
        workers[library].ask("task", problem.task, problem.X_test)
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    found: dict[str, Mapping[str, float]] = {}
    for position in range(pace.rounds):
        for method, library in methods.items():
            before = seconds[method]
            if position and position >= pace.rounds_for(before[0]):
                continue
            once, train, test = workers[library].ask("fit", method, EPSILON, position)
            before.append(once)
            if not position:
                found[method] = {
                    "log loss": log_loss(problem.task.y, train),
                    **scores(problem, np.asarray(test)),
                }
    case = {"problem": problem.task.problem, "title": problem.title}
    case |= {"rows": problem.task.X.shape[0], "columns": problem.task.X.shape[1]}
    for method in methods:
        yield Measurement("fit", case, method, seconds[method], scores=found[method])


def log_loss(y: np.ndarray, z: np.ndarray) -> float:
    """Mean logistic or softmax loss of decision values."""
    z = np.asarray(z, dtype=np.float64)
    if z.ndim == 1:
        return float(np.mean(np.logaddexp(0.0, z) - y * z))
    z = z - z.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]))


def save(path: Path, machine: Mapping[str, str], found: Iterable[Measurement]) -> None:
    """Store the measurements, one on each line."""
    lines = ",\n".join(
        json.dumps(asdict(replace(one, seconds=[float(f"{s:.5g}") for s in one.seconds])))
        for one in found
    )
    path.write_text(f'{{"machine": {json.dumps(machine)},\n"measurements": [\n{lines}\n]}}\n')


def load(path: Path) -> tuple[dict[str, str], list[Measurement]]:
    """Read what ``save`` stored."""
    stored = json.loads(path.read_text())
    return stored["machine"], [Measurement(**one) for one in stored["measurements"]]
