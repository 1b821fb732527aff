"""How good a model to expect from a plan: a rule of thumb, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpglm.privacy import gdp

if TYPE_CHECKING:
    from dpglm.solvers.base import Plan

__all__ = ["cautions", "expectation", "is_hopeless", "signal_to_noise"]

# Shares of the improvement over the constant answer that default fits reach, from public data
# (Adult, breast cancer, digits, Fashion-MNIST; 285 to 60000 rows, 31 to 7850 coefficients).
_EXPECTATIONS = (
    (3.0, "The noise will drown nearly everything: do not fit with these numbers."),
    (10.0, "Expect a rough pattern only: at most half of what can be learned."),
    (30.0, "Expect a useful but clearly weaker model: half to three quarters of what can be had."),
    (100.0, "Expect a good model: three quarters or more of what can be had without privacy."),
    (math.inf, "Expect a model close to the one without privacy."),
)
_GOOD = 30.0
# Above it hardly anything is protected, so that it is not advised.
_LARGEST_EPSILON = 10.0
_HOPELESS = _EXPECTATIONS[0][0]


def signal_to_noise(plan: Plan) -> float:
    """Return the number of rows, times what privacy leaves of each, per root of coefficients.

    Parameters
    ----------
    plan : Plan
        The plan of a fit.

    Returns
    -------
    float
        ``n mu / (f sqrt(coefficients))``, with the budget's mu and the relation's factor f;
        for a delta of 0, where L2 noise is as long as ``coefficients / epsilon``,
        ``n epsilon / (f coefficients)``.
    """
    factor = plan.adjacency.sum_sensitivity(1.0)
    if _is_pure(plan):
        epsilon = plan.budget.as_approximate_dp().epsilon
        return plan.data.n_rows * epsilon / factor / plan.data.n_coefficients
    return plan.data.n_rows * plan.budget.gdp_mu() / factor / math.sqrt(plan.data.n_coefficients)


def _is_pure(plan: Plan) -> bool:
    return plan.budget.to_dict().get("delta") == 0.0


def is_hopeless(plan: Plan) -> bool:
    """Return whether noise will drown nearly everything."""
    return signal_to_noise(plan) < _HOPELESS


def expectation(plan: Plan) -> list[str]:
    """Say in words how good a model to expect, and what would make it better.

    Parameters
    ----------
    plan : Plan
        The plan of a fit.

    Returns
    -------
    list of str
        Sentences.
    """
    ratio = signal_to_noise(plan)
    verdict = next(text for bound, text in _EXPECTATIONS if ratio < bound)
    if ratio >= _GOOD:
        return [verdict]
    if _is_pure(plan):
        return [verdict, "A delta above 0 would allow Gaussian noise, of which less is needed."]
    lack = _GOOD / ratio
    epsilon = gdp.epsilon(plan.budget.as_approximate_dp().delta, plan.budget.gdp_mu() * lack)
    fewer = plan.data.n_features / lack**2
    cures = [
        f"about {_round_up(plan.data.n_rows * lack)} rows",
    ]
    if epsilon <= _LARGEST_EPSILON:
        cures.append(f"epsilon {epsilon:.2g}, which protects less")
    if fewer >= 1.0:
        cures.append(
            f"about {int(fewer)} features: leave columns out, or merge categories, by public "
            "knowledge"
        )
    return [verdict, f"For a good model it would take {'; or '.join(cures)}."]


def cautions(plan: Plan) -> list[str]:
    """Say where a budget protects too little.

    Parameters
    ----------
    plan : Plan
        The plan of a fit.

    Returns
    -------
    list of str
        Sentences; empty if nothing does.
    """
    budget, rows = plan.budget.as_approximate_dp(), plan.data.n_rows
    found = []
    if budget.epsilon > _LARGEST_EPSILON:
        found.append(f"epsilon {budget.epsilon:g} protects hardly anything; 1 is a usual choice.")
    if budget.delta * rows >= 1.0:
        found.append(
            f"delta {budget.delta:g} is at least 1/{rows}: publishing a row at random would be "
            "allowed. Choose it far below, or 'auto'."
        )
    return found


def _round_up(value: float) -> int:
    """Two significant digits, rounded up."""
    unit: int = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return unit * math.ceil(value / unit)
