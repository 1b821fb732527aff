"""Groups of rows in the chunks of a Dask array, none of them in two."""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.groups.ids import MIXTURE, Groups
from dpglm.privacy.noise import NoiseSource

__all__ = ["GroupsOfPartitions", "groups_of_partitions"]


@final
@dataclass(frozen=True, eq=False)
class GroupsOfPartitions:
    """Who the rows of each partition belong to, by Dask's delayed values. Private.

    ``seed`` chooses the rows that are used where there are more than ``most`` of a group: with the
    partition's place, so that a partition that is lost is prepared alike.
    """

    ids: tuple[Any, ...]
    most: int | None
    seed: int
    n_rows: int
    n_groups: int

    def of(self, index: int) -> tuple[Any, int | None, int]:
        """Return the identifiers of a partition's rows, the limit, and the seed of its draws."""
        return self.ids[index], self.most, self.seed + index


def groups_of_partitions(
    lengths: Sequence[int], ids: Any, most: int | None, noise: NoiseSource
) -> GroupsOfPartitions:
    """Check that each group lies in one partition, and count groups and rows that are used.

    Names are compared by keyed hashes, and do not leave the workers. ``ValueError`` if a group is
    in two partitions: its parts would be bounded one by one.
    """
    import dask

    ask = dask.delayed(functools.partial(_facts, secrets.token_bytes(16), most), pure=False)
    parts = tuple(ids.to_delayed().ravel())
    found = dask.compute(*map(ask, lengths, parts))
    if len(set.union(*(kinds for _, _, kinds in found))) > 1:
        raise ValueError(MIXTURE)
    names = [name for of_partition, _, _ in found for name in of_partition]
    if len(set(names)) < len(names):
        raise ValueError(
            "groups must each have all their rows in one partition, but there is one in several: "
            "bring them together first, as with frame.shuffle(on=...) or a larger rechunk"
        )
    seed = 0 if most is None else int(noise.words(1)[0])
    return GroupsOfPartitions(parts, most, seed, sum(rows for _, rows, _ in found), len(names))


def _facts(
    key: bytes, most: int | None, length: int, ids: Any
) -> tuple[list[bytes], int, set[str]]:
    """Return keyed hashes of the names of groups, the number of rows that are used, and kinds."""
    groups, values = Groups.of(ids, length), np.asarray(ids).reshape(-1)
    sizes = np.bincount(groups.codes, minlength=groups.n_groups)
    used = int((sizes if most is None else np.minimum(sizes, most)).sum())
    names = np.unique(values)
    return [_name(key, value) for value in names.tolist()], used, _kinds(names)


def _kinds(names: NDArray[Any]) -> set[str]:
    """Say what names, which can be compared, may be equal to; nothing of no names."""
    if not len(names):
        return set()
    if isinstance(names[0], str | bytes):
        return {"text"}
    return {"number" if names.dtype.kind in "Obiuf" else str(names.dtype)}


def _name(key: bytes, value: Any) -> bytes:
    # Equal numbers are one group, whatever their type, as in one array in memory.
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | float | Decimal):
        value = Fraction(value)
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    return hashlib.blake2b(repr(value).encode(), key=key, digest_size=16).digest()
