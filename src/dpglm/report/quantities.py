"""What the recorded settings imply about each kind of release, for ``verify`` to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from dpglm.data.spec import DataSpec
from dpglm.privacy.events import Event, Gaussian, PoissonSampled, canonical

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


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        "clipped gradient sum": Quantity(_clipped_gradient_sum),
    }
)
