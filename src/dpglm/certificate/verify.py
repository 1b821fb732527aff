"""Verification of a certificate: whether its claim follows from its record."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from dpglm._calls import checked
from dpglm._codec import encode
from dpglm._words import card, plain_number
from dpglm.certificate.certificate import (
    Certificate,
    CertifiedPart,
    check_size,
    library_versions,
    loss_in_words,
)
from dpglm.certificate.recompute import Recomputation, check_cost, gaussian_mu, recompute
from dpglm.certificate.statement import SCOPE
from dpglm.data.split import size_of_part
from dpglm.exceptions import TooCostlyError
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.events import (
    Composed,
    DisjointParts,
    Event,
    Gaussian,
    LastIterate,
    RandomlyRepeated,
    Repeated,
    canonical,
)
from dpglm.privacy.noise import SystemNoise
from dpglm.privacy.noise.source import OpenDPNoise
from dpglm.solvers.base import Plan

_ROUNDING = 1e-6
_LAST_DIGITS = 1e-9
_PASSED = "passed"
# Exceptions of reading or checking an inconsistent record.
_UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


@final
@dataclass(frozen=True)
class Check:
    """One check of a certificate, and its result."""

    name: str
    passed: bool
    detail: str


@final
@dataclass(frozen=True)
class Verification:
    """The result of ``verify``.

    Parameters
    ----------
    checks : tuple of Check
        Every check.
    recomputed : tuple of Recomputation
        The claim as recomputed by independent accountants.
    caveats : tuple of str
        Weaknesses of a consistent certificate: see ``Certificate.caveats``.
    too_costly : str or None, default=None
        The reason why the claim was not recomputed, if that would take too much time or memory.
        Then ``ok`` is False.
    is_private : bool, default=True
        Whether the noise cannot be reproduced. If it can, the claim is worthless.
    """

    checks: tuple[Check, ...]
    recomputed: tuple[Recomputation, ...]
    caveats: tuple[str, ...]
    too_costly: str | None = None
    is_private: bool = True

    @property
    def ok(self) -> bool:
        """Whether every check passed. A certificate with caveats can be ok."""
        return all(check.passed for check in self.checks)

    @property
    def unqualified(self) -> bool:
        """Whether the result may be called private: every check passed, without any caveat."""
        return self.ok and not self.caveats

    def beside(self, cautions: Sequence[str]) -> Verification:
        """Return the result with further caveats."""
        return dataclasses.replace(self, caveats=(*cautions, *self.caveats))

    @property
    def findings(self) -> tuple[str, ...]:
        """One sentence for each failed check."""
        return tuple(f"{one.name}: {one.detail}" for one in self.checks if not one.passed)

    @property
    def verdict(self) -> str:
        """The result in a sentence or two."""
        if self.ok:
            but = "" if self.is_private else " NOT PRIVATE: its noise can be reproduced."
            return f"The certificate holds.{but}"
        if self.too_costly is not None and len(self.findings) == 1:
            return "THE CERTIFICATE IS TOO COSTLY TO CHECK."
        return "THE CERTIFICATE DOES NOT HOLD."

    def _repr_html_(self) -> str:
        return card(
            self.verdict,
            [(f"epsilon by {one.accountant}", f"{one.epsilon:.6g}") for one in self.recomputed],
            warnings=(*self.findings, *self.caveats),
            sections=[("Every check", [f"{one.name}: {one.detail}" for one in self.checks])],
        )

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return the verdict and every check as text, one line each."""
        lines = [self.verdict]
        lines += [f"  {'ok  ' if c.passed else 'FAIL'}  {c.name}: {c.detail}" for c in self.checks]
        lines += [f"  note  {remark}" for remark in (*self.caveats, SCOPE)]
        return "\n".join(" ".join(one.splitlines()) for one in lines)


@checked
def verify(certificate: Certificate) -> Verification:
    """Check that the claim of a certificate follows from its record.

    Parameters
    ----------
    certificate : Certificate
        As read from a file; nothing in it is trusted.

    Returns
    -------
    Verification
        Returned for every certificate that could be read; failures are among its checks.

    Notes
    -----
    Privacy: epsilon and delta are recomputed from the recorded events: by a closed form for
    Gaussian events, else by their accountant and, where possible, by an independent method
    (``docs/privacy.md``). The plan of each part is rebuilt with all checks of planning. Its events
    and releases must be the recorded ones, its event must cover the mechanisms, and the noise must
    have the scale that plan and relation require. The parts of a study must use the rows of its
    split. A claim that takes more than about 60 seconds or 2 GB is reported as too costly. A
    certificate cannot prove that the run executed its plan, that declared facts are public, or
    that the parts of a study used disjoint rows.

    Examples
    --------
    >>> import dataclasses
    >>> from dpglm.estimators import LogisticRegression
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0).fit([[0.5], [1.0]], [0, 1])
    >>> verify(model.privacy_).ok
    True
    >>> cheaper = dataclasses.replace(model.privacy_, epsilon=0.5)
    >>> verify(cheaper).findings[0]
    'claim, recomputed by closed form: epsilon 1 at delta 1e-05; claimed 0.5'
    """
    recomputed: tuple[Recomputation, ...] = ()
    event, delta, too_costly = certificate.event, certificate.delta, None
    trouble = "no independent accountant supports the recorded event"
    try:
        check_size([part.plan for part in certificate.parts.values()])
        check_cost(event)
        recomputed = tuple(recompute(event, certificate.adjacency, certificate.epsilon, delta))
    except TooCostlyError as error:
        trouble = too_costly = f"too costly to check ({error})"
    except (ArithmeticError, MemoryError, ValueError) as error:
        trouble = f"the recorded event cannot be accounted for ({error})"
    # Rounding explains a relative excess of delta only; 1e-300 is for a delta of 0.
    checks = [
        Check(
            f"claim, recomputed by {one.accountant}",
            one.delta <= delta * (1.0 + one.tolerance) + 1e-300,
            f"epsilon {plain_number(one.epsilon, 6)} at delta {delta:.6g}; "
            f"claimed {plain_number(certificate.epsilon, 6)}",
        )
        for one in recomputed
    ]
    if not recomputed:
        checks.append(Check("claim, recomputed", False, trouble))
    if too_costly is None:
        # Only now: rebuilding a plan takes as long as its recomputation.
        name = "claim without delta"
        if delta > 0.0:
            checks.append(Check(name, True, "not needed: the claim has a delta above 0"))
        else:
            checks.append(_guarded(name, _check_pure, certificate))
    checks += [_guarded(name, check, certificate) for name, check in _CHECKS.items()]
    for name, part in certificate.parts.items():
        lead = "" if len(certificate.parts) == 1 else f"{name}: "
        if too_costly is None:
            rebuilt = f"{lead}the plan can be rebuilt"
            try:
                plan = part.rebuild()
            except _UNREADABLE as error:
                checks.append(Check(rebuilt, False, f"it cannot: {error}"))
            else:
                checks.append(Check(rebuilt, True, _PASSED))
                for what, of_plan in _CHECKS_OF_PLAN.items():
                    checks.append(_guarded(lead + what, of_plan, certificate, part, plan))
        for what, own in _CHECKS_OF_PART.items():
            checks.append(_guarded(lead + what, own, part))
    caveats, is_private = certificate.caveats(), certificate.noise_is_private
    return Verification(tuple(checks), recomputed, caveats, too_costly, is_private)


def _guarded(name: str, check: Callable[..., str | None], *record: Any) -> Check:
    """Run a check; a record that cannot be read fails it."""
    try:
        finding = check(*record)
    except _UNREADABLE as error:
        finding = f"cannot be checked from the record ({type(error).__name__}: {error})"
    return Check(name, finding is None, finding or _PASSED)


def _check_pure(certificate: Certificate) -> str | None:
    # A recomputed delta may be 0 because it underflows.
    event, adjacency = certificate.event, certificate.adjacency
    least = accountant_for(event, adjacency).epsilon(event, adjacency, 0.0)
    if not least <= certificate.epsilon * (1.0 + _LAST_DIGITS):
        return f"epsilon without a delta is {least:.6g}, claimed {certificate.epsilon:.6g}"
    return None


