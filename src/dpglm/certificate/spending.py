"""What each stage of a fit released, and what that costs by itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dpglm._words import plain_number, rounded_up
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import DisjointParts, Event, RandomlyRepeated, canonical
from dpglm.privacy.releases import AnyRelease
from dpglm.solvers.base import Stage

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate

__all__ = ["Spending", "costing", "spending", "spending_in_words"]

_ONLY_STAGE = "model"


@final
@dataclass(frozen=True)
class Spending:
    """What one stage of a fit spent.

    Parameters
    ----------
    stage : str
        Name of the stage, with its part of the rows where these were divided.
    releases : tuple of Release
        What it released; empty for a stage without releases.
    epsilon : float
        What that costs by itself, at the delta of the whole fit.
    mu : float or None
        Its mu as Gaussian DP. If not all of it is Gaussian: that of the Gaussian release which
        costs the same epsilon at that delta; None where delta is 0.
    is_gaussian : bool
        Whether all of it is Gaussian, so that ``mu`` says everything.
    share : float or None
        Its share of the stages' mu squared, which add up; None where stages are about disjoint
        parts of the rows (they do not add up: a row pays in its part only), or mu is None.
    """

    stage: str
    releases: tuple[AnyRelease, ...]
    epsilon: float
    mu: float | None
    is_gaussian: bool
    share: float | None


def spending(certificate: Certificate) -> tuple[Spending, ...]:
    """List what each stage of a fit spent, from its certificate alone.

    Privacy: epsilons by themselves add up to more than the whole, whose stages compose better
    than that; of Gaussian stages the squares of mu add up exactly.

    >>> from dpglm.estimators import LogisticRegression
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0).fit([[0.5], [1.0]], [0, 1])
    >>> [(one.stage, round(one.mu, 3), one.share) for one in spending(model.privacy_)]
    [('model', 0.268, 1.0)]
    """
    try:
        plan = certificate.rebuild()
    except ValueError as error:
        raise ValueError(f"the record does not say who spent what ({error})") from error
    stages = list(_leaves(plan.method.stages))
    if len(stages) < 2:
        name = stages[0].name if stages else _ONLY_STAGE
        only = Stage(name, certificate.releases, certificate.event)
        found = [costing(only, certificate.adjacency, certificate.delta, certificate.epsilon)]
    else:
        found = [costing(one, certificate.adjacency, certificate.delta) for one in stages]
    # A row pays in one part only, and of tries the costliest counts: squares do not add up.
    apart = len(stages) > 1 and isinstance(canonical(plan.event), DisjointParts | RandomlyRepeated)
    if apart or any(one.mu is None for one in found):
        return tuple(found)
    total = math.fsum(one.mu**2 for one in found if one.mu is not None)
    return tuple(
        dataclasses.replace(one, share=one.mu**2 / total if one.mu else 0.0) for one in found
    )


def _leaves(stages: Iterable[Stage], lead: str = "") -> Iterator[Stage]:
    """List the leaves of nested stages, with full names; stages in parts are one leaf."""
    for one in stages:
        part = "" if one.part is None else f", part {one.part + 1}"
        name = f"{lead}: {one.name}" if lead else f"{one.name}{part}"
        if one.stages and all(inner.part is None for inner in one.stages):
            yield from _leaves(one.stages, name)
        else:
            yield dataclasses.replace(one, name=name)


def _epsilon(event: Event, adjacency: Adjacency, delta: float) -> float:
    if not canonical(event).terms():
        return 0.0
    return accountant_for(event, adjacency).epsilon(event, adjacency, delta)


def costing(
    stage: Stage, adjacency: Adjacency, delta: float, epsilon: float | None = None
) -> Spending:
    """Say what a stage spends by itself, without its share; epsilon is computed if not known."""
    if epsilon is None:
        epsilon = _epsilon(stage.event, adjacency, delta)
    exact = GaussianAccountant()
    mu, is_gaussian = None, exact.supports(stage.event, adjacency)
    if epsilon == 0.0:
        mu, is_gaussian = 0.0, True
    elif is_gaussian:
        mu = exact.mu(stage.event, adjacency)
    elif delta > 0.0 and math.isfinite(epsilon):
        mu = gdp.mu(epsilon, delta)
    return Spending(stage.name, stage.releases, epsilon, mu, is_gaussian, None)


def spending_in_words(one: Spending) -> str:
    """Return a sentence on what a stage spent.

    >>> from dpglm.privacy.noise.additive import GaussianNoise
    >>> from dpglm.privacy.releases import Release
    >>> release = Release("row sum", GaussianNoise(20.0), Adjacency.ZERO_OUT, 1.0, 5)
    >>> print(spending_in_words(Spending("center", (release,), 0.1675, 0.05, True, 0.035)))
    center: row sum (standard deviation 20 x sensitivity); epsilon = 0.1675 by itself; mu = 0.05,
    3.5 % of mu^2
    """
    released = ", ".join(_in_words(release) for release in one.releases)
    if not released:
        return f"{one.stage}: asked the rows nothing"
    parts = [f"{one.stage}: {released}", f"epsilon = {rounded_up(one.epsilon)} by itself"]
    if one.mu is not None:
        like = "" if one.is_gaussian else " (of a Gaussian release with that epsilon)"
        share = "" if one.share is None else f", {plain_number(100.0 * one.share, 3)} % of mu^2"
        parts.append(f"mu = {plain_number(one.mu)}{like}{share}")
    return "; ".join(parts)


def _in_words(release: AnyRelease) -> str:
    times = "" if release.count == 1 else f"{release.count} times, "
    return f"{release.quantity} ({times}{release.mechanism.in_words})"
