"""One subject of the campaign: the target, the neighbours, and the visible outputs."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.audit import AuditReport, Claim, Neighbours, audit, audit_in_one_run, exact_audit
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import Rows
from dpglm.exceptions import UnpaidReleaseWarning
from dpglm.oracle import counts
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.solvers import Plan
from dpglm.solvers.composite import tabulation
from tests.planted import planted

__all__ = [
    "ADD_REMOVE",
    "BUDGET",
    "HUGE",
    "PURE",
    "RELATIONS",
    "REPLACE_ONE",
    "ZERO_OUT",
    "Case",
    "Line",
    "Setup",
    "of_plan",
    "pair",
    "summed_as",
]

ZERO_OUT, ADD_REMOVE, REPLACE_ONE = Adjacency
RELATIONS = (ZERO_OUT, ADD_REMOVE, REPLACE_ONE)
HUGE = 1e6
"""An entry far beyond every bound, so that only its clipped value remains."""
BUDGET = ApproximateDP(4.0, 1e-2)
"""The larger delta, the more a run says; noise is scaled in the same way for all of them."""
PURE = ApproximateDP(2.0, 0.0)
_SEEN = {"all": "all releases", "model": "the result"}


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    part: str
    subject: str
    variant: str
    relation: str
    seen: str
    epsilon: float
    """Claimed, at ``delta``."""
    delta: float
    found: float
    """Lower bound on epsilon at ``delta``; for Gaussian claims that of the bound on mu."""
    share: float
    """Share of the claim; above 1 it is refuted."""
    runs: int
    method: str
    refuted: bool
    why: str = ""
    bug: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Key of a line."""
        return (self.bug, self.part, self.subject, self.variant, self.relation)

    @property
    def label(self) -> str:
        """Subject and variant."""
        return f"{self.subject}, {self.variant}" if self.variant else self.subject


@dataclass(frozen=True)
class Setup:
    """The target of the attack, and the attack."""

    target: Any
    neighbours: Sequence[Neighbours] | None = None
    """None for those that the auditor makes."""
    release: Literal["all", "model"] = "all"
    claim: Claim | None = None
    under: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    """Public randomness fixed at the values that help the attack most; a bug outside the list."""
    attack: Literal["runs", "one run", "exact", "comparison"] = "runs"


@dataclass(frozen=True)
class Case:
    """A subject under one relation."""

    part: str
    subject: str
    """A name in the registry of solvers, or of a class or function."""
    make: Callable[[], Setup]
    relation: Adjacency = ZERO_OUT
    variant: str = ""
    why: str = ""
    """Why the lower bound stays far below the claim, where it does."""
    runs: float = 1.0
    """Times the usual number of runs."""
    options: dict[str, Any] = field(default_factory=dict)
    bug: str = ""
    """In words."""
    planted_bug: str | None = None
    """Its name in ``tests.planted.PLANTED``, if it is there."""

    @property
    def key(self) -> tuple[str, ...]:
        """Its key, equal to that of its line."""
        return (self.bug, self.part, self.subject, self.variant, self.relation.value)

    @property
    def label(self) -> str:
        """In lists and for ``--only``."""
        bug = self.bug and f"planted: {self.bug}"
        words = (bug, self.part, self.subject, self.variant, f"({self.relation})")
        return ", ".join(word for word in words if word)

    def measure(self, runs: int, confidence: float, seed: int | None = None) -> Line:
        """Attack it."""
        with planted(self.planted_bug):
            setup = self.make()
        if setup.attack == "comparison":
            return self._compared(setup)
        with planted(self.planted_bug), setup.under(), warnings.catch_warnings():
            # The rows are synthetic, so that these fits need no budget.
            warnings.simplefilter("ignore", UnpaidReleaseWarning)
            report = self._report(setup, max(20, round(runs * self.runs)), confidence, seed)
        claim = report.claim
        return Line(
            self.part,
            self.subject,
            self.variant,
            self.relation.value,
            _SEEN[report.release],
            claim.epsilon,
            claim.delta,
            report.epsilon if claim.mu is None else report.epsilon_of_mu,
            report.ratio,
            report.runs,
            report.method,
            report.refuted,
            self.why,
            self.bug,
        )

    def _compared(self, setup: Setup) -> Line:
        """Look for rows that depend on another row, bit by bit."""
        equal = True
        for pair in setup.neighbours or ():
            same = (pair.first == pair.second).all(axis=1)
            images = [setup.target(side)[same] for side in (pair.first, pair.second)]
            equal &= np.array_equal(*images)
        found = 0.0 if equal else math.inf
        return Line(
            self.part,
            self.subject,
            self.variant,
            self.relation.value,
            "the result",
            0.0,
            0.0,
            found,
            found,
            0,
            "comparison of all other rows, bit by bit",
            not equal,
            self.why,
            self.bug,
        )

    def _report(self, setup: Setup, runs: int, confidence: float, seed: int | None) -> AuditReport:
        if setup.attack == "exact":
            return exact_audit(setup.target)
        if setup.attack == "one run":
            return audit_in_one_run(
                setup.target, confidence=confidence, random_state=seed, seed=seed
            )
        return audit(
            setup.target,
            claim=setup.claim,
            neighbours=setup.neighbours,
            release=setup.release,
            runs=runs,
            confidence=confidence,
            seed=seed,
            **self.options,
        )


