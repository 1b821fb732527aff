"""The report of an audit."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, final

from dpglm._codec import Text, encode
from dpglm._html import card
from dpglm.audit.claims import Claim
from dpglm.ledger.files import write_text
from dpglm.solvers.base import Plan

__all__ = ["AuditReport", "described"]


def described(plan: Plan) -> str:
    """Describe the attacked plan in one line."""
    method = type(plan.method).__name__.removesuffix("Method")
    steps = f"{plan.n_steps} step" + ("s" if plan.n_steps > 1 else "")
    return f"{method}, {steps}, {plan.problem.loss!r}, relation {plan.adjacency.value}"


@final
@dataclass(frozen=True)
class AuditReport:
    """A lower bound on privacy loss beside the upper bound that is claimed.

    Parameters
    ----------
    target : str
        What was attacked.
    claim : Claim
        What it promises.
    release : {"all", "model"}
        What the attacker saw.
    method : str
        How the attacker guessed.
    neighbours : str
        On which data sets.
    runs : int
        Counted runs on each of both data sets; 0 where laws are known exactly.
    pilot_runs : int
        Held-out runs on each of both data sets of each pair, which chose the method.
    confidence : float
        Of all that follows, together.
    epsilon : float
        Lower bound on epsilon at ``claim.delta``, for any mechanism at all.
    mu : float
        Lower bound on mu, for any mechanism that is mu-GDP.
    ratio : float
        How much of the claim the attack reached; above 1 the claim is refuted. Of many runs:
        ``mu`` over the largest that the claim allows at the same rate of false alarms. Of one
        run, and of exact laws: epsilon over the claimed one.
    refuted : bool
        Whether what was seen contradicts the claim.
    noise : str
        Where the runs' randomness came from.
    planted_bug : str, optional
        Name of a bug that was planted.

    Notes
    -----
    A claim that is not refuted is not proved: another row, another statistic or more runs may
    tell more. The proof is in the accounting and its tests; an audit is there to catch mistakes
    in them.
    """

    target: Text
    claim: Claim
    release: str
    method: str
    neighbours: str
    runs: int
    pilot_runs: int
    confidence: float
    epsilon: float
    mu: float
    ratio: float
    refuted: bool
    noise: str
    planted_bug: str | None = None

    @property
    def epsilon_of_mu(self) -> float:
        """Epsilon at ``claim.delta`` of a mechanism that is ``mu``-GDP and no better.

        Comparable with the claim where that is Gaussian; counting alone (``epsilon``) shows much
        less at a small delta.
        """
        return self.claim.epsilon_of_mu(self.mu)

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':<12} {text}" for name, text in self.lines())

    def _repr_html_(self) -> str:
        return card("Audit", self.lines())

    def lines(self) -> list[tuple[str, str]]:
        """Return the findings in words, each with a heading."""
        claim = self.claim
        claimed = f"epsilon {claim.epsilon:.4g} at delta {claim.delta:.2g}"
        found = f"epsilon at least {self.epsilon:.4g}"
        if claim.mu is not None:
            claimed += f" (mu {claim.mu:.4g})"
            found = (
                f"mu at least {self.mu:.4g}, that is epsilon {self.epsilon_of_mu:.4g}; from "
                f"counts alone epsilon at least {self.epsilon:.4g}"
            )
        seen = {"all": "everything that the claim pays for", "model": "the returned model"}
        lines = [
            ("Target", self.target),
            ("Claimed", claimed),
            ("Found", f"{found} (confidence {self.confidence:g})"),
            ("Reached", f"{self.ratio:.0%} of what the claim allows"),
            ("Attack", f"{self.method}; {self.neighbours}; seen: {seen[self.release]}"),
            ("Runs", self._runs()),
            ("Verdict", self._verdict()),
        ]
        if self.planted_bug is not None:
            lines.insert(1, ("Planted bug", self.planted_bug))
        return lines

    def _runs(self) -> str:
        if not self.runs:
            return "none: the laws are known exactly"
        return (
            f"{self.runs} counted on each data set, {self.pilot_runs} held out on each; "
            f"noise: {self.noise}"
            if self.pilot_runs
            else f"one; noise: {self.noise}"
        )

    def _verdict(self) -> str:
        if self.refuted:
            return "REFUTED: what was seen contradicts the claim"
        return "not refuted. That is no proof: a stronger attack may exist"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; ``epsilon_of_mu`` where the claim is Gaussian."""
        of_mu = None if self.claim.mu is None else self.epsilon_of_mu
        return {**encode(self), "epsilon_of_mu": of_mu}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as JSON, and write it to a file if one is named."""
        text = json.dumps(self.to_dict(), indent=2) + "\n"
        if path is not None:
            write_text(path, text)
        return text
