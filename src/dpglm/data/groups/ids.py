"""Which row belongs to which group; rows that are kept of each, and bounded sums over groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._arrays import finite
from dpglm._validation import check_integer
from dpglm.data.rows import compensated_sum
from dpglm.data.sampled import on_grid
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.cells import is_missing
from dpglm.tables.finite import WHOSE_CURE, unmasked
from dpglm.tables.given import check_not_missing

__all__ = [
    "GROUP_BATCH",
    "MIXTURE",
    "Groups",
    "Values",
    "batches",
    "clipped",
    "rows_of",
    "segment_sums",
]

Values: TypeAlias = NDArray[np.float64] | sparse.csr_array
"""One row of numbers for each row of data, dense or CSR."""

MIXTURE = "groups must be all numbers or all texts, got a mixture"
_MISSING = f"groups must name a group for every row, got missing values. {WHOSE_CURE}"
_UNIT = 2.0**-53
_ENTRIES = 1 << 21

GROUP_BATCH = 1024
"""Rows whose groups' sums are computed at once, at most; and groups that are added at once."""


@final
@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each row, by number. Private.

    ``codes`` has the shape ``(n_rows,)`` and numbers from 0 to ``n_groups - 1``; a group may have
    no rows.
    """

    codes: NDArray[np.intp]
    n_groups: int

    @classmethod
    def of(cls, ids: Any, n_rows: int) -> Groups:
        """Give each group a number, from an identifier for each row, in any order.

        ``ValueError`` unless they are n_rows numbers, or texts, none of them missing or blank.
        Equal numbers are one group, whatever their type.
        """
        values = np.asarray(unmasked("groups", ids))
        # Of a mixed list NumPy would spell the numbers, equal ones in several ways.
        if values.dtype.kind in "SU" and isinstance(ids, list | tuple):
            given = np.asarray(ids, dtype=object).ravel().tolist()
            if not all(isinstance(one, str | bytes) for one in given):
                raise ValueError(MIXTURE)
        if values.shape == (n_rows, 1):
            values = values[:, 0]
        if values.shape != (n_rows,):
            raise ValueError(f"groups must have shape ({n_rows},), got shape {values.shape}")
        try:
            found, first, codes = np.unique(
                check_not_missing(values), return_index=True, return_inverse=True
            )
        except TypeError:
            raise ValueError(MIXTURE) from None
        except ValueError:
            raise ValueError(_MISSING) from None
        if found.dtype.kind in "OU" and any(map(is_missing, found.tolist())):
            raise ValueError(_MISSING)
        # By their first rows, so that rows which stand together are in order.
        places = np.empty(len(found), dtype=np.intp)
        places[np.argsort(first)] = np.arange(len(found))
        return cls(places[codes.reshape(n_rows)], len(found))

    def kept(self, most: int, noise: NoiseSource) -> NDArray[np.intp]:
        """Return positions, ascending, of at most ``most`` rows of each group, drawn uniformly.

        Privacy: the draw of one group's rows does not depend on any other group, so that with the
        same draws for all others neighbours stay neighbours, and no two groups are mixed up. Which
        rows were drawn stays private.
        """
        check_integer("max_rows_per_group", most, least=1)
        order = np.lexsort((noise.words(len(self.codes)), self.codes))
        sizes = np.bincount(self.codes, minlength=self.n_groups)
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[place < most])

    def arranged(
        self, most: int | None, noise: NoiseSource
    ) -> tuple[NDArray[np.intp] | None, NDArray[np.intp]]:
        """Return positions of the rows that are kept, group by group, and where groups start.

        No positions if all rows are kept and stand so.
        """
        kept = np.arange(len(self.codes)) if most is None else self.kept(most, noise)
        order, starts = Groups(self.codes[kept], self.n_groups).sorted()
        places = kept[order]
        as_they_stand = np.array_equal(places, np.arange(len(self.codes)))
        return None if as_they_stand else places, starts

    def sorted(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the order that puts rows of one group together, and where each group starts.

        There is one start for each group, and the number of rows at the end.
        """
        sizes = np.bincount(self.codes, minlength=self.n_groups)
        starts = np.concatenate([np.zeros(1, np.intp), np.cumsum(sizes, dtype=np.intp)])
        return np.argsort(self.codes, kind="stable"), starts

    def bounded_sum(self, values: Values, bound: float) -> NDArray[np.float64]:
        """Add up one row of finite values for each row of data, of shape ``(n_rows, size)``.

        The sum over the rows of a group that is longer than ``bound`` in L2 norm is scaled down to
        it; all others enter as they are. Private.

        Privacy: a group contributes at most ``bound``; ``dpglm.oracle.rounding.group_rounding``
        says what rounding adds.
        """
        order, starts = self.sorted()
        size = values.shape[1]

        def sums() -> Iterator[NDArray[np.float64]]:
            for first, last in batches(starts, size):
                rows = values[order[starts[first] : starts[last]]]
                ones = np.ones(rows.shape[0])
                of_groups = segment_sums(rows, ones, starts[first : last + 1] - starts[first])
                yield clipped(of_groups, bound)

        return compensated_sum(sums(), np.zeros(size))


