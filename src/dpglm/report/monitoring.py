"""Drift between stored private results and new ones: distributions, calibration, performance."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from scipy.optimize import brentq
from scipy.special import chndtr

from dpglm._calls import checked
from dpglm._json import in_file, load
from dpglm._validation import Array, in_one_line
from dpglm._words import rounded_up
from dpglm.evaluation import Evaluation
from dpglm.exploration import Description
from dpglm.ledger.store import write_text
from dpglm.report.page import rendered
from dpglm.tabulate import Number, normal_quantile, number, with_both_intervals

Stored: TypeAlias = Description | Evaluation | Mapping[str, Any] | str | os.PathLike[str]

FILES = ("description.json", "evaluation.json")
"""Results that a folder may hold."""
# Rules of thumb for the index, from credit scoring.
STABLE, SHIFTED = 0.1, 0.25
# Cells with fewer standard errors are joined with a neighbour. At 4, joined cells hide changes, and
# intervals cover too rarely (``tests/report/test_monitoring.py``).
_LEAST_CLEAR = 1.5
# Largest noncentrality: above it a noncentral chi-square distribution is normal.
_NORMAL = 1e4


@final
@dataclass(frozen=True)
class Shift:
    """Change of the distribution of a column.

    Parameters
    ----------
    column : str
        Name of the column.
    index : Number
        Population stability index ``sum (q - p) log(q / p)`` of shares p before and q after. Both
        intervals include the sampling error and the noise of both results.
    n_cells : int
        Number of cells that it compares, after small cells were joined.
    """

    column: str
    index: Number
    n_cells: int

    @property
    def verdict(self) -> str:
        """Conclusion from the interval: "stable" below 0.1, "shifted" above 0.25, or "unclear"."""
        if self.index.high < STABLE:
            return "stable"
        return "shifted" if self.index.low > SHIFTED else "unclear"


@final
@dataclass(frozen=True)
class Drift:
    """Change of a metric.

    Parameters
    ----------
    metric : str
        Name of the metric.
    before, after : Number
        Its values.
    change : Number
        The value after less the value before. Intervals include the noise of both results, and for
        the population also their sampling errors.
    """

    metric: str
    before: Number
    after: Number
    change: Number

    @property
    def is_clear(self) -> bool:
        """Whether the population interval of the change leaves out 0."""
        low, high = self.change.population_low or 0.0, self.change.population_high or 0.0
        return low > 0.0 or high < 0.0


@final
@dataclass(frozen=True)
class Monitoring:
    """Changes between two private results, which ``compare`` returns.

    Parameters
    ----------
    shifts : tuple of Shift
        Changes of the columns of two descriptions.
    drifts : tuple of Drift
        Changes of the metrics of two evaluations.
    level : float
        Confidence level of each interval.
    costs : tuple of (str, str)
        Each result with its privacy cost, in words.

    Notes
    -----
    Privacy: post-processing of two results, at no privacy cost.
    """

    shifts: tuple[Shift, ...]
    drifts: tuple[Drift, ...]
    level: float
    costs: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: level, shifts with their verdicts, and drifts."""
        return {
            "level": self.level,
            "shifts": [
                {"column": one.column, "verdict": one.verdict, **one.index.to_dict()}
                for one in self.shifts
            ],
            "drifts": [{"metric": one.metric, **one.change.to_dict()} for one in self.drifts],
        }

    def summary(self) -> str:
        """Return the comparison as text for a terminal."""
        lines = [f"{name}: {cost}" for name, cost in self.costs]
        percent = f"{100.0 * self.level:g} %"
        if self.shifts:
            lines += ["", f"Population stability index ({percent}, noise and sampling of both)"]
            lines += [
                f"  {one.column:26}{one.index.estimate:8.3f}  "
                f"[{one.index.low:.3f}, {one.index.high:.3f}]  {one.verdict}"
                for one in self.shifts
            ]
        if self.drifts:
            lines += ["", f"Change ({percent}): with sampling errors and noise, then noise only"]
            lines += [
                f"  {one.metric:26}{with_both_intervals(one.change)}{'  *' * one.is_clear}"
                for one in self.drifts
            ]
            lines += ["* The interval for the population leaves out 0."]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def page(self, *, title: str = "Monitoring") -> str:
        """Return a page about the comparison.

        Parameters
        ----------
        title : str, optional
            Heading.

        Returns
        -------
        str
            Self-contained HTML.

        Raises
        ------
        ImportError
            If Jinja2 is not installed (``pip install 'dpglm[report]'``).
        """
        return rendered("monitoring.html.j2", title=title, found=self, say=with_both_intervals)

    def to_html(self, path: str | os.PathLike[str], *, title: str = "Monitoring") -> None:
        """Write ``page`` to a file, whole or not at all.

        Parameters
        ----------
        path : path-like
            The file; an OSError is raised if it cannot be written.
        title : str, optional
            Heading; other errors are those of ``page``.
        """
        write_text(path, self.page(title=title))


