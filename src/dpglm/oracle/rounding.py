"""Bounded sums of one vector for each row, and rounding errors in their sensitivity."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from dpglm._validation import Array, finite, namespace
from dpglm.data.groups import GROUP_BATCH
from dpglm.data.memory import BLOCK_ROWS, RUN_ROWS, SPARSE_BLOCK_ROWS
from dpglm.data.rows import DataSpec, Kernel
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.releases import Mechanism, Release, SumRelease

if TYPE_CHECKING:
    from dpglm.oracle.gradients import Oracle

V = TypeVar("V")
R = TypeVar("R")

UNIT = 2.0**-53
"""Unit roundoff of float64."""
_TREE = 2**15
"""Bound on the additions in sums of partitions beyond those of one chain of blocks."""
MOST_ROWS = 2**31
"""Bound on the number of rows of any data set; stands in for n where n is private."""
# Squared norms beyond this leave no slack; the least slack, so that zero is divided by it.
_FULL, _TINY = 1.0 - 2.0**-30, 1e-300


def contribution_rounding(spec: DataSpec) -> float:
    """Relative excess r of one computed, clipped contribution: its norm is at most ``(1 + r) C``.

    Privacy: the row norm is computed in float64 and rounded up (``d + 2`` roundings); the norm of
    the slope vector takes ``K + 1`` roundings, the product, the sum or maximum, the quotient, the
    weight and the final products at most 6 more, in the rows' precision. Each changes the result
    by a factor within ``1 +- 2u`` (``u`` the unit roundoff; 2u covers quotients and second-order
    terms while ``(d + K) u`` is below 1/4, which holds for every size that fits in memory in
    float64 and for K up to a million in float32).
    """
    unit = np.finfo(spec.dtype).eps / 2
    return 2 * (spec.n_outputs + 7) * float(unit) + 2 * (spec.n_columns + 2) * UNIT


def target_size(spec: DataSpec) -> float:
    """Bound on the other terms with a rounding error in a slope: the targets, and 1."""
    size = max(abs(spec.target_low), abs(spec.target_high), 1.0)
    return size if math.isfinite(size) else 1.0


def norm_margin(size: int) -> float:
    """Return a factor below 1 that covers the error of a computed contribution's norm."""
    return 1.0 - 8.0 * (size + 16) * UNIT


def sum_magnitude(spec: DataSpec, adjacency: Adjacency, bound: float) -> float:
    """Public bound on the L2 norm of a computed sum of contributions up to ``bound``.

    Rounding and weights are included; ``MOST_ROWS`` stands in for a private number of rows.
    """
    return 2.0 * (spec.n_units if adjacency.n_is_public else MOST_ROWS) * bound


