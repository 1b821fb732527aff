"""`dpglm verify`, `audit` and `ledger`: check claims, and keep the total of a data set."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from dpglm._calls import shown
from dpglm._words import named_numbers, plain_number, rounded_up
from dpglm.cli import options
from dpglm.cli.console import CommandError, finished, print_pairs, print_table, say
from dpglm.cli.files import all_or_none
from dpglm.cli.fitting import make_estimator, read_settings, settings_of
from dpglm.cli.options import command, examples

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate
    from dpglm.ledger import LedgerContents


@command("Check a certificate.", "dpglm verify report/certificate.json", "dpglm verify model.json")
def verify(certificate: Annotated[Path, options.INPUT_FILE]) -> None:
    """Check that the claim in CERTIFICATE follows from its contents.

    Recomputes epsilon and delta from the recorded events with accountants that share no code
    with the one that made the claim. Checks that the noise fits the bounds, the relation and
    the number of releases. CERTIFICATE is a certificate.json of a fit or a study, or a model file.

    A certificate contains the record of its author. No file can prove that the recorded program
    really ran on the rows.

    Exit code: 0 if the claim holds (and the model of a model file is the one that it is about);
    1 if it does not; 2 if the file is not a certificate, or the check could not be made or is too
    costly: it takes at most about a minute and 2 GB.
    """
    from dpglm.certificate.verify import verify as check

    claim, problems = read_claim(certificate)
    found = check(claim)
    for problem in problems:
        say(f"THE MODEL IS NOT THE ONE OF THE CERTIFICATE: {problem}")
    say(found.summary())
    if found.ok:
        say()
        rows = []
        for one in claim.spending():
            mu = "-" if one.mu is None else plain_number(one.mu)
            share = "-" if one.share is None else f"{plain_number(100.0 * one.share, 3)} %"
            rows.append((one.stage, rounded_up(one.epsilon), mu, share))
        heading = f"Budget by stage (delta {rounded_up(claim.delta)})"
        print_table((heading, "epsilon alone", "mu", "mu^2"), rows)
    undecided = found.too_costly is not None and len(found.findings) == 1
    is_right = found.ok and not problems
    click.get_current_context().exit(0 if is_right else 2 if undecided and not problems else 1)


def read_claim(path: Path) -> tuple[Certificate, tuple[str, ...]]:
    """Return the certificate in a file, and where a model there disagrees with it."""
    from dpglm._json import in_file, load
    from dpglm.certificate.certificate import Certificate
    from dpglm.report.model_file import FORMAT, read_model

    with in_file(path):
        document = load(path)
        if not FORMAT.matches(document):
            return Certificate.from_dict(document), ()
        model, problems = read_model(document)
        return model.certificate, problems


_STEPS = 2
_BETWEEN = click.FloatRange(min=0.0, max=1.0, min_open=True, max_open=True)


@command(
    "Try to refute the claim of a model family; needs no data.",
    "dpglm audit",
    "dpglm audit --estimator ridge --solver sufficient_statistics --runs 1000",
    "dpglm audit --solver-set clip=0.25 --solver-set n_steps=4 --json audit.json",
)
def audit(
    estimator: options.EstimatorName = "logistic",
    settings: tuple[str, ...] = (),
    solver: str = "noisy_gd",
    solver_settings: tuple[str, ...] = (),
    epsilon: float = 8.0,
    delta: options.Delta = "auto",
    adjacency: options.Adjacency = "zero_out",
    release: Literal["all", "model"] = "all",
    runs: Annotated[int, click.IntRange(10)] = 500,
    confidence: Annotated[float, _BETWEEN] = 0.95,
    n_rows: Annotated[int, options.TWO_OR_MORE] = 3,
    n_features: Annotated[int, options.COUNT] = 2,
    n_classes: Annotated[int, options.TWO_OR_MORE] = 2,
    n_jobs: Annotated[int, options.COUNT] = 1,
    json_file: Annotated[Path | None, options.OUTPUT_FILE] = None,
    force: bool = False,
) -> None:
    """Fit a model many times to synthetic worst-case rows, and try to tell two data sets apart.

    The two data sets differ in one row. How well an attacker tells them apart bounds epsilon from
    below; a claim below that bound is refuted. The fits draw their noise as real ones do.

    A claim that is not refuted is not proved: a stronger attack may exist.

    Exit code: 0 if the claim is not refuted, 1 if it is, 2 for wrong options.

    Parameters
    ----------
    estimator
        Model to fit.
    solver
        Solver to attack.
    solver_settings : --solver-set NAME=VALUE
        Parameter of the solver, as in Python, such as clip=0.25. n_steps is 2 by default: few steps
        are fast and just as revealing.
    release
        Releases that the attacker sees: all that the claim covers, or only the model.
    runs
        Counted runs on each data set; a small epsilon needs many.
    confidence
        Joint confidence of all statements.
    n_rows
        Number of rows.
    n_features
        Number of features.
    n_classes
        Number of classes.
    n_jobs
        Number of processes.
    json_file
        Report to write (JSON).
    """
    from dpglm.audit import audit as attack

    assert estimator is not None
    made = make_estimator(
        estimator,
        settings,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        solver=_solver(solver, solver_settings),
        row_norm=1.0,
    )
    written = [] if json_file is None else [json_file]
    with all_or_none(written, force=force) as drafts:
        with shown():
            report = attack(
                made,
                n_rows=n_rows,
                n_features=n_features,
                n_classes=n_classes,
                release=release,
                runs=runs,
                confidence=confidence,
                n_jobs=n_jobs,
            )
        for path in written:
            report.to_json(drafts[path])
    print_pairs("Audit", dict(report.lines()))
    click.get_current_context().exit(1 if report.refuted else 0)


def _solver(name: str, settings: tuple[str, ...]) -> Any:
    """Make a solver of few steps, with the given settings."""
    from dpglm.solvers import SOLVERS

    if name not in SOLVERS:
        raise CommandError(f"--solver {name}: must be one of {', '.join(SOLVERS)}")
    solver: Any = SOLVERS[name]()
    allowed = settings_of(typing.get_type_hints(type(solver)))
    few = {"n_steps": _STEPS} if "n_steps" in allowed else {}
    given = read_settings("--solver-set", settings, allowed)
    return dataclasses.replace(solver, **few | given)


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
    file: Annotated[Path, options.OUTPUT_FILE],
    data: str,
    epsilon: float,
    delta: float,
    adjacency: options.Adjacency = "zero_out",
    fingerprint: str | None = None,
    filter: Literal["gaussian", "renyi", "basic"] = "gaussian",
    unit: Literal["row", "group"] = "row",
    order: Annotated[int | None, options.TWO_OR_MORE] = None,
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
def show(file: Annotated[Path, options.INPUT_LEDGER]) -> None:
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
    file: Annotated[Path, options.INPUT_LEDGER],
    target: Annotated[Path, options.OUTPUT_FILE],
    force: bool = False,
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
    name="verify",
)
def verify_ledger(
    file: Annotated[Path, options.INPUT_LEDGER],
    certificates: Annotated[tuple[Path, ...], options.INPUT_FILE] = (),
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
