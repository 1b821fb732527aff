"""`dpglm schema`: a form for the public facts about a table, made without looking at its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from dpglm.cli.console import InputError, guarded, note, plain
from dpglm.cli.files import all_or_none
from dpglm.cli.options import INPUT_FILE, OUTPUT_FILE, examples, force_option
from dpglm.tables.files import StorageType, storage_types
from dpglm.tables.schema import HELP_KEY

__all__ = ["schema", "template"]

_HELP = [
    "Write down what is publicly known: from a law, a questionnaire, documentation, common sense.",
    "Do not look at the rows for it: what is taken from them is not protected.",
    "A number: type 'numeric' (in double quotes), with low and high; a value outside counts as the",
    "nearer bound. If values can be missing, add missing: the number that they count as.",
    "One of a list: type 'categorical', with all categories; an empty text among them stands for a",
    "missing value. If you add other: CATEGORY, all that is not listed counts as that category; if",
    "you add reference: CATEGORY, effects of the other categories are differences from it.",
    "A date: write a number into the table instead, such as days since a fixed day.",
    "A column that the model shall not use (a name, an identifier, free text): delete its line.",
    "One that says whose a row is: delete its line, too; fit --groups COLUMN names it.",
    "The target: type 'binary' or 'classes', with the classes; or 'numeric', with low and high; or",
    "'count', with high.",
    "The provenance: say where these facts come from. It becomes part of the certificate.",
    "What is left null or [] is ignored, and so is this text.",
]

_COLUMN: Mapping[StorageType, dict[str, Any]] = MappingProxyType(
    {
        StorageType.NUMBER: {"type": "numeric", "low": None, "high": None},
        StorageType.TEXT: {"type": "categorical", "categories": []},
        StorageType.BOOLEAN: {"type": "categorical", "categories": [False, True]},
        StorageType.UNKNOWN: {"type": None, "low": None, "high": None, "categories": []},
    }
)
# A number may be a class label, so its type does not say what kind of target it is.
_ANY_TARGET: dict[str, Any] = {"type": None, "classes": [], "low": None, "high": None}
_TARGET: Mapping[StorageType, dict[str, Any]] = MappingProxyType(
    {
        StorageType.NUMBER: _ANY_TARGET,
        StorageType.TEXT: {"type": "classes", "classes": []},
        StorageType.BOOLEAN: {"type": "binary", "classes": [False, True]},
        StorageType.UNKNOWN: _ANY_TARGET,
    }
)


@click.command(
    short_help="Write a form for the public facts about a table.",
    epilog=examples(
        "dpglm schema people.csv --target income -o schema.json",
        "dpglm schema people.parquet --target income",
    ),
)
@click.argument("data", type=INPUT_FILE)
@click.option("--target", required=True, metavar="COLUMN", help="The column to predict.")
@click.option("-o", "--output", type=OUTPUT_FILE, help="Where to write it.  [default: print it]")
@force_option
@guarded
def schema(data: Path, target: str, output: Path | None, force: bool) -> None:
    """Write a form for the public facts about the table DATA, to be filled in by hand.

    A private fit must know the range of every number and the list of every category beforehand,
    from public knowledge: a range or a list taken from the rows would reveal their extremes. So
    this command looks at names and storage types of the columns only, never at a value. (CSV
    files do not say which columns are numbers; there you fill in the type as well.)

    Edit the file (it says how), then see what a fit would cost, which also checks that the form is
    complete: dpglm plan --schema schema.json --rows 30000
    """
    types = storage_types(data)
    if target not in types:
        raise InputError(f"--target: {data} has no column {target!r}, but {', '.join(types)}")
    text = _dumps(template(types, target))
    if output is None:
        # An escaped character stands for itself in JSON, too.
        click.echo(plain(text), nl=False)
        return
    with all_or_none([output], force=force) as drafts:
        drafts[output].write_text(text, encoding="utf-8")
    note(f"Wrote {output}. Fill it in from public knowledge; the file says how.")


def template(types: Mapping[str, StorageType], target: str) -> dict[str, Any]:
    """Return an incomplete schema: names and storage types only."""
    return {
        HELP_KEY: _HELP,
        "columns": {name: _COLUMN[kind] for name, kind in types.items() if name and name != target},
        "target": {"name": target} | _TARGET[types[target]],
        "provenance": "",
    }


def _dumps(document: Mapping[str, Any]) -> str:
    """Write JSON with one line for each column and each line of help."""
    help_lines = ",\n".join(f"    {_json(line)}" for line in document[HELP_KEY])
    columns = ",\n".join(
        f"    {_json(name)}: {_json(entry)}" for name, entry in document["columns"].items()
    )
    return (
        f"{{\n  {_json(HELP_KEY)}: [\n{help_lines}\n  ],\n"
        f'  "columns": {{\n{columns}\n  }},\n'
        f'  "target": {_json(document["target"])},\n'
        f'  "provenance": {_json(document["provenance"])}\n}}\n'
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
