"""Settings and features of additive models: curves, levels and interactions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._codec import Text
from dpglm._validation import check_count, check_real, in_one_line
from dpglm.tables.additive_terms import (
    MOST_CORRELATED,
    Axis,
    CategoricalAxis,
    NumericAxis,
    Term,
    as_dense,
)
from dpglm.tables.columns import CategoricalColumn, Column, Number, NumericColumn
from dpglm.tables.encoding import CATEGORY_PRIOR, Encoding, FeatureBlock, NamedTerm, Reader

MOST_SEGMENTS, MOST_REACH = 1000, 1e6


@final
@dataclass(frozen=True)
class Additive:
    """Settings of the curves, levels and interactions of an additive model.

    Numeric columns without knots have ``segments`` equal segments, 1 (a straight line) to 1000;
    those of scale "log" ``log_segments``, and those in interactions ``pair_segments``. ``reach`` is
    the prior correlation length of a curve, as a share of the range, 0 to 1e6; larger is smoother.
    ``interactions`` are pairs of columns with a joint effect.
    """

    segments: int
    reach: Number
    interactions: tuple[tuple[Text, Text], ...] = ()
    pair_segments: int = 4
    log_segments: int | None = None

    omits_defaults = True

    def __post_init__(self) -> None:
        for name in ("segments", "pair_segments", "log_segments"):
            count = getattr(self, name)
            if count is not None and check_count(name, count) > MOST_SEGMENTS:
                raise ValueError(f"{name} must be at most {MOST_SEGMENTS}, got {count!r}")
        reach = check_real("smoothness (reach)", self.reach, least=0.0, most=MOST_REACH)
        object.__setattr__(self, "reach", reach)
        object.__setattr__(self, "interactions", pairs_of_columns(self.interactions))


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


_MOST_OF_A_PAIR = 10_000
_ROWS_AT_ONCE, _ROWS_IN_CACHE = 1 << 16, 1 << 9


def _effects(term: Term) -> tuple[Any, Any]:
    return term.matrix, np.zeros(term.matrix.shape[1])


@final
@dataclass(frozen=True, eq=False)
class AdditiveEncoding(Encoding):
    """Encodes columns as curves or levels, and pairs of columns as surfaces.

    Privacy: the features of a row are averages of rows of public matrices, which have norm at most
    1, with weights from the row's own cells. A term therefore adds at most 1 to the squared norm of
    a row at any resolution.
    """

    columns: tuple[Column, ...]
    settings: Additive

    def __post_init__(self) -> None:
        known = {column.name for column in self.columns}
        for pair in self.settings.interactions:
            if not set(pair) <= known:
                raise ValueError(f"interactions must name columns of the schema, got {list(pair)}")
        for term in self.terms[len(self.columns) :]:
            size = term.features.stop - term.features.start
            if size > _MOST_OF_A_PAIR:
                raise ValueError(
                    f"interactions must have at most {_MOST_OF_A_PAIR} features, got {size} for "
                    f"{term.name}: use fewer pair_segments or categories"
                )

    @functools.cached_property
    def terms(self) -> tuple[Term, ...]:
        """The terms: one for each column, then the interactions."""
        curves = {one.name: self._axis(one) for one in self.columns}
        paired = {name for pair in self.settings.interactions for name in pair}
        sides = {
            one.name: self._axis(one, in_pair=True) for one in self.columns if one.name in paired
        }
        pairs = [tuple(sides[name] for name in pair) for pair in self.settings.interactions]
        every: list[tuple[Axis, ...]] = [*((axis,) for axis in curves.values()), *pairs]
        sizes = (math.prod(axis.n_features for axis in axes) for axes in every)
        places = itertools.starmap(
            slice, itertools.pairwise(itertools.accumulate(sizes, initial=0))
        )
        return tuple(map(Term, every, places))

    def _axis(self, column: Column, *, in_pair: bool = False) -> Axis:
        if isinstance(column, CategoricalColumn):
            # Straight lines and levels have the features of a linear model.
            is_centred = self.settings.segments > 1 or bool(self.settings.interactions)
            return CategoricalAxis(column, self.settings.reach, is_centred)
        assert isinstance(column, NumericColumn)
        segments = self.settings.segments
        if in_pair:
            segments = self.settings.pair_segments
        elif column.scale == "log":
            segments = self.settings.log_segments or segments
        return NumericAxis(column, segments, self.settings.reach)

    @property
    def n_features(self) -> int:
        """Number of features."""
        stop: int = self.terms[-1].features.stop
        return stop

    @functools.cached_property
    def blocks(self) -> tuple[FeatureBlock, ...]:
        found = []
        for term in self.terms:
            axis, is_alone = term.axes[0], len(term.axes) == 1
            levels: tuple[tuple[Any, str | None], ...] = ()
            if is_alone and isinstance(axis, CategoricalAxis):
                levels = tuple(zip(axis.column.categories, term.labels, strict=True))
            pooled = is_alone and axis.pooled
            many = pooled or len(term.labels) > MOST_CORRELATED
            named = NamedTerm(term.name, term.labels, term.columns, levels)
            # The values of an effect have the covariance of the features, up to this scale.
            prior = CATEGORY_PRIOR / term.norm
            large = is_alone and term.root is None and many
            features, effects = term.feature_names, functools.partial(_effects, term)
            found.append(
                FeatureBlock(named, features, term.norm, prior, term.score, effects, pooled, large)
            )
        return tuple(found)

    def encode(self, cells: Reader, out: NDArray[np.floating[Any]]) -> None:
        # Few rows at a time, so that their features stay in the processor's cache.
        for start, block in self._blocks(cells, len(out), _ROWS_IN_CACHE):
            rows = out[start : start + _ROWS_IN_CACHE]
            for term, features in zip(self.terms, block, strict=True):
                rows[:, term.features] = as_dense(features)

    def encode_sparse(self, cells: Reader, n_rows: int, dtype: str = "float64") -> sparse.csr_array:
        blocks = [
            sparse.hstack([sparse.csr_array(features) for features in block], "csr")
            for _, block in self._blocks(cells, n_rows, _ROWS_AT_ONCE)
        ]
        encoded: sparse.csr_array = sparse.vstack(blocks, "csr", dtype=np.dtype(dtype))
        return encoded

    def _blocks(
        self, cells: Reader, n_rows: int, rows_each: int
    ) -> Iterator[tuple[int, Iterator[Any]]]:
        """Yield blocks of rows: the first row's number, and the features of each term."""
        axes = dict.fromkeys(axis for term in self.terms for axis in term.axes)
        # All cells of a column are read at once, so that errors name the row.
        places = {axis: axis.places(cells(axis.name)) for axis in axes}
        for start in range(0, max(n_rows, 1), rows_each):
            block = {axis: every[start : start + rows_each] for axis, every in places.items()}
            yield start, (term.at(*(block[axis] for axis in term.axes)) for term in self.terms)
