"""Groups of rows: ids, limits on their rows, and bounded sums over groups."""

from __future__ import annotations

import functools
import itertools
import math
import numbers
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._validation import check_integer, finite
from dpglm.data.memory import ArrayRows
from dpglm.data.prepare import derived_rows
from dpglm.data.rows import (
    AnyArrays,
    Block,
    DataSpec,
    Floats,
    Kernel,
    Rows,
    compensated_sum,
    map_blocks,
)
from dpglm.data.sampled import SampledBlock, on_grid, sampled_rows
from dpglm.exceptions import NearIdsWarning, PlanMismatchError
from dpglm.privacy.budget import Adjacency, Unit
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.cells import (
    NUMBER_KINDS,
    WHOSE_CURE,
    is_date,
    is_missing,
    normal,
    plain_array,
    unmasked,
)

Values: TypeAlias = NDArray[np.float64] | sparse.csr_array
"""One row of numbers for each row of data, dense or CSR."""
MIXTURE = "groups must be all numbers or all texts, got a mixture"
_KINDS = "groups must be numbers or texts, which alone have one spelling, got other values"
# Without zeros before the number, which are a part of many ids, and without hexadecimal digits.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE]\+[0-9]{1,3})?")
_PADDING = re.compile(r"(?<![0-9])0+(?=[0-9])")
_MISSING = f"groups must name a group for every row, got missing values. {WHOSE_CURE}"
_UNIT = 2.0**-53
_ENTRIES = 1 << 21
GROUP_BATCH = 1024
"""Most rows, and most groups, in a batch of groups' sums."""