def batches(starts: NDArray[np.intp], size: int) -> list[tuple[int, int]]:
    """Cut groups into ranges of whole groups with few rows, or of one group.

    ``size`` is that of a group's sum, of which there is room for so many at a time.
    """
    rows = max(1, min(GROUP_BATCH, _ENTRIES // size))
    cuts, last = [0], len(starts) - 1
    while cuts[-1] < last:
        first = cuts[-1]
        end = int(np.searchsorted(starts, starts[first] + rows, side="right")) - 1
        # Groups without rows count, too, so that there are not too many of them.
        cuts.append(min(max(end, first + 1), first + rows, last))
    return list(itertools.pairwise(cuts))


def rows_of(
    starts: NDArray[np.intp], indices: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the positions of the rows of some groups, and where each of these starts then."""
    sizes = np.diff(starts)[indices]
    new = np.concatenate([np.zeros(1, np.intp), np.cumsum(sizes, dtype=np.intp)])
    within = np.arange(new[-1]) - np.repeat(new[:-1], sizes)
    return np.repeat(starts[:-1][indices], sizes) + within, new


def segment_sums(rows: Values, factors: NDArray[Any], starts: NDArray[np.intp]) -> Any:
    """``sum_i factors_i rows_i`` over the rows of each group, of shape ``(groups, size)``.

    Rows are added one after the other in float64, wherever they stand.
    """
    weights = np.asarray(factors, dtype=np.float64)
    sums = sparse.csr_array(
        (weights, np.arange(len(weights)), starts), shape=(len(starts) - 1, len(weights))
    )
    return sums @ rows


def clipped(sums: Values, bound: float, step: float | None = None) -> NDArray[np.float64]:
    """Add up rows of shape ``(groups, size)``, each scaled down to L2 norm ``bound`` if longer.

    Privacy: a number that is not finite counts as zero. Of whole numbers within the bound the sum
    is exact. With a ``step`` it is always: rows are rounded to multiples of it (``on_grid``).
    """
    if sparse.issparse(sums):
        sums.data = finite(sums.data)
    else:
        sums = finite(sums)
    squares = sums.multiply(sums) if sparse.issparse(sums) else sums * sums
    lengths = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64).ravel())
    margin = 1.0 - 8.0 * (sums.shape[1] + 16) * _UNIT
    longer = lengths > bound
    factors = np.where(longer, margin * bound / np.where(longer, lengths, 1.0), 1.0)
    if step is not None:
        total: NDArray[np.float64] = on_grid(factors[:, np.newaxis] * sums, step).sum(axis=0)
        return total
    return np.asarray(factors @ sums, dtype=np.float64)
