"""Releases, which a plan declares and a curator answers."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array, check_integer, check_real
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.budget import Adjacency, Unit
from dpglm.privacy.events import (
    Composed,
    Event,
    Parallel,
    RandomlyRepeated,
    canonical,
    poisson_sampled,
)
from dpglm.privacy.noise import NoiseSource, bernoulli
from dpglm.privacy.noise.exact import NoiseScale

V = TypeVar("V")
R = TypeVar("R")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Bounded(Generic[V]):
    """A value computed from private rows, with a bound on the influence of one unit.

    For a sum, the bound is on the L2 norm of any unit's exact contribution. For other values, it is
    on their change when one unit is erased (for scores, of each score). ``sampling_rate`` is the
    rate of the fresh Poisson sample that the value was computed on.

    Privacy: the value is private until a ``Curator`` releases it; ``repr`` shows the bound only.
    """

    value: V
    contribution_bound: float
    sampling_rate: float = 1.0
    unit: Unit = Unit.ROW

    def __repr__(self) -> str:
        return f"Bounded(<private>, contribution_bound={self.contribution_bound!r})"


class Mechanism(abc.ABC, Generic[V, R]):
    """Noise, or a random choice: turns a private value into an answer.

    A frozen dataclass that a plan declares, a curator draws from, and a certificate records. It
    determines the privacy event.
    """

    is_l2: ClassVar[bool] = False
    """Whether the scale is that of L2 noise, a coordinate of which varies more."""

    @property
    @abc.abstractmethod
    def event(self) -> Event:
        """The privacy event of one answer."""

    @property
    @abc.abstractmethod
    def multiplier(self) -> float:
        """Noise scale divided by the sensitivity."""

    @property
    def in_words(self) -> str:
        """The noise scale, in words."""
        return f"scale {self.multiplier:.4g} x sensitivity"

    def with_multiplier(self, multiplier: float) -> Self:
        """Return the same noise with another scale, where the scale determines the cost."""
        raise ValueError(f"{self!r} cannot be calibrated by its multiplier")

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        """Return the noise scale of a release, from public facts only."""
        return NoiseScale(self.multiplier * release.sensitivity, 0)

    @abc.abstractmethod
    def draw(self, release: Release[V, R], value: V, source: NoiseSource) -> R:
        """Return the answer: the only place where a private value meets its noise."""


@final
@dataclass(frozen=True)
class Release(Generic[V, R]):
    """One kind of release of a run, with everything that its privacy depends on.

    Parameters
    ----------
    quantity : str
        Name of the quantity, such as ``"clipped gradient sum"``.
    mechanism : Mechanism
        Noise or choice, which determines the event.
    adjacency : Adjacency
        The neighbouring relation.
    contribution_bound : float
        Largest change of the exact quantity, in L2 norm, when one unit is erased (for scores, of
        each score); at least 0. If it shrinks during a run, so does the noise, and this is the
        largest.
    coordinates : int, default=1
        Number of values in each release.
    count : int, default=1
        Number of releases.
    rounding : float, default=0.0
        Bound on the rounding error to add to ``contribution_bound``.
    magnitude : float, default=0.0
        Public bound on the L2 norm of the computed quantity.
    sampling_rate : float, default=1.0
        Probability with which each unit is sampled, independently, in (0, 1].
    unit : Unit, default=Unit.ROW
        The unit with the bounded contribution: a row, or a group with all its rows.
    diameter : float, default=2.0
        Bound on the distance of any two units' exact contributions (for scores, of each score), in
        units of ``contribution_bound``; from 1 to 2. A value below 2 requires a proof, and matters
        under ``REPLACE_ONE`` only.

    Attributes
    ----------
    event : Event
        The privacy event of one release.

    Privacy: ``event``, ``count`` times, under ``adjacency``.

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

    if TYPE_CHECKING:  # Derived, so no field.
        event: Event = field(init=False)

    def __post_init__(self) -> None:
        check_integer("count", self.count, least=1)
        check_integer("coordinates", self.coordinates, least=1)
        for name in ("contribution_bound", "rounding", "magnitude"):
            check_real(name, getattr(self, name), least=0.0)
        check_real("sampling_rate", self.sampling_rate, above=0.0, most=1.0)
        check_real("diameter", self.diameter, least=1.0, most=2.0)
        if self.diameter < 2.0 and self.sampling_rate < 1.0:
            # Accounting for samples goes through the erased row (``reduce_event``).
            raise ValueError(f"diameter must be 2 for a release on a sample, got {self.diameter!r}")
        # Raises for invalid settings of the mechanism, or one that cannot be sampled.
        event = self.mechanism.event
        if self.sampling_rate < 1.0:
            event = poisson_sampled(self.sampling_rate, event)
        vars(self).update(event=event)

    @property
    def noise_multiplier(self) -> float:
        """Noise scale divided by the sensitivity."""
        return self.mechanism.multiplier

    @property
    def sensitivity(self) -> float:
        """Largest distance of the computed quantities of two neighbours, before snapping."""
        exact = self.adjacency.sum_sensitivity(self.contribution_bound, self.diameter)
        return exact + self.adjacency.sum_sensitivity(self.rounding)

    @functools.cached_property
    def scale(self) -> NoiseScale:
        """Noise scale, ``inf`` if floating point cannot represent it, and its grid."""
        return self.mechanism.scale(self)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate."""
        std = self.scale.std
        return std * math.sqrt(self.coordinates + 1.0) if self.mechanism.is_l2 else std

    def check(self, value: Bounded[V], adjacency: Adjacency, unit: Unit = Unit.ROW) -> None:
        """Raise PlanMismatchError unless the release was declared for this value and relation."""
        if not self.unit is value.unit is unit:
            mismatch = (
                f"each {self.unit.value}, and its value is bounded for each {value.unit.value}, "
                f"but each {unit.value} is protected"
            )
        elif adjacency is not self.adjacency:
            mismatch = f"adjacency {self.adjacency.value!r}, but asked under {adjacency.value!r}"
        elif not value.contribution_bound <= self.contribution_bound:
            mismatch = (
                f"contributions up to {self.contribution_bound!r}, but asked with "
                f"{value.contribution_bound!r}"
            )
        elif value.sampling_rate != self.sampling_rate:
            mismatch = (
                f"a Poisson sample of rate {self.sampling_rate!r}, but asked with one of rate "
                f"{value.sampling_rate!r}"
            )
        else:
            return
        raise PlanMismatchError(f"the release {self.quantity!r} was declared for {mismatch}")


AnyRelease: TypeAlias = Release[Any, Any]
"""A release of any values and answers."""
SumRelease: TypeAlias = Release[Array, Array]
"""A release of a noisy vector."""
SumMechanism: TypeAlias = Mechanism[Array, Array]
"""Noise that is added to a vector."""
ScoreRelease: TypeAlias = Release[Array, int]
"""A release of a candidate with a small score."""


def check_can_be_asked(releases: Iterable[AnyRelease]) -> None:
    """Raise ValueError for a noise scale below 2^-460, or of 2^460 or more.

    The scale is ``inf`` if no grid can hold both the noise and the value. Within this range,
    choices are possible too, which need sensitivities from 2^-500 to 2^500.
    """
    for release in releases:
        if not 2.0**-460 <= release.scale.std < 2.0**460:
            raise ValueError(
                f"the noise scale of the release {release.quantity!r} must be from 3.4e-139 to "
                "3e+138, and at most 2^32 cells of a grid that holds the value, got "
                f"{release.scale.std!r} (inf: no grid exists). Use a larger budget, fewer "
                "columns or steps, or bounds in other units"
            )


# The curator: the only way to release information about private rows.


@final
class Curator:
    """Draws the noise of every release under one relation, and records its event.

    Privacy: each event is recorded before its noise is drawn, so a crash can only overstate the
    cost.
    """

    def __init__(self, adjacency: Adjacency, noise: NoiseSource, unit: Unit = Unit.ROW) -> None:
        self.adjacency, self.unit, self.noise = adjacency, unit, noise
        self._records: list[Event | tuple[Curator, ...]] = []
        # Released values over their noise, for each quantity: sum, sum of squares, and count.
        self._sums: dict[str, tuple[Array, float, int]] = {}

    @property
    def event(self) -> Event:
        """The events so far, in canonical form."""
        events = (
            Parallel(tuple(part.event for part in one)) if isinstance(one, tuple) else one
            for one in self._records
        )
        return canonical(Composed(tuple(events)))

    @property
    def signal(self) -> float | None:
        """Signal-to-noise statistic of the released sums, in standard deviations of pure noise.

        For each quantity, the squares of its releases and of their sum are standardised by Fisher's
        normal approximation for pure Gaussian noise. The statistic is the largest of these, less
        the expected maximum under pure noise. None if no sum was released, or noise entered a
        computation. Choices and random repetitions are ignored.

        Privacy: post-processing of released values.
        """
        parts = [part for record in self._records if isinstance(record, tuple) for part in record]
        sums = [
            one
            for each in (self, *parts)
            for total, squares, count in each._sums.values()
            for one in (
                (squares, count * total.size),
                (float(np.sum(total**2)) / count, total.size),
            )
        ]
        # A standardised sum of squares of standard normal values (Fisher).
        found = [math.sqrt(2.0 * squares) - math.sqrt(2.0 * n - 1.0) for squares, n in sums]
        if not found or math.inf in found:
            return None
        return max(found) - math.sqrt(2.0 * math.log(len(found)))

    def parts(self, count: int) -> tuple[Curator, ...]:
        """Return one curator for each disjoint part of the rows; their events are ``Parallel``.

        Privacy: parts do not depend on the values of rows, so neighbours differ in one part only
        (McSherry, SIGMOD 2009, Theorem 4). Results of one part may decide the questions to another.
        Refused if the number of rows is private: an added row would move others to another part.
        """
        if not self.adjacency.n_is_public:
            raise ValueError(
                "adjacency must be 'zero_out' or 'replace_one' for disjoint parts of the rows, "
                f"got {self.adjacency.value!r}"
            )
        children = tuple(self._another() for _ in range(count))
        self._records.append(children)
        return children

    def tries(self, event: RandomlyRepeated) -> Iterator[Curator]:
        """Yield a curator for each of a random number of tries; ``event`` is recorded first.

        Privacy: only the best result may leave, and the number of tries stays private. A try with
        other releases than ``event`` is a PlanMismatchError.
        """
        self._records.append(event)
        for _ in range(event.repetitions.draw(self.noise)):
            curator = self._another()
            yield curator
            if RandomlyRepeated((curator.event,), event.repetitions).events[0] not in event.events:
                raise PlanMismatchError(
                    f"planned tries of {event.events}, but released {curator.event}"
                )

    def _another(self) -> Curator:
        return Curator(self.adjacency, self.noise, self.unit)

    def sample(self, n_rows: int, sampling_rate: float) -> NDArray[np.bool_]:
        """Draw a Poisson sample of units as a mask of shape (n_rows,). Private, like ``n_rows``."""
        observer = self.noise.observer
        if observer is not None:
            return observer.sample(n_rows, sampling_rate)
        return bernoulli(self.noise, n_rows, sampling_rate)

    def release(self, declared: Release[V, R], value: Bounded[V]) -> R:
        """Release a value by its declared mechanism.

        Privacy: ``declared.event``. If the release was declared for a smaller bound, or for another
        relation, unit or sample, nothing is released (PlanMismatchError).
        """
        declared.check(value, self.adjacency, self.unit)
        self._records.append(declared.event)
        answer = self._drawn(declared, value.value)
        if isinstance(answer, int | np.integer):
            return answer
        name = declared.quantity
        if isinstance(value.value, np.ndarray) and isinstance(answer, np.ndarray):
            scaled = np.maximum(np.minimum(answer / declared.noise_std, 1e100), -1e100)
        else:
            # The size of a computed value is not comparable with its noise.
            scaled = np.full(1, math.inf)
        if name in self._sums and self._sums[name][0].shape != scaled.shape:
            name = f"{name} {scaled.shape}"
        total, squares, count = self._sums.get(name, (0.0, 0.0, 0))
        self._sums[name] = total + scaled, squares + float(np.vdot(scaled, scaled)), count + 1
        return answer

    def _drawn(self, declared: Release[V, R], value: V) -> R:
        observer = self.noise.observer
        if observer is not None:
            return observer.answer(declared, value)
        return declared.mechanism.draw(declared, value, self.noise)
