"""The bounded sum of clipped row gradients, and its release."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array, finite, weighted
from dpglm.data.compiled.kernels import SlopeRule
from dpglm.data.memory import BLOCK_ROWS, RUN_ROWS, SPARSE_BLOCK_ROWS
from dpglm.data.rows import AnyArrays, Block, DataSpec, Floats, Rows
from dpglm.data.sampled import grid_step, sampled_rows
from dpglm.oracle.clipping import AutomaticClipping, BalancedClipping, Clipping, FlatClipping
from dpglm.oracle.rounding import MOST_ROWS, UNIT, RowSum
from dpglm.privacy.budget import Adjacency, Unit
from dpglm.privacy.noise.additive import LocalGaussianNoise, Messages
from dpglm.privacy.releases import (
    AnyRelease,
    Bounded,
    Curator,
    Mechanism,
    Release,
    SumMechanism,
    SumRelease,
)
from dpglm.problem import Huber, Logistic, Softmax, Squared, SquaredHinge
from dpglm.problem.loss import Loss

# Which losses and clippings the compiled sums know.


def compiled_rule(loss: Loss, clipping: Clipping) -> SlopeRule | None:
    """Return the compiled code's description of a clipped gradient; None where it has none.

    Privacy: the compiled code clips as ``Clipping.scale`` does, in float64, and drops slopes that
    are not finite, so its contributions have the same bound.
    """
    if type(loss) not in _LOSSES or type(clipping) not in _CLIPPINGS:
        return None
    if type(clipping) is BalancedClipping and type(loss) is not Logistic:
        return None
    code, parameter = _LOSSES[type(loss)](loss)
    kind, stability = _CLIPPINGS[type(clipping)](clipping)
    return SlopeRule(code, kind, parameter, clipping.bound, stability)


# The numbers are those of the enumerations in data/compiled/_kernels.c.
_LOSSES: Mapping[type[Loss], Callable[[Any], tuple[int, float]]] = MappingProxyType(
    {
        Logistic: lambda loss: (0, 0.0),
        Squared: lambda loss: (1, 0.0),
        Huber: lambda loss: (2, loss.threshold),
        SquaredHinge: lambda loss: (3, 0.0),
        Softmax: lambda loss: (4, 0.0),
    }
)
_CLIPPINGS: Mapping[type[Clipping], Callable[[Any], tuple[int, float]]] = MappingProxyType(
    {
        FlatClipping: lambda clipping: (0, 0.0),
        AutomaticClipping: lambda clipping: (1, clipping.stability * clipping.bound),
        BalancedClipping: lambda clipping: (2, 0.0),
    }
)


V = TypeVar("V")
R = TypeVar("R")


def clipped_gradient_sum(rows: Rows, loss: Loss, clipping: Clipping, w: Array) -> Array:
    """Sum of the rows' clipped gradients at ``w``. Private.

    A row's gradient is its slope times the row, so its norm is the product of two norms and
    clipping rescales the slope: no row gradient is ever formed. Weights multiply clipped
    gradients.

    Privacy: each row contributes at most ``clipping.bound * spec.weight_bound`` in L2 norm,
    whatever its values and whatever ``w`` is; a slope that overflowed counts as zero.
    """
    rule = compiled_rule(loss, clipping)

    def block_sum(block: Block) -> Array:
        if rule is not None:
            total = block.bounded_sum(rule, w, block.targets, block.norms)
            if total is not None:
                return total
        # Overflow is harmless: its slope is zeroed here, or its factor below is.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = clipped_slopes(block, loss, clipping, w)
            slopes = weighted(slopes, block.weights)
        return block.weighted_sum(slopes)

    return rows.sum(AnyArrays(block_sum, apart=True))


def clipped_slopes(block: Block, loss: Loss, clipping: Clipping, w: Array) -> Floats:
    """Return slopes scaled so that no gradient is longer than the clip bound; no weights."""
    slopes = finite(loss.slope(block.predict(w), block.targets))
    return clipping.scale(slopes, block.norms)


@final
@dataclass(frozen=True, eq=False)
class Oracle:
    """Private rows and their loss, which a solver can query only through a curator.

    ``known_loss`` is None where no model is fitted. ``kept`` caches private values of a method for
    the run, such as mapped rows. The state of a method holds released values only.
    """

    rows: Rows
    known_loss: Loss | None
    curator: Curator
    kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def loss(self) -> Loss:
        """The loss of the model that is fitted."""
        assert self.known_loss is not None
        return self.known_loss

    @property
    def places_are_fixed(self) -> bool:
        """Whether no other row's place changes where neighbours differ."""
        return self.curator.adjacency.rows_are_public(self.rows.unit)

    def part(self, indices: NDArray[np.intp]) -> Oracle:
        """Return an oracle of some rows, or groups, alone, chosen without looking at any.

        Privacy: its releases go through the same curator; all other rows contribute nothing.
        """
        return Oracle(self.rows.part(indices), self.known_loss, self.curator)

    def noisy_sum(
        self,
        declared: SumRelease,
        kernel: Callable[[Rows], Array],
        bound: float,
        within: float = 1.0,
    ) -> Array:
        """Release a sum over all rows, or over a fresh Poisson sample.

        ``kernel`` maps the rows that entered to their sum, to which each row contributes at most
        ``bound`` in L2 norm, weight included. It is one sum of those rows, which hold each group's
        part of it to ``within`` times the bound that was declared, where the rows are in groups.

        Privacy: ``declared.event``. ``within`` is public; the sum is released in units of it.
        """
        unit = self.rows.unit
        if unit is Unit.ROW:
            total = kernel(self.entered(declared, bound).bounded(bound))
            return self.curator.release(declared, Bounded(total, bound, declared.sampling_rate))
        bound = declared.contribution_bound
        rows = self.entered(declared, within * bound).bounded(within * bound)
        value = Bounded(kernel(rows) / within, bound, declared.sampling_rate, unit)
        return within * self.curator.release(declared, value)

    def noisy_mean(
        self,
        declared: SumRelease,
        kernel: Callable[[Rows], Array],
        bound: float,
        within: float = 1.0,
    ) -> Array:
        """Release the sum that ``noisy_sum`` does, over the public expected number of its rows.

        Privacy: ``declared.event``. The divisor is the expected batch size, never the realised
        one; an empty batch is a batch like any other.
        """
        return self.noisy_sum(declared, kernel, bound, within) / (
            declared.sampling_rate * self.rows.spec.n_rows
        )

    def entered(self, declared: AnyRelease, bound: float) -> Rows:
        """Return the rows that enter a release: all, or a fresh Poisson sample. Private.

        Sums over a sample are exact for contributions up to ``bound`` (``dpglm.data.sampled``).
        """
        rate = declared.sampling_rate
        if rate == 1.0:
            return self.rows
        entered = self.curator.sample(self.rows.n_units, rate)
        n = self.rows.spec.n_units if self.curator.adjacency.n_is_public else MOST_ROWS
        return sampled_rows(self.rows, np.flatnonzero(entered), rate, grid_step(n, bound))

    def noisy_gradient(self, declared: SumRelease, w: Array, clipping: Clipping) -> Array:
        """Release the mean clipped gradient at the public ``w`` (``gradient_release``)."""

        def kernel(rows: Rows) -> Array:
            return clipped_gradient_sum(rows, self.loss, clipping, w)

        return self.noisy_mean(declared, kernel, clipping.bound * self.rows.spec.weight_bound)


