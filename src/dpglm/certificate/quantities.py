"""What the recorded settings imply about each kind of release, for ``verify`` to compare."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from dpglm.data.spec import DataSpec
from dpglm.oracle.counts import NUMBER_OF_ROWS
from dpglm.oracle.row_sums.magnitudes import LEVELS, magnitude_bound
from dpglm.oracle.row_sums.moments import n_symmetric
from dpglm.privacy.events import (
    BoundedRange,
    Event,
    Gaussian,
    ObjectivePerturbation,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    canonical,
)
from dpglm.privacy.noise.scales import pure_objective_epsilon
from dpglm.solvers.minimizer.pure_objective_perturbation import PURE_MINIMISER
from dpglm.solvers.minimizer.strongly_convex import COUNT_MULTIPLIER
from dpglm.solvers.parts.schedules import MOST_LEVELS

__all__ = ["QUANTITIES", "Implied", "Quantity"]


@final
@dataclass(frozen=True)
class Implied:
    """What settings say about one kind of release.

    Parameters
    ----------
    event : Event
        What each release costs.
    contribution_bound : float
        What one row contributes at most.
    count : int
        How often it is released.
    coordinates : int
        Number of values in each release.
    """

    event: Event
    contribution_bound: float
    count: int
    coordinates: int


@final
@dataclass(frozen=True)
class Quantity:
    """A kind of release.

    Parameters
    ----------
    implied : callable
        From the settings and the public facts about the rows to what they imply.
    is_row_sum : bool, default=True
        Whether it is a sum over rows in floating point, whose rounding must be in the noise.
    """

    implied: Callable[[Mapping[str, Any], DataSpec], Implied]
    is_row_sum: bool = True


def _clipped_gradient_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    event = PoissonSampled(settings["sampling_rate"], Gaussian(settings["noise_multiplier"]))
    bound = settings["clip"] * data.weight_bound
    return Implied(canonical(event), bound, settings["n_steps"], data.n_coefficients)


def _clipped_loss_difference_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    bound = settings["comparison_bound"] * data.weight_bound
    return Implied(Gaussian(settings["comparison_noise_multiplier"]), bound, 1, 1)


def _shortest_gradient_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(Pure(settings["choice_epsilon"]), settings["clip"] * data.weight_bound, 1, 1)


def _least_loss(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    bound = 0.5 * settings["loss_bound"] * data.weight_bound
    return Implied(Pure(settings["choice_epsilon"]), bound, 1, 1)


def _least_loss_for_its_norm(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    bound = max(settings["loss_bounds"]) * data.weight_bound
    return Implied(BoundedRange(settings["choice_epsilon"]), bound, 1, 1)


def _anchor_gradient_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    event = Gaussian(settings["anchor_noise_multiplier"])
    bound = settings["clip"] * data.weight_bound
    return Implied(event, bound, len(settings["inner_steps"]), data.n_coefficients)


def _gradient_difference_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    event = PoissonSampled(
        settings["sampling_rate"], Gaussian(settings["difference_noise_multiplier"])
    )
    lengths = settings["inner_steps"]
    # Steps that start at their anchor ask nothing.
    count = sum(lengths) - (len(lengths) if settings["restarts"] else 1)
    bound = 2.0 * settings["clip"] * data.weight_bound
    return Implied(canonical(event), bound, count, data.n_coefficients)


def _noisy_score(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    bound = 0.5 * settings["loss_bound"] * data.weight_bound
    return Implied(Gaussian(settings["score_noise_multiplier"]), bound, 1, 1)


def _minimiser(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    event = Gaussian(settings["noise_multiplier"])
    movement = settings["clip"] * data.weight_bound / settings["strength"]
    return Implied(event, movement + 2.0 * settings["tolerance"], 1, data.n_coefficients)


def _perturbed_minimiser(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    ratio = data.weight_bound * settings["curvature"] / settings["strength"] * (1.0 + 1e-12)
    event = ObjectivePerturbation(settings["noise_multiplier"], ratio)
    bound = settings["clip"] * data.weight_bound
    return Implied(event, bound, settings["n_objectives"], data.n_columns)


def _purely_perturbed_minimiser(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    implied = _perturbed_minimiser(settings, data)
    assert isinstance(implied.event, ObjectivePerturbation)
    multiplier, ratio = implied.event.noise_multiplier, implied.event.curvature_ratio
    return dataclasses.replace(implied, event=Pure(pure_objective_epsilon(multiplier, ratio)))


def _pure_minimiser_error(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(Pure(settings["error_epsilon"]), 2.0 * settings["error"], 1, data.n_coefficients)


def _minimiser_error(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    event = Gaussian(settings["error_noise_multiplier"])
    return Implied(event, 2.0 * settings["error"], 1, data.n_coefficients)


def _number_of_rows(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(Gaussian(COUNT_MULTIPLIER * settings["noise_multiplier"]), 1.0, 1, 1)


def _normalized_second_moment_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    event = Gaussian(settings["first_noise_multiplier"])
    return Implied(event, data.weight_bound, 1, n_symmetric(data.n_features + 1))


def _clipped_moment_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    bound = settings["moment_clip"] * data.weight_bound
    size = n_symmetric(data.n_columns) + data.n_columns
    return Implied(Gaussian(settings["noise_multiplier"]), bound, 1, size)


def _preconditioned_gradient_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    event = Gaussian(settings["noise_multiplier"])
    bound = settings["clip"] * data.weight_bound
    return Implied(event, bound, settings["n_steps"], data.n_coefficients)


def _row_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(Gaussian(settings["noise_multiplier"]), data.row_norm, 1, data.n_features)


def _row_sum_in_radii(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(Gaussian(settings["noise_multiplier"]), 1.0, 1, data.n_features)


def _counts_of_magnitudes(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    event, d = Gaussian(settings["noise_multiplier"]), data.n_features
    return Implied(event, magnitude_bound(d), 1, d * LEVELS)


def _median(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(BoundedRange(settings["median_epsilon"]), 1.0, data.n_features, 1)


def _radius_around_medians(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(BoundedRange(settings["radius_epsilon"]), 1.0, 1, 1)


def _radius(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(BoundedRange(settings["choice_epsilon"]), 1.0, 1, 1)


def _unbounded_radius(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return Implied(Pure(settings["choice_epsilon"]), 1.0, 1, 1)


def _vertex(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    entry = max(settings["largest_entry"], min(data.entry_bound, data.row_norm))
    bound = settings["slope_clip"] * entry * data.weight_bound
    return Implied(BoundedRange(settings["choice_epsilon"]), bound, settings["n_steps"], 1)


def _embedded_gradient_sum(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    return _clipped_gradient_sum(
        settings, dataclasses.replace(data, n_features=settings["dimension"])
    )


def _gradient_sum_at_level(settings: Mapping[str, Any], data: DataSpec, level: int) -> Implied:
    factor, count = settings["noise_levels"][level - 1]
    multiplier, dimension = settings["noise_multiplier"] * factor, settings["dimension"]
    event = Gaussian(multiplier) if dimension is None else ProjectedGaussian(multiplier, dimension)
    return Implied(
        canonical(PoissonSampled(settings["sampling_rate"], event)),
        settings["clip"] * data.weight_bound,
        count,
        dimension or data.n_coefficients,
    )


def _at_levels(quantity: str, *, is_row_sum: bool) -> dict[str, Quantity]:
    """One quantity for each noise that a schedule may take."""
    return {
        f"{quantity} at noise level {level}": Quantity(
            functools.partial(_gradient_sum_at_level, level=level), is_row_sum
        )
        for level in range(1, MOST_LEVELS + 1)
    }


def _gradient_sum_with_l2_noise(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    bound = settings["clip"] * data.weight_bound
    event = Pure(settings["step_epsilon"])
    return Implied(event, bound, settings["n_steps"], data.n_coefficients)


def _noised_row_gradient(settings: Mapping[str, Any], data: DataSpec) -> Implied:
    bound = settings["clip"] * data.weight_bound
    event = Gaussian(settings["noise_multiplier"])
    return Implied(event, bound, len(settings["block_sizes"]), data.n_coefficients)


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        **_at_levels("clipped gradient sum", is_row_sum=True),
        **_at_levels("projected gradient sum", is_row_sum=False),
        "clipped gradient sum of embedded rows": Quantity(_embedded_gradient_sum, is_row_sum=False),
        "anchor gradient sum": Quantity(_anchor_gradient_sum),
        "gradient difference sum": Quantity(_gradient_difference_sum),
        "clipped gradient sum": Quantity(_clipped_gradient_sum),
        "clipped gradient sum with L2 noise": Quantity(_gradient_sum_with_l2_noise),
        "clipped loss difference sum": Quantity(_clipped_loss_difference_sum),
        "clipped loss difference sum of embedded rows": Quantity(
            _clipped_loss_difference_sum, is_row_sum=False
        ),
        "clipped moment sum": Quantity(_clipped_moment_sum),
        "least clipped loss": Quantity(_least_loss, is_row_sum=False),
        "least clipped loss for its norm": Quantity(_least_loss_for_its_norm, is_row_sum=False),
        "counts of magnitudes": Quantity(_counts_of_magnitudes),
        "error of a minimiser, with L2 noise": Quantity(_pure_minimiser_error, is_row_sum=False),
        "error of a minimiser": Quantity(_minimiser_error, is_row_sum=False),
        "median along a direction": Quantity(_median, is_row_sum=False),
        "minimiser": Quantity(_minimiser, is_row_sum=False),
        PURE_MINIMISER: Quantity(_purely_perturbed_minimiser, is_row_sum=False),
        "minimiser of a perturbed objective": Quantity(_perturbed_minimiser, is_row_sum=False),
        "noisy score": Quantity(_noisy_score, is_row_sum=False),
        "normalised second-moment sum": Quantity(_normalized_second_moment_sum),
        NUMBER_OF_ROWS: Quantity(_number_of_rows, is_row_sum=False),
        "preconditioned gradient sum": Quantity(_preconditioned_gradient_sum),
        "radius around medians": Quantity(_radius_around_medians, is_row_sum=False),
        "radius of rows": Quantity(_radius, is_row_sum=False),
        "row gradient with noise of its own": Quantity(_noised_row_gradient),
        "row sum": Quantity(_row_sum),
        "row sum in radii": Quantity(_row_sum_in_radii),
        "shortest clipped gradient sum": Quantity(_shortest_gradient_sum, is_row_sum=False),
        "unbounded radius of rows": Quantity(_unbounded_radius, is_row_sum=False),
        "vertex of the L1 ball": Quantity(_vertex, is_row_sum=False),
    }
)
