"""The report of an audit."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtr, ndtri

from dpglm._codec import Text, encode
from dpglm._validation import Array, check_integer, check_real
from dpglm._words import card
from dpglm.ledger.store import write_text
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.budget import default_delta
from dpglm.solvers.base import Plan

# Confidence bounds on privacy loss from counts of guesses.


def rate_above(successes: int, trials: int, confidence: float) -> float:
    """Bound a probability from above by counted successes.

    Parameters
    ----------
    successes : int
        From 0 to ``trials``.
    trials : int
        Independent repetitions, at least 1.
    confidence : float
        In (0, 1).

    Returns
    -------
    float
        Clopper-Pearson bound: below the true probability with probability at most
        ``1 - confidence``, whatever that is and for any number of trials.

    References
    ----------
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of
    the binomial", Biometrika 26 (1934).
    """
    trials = check_integer("trials", trials, least=1)
    successes = check_integer("successes", successes, least=0)
    if successes > trials:
        raise ValueError(f"successes must be at most trials={trials}, got {successes}")
    confidence = check_real("confidence", confidence, above=0.0, below=1.0)
    if successes == trials:
        return 1.0
    return float(betaincinv(successes + 1, trials - successes, confidence))


@final
@dataclass(frozen=True)
class ErrorBounds:
    """Upper confidence bounds on both error rates of a test.

    Parameters
    ----------
    missed : float
        On the probability of guessing "second" where the rows are the first of two neighbours.
    false : float
        On the probability of guessing "first" where they are the second.
    """

    missed: float
    false: float

    def mu(self) -> float:
        """Bound mu from below, for any mechanism that is mu-GDP.

        Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022, Definition 4: each test
        has ``Phi^-1(1 - false) - Phi^-1(missed) <= mu``. This falls in both rates, so upper
        bounds on them give a lower bound.
        """
        return max(0.0, float(ndtri(1.0 - self.false) - ndtri(self.missed)))

    def epsilon(self, delta: float) -> float:
        """Bound epsilon from below at ``delta``, for any mechanism.

        Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015,
        Theorem 2.1: ``1 - missed <= exp(epsilon) false + delta``, and with the two exchanged.
        """
        found = 0.0
        for hit, other in ((1.0 - self.missed, self.false), (1.0 - self.false, self.missed)):
            if hit > delta and other > 0.0:
                found = max(found, math.log((hit - delta) / other))
        return found

    def delta(self, epsilon: float) -> float:
        """Bound delta from below at ``epsilon``, for any mechanism; as ``epsilon`` does."""
        one_way = (1.0 - self.missed) - math.exp(epsilon) * self.false
        other_way = (1.0 - self.false) - math.exp(epsilon) * self.missed
        return max(one_way, other_way, 0.0)


def error_bounds(guesses: ArrayLike, guesses_other: ArrayLike, confidence: float) -> ErrorBounds:
    """Bound both error rates from guesses in independent runs.

    Parameters
    ----------
    guesses : array_like of bool
        One guess "these are the first rows" for each run on the first rows.
    guesses_other : array_like of bool
        The same for runs on the second rows.
    confidence : float
        With which both bounds hold together, in (0, 1).

    Returns
    -------
    ErrorBounds
        Each bound has half of the error probability (Bonferroni).

    Notes
    -----
    The rule for guessing must not depend on the runs that are counted.
    """
    first, second = np.asarray(guesses, dtype=bool), np.asarray(guesses_other, dtype=bool)
    each = 0.5 + 0.5 * check_real("confidence", confidence, above=0.0, below=1.0)
    return ErrorBounds(
        missed=rate_above(int((~first).sum()), first.size, each),
        false=rate_above(int(second.sum()), second.size, each),
    )


# Statistics of observations, high for the first data set.

Pair = tuple[Array, Array]
_RIDGE = 1e-9
# Fewer runs than this for each value do not determine a covariance.
_RUNS_PER_VALUE = 4


Observation: TypeAlias = tuple[Array, float | None]
"""The values that a run shows, and their log-likelihood ratio by the declared noise."""


@final
@dataclass(frozen=True, eq=False)
class AttackScore:
    """A statistic, fixed before the runs that are counted, perhaps by held-out runs."""

    name: str
    of: Callable[[Sequence[Observation]], Array]
    is_learned: bool = True


# No statistic has more power.
_LIKELIHOOD_RATIO = AttackScore(
    "likelihood ratio of all releases",
    lambda observations: np.array([ratio for _, ratio in observations], dtype=np.float64),
    is_learned=False,
)


def candidate_scores(
    first: Sequence[Observation], second: Sequence[Observation]
) -> tuple[AttackScore, ...]:
    """Learn statistics from held-out runs; the linear one is Fisher's discriminant."""
    scores: list[AttackScore] = [] if first[0][1] is None else [_LIKELIHOOD_RATIO]
    a, b = _values(first), _values(second)
    together = np.concatenate([a, b])
    scale = together.std(axis=0)
    scale[scale == 0.0] = 1.0
    a, b = a / scale, b / scale
    means: Pair = (a.mean(axis=0), b.mean(axis=0))
    centred = np.concatenate([a - means[0], b - means[1]])
    if len(together) < _RUNS_PER_VALUE * scale.size:
        # Too few runs for a covariance, which would be large where there are many values.
        variances = np.mean(centred**2, axis=0) + _RIDGE
        direction = (means[0] - means[1]) / variances / scale
        return (*scores, AttackScore("learned direction", lambda seen: _values(seen) @ direction))
    ridge = _RIDGE * np.eye(scale.size)
    pooled = centred.T @ centred / len(together) + ridge
    direction = np.linalg.solve(pooled, means[0] - means[1]) / scale
    # The log-likelihood ratio of two normal laws of scaled values.
    precisions = [
        np.linalg.inv(part.T @ part / len(part) + ridge) for part in (a - means[0], b - means[1])
    ]

    def quadratic(seen: Sequence[Observation]) -> Array:
        values = _values(seen) / scale
        near, far = (
            np.einsum("ij,jk,ik->i", values - mean, precision, values - mean)
            for mean, precision in zip(means, precisions, strict=True)
        )
        return np.asarray(far - near)

    return (
        *scores,
        AttackScore("learned direction", lambda seen: _values(seen) @ direction),
        AttackScore("learned normal laws", quadratic),
    )


