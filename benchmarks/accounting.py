"""Epsilon of many events and noise of many plans, with the time that each takes.

``python -m benchmarks.accounting --out FILE`` computes the grid, some minutes on one core.
``python -m benchmarks.accounting --compare OLD NEW`` compares two such files: how much epsilon
and noise grew at most, and how the time changed. ``--only TEXT`` keeps the cases with TEXT in their
text.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpglm.exceptions import TooCostlyError
from dpglm.privacy import (
    Adjacency,
    ApproximateDP,
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Laplace,
    LastIterate,
    NegativeBinomialNumber,
    PerturbedObjective,
    PoissonNumber,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    RandomlyRepeated,
    Repeated,
    accountant_for,
    calibrate,
)

__all__ = ["Case", "cases", "compare", "main", "measure"]

_RATES = tuple(10.0**-k for k in range(9))
_STEPS = (1, 100, 10_000, 100_000)
_RELATIONS = (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)


@dataclass(frozen=True)
class Case:
    """A number that privacy accounting answers with; larger is worse.

    Parameters
    ----------
    name : str
        The question in full.
    answer : callable
        Computes epsilon, or a noise multiplier.
    """

    name: str
    answer: Callable[[], float]


def cases() -> Iterator[Case]:
    """List the grid: sampled releases, every other mechanism, mixtures, and plans."""
    for relation in _RELATIONS:
        for rate, steps, sigma in itertools.product(_RATES, _STEPS, (0.6, 1.0, 4.0)):
            event = Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)
            name = f"sampled rate={rate:g} sigma={sigma:g} steps={steps}"
            for delta in (1e-6, 1e-12) if sigma == 1.0 else (1e-6,):
                yield _epsilon(name, event, relation, delta)
        for (name, event), delta in itertools.product(_composed(), (1e-5, 1e-9)):
            yield _epsilon(name, event, relation, delta)
        for (name, make), epsilon in itertools.product(_planned(), (0.1, 1.0, 8.0)):
            yield _noise(name, make, relation, epsilon)
    # Under add/remove the losses are those of zeroing out.
    for rate in (1e-1, 1e-3, 1e-5):
        event = Repeated(PoissonSampled(rate, Gaussian(1.0)), 1000)
        yield _epsilon(f"sampled rate={rate:g} steps=1000", event, Adjacency.ADD_REMOVE, 1e-6)


def _epsilon(name: str, event: Event, relation: Adjacency, delta: float) -> Case:
    return Case(
        f"epsilon, {relation.value}, delta={delta:g}: {name}",
        lambda: accountant_for(event, relation).epsilon(event, relation, delta),
    )


def _noise(name: str, make: Callable[[float], Event], relation: Adjacency, epsilon: float) -> Case:
    budget = ApproximateDP(epsilon, 1e-5)
    return Case(
        f"noise, {relation.value}, epsilon={epsilon:g}: {name}",
        lambda: calibrate(make, budget, relation),
    )


def _composed() -> Iterator[tuple[str, Event]]:
    for steps in _STEPS:
        spread = math.sqrt(steps)
        for size in (0.3, 1.0):
            yield f"pure {size:g} steps={steps}", Repeated(Pure(size / spread), steps)
            yield (
                f"bounded range {size:g} steps={steps}",
                _times(BoundedRange(size / spread), steps),
            )
            yield f"laplace {size:g} steps={steps}", _times(Laplace(spread / size), steps)
            for dimension in (1, 30):
                projected = ProjectedGaussian(spread * 3.0 / size, dimension)
                yield f"projected p={dimension} {size:g} steps={steps}", _times(projected, steps)
        for rate in (1e-1, 1e-3, 1e-6):
            sampled = PoissonSampled(rate, ProjectedGaussian(2.0, 8))
            yield f"sampled projected rate={rate:g} steps={steps}", _times(sampled, steps)
            enough = max(1.0, 2.0 * rate * spread)
            dear = PoissonSampled(rate, Gaussian(enough))
            cheap = PoissonSampled(0.1 * rate, Gaussian(0.6 * enough))
            yield (
                f"two sampled rates={rate:g} steps={steps}",
                Composed((_times(dear, steps), _times(cheap, steps), Gaussian(8.0))),
            )
            yield (
                f"sampled and pure rate={rate:g} steps={steps}",
                Composed((_times(dear, steps), Pure(0.2), _times(BoundedRange(0.05), 4))),
            )
            yield f"everything rate={rate:g} steps={steps}", _everything(rate, steps)
        choices = _times(BoundedRange(0.3 / spread), steps)
        last = LastIterate(40.0, contraction=0.99, steps=steps)
        yield f"choices and last iterate steps={steps}", Composed((choices, last, Gaussian(9.0)))
        pure = _times(Pure(0.2 / spread), steps)
        yield f"pure and gaussian steps={steps}", Composed((pure, Gaussian(9.0)))
        yield f"objective perturbation steps={steps}", _perturbed(steps)
        for law in (NegativeBinomialNumber(0.1), PoissonNumber(20.0)):
            name = f"best of {type(law).__name__} steps={steps}"
            sampled = Repeated(PoissonSampled(1e-3, Gaussian(2.0)), steps)
            yield f"{name}, sampled", RandomlyRepeated((sampled, Gaussian(9.0)), law)
            yield f"{name}, choices", RandomlyRepeated((choices, last), law)
            best = RandomlyRepeated((last, choices), law)
            yield f"{name}, composed", Composed((best, pure, Gaussian(9.0), _perturbed(1)))


def _everything(rate: float, steps: int) -> Event:
    spread = math.sqrt(steps)
    return Composed(
        (
            Gaussian(9.0),
            _times(PoissonSampled(rate, Gaussian(max(2.0, 2.0 * rate * spread))), steps),
            _times(Pure(0.1 / spread), steps),
            _times(BoundedRange(0.2 / spread), steps),
            _times(ProjectedGaussian(20.0 * spread, 5), steps),
            LastIterate(60.0, contraction=0.9, steps=steps),
        )
    )


def _perturbed(steps: int) -> Event:
    return _times(PerturbedObjective(6.0 * math.sqrt(steps), 0.01 / steps), steps)


def _planned() -> Iterator[tuple[str, Callable[[float], Event]]]:
    for rate, steps in itertools.product((1e-1, 1e-3, 1e-6), (100, 100_000)):
        yield (
            f"sampled rate={rate:g} steps={steps}",
            lambda s, rate=rate, steps=steps: _times(PoissonSampled(rate, Gaussian(s)), steps),
        )
    for rate, levels, steps in ((0.01, 10, 100), (0.001, 16, 6250)):
        yield (
            f"fading noise rate={rate:g} steps={levels * steps}",
            lambda s, rate=rate, levels=levels, steps=steps: Composed(
                tuple(
                    _times(PoissonSampled(rate, Gaussian(s * 0.7 ** (k / levels))), steps)
                    for k in range(levels)
                )
            ),
        )
    yield "laplace steps=100", lambda s: _times(Laplace(s), 100)
    yield "pure steps=100", lambda s: _times(Pure(1.0 / s), 100)
    yield "choices steps=100", lambda s: _times(BoundedRange(1.0 / s), 100)
    yield "projected steps=100", lambda s: _times(ProjectedGaussian(s, 8), 100)
    yield "objective perturbation", lambda s: PerturbedObjective(s, 0.01)
    yield (
        "choices and gaussian steps=100",
        lambda s: Composed((_times(BoundedRange(2.0 / s), 100), _times(Gaussian(s), 100))),
    )


def _times(event: Event, count: int) -> Event:
    return Repeated(event, count)


def measure(case: Case) -> tuple[float, float]:
    """Compute one number.

    Parameters
    ----------
    case : Case
        The question.

    Returns
    -------
    answer, milliseconds : float
        ``inf`` for refused answers (too costly or out of reach).
    """
    start = time.process_time()
    try:
        answer = case.answer()
    except (TooCostlyError, ValueError):
        answer = math.inf
    return answer, 1e3 * (time.process_time() - start)


def compare(
    old: Mapping[str, Sequence[float]], new: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """Return the largest growth of answers and of time.

    Parameters
    ----------
    old, new : mapping
        From the name of each case to its answer and its milliseconds; only cases of both count.

    Yields
    ------
    str
        Lines.
    """
    both = [name for name in old if name in new]
    growth = {name: _ratio(new[name][0], old[name][0]) for name in both}
    worse = sorted(both, key=lambda name: -growth[name])
    yield f"{len(both)} cases, {sum(growth[name] > 1.001 for name in both)} grew by over 0.1 %"
    for name in worse[:20]:
        change = f"{old[name][0]:.6g} -> {new[name][0]:.6g}"
        yield f"{100.0 * (growth[name] - 1.0):+.4f} %  {change}  {name}"
    for kind in ("epsilon", "noise"):
        times = [
            (sum(which[name][1] for name in both if name.startswith(kind))) for which in (old, new)
        ]
        yield f"time of {kind}: {times[0]:.0f} -> {times[1]:.0f} ms"
    slower = sorted(both, key=lambda name: old[name][1] - new[name][1])
    for name in slower[:10]:
        yield f"{old[name][1]:.0f} -> {new[name][1]:.0f} ms  {name}"


def _ratio(new: float, old: float) -> float:
    if new == old:
        return 1.0
    return new / old if old > 0.0 else math.inf


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the grid, or compare two files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accounting", description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of the cases")
    parser.add_argument("--out", type=Path, help="file for the numbers, else they are printed")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    options = parser.parse_args(arguments)
    if options.compare:
        old, new = (json.loads(path.read_text()) for path in options.compare)
        print("\n".join(compare(old, new)))
        return
    found: dict[str, Any] = {}
    for case in cases():
        if options.only in case.name:
            found[case.name] = measure(case)
            if options.out is None:
                print(f"{found[case.name][0]:.6g}  {found[case.name][1]:.0f} ms  {case.name}")
            else:
                options.out.write_text(json.dumps(found, indent=0))


if __name__ == "__main__":
    main()