@final
@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each row, by number. Private.

    ``codes`` has the shape ``(n_rows,)`` and numbers from 0 to ``n_groups - 1``; groups may be
    empty.
    """

    codes: NDArray[np.intp]
    n_groups: int

    @classmethod
    def of(cls, ids: Any, n_rows: int) -> Groups:
        """Give each group a number, from an identifier for each row, in any order.

        ``ValueError`` unless they are n_rows numbers, or texts, none of them missing or blank.
        Equal ids are one group, however they are spelled (``Ids``); there is a warning where some
        differ in the case of letters, or zeros before numbers, alone.
        """
        found = Ids.of(ids, n_rows)
        if found.is_text:
            warn_of_near_ids(found.names, found.folded)
        return cls(found.codes, len(found.names))

    def n_used(self, most: int | None) -> int:
        """Return the number of rows in use, at most ``most`` of each group."""
        sizes = np.bincount(self.codes)
        return int((sizes if most is None else np.minimum(sizes, most)).sum())

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

        Privacy: a group contributes at most ``bound``, and ``dpglm.oracle.rounding.group_rounding``
        bounds the rounding error.
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


@final
@dataclass(frozen=True, eq=False)
class Ids:
    """The different ids of some rows, as they are compared, and the number of each row's. Private.

    ``names`` are in the order of their first rows, as numbers or texts. ``is_text`` states the type
    of the given ids, and is None for an empty table.
    """

    names: list[Any]
    codes: NDArray[np.intp]
    is_text: bool | None

    @classmethod
    def of(cls, ids: Any, n_rows: int) -> Ids:
        """Compare ids: equal ones are one, however they are spelled.

        Numbers are compared by value, whatever their type, and so are texts that spell numbers
        (``17`` and ``17.0``, but not ``017``); other texts as ``dpglm.tables.cells.normal`` says.
        ``ValueError`` as from ``Groups.of``.

        Privacy: a person with k ids would be protected at k epsilon. Two persons who share an id
        are each protected at 2 epsilon: first the whole group is erased, then the other's part is
        put back. So ids are one where they spell the same, and no further.
        """
        values = _one_for_each_row(ids, n_rows)
        if values.dtype.kind in NUMBER_KINDS:
            _check_exact(values)
            found, first, places = np.unique(values, return_index=True, return_inverse=True)
            order = np.argsort(first)
            ranks = np.empty(len(found), dtype=np.intp)
            ranks[order] = np.arange(len(found))
            codes = ranks[places.reshape(n_rows)]
            return cls(found[order].tolist(), codes, False if n_rows else None)
        known: dict[Any, int] = {}
        seen: dict[Any, int] = {}
        kinds: set[bool] = set()
        codes = np.empty(n_rows, dtype=np.intp)
        for row, one in enumerate(values.tolist()):
            try:
                code = seen.get((type(one), one))
            except TypeError:
                raise ValueError(_KINDS) from None
            if code is None:
                name = _name(one)
                kinds.add(isinstance(one, str | bytes))
                code = seen[type(one), one] = known.setdefault(name, len(known))
            codes[row] = code
        if len(kinds) > 1:
            raise ValueError(MIXTURE)
        return cls(list(known), codes, kinds.pop() if kinds else None)

    @property
    def folded(self) -> list[str]:
        """The ids without the case of letters and the zeros before numbers."""
        return [_PADDING.sub("", str(name).casefold()) for name in self.names]


def warn_of_near_ids(names: Collection[Any], folded: Collection[Any]) -> None:
    """Warn where ids differ in upper and lower case, or in zeros before a number, alone."""
    if len(set(folded)) < len(set(names)):
        warnings.warn(
            "groups has ids that differ only in upper and lower case or in zeros before a number, "
            "as 'p7' and 'P007' do. If they are one person's, this person is in several groups and "
            "protected at several times epsilon: spell each id in one way",
            NearIdsWarning,
            stacklevel=2,
        )


def _one_for_each_row(ids: Any, n_rows: int) -> NDArray[Any]:
    values = unmasked("groups", ids)
    if isinstance(values, list | tuple):
        array = np.asarray(values) if all(type(one) is int for one in values) else np.empty(0)
        # NumPy would spell equal numbers of a mixed list in several ways.
        is_exact = array.dtype.kind in "iu"
        values = array if is_exact else np.fromiter(values, dtype=object, count=len(values))
    array = plain_array(values)
    if array.shape == (n_rows, 1):
        array = array[:, 0]
    if array.shape != (n_rows,):
        raise ValueError(f"groups must have shape ({n_rows},), got shape {array.shape}")
    if array.dtype.kind not in NUMBER_KINDS + "OUST":
        raise ValueError(_KINDS)
    return array


def _check_exact(values: NDArray[Any]) -> None:
    """Refuse ids that are missing, or that floats may have run together."""
    if values.dtype.kind != "f" or not len(values):
        return
    if not np.isfinite(values).all():
        raise ValueError(_MISSING)
    if float(np.abs(values).max()) >= 2.0 ** (np.finfo(values.dtype).nmant + 1):
        raise ValueError(
            f"groups must be whole numbers that {values.dtype} tells apart, or texts, got larger "
            "ones. Read the ids as integers or as text"
        )


def _name(one: Any) -> Any:
    """Return the number or text that stands for an id in comparisons."""
    if is_missing(one):
        raise ValueError(_MISSING)
    if isinstance(one, bytes):
        one = one.decode("utf-8", "surrogateescape")
    if isinstance(one, str):
        text = normal(one)
        return Fraction(text) if _NUMBER.fullmatch(text) else text
    if isinstance(one, np.generic) and not is_date(one):
        one = one.item()
    if not isinstance(one, numbers.Real | Decimal) or is_date(one):
        raise ValueError(_KINDS)
    if not math.isfinite(one):
        raise ValueError(_MISSING)
    return Fraction(one)  # type: ignore[arg-type]


def batches(starts: NDArray[np.intp], size: int) -> list[tuple[int, int]]:
    """Cut groups into ranges of whole groups with few rows, or of one group.

    ``size`` is that of a group's sum; it limits the number of groups in a range.
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

    Privacy: a number that is not finite counts as zero. Sums of whole numbers within the bound are
    exact. With a ``step`` all sums are: rows are rounded to multiples of it (``on_grid``).
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


# Groups with a limited number of rows: the noise covers the largest.


