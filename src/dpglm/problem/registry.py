"""Losses by name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dpglm.problem.loss import Loss

__all__ = ["losses_in"]


def losses_in(namespace: Mapping[str, Any]) -> Mapping[str, Loss]:
    """List the losses that a module exports and that need no settings.

    Parameters
    ----------
    namespace : mapping from str to object
        Names of a module.

    Returns
    -------
    mapping from str to Loss
        By their classes' names in lower case with underscores, with their default settings.

    Examples
    --------
    >>> from dpglm.problem.hinge_losses import SquaredHinge
    >>> dict(losses_in({"SquaredHinge": SquaredHinge}))
    {'squared_hinge': SquaredHinge()}
    """
    kinds: list[Any] = [
        one for one in namespace.values() if inspect.isclass(one) and issubclass(one, Loss)
    ]
    return MappingProxyType(
        {
            re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind()
            for kind in kinds
            if not inspect.isabstract(kind)
            and all(field.default is not dataclasses.MISSING for field in dataclasses.fields(kind))
        }
    )
