"""The curator: the only way to release something about private rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.events import Composed, Event, Parallel, RandomlyRepeated, canonical
from dpglm.privacy.noise import NoiseSource, bernoulli
from dpglm.privacy.releases import Bounded, Release

__all__ = ["Curator"]

V = TypeVar("V")
R = TypeVar("R")


@final
class Curator:
    """Adds the noise to what is asked under one relation, and remembers every release.

    Privacy: each release is written into ``event`` before its noise is drawn, so a crash can only
    overstate what was spent.
    """

    def __init__(self, adjacency: Adjacency, noise: NoiseSource, unit: Unit = Unit.ROW) -> None:
        self._adjacency = adjacency
        self._unit = unit
        self._noise = noise
        self._records: list[Event | tuple[Curator, ...]] = []
        # What was released of each quantity, over its noise: sum, and sum of squares.
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._squares: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of every sensitivity."""
        return self._adjacency

    @property
    def unit(self) -> Unit:
        """Whose data neighbouring data sets differ in."""
        return self._unit

    @property
    def noise(self) -> NoiseSource:
        """The source of all randomness: noise and Poisson samples."""
        return self._noise

    @property
    def event(self) -> Event:
        """What has been released so far, in canonical form."""
        return canonical(
            Composed(
                tuple(
                    Parallel(tuple(part.event for part in record))
                    if isinstance(record, tuple)
                    else record
                    for record in self._records
                )
            )
        )

    @property
    def signal(self) -> float | None:
        """How far released sums stand out of their noise, in its standard deviations.

        The largest over quantities, each by the squares of its releases and of their sum, in
        Fisher's normal approximation of the law that those have if all is Gaussian noise, less
        what the largest of so many is then. None where no sum was released, or where noise entered
        a computation; choices, and what only the best of several tries leaves, are not in it.

        Privacy: post-processing of what was released, public where all of that is.
        """
        parts = [part for record in self._records if isinstance(record, tuple) for part in record]
        found = [one for each in (self, *parts) for one in each._excesses()]
        if not found or math.inf in found:
            return None
        return max(found) - math.sqrt(2.0 * math.log(len(found)))

    def _excesses(self) -> Iterator[float]:
        for quantity, total in self._sums.items():
            count = self._counts[quantity]
            yield _excess(self._squares[quantity], count * total.size)
            yield _excess(float(np.sum(total**2)) / count, total.size)

    def parts(self, count: int) -> tuple[Curator, ...]:
        """Make one curator for each disjoint part of the rows; together they are ``Parallel``.

        Privacy: a row is in one part, which does not depend on any row's values, so two neighbours
        differ in one part only; what happens on the others is post-processing of public randomness
        (McSherry, SIGMOD 2009, Theorem 4). Results of one part may steer what is asked of another.
        Refused where the number of rows is private: one row more would move others to another part.
        """
        if not self._adjacency.n_is_public:
            raise ValueError(
                "adjacency must be 'zero_out' or 'replace_one' for disjoint parts of the rows, "
                f"got {self._adjacency.value!r}"
            )
        children = tuple(self._another() for _ in range(count))
        self._records.append(children)
        return children

    def tries(self, event: RandomlyRepeated) -> Iterator[Curator]:
        """Yield a curator for each of a random number of tries; ``event`` is recorded at once.

        Privacy: only the best result may leave, and not how many tries there were. A try that
        released something else than ``event`` says is a PlanMismatchError.
        """
        self._records.append(event)
        for _ in range(event.repetitions.draw(self._noise)):
            curator = self._another()
            yield curator
            if RandomlyRepeated((curator.event,), event.repetitions).events[0] not in event.events:
                raise PlanMismatchError(
                    f"planned tries of {event.events}, but released {curator.event}"
                )

    def _another(self) -> Curator:
        return Curator(self._adjacency, self._noise, self._unit)

    def sample(self, n_rows: int, sampling_rate: float) -> NDArray[np.bool_]:
        """Draw a Poisson sample of units as a mask of shape (n_rows,). Private, like ``n_rows``."""
        observer = self._noise.observer
        if observer is not None:
            return observer.sample(n_rows, sampling_rate)
        return bernoulli(self._noise, n_rows, sampling_rate)

    def release(self, declared: Release[V, R], value: Bounded[V]) -> R:
        """Release a value by the mechanism that was declared for it.

        Privacy: ``declared.event``. Where the release was declared for a smaller bound, another
        relation, unit or sample, nothing is released (PlanMismatchError).
        """
        declared.check(value, self._adjacency, self._unit)
        self._records.append(declared.event)
        answer = self._drawn(declared, value.value)
        if not isinstance(answer, int | np.integer):
            self._heard(declared, value.value, answer)
        return answer

    def _heard(self, declared: Release[V, R], value: V, answer: Any) -> None:
        """Add a released sum, over its noise, to those of the same quantity."""
        name = declared.quantity
        if isinstance(value, np.ndarray) and isinstance(answer, np.ndarray):
            loud = np.clip(answer / declared.noise_std, -1e100, 1e100)
        else:
            # The size of what noise entered says nothing of the rows.
            loud = np.full(1, math.inf)
        if name in self._sums and self._sums[name].shape != loud.shape:
            name = f"{name} {loud.shape}"
        self._sums[name] = self._sums.get(name, 0.0) + loud
        self._squares[name] = self._squares.get(name, 0.0) + float(np.sum(loud**2))
        self._counts[name] = self._counts.get(name, 0) + 1

    def _drawn(self, declared: Release[V, R], value: V) -> R:
        observer = self._noise.observer
        if observer is not None:
            return observer.answer(declared, value)
        return declared.mechanism.draw(declared, value, self._noise)


def _excess(squares: float, values: int) -> float:
    """Return how far a sum of squares exceeds that of standard normal values: nearly normal."""
    return math.sqrt(2.0 * squares) - math.sqrt(2.0 * values - 1.0)
