"""`dpglm audit`: try to refute the privacy claim of a model family."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dpglm._progress import shown
from dpglm.cli.console import InputError, guarded, note, print_pairs
from dpglm.cli.files import all_or_none
from dpglm.cli.options import (
    OUTPUT_FILE,
    budget_options,
    estimator_options,
    examples,
    force_option,
    make_estimator,
    read_settings,
    settings_of,
)

__all__ = ["BUGS", "audit"]

F = TypeVar("F", bound=Callable[..., Any])
_STEPS = 2
BUGS = (
    "fixed_seed",
    "forgotten_event",
    "half_noise",
    "intercept_without_noise",
    "no_clipping",
    "noise_reused_across_classes",
    "unnoised_step_size",
    "wrong_relation",
)
"""The names in ``dpglm.audit.PLANTED``, which would take long to import for a help text."""


def _number(option: str, name: str, least: int, default: int, text: str) -> Callable[[F], F]:
    """Make an option for a parameter of ``dpglm.audit.audit`` that is an integer."""
    kind = click.IntRange(min=least)
    return click.option(option, name, type=kind, default=default, show_default=True, help=text)


@click.command(
    short_help="Try to refute the claim of a model family; needs no data.",
    epilog=examples(
        "dpglm audit",
        "dpglm audit --estimator ridge --solver sufficient_statistics --runs 1000",
        "dpglm audit --solver-set clip=0.25 --solver-set n_steps=4 --json audit.json",
        "",
        "dpglm audit --planted-bug half_noise                     see that a bug is found",
        "dpglm audit --planted-bug wrong_relation --adjacency replace_one",
    ),
)
@estimator_options("logistic")
@click.option("--solver", default="noisy_gd", show_default=True, help="How it is fitted.")
@click.option(
    "--solver-set",
    "solver_settings",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"A setting of the solver as in Python, such as clip=0.25. May be repeated. Where a "
    f"solver has n_steps, {_STEPS} unless said otherwise: few are fast and show as much.",
)
@budget_options(epsilon=8.0)
@click.option(
    "--release",
    type=click.Choice(["all", "model"]),
    default="all",
    show_default=True,
    help="What the attacker sees: all that the claim pays for, or the model alone.",
)
@_number("--runs", "runs", 10, 500, "Counted runs on each data set; a small epsilon needs many.")
@click.option(
    "--confidence",
    type=click.FloatRange(min=0.0, max=1.0, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Joint confidence of all statements.",
)
@_number("--rows", "n_rows", 2, 3, "Rows.")
@_number("--columns", "n_features", 1, 2, "Features.")
@_number("--classes", "n_classes", 2, 2, "Classes.")
@click.option(
    "--planted-bug",
    type=click.Choice(BUGS),
    help="Attack the library with this bug planted in it.",
)
@_number("--jobs", "n_jobs", 1, 1, "Processes.")
@click.option("--json", "json_file", type=OUTPUT_FILE, help="Where to write the report (JSON).")
@force_option
@click.pass_context
@guarded
def audit(
    context: click.Context,
    /,
    estimator: str,
    settings: tuple[str, ...],
    solver: str,
    solver_settings: tuple[str, ...],
    epsilon: float,
    delta: float | str,
    adjacency: str,
    planted_bug: str | None,
    json_file: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Fit a model many times to synthetic worst-case rows, and try to tell two data sets apart.

    The two data sets differ in one row. How well an attacker tells them apart bounds epsilon from
    below; a claim below that bound is refuted. The fits draw their noise as real ones do.

    A claim that is not refuted is not proved: a stronger attack may exist.

    Exit code: 0 if the claim is not refuted, 1 if it is, 2 for wrong options.
    """
    from dpglm.audit import PLANTED
    from dpglm.audit import audit as attack

    made = make_estimator(
        estimator,
        settings,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        solver=_solver(solver, solver_settings),
        row_norm=1.0,
    )
    if planted_bug is not None:
        note(f"Planted bug: {PLANTED[planted_bug].summary}")
    written = [] if json_file is None else [json_file]
    with all_or_none(written, force=force) as drafts:
        with shown():
            report = attack(made, planted_bug=planted_bug, **options)
        for path in written:
            report.to_json(drafts[path])
    print_pairs("Audit", dict(report.lines()))
    context.exit(1 if report.refuted else 0)


def _solver(name: str, settings: tuple[str, ...]) -> Any:
    """Make a solver of few steps, with the settings that were given."""
    from dpglm.solvers import SOLVERS

    if name not in SOLVERS:
        raise InputError(f"--solver {name}: must be one of {', '.join(SOLVERS)}")
    solver: Any = SOLVERS[name]()
    allowed = settings_of(typing.get_type_hints(type(solver)))
    few = {"n_steps": _STEPS} if "n_steps" in allowed else {}
    given = read_settings("--solver-set", settings, allowed)
    return dataclasses.replace(solver, **few | given)
