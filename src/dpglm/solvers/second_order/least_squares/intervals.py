"""Least squares without shrinkage, and its covariance, from released sums. Post-processing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.row_sums.score_sums import ScoreSums
from dpglm.oracle.row_sums.weighted_moments import View
from dpglm.solvers.parts.algebra import eigen, inverted
from dpglm.solvers.second_order.least_squares.equations import noise_in_equations
from dpglm.solvers.second_order.preconditioner import Basis
from dpglm.solvers.uncertainty import Covariance, Curvature, Doubt, Uncertainty

__all__ = ["intervals"]


def intervals(
    view: View,
    sums: ScoreSums,
    basis: Basis,
    weight: float,
    data: DataSpec,
    penalty: NDArray[np.float64],
    kind: Covariance,
) -> Uncertainty:
    """One Newton step from the fit of a view, and its covariance by the delta method.

    ``penalty`` is the diagonal of the L2 penalty's Hessian, times the number of rows; ``weight``
    the weight of all rows.

    The residual of the noisy equations at the exact solution is ``e - E q``, e the noise in the
    score, E that in the matrix and q the step. Under a right model the covariance of scores is a
    multiple of the matrix, of which the squared lengths of scores tell the trace.
    """
    constant = np.zeros(data.n_columns)
    if view.level > 0.0:
        constant[-1] = view.center / data.intercept
    pull = basis.vectors.T @ (penalty * (constant + basis.vectors @ view.v))
    bend = basis.vectors.T @ (penalty[:, np.newaxis] * basis.vectors)
    values, directions = eigen(sums.matrix + bend)
    size = len(values)
    least = 0.5 * sums.matrix_noise * math.sqrt(size)
    inverse = (directions / np.maximum(values, least)) @ directions.T
    step = inverse @ (sums.vector - pull)
    freedom = max(data.n_rows - size, 1)
    relative, dispersion = 2.0 / freedom, None
    if sums.products is None:
        trace = max(float(np.trace(sums.matrix)), least)
        explained = max(float(step @ sums.matrix @ step), 0.0) / weight
        in_variance = sums.squares_noise / trace
        variance = max(sums.squares / trace - explained, in_variance) * data.n_rows / freedom
        dispersion = variance
        spread, in_spread = variance * sums.matrix, variance * sums.matrix_noise
        relative += (in_variance / variance) ** 2
    else:
        spread, in_spread = sums.products, sums.products_noise
    seen, along = eigen(spread)
    spread = (along * np.maximum(seen, 0.0)) @ along.T
    noise = noise_in_equations(sums.vector_noise, sums.matrix_noise, step)
    matrix, found = (directions * np.maximum(values, least)) @ directions.T, sums.matrix + bend
    curvature = Curvature.seen_through(matrix, found, sums.matrix_noise)
    back = basis.vectors @ inverted(curvature.least)
    sampling, privacy = back @ spread @ back.T, back @ noise @ back.T
    return Uncertainty(
        constant + basis.vectors @ (view.v + step),
        sampling,
        privacy,
        # Those of the estimated variance of errors, on which all standard errors rest.
        max(2.0 / relative, 1.0),
        kind,
        Doubt.of(curvature, found, sums.matrix_noise, in_spread, basis.vectors),
        dispersion,
    )