def sum_rounding(
    spec: DataSpec, adjacency: Adjacency, bound: float, sampling_rate: float = 1.0
) -> float:
    """Bound the rounding error in the distance of two neighbours' sums.

    It is added to ``bound``, the bound C on one row's exact contribution (weight included), before
    the relation's factor multiplies it. Refused: dense float32 rows under ``add_remove``, where
    one row more shifts all others and no useful bound exists, and contributions so large that
    their sum could overflow.

    Privacy: a floating-point sum of m terms, in any order, is within ``gamma_m = m u / (1 - m u)``
    times the sum of their absolute values of the exact sum (Higham 2002, section 4.2), coordinate
    by coordinate; by the triangle inequality its L2 error is at most ``gamma_m`` times the sum of
    the terms' norms. Rows are summed in blocks: dense ones in runs of at most ``RUN_ROWS`` in
    their own precision, the runs in float64; sparse ones one after the other in float64. With n
    public, neighbouring data sets are cut alike and differ in one run of one block; all else is
    computed identically. Under ``add_remove`` every block may change. Blocks are added by
    ``Rows.sum``, or partitions by ``DaskRows.sum``; the error over all n terms enters for both
    data sets. Casacuberta et al. (CCS 2022) attack libraries that leave this out.

    Sums over Poisson samples are exact, of contributions that are rounded to a grid, whichever
    rows were drawn (``dpglm.data.sampled``): all that is added is ``_on_grid``.

    Below the normal range errors are absolute: each operation on a slope or a product errs by at
    most the smallest normal number, even where results are flushed to zero.

    A row's contribution is computed by the same operations wherever the row stands, and whatever
    the other rows are: a product by a BLAS would round it by its place, which rows added or removed
    change. Where these places are public, products by a BLAS are allowed.
    """
    relative = contribution_rounding(spec)
    n_rows = spec.n_rows if adjacency.n_is_public else MOST_ROWS
    _check(spec, adjacency, bound)
    affected, summed = 1, _on_grid(n_rows, bound, spec.n_coefficients)
    if sampling_rate == 1.0:
        if spec.sparse:
            affected = min(SPARSE_BLOCK_ROWS, n_rows) if adjacency.n_is_public else n_rows
            block_error = _gamma(SPARSE_BLOCK_ROWS + 1, UNIT) * affected
        else:
            affected = min(BLOCK_ROWS, n_rows) if adjacency.n_is_public else n_rows
            run = min(RUN_ROWS, n_rows) if adjacency.n_is_public else n_rows
            unit = float(np.finfo(spec.dtype).eps) / 2
            within = _gamma(BLOCK_ROWS, UNIT) * affected
            block_error = _gamma(RUN_ROWS + 1, unit) * run + within
        blocks = n_rows // min(RUN_ROWS, SPARSE_BLOCK_ROWS) + _TREE
        across = (UNIT + _gamma(blocks, UNIT) ** 2) * n_rows
        summed = 2.0 * (block_error + across) * (bound * (1.0 + relative))
    # Errors below the normal range, for two sums.
    slopes = 8.0 * math.sqrt(spec.n_outputs) * spec.augmented_row_norm
    tiny = slopes + 4.0 * (affected + 1) * math.sqrt(spec.n_coefficients)
    return bound * relative + float(np.finfo(spec.dtype).tiny) * tiny + summed


@final
@dataclass(frozen=True)
class RowSum:
    """A bounded sum of one vector for each row: its name, size and bound.

    A row contributes a vector of ``size`` numbers with an L2 norm of at most ``bound`` times the
    bound on weights, or ``bound`` alone where the sum is not ``weighted``. The inner product of any
    two contributions is at least ``-opposition * bound**2``; see ``diameter``.

    For rows in groups the bound on a group's contribution is ``groups.reach(directions)`` times as
    large, to the ``power`` of 2 for products of a group's sum with itself. ``Oracle.noisy_sum``
    clips groups to it.

    Privacy: a group's contribution is the sum of its rows', scaled down. If no inner product of
    rows is negative, none of groups is, up to ``_acute_rounding``. Otherwise nothing is known of
    groups: scaling down a sum in which opposing parts outweigh the others may leave nothing else.
    """

    quantity: str
    size: int
    bound: float = 1.0
    weighted: bool = True
    directions: float = math.inf
    power: int = 1
    opposition: float = 1.0

    def with_slack(self, size: int) -> RowSum:
        """Return the sum of contributions with ``size`` more numbers, within the same bound B.

        A row contributes ``(g, s)``: g as before, and s from ``within_slack``.

        Privacy: ``|g|^2 + |s|^2 <= B^2``. A row that is erased, or not there, contributes neither,
        so the sum moves by at most B. (If its slack stayed, ``(0, B)`` would be ``sqrt(2) B`` from
        ``(B, 0)``.) A replaced row moves it by at most ``diameter``: no number in s is negative,
        so ``<g, g'> + <s, s'> >= <g, g'>``, and ``opposition`` bounds that already.
        """
        return dataclasses.replace(self, size=self.size + size)

    def of_row(self, data: DataSpec) -> float:
        """Bound on the contribution of one row, weight included."""
        return self.bound * (data.weight_bound if self.weighted else 1.0)

    def release(
        self,
        data: DataSpec,
        adjacency: Adjacency,
        mechanism: Mechanism[V, R],
        count: int = 1,
        sampling_rate: float = 1.0,
        extra_rounding: float = 0.0,
    ) -> Release[V, R]:
        """Declare ``count`` releases of the sum, with its rounding and magnitude.

        ``extra_rounding`` is added to the sensitivity where a method's proof asks for more than one
        sum's.
        """
        bound, opposition = self.of_row(data), self.opposition
        if data.groups is None:
            rounding = sum_rounding(data, adjacency, bound, sampling_rate)
        else:
            _check(data, adjacency, bound)
            bound *= data.groups.reach(self.directions) ** self.power
            opposition = 0.0 if opposition == 0.0 else 1.0
            rounding = group_rounding(data.n_units, adjacency, bound, self.size)
            if opposition == 0.0 and adjacency is Adjacency.REPLACE_ONE:
                rounding += _acute_rounding(bound, self.size)
            if sampling_rate < 1.0:
                n = data.n_units if adjacency.n_is_public else MOST_ROWS
                rounding += _on_grid(n, bound, self.size)
        return Release(
            self.quantity,
            mechanism,
            adjacency,
            bound,
            self.size,
            count,
            rounding + extra_rounding,
            sum_magnitude(data, adjacency, bound),
            sampling_rate,
            data.unit,
            diameter(opposition, self.size),
        )

    def noisy(
        self, oracle: Oracle, declared: SumRelease, kernel: Kernel, within: float = 1.0
    ) -> Array:
        """Release the sum of a kernel's arrays over the blocks of all rows.

        Privacy: ``declared.event``. The bound of the rows at hand is compared with the declared
        one before anything is released.
        """
        bound = self.of_row(oracle.rows.spec)
        return oracle.noisy_sum(
            declared, lambda rows: rows.sum(kernel, (self.size,)), bound, within
        )


