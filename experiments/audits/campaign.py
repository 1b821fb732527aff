"""All lines of the campaign, in the order of the page."""

from __future__ import annotations

from experiments.audits import (
    additive,
    bugs,
    descriptions,
    effects,
    estimators,
    evaluations,
    groups,
    local,
    moments,
    networks,
    selectors,
    slack,
    solvers,
    steps,
    studies,
)
from experiments.audits.case import Case

__all__ = ["CAMPAIGN"]

CAMPAIGN: list[Case] = [
    *solvers.CASES,
    *estimators.CASES,
    *additive.CASES,
    *selectors.CASES,
    *steps.CASES,
    *slack.CASES,
    *descriptions.CASES,
    *moments.CASES,
    *effects.CASES,
    *evaluations.CASES,
    *groups.CASES,
    *studies.CASES,
    *local.CASES,
    *networks.CASES,
    *bugs.CASES,
    *additive.BUGS,
    *descriptions.BUGS,
    *moments.BUGS,
    *slack.BUGS,
    *effects.BUGS,
    *evaluations.BUGS,
    *groups.BUGS,
    *studies.BUGS,
    *local.BUGS,
    *networks.BUGS,
]
