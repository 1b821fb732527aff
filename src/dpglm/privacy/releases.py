"""What a run will release, as it is planned before any data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, final

from dpglm._json import integer, line, number, object_with
from dpglm._validation import check_integer, check_real
from dpglm.privacy.events import Event, event_from_dict
from dpglm.privacy.noise_scales import check_scale

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
        floating point asks for.
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
        for name in ("contribution_bound", "noise_multiplier", "noise_scale"):
            check_real(name, getattr(self, name), least=0.0)

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
        As ``check_scale`` does.

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian
    >>> check_can_be_asked([Release("sum", Gaussian(2.0), 1, 0.0, 2.0, 0.0, 1)])
    Traceback (most recent call last):
    ...
    ValueError: the release 'sum' must have a scale from ...
    """
    for release in releases:
        check_scale(f"the release {release.quantity!r}", release.noise_scale)
