"""The release of certified minimisers: exact ones plus noise, or the error of approximate ones."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.objective.minimizers import certified_minimizer
from dpglm.oracle.objective.objectives import Objective
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import Curator
from dpglm.privacy.releases import Bounded, Mechanism, Release, SumRelease
from dpglm.problem import L2Ball

__all__ = ["minimizer_release", "noisy_minimizer"]

V = TypeVar("V")
R = TypeVar("R")


def minimizer_release(
    quantity: str,
    adjacency: Adjacency,
    mechanism: Mechanism[V, R],
    *,
    bound: float,
    coordinates: int,
    norm: float,
) -> Release[V, R]:
    """Declare the release that ``noisy_minimizer`` makes.

    Parameters
    ----------
    quantity : str
        What it is, in words.
    adjacency : Adjacency
        The neighbouring relation.
    mechanism : Mechanism
        Its noise.
    bound : float
        Bound on how far erasing one row moves the computed minimisers, all columns together,
        twice their tolerance included.
    coordinates : int
        Number of coefficients.
    norm : float
        As for ``noisy_minimizer``.

    Returns
    -------
    Release
    """
    # Twice what the projection may err by.
    rounding = 4 * (coordinates + 16) * float(np.finfo(np.float64).eps) * norm
    return Release(
        quantity,
        mechanism,
        adjacency,
        bound,
        coordinates,
        rounding=rounding,
        magnitude=2.0 * norm,
    )


def noisy_minimizer(
    curator: Curator,
    declared: SumRelease,
    objectives: list[Objective],
    *,
    tolerance: float,
    bound: float,
    norm: float,
    every_linear_term: bool = False,
) -> NDArray[np.float64]:
    """Release minimisers, projected onto a ball, of one objective or of one for each class.

    Parameters
    ----------
    curator : Curator
        Adds the noise and records the event.
    declared : Release
        Made by ``minimizer_release`` with this bound and norm.
    objectives : list of Objective
        One, or one for each column of the parameter; all terms smooth for ``every_linear_term``.
    tolerance : float
        Bound on the distance of each computed minimiser to the exact one.
    bound : float
        What pays for: see ``minimizer_release``.
    norm : float
        Public: all columns together are within a ball of this radius. It bounds all exact
        minimisers together, root of their number times the bound for each, so that projecting
        computed ones moves none further apart; with ``every_linear_term`` it need not.
    every_linear_term : bool, default=False
        Whether the tolerance holds after projection of each minimiser onto its ball of radius
        ``norm / sqrt(their number)``, whatever the linear terms of the objectives are.

    Returns
    -------
    ndarray, shape of the parameter

    Raises
    ------
    CertificateError
        If a certificate was not met; nothing is released then. For a tolerance that Lemma 5 of
        ``docs/proofs/objective-perturbation.md`` allows it always is with ``every_linear_term``.

    Notes
    -----
    With ``every_linear_term`` each minimiser is certified to ``tolerance max(1, |w| / (2 r))``,
    where r is the radius of its ball: beyond ``2 r`` projecting shrinks distances by
    ``2 r / |w|`` or more.

    Privacy: ``declared.event``.
    """
    each = norm / math.sqrt(len(objectives))
    if every_linear_term:
        own, far = L2Ball(each), 2.0 * each
        found = [own.project(certified_minimizer(one, tolerance, far, far)) for one in objectives]
    else:
        found = [certified_minimizer(one, tolerance, each) for one in objectives]
    w = found[0] if len(found) == 1 else np.column_stack(found)
    if not every_linear_term:
        w = L2Ball(norm).project(w)
    return curator.release(declared, Bounded(w.astype(np.float64, copy=False), bound))
