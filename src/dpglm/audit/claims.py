"""Claims of mechanisms, as the error rates that every test must then have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from scipy.special import ndtr, ndtri

from dpglm._validation import check_real
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.budget import default_delta
from dpglm.solvers.base import Plan

__all__ = ["Claim"]

# Shares of epsilon at which a claim is looked up: few, as each is a numerical computation.
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

    Examples
    --------
    >>> Claim(1.0, 1e-5).least_missed(0.1) > 0.7
    True
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

        References
        ----------
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

    def epsilon_of_mu(self, mu: float) -> float:
        """Return the epsilon at ``delta`` of a mechanism that is mu-GDP and no better."""
        return gdp.epsilon(self.delta, mu)
