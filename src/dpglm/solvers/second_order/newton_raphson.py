"""Newton-Raphson on released scores and Hessians: the maximum likelihood estimate, with noise."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradient_sums.scores import (
    Scores,
    hessian_release,
    score_moment_release,
    score_release,
)
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.moments import noisy_second_moments, second_moment_release
from dpglm.oracle.row_sums.target_means import noisy_target_mean, target_mean_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem, Unconstrained
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.base import Method, Plan, Solver, StepInfo
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.planning import calibrated
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    basis_from_moments,
    check_data,
    constant_column,
    largest_basis_scale,
)
from dpglm.solvers.second_order.quadratic import minimize_quadratic
from dpglm.solvers.uncertainty import Covariance, Uncertainty

__all__ = ["NewtonRaphson", "NewtonRaphsonMethod"]

# Chosen on generated rows by experiments/newton_raphson.py; docs/solvers/newton_raphson.md.
_SHARES = {"targets": 0.03, "moments": 0.1, "approach": 0.16, "hessians": 0.2, "final": 0.51}
_SCORE_MOMENTS = 0.15
_APPROACH, _FINAL = 3, 4  # Gradients with each of the first two matrices, and with the last one.
# Noise that may be added to what sampling makes of a score, in variance, by rows that keep their
# weights, and by slopes that are not cut.
_NEGLIGIBLE = 0.02
_LEAST_LENGTH = 1.5  # Of clip^2, in units of the mean squared length of rows.
_LEAST_SLOPE = 8.0  # In units of the slopes' standard deviation at the start.
_LEAST_CURVATURE, _HESSIAN_NOISE = 3.0, 0.1
# How far a step may change scores, root mean square: curvature hardly changes over so little.
_LONGEST_STEP = 1.0
# Noise in Hessians relative to them above which there is no interval, and no good step.
_MOST_HESSIAN_NOISE = 1.5
_FARTHEST_SCORE = 30.0


@final
@dataclass(frozen=True)
class NewtonRaphson(Solver):
    """Maximum likelihood by Newton steps with released scores and Hessians.

    The mean of the targets gives a start, second moments of rows scaled to one length give a
    basis in which rows look alike in every direction. There each row's score is weighted by the
    row's length alone. Three steps take the curvature from the start, three more a first released
    Hessian, and the last ones, whose scores are pooled, a second: they serve the estimate and its
    covariance. For smooth convex losses with one output, but not for squared errors.

    Parameters
    ----------
    n_steps : int, default=10
        Number of gradients, at least 7: the first six approach, the others are pooled.
    inference : {"model", "robust"}, optional
        Also return the covariance of the estimate, under a right model or under any.

    Notes
    -----
    As rows or budget grow, every row has weight 1, no slope is cut, noise vanishes, and the
    estimate is that of (penalised) maximum likelihood, to second order in the distance of the
    last steps from it.

    With ``g_k`` the m pooled scores, at ``v_k``, and H the last Hessian, the estimate is the
    minimiser of ``<v, H v> / 2 - <mean(H v_k - g_k), v>`` (plus the penalty), so without a penalty
    ``mean(v_k - H^-1 g_k)``: the noise of the ``v_k`` cancels to first order, and that of the
    ``g_k`` is what one release with their whole budget would have. With the score's covariance J
    (H under a right model without a dispersion, the released second moments of scores else), the
    standard deviations s of the noise in the pooled score and t in the diagonal of H, and
    ``u = mean(v_k) - v`` the way that H has moved the estimate, its covariance is
    ``H^-1 (J / n + s^2 I + t^2 (|u|^2 I + u u^T) / 2) H^-1``.

    Privacy: Gaussian releases of two sums of targets and weights, of second moments, of scores,
    of two Hessians and, for the robust covariance or a loss with a dispersion, of second moments
    of scores; accounted exactly.

    References
    ----------
    Avella-Medina, Bradshaw and Loh, "Differentially private inference via noisy optimization",
    Annals of Statistics 51 (2023), section 4: noisy Newton steps and their sandwich covariance.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = NewtonRaphson().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.quantity, one.count) for one in plan.method.releases][2:]
    [('score sum', 6), ('score sum', 4), ('Hessian sum', 2)]
    """

    n_steps: int = 2 * _APPROACH + _FINAL
    inference: Covariance | None = None

    def with_inference(self, covariance: Covariance) -> NewtonRaphson:
        return dataclasses.replace(self, inference=covariance)

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        loss = problem.loss
        low, high = data.target_range(loss.target.bounds)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(
                "target_low and target_high must be finite for the solver NewtonRaphson, got "
                f"{low!r} and {high!r}"
            )
        _check_loss(loss, data)
        check_data(data, adjacency)
        ...
