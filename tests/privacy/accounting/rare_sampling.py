"""Delta of rarely sampled Gaussian releases from below: outcomes of equal loss, merged."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

__all__ = ["least_delta"]

_CELLS = 60.0  # for each factor e in the size of a loss


def least_delta(rate, sigma, steps, epsilon):
    """Bound delta from below, for removing and for adding a row, whichever is larger.

    Each law is a list of outcomes with their probabilities p and q under the two data sets and
    the difference d, kept by itself so that none of its digits are lost. Merging outcomes is
    post-processing: delta can only fall. Steps are composed by squaring.
    """
    found = []
    for removing in (True, False):
        single = _single(rate, sigma, removing)
        total = None
        for digit in bin(steps)[2:]:
            total = None if total is None else _merged(_product(total, total))
            if digit == "1":
                total = single if total is None else _merged(_product(total, single))
        _, q, d = total
        found.append(float(np.sum(np.maximum(d - math.expm1(epsilon) * q, 0.0))))
    return max(found)


def _single(rate, sigma, removing):
    x = np.linspace(-14.0 * sigma, 1.0 + 14.0 * sigma, 4001)

    def masses(centre):
        z = (x - centre) / sigma
        return np.where(z[:-1] < 0.0, np.diff(ndtr(z)), -np.diff(ndtr(-z)))

    plain, moved = masses(0.0), masses(1.0)
    d = rate * (moved - plain)
    law = (plain + d, plain, d) if removing else (plain, plain + d, -d)
    return _merged(law)


def _product(one, other):
    (p, q, d), (p2, q2, d2) = one, other
    return (
        np.outer(p, p2).ravel(),
        np.outer(q, q2).ravel(),
        (np.outer(d, p2) + np.outer(q, d2)).ravel(),
    )


def _merged(law):
    p, q, d = (part[law[0] > 1e-60] for part in law)
    loss = np.where(d < 0.5 * p, -np.log1p(-np.minimum(d / p, 0.5)), np.log(p / q))
    usual = 0.02 * float(np.sum(p * np.abs(loss)))
    cell = np.rint(_CELLS * np.arcsinh(loss / usual)).astype(np.int64)
    cell -= cell.min()
    totals = [np.bincount(cell, part) for part in (p, q, d)]
    some = totals[0] > 0.0
    return tuple(part[some] for part in totals)
