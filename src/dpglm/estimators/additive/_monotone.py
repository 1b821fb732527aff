"""Curves that must rise or fall: released values, projected. Post-processing, hence free."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import in_one_line
from dpglm.tables.schema import Schema

__all__ = ["Directions", "projected", "read_directions"]

Directions: TypeAlias = Mapping[str, int]
"""Column by column, 1 where the score must not fall, -1 where it must not rise."""


def read_directions(monotone: Any, schema: Schema) -> Directions:
    """Check the parameter ``monotone``: columns with an order, by name, in no interaction."""
    directions: Any = {} if monotone is None else monotone
    known = isinstance(directions, Mapping) and all(
        not isinstance(one, bool) and isinstance(one, numbers.Integral) and one in (-1, 1)
        for one in directions.values()
    )
    if not known:
        raise ValueError(
            "monotone must be a mapping from columns to 1 or -1, such as {'age': 1}, got "
            f"{in_one_line(monotone)}"
        )
    terms = schema.additive_encoding.terms
    curves = {one.name for one in terms if len(one.axes) == 1 and one.axes[0].line is not None}
    paired = {name for term in terms if len(term.axes) > 1 for name in term.columns}
    for name in directions:
        if name not in curves or name in paired:
            raise ValueError(
                "monotone must name numeric or ordered columns that are in no interaction, "
                f"{sorted(curves - paired)}, got {name!r}"
            )
    return {name: int(direction) for name, direction in directions.items()}


def projected(
    coef: NDArray[np.float64], directions: Directions, schema: Schema
) -> NDArray[np.float64]:
    """Return coefficients whose curves are the nearest monotone ones, knot by knot.

    Isotonic regression keeps the mean over the knots, which is zero, so the intercept stays.
    Between knots a curve is linear in a function that increases, hence monotone as well.
    """
    from sklearn.isotonic import isotonic_regression

    nearest = np.array(coef, copy=True)
    by_name = {term.name: term for term in schema.additive_encoding.terms}
    for name, direction in directions.items():
        term = by_name[name]
        curve, own = term.axes[0].curve, nearest[..., term.features]
        # The feature of missing values, if there is one, comes last.
        count = curve.shape[1]
        values = isotonic_regression(curve @ own.ravel()[:count], increasing=direction > 0)
        own[..., :count] = np.linalg.lstsq(curve, values, rcond=None)[0]
    return nearest
