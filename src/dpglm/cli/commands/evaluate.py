"""`dpglm evaluate`: how good a model file is on private rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from dpglm.cli.console import InputError, guarded, note, say, spending
from dpglm.cli.files import (
    SpendingWatch,
    columns_of,
    encoded_target,
    features_of,
    keep_unprinted,
    reserved,
)
from dpglm.cli.fitting import (
    PUBLIC_ROWS,
    GivenGroups,
    GivenOffset,
    group_options,
    offset_options,
    require_report,
)
from dpglm.cli.options import (
    INPUT_FILE,
    LEDGER,
    TRIALS,
    budget_options,
    examples,
    force_option,
    output_folder,
)
from dpglm.tables.cells import Entry, Vocabulary, as_cells
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.files import named_errors, read_table, storage_types
from dpglm.tables.targets import ClassTarget, CountTarget, NoTarget, NumericTarget, TargetColumn

if TYPE_CHECKING:
    from dpglm.report.model_file import LinearModel

__all__ = ["evaluate"]

REPORT_FOLDER = output_folder("certificate.json", "evaluation.html", "evaluation.json")


@click.command(
    short_help="Evaluate a model on private rows.",
    epilog=examples(
        "dpglm evaluate held_out.csv --model model.json --epsilon 0.5 --report performance",
        "dpglm evaluate held_out.csv --model model.json --epsilon 0.5 --by sex \\",
        "    --threshold 0.2 --threshold 0.5 --ledger people.ledger --report performance",
    ),
)
@click.argument("data", type=INPUT_FILE)
@click.option("--model", type=INPUT_FILE, required=True, help="What `dpglm fit` wrote.")
@offset_options
@TRIALS
@group_options
@budget_options()
@PUBLIC_ROWS
@click.option(
    "--target", metavar="COLUMN", help="The column that is predicted; by default the schema's."
)
@click.option(
    "--target-bounds",
    metavar="LOW,HIGH",
    help="Public bounds on numbers that are predicted; by default those of the fit.",
)
@click.option(
    "--threshold",
    "thresholds",
    type=float,
    multiple=True,
    help="A score from which on rows are called positive, of two classes; by default 0.5 for "
    "probabilities, and 0 for decision values. May be repeated.",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Evaluate the rows of each level of this column, too, at no further cost.",
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="VALUE",
    help="A public level of the column of --by; by default the model's schema lists them. To be "
    "repeated.",
)
@click.option(
    "--ledger",
    type=LEDGER,
    help="The ledger of this data set, where the evaluation is paid for before it is made.",
)
@click.option(
    "--report",
    type=REPORT_FOLDER,
    metavar="FOLDER",
    help="Where to write certificate.json, evaluation.html and evaluation.json.",
)
@force_option
@guarded
def evaluate(
    data: Path,
    model: Path,
    exposure: str | None,
    offset: str | None,
    trials: str | None,
    groups: str | None,
    max_rows_per_group: int | None,
    public_groups: int | None,
    public_rows: int | None,
    target: str | None,
    target_bounds: str | None,
    thresholds: tuple[float, ...],
    by: str | None,
    levels: tuple[str, ...],
    ledger: Path | None,
    report: Path | None,
    force: bool,
    **budget: Any,
) -> None:
    """Evaluate a model on the private table DATA, whose rows it was not fitted on.

    DATA is a CSV or Parquet file with the model's columns, its target and, if it was fitted with
    exposures, those. All numbers come from noisy
    releases within the budget that you give; each is shown with an interval for these rows, and one
    for the population that they are from. What is printed and written may be published.

    An error before anything is spent leaves no file. One after that says what was spent and where
    the numbers are, and has exit code 3.
    """
    from dpglm.evaluation import evaluate as evaluated
    from dpglm.ledger import PrivacyLedger
    from dpglm.ledger.store import write_json
    from dpglm.report.model_file import load_model

    if levels and by is None:
        raise InputError("--level belongs to --by: name the column")
    bounds = None if target_bounds is None else _bounds(target_bounds)
    loaded = load_model(model)
    answer = _target(loaded, target, bounds)
    _check_trials(loaded, answer, trials)
    listed = None if by is None else _vocabulary(loaded, by, levels)
    whose = GivenGroups(groups, max_rows_per_group, public_groups)
    whose.check_limited()
    known = GivenOffset.of(loaded, exposure, offset, storage_types(data))
    whose.check_apart((*columns_of(loaded), answer.name, *known.columns))
    if report is not None:
        require_report()
    written = [] if report is None else list(REPORT_FOLDER.files(report))
    account = None if ledger is None else PrivacyLedger(ledger)
    watch = spending(SpendingWatch(account))
    with reserved(written, force=force) as outputs:
        own = columns_of(loaded)
        others = [answer.name] if by is None else [answer.name, by]
        others += [*whose.columns, *known.columns, *([] if trials is None else [trials])]
        table = read_table(data, list(dict.fromkeys([*own, *others])))
        with named_errors(data):
            y, _ = encoded_target(answer, table, trials)
            rows = features_of(loaded, {name: table[name] for name in own})
            places = None if by is None or listed is None else _places(listed, by, table[by])
            ids = None if groups is None else as_cells(table[groups], groups)
            offsets = known.values(table)
        found = evaluated(
            loaded,
            rows,
            y,
            **offsets,
            n_rows=public_rows,
            target_bounds=bounds,
            thresholds=thresholds or None,
            by=places,
            levels=() if listed is None else listed.entries,
            groups=ids,
            max_rows_per_group=max_rows_per_group,
            n_groups=public_groups,
            ledger=account,
            **budget,
        )

        def write(drafts: Mapping[Path, Path]) -> None:
            if report is not None:
                from dpglm.report.evaluation_page import write_evaluation

                write_json(drafts[report / "evaluation.json"], found.to_dict())
                found.privacy_.to_json(drafts[report / "certificate.json"])
                write_evaluation(found, drafts[report / "evaluation.html"], by=by)

        outputs.write(write, watch.wrote)
    say(found.summary())
    if report is None:
        watch.wrote(keep_unprinted("evaluation.json", found.to_dict()))
    for caution in found.privacy_.caveats():
        note(f"Warning: {caution}")
    for path in written:
        say(f"Wrote {path}")


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError(f"--target-bounds {text}: give two numbers, such as 0,100") from None
    return low, high


def _target(
    model: LinearModel, name: str | None, bounds: tuple[float, float] | None
) -> TargetColumn:
    """Return the target column: the schema's, or one of that name with what the model predicts."""
    known = None if model.schema is None else model.schema.target
    if known is not None and not isinstance(known, NoTarget) and name in (None, known.name):
        return known
    if name is None:
        raise InputError("--target COLUMN must say what the model predicts: its file does not")
    if model.classes_ is not None:
        return ClassTarget(name, tuple(model.classes_.tolist()))
    ends = model.target_bounds if bounds is None else bounds
    if ends is None:
        raise InputError("--target-bounds LOW,HIGH must be given: the model file has none")
    return NumericTarget(name, *ends)


