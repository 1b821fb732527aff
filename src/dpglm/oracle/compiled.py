"""Which losses and clippings the compiled sums know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dpglm.data.compiled.kernels import Rule
from dpglm.oracle.clipping import AutomaticClipping, Clipping, FlatClipping
from dpglm.problem import Huber, Logistic, Loss, Softmax, Squared, SquaredHinge

__all__ = ["compiled_rule", "has_compiled_scores"]


def compiled_rule(loss: Loss, clipping: Clipping) -> Rule | None:
    """Return the compiled code's description of a clipped gradient; None where it has none.

    Privacy: the compiled code clips as ``Clipping.scale`` does, in float64, and drops slopes that
    are not finite, so its contributions have the same bound.
    """
    if type(loss) not in _LOSSES or type(clipping) not in _CLIPPINGS:
        return None
    code, parameter = _LOSSES[type(loss)](loss)
    kind, stability = _CLIPPINGS[type(clipping)](clipping)
    return Rule(code, kind, parameter, clipping.bound, stability)


def has_compiled_scores(loss: Loss) -> bool:
    """Whether the compiled code knows a loss's slope and curvature in a basis."""
    return type(loss) is Logistic


# The numbers are those of the enumerations in data/compiled/_kernels.c.
_LOSSES: Mapping[type[Loss], Callable[[Any], tuple[int, float]]] = MappingProxyType(
    {
        Logistic: lambda loss: (0, 0.0),
        Squared: lambda loss: (1, 0.0),
        Huber: lambda loss: (2, loss.threshold),
        SquaredHinge: lambda loss: (3, 0.0),
        Softmax: lambda loss: (4, 0.0),
    }
)
_CLIPPINGS: Mapping[type[Clipping], Callable[[Any], tuple[int, float]]] = MappingProxyType(
    {
        FlatClipping: lambda clipping: (0, 0.0),
        AutomaticClipping: lambda clipping: (1, clipping.stability * clipping.bound),
    }
)
