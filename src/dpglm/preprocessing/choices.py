"""What steps have in common: the epsilon of a choice, the share of the budget, the row norm."""

from __future__ import annotations

from scipy.special import log_ndtr

from dpglm._validation import check_real
from dpglm.data.spec import LARGEST, SMALLEST, DataSpec

__all__ = [
    "bounded_range_epsilon",
    "check_row_norm",
    "pure_epsilon",
    "quantile_share",
    "share_for_error",
]

_WANTED_RANK_ERROR = 0.02
_LOG_CANDIDATES = 10.0
_LEAST_SHARE, _MOST_SHARE = 0.002, 0.1


def pure_epsilon(mu: float) -> float:
    """Epsilon for which every epsilon-DP release is mu-GDP: ``log(Phi(mu/2) / Phi(-mu/2))``.

    Privacy: the trade-off function of an epsilon-DP release lies above two chords that meet where
    both errors are ``1 / (1 + exp(epsilon))``. That of mu-GDP is convex, has the same ends, and
    passes through that point for this mu, so it lies below the chords.
    """
    return float(log_ndtr(mu / 2.0) - log_ndtr(-mu / 2.0))


def bounded_range_epsilon(mu: float) -> float:
    """Epsilon for which a choice of bounded range is about mu-GDP: twice ``pure_epsilon(mu)``.

    Privacy: log-ratios of bounded range lie within ``[t - epsilon, t]`` for some t; the worst case
    is ``t = epsilon / 2``, which is ``epsilon / 2``-DP. That no other t is worse is checked by
    numbers only, so nothing rests on it: plans are accounted for as they are.
    """
    return 2.0 * pure_epsilon(mu)


def quantile_share(data: DataSpec, mu: float) -> float:
    """Share of the budget for a quantile that is off by a fiftieth of the rows, within limits."""
    error = 2.0 * _LOG_CANDIDATES / (bounded_range_epsilon(mu) * data.n_rows)
    return share_for_error(error, _WANTED_RANK_ERROR, _LEAST_SHARE, _MOST_SHARE)


def share_for_error(error: float, wanted: float, least: float, most: float) -> float:
    """Share of the budget (of mu squared) that brings an error to the wanted one, within limits.

    ``error`` is what the whole budget would give; it falls as 1 / mu.
    """
    return min(max((error / wanted) ** 2, least), most)


def check_row_norm(row_norm: float | None) -> None:
    """Check the row norm after a step, where one is given."""
    if row_norm is not None:
        check_real("row_norm", row_norm, least=SMALLEST, most=LARGEST)
