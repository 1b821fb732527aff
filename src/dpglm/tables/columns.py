"""Feature columns of a schema: their public facts and their encoding."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._codec import APART_FIELD, SCALAR, Form, Text, named
from dpglm._score import Score, as_score, cell, choice, is_missing, is_number, lookup, refused
from dpglm._validation import Array, check_one_of, check_real, in_one_line
from dpglm.tables.cells import Entry, Vocabulary, as_numbers, normal
from dpglm.tables.times import PARTS, as_units, days_of, parts_of, read_times

Number: TypeAlias = Annotated[float, SCALAR]


@final
@dataclass(frozen=True)
class PaidFor:
    """The privacy cost of a column's bounds, under the relation that its certificate names.

    ``certificate`` is the digest of the release of the bounds.
    """

    epsilon: float
    delta: float
    certificate: str

    type_name = "private"

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, least=0.0)
        check_real("delta", self.delta, least=0.0, below=1.0)
        if type(self.certificate) is not str or not self.certificate:
            raise ValueError(f"certificate must be a digest, got {self.certificate!r}")


Provenance: TypeAlias = Annotated[
    PaidFor, named("provenance", lambda: (PaidFor,), lambda value: isinstance(value, PaidFor))
]
# Other values are kept, for an error that names the field.
Entries: TypeAlias = Annotated[
    tuple[Entry, ...], Form(list, lambda value: tuple(value) if isinstance(value, list) else value)
]
Effects: TypeAlias = tuple[Array, Array]

# The best of 10, 100, 1000 and the range itself on Adult's training rows
# (``python -m experiments.additive``).
DENSER = 100.0
"""Density of values at a lower bound of 0 or less, relative to the upper bound."""
_GAP = "missing"
"""The part of a number that tells whether it is there."""
_CATEGORY_CURE = (
    'Correct the cell, or complete "categories" in the schema from public knowledge ("" stands for '
    'a missing value); with "other": CATEGORY, unlisted values count as that category'
)


class Column:
    """A feature column of a schema; final subclasses below.

    Encoders, models and pictures take plain columns: numbers and categories, which define all
    methods. Another kind of column defines ``plain`` and ``plain_cells``.
    """

    name: str
    omits_defaults: ClassVar[bool] = True

    @property
    def plain(self) -> Column:
        """The column of ``plain_cells``."""
        return self

    def plain_cells(self, values: ArrayLike) -> ArrayLike:
        """Return the numbers, or categories, that cells of the table's column stand for.

        Errors name the column, the row and the remedy.

        Privacy: each row by itself.
        """
        return values

    @property
    def norm(self) -> float:
        """Bound on the L2 norm of the features of a row."""
        return self.plain.norm

    @property
    def effect_names(self) -> tuple[str, ...]:
        """Names of effects in the column's units."""
        return self.plain.effect_names

    def effects(self) -> Effects:
        """Return the map from coefficients to effects.

        Effects are ``slopes @ w``, and the column adds ``shifts @ w`` to the intercept; ``slopes``
        has shape (n_effects, n_features).
        """
        return self.plain.effects()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.plain.feature_names

    def read(self, values: ArrayLike, *, gaps: bool = False) -> NDArray[Any]:
        """Return each row's number, clipped to the bounds, or position among the categories.

        With ``gaps``, missing numbers with a public number for them are NaN, and unlisted values
        of a pooled column follow its last category. Errors name the column, the row and the remedy.
        """
        return self.plain.read(self.plain_cells(values), gaps=gaps)

    def encode(self, values: ArrayLike, out: NDArray[np.floating[Any]]) -> None:
        """Write the features of each row into ``out``, zeros of shape (n, len(feature_names)).

        Errors name the column, the row and the remedy.

        Privacy: each row is encoded by itself, to features of L2 norm at most ``norm``.
        """
        self.plain.encode(self.plain_cells(values), out)

    def score(self, weights: Sequence[float]) -> Score:
        """Return the features times ``weights``, as an expression of the cell."""
        raise ValueError(f"column {self.name!r} must be a number or a category for an expression")

    @property
    def source(self) -> str:
        """Name of the table's column."""
        return self.name

    @property
    def has_numbers(self) -> bool:
        """Whether the cells are numbers."""
        return False

    def with_bounds(self, low: float, high: float, paid: PaidFor) -> Column:
        """Return a numeric column with private bounds; other columns are unchanged."""
        return self

    @property
    def paid_bounds(self) -> tuple[float, float, PaidFor] | None:
        """Bounds that were learned from private rows, with their cost; None for public ones."""
        return None

    def with_reference(self, reference: Entry) -> Column:
        """Return the column with a reference category, in any spelling of a cell."""
        raise ValueError(
            f"column {self.name!r} has no categories and cannot have a reference, got {reference!r}"
        )

    def with_first_reference(self) -> Column:
        """Return the column with its first category as reference, unless it has one."""
        return self


def indicator_ball(n: int) -> tuple[float, float]:
    """Return center and radius of the smallest ball with ``n`` indicator vectors, and zero.

    Zero is the reference. By symmetry the center is ``t (1, ..., 1)``. Squared distances from it
    are ``n t^2`` and ``1 - 2 t + n t^2``; their maximum is least at ``t = 1/n``, or at ``t = 1/2``,
    where they are equal, if that is smaller. The radius is 1/2 for one indicator, and below 1 for
    any number.
    """
    t = min(0.5, 1.0 / n)
    return t, math.sqrt(1.0 - 2.0 * t + n * t * t)


@final
@dataclass(frozen=True)
class NumericColumn(Column):
    """A number, clipped to public bounds, as one feature in [-1, 1].

    A missing value becomes the public number ``missing``; by default it is an error. ``scale`` and
    ``knots`` are for curves (``dpglm.tables.additive``): "log" spreads knots evenly in logarithms
    (with a lower bound of 0 or less, 100 times as densely there as at the upper bound).
    ``provenance`` is the cost of bounds from private rows; ``unit`` is for axes of pictures.
    ``time`` is "date" for cells of dates, read as days since 1970-01-01, or "duration", read in
    ``unit``; ``format`` is the form of dates in text (``dpglm.tables.times``).
    """

    name: Text
    low: Number
    high: Number
    missing: Number | None = None
    scale: str = "linear"
    knots: tuple[Number, ...] | None = None
    provenance: Provenance | None = None
    unit: str | None = None
    time: str | None = dataclasses.field(default=None, metadata=APART_FIELD)
    format: str | None = dataclasses.field(default=None, metadata=APART_FIELD)

    type_name = "numeric"
    norm = 1.0

    def __post_init__(self) -> None:
        if self.time == "date":
            for one in ("low", "high", "missing"):
                if getattr(self, one) is not None:
                    object.__setattr__(self, one, days_of(getattr(self, one)))
            if self.knots is not None:
                object.__setattr__(self, "knots", tuple(map(days_of, self.knots)))
        check_bounds(self.low, self.high)
        if self.missing is not None:
            check_real("missing", self.missing)
        check_one_of("scale", self.scale, ("linear", "log"))
        if self.knots is not None:
            _check_knots(self.knots, self.low, self.high)
        check_unit(self.unit)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, values: ArrayLike, out: NDArray[np.floating[Any]]) -> None:
        numbers = self.read(values)
        numbers -= self._center
        numbers /= self._scale
        np.clip(numbers, -1.0, 1.0, out=out[:, 0])

    def read(self, values: ArrayLike, *, gaps: bool = False) -> Array:
        stand_in = math.nan if gaps and self.missing is not None else self.missing
        numbers = as_numbers(self.plain_cells(values), f"column {self.name!r}", stand_in)
        return np.clip(numbers, self.low, self.high, out=numbers)

    def score(self, weights: Sequence[float]) -> Score:
        (weight,) = weights
        gap = 0.0 if self.missing is None else min(max(self.missing, self.low), self.high)
        inside = (cell(self.name) - self._center) / self._scale * weight
        at_gap = (gap - self._center) / self._scale * weight
        return self.within(as_score(-weight), inside, as_score(weight), at_gap)

    def within(self, below: Score, inside: Score, above: Score, gap: Score | float) -> Score:
        """Return the score of cells below, within and above the bounds, and of missing ones."""
        x = cell(self.name)
        known = choice(x < self.low, below, choice(as_score(self.high) < x, above, inside))
        found = choice(is_number(self.name), known, refused(self.name))
        if self.missing is None:
            return found
        return choice(is_missing(self.name), as_score(gap), found)

    @property
    def plain(self) -> NumericColumn:
        if self.time is None:
            return self
        usual = "days since 1970-01-01" if self.time == "date" else "days"
        return dataclasses.replace(self, time=None, format=None, unit=self.unit or usual)

    @property
    def has_numbers(self) -> bool:
        return self.time is None

    def plain_cells(self, values: ArrayLike) -> ArrayLike:
        if self.time is None:
            return values
        micros = read_times(values, f"column {self.name!r}", self.time, self.format)
        return as_units(micros, "days" if self.time == "date" else self.unit or "days")

    def stretched(self, numbers: Array) -> Array:
        """Map numbers between the bounds to [0, 1], on the column's scale."""
        if self.scale == "log" and self.low > 0.0:
            return np.asarray((np.log(numbers) - math.log(self.low)) / self._decades)
        # Halves, since the range may overflow.
        share = (0.5 * numbers - 0.5 * self.low) / self._scale
        return share if self.scale == "linear" else np.log1p(DENSER * share) / math.log1p(DENSER)

    def unstretched(self, places: Array) -> Array:
        """Undo ``stretched``."""
        if self.scale == "log" and self.low > 0.0:
            return np.asarray(np.exp(math.log(self.low) + places * self._decades))
        if self.scale == "log":
            places = np.expm1(places * math.log1p(DENSER)) / DENSER
        return self.low * (1.0 - places) + self.high * places

    @property
    def _decades(self) -> float:
        """Logarithm of the ratio of the bounds, for a lower bound above 0."""
        return math.log(self.high) - math.log(self.low)

    def spaced(self, segments: int) -> Array:
        """Return the bounds and the declared knots, or the ends of equal segments."""
        if self.knots is not None:
            return np.unique([self.low, *self.knots, self.high])
        numbers = self.unstretched(np.linspace(0.0, 1.0, segments + 1))
        numbers[[0, -1]] = self.low, self.high
        return numbers

    @property
    def effect_names(self) -> tuple[str, ...]:
        return (self.name,)

    def effects(self) -> Effects:
        slope = 1.0 / self._scale
        return np.array([[slope]]), np.array([-self._center * slope])

    @property
    def _center(self) -> float:
        return 0.5 * self.low + 0.5 * self.high

    @property
    def _scale(self) -> float:
        return 0.5 * self.high - 0.5 * self.low

    def with_bounds(self, low: float, high: float, paid: PaidFor) -> Column:
        knots = tuple(one for one in self.knots or () if low <= one <= high) or None
        return dataclasses.replace(self, low=low, high=high, knots=knots, provenance=paid)

    @property
    def paid_bounds(self) -> tuple[float, float, PaidFor] | None:
        return None if self.provenance is None else (self.low, self.high, self.provenance)


@final
@dataclass(frozen=True)
class CategoricalColumn(Column):
    """One of a public list of values, as features of zeros and ones.

    ``""`` among the categories means "missing"; unlisted values become the category ``other``, and
    are an error by default. There is a feature for each category except the ``reference``; with a
    reference, features are centred in their ``indicator_ball``. With ``ordered``, neighbouring
    categories have similar effects in additive models (``dpglm.tables.additive``); ``""`` has no
    place in the order.

    ``part`` of the column ``of`` may stand for cells: the month, weekday or hour of a date, or
    whether a number is missing. With ``cyclic``, a linear model has the sine and the cosine of a
    category's place on a circle as features.

    With ``pooled``, effects are random with mean zero, and unlisted values have none.
    """

    name: Text
    categories: Entries
    other: Any = None
    reference: Any = None
    ordered: bool = False
    of: Any = dataclasses.field(default=None, metadata=APART_FIELD)
    part: str | None = dataclasses.field(default=None, metadata=APART_FIELD)
    cyclic: bool = dataclasses.field(default=False, metadata=APART_FIELD)
    pooled: bool = False

    type_name = "categorical"

    def __post_init__(self) -> None:
        check_vocabulary("categories", self.categories)
        for field, value in (("ordered", self.ordered), ("pooled", self.pooled)):
            if not isinstance(value, bool):
                raise ValueError(f'"{field}" must be true or false, got {value!r}')
        if self.pooled and (self.ordered or self.reference is not None):
            raise ValueError('"pooled" must be false for an ordered column, or with a reference')
        if self.ordered and len(self.categories) - ("" in self.categories) < 2:
            raise ValueError(f'"ordered" needs two values, got {in_one_line(self.categories)}')
        for field, value in (("other", self.other), ("reference", self.reference)):
            if value is None:
                continue
            found = [one for one in self.categories if _compared(one) == _compared(value)]
            if not found:
                raise ValueError(f"{field} must be one of the categories, got {value!r}")
            object.__setattr__(self, field, found[0])

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.cyclic:
            return f"{self.name} (sine)", f"{self.name} (cosine)"
        return tuple(
            f"{self.name}={category}" for category in self.categories if category != self.reference
        )

    def encode(self, values: ArrayLike, out: NDArray[np.floating[Any]]) -> None:
        positions = self.read(values, gaps=True)
        if self.cyclic:
            out[:] = self._circle[positions]
            return
        is_feature = np.array([*(one != self.reference for one in self.categories), False])
        rows = np.flatnonzero(is_feature[positions])
        out[rows, (np.cumsum(is_feature) - 1)[positions[rows]]] = 1.0
        if self.center:
            out -= self.center

    def read(self, values: ArrayLike, *, gaps: bool = False) -> NDArray[np.intp]:
        other = len(self.categories) if gaps and self.pooled else None
        other = other if self.other is None else self.categories.index(self.other)
        return Vocabulary(self.categories).positions(
            self.plain_cells(values), f"column {self.name!r}", _CATEGORY_CURE, other
        )

    def score(self, weights: Sequence[float]) -> Score:
        if self.cyclic:
            return self.lookup([as_score(one) for one in (self._circle @ weights).tolist()])
        left = iter(weights)
        center = self.center * math.fsum(weights)
        return self.lookup(
            [
                as_score((0.0 if one == self.reference else next(left)) - center)
                for one in self.categories
            ]
        )

    def lookup(self, values: Sequence[Score]) -> Score:
        """Return the value of a cell's category, of one value for each."""
        other = as_score(0.0) if self.pooled else None
        other = other if self.other is None else values[self.categories.index(self.other)]
        return lookup(self.name, list(zip(self.categories, values, strict=True)), other)

    @property
    def norm(self) -> float:
        if self.reference is None or self.cyclic:
            return 1.0
        return indicator_ball(len(self.categories) - 1)[1]

    @property
    def center(self) -> float:
        """The constant subtracted from the indicators of its categories."""
        return 0.0 if self.reference is None else indicator_ball(len(self.categories) - 1)[0]

    @property
    def plain(self) -> CategoricalColumn:
        return self if self.part is None else dataclasses.replace(self, of=None, part=None)

    def plain_cells(self, values: ArrayLike) -> ArrayLike:
        if self.part is None:
            return values
        what = f"column {self.source!r}"
        if self.part == _GAP:
            gaps = np.isnan(as_numbers(self.of.plain_cells(values), what, math.nan))
            return np.array(self.categories, dtype=object)[gaps.astype(np.intp)]
        micros = read_times(values, what, "date", self.of.format)
        return parts_of(micros, self.part, self.of.missing)

    @property
    def source(self) -> str:
        return self.name if self.of is None else str(self.of.name)

    @property
    def _circle(self) -> Array:
        """Places of the categories on a circle, with a mean of zero."""
        turns = 2.0 * math.pi * np.arange(len(self.categories)) / len(self.categories)
        # Rounding must not make a row longer than 1.
        return np.column_stack([np.sin(turns), np.cos(turns)]) * (1.0 - 1e-15)

    @property
    def effect_names(self) -> tuple[str, ...]:
        base = "mean" if self.reference is None else self.reference
        if self.cyclic:
            shown = [one for one in self.categories if one != self.reference]
            return tuple(f"{self.name}={one} vs {base}" for one in shown)
        return tuple(f"{one} vs {base}" for one in self.feature_names)

    def effects(self) -> Effects:
        if self.cyclic:
            places, middle = self._circle, np.zeros(2)
            if self.reference is not None:
                middle = places[self.categories.index(self.reference)]
            shown = [i for i, one in enumerate(self.categories) if one != self.reference]
            return places[shown] - middle, middle
        n = len(self.feature_names)
        if self.pooled:
            return np.eye(n), np.zeros(n)
        if self.reference is None:
            # Only differences are identified next to the intercept: differences from the mean.
            means = np.full(n, 1.0 / n)
            return np.eye(n) - means, means
        return np.eye(n), np.full(n, -self.center)

    def with_reference(self, reference: Entry) -> Column:
        try:
            (position,) = Vocabulary(self.categories).positions([reference], "reference", "")
        except ValueError:
            raise ValueError(
                f"{reference!r} is not among the categories of column {self.name!r}: "
                f"{in_one_line(self.categories)}"
            ) from None
        return dataclasses.replace(self, reference=self.categories[position])

    def with_first_reference(self) -> Column:
        has_none = self.reference is None and not self.pooled
        return self.with_reference(self.categories[0]) if has_none else self


