"""The release of certified minimisers: exact ones plus noise, or the error of approximate ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.objective.minimizers import certified_minimizer
from dpglm.oracle.objective.objectives import Objective
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import BoundedSum, Curator
from dpglm.privacy.noise.scales import NoiseScale, l2_noise_scale, noise_scale
from dpglm.problem import L2Ball

__all__ = [
    "minimizer_noise",
    "noisy_minimizer",
    "pure_minimizer_noise",
    "pure_noisy_minimizer",
]


def minimizer_noise(
    adjacency: Adjacency,
    contribution_bound: float,
    noise_multiplier: float,
    size: int,
    norm: float,
) -> NoiseScale:
    """Noise that ``noisy_minimizer`` adds.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbouring relation.
    contribution_bound, noise_multiplier, norm
        As there.
    size : int
        Number of coefficients.

    Returns
    -------
    NoiseScale
    """
    rounding = _rounding(size, norm)
    return noise_scale(adjacency, contribution_bound + rounding, noise_multiplier, size, 2.0 * norm)


def noisy_minimizer(
    curator: Curator,
    objectives: list[Objective],
    *,
    tolerance: float,
    contribution_bound: float,
    noise_multiplier: float,
    norm: float,
) -> NDArray[np.float64]:
    """Release minimisers of one objective, or of one for each class, by the Gaussian mechanism.

    Parameters
    ----------
    curator : Curator
        Adds the noise and records the event.
    objectives : list of Objective
        One, or one for each column of the parameter.
    tolerance : float
        Bound on the distance of each computed minimiser to the exact one.
    contribution_bound : float
        What pays for: bound on how far erasing one row moves the computed minimisers, all
        columns together, twice the tolerance included.
    noise_multiplier : float
        Noise standard deviation over the sensitivity.
    norm : float
        Public bound on the norm of all exact minimisers together, root of their number times
        that for each. Minimisers beyond it are projected onto that ball, which moves none
        further apart.

    Returns
    -------
    ndarray, shape of the parameter

    Raises
    ------
    CertificateError
        If a certificate was not met; nothing is released then.

    Notes
    -----
    Privacy: ``Gaussian(noise_multiplier)``.
    """
    each = norm / math.sqrt(len(objectives))
    found = [certified_minimizer(one, tolerance, each) for one in objectives]
    w = found[0] if len(found) == 1 else np.column_stack(found)
    total = BoundedSum(
        L2Ball(norm).project(w).astype(np.float64, copy=False),
        contribution_bound=contribution_bound,
        magnitude=2.0 * norm,
        rounding=_rounding(w.size, norm),
    )
    return curator.release_gaussian(total, noise_multiplier)


def pure_minimizer_noise(
    adjacency: Adjacency, contribution_bound: float, epsilon: float, size: int, norm: float
) -> NoiseScale:
    """Noise that ``pure_noisy_minimizer`` adds.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbouring relation.
    contribution_bound, epsilon, norm
        As there.
    size : int
        Number of coefficients.

    Returns
    -------
    NoiseScale
    """
    rounding = _rounding(size, norm)
    return l2_noise_scale(adjacency, contribution_bound + rounding, epsilon, size, 2.0 * norm)


def pure_noisy_minimizer(
    curator: Curator,
    objectives: list[Objective],
    *,
    tolerance: float,
    contribution_bound: float,
    epsilon: float,
    norm: float,
) -> NDArray[np.float64]:
    """Release minimisers, projected onto balls, of one objective or of one for each class.

    Parameters
    ----------
    curator : Curator
        Adds L2 noise and records the event.
    objectives : list of Objective
        One, or one for each column of the parameter; all terms smooth.
    tolerance : float
        Bound on the distance of each computed minimiser to the exact one, after both are
        projected onto the ball; at most half of that ball's radius.
    contribution_bound : float
        What pays for: twice the bound on the distance between all projected computed minimisers
        and what they would be without error.
    epsilon : float
        What the release costs.
    norm : float
        Public: all columns together are within a ball of this radius, each within one of radius
        ``norm / sqrt(their number)``. It need not bound any minimiser.

    Returns
    -------
    ndarray, shape of the parameter

    Raises
    ------
    CertificateError
        If a certificate was not met; nothing is released then. For a tolerance that Lemma 5 of
        ``docs/proofs/objective-perturbation.md`` allows it always is, whatever the linear terms.

    Notes
    -----
    Each minimiser is certified to ``tolerance max(1, |w| / (2 r))``, where r is the radius of its
    ball: beyond ``2 r`` projecting shrinks distances by ``2 r / |w|`` or more.

    Privacy: ``Pure(epsilon)``.
    """
    each = norm / math.sqrt(len(objectives))
    ball, far = L2Ball(each), 2.0 * each
    found = [ball.project(certified_minimizer(one, tolerance, far, far)) for one in objectives]
    w = found[0] if len(found) == 1 else np.column_stack(found)
    total = BoundedSum(
        w.astype(np.float64, copy=False),
        contribution_bound=contribution_bound,
        magnitude=2.0 * norm,
        rounding=_rounding(w.size, norm),
    )
    return curator.release_l2(total, epsilon)


def _rounding(size: int, norm: float) -> float:
    """Twice what the projection may err by."""
    return 4 * (size + 16) * float(np.finfo(np.float64).eps) * norm
