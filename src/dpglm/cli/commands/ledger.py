"""`dpglm ledger`: make, read, export and check a budget ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpglm._words import named_numbers
from dpglm.cli.commands.verify import read_claim
from dpglm.cli.console import finished, guarded, print_pairs, print_table, say
from dpglm.cli.files import all_or_none
from dpglm.cli.options import (
    INPUT_FILE,
    INPUT_LEDGER,
    OUTPUT_FILE,
    budget_options,
    examples,
    force_option,
)

if TYPE_CHECKING:
    from dpglm.ledger import LedgerContents

__all__ = ["ledger"]


@click.group(
    short_help="Record what all fits of a data set spend together.",
    epilog=examples(
        "dpglm ledger create people.ledger --data 'people 2025' --epsilon 2 --delta 1e-6",
        "dpglm ledger show people.ledger",
        "dpglm ledger verify people.ledger --certificate report/certificate.json",
    ),
)
def ledger() -> None:
    """Keep the account of a data set: one file, one budget, every fit.

    A fit with --ledger is recorded, and the record is on the disk, before it releases anything; one
    that would go over the budget is refused. A fit that fails later stays recorded.

    A ledger holds nothing that was computed from rows. It protects against accidents and
    uncoordinated fits, not against an adversary with write access to the file: keep exports or
    certificates elsewhere, and `dpglm ledger verify` finds what was changed since.
    """


@ledger.command(
    short_help="Make a new ledger.",
    epilog=examples(
        "dpglm ledger create people.ledger --data 'people 2025' --epsilon 2 --delta 1e-6",
    ),
)
@click.argument("file", type=OUTPUT_FILE)
@click.option("--data", required=True, metavar="NAME", help="Public name of the data set.")
@click.option("--fingerprint", metavar="TEXT", help="Public mark of the data set's version.")
@budget_options(
    delta=None,
    of_epsilon="How much one row may matter, in all fits together.",
    of_delta="Probability with which epsilon may not hold: a number far below 1/rows.",
)
@click.option(
    "--filter",
    "rule",
    type=click.Choice(("gaussian", "renyi", "basic")),
    default="gaussian",
    show_default=True,
    help="How spends add up. 'gaussian': exact, for Gaussian noise on all rows; 'renyi': for fits "
    "with samples too; 'basic': epsilons and deltas add up, for anything.",
)
@click.option(
    "--unit",
    type=click.Choice(("row", "group")),
    default="row",
    show_default=True,
    help="What all fits protect: each row, or each group (person) with all its rows.",
)
@click.option("--order", type=click.IntRange(min=2), help="Order of a renyi filter.")
@guarded
def create(
    file: Path,
    data: str,
    fingerprint: str | None,
    epsilon: float,
    delta: float | str,
    adjacency: str,
    rule: str,
    unit: str,
    order: int | None,
) -> None:
    """Make the ledger FILE for a data set. What is given here is fixed for good."""
    from dpglm.ledger import PrivacyLedger
    from dpglm.privacy.budget import ApproximateDP

    if isinstance(delta, str):
        raise ValueError("--delta must be a number: the number of rows, which 'auto' asks, is open")
    PrivacyLedger.create(
        file,
        data=data,
        budget=ApproximateDP(epsilon, delta),
        adjacency=adjacency,
        filter=rule,
        order=order,
        fingerprint=fingerprint,
        unit=unit,
    )
    finished()
    say(f"Wrote {file}")


@ledger.command(short_help="Show what was spent.", epilog=examples("dpglm ledger show FILE"))
@click.argument("file", type=INPUT_LEDGER)
@guarded
def show(file: Path) -> None:
    """Show who spent what, and what is left, in a ledger or an export of one."""
    from dpglm.ledger.entry import left_in_words

    contents = _contents(file)
    terms = contents.terms
    budget, rule = terms.filter.budget.to_dict(), terms.filter.to_dict()
    del budget["type"]
    always = contents.spent_at_any_time()
    print_pairs(
        f"Ledger for {terms.data}",
        {
            "budget": named_numbers(budget),
            "spent": f"{named_numbers(contents.spent())} (stopping time fixed in advance)",
            "at any time": f"{named_numbers(always)} (stopping time may depend on results)",
            "left": left_in_words(terms.filter, contents.charges),
            "relation": terms.relation,
            "filter": f"{rule['type']}, order {rule['order']}" if "order" in rule else rule["type"],
            "fingerprint": terms.fingerprint or "-",
            "created": terms.created,
            "id": terms.id,
        },
    )
    say()
    print_table(
        ("what", "number", "label", "who", "when", "charge"),
        (
            (
                entry.what,
                str(entry.number),
                entry.label or "-",
                entry.who,
                entry.time[:19],
                named_numbers(entry.charge),
            )
            for entry in contents.entries
        ),
    )


@ledger.command(
    short_help="Write a ledger as JSON.",
    epilog=examples("dpglm ledger export people.ledger -o people.json"),
)
@click.argument("file", type=INPUT_LEDGER)
@click.option("-o", "--output", "target", type=OUTPUT_FILE, required=True, help="Where to write.")
@force_option
@guarded
def export(file: Path, target: Path, force: bool) -> None:
    """Write everything in the ledger FILE as JSON, which `dpglm ledger verify` reads too.

    It may be published as far as the rows are concerned: it names who spent what, and nothing that
    was computed from rows.
    """
    from dpglm.ledger.store import write_json

    with all_or_none([target], force=force) as drafts:
        write_json(drafts[target], _contents(file).to_dict())
    say(f"Wrote {target}")


@ledger.command(
    short_help="Check a ledger.",
    epilog=examples(
        "dpglm ledger verify people.ledger",
        "dpglm ledger verify people.json --certificate report/certificate.json",
    ),
)
@click.argument("file", type=INPUT_LEDGER)
@click.option(
    "--certificate",
    "certificates",
    type=INPUT_FILE,
    multiple=True,
    help="A certificate whose entry must be in the ledger, unchanged. May be repeated.",
)
@click.pass_context
@guarded
def verify(context: click.Context, file: Path, certificates: tuple[Path, ...]) -> None:
    """Recompute every price and the sum in FILE, and check that no record was changed or removed.

    FILE is a ledger or an export of one. Whoever can write the file can replace all of it by
    another consistent one: certificates and earlier exports that are kept elsewhere show that.

    Exit code: 0 if no problem is found, 1 otherwise, or if FILE is no ledger.
    """
    from dpglm.exceptions import LedgerError

    references = []
    for path in certificates:
        claim, _ = read_claim(path)
        if claim.ledger is None:
            raise ValueError(f"{path} names no ledger: what it is about was recorded in none")
        references.append(claim.ledger)
    try:
        contents = _contents(file)
        problems = contents.problems(references)
    except LedgerError as error:
        contents, problems = None, (str(error),)
    for problem in problems:
        say(f"WRONG: {problem}")
    if contents is not None and not problems:
        count = len(contents.entries)
        entries = "1 entry" if count == 1 else f"{count} entries"
        say(
            f"The ledger for {contents.terms.data} is whole: {entries}, "
            f"{named_numbers(contents.spent())} spent."
        )
    context.exit(1 if problems else 0)


def _contents(path: Path) -> LedgerContents:
    """Read a ledger, or an export of one."""
    from dpglm._json import load
    from dpglm.exceptions import LedgerError
    from dpglm.ledger import LedgerContents, PrivacyLedger

    with path.open("rb") as stream:
        is_export = stream.read(1) == b"{"
    try:
        if is_export:
            return LedgerContents.from_dict(load(path))
        return PrivacyLedger(path).contents()
    except ValueError as error:
        raise LedgerError(f"{path}: {error}") from error
