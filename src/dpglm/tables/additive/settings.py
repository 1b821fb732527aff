"""What an additive model's features are made by: resolution, smoothness and interactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from dpglm._validation import check_count, check_real, in_one_line

__all__ = ["MOST_SEGMENTS", "Additive", "pairs_of_columns"]

MOST_SEGMENTS, MOST_REACH = 1000, 1e6


@final
@dataclass(frozen=True)
class Additive:
    """How the columns of a schema become curves, levels and interactions.

    Parameters
    ----------
    segments : int
        Equal segments between the bounds of each numeric column that declares no knots, 1 (a
        straight line) to 1000.
    reach : float
        Distance, as a share of the range, over which a curve's values are correlated beforehand, 0
        to 1e6; the larger, the smoother.
    interactions : tuple of (str, str)
        Pairs of columns that have an effect together, beside each one's own.
    pair_segments : int
        As ``segments``, for the columns of interactions.
    log_segments : int, optional
        As ``segments``, for columns of scale "log"; by default no others.
    """

    segments: int
    reach: float
    interactions: tuple[tuple[str, str], ...] = ()
    pair_segments: int = 4
    log_segments: int | None = None

    def __post_init__(self) -> None:
        for name in ("segments", "pair_segments", "log_segments"):
            count = getattr(self, name)
            if count is not None and check_count(name, count) > MOST_SEGMENTS:
                raise ValueError(f"{name} must be at most {MOST_SEGMENTS}, got {count!r}")
        reach = check_real("smoothness (reach)", self.reach, least=0.0, most=MOST_REACH)
        object.__setattr__(self, "reach", reach)
        object.__setattr__(self, "interactions", pairs_of_columns(self.interactions))

    @classmethod
    def from_dict(cls, entry: object) -> Additive:
        """Read the JSON form."""
        fields = set(entry) if isinstance(entry, Mapping) else set()
        known = set(cls.__dataclass_fields__)
        if not isinstance(entry, Mapping) or not {"segments", "reach"} <= fields <= known:
            raise ValueError(
                'the schema\'s "additive" must be an object with "segments" and "reach", and '
                'perhaps "log_segments", "interactions" and "pair_segments", got '
                f"{in_one_line(entry)}"
            )
        return cls(**entry)

    def segments_of(self, scale: str) -> int:
        """Return the number of segments of a column's own curve."""
        return self.segments if scale != "log" else self.log_segments or self.segments

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        entry: dict[str, Any] = {"segments": self.segments, "reach": self.reach}
        if self.log_segments is not None:
            entry["log_segments"] = self.log_segments
        if not self.interactions:
            return entry
        pairs = [list(pair) for pair in self.interactions]
        return entry | {"interactions": pairs, "pair_segments": self.pair_segments}


def pairs_of_columns(value: Any) -> tuple[tuple[str, str], ...]:
    """Check interactions: a list of pairs of names, each pair once and of two columns."""
    pairs = [tuple(one) if _is_list(one) else () for one in value] if _is_list(value) else [()]
    different = {frozenset(pair) for pair in pairs}
    good = all(len(pair) == 2 and all(isinstance(one, str) for one in pair) for pair in pairs)
    if not good or len(different) < len(pairs) or any(len(pair) != 2 for pair in different):
        raise ValueError(
            "interactions must be a list of pairs of different columns, each pair once, such as "
            f"[('latitude', 'longitude')], got {in_one_line(value)}"
        )
    return tuple((first, second) for first, second in pairs)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