@checked
def compare(
    before: Description | Evaluation | Mapping[str, Any] | str | os.PathLike[str],
    after: Description | Evaluation | Mapping[str, Any] | str | os.PathLike[str],
) -> Monitoring:
    """Compare new private results with stored ones.

    Parameters
    ----------
    before, after : Description, Evaluation, mapping or path-like
        Two results of the same kind: as they are, their ``to_dict()``, a JSON file of it, or a
        folder with ``description.json``, ``evaluation.json``, or both. Their rows must be disjoint.

    Raises
    ------
    ValueError
        If the results are not of the same kind, or their cells differ.
    OSError
        If a file cannot be read.

    Notes
    -----
    The index of two noisy histograms is too large on average. The estimate subtracts the expected
    contribution of noise and sampling. The interval inverts a noncentral chi-square distribution
    with the same first two moments.

    Privacy: post-processing.
    """
    pairs = _pairs(before, after)
    refusal = (
        "before and after must be two descriptions of all rows, or two evaluations, got "
        f"{in_one_line(before)} and {in_one_line(after)}"
    )
    try:
        shifts = tuple(one for pair in pairs for one in _shifts(*pair))
        drifts = tuple(one for pair in pairs for one in _drifts(*pair))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(refusal) from error
    if not shifts and not drifts:
        raise ValueError(refusal)
    costs = (
        (name, f"epsilon {rounded_up(one['epsilon'])}, delta {rounded_up(one['delta'])}")
        for name, every in zip(("Before", "After"), zip(*pairs, strict=True), strict=True)
        for one in every
    )
    return Monitoring(shifts, drifts, float(pairs[0][1]["level"]), tuple(costs))


def _pairs(before: Stored, after: Stored) -> list[tuple[Any, Any]]:
    """Return documents to compare."""
    if isinstance(before, str | os.PathLike) and isinstance(after, str | os.PathLike):
        one, other = Path(before), Path(after)
        if one.is_dir() and other.is_dir():
            names = [name for name in FILES if (one / name).is_file() and (other / name).is_file()]
            return [(_document(one / name), _document(other / name)) for name in names]
    return [(_document(before), _document(after))]


def _document(stored: Stored) -> Any:
    if isinstance(stored, Description | Evaluation):
        return stored.to_dict()
    if isinstance(stored, Mapping):
        return stored
    with in_file(stored):
        return load(stored)


def _shifts(before: Any, after: Any) -> Iterator[Shift]:
    alpha = 1.0 - float(after["level"])
    columns = after.get("columns", {})
    for name, one in before.get("columns", {}).items():
        if name not in columns:
            continue
        cells = [[cell["cell"] for cell in found["cells"]] for found in (one, columns[name])]
        if cells[0] != cells[1]:
            own = len([cell for cell in cells[0] if " to " in cell])
            raise ValueError(
                f"column {name!r} must have the same cells before and after: describe the new rows "
                f"with bins={{{name!r}: {own}}} (--bins {name}={own}), or with the same schema"
            )
        both = [
            (Number(**cell["share"]) for cell in found["cells"]) for found in (one, columns[name])
        ]
        pairs = [
            [(share.estimate, _deviations(share, z)[1]) for share in of_one]
            for of_one, z in zip(both, (_half_width(before), _half_width(after)), strict=True)
        ]
        shares, deviations = np.moveaxis(np.array(pairs), -1, 0)
        yield Shift(name, *stability(shares, deviations, alpha))


