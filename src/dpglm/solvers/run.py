"""The one loop that drives every solver, and checks that what happened was planned."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dpglm._progress import stage
from dpglm.data.rows import Rows, block_map
from dpglm.exceptions import PlanMismatchError
from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Composed, Event, canonical
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.releases import Curator
from dpglm.solvers.base import Plan, StepInfo
from dpglm.solvers.checkpoint import CheckpointFile, Progress, opened
from dpglm.solvers.solution import Solution
from dpglm.solvers.steps import finished, take_steps

# The record that a fit leaves in a budget ledger before it releases anything.


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


def run(
    plan: Plan,
    rows: Rows,
    noise: NoiseSource,
    progress: Callable[[StepInfo], None] | None = None,
    ledger: PrivacyLedger | None = None,
    checkpoint: str | os.PathLike[str] | CheckpointFile | None = None,
) -> Solution:
    """Execute a plan on rows.

    Parameters
    ----------
    plan : Plan
        What to do.
    rows : Rows
        Prepared rows whose ``spec`` is the plan's.
    noise : NoiseSource
        Where all randomness comes from.
    progress : callable, optional
        Called after each step with its public diagnostics. Not called where only the last
        iterate is paid for.
    ledger : PrivacyLedger, optional
        Where the plan's event is recorded, for good, before anything is released.
    checkpoint : path-like or CheckpointFile, optional
        File that keeps the state after each step. If there is one of this plan and with these
        facts, the run goes on from there and spends nothing twice: see
        ``dpglm.solvers.checkpoint.Checkpoint``.

    Returns
    -------
    Solution
        The released parameter and the record of the run.

    Raises
    ------
    PlanMismatchError
        If the rows are not those that were planned for, or the events that happened are not
        those that were planned; nothing is returned then. Also if the checkpoint is of another
        plan or other facts.
    LedgerError
        If the ledger refuses; nothing is released or spent then.
    ValueError
        If the method's state cannot be kept in a checkpoint, or that is the ledger's file; nothing
        is released or spent then.

    Notes
    -----
    Privacy: ``plan.event``, under ``plan.adjacency``.
    """
    if rows.spec != plan.data:
        raise PlanMismatchError(f"rows have the facts {rows.spec}, but the plan is for {plan.data}")
    unit, planned = plan.data.unit, plan.data.n_units
    if rows.unit is not unit:
        raise PlanMismatchError(
            f"rows protect each {rows.unit.value}, but the plan is for each {unit.value}"
        )
    if plan.adjacency.n_is_public and rows.n_units != planned:
        raise PlanMismatchError(
            f"there are {rows.n_units} {unit.value}s, but the plan is for n_{unit.value}s={planned}"
        )
    if noise.observer is not None:
        noise.observer.begins(plan, rows)
    method = plan.method
    curator = Curator(plan.adjacency, noise, unit)
    paying = None if ledger is None else ledger.path
    # Whether arithmetic overflows depends on the rows, and must not end what has been paid for.
    with (
        np.errstate(all="ignore"),
        block_map(rows) as map_blocks,
        opened(checkpoint, plan, noise, paying) as kept,
        stage("Private fit", method.n_steps) as advance,
    ):
        begun = None if kept is None else kept.load()
        if begun is None:
            seed = int(noise.words(1)[0])
            begun = Progress(seed, method.init(seed))
        oracle = Oracle(method.prepare(rows, begun.seed), plan.problem.loss, curator, map_blocks)
        history, entry = list(begun.history), begun.entry

        def keep(steps: int, state: Any) -> None:
            if kept is not None:
                event = canonical(Composed((begun.event, curator.event)))
                kept.save(Progress(begun.seed, state, steps, event, tuple(history), entry))

        def after(steps: int, state: Any, info: StepInfo) -> None:
            if method.releases_iterates:
                history.append(info)
            # Before anybody hears of the step.
            keep(steps, state)
            if method.releases_iterates and progress is not None:
                progress(info)
            advance(1)

        # A state that cannot be kept is found out before anything is spent.
        keep(begun.steps, begun.state)
        if ledger is not None:
            # The last line before anything is released.
            entry = record_plan(plan, ledger, noise, None if kept is None else begun.seed)
            keep(begun.steps, begun.state)
        advance(begun.steps)
        state = take_steps(method, begun.state, oracle, begun.steps, after)
    released = canonical(Composed((begun.event, curator.event)))
    if released != canonical(method.mechanisms):
        raise PlanMismatchError(
            f"planned to release {canonical(method.mechanisms)}, but released {released}"
        )
    with np.errstate(all="ignore"):
        return Solution(
            finished(method, state),
            plan,
            tuple(history),
            noise.name,
            method.noise_in(state),
            method.chosen(state),
            entry,
            method.maps(state),
            method.uncertainty(state),
            method.precision(state),
            curator.signal if method.releases_iterates and kept is None else None,
        )