def gradient_release(
    data: DataSpec,
    adjacency: Adjacency,
    clipping: Clipping,
    mechanism: Mechanism[V, R],
    *,
    quantity: str = "clipped gradient sum",
    count: int = 1,
    sampling_rate: float = 1.0,
    extra_rounding: float = 0.0,
) -> Release[V, R]:
    """Declare the release of clipped gradient sums, as ``Oracle.noisy_gradient`` makes it."""
    sums = RowSum(quantity, data.n_coefficients, clipping.bound)
    return sums.release(data, adjacency, mechanism, count, sampling_rate, extra_rounding)


# Disjoint parts of the rows, each with an oracle of its own.


def part_oracles(oracle: Oracle, parts: Sequence[NDArray[np.intp]]) -> tuple[Oracle, ...]:
    """Return one oracle for each of some disjoint, non-empty parts of the rows.

    The row indices of each part must be public: they may not depend on any row's values.

    Privacy: all parts together release ``Parallel``, see ``Curator.parts``. A row in two parts
    would be charged once and used twice, so ``ValueError`` is raised before anything is released.
    """
    if (np.bincount(np.concatenate(parts), minlength=oracle.rows.n_units) > 1).any():
        raise ValueError("parts must be disjoint, but some row is in more than one place")
    curators = oracle.curator.parts(len(parts))
    return tuple(
        Oracle(oracle.rows.part(indices), oracle.known_loss, curator)
        for indices, curator in zip(parts, curators, strict=True)
    )


