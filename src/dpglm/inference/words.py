"""What intervals rest on, in words."""

from __future__ import annotations

import math
from collections import defaultdict

from dpglm._registry import snake_case
from dpglm._words import plain_number, rounded_up
from dpglm.certificate.certificate import Certificate
from dpglm.data.spec import DataSpec
from dpglm.inference.estimates import Estimates
from dpglm.privacy.accounting.accountants import GaussianAccountant
from dpglm.privacy.events import Repeated
from dpglm.problem import L2, Loss, NoPenalty, Regularizer, WithOffset

__all__ = ["facts", "is_shrunk", "notes", "shares_of_budget"]

# In rows: a penalty of C = 1000 and more moves coefficients by less than their standard errors.
_HARMLESS_PENALTY = 1e-3
_KINDS = {"model": "model-based", "robust": "robust (sandwich)"}


def facts(certificate: Certificate, kind: str) -> tuple[tuple[str, str], ...]:
    """Name what was fitted, to what, with which budget."""
    problem = certificate.problem
    spent = f"epsilon {rounded_up(certificate.epsilon)}, delta {rounded_up(certificate.delta)}"
    found = {
        "Loss": _loss(problem.loss),
        "Outcome": _outcome(certificate),
        "Penalty": _penalty(problem.regularizer),
        "Rows": _rows(certificate.data),
        "Covariance": _KINDS[kind],
        "Privacy": f"{spent}; {certificate.adjacency.value} ({certificate.relation})",
        "Budget": shares_of_budget(certificate),
    }
    return tuple((name, text) for name, text in found.items() if text)


def _rows(data: DataSpec) -> str:
    if data.groups is None:
        return str(data.n_rows)
    return f"{data.n_rows} of {data.n_units} groups"


def notes(certificate: Certificate, estimates: Estimates, level: float) -> tuple[str, ...]:
    """Say what the intervals cover, at which level, under which assumptions."""
    freedom = estimates.degrees_of_freedom
    law = "the normal distribution"
    if math.isfinite(freedom):
        law = f"Student's t distribution with {plain_number(freedom, 3)} degrees of freedom"
    covered = (
        f"{plain_number(100.0 * level)} % intervals, which cover sampling and privacy noise "
        f"together, by {law}. noise: share of the variance that is due to privacy."
    )
    assumed = (
        "The model is assumed to be right: its link, and the variance of the target that its loss "
        "implies. inference='robust' assumes neither."
    )
    if certificate.fact("weight_bound") is not None:
        assumed += " A weight divides that variance, as a number of trials does."
    if estimates.kind == "robust":
        assumed = (
            "Sandwich covariance: the model need not be right. Coefficients are those that "
            "minimise the expected loss."
        )
        weights = certificate.rebuild().method.estimand
        assumed += f" {weights}" if weights else ""
        if certificate.data.groups is not None:
            assumed += " The rows of a group may depend on each other in any way (cluster-robust)."
    elif certificate.data.groups is not None:
        assumed += " The rows of a group are assumed to be independent given their features."
    rows = (
        "Rows are assumed independent. Values beyond declared bounds are clipped to them before "
        "the fit, and it is the clipped ones that the coefficients are about."
    )
    shrunk = (
        "The penalty changes the target: intervals are about the coefficients that minimise the "
        "expected loss with it, which are shrunk towards zero."
    )
    shrinks = (shrunk,) if is_shrunk(certificate) else ()
    return (covered, assumed, rows, *shrinks, *certificate.caveats())


def is_shrunk(certificate: Certificate) -> bool:
    """Whether the penalty moves coefficients by an amount that counts beside their errors."""
    weight = certificate.problem.regularizer.strong_convexity * certificate.data.n_rows
    return weight > _HARMLESS_PENALTY


def _loss(loss: Loss) -> str:
    """Name a loss and its link, without the constants that standardized targets change."""
    parts = []
    if isinstance(loss, WithOffset):
        loss, parts = loss.loss, ["offsets"]
    if loss.link is not None:
        parts.insert(0, f"{type(loss.link).__name__.removesuffix('Link')}_link")
    return ", ".join(snake_case(one) for one in [type(loss).__name__, *parts]).replace("_", " ")


def _outcome(certificate: Certificate) -> str:
    """Say which of two classes the coefficients speak for; "" for numbers."""
    classes = certificate.fact("classes")
    return "" if classes is None else f"{classes.value[1]}, against {classes.value[0]}"


def _penalty(penalty: Regularizer) -> str:
    """Name a penalty; "" if there is none."""
    none = isinstance(penalty, NoPenalty) or penalty == L2(0.0)
    strength = plain_number(penalty.strong_convexity, 3)
    return "" if none else f"{type(penalty).__name__} of strength {strength}, on scaled columns"


def shares_of_budget(certificate: Certificate) -> str:
    """Say which share of mu squared each kind of release took; "" where one is not Gaussian."""
    exact = GaussianAccountant()
    counts: dict[str, int] = defaultdict(int)
    squares: dict[str, float] = defaultdict(float)
    for release in certificate.releases:
        event = Repeated(release.event, release.count)
        if not exact.supports(event, certificate.adjacency):
            return ""
        counts[release.quantity] += release.count
        squares[release.quantity] += exact.mu(event, certificate.adjacency) ** 2
    total = math.fsum(squares.values())
    return "; ".join(
        f"{plain_number(100.0 * square / total, 3)} % {quantity}"
        + ("" if counts[quantity] == 1 else f" ({counts[quantity]} times)")
        for quantity, square in squares.items()
    )
