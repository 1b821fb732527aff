"""DPSGD-F of Sun et al. (2023) in its practical form: a noisy mean subtracted, then descent."""

from __future__ import annotations

from dpglm.preprocessing.center import Center
from dpglm.solvers.base import Solver
from dpglm.solvers.composite.preprocessed import Preprocessed
from dpglm.solvers.gradient.noisy_gd import NoisyGD

__all__ = ["dpsgd_f"]


def dpsgd_f(solver: Solver | None = None, share: float | None = None) -> Preprocessed:
    """Make DPSGD-F in its practical form: subtract a noisy mean, then train.

    Parameters
    ----------
    solver : Solver, optional
        Fits the model to centred rows; ``NoisyGD()`` by default.
    share : float, optional
        Share of the budget (of mu squared) for the mean, in (0, 1). By default a rule of
        ``Center``.

    Returns
    -------
    Preprocessed

    Notes
    -----
    The paper scales all rows to one length first, which changes the model; here it is left to the
    user (scikit-learn's ``Normalizer`` does it row by row, so it costs nothing). It always spent
    0.02 or 0.05 of epsilon on the mean, after trying five values whose cost was not counted.

    Privacy: as for ``Preprocessed``.

    References
    ----------
    Sun et al. 2023, Algorithm 3.

    Examples
    --------
    >>> dpsgd_f(share=0.05).steps
    (Center(row_norm=None, lengthen=False, intercept=1.0),)
    """
    return Preprocessed([Center()], solver or NoisyGD(), shares=[share])