def limited_groups(groups: Any, most: int | None, n_rows: int) -> tuple[Groups, int] | None:
    """Read the arguments ``groups`` and ``max_rows_per_group``; None where there are none."""
    if groups is None:
        if most is not None:
            raise ValueError(f"groups must be given with max_rows_per_group={most!r}, got None")
        return None
    if most is None:
        raise ValueError(
            "max_rows_per_group must be given with groups, got None: it sets the noise scale"
        )
    return Groups.of(groups, n_rows), check_integer("max_rows_per_group", most, least=1)


def planned_limit(groups: Any, data: DataSpec, adjacency: Adjacency, n_rows: int) -> int:
    """Compare ``groups`` with the public numbers of a plan; return its limit of rows in a group."""
    bound = data.groups
    if groups is None or bound is None:
        raise ValueError("groups must be given for a plan with groups, and for no other")
    found, most = Groups.of(groups, n_rows), int(bound.rows)
    rows_are_public = adjacency.rows_are_public(Unit.GROUP)
    for what, wanted, there, is_public in (
        ("groups", bound.n_groups, found.n_groups, adjacency.n_is_public),
        ("rows in them", data.n_rows, found.n_used(most), rows_are_public),
    ):
        if is_public and wanted != there:
            raise PlanMismatchError(f"the plan was made for {wanted} {what}, and these are {there}")
    return most


# Rows in groups: sums over rows become sums of bounded contributions of groups.


