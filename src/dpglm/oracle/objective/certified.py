"""The release of certified minimisers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.objective.minimizers import certified_minimizer
from dpglm.oracle.objective.objectives import Objective
from dpglm.oracle.rounding import UNIT
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import Curator
from dpglm.privacy.releases import Bounded, Release, SumMechanism, SumRelease
from dpglm.problem import L2Ball

__all__ = ["minimizer_release", "noisy_minimizer"]


def minimizer_release(
    quantity: str,
    adjacency: Adjacency,
    mechanism: SumMechanism,
    *,
    bound: float,
    coordinates: int,
    norm: float,
) -> SumRelease:
    """Declare the release that ``noisy_minimizer`` makes.

    ``bound`` limits how far erasing one row moves the computed minimisers, all columns together,
    twice their tolerance included.
    """
    # Twice what the projection may err by.
    rounding = 8 * (coordinates + 16) * UNIT * norm
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
    """Release the projected minimisers of one objective, or of one for each class.

    Each computed minimiser is within ``tolerance`` of the exact one. All columns together are
    projected onto the public ball of radius ``norm``, which contains all exact minimisers (the
    root of their number times the bound for each), so that the projection moves computed ones no
    further apart. ``CertificateError`` means that a certificate failed and nothing was released.

    With ``every_linear_term`` the terms are smooth, the tolerance holds whatever the linear terms
    are, and the ball need not contain the minimisers: each is projected onto its own ball of
    radius ``r = norm / sqrt(number)`` and certified to ``tolerance max(1, |w| / (2 r))``, since
    beyond ``2 r`` projecting shrinks distances by ``2 r / |w|`` or more. Lemma 5 of
    ``docs/proofs/objective-perturbation.md`` gives the tolerances for which the certificate always
    holds.

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
