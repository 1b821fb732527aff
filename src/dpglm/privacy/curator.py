"""A private value that carries its bound, and the curator: the only way to release one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    ObjectivePerturbation,
    Parallel,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    RandomlyRepeated,
    canonical,
)
from dpglm.privacy.noise import NoiseSource, add_gaussian, granularity_exponent, grid_sensitivity
from dpglm.privacy.noise.l2 import add_l2_noise
from dpglm.privacy.noise.scales import l2_noise_scale, noise_scale, pure_objective_epsilon
from dpglm.privacy.selection.choices import (
    exponential_mechanism,
    generalized_exponential_mechanism,
    permute_and_flip,
)
from dpglm.privacy.selection.rank_choices import exponential_mechanism_in_runs, first_above

__all__ = [
    "MOST_SENDERS",
    "BoundedSum",
    "Curator",
    "SecretNoise",
]

MOST_SENDERS = 2**13
"""The most messages that ``Curator.release_local`` adds up."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class BoundedSum:
    """A vector computed from private rows together with what one row can change in it.

    Parameters
    ----------
    value : ndarray of float64
        The vector itself, a sum over rows as a rule. Private: only a ``Curator`` may turn it
        into something released.
    contribution_bound : float
        Bound ``C`` on the L2 norm of any one row's contribution to a sum; for other vectors, on
        the L2 distance by which erasing one row moves them.
    rounding : float, default=0.0
        Bound on what floating point adds to the L2 distance between the sums computed with and
        without one row.
    magnitude : float
        Public bound on the L2 norm of the sum.
    sampling_rate : float, default=1.0
        Probability with which each row entered, independently; 1 for a sum over all rows.

    Notes
    -----
    Privacy: ``repr`` shows the bound, never the value.
    """

    value: NDArray[np.float64]
    contribution_bound: float
    magnitude: float
    rounding: float = 0.0
    sampling_rate: float = 1.0

    def __repr__(self) -> str:
        return (
            f"BoundedSum(<private, shape {self.value.shape}>, "
            f"contribution_bound={self.contribution_bound!r}, rounding={self.rounding!r}, "
            f"sampling_rate={self.sampling_rate!r})"
        )


@final
@dataclass(frozen=True, eq=False, repr=False)
class SecretNoise:
    """Noise that enters a computation and is never released itself.

    Parameters
    ----------
    value : ndarray of float64
        The noise, rounded to a grid. Private.
    rounding : float
        Bound on the L2 distance to the ideal noise that was rounded.
    """

    value: NDArray[np.float64]
    rounding: float


