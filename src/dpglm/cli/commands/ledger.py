"""`dpglm ledger`: create, show, export and check a privacy ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click

from dpglm._words import named_numbers
from dpglm.cli.commands.checks import read_claim
from dpglm.cli.console import finished, print_pairs, print_table, say
from dpglm.cli.files import all_or_none
from dpglm.cli.options import (
    INPUT_FILE,
    INPUT_LEDGER,
    OUTPUT_FILE,
    TWO_OR_MORE,
    Adjacency,
    command,
    examples,
)

if TYPE_CHECKING:
    from dpglm.ledger import LedgerContents


@click.group(
    short_help="Keep one privacy budget for all analyses of a data set.",
    epilog=examples(
        "dpglm ledger create people.ledger --data 'people 2025' --epsilon 2 --delta 1e-6",
        "dpglm ledger show people.ledger",
        "dpglm ledger verify people.ledger --certificate report/certificate.json",
    ),
)
def ledger() -> None:
    """Keep one privacy budget for all analyses of a data set, in one file.

    A command with --ledger is recorded there, and the record is on the disk, before it releases
    anything; one that would exceed the budget is refused. A fit that fails later stays recorded.

    A ledger contains nothing that was computed from rows. It protects against accidents and
    uncoordinated fits, not against an adversary with write access to the file. Keep exports or
    certificates elsewhere: `dpglm ledger verify` compares them with the ledger.
    """


@command(
    "Make a new ledger.",
    "dpglm ledger create people.ledger --data 'people 2025' --epsilon 2 --delta 1e-6",
    group=ledger,
)
def create(
    file: Annotated[Path, OUTPUT_FILE],
    data: str,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "zero_out",
    fingerprint: str | None = None,
    filter: Literal["gaussian", "renyi", "basic"] = "gaussian",
    unit: Literal["row", "group"] = "row",
    order: Annotated[int | None, TWO_OR_MORE] = None,
) -> None:
    """Make the ledger FILE for a data set. None of the options can be changed later.

    Parameters
    ----------
    data : NAME
        Public name of the data set.
    epsilon
        Epsilon of all analyses together.
    delta
        Failure probability delta of all analyses together, well below 1/rows.
    fingerprint : TEXT
        Public identifier of the data set's version.
    filter
        Composition rule. 'gaussian' is exact for Gaussian noise on all rows, 'renyi' also covers
        sampling, 'basic' adds epsilons and deltas and covers everything.
    unit
        Unit of protection: each row, or each group (person) with all its rows.
    order
        Order of a renyi filter.
    """
    from dpglm.ledger import PrivacyLedger
    from dpglm.privacy.budget import ApproximateDP

    PrivacyLedger.create(
        file,
        data=data,
        budget=ApproximateDP(epsilon, delta),
        adjacency=adjacency,
        filter=filter,
        order=order,
        fingerprint=fingerprint,
        unit=unit,
    )
    finished()
    say(f"Wrote {file}")


@command("Show the spending.", "dpglm ledger show FILE", group=ledger)
def show(file: Annotated[Path, INPUT_LEDGER]) -> None:
    """Show the spending and the remaining budget in a ledger or an export of one."""
    contents = _contents(file)
    terms = contents.terms
    budget, rule = terms.filter.budget.to_dict(), terms.filter.to_dict()
    del budget["type"]
    print_pairs(
        f"Ledger for {terms.data}",
        {
            **{name: str(one) for name, one in contents.facts()},
            "budget": named_numbers(budget),
            "filter": f"{rule['type']}, order {rule['order']}" if "order" in rule else rule["type"],
            "fingerprint": terms.fingerprint or "-",
            "created": terms.created,
            "id": terms.id,
        },
    )
    say()
    print_table(
        ("what", "number", "label", "parts", "who", "when", "charge"),
        (
            (
                entry.what,
                str(entry.number),
                entry.label or "-",
                "all" if entry.parts is None else ", ".join(entry.parts),
                entry.who,
                entry.time[:19],
                named_numbers(entry.charge),
            )
            for entry in contents.entries
        ),
    )


@command(
    "Write a ledger as JSON.", "dpglm ledger export people.ledger -o people.json", group=ledger
)
def export(
    file: Annotated[Path, INPUT_LEDGER], target: Annotated[Path, OUTPUT_FILE], force: bool = False
) -> None:
    """Write everything in the ledger FILE as JSON, which `dpglm ledger verify` reads too.

    The file contains nothing that was computed from rows, but it does name who spent what.

    Parameters
    ----------
    target : -o --output
        JSON file to write.
    """
    from dpglm.ledger.store import write_json

    with all_or_none([target], force=force) as drafts:
        write_json(drafts[target], _contents(file).to_dict())
    say(f"Wrote {target}")


@command(
    "Check a ledger.",
    "dpglm ledger verify people.ledger",
    "dpglm ledger verify people.json --certificate report/certificate.json",
    group=ledger,
)
def verify(
    file: Annotated[Path, INPUT_LEDGER], certificates: Annotated[tuple[Path, ...], INPUT_FILE] = ()
) -> None:
    """Recompute every charge and the total of FILE; check that no entry was changed or removed.

    FILE is a ledger or an export of one. Anyone who can write the file can replace it by another
    consistent one: only certificates and earlier exports that are kept elsewhere reveal that.

    Exit code: 0 if no problem is found, 1 otherwise, or if FILE is not a ledger.

    Parameters
    ----------
    certificates : --certificate
        Certificate with an entry that must be in the ledger, unchanged.
    """
    from dpglm.exceptions import LedgerError

    references = []
    for path in certificates:
        claim, _ = read_claim(path)
        if claim.ledger is None:
            raise ValueError(f"{path} does not name a ledger: its analysis was not recorded in one")
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
    click.get_current_context().exit(1 if problems else 0)


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
