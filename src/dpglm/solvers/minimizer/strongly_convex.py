"""The strongly convex objective of output and objective perturbation, planned in public."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import check_real
from dpglm.data.maps import view_spec, viewed
from dpglm.data.rows import LARGEST, SMALLEST, DataSpec, Rows
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.counts import CountedRows
from dpglm.oracle.objective import Accuracy, Objective, Prox, Terms, attainable, block_rows
from dpglm.oracle.rounding import MOST_ROWS
from dpglm.privacy.budget import Adjacency, PrivacyBudget
from dpglm.privacy.events import Composed, Event, Gaussian
from dpglm.privacy.releases import AnyRelease
from dpglm.problem import ClippedLoss, ConvexScalarLoss, Problem, Unconstrained
from dpglm.problem.loss import Loss
from dpglm.solvers.base import Method, Plan, Solver, check_same
from dpglm.solvers.parts.defaults import loss_at_zero, slope_unit
from dpglm.solvers.uncertainty import Floats, feasible, frees_intercept, n_penalized

ROOM = 16
"""Factor on the public stand-in up to which rows count in full under add_remove."""
TYPICAL_PASSES = 30
"""Typical number of passes over the rows for a minimiser; it depends on them."""
COUNT_MULTIPLIER = 20.0
"""Relative noise in the number of rows, if that is private: it costs 1/400 of mu squared."""

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen.
_CLIP, INTERCEPT = 0.5, 0.25


@final
@dataclass(frozen=True)
class PlannedObjective:
    """The public part of a sum of clipped losses plus quadratic, penalty and constraint.

    Clipping turns each row's loss into another convex one, with gradients of norm at most C
    everywhere, for any row (Song et al. 2021, Lemma 5.1), and no more curvature. With several
    outputs the clip never binds.
    """

    problem: Problem
    # Facts of the rows of an objective: intercept scaled, one output.
    data: DataSpec
    adjacency: Adjacency
    loss: Loss  # Convex, with a smooth clipped form.
    clip: float
    curvature: float  # Bound on the curvature of a row's clipped loss, row norm included.
    intercept_scale: float
    # The added quadratic's strength in all coefficients, in units of a sum over rows.
    added: float
    # Bound on the number of rows times the share with which each counts (``oracle.counts``), up to
    # which the tolerance can be promised.
    most_rows: int
    linear_norm: float = 0.0

    def check(self, plan: Plan, loss: Loss) -> None:
        """Check that the objective is one for the problem, the rows and the relation of a plan."""
        check_same(self, plan, ["problem", "adjacency"])
        again = plan_objective(
            plan.problem,
            plan.data,
            plan.adjacency,
            loss,
            self.clip * (1.0 + 1e-9),
            self.intercept_scale,
        )
        enough = self.most_rows >= again.most_rows and (
            not plan.adjacency.n_is_public or self.most_rows == again.most_rows
        )
        if not (enough and self.data == again.data):
            raise ValueError(
                f"objective must be for {again.data!r} and {again.most_rows} rows, got "
                f"{self.data!r} and {self.most_rows}"
            )
        if not self.curvature >= again.curvature * (1.0 - 1e-6):
            raise ValueError(
                f"curvature must be at least {again.curvature!r}, got {self.curvature!r}"
            )

    @property
    def _is_quadratic(self) -> bool:
        """Whether penalty and constraint together are one quadratic, which needs no prox."""
        no_set = isinstance(self.problem.constraint, Unconstrained)
        return self.problem.regularizer.is_quadratic and no_set

    @property
    def ridge(self) -> Floats:
        """Coefficients of the quadratic, in units of a sum over rows."""
        ridge = np.full(self.data.n_columns, self.added)
        if self._is_quadratic:
            own = self.data.n_rows * self.problem.regularizer.strong_convexity
            ridge[: n_penalized(self.problem, self.data)] += own
        return ridge

    @property
    def strength(self) -> float:
        """Strong convexity in all coefficients, in units of a sum over rows."""
        return self.added + self.own_strength

    @property
    def own_strength(self) -> float:
        """Strong convexity of the problem's own penalty, in these units."""
        if frees_intercept(self.problem, self.data):
            return 0.0
        return self.data.n_rows * self.problem.regularizer.strong_convexity

    @property
    def curvature_ratio(self) -> float:
        """Bound on one row's curvature over the strength."""
        return self.data.weight_bound * self.curvature / self.strength * (1.0 + 1e-12)

    @property
    def movement(self) -> float:
        """Bound on the movement of the exact minimiser if one row is erased."""
        return self.clip * self.data.weight_bound / self.strength

    @property
    def norm(self) -> float:
        """Bound on the norm of points where the objective is at most that at zero.

        By convexity ``0 >= <g, w> + m |w|^2 / 2`` there, with g the gradient at zero. Losses
        that are never negative give ``<b, w> + m |w|^2 / 2 <= sum_i l_i(0)`` as well.
        """
        rows, strength = self.most_rows * self.data.weight_bound, self.strength
        bound = 2.0 * (rows * self.clip + self.linear_norm) / strength
        if self.loss.nonnegative:
            tilt = self.linear_norm / strength
            at_zero = 2.0 * rows * loss_at_zero(self.loss, self.data) / strength
            bound = min(bound, tilt + math.sqrt(tilt * tilt + at_zero))
        if not frees_intercept(self.problem, self.data):
            bound = min(bound, self.problem.constraint.norm_bound(self.data.n_coefficients))
        # If no loss pulls away from zero, as with targets that are all zero, the ball stays one.
        return max(bound, self.movement) * (1.0 + 1e-9)

    def reach_within(self, radius: float) -> float:
        """Bound the tolerance that is reached within a radius, for every linear term.

        Lemma 5 of ``docs/proofs/objective-perturbation.md``: at a computed minimiser w beyond the
        radius it is this bound times ``|w| / radius``. If the minimiser is within the radius, the
        norm of the linear term is at most the largest gradient of the other terms there.
        """
        rows = self.most_rows * self.data.weight_bound
        longest = rows * self.clip + float(self.ridge.max()) * radius
        accuracy = self._accuracy(longest * (1.0 + 1e-6))
        return 2.0 * attainable(accuracy, self.strength, 2.0 * radius * (1.0 + 1e-6))

    def _accuracy(self, linear_norm: float) -> Accuracy:
        return Accuracy(
            data=self.data,
            n_rows=self.most_rows,
            # Nothing else bounds blocks of a private number of rows.
            block_rows=block_rows(self.most_rows if self.adjacency.n_is_public else MOST_ROWS),
            clip=self.clip,
            curvature=self.curvature,
            ridge=float(self.ridge.max()),
            linear_norm=linear_norm,
            strength=self.strength,
            offset=self.loss.offset_bound,
        )

    def tolerance(self, wanted: float, largest: float, reached: float | None = None) -> float:
        """Return the promised distance to the minimiser: ``wanted``, or as rounding allows.

        Both arguments are relative to ``movement``; ``reached``, which rounding allows, and the
        result are absolute.
        """
        if reached is None:
            reached = attainable(self._accuracy(self.linear_norm), self.strength, self.norm)
        if not reached <= largest * self.movement:
            raise ValueError(
                f"n_rows must be smaller, or strength larger, than {self.data.n_rows!r} and "
                f"{self.added / self.data.n_rows!r}: rounding moves minimisers by up to "
                f"{reached:g}, and one row by {self.movement:g}"
            )
        return max(wanted * self.movement, reached)

    def build(
        self,
        rows: Rows,
        *,
        linear: Floats | None = None,
        positive_class: int | None = None,
        share: float = 1.0,
    ) -> Objective:
        """Put rows, and a linear term if there is one, into the objective. Private.

        Each row's loss is multiplied by ``share``, in (0, 1].
        """
        shape = self.data.coefficient_shape
        terms = Terms(
            ridge=self.ridge,
            linear=np.zeros(shape) if linear is None else linear,
            prox=None if self._is_quadratic else self._prox,
            prox_strength=self.strength - float(self.ridge.min()),
        )
        return Objective(
            viewed(rows, self.intercept_scale, positive_class),
            self.loss,
            FlatClipping(self.clip),
            self.curvature,
            terms,
            share,
        )

    def unscaled(self, w: Floats) -> Floats:
        """Return the coefficients for the original rows."""
        if self.data.intercept == 0.0:
            return w
        w = w.copy()
        w[-1] *= self.intercept_scale
        return w

    @property
    def _prox(self) -> Prox:
        problem, n_rows = self.problem, self.data.n_rows
        size = n_penalized(problem, self.data)
        return lambda w, step: feasible(problem, size, w, step * n_rows)