def _values(observations: Sequence[Observation]) -> Array:
    return np.array([values for values, _ in observations], dtype=np.float64)


# Claims of mechanisms, as the error rates that every test must then have.

# Fractions of epsilon at which the claim is evaluated; each is a numerical computation.
_SHARES = (0.0, 0.02, 0.1, 0.3, 0.6)


@final
@dataclass(frozen=True)
class Claim:
    """A privacy claim, for both orders of any two neighbours.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        In [0, 1).
    mu : float, optional
        Where the claim is mu-GDP; epsilon and delta are then one consequence of it.
    profile : tuple of (float, float), default=()
        Further pairs (epsilon, delta) that are claimed, of the same mechanism.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    profile: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, least=0.0)
        check_real("delta", self.delta, least=0.0, below=1.0)
        if self.mu is not None:
            check_real("mu", self.mu, least=0.0)

    @classmethod
    def of(cls, plan: Plan) -> Claim:
        """Return the claim of a plan's certificate.

        Epsilon is at the budget's delta; at ``default_delta`` for budgets without one.
        """
        accountant = accountant_for(plan.event, plan.adjacency)
        stated = plan.budget.to_dict()
        delta = float(stated.get("delta", default_delta(plan.data.n_rows)))
        epsilon = accountant.epsilon(plan.event, plan.adjacency, delta)
        gaussian = GaussianAccountant()
        if gaussian.supports(plan.event, plan.adjacency):
            return cls(epsilon, delta, gaussian.mu(plan.event, plan.adjacency))
        profile = tuple(
            (share * epsilon, accountant.delta(plan.event, plan.adjacency, share * epsilon))
            for share in _SHARES
        )
        return cls(epsilon, delta, None, profile)

    def least_missed(self, false: float) -> float:
        """Return the least rate of misses that the claim allows at a rate of false alarms.

        Dong, Roth and Su 2022, Definition 4 and Proposition 3 (the trade-off functions of mu-GDP
        and of (epsilon, delta)-DP).
        """
        least = 0.0 if self.mu is None else float(ndtr(ndtri(1.0 - false) - self.mu))
        for epsilon, delta in ((self.epsilon, self.delta), *self.profile):
            steep = 1.0 - delta - math.exp(min(epsilon, 700.0)) * false
            flat = math.exp(-epsilon) * (1.0 - delta - false)
            least = max(least, steep, flat)
        return least

    def mu_at(self, false: float) -> float:
        """Return the largest mu that a test with this rate of false alarms may prove."""
        return float(ndtri(1.0 - false) - ndtri(self.least_missed(false)))


def described(plan: Plan) -> str:
    """Describe the attacked plan in one line."""
    method = type(plan.method).__name__.removesuffix("Method")
    steps = f"{plan.n_steps} step" + ("s" if plan.n_steps > 1 else "")
    problem = plan.method.problem
    loss = "" if problem is None else f"{problem.loss!r}, "
    return f"{method}, {steps}, {loss}relation {plan.adjacency.value}"


@final
@dataclass(frozen=True)
class AuditReport:
    """A lower bound on privacy loss, and the claimed upper bound.

    Parameters
    ----------
    target : str
        The attacked mechanism.
    claim : Claim
        Its claim.
    release : {"all", "model"}
        The releases that the attacker saw.
    method : str
        Statistic of the attacker.
    neighbours : str
        The pair of data sets.
    runs : int
        Counted runs on each of both data sets; 0 where laws are known exactly.
    pilot_runs : int
        Held-out runs on each of both data sets of each pair, which chose the method.
    confidence : float
        Joint confidence of all bounds.
    epsilon : float
        Lower bound on epsilon at ``claim.delta``, for any mechanism at all.
    mu : float
        Lower bound on mu, for any mechanism that is mu-GDP.
    ratio : float
        Attained share of the claim; above 1 the claim is refuted. For many runs: ``mu`` over the
        largest that the claim allows at the same rate of false alarms. For one run, and for exact
        laws: epsilon over the claimed one.
    refuted : bool
        Whether the observations contradict the claim.
    noise : str
        Source of the runs' randomness.

    Notes
    -----
    A claim that is not refuted is not proved: another row, another statistic or more runs may
    tell more. The proof is in the accounting and its tests; an audit is there to catch mistakes
    in them.
    """

    target: Text
    claim: Claim
    release: str
    method: str
    neighbours: str
    runs: int
    pilot_runs: int
    confidence: float
    epsilon: float
    mu: float
    ratio: float
    refuted: bool
    noise: str

    @property
    def epsilon_of_mu(self) -> float:
        """Epsilon at ``claim.delta`` of a mechanism that is ``mu``-GDP and no better.

        Comparable with the claim where that is Gaussian; counting alone (``epsilon``) shows much
        less at a small delta.
        """
        return gdp.epsilon(self.claim.delta, self.mu)

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':<12} {text}" for name, text in self.lines())

    def _repr_html_(self) -> str:
        return card("Audit", self.lines())

    def lines(self) -> list[tuple[str, str]]:
        """Return the findings in words, each with a heading."""
        claim = self.claim
        claimed = f"epsilon {claim.epsilon:.4g} at delta {claim.delta:.2g}"
        found = f"epsilon at least {self.epsilon:.4g}"
        if claim.mu is not None:
            claimed += f" (mu {claim.mu:.4g})"
            found = (
                f"mu at least {self.mu:.4g}, that is epsilon {self.epsilon_of_mu:.4g}; from "
                f"counts alone epsilon at least {self.epsilon:.4g}"
            )
        seen = {"all": "everything that the claim covers", "model": "the returned model"}
        runs = "none: the laws are known exactly"
        if self.runs:
            held_out = f"{self.runs} counted on each data set, {self.pilot_runs} held out on each"
            runs = f"{held_out if self.pilot_runs else 'one'}; noise: {self.noise}"
        verdict = "not refuted. That is not a proof: a stronger attack may exist"
        if self.refuted:
            verdict = "REFUTED: the observations contradict the claim"
        return [
            ("Target", self.target),
            ("Claimed", claimed),
            ("Found", f"{found} (confidence {self.confidence:g})"),
            ("Reached", f"{self.ratio:.0%} of the claim"),
            ("Attack", f"{self.method}; {self.neighbours}; seen: {seen[self.release]}"),
            ("Runs", runs),
            ("Verdict", verdict),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; ``epsilon_of_mu`` where the claim is Gaussian."""
        of_mu = None if self.claim.mu is None else self.epsilon_of_mu
        return {**encode(self), "epsilon_of_mu": of_mu}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as JSON, and write it to a file if one is named."""
        text = json.dumps(self.to_dict(), indent=2) + "\n"
        if path is not None:
            write_text(path, text)
        return text
