"""The record that a fit leaves in a budget ledger before it releases anything."""

from __future__ import annotations

from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan

__all__ = ["record_plan"]


def record_plan(
    plan: Plan, ledger: PrivacyLedger, noise: NoiseSource, seed: int | None = None
) -> LedgerReference:
    """Spend what a plan will release.

    Parameters
    ----------
    plan : Plan
        What will be executed.
    ledger : PrivacyLedger
        The ledger of the data set.
    noise : NoiseSource
        Where the noise will come from.
    seed : int, optional
        The run's 64 random public bits, where they are kept for a run that goes on after this one
        was interrupted: with the same seed the same plan is paid for once.

    Returns
    -------
    LedgerReference
        The entry, which is on the disk.

    Raises
    ------
    ValueError
        If noise can be reproduced: what it hides is not hidden, whatever was spent; or as
        ``PrivacyLedger.spend`` does. Nothing may be released then.
    """
    if not noise.is_private:
        raise ValueError(
            "random_state must be None or a private NoiseSource for a fit that a ledger records: "
            f"what it releases with noise that can be reproduced ({noise.name}) is not private, "
            "and no budget pays for it"
        )
    what = f"{plan.method.algorithm} for {plan.problem.loss!r}"
    entry = ledger.spend(
        plan.event,
        plan.adjacency,
        what=" ".join(what.split()),
        delta=plan.budget.to_dict().get("delta"),
        key=None if seed is None else f"{seed:016x}",
    )
    return ledger.terms().reference(entry)
