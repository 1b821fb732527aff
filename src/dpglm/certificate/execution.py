"""Execution of a plan: noise, ledger, run and certificate."""

from __future__ import annotations

import os
from collections.abc import Callable

from dpglm.certificate.certificate import Certificate, certify
from dpglm.certificate.statement import PublicFact
from dpglm.data.rows import Rows
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.privacy.noise import NoiseSource, noise_source
from dpglm.privacy.noise.source import warn_of_seed
from dpglm.solvers.base import Plan, Solution
from dpglm.solvers.run import run


def execute(
    plan: Plan,
    rows: Callable[[NoiseSource], Rows],
    made: str,
    part: str,
    facts: tuple[PublicFact, ...],
    *,
    ledger: PrivacyLedger | str | os.PathLike[str] | None,
    random_state: int | NoiseSource | None,
    checkpoint: str | os.PathLike[str] | None,
) -> tuple[Solution, Certificate]:
    """Run a plan on prepared rows, and certify it as the result ``made``.

    ``rows`` prepares the rows; it may draw a sample of each group's rows from the noise source.
    """
    warn_of_seed(random_state)
    noise, account = noise_source(random_state), as_ledger(ledger)
    prepared = rows(noise)
    # A plan that no certificate can hold is refused before anything is spent.
    _ = plan.document
    solution = run(plan, prepared, noise, ledger=account, checkpoint=checkpoint)
    return solution, certify(made, solution, noise, facts, solution.w, 0.0, part)
