"""Tasks, their results, and the rows of the table of metrics."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpglm._calls import checked
from dpglm._validation import Array, in_one_line
from dpglm.data.rows import DataSpec
from dpglm.oracle.counts import Cells
from dpglm.privacy.budget import Adjacency
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.tabulation import KEY_UNIT, FoundCells, Refined, Tabulation
from dpglm.tables.given import spelled_as
from dpglm.tabulate import Noisy, Number, NumberScale, Parts, ReleasedTables

SCORES, PROBABILITIES, CLASSES, NUMBERS = "scores", "probabilities", "classes", "numbers"
"""Kinds of predictions: any scores of two classes, probabilities of two or of several, numbers."""


@final
@dataclass(frozen=True)
class Metric:
    """A row of the table of metrics, which results, scorers, summaries and pages read.

    Parameters
    ----------
    name : str
        Name in Python and JSON.
    label : str
        Name on pages and in summaries.
    of : str
        Kind of predictions that have it.
    value : callable
        From a result, and for ``at_threshold`` a threshold or None, to a ``Number``.
    at_threshold : bool
        Whether it depends on a threshold.
    headline : bool
        Whether pages show it first.
    by_level : bool
        Whether pages compare it between the levels of an attribute.
    better : int
        1 if larger values are better, -1 if smaller ones are, 0 if scorers do not offer it.
    """

    name: str
    label: str
    of: str
    value: Callable[..., Number]
    at_threshold: bool = False
    headline: bool = False
    by_level: bool = False
    better: int = 0

    @property
    def scorer(self) -> str | None:
        """Name for ``private_scorer``, with ``neg_`` if smaller values are better."""
        return {1: self.name, -1: f"neg_{self.name}"}.get(self.better)


def metric(of: str, value: Callable[..., Number], label: str = "", **shown: Any) -> Metric:
    """Return the metric that a method computes; it has the name of the method."""
    name = value.__name__
    return Metric(name, label or name.replace("_", " "), of, value, **shown)


class Shown(NamedTuple):
    """A number of a result with its metric; ``name`` and ``label`` contain the threshold."""

    metric: Metric
    name: str
    label: str
    number: Number


class EvaluationTask(abc.ABC):
    """Predictions of one kind; final, frozen subclasses contain public facts only.

    ``classes`` are the classes, the negative one of two first; none for numbers.
    """

    classes: tuple[Any, ...]

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        """Declared thresholds of decisions between two classes."""
        return None

    @property
    def default_threshold(self) -> float | None:
        """Threshold of decisions unless another is given; None without decisions."""
        return None

    @property
    def main_threshold(self) -> float | None:
        """Threshold that is shown first; None without decisions."""
        declared = self.thresholds or ()
        default = self.default_threshold
        return declared[0] if declared and default not in declared else default

    @property
    @abc.abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics in the order in which they are shown."""

    @property
    @abc.abstractmethod
    def pictures(self) -> tuple[str, ...]:
        """Names of the pictures of results."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Public facts about the targets, by their names in certificates."""
        return {"classes": list(self.classes)}

    @property
    @abc.abstractmethod
    def shares(self) -> Mapping[str, float]:
        """Shares of the squared budget by table, in the order of release."""

    @property
    def means(self) -> tuple[tuple[str, float, str], ...]:
        """Per-row means: (label, scale, name of the table)."""
        return ()

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Number of columns of encoded rows; column 0 contains their level."""

    @abc.abstractmethod
    def encode(self, y: NDArray[Any], predictions: Array) -> Array:
        """Encode each row by itself as the columns that follow its level.

        Raises ValueError for a shape or value that the task does not allow.
        """

    def refined(self, n_rows: int, mu: float) -> tuple[Refined, ...]:
        """Return the columns with cells that are searched, for the rows of a level at mu-GDP."""
        return ()

    @abc.abstractmethod
    def cells(self, n_levels: int, refined: Sequence[Refined]) -> Iterable[Cells]:
        """Return the tables of ``shares``."""

    def method(
        self, data: DataSpec, n_levels: int, mu: float, adjacency: Adjacency, noise: float
    ) -> Tabulation:
        """Return the tables for mu-GDP, with this noise multiplier."""
        refined = self.refined(data.n_rows // n_levels, mu)
        both = zip(self.cells(n_levels, refined), self.shares.values(), strict=True)
        tables = [dataclasses.replace(one, weight=math.sqrt(share)) for one, share in both]
        # Bounds on the entries of a row: numbers of cells, and keys.
        most = [size for one in tables for size in one.sizes]
        keys = [KEY_UNIT * one.span[2] for one in refined]
        norm = math.sqrt(self.width) * max(*most, *keys)
        data = dataclasses.replace(data, n_features=self.width, row_norm=norm)
        return Tabulation(data, adjacency, tuple(tables), noise, refined)

    def read(
        self, plan: Plan, values: Array, n_levels: int, z: float, chosen: bool
    ) -> tuple[Result, ...]:
        """Return a result for each level, if there are several, and one for all rows."""
        method = tables_of(plan)
        tables = dict(zip(self.shares, method.tables, strict=True))
        released = ReleasedTables.of(plan, tables, values, chosen=chosen)
        found = method.found(values) if method.refined else ()
        return self.results(released, found, n_levels, z)

    @abc.abstractmethod
    def results(
        self, released: ReleasedTables[str], found: Sequence[FoundCells], n_levels: int, z: float
    ) -> tuple[Result, ...]:
        """Return the results of released tables and of searched cells, as ``read``."""

    def n_added(self, method: Tabulation) -> int:
        """Return the number of cells of the first table that shares of rows are sums of."""
        return method.tables[0].size


def tables_of(plan: Plan) -> Tabulation:
    """Return the method of a plan of tables."""
    assert isinstance(plan.method, Tabulation)
    return plan.method


class Result(abc.ABC):
    """Metrics of all rows, or of those with one level of an attribute.

    Privacy: computed from released tables and public facts.
    """

    task: EvaluationTask
    z: float

    @property
    @abc.abstractmethod
    def rows(self) -> Number:
        """Number of rows, without a population interval."""

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes, the negative one of two first; none for numbers."""
        return self.task.classes

    def at(self, threshold: float | None = None) -> dict[str, Number]:
        """Return the metrics of decisions at a threshold; none unless there are two classes.

        They are ``accuracy``, ``balanced_accuracy``, ``recall``, ``specificity``, ``precision``,
        ``f1`` and ``selected``, the share predicted positive: scores of at least ``threshold``, by
        default 0.5 for probabilities and 0 for others. The nearest end of a cell is used, which is
        the threshold itself if it was declared.
        """
        names = (one.name for one in self.task.metrics if one.at_threshold)
        return {name: self.number(name, threshold) for name in names}

    @functools.cached_property
    def _computed(self) -> dict[tuple[Any, ...], Number]:
        return {}

    @checked
    def number(self, name: str, threshold: float | None = None) -> Number:
        """Return one metric by its name, which is computed once; a ValueError lists all."""
        known = {one.name: one for one in self.task.metrics}
        if name not in known:
            raise ValueError(f"name must be one of {list(known)}, got {name!r}")
        threshold = self.task.default_threshold if threshold is None else threshold
        at = (threshold,) if known[name].at_threshold else ()
        if (name, *at) not in self._computed:
            self._computed[name, *at] = known[name].value(self, *at)
        return self._computed[name, *at]

    def shown(self, thresholds: tuple[float, ...] | None = None) -> Iterator[Shown]:
        """Yield all numbers, those of decisions at each threshold, by default the declared ones."""
        thresholds = self.task.thresholds or () if thresholds is None else thresholds
        alone = thresholds == (self.task.default_threshold,)
        for one in self.task.metrics:
            if not one.at_threshold:
                yield Shown(one, one.name, one.label, self.number(one.name))
        for threshold in thresholds:
            at = "" if alone else f" at {threshold:g}"
            for one in self.task.metrics:
                if one.at_threshold:
                    number = self.number(one.name, threshold)
                    yield Shown(one, one.name + at, one.label + at, number)

    def confusion_matrix(self, threshold: float | None = None) -> Array:
        """Return noisy counts of rows by true class (rows) and predicted class (columns)."""
        raise ValueError("confusion_matrix requires classes, and the targets are numbers")

    def by_class(self, most: int) -> Mapping[Any, Mapping[str, Number]]:
        """Return metrics of each of several classes against the rest, for at most this many."""
        return {}


