"""A figure and the bar that it must clear."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bar"]


@dataclass(frozen=True)
class Bar:
    """One measured figure and its bar."""

    name: str
    value: float
    spread: float
    bar: float
    at_least: bool
    unit: str

    @property
    def met(self) -> bool:
        """Whether the figure clears its bar."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar
