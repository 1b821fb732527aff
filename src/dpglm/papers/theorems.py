"""Settings of noisy gradient descent that the papers share."""

from __future__ import annotations

import abc
import dataclasses
import math
from dataclasses import dataclass
from typing import final

from dpglm.data.rows import DataSpec
from dpglm.problem import Problem, Unconstrained
from dpglm.solvers.base import Facts, Plan, Solver, Theorem
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.parts.schedules import Constant, Output
from dpglm.solvers.uncertainty import frees_intercept

# The constants of the papers' theorems, from public facts, and their conditions.


@final
@dataclass(frozen=True)
class Constants:
    """Constants of the mean row loss as a function of the parameter."""

    radius: float  # B, the largest norm within the constraint; inf without one.
    # G, the largest norm of a row's gradient there, or the clip if that is smaller.
    lipschitz: float
    smoothness: float  # H, a Lipschitz constant of the mean gradient; inf if there is none.
    # Standard deviation of the noise in each coordinate of a mean gradient if one were released;
    # that of each of T steps is sqrt(T) times this.
    noise_of_one_step: float


def constants(
    facts: Facts,
    clip: float | None = None,
    *,
    convex: bool = False,
    bounded: bool | None = None,
    smooth: bool = False,
) -> Constants:
    """Find the constants of a problem, if the whole budget goes to full-batch gradients.

    A clip makes a convex loss with one output Lipschitz, and no less smooth (Song et al. 2021,
    Lemma 5.1). Raises ValueError if row gradients are not bounded, or a condition does not hold:
    the loss must be ``convex``, or ``smooth`` and non-negative; and the constraint must be
    ``bounded`` and hold all coefficients, or with False there must be none.

    Full-batch steps are accounted exactly: T of them are mu-GDP if the noise multiplier is
    ``sqrt(T) / mu``. So their noise is known, up to rounding, before calibration.
    """
    problem, data = facts.problem, facts.data
    loss, norm = problem.loss, data.augmented_row_norm
    low, high = data.target_range(loss.target.bounds)
    radius = problem.constraint.norm_bound(data.n_coefficients)
    if convex and not loss.convex:
        raise ValueError(f"loss must be convex, got {loss!r}")
    if bounded is False and problem.constraint != Unconstrained():
        raise ValueError(f"constraint must be Unconstrained, got {problem.constraint!r}")
    if bounded and not math.isfinite(radius):
        raise ValueError(
            f"constraint must be bounded, such as L2Ball(radius), got {problem.constraint!r}"
        )
    if bounded and frees_intercept(problem, data):
        raise ValueError(
            "penalize_intercept must be True for the constraint to hold the intercept, too "
            f"(or there must be no intercept), got {problem.penalize_intercept!r}"
        )
    lipschitz = loss.slope_bound_on(radius * norm, low, high) * norm
    if clip is not None:
        lipschitz = min(lipschitz, clip)
    if not math.isfinite(lipschitz):
        raise ValueError(
            f"loss must have bounded slopes within the constraint, got {loss!r} within "
            f"{problem.constraint!r}"
        )
    smoothness = loss.smoothness_on(math.inf, low, high) * norm**2 * data.weight_bound
    if smooth and not (math.isfinite(smoothness) and loss.nonnegative):
        raise ValueError(f"loss must be smooth and non-negative, got {loss!r}")
    sensitivity = facts.adjacency.sum_sensitivity(lipschitz * data.unit_weight)
    return Constants(
        radius=radius,
        lipschitz=lipschitz,
        smoothness=smoothness,
        noise_of_one_step=sensitivity / (facts.budget.gdp_mu() * data.n_rows),
    )


def loss_at_zero(problem: Problem, data: DataSpec) -> float:
    """Bound the mean loss at the parameter zero, from the public range of the targets."""
    found = defaults.loss_at_zero(problem.loss, data) * data.weight_bound
    if not math.isfinite(found):
        low, high = data.target_range(problem.loss.target.bounds)
        raise ValueError(f"target_low and target_high must be finite, got {low!r} and {high!r}")
    return found


def steps_to_stationary(facts: Facts, known: Constants, directions: int) -> float:
    """Return the T that makes both terms of the bound of ``Wang2017NonConvex`` equal."""
    smoothness = known.smoothness + facts.problem.regularizer.smoothness
    drop = 2.0 * smoothness * loss_at_zero(facts.problem, facts.data)
    return math.sqrt(drop / directions) / known.noise_of_one_step


def needed_steps(reach: float, known: Constants, directions: int) -> float:
    """Return the least T for which the bound of ``best_step_size`` is nearly the best of all T."""
    noise = known.noise_of_one_step * math.sqrt(directions)
    return min((known.lipschitz / noise) ** 2, known.smoothness * reach / noise)


def best_step_size(reach: float, known: Constants, directions: int, n_steps: int) -> float:
    """Choose the step size by the error bound for convex losses.

    ``reach`` is the distance B from zero to the minimiser, or a guess, and noise counts in r
    directions. With exact gradients g and independent noise of variance ``T s^2`` in each, the
    average w of the iterates 0 to T - 1 has, for every step size eta,

        E F(w) - F(w*) <= B^2 / (2 eta T) + eta (G^2 + r T s^2) / 2,

    and for ``eta <= 1/H`` the same without ``G^2`` if the gradient vanishes at w*. Proof:
    ``|w_{t+1} - w*|^2``, projected or not, is in expectation at most
    ``|w_t - w*|^2 - 2 eta <g, w_t - w*> + eta^2 |g|^2 + eta^2 r T s^2``. Convexity gives
    ``<g, w_t - w*> >= F(w_t) - F(w*)``, with ``|g|^2 / (2 H)`` more if F is smooth, which pays
    for ``eta^2 |g|^2``. Add up over t. (At a w* held back by a constraint the gradient does
    not vanish; the second bound then holds for iterates 1 to T with twice its noise term.) Large
    T make either bound ``B s sqrt(r)``: the first up to sqrt(2) from ``G^2 / (r s^2)`` on, the
    second from ``H B / (s sqrt(r))`` on.
    """
    total = n_steps * (known.noise_of_one_step * math.sqrt(directions)) ** 2
    step_size = reach / math.sqrt(n_steps * (known.lipschitz**2 + total))
    if math.isfinite(known.smoothness):
        smooth = min(1.0 / known.smoothness, reach / math.sqrt(n_steps * total))
        with_slopes = reach**2 / (step_size * n_steps)
        without = reach**2 / (2.0 * smooth * n_steps) + smooth * total / 2.0
        step_size = smooth if without < with_slopes else step_size
    return step_size


def check_penalty(problem: Problem) -> None:
    """Raise ValueError unless the penalty is quadratic, or there is none."""
    if not math.isfinite(problem.regularizer.smoothness):
        raise ValueError(f"regularizer must be NoPenalty or L2, got {problem.regularizer!r}")


MOST_STEPS = 2000
"""Largest default number of steps; a plan reports if its theorem needs more."""
_COUNTED = 10**15


class TheoremSettings(Solver):
    """A solver with the settings of a theorem. Privacy does not rest on the theorem."""

    @property
    @abc.abstractmethod
    def theorem(self) -> str:
        """Name of the theorem, as in ``Theorem``."""

    def __post_init__(self) -> None:
        check_given(self)

    @abc.abstractmethod
    def settled(self, facts: Facts) -> tuple[Solver, float]:
        """Return the solver with its settings, and the number of steps that the bound needs.

        Raises ValueError if a condition of the theorem does not hold.
        """

    @final
    def decide(self, facts: Facts) -> Plan:
        solver, needed = self.settled(facts)
        steps = max(1, math.ceil(min(needed, _COUNTED)))
        plan = solver.decide(facts)
        return dataclasses.replace(plan, theorem=Theorem(self.theorem, steps))


def plain_descent(
    problem: Problem, known: Constants, n_steps: int, step_size: float, output: Output
) -> NoisyGD:
    """Return full-batch descent with constant steps, no momentum, and a clip that never binds."""
    check_penalty(problem)
    return NoisyGD(
        n_steps=n_steps,
        step_size=step_size,
        schedule=Constant(),
        clip=known.lipschitz,
        momentum=0.0,
        output=output,
    )


def whole_steps(needed: float) -> int:
    """Round a number of steps up, to at least 1 and at most ``MOST_STEPS``."""
    return math.ceil(max(1.0, min(needed, MOST_STEPS)))
