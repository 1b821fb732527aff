"""Measure the library against its bars.

Run with ``python -m benchmarks.bars [--splits FOLDER] [--only NAME ...]``. FOLDER holds the fixed
benchmark splits, ``randhie.csv`` of statsmodels, and MNIST in its subfolder ``mnist``; lines
that need a missing file are reported as skipped.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from benchmarks.accuracy import ACCURACY
from benchmarks.additive import ADDITIVE
from benchmarks.cluster import CLUSTER
from benchmarks.efficiency import EFFICIENCY
from benchmarks.evaluation import EVALUATION
from benchmarks.groups import GROUPS
from benchmarks.networks import NETWORKS
from benchmarks.out_of_core import OUT_OF_CORE
from benchmarks.planning import PLANNING
from benchmarks.ridge import RIDGE
from benchmarks.speed import SPEED
from dpglm.exceptions import SeededNoiseWarning, UnpaidReleaseWarning

MEASURES = {
    **ACCURACY,
    **EFFICIENCY,
    **PLANNING,
    **SPEED,
    **OUT_OF_CORE,
    **CLUSTER,
    **NETWORKS,
    **GROUPS,
    **RIDGE,
    **EVALUATION,
    **ADDITIVE,
}


def main() -> int:
    """Measure, print a table, and return the number of bars that were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=Path, default=Path("splits"))
    parser.add_argument("--only", nargs="*", choices=sorted(MEASURES), default=list(MEASURES))
    arguments = parser.parse_args()
    for one in (SeededNoiseWarning, UnpaidReleaseWarning):
        warnings.simplefilter("ignore", one)
    missed = 0
    for name in arguments.only:
        try:
            for bar in MEASURES[name](arguments.splits):
                relation = ">=" if bar.at_least else "<="
                verdict = "met" if bar.met else "MISSED"
                print(
                    f"{bar.name}: {bar.value:.4g}{bar.unit} +- {bar.spread:.2g} "
                    f"(bar {relation} {bar.bar:g}) {verdict}",
                    flush=True,
                )
                missed += not bar.met
        except FileNotFoundError as error:
            print(f"{name}: skipped, {error}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
