"""Checking a certificate: whether its claim follows from everything that it records."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from dpglm._codec import encode
from dpglm._words import card, plain_number
from dpglm.certificate.certificate import (
    Certificate,
    check_size,
    library_versions,
    loss_in_words,
)
from dpglm.certificate.checker.recompute import Recomputation, check_cost, gaussian_mu, recompute
from dpglm.certificate.statement import SCOPE
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
from dpglm.privacy.noise.opendp import OpenDPNoise
from dpglm.solvers.base import Plan

_ROUNDING = 1e-6
_LAST_DIGITS = 1e-9
_FINE = "passed"
# What reading and checking a record that makes no sense may raise.
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
    """One check of a certificate, and what it found."""

    name: str
    passed: bool
    detail: str


@final
@dataclass(frozen=True)
class Verification:
    """What ``verify`` found.

    Parameters
    ----------
    checks : tuple of Check
        Everything that was looked at.
    recomputed : tuple of Recomputation
        The claim as independent accountants see it.
    caveats : tuple of str
        What makes a consistent certificate weaker than its epsilon: see
        ``Certificate.caveats``.
    too_costly : str or None, default=None
        Why the claim was not recomputed, if that would take too much time or memory: then
        nothing is known of it, and ``ok`` is False.
    is_private : bool, default=True
        Whether nobody can reproduce the noise; else the claim follows and protects nobody.
    """

    checks: tuple[Check, ...]
    recomputed: tuple[Recomputation, ...]
    caveats: tuple[str, ...]
    too_costly: str | None = None
    is_private: bool = True

    @property
    def ok(self) -> bool:
        """Whether every check passed. A certificate with caveats can be ok: see ``caveats``."""
        return all(check.passed for check in self.checks)

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong, one sentence each; empty if nothing is."""
        return tuple(f"{one.name}: {one.detail}" for one in self.checks if not one.passed)

    @property
    def verdict(self) -> str:
        """What was found, in a sentence or two."""
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
        """Return the verdict and every check as text, each in one line."""
        lines = [self.verdict]
        lines += [f"  {'ok  ' if c.passed else 'FAIL'}  {c.name}: {c.detail}" for c in self.checks]
        lines += [f"  note  {remark}" for remark in (*self.caveats, SCOPE)]
        return "\n".join(" ".join(one.splitlines()) for one in lines)