# The bounded sum of differences of row gradients between two public points, and its release.


def clipped_difference_sum(
    rows: Rows,
    loss: Loss,
    clipping: Clipping,
    bound: float,
    w: Array,
    anchor: Array,
) -> Array:
    """Sum over rows of the clipped gradient at ``w`` minus that at ``anchor``, clipped. Private.

    ``clipping`` bounds each of the two gradients of a row, ``bound`` their difference. Both
    gradients are multiples of the row (for K outputs: outer products with it), and so is their
    difference: all three clips rescale slopes.

    Privacy: each row contributes at most ``bound * spec.weight_bound`` in L2 norm, whatever its
    values and whatever ``w`` and ``anchor`` are: the last clip acts on the computed difference, so
    nothing rests on the smoothness of the loss or on the rounding of slopes. Slopes that
    overflowed count as zero.
    """
    difference_clipping = FlatClipping(bound)

    def block_sum(block: Block) -> Array:
        # Overflow is harmless: infinite values are zeroed before they are clipped.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = clipped_slopes(block, loss, clipping, w)
            slopes -= clipped_slopes(block, loss, clipping, anchor)
            slopes = difference_clipping.scale(finite(slopes), block.norms)
            slopes = weighted(slopes, block.weights)
        return block.weighted_sum(slopes)

    return rows.sum(AnyArrays(block_sum))


def noisy_difference(
    oracle: Oracle, declared: SumRelease, w: Array, anchor: Array, clipping: Clipping, bound: float
) -> Array:
    """Release the mean of ``clipped_difference_sum`` at two public parameters.

    Declared by ``gradient_release`` for a clipping at this ``bound``; the divisor is the public
    expected number of rows.

    Privacy: noise is proportional to ``bound``, so the event does not depend on it; where it is a
    function of earlier releases (such as the distance of the two parameters), composition is
    adaptive, which exact Gaussian accounting and privacy loss distributions allow.
    """

    def kernel(rows: Rows) -> Array:
        return clipped_difference_sum(rows, oracle.loss, clipping, bound, w, anchor)

    return oracle.noisy_mean(declared, kernel, bound * oracle.rows.spec.weight_bound)


# The sum of row gradients to which every row has added noise of its own.

LocalRelease = Release[Messages, Array]


def local_gradient_release(
    data: DataSpec, adjacency: Adjacency, clipping: Clipping, noise: LocalGaussianNoise, count: int
) -> LocalRelease:
    """Declare gradient sums over ``count`` blocks of rows, each row with its own noise.

    ``noise.most_senders`` is the size of the largest block.
    """
    if data.groups is not None:
        raise ValueError(
            "groups must be None for 'local_sgd', where every row is protected by its own noise"
        )
    return gradient_release(
        dataclasses.replace(data, n_rows=noise.most_senders),
        adjacency,
        clipping,
        noise,
        quantity="row gradient with noise of its own",
        count=count,
    )


def locally_noised_gradient(
    oracle: Oracle, declared: LocalRelease, w: Array, clipping: Clipping
) -> Array:
    """Release the mean of one block's clipped gradients, each with Gaussian noise of its own.

    Privacy: ``declared.event`` for each row, also against whoever collects the messages. Here one
    noise vector with the law of the sum of their noises is drawn. Without a trusted aggregator,
    each device has to draw its own.
    """
    spec = oracle.rows.spec
    total = clipped_gradient_sum(oracle.rows, oracle.loss, clipping, w)
    messages = Bounded((total, spec.n_rows), clipping.bound * spec.weight_bound)
    return oracle.curator.release(declared, messages) / spec.n_rows


# Bounded sums of losses, and of their differences between two parameters.


RowLoss: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
"""Losses of rows, as a function of predictions of shape (n,) or (n, K) and of targets."""


def clipped_loss_sums(
    rows: Rows,
    loss: RowLoss,
    candidates: Sequence[Array],
    bounds: Sequence[float],
) -> Array:
    """Sum the rows' losses for each candidate, clipped to [0, bound] for its bound. Private.

    Privacy: each row contributes between 0 and the bound times its weight, whatever its values and
    whatever the candidates are; a loss that overflowed, to infinity or to NaN, counts as the
    bound.
    """

    def block_sums(block: Block) -> Array:
        sums = np.empty(len(candidates))
        for j, (w, bound) in enumerate(zip(candidates, bounds, strict=True)):
            sums[j] = _weighted_sum(_clipped(_losses(loss, block, w), 0.0, bound), block)
        return sums

    return rows.sum(block_sums, (len(candidates),))


