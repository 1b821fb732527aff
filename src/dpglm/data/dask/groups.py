"""Groups of rows in the chunks of a Dask array, none of them in two."""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np

from dpglm.data.groups.ids import MIXTURE, Ids, warn_of_near_ids
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
    if len({one.is_text for one in found} - {None}) > 1:
        raise ValueError(MIXTURE)
    names = [name for one in found for name in one.names]
    warn_of_near_ids(names, [name for one in found for name in one.folded])
    if len(set(names)) < len(names):
        raise ValueError(
            "groups must each have all their rows in one partition, but there is one in several: "
            "bring them together first, as with frame.shuffle(on=...) or a larger rechunk"
        )
    seed = 0 if most is None else int(noise.words(1)[0])
    return GroupsOfPartitions(parts, most, seed, sum(one.n_rows for one in found), len(names))


@final
@dataclass(frozen=True, eq=False)
class _Facts:
    """Keyed hashes of the ids of a partition, as spelled and folded, and its rows that are used."""

    names: list[bytes]
    folded: list[bytes]
    n_rows: int
    is_text: bool | None


def _facts(key: bytes, most: int | None, length: int, ids: Any) -> _Facts:
    found = Ids.of(ids, length)
    sizes = np.bincount(found.codes, minlength=len(found.names))
    used = int((sizes if most is None else np.minimum(sizes, most)).sum())
    # Numbers that were text are apart from other text, and equal ones are one in all partitions.
    names, folded = ([_hash(key, one) for one in each] for each in (found.names, found.folded))
    return _Facts(names, folded, used, found.is_text)


def _hash(key: bytes, name: Any) -> bytes:
    name = name if isinstance(name, str) else Fraction(name)
    return hashlib.blake2b(repr(name).encode(), key=key, digest_size=16).digest()
