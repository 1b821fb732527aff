"""Checking a certificate: whether its claim follows from everything that it records."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from dpglm._html import card
from dpglm.certificate.cautions import SCOPE
from dpglm.certificate.certificate import Certificate, library_versions
from dpglm.certificate.checker.cost import check_cost
from dpglm.certificate.checker.recompute import Recomputation, gaussian_mu, recompute
from dpglm.certificate.quantities import QUANTITIES
from dpglm.certificate.stages import check_parts, check_problems, happened, plain_settings, stage_of
from dpglm.certificate.words import plain_number
from dpglm.data.spec import DataSpec
from dpglm.exceptions import TooCostlyError
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Laplace,
    LastIterate,
    ObjectivePerturbation,
    Parallel,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    RandomlyRepeated,
    Repeated,
    canonical,
)
from dpglm.privacy.noise import SystemNoise
from dpglm.privacy.noise.opendp import OpenDPNoise
from dpglm.privacy.noise.scales import noise_scale
from dpglm.problem import Target

__all__ = ["NO_TARGET", "Check", "Verification", "verify"]

NO_TARGET = "none"
"""Target and loss of a fit that learned a map of rows, and no model."""

_ROUNDING = 1e-6


@final
@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Parameters
    ----------
    name : str
        What was looked at, in words.
    passed : bool
        Whether it is as it should be.
    detail : str
        What was found.
    """

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
    """

    checks: tuple[Check, ...]
    recomputed: tuple[Recomputation, ...]
    caveats: tuple[str, ...]
    too_costly: str | None = None

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
        """What was found, in one sentence."""
        if self.ok:
            return "The certificate holds."
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
    all is Gaussian and by ``FourierAccountant``, which uses nothing of dp-accounting. It is
    checked number by number that the event covers the recorded mechanisms, that the noise was
    as large as mechanisms, clip, weights, relation and rounding ask for, and that a last-iterate
    bound applies. Grids are bounded, so that a recomputation takes some 60 seconds and 2 GB at
    most; of a claim that asks for larger ones the answer is that it is too costly to check. What
    no certificate can show: that the run did what it recorded, and that declared facts are public.

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
    too_costly = None
    try:
        recomputed, trouble = _recomputed(certificate)
    except TooCostlyError as error:
        too_costly = f"too costly to check ({error})"
        recomputed, trouble = (), too_costly
    checks = [_check_claim(certificate, one) for one in recomputed]
    if not recomputed:
        checks.append(Check("claim, recomputed", False, trouble))
    checks += [_guarded(name, check, certificate) for name, check in _CHECKS.items()]
    return Verification(tuple(checks), recomputed, certificate.caveats(), too_costly)


def _recomputed(certificate: Certificate) -> tuple[tuple[Recomputation, ...], str]:
    """Return what independent accountants say, and why none does if that is so."""
    event, adjacency = certificate.event, certificate.adjacency
    try:
        check_cost(event)
        found = tuple(recompute(event, adjacency, certificate.epsilon, certificate.delta))
    except TooCostlyError:
        raise
    except (ArithmeticError, MemoryError, ValueError) as error:
        return (), f"the recorded event cannot be accounted for ({error})"
    return found, "no independent accountant knows the recorded event"


def _check_claim(certificate: Certificate, one: Recomputation) -> Check:
    # A relative excess of delta is all that rounding can explain; 1e-300 is for a delta of 0.
    allowed = certificate.delta * (1.0 + one.tolerance) + 1e-300
    return Check(
        f"claim, recomputed by {one.accountant}",
        one.delta <= allowed,
        f"epsilon {plain_number(one.epsilon, 6)} at delta {certificate.delta:.6g}; "
        f"claimed {plain_number(certificate.epsilon, 6)}",
    )


def _guarded(name: str, check: Callable[[Certificate], str | None], which: Certificate) -> Check:
    """Run a check; a record that cannot even be read fails it."""
    try:
        finding = check(which)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        finding = f"cannot be checked from what is recorded ({type(error).__name__}: {error})"
    return Check(name, finding is None, finding or "as it should be")


def _check_budget(certificate: Certificate) -> str | None:
    allowed = certificate.budget.to_dict()
    mu = gaussian_mu(certificate.event)
    spent: dict[str, float] = {"epsilon": certificate.epsilon, "delta": certificate.delta}
    if mu is not None:
        spent.update(mu=mu, rho=0.5 * mu * mu)
    for currency, most in allowed.items():
        if currency == "type":
            continue
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
        elif isinstance(basic, Parallel):
            parts = tuple(Composed(tuple(_unrolled(part))) for part in basic.events)
            yield Repeated(Parallel(parts), count)
        elif isinstance(basic, RandomlyRepeated):
            tries = tuple(Composed(tuple(_unrolled(one))) for one in basic.events)
            yield Repeated(RandomlyRepeated(tries, basic.repetitions), count)
        else:
            yield Repeated(basic, count)


def _check_settings(certificate: Certificate) -> str | None:
    recorded = canonical(certificate.mechanisms)
    listed = happened(certificate.releases, certificate.settings)
    if dict(listed.terms()) != dict(recorded.terms()):
        return f"the releases make {listed!r}, but {recorded!r} happened"
    for release in certificate.releases:
        stage = stage_of(release.quantity, certificate.settings)
        implied = QUANTITIES[stage.quantity].implied(stage.settings, stage.data)
        for name, planned in vars(implied).items():
            done = getattr(release, name)
            if planned != done:
                return f"settings say {name} {planned!r} of a {release.quantity}, not {done!r}"
        if release.noise_multiplier != _multiplier(release.event):
            return (
                f"{release.event!r} is recorded for a {release.quantity} with a noise multiplier "
                f"of {release.noise_multiplier!r}"
            )
    return None


def _check_parts(certificate: Certificate) -> str | None:
    if _has_parts(certificate.event) and not certificate.adjacency.n_is_public:
        return f"parts of the rows are not disjoint under {certificate.adjacency.value}"
    return check_parts(certificate.settings)


def _has_parts(event: Event) -> bool:
    return any(isinstance(basic, Parallel) for basic, _ in canonical(event).terms())


def _multiplier(event: Event) -> float:
    """Scale of the noise over the sensitivity, for an event of that kind."""
    return _MULTIPLIER[type(event)](event)


_MULTIPLIER: dict[type[Event], Callable[[Any], float]] = {
    Gaussian: lambda event: event.noise_multiplier,
    Laplace: lambda event: event.noise_multiplier,
    ProjectedGaussian: lambda event: event.noise_multiplier,
    ObjectivePerturbation: lambda event: event.noise_multiplier,
    PoissonSampled: lambda event: event.event.noise_multiplier,
    Pure: lambda event: 1.0 / event.epsilon,
    BoundedRange: lambda event: 2.0 / event.epsilon,
}


def _check_relation(certificate: Certificate) -> str | None:
    adjacency = certificate.adjacency
    n_rows = certificate.fact("n_rows")
    if n_rows is None:
        return None
    if n_rows.value != certificate.settings["data"]["n_rows"]:
        return f"n_rows is {n_rows.value!r}, but the plan was made for another number"
    if n_rows.provenance == "by relation" and not adjacency.n_is_public:
        return f"n_rows is called public by the relation, but {adjacency.value} keeps it private"
    return None


def _check_noise(certificate: Certificate) -> str | None:
    adjacency = certificate.adjacency
    same_library = certificate.versions.get("dpglm") == library_versions()["dpglm"]
    # Secret iterates have rounding allowances of their own, on top of those of the sums.
    exact = same_library and not _last_iterates(certificate.event)
    for release in certificate.releases:
        bound, multiplier = release.contribution_bound, release.noise_multiplier
        least = multiplier * adjacency.sum_sensitivity(bound)
        stage = stage_of(release.quantity, certificate.settings)
        data, is_sum = stage.data, QUANTITIES[stage.quantity].is_row_sum
        if is_sum:
            least = noise_scale(
                adjacency,
                bound + sum_rounding(data, adjacency, bound),
                multiplier,
                release.coordinates,
                sum_magnitude(data, adjacency, bound),
            ).std
        found = f"noise of {release.noise_scale!r} in a {release.quantity}"
        if release.noise_scale < least * (1.0 - 1e-9):
            return f"{found} is below {least!r}, which this relation and bound ask for"
        if is_sum and exact and release.noise_scale > least * (1.0 + 1e-9):
            return f"{found} is not the {least!r} that this relation and bound ask for"
    return None


def _check_last_iterate(certificate: Certificate) -> str | None:
    """Conditions of Bok, Su and Altschuler (ICML 2024), as ``solvers.amplification`` uses them."""
    for event in _last_iterates(certificate.event):
        methods = [
            settings
            for settings in plain_settings(certificate.settings)
            if (settings.get("noise_multiplier"), settings.get("n_steps"))
            == (event.noise_multiplier, event.steps)
        ]
        if not methods:
            return f"no method is recorded that could have made {event!r}"
        if finding := check_problems(certificate.settings):
            return finding
        for settings in methods:
            if finding := _last_iterate_finding(event, settings, certificate):
                return finding
    return None


def _last_iterate_finding(
    event: LastIterate, settings: Mapping[str, Any], certificate: Certificate
) -> str | None:
    """Say which condition the method with these settings violates."""
    problem = settings.get("problem", certificate.settings["problem"])
    data = DataSpec(**settings["data"])
    eta, strong = settings["first_step_size"], problem["strong_convexity"]
    smoothness = problem["loss_smoothness"] * data.augmented_row_norm**2 * data.weight_bound
    plain = {"momentum": 0.0, "sampling_rate": 1.0, "last_step_size": eta, "output": "Last()"}
    for name, needed in plain.items():
        if settings[name] != needed:
            return f"{name} must be {needed!r} for a last-iterate bound, got {settings[name]!r}"
    if settings["clipping"] != "FlatClipping":
        return f"clipping must be flat for a last-iterate bound, got {settings['clipping']!r}"
    steepest = problem.get("loss_slope_bound", math.inf) * data.augmented_row_norm
    if not problem["convex"] or (data.n_outputs > 1 and steepest > settings["clip"]):
        return "clipped gradients of this loss need not be gradients of a convex function"
    if data.dtype != "float64" or not certificate.adjacency.n_is_public:
        return "rounding of secret iterates is bounded for float64 rows and a public n only"
    if data.intercept > 0.0 and not problem["penalize_intercept"]:
        return "an intercept without a penalty breaks the strong convexity of a last-iterate bound"
    if not eta * smoothness <= 2.0 * (1.0 + _ROUNDING):
        return f"step size {eta!r} is too large for smoothness {smoothness!r}"
    least = 1.0 / (1.0 + eta * strong)
    if not event.contraction >= least * (1.0 - 1e-12):
        return f"contraction {event.contraction!r} is claimed, {least!r} is all there is"
    return None


def _last_iterates(event: Event) -> list[LastIterate]:
    found: list[LastIterate] = []
    for basic, _ in canonical(event).terms():
        if isinstance(basic, LastIterate):
            found.append(basic)
        elif isinstance(basic, Parallel | RandomlyRepeated):
            found.extend(one for part in basic.events for one in _last_iterates(part))
    return found


def _check_facts(certificate: Certificate) -> str | None:
    """Look for everything that a plan rests on among the public facts."""
    data, target = certificate.settings["data"], certificate.settings["problem"]["target"]
    if (target == NO_TARGET) != (certificate.loss == NO_TARGET):
        return f"the target is {target!r}, but the loss {certificate.loss!r}"
    listed = {fact.name for fact in certificate.public_facts}
    needed = {
        "how many rows there are": {"n_rows"},
        "how long rows may be": {"row_norm", "feature_bounds"},
    }
    if target != NO_TARGET:
        needed["which targets there are"] = _FACTS_OF_TARGET[target]
    if data["weight_bound"] != 1.0:
        needed["how much a row may weigh"] = {"weight_bound", "class_weight"}
    for what, names in needed.items():
        if not names & listed:
            return f"the public facts do not say {what}"
    row_norm = certificate.fact("row_norm")
    if row_norm is not None and row_norm.value != data["row_norm"]:
        return f"row_norm is {row_norm.value!r}, but the plan was made for {data['row_norm']!r}"
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


_FACTS_OF_TARGET = {
    Target.BINARY.value: {"classes"},
    Target.CLASS.value: {"classes"},
    Target.REAL.value: {"target_bounds"},
    Target.COUNT.value: {"target_bounds"},
}

_CHECKS: dict[str, Callable[[Certificate], str | None]] = {
    "claim is within the budget": _check_budget,
    "everything that happened was accounted for": _check_mechanisms,
    "settings agree with what happened": _check_settings,
    "parts of the rows are disjoint": _check_parts,
    "noise was made for the stated relation": _check_relation,
    "noise was large enough": _check_noise,
    "last-iterate bound applies": _check_last_iterate,
    "public facts": _check_facts,
    "noise source": _check_source,
    "digest of the model": _check_digest,
}
