"""Bends of curves, shrunk by how far they stand out of noise. Post-processing, hence free."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.additive.terms import Term
from dpglm.tables.schema import Schema

__all__ = ["shrunk_bends"]

_MOST_ROUNDS, _TOLERANCE, _LEAST, _TINY = 100, 1e-3, 1e-10, 1e-200


def shrunk_bends(
    w: NDArray[np.float64], precision: NDArray[np.float64], schema: Schema
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shrink what curves have beyond a straight line, and interactions, towards zero.

    An estimate ``w`` with normal errors of this precision meets a prior under which the
    coefficients of each term's bends have mean zero and a variance of their own; intercept, slopes
    and levels have none. The variances are those of the largest evidence, by MacKay's fixed point,
    so bends that noise would make vanish, and those that stand out of it stay. What is known of
    ``w`` is released, so this costs no privacy.

    MacKay, "Bayesian interpolation", Neural Computation 4 (1992).

    Parameters
    ----------
    w : ndarray of shape (n_features + 1,)
        Coefficients, intercept last.
    precision : ndarray of shape (n_features + 1, n_features + 1)
        Inverse of the covariance of their errors.
    schema : Schema
        Its ``additive_encoding`` says which features belong to which term.

    Returns
    -------
    w : ndarray of shape (n_features + 1,)
        Coefficients.
    slopes : ndarray of shape (n_features + 1, n_features + 1)
        Their derivatives by those that were given, on which variances depend, too: what becomes of
        noise.
    """
    same = w, np.eye(len(w))
    blocks = [one for term in schema.additive_encoding.terms if (one := _bends(term, len(w))).size]
    if not blocks:
        return same
    bends = np.hstack(blocks)
    # An orthonormal basis of the coefficients, those of bends first.
    basis = np.linalg.qr(bends, mode="complete")[0]
    k = bends.shape[1]
    basis[:, :k] = bends
    turned = basis.T @ precision @ basis
    try:
        # Of bends alone, whatever the rest is.
        drag = np.linalg.solve(turned[k:, k:], turned[k:, :k])
        known = turned[:k, :k] - turned[:k, k:] @ drag
        sizes = [one.shape[1] for one in blocks]
        kept, slopes = _posterior(bends.T @ w, 0.5 * (known + known.T), sizes)
    except np.linalg.LinAlgError:
        # What is paid for is returned, however little is known of it.
        return same
    back, same_bends = basis[:, :k] - basis[:, k:] @ drag, np.eye(k)
    moved, change = back @ (kept - same_bends) @ bends.T @ w, back @ (slopes - same_bends) @ bends.T
    is_finite = np.isfinite(moved).all() and np.isfinite(change).all()
    return (w + moved, same[1] + change) if is_finite else same


def _bends(term: Term, size: int) -> NDArray[np.float64]:
    """Return an orthonormal basis of the coefficients that bend a term, of shape (size, bends)."""
    axis, line = term.axes[0], term.axes[0].line
    count = term.features.stop - term.features.start
    directions = np.zeros((count, 0))
    if len(term.axes) > 1:
        directions = np.eye(count)
    elif line is not None and (bends := len(line) - 2):
        line = np.linalg.lstsq(axis.curve, line - line.mean(), rcond=None)[0]
        directions = np.zeros((count, bends))
        directions[: bends + 1] = np.linalg.qr(line[:, np.newaxis], mode="complete")[0][:, 1:]
    placed = np.zeros((size, directions.shape[1]))
    placed[term.features] = directions
    return placed


def _posterior(
    found: NDArray[np.float64], known: NDArray[np.float64], sizes: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the matrix from groups of numbers, of this precision, to their posterior mean.

    And the derivatives of that mean by these numbers, which variances follow from, too.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    per_group = np.repeat(np.arange(len(sizes)), sizes)
    variances = np.add.reduceat(found**2, starts) / sizes
    least = _LEAST * max(float(variances.max()), _TINY)
    variances = np.maximum(variances, least)
    for _ in range(_MOST_ROUNDS):
        covariance = np.linalg.inv(known + np.diag(1.0 / variances[per_group]))
        shares, mean = covariance @ known, covariance @ (known @ found)
        left = np.add.reduceat(np.diag(covariance), starts) / variances
        told = np.maximum(sizes - left, _TINY)
        new = np.maximum(np.add.reduceat(mean**2, starts) / told, least)
        used, variances = variances, new
        if np.max(np.abs(np.log(new / used))) < _TOLERANCE:
            break
    moved = _moved_variances(covariance, shares, mean, used, starts, new > least)
    by_variance = covariance * (mean / used[per_group] ** 2)
    return shares, shares + np.add.reduceat(by_variance, starts, axis=1) @ moved


def _moved_variances(
    covariance: NDArray[np.float64],
    shares: NDArray[np.float64],
    mean: NDArray[np.float64],
    variances: NDArray[np.float64],
    starts: NDArray[np.intp],
    are_free: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return derivatives of variances by the numbers that were found: those of a fixed point."""

    def by_group(values: NDArray[np.float64], axis: int = 0) -> NDArray[np.float64]:
        return np.asarray(np.add.reduceat(values, starts, axis=axis))

    # Each is the sum of squares of its group's mean over what was told of it, as a function of all.
    left = by_group(np.diag(covariance)) / variances
    told = np.maximum(by_group(np.ones(len(mean))) - left, _TINY)
    products = by_group(by_group(covariance**2), axis=1)
    by_mean = by_group(mean[:, np.newaxis] * covariance * mean, axis=1)
    through_mean = 2.0 * by_group(by_mean) / variances**2
    through_told = products / np.outer(variances, variances**2) - np.diag(left / variances)
    share = by_group(mean**2) / told
    own = (through_mean + share[:, np.newaxis] * through_told) / told[:, np.newaxis]
    due = 2.0 * by_group(mean[:, np.newaxis] * shares) / told[:, np.newaxis]
    own, due = own * are_free[:, np.newaxis], due * are_free[:, np.newaxis]
    return np.asarray(np.linalg.solve(np.eye(len(own)) - own, due))
