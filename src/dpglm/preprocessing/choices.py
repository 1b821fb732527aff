"""What steps that choose something have in common: their epsilon and their share."""

from __future__ import annotations

from scipy.special import log_ndtr

from dpglm.data.spec import DataSpec

__all__ = ["bounded_range_epsilon", "pure_epsilon", "quantile_share"]

_WANTED_RANK_ERROR = 0.02
_LOG_CANDIDATES = 10.0
_LEAST_SHARE, _MOST_SHARE = 0.002, 0.1


def pure_epsilon(mu: float) -> float:
    """Find the epsilon for which every epsilon-DP release is mu-GDP.

    Parameters
    ----------
    mu : float
        Above 0.

    Returns
    -------
    float
        ``log(Phi(mu/2) / Phi(-mu/2))``.

    Notes
    -----
    Privacy: the trade-off function of an epsilon-DP release lies above two chords that meet where
    both errors are ``1 / (1 + exp(epsilon))``. That of mu-GDP is convex, has the same ends, and
    passes through that point for this mu, so it lies below the chords.

    Examples
    --------
    >>> round(pure_epsilon(1.0), 4)
    0.807
    """
    return float(log_ndtr(mu / 2.0) - log_ndtr(-mu / 2.0))


def bounded_range_epsilon(mu: float) -> float:
    """Find the epsilon for which a choice of that bounded range is about mu-GDP.

    Parameters
    ----------
    mu : float
        Above 0.

    Returns
    -------
    float
        Twice ``pure_epsilon(mu)``.

    Notes
    -----
    Privacy: log-ratios of bounded range lie within ``[t - epsilon, t]`` for some t; the
    worst case is ``t = epsilon / 2``, which is ``epsilon / 2``-DP. That no other t is worse is
    checked by numbers only, so nothing rests on it: plans are accounted for as they are.
    """
    return 2.0 * pure_epsilon(mu)


def quantile_share(data: DataSpec, mu: float) -> float:
    """Share of the budget for a quantile that is off by a fiftieth of the rows, within limits."""
    error = 2.0 * _LOG_CANDIDATES / (bounded_range_epsilon(mu) * data.n_rows)
    return min(max((error / _WANTED_RANK_ERROR) ** 2, _LEAST_SHARE), _MOST_SHARE)
