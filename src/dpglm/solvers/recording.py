"""The record that a fit leaves in a budget ledger before it releases anything."""

from __future__ import annotations

from typing import Protocol

from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Event
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan

__all__ = ["record", "record_plan"]


def record_plan(
    plan: Plan, ledger: PrivacyLedger, noise: NoiseSource, seed: int | None = None
) -> LedgerReference:
    """Spend what a plan will release, or raise ValueError: nothing may be released then.

    Noise that can be reproduced hides nothing, whatever was spent. ``seed``, the run's public bits,
    is the key of a run that goes on after an interruption: it is paid for once.
    """
    what = plan.method.algorithm
    if plan.method.fits:
        what += f" for {plan.problem.loss!r}"
    key = None if seed is None else f"{seed:016x}"
    return record(plan, ledger, noise, " ".join(what.split()), key, plan.data.unit)


class Spends(Protocol):
    """What a plan says of its cost."""

    @property
    def event(self) -> Event:
        """What will be released."""

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation."""

    @property
    def budget(self) -> PrivacyBudget:
        """What may be spent."""


def record(
    plan: Spends,
    ledger: PrivacyLedger,
    noise: NoiseSource,
    what: str,
    key: str | None,
    unit: Unit = Unit.ROW,
) -> LedgerReference:
    """Spend what a plan of any kind will release, once for a key; as ``record_plan``."""
    if not noise.is_private:
        raise ValueError(
            "random_state must be None or a private NoiseSource for a fit that a ledger records: "
            f"what it releases with noise that can be reproduced ({noise.name}) is not private, "
            "and no budget pays for it"
        )
    entry = ledger.spend(
        plan.event,
        plan.adjacency,
        what=what,
        delta=plan.budget.to_dict().get("delta"),
        key=key,
        unit=unit,
    )
    return ledger.terms().reference(entry)
