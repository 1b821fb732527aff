"""DPSGD-F of Sun et al. (2023) in its theoretical form."""

from __future__ import annotations

from dpglm.papers.song2021 import Song2021
from dpglm.preprocessing.centering import InstanceOptimalCenter
from dpglm.preprocessing.scaling import ClipToQuantile
from dpglm.solvers.base import Solver
from dpglm.solvers.composite.preprocessed import Preprocessed


def dpsgd_f_theoretical(
    solver: Solver | None = None, shares: tuple[float | None, float | None] | None = None
) -> Preprocessed:
    """Make DPSGD-F in its theoretical form, for rows far from zero relative to their spread.

    Parameters
    ----------
    solver : Solver, optional
        Fits the model to preprocessed rows; ``Song2021()`` by default, with an error that depends
        on the rank of the rows as in the paper's Theorem 1.
    shares : pair of float or None, optional
        Shares of the budget (of mu squared) for the mean and for the radius. By default rules of
        the steps; the paper has ``(1/3, 1/3)``.

    Notes
    -----
    An instance-optimal mean is subtracted, then rows are divided by a private radius tau around it
    and clipped to it, next to an intercept column of length tau. So rows have a norm of at most
    ``sqrt(2) tau``, and gradients one of at most ``sqrt(2) G tau`` for a loss with slopes up to G,
    where ``Song2021`` clips. The paper clips the whole row, intercept column included; here that
    column stays, so that coefficients can be mapped back exactly. The radius leaves out ``O(log n /
    epsilon)`` rows, as in Lemma 4.

    Privacy: that of ``Preprocessed``.

    References
    ----------
    Sun et al. 2023, Algorithm 2 and Theorem 1.

    Examples
    --------
    >>> [type(step).__name__ for step in dpsgd_f_theoretical().steps]
    ['InstanceOptimalCenter', 'ClipToQuantile']
    """
    steps = [InstanceOptimalCenter(), ClipToQuantile(quantile=None)]
    return Preprocessed(steps, solver or Song2021(), shares=shares)
