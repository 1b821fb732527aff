"""`dpglm schema`: a form for the public facts about a table, made without reading its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import click

from dpglm._codec import encode
from dpglm.cli.console import InputError, note, plain
from dpglm.cli.files import all_or_none
from dpglm.cli.options import INPUT_TABLE, OUTPUT_FILE, CsvForm, Force, argument, command, option
from dpglm.tables.databases import Address
from dpglm.tables.files import Dialect, StorageType, separator_cure, storage_types
from dpglm.tables.schema import HELP_KEY

_HELP = [
    "Write down public knowledge: from a law, a questionnaire, documentation, common sense.",
    "Do not take it from the rows: that would not be protected.",
    "The type of a column may stay null if it follows from the other entries.",
    "A number: type 'numeric' (in double quotes), with low and high; values outside are clipped.",
    "If values can be missing, add missing: the number that replaces them.",
    "A category: type 'categorical', with all categories; an empty text among them stands for a",
    "missing value. If you add other: CATEGORY, unlisted values count as that category; if you add",
    "reference: CATEGORY, the effects of the other categories are differences from it.",
    "A date: low and high as dates, such as 2015-01-31; add parts: {month: cyclic, weekday:",
    "categorical} (with double quotes) if the season or the day of the week matters.",
    "A column that the model must not use (a name, an identifier, free text): delete its line.",
    "A column of person ids: delete its line, too; name it with fit --groups COLUMN.",
    "The target: type 'binary' or 'classes', with the classes; or 'numeric', with low and high; or",
    "'count', with high.",
    "The provenance: state where these facts come from. It becomes part of the certificate.",
    "Entries that stay null or [] are ignored, and so is this text.",
]

_COLUMN: Mapping[StorageType, dict[str, Any]] = MappingProxyType(
    {
        StorageType.NUMBER: {"type": "numeric", "low": None, "high": None},
        StorageType.TEXT: {"type": "categorical", "categories": []},
        StorageType.BOOLEAN: {"type": "categorical", "categories": [False, True]},
        StorageType.DATE: {"type": "date", "low": None, "high": None},
        StorageType.DURATION: {"type": "duration", "low": None, "high": None, "unit": "days"},
        StorageType.UNKNOWN: {"type": None, "low": None, "high": None, "categories": []},
    }
)
# A number may be a class label, so its type does not determine the kind of target.
_ANY_TARGET: dict[str, Any] = {"type": None, "classes": [], "low": None, "high": None}
_TARGET: Mapping[StorageType, dict[str, Any]] = MappingProxyType(
    {
        StorageType.NUMBER: _ANY_TARGET,
        StorageType.TEXT: {"type": "classes", "classes": []},
        StorageType.BOOLEAN: {"type": "binary", "classes": [False, True]},
        **dict.fromkeys((StorageType.DATE, StorageType.DURATION, StorageType.UNKNOWN), _ANY_TARGET),
    }
)


@command(
    "Write a form for the public facts about a table.",
    "dpglm schema people.csv --target income -o schema.json",
    "dpglm schema people.parquet --target income",
    "dpglm schema 'duckdb:bank.duckdb?table=loans' --target late",
)
def schema(
    data: Annotated[Path | Address, argument(INPUT_TABLE)],
    target: Annotated[str, option("Column to predict.", metavar="COLUMN")],
    form: CsvForm,
    output: Annotated[
        Path | None,
        option("-o", "--output", "File to write.  [default: print it]", type=OUTPUT_FILE),
    ] = None,
    force: Force = False,
) -> None:
    """Write a form for the public facts about the table DATA, to be filled in by hand.

    A private fit needs the range of every number and the list of every category up front, from
    public knowledge: taken from the rows, they would reveal extremes. So this command reads names
    and storage types of the columns only, never a value. (CSV files do not state which columns are
    numbers; there you fill in the type as well.)

    Edit the file, which has instructions. Then print the cost of a fit, which also checks that the
    form is complete: dpglm plan --schema schema.json --n-rows 30000
    """
    dialect = form.dialect(None)
    types = storage_types(data, dialect)
    if target not in types:
        raise InputError(
            f"--target {target}: not a column of {data}; choose among {', '.join(types)}"
            f"{separator_cure(list(types))}"
        )
    text = _dumps(template(types, target, dialect))
    if output is None:
        # An escaped character stands for itself in JSON, too.
        click.echo(plain(text), nl=False)
        return
    with all_or_none([output], force=force) as drafts:
        drafts[output].write_text(text, encoding="utf-8")
    note(f"Wrote {output}. Fill it in from public knowledge; the file says how.")


def template(
    types: Mapping[str, StorageType], target: str, dialect: Dialect | None = None
) -> dict[str, Any]:
    """Return an incomplete schema: names and storage types only."""
    return {
        HELP_KEY: _HELP,
        "columns": {name: _COLUMN[kind] for name, kind in types.items() if name and name != target},
        "target": {"name": target} | _TARGET[types[target]],
        "provenance": "",
        **({} if dialect is None else {"csv": encode(dialect)}),
    }


def _dumps(document: Mapping[str, Any]) -> str:
    """Write JSON with one line for each column and each line of help."""
    help_lines = ",\n".join(f"    {_json(line)}" for line in document[HELP_KEY])
    columns = ",\n".join(
        f"    {_json(name)}: {_json(entry)}" for name, entry in document["columns"].items()
    )
    form = f',\n  "csv": {_json(document["csv"])}' if "csv" in document else ""
    return (
        f"{{\n  {_json(HELP_KEY)}: [\n{help_lines}\n  ],\n"
        f'  "columns": {{\n{columns}\n  }},\n'
        f'  "target": {_json(document["target"])},\n'
        f'  "provenance": {_json(document["provenance"])}{form}\n}}\n'
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
