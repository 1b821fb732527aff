"""Exposures and offsets of rows: the options that name them, and those that a model needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

import click

from dpglm.cli.console import InputError
from dpglm.tables.cells import as_numbers
from dpglm.tables.schema import Schema

if TYPE_CHECKING:
    from dpglm.report.model_file import LinearModel

__all__ = [
    "GivenOffset",
    "check_exposure",
    "exposure_bounds",
    "exposure_options",
    "offset_options",
]

F = TypeVar("F", bound=Callable[..., Any])


def offset_options(command: F) -> F:
    """Add --exposure and --offset, of rows that a model is to predict."""
    for option in (
        click.option(
            "--offset",
            metavar="COLUMN|NUMBER",
            help="Known terms of the scores, of a model that was fitted with offsets.",
        ),
        click.option(
            "--exposure",
            metavar="COLUMN|NUMBER",
            help="The column of exposures, of a model that was fitted with them, or one number for "
            "all rows, such as 1. By default the column that the model file names.",
        ),
    ):
        command = option(command)
    return command


def exposure_options(command: F) -> F:
    """Add --exposure and --exposure-bounds, of rows that a model is fitted to."""
    for option in (
        click.option(
            "--exposure-bounds",
            metavar="LOW,HIGH",
            help="Public bounds on exposures, which are clipped to them; with --inference they are "
            "needed.",
        ),
        click.option(
            "--exposure",
            metavar="COLUMN",
            help="A column of times, persons or the like, above 0, to which means of counts and "
            "amounts are proportional; as private as its rows, and not in the schema.",
        ),
    ):
        command = option(command)
    return command


def check_exposure(
    exposure: str | None, bounds: str | None, inference: str | None, schema: Schema
) -> None:
    """Refuse an exposure that no model of the target takes, or whose bounds are needed."""
    if exposure is None:
        return
    if schema.target.n_classes is not None:
        raise InputError("--exposure is for counts and amounts, and the target is neither")
    if exposure in (*schema.column_names, schema.target.name):
        raise InputError(f"--exposure {exposure}: the schema has this column for something else")
    if inference is not None and bounds is None:
        raise InputError(
            "--inference needs --exposure-bounds LOW,HIGH, public bounds on the exposures, about "
            "whose middle the fit starts"
        )


@final
@dataclass(frozen=True)
class GivenOffset:
    """What a model that was fitted with offsets takes them from: a column, or a number."""

    kind: str | None = None
    source: str | float | None = None

    @classmethod
    def of(
        cls,
        model: LinearModel,
        exposure: str | None,
        offset: str | None,
        present: Collection[str],
    ) -> Self:
        """Read the options for a model and the columns of a table; refuse what does not fit."""
        fitted = model.offset_column
        given = [
            (kind, text) for kind, text in (("exposure", exposure), ("offset", offset)) if text
        ]
        if len(given) > 1:
            raise InputError("--exposure and --offset must not both be given")
        if fitted is None:
            if given:
                raise InputError(f"--{given[0][0]} {given[0][1]}: the model was fitted without one")
            return cls()
        kind, text = given[0] if given else (fitted.kind, fitted.name)
        cure = (
            f"name it with --{kind} COLUMN, or give --exposure 1 for means at an exposure of 1"
            if fitted.kind == "exposure"
            else f"name it with --{kind} COLUMN, or give --offset 0"
        )
        if text is None:
            raise InputError(
                f"the model was fitted with an {kind}, and its file does not say in which column: "
                f"{cure}"
            )
        number = _number(text) if given else None
        if number is None and text not in present:
            raise InputError(f"the data lack the column {text!r} of the model's {kind}: {cure}")
        return cls(kind, text if number is None else number)

    @property
    def columns(self) -> list[str]:
        """The column, if there is one."""
        return [self.source] if isinstance(self.source, str) else []

    def values(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``predict`` is given."""
        if self.kind is None:
            return {}
        if isinstance(self.source, str):
            return {self.kind: as_numbers(table[self.source], f"column {self.source!r}")}
        return {self.kind: self.source}


def exposure_bounds(text: str | None, exposure: str | None) -> dict[str, Any]:
    """Read --exposure-bounds as the estimator's parameter."""
    if text is None:
        return {}
    if exposure is None:
        raise InputError(f"--exposure-bounds {text}: needs --exposure, the column")
    try:
        low, high = map(float, text.split(","))
        if not 0.0 < low <= high < math.inf:
            raise ValueError
    except ValueError:
        raise InputError(
            f"--exposure-bounds {text}: give two numbers above 0, such as 0.1,10"
        ) from None
    return {"offset_bounds": (math.log(low), math.log(high))}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
