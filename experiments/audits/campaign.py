"""All lines of the campaign, in the order of the page."""

from __future__ import annotations

from experiments.audits import bugs, estimators, local, networks, selectors, solvers, steps
from experiments.audits.case import Case

__all__ = ["CAMPAIGN"]

CAMPAIGN: list[Case] = [
    *solvers.CASES,
    *estimators.CASES,
    *selectors.CASES,
    *steps.CASES,
    *local.CASES,
    *networks.CASES,
    *bugs.CASES,
    *local.BUGS,
    *networks.BUGS,
]
