"""Columns of a table as cells to count: bins of numbers, levels of categories."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import Array, check_integer, check_list, check_real
from dpglm._words import did_you_mean, plain_number
from dpglm.tables.cells import Entry, Vocabulary, as_cells, as_numbers, check_unique, is_missing
from dpglm.tables.columns import DENSER, CategoricalColumn, Column, NumericColumn
from dpglm.tables.named import check_names, read_columns
from dpglm.tables.schema import Schema
from dpglm.tables.targets import ClassTarget, CountTarget, NumericTarget, TargetColumn
from dpglm.tables.times import date_text

MOST_BINS = 200
"""Largest number of bins of a column."""
PARTS = 10
"""Parts of a bin for quantiles."""
_STEPS = (1.0, 2.0, 2.5, 5.0)
_WHOLE_STEPS = (1.0, 2.0, 5.0)
# Round numbers in a decade, the finest grid first.
_IN_DECADE = (
    tuple(float(f"{0.1 * i:.1f}") for i in range(10, 100)),
    tuple(0.5 * i for i in range(2, 20)),
    (1.0, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
)


def bin_edges(low: float, high: float, most: int, *, whole: bool = False) -> tuple[float, ...]:
    """Return edges of at most ``most`` bins at multiples of a round step.

    The first and the last bin may be narrower. ``whole`` restricts steps to whole numbers.

    >>> bin_edges(17, 90, 8)
    (17.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)
    >>> bin_edges(0.0, 1.0, 5)
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    exponent = math.floor(math.log10((high - low) / most))
    first_power, steps = (max(exponent, 0), _WHOLE_STEPS) if whole else (exponent, _STEPS)
    powers = range(first_power, first_power + 3)
    for step in (step * 10.0**power for power in powers for step in steps):
        first, last = math.floor(low / step) + 1, math.ceil(high / step) - 1
        if last - first + 2 <= most:
            inner = (float(f"{step * i:.12g}") for i in range(first, last + 1))
            return (float(low), *(edge for edge in inner if low < edge < high), float(high))
    return (float(low), float(high))


