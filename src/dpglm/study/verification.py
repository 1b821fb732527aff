"""Checking a study's certificate: every part, how they compose, and what they cost together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from dpglm.certificate.checker.cost import check_cost
from dpglm.certificate.checker.recompute import Recomputation, recompute
from dpglm.certificate.verify import Check, Verification, check_claim, guarded, verify
from dpglm.exceptions import TooCostlyError
from dpglm.privacy.accounting.calibrate import within_budget
from dpglm.study.certificate import StudyCertificate
from dpglm.study.parts.part import EVALUATION, EXPLORATION

__all__ = ["verify_study"]


def verify_study(certificate: StudyCertificate) -> Verification:
    """Check that a study's claim follows from what its certificate records.

    Parameters
    ----------
    certificate : StudyCertificate
        As read from a file; nothing in it is trusted.

    Returns
    -------
    Verification
        Never raises for a certificate that could be read.

    Notes
    -----
    Privacy: each part is checked as ``dpglm.certificate.verify`` does; then the parts' events are
    composed as the split says, the whole is accounted for anew, and compared with claim and budget.
    That no row was in two parts cannot be seen from any file.
    """
    checks: list[Check] = []
    too_costly = None
    for name, part in certificate.parts.items():
        found = verify(part)
        checks += [dataclasses.replace(one, name=f"{name}: {one.name}") for one in found.checks]
        too_costly = too_costly or found.too_costly
    recomputed: tuple[Recomputation, ...] = ()
    try:
        check_cost(certificate.event)
        recomputed = tuple(
            recompute(
                certificate.event, certificate.adjacency, certificate.epsilon, certificate.delta
            )
        )
        checks += [check_claim(certificate.epsilon, certificate.delta, one) for one in recomputed]
    except TooCostlyError as error:
        too_costly = f"too costly to check ({error})"
        checks.append(Check("whole: claim, recomputed", False, too_costly))
    except (ArithmeticError, MemoryError, ValueError) as error:
        trouble = f"the recorded events cannot be accounted for together ({error})"
        checks.append(Check("whole: claim, recomputed", False, trouble))
    else:
        if not recomputed:
            checks.append(Check("whole: claim, recomputed", False, "no accountant knows the event"))
    if too_costly is None:
        checks += [
            guarded(f"whole: {name}", functools.partial(check, certificate))
            for name, check in _CHECKS.items()
        ]
    caveats, is_private = certificate.caveats(), certificate.noise_is_private
    return Verification(tuple(checks), recomputed, caveats, too_costly, is_private)


def _check_budget(certificate: StudyCertificate) -> str | None:
    event, adjacency, budget = certificate.event, certificate.adjacency, certificate.budget
    if not within_budget(event, adjacency, budget):
        return f"{event!r} was released, which {budget!r} does not allow"
    return None


def _check_delta(certificate: StudyCertificate) -> str | None:
    allowed = certificate.budget.to_dict()
    for name in ("epsilon", "delta"):
        found = getattr(certificate, name)
        if name in allowed and not found <= allowed[name] * (1.0 + 1e-6):
            return f"{name} is {found!r}, but only {allowed[name]!r} was allowed"
    return None


def _check_rows(certificate: StudyCertificate) -> str | None:
    """Check that every part was planned for the rows, and persons, that the split gives it."""
    for name, one in certificate.parts.items():
        for what, whole, found in (
            ("rows", certificate.n_rows, one.data.n_rows),
            ("persons", certificate.n_units, one.data.n_units),
        ):
            planned = whole
            if certificate.split is not None and name != EXPLORATION:
                learning, evaluating = certificate.split.sizes(whole)
                planned = evaluating if name == EVALUATION else learning
            if found != planned:
                return f"the {name} was planned for {found} {what}, not for {planned}"
    return None


def _check_ledger(certificate: StudyCertificate) -> str | None:
    charged = [name for name, one in certificate.parts.items() if one.ledger is not None]
    if charged:
        return f"{charged[0]} was charged to a ledger by itself, beside the whole"
    return None


_CHECKS: dict[str, Callable[[StudyCertificate], str | None]] = {
    "everything is within the budget": _check_budget,
    "claim is within the budget": _check_delta,
    "parts have the rows of the split": _check_rows,
    "paid for once": _check_ledger,
}