@final
class GroupedRows(Rows):
    """Rows, those of each group one after the other, in memory or in storage.

    ``starts`` has the first row of each group, and the number of rows at the end.

    Privacy: a group's sum is a function of its own rows alone. In ``sum`` it is scaled down to the
    bound that ``bounded`` set, whatever the kernel returned for it, and the groups' sums are added
    in float64. So one group, with all its rows, changes a sum by at most the bound and what
    ``dpglm.oracle.rounding.group_rounding`` allows for. Without a bound nothing is summed. In a
    Poisson sample each group's part is rounded to multiples of ``step``, so that sums are exact
    (``dpglm.data.sampled``). Rows in storage are cut between groups: rows of a group that lie in
    several chunks are put together first, so that each group is bounded once, as a whole.
    """

    unit = Unit.GROUP

    def __init__(
        self,
        rows: Rows,
        starts: NDArray[np.intp],
        bound: float | None = None,
        step: float | None = None,
    ) -> None:
        self.spec, self.watch = rows.spec, rows.watch
        self._rows, self._starts, self._bound, self._step = rows, starts, bound, step

    def on_host(self) -> GroupedRows:
        return GroupedRows(self._rows.on_host(), self._starts, self._bound, self._step)

    def held(self, bound: float, step: float | None) -> GroupedRows:
        """Clip each group's contribution to a bound, and round it to the grid of ``step``."""
        return GroupedRows(self._rows, self._starts, bound, step)

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def n_units(self) -> int:
        return len(self._starts) - 1

    def bounded(self, bound: float) -> GroupedRows:
        return self.held(bound, self._step)

    def alike(self, rows: Rows) -> GroupedRows:
        return GroupedRows(rows, self._starts, None, self._step)

    def blocks(self) -> Iterator[Block]:
        return self._rows.blocks()

    def map_native(self, function: Callable[[Block], Any]) -> Iterable[Any]:
        return self._rows.map_native(function)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> GroupedRows:
        positions, starts = rows_of(self._starts, indices)
        return GroupedRows(self._rows._taken(positions, spec), starts, self._bound, self._step)

    def clip_entries(self, bound: float) -> GroupedRows:
        return GroupedRows(self._rows.clip_entries(bound), self._starts, self._bound, self._step)

    def sum(self, kernel: Kernel, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
        """Add up a kernel's sums over groups, each clipped to the bound."""
        shape = self.spec.coefficient_shape if shape is None else shape
        size = int(np.prod(shape))
        total = compensated_sum(self.batch_sums(kernel, size), np.zeros(size))
        self.watch.check()
        return total.reshape(shape)

    def batch_sums(self, kernel: Kernel, size: int) -> Iterator[NDArray[np.float64]]:
        """Return the bounded sums over batches of groups, of ``size`` numbers each."""
        bound, step, intercept = self._bound, self._step, self.spec.intercept
        if bound is None:
            raise PlanMismatchError("sums over groups need a bound on a group's contribution")
        # Groups of a sample are summed one by one, each by its own rows alone.
        apart = isinstance(kernel, AnyArrays) and kernel.apart and step is None

        def batch_sum(rows: Any, starts: NDArray[np.intp], batch: tuple[int, int]) -> Any:
            first, last = batch
            blocks = (rows.span(*starts[at : at + 2]) for at in range(first, last))
            if apart and last - first > 1:
                block = rows.span(starts[first], starts[last])
                within = starts[first : last + 1] - starts[first]
                sums = kernel(_GroupBlock(block, within, intercept))
            elif step is None:
                sums = np.stack([kernel(block) for block in blocks])
            else:
                seen = (SampledBlock(block, intercept, step) for block in blocks)
                sums = np.stack([kernel(block) for block in seen])
            sums = np.asarray(sums, dtype=np.float64).reshape(last - first, size)
            return clipped(sums, bound, step)

        for part in self._parts():
            yield from map_blocks(functools.partial(batch_sum, *part), batches(part[1], size))

    def _parts(self) -> Iterator[tuple[Rows, NDArray[np.intp]]]:
        """Yield all groups, in order: rows of whole groups in memory, and their starts."""
        starts, done, first = self._starts, 0, 0
        begun: list[Any] = []
        for chunk in self._rows.chunks():
            last, offset = first + chunk.n_rows, 0
            if begun:
                # The rows here of a group that began in an earlier chunk.
                offset = int(min(starts[done + 1], last)) - first
                begun.append(chunk.take(np.arange(offset)))
                if starts[done + 1] > last:
                    first = last
                    continue
                yield ArrayRows.joined(begun), starts[done : done + 2] - starts[done]
                done, begun = done + 1, []
            whole = int(np.searchsorted(starts, last, side="right")) - 1
            if whole > done:
                yield chunk, starts[done : whole + 1] - first
                done = whole
            if starts[done] < last:
                rest: Any = chunk.take(np.arange(starts[done] - first, chunk.n_rows))
                begun = [ArrayRows.joined([rest])]
            first = last


@final
class _GroupBlock(Block):
    """The rows of several groups; sums are returned group by group."""

    def __init__(self, block: Block, starts: NDArray[np.intp], intercept: float) -> None:
        self._block, self._intercept = block, intercept
        self.targets, self.norms, self.weights = block.targets, block.norms, block.weights
        self.starts: NDArray[np.intp] = starts

    def predict(self, w: NDArray[np.float64]) -> Floats:
        return self._block.predict(w)

    def features(self) -> Floats:
        return self._block.features()

    def stored(self) -> Any:
        return self._block.stored()

    def weighted_sum(self, slopes: Floats) -> NDArray[np.float64]:
        if slopes.ndim > 1:
            each = [self.weighted_sum(slopes[:, output]) for output in range(slopes.shape[1])]
            return np.stack(each, axis=-1)
        sums = segment_sums(self.stored(), slopes, self.starts)
        total: NDArray[np.float64] = sums if isinstance(sums, np.ndarray) else sums.toarray()
        if self._intercept == 0.0:
            return total
        ones = np.full((len(slopes), 1), self._intercept)
        return np.hstack([total, segment_sums(ones, slopes, self.starts)])


@sampled_rows.register
def _(rows: GroupedRows, indices: NDArray[np.intp], rate: float, step: float) -> Rows:
    taken = rows._taken(indices, rows.spec)
    return GroupedRows(taken._rows, taken._starts, taken._bound, step)


@derived_rows.register
def _(
    rows: GroupedRows,
    function: Callable[[Block], Any],
    spec: DataSpec,
    overwrite: bool = False,
) -> Rows:
    return rows.alike(derived_rows(rows._rows, function, spec, overwrite))