def log_edges(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return round edges of at most ``most`` bins of about equal width in logarithms.

    With a low bound of 0 or less, logarithms are of distances from it, and the first edge is a
    hundredth of the range above it, like ``"scale": "log"`` of a column.

    >>> log_edges(1, 1000, 6)
    (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    >>> log_edges(0, 1000, 8)
    (0.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
    """
    shift = 0.0 if low > 0.0 else low
    first, last = (low if low > 0.0 else (high - low) / DENSER), high - shift
    powers = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
    choices = [
        *([step * 10.0**power for power in powers for step in steps] for steps in _IN_DECADE),
        *([10.0**power for power in powers[::every]] for every in range(1, len(powers) + 1)),
    ]
    inner: list[float] = []
    for numbers in choices:
        rounded = (float(f"{shift + one:.12g}") for one in numbers if first <= one < last)
        inner = [one for one in rounded if low < one < high]
        if len(inner) < most:
            break
    return (float(low), *inner[: most - 1], float(high))


def given_edges(
    name: str, given: Any, low: float, high: float, *, whole: bool = False, log: bool = False
) -> tuple[float, ...]:
    """Read a caller's bins of a column: their largest number, or their edges."""
    what = f"bins[{name!r}]"
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
        count = check_integer(what, given, least=1)
        if count > MOST_BINS:
            raise ValueError(f"{what} must be at most {MOST_BINS}, got {count}")
        return log_edges(low, high, count) if log else bin_edges(low, high, count, whole=whole)
    edges = tuple(check_real(f"{what}[{i}]", edge) for i, edge in enumerate(given))
    if not 2 <= len(edges) <= MOST_BINS + 1 or any(np.diff(edges) <= 0.0):
        raise ValueError(
            f"{what} must list 2 to {MOST_BINS + 1} edges in ascending order, got {given!r}"
        )
    return edges


MISSING, NOT_LISTED = "missing", "not listed"
"""Labels of the cells of missing and unlisted values."""


@final
@dataclass(frozen=True)
class CountedColumn:
    """A column with cells, each row in exactly one.

    Numbers have ``edges``: their cells are bins, and values below, above or missing. A bin contains
    its lower edge; the last bin also its upper edge. Each is divided into ``n_parts``. ``whole``
    numbers have bins of whole numbers; other columns a cell for the low bound itself, where amounts
    are often heaped.

    Categories have ``levels``: a cell for each, for unlisted values, and for missing ones. Unlisted
    values count as the level ``other`` if the schema has one.

    A row becomes ``width`` numbers: its cell; its part of that cell, if cells are divided; and for
    columns of numbers x in [-1, 1], x and x^2 - 1/2, both 0 for a missing value. Two levels count
    as the numbers -1 and 1.
    """

    name: str
    edges: tuple[float, ...] = ()
    levels: tuple[Entry, ...] = ()
    other: Entry | None = None
    n_parts: int = 1
    whole: bool = False
    is_target: bool = False
    is_date: bool = False

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels of the cells, in order."""
        if self.edges:
            low, high = self._in_words(self.edges[0]), self._in_words(self.edges[-1])
            before = (f"below {low}",) if self.whole else (f"below {low}", f"exactly {low}")
            bins = map(self._bin_in_words, range(self.n_bins))
            return (*before, *bins, f"above {high}", MISSING)
        own = tuple(MISSING if level == "" else str(level) for level in self.levels)
        unlisted = () if self.other is not None else (NOT_LISTED,)
        return (*own, *unlisted, *(() if "" in self.levels else (MISSING,)))

    def _bin_in_words(self, place: int) -> str:
        low, high = self.edges[place : place + 2]
        if self.whole:
            last = math.ceil(high) - (place + 1 < self.n_bins)
            return f"{low:.0f}" if last <= low else f"{low:.0f} to {last:.0f}"
        return f"{self._in_words(low)} to {self._in_words(high)}"

    def _in_words(self, edge: float) -> str:
        return date_text(edge) if self.is_date else plain_number(edge, 6)

    @property
    def is_number(self) -> bool:
        """Whether rows are numbers x within [-1, 1]."""
        return bool(self.edges) or (len(self.levels) == 2 and "" not in self.levels)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.labels)

    @property
    def n_bins(self) -> int:
        """Number of bins, which are divided cells; 0 for categories."""
        return max(len(self.edges) - 1, 0)

    @property
    def bins(self) -> slice:
        """Positions of the bins among the cells; earlier cells are at or below the low bound."""
        first = 0 if not self.edges else 1 if self.whole else 2
        return slice(first, first + self.n_bins)

    @property
    def own(self) -> slice:
        """Positions of the bins or levels among the cells, without unlisted values."""
        return self.bins if self.edges else slice(0, len(self.levels))

    @property
    def part_edges(self) -> Array:
        """Edges of the parts of all bins, of shape (n_bins * n_parts + 1,)."""
        edges, shares = np.asarray(self.edges), np.arange(self.n_parts) / self.n_parts
        inner = edges[:-1, None] + np.diff(edges)[:, None] * shares
        return np.append(inner.ravel(), edges[-1:])

    @property
    def divided(self) -> NDArray[np.bool_]:
        """Whether each cell is divided into ``n_parts``."""
        divided = np.zeros(self.n_cells, bool)
        divided[self.bins] = True
        return divided

    @property
    def missing(self) -> int | None:
        """Position of the cell of missing values, unless it is one of the levels."""
        return None if "" in self.levels else self.n_cells - 1

    @property
    def width(self) -> int:
        """Number of encoded numbers per row."""
        return 1 + (self.n_parts > 1) + 2 * self.is_number

    @property
    def center(self) -> float:
        """The column's value at x = 0."""
        return 0.5 * self.edges[0] + 0.5 * self.edges[-1] if self.edges else 0.0

    @property
    def half_range(self) -> float:
        """The change of the column's value per unit of x."""
        return 0.5 * self.edges[-1] - 0.5 * self.edges[0] if self.edges else 1.0

    def encode(self, values: ArrayLike, out: Array) -> None:
        """Write the numbers of each row into ``out``, zeros of shape (n, width).

        Privacy: each row is encoded by itself.
        """
        (self._encode_numbers if self.edges else self._encode_levels)(values, out)

    def _encode_numbers(self, values: ArrayLike, out: Array) -> None:
        numbers = as_numbers(values, f"column {self.name!r}", math.nan)
        gaps = np.isnan(numbers)
        edges = self.part_edges
        place = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
        bins, parts = np.divmod(place, self.n_parts)
        ends = numbers < edges[0], numbers > edges[-1], gaps
        first, after = self.bins.start, self.bins.stop
        out[:, 0] = np.select(ends, (0, after, after + 1), first + bins)
        inside = ~np.logical_or.reduce(ends)
        if not self.whole:
            exactly = numbers == edges[0]
            out[exactly, 0] = 1
            inside &= ~exactly
        if self.n_parts > 1:
            out[:, 1] = np.where(inside, parts, 0)
        x = np.clip((numbers - self.center) / self.half_range, -1.0, 1.0)
        out[:, -2] = np.where(gaps, 0.0, x)
        out[:, -1] = np.where(gaps, 0.0, x * x - 0.5)

    def _encode_levels(self, values: ArrayLike, out: Array) -> None:
        what, n = f"column {self.name!r}", len(self.levels)
        cells = as_cells(values, what)
        found = Vocabulary(self.levels).positions(cells, what, "", n)
        unknown = np.flatnonzero(found == n)
        if unknown.size:
            gaps = np.array([is_missing(cell) for cell in cells[unknown].tolist()])
            other = n if self.other is None else self.levels.index(self.other)
            found[unknown] = np.where(gaps, self.n_cells - 1, other)
        out[:, 0] = found
        if self.is_number:
            listed = found < n
            out[:, -2] = np.where(listed, 2.0 * found - 1.0, 0.0)
            out[:, -1] = np.where(listed, 0.5, 0.0)


@final
@dataclass(frozen=True)
class CellEncoder:
    """Encodes rows of a table as positions of cells.

    Privacy: each row is encoded by itself, from public facts.
    """

    columns: tuple[CountedColumn, ...]
    declared: tuple[Column, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the table's columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        """Number of columns of the encoded rows."""
        return sum(column.width for column in self.columns)

    @property
    def row_norm(self) -> float:
        """Bound on the L2 norm of an encoded row."""
        sizes = (column.n_cells**2 + column.n_parts**2 + 2 for column in self.columns)
        return math.sqrt(math.fsum(sizes))

    @functools.cached_property
    def _starts(self) -> Mapping[str, int]:
        starts = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        return dict(zip(self.names, starts, strict=False))

    @functools.cached_property
    def _of_times(self) -> Mapping[str, Column]:
        return {one.name: one for one in self.declared if one.plain is not one}

    def places(self, name: str) -> Mapping[str, int]:
        """Return the positions of a column's cell, part, number and square, where it has them."""
        column, start = self[name], self._starts[name]
        kinds = ["cell", *(["part"] if column.n_parts > 1 else [])]
        kinds += ["number", "square"] if column.is_number else []
        return {kind: start + place for place, kind in enumerate(kinds)}

    def __getitem__(self, name: str) -> CountedColumn:
        """Return a column by its name; a ValueError lists the columns."""
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            raise ValueError(
                f"there is no column {name!r} among {', '.join(map(repr, self.names))}"
                f"{did_you_mean(name, self.names)}"
            )
        return found

    def encode(self, table: Any) -> Array:
        """Encode a table; a ValueError names the column, the row and the remedy."""
        cells, n_rows = read_columns(table, self.names)
        encoded = np.zeros((n_rows, self.width))
        for column in self.columns:
            values, start = cells(column.name), self._starts[column.name]
            if column.name in self._of_times:
                values = np.asarray(self._of_times[column.name].plain_cells(values))
            column.encode(values, encoded[:, start : start + column.width])
        return encoded


def counted_columns(
    schema: Schema, columns: Sequence[str] | None, bins: Mapping[str, Any] | None, most_bins: int
) -> CellEncoder:
    """Return the columns of a schema, the target last, as cells.

    ``columns`` are names, by default all. ``bins`` gives the number or edges of bins of numeric
    columns; by default there are at most ``most_bins``.
    """
    targets = (schema.target,) if schema.has_target else ()
    # Parts of dates and indicators of missing values are cells of another column.
    own = tuple(one for one in schema.columns if one.source == one.name)
    # Dates are numbers here, too, but with dates for labels.
    plain = (one if isinstance(one, NumericColumn) else one.plain for one in own)
    found: list[Column | TargetColumn] = [*plain, *targets]
    known = [one.name for one in found]
    if columns is not None and not (columns := check_list("columns", columns, "a list of names")):
        raise ValueError("columns must be a list of at least one name, got none")
    if bins is not None and not isinstance(bins, Mapping):
        raise ValueError(
            "bins must map names of numeric columns to numbers of bins, such as {'age': 10}, got "
            f"{bins!r}"
        )
    check_names("columns", columns or (), known)
    check_names("bins", bins or (), known)
    if columns is not None:
        check_unique(list(columns), "column")
        found = [one for one in found if one.name in columns]
    given = {} if bins is None else dict(bins)
    counted = tuple(_counted(one, given.pop(one.name, None), most_bins) for one in found)
    if given:
        raise ValueError(f"bins[{next(iter(given))!r}] is for a column that is not in columns=")
    return CellEncoder(counted, own)


def _counted(column: Any, bins: Any, most: int) -> CountedColumn:
    if type(column) not in _COUNTED:
        raise ValueError(f"a column of type {type(column).__name__} cannot be described")
    facts: dict[str, Any] = _COUNTED[type(column)](column)
    made = functools.partial(CountedColumn, column.name, is_target=isinstance(column, TargetColumn))
    if "levels" in facts:
        if bins is not None:
            what = f"bins[{column.name!r}]"
            raise ValueError(f"{what} is for a numeric column, and this one has categories")
        return made(**facts)
    whole, log = facts.get("whole", False), facts.pop("log", False)
    given, low = most if bins is None else bins, facts.pop("low")
    edges = given_edges(column.name, given, low, column.high, whole=whole, log=log)
    # Whole numbers are not divided further.
    widest = math.ceil(max(np.diff(edges))) if whole else PARTS
    return made(edges, n_parts=min(max(widest, 1), PARTS), **facts)


_COUNTED: Mapping[type, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        NumericColumn: lambda one: {
            "low": one.low,
            "log": one.scale == "log",
            "is_date": one.time == "date",
        },
        NumericTarget: lambda one: {"low": one.low},
        CountTarget: lambda one: {"low": 0.0, "whole": True},
        CategoricalColumn: lambda one: {"levels": one.categories, "other": one.other},
        ClassTarget: lambda one: {"levels": one.classes},
    }
)
"""Facts of counted columns, by the type of a column of a schema."""