def loss_rounding(spec: DataSpec, bound: float) -> float:
    """Bound the rounding error in the distance of two neighbours' sums; n is public.

    ``bound`` is the largest exact contribution of a row, weight included.

    Privacy: clipping is exact and the weight rounds once. Neighbours are cut into the same blocks
    and differ in one of them. The sum of its m rows in float64 is within ``gamma_m`` times the sum
    of the terms, in any order (Higham 2002, section 4.2). The blocks are added by ``Rows.sum``; its
    error enters for both.
    """
    rows_of_block = SPARSE_BLOCK_ROWS if spec.sparse else BLOCK_ROWS
    affected = min(rows_of_block, spec.n_rows)
    blocks = spec.n_rows // min(RUN_ROWS, SPARSE_BLOCK_ROWS) + 1
    within = 2.0 * affected * UNIT * affected
    across = (UNIT + (2.0 * blocks * UNIT) ** 2) * spec.n_rows
    return 2.0 * (within + across + UNIT) * bound * (1.0 + 4.0 * UNIT)


def noisy_loss_release(
    spec: DataSpec, adjacency: Adjacency, bound: float, mechanism: SumMechanism
) -> SumRelease:
    """Declare the release that ``noisy_loss`` makes.

    Privacy: less half the bound, a row contributes at most half the bound (times its weight) in
    absolute value.
    """
    half = 0.5 * bound * spec.weight_bound
    return Release(
        "noisy score",
        mechanism,
        adjacency,
        half,
        rounding=loss_rounding(spec, 2.0 * half),
        magnitude=2.0 * spec.n_rows * half,
    )


def noisy_loss(
    oracle: Oracle, declared: SumRelease, w: Array, loss: RowLoss, bound: float
) -> float:
    """Release the sum over rows of the clipped loss less half its bound; lower is better.

    The loss must be at least 0, and the number of rows public.
    """

    def block_sum(block: Block) -> Array:
        centred = _clipped(_losses(loss, block, w), 0.0, bound) - 0.5 * bound
        return np.array([_weighted_sum(centred, block)])

    half = 0.5 * bound * oracle.rows.spec.weight_bound
    return float(oracle.noisy_sum(declared, lambda rows: rows.sum(block_sum, (1,)), half)[0])


def clipped_loss_difference_sum(
    rows: Rows, loss: RowLoss, bound: float, w: Array, anchor: Array
) -> Array:
    """Sum over rows of the loss at ``w`` minus that at ``anchor``, clipped; shape (1,). Private.

    Privacy: each row contributes at most ``bound * spec.weight_bound`` in absolute value, whatever
    its values and whatever ``w`` and ``anchor`` are: the clip acts on the computed difference, and
    one that is not a number counts as the bound.
    """

    def block_sum(block: Block) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            differences = _losses(loss, block, w) - _losses(loss, block, anchor)
        return np.array([_weighted_sum(_clipped(differences, -bound, bound), block)])

    return rows.sum(block_sum, (1,))


def loss_difference_sum(bound: float) -> RowSum:
    """Sum of loss differences, each clipped to [-bound, bound].

    Privacy: values are added in float64, so ``sum_rounding`` holds for their sum, whatever the
    type of the rows.
    """
    return RowSum("clipped loss difference sum", 1, bound)


def noisy_loss_difference(
    oracle: Oracle, declared: SumRelease, w: Array, anchor: Array, bound: float
) -> float:
    """Release the sum of clipped loss differences; negative where ``w`` seems better."""

    def kernel(rows: Rows) -> Array:
        return clipped_loss_difference_sum(rows, oracle.loss.value, bound, w, anchor)

    return float(oracle.noisy_sum(declared, kernel, bound * oracle.rows.spec.weight_bound)[0])


def _losses(loss: RowLoss, block: Block, w: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return loss(block.predict(w), block.targets).astype(np.float64, copy=False)


def _clipped(values: Array, low: float, high: float) -> Array:
    """Clip values; NaN, with which a comparison is false, counts as the upper bound."""
    return np.where(values <= high, np.maximum(values, low), high)


def _weighted_sum(values: Array, block: Block) -> Any:
    return (values if block.weights is None else values * block.weights).sum()
