"""Least squares without shrinkage, and its covariance, from released sums. Post-processing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.row_sums.weighted_moments import MomentSums
from dpglm.solvers.second_order.least_squares.equations import FirstFit, noise_in_equations
from dpglm.solvers.second_order.preconditioner import Basis
from dpglm.solvers.uncertainty import Covariance, Uncertainty

__all__ = ["intervals"]


def intervals(
    first: FirstFit,
    sums: MomentSums,
    basis: Basis,
    weight: float,
    data: DataSpec,
    penalty: NDArray[np.float64],
    kind: Covariance,
) -> Uncertainty:
    """One Newton step from the first fit, and its covariance by the delta method.

    ``penalty`` is the diagonal of the L2 penalty's Hessian, times the number of rows; ``weight``
    the weight of all rows.

    With s the share of the normal equations' score, their residual at the exact solution is
    ``s e + (1 - s) e' - E q``, e and e' the noise in both vectors, E that in the matrix and q what
    it was multiplied by.
    """
    normal, at = first.sums, first.fit.v
    score, share = averaged_score(first, sums)
    constant = np.zeros(data.n_columns)
    if first.view.level > 0.0:
        constant[-1] = first.view.center / data.intercept
    pull = basis.vectors.T @ (penalty * (constant + basis.vectors @ at))
    bend = basis.vectors.T @ (penalty[:, np.newaxis] * basis.vectors)
    values, directions = np.linalg.eigh(normal.matrix + bend)
    size = len(values)
    least = 0.5 * normal.matrix_noise * math.sqrt(size)
    inverse = (directions / np.maximum(values, least)) @ directions.T
    step = inverse @ (score - pull)
    v = at + step
    freedom = max(data.n_rows - size, 1)
    spread, in_spread, dispersion = sums.matrix, sums.matrix_noise, None
    relative = 2.0 / freedom
    if kind == "model":
        explained = float(step @ normal.matrix @ step)
        variance = max(sums.squares - max(explained, 0.0), sums.squares_noise) / weight
        variance *= data.n_rows / freedom
        dispersion = variance
        spread, in_spread = variance * spread, variance * in_spread
        relative += (sums.squares_noise / weight / variance) ** 2
    seen, along = np.linalg.eigh(spread)
    spread = (along * np.maximum(seen, 0.0)) @ along.T
    noise = noise_in_equations(
        math.hypot(share * normal.vector_noise, (1.0 - share) * sums.vector_noise),
        normal.matrix_noise,
        share * at + v - at,
    )
    back = basis.vectors @ inverse
    sampling, privacy = back @ spread @ back.T, back @ noise @ back.T
    # Noise in the estimates of variances, by which their distribution is that of Student's t.
    total = np.diag(sampling) + np.diag(privacy)
    lengths = (back**2).sum(axis=1)
    turned = back @ (spread + noise) @ inverse
    in_inverse = lengths * (turned**2).sum(axis=1) + (back * turned).sum(axis=1) ** 2
    variances = (in_spread * lengths) ** 2 + relative * np.diag(sampling) ** 2
    variances += 2.0 * normal.matrix_noise**2 * in_inverse
    freedoms = 2.0 * total**2 / np.maximum(variances, np.finfo(np.float64).tiny)
    return Uncertainty(
        constant + basis.vectors @ v,
        sampling,
        privacy,
        max(float(freedoms.min()), 1.0),
        kind,
        dispersion=dispersion,
    )


def averaged_score(first: FirstFit, sums: MomentSums) -> tuple[NDArray[np.float64], float]:
    """Average both looks at the score at the first fit, and say the first's share.

    The score that follows from the normal equations has noise from their matrix, too.
    """
    normal, v = first.sums, first.fit.v
    follows = normal.vector - normal.matrix @ v
    in_matrix = normal.matrix_noise * float(np.linalg.norm(v)) * math.sqrt(0.5)
    one, other = math.hypot(normal.vector_noise, in_matrix), sums.vector_noise
    share = other**2 / (one**2 + other**2)
    return share * follows + (1.0 - share) * sums.vector, share
