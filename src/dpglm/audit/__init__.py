"""Attacks that try to refute the library's own claims."""

from dpglm.audit.attack import audit, exact_audit
from dpglm.audit.guessing import audit_in_one_run, epsilon_of_guesses, p_value_of_guesses
from dpglm.audit.neighbours import Neighbours, worst_neighbours
from dpglm.audit.report import AuditReport, Claim, ErrorBounds, error_bounds, rate_above

__all__ = [
    "AuditReport",
    "Claim",
    "ErrorBounds",
    "Neighbours",
    "audit",
    "audit_in_one_run",
    "epsilon_of_guesses",
    "error_bounds",
    "exact_audit",
    "p_value_of_guesses",
    "rate_above",
    "worst_neighbours",
]