def part_of(column: NumericColumn, part: str, *, cyclic: bool = False) -> CategoricalColumn:
    """Return a part of a date as a column, or the indicator of missing numbers.

    The name is that of the column with the part, such as ``opened_month`` or ``pay_missing``.
    """
    name = f"{column.name}_{part}"
    if part == _GAP:
        return CategoricalColumn(name, ("no", "yes"), reference="no", of=column, part=part)
    return CategoricalColumn(
        name, PARTS[part][0], ordered=True, of=column, part=part, cyclic=cyclic
    )


def _compared(value: Entry) -> Entry:
    return normal(value) if isinstance(value, str) else value


def check_vocabulary(field: str, entries: object) -> None:
    """Check that a field is a tuple and a valid ``Vocabulary``."""
    if not isinstance(entries, tuple):
        raise ValueError(f'"{field}" must be a list of values, got {entries!r}')
    try:
        Vocabulary(entries)
    except ValueError as error:
        raise ValueError(f'"{field}" {error}') from None


def check_bounds(low: object, high: object) -> None:
    """Check that two fields are finite and increasing."""
    if not check_real("low", low) < check_real("high", high):
        raise ValueError(f'"low" must be less than "high", got {low!r} and {high!r}')


def check_unit(unit: object) -> None:
    """Check that a unit is text, or None."""
    if unit is not None and not (isinstance(unit, str) and unit.strip()):
        raise ValueError(f'"unit" must be text, such as "years", got {in_one_line(unit)}')


def _check_knots(knots: object, low: float, high: float) -> None:
    """Check that knots are increasing numbers from ``low`` to ``high``."""
    stated = knots if isinstance(knots, tuple) else ()
    within = [low <= check_real("knots", one) <= high for one in stated]
    if not within or not all(within) or sorted(set(stated)) != list(stated):
        raise ValueError(
            f'"knots" must be a list of increasing numbers from "low", {low:g}, to "high", '
            f"{high:g}, got {in_one_line(knots)}"
        )
