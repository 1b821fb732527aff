"""DP-SVRG++: epochs of doubling length that go on from the last iterate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

from dpglm.solvers.gradient.variance_reduction import VarianceReduction
from dpglm.solvers.parts.outputs import Output, UniformAverage

__all__ = ["SVRGPlusPlus"]


@final
@dataclass(frozen=True)
class SVRGPlusPlus(VarianceReduction):
    """SVRG for objectives that need not be strongly convex: every epoch is twice as long.

    Steps are those of ``SVRG``. An epoch starts at the last iterate of the one before, while its
    anchor is the average of that one's iterates; the last average is returned.

    Parameters
    ----------
    n_epochs : int, default=4
        Number of epochs T, at least 1.
    inner_steps : int, optional
        Steps m of the first epoch, at least 2; epoch s has ``2**(s - 1) m``.
    step_size, clip, sampling_rate, anchor_share
        As for ``SVRG``.
    averaging : Output, default=UniformAverage()
        Average of an epoch's iterates that is the next anchor.
    momentum : float, default=0.0
        As for ``SVRG``.

    Notes
    -----
    Privacy: as for ``SVRG``, with ``(2**T - 1) m - 1`` releases of differences: only the very
    first step is at its anchor by construction. Where a later one comes to be there by chance
    (all iterates at a corner of the constraint), a release is made and counted all the same.

    References
    ----------
    Wang, Ye and Xu 2017, Algorithm 2 (corrected). Allen-Zhu and Yuan, "Improved SVRG for
    non-strongly-convex or sum-of-non-convex objectives", ICML 2016.

    Examples
    --------
    >>> from dpglm.data.spec import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> solver = SVRGPlusPlus(n_epochs=3, inner_steps=10, sampling_rate=0.05)
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.method.lengths, [release.count for release in plan.method.releases]
    ((10, 20, 40), [3, 69])
    """

    growth: ClassVar[int] = 2
    restarts: ClassVar[bool] = False
    least_steps: ClassVar[int] = 2

    n_epochs: int = 4
    averaging: Output = field(default_factory=UniformAverage)