@dataclass(frozen=True)
class MinimizerSolver(Solver):
    """Settings of output and objective perturbation; their classes document the parameters."""

    strength: float | None = None
    clip: float | None = None
    intercept_scale: float | None = None

    def __post_init__(self) -> None:
        if self.strength is not None:
            check_real("strength", self.strength, least=0.0)
        if self.clip is not None:
            check_real("clip", self.clip, above=0.0)
        if self.intercept_scale is not None:
            check_real("intercept_scale", self.intercept_scale, least=1e-3, most=1e3)

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        return True


@dataclass(frozen=True)
class MinimizerMethod(Method[Floats]):
    """A method with one step, which releases the minimisers of objectives."""

    problem: Problem
    objective: PlannedObjective
    counted: CountedRows | None  # The count of the rows, if it is released.
    original: DataSpec

    n_steps = 1

    def check_objective(self, plan: Plan, loss: Loss, *, is_counted: bool) -> None:
        """Check that objective and count are those of a plan."""
        if self.original != plan.data or (self.counted is not None) != is_counted:
            raise ValueError(
                f"original and counted must be for {plan.data!r}, got {self.original!r}"
            )
        self.objective.check(plan, loss)

    @property
    def counts(self) -> tuple[AnyRelease, ...]:
        """The release of the number of rows, if there is one."""
        return () if self.counted is None else (self.counted.release,)

    def init(self, seed: int) -> Floats:
        return np.zeros(self.original.coefficient_shape)