def within_slack(squares: Any, more: Any) -> Any:
    """Scale vectors down to the slack ``sqrt(1 - |g|^2)`` of contributions g with a bound of 1.

    ``squares`` has the computed ``|g|^2``, and ``more`` the vectors, along its last axis.

    Privacy: the margins exceed the relative error of a computed sum of up to ``2^22`` squares
    (Higham 2002, section 3.1). A norm that is not a number leaves no slack.
    """
    xp = namespace(more)
    lengths = xp.sqrt(xp.sum(more * more, axis=-1))
    left = xp.where(squares < _FULL, _FULL - squares, xp.zeros_like(lengths))
    room = xp.clip(norm_margin(more.shape[-1]) * xp.sqrt(left), _TINY, 1.0)
    return finite(more * (room / xp.maximum(lengths, room))[..., None])


def slack_of_row(spec: DataSpec, squares: Any, more: Any) -> Any:
    """Return numbers in the slack of rows; for rows in groups their shares of a group's numbers."""
    return within_slack(squares, more) if spec.groups is None else more / spec.groups.rows


def sums_and_slack(spec: DataSpec, sums: Any, more: Any, bound: float = 1.0) -> Any:
    """Join sums of contributions up to ``bound`` with those of ``slack_of_row``.

    The slack of a group is that of its whole contribution.
    """
    xp, unit = namespace(sums), bound * spec.reach()
    if spec.groups is not None:
        most = unit * spec.weight_bound
        squares = xp.sum((sums / most) ** 2, axis=-1)
        more = spec.weight_bound * within_slack(squares, more / spec.weight_bound)
    return xp.concat([sums, unit * more], axis=-1)


def _acute_rounding(bound: float, size: int) -> float:
    """Bound the rounding error in the distance of two groups' sums, half of it for each.

    No inner product of rows' contributions ``u_i``, of ``size`` numbers, is negative.

    Privacy: let p be the shortest point of the convex hull of all ``u_i / |u_i|``. It is a mean of
    ``size`` of them (Caratheodory, as p lies on a face), with weights a, so that
    ``|p|^2 >= sum a^2 >= 1 / size``; and ``<p, u_i> >= |p|^2 |u_i|``, as p is the shortest. Hence
    ``sum |u_i| <= sqrt(size) |sum u_i|``, and a computed sum S is off by at most ``e |S|``, with e
    ``sqrt(size)`` times ``gamma`` of the number of rows. So the inner product of two computed sums
    is at least ``-(2 e + e^2) |S| |S'|``, which moves the distance by less than ``2 e bound``.
    """
    return math.sqrt(size) * _gamma(2 * MOST_ROWS, UNIT) * bound