def verify(certificate: Certificate) -> Verification:
    """Check that a certificate's claim follows from what it records.

    Parameters
    ----------
    certificate : Certificate
        As read from a file; nothing in it is trusted.

    Returns
    -------
    Verification
        Never raises for a certificate that could be read.

    Notes
    -----
    Privacy: epsilon and delta are recomputed from the recorded event, by a closed form where
    all is Gaussian and by ``FourierAccountant``, which uses nothing of dp-accounting. The plan
    is made anew from its document, with all that making one checks: that it is within its budget,
    that its parts go together, that a last-iterate bound applies. It is checked number by number
    that its events and releases are the recorded ones, that the event covers the mechanisms, and
    that the noise was as large as plan and relation ask for. Grids are bounded, so that a
    recomputation takes some 60 seconds and 2 GB at most; of a claim that asks for larger ones the
    answer is that it is too costly to check. What no certificate can show: that the run did what it
    recorded, and that declared facts are public.

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
    recomputed, trouble, too_costly = _recomputed(certificate)
    checks = [check_claim(certificate.epsilon, certificate.delta, one) for one in recomputed]
    if not recomputed:
        checks.append(Check("claim, recomputed", False, trouble))
    if too_costly is None:
        # No sooner: making a plan asks for what it costs.
        checks.append(guarded("claim without delta", functools.partial(_check_pure, certificate)))
        checks += _checks_of_plan(certificate)
    checks += [
        guarded(name, functools.partial(check, certificate)) for name, check in _CHECKS.items()
    ]
    caveats, is_private = certificate.caveats(), certificate.noise_is_private
    return Verification(tuple(checks), recomputed, caveats, too_costly, is_private)


def _recomputed(certificate: Certificate) -> tuple[tuple[Recomputation, ...], str, str | None]:
    """Return recomputations, or why there are none; and that reason again if it is cost."""
    event, adjacency = certificate.event, certificate.adjacency
    try:
        check_size(certificate.plan)
        check_cost(event)
        found = tuple(recompute(event, adjacency, certificate.epsilon, certificate.delta))
    except TooCostlyError as error:
        trouble = f"too costly to check ({error})"
        return (), trouble, trouble
    except (ArithmeticError, MemoryError, ValueError) as error:
        return (), f"the recorded event cannot be accounted for ({error})", None
    return found, "no independent accountant knows the recorded event", None


def check_claim(epsilon: float, delta: float, one: Recomputation) -> Check:
    """Compare a claim with a recomputation of it."""
    # A relative excess of delta is all that rounding can explain; 1e-300 is for a delta of 0.
    allowed = delta * (1.0 + one.tolerance) + 1e-300
    return Check(
        f"claim, recomputed by {one.accountant}",
        one.delta <= allowed,
        f"epsilon {plain_number(one.epsilon, 6)} at delta {delta:.6g}; "
        f"claimed {plain_number(epsilon, 6)}",
    )


def _checks_of_plan(certificate: Certificate) -> Iterator[Check]:
    """Make the plan anew, and compare what is recorded with it."""
    name = "the plan can be made again"
    try:
        plan = certificate.rebuild()
    except _UNREADABLE as error:
        yield Check(name, False, f"it cannot: {error}")
        return
    yield Check(name, True, _FINE)
    for name, check in _CHECKS_OF_PLAN.items():
        yield guarded(name, functools.partial(check, certificate, plan))


def guarded(name: str, check: Callable[[], str | None]) -> Check:
    """Run a check; a record that cannot even be read fails it."""
    try:
        finding = check()
    except _UNREADABLE as error:
        finding = f"cannot be checked from what is recorded ({type(error).__name__}: {error})"
    return Check(name, finding is None, finding or _FINE)


def _check_pure(certificate: Certificate) -> str | None:
    # A delta that is computed may be 0 because it is too small for a float.
    if certificate.delta > 0.0:
        return None
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
            return f"the event's {currency} is not known"
        if not spent[currency] <= most * (1.0 + _ROUNDING):
            return f"{currency} is {spent[currency]!r}, but only {most!r} was allowed"
    return None


def _check_mechanisms(certificate: Certificate) -> str | None:
    covered = canonical(Composed(tuple(_unrolled(certificate.event))))
    happened = canonical(certificate.mechanisms)
    if set(covered.terms()) != set(happened.terms()):
        return f"accounted for {covered!r}, but {happened!r} happened"
    return None


def _unrolled(event: Event) -> Iterator[Event]:
    """List what happens in an event: a last iterate stands for all its steps."""
    for basic, count in canonical(event).terms():
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


def _check_events(certificate: Certificate, plan: Plan) -> str | None:
    pairs = (
        ("accounted for", certificate.event, plan.event),
        ("happened", certificate.mechanisms, plan.method.mechanisms),
    )
    for what, recorded, planned in pairs:
        if not _same(encode(canonical(recorded), Event), encode(canonical(planned), Event)):
            return f"{planned!r} was planned, but {recorded!r} {what}"
    return None


def _check_releases(certificate: Certificate, plan: Plan) -> str | None:
    planned, recorded = plan.method.releases, certificate.releases
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


def _check_noise(certificate: Certificate, plan: Plan) -> str | None:
    same_library = certificate.versions.get("dpglm") == library_versions()["dpglm"]
    for planned, drawn in zip(plan.method.releases, certificate.noise_scales, strict=True):
        # From the definition, whatever the release itself makes of it; a grid asks for more.
        relation = certificate.adjacency
        sensitivity = relation.sum_sensitivity(planned.contribution_bound, planned.diameter)
        sensitivity += relation.sum_sensitivity(planned.rounding)
        least = max(planned.noise_scale, planned.noise_multiplier * sensitivity)
        found = f"noise of {drawn!r} in a {planned.quantity}"
        if not drawn >= least * (1.0 - _LAST_DIGITS):
            return f"{found} is below {least!r}, which this relation and bound ask for"
        if same_library and drawn > least * (1.0 + _LAST_DIGITS):
            return f"{found} is not the {least!r} that this relation and bound ask for"
    return None


def _same(one: object, other: object) -> bool:
    """Whether two JSON values are the same, but for last digits of floats."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= _LAST_DIGITS * abs(one)
    return type(one) is type(other) and one == other