def mean_of(values: Parts, name: str, largest: float) -> float:
    """Return a mean of numbers in [0, largest] from their sum after rescaling to [-1, 1]."""
    return 0.5 * largest * (1.0 + float(values[name]) / max(float(values["counts"].sum()), 1.0))


def ratio(part: float, whole: float) -> float:
    """Return a ratio; NaN if the denominator is almost 0."""
    return part / whole if abs(whole) > 1e-9 else math.nan


# Ratios that are tested, over their range.
_RATIOS, _TINY = 101, 1e-300
Test: TypeAlias = Callable[[float], tuple[float, float, float]]
"""From a number to a score with mean 0 if the number is true, and the score's two variances.

The first variance is that of the number of these rows, the second one that of the population's.
"""


def solved(test: Test, grid: Array, z: float, scale: NumberScale) -> Number:
    """Return the number with score 0, and intervals of the numbers that are not rejected.

    A number is rejected if its score is more than z standard deviations from 0. Intervals reach
    from the first to the last number that is not rejected, and to the end of the scale if that is
    an end of ``grid``. Without a score of 0, scores are shifted by that of the likeliest number.
    """
    scores, *variances = np.array([test(one) for one in grid]).T
    sizes = np.abs(scores) / np.sqrt(variances[0] + _TINY)
    crossed = np.flatnonzero(scores[:-1] * scores[1:] <= 0.0)
    if len(crossed):
        start = crossed[np.minimum(sizes[crossed], sizes[crossed + 1]).argmin()]
        best = float(brentq(lambda one: test(one)[0], grid[start], grid[start + 1]))
        shift = 0.0
    else:
        best, shift = float(grid[sizes.argmin()]), float(scores[sizes.argmin()])

    def end(kind: int, side: int) -> float:
        def excess(score: float, *both: float) -> float:
            return (score - shift) ** 2 - z**2 * both[kind]

        held = [excess(*one) <= 0.0 for one in zip(scores, *variances, strict=True)]
        last = side * max(float((side * grid[held]).max(initial=-math.inf)), side * best)
        beyond = grid[side * grid > side * last][::side]
        if not len(beyond):
            return scale.low if side < 0 else scale.high
        if excess(*test(last)) >= 0.0:
            return last
        return float(brentq(lambda one: excess(*test(one)), last, beyond[0]))

    return Number(best, *(end(kind, side) for kind in (0, 1) for side in (-1, 1)))


