"""Public weights of classes, by their labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.tables.cells import normal

__all__ = ["class_factors", "heaviest_class", "weights_by_text"]


def heaviest_class(class_weight: Any) -> float:
    """Return the public bound on the weight of a class, at least 1: that of a class not named."""
    return max([1.0, *_checked(class_weight).values()])


def class_factors(class_weight: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the weight of each of the sorted classes, of shape (n_classes,).

    Keys equal their labels; where labels are no text, they may also be text, as JSON has them.

    Examples
    --------
    >>> class_factors({"1": 5.0}, np.array([0, 1])).tolist()
    [1.0, 5.0]
    """
    factors, labels = np.ones(len(classes)), classes.tolist()
    given: dict[int, Any] = {}
    for key, weight in _checked(class_weight).items():
        found = [i for i, label in enumerate(labels) if _is_label(key, label)]
        if not found:
            raise ValueError(f"class_weight must have keys among the classes {labels}, got {key!r}")
        if found[0] in given:
            raise ValueError(
                "class_weight must name each class once, got "
                f"{given[found[0]]!r} and {key!r} for {labels[found[0]]!r}"
            )
        given[found[0]] = key
        factors[found[0]] = weight
    if not factors.any():
        raise ValueError(
            f"class_weight must be above 0 for at least one class, got {class_weight!r}"
        )
    return factors


def weights_by_text(class_weight: Any, classes: NDArray[Any]) -> dict[str, float]:
    """Write the weights of all classes, in their order, as JSON that ``class_factors`` reads."""
    factors = class_factors(class_weight, classes)
    return dict(zip(map(str, classes.tolist()), factors.tolist(), strict=True))


def _checked(class_weight: Any) -> dict[Any, float]:
    if class_weight is None:
        return {}
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight must be a dict from label to weight or None, got {class_weight!r}; "
            "'balanced' would read private class counts"
        )
    return {
        label: check_real(f"class_weight[{label!r}]", weight, least=0.0)
        for label, weight in class_weight.items()
    }


def _is_label(key: Any, label: Any) -> bool:
    if isinstance(key, str) and not isinstance(label, str):
        return key.strip() in (str(label), json.dumps(label, default=str))
    if isinstance(key, str) and isinstance(label, str):
        return normal(key) == normal(label)
    return bool(key == label)
