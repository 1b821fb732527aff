"""Fits made of stages, one after the other or on disjoint parts, as certificates record them.

Where ``settings`` have the key ``"stages"``, it maps the name of each stage to the settings of
its own method, with its ``"data"``. Its releases are recorded as
``"<name of the stage>: <quantity>"``. Stages may have stages.

Where there are ``"part_sizes"`` too, they say how the rows were divided; each stage then has the
number of its ``"part"``, and releases without a name are about the last part.

Where ``settings`` have the key ``"block_sizes"``, the rows were divided into such blocks, and
every release happened once in each of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from dpglm.data.spec import DataSpec
from dpglm.privacy.events import Composed, Event, Parallel, Repeated, canonical
from dpglm.privacy.mechanisms import Release

__all__ = ["Stage", "check_parts", "happened", "plain_settings", "stage_of"]

_SEPARATOR = ": "


@final
@dataclass(frozen=True)
class Stage:
    """Where a release belongs.

    Parameters
    ----------
    quantity : str
        What was released, without the names of stages.
    settings : mapping
        Of the method that released it.
    data : DataSpec
        Public facts about the rows that it asked.
    """

    quantity: str
    settings: Mapping[str, Any]
    data: DataSpec


def stage_of(quantity: str, settings: Mapping[str, Any]) -> Stage:
    """Find the stage of a release from its recorded quantity."""
    if "block_sizes" in settings:
        block = {**settings["data"], "n_rows": max(settings["block_sizes"])}
        return Stage(quantity, settings, DataSpec(**block))
    if "stages" not in settings:
        return Stage(quantity, settings, DataSpec(**settings["data"]))
    name, separator, rest = quantity.partition(_SEPARATOR)
    if separator:
        return stage_of(rest, settings["stages"][name])
    last = {**settings["data"], "n_rows": settings["part_sizes"][-1]}
    return Stage(quantity, settings, DataSpec(**last))


def happened(releases: Sequence[Release], settings: Mapping[str, Any]) -> Event:
    """Return the event that releases make up, each on the part of the rows that it was about.

    Parameters
    ----------
    releases : sequence of Release
        Everything that left.
    settings : mapping
        Of the method that released it.

    Returns
    -------
    Event
        In canonical form; all one after the other where there are neither stages nor blocks.
    """
    if "block_sizes" in settings:
        block = _composed(one.event for one in releases)
        return canonical(Parallel((block,) * len(settings["block_sizes"])))
    if "stages" not in settings:
        return _composed(Repeated(one.event, one.count) for one in releases)
    by_stage: dict[str, list[Release]] = {name: [] for name in settings["stages"]}
    by_part: list[list[Event]] = [[] for _ in settings.get("part_sizes", [0])]
    for one in releases:
        name, separator, rest = one.quantity.partition(_SEPARATOR)
        if separator:
            by_stage[name].append(dataclasses.replace(one, quantity=rest))
        else:
            by_part[-1].append(Repeated(one.event, one.count))
    for name, inner in by_stage.items():
        stage = settings["stages"][name]
        by_part[stage.get("part", 0)].append(happened(inner, stage))
    parts = tuple(map(_composed, by_part))
    return parts[0] if "part_sizes" not in settings else canonical(Parallel(parts))


def check_parts(settings: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the parts of the rows, if anything is."""
    key = "block_sizes" if "block_sizes" in settings else "part_sizes"
    if key not in settings:
        return _first(check_parts(stage) for stage in settings.get("stages", {}).values())
    data, sizes = settings["data"], settings[key]
    if not all(size >= 1 for size in sizes) or sum(sizes) != data["n_rows"]:
        return f"parts of {sizes!r} rows do not make up {data['n_rows']!r} rows"
    for name, stage in settings.get("stages", {}).items():
        if not 0 <= stage["part"] < len(sizes):
            return f"{name} is about part {stage['part']!r} of {len(sizes)}"
        if stage["data"] != {**data, "n_rows": sizes[stage["part"]]}:
            return f"the public facts of {name} are not those of its part"
        if finding := check_parts(stage):
            return finding
    return None


def plain_settings(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """List the settings of every method that has no stages itself."""
    if "stages" not in settings:
        yield settings
        return
    for stage in settings["stages"].values():
        yield from plain_settings(stage)


def _first(findings: Iterator[str | None]) -> str | None:
    return next((finding for finding in findings if finding), None)


def _composed(events: Iterator[Event] | list[Event]) -> Event:
    return canonical(Composed(tuple(events)))
