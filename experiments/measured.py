"""Where measured text stands on a page: between marks that name it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["measured", "put", "spread"]

DOCS = Path(__file__).parent.parent / "docs"


def measured(page: Path, name: str) -> str:
    """Return the text between the marks of ``name`` on a page."""
    begin, end = _marks(name)
    return page.read_text().split(begin)[1].split(end)[0].strip()


def put(page: Path, name: str, text: str) -> None:
    """Write ``text`` between the marks of ``name`` on a page, in place of what is there."""
    begin, end = _marks(name)
    head, rest = page.read_text().split(begin)
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")


def spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation over seeds."""
    mean = sum(values) / len(values)
    deviation = (sum((one - mean) ** 2 for one in values) / max(len(values) - 1, 1)) ** 0.5
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- begin measured: {name} -->", f"<!-- end measured: {name} -->"
