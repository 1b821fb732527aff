"""Budgets that protect too little, whatever is done with them."""

from __future__ import annotations

from dpglm._words import rounded_up
from dpglm.privacy import gdp
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget, default_delta

__all__ = ["LARGEST_EPSILON", "weak", "weak_budget", "weak_delta", "weak_epsilon"]

LARGEST_EPSILON = 10.0
"""Above it, epsilon protects hardly anything."""

_LARGEST_DELTA = 0.01
# So that 1/n is at least 1/n however it was rounded.
_ALMOST = 1.0 - 1e-9


def weak_epsilon(epsilon: float) -> str | None:
    """Return the caution about a large epsilon, or None."""
    if epsilon <= LARGEST_EPSILON:
        return None
    return f"epsilon {rounded_up(epsilon)} protects hardly anything; 1 is a usual choice."


def weak_delta(delta: float, n_units: int | None) -> str | None:
    """Return the caution about a delta that allows publishing rows (or groups), or None."""
    # A quotient, as a file may hold a number of rows that is no float.
    if n_units is not None and delta > 0.0 and n_units >= _ALMOST / delta:
        return (
            f"delta {rounded_up(delta)} is at least 1/{n_units}: publishing a row at random would "
            "be allowed. Choose it far below, or 'auto'."
        )
    if delta >= _LARGEST_DELTA:
        return (
            f"delta {rounded_up(delta)} is at least {_LARGEST_DELTA:g}: publishing each row with "
            "that probability would be allowed. Choose it far below, or 'auto'."
        )
    return None


def weak(epsilon: float, delta: float, n_units: int | None) -> tuple[str, ...]:
    """Return the cautions about what is promised to rows (or groups), or planned to be."""
    said = (weak_epsilon(epsilon), weak_delta(delta, n_units))
    return tuple(sentence for sentence in said if sentence is not None)


def weak_budget(budget: PrivacyBudget, n_units: int) -> tuple[str, ...]:
    """Return the cautions about what a budget promises, before anything is spent."""
    if isinstance(budget, ApproximateDP):
        return weak(budget.epsilon, budget.delta, n_units)
    delta = default_delta(n_units)
    return weak(gdp.epsilon(delta, budget.gdp_mu()), delta, n_units)
