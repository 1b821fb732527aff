"""The audit campaign: writes ``docs/evidence/audit_table.md`` and its picture.

Run with ``make audit``, or ``python -m experiments.audits``: about 20 minutes on two processes.
``--quick`` has fewer runs and takes three. Results are kept in ``docs/figures/audits.json``; with
``--only frank_wolfe replace`` the lines that have both words are measured anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from joblib import Parallel, delayed

from experiments.audits.campaign import CAMPAIGN
from experiments.audits.case import Case, Line
from experiments.audits.table import bug_table, draw, subject_table

DOCS = Path(__file__).parent.parent.parent / "docs"
CONFIDENCE = 0.99
"""Confidence of the whole table: all of its bounds hold together."""
EACH = 1.0 - (1.0 - CONFIDENCE) / len(CAMPAIGN)
RUNS, QUICK_RUNS = 1000, 200
MARKS = ("<!-- begin: written by experiments/audits -->", "<!-- end -->")


def measured(case: Case, runs: int, confidence: float, seed: int | None) -> Line:
    """Attack one subject, and say how long it took."""
    start = time.perf_counter()
    line = case.measure(runs, confidence, seed)
    word = " REFUTED" if line.refuted else ""
    took = time.perf_counter() - start
    print(f"{case.label}: share {line.share:.2f}{word}, {took:.0f} s", flush=True)
    return line


def write(docs: Path, lines: Sequence[Line]) -> None:
    """Write the page and the picture."""
    import matplotlib

    subjects = [line for line in lines if not line.bug]
    bugs = [line for line in lines if line.bug]
    refuted, caught = sum(x.refuted for x in subjects), sum(x.refuted for x in bugs)
    missing = len(CAMPAIGN) - len(lines)
    head = (
        f"Written by `make audit`: {len(subjects)} attacks on sound code refuted {refuted} "
        f"claims, and of {len(bugs)} planted bugs {caught} were caught. All "
        f"bounds in both tables hold together with confidence {CONFIDENCE:.0%} (Bonferroni: each "
        f"has {EACH:.4%})."
    )
    if missing:
        head += f" **{missing} lines have not been measured yet.**"
    tables = [head, "## Attacks on sound code", subject_table(subjects)]
    tables += ["## Planted bugs", bug_table(bugs)]
    page = docs / "evidence" / "audit_table.md"
    before, rest = page.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    body = "\n\n".join(tables)
    page.write_text(f"{before}{MARKS[0]}\n\n{body}\n\n{MARKS[1]}{after}", encoding="utf-8")
    with matplotlib.rc_context({"svg.hashsalt": "dpglm", "svg.fonttype": "path"}):
        draw(subjects, bugs).savefig(docs / "figures" / "audits.svg", metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack everything; return 1 if a claim was refuted or a bug was not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a fifth of the runs: weak bugs may escape"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="of the noise, which is the system's by default")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="words that a line must contain")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write")
    options = parser.parse_args(arguments)
    kept = options.docs / "figures" / "audits.json"
    runs = QUICK_RUNS if options.quick else RUNS
    chosen = [one for one in CAMPAIGN if all(word in one.label for word in options.only or ())]
    lines = {line.key: line for line in _read(kept)}
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = []
    work = (delayed(measured)(case, runs, EACH, options.seed) for case in chosen)
    for line in Parallel(n_jobs=options.jobs, return_as="generator")(work):
        found.append(line)
        lines[line.key] = line
        # As they come, so that nothing is lost.
        _keep(kept, lines.values())
    ordered = [
        dataclasses.replace(lines[case.key], why=case.why) for case in CAMPAIGN if case.key in lines
    ]
    write(options.docs, ordered)
    wrong = [line for line in found if line.refuted != bool(line.bug)]
    for line in wrong:
        print("REFUTED" if line.refuted else "NOT CAUGHT", *line.key)
    return 1 if wrong else 0


def _keep(kept: Path, lines: Iterable[Line]) -> None:
    """Write lines, with null for infinite numbers, which JSON lacks."""
    document = [
        {
            key: None if value == math.inf else value
            for key, value in dataclasses.asdict(line).items()
        }
        for line in lines
    ]
    kept.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _read(kept: Path) -> list[Line]:
    """Read the lines that were measured before."""
    if not kept.exists():
        return []
    document = json.loads(kept.read_text(encoding="utf-8"))
    return [
        Line(**{key: math.inf if value is None else value for key, value in line.items()})
        for line in document
    ]


if __name__ == "__main__":
    sys.exit(main())
