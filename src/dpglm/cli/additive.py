"""Options of additive models, and the estimators that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import click

from dpglm.cli.console import InputError
from dpglm.cli.options import set_up
from dpglm.tables.schema import Schema

__all__ = ["additive_options", "asked_for_curves", "make_additive"]

F = TypeVar("F", bound=Callable[..., Any])

_DIRECTIONS: Mapping[str, int] = MappingProxyType({"+1": 1, "1": 1, "-1": -1})
# The data, and what other options decide.
_DECIDED = frozenset({"schema", "interactions", "monotone"})


def additive_options(command: F) -> F:
    """Add --additive, --interaction and --monotone."""
    for option in (
        click.option(
            "--monotone",
            "monotone",
            multiple=True,
            metavar="COLUMN=+1|-1",
            help="With --additive: a numeric column in which the score must not fall (+1), or not "
            "rise (-1). May be repeated.",
        ),
        click.option(
            "--interaction",
            "interactions",
            multiple=True,
            metavar="COLUMN:COLUMN",
            help="With --additive: two columns whose effect together is added to their own. May be "
            "repeated.",
        ),
        click.option(
            "--additive",
            is_flag=True,
            help="Fit a curve for each numeric column and a level for each category; how fine "
            "follows from rows and budget.",
        ),
    ):
        command = option(command)
    return command


def asked_for_curves(
    additive: bool,
    interactions: Sequence[str],
    monotone: Sequence[str],
    **excluded: object,
) -> bool:
    """Return ``additive``; refuse options that need it without it, and ``excluded`` ones with it.

    Excluded options, by name, are those that are true.
    """
    for option, values in (("--interaction", interactions), ("--monotone", monotone)):
        if values and not additive:
            raise InputError(f"{option} {values[0]}: needs --additive")
    for name, value in excluded.items():
        if additive and value:
            raise InputError(
                f"--{name} cannot be had with --additive, which makes curves of all columns of the "
                "schema, and takes the model from the target: another loss is --set loss=NAME"
            )
    return additive


def make_additive(
    schema: Schema,
    interactions: Sequence[str],
    monotone: Sequence[str],
    settings: Sequence[str],
    inference: str | None = None,
    **parameters: Any,
) -> Any:
    """Make the additive model of a schema's target."""
    from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor

    kind = AdditiveRegressor if schema.target.n_classes is None else AdditiveClassifier
    return set_up(
        kind(schema),
        settings,
        inference,
        not_settable=_DECIDED,
        labels=schema.target.estimator_parameters().get("classes"),
        interactions=[_pair(one, schema) for one in interactions],
        monotone=dict(_direction(one) for one in monotone) or None,
        **parameters,
    )


def _pair(text: str, schema: Schema) -> tuple[str, str]:
    """Split a pair of columns, whose names may hold colons themselves."""
    pairs = [(text[:i], text[i + 1 :]) for i, letter in enumerate(text) if letter == ":"]
    known = [pair for pair in pairs if set(pair) <= set(schema.column_names)]
    if len(known) != 1:
        raise InputError(
            f"--interaction {text}: must be COLUMN:COLUMN, two columns of the schema, "
            f"{', '.join(schema.column_names)}"
        )
    return known[0]


def _direction(text: str) -> tuple[str, int]:
    name, _, direction = text.rpartition("=")
    if direction not in _DIRECTIONS or not name:
        raise InputError(f"--monotone {text}: must be COLUMN=+1 or COLUMN=-1")
    return name, _DIRECTIONS[direction]