def diameter(opposition: float, coordinates: int = 2) -> float:
    """Return a bound on the distance of two contributions, in units of the bound B on each.

    ``opposition``, from 0 to 1, says that their inner product is at least ``-opposition B^2``.

    Privacy: ``|u - v|^2 = |u|^2 + |v|^2 - 2 <u, v> <= (2 + 2 opposition) B^2``. Numbers with no
    negative product have one sign and are at most B apart. The root is rounded up.
    """
    if coordinates == 1 and opposition == 0.0:
        return 1.0
    return min(2.0, math.sqrt(2.0 + 2.0 * opposition) * (1.0 + 2.0**-50))


def least_product(signed: float, squared: float) -> float:
    """Return the ``opposition`` of two parts of a contribution, given their shares of ``B^2``.

    The inner product of two contributions is at least ``squared t^2 - signed |t|`` times ``B^2``,
    for a t in [-1, 1]: it has its least value at ``t = signed / (2 squared)``, or at 1.
    """
    if signed >= 2.0 * squared:
        return signed - squared
    return 0.25 * signed * signed / squared


def group_rounding(n_groups: int, adjacency: Adjacency, bound: float, size: int) -> float:
    """Bound the rounding error in the distance of two neighbours' sums over groups.

    ``bound`` limits the contribution of a group to each of the two sums of ``size`` numbers.

    Privacy: the contribution of a group is, by definition, its computed sum, scaled down: a
    function of its own rows. Its norm has a relative error of at most ``(size + 2) u``, so no
    contribution is longer than ``(1 + 16 (size + 16) u) bound``. Contributions are added in
    float64: in batches of at most ``GROUP_BATCH`` groups, with an error of at most ``gamma_m``
    times the sum of lengths for m of them (Higham 2002, section 4.2), and batches by
    ``compensated_sum``. The error enters for both neighbours.
    """
    n = n_groups if adjacency.n_is_public else MOST_ROWS
    length = bound * (1.0 + 16.0 * (size + 16) * UNIT)
    in_batches = _gamma(min(n, GROUP_BATCH) + 2, UNIT)
    across = UNIT + _gamma(n + 2, UNIT) ** 2
    tiny = float(np.finfo(np.float64).tiny) * 4.0 * math.sqrt(size) * (n + 1)
    return length - bound + 2.0 * (in_batches + across) * n * length + tiny


def _on_grid(n: int, bound: float, size: int) -> float:
    """Bound the error of rounding ``size`` numbers to ``grid_step(n, bound)``."""
    return math.sqrt(size) * 2.0**-51 * n * bound


def _check(spec: DataSpec, adjacency: Adjacency, bound: float) -> None:
    """Refuse contributions if their sum could overflow, and dense float32 rows that may shift.

    Predictions then round by the row's place. Groups that replace each other may differ in size,
    and shift all rows after them.
    """
    if spec.dtype == "float32" and not spec.sparse and not adjacency.rows_are_public(spec.unit):
        raise ValueError(
            f"dtype must be 'float64' for dense rows{'' if spec.groups is None else ' in groups'} "
            f"under adjacency {adjacency.value!r}, got 'float32': one row more shifts the rounding "
            "of all others"
        )
    single = spec.dtype == "float32" and not spec.sparse
    limits = np.finfo(np.float32 if single else np.float64)
    terms = RUN_ROWS if single else MOST_ROWS
    if 4.0 * terms * bound > float(limits.max):
        raise ValueError(
            f"the bound on a row's contribution (clip times weight_bound), {bound:g}, must be at "
            f"most {float(limits.max) / (4.0 * terms):.2g} for sums in {limits.dtype}: give a "
            "smaller clip, or rows, targets or weights in other units"
        )


def _gamma(terms: int, unit: float) -> float:
    return terms * unit / (1.0 - terms * unit)