def _check_relation(certificate: Certificate) -> str | None:
    adjacency, data = certificate.adjacency, certificate.data
    rows_are_public = adjacency.rows_are_public(data.unit)
    counts = [("n_rows", data.n_rows, rows_are_public)]
    if data.groups is not None:
        counts.append(("n_groups", data.groups.n_groups, adjacency.n_is_public))
    for name, planned, is_public in counts:
        fact = certificate.fact(name)
        if fact is None:
            continue
        if fact.value != planned:
            return f"{name} is {fact.value!r}, but the plan was made for another number"
        if fact.provenance == "by relation" and not is_public:
            return (
                f"{name} is called public by the relation, but {adjacency.value} keeps it private"
            )
    return None


def _check_facts(certificate: Certificate, plan: Plan) -> str | None:
    """Check that the public facts list everything that the plan rests on."""
    data, losses = plan.data, {one.problem.loss for one in plan.method.children}
    if certificate.loss != loss_in_words(plan):
        return f"the plan minimises {loss_in_words(plan)}, but the loss is {certificate.loss}"
    if losses and plan.problem.loss not in losses:
        return "what was minimised is not what any of the stages minimised"
    listed = {fact.name for fact in certificate.public_facts}
    needed = {
        "how many rows there are": {"n_rows"},
        "how long rows may be": {"row_norm", "feature_bounds", "schema"},
    }
    if plan.method.fits:
        of_numbers = plan.problem.loss.target.is_number
        # Two classes may be fitted as numbers.
        needed["which targets there are"] = {"classes"} | (
            {"target_bounds"} if of_numbers else set()
        )
    if data.groups is not None:
        needed["how many groups there are"] = {"n_groups"}
    if data.weight_bound != 1.0:
        needed["how much a row may weigh"] = {"weight_bound", "class_weight"}
    for what, names in needed.items():
        if not names & listed:
            return f"the public facts do not say {what}"
    row_norm = certificate.fact("row_norm")
    if row_norm is not None and row_norm.value != data.row_norm:
        return f"row_norm is {row_norm.value!r}, but the plan was made for {data.row_norm!r}"
    return None


def _check_source(certificate: Certificate) -> str | None:
    known = (SystemNoise.name, OpenDPNoise.name)
    if certificate.noise_is_private and certificate.noise_source not in known:
        return f"{certificate.noise_source!r} is called private, and is none of {known}"
    return None


def _check_digest(certificate: Certificate) -> str | None:
    if re.fullmatch("[0-9a-f]{64}", certificate.model_digest) is None:
        return f"{certificate.model_digest!r} is no SHA-256 digest"
    return None


_CHECKS: dict[str, Callable[[Certificate], str | None]] = {
    "claim is within the budget": _check_budget,
    "everything that happened was accounted for": _check_mechanisms,
    "noise was made for the stated relation": _check_relation,
    "noise source": _check_source,
    "digest of the model": _check_digest,
}
_CHECKS_OF_PLAN: dict[str, Callable[[Certificate, Plan], str | None]] = {
    "what happened was planned": _check_events,
    "releases are those of the plan": _check_releases,
    "noise was large enough": _check_noise,
    "public facts": _check_facts,
}


# Whether a page may call a fit private, and why not.


@final
@dataclass(frozen=True)
class Verdict:
    """What stands at the top of a page: private only without failed checks and without cautions."""

    is_private: bool
    failures: tuple[str, ...]
    cautions: tuple[str, ...]
    scope: str = SCOPE


def verdict(verification: Verification, others: Sequence[str] = ()) -> Verdict:
    """Decide whether a fit may be called private."""
    cautions = (*others, *verification.caveats)
    return Verdict(verification.ok and not cautions, verification.findings, cautions)
