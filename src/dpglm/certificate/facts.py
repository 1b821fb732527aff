"""Public facts: what a guarantee treats as known to everyone, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, final

import numpy as np

from dpglm._json import at, check_writable, line, object_with
from dpglm._validation import check_one_of

__all__ = ["Provenance", "PublicFact", "plain_json"]

Provenance = Literal["declared", "by relation", "from the data"]

_PROVENANCES: tuple[Provenance, ...] = ("declared", "by relation", "from the data")


@final
@dataclass(frozen=True)
class PublicFact:
    """Something that the guarantee treats as known to everyone.

    Parameters
    ----------
    name : str
        Name of the fact, such as ``"row_norm"``.
    value : JSON value, NumPy scalar or array
        Kept as plain JSON values; infinities and NaN as their names.
    provenance : {"declared", "by relation", "from the data"}
        Given by the caller; shared by all neighbouring data sets, so that it reveals nothing
        about a row; or taken from the private rows for convenience, which is a leak.

    Examples
    --------
    >>> import numpy as np
    >>> PublicFact("classes", np.array([0, 1]), "declared").value
    [0, 1]
    """

    name: str
    value: Any
    provenance: Provenance

    def __post_init__(self) -> None:
        check_one_of("provenance", self.provenance, _PROVENANCES)
        object.__setattr__(self, "value", plain_json(self.value))
        with at(self.name):
            check_writable(self.value)

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read back what ``dataclasses.asdict`` wrote.

        Raises
        ------
        ValueError
            If a key is missing or unknown, or the provenance is.
        """
        return cls(**_READ(document))


def plain_json(value: Any) -> Any:
    """Return ``value`` as what JSON can hold, so that writing and reading changes nothing."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)


_READ = object_with(
    {"name": line, "value": lambda value: value, "provenance": line}, "a public fact"
)
