"""Privacy bounds from guesses about many canaries in one run."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, expit, gammaln, log_expit, ndtri

from dpglm._validation import check_integer, check_real

__all__ = ["best_number_of_guesses", "epsilon_of_guesses", "p_value_of_guesses"]

_STEP = 0.01
_STEPS = np.arange(5000, dtype=np.float64) * _STEP
# Steps that are looked at together.
_BLOCK = 64


def p_value_of_guesses(
    canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> float:
    """Bound the probability of so many right guesses, if a mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    canaries : int
        Rows of which each is in, or not, by a fair coin of its own. For replace-one, of which
        each is one row or another by such a coin.
    guesses : int
        How many coins were guessed; from 0 to ``canaries``.
    right : int
        How many of them rightly; from 0 to ``guesses``.
    epsilon, delta : float
        Of the mechanism, for a change of one coin.

    Returns
    -------
    float
        At most 1.

    Notes
    -----
    ``P[right >= v] <= P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i`` with B binomial: as
    many tries as guesses, each right with probability ``1 / (1 + exp(-epsilon))``, and i from 1
    to m. It does not matter which coins are guessed, or how that is chosen.

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023,
    Theorem 5.2 (arXiv 2305.08846).

    Examples
    --------
    >>> round(p_value_of_guesses(100, 20, 20, 1.0, 0.0), 5)
    0.0019
    """
    canaries = check_integer("canaries", canaries, least=1)
    guesses = check_integer("guesses", guesses, least=0)
    right = check_integer("right", right, least=0)
    if not right <= guesses <= canaries:
        raise ValueError(
            f"right must be at most guesses, and these at most canaries, got {right}, {guesses} "
            f"and {canaries}"
        )
    epsilon = check_real("epsilon", epsilon, least=0.0)
    delta = check_real("delta", delta, least=0.0, below=1.0)
    return float(_p_values(canaries, guesses, right, np.array([epsilon]), delta)[0])


def epsilon_of_guesses(
    canaries: int, guesses: int, right: int, delta: float, confidence: float
) -> float:
    """Bound epsilon at ``delta`` from below by the number of right guesses.

    Parameters
    ----------
    canaries, guesses, right, delta
        As for ``p_value_of_guesses``.
    confidence : float
        In (0, 1).

    Returns
    -------
    float
        Up to which each epsilon, in steps of 0.01, has a p-value of at most ``1 - confidence``:
        at most the true epsilon, with probability at least ``confidence``. For if it is above,
        then the first step above the true epsilon has such a p-value, and the mechanism is
        (that step, delta)-DP.
    """
    check_integer("canaries", canaries, least=1)
    level = 1.0 - check_real("confidence", confidence, above=0.0, below=1.0)
    low = 0
    while low < _STEPS.size:
        block = _STEPS[low : low + _BLOCK]
        above = _p_values(canaries, guesses, right, block, delta) > level
        if above.any():
            return max(0.0, float(_STEPS[low + int(above.argmax())]) - _STEP)
        low += _BLOCK
    return float(_STEPS[-1])


def best_number_of_guesses(canaries: int, mu: float, delta: float, confidence: float) -> int:
    """Choose how many coins to guess if the scores of canaries tell as much as mu-GDP allows.

    ``mu`` is public, so that the choice does not depend on the run.
    """
    # |log-likelihood ratio| of N(mu^2 / 2, mu^2), which tells the chance of being right.
    levels = (np.arange(1000) + 0.5) / 1000.0
    sure = expit(np.sort(np.abs(0.5 * mu * mu + mu * ndtri(levels)))[::-1])
    found = []
    for share in np.geomspace(min(1.0, 8.0 / canaries), 1.0, 12):
        guesses = max(1, round(share * canaries))
        rate = float(sure[: max(1, round(share * sure.size))].mean())
        right = math.floor(rate * guesses)
        found.append((epsilon_of_guesses(canaries, guesses, right, delta, confidence), guesses))
    return int(max(found)[1])


def _p_values(
    canaries: int, guesses: int, right: int, epsilons: NDArray[np.float64], delta: float
) -> NDArray[np.float64]:
    """Return the p-value for each epsilon."""
    if right == 0:
        return np.ones(epsilons.size)
    at_least = betainc(right, guesses - right + 1, expit(epsilons))
    # Beyond i = right the probability grows no more, and is divided by more.
    below = np.arange(right - 1, -1, -1)
    ways = gammaln(guesses + 1) - gammaln(below + 1) - gammaln(guesses - below + 1)
    logs = (
        ways
        + np.outer(log_expit(epsilons), below)
        + np.outer(log_expit(-epsilons), guesses - below)
    )
    shares = np.cumsum(np.exp(logs), axis=1) / np.arange(1, right + 1)
    p_values: NDArray[np.float64] = at_least + 2.0 * canaries * delta * shares.max(axis=1)
    return np.minimum(1.0, p_values)