def _check_budget(certificate: Certificate) -> str | None:
    mu = gaussian_mu(certificate.event)
    spent: dict[str, float] = {"epsilon": certificate.epsilon, "delta": certificate.delta}
    if mu is not None:
        spent.update(mu=mu, rho=0.5 * mu * mu)
    for currency, most in encode(certificate.budget).items():
        if currency not in spent:
            return f"the event has no {currency}"
        if not spent[currency] <= most * (1.0 + _ROUNDING):
            return f"{currency} is {spent[currency]!r}, but only {most!r} was allowed"
    return None


def _check_protection(certificate: Certificate) -> str | None:
    """Check that every part was planned for the stated relation, unit, rows and budget."""
    stated, parts = certificate.protection, certificate.parts
    split = None if len(parts) == 1 else certificate.split
    for name, one in parts.items():
        rows, units = (size_of_part(name, n, split) for n in (stated.n_rows, stated.n_units))
        facts = {
            "adjacency": (one.adjacency, stated.adjacency),
            "unit": (one.data.unit, stated.unit),
            "number of rows": (one.data.n_rows, rows),
            f"number of {stated.unit.value}s": (one.data.n_units, units),
        }
        if len(parts) == 1:
            facts["budget"] = one.budget, stated.budget
        for what, (planned, expected) in facts.items():
            if planned != expected:
                return f"the {name} was planned for the {what} {planned!r}, not {expected!r}"
    return None


def _check_mechanisms(part: CertifiedPart) -> str | None:
    covered = canonical(Composed(tuple(_unrolled(part.event))))
    happened = canonical(part.mechanisms)
    if set(covered.terms) != set(happened.terms):
        return f"accounted for {covered!r}, but {happened!r} happened"
    return None


def _unrolled(event: Event) -> Iterator[Event]:
    """List the mechanisms of an event; a last iterate stands for all its steps."""
    for basic, count in canonical(event).terms:
        if isinstance(basic, LastIterate):
            yield Repeated(Gaussian(basic.noise_multiplier), count * basic.steps)
        elif isinstance(basic, DisjointParts):
            parts = tuple(Composed(tuple(_unrolled(part))) for part in basic.events)
            yield Repeated(type(basic)(parts), count)
        elif isinstance(basic, RandomlyRepeated):
            tries = tuple(Composed(tuple(_unrolled(one))) for one in basic.events)
            yield Repeated(RandomlyRepeated(tries, basic.repetitions), count)
        else:
            yield Repeated(basic, count)


def _check_events(_: Certificate, part: CertifiedPart, plan: Plan) -> str | None:
    pairs = (
        ("accounted for", part.event, plan.event),
        ("happened", part.mechanisms, plan.method.mechanisms),
    )
    for what, recorded, planned in pairs:
        if not _same(encode(canonical(recorded), Event), encode(canonical(planned), Event)):
            return f"{planned!r} was planned, but {recorded!r} {what}"
    return None


def _check_releases(_: Certificate, part: CertifiedPart, plan: Plan) -> str | None:
    planned, recorded = plan.method.releases, part.releases
    if [one.quantity for one in planned] != [one.quantity for one in recorded]:
        return (
            f"{[one.quantity for one in planned]} were planned, but "
            f"{[one.quantity for one in recorded]} recorded"
        )
    for one, other in zip(planned, recorded, strict=True):
        wanted, found = encode(one), encode(other)
        for name in wanted:
            if not _same(wanted[name], found[name]):
                said = f"the plan has the {name} {wanted[name]!r} of a {one.quantity}"
                return f"{said}, not {found[name]!r}"
    return None