def ratio_number(
    noisy: Noisy,
    above: Callable[[Parts], float],
    below: Callable[[Parts], float],
    z: float,
    scale: NumberScale,
) -> Number:
    """Return a ratio of smooth functions, with the ratios that a test does not reject.

    A ratio r has the score ``above - r below``, which is nearly normal even if ``below`` is within
    noise of 0 (Fieller, Journal of the Royal Statistical Society B 1954). The scale is bounded.
    """
    slopes = noisy.slopes(above), noisy.slopes(below)
    top, bottom = float(above(noisy.values)), float(below(noisy.values))

    def test(one: float) -> tuple[float, float, float]:
        moved = {name: slopes[0][name] - one * slopes[1][name] for name in slopes[0]}
        noise, sampled = noisy.variances(moved)
        return top - one * bottom, noise, noise + sampled

    return solved(test, np.linspace(scale.low, scale.high, _RATIOS), z, scale)


def in_range(
    name: str, values: Any, low: float, high: float, shape: str, ndim: int, remedy: str = ""
) -> Array:
    """Return values as floats; ValueError unless all are from ``low`` to ``high``."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be numbers of shape {shape}: {error}") from None
    if found.ndim != ndim:
        raise ValueError(f"{name} must have shape {shape}, got {found.shape}")
    if not ((found >= low) & (found <= high)).all():
        raise ValueError(f"{name} must be from {low:g} to {high:g}, and contains others{remedy}")
    return found


def finite(name: str, values: Any) -> Array:
    """Return numbers of shape (n,); ValueError unless all are finite."""
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite numbers of shape (n,), and are not")
    return found


def positions(values: NDArray[Any], labels: Sequence[Any]) -> NDArray[np.intp]:
    """Return the position of each value among labels; their number for other values."""
    values = spelled_as(values, labels)
    found = np.full(len(values), len(labels), np.intp)
    for place, label in enumerate(labels):
        found[values == label] = place
    return found


def class_codes(y: NDArray[Any], classes: tuple[Any, ...]) -> NDArray[np.intp]:
    """Return the position of each label among the classes."""
    if y.ndim != 1:
        raise ValueError(f"y must have shape (n,), got {y.shape}")
    found = positions(y, classes)
    if (found == len(classes)).any():
        raise ValueError(f"y must hold the classes {list(classes)!r} only, and holds others")
    return found


def class_list(classes: Any) -> tuple[Any, ...]:
    """Return classes as a tuple of plain values; ValueError unless at least two, all different."""
    found = tuple(np.asarray(classes).tolist())
    if len(found) < 2 or len(set(found)) < len(found):
        raise ValueError(
            f"classes must be at least two different labels, got {in_one_line(classes)}"
        )
    return found
