"""What a run will release, as it is planned before any data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, final

from dpglm._json import integer, line, number, object_with
from dpglm._validation import check_integer, check_real
from dpglm.privacy.events import Event, event_from_dict

__all__ = ["Release", "check_can_be_asked"]


@final
@dataclass(frozen=True)
class Release:
    """One kind of thing that a run will release: what its privacy rests on, planned before data.

    Parameters
    ----------
    quantity : str
        What is released, in words, such as ``"clipped gradient sum"``.
    event : Event
        The basic event of each release.
    count : int
        How often, at least 1.
    contribution_bound : float
        The largest change of the exact quantity, in L2 norm, when one row is erased (of scores:
        of any one score). Where it shrinks along a run the noise shrinks with it, and this is
        the largest.
    noise_multiplier : float
        Scale of the noise (standard deviation of Gaussian noise) over the sensitivity.
    noise_scale : float
        Scale of the noise that goes with ``contribution_bound``. It is at least
        ``noise_multiplier`` times the relation's sensitivity for that bound; the excess is what
        floating point asks for. ``inf`` where floating point has no such noise; no plan has such a
        release.
    coordinates : int
        Number of values in each release, at least 1.
    """

    quantity: str
    event: Event
    count: int
    contribution_bound: float
    noise_multiplier: float
    noise_scale: float
    coordinates: int

    def __post_init__(self) -> None:
        check_integer("count", self.count, least=1)
        check_integer("coordinates", self.coordinates, least=1)
        for name in ("contribution_bound", "noise_multiplier"):
            check_real(name, getattr(self, name), least=0.0)
        # A search may pass sizes that no grid holds; a plan does not.
        if self.noise_scale != math.inf:
            check_real("noise_scale", self.noise_scale, least=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values from which ``from_dict`` makes an equal release."""
        return {**vars(self), "event": self.event.to_dict()}

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read back what ``to_dict`` returned.

        Raises
        ------
        ValueError
            If a key is missing or unknown, or a value is not allowed.
        """
        return cls(**_FIELDS(document))


_FIELDS = object_with(
    {
        "quantity": line,
        "event": event_from_dict,
        "count": integer,
        "contribution_bound": number,
        "noise_multiplier": number,
        "noise_scale": number,
        "coordinates": integer,
    },
    "a release",
)


def check_can_be_asked(releases: Iterable[Release]) -> None:
    """Raise ValueError for a release whose noise floats cannot hold.

    Parameters
    ----------
    releases : iterable of Release
        As they are planned.

    Raises
    ------
    ValueError
        If a scale of noise is below 2^-460, or 2^460 or more: ``inf`` where no grid holds both
        the noise and what it is added to (``noise_scale``). Within that range choices can be made,
        too, whose sensitivities must be from 2^-500 to 2^500.

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian
    >>> check_can_be_asked([Release("sum", Gaussian(2.0), 1, 0.0, 2.0, 0.0, 1)])
    Traceback (most recent call last):
    ...
    ValueError: noise of the release 'sum' must have a scale from ...
    """
    for release in releases:
        if not 2.0**-460 <= release.noise_scale < 2.0**460:
            raise ValueError(
                f"noise of the release {release.quantity!r} must have a scale from 3.4e-139 to "
                "3e+138, and at most 2^32 cells of a grid that holds what it is added to, got "
                f"{release.noise_scale!r} (inf: no grid does): give a larger budget, fewer columns "
                "or steps, or bounds in other units"
            )