def _check_trials(model: LinearModel, target: TargetColumn, trials: str | None) -> None:
    """Refuse successes without their trials, and trials of what is no number of successes."""
    from dpglm.problem import Target

    of_shares = model.certificate.problem.loss.target is Target.PROPORTION
    counts = isinstance(target, CountTarget)
    if of_shares and counts and trials is None:
        raise InputError(
            f"--trials COLUMN must be given: the model predicts shares of successes, and "
            f"{target.name!r} counts these"
        )
    if trials is not None and not (of_shares and counts):
        raise InputError(f"--trials {trials}: the model was fitted without them")


def _vocabulary(model: LinearModel, by: str, levels: Sequence[str]) -> Vocabulary:
    """Return the public levels of a column: those that are given, or those of the schema."""
    columns = () if model.schema is None else model.schema.columns
    listed = {one.name: one.categories for one in columns if isinstance(one, CategoricalColumn)}
    if not levels and by not in listed:
        raise InputError(
            f"--by {by}: give the public levels of this column by --level, at least two; the "
            f"model's schema has those of {', '.join(listed) or 'no column'}"
        )
    entries: Sequence[Entry] = _numbers(levels) if levels else listed[by]
    return Vocabulary(tuple(entries))


def _numbers(levels: Sequence[str]) -> Sequence[Entry]:
    try:
        return [float(level) for level in levels]
    except ValueError:
        return list(levels)


def _places(levels: Vocabulary, by: str, cells: Any) -> NDArray[np.object_]:
    """Return each row's level; None for what is none of them."""
    none = len(levels.entries)
    places = levels.positions(cells, f"column {by!r}", "", other=none)
    return np.array([*levels.entries, None], dtype=object)[places]
