"""What turns the linear scores of a saved model into means or probabilities."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.problem import (
    ClippedLoss,
    Hinge,
    Huber,
    Logistic,
    Loss,
    OneVsRest,
    Poisson,
    Savage,
    SmoothedHinge,
    Softmax,
    Squared,
    SquaredHinge,
    Tangent,
    Target,
    Tempered,
    class_shares,
)
from dpglm.problem.log_probabilities import class_log_probabilities, log_class_shares

__all__ = ["MEAN", "PROBABILISTIC", "Link", "link_of", "link_of_words"]

Link: TypeAlias = Literal["identity", "exp", "logistic", "ovr", "softmax"]
"""What turns linear predictions into means or probabilities; ``"identity"`` leaves them."""

MEAN: Mapping[str, Callable[[NDArray[np.float64]], Any]] = MappingProxyType(
    {
        "identity": lambda z: z,
        "exp": Poisson().predict,
        "logistic": lambda z: np.column_stack([Logistic().predict(-z), Logistic().predict(z)]),
        "ovr": class_shares,
        "softmax": Softmax().predict,
    }
)
"""The function of each link."""

PROBABILISTIC: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = (
    MappingProxyType(
        {
            "logistic": class_log_probabilities,
            "ovr": log_class_shares,
            "softmax": class_log_probabilities,
        }
    )
)
"""Links that give probabilities of classes, with the function for their logarithms."""

_LINKS: Mapping[type[Loss], Link] = MappingProxyType(
    {
        Hinge: "identity",
        Huber: "identity",
        Logistic: "logistic",
        Poisson: "exp",
        Savage: "identity",
        SmoothedHinge: "identity",
        Softmax: "softmax",
        Squared: "identity",
        SquaredHinge: "identity",
        Tangent: "identity",
        Tempered: "identity",
    }
)
_LINKS_BY_NAME = {kind.__name__: link for kind, link in _LINKS.items()}
_WRAPPERS: Mapping[type[Loss], Callable[[Any], Link]] = MappingProxyType(
    {
        ClippedLoss: lambda loss: link_of(loss.loss),
        OneVsRest: lambda loss: _of_one_vs_rest(link_of(loss.loss)),
    }
)


def link_of(loss: Loss) -> Link:
    """Return the link with which a model of a loss predicts.

    Parameters
    ----------
    loss : Loss
        What was minimised.

    Returns
    -------
    {"identity", "exp", "logistic", "ovr", "softmax"}
        For losses of labels that are not of ``dpglm.problem``: ``"identity"``, as labels are
        told by scores alone.

    Raises
    ------
    ValueError
        If the loss is of numbers and not of ``dpglm.problem``: nobody knows its mean.
    """
    kind = type(loss)
    if kind in _WRAPPERS:
        return _WRAPPERS[kind](loss)
    if kind in _LINKS:
        return _LINKS[kind]
    if loss.target in (Target.BINARY, Target.CLASS):
        return "identity"
    raise ValueError(
        f"loss must be one of dpglm.problem for a model file, which cannot hold how {loss!r} "
        "predicts"
    )


def link_of_words(loss: str) -> Link | None:
    """Return the link of a loss from its ``repr``, as certificates hold it.

    Parameters
    ----------
    loss : str
        Such as ``"OneVsRest(loss=Logistic(), n_classes=3)"``.

    Returns
    -------
    Link or None
        None for a loss that is not of ``dpglm.problem``.

    Examples
    --------
    >>> link_of_words("OneVsRest(loss=Logistic(), n_classes=3)"), link_of_words("Mine()")
    ('ovr', None)
    """
    *wrappers, innermost = re.findall(r"(\w+)\(", loss) or [""]
    link = _LINKS_BY_NAME.get(innermost)
    if link is not None and OneVsRest.__name__ in wrappers:
        return _of_one_vs_rest(link)
    return link


def _of_one_vs_rest(link: Link) -> Link:
    return "ovr" if link == "logistic" else "identity"
