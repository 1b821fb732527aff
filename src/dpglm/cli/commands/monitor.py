"""`dpglm monitor`: changes between stored private results and new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpglm.cli.console import note, say
from dpglm.cli.files import all_or_none, require_report
from dpglm.cli.options import INPUT_DATA, OUTPUT_FILE, Force, argument, command, option


@command(
    "Compare new private results with stored ones.",
    "dpglm monitor october november",
    "dpglm monitor october/evaluation.json november/evaluation.json --page drift.html",
)
def monitor(
    before: Annotated[Path, argument(INPUT_DATA)],
    after: Annotated[Path, argument(INPUT_DATA)],
    page: Annotated[Path | None, option("HTML page to write.", type=OUTPUT_FILE)] = None,
    force: Force = False,
) -> None:
    """Compare the private results AFTER with BEFORE, at no privacy cost.

    Both are folders that `dpglm describe --report` or `dpglm evaluate --report` wrote, or their
    JSON files, about different rows. Prints the population stability index of each column, and the
    change of calibration and performance. Intervals include the noise of both results.
    """
    from dpglm.report.monitoring import compare

    found = compare(before, after)
    if page is not None:
        require_report()
        with all_or_none([page], force=force) as drafts:
            found.to_html(drafts[page])
        note(f"Wrote {page}")
    say(found.summary())