def plan_objective(
    problem: Problem,
    data: DataSpec,
    adjacency: Adjacency,
    loss: Loss,
    clip: float | None,
    intercept_scale: float | None,
    free_intercept: float = INTERCEPT,
) -> PlannedObjective:
    """Decide everything but the strength, which is 1 until ``with_strength`` sets it.

    A clip that never binds is lowered to the bound of loss and constraint; with several outputs it
    must not bind. Without penalty or constraint on it, the intercept's column is scaled by
    ``free_intercept``: rows are then almost as short as without one.
    """
    if data.dtype != "float64":
        raise ValueError(f"dtype must be 'float64' for a certified minimiser, got {data.dtype!r}")
    if not loss.convex:
        raise ValueError(f"loss must be convex, got {loss!r}")
    if not math.isfinite(loss.offset_bound):
        raise ValueError(
            "offset_bounds must be declared for a certified minimiser, as its rounding grows with "
            "offsets"
        )
    if intercept_scale is None:
        fixed = problem.penalize_intercept or not data.intercept
        intercept_scale = 1.0 if fixed else free_intercept
    if problem.penalize_intercept and intercept_scale != 1.0:
        raise ValueError(
            "intercept_scale must be 1 where penalty and constraint act on the intercept, got "
            f"{intercept_scale!r}"
        )
    is_scalar = isinstance(loss, ConvexScalarLoss)
    seen = view_spec(data, intercept_scale, 1 if is_scalar else data.n_outputs)
    norm = seen.augmented_row_norm
    reach = norm * problem.constraint.norm_bound(seen.n_coefficients)
    if frees_intercept(problem, seen):
        reach = math.inf
    low, high = seen.target_range(loss.target.bounds)
    steepest = loss.slope_bound_on(reach, low, high) * norm * (1.0 + 1e-9)
    if not is_scalar:
        steepest = loss.slope_bound * norm * (1.0 + 1e-9)
        if clip is not None and clip < steepest:
            raise ValueError(
                f"clip must be at least {steepest!r} with several outputs, where clipped "
                f"gradients have no potential, got {clip!r}"
            )
    if clip is None:
        clip = _CLIP * slope_unit(loss, seen) * norm if is_scalar else steepest
    # A clip that never binds would only cost noise.
    clip = min(check_real("clip", clip, least=SMALLEST * norm, most=LARGEST * norm), steepest)
    curvature = loss.smoothness_on(math.inf, low, high)
    if not math.isfinite(curvature) and isinstance(loss, ConvexScalarLoss):
        # The same clip for every row, so that it bounds the curvature as well.
        loss = ClippedLoss(loss, clip / norm)
        curvature = loss.smoothness_on(math.inf, low, high)
    if not math.isfinite(curvature):
        raise ValueError(f"loss must be smooth where its slope is clipped, got {loss!r}")
    planned = PlannedObjective(
        problem=problem,
        data=seen,
        adjacency=adjacency,
        loss=loss,
        clip=clip,
        # A loss without curvature would make every ratio of curvatures zero.
        curvature=max(curvature, 1e-9 * clip / norm) * norm**2 * (1.0 + 1e-9),
        intercept_scale=intercept_scale,
        added=1.0,
        most_rows=data.n_rows if adjacency.n_is_public else ROOM * data.n_rows,
    )
    # Penalties that do not fit the parameter raise here and not in the run.
    zero = np.zeros(seen.coefficient_shape)
    planned._prox(zero, 1.0)
    return planned


