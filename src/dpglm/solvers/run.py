"""The loop that drives every solver, and checks its releases against the plan."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from dpglm._calls import checked, stage
from dpglm.data.rows import Protection, Rows, threads_over
from dpglm.exceptions import PlanMismatchError
from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import Composed, Event, canonical
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.releases import Curator
from dpglm.solvers.base import Plan, StepInfo, finished, take_steps
from dpglm.solvers.checkpoint import CheckpointFile, Progress, opened
from dpglm.solvers.uncertainty import Solution


def record_plan(
    plan: Plan, ledger: PrivacyLedger, noise: NoiseSource, seed: int | None = None
) -> LedgerReference:
    """Charge a plan to a ledger, or raise ValueError: nothing may be released then.

    ``seed``, the run's public bits, is the key of a run that may resume: it is charged once.
    """
    what = plan.method.algorithm
    if plan.method.problem is not None:
        what += f" for {plan.method.problem.loss!r}"
    key = None if seed is None else f"{seed:016x}"
    return record(plan.event, plan.protection, ledger, noise, " ".join(what.split()), key)


def record(
    event: Event,
    protection: Protection,
    ledger: PrivacyLedger,
    noise: NoiseSource,
    what: str,
    key: str | None,
) -> LedgerReference:
    """Charge an event to a ledger, once for each key; refuse noise that can be reproduced."""
    if not noise.is_private:
        raise ValueError(
            "random_state must be None or a private NoiseSource for a fit that a ledger records: "
            f"releases with reproducible noise ({noise.name}) are not private at any budget"
        )
    delta, unit = vars(protection.budget).get("delta"), protection.unit
    entry = ledger.spend(event, protection.adjacency, what=what, delta=delta, key=key, unit=unit)
    return ledger.terms().reference(entry)


@checked
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
        The plan.
    rows : Rows
        Prepared rows with the plan's ``spec``.
    noise : NoiseSource
        Source of all randomness.
    progress : callable, optional
        Called after each step with its public diagnostics, unless only the last iterate is
        released.
    ledger : PrivacyLedger, optional
        Ledger that the plan's event is charged to before anything is released.
    checkpoint : path-like or CheckpointFile, optional
        File that keeps the state after each step. If it holds a run of this plan with these facts,
        that run resumes and nothing is charged twice: see
        ``dpglm.solvers.checkpoint.RunCheckpoint``.

    Returns
    -------
    Solution
        The released parameter and the record of the run.

    Raises
    ------
    PlanMismatchError
        If the rows are not the planned ones, the checkpoint is of another plan or other facts, or
        other events happened than planned; nothing is returned then.
    LedgerError
        If the ledger refuses; nothing is released or charged then.
    ValueError
        If a checkpoint cannot hold the method's state, or is the ledger's file; nothing is released
        or charged then.

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
    ledger_path = None if ledger is None else ledger.path
    # Whether arithmetic overflows depends on the rows, so it must not end a run that was charged.
    with (
        np.errstate(all="ignore"),
        threads_over(rows.n_rows * rows.spec.n_columns),
        contextlib.nullcontext()
        if checkpoint is None
        else opened(checkpoint, plan, noise, ledger_path) as kept,
        stage("Private fit", method.n_steps) as advance,
    ):
        begun = None if kept is None else kept.load()
        if begun is None:
            seed = int(noise.words(1)[0])
            begun = Progress(seed, method.init(seed))
        loss = None if method.problem is None else method.problem.loss
        fixed = plan.adjacency.rows_are_public(unit)
        rows = rows if fixed else rows.on_host()
        oracle = Oracle(method.prepare(rows, begun.seed), loss, curator)
        history, entry = list(begun.history), begun.entry

        def keep(steps: int, state: Any) -> None:
            if kept is not None:
                event = canonical(Composed((begun.event, curator.event)))
                kept.save(Progress(begun.seed, state, steps, event, entry, tuple(history)))

        def after(steps: int, state: Any, info: StepInfo) -> None:
            if method.releases_iterates:
                history.append(info)
            # The step is kept before it is reported.
            keep(steps, state)
            if method.releases_iterates and progress is not None:
                progress(info)
            advance(1)

        # A state that a file cannot hold raises here, before anything is charged.
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
        outcome = finished(method, state)
    return Solution(
        **vars(outcome),
        plan=plan,
        history=tuple(history),
        noise=noise.name,
        ledger_entry=entry,
        signal=curator.signal if method.releases_iterates and kept is None else None,
    )
