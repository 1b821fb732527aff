"""A release: one question to the rows, declared in a plan, answered by a curator."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.events import (
    Composed,
    Event,
    Parallel,
    RandomlyRepeated,
    canonical,
    poisson_sampled,
)
from dpglm.privacy.noise import NoiseSource, bernoulli
from dpglm.privacy.noise.scales import NoiseScale

V = TypeVar("V")
R = TypeVar("R")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Bounded(Generic[V]):
    """A value computed from private rows, with a bound on what one unit can change in it.

    The bound is on the L2 norm of any one unit's exact contribution to a sum; for other values, on
    the distance by which erasing one unit moves them (of scores: of any one score). The unit is a
    row, or all rows of a group. The rate is that of the fresh Poisson sample of units that the
    value was computed on.

    Privacy: the value is private until a ``Curator`` releases it; ``repr`` shows the bound only.
    """

    value: V
    contribution_bound: float
    sampling_rate: float = 1.0
    unit: Unit = Unit.ROW

    def __repr__(self) -> str:
        return f"Bounded(<private>, contribution_bound={self.contribution_bound!r})"


class Mechanism(abc.ABC, Generic[V, R]):
    """How a private value is turned into an answer: noise, or a random choice.

    A frozen dataclass, so that a plan declares it, a curator draws from it, and a certificate
    records it. It alone says which event pays.
    """

    @property
    @abc.abstractmethod
    def event(self) -> Event:
        """What one answer costs."""

    @property
    @abc.abstractmethod
    def multiplier(self) -> float:
        """Scale of the noise over the sensitivity."""

    @property
    def in_words(self) -> str:
        """How much noise there is, in words."""
        return f"scale {self.multiplier:.4g} x sensitivity"

    def with_multiplier(self, multiplier: float) -> Self:
        """Return the same noise with another scale; ValueError if that does not decide the cost."""
        raise ValueError(f"{self!r} cannot be calibrated by its multiplier")

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        """Work out the size of the noise for a release, from public facts only."""
        return NoiseScale(self.multiplier * release.sensitivity, 0)

    def coordinate_std(self, scale: float, size: int) -> float:
        """Return the standard deviation of each of ``size`` coordinates for noise of a scale."""
        return scale

    @abc.abstractmethod
    def draw(self, release: Release[V, R], value: V, source: NoiseSource) -> R:
        """Answer: the one place where a private value meets its noise."""


@final
@dataclass(frozen=True)
class Release(Generic[V, R]):
    """One kind of release of a run, with all that its privacy rests on.

    Parameters
    ----------
    quantity : str
        What is released, in words, such as ``"clipped gradient sum"``.
    mechanism : Mechanism
        Noise or choice, which gives the event.
    adjacency : Adjacency
        The neighbouring relation.
    contribution_bound : float
        The largest change of the exact quantity, in L2 norm, when one unit is erased (of scores:
        of any one score); at least 0. Where it shrinks along a run the noise shrinks with it, and
        this is the largest.
    coordinates : int, default=1
        Number of values in each release.
    count : int, default=1
        How often it is released.
    rounding : float, default=0.0
        Bound on what floating point adds to ``contribution_bound``.
    magnitude : float, default=0.0
        Public bound on the L2 norm of the computed quantity.
    sampling_rate : float, default=1.0
        Probability with which each unit enters, independently, in (0, 1].
    unit : Unit, default=Unit.ROW
        Whose contribution is bounded: a row's, or that of all rows of a group together.
    diameter : float, default=2.0
        Bound on the distance of any two units' exact contributions (of scores: of any one score),
        in units of ``contribution_bound``; from 1 to 2. Below 2 it needs a proof where it is
        declared, and matters under ``REPLACE_ONE`` alone.

    Notes
    -----
    Privacy: ``event``, ``count`` times, under ``adjacency``.

    Examples
    --------
    >>> from dpglm.privacy.noise.additive import GaussianNoise
    >>> release = Release("row sum", GaussianNoise(20.0), Adjacency.REPLACE_ONE, 1.5, 3)
    >>> release.event, release.sensitivity
    (Gaussian(noise_multiplier=20.0), 3.0)
    """

    quantity: str
    mechanism: Mechanism[V, R]
    adjacency: Adjacency
    contribution_bound: float
    coordinates: int = 1
    count: int = 1
    rounding: float = 0.0
    magnitude: float = 0.0
    sampling_rate: float = 1.0
    unit: Unit = Unit.ROW
    diameter: float = 2.0

    def __post_init__(self) -> None:
        check_integer("count", self.count, least=1)
        check_integer("coordinates", self.coordinates, least=1)
        for name in ("contribution_bound", "rounding", "magnitude"):
            check_real(name, getattr(self, name), least=0.0)
        check_real("sampling_rate", self.sampling_rate, above=0.0, most=1.0)
        check_real("diameter", self.diameter, least=1.0, most=2.0)
        if self.diameter < 2.0 and self.sampling_rate < 1.0:
            # A sampled release is accounted for by way of the erased row (``reduce_event``).
            raise ValueError(
                f"diameter must be 2 for a release about a sample, got {self.diameter!r}"
            )
        # Raises where the mechanism's settings are out of range, or it cannot be sampled.
        _ = self.event

    @property
    def event(self) -> Event:
        """What one of these releases costs."""
        return poisson_sampled(self.sampling_rate, self.mechanism.event)

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the sensitivity."""
        return self.mechanism.multiplier

    @property
    def sensitivity(self) -> float:
        """Distance of the computed quantities of two neighbours at most; snapping excluded."""
        exact = self.adjacency.sum_sensitivity(self.contribution_bound, self.diameter)
        return exact + self.adjacency.sum_sensitivity(self.rounding)

    @functools.cached_property
    def scale(self) -> NoiseScale:
        """Scale of the noise and the grid it lives on."""
        return self.mechanism.scale(self)

    @property
    def noise_scale(self) -> float:
        """Scale of the noise; ``inf`` where floating point has no such noise."""
        return self.scale.std

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate."""
        return self.mechanism.coordinate_std(self.noise_scale, self.coordinates)

    def check(self, value: Bounded[V], adjacency: Adjacency, unit: Unit = Unit.ROW) -> None:
        """Raise PlanMismatchError for a value, or a relation, that this was not declared for."""
        if not self.unit is value.unit is unit:
            raise PlanMismatchError(
                f"the release {self.quantity!r} was declared for the contribution of one "
                f"{self.unit.value}, and its value bounds that of one {value.unit.value}, but one "
                f"{unit.value} is what neighbours differ in"
            )
        if adjacency is not self.adjacency:
            raise PlanMismatchError(
                f"the release {self.quantity!r} was declared for adjacency "
                f"{self.adjacency.value!r}, but asked under {adjacency.value!r}"
            )
        if not value.contribution_bound <= self.contribution_bound:
            raise PlanMismatchError(
                f"the release {self.quantity!r} was declared for contributions up to "
                f"{self.contribution_bound!r}, but asked with {value.contribution_bound!r}"
            )
        if value.sampling_rate != self.sampling_rate:
            raise PlanMismatchError(
                f"the release {self.quantity!r} was declared for a Poisson sample of rate "
                f"{self.sampling_rate!r}, but asked with one of rate {value.sampling_rate!r}"
            )


AnyRelease: TypeAlias = Release[Any, Any]
"""A release of whatever values and answers."""
SumRelease: TypeAlias = Release[NDArray[np.float64], NDArray[np.float64]]
"""A release of a vector that noise is added to."""
SumMechanism: TypeAlias = Mechanism[NDArray[np.float64], NDArray[np.float64]]
"""Noise that is added to a vector."""
ScoreRelease: TypeAlias = Release[NDArray[np.float64], int]
"""A release of which candidate has a small score."""


def check_can_be_asked(releases: Iterable[AnyRelease]) -> None:
    """Raise ValueError for a release with noise below 2^-460, or of 2^460 or more.

    It is ``inf`` where no grid holds both the noise and what it is added to. Within that range
    choices can be made, too, whose sensitivities must be from 2^-500 to 2^500.
    """
    for release in releases:
        if not 2.0**-460 <= release.noise_scale < 2.0**460:
            raise ValueError(
                f"noise of the release {release.quantity!r} must have a scale from 3.4e-139 to "
                "3e+138, and at most 2^32 cells of a grid that holds what it is added to, got "
                f"{release.noise_scale!r} (inf: no grid does): give a larger budget, fewer columns "
                "or steps, or bounds in other units"
            )


# The curator: the only way to release something about private rows.


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