def _check_noise(certificate: Certificate, part: CertifiedPart, plan: Plan) -> str | None:
    same_library = certificate.versions.get("dpglm") == library_versions()["dpglm"]
    for planned, drawn in zip(plan.method.releases, part.noise_scales, strict=True):
        # From the definition, not from the release; a grid needs more.
        relation = certificate.adjacency
        sensitivity = relation.sum_sensitivity(planned.contribution_bound, planned.diameter)
        sensitivity += relation.sum_sensitivity(planned.rounding)
        least = max(planned.scale.std, planned.noise_multiplier * sensitivity)
        found = f"noise of {drawn!r} in a {planned.quantity}"
        if not drawn >= least * (1.0 - _LAST_DIGITS):
            return f"{found} is below the {least!r} that this relation and bound require"
        if same_library and drawn > least * (1.0 + _LAST_DIGITS):
            return f"{found} is not the {least!r} that this relation and bound require"
    return None


def _same(one: object, other: object) -> bool:
    """Whether two JSON values are equal up to the last digits of floats."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= _LAST_DIGITS * abs(one)
    return type(one) is type(other) and one == other


def _check_sizes(part: CertifiedPart) -> str | None:
    adjacency, data = part.adjacency, part.data
    rows_are_public = adjacency.rows_are_public(data.unit)
    counts = [("n_rows", data.n_rows, rows_are_public)]
    if data.groups is not None:
        counts.append(("n_groups", data.groups.n_groups, adjacency.n_is_public))
    for name, planned, is_public in counts:
        fact = part.fact(name)
        if fact is None:
            continue
        if fact.value != planned:
            return f"{name} is {fact.value!r}, but the plan has another number"
        if fact.provenance == "by relation" and not is_public:
            return f"{name} is declared public by relation, but is private under {adjacency.value}"
    return None


def _check_facts(_: Certificate, part: CertifiedPart, plan: Plan) -> str | None:
    """Check that the public facts list everything that the plan depends on."""
    data, losses = plan.data, {one.problem.loss for one in plan.method.children}
    if part.loss != loss_in_words(plan):
        return f"the plan minimises {loss_in_words(plan)}, but the loss is {part.loss}"
    problem = plan.method.problem
    if losses and (problem is None or problem.loss not in losses):
        return "no stage minimised the loss of the plan"
    listed = {fact.name for fact in part.public_facts}
    needed = [{"n_rows"}, {"row_norm", "feature_bounds", "schema"}]
    if problem is not None:
        # Two classes may be fitted as numbers.
        numbers = problem.loss.target.is_number
        needed.append({"classes", "target_bounds"} if numbers else {"classes"})
    if data.groups is not None:
        needed.append({"n_groups"})
    if data.weight_bound != 1.0:
        needed.append({"weight_bound", "class_weight"})
    for names in needed:
        if not names & listed:
            return f"the public facts lack {' or '.join(sorted(names))}"
    row_norm = part.fact("row_norm")
    if row_norm is not None and row_norm.value != data.row_norm:
        return f"row_norm is {row_norm.value!r}, but the plan has {data.row_norm!r}"
    return None


def _check_source(certificate: Certificate) -> str | None:
    known = (SystemNoise.name, OpenDPNoise.name)
    if certificate.noise_is_private and certificate.noise_source not in known:
        return f"{certificate.noise_source!r} is declared private, but is not one of {known}"
    return None


def _check_digest(part: CertifiedPart) -> str | None:
    if re.fullmatch("[0-9a-f]{64}", part.model_digest) is None:
        return f"{part.model_digest!r} is not a SHA-256 digest"
    return None


_CHECKS: dict[str, Callable[[Certificate], str | None]] = {
    "claim is within the budget": _check_budget,
    "parts have the stated protection": _check_protection,
    "noise source": _check_source,
}
_CHECKS_OF_PART: dict[str, Callable[[CertifiedPart], str | None]] = {
    "every release was accounted for": _check_mechanisms,
    "sizes match the relation": _check_sizes,
    "digest of the results": _check_digest,
}
_CHECKS_OF_PLAN: dict[str, Callable[[Certificate, CertifiedPart, Plan], str | None]] = {
    "releases were planned": _check_events,
    "releases are those of the plan": _check_releases,
    "noise was large enough": _check_noise,
    "public facts": _check_facts,
}