@final
class Curator:
    """Adds the noise, and remembers every release.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbouring relation under which sensitivities are computed.
    noise : NoiseSource
        Where randomness comes from.

    Notes
    -----
    Privacy: each release is written into ``event`` before its noise is drawn, so a crash can
    only overstate what was spent.
    """

    def __init__(self, adjacency: Adjacency, noise: NoiseSource) -> None:
        self._adjacency = adjacency
        self._noise = noise
        self._records: list[Event | tuple[Curator, ...]] = []

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of every sensitivity."""
        return self._adjacency

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

    def parts(self, count: int) -> tuple[Curator, ...]:
        """Make one curator for each of some disjoint parts of the rows.

        Parameters
        ----------
        count : int
            Number of parts, at least 1.

        Returns
        -------
        tuple of Curator
            Each records what is released about its own part; together they count as
            ``Parallel``.

        Raises
        ------
        ValueError
            Where the number of rows is private: a row more or less would move others into
            another part.

        Notes
        -----
        Privacy: a row is in one part, which does not depend on any row's values, so two
        neighbours differ in one part only; what happens on the others is post-processing of
        public randomness (McSherry, SIGMOD 2009, Theorem 4). Results of one part may steer what
        is asked of another.
        """
        if not self._adjacency.n_is_public:
            raise ValueError(
                "adjacency must be 'zero_out' or 'replace_one' for disjoint parts of the rows, "
                f"got {self._adjacency.value!r}"
            )
        children = tuple(Curator(self._adjacency, self._noise) for _ in range(count))
        self._records.append(children)
        return children

    def tries(self, event: RandomlyRepeated) -> Iterator[Curator]:
        """Make a curator for each of a random number of tries.

        Parameters
        ----------
        event : RandomlyRepeated
            Law of their number, and what each releases; recorded at once.

        Yields
        ------
        Curator
            For one try.

        Raises
        ------
        PlanMismatchError
            If a try released something else.

        Notes
        -----
        Privacy: only the best result may leave, and not how many tries there were.
        """
        self._records.append(event)
        for _ in range(event.repetitions.draw(self._noise)):
            curator = Curator(self._adjacency, self._noise)
            yield curator
            if RandomlyRepeated((curator.event,), event.repetitions).events[0] not in event.events:
                raise PlanMismatchError(
                    f"planned tries of {event.events}, but released {curator.event}"
                )

    def release_gaussian(
        self, total: BoundedSum, noise_multiplier: float, projection: int | None = None
    ) -> NDArray[np.float64]:
        """Release a bounded sum by the Gaussian mechanism.

        Parameters
        ----------
        total : BoundedSum
            The sum.
        noise_multiplier : float
            Noise standard deviation divided by the sum's sensitivity, above 0.
        projection : int, optional
            Where the value is ``A^T s / sqrt(p)`` with A of independent standard normal entries,
            public and used once, its number of columns p. ``total`` then bounds contributions
            to ``s``; rounding is that of the projected value.

        Returns
        -------
        ndarray of float64, shape of ``total.value``
            The sum, snapped to a grid, plus Gaussian noise rounded to that grid.

        Notes
        -----
        Privacy: ``Gaussian(noise_multiplier)``, or ``ProjectedGaussian`` for a projection;
        inside ``PoissonSampled`` where the sum was over a Poisson sample. The noise is
        spherical, fresh, and covers every coordinate.
        """
        event = (
            Gaussian(noise_multiplier)
            if projection is None
            else ProjectedGaussian(noise_multiplier, projection)
        )
        self._records.append(
            event if total.sampling_rate == 1.0 else PoissonSampled(total.sampling_rate, event)
        )
        scale = noise_scale(
            self._adjacency,
            total.contribution_bound + total.rounding,
            noise_multiplier,
            total.value.size,
            total.magnitude,
        )
        return add_gaussian(total.value, scale.std, scale.exponent, self._noise)

    def release_l2(self, total: BoundedSum, epsilon: float) -> NDArray[np.float64]:
        """Release a bounded sum with L2 noise, for pure differential privacy.

        Parameters
        ----------
        total : BoundedSum
            The sum, over all rows.
        epsilon : float
            What the release costs.

        Returns
        -------
        ndarray of float64, shape of ``total.value``
            The sum, snapped to a grid, plus noise ``b`` with a density proportional to
            ``exp(-|b| / s)``, rounded to that grid; s is the sensitivity over epsilon.

        Raises
        ------
        ValueError
            If the sum is over a sample.

        Notes
        -----
        Privacy: ``Pure(epsilon)``: between neighbours the density changes by a factor of at
        most ``exp(D / s)``, with D the L2 sensitivity under the relation (``2 C`` under
        replace-one), snapping and rounding included.
        """
        if total.sampling_rate != 1.0:
            raise ValueError(f"sampling_rate must be 1 for L2 noise, got {total.sampling_rate!r}")
        self._records.append(Pure(epsilon))
        scale = l2_noise_scale(
            self._adjacency,
            total.contribution_bound + total.rounding,
            epsilon,
            total.value.size,
            total.magnitude,
        )
        return add_l2_noise(total.value, scale.std, scale.exponent, self._noise)

    def release_local(
        self, total: BoundedSum, noise_multiplier: float, senders: int
    ) -> NDArray[np.float64]:
        """Release the sum of messages to which every sender has added Gaussian noise.

        Parameters
        ----------
        total : BoundedSum
            The sum of the messages without their noise.
        noise_multiplier : float
            Standard deviation of the noise in one message over its sensitivity, above 0.
        senders : int
            Number of messages, from 1 to 8192. Public.

        Returns
        -------
        ndarray of float64, shape of ``total.value``
            The sum plus Gaussian noise of ``sqrt(senders)`` times the standard deviation in one
            message: the law of a sum of independent noises.

        Raises
        ------
        ValueError
            If ``senders`` is out of range.

        Notes
        -----
        Privacy: ``Gaussian(noise_multiplier)`` for each sender against whoever sees its message.
        What is returned here shows less, as no message is seen alone: against whoever sees only
        the sum, noise is ``sqrt(senders)`` times as large as the event asks for.
        """
        senders = check_integer("senders", senders, least=1)
        if senders > MOST_SENDERS:
            raise ValueError(f"senders must be at most {MOST_SENDERS}, got {senders}")
        self._records.append(Gaussian(noise_multiplier))
        scale = noise_scale(
            self._adjacency,
            total.contribution_bound + total.rounding,
            noise_multiplier,
            total.value.size,
            total.magnitude,
        )
        # Few enough senders that the sum's noise fits on the grid of one message.
        summed = scale.times(math.sqrt(senders))
        return add_gaussian(total.value, summed.std, summed.exponent, self._noise)

    def choose_least(
        self, scores: NDArray[np.float64], contribution_bound: float, epsilon: float
    ) -> int:
        """Release which of some candidates has a small score, by permute-and-flip.

        Parameters
        ----------
        scores : ndarray of float64, shape (candidates,)
            Finite, lower is better. Private.
        contribution_bound : float
            Bound on how far erasing one row moves any one score, rounding included; half of
            that where it moves all of them to the same side (``dpglm.privacy.selection.choices``).
        epsilon : float
            What the choice costs.

        Returns
        -------
        int
            Position of the choice.

        Notes
        -----
        Privacy: ``Pure(epsilon)``. The scores are not released, nor is that of the choice.
        """
        self._records.append(Pure(epsilon))
        sensitivity = self._adjacency.sum_sensitivity(contribution_bound)
        return permute_and_flip(scores, sensitivity, epsilon, self._noise)

    def choose_exponentially(
        self, scores: NDArray[np.float64], contribution_bound: float, epsilon: float
    ) -> int:
        """Release which of some candidates has a small score, by the exponential mechanism.

        Parameters
        ----------
        scores, contribution_bound, epsilon
            As for ``choose_least``.

        Returns
        -------
        int
            Position of the choice.

        Notes
        -----
        Privacy: ``BoundedRange(epsilon)``, which composes better than ``Pure(epsilon)``.
        """
        self._records.append(BoundedRange(epsilon))
        sensitivity = self._adjacency.sum_sensitivity(contribution_bound)
        return exponential_mechanism(scores, sensitivity, epsilon, self._noise)

    def choose_generalized(
        self,
        scores: NDArray[np.float64],
        contribution_bounds: NDArray[np.float64],
        epsilon: float,
        failure: float,
    ) -> int:
        """Release which of some candidates has a small score, each with its own sensitivity.

        Parameters
        ----------
        scores : ndarray of float64, shape (candidates,)
            Finite, lower is better. Private.
        contribution_bounds : ndarray of float64, shape (candidates,)
            For each score a bound on how far erasing one row moves it, rounding included; 0
            for at most one of them.
        epsilon : float
            What the choice costs.
        failure : float
            Probability with which the choice may miss its accuracy, in (0, 1).

        Returns
        -------
        int
            Position of the choice.

        Notes
        -----
        Privacy: ``BoundedRange(epsilon)``, by the generalised exponential mechanism.
        """
        self._records.append(BoundedRange(epsilon))
        sensitivities = [self._adjacency.sum_sensitivity(bound) for bound in contribution_bounds]
        return generalized_exponential_mechanism(
            scores, sensitivities, epsilon, failure, self._noise
        )

    def choose_in_runs(
        self,
        scores: NDArray[np.float64],
        lengths: NDArray[np.int64],
        contribution_bound: float,
        epsilon: float,
    ) -> int:
        """Release which of very many candidates, in runs of equal scores, has a small one.

        Parameters
        ----------
        scores : ndarray of float64, shape (runs,)
            Finite, lower is better. Private.
        lengths : ndarray of int64, shape (runs,)
            How many candidates are in each run; only their sum is public.
        contribution_bound, epsilon
            As for ``choose_least``.

        Returns
        -------
        int
            Position of the chosen candidate among all.

        Notes
        -----
        Privacy: ``BoundedRange(epsilon)``.
        """
        self._records.append(BoundedRange(epsilon))
        sensitivity = self._adjacency.sum_sensitivity(contribution_bound)
        return exponential_mechanism_in_runs(scores, lengths, sensitivity, epsilon, self._noise)

    def choose_first_above(self, counts: NDArray[np.int64], threshold: int, epsilon: float) -> int:
        """Release about which of growing counts of rows is the first to reach a threshold.

        Parameters
        ----------
        counts : ndarray of int64, shape (candidates,)
            Rows in nested sets, smallest first. Private.
        threshold : int
            Public.
        epsilon : float
            What the choice costs.

        Returns
        -------
        int
            Position of the choice; the last one where no count seems to reach it.

        Notes
        -----
        Privacy: ``Pure(epsilon)``. A replaced row is one row less and then one row more.
        """
        self._records.append(Pure(epsilon))
        each = epsilon / self._adjacency.sum_sensitivity(1.0)
        return first_above(counts, threshold, each, self._noise)

    def objective_noise(
        self,
        shape: tuple[int, ...],
        gradient_bound: float,
        noise_multiplier: float,
        curvature_ratio: float,
        pure: bool = False,
    ) -> SecretNoise:
        """Draw the linear term of a perturbed objective; the minimiser may then be released.

        Parameters
        ----------
        shape : tuple of int
            Shape of the parameter.
        gradient_bound : float
            Bound on the norm of any one row's gradient, everywhere, above 0.
        noise_multiplier : float
            Standard deviation of the term over the relation's sensitivity for that bound; of L2
            noise the scale.
        curvature_ratio : float
            Bound on a row's curvature over the strength of the quadratic penalty.
        pure : bool, default=False
            Whether the term is L2 noise and not Gaussian.

        Returns
        -------
        SecretNoise
            To be minimised with. The minimiser of the ideal term is what the event pays for; the
            distance to it must be covered by noise of its own.

        Notes
        -----
        Privacy: ``ObjectivePerturbation(noise_multiplier, curvature_ratio)``; of L2 noise
        ``Pure(pure_objective_epsilon(noise_multiplier, curvature_ratio))``.
        """
        if pure:
            epsilon = pure_objective_epsilon(noise_multiplier, curvature_ratio)
            self._records.append(Pure(epsilon))
            scale = noise_multiplier * self._adjacency.sum_sensitivity(gradient_bound)
            scale *= 1.0 + 2.0**-50
            exponent = granularity_exponent(scale)
            value = add_l2_noise(np.zeros(shape), scale, exponent, self._noise)
            return SecretNoise(value, grid_sensitivity(value.size, exponent))
        self._records.append(ObjectivePerturbation(noise_multiplier, curvature_ratio))
        std = noise_multiplier * self._adjacency.sum_sensitivity(gradient_bound)
        exponent = granularity_exponent(std)
        cells = self._noise.gaussian(shape, exponent, std)
        size = math.prod(shape)
        return SecretNoise(
            np.ldexp(cells.astype(np.float64), exponent), grid_sensitivity(size, exponent)
        )
