"""`dpglm verify` and `audit`: check a certificate, and try to refute a claim."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from dpglm._calls import shown
from dpglm._words import plain_number, rounded_up
from dpglm.cli.console import InputError, print_pairs, print_table, say
from dpglm.cli.files import all_or_none
from dpglm.cli.fitting import make_estimator, read_settings, settings_of
from dpglm.cli.options import (
    COUNT,
    INPUT_FILE,
    OUTPUT_FILE,
    TWO_OR_MORE,
    Adjacency,
    Delta,
    EstimatorName,
    command,
)

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate


@command("Check a certificate.", "dpglm verify report/certificate.json", "dpglm verify model.json")
def verify(certificate: Annotated[Path, INPUT_FILE]) -> None:
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
    estimator: EstimatorName = "logistic",
    settings: tuple[str, ...] = (),
    solver: str = "noisy_gd",
    solver_settings: tuple[str, ...] = (),
    epsilon: float = 8.0,
    delta: Delta = "auto",
    adjacency: Adjacency = "zero_out",
    release: Literal["all", "model"] = "all",
    runs: Annotated[int, click.IntRange(10)] = 500,
    confidence: Annotated[float, _BETWEEN] = 0.95,
    n_rows: Annotated[int, TWO_OR_MORE] = 3,
    n_features: Annotated[int, COUNT] = 2,
    n_classes: Annotated[int, TWO_OR_MORE] = 2,
    n_jobs: Annotated[int, COUNT] = 1,
    json_file: Annotated[Path | None, OUTPUT_FILE] = None,
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
        raise InputError(f"--solver {name}: must be one of {', '.join(SOLVERS)}")
    solver: Any = SOLVERS[name]()
    allowed = settings_of(typing.get_type_hints(type(solver)))
    few = {"n_steps": _STEPS} if "n_steps" in allowed else {}
    given = read_settings("--solver-set", settings, allowed)
    return dataclasses.replace(solver, **few | given)