def stability(shares: Array, deviations: Array, alpha: float) -> tuple[Number, int]:
    """Return the population stability index of noisy shares, and the number of its cells.

    ``shares`` and their standard deviations have shape (2, n): before and after. Each cell adds
    ``(q - p)^2 / L`` with the logarithmic mean L of p and q. The sum is about ``a`` times a
    noncentral chi-square variable with v degrees of freedom: its expectation exceeds the index by
    ``sum std^2 / L = a v``. Its variance is at least that of equal distributions, and that of the
    linearised index.
    """
    variances = np.square(deviations)
    while shares.shape[1] > 1:
        clear = shares.sum(axis=0) / np.sqrt(np.maximum(variances.sum(axis=0), 1e-300))
        place = int(clear.argmin())
        if clear[place] >= 2.0 * _LEAST_CLEAR:
            break
        sides = [one for one in (place - 1, place + 1) if 0 <= one < len(clear)]
        at = max(place, min(sides, key=lambda one: shares[:, one].sum()))
        starts = np.delete(np.arange(len(clear)), at)
        shares, variances = (np.add.reduceat(one, starts, axis=1) for one in (shares, variances))
    both = variances.sum(axis=0)
    p, q = np.maximum(shares, np.sqrt(both))
    gaps = np.log(q / p)
    # Near equality the logarithmic mean is the arithmetic one.
    near = np.abs(gaps) < 1e-6
    logarithmic = np.where(near, p, (q - p) / np.where(near, 1.0, gaps))
    total = float(np.sum(np.square(shares[1] - shares[0]) / logarithmic))
    weights = both / logarithmic
    if not weights.sum():
        return Number(total, total, total), len(p)
    slopes = np.stack([gaps + q / p - 1.0, gaps + 1.0 - p / q])
    linear = float(np.sum(np.square(slopes) * variances))
    a = max(float(np.average(weights, weights=weights)), linear / (4.0 * max(total, 1e-300)))
    freedom = float(weights.sum()) / a

    found = max(total - a * freedom, 0.0)
    if found > _NORMAL * a:
        half = normal_quantile(1.0 - alpha) * math.sqrt(4.0 * a * total)
        return Number(found, found - half, found + half), len(p)

    def end(seen: float, share: float) -> float:
        def excess(index: float) -> float:
            return float(chndtr(seen / a, freedom, index / a)) - share

        most = seen + 10.0 * (a + math.sqrt(a * seen))
        while excess(most) > 0.0:
            most *= 2.0
        return 0.0 if excess(0.0) <= 0.0 else float(brentq(excess, 0.0, most))

    # A total below its expectation without changes does not make the upper end smaller.
    low, high = end(total, 1.0 - 0.5 * alpha), end(max(total, a * freedom), 0.5 * alpha)
    return Number(found, low, high), len(p)


def _drifts(before: Any, after: Any) -> Iterator[Drift]:
    z = normal_quantile(float(after["level"]))
    metrics = after.get("all_rows", {})
    for name, one in before.get("all_rows", {}).items():
        found = metrics.get(name)
        if found is None or "population_low" not in one or None in (*one.values(), *found.values()):
            continue
        first, last = Number(**one), Number(**found)
        pairs = zip(_deviations(first, _half_width(before)), _deviations(last, z), strict=True)
        noise, both = (math.hypot(*pair) ** 2 for pair in pairs)
        gap = last.estimate - first.estimate
        change = number(gap, noise, z, sampling_variance=max(both - noise, 0.0))
        yield Drift(name.replace("_", " "), first, last, change)


def _half_width(document: Any) -> float:
    return normal_quantile(float(document["level"]))


def _deviations(one: Number, z: float) -> tuple[float, float]:
    """Return standard errors with noise only, and with sampling; ends may be clipped."""

    def std(low: float | None, high: float | None) -> float:
        return max(one.estimate - (low or 0.0), (high or 0.0) - one.estimate) / z

    return std(one.low, one.high), std(one.population_low, one.population_high)