Others = tuple[Sequence[Sequence[float]], Sequence[float]]


def pair(
    plan: Plan,
    row: Sequence[float],
    target: float,
    *,
    replacement: tuple[Sequence[float], float] | None = None,
    others: Others | None = None,
    stored: Callable[[NDArray[Any]], Any] = np.asarray,
) -> tuple[Neighbours, ...]:
    """Make neighbours that differ in the first row, in the way of the plan's relation.

    Parameters
    ----------
    plan : Plan
        The plan to attack.
    row, target
        The row of interest.
    replacement : pair of a row and a target, optional
        Its replacement under replace-one; by default the opposite row.
    others : pair of rows and targets, optional
        All other rows; by default zeros.
    stored : callable, optional
        Converts arrays to the container for the library, such as ``torch.as_tensor``.
    """
    spec = plan.data

    def rows(first: Sequence[float], label: float, weight: float = 1.0) -> Rows:
        X: NDArray[np.float64] = np.zeros((spec.n_rows, spec.n_features))
        y = np.full(spec.n_rows, target)
        if others is not None:
            X[1:], y[1:] = others
        X[0], y[0] = first, label
        weights = np.full(spec.n_rows, spec.weight_bound)
        weights[0] *= weight
        targets = y.astype(int) if spec.n_outputs > 1 else y
        matrix = X.astype(spec.dtype)
        given = sparse.csr_array(matrix) if spec.sparse else stored(matrix)
        return prepare_rows(given, stored(targets), spec, weights=stored(weights))

    first = rows(row, target)
    if plan.adjacency is REPLACE_ONE:
        second = rows(*(replacement or ([-value for value in row], target)))
    elif plan.adjacency is ADD_REMOVE:
        second = first.take(np.arange(1, spec.n_rows))
    else:
        # The weight erases gradients; the zeros erase contributions to preprocessing.
        second = rows([0.0] * spec.n_features, target, weight=0.0)
    return (Neighbours("one row", first, second),)


def of_plan(
    plan: Plan, row: Sequence[float] | None = None, target: float = 1.0, **rest: Any
) -> Setup:
    """Attack all that a plan releases, on a pair that differs in one row."""
    chosen = [HUGE, *[0.0] * (plan.data.n_features - 1)] if row is None else row
    return Setup(plan, pair(plan, chosen, target, **rest))


@contextlib.contextmanager
def summed_as(table_sum: Callable[[Any], Any]) -> Iterator[None]:
    """Plan and release tables as another sum than theirs."""
    with (
        mock.patch.object(tabulation, "table_sum", table_sum),
        mock.patch.object(counts, "table_sum", table_sum),
    ):
        yield
