"""Where measured text stands on a page: between marks that name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

__all__ = ["lead", "measured", "put", "spread"]

DOCS = Path(__file__).parent.parent / "docs"


def measured(page: Path, name: str) -> str:
    """Return the text between the marks of ``name`` on a page."""
    begin, end = _marks(name)
    return page.read_text().split(begin)[1].split(end)[0].strip()


def put(page: Path, name: str, text: str) -> None:
    """Write ``text`` between the marks of ``name`` on a page, in place of the old text."""
    begin, end = _marks(name)
    head, rest = page.read_text().split(begin)
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")


def spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation over seeds."""
    mean = sum(values) / len(values)
    deviation = (sum((one - mean) ** 2 for one in values) / max(len(values) - 1, 1)) ** 0.5
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def lead(ours: Sequence[float], others: Mapping[str, Sequence[float]]) -> str:
    """Mean lead over the best of the others on the same seeds, and its standard error.

    The best of one half of the seeds is the opponent on the other half, and the other way round:
    the largest of several means on the same seeds is above the best one's expectation.
    """
    table = np.array([others[name] for name in others])
    fold = np.arange(len(ours)) % 2
    rivals = [table[:, fold != one].mean(axis=1).argmax() for one in (0, 1)]
    ahead = np.array(ours) - table[np.take(rivals, fold), np.arange(len(ours))]
    error = ahead.std(ddof=1) / np.sqrt(len(ahead))
    return f"{ahead.mean():+.4f} ± {error:.4f}"


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- begin measured: {name} -->", f"<!-- end measured: {name} -->"
