"""Coverage of private Kaplan-Meier bands: ``python -m experiments.survival``.

Prints, by number of people and epsilon, how often the 95 % band of an arm covers the true curve at
all cuts together, and its mean width over that of the band of a release with a huge budget.
"""

from __future__ import annotations

import argparse
import itertools
import warnings

import numpy as np

from dpglm.privacy import ApproximateDP, GaussianDP
from dpglm.survival import KaplanMeier, SurvivalCurve, kaplan_meier

__all__ = ["main", "rows"]

CUTS = (0.0, 3.0, 6.0, 9.0, 12.0, 18.0, 24.0, 36.0, 48.0)
MEANS = {"old": 30.0, "new": 45.0}
SCHEMA = {
    "columns": {
        "months": {"type": "numeric", "low": 0, "high": 60},
        "arm": {"type": "categorical", "categories": list(MEANS)},
    },
    "target": {"name": "died", "type": "binary", "classes": [0, 1]},
    "provenance": "generated",
}


def rows(n_rows: int, seed: int) -> dict[str, np.ndarray]:
    """Return exponential times of death in two arms, with a third censored."""
    rng = np.random.default_rng(seed)
    arm = rng.choice(list(MEANS), n_rows, p=[0.7, 0.3])
    death = rng.exponential(np.vectorize(MEANS.get)(arm))
    end = np.minimum(rng.exponential(90.0, n_rows), 60.0)
    return {"months": np.minimum(death, end), "died": (death <= end).astype(int), "arm": arm}


def _curves(made: KaplanMeier) -> list[SurvivalCurve]:
    return [made.curve(arm) for arm in MEANS]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| people | epsilon | covers all cuts | width |")
    print("|---|---|---|---|")
    for n_rows, epsilon in itertools.product((1000, 5000, 20000), (0.1, 0.5, 2.0)):
        covered, widths = [], []
        for seed in range(options.runs):
            table, found = rows(n_rows, seed), []
            for budget in (ApproximateDP(epsilon, 1e-5), GaussianDP(1e4)):
                made = kaplan_meier(
                    table,
                    SCHEMA,
                    time="months",
                    event="died",
                    cuts=CUTS,
                    by="arm",
                    budget=budget,
                    random_state=seed,
                )
                found.append(_curves(made))
            for mean, private, plain in zip(MEANS.values(), *found, strict=True):
                truth = np.exp(-np.array(CUTS) / mean)
                covered.append(((private.low <= truth) & (truth <= private.high)).all())
                widths.append((private.high - private.low).sum() / (plain.high - plain.low).sum())
        print(f"| {n_rows} | {epsilon:g} | {np.mean(covered):.3f} | {np.mean(widths):.2f} |")


if __name__ == "__main__":
    main()