def with_strength(
    planned: PlannedObjective, strength: float | None, wanted: float
) -> PlannedObjective:
    """Set the added quadratic: as given, or ``wanted`` less the problem's penalty.

    ``strength`` is relative to the mean loss, ``wanted`` to the sum.
    """
    n_rows = planned.data.n_rows
    own = planned.own_strength
    added = max(wanted - own, 0.0) if strength is None else n_rows * strength
    if not added + own > 0.0:
        raise ValueError(
            "strength must be above 0 unless the penalty is strongly convex in all coefficients, "
            f"the intercept included, got {strength!r}"
        )
    return dataclasses.replace(planned, added=added)


def with_count(minimizers: Event, noise_multiplier: float, adjacency: Adjacency) -> Event:
    """Return the event of minimisers and, if it is private, of the number of rows before them."""
    if adjacency.n_is_public:
        return minimizers
    return Composed((Gaussian(COUNT_MULTIPLIER * noise_multiplier), minimizers))


def counted_rows(
    planned: PlannedObjective, noise_multiplier: float
) -> tuple[PlannedObjective, CountedRows | None]:
    """Plan to count the rows first, with little of the budget, if their number is private."""
    if planned.adjacency.n_is_public:
        return planned, None
    counted = CountedRows(ROOM * planned.data.n_rows, COUNT_MULTIPLIER * noise_multiplier)
    return dataclasses.replace(planned, most_rows=counted.most), counted


# The strength of the quadratic of objective perturbation with L2 noise.

PURE_INTERCEPT = 0.5
"""Factor on the intercept column: above 1/4, as strengths are larger and classes may be rare."""
REACHED = 0.001
"""Largest acceptable rounding, relative to the effect of a row."""

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen: the
# share of epsilon that the curvature takes, and the most of it at any epsilon.
_CURVATURE_SHARE, _LARGEST_RATIO = 0.12, 10.0
# Acceptable noise in the prediction of a row, in units of slope over curvature, for rows alike in
# all directions.
_NOISE = 0.08
# If rounding is too large the strength grows by this factor, up to this part of the curvature of
# rows alike in all directions.
_GROWTH, _LARGEST_PART = 2.0, 0.05


def wanted_strengths(
    planned: PlannedObjective, data: DataSpec, epsilon: float, given: float | None
) -> Iterator[float]:
    """List strengths to try, relative to the sum of losses, until rounding is small enough.

    ``epsilon`` is that of one objective. A given strength is the only one.
    """
    if given is not None:
        yield 0.0
        return
    share = min(_CURVATURE_SHARE * epsilon, math.log1p(_LARGEST_RATIO))
    of_row = data.weight_bound * planned.curvature
    wanted = max(of_row / math.expm1(share), _strength_for_noise(planned, data, epsilon))
    yield wanted
    while wanted * _GROWTH <= _LARGEST_PART * of_row * data.n_rows / data.n_columns:
        wanted *= _GROWTH
        yield wanted


def _strength_for_noise(planned: PlannedObjective, data: DataSpec, epsilon: float) -> float:
    """Return the strength, relative to the sum, for which noise in predictions is acceptable.

    A vector of norm ``s d`` in a random direction moves predictions of rows of norm R by
    ``s R sqrt(d) / (strength + n q / (2 d))``: rows in all directions alike have the curvature
    ``n q / d`` in each, and half of them are clipped. Real rows lie in fewer directions, with more
    curvature.
    """
    norm, columns = planned.data.augmented_row_norm, data.n_columns
    scale = planned.adjacency.sum_sensitivity(planned.clip * data.weight_bound) / epsilon
    acceptable = _NOISE * slope_unit(planned.loss, planned.data) * norm / planned.curvature
    wanted = scale * math.sqrt(columns) / acceptable
    return wanted - row_curvature(planned, data)


def row_curvature(planned: PlannedObjective, data: DataSpec) -> float:
    """Return the curvature of the sum, for rows alike in all directions, half clipped."""
    return 0.5 * data.n_rows * planned.curvature / data.n_columns
