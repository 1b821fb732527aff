"""Options that say how many rows there are, whose each is, and how many of each are used."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar, final

import click

from dpglm.cli.console import InputError

__all__ = ["PUBLIC_ROWS", "GivenGroups", "group_options", "rows_option"]

F = TypeVar("F", bound=Callable[..., Any])


def rows_option(**more: Any) -> Callable[[F], F]:
    """Add --rows, also called --public-rows."""
    return click.option(
        "--rows", "--public-rows", "public_rows", type=click.IntRange(min=1), **more
    )


PUBLIC_ROWS = rows_option(
    help="A rough public number of rows; for --adjacency add_remove, where the true one is secret."
)


def group_options(command: F) -> F:
    """Add --groups, --max-rows-per-group and --public-groups."""
    for option in (
        click.option(
            "--public-groups",
            type=click.IntRange(min=1),
            help="A rough public number of groups; for --adjacency add_remove, where the true one "
            "is secret.",
        ),
        click.option(
            "--max-rows-per-group",
            type=click.IntRange(min=1),
            help="How many rows of a group are used at most; of groups with more, so many are "
            "drawn.",
        ),
        click.option(
            "--groups",
            metavar="COLUMN",
            help="A column that says whose each row is, such as a person's number: all rows of a "
            "group are protected together. Not in the schema.",
        ),
    ):
        command = option(command)
    return command


@final
@dataclass(frozen=True)
class GivenGroups:
    """What was given of groups: their column, the limit on their rows, and their public number."""

    column: str | None
    most: int | None
    public: int | None

    def __post_init__(self) -> None:
        for option, value in (
            ("--max-rows-per-group", self.most),
            ("--public-groups", self.public),
        ):
            if value is not None and self.column is None:
                raise InputError(
                    f"{option} {value}: needs --groups, the column that says whose each row is"
                )

    @property
    def columns(self) -> list[str]:
        """The column, if there is one."""
        return [] if self.column is None else [self.column]

    def check_apart(self, taken: Collection[str | None]) -> None:
        """Refuse a column that is used for something else already."""
        if self.column is not None and self.column in taken:
            raise InputError(f"--groups {self.column}: this column is used for something else")

    def check_limited(self) -> None:
        """Refuse groups without a limit on their rows."""
        if self.column is not None and self.most is None:
            raise InputError(
                f"--groups {self.column}: needs --max-rows-per-group, as noise is made for so many "
                "rows of each"
            )

    def check_public(self, adjacency: str, public_rows: int | None) -> None:
        """Refuse a relation that keeps a number secret for which no public one was given."""
        if self.column is None:
            return
        if adjacency == "add_remove" and self.public is None:
            raise InputError(
                "--adjacency add_remove keeps the number of groups secret: say roughly how many "
                "there are, from public knowledge, with --public-groups"
            )
        if adjacency == "replace_one" and public_rows is None:
            raise InputError(
                "--adjacency replace_one keeps the number of rows in groups secret: say roughly "
                "how many there are, from public knowledge, with --rows"
            )
