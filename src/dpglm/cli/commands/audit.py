"""`dpglm audit`: try to refute the privacy claim of a model family."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from dpglm._progress import shown
from dpglm.cli.console import InputError, print_pairs
from dpglm.cli.files import all_or_none
from dpglm.cli.options import (
    COUNT,
    OUTPUT_FILE,
    Adjacency,
    Delta,
    Epsilon,
    EstimatorName,
    Force,
    Settings,
    command,
    make_estimator,
    option,
    read_settings,
    settings_of,
)

_STEPS = 2
_TWO_OR_MORE = click.IntRange(min=2)


@command(
    "Try to refute the claim of a model family; needs no data.",
    "dpglm audit",
    "dpglm audit --estimator ridge --solver sufficient_statistics --runs 1000",
    "dpglm audit --solver-set clip=0.25 --solver-set n_steps=4 --json audit.json",
)
def audit(
    estimator: EstimatorName = "logistic",
    settings: Settings = (),
    solver: Annotated[str, option("Solver to attack.")] = "noisy_gd",
    solver_settings: Annotated[
        tuple[str, ...],
        option(
            "--solver-set",
            f"Parameter of the solver, as in Python, such as clip=0.25. n_steps is {_STEPS} by "
            "default: few steps are fast and just as revealing.",
            metavar="NAME=VALUE",
        ),
    ] = (),
    epsilon: Epsilon = 8.0,
    delta: Delta = "auto",
    adjacency: Adjacency = "zero_out",
    release: Annotated[
        Literal["all", "model"],
        option("Releases that the attacker sees: all that the claim covers, or only the model."),
    ] = "all",
    runs: Annotated[
        int,
        option(
            "Counted runs on each data set; a small epsilon needs many.", type=click.IntRange(10)
        ),
    ] = 500,
    confidence: Annotated[
        float,
        option(
            "Joint confidence of all statements.",
            type=click.FloatRange(min=0.0, max=1.0, min_open=True, max_open=True),
        ),
    ] = 0.95,
    n_rows: Annotated[int, option("Number of rows.", type=_TWO_OR_MORE)] = 3,
    n_features: Annotated[int, option("Number of features.", type=COUNT)] = 2,
    n_classes: Annotated[int, option("Number of classes.", type=_TWO_OR_MORE)] = 2,
    n_jobs: Annotated[int, option("Number of processes.", type=COUNT)] = 1,
    json_file: Annotated[
        Path | None, option("--json", "Report to write (JSON).", type=OUTPUT_FILE)
    ] = None,
    force: Force = False,
) -> None:
    """Fit a model many times to synthetic worst-case rows, and try to tell two data sets apart.

    The two data sets differ in one row. How well an attacker tells them apart bounds epsilon from
    below; a claim below that bound is refuted. The fits draw their noise as real ones do.

    A claim that is not refuted is not proved: a stronger attack may exist.

    Exit code: 0 if the claim is not refuted, 1 if it is, 2 for wrong options.
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
