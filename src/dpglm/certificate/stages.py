"""Fits made of stages, one after the other or on disjoint parts, as certificates record them.

Where ``settings`` have the key ``"stages"``, it maps the name of each stage to the settings of
its own method, with its ``"data"``. Its releases are recorded as
``"<name of the stage>: <quantity>"``. Stages may have stages.

Where there are ``"part_sizes"`` too, they say how the rows were divided; each stage then has the
number of its ``"part"``, and releases without a name are about the last part.

Where there are ``"repetitions"``, a random number of tries was made, each at one of the stages
and with one release of each kind that has no name, and the best of them is all that left.

Where ``settings`` have the key ``"block_sizes"``, the rows were divided into such blocks, and
every release happened once in each of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from dpglm.data.spec import DataSpec
from dpglm.privacy.events import (
    Composed,
    Event,
    Parallel,
    RandomlyRepeated,
    Repeated,
    canonical,
)
from dpglm.privacy.releases import Release
from dpglm.privacy.selection.repetitions import repetitions_from_dict

__all__ = [
    "Stage",
    "by_stage",
    "check_parts",
    "check_problems",
    "happened",
    "plain_settings",
    "stage_of",
]

_SEPARATOR = ": "
# What no stage changes about the rows that come after it.
_KEPT = ("n_rows", "n_outputs", "weight_bound")


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
    n_rows = settings["part_sizes"][-1] if "part_sizes" in settings else settings["data"]["n_rows"]
    return Stage(quantity, settings, DataSpec(**{**settings["data"], "n_rows": n_rows}))


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
    of_stages, others = by_stage(releases, settings)
    if "repetitions" in settings:
        score = _composed(Repeated(one.event, one.count) for one in others)
        tries = [happened(of_stages[name], stage) for name, stage in settings["stages"].items()]
        return RandomlyRepeated(
            tuple(Composed((one, score)) for one in tries),
            repetitions_from_dict(settings["repetitions"]),
        )
    by_part: list[list[Event]] = [[] for _ in settings.get("part_sizes", [0])]
    by_part[-1] += [Repeated(one.event, one.count) for one in others]
    for name, inner in of_stages.items():
        stage = settings["stages"][name]
        by_part[stage.get("part", 0)].append(happened(inner, stage))
    parts = tuple(map(_composed, by_part))
    return parts[0] if "part_sizes" not in settings else canonical(Parallel(parts))


def by_stage(
    releases: Sequence[Release], settings: Mapping[str, Any]
) -> tuple[dict[str, list[Release]], list[Release]]:
    """Sort releases by their stages, whose names are taken off; those of no stage come second."""
    of_stages: dict[str, list[Release]] = {name: [] for name in settings["stages"]}
    others: list[Release] = []
    for one in releases:
        name, separator, rest = one.quantity.partition(_SEPARATOR)
        if separator:
            of_stages[name].append(dataclasses.replace(one, quantity=rest))
        else:
            others.append(one)
    return of_stages, others


def check_parts(settings: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the parts of the rows, if anything is."""
    key = "block_sizes" if "block_sizes" in settings else "part_sizes"
    if "repetitions" in settings:
        for name, stage in settings["stages"].items():
            if stage["data"] != settings["data"]:
                return f"the public facts of {name} are not those of all rows"
    if key not in settings:
        inner = (check_parts(stage) for stage in settings.get("stages", {}).values())
        return _check_sequence(settings) or _first(inner)
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


def _check_sequence(settings: Mapping[str, Any]) -> str | None:
    """Of stages one after the other the first asks the rows as they are, the rest as many."""
    for position, (name, stage) in enumerate(settings.get("stages", {}).items()):
        data = settings["data"]
        kept = data if position == 0 else {key: data[key] for key in _KEPT}
        if {**stage["data"], **kept} != stage["data"]:
            return f"the public facts of {name} do not go with those of the rows"
    return None


def check_problems(settings: Mapping[str, Any]) -> str | None:
    """Say if what was minimised is not what one of the stages minimised, constraints aside."""
    stages = settings.get("stages", {}).values()
    own = [_but_constraint(stage["problem"]) for stage in stages if "problem" in stage]
    if own and "problem" in settings and _but_constraint(settings["problem"]) not in own:
        return "what was minimised is not what any of the stages minimised"
    return _first(check_problems(stage) for stage in stages)


def _but_constraint(problem: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in problem.items() if name != "constraint"}


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
